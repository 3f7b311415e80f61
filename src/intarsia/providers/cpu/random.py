"""Random tensors of float32 by a kernel: called from Python, since a run without a seed draws a key."""

from __future__ import annotations

import ctypes
import functools
import struct
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.plan.address import address_of

if TYPE_CHECKING:
    from intarsia.codegen.target import Target


def random_normal(node: Node, inputs: Sequence[Any], target: Target) -> list[Any] | None:
    """RandomNormal and RandomNormalLike."""
    attributes = node.attributes
    return _drawn("normal", node, inputs, target, attributes.get("mean", 0.0), attributes.get("scale", 1.0))


def random_uniform(node: Node, inputs: Sequence[Any], target: Target) -> list[Any] | None:
    """RandomUniform and RandomUniformLike."""
    return _drawn("uniform", node, inputs, target, node.attributes.get("low", 0.0), node.attributes.get("high", 1.0))


def bernoulli(node: Node, inputs: Sequence[Any], target: Target) -> list[Any] | None:
    (p,) = inputs
    if p.dtype != np.float32 or not p.flags.c_contiguous:
        return None
    return _drawn("below", node, inputs, target, 0.0, 0.0, address_of(p))


def dropout(node: Node, inputs: Sequence[Any], target: Target) -> list[Any] | None:
    """Dropout in training mode without a seed: elements that stay are scaled by 1 / (1 - ratio)."""
    x, ratio, *_ = (*inputs, None)
    share = 0.5 if ratio is None else float(ratio)
    if node.attributes.get("seed") is not None or x.dtype != np.float32 or not 0 <= share < 1:
        return None
    (drawn,) = _drawn("uniform", Node("", [], [], attributes={"shape": x.shape}), [], target, 0.0, 1.0) or [None]
    kept = drawn >= np.float32(share)
    y = np.multiply(x, np.float32(1 / (1 - share)), out=drawn)
    y *= kept
    return [y, kept][: len(node.outputs)]


def _drawn(kind: str, node: Node, inputs: Sequence[Any], target: Target, a: float, b: float, p: int = 0) -> list[Any] | None:
    """float32 numbers of the shape that the node gives, or None where it asks for another type."""
    if node.attributes.get("dtype", DType.FLOAT) != DType.FLOAT or (inputs and inputs[0].dtype != np.float32):
        return None
    y = np.empty(inputs[0].shape if inputs else tuple(node.attributes["shape"]), np.float32)
    bounds = array("f", (a, b))
    args = array("q", (address_of(y), y.size, _key(node.attributes.get("seed")), bounds.buffer_info()[0], p))
    _kernel(kind, target)(args.buffer_info()[0], 0, 1)
    return [y]


def _key(seed: float | None) -> int:
    """The bits of a node's seed, or 64 bits from the generator that nodes without one share."""
    if seed is not None:
        return int(struct.unpack("<I", struct.pack("<f", seed))[0])
    from intarsia.ops.random import generator

    return int(generator(None).integers(-(1 << 63), 1 << 63))


@functools.lru_cache(maxsize=8)
def _kernel(kind: str, target: Target) -> Callable[[int, int, int], None]:
    from intarsia.codegen.engine import get_engine
    from intarsia.codegen.random import kernel_text

    text = kernel_text(kind, target)
    address = get_engine(target).load([text])[text.symbol]
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
