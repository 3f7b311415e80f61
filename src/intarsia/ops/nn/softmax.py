"""Softmax, LogSoftmax and Hardmax. Before opset 13 they normalise over all axes from `axis` on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intarsia.graph.dims import product
from intarsia.graph.dtypes import DType
from intarsia.ops.framework.operands import normal_axis, widened
from intarsia.ops.framework.registry import op
from intarsia.primitives import lang as k

Tensor = k.Tensor


def softmax_over(x: Tensor, axes: Sequence[int]) -> Tensor:
    """exp(x - max) / sum(exp(x - max)), computed in float32 at least."""
    wide = widened(x)
    powers = k.exp(wide - k.reduce_max(wide, axes, keepdims=True))
    return k.cast(powers * (1.0 / k.reduce_sum(powers, axes, keepdims=True)), x.dtype)


def log_softmax_over(x: Tensor, axes: Sequence[int]) -> Tensor:
    """(x - max) - log(sum(exp(x - max)))."""
    wide = widened(x)
    shifted = wide - k.reduce_max(wide, axes, keepdims=True)
    return k.cast(shifted - k.log(k.reduce_sum(k.exp(shifted), axes, keepdims=True)), x.dtype)


def _hardmax_over(x: Tensor, axes: Sequence[int]) -> Tensor:
    """1 at the first maximum, 0 elsewhere."""
    start = axes[0]
    size = product(x.shape[a] for a in axes)
    flat = k.reshape(x, [*x.shape[:start], size, *x.shape[start + len(axes) :]])
    found = k.equal(flat, k.reduce_max(flat, [start], keepdims=True))
    if x.dtype.is_floating:
        found = found | k.unary("isnan", flat)
    place = k.iota(flat.shape, start, DType.INT64)
    first = k.reduce(k.select(found, place, k.size(size)), "min", [start], keepdims=True)  # an empty axis has none
    return k.reshape(k.cast(k.equal(place, first), x.dtype), x.shape)


Over = Callable[[Tensor, Sequence[int]], Tensor]


def _trailing(over: Over) -> Callable[..., Tensor]:
    def definition(input: Tensor, *, axis: int = 1) -> Tensor:
        if axis == input.rank:  # every element is a row
            return k.reshape(over(k.reshape(input, (*input.shape, 1)), [input.rank]), input.shape)
        return over(input, range(normal_axis(axis, input.rank), input.rank))

    return definition


def _single(over: Over) -> Callable[..., Tensor]:
    def definition(input: Tensor, *, axis: int = -1) -> Tensor:
        return over(input, [normal_axis(axis, input.rank)]) if input.rank else over(k.reshape(input, (1,)), [0])

    return definition


for _name, _over in {"Softmax": softmax_over, "LogSoftmax": log_softmax_over, "Hardmax": _hardmax_over}.items():
    op(_name, (1, 11))(_trailing(_over))
    op(_name, 13)(_single(_over))
