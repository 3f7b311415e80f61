"""Discrete Fourier transforms of many lines at once: a vector holds the same element of neighbouring lines.

A group of lines is read into scratch memory, goes through the stages of `fft_stages`, and is written. Lines of real
numbers travel in pairs, one as the real and one as the imaginary part: with Z = A + i B, A[k] = (Z[k] + conj(Z[n - k])) / 2
and B[k] = (Z[k] - conj(Z[n - k])) / 2i. An inverse transform swaps both parts before and behind a forward one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from intarsia.codegen.builder.kernel_body import Body, Index, Module, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.cpu.kernels.common.pack_b import transposed
from intarsia.providers.cpu.kernels.fourier.fft_stages import SPARE_PLACES, Pair, Stages
from intarsia.providers.cpu.kernels.fourier.twiddle_tables import Tables

DTYPES = frozenset((DType.FLOAT, DType.DOUBLE))
_POINTERS = "x y window twists scratch table roots chirp filter scale".split()
FIELDS = (
    *_POINTERS,
    *"stages smooth n have bins lines span inner x_outer x_inner x_step y_outer y_inner y_step pitch scratch_nbytes".split(),
)
_I64 = ir_builder.IntType(64)


@dataclass(frozen=True)
class Form:
    """Compile-time parameters of the kernel.

    Attributes:
        source: "real", "complex", or "half": the first n / 2 + 1 elements of a transform of real numbers.
        target: "complex" or "real".
        paired: lines of real numbers go in pairs.
        windowed: elements are multiplied by a table.
        twisted: the result's element k of inner line i is multiplied by the element [k, i] of a table; there have to be as
            many inner lines as a vector has lanes.
    """

    dtype: DType
    source: str
    target: str
    inverse: bool = False
    paired: bool = False
    windowed: bool = False
    twisted: bool = False


def lanes_of(dtype: DType, target: Target) -> int:
    return max(2, target.vector_bytes // (dtype.bits // 8))


def scratch_nbytes(dtype: DType, smooth: int, target: Target) -> int:
    """Bytes for one thread: two buffers, of a few places more than there are, and what a large radix needs."""
    lanes = lanes_of(dtype, target)
    places = 2 * (smooth + lanes + 1) + SPARE_PLACES
    return places * 2 * lanes * dtype.bits // 8


@dataclass(frozen=True)
class Lines:
    """Where lines are, in elements: line i at (i / inner) * outer + (i % inner) * inner_stride, its elements `step` apart."""

    x: tuple[int, int, int]
    y: tuple[int, int, int]
    outer: int
    inner: int


def kernel_args(
    form: Form, target: Target, found: Tables, lines: Lines, *, have: int, bins: int, scale: float, pitch: int = 0,
    buffers: Sequence[Any],
) -> list[Any]:  # fmt: skip
    """Arguments in the order of FIELDS; `buffers`: x, y, window, twists, scratch (addresses, or what stands for them)."""
    itemsize = form.dtype.bits // 8
    x_size, y_size = (itemsize * (1 if kind == "real" else 2) for kind in (form.source, form.target))
    group = lanes_of(form.dtype, target) * (2 if form.paired else 1)
    count = lines.outer * lines.inner
    tables: list[Any] = [found.stages, found.roots, *(0 if t is None else t for t in (found.chirp, found.filter))]
    return [
        *buffers, *tables, np.array([scale], form.dtype.numpy), len(found.stages), found.smooth, found.length, have, bins,
        count, lines.inner if lines.inner >= group else max(count, 1), max(lines.inner, 1), *(x_size * s for s in lines.x),
        *(y_size * s for s in lines.y), pitch, scratch_nbytes(form.dtype, found.smooth, target),
    ]  # fmt: skip


@functools.lru_cache(maxsize=64)
def kernel_text(form: Form, target: Target) -> KernelText:
    """The kernel; its arguments are `kernel_args`."""
    return _Fourier(form, target).text()


class _Fourier:
    def __init__(self, form: Form, target: Target) -> None:
        self.form, self.dtype = form, form.dtype
        self.module = Module(target)
        self.lanes, self.itemsize = lanes_of(form.dtype, target), form.dtype.bits // 8
        self.stages = Stages(self.module, form.dtype, self.lanes)
        self.place = self.stages.place
        self.sets = 2 if form.paired else 1
        self.products = {swap: self._products(swap) for swap in ("", "before", "behind")}
        self.body: Body = self.module.kernel()

    def _products(self, swap: str) -> Value:
        """(ptr data, ptr factors, i64 places): data[i] *= factors[i], real and imaginary parts swapped before or behind."""
        body = self.module.function(f"products{swap}", ("p", "p", "i"))
        data, factors, places = body.args
        with body.loop(0, places) as i:
            at = body.at(data, body.mul(i, self.place))
            value = self.stages.load(body, at)
            value = value[::-1] if swap == "before" else value
            value = self.stages.product(body, value, self.stages.root(body, factors, body.mul(i, 2 * self.itemsize)))
            self.stages.store(body, value[::-1] if swap == "behind" else value, at)
        body.b.ret_void()
        return body.function

    def text(self) -> KernelText:
        body = self.body
        args, tid, nthreads = body.args
        v = self.v = {n: (body.load_pointer if n in _POINTERS else body.load_i64)(args, i) for i, n in enumerate(FIELDS)}
        group = self.lanes * self.sets
        self.offsets = {side: body.alloca(8 * group) for side in "xy"}
        self.first = body.at(v["scratch"], body.mul(tid, v["scratch_nbytes"]))
        area = body.mul(body.add(v["smooth"], self.lanes + 1), self.place)
        second, spare = body.at(self.first, area), body.at(self.first, body.mul(area, 2))
        per_span = body.div(body.add(v["span"], group - 1), group)
        begin, end = body.share(body.mul(body.div(v["lines"], body.max(v["span"], 1)), per_span), tid, nthreads)
        self.scale = body.broadcast(v["scale"], self.dtype, self.lanes)
        with body.loop(begin, end) as unit:
            inside = body.mul(body.rem(unit, per_span), group)
            self.line = body.add(body.mul(body.div(unit, per_span), v["span"]), inside)
            self.count = body.min(body.sub(v["span"], inside), group)
            self._place_lines(group)
            self._read()
            self.result = self._transform(second, spare)
            self._write()
        body.b.ret_void()
        return self.module.text("fourier")

    def _place_lines(self, group: int) -> None:
        """Offsets in bytes of each line of the group; lines that there are not stand where the last one does."""
        body, v = self.body, self.v
        outer, inner = body.cell(body.div(self.line, v["inner"])), body.cell(body.rem(self.line, v["inner"]))
        self.first_inner = inner.get()
        with body.loop(0, group) as i:
            for side, memory in self.offsets.items():
                places = body.mul(outer.get(), v[f"{side}_outer"]), body.mul(inner.get(), v[f"{side}_inner"])
                body.store(body.add(*places), body.at(memory, body.mul(i, 8)), DType.INT64)
            more = body.less(body.add(i, 1), self.count)
            following = body.add(inner.get(), 1)
            wraps = body.equal(following, v["inner"])
            outer.add(body.select(body.b.and_(more, wraps), 1, 0))
            inner.set(body.select(more, body.select(wraps, 0, following), inner.get()))
        end = body.add(self.first_inner, self.count)
        self.together = body.b.icmp_signed("<=", end, v["inner"])  # the group does not reach into the next outer index

    def _transform(self, second: Value, spare: Value) -> Value:
        body, v = self.body, self.v
        stages = (v["table"], v["stages"], v["roots"])
        result = body.cell(self.first)
        with body.either(body.equal(v["smooth"], v["n"])) as (plain, convolved):
            with plain:
                result.set(self.stages.run(body, self.first, second, stages, spare))
            with convolved:
                body.b.call(self.products[""], [self.first, v["chirp"], v["n"]])
                rest = body.mul(body.sub(v["smooth"], v["n"]), self.place)
                body.fill(body.at(self.first, body.mul(v["n"], self.place)), rest)
                there = self.stages.run(body, self.first, second, stages, spare)
                body.b.call(self.products["behind"], [there, v["filter"], v["smooth"]])
                here = body.select(self._same(there, self.first), self._number(second), self._number(self.first))
                last = self.stages.run(body, there, body.pointer(here), stages, spare)
                body.b.call(self.products["before"], [last, v["chirp"], v["n"]])
                result.set(last)
        return result.get()

    def _number(self, pointer: Value) -> Value:
        return self.body.b.ptrtoint(pointer, _I64)

    def _same(self, a: Value, b: Value) -> Value:
        return self.body.equal(self._number(a), self._number(b))

    # --- reading ---

    def _read(self) -> None:
        """The group's elements to scratch, zeros behind those that there are."""
        body, v, half = self.body, self.v, self.form.source == "half"
        parts = 1 if self.form.source == "real" else 2
        limit = body.min(v["have"], body.add(body.div(v["n"], 2), 1) if half else v["n"])
        if half:
            body.fill(self.first, body.mul(body.add(v["n"], 1), self.place))
        each = self.lanes // parts
        contiguous = body.equal(v["x_step"], parts * self.itemsize)
        adjacent = body.b.and_(self.together, body.equal(v["x_inner"], parts * self.itemsize))
        with body.either(contiguous) as (rows, others):
            with rows, body.loop(0, limit, each) as j:
                self._accept(j, [self._rows(j, s, parts, limit) for s in range(self.sets)], limit)
            with others, body.either(adjacent) as (near, far):
                with near, body.loop(0, limit) as j:
                    self._accept(j, [self._near(j, s, parts) for s in range(self.sets)], limit)
                with far, body.loop(0, limit) as j:
                    self._accept(j, [self._far(j, s, parts) for s in range(self.sets)], limit)
        if not half:
            missing = body.sub(v["n"], limit)
            with body.when(body.less(0, missing)):
                body.fill(body.at(self.first, body.mul(limit, self.place)), body.mul(missing, self.place))

    def _offset(self, side: str, lane: Index) -> Value:
        return self.body.load_i64(self.offsets[side], lane)

    def _rows(self, j: Value, chosen: int, parts: int, limit: Value) -> list[list[Value]]:
        """Elements from j on, `lanes / parts` of them, of a set of lines whose elements follow each other."""
        body, lanes = self.body, self.lanes
        place = body.mul(j, parts * self.itemsize)
        left = body.mul(body.sub(limit, j), parts)
        lines = [body.at(self.v["x"], self._offset("x", chosen * lanes + i), place) for i in range(lanes)]
        whole = body.less(lanes - 1, left)
        cells = [body.cell(body.zero(self.dtype, lanes)) for _ in range(lanes)]
        with body.either(whole) as (inside, edge):
            with inside:
                for cell, value in zip(cells, transposed(body, [body.load(p, self.dtype, lanes) for p in lines]), strict=True):
                    cell.set(value)
            with edge:
                mask = body.mask(left, lanes)
                values = transposed(body, [body.load_masked(p, mask, self.dtype, lanes) for p in lines])
                for cell, value in zip(cells, values, strict=True):
                    cell.set(value)
        found = [cell.get() for cell in cells]
        return [found[i : i + parts] for i in range(0, lanes, parts)]

    def _near(self, j: Value, chosen: int, parts: int) -> list[list[Value]]:
        """Element j of a set of neighbouring lines."""
        body, lanes = self.body, self.lanes
        base = body.at(self.v["x"], self._offset("x", 0), body.mul(j, self.v["x_step"]), chosen * lanes * parts * self.itemsize)
        left = body.mul(body.sub(self.count, chosen * lanes), parts)
        found = []
        for i in range(parts):
            mask = body.mask(body.sub(left, i * lanes), lanes)
            found.append(body.load_masked(body.at(base, i * lanes * self.itemsize), mask, self.dtype, lanes))
        if parts == 1:
            return [found]
        return [[body.shuffle(found[0], found[1], [2 * i + part for i in range(lanes)]) for part in range(2)]]

    def _far(self, j: Value, chosen: int, parts: int) -> list[list[Value]]:
        body, lanes = self.body, self.lanes
        place = body.mul(j, self.v["x_step"])
        found = [body.zero(self.dtype, lanes)] * parts
        for lane in range(lanes):
            at = body.at(self.v["x"], self._offset("x", chosen * lanes + lane), place)
            for part in range(parts):
                one = body.load(body.at(at, part * self.itemsize), self.dtype, 1)
                found[part] = body.b.insert_element(found[part], one, body.const32(lane))
        return [found]

    def _accept(self, j: Value, sets: Sequence[list[list[Value]]], limit: Value) -> None:
        """Store elements from j on, of one or two sets of lines, as complex numbers."""
        body, lanes = self.body, self.lanes
        for i in range(len(sets[0])):
            at = body.add(j, i)
            values = [found[i] for found in sets]
            if self.form.windowed:
                inside = body.min(at, body.sub(limit, 1))
                factor = body.broadcast(body.at(self.v["window"], body.mul(inside, self.itemsize)), self.dtype, lanes)
                values = [[body.b.fmul(x, factor) for x in value] for value in values]
            if self.form.source == "half":
                with body.when(body.less(at, limit)):
                    self._accept_half(at, values)
                continue
            if self.form.source == "complex":
                re, im = values[0]
            else:
                re, im = values[0][0], values[1][0] if self.sets == 2 else body.zero(self.dtype, lanes)
            self._keep((re, im), at)

    def _accept_half(self, at: Value, values: Sequence[list[Value]]) -> None:
        """Z[k] = X[k] + i Y[k] and Z[n - k] = conj(X[k]) + i conj(Y[k]); X and Y are real where k is its own mirror image."""
        body, v = self.body, self.v
        b = body.b
        middle = b.or_(body.equal(at, 0), body.equal(body.mul(at, 2), v["n"]))
        zero = body.zero(self.dtype, self.lanes)
        (x, xi), (y, yi) = [(re, b.select(middle, zero, im)) for re, im in values]
        self._keep((b.fadd(x, yi), b.fsub(y, xi)), body.sub(v["n"], at))
        self._keep((b.fsub(x, yi), b.fadd(xi, y)), at)

    def _keep(self, value: Pair, at: Value) -> None:
        swapped = value[::-1] if self.form.inverse else value
        self.stages.store(self.body, swapped, self.first, self.body.mul(at, self.place))

    # --- writing ---

    def _write(self) -> None:
        body, v = self.body, self.v
        parts = 2 if self.form.target == "complex" else 1
        each = self.lanes // parts
        contiguous = body.equal(v["y_step"], parts * self.itemsize)
        adjacent = body.b.and_(self.together, body.equal(v["y_inner"], parts * self.itemsize))
        near_first = body.b.and_(adjacent, self._many_lines())
        with body.either(near_first) as (near, others):
            with near, body.loop(0, v["bins"]) as k:
                self._put_near(k, self._element(k), parts)
            with others, body.either(contiguous) as (rows, far):
                with rows, body.loop(0, v["bins"], each) as k:
                    self._put_rows(k, each, parts)
                with far, body.loop(0, v["bins"]) as k:
                    self._put_far(k, self._element(k), parts)

    def _many_lines(self) -> Value:
        """A line alone has no neighbours: it is written as a row."""
        return self.body.less(1, self.v["lines"])

    def _result(self, k: Value) -> Pair:
        value = self.stages.load(self.body, self.result, self.body.mul(k, self.place))
        return value[::-1] if self.form.inverse else value

    def _element(self, k: Value) -> list[list[Value]]:
        """Element k of each set of lines: real, or real and imaginary."""
        body, b, form = self.body, self.body.b, self.form
        re, im = self._result(k)
        if form.target == "real":
            return [[b.fmul(x, self.scale)] for x in ((re, im) if self.sets == 2 else (re,))]
        if self.sets == 2:
            mirror = body.sub(self.v["n"], k)
            x, y = self._result(body.select(body.equal(k, 0), 0, mirror))
            half = b.fmul(self.scale, body.constant(0.5, self.dtype, self.lanes))
            values = [(b.fadd(re, x), b.fsub(im, y)), (b.fadd(im, y), b.fsub(x, re))]
            return [[b.fmul(part, half) for part in value] for value in values]
        value = [b.fmul(re, self.scale), b.fmul(im, self.scale)]
        if form.twisted:
            at = body.mul(body.add(body.mul(k, self.v["inner"]), self.first_inner), self.itemsize)
            planes = [body.at(self.v["twists"], at), body.at(self.v["twists"], at, self.v["pitch"])]
            re, im = (body.load(p, self.dtype, self.lanes) for p in planes)
            value = list(self.stages.product(body, (value[0], value[1]), (re, im)))
        return [value]

    def _put_near(self, k: Value, sets: list[list[Value]], parts: int) -> None:
        body, lanes = self.body, self.lanes
        for chosen, values in enumerate(sets):
            offset = chosen * lanes * parts * self.itemsize
            base = body.at(self.v["y"], self._offset("y", 0), body.mul(k, self.v["y_step"]), offset)
            left = body.mul(body.sub(self.count, chosen * lanes), parts)
            if parts == 2:
                mixed = [i // 2 + lanes * (i % 2) for i in range(2 * lanes)]
                values = [body.shuffle(values[0], values[1], half) for half in (mixed[:lanes], mixed[lanes:])]
            for i, value in enumerate(values):
                mask = body.mask(body.sub(left, i * lanes), lanes)
                body.store_masked(value, body.at(base, i * lanes * self.itemsize), mask, self.dtype)

    def _put_rows(self, k: Value, each: int, parts: int) -> None:
        body, lanes = self.body, self.lanes
        last = body.sub(self.v["bins"], 1)
        elements = [self._element(body.min(body.add(k, i), last) if i else k) for i in range(each)]
        left = body.mul(body.sub(self.v["bins"], k), parts)
        place = body.mul(k, parts * self.itemsize)
        for chosen in range(self.sets):
            rows = transposed(body, [part for element in elements for part in element[chosen]])
            with self._lines_there(chosen) as there, body.either(body.less(lanes - 1, left)) as (whole, edge):
                for branch, mask in ((whole, None), (edge, left)):
                    with branch:
                        bits = None if mask is None else body.mask(mask, lanes)
                        for lane, row in enumerate(rows):
                            with body.when(body.less(lane, there)):
                                at = body.at(self.v["y"], self._offset("y", chosen * lanes + lane), place)
                                if bits is None:
                                    body.store(row, at, self.dtype)
                                else:
                                    body.store_masked(row, at, bits, self.dtype)

    def _put_far(self, k: Value, sets: list[list[Value]], parts: int) -> None:
        body, lanes = self.body, self.lanes
        place = body.mul(k, self.v["y_step"])
        for chosen, values in enumerate(sets):
            with self._lines_there(chosen) as there:
                for lane in range(lanes):
                    with body.when(body.less(lane, there)):
                        at = body.at(self.v["y"], self._offset("y", chosen * lanes + lane), place)
                        for part in range(parts):
                            one = body.b.extract_element(values[part], body.const32(lane))
                            body.store(one, body.at(at, part * self.itemsize), self.dtype)

    @contextmanager
    def _lines_there(self, chosen: int) -> Any:
        """How many lines of a set there are, behind a test whether there are any."""
        there = self.body.sub(self.count, chosen * self.lanes)
        with self.body.when(self.body.less(0, there)):
            yield there
