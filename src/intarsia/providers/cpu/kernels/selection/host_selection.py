"""NonZero, Compress, Unique and Range as host steps: called from Python, since sizes of their outputs depend on data.

Each takes plain arrays and leaves other operands (strings, odd ranks, wrong values) to the definition by answering None.
"""

from __future__ import annotations

import ctypes
import functools
import math
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.graph.model import Node
from intarsia.plan.array_address import address_of
from intarsia.plan.result_pool import memory

if TYPE_CHECKING:
    from intarsia.codegen.llvm.target import Target

_PLAIN = frozenset("biuf")  # kinds of NumPy's own element types
_FEW = 256  # elements for which NumPy is done before the kernel is called
_ROW_NBYTES, _SMALL_NBYTES = 64, 1 << 15  # rows that NumPy copies as fast, of tensors for which a kernel's call takes longer
_BLOCK = 1 << 14  # elements of a range that are made at a time: a sum of two of its floats is the float next to the integer
_MOST_KEYS = 16  # of a slice, for which Unique sorts key by key


def non_zero(node: Node, inputs: Sequence[Any], target: Target) -> list[Any] | None:
    """X -> int64 [rank, count], in row-major order."""
    (x,) = inputs
    if x.dtype.kind not in _PLAIN or x.ndim == 0 or not x.flags.c_contiguous:
        return None
    if x.size <= _FEW:
        found = x.nonzero()
        return [found[0].reshape(1, -1) if len(found) == 1 and found[0].dtype == np.int64 else np.array(found, np.int64)]
    call = _non_zero_kernel(x.dtype.itemsize, x.dtype.kind == "f", target)
    shape, count = array("q", x.shape), array("q", (0,))
    args = array("q", (address_of(x), shape.buffer_info()[0], 0, count.buffer_info()[0], x.ndim, x.size))
    call(args.buffer_info()[0], 0, 1)
    y = np.empty((x.ndim, count[0]), np.int64)
    if count[0]:
        args[2] = address_of(y)
        call(args.buffer_info()[0], 0, 1)
    return [y]


@functools.lru_cache(maxsize=64)
def _non_zero_kernel(itemsize: int, floating: bool, target: Target) -> Callable[[int, int, int], None]:
    from intarsia.codegen.llvm.jit import get_engine
    from intarsia.providers.cpu.kernels.selection.nonzero_kernel import kernel_text

    text = kernel_text(itemsize, floating, target)
    address = get_engine(target).load([text])[text.symbol]
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)


def compress(node: Node, inputs: Sequence[Any], target: Target) -> list[Any] | None:
    """Slices of `input` along `axis` (elements without one) whose condition holds."""
    x, condition = inputs
    axis = node.attributes.get("axis")
    if condition.ndim != 1 or condition.dtype != np.bool_ or (axis is not None and not -x.ndim <= axis < x.ndim):
        return None
    extent = x.size if axis is None else x.shape[axis]
    taken = condition if len(condition) <= extent else condition[:extent]
    if x.size <= _FEW or x.dtype.kind not in _PLAIN or not (x.flags.c_contiguous and taken.flags.c_contiguous):
        return [x.compress(taken, axis)]
    at = 0 if axis is None else axis % x.ndim
    outer = math.prod(x.shape[:at]) if at else 1
    block = x.nbytes // (outer * extent)
    if not at and block >= _ROW_NBYTES and x.nbytes <= _SMALL_NBYTES:
        return [x.compress(taken, axis)]
    count = int(np.count_nonzero(taken.view(np.uint8)))  # bytes, as the kernel looks at them
    shape = (count,) if axis is None else (*x.shape[:at], count, *x.shape[at + 1 :])
    y = memory.empty(shape, x.dtype)
    call = _compress_kernel(x.dtype.itemsize if block == x.dtype.itemsize else 0, target)
    addresses = (address_of(x), address_of(taken), address_of(y))
    args = array("q", (*addresses, outer, len(taken), block * extent, block, block * count))
    call(args.buffer_info()[0], 0, 1)
    return [y]


