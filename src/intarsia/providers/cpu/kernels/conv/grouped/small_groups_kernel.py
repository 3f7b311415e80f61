"""Convolution in small groups of channels, channels-last: a vector holds neighbouring channels of some groups.

Each lane multiplies what it has of the input, a float32 number or a word of two bfloat16 (VDPBF16PS), by the weights of filters
of its group, so that nothing is multiplied by zero. A group of q units (channels or words) needs q combinations of unit and
filter in every lane. A combination is a distance i ^ j: either the input is moved by it, which costs a shuffle for each pixel
that is seen, or the sums are, once at the end. So half of the distances, where registers suffice, have sums of their own:

    S[j][lane i] = sum over r of x[i ^ r] w[filter i ^ j, unit i ^ r],    y[filter i] = sum over j of S[j][lane i ^ j]

with j below `sums` and r in its multiples. Where a group fills a vector and loads pass beside multiply-adds (`_broadcasts`), a
unit is loaded into all lanes instead. A vector of 16 sums sees 8 words, loaded twice over: lanes of the upper half have
the second half of a group's filters, and complete sums are put in order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from intarsia.codegen.builder.kernel_body import Value
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros
from intarsia.providers.cpu.kernels.conv.grouped.depthwise_kernel import pixels_at_once
from intarsia.providers.cpu.kernels.conv.grouped.sliding_window import Window
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import WindowSpec
from intarsia.providers.cpu.kernels.matmul.vnni_kernel import pair_products

MOST_IN_GROUP = 8  # of wider groups the matrix product of their windows wastes nothing
_FEW_CHAINS = (7, 8)  # pixels at once with 16 registers
_CHAINS = 8  # of multiply-adds that depend on each other, which keep two units of four cycles' latency busy
_LINE = 64  # bytes of a line of the cache
_UNROLLED = 64  # channels of a group times the window's pixels in a line, at most
_REGISTERS_FOR_2 = 64  # bytes of vectors of a machine with 32 registers


def takes(weights: tuple[int, ...], group: int, lanes: int) -> bool:
    """Whether a convolution by such weights is one of this kernel's: as many filters as channels, in small groups."""
    each = weights[1]
    return (
        weights[0] == group * each and each in (2, 4, MOST_IN_GROUP) and lanes % each == 0 and each * weights[-1] <= _UNROLLED
    )


