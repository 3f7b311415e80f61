"""Constant weights of 8 bits less their zero points, as the kernels of products and convolutions read them: signed."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from intarsia.lazy_dataclass import dataclass
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.template import Workspace
from intarsia.providers.cpu.kernels.common.tiles import Tile
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


def ordered_weights(workspace: Workspace, weights: str, view: Hashable, matrix: np.ndarray, tile: Tile) -> Ordered:
    """int8 [taps, K, N] in an order in which bytes can be multiplied as they are. `weights`: the constant that it is made of,
    `view`: as of `Packing`."""
    panels = saturation_free_order.pack_ordered(matrix, tile)
    return Ordered(workspace.add(weights, Packing(Layout.INT8_ORDERED, tile.width, view=view), lambda: panels), panels.shape[1])


def add_sums(workspace: Workspace, weights: str, values: np.ndarray) -> str:
    """The buffer of numbers for each column that were made of the constant `weights`, modulo 2^32."""
    packing = Packing(Layout.COLUMN_SUMS, view=digest(values))
    return workspace.add(f"{weights}%columns", packing, lambda: np.ascontiguousarray(values.astype(np.int64).astype(np.int32)))


def digest(values: np.ndarray) -> str:
    """A short name of an array's contents."""
    import hashlib

    return hashlib.blake2b(np.ascontiguousarray(values).tobytes(), digest_size=8).hexdigest()
