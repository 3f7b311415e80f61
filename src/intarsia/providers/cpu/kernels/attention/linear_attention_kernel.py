"""Linear attention with a state: S = exp(g) S + k (x) u, o = scale q^T S, where u is v, or beta (v - S^T k) by a delta rule.

The columns of a state do not depend on each other: a unit of work is a block of columns of one state, [key size, columns],
which stays in the first-level cache while all steps go by.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass

_F32 = DType.FLOAT
_POINTERS = "q k v past decay beta y present scale scratch".split()
FIELDS = (
    *_POINTERS,
    *"batch steps states readers key_size value_size query_heads blocks decay_heads decay_size beta_heads window".split(),
    "scratch_nbytes",
)
MAX_VECTORS = 4


@dataclass(frozen=True)
class Form:
    """`vectors` of columns in a block; whether states decay, are updated by a delta rule, and are stored in a window."""

    vectors: int
    gated: bool
    delta: bool
    windowed: bool = False


def block_columns(form: Form, target: Target) -> int:
    return form.vectors * target.vector_bytes // 4


def scratch_nbytes(form: Form, key_size: int, target: Target) -> int:
    """Bytes for one thread: a block of a state, and a step's gates."""
    lanes = target.vector_bytes // 4
    return key_size * block_columns(form, target) * 4 + (key_size + lanes) // lanes * lanes * 4


@functools.cache
def kernel_text(form: Form, target: Target) -> KernelText:
    """Arguments are FIELDS; addresses that may be 0: past, present, and decay and beta where the form has none.

    q [batch, steps, query heads, key size], k and v [batch, steps, states, size], past and present [batch, states, key size,
    value size], with an axis of `window` in front where there is one; decay [batch, steps, states, key size or 1], beta
    [batch, steps, states or 1]; y [batch, steps, states * readers, value size].
    """
    return _LinearAttention(form, target).text()


