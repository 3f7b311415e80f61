"""Types of what a body would give for operands that a run has: rows of stacked outputs of loops that have no trips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.errors import IntarsiaError
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, SequenceType, TensorType, Value, ValueType
from intarsia.ops.framework.infer import VALUE_LIMIT, infer
from intarsia.ops.framework.registry import Registry


def body_types(graph: Graph, given: Sequence[Any], around: Mapping[str, Any], registry: Registry) -> list[ValueType | None]:
    """A type for each of the body's outputs: inferred from its operands, as declared where that says no more.

    Args:
        given: arrays, lists (sequences) or None (not known), one for each input of the body.
        around: the values that the body captures: the same, or constants.
    """
    inner = graph.clone()
    inner.inputs = [Value(v.name, _type_of(x) or v.type) for v, x in zip(graph.inputs, given, strict=True)]
    inner.constants.update((n, x) for n, x in around.items() if isinstance(x, Constant))
    known = {**around, **dict(zip(graph.input_names(), given, strict=True))}
    types = {name: kind for name, x in known.items() if (kind := _type_of(x)) is not None}
    values = {n: x.astype(object) for n, x in known.items() if _may_be_sizes(x)}
    found = infer(inner, registry, types, values, strict=False, on_error=_left_open).types
    return [_refined(found.get(v.name), v.type) for v in graph.outputs]


def _left_open(node: Node, error: IntarsiaError) -> None:
    """What does not fit stays open: the body does not run."""


def _type_of(x: Any) -> ValueType | None:
    if isinstance(x, np.ndarray):
        return TensorType(DType.of(x.dtype), x.shape)
    return SequenceType(_type_of(x[0])) if isinstance(x, list) and x else None


def _may_be_sizes(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.size <= VALUE_LIMIT and x.dtype in (np.int64, np.int32, np.bool_)


def _refined(found: ValueType | None, declared: ValueType | None) -> ValueType | None:
    """`found`, with sizes that are numbers in `declared` where it has none."""
    if not isinstance(found, TensorType) or not isinstance(declared, TensorType):
        return declared if found is None else found
    if found.shape is None or declared.shape is None or len(found.shape) != len(declared.shape):
        return TensorType(found.dtype, declared.shape) if found.shape is None else found
    pairs = zip(found.shape, declared.shape, strict=True)
    return TensorType(found.dtype, tuple(b if isinstance(b, int) and not isinstance(a, int) else a for a, b in pairs))
