"""Stages of a Fourier transform over vectors: lane l of every place belongs to line l.

A place holds a vector of real and a vector of imaginary parts. A stage of radix r reads [r, groups, run] places and writes
[groups, r, run] (Stockham's order, which needs no reordering at the end): b[k] = w^(p k) sum_j a[j] exp(-2 pi i j k / r)
for each group p and each place of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from intarsia.codegen.builder.kernel_body import Body, Index, Module, Value
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.fourier.twiddle_tables import LARGEST_RADIX, STAGE_FIELDS

Pair = tuple[Value, Value]
_SMALL = (4, 2, 3, 5)
SPARE_PLACES = 2 * LARGEST_RADIX  # behind the data: what a stage of another radix keeps


class Stages:
    """Internal functions of a module: one per small radix, one for all others."""

    def __init__(self, module: Module, dtype: DType, lanes: int) -> None:
        self.module, self.dtype, self.lanes = module, dtype, lanes
        self.itemsize = dtype.bits // 8
        self.place = 2 * lanes * self.itemsize
        self.small = {radix: self._small(radix) for radix in _SMALL}
        self.other = self._other()

    def run(self, body: Body, source: Value, target: Value, stages: tuple[Value, Value, Value], spare: Value) -> Value:
        """Emit all stages from `source`; the data end in the buffer that is returned.

        `stages`: the table's address, its rows, the roots' address.
        """
        table, count, roots = stages
        here, there = body.cell(source), body.cell(target)
        with body.loop(0, count) as i:
            row = body.at(table, body.mul(i, 8 * STAGE_FIELDS))
            radix, groups, run, offset, own = (body.load_i64(row, j) for j in range(STAGE_FIELDS))
            given = [here.get(), there.get(), groups, run, body.at(roots, offset)]
            rest = body.cell(1)
            for small, function in self.small.items():
                with body.when(body.equal(radix, small)):
                    body.b.call(function, given)
                    rest.set(0)
            with body.when(body.equal(rest.get(), 1)):
                body.b.call(self.other, [*given, radix, body.at(roots, own), spare])
            swapped = here.get()
            here.set(there.get())
            there.set(swapped)
        return here.get()

    # --- places ---

    def load(self, body: Body, pointer: Value, *offset: Index) -> Pair:
        at = body.at(pointer, *offset)
        return body.load(at, self.dtype, self.lanes), body.load(body.at(at, self.place // 2), self.dtype, self.lanes)

    def store(self, body: Body, value: Pair, pointer: Value, *offset: Index) -> None:
        at = body.at(pointer, *offset)
        body.store(value[0], at, self.dtype)
        body.store(value[1], body.at(at, self.place // 2), self.dtype)

    def root(self, body: Body, pointer: Value, *offset: Index) -> Pair:
        """One complex number in all lanes."""
        at = body.at(pointer, *offset)
        return body.broadcast(at, self.dtype, self.lanes), body.broadcast(body.at(at, self.itemsize), self.dtype, self.lanes)

    def product(self, body: Body, x: Pair, w: Pair) -> Pair:
        """x w."""
        b, (re, im), (wr, wi) = body.b, x, w
        lower, upper = b.fneg(b.fmul(im, wi)), b.fmul(im, wr)
        return self._fma(body, re, wr, lower), self._fma(body, re, wi, upper)

    def _fma(self, body: Body, a: Value, b: Value, c: Value) -> Value:
        return body.fma(a, b, c, self.dtype, self.lanes)

    # --- small radices ---

    def _small(self, radix: int) -> Value:
        """(ptr source, ptr target, i64 groups, i64 run, ptr roots)"""
        body = self.module.function(f"radix{radix}", ("p", "p", "i", "i", "p"))
        source, target, groups, run, roots = body.args
        run_nbytes = body.mul(run, self.place)
        distance = body.mul(groups, run_nbytes)
        butterfly = {2: self._two, 3: self._odd, 4: self._four, 5: self._odd}[radix]

        def group(p: Value, twisted: bool) -> None:
            at = body.at(roots, body.mul(p, (radix - 1) * 2 * self.itemsize))
            powers = [self.root(body, at, i * 2 * self.itemsize) for i in range(radix - 1)] if twisted else []
            first = body.at(source, body.mul(p, run_nbytes))
            out = body.at(target, body.mul(body.mul(p, radix), run_nbytes))
            with body.loop(0, run_nbytes, self.place) as q:
                found = butterfly(body, [self.load(body, first, body.mul(distance, j), q) for j in range(radix)])
                for j, value in enumerate(found):
                    turned = self.product(body, value, powers[j - 1]) if j and twisted else value
                    self.store(body, turned, out, body.mul(run_nbytes, j), q)

        group(body.i(0), twisted=False)
        with body.loop(1, groups) as p:
            group(p, twisted=True)
        body.b.ret_void()
        return body.function

    def _two(self, body: Body, a: Sequence[Pair]) -> list[Pair]:
        return [_each(body.b.fadd, *a), _each(body.b.fsub, *a)]

    def _four(self, body: Body, a: Sequence[Pair]) -> list[Pair]:
        b = body.b
        even, odd = self._two(body, (a[0], a[2])), self._two(body, (a[1], a[3]))
        (re, im), (x, y) = even[1], odd[1]
        down, up = (b.fadd(re, y), b.fsub(im, x)), (b.fsub(re, y), b.fadd(im, x))  # by -i and by i
        return [_each(b.fadd, even[0], odd[0]), down, _each(b.fsub, even[0], odd[0]), up]

    def _odd(self, body: Body, a: Sequence[Pair]) -> list[Pair]:
        """Sums and differences of the numbers that are as far from both ends; cosines take the former, sines the latter."""
        b, radix = body.b, len(a)
        half = radix // 2
        pairs = [(a[j], a[radix - j]) for j in range(1, half + 1)]
        sums, differences = [_each(b.fadd, *p) for p in pairs], [_each(b.fsub, *p) for p in pairs]
        total = a[0]
        for s in sums:
            total = _each(b.fadd, total, s)
        out = [total] * radix
        for i in range(1, half + 1):
            angles = [2 * math.pi * (i * j % radix) / radix for j in range(1, half + 1)]
            level = self._weighed(body, sums, [math.cos(x) for x in angles], a[0])
            turned = self._weighed(body, differences, [math.sin(x) for x in angles], None)
            out[i] = (b.fadd(level[0], turned[1]), b.fsub(level[1], turned[0]))
            out[radix - i] = (b.fsub(level[0], turned[1]), b.fadd(level[1], turned[0]))
        return out

    def _weighed(self, body: Body, values: Sequence[Pair], factors: Sequence[float], start: Pair | None) -> Pair:
        total = start
        for value, factor in zip(values, factors, strict=True):
            many = body.constant(factor, self.dtype, self.lanes)
            if total is None:
                total = (body.b.fmul(value[0], many), body.b.fmul(value[1], many))
            else:
                total = (self._fma(body, value[0], many, total[0]), self._fma(body, value[1], many, total[1]))
        assert total is not None
        return total

    # --- any other radix ---

    def _other(self) -> Value:
        """(ptr source, ptr target, i64 groups, i64 run, ptr roots, i64 radix, ptr own, ptr spare): an odd radix."""
        body = self.module.function("radix_other", ("p", "p", "i", "i", "p", "i", "p", "p"))
        source, target, groups, run, roots, radix, own, spare = body.args
        run_nbytes = body.mul(run, self.place)
        distance = body.mul(groups, run_nbytes)
        half = body.div(radix, 2)
        differences = body.at(spare, body.mul(radix, self.place))
        with body.loop(0, groups) as p:
            at = body.at(roots, body.mul(body.mul(p, body.sub(radix, 1)), 2 * self.itemsize))
            first = body.at(source, body.mul(p, run_nbytes))
            out = body.at(target, body.mul(body.mul(p, radix), run_nbytes))
            with body.loop(0, run_nbytes, self.place) as q:
                here, there = body.at(first, q), body.at(out, q)
                zero = self.load(body, here)
                total = list(zero)
                with body.carry(1, body.add(half, 1), 1, total) as j:
                    x = self.load(body, here, body.mul(distance, j))
                    y = self.load(body, here, body.mul(distance, body.sub(radix, j)))
                    both = _each(body.b.fadd, x, y)
                    self.store(body, both, spare, body.mul(j, self.place))
                    self.store(body, _each(body.b.fsub, x, y), differences, body.mul(j, self.place))
                    total[:] = [body.b.fadd(t, s) for t, s in zip(total, both, strict=True)]
                self.store(body, (total[0], total[1]), there)
                with body.loop(1, body.add(half, 1)) as i:
                    self._row(body, (spare, differences, own), (radix, half), i, zero, (there, run_nbytes, at))
        body.b.ret_void()
        return body.function

    def _row(
        self, body: Body, tables: tuple[Value, Value, Value], sizes: tuple[Value, Value], i: Value, zero: Pair,
        places: tuple[Value, Value, Value],
    ) -> None:  # fmt: skip
        """Elements i and radix - i of one butterfly."""
        b, (sums, differences, own), (radix, half), (out, run_nbytes, roots) = body.b, tables, sizes, places
        none = body.zero(self.dtype, self.lanes)
        state = [*zero, none, none, body.i(0)]
        with body.carry(1, body.add(half, 1), 1, state) as j:
            power = body.add(state[4], i)
            power = body.select(body.less(power, radix), power, body.sub(power, radix))
            cos, sin = self.root(body, own, body.mul(power, 2 * self.itemsize))  # of the negative angle
            s, d = (self.load(body, t, body.mul(j, self.place)) for t in (sums, differences))
            state[:] = [
                self._fma(body, s[0], cos, state[0]), self._fma(body, s[1], cos, state[1]),
                self._fma(body, d[0], sin, state[2]), self._fma(body, d[1], sin, state[3]), power,
            ]  # fmt: skip
        re, im, x, y = state[:4]
        values = [(i, (b.fsub(re, y), b.fadd(im, x))), (body.sub(radix, i), (b.fadd(re, y), b.fsub(im, x)))]
        for place, value in values:
            root = self.root(body, roots, body.mul(body.sub(place, 1), 2 * self.itemsize))
            self.store(body, self.product(body, value, root), out, body.mul(run_nbytes, place))


def _each(function: Callable[[Value, Value], Value], x: Pair, y: Pair) -> Pair:
    return function(x[0], y[0]), function(x[1], y[1])
