"""Reductions, arg-reductions, running sums and products, TopK."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from intarsia.graph.dims import Dim, Expr
from intarsia.graph.dtypes import DType
from intarsia.ops.framework.dynamic_axis import along, reduced, run_axis
from intarsia.ops.framework.operands import dim, integer, integers, normal_axes, normal_axis, widened
from intarsia.ops.framework.registry import op
from intarsia.primitives import lang as k

Tensor = k.Tensor
Combine = Callable[[Tensor, Sequence[int], bool], Tensor]


def _fractional(x: Tensor) -> Tensor:
    """Integers as float64, for functions whose value is not an integer; float16 and bfloat16 as float32."""
    return k.cast(x, DType.DOUBLE) if x.dtype.is_integer else widened(x)


def _sum(x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    return k.reduce(x, "sum", axes, keepdims)


def _product(x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    return k.reduce(x, "prod", axes, keepdims)


def _max(x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    return k.reduce(x, "any" if x.dtype is DType.BOOL else "max", axes, keepdims)


def _min(x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    return k.reduce(x, "all" if x.dtype is DType.BOOL else "min", axes, keepdims)


def _mean(x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    return k.reduce_mean(x, axes, keepdims)


def _l1(x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    return k.reduce_sum(k.absolute(x), axes, keepdims)


def _l2(x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    wide = _fractional(x)
    return k.sqrt(k.reduce_sum(wide * wide, axes, keepdims))


def _sum_square(x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    return k.reduce_sum(x * x, axes, keepdims)


def _log_sum(x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    return k.log(k.reduce_sum(_fractional(x), axes, keepdims))


def _log_sum_exp(x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    """m + log(sum(exp(x - m))) with m the maximum (0 where that is infinite), so that nothing overflows."""
    wide = _fractional(x)
    largest = k.reduce_max(wide, axes, keepdims=True)
    shift = k.select(k.unary("isinf", largest), 0.0, largest)
    total = k.reduce_sum(k.exp(wide - shift), axes, keepdims)
    if not keepdims:
        shift = k.reshape(shift, total.shape)
    return k.log(total) + shift


_COMBINE: dict[str, tuple[Combine, tuple[int, ...], tuple[int, ...]]] = {  # name: definition, versions (axes attribute / input)
    "ReduceSum": (_sum, (1, 11), (13,)),
    "ReduceProd": (_product, (1, 11, 13), (18,)),
    "ReduceMax": (_max, (1, 11, 12, 13), (18, 20)),
    "ReduceMin": (_min, (1, 11, 12, 13), (18, 20)),
    "ReduceMean": (_mean, (1, 11, 13), (18,)),
    "ReduceL1": (_l1, (1, 11, 13), (18,)),
    "ReduceL2": (_l2, (1, 11, 13), (18,)),
    "ReduceSumSquare": (_sum_square, (1, 11, 13), (18,)),
    "ReduceLogSum": (_log_sum, (1, 11, 13), (18, 28)),
    "ReduceLogSumExp": (_log_sum_exp, (1, 11, 13), (18, 28)),
}


def _reduced(combine: Combine, x: Tensor, axes: Sequence[int], keepdims: int) -> Tensor:
    return k.cast(combine(widened(x), normal_axes(axes, x.rank), bool(keepdims)), x.dtype)


def _axes_attribute(combine: Combine) -> Callable[..., Tensor]:
    def definition(data: Tensor, *, axes: Sequence[int] | None = None, keepdims: int = 1) -> Tensor:
        return _reduced(combine, data, axes or range(data.rank), keepdims)

    return definition


def _axes_input(combine: Combine) -> Callable[..., Tensor]:
    def definition(data: Tensor, axes: np.ndarray | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Tensor:
        axis = run_axis(axes)
        if axis is not None:
            return k.cast(reduced(widened(data), axis, lambda x: combine(x, [1], True), bool(keepdims)), data.dtype)
        given = [] if axes is None else integers(axes, "axes")
        if not given and not noop_with_empty_axes:
            given = list(range(data.rank))
        return _reduced(combine, data, given, keepdims)

    return definition


for _name, (_combine, _by_attribute, _by_input) in _COMBINE.items():
    op(_name, _by_attribute)(_axes_attribute(_combine))
    op(_name, _by_input, values=("axes",))(_axes_input(_combine))


def _arg(kind: str) -> Callable[..., Tensor]:
    def definition(data: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        return k.arg_reduce(data, kind, axis, bool(keepdims), bool(select_last_index))

    return definition


op("ArgMax", (1, 11, 12, 13))(_arg("max"))
op("ArgMin", (1, 11, 12, 13))(_arg("min"))


def _scanned(x: Tensor, kind: str, axis: np.ndarray, exclusive: bool, reverse: bool) -> Tensor:
    in_a_run = run_axis(axis)
    if in_a_run is not None:
        return along(x, in_a_run, lambda three: k.scan(three, kind, 1, exclusive, reverse))
    return k.scan(x, kind, integer(axis, "axis"), exclusive, reverse)


@op("CumSum", (11, 14), values=("axis",))
def cumsum(x: Tensor, axis: np.ndarray, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _scanned(x, "sum", axis, bool(exclusive), bool(reverse))


@op("CumProd", 26, values=("axis",))
def cumprod(x: Tensor, axis: np.ndarray, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _scanned(x, "prod", axis, bool(exclusive), bool(reverse))


def _top(x: Tensor, count: Dim, axis: int, largest: bool) -> tuple[Tensor, Tensor]:
    axis = normal_axis(axis, x.rank)
    extent = x.shape[axis]
    if not isinstance(count, Expr) and not isinstance(extent, Expr) and not 0 <= count <= extent:
        raise k.DefinitionError(f"k must be between 0 and the {extent} elements of axis {axis}, got {count}")
    values, indices = k.sort(x, axis, descending=largest)
    shape = [count if i == axis else d for i, d in enumerate(x.shape)]
    starts, steps = [0] * x.rank, [1] * x.rank
    return k.strided_slice(values, starts, steps, shape), k.strided_slice(indices, starts, steps, shape)


@op("TopK", 1)
def top_k_attribute(X: Tensor, *, k: int, axis: int = -1) -> tuple[Tensor, Tensor]:
    return _top(X, k, axis, largest=True)


@op("TopK", 10, values=("K",))
def top_k_largest(X: Tensor, K: np.ndarray, *, axis: int = -1) -> tuple[Tensor, Tensor]:
    return _top(X, dim(K, "K"), axis, largest=True)


@op("TopK", (11, 24), values=("K",))
def top_k(X: Tensor, K: np.ndarray, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Tensor, Tensor]:
    """The K largest (smallest) along `axis` in order, with their indices; of equal elements the first comes first."""
    return _top(X, dim(K, "K"), axis, bool(largest))
