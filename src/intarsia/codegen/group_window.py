"""Convolution in small groups of channels, channels-last: a vector holds neighbouring channels of some groups.

Each lane multiplies what it has of the input, a float32 number or a word of two bfloat16 (VDPBF16PS), by the weights of filters
of its group, so that nothing is multiplied by zero. A group of q units (channels or words) needs q combinations of unit and
filter in every lane. A combination is a distance i ^ j: either the input is moved by it, which costs a shuffle for each pixel
that is seen, or the sums are, once at the end. So half of the distances, where registers suffice, have sums of their own:

    S[j][lane i] = sum over r of x[i ^ r] w[filter i ^ j, unit i ^ r],    y[filter i] = sum over j of S[j][lane i ^ j]

with j below `sums` and r in its multiples. A vector of 16 sums sees 8 words, loaded twice over: lanes of the upper half have
the second half of a group's filters, and what is finished is put in order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from intarsia.codegen.body import Value
from intarsia.codegen.depthwise import pixels_at_once
from intarsia.codegen.engine import KernelText
from intarsia.codegen.pack import aligned_zeros
from intarsia.codegen.target import Target
from intarsia.codegen.window import Window, WindowSpec
from intarsia.codegen.word_gemm import pair_products
from intarsia.graph.dtypes import DType

MOST_IN_GROUP = 8  # of wider groups the matrix product of their windows wastes nothing
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
    return spec if width is None else replace(spec, pixels=pixels_at_once(width, target))


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
    within = (found.unit[:, None] ^ moves) * numbers + np.arange(numbers)
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

    def _accumulate_line(self, state: list[Value], pixel: Callable[[int], Value], position: Value, offset: Value) -> None:
        body, of = self.body, self.of
        taps, stride, dilation = range(self.kernel[2]), self.strides[2], self.dilations[2]
        vector = body.mul(offset, math.prod(self.kernel) * of.units)
        line = body.at(self.v["weights"], vector, body.mul(position, of.units * self.lanes * self.size))
        dtype = DType.INT32 if self.in_pairs else self.spec.dtype
        uses: dict[int, list[tuple[int, int]]] = {}
        for p in range(self.pixels):
            for x in taps:
                uses.setdefault(p * stride + x * dilation, []).append((p, x))
        for move in of.moves:
            weights = {
                (x, j): body.load(body.at(line, self.lanes * self.size * (x * of.units + move + j)), dtype, self.lanes)
                for x in taps
                for j in range(of.sums)
            }
            for at in sorted(uses):  # few values are alive at once: a moved pixel serves all outputs that see it
                seen = pixel(at)
                if move:
                    seen = body.shuffle(seen, seen, [lane ^ move for lane in range(self.lanes)])
                for p, x in uses[at]:
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
