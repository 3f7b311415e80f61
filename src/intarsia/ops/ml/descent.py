"""A step down a tree, in primitives: what native code, devices and the host compare.

Data are compared as integers: a float's *key* is an unsigned integer of its size that, read as a signed one, has the same
order; zeros of both signs have one key and NaN the largest. A node holds the interval of keys that lead to its second child, so
that every comparison of ONNX, with or without NaN counted in, is the same subtraction and comparison (`packed` makes the
intervals).
"""

from __future__ import annotations

from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor

_KEYS = {DType.FLOAT: DType.UINT32, DType.DOUBLE: DType.UINT64}
_INFINITY = {DType.FLOAT: 0x7F800000, DType.DOUBLE: 0x7FF0000000000000}


def keys(x: Tensor) -> Tensor:
    """uint32 of float32, uint64 of float64."""
    dtype = _KEYS[x.dtype]
    nan = (1 << (dtype.bits - 1)) - 1
    bits = k.bitcast(x, dtype)
    size = k.binary("bitand", bits, nan)
    ordered = k.select(k.equal(bits, size), size, 0 - size)
    return k.select(size <= _INFINITY[x.dtype], ordered, nan)


def leads(key: Tensor, low: Tensor, span: Tensor) -> Tensor:
    """Whether a key lies in [low, low + span), which wraps around."""
    return key - low < span