def scheduled(spec: WindowSpec, width: int | None, target: Target) -> WindowSpec:
    """The spec for lines of output of `width` pixels (None: not known)."""
    if width is None:
        return spec
    if not _has_spare_loads(target):
        return replace(spec, pixels=pixels_at_once(width, target))
    return replace(spec, pixels=min(_FEW_CHAINS, key=lambda p: -(-width // p) * max(p, _CHAINS)))


def _has_spare_loads(target: Target) -> bool:
    """Whether two loads pass beside two multiply-adds in each cycle, of vectors that 16 registers hold few of."""
    return target.is_avx2


@functools.lru_cache(maxsize=256)
def kernel_text(spec: WindowSpec, target: Target) -> KernelText:
    """The kernel of a spec with `each`, whose `x_dtype` is BFLOAT16 or none; its arguments are `depthwise.depthwise_args`."""
    return GroupWindow(spec, target).text()


class _Lanes:
    """Which units and filters of its group a lane has."""

    def __init__(self, each: int, lanes: int, numbers: int, target: Target) -> None:
        self.each, self.numbers = each, numbers
        self.seen, self.units = lanes // numbers, each // numbers  # of a vector, of a group
        self.sums = min(self.units, 2 if target.vector_bytes >= _REGISTERS_FOR_2 else 1)
        lane = np.arange(lanes)
        self.group, self.unit = lane % self.seen // self.units, lane % self.units
        self.first = lane // self.seen * self.units  # of the filters that the lane has
        self.moves = range(0, self.units, self.sums)
        self.broadcasts = _has_spare_loads(target) and numbers == 1 and each == lanes

    def order(self) -> list[int]:
        """The lane in which each channel's sum is."""
        return [int(i) for i in np.argsort(self.group * self.each + self.first + self.unit)]


def pack_weights(weights: np.ndarray, target: Target, in_pairs: Callable[[np.ndarray], np.ndarray] | None = None) -> np.ndarray:
    """ONNX weights [M, channels of a group, *kernel] as [vectors, positions, moves, sums, lanes]; `in_pairs` rounds them to
    bfloat16, two of which are a lane's."""
    filters, each, count = *weights.shape[:2], math.prod(weights.shape[2:])
    lanes, numbers = target.vector_bytes // weights.dtype.itemsize, 1 if in_pairs is None else 2
    found = _Lanes(each, lanes, numbers, target)
    vectors = -(-filters // lanes)
    flat = np.zeros((vectors * lanes, each, count), weights.dtype)
    flat[:filters] = weights.reshape(filters, each, count)
    flat = flat.reshape(vectors, lanes, each, count)
    moves, sums = np.array(found.moves)[:, None, None, None], np.arange(found.sums)[:, None, None]
    channel = (found.group * each + found.first)[:, None] + (found.unit[:, None] ^ sums)
    own = 0 if found.broadcasts else found.unit[:, None]
    within = (own ^ moves) * numbers + np.arange(numbers)
    picked = flat[:, channel, within]  # vectors, moves, sums, lanes, numbers, count
    if in_pairs is not None:
        picked = in_pairs(picked.reshape(-1, lanes * numbers)).reshape(picked.shape)
    picked = np.moveaxis(picked, -1, 1)
    out = aligned_zeros(picked.shape, picked.dtype)
    out[:] = picked
    return out


class GroupWindow(Window):
    """Writes one kernel."""

    def __init__(self, spec: WindowSpec, target: Target) -> None:
        super().__init__(spec, target)
        self.in_pairs = spec.x_dtype is DType.BFLOAT16
        self.of = _Lanes(spec.each, self.lanes, 2 if self.in_pairs else 1, target)

    def _outside(self) -> Value:
        return self._initial()

    def _sums(self) -> list[Value]:
        return [self._initial()] * (self.pixels * self.of.sums)

    def _load(self, pointer: Value, mask: Value | None) -> Value:
        if not self.in_pairs:
            return super()._load(pointer, mask)
        body, seen = self.body, self.of.seen
        if mask is None:
            words = body.load(pointer, DType.INT32, seen)
        else:
            present = body.div(body.rem(self.v["channels"], self.lanes), 2)
            words = body.load_masked(pointer, body.mask(present, seen), DType.INT32, seen)
        return body.shuffle(words, words, [lane % seen for lane in range(self.lanes)])

    def _multiplied(self, sums: Value, x: Value, weights: Value) -> Value:
        if self.in_pairs:
            return pair_products(self.body, sums, weights, x)
        return self.body.fma(x, weights, sums, self.spec.dtype, self.lanes)

    def _pixel_by_pixel(self, first: Value, last: Value) -> None:
        body, v = self.body, self.v
        with body.loop(0, v["out_width"], self.pixels) as column:
            start = body.sub(body.mul(column, self.strides[2]), v["pad_w"])
            self._fetch_next(first, last, start)
            with body.loop(first, last) as vector:
                self._pixels_either(body.mul(vector, self.lanes), column, start)

    def _fetch_next(self, first: Value, last: Value, start: Value) -> None:
        """Fetch what the next line of output sees of these pixels and vectors, and this one does not."""
        body, v, nbytes = self.body, self.v, self.lanes * self.x_size
        line = body.add(self.y[0], (self.kernel[1] - 1) * self.dilations[1] + 1)
        origin = body.at(self.source, body.mul(self.z[0], v["x_plane"]), body.mul(line, v["x_line"]))
        for down in range(self.strides[1]):
            begin = body.at(origin, body.mul(start, v["x_pixel"]), body.mul(v["x_line"], down))
            with body.loop(0, self.pixels * self.strides[2]) as pixel:
                place = body.at(begin, body.mul(pixel, v["x_pixel"]))
                with body.loop(body.mul(first, nbytes), body.mul(last, nbytes), _LINE) as at:
                    body.prefetch(body.at(place, at), 2)

    def _accumulate(
        self, state: list[Value], row: Value, start: Value, position: Value, offset: Value, mask: Value | None, guarded: bool
    ) -> None:
        if not self.of.broadcasts:
            super()._accumulate(state, row, start, position, offset, mask, guarded)
            return
        body, dtype, nbytes, count = self.body, self.spec.dtype, self.lanes * self.size, len(state)
        uses, taps = self._uses(), range(self.kernel[2])
        origins = self._origins(row, start, list(uses), guarded)
        moving = [*state, self._line_of_weights(position, offset), *origins.values()]
        with body.carry(0, self.of.units, 1, moving):  # a loop: LLVM would load early, and spill sums
            line, bases = moving[count], dict(zip(origins, moving[count + 1 :], strict=True))
            weights = [body.load(body.at(line, x * self.of.units * nbytes), dtype, self.lanes) for x in taps]
            for at, seen_by in uses.items():
                first = max(a for a in bases if a <= at)
                place = body.at(bases[first], body.mul(self.v["x_pixel"], at - first) if at > first else 0)
                x = body.broadcast(place, dtype, self.lanes)
                for p, tap in seen_by:
                    moving[p] = self._multiplied(moving[p], x, weights[tap])
            moving[count:] = [body.at(line, nbytes), *(body.at(base, self.size) for base in bases.values())]
        state[:] = moving[:count]

    def _origins(self, row: Value, start: Value, seen: list[int], guarded: bool) -> dict[int, Value]:
        """Where pixels are from which the others are one or two pixels away, as x86's addresses can say; what may lie outside
        is among them."""
        found: dict[int, Value] = {}
        last = -3
        for at in seen:
            loose = guarded or at < self.loose or at > self.reach - self.loose
            if loose or at - last not in (1, 2):
                found[at] = self._pixel_place(row, start, at, guarded)
                last = -3 if loose else at
        return found

    def _uses(self) -> dict[int, list[tuple[int, int]]]:
        """Of each pixel of a line that is seen, in order: the outputs that see it, and as which of the window's."""
        uses: dict[int, list[tuple[int, int]]] = {}
        for p in range(self.pixels):
            for x in range(self.kernel[2]):
                uses.setdefault(p * self.strides[2] + x * self.dilations[2], []).append((p, x))
        return dict(sorted(uses.items()))

    def _line_of_weights(self, position: Value, offset: Value) -> Value:
        """Where the weights of a line of the window are, [taps, units, lanes]."""
        body, units = self.body, self.of.units
        vector = body.mul(offset, math.prod(self.kernel) * units)
        return body.at(self.v["weights"], vector, body.mul(position, units * self.lanes * self.size))

    def _accumulate_line(self, state: list[Value], pixel: Callable[[int], Value], position: Value, offset: Value) -> None:
        body, of, taps = self.body, self.of, range(self.kernel[2])
        line, uses = self._line_of_weights(position, offset), self._uses()
        dtype = DType.INT32 if self.in_pairs else self.spec.dtype
        for move in of.moves:
            weights = {
                (x, j): body.load(body.at(line, self.lanes * self.size * (x * of.units + move + j)), dtype, self.lanes)
                for x in taps
                for j in range(of.sums)
            }
            for at, seen_by in uses.items():  # few values are alive at once: a moved pixel serves all outputs that see it
                seen = pixel(at)
                if move:
                    seen = body.shuffle(seen, seen, [lane ^ move for lane in range(self.lanes)])
                for p, x in seen_by:
                    for j in range(of.sums):
                        i = p * of.sums + j
                        state[i] = self._multiplied(state[i], seen, weights[x, j])

    def _write(
        self, state: list[Value], channel: Value, column: Value, start: Value, mask: Value | None, guarded: bool
    ) -> None:
        each = self.of.sums
        finished = [self._in_order(state[p * each : (p + 1) * each]) for p in range(self.pixels)]
        super()._write(finished, channel, column, start, mask, guarded)

    def _in_order(self, sums: list[Value]) -> Value:
        """The sums of every channel, over all units of its group."""
        body, order = self.body, self.of.order()
        total: Value = None
        for j, value in enumerate(sums):
            places = [lane ^ j for lane in order]
            moved = value if places == list(range(self.lanes)) else body.shuffle(value, value, places)
            total = moved if total is None else body.b.fadd(total, moved)
        return total
