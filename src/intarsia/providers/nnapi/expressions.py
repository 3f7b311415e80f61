"""Arithmetic on operands: one function for each kind of operation, which works out the type of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia.providers.nnapi.operands import Kind, OperandType, Tensor
from intarsia.providers.nnapi.writer import Writer
from intarsia.providers.vendor.translator import Untranslatable

FUSED = frozenset(("ADD", "SUB", "MUL", "DIV"))
"""Element-wise operations with an operand for an activation."""


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(np.broadcast_shapes(*map(tuple, shapes)))
    except ValueError as error:
        raise Untranslatable(f"shapes {', '.join(map(str, shapes))} do not broadcast", "shape") from error


def binary(w: Writer, name: str, a: Tensor, b: Tensor, fuse: Tensor | None = None) -> Tensor:
    """ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW, PRELU: broadcast as NumPy does."""
    inputs = [a, b]
    if name in FUSED:
        inputs.append(fuse if fuse is not None else w.int32(0))
    dims = broadcast(a.dims, b.dims)
    if len(dims) > 4 and name in FUSED:
        return _collapsed(w, name, inputs, dims)
    return w.call(name, inputs, a.type.of(dims))


def _collapsed(w: Writer, name: str, inputs: list[Tensor], dims: tuple[int, ...]) -> Tensor:
    """Of more than four dimensions: neighbours that are broadcast alike become one."""
    shapes = [(1,) * (len(dims) - t.rank) + t.dims for t in inputs[:2]]
    groups: list[list[int]] = []
    for i in range(len(dims)):
        alike = [shape[i] == 1 for shape in shapes]
        last = [shape[groups[-1][-1]] == 1 for shape in shapes] if groups else None
        if last is not None and last == alike:
            groups[-1].append(i)
        else:
            groups.append([i])
    merged = [tuple(int(np.prod([shape[i] for i in group])) for group in groups) for shape in shapes]
    if len(groups) > 4:
        raise Untranslatable(f"NNAPI's {name} takes ranks 1 to 4, and this is {len(dims)}", "no-kernel")
    given = [w.reshaped(t, shape) for t, shape in zip(inputs[:2], merged, strict=True)]
    found = w.call(name, [*given, inputs[2]], inputs[0].type.of(broadcast(*merged)))
    return w.reshaped(found, dims)


def added(w: Writer, a: Tensor, b: Tensor) -> Tensor:
    """The sum of two operands, which is a constant where both are."""
    arrays = [w.model.operands[t.index].value for t in (a, b)]
    if arrays[0] is None or arrays[1] is None:
        return binary(w, "ADD", a, b)
    return w.constant(np.asarray(arrays[0] + arrays[1], a.kind.numpy))


def unary(w: Writer, name: str, x: Tensor, *more: Tensor) -> Tensor:
    """An operation whose result is of its operand's type."""
    return w.call(name, [x, *more], x.type)


def compare(w: Writer, name: str, a: Tensor, b: Tensor) -> Tensor:
    return w.call(name, [a, b], OperandType(Kind.TENSOR_BOOL8, broadcast(a.dims, b.dims)))


def like(w: Writer, x: Tensor, value: float) -> Tensor:
    """A constant of one element in the element type of `x`."""
    return w.constant(np.array([value], x.kind.numpy), x.type.of((1,)))


def plus(w: Writer, x: Tensor, value: float) -> Tensor:
    return binary(w, "ADD", x, like(w, x, value))


def times(w: Writer, x: Tensor, value: float) -> Tensor:
    return binary(w, "MUL", x, like(w, x, value))


def clipped(w: Writer, x: Tensor, low: float, high: float) -> Tensor:
    """min(max(x, low), high); an infinite bound is none."""
    if low > -np.inf:
        x = binary(w, "MAXIMUM", x, like(w, x, low))
    if high < np.inf:
        x = binary(w, "MINIMUM", x, like(w, x, high))
    return x