@functools.lru_cache(maxsize=8)
def _compress_kernel(itemsize: int, target: Target) -> Callable[[int, int, int], None]:
    from intarsia.codegen.llvm.jit import get_engine
    from intarsia.providers.cpu.kernels.selection.compress_kernel import kernel_text

    text = kernel_text(itemsize, target)
    address = get_engine(target).load([text])[text.symbol]
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)


def unique(node: Node, inputs: Sequence[Any], target: Target) -> list[Any] | None:
    """Distinct elements or slices, the index of the first of each, which one each element is, and counts."""
    (x,) = inputs
    axis = node.attributes.get("axis")
    if x.dtype.kind not in _PLAIN or x.size == 0:
        return None
    if axis is None:
        keys = [x.reshape(-1)]
    else:
        if not -x.ndim <= axis < x.ndim:
            return None
        slices = np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)
        if slices.shape[1] > _MOST_KEYS:
            return None
        keys = [np.ascontiguousarray(column) for column in slices.T]
    names = (*node.outputs, "", "", "")
    ascending = bool(node.attributes.get("sorted", 1))
    if ascending and axis is None and not any(names[1:4]):
        ordered = np.sort(keys[0])
        return [ordered[_starts([ordered])], None, None, None][: len(node.outputs)]
    if len(keys) == 1:
        alike = x.dtype.kind == "f" and np.isnan(keys[0]).any()  # no NaN equals another: they stay in order
        order = keys[0].argsort(kind="stable" if alike else None)
    else:
        order = np.lexsort(keys[::-1])
    new = _starts([key[order] for key in keys])
    starts = new.nonzero()[0]
    first = np.minimum.reduceat(order, starts)
    counts = np.diff(starts, append=len(order))
    inverse = np.empty(len(order), np.int64)
    inverse[order] = np.cumsum(new) - 1
    if not ascending:
        rank = np.empty(len(first), np.int64)
        by_place = first.argsort()
        rank[by_place] = np.arange(len(first))
        first, counts, inverse = first[by_place], counts[by_place], rank[inverse]
    values = keys[0][first] if axis is None else np.take(x, first, axis=axis)
    return [values, first, inverse, counts][: len(node.outputs)]


def _starts(keys: Sequence[np.ndarray]) -> np.ndarray:
    """Which of sorted slices, given key by key, differ from the one before (the first does)."""
    new = np.empty(len(keys[0]), np.bool_)
    new[0] = True
    np.not_equal(keys[0][1:], keys[0][:-1], out=new[1:])
    for key in keys[1:]:
        new[1:] |= key[1:] != key[:-1]
    return new


def range_of(node: Node, inputs: Sequence[Any], target: Target) -> list[Any] | None:
    """start + i * delta while it is before limit, of float32, float64, int32 or int64."""
    start, limit, delta = inputs
    if any(v.size != 1 or v.dtype != start.dtype for v in inputs) or start.dtype.char not in "fdilq":
        return None
    first, last, step = start.item(), limit.item(), delta.item()
    if step == 0 or first - first != 0 or last - last != 0 or step - step != 0:  # no step, or no finite number
        return None
    if start.dtype.kind == "f":
        count = max(int(np.ceil((last - first) / step)), 0)
    else:
        count = max((last - first + step - (1 if step > 0 else -1)) // step, 0)
    if count <= _BLOCK:
        return [_stepped(np.arange(count, dtype=start.dtype), first, step)]
    made, places = memory.empty((count,), start.dtype), _places(start.dtype)
    for begin in range(0, count, _BLOCK):  # a block at a time: all at once would pass through memory three times
        part = made[begin : begin + _BLOCK]
        np.add(places[: len(part)], start.dtype.type(begin), out=part)
        _stepped(part, first, step)
    return [made]


def _stepped(places: np.ndarray, first: float, step: float) -> np.ndarray:
    """first + place * step, where the places are."""
    if step != 1:
        places *= places.dtype.type(step)
    if first != 0:
        places += places.dtype.type(first)
    return places


@functools.cache
def _places(dtype: np.dtype) -> np.ndarray:
    return np.arange(_BLOCK, dtype=dtype)
