"""Constant weights of 8 bits less their zero points, as the kernels of products and convolutions read them: signed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intarsia.lazy_dataclass import dataclass
from intarsia.providers.cpu.kernels.common.microkernel import Tile
from intarsia.providers.cpu.kernels.common.template import Workspace
from intarsia.providers.cpu.kernels.matmul_int8 import saturation_free_order

LIFT = 128  # between int8 and uint8


def is_signed_byte(weights: np.ndarray, zero: np.ndarray) -> bool:
    """Whether 8-bit `weights` [terms, columns] less their zero points, one or one for each column, are int8."""
    if not weights.size:
        return True
    axis = 0 if zero.size > 1 else None
    least, most = (np.asarray(f(axis)).astype(np.int32) - zero for f in (weights.min, weights.max))
    return bool(least.min() >= -LIFT and most.max() < LIFT)


def centred(weights: np.ndarray, zero: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """8-bit `weights` [terms, columns] as int8, and what is left of `zero` (one, or one for each column): None if it could be
    subtracted."""
    if is_signed_byte(weights, zero):
        return (weights.astype(np.int16) - zero.astype(np.int16)).astype(np.int8), None
    lift = LIFT if weights.dtype == np.uint8 else 0
    return (weights.astype(np.int16) - lift).astype(np.int8), zero.astype(np.int32) - lift


@dataclass(frozen=True)
class Ordered:
    """Weights that `saturation_free_order` packed: their name, and the bytes of a panel."""

    packed: str
    panel_nbytes: int


def ordered_weights(workspace: Workspace, weights: str, key: str, matrix: np.ndarray, tile: Tile) -> Ordered:
    """int8 [taps, K, N], made of the constant `weights`, in an order in which bytes can be multiplied as they are."""
    panels = saturation_free_order.pack_ordered(matrix, tile)
    return Ordered(workspace.add(weights, f"ordered{tile.width}_{key}", lambda: panels), panels.shape[1])


def add_sums(workspace: Workspace, name: str, key: str, make: Callable[[], np.ndarray]) -> str:
    """The buffer of sums that are made of the constant `name`, modulo 2^32."""
    return workspace.add(name, key, lambda: np.ascontiguousarray(make().astype(np.int64).astype(np.int32)))


def digest(values: np.ndarray) -> str:
    """A short name of an array's contents."""
    import hashlib

    return hashlib.blake2b(np.ascontiguousarray(values).tobytes(), digest_size=8).hexdigest()