def filled(w: Writer, x: Tensor, dims: Sequence[int]) -> Tensor:
    """`x` broadcast to `dims`, each element written out."""
    dims = tuple(dims)
    if x.dims == dims:
        return x
    constant = w.model.operands[x.index].value
    if constant is not None:
        return w.constant(np.ascontiguousarray(np.broadcast_to(constant, dims)), x.type.of(dims))
    if x.kind is Kind.TENSOR_BOOL8:
        return w.call("LOGICAL_OR", [x, w.constant(np.zeros(dims, np.bool_))], x.type.of(dims))
    whole = w.reshaped(x, (1,) * (len(dims) - x.rank) + x.dims)
    repeats = [d // s for d, s in zip(dims, whole.dims, strict=True)]
    return w.call("TILE", [whole, w.vector(repeats)], x.type.of(dims))


def select(w: Writer, which: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """`a` where `which`, else `b`; NNAPI's SELECT does not broadcast, this does."""
    dims = broadcast(which.dims, a.dims, b.dims)
    given = [filled(w, t, dims) for t in (which, a, b)]
    if a.kind is Kind.TENSOR_BOOL8:
        yes = w.call("LOGICAL_AND", given[:2], given[1].type)
        no = w.call("LOGICAL_AND", [unary(w, "LOGICAL_NOT", given[0]), given[2]], given[1].type)
        return w.call("LOGICAL_OR", [yes, no], given[1].type)
    return w.call("SELECT", given, given[1].type)


def numbers_of(w: Writer, truth: Tensor, kind: Kind) -> Tensor:
    """1 where true, 0 elsewhere."""
    ones = np.ones(truth.dims, kind.numpy)
    zeros = w.constant(np.zeros_like(ones), OperandType(kind, truth.dims))
    return w.call("SELECT", [truth, w.constant(ones, OperandType(kind, truth.dims)), zeros], OperandType(kind, truth.dims))


def transposed(w: Writer, x: Tensor, perm: Sequence[int]) -> Tensor:
    if list(perm) == list(range(x.rank)):
        return x
    dims = tuple(x.dims[p] for p in perm)
    constant = w.model.operands[x.index].value
    if constant is not None:
        return w.constant(constant.transpose(perm), x.type.of(dims))
    longer = [p for p in perm if x.dims[p] != 1]
    if longer == sorted(longer):
        return w.reshaped(x, dims)
    return w.call("TRANSPOSE", [x, w.vector(perm)], x.type.of(dims))


def sliced(w: Writer, x: Tensor, begin: Sequence[int], size: Sequence[int]) -> Tensor:
    if tuple(size) == x.dims:
        return x
    constant = w.model.operands[x.index].value
    if constant is not None:
        places = tuple(slice(b, b + n) for b, n in zip(begin, size, strict=True))
        return w.constant(np.ascontiguousarray(constant[places]), x.type.of(size))
    return w.call("SLICE", [x, w.vector(begin), w.vector(size)], x.type.of(size))


def part(w: Writer, x: Tensor, axis: int, start: int, count: int) -> Tensor:
    """`count` rows of an axis from `start` on."""
    begin, size = [0] * x.rank, list(x.dims)
    begin[axis], size[axis] = start, count
    return sliced(w, x, begin, size)


def split(w: Writer, x: Tensor, axis: int, count: int) -> list[Tensor]:
    """In `count` equal pieces along an axis."""
    if count == 1:
        return [x]
    dims = list(x.dims)
    dims[axis] //= count
    return w.calls("SPLIT", [x, w.int32(axis), w.int32(count)], [x.type.of(dims)] * count)


def concatenated(w: Writer, tensors: Sequence[Tensor], axis: int, result: OperandType | None = None) -> Tensor:
    """`result`: the type of quantised elements, where it is another than the operands'."""
    if len(tensors) == 1 and result is None:
        return tensors[0]
    dims = list(tensors[0].dims)
    dims[axis] = sum(t.dims[axis] for t in tensors)
    return w.call("CONCATENATION", [*tensors, w.int32(axis)], (result or tensors[0].type).of(dims))


def gathered(w: Writer, x: Tensor, axis: int, indices: Tensor) -> Tensor:
    dims = (*x.dims[:axis], *indices.dims, *x.dims[axis + 1 :])
    return w.call("GATHER", [x, w.int32(axis), indices], x.type.of(dims))


def reduced(w: Writer, name: str, x: Tensor, axes: Sequence[int], *, keep: bool = True) -> Tensor:
    """MEAN and REDUCE_*; all axes without `keep` give one element of rank 1."""
    dims = [1 if i in axes else d for i, d in enumerate(x.dims) if keep or i not in axes]
    flag: Any = w.int32(keep) if name == "MEAN" else w.boolean(keep)
    return w.call(name, [x, w.vector(list(axes)), flag], x.type.of(dims or [1]))


def cast(w: Writer, x: Tensor, kind: Kind) -> Tensor:
    """Elements in another type; integers from floats are rounded towards zero."""
    if x.kind is kind:
        return x
    if x.kind is Kind.TENSOR_BOOL8:
        return numbers_of(w, x, kind)
    if kind is Kind.TENSOR_BOOL8:
        return compare(w, "NOT_EQUAL", x, like(w, x, 0))
    return w.call("CAST", [x], OperandType(kind, x.dims))


def rounded(w: Writer, x: Tensor) -> Tensor:
    """To the nearest whole number, halves to the even one, as ONNX rounds: NNAPI's own rounding takes halves away from zero."""
    floor = unary(w, "FLOOR", x)
    rest = binary(w, "SUB", x, floor)
    even = times(w, unary(w, "FLOOR", times(w, floor, 0.5)), 2.0)
    odd = compare(w, "NOT_EQUAL", floor, even)
    half = compare(w, "EQUAL", rest, like(w, x, 0.5))
    more = compare(w, "GREATER", rest, like(w, x, 0.5))
    up = w.call("LOGICAL_OR", [more, w.call("LOGICAL_AND", [half, odd], half.type)], half.type)
    return binary(w, "ADD", floor, numbers_of(w, up, x.kind))


def product(w: Writer, x: Tensor, weights: Tensor, bias: Tensor | None, fuse: Tensor | None = None,
            result: OperandType | None = None) -> Tensor:  # fmt: skip
    """x [..., K] times the transpose of weights [N, K]: [rows, N] by FULLY_CONNECTED; `result`: its type, if not that of x."""
    rows, units = int(np.prod(x.dims[:-1], dtype=np.int64)), weights.dims[0]
    flat = w.reshaped(x, (rows, x.dims[-1]))
    if bias is None:
        bias = w.constant(np.zeros(units, x.kind.numpy), OperandType(x.kind, (units,)))
    return w.call("FULLY_CONNECTED", [flat, weights, bias, fuse or w.int32(0)], (result or x.type).of((rows, units)))
