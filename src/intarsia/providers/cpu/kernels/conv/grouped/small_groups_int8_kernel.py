"""Convolution of bytes in small groups of channels, channels-last: no multiplication by zero, no shuffle in the window.

A vector of a pixel's bytes (16 channels where vectors have 64 bytes) is some words of four channels, of which each group has
one or two. All of them are loaded at once and repeated, a word in every fourth lane or so; each lane multiplies its word by
the weights of one filter of the word's group, so that VPDPBUSD wastes nothing. Only complete sums are put in order: the
lanes of a filter (one for each word of its group) are added, and filters of a group become neighbours.

Groups of two channels are taken two together, which multiplies zeros half of the time. Sums, signs and the border are those of
`depthwise_int8_kernel`.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from intarsia.codegen.builder.kernel_body import Value
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros
from intarsia.providers.cpu.kernels.conv.grouped.depthwise_int8_kernel import ByteWindow, multiplies_fours
from intarsia.providers.cpu.kernels.conv.grouped.depthwise_kernel import pixels_at_once
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import WindowSpec
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import BYTES, GROUP, SUMS
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import FLIP

_GROUPS = (2, 4, 8)  # channels of a group; of wider ones a product's vectors are full
_LONGEST = 9  # pixels of a window's line: the window is written out


def takes(weights: tuple[int, ...], group: int, dtype: DType, target: Target) -> bool:
    """Whether a convolution of `dtype` by such weights is one of this kernel's: as many filters as channels."""
    filters, each, *kernel = weights
    if filters != group * each or each not in _GROUPS or dtype not in BYTES or not multiplies_fours(target):
        return False
    return filters % _together(each) == 0 and len(kernel) in (1, 2) and all(n <= _LONGEST for n in kernel)


def _together(each: int) -> int:
    """Channels of the groups that are computed as one."""
    return max(each, GROUP)


def scheduled(spec: WindowSpec, each: int, width: int | None, target: Target) -> WindowSpec:
    """The spec for groups of `each` channels, whose lines of output have `width` pixels (None: not known)."""
    pixels = spec.pixels if width is None else pixels_at_once(width, target)
    return replace(spec, each=_together(each), pixels=pixels)


@functools.lru_cache(maxsize=256)
def kernel_text(spec: WindowSpec, target: Target) -> KernelText:
    """The kernel of a spec whose dtype is INT32 and whose x_dtype is UINT8 or INT8; its arguments are
    `depthwise.depthwise_args`, the weights `pack_groups`' result."""
    return _GroupWindow(spec, target).text()


def _filters(each: int, lanes: int) -> tuple[np.ndarray, np.ndarray]:
    """For every vector of sums and lane of it: which of the vector's channels it is a sum for, and of which of its words."""
    words = lanes // GROUP
    of_group = each // GROUP
    word = np.arange(lanes) % words
    repeat = np.arange(lanes) // words + np.arange(of_group)[:, None] * GROUP
    return word // of_group * each + repeat, np.broadcast_to(word, repeat.shape)


def pack_groups(weights: np.ndarray, target: Target) -> np.ndarray:
    """int8 weights [M, channels of a group, *kernel] as [vectors, positions, sums, lanes, 4], zero where there are none."""
    given, (filters, each) = weights.reshape(*weights.shape[:2], -1), weights.shape[:2]
    together, lanes, count = _together(each), target.vector_bytes // 4, given.shape[2]
    vectors = -(-filters // lanes)
    dense = np.zeros((vectors * lanes, together, count), np.int8)
    first = np.arange(filters) % together // each * each  # a filter's first channel among those computed together
    dense[np.arange(filters)[:, None], first[:, None] + np.arange(each)] = given
    channel, word = _filters(together, lanes)
    within = (word % (together // GROUP) * GROUP)[..., None] + np.arange(GROUP)
    picked = dense.reshape(vectors, lanes, together, count)[:, channel[..., None], within]  # vectors, sums, lanes, 4, count
    out = aligned_zeros((vectors, count, *picked.shape[1:4]), np.dtype(np.int8))
    out[:] = np.moveaxis(picked, -1, 1)
    return out


class _GroupWindow(ByteWindow):
    """Writes one kernel."""

    def __init__(self, spec: WindowSpec, target: Target) -> None:
        super().__init__(spec, target)
        self.parts = spec.each // GROUP  # vectors of sums for a vector of channels
        self.words = self.lanes // GROUP

    def _pixels(self, channel: Value, column: Value, start: Value, mask: Value | None, guarded: bool) -> None:
        body, b, v = self.body, self.body.b, self.v
        state = [[self._initial()] * self.parts for _ in range(self.pixels)]
        taps, stride, dilation = self.kernel[2], self.strides[2], self.dilations[2]
        step = self.lanes * GROUP
        weights = body.at(v["weights"], body.mul(channel, GROUP * self.parts * taps * self.kernel[1]))
        uses: dict[int, list[tuple[int, int]]] = {}
        for p in range(self.pixels):
            for x in range(taps):
                uses.setdefault(p * stride + x * dilation, []).append((p, x))
        for line, ((inside, origin), pace) in enumerate(zip(self.lines, self.paces, strict=True)):
            row = body.at(b.select(inside, body.at(origin, channel), self.neutral), body.mul(start, pace))
            filters = [
                [
                    self.dot.signed(
                        body.load(body.at(weights, ((line * taps + x) * self.parts + part) * step), SUMS, self.lanes)
                    )
                    for part in range(self.parts)
                ]
                for x in range(taps)
            ]
            for at in sorted(uses):
                x = body.add(start, at)
                within = None
                if guarded or at < self.loose or at > self.reach - self.loose:
                    within = b.icmp_unsigned("<", x, v["width"])
                seen = self.dot.unsigned(self._repeated(self._place_of(row, pace, at, within), mask))
                for p, tap in uses[at]:
                    state[p] = [self.dot.add(s, seen, f) for s, f in zip(state[p], filters[tap], strict=True)]
        self._write([self._in_order(sums) for sums in state], channel, column, start, mask, guarded)

    def _repeated(self, pointer: Value, mask: Value | None) -> Value:
        """A pixel's words, repeated until a vector is full."""
        body, lanes = self.body, self.lanes
        stored = body.load(pointer, DType.INT8, lanes) if mask is None else body.load_masked(pointer, mask, DType.INT8, lanes)
        words = body.b.bitcast(stored, body.vector_type(SUMS, self.words))
        seen = body.shuffle(words, words, [lane % self.words for lane in range(lanes)])
        if self.spec.x_dtype is DType.INT8:
            seen = body.b.xor(seen, body.constant(FLIP, SUMS, lanes))
        return seen

    def _in_order(self, sums: list[Value]) -> Value:
        """The sums of every channel, over all words of its group."""
        body, lanes = self.body, self.lanes
        channel, word = (array.reshape(-1) for array in _filters(self.spec.each, lanes))
        places: list[list[int]] = [[] for _ in range(self.parts)]
        for output in range(lanes):
            for part, place in enumerate(sorted(np.flatnonzero(channel == output), key=lambda i: word[i])):
                places[part].append(int(place))
        terms = [body.shuffle(sums[0], sums[-1], order) for order in places]
        total = terms[0]
        for term in terms[1:]:
            total = body.b.add(total, term)
        return total