class _LinearAttention:
    def __init__(self, form: Form, target: Target) -> None:
        self.form, self.module = form, Module(target)
        self.lanes = self.module.lanes(_F32)
        self.columns = form.vectors * self.lanes
        self.body: Body = self.module.kernel()
        self.e = Emitter(self.body.b, self.lanes)

    def text(self) -> KernelText:
        body = self.body
        args, tid, nthreads = body.args
        v = self.v = {n: (body.load_pointer if n in _POINTERS else body.load_i64)(args, i) for i, n in enumerate(FIELDS)}
        self.state = body.at(v["scratch"], body.mul(tid, v["scratch_nbytes"]))
        self.gates = body.at(self.state, body.mul(v["key_size"], self.columns * 4))
        self.scale = body.broadcast(v["scale"], _F32, self.lanes)
        self.plane = body.mul(body.mul(v["batch"], v["states"]), body.mul(v["key_size"], v["value_size"]))
        units = body.mul(body.mul(v["batch"], v["states"]), v["blocks"])
        first, last = body.share(units, tid, nthreads)
        with body.loop(first, last) as unit:
            self._unit(unit)
        body.b.ret_void()
        return self.module.text("linear_attention")

    def _given(self, name: str) -> Value:
        return self.body.b.icmp_unsigned("!=", self.body.b.ptrtoint(self.v[name], self.v["batch"].type), self.body.i(0))

    def _unit(self, unit: Value) -> None:
        """All steps of a block of columns."""
        body, v = self.body, self.v
        owner = body.div(unit, v["blocks"])
        self.head, self.row = body.rem(owner, v["states"]), body.div(owner, v["states"])
        self.column = body.mul(body.rem(unit, v["blocks"]), self.columns)
        left = body.sub(v["value_size"], self.column)
        self.masks = [body.mask(body.sub(left, i * self.lanes), self.lanes) for i in range(self.form.vectors)]
        self.corner = body.add(body.mul(body.mul(owner, v["key_size"]), v["value_size"]), self.column)
        self._begin()
        first_slot = body.sub(v["steps"], v["window"]) if self.form.windowed else body.i(0)
        with body.loop(0, v["steps"]) as t:
            self._step(body.add(body.mul(self.row, v["steps"]), t))
            if self.form.windowed:
                slot = body.sub(t, first_slot)
                with body.when(body.less(-1, slot)):
                    self._keep(slot)
        with body.when(self._given("present")):
            if self.form.windowed:
                with body.loop(0, body.sub(0, first_slot)) as slot:
                    self._each_row(
                        self._present(slot), lambda i, at: self._store_row([body.zero(_F32, self.lanes)] * len(self.masks), at)
                    )
            else:
                self._keep(body.i(0))

    def _each_row(self, base: Value, then: Callable[[Value, Value], None]) -> None:
        """`then` of each row of the state and its place in a tensor of states that begins at `base`."""
        with self.body.loop(0, self.v["key_size"]) as i:
            then(i, self.body.at(base, self.body.mul(self.body.mul(i, self.v["value_size"]), 4)))

    def _begin(self) -> None:
        body = self.body
        none = [body.zero(_F32, self.lanes)] * self.form.vectors
        with body.either(self._given("past")) as (given, empty):
            with given:
                newest = body.mul(body.sub(self.v["window"], 1), self.plane) if self.form.windowed else body.i(0)
                base = body.at(self.v["past"], body.mul(body.add(newest, self.corner), 4))
                self._each_row(base, lambda i, at: self._set(i, self._load_row(at)))
            with empty, body.loop(0, self.v["key_size"]) as i:
                self._set(i, none)

    def _present(self, slot: Value) -> Value:
        body = self.body
        return body.at(self.v["present"], body.mul(body.add(body.mul(slot, self.plane), self.corner), 4))

    def _keep(self, slot: Value) -> None:
        with self.body.when(self._given("present")):
            self._each_row(self._present(slot), lambda i, at: self._store_row(self._get(i), at))

    def _load_row(self, at: Value) -> list[Value]:
        """The block's columns of a row in a tensor."""
        places = [self.body.at(at, i * self.lanes * 4) for i in range(self.form.vectors)]
        return [self.body.load_masked(p, m, _F32, self.lanes) for p, m in zip(places, self.masks, strict=True)]

    def _store_row(self, values: list[Value], at: Value) -> None:
        for i, (value, mask) in enumerate(zip(values, self.masks, strict=True)):
            self.body.store_masked(value, self.body.at(at, i * self.lanes * 4), mask, _F32)

    def _at(self, i: Value) -> Value:
        return self.body.at(self.state, self.body.mul(i, self.columns * 4))

    def _get(self, i: Value) -> list[Value]:
        return [
            self.body.load(self.body.at(self._at(i), j * self.lanes * 4), _F32, self.lanes) for j in range(self.form.vectors)
        ]

    def _set(self, i: Value, values: list[Value]) -> None:
        for j, value in enumerate(values):
            self.body.store(value, self.body.at(self._at(i), j * self.lanes * 4), _F32)

    def _fma(self, a: Value, b: Value, c: Value) -> Value:
        return self.body.fma(a, b, c, _F32, self.lanes)

    def _many(self, pointer: Value, index: Value) -> Value:
        return self.body.broadcast(self.body.at(pointer, self.body.mul(index, 4)), _F32, self.lanes)

    # --- one step ---

    def _step(self, place: Value) -> None:
        """`place` is batch * steps + step."""
        body, v, b = self.body, self.v, self.body.b
        head = body.add(body.mul(place, v["states"]), self.head)
        key = body.at(v["k"], body.mul(body.mul(head, v["key_size"]), 4))
        value = body.at(v["v"], body.mul(body.add(body.mul(head, v["value_size"]), self.column), 4))
        if self.form.gated:
            self._gates(place)
        update = self._load_row(value)
        if self.form.delta:
            beta_head = body.select(body.equal(v["beta_heads"], 1), 0, self.head)
            rate = self._many(v["beta"], body.add(body.mul(place, v["beta_heads"]), beta_head))
            update = [b.fmul(rate, b.fsub(u, p)) for u, p in zip(update, self._seen(key), strict=True)]
        first = body.mul(self.head, v["readers"])
        with body.loop(0, v["readers"]) as reader:
            head = body.add(first, reader)
            with body.either(body.equal(reader, 0)) as (writing, reading):
                with writing:
                    self._read(place, head, lambda i: self._updated(i, key, update))
                with reading:
                    self._read(place, head, self._get)

    def _gates(self, place: Value) -> None:
        """exp(decay) of the step, for each row of the state or one for all."""
        body, v, lanes = self.body, self.v, self.lanes
        start = body.mul(body.add(body.mul(place, v["decay_heads"]), self.head), v["decay_size"])
        source = body.at(v["decay"], body.mul(start, 4))
        with body.either(body.equal(v["decay_size"], 1)) as (one, many):
            with one:
                gate = self.e.primitive("exp", [body.broadcast(source, _F32, lanes)], _F32, _F32)
                with body.loop(0, v["key_size"], lanes) as i:
                    body.store(gate, body.at(self.gates, body.mul(i, 4)), _F32)
            with many, body.loop(0, v["key_size"], lanes) as i:
                mask = body.mask(body.sub(v["key_size"], i), lanes)
                given = body.load_masked(body.at(source, body.mul(i, 4)), mask, _F32, lanes)
                body.store(self.e.primitive("exp", [given], _F32, _F32), body.at(self.gates, body.mul(i, 4)), _F32)

    def _decayed(self, i: Value) -> list[Value]:
        rows = self._get(i)
        if not self.form.gated:
            return rows
        gate = self._many(self.gates, i)
        return [self.body.b.fmul(row, gate) for row in rows]

    def _seen(self, key: Value) -> list[Value]:
        """S^T k of the decayed state, which stays so where it decays."""
        total = [self.body.zero(_F32, self.lanes)] * self.form.vectors
        with self.body.carry(0, self.v["key_size"], 1, total) as i:
            rows, factor = self._decayed(i), self._many(key, i)
            if self.form.gated:
                self._set(i, rows)
            total[:] = [self._fma(row, factor, t) for row, t in zip(rows, total, strict=True)]
        return list(total)

    def _updated(self, i: Value, key: Value, update: list[Value]) -> list[Value]:
        rows = self._get(i) if self.form.delta else self._decayed(i)
        factor = self._many(key, i)
        rows = [self._fma(factor, u, row) for u, row in zip(update, rows, strict=True)]
        self._set(i, rows)
        return rows

    def _read(self, place: Value, head: Value, rows_of: Callable[[Value], list[Value]]) -> None:
        """o = scale q^T S for the output's head `head`."""
        body, v = self.body, self.v
        heads = body.mul(v["states"], v["readers"])
        query_head = body.div(body.mul(head, v["query_heads"]), heads)
        at = body.mul(body.add(body.mul(place, v["query_heads"]), query_head), v["key_size"])
        query = body.at(v["q"], body.mul(at, 4))
        total = [body.zero(_F32, self.lanes)] * self.form.vectors
        with body.carry(0, v["key_size"], 1, total) as i:
            rows, factor = rows_of(i), self._many(query, i)
            total[:] = [self._fma(row, factor, t) for row, t in zip(rows, total, strict=True)]
        out = body.add(body.mul(body.add(body.mul(place, heads), head), v["value_size"]), self.column)
        self._store_row([body.b.fmul(t, self.scale) for t in total], body.at(v["y"], body.mul(out, 4)))
