"""Depthwise convolution of bytes, channels-last: four lines of a window in one instruction.

At every column of the image the bytes of up to four lines, which a window sees one above the other, are put side by side
channel by channel; so VPDPBUSD multiplies a column of a window of 16 channels at once, and what was put together serves all
windows that see the column. Sums are int32 and exact. A signed input is read as x + 128, as in `microkernel_int8`; lines and
columns outside the image read the zero point, so that what is to be subtracted is the same for all pixels.
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
from intarsia.providers.cpu.kernels.conv.grouped.depthwise_kernel import pixels_at_once
from intarsia.providers.cpu.kernels.conv.grouped.sliding_window import Window
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import WindowSpec
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import BYTES, GROUP, SUMS
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import FLIP, ByteDot

_LIGHT = 24  # primitives of an epilogue that is still unrolled for all pixels


def takes(spec: WindowSpec, target: Target) -> bool:
    """Whether the kernel is one for such a window on such a machine: where bytes are not multiplied by fours, float32 is as
    fast, and a window of one line leaves three of four places empty."""
    if spec.operation != "multiply" or spec.x_dtype not in BYTES or spec.each != 1 or len(spec.kernel) != 2:
        return False
    return spec.kernel[0] > 1 and multiplies_fours(target)


def multiplies_fours(target: Target) -> bool:
    """Whether vectors of the target have VPDPBUSD."""
    lanes = target.vector_bytes // 4
    return ByteDot.kind_of(target, lanes) == "vpdpbusd"


def scheduled(spec: WindowSpec, width: int | None, target: Target) -> WindowSpec:
    """How many neighbouring pixels are computed at once where a line of output has `width` of them (None: not known)."""
    return spec if width is None else replace(spec, pixels=pixels_at_once(width, target))


@functools.lru_cache(maxsize=256)
def kernel_text(spec: WindowSpec, target: Target) -> KernelText:
    """The kernel of a spec whose dtype is INT32 and whose x_dtype is UINT8 or INT8; its arguments are
    `depthwise.depthwise_args`, the weights `pack_lines`' result."""
    return ByteWindow(spec, target).text()


def pack_lines(weights: np.ndarray, target: Target) -> np.ndarray:
    """int8 weights [C, 1, height, width] as [vectors, fours of lines, width, lanes, 4], zero where there are none."""
    channels, _, height, width = weights.shape
    lanes = target.vector_bytes // 4
    vectors, fours = -(-channels // lanes), -(-height // GROUP)
    filled = np.zeros((vectors * lanes, fours * GROUP, width), np.int8)
    filled[:channels, :height] = weights[:, 0]
    out = aligned_zeros((vectors, fours, width, lanes, GROUP), np.dtype(np.int8))
    out[:] = filled.reshape(vectors, lanes, fours, GROUP, width).transpose(0, 2, 4, 1, 3)
    return out


class ByteWindow(Window):
    """Writes one kernel."""

    def __init__(self, spec: WindowSpec, target: Target) -> None:
        super().__init__(spec, target)
        self.dot = ByteDot(self.body, target, self.lanes)
        self.fours = -(-self.kernel[1] // GROUP)
        self.light = spec.epilogue is None or self.primitives <= _LIGHT

    def _initial(self) -> Value:
        return self.body.zero(SUMS, self.lanes)

    def _place(self, row: Value) -> None:
        super()._place(row)
        body, v = self.body, self.v
        self.lines = []  # whether each line of the window is inside, and where it begins
        for i in range(self.kernel[1]):
            line = body.add(self.y[0], i * self.dilations[1])
            inside = body.b.icmp_unsigned("<", line, v["height"])
            self.lines.append((inside, body.at(self.source, body.mul(line, v["x_line"]))))
        self.paces = [body.select(inside, v["x_pixel"], 0) for inside, _ in self.lines]

    def _pixels(self, channel: Value, column: Value, start: Value, mask: Value | None, guarded: bool) -> None:
        body, b, v = self.body, self.body.b, self.v
        state = self._sums()
        origins = [b.select(inside, body.at(line, channel), self.neutral) for inside, line in self.lines]
        origins = [body.at(o, body.mul(start, pace)) for o, pace in zip(origins, self.paces, strict=True)]
        taps, stride, dilation = self.kernel[2], self.strides[2], self.dilations[2]
        weights = body.at(v["weights"], body.mul(channel, GROUP * self.fours * taps))
        step = self.lanes * GROUP
        uses: dict[int, list[tuple[int, int]]] = {}
        for p in range(self.pixels):
            for x in range(taps):
                uses.setdefault(p * stride + x * dilation, []).append((p, x))
        for four in range(self.fours):
            lines = range(four * GROUP, min(self.kernel[1], (four + 1) * GROUP))
            filters = [body.load(body.at(weights, (four * taps + x) * step), SUMS, self.lanes) for x in range(taps)]
            for at in sorted(uses):
                x = body.add(start, at)
                inside = None
                if guarded or at < self.loose or at > self.reach - self.loose:
                    inside = b.icmp_unsigned("<", x, v["width"])
                seen = self._column([self._place_of(origins[i], self.paces[i], at, inside) for i in lines], mask)
                for p, tap in uses[at]:
                    state[p] = self.dot.add(state[p], self.dot.unsigned(seen), self.dot.signed(filters[tap]))
        self._write(state, channel, column, start, mask, guarded)

    def _place_of(self, origin: Value, pace: Value, at: int, inside: Value | None) -> Value:
        pointer = self.body.at(origin, self.body.mul(pace, at)) if at else origin
        return pointer if inside is None else self.body.b.select(inside, pointer, self.neutral)

    def _column(self, pointers: list[Value], mask: Value | None) -> Value:
        """Channel by channel the bytes at up to four places, as words; those of the last place where there are fewer."""
        body, lanes = self.body, self.lanes
        rows = [
            body.load(p, DType.INT8, lanes) if mask is None else body.load_masked(p, mask, DType.INT8, lanes) for p in pointers
        ]
        rows += [rows[-1]] * (GROUP - len(rows))
        first, second = (body.shuffle(rows[i], rows[i + 1], range(2 * lanes)) for i in (0, 2))
        order = [lane + lanes * i for lane in range(lanes) for i in range(GROUP)]
        words = body.b.bitcast(body.shuffle(first, second, order), body.vector_type(SUMS, lanes))
        if self.spec.x_dtype is DType.INT8:
            words = body.b.xor(words, body.constant(FLIP, SUMS, lanes))
        return words
