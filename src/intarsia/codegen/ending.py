"""Epilogues that a micro-kernel applies to sums in its registers: a bias for each column, then bounds.

The micro-kernels of `stepped` for `tiled_rows` or more take the address of a record in the place of `accumulate`: words
`FIELDS`, of which `accumulate` is what it would have been, `c` and `ldc` say where rows of C go, `bias` where the columns'
numbers are, `rest` how many columns the last vector has if not all, and `bounded` whether the two numbers behind, `low` and
`high`, bound what is stored. So sums of few steps do not pass through memory before they are finished. (Rows are cut into even
tiles, so that most have nearly as many as a tile.)
"""

from __future__ import annotations

import math

from intarsia.codegen.body import Body, Value
from intarsia.codegen.epilogue import Epilogue
from intarsia.graph.dtypes import DType
from intarsia.kernel.lang import Tensor
from intarsia.records import dataclass

FIELDS = ("accumulate", "c", "ldc", "bias", "rest", "bounded", "low", "high")
_AT = {name: 8 * i for i, name in enumerate(FIELDS)}


@dataclass(frozen=True)
class Ending:
    """max(low, sums + operand `bias`), or `high` if less."""

    bias: int
    low: float
    high: float


def ending_of(epilogue: Epilogue | None, dtype: DType) -> Ending | None:
    """The epilogue as an ending of sums of `dtype`; None where it is more than that."""
    if epilogue is None or epilogue.dtype is not dtype:
        return None
    low, high, t = -math.inf, math.inf, _plain(epilogue.root)
    while t.prim in ("min", "max"):
        operation = t.prim
        number, t = sorted((_plain(a) for a in t.args), key=lambda a: a.prim != "scalar")
        if number.prim != "scalar" or math.isnan(number.attrs[0]):
            return None
        low, high = (max(low, number.attrs[0]), high) if operation == "max" else (low, min(high, number.attrs[0]))
    inputs = {a.attrs[0] for a in map(_plain, t.args) if a.prim == "input"} if t.prim == "add" else set()
    bias = max(inputs, default=0) - 1
    if len(inputs) != 2 or 0 not in inputs or epilogue.kinds[bias] != "column" or epilogue.dtypes[bias] is not dtype:
        return None
    return Ending(bias, low, high) if low <= high else None


def _plain(t: Tensor) -> Tensor:
    while t.prim in ("broadcast", "reshape"):
        (t,) = t.args
    return t


class Record:
    """A record on the stack of the kernel that calls micro-kernels; what differs between tiles is set by it."""

    def __init__(self, body: Body, ending: Ending, dtype: DType, ldc: Value) -> None:
        self.body = body
        self.place = body.alloca(8 * len(FIELDS))
        self.address = body.b.ptrtoint(self.place, body.i(0).type)
        self.set("ldc", ldc)
        self.set("bounded", body.i(int(ending.low > -math.inf or ending.high < math.inf)))
        for name, number in (("low", ending.low), ("high", ending.high)):
            body.store(body.constant(number, dtype, 1), body.at(self.place, _AT[name]), dtype)

    def set(self, name: str, value: Value) -> None:
        self.body.b.store(value, self.body.at(self.place, _AT[name]))


def emit_ending(body: Body, record: Value, sums: list[list[Value]], dtype: DType, lanes: int) -> None:
    """Store rows of sums as the record says."""
    b, nbytes, last = body.b, lanes * dtype.bits // 8, len(sums[0]) - 1
    c, ldc, bias, rest = (body.load_i64(body.at(record, _AT[name])) for name in ("c", "ldc", "bias", "rest"))
    low, high = (body.broadcast(body.at(record, _AT[name]), dtype, lanes) for name in ("low", "high"))

    def stored(bounded: bool, mask: Value | None = None) -> None:
        columns = [body.at(body.pointer(bias), j * nbytes) for j in range(last + 1)]
        shifts = [body.load(column, dtype, lanes) for column in (columns if mask is None else columns[:last])]
        if mask is not None:
            shifts.append(body.load_masked(columns[last], mask, dtype, lanes))
        for i, row in enumerate(sums):
            line = body.at(body.pointer(c), body.mul(ldc, i))
            for j, value in enumerate(row):
                found = b.fadd(value, shifts[j])
                if bounded:  # NaN is neither less nor more: it stays
                    found = b.select(b.fcmp_ordered("<", found, low), low, found)
                    found = b.select(b.fcmp_ordered(">", found, high), high, found)
                if mask is not None and j == last:
                    body.store_masked(found, body.at(line, j * nbytes), mask, dtype)
                else:
                    body.store(found, body.at(line, j * nbytes), dtype)

    with body.either(body.less(0, rest)) as (partial, whole):
        with partial:
            stored(True, body.mask(rest, lanes))
        with whole, body.either(body.less(0, body.load_i64(body.at(record, _AT["bounded"])))) as (bounded, free):
            with bounded:
                stored(True)
            with free:
                stored(False)


def accumulates(body: Body, record: Value) -> Value:
    """What the record has in the place of `accumulate`."""
    return body.load_i64(body.at(record, _AT["accumulate"]))
