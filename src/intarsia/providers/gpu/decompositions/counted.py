"""What is chosen by data: padded to as many as there may be, with their number beside them."""

from __future__ import annotations

from typing import Any

from intarsia.graph.dims import Dim, product
from intarsia.graph.dtypes import DType
from intarsia.ops.framework.operands import normal_axis
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.providers.gpu.decompositions.registry import device_op

_SORTED_COLUMNS = 32  # of slices that are put in order column by column


def prefix(x: Tensor, count: Dim, axis: int = 0) -> Tensor:
    """The first `count` slices along an axis, at most all of them."""
    have = x.shape[axis]
    if isinstance(count, int) and isinstance(have, int):
        count = min(max(count, 0), have)
    shape = [count if i == axis else d for i, d in enumerate(x.shape)]
    return k.strided_slice(x, [0] * x.rank, [1] * x.rank, shape)


def only(count: Any) -> Dim:
    """The number that an input of `values` is."""
    found: Dim = count.reshape(-1)[0]
    return found


def compacted(flags: Tensor, filler: Dim = 0) -> tuple[Tensor, Tensor]:
    """Of bool [n]: the places that are True, in order, and `filler` behind them [n + 1]; and how many, int64 [1]."""
    (n,) = flags.shape
    flags = k.stored(flags)
    ones = k.cast(flags, DType.INT32)
    before = k.scan(ones, "sum", 0, exclusive=True)
    places = k.iota((n,), 0, DType.INT64)
    rest = k.broadcast(k.size(filler), (n,))
    room = k.broadcast(k.size(filler), (n + 1,))
    target = k.cast(k.select(flags, before, k.size(n, DType.INT32)), DType.INT64)
    count = k.reshape(k.cast(k.reduce_sum(ones, [0]), DType.INT64), (1,))
    return k.scatter(room, [target], k.select(flags, places, rest)), count  # all others write the same into the last place


@device_op("Positions")
def positions(x: Tensor) -> tuple[Tensor, Tensor]:
    """Where the elements are that are not zero: places in row-major order [n + 1], and how many [1]."""
    return compacted(k.reshape(k.cast(x, DType.BOOL), (product(x.shape),)))


@device_op("Coordinates", values=("count",))
def coordinates(x: Tensor, places: Tensor, count: Any) -> Tensor:
    """The first `count` places in x as indices, int64 [rank, count]."""
    rest, rows = prefix(places, only(count)), []
    for i in range(max(x.rank, 1)):
        stride = k.size(product(x.shape[i + 1 :]))
        rows.append(k.expand_dims(rest / k.maximum(stride, 1), [0]))
        rest = k.binary("mod", rest, k.maximum(stride, 1))
    return k.concat(rows, 0)


@device_op("Chosen")
def chosen(x: Tensor, condition: Tensor, *, axis: int | None = None) -> tuple[Tensor, Tensor]:
    """Where a condition holds, of as many as x has slices: [n + 1] and [1]."""
    if condition.rank != 1:
        raise k.DefinitionError(f"condition has rank {condition.rank}; expected 1")
    limit = product(x.shape) if axis is None else x.shape[normal_axis(axis, x.rank)]
    (n,) = condition.shape
    flags = k.cast(condition, DType.BOOL)
    if not isinstance(n, int) or not isinstance(limit, int) or n > limit:
        flags = k.binary("and", flags, k.iota((n,), 0, DType.INT64) < k.size(limit))
    return compacted(flags)


@device_op("Taken", values=("count",))
def taken(x: Tensor, places: Tensor, count: Any, *, axis: int | None = None) -> Tensor:
    """The slices of x (elements, where `axis` is None) at the first `count` places."""
    if axis is None:
        return k.take(k.reshape(x, (product(x.shape),)), prefix(places, only(count)), 0)
    return k.take(x, prefix(places, only(count)), normal_axis(axis, x.rank))


@device_op("First", values=("count",))
def first(x: Tensor, count: Any) -> Tensor:
    """The first `count` slices."""
    return prefix(x, only(count))


