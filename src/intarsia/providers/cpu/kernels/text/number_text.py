"""Cast between strings and numbers; other casts, and texts that only Python knows to read, are left to the definition."""

from __future__ import annotations

import ctypes
import functools
import math
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.plan.array_address import address_of
from intarsia.primitives.interpreter import object_array

if TYPE_CHECKING:
    from intarsia.codegen.llvm.target import Target

_FEW, _FEW_TEXTS = 32, 8  # integers that Python writes, and texts that it reads, before a kernel is called
_LARGE = float(np.finfo(np.float32).max)
_READ = {int(kind): kind for kind in (DType.FLOAT, DType.DOUBLE)}


def cast(node: Node, inputs: Sequence[Any], target: Target) -> list[Any] | None:
    """Strings as float32 or float64, integers as strings."""
    x, to = inputs[0], node.attributes["to"]
    if x.dtype.hasobject:
        return _numbers(x, _READ[to], target) if to in _READ else None
    if to == DType.STRING and x.dtype.kind in "iu":
        return [object_array(_texts(x, target), x.shape)]
    return None


def _numbers(x: np.ndarray, dtype: DType, target: Target) -> list[Any] | None:
    items = x.reshape(-1).tolist()
    if len(items) <= _FEW_TEXTS:
        values = list(map(float, items))
        if dtype is DType.FLOAT and any(_LARGE < abs(v) < math.inf for v in values):
            return None  # which NumPy warns of
        return [np.array(values, dtype.numpy).reshape(x.shape)]
    text = np.frombuffer("\0".join(items).encode("utf-8", "surrogatepass"), np.uint8)  # which CPython ends with a zero byte
    made, hard, end = np.empty(x.shape, dtype.numpy), np.empty(x.size, np.uint8), array("q", (0,))
    call, powers = _reader(dtype, target)
    addresses = (address_of(text), len(text), address_of(made), address_of(hard), powers)
    args = array("q", (*addresses, x.size, end.buffer_info()[0]))
    call(args.buffer_info()[0], 0, 1)
    if end[0] != len(text) + 1:  # a text with a zero byte in it
        return None
    if hard.any():
        flat = made.reshape(-1)
        with np.errstate(over="ignore"):
            for i in np.flatnonzero(hard).tolist():
                flat[i] = float(items[i])
    return [made]


def _texts(x: np.ndarray, target: Target) -> list[str]:
    if x.size <= _FEW:
        return list(map(str, x.reshape(-1).tolist()))
    signed = x.dtype.kind == "i"
    wide = np.ascontiguousarray(x, np.int64 if signed else np.uint64)
    most, call = _writer(signed, target)
    made, end = np.empty(most * x.size, np.uint8), array("q", (0,))
    args = array("q", (address_of(wide), x.size, address_of(made), end.buffer_info()[0]))
    call(args.buffer_info()[0], 0, 1)
    return made[: end[0] - 1].tobytes().decode("ascii").split("\0")


_Native = Callable[[int, int, int], None]


@functools.lru_cache(maxsize=8)
def _reader(dtype: DType, target: Target) -> tuple[_Native, int]:
    from intarsia.providers.cpu.kernels.text import number_text_kernel

    return _loaded(number_text_kernel.read_text(dtype, target), target), address_of(number_text_kernel.powers())


@functools.lru_cache(maxsize=8)
def _writer(signed: bool, target: Target) -> tuple[int, _Native]:
    from intarsia.providers.cpu.kernels.text import number_text_kernel

    return number_text_kernel.MOST_TEXT, _loaded(number_text_kernel.write_text(signed, target), target)


def _loaded(text: Any, target: Target) -> _Native:
    from intarsia.codegen.llvm.jit import get_engine

    address = get_engine(target).load([text])[text.symbol]
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
