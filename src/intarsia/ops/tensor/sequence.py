"""Sequences (Python lists) and optional values (None, or the element)."""

from __future__ import annotations

from typing import Any

import numpy as np

from intarsia.graph.dims import Dim, fresh_symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import OptionalType, SequenceType, TensorType, ValueType
from intarsia.ops.control import merge_types
from intarsia.ops.framework.operands import element_type, normal_axis
from intarsia.ops.framework.registry import host_op
from intarsia.primitives import lang as k

_REASON = "sequences are lists on the host"
Kind = ValueType | None


def _element(kind: Kind) -> Kind:
    return kind.element if isinstance(kind, SequenceType) else kind


def _position(position: Any, length: int, end: int) -> int:
    """An index counted from the front, at most `end`."""
    at = int(np.asarray(position).reshape(-1)[0])
    if not -length <= at <= end:
        raise k.DefinitionError(f"position {at} is out of range for a sequence of {length} elements")
    return at + length if at < 0 else at


@host_op("SequenceEmpty", since=11, infer=lambda *, dtype=1: SequenceType(TensorType(element_type(dtype))), reason=_REASON)
def sequence_empty(*, dtype: int = 1) -> list[Any]:
    return []


def _construct_type(*inputs: Kind) -> SequenceType:
    kind = inputs[0]
    for other in inputs[1:]:
        kind = merge_types(kind, other)
    return SequenceType(kind)


@host_op("SequenceConstruct", since=11, infer=_construct_type, reason=_REASON)
def sequence_construct(*inputs: Any) -> list[Any]:
    return list(inputs)


def _insert_type(input_sequence: Kind, tensor: Kind, position: Kind = None) -> Kind:
    return SequenceType(merge_types(_element(input_sequence), tensor))


@host_op("SequenceInsert", since=11, infer=_insert_type, reason=_REASON)
def sequence_insert(input_sequence: list[Any], tensor: Any, position: Any = None) -> list[Any]:
    length = len(input_sequence)
    at = length if position is None else _position(position, length, length)
    return [*input_sequence[:at], tensor, *input_sequence[at:]]


@host_op("SequenceErase", since=11, infer=lambda input_sequence, position=None: input_sequence, reason=_REASON)
def sequence_erase(input_sequence: list[Any], position: Any = None) -> list[Any]:
    length = len(input_sequence)
    at = length - 1 if position is None else _position(position, length, length - 1)
    return [*input_sequence[:at], *input_sequence[at + 1 :]]


def _at_type(input_sequence: Kind, position: Kind) -> Kind:
    """Elements of one sequence may differ in shape, so each look-up has sizes of its own."""
    kind = _element(input_sequence)
    if isinstance(kind, TensorType) and kind.shape is not None:
        return TensorType(kind.dtype, tuple(d if isinstance(d, int) else fresh_symbol("element") for d in kind.shape))
    return kind


@host_op("SequenceAt", since=11, infer=_at_type, reason=_REASON)
def sequence_at(input_sequence: list[Any], position: Any) -> Any:
    return input_sequence[_position(position, len(input_sequence), len(input_sequence) - 1)]


@host_op("SequenceLength", since=11, infer=lambda input_sequence: TensorType(DType.INT64, ()), reason=_REASON)
def sequence_length(input_sequence: list[Any]) -> np.ndarray:
    return np.array(len(input_sequence), np.int64)


def _split_type(input: Kind, split: Kind = None, *, axis: int = 0, keepdims: int = 1) -> Kind:
    if not isinstance(input, TensorType) or input.shape is None:
        return SequenceType(input)
    at = normal_axis(axis, len(input.shape))
    middle: tuple[Dim, ...] = () if split is None and not keepdims else (1,) if split is None else (fresh_symbol("part"),)
    return SequenceType(TensorType(input.dtype, (*input.shape[:at], *middle, *input.shape[at + 1 :])))


@host_op("SplitToSequence", since=(11, 24), infer=_split_type, reason=_REASON)
def split_to_sequence(input: np.ndarray, split: np.ndarray | None = None, *, axis: int = 0, keepdims: int = 1) -> list[Any]:
    axis = normal_axis(axis, input.ndim)
    if not input.ndim:
        raise k.DefinitionError("input has no axis to split")
    extent = input.shape[axis]
    lines = np.moveaxis(input, axis, 0) if axis else input

    def part(start: int, end: int) -> np.ndarray:
        return lines[start:end] if lines is input else np.moveaxis(lines[start:end], 0, axis)

    if split is None:
        return [part(i, i + 1) if keepdims else lines[i, ...] for i in range(extent)]
    if np.ndim(split) == 0:
        size = int(split)
        if size <= 0:
            raise k.DefinitionError(f"split is {size}; expected a positive number")
        return [part(i, i + size) for i in range(0, extent, size)]
    if int(np.sum(split)) != extent or np.any(split < 0):
        total = int(np.sum(split))
        raise k.DefinitionError(
            f"split {np.asarray(split).tolist()} adds up to {total}; expected sizes from 0 whose sum is the {extent} of axis "
            f"{axis}"
        )
    ends = np.cumsum(split).tolist()
    return [part(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def _concat_type(input_sequence: Kind, *, axis: int, new_axis: int = 0) -> Kind:
    kind = _element(input_sequence)
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    total = fresh_symbol("joined")
    at = normal_axis(axis, len(kind.shape) + (1 if new_axis else 0))
    after = at if new_axis else at + 1
    return TensorType(kind.dtype, (*kind.shape[:at], total, *kind.shape[after:]))


@host_op("ConcatFromSequence", since=11, infer=_concat_type, reason=_REASON)
def concat_from_sequence(input_sequence: list[np.ndarray], *, axis: int, new_axis: int = 0) -> np.ndarray:
    if not input_sequence:
        raise k.DefinitionError("an empty sequence cannot be concatenated")
    if not new_axis:
        return np.concatenate(input_sequence, axis)
    shape = input_sequence[0].shape
    if len({x.shape for x in input_sequence}) > 1:
        raise k.DefinitionError(f"elements of shapes {', '.join(str(list(x.shape)) for x in input_sequence)} cannot be stacked")
    at = normal_axis(axis, len(shape) + 1)
    if not at and shape:
        return np.concatenate(input_sequence).reshape(len(input_sequence), *shape)
    return np.concatenate([x.reshape(*shape[:at], 1, *shape[at:]) for x in input_sequence], at)


@host_op(
    "Optional",
    since=(15, 28),
    infer=lambda input=None, *, type=None: OptionalType(type if input is None else input),
    reason=_REASON,
)
def optional(input: Any = None, *, type: Any = None) -> Any:
    return input


@host_op("OptionalHasElement", since=(15, 18, 28), infer=lambda input=None: TensorType(DType.BOOL, ()), reason=_REASON)
def optional_has_element(input: Any = None) -> np.ndarray:
    return np.array(input is not None)


@host_op(
    "OptionalGetElement", since=(15, 18, 28), infer=lambda input: input.element if isinstance(input, OptionalType) else input,
    reason=_REASON,
)  # fmt: skip
def optional_get_element(input: Any) -> Any:
    return input
