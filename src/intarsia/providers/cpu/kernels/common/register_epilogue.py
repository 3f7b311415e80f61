"""Epilogues that a micro-kernel applies to sums in its registers: a bias for each column, maybe a tensor as C is, then bounds.

The micro-kernels of `blocked_k_microkernel` for `tiled_rows` or more take the address of a record instead of `accumulate`:
words
`FIELDS`, of which `accumulate` is what it would have been, `c` and `ldc` say where rows of C go, `bias` where the columns'
numbers are, `rest` how many columns the last vector has if not all, and `bounded` whether the two numbers behind, `low` and
`high`, bound what is stored. Where micro-kernels take residuals (`takes_residuals`), `RESIDUAL` follows: where the rows of a
tensor to be added are, or 0, and the bytes between them. So sums of few steps do not pass through memory before they are
finished. (Rows are divided evenly into tiles, so that most have nearly as many as a tile.)
"""

from __future__ import annotations

import math
from collections.abc import Callable

from intarsia.codegen.builder.kernel_body import Body, Value
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives.lang import Tensor
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue

FIELDS = ("accumulate", "c", "ldc", "bias", "rest", "bounded", "low", "high")
RESIDUAL = ("residual", "residual_row")
_AT = {name: 8 * i for i, name in enumerate((*FIELDS, *RESIDUAL))}


@dataclass(frozen=True)
class Ending:
    """max(low, sums + operand `bias` + operand `residual`), or `high` if less; a `residual` of -1: none."""

    bias: int
    low: float
    high: float
    residual: int = -1


def takes_residuals(target: Target) -> bool:
    """Whether micro-kernels add residuals: 12 vectors, each an operand of an addition. Measured with 16 registers alone."""
    return target.is_avx2


def ending_of(epilogue: Epilogue | None, dtype: DType, target: Target) -> Ending | None:
    """The epilogue as a register epilogue of sums of `dtype`; None where it is more than that."""
    if epilogue is None or epilogue.dtype is not dtype:
        return None
    low, high, t = -math.inf, math.inf, _plain(epilogue.root)
    while t.prim in ("min", "max"):
        operation = t.prim
        number, t = sorted((_plain(a) for a in t.args), key=lambda a: a.prim != "scalar")
        if number.prim != "scalar" or math.isnan(number.attrs[0]):
            return None
        low, high = (max(low, number.attrs[0]), high) if operation == "max" else (low, min(high, number.attrs[0]))
    residual = _added(t, epilogue, "full", dtype) if takes_residuals(target) else None
    if residual is not None:
        t = residual[1]
    bias = _added(t, epilogue, "column", dtype)
    if bias is None or bias[1].prim != "input" or bias[1].attrs[0] != 0 or low > high:
        return None
    return Ending(bias[0], low, high, -1 if residual is None else residual[0])


def _added(t: Tensor, epilogue: Epilogue, kind: str, dtype: DType) -> tuple[int, Tensor] | None:
    """Which operand of a kind is added last, and to what."""
    terms = [_plain(a) for a in t.args] if t.prim == "add" else []
    for term, other in (terms, terms[::-1]) if terms else ():
        operand = term.attrs[0] - 1 if term.prim == "input" else -1
        if operand >= 0 and epilogue.kinds[operand] == kind and epilogue.dtypes[operand] is dtype:
            return operand, other
    return None


def _plain(t: Tensor) -> Tensor:
    while t.prim in ("broadcast", "reshape"):
        (t,) = t.args
    return t


class Record:
    """A record on the stack of the kernel that calls micro-kernels; what differs between tiles is set by it."""

    def __init__(self, body: Body, ending: Ending, dtype: DType, ldc: Value) -> None:
        self.body = body
        residuals = takes_residuals(body.module.target)
        self.place = body.alloca(8 * len((*FIELDS, *RESIDUAL) if residuals else FIELDS))
        if residuals:
            self.set("residual", body.i(0))
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
    residual, residual_row = body.i(0), body.i(0)
    if takes_residuals(body.module.target):
        residual, residual_row = (body.load_i64(body.at(record, _AT[name])) for name in RESIDUAL)

    def stored(bounded: bool, mask: Value | None = None, adds: bool = False) -> None:
        columns = [body.at(body.pointer(bias), j * nbytes) for j in range(last + 1)]
        shifts = [body.load(column, dtype, lanes) for column in (columns if mask is None else columns[:last])]
        if mask is not None:
            shifts.append(body.load_masked(columns[last], mask, dtype, lanes))
        for i, row in enumerate(sums):
            line = body.at(body.pointer(c), body.mul(ldc, i))
            beside = body.at(body.pointer(residual), body.mul(residual_row, i)) if adds else None
            for j, value in enumerate(row):
                found = b.fadd(value, shifts[j])
                if adds:
                    place, masked = body.at(beside, j * nbytes), mask is not None and j == last
                    more = body.load_masked(place, mask, dtype, lanes) if masked else body.load(place, dtype, lanes)
                    found = b.fadd(found, more)
                if bounded:  # NaN is neither less nor more: it stays
                    found = b.select(b.fcmp_ordered("<", found, low), low, found)
                    found = b.select(b.fcmp_ordered(">", found, high), high, found)
                if mask is not None and j == last:
                    body.store_masked(found, body.at(line, j * nbytes), mask, dtype)
                else:
                    body.store(found, body.at(line, j * nbytes), dtype)

    def plain() -> None:
        with body.either(body.less(0, body.load_i64(body.at(record, _AT["bounded"])))) as (bounded, free):
            with bounded:
                stored(True)
            with free:
                stored(False)

    def either_way(without: Callable[[], None], mask: Value | None = None) -> None:
        if not takes_residuals(body.module.target):
            without()
            return
        with body.either(body.equal(residual, 0)) as (none, some):
            with none:
                without()
            with some:
                stored(True, mask, adds=True)

    with body.either(body.less(0, rest)) as (partial, whole):
        with partial:
            mask = body.mask(rest, lanes)
            either_way(lambda: stored(True, mask), mask)
        with whole:
            either_way(plain)


def accumulates(body: Body, record: Value) -> Value:
    """The record that is given instead of `accumulate`."""
    return body.load_i64(body.at(record, _AT["accumulate"]))
