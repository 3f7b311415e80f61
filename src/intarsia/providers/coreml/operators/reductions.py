"""Reductions, and what is made of them: softmax, norms, positions of extremes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.providers.coreml.node_builder import (
    CARRIERS,
    FLOATS,
    INTEGERS,
    Handler,
    NodeBuilder,
    Var,
)

Reduction = Callable[[NodeBuilder, Var, list[int], bool], Var]


def _plain(name: str) -> Reduction:
    def reduce(b: NodeBuilder, x: Var, axes: list[int], keep: bool) -> Var:
        return getattr(b.mb, name)(x=x, axes=axes, keep_dims=keep)

    return reduce


def _log_sum(b: NodeBuilder, x: Var, axes: list[int], keep: bool) -> Var:
    return b.mb.log(x=b.mb.reduce_sum(x=x, axes=axes, keep_dims=keep), epsilon=b.number(0))


def _log_sum_exp(b: NodeBuilder, x: Var, axes: list[int], keep: bool) -> Var:
    """max + log(sum(exp(x - max))); an infinite maximum is not subtracted: infinity less infinity is NaN."""
    mb = b.mb
    high = mb.reduce_max(x=x, axes=axes, keep_dims=True)
    infinite = mb.equal(x=mb.abs(x=high), y=b.number(np.inf))
    shift = mb.select(cond=infinite, a=mb.mul(x=mb.sign(x=high), y=b.number(0)), b=high)
    total = mb.reduce_sum(x=mb.exp(x=mb.sub(x=x, y=shift)), axes=axes, keep_dims=True)
    found = mb.add(x=mb.log(x=total, epsilon=b.number(0)), y=shift)
    return found if keep else mb.squeeze(x=found, axes=axes)


def _handler(reduce: Reduction, *dtypes: DType) -> Handler:
    def handle(b: NodeBuilder) -> Var:
        b.only(*dtypes)
        axes = reduced_axes(b)
        if not axes:  # of rank 0; "no axes" is put right by a rule
            x = b.reshape(b.x(), (1,))
            return b.reshape(reduce(b, x, [0], True), ())
        keep = bool(b.attribute("keepdims", 1))
        return reduce(b, b.x(), axes, keep)

    return handle


def reduced_axes(b: NodeBuilder) -> list[int]:
    """The axes of a reduction, not negative."""
    axes = b.attribute("axes")
    if axes is None and len(b.node.inputs) > 1 and b.has(1):
        axes = b.ints(1, "the axes of a reduction")
    rank = b.rank
    return sorted({int(a) % rank for a in axes}) if axes else list(range(rank))


def _arg(name: str) -> Handler:
    """The first place of the extreme; the last one by looking from the end."""

    def handle(b: NodeBuilder) -> Var:
        b.only(*FLOATS, DType.INT32)
        axis, keep, mb = b.axis(), bool(b.attribute("keepdims", 1)), b.mb
        if not b.rank:
            raise b.refuse("of one number there is no axis")
        if not b.attribute("select_last_index", 0):
            found = getattr(mb, name)(x=b.x(), axis=axis, keep_dims=keep)
        else:
            found = getattr(mb, name)(x=mb.reverse(x=b.x(), axes=[axis]), axis=axis, keep_dims=keep)
            found = mb.sub(x=np.int32(b.size(axis) - 1), y=found)
        return found

    return handle


def _softmax(b: NodeBuilder) -> Var:
    b.only(*FLOATS)
    return b.mb.softmax(x=b.x(), axis=b.axis(-1 if b.node.version >= 13 else 1))


def _log_softmax(b: NodeBuilder) -> Var:
    b.only(*FLOATS)
    axis = b.axis(-1 if b.node.version >= 13 else 1)
    mb = b.mb
    x = mb.sub(x=b.x(), y=mb.reduce_max(x=b.x(), axes=[axis], keep_dims=True))
    return mb.sub(x=x, y=mb.log(x=mb.reduce_sum(x=mb.exp(x=x), axes=[axis], keep_dims=True), epsilon=b.number(0)))


def _hardmax(b: NodeBuilder) -> Var:
    """1 at the first maximum, 0 elsewhere."""
    dtype = b.only(*FLOATS)
    axis = b.axis(-1 if b.node.version >= 13 else 1)
    mb = b.mb
    first = mb.reduce_argmax(x=b.x(), axis=axis, keep_dims=True)
    size = b.size(axis)
    numbers = np.arange(size, dtype=np.int32).reshape([size if i == axis else 1 for i in range(b.rank)])
    return b.cast(mb.equal(x=numbers, y=first), CARRIERS[dtype])


def _lp_normalization(b: NodeBuilder) -> Var:
    """x divided by its norm along an axis; 0 where the norm is 0."""
    b.only(*FLOATS)
    axis, p, mb = b.axis(-1), int(b.attribute("p", 2)), b.mb
    name = {1: "reduce_l1_norm", 2: "reduce_l2_norm"}.get(p)
    if name is None:
        raise b.refuse(f"LpNormalization is translated for p 1 and 2, not {p}")
    norm = getattr(mb, name)(x=b.x(), axes=[axis], keep_dims=True)
    zero = mb.equal(x=norm, y=b.number(0))
    return mb.real_div(x=b.x(), y=mb.select(cond=zero, a=mb.add(x=norm, y=b.number(1)), b=norm))


def _global_lp_pool(b: NodeBuilder) -> Var:
    b.only(*FLOATS)
    p, mb, axes = int(b.attribute("p", 2)), b.mb, list(range(2, b.rank))
    if p == 1:
        return mb.reduce_l1_norm(x=b.x(), axes=axes, keep_dims=True)
    if p == 2:
        return mb.reduce_l2_norm(x=b.x(), axes=axes, keep_dims=True)
    power = mb.pow(x=mb.abs(x=b.x()), y=b.number(p))
    return mb.pow(x=mb.reduce_sum(x=power, axes=axes, keep_dims=True), y=b.number(1 / p))


HANDLERS: Mapping[str, Handler] = {
    "ReduceL1": _handler(_plain("reduce_l1_norm"), *FLOATS),
    "ReduceL2": _handler(_plain("reduce_l2_norm"), *FLOATS),
    "ReduceLogSum": _handler(_log_sum, *FLOATS),
    "ReduceLogSumExp": _handler(_log_sum_exp, *FLOATS),
    "ReduceMax": _handler(_plain("reduce_max"), *FLOATS, *INTEGERS),
    "ReduceMean": _handler(_plain("reduce_mean"), *FLOATS),
    "ReduceMin": _handler(_plain("reduce_min"), *FLOATS, *INTEGERS),
    "ReduceProd": _handler(_plain("reduce_prod"), *FLOATS, DType.INT32),
    "ReduceSum": _handler(_plain("reduce_sum"), *FLOATS, DType.INT32),
    "ReduceSumSquare": _handler(_plain("reduce_sum_square"), *FLOATS, DType.INT32),
    "ArgMax": _arg("reduce_argmax"), "ArgMin": _arg("reduce_argmin"),
    "Softmax": _softmax, "LogSoftmax": _log_softmax, "Hardmax": _hardmax,
    "LpNormalization": _lp_normalization, "GlobalLpPool": _global_lp_pool,
}  # fmt: skip
