"""Operators that read and write elements at places that a tensor names, that order them, or that sum them up along the way."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.providers.coreml.node_builder import (
    ALL,
    CARRIERS,
    FLOATS,
    INTEGERS,
    Handler,
    NodeBuilder,
    Var,
    carrier_of,
)
from intarsia.providers.coreml.operators.layout import broadcast_to, strided


def places(b: NodeBuilder, index: int, size: int) -> Var:
    """Indices along an axis of `size`, none of them negative: from iOS 17 on Core ML counts from the front alone."""
    given = b.constant(index)
    if given is not None:
        return np.where(given < 0, given + size, given).astype(np.int32)
    x = b.x(index)
    below = b.mb.less(x=x, y=np.int32(0))
    behind = b.mb.add(x=x, y=np.int32(size))
    return b.mb.select(cond=below, a=behind, b=x)


def _gather(b: NodeBuilder) -> Var:
    b.only(*ALL)
    axis = b.axis()
    given = b.constant(1)
    if given is not None and given.size and given.min() >= 0:
        indices = given.astype(np.int32)
    else:
        indices = places(b, 1, b.size(axis))
    scalar = not b.dims(1)
    if scalar:  # one row: an index of rank 1, and the axis goes
        indices = b.reshape(indices, (1,))
    found = b.moved(b.x(), lambda v: b.mb.gather(x=v, indices=indices, axis=axis))
    return b.mb.squeeze(x=found, axes=[axis]) if scalar else found


def _gather_elements(b: NodeBuilder) -> Var:
    """Core ML's indices have all the sizes of the data but along the axis: rows that they have not are cut off."""
    b.only(*ALL)
    axis, x = b.axis(), b.x()
    if any(n != m for i, (n, m) in enumerate(zip(b.dims(), b.dims(1), strict=True)) if i != axis):
        rows = [None if i == axis else n for i, n in enumerate(b.shape(1))]
        x = strided(b, x, [0] * b.rank, rows, [1] * b.rank)
    at = places(b, 1, b.size(axis))
    return b.moved(x, lambda v: b.mb.gather_along_axis(x=v, indices=at, axis=axis))


def _vector_places(b: NodeBuilder, batch: int) -> Var:
    """Indices whose last axis names places on several axes, none negative."""
    sizes = np.array(b.shape()[batch : batch + b.shape(1)[-1]], np.int32)
    given = b.constant(1)
    if given is not None:
        return np.where(given < 0, given + sizes, given).astype(np.int32)
    x = b.x(1)
    behind = b.mb.add(x=x, y=sizes)
    return b.mb.select(cond=b.mb.less(x=x, y=np.int32(0)), a=behind, b=x)


def _gather_nd(b: NodeBuilder) -> Var:
    b.only(*ALL)
    batch = int(b.attribute("batch_dims", 0))
    if len(b.shape(1)) < 2:
        raise b.refuse("Core ML's gather_nd gives tensors, and one place alone is requested")
    at = _vector_places(b, batch)
    return b.moved(b.x(), lambda v: b.mb.gather_nd(x=v, indices=at, batch_dims=batch))


_MODES = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def _scatter_elements(b: NodeBuilder) -> Var:
    b.only(*FLOATS, *INTEGERS)
    _check_reduced(b)
    axis = b.axis()
    mode = _MODES[b.attribute("reduction", "none")]
    return b.mb.scatter_along_axis(data=b.x(), indices=places(b, 1, b.size(axis)), updates=b.x(2), axis=axis, mode=mode)


def _scatter_nd(b: NodeBuilder) -> Var:
    b.only(*FLOATS, *INTEGERS)
    _check_reduced(b)
    mode = _MODES[b.attribute("reduction", "none")]
    if len(b.shape(1)) < 2:
        raise b.refuse("Core ML's scatter_nd takes lists of places, and one place alone is given")
    return b.mb.scatter_nd(data=b.x(), indices=_vector_places(b, 0), updates=b.x(2), mode=mode)


def _check_reduced(b: NodeBuilder) -> None:
    """Sums and products of integers of few bits would not wrap."""
    if b.attribute("reduction", "none") in ("add", "mul"):
        b.only(*FLOATS, DType.INT32)


def _top_k(b: NodeBuilder) -> list[Var]:
    b.only(*FLOATS, DType.INT32)
    if b.node.version >= 10:
        k = b.ints(1, "how many elements TopK takes")[0]
    else:
        k = int(b.attribute("k"))
    axis = b.axis(-1)
    smallest = not b.attribute("largest", 1)
    if b.dtype() in FLOATS:
        return list(b.mb.topk(x=b.x(), k=k, axis=axis, ascending=smallest))
    raise b.refuse("Core ML orders integers as floats, which lose those above 2**24", "type")


def _cumulative_sum(b: NodeBuilder) -> Var:
    b.only(*FLOATS, DType.INT32)
    rank = b.rank
    axis = b.ints(1, "CumSum's axis")[0]
    exclusive, reverse = bool(b.attribute("exclusive", 0)), bool(b.attribute("reverse", 0))
    return b.mb.cumsum(x=b.x(), axis=axis % rank, exclusive=exclusive, reverse=reverse)


def _one_hot(b: NodeBuilder) -> Var:
    """Equality with 0, 1, ... along a new axis; negative indices count from the end."""
    depth = b.ints(1, "how many classes OneHot has")[0]
    mb, given = b.mb, b.only(*FLOATS, *INTEGERS)
    indices = b.x()
    rank = len(b.shape()) + 1
    axis = b.axis(-1, rank)
    if given in FLOATS:
        raise b.refuse("OneHot of floats")
    wrapped = mb.select(cond=mb.less(x=indices, y=np.int32(0)), a=mb.add(x=indices, y=np.int32(depth)), b=indices)
    spread = mb.expand_dims(x=wrapped, axes=[axis])
    classes = np.arange(depth, dtype=np.int32).reshape([depth if i == axis else 1 for i in range(rank)])
    found = mb.equal(x=spread, y=classes)
    b.only(*FLOATS, *INTEGERS, DType.BOOL, index=2)
    values = b.x(2)
    if carrier_of(values) is np.bool_:
        values = b.movable(values)
    off, on = (mb.slice_by_index(x=values, begin=[i], end=[i + 1]) for i in (0, 1))
    out = b.out_shape()
    ones = (1,) * rank
    chosen = mb.select(
        cond=found, a=broadcast_to(b, b.reshape(on, ones), out), b=broadcast_to(b, b.reshape(off, ones), out)
    )
    return b.cast(chosen, CARRIERS[b.out_dtype()])


HANDLERS: Mapping[str, Handler] = {
    "CumSum": _cumulative_sum, "Gather": _gather, "GatherElements": _gather_elements, "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "Scatter": _scatter_elements, "ScatterElements": _scatter_elements, "ScatterND": _scatter_nd, "TopK": _top_k,
}  # fmt: skip
