"""Reading a definition's operands: integers, axes, element types, precision, and opset 6's explicit broadcasting."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dims import Dim, Expr, format_shape
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k

Tensor = k.Tensor

HALF = (DType.FLOAT16, DType.BFLOAT16)


class _Omitted:
    """What no input is."""


OMITTED: Any = _Omitted()  # default of an input that is required although optional ones stand before it


def dims(values: np.ndarray | Sequence[Dim]) -> list[Dim]:
    """The elements of a `values` input (or an attribute), in order."""
    return [v if isinstance(v, Expr) else int(v) for v in np.asarray(values, object).reshape(-1)]


def integers(values: np.ndarray | Sequence[int], what: str) -> list[int]:
    """The elements of a `values` input that must be known when the operator is compiled.

    Raises:
        SymbolicValueError: one is known only at run time.
    """
    found = []
    for v in dims(values):
        if isinstance(v, Expr):
            raise k.SymbolicValueError(f"{what} must be known integers, but one is {v}")
        found.append(v)
    return found


def integer(value: np.ndarray, what: str) -> int:
    """The one element of a `values` input (rank 0, or 1 with one element)."""
    found = integers(value, what)
    if len(found) != 1:
        raise k.DefinitionError(f"{what} must have one element, got {len(found)}")
    return found[0]


def dim(value: np.ndarray, what: str) -> Dim:
    """The one element of a `values` input; it may be symbolic."""
    found = dims(value)
    if len(found) != 1:
        raise k.DefinitionError(f"{what} must have one element, got {len(found)}")
    return found[0]


def normal_axes(axes: Iterable[int], rank: int, what: str = "axes") -> list[int]:
    """`axes` counted from the front.

    Raises:
        DefinitionError: one is out of range or given twice.
    """
    found = [normal_axis(a, rank) for a in axes]
    if len(set(found)) != len(found):
        raise k.DefinitionError(f"{what} {found} name an axis twice")
    return found


def normal_axis(axis: int, rank: int) -> int:
    if not -rank <= axis < max(rank, 1):
        raise k.DefinitionError(f"axis {axis} is out of range for rank {rank}")
    return axis + rank if axis < 0 else axis


def element_type(to: int | str) -> DType:
    """The DType of an attribute that names one by number (opset 1: by word).

    Raises:
        DefinitionError: there is no such type.
    """
    try:
        found = DType[to.upper()] if isinstance(to, str) else DType(to)
    except (KeyError, ValueError):
        found = DType.UNDEFINED
    if found is DType.UNDEFINED:
        raise k.DefinitionError(f"{to!r} is not an ONNX element type")
    return found


def widened(x: Tensor) -> Tensor:
    """float16 and bfloat16 as float32; other types as they are."""
    return k.cast(x, DType.FLOAT) if x.dtype in HALF else x


def in_float32(definition: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A definition of one output that computes float16 and bfloat16 operands in float32 and rounds its result once."""

    @functools.wraps(definition)
    def rounded(*operands: Any, **attributes: Any) -> Tensor:
        wide = [widened(x) if isinstance(x, Tensor) else x for x in operands]
        return k.cast(definition(*wide, **attributes), operands[0].dtype)

    return rounded


def as_scalar(x: Tensor, what: str) -> Tensor:
    """A tensor of one element as rank 0."""
    if any(isinstance(d, int) and d != 1 for d in x.shape):
        raise k.DefinitionError(f"{what} must have one element, got shape {format_shape(x.shape)}")
    for d in x.shape:
        k.require_equal(d, 1, f"the elements of {what}")
    return k.reshape(x, ())


def aligned(b: Tensor, rank: int, axis: int | None) -> Tensor:
    """`b` placed for broadcasting as in opsets 1 to 6: its axes stand at `axis` and following (default: the last ones)."""
    if axis is None or b.rank == 0:
        return b
    after = rank - normal_axis(axis, rank) - b.rank
    if after < 0:
        raise k.DefinitionError(f"operand of shape {format_shape(b.shape)} at axis {axis} does not fit rank {rank}")
    return k.expand_dims(b, range(b.rank, b.rank + after))


def along(x: Tensor, axis: int, rank: int) -> Tensor:
    """A vector as a tensor of `rank` whose `axis` it lies along, for broadcasting."""
    return k.reshape(x, [x.shape[0] if i == axis else 1 for i in range(rank)])
