"""Depthwise convolution from a line buffer, a copy of the lines that its window sees, a cache line of channels at a time.

In an image of many channels neighbouring pixels are so distant that the lines a window sees fall into few sets of the
first-level cache, and are gone before the next line of output reads them. Here a thread takes one cache line of channels
through some lines of the output: each line of the input is copied once, with its border, into a ring of as many lines as the
window is high, in which pixels are neighbours. So all but the copy has fixed distances, and needs no test for borders at the
sides.
"""

from __future__ import annotations

from contextlib import ExitStack

from intarsia.codegen.builder.kernel_body import Cell, Index, Value
from intarsia.codegen.llvm.target import Target
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.conv.grouped.sliding_window import Window
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import LINE, WindowSpec
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape

_RING_NBYTES = 28 << 10  # so that output and weights have room in a first-level cache beside it
_WIDE_RING_NBYTES = 160 << 10  # of windows that are high: most of the time goes into products
_HIGH = 9  # lines of a window from which on a ring may be in the second-level cache
_UNITS = 24  # of work, at least, where lines are enough
_CHUNK_NBYTES = 1 << 19  # of the input that the channels of some lines are read from, one cache line after the other
_COPIED = 4  # pixels at once


def _segment(spec: WindowSpec) -> int:
    """Output pixels of a line that a ring has room for."""
    more = 3 - len(spec.kernel)
    kernel, strides, dilations = ((1,) * more + t for t in (spec.kernel, spec.strides, spec.dilations))
    height = (kernel[1] - 1) * dilations[1] + 1
    room = _WIDE_RING_NBYTES if kernel[1] > _HIGH else _RING_NBYTES
    pixels = room // (LINE * kernel[0] * height) - (kernel[2] - 1) * dilations[2] - 1
    return (pixels // strides[2] + 1) // spec.pixels * spec.pixels


def can_buffer_lines(spec: WindowSpec) -> bool:
    """Whether a ring has room for enough pixels."""
    plain = spec.operation == "multiply" and spec.each == spec.multiplier == 1 and not spec.filters
    return plain and len(spec.kernel) > 1 and _segment(spec) >= 2 * spec.pixels


def units(spec: WindowSpec, shape: ConvShape) -> tuple[int, int]:
    """Cache lines of channels, and lines of the output of a unit of work: so many that a few threads have enough to share, and
    few enough that their input stays in the second-level cache while one cache line of channels after the other is read."""
    s = shape.as_3d()
    blocks = -(-s.channels * itemsize(spec.dtype) // LINE)
    lines, width = s.output[1], s.spatial[2] * s.strides[1] * s.channels * itemsize(spec.x_dtype or spec.dtype)
    overlap = (s.kernel[1] - 1) * s.dilations[1] // s.strides[1]
    pieces = max(_UNITS // max(1, blocks * s.batch * s.output[0]), lines * width // _CHUNK_NBYTES, 1)
    each = max(-(-lines // pieces), 2 * overlap, 1)
    return blocks, -(-lines // -(-lines // each)) if lines else 1


class LineBuffer(Window):
    """Writes one kernel."""

    def __init__(self, spec: WindowSpec, target: Target) -> None:
        super().__init__(spec, target)
        self.segment = _segment(spec)
        self.height = (self.kernel[1] - 1) * self.dilations[1] + 1
        self.line_nbytes = ((self.segment - 1) * self.strides[2] + self.halo + 1) * LINE
        self.ring = self.body.alloca(self.line_nbytes * self.height * self.kernel[0])
        self.vectors = LINE // (self.lanes * self.size)

    def _rows(self) -> Value:
        body, v = self.body, self.v
        self.chunks = body.div(body.add(v["out_height"], body.sub(v["lines"], 1)), v["lines"])
        return body.mul(body.mul(v["batch"], v["out_depth"]), self.chunks)

    def _unit(self, unit: Value) -> None:
        """One cache line of channels of some lines of output."""
        body, v = self.body, self.v
        chunk, block = body.div(unit, v["blocks"]), body.rem(unit, v["blocks"])
        plane, first = body.div(chunk, self.chunks), body.mul(body.rem(chunk, self.chunks), v["lines"])
        last = body.min(body.add(first, v["lines"]), v["out_height"])
        channel = body.mul(block, LINE // self.size)
        segments = body.div(body.add(v["out_width"], self.segment - 1), self.segment)
        even = body.div(body.add(v["out_width"], body.sub(segments, 1)), segments)
        even = body.mul(body.div(body.add(even, self.pixels - 1), self.pixels), self.pixels)
        whole = body.less(body.add(channel, LINE // self.size - 1), v["channels"])
        with body.loop(0, v["out_width"], even) as begin:
            width = body.min(even, body.sub(v["out_width"], begin))
            held = body.cell(0, "held")
            with body.loop(first, last) as line:
                self._place(body.add(body.mul(plane, v["out_height"]), line))
                with body.either(whole) as (complete, partial):
                    for masked, branch in ((False, complete), (True, partial)):
                        with branch:
                            masks = [self._mask(channel, i) if masked else None for i in range(self.vectors)]
                            self._keep(held, channel, begin, width, masks)
                            self._output(channel, begin, width, masks)
                held.set(body.add(self.y[0], self.height))

    def _mask(self, channel: Value, vector: int) -> Value:
        body = self.body
        return body.mask(body.sub(self.v["channels"], body.add(channel, vector * self.lanes)), self.lanes)

    # --- the ring --------------------------------------------------------------------------------------------------

    def _slot(self, plane: Index, line: Value) -> Value:
        """Where a line of the input is, or will be, in the ring; `plane` counts those of the window."""
        body = self.body
        place = body.mul(body.rem(line, self.height), self.line_nbytes)
        return body.at(self.ring, place, body.mul(plane, self.height * self.line_nbytes))

    def _keep(self, held: Cell, channel: Value, begin: Value, width: Value, masks: list[Value | None]) -> None:
        """Copy the lines that this line of output sees, and the one before it did not."""
        body, v = self.body, self.v
        z0, z_low, z_high, _ = self.z
        low = body.max(body.max(held.get(), self.y[0]), 0)
        high = body.min(body.add(self.y[0], self.height), v["height"])
        # Of outputs that do not exist sums are made, too: not of what was in memory before, which may be slow to multiply.
        outputs = body.mul(body.div(body.add(width, self.pixels - 1), self.pixels), self.pixels)
        pixels = body.add(body.mul(body.sub(outputs, 1), self.strides[2]), self.halo + 1)
        start = body.sub(body.mul(begin, self.strides[2]), v["pad_w"])
        left = body.min(body.max(body.sub(0, start), 0), pixels)
        right = body.max(left, body.min(body.sub(v["width"], start), pixels))
        with ExitStack() as stack:
            z: Index = 0
            if self.kernel[0] > 1:
                z = stack.enter_context(body.loop(z_low, z_high))
            line = stack.enter_context(body.loop(low, high))
            plane = body.add(z0, body.mul(z, self.dilations[0]))
            source = body.at(self.source, body.mul(channel, self.x_size), body.mul(plane, v["x_plane"]))
            source = body.at(source, body.mul(line, v["x_line"]), body.mul(start, v["x_pixel"]))
            self._copy(source, self._slot(z, line), left, right, pixels, masks)

    def _copy(self, source: Value, to: Value, left: Value, right: Value, pixels: Value, masks: list[Value | None]) -> None:
        """Pixels left to right - 1 of a line; those beside them are zeros."""
        body, v = self.body, self.v
        zero = body.zero(self.spec.dtype, self.lanes)
        for first, last in ((body.i(0), left), (right, pixels)):
            with body.loop(first, last) as i:
                for j in range(self.vectors):
                    body.store(zero, body.at(to, body.mul(i, LINE), j * self.lanes * self.size), self.spec.dtype)

        def one(i: Value, more: int) -> None:
            place = body.at(source, body.mul(body.add(i, more), v["x_pixel"]))
            for j, mask in enumerate(masks):
                value = self._load(body.at(place, j * self.lanes * self.x_size), mask)
                body.store(value, body.at(to, body.mul(i, LINE), more * LINE + j * self.lanes * self.size), self.spec.dtype)

        many = body.add(left, body.mul(body.div(body.sub(right, left), _COPIED), _COPIED))
        with body.loop(left, many, _COPIED) as i:
            for more in range(_COPIED):
                one(i, more)
        with body.loop(many, right) as i:
            one(i, 0)

    # --- the products ----------------------------------------------------------------------------------------------

    def _output(self, channel: Value, begin: Value, width: Value, masks: list[Value | None]) -> None:
        """A segment of a line of output."""
        body, v = self.body, self.v
        whole = body.mul(body.div(width, self.pixels), self.pixels)
        for j, mask in enumerate(masks):
            vector = body.add(channel, j * self.lanes)
            offset = j * self.lanes * self.size

            def some(at: Value, guarded: bool, vector: Value = vector, offset: int = offset, mask: Value | None = mask) -> None:
                state = self._sums()
                self._sum(state, at, vector, offset)
                column = body.add(begin, at)
                start = body.sub(body.mul(column, self.strides[2]), v["pad_w"])
                self._write(state, vector, column, start, mask, guarded)

            with body.loop(0, whole, self.pixels) as at:
                some(at, False)
            with body.when(body.less(whole, width)):
                some(whole, True)

    def _sum(self, state: list[Value], at: Value, vector: Value, offset: int) -> None:
        """The windows of a segment's outputs from `at` on."""
        body = self.body
        with self._lines(state) as (z, line_of_input, position):
            row = body.at(self._slot(z, line_of_input), body.mul(at, self.strides[2] * LINE), offset)
            line = self._place_of_weights(body.mul(vector, self.size), position)
            width, dtype, taps = self.lanes * self.size, self.spec.dtype, range(self.kernel[2])
            weights = [body.load(body.at(line, x * width), dtype, self.lanes) for x in taps]
            loaded: dict[int, Value] = {}
            for x in taps:
                for p in range(self.pixels):
                    i = p * self.strides[2] + x * self.dilations[2]
                    if i not in loaded:
                        loaded[i] = body.load(body.at(row, i * LINE), dtype, self.lanes)
                    state[p] = body.fma(loaded[i], weights[x], state[p], dtype, self.lanes)
