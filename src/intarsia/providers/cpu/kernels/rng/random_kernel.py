"""Random numbers by vectors: `ops.tensor.philox` defines them, 16 counters at a time are a vector here.

A block of 64 elements (32 of float64) comes from 16 counters, so that what an element is follows from the key, the stream and
its place alone, whatever the machine's vectors and the number of threads.
"""

from __future__ import annotations

import functools

import numpy as np

from intarsia.codegen.builder.kernel_body import Module, Value
from intarsia.codegen.elementwise.element_types import storage_type
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.tensor import philox
from intarsia.ops.tensor.philox import LANES
from intarsia.primitives import lang as k

KINDS = ("uniform", "normal", "below", "drop")
_F32, _F64 = DType.FLOAT, DType.DOUBLE
_I32, _I64 = ir_builder.IntType(32), ir_builder.IntType(64)
_CARRIERS = {8: DType.UINT8, 16: DType.UINT16, 32: DType.UINT32, 64: DType.UINT64}
_FIELDS = ("y", "n", "state", "bounds", "source", "mask")


@dataclass(frozen=True)
class Form:
    """The distribution: "uniform", a + (b - a) u with u in [0, 1); "normal", a + b z (Box and Muller); "below", 1 where u is
    less than the source's element, else 0; "drop", the source's elements times 1 / (1 - a) where u >= a, else 0, and which they
    are.

    u has 24 bits; 53 where `dtype`, of the result, is double (not for "below" and "drop").
    """

    kind: str
    dtype: DType = DType.FLOAT
    source: DType = DType.FLOAT

    @property
    def wide(self) -> bool:
        return self.dtype is DType.DOUBLE and self.kind in ("uniform", "normal")

    @property
    def bounds(self) -> type:
        """The type of a and b."""
        return np.float64 if self.wide else np.float32

    @property
    def block(self) -> int:
        """Elements that 16 counters give."""
        return LANES * (2 if self.wide else 4)

    @property
    def takes_source(self) -> bool:
        return self.kind in ("below", "drop")


@functools.cache
def kernel_text(form: Form, target: Target) -> KernelText:
    """Arguments: y, n, two 64-bit integers in memory (key and stream), two numbers in memory (a, b), source, mask (bytes)."""
    return _Random(form, target).text()


@functools.cache
def draw_text(target: Target) -> KernelText:
    """Arguments: the shared state (key, streams drawn), and where to write the key and the number of a new stream."""
    module = Module(target)
    body = module.kernel()
    args, tid, _ = body.args
    shared, state = (body.load_pointer(args, i) for i in range(2))
    with body.when(body.equal(tid, 0)):
        body.store(body.load_i64(shared), state, DType.INT64)
        before = body.b.atomic_rmw("add", body.at(shared, 8), body.i(1), "monotonic")
        body.store(body.add(before, 1), body.at(state, 8), DType.INT64)
    body.b.ret_void()
    return module.text("draw")


def _elements(form: Form) -> list[k.Tensor]:
    """Vectors of elements of a block; behind them, for "drop", vectors of which elements stay.

    Operands: a counter's four words, the key's two, a, b, and for each vector of elements that of the source.
    """
    words = [k.input(i, DType.UINT32, (LANES,)) for i in range(6)]
    low, high = (k.input(i, _F64 if form.wide else _F32, (LANES,)) for i in (6, 7))
    drawn = philox.words(words[:4], words[4:])
    if form.kind in ("uniform", "normal"):
        make, moved = {"uniform": (philox.units, philox.between), "normal": (philox.normals, philox.around)}[form.kind]
        return [k.cast(moved(x, low, high), form.dtype) for x in make(drawn, _F64 if form.wide else _F32)]
    given = [k.input(8 + i, form.source, (LANES,)) for i in range(4)]
    pairs = list(zip(philox.units(drawn), given, strict=True))
    if form.kind == "below":
        return [k.cast(philox.happens(unit, x), form.dtype) for unit, x in pairs]
    found = [philox.dropped(unit, x, low) for unit, x in pairs]
    return [value for value, _ in found] + [stays for _, stays in found]


class _Random:
    def __init__(self, form: Form, target: Target) -> None:
        self.form = form
        self.module = Module(target)
        self.body = self.module.kernel()
        self.vector = ir_builder.VectorType(_I32, LANES)
        self.e = Emitter(self.body.b, LANES)
        self.number = _F64 if form.wide else _F32

    def text(self) -> KernelText:
        body, form = self.body, self.form
        args, tid, nthreads = body.args
        v = {name: body.load_i64(args, i) if name == "n" else body.load_pointer(args, i) for i, name in enumerate(_FIELDS)}
        state = [self._halves(body.load_i64(v["state"], i)) for i in range(2)]
        itemsize = self.number.bits // 8
        bounds = [body.broadcast(body.at(v["bounds"], itemsize * i), self.number, LANES) for i in range(2)]
        first, last = body.share(body.div(body.add(v["n"], form.block - 1), form.block), tid, nthreads)
        with body.loop(first, last) as block:
            start = self._halves(body.mul(block, LANES))
            start[0] = body.b.add(start[0], ir_builder.Constant(self.vector, list(range(LANES))))
            known = [*start, *state[1], *state[0], *bounds]
            places = [body.add(body.mul(block, form.block), i * LANES) for i in range(form.block // LANES)]
            masks = [body.mask(body.sub(v["n"], place), LANES) for place in places]
            if form.takes_source:
                known += [self._load(v["source"], place, mask) for place, mask in zip(places, masks, strict=True)]
            drawn = self.e.evaluate_all(_elements(form), dict(enumerate(known)))
            for value, place, mask in zip(drawn, places, masks, strict=False):
                self._store(value, v["y"], place, mask, form.dtype)
            for stays, place, mask in zip(drawn[len(places) :], places, masks, strict=False):
                self._store(stays, v["mask"], place, mask, DType.BOOL)
        body.b.ret_void()
        return self.module.text(f"random_{form.kind}")

    def _halves(self, x: Value) -> list[Value]:
        """The lower and the upper word of 64 bits, in all lanes."""
        b = self.body.b
        return [self.e.splat(b.trunc(half, _I32)) for half in (x, b.lshr(x, _I64(32)))]

    def _load(self, pointer: Value, place: Value, mask: Value) -> Value:
        dtype, body = self.form.source, self.body
        at = body.at(pointer, body.mul(place, dtype.bits // 8))
        bits = body.load_masked(at, mask, _CARRIERS[dtype.bits], LANES)
        return self.e.from_storage(body.b.bitcast(bits, self.e.shaped(storage_type(dtype))), dtype)

    def _store(self, value: Value, pointer: Value, place: Value, mask: Value, dtype: DType) -> None:
        body, size = self.body, 8 if dtype is DType.BOOL else dtype.bits
        bits = body.b.bitcast(self.e.to_storage(value, dtype), self.e.shaped(ir_builder.IntType(size)))
        body.store_masked(bits, body.at(pointer, body.mul(place, size // 8)), mask, _CARRIERS[size])