@device_op("Distinct")
def distinct(X: Tensor, *, axis: int | None = None, sorted: int = 1) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of each distinct slice the place of its first occurrence [n + 1], which one each slice is [n], how often each occurs
    [n + 1], and how many there are [1]."""
    x = k.reshape(X, (product(X.shape),)) if axis is None else X
    at = 0 if axis is None else normal_axis(axis, x.rank)
    n = x.shape[at]
    if n == 0:
        nothing = k.full((1,), 0, DType.INT64)
        return nothing, k.full((0,), 0, DType.INT64), nothing, nothing
    order = k.transpose(x, [at, *(i for i in range(x.rank) if i != at)])
    rows = k.reshape(order, (n, product(order.shape[1:])))
    if rows.dtype is DType.BOOL:
        rows = k.cast(rows, DType.INT32)
    places = _sorted_places(rows)
    ordered = k.take(rows, places, 0)
    before = k.take(rows, k.take(places, k.maximum(k.iota((n,), 0) - 1, 0), 0), 0)
    begins = k.binary("or", k.reduce(k.not_equal(ordered, before), "any", [1]), k.equal(k.iota((n,), 0), 0))
    group = k.scan(k.cast(begins, DType.INT64), "sum", 0) - 1
    inverse = k.scatter(k.full((n,), 0, DType.INT64), [places], group)
    starts, count = compacted(begins, n)
    ends = k.concat([k.strided_slice(starts, [1], [1], (n,)), k.reshape(k.size(n), (1,))], 0)
    # behind the last place stands the filler n, which is no place: it stays in range for reading
    firsts = k.take(places, k.minimum(starts, k.maximum(k.size(n) - 1, 0)), 0)
    counts = ends - starts
    if sorted:
        return firsts, inverse, counts, count
    here = k.equal(k.take(firsts, inverse, 0), k.iota((n,), 0))
    rank = k.scan(k.cast(here, DType.INT64), "sum", 0, exclusive=True)
    found, _ = compacted(here)
    counted = k.take(counts, k.take(inverse, found, 0), 0)
    return found, k.take(rank, k.take(firsts, inverse, 0), 0), counted, count


def _sorted_places(rows: Tensor) -> Tensor:
    """The places of rows [n, m] in ascending order, by the first column in which two differ.

    One column after the other from the last on, each keeping the order of rows that are equal in it; more columns than that
    is worth are compared all with all.
    """
    n, m = rows.shape
    if not isinstance(m, int) or m > _SORTED_COLUMNS:
        return _ranked_places(rows)
    places = k.iota((n,), 0, DType.INT64)
    for column in reversed(range(m)):
        values = k.reshape(k.strided_slice(rows, [0, column], [1, 1], (n, 1)), (n,))
        if column == m - 1:
            places = k.sort(values, 0)[1]
        else:
            places = k.stored(places)
            places = k.take(places, k.sort(k.take(values, places, 0), 0)[1], 0)
    return places


def _ranked_places(rows: Tensor) -> Tensor:
    """The same by counting, for each row, those before it."""
    n, m = rows.shape
    left, right = k.expand_dims(rows, [1]), k.expand_dims(rows, [0])
    columns = k.broadcast(k.reshape(k.iota((m,), 0), (1, 1, m)), (n, n, m))
    last = k.maximum(k.size(m) - 1, 0)
    column = k.reduce(k.select(k.not_equal(left, right), columns, last), "min", [2])
    places = [k.broadcast(k.reshape(k.iota((n,), 0), shape), (n, n)) for shape in ((n, 1), (1, n))]
    column = k.stored(k.minimum(column, last))  # at most the last: of no columns the largest number
    ours, theirs = (k.index(rows, [p, column]) for p in places)
    smaller = k.binary("or", theirs < ours, k.binary("and", k.equal(ours, theirs), places[1] < places[0]))
    rank = k.reduce_sum(k.cast(smaller, DType.INT64), [1])
    return k.scatter(k.full((n,), 0, DType.INT64), [rank], k.iota((n,), 0))
