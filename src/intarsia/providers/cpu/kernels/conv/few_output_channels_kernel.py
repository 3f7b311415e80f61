"""Convolution by a few filters, channels-last: a vector holds neighbouring channels of the input, which all filters share.

Where filters lie across lanes, as in `kernels.conv.implicit_gemm`, three of them leave thirteen of sixteen lanes without work:
the last layer
of a network that makes images, or a map of depths. Here every filter has a vector of sums for each of some neighbouring output
pixels, whose lanes are added up at the end.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from intarsia.codegen.builder.kernel_body import Value
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.plan.step import Argument
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros
from intarsia.providers.cpu.kernels.conv.grouped.sliding_window import Window
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import FIELDS, WindowSpec, window_args
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape, WindowOperands

_SUMS = 24  # vectors of sums in registers, where there are 32
_MOST_PIXELS = 8
_HELD = 9  # vectors of weights, of one line of the kernel, that fit beside the sums
_FEW_REGISTERS = 16
_LEAST_STEPS = 8  # multiplications of a sum's vectors: fewer do not pay for adding up its lanes
_WINOGRAD_FILTERS = 4  # of 3x3 kernels: from more on Winograd's products are fewer


def takes(weights: Sequence[int], group: int, lanes: int) -> bool:
    """Whether a convolution by weights of this shape [M, C, *kernel] is faster so than with filters across lanes."""
    filters, channels, *kernel = weights
    vectors = -(-channels // lanes)
    most = min(_WINOGRAD_FILTERS if tuple(kernel[-2:]) == (3, 3) else lanes, lanes // 2)
    steps = math.prod(kernel) * vectors
    return group == 1 and filters <= most and 2 * filters * vectors <= channels and steps >= _LEAST_STEPS


@functools.lru_cache(maxsize=64)
def kernel_text(spec: WindowSpec, target: Target) -> KernelText:
    """The kernel of a spec that has `filters`; its arguments are `few_filters_args`."""
    return FewFilters(spec, target).text()


def pack_weights(weights: np.ndarray, target: Target) -> np.ndarray:
    """ONNX weights [M, C, *kernel] as [lines of the kernel, vectors of channels, pixels of a line, M, lanes]."""
    filters, channels, *kernel = weights.shape
    lanes = target.vector_bytes // weights.dtype.itemsize
    vectors = -(-channels // lanes)
    out = aligned_zeros((math.prod(kernel[:-1]), vectors, kernel[-1], filters, lanes), weights.dtype)
    whole = np.zeros((filters, vectors * lanes, *kernel), weights.dtype)
    whole[:, :channels] = weights
    out[...] = whole.reshape(filters, vectors, lanes, -1, kernel[-1]).transpose(3, 1, 4, 0, 2)
    return out


def few_filters_args(spec: WindowSpec, target: Target, shape: ConvShape, data: WindowOperands) -> list[Argument]:
    """The kernel's arguments for the input without border and `pack_weights`' result."""
    pixel = data.y_pixel_nbytes or spec.filters * itemsize(spec.epilogue.dtype if spec.epilogue else spec.dtype)
    args = window_args(spec, target, shape, data._replace(y_pixel_nbytes=pixel))
    args[FIELDS.index("blocks")] = 1
    return args


def _in_registers(filters: int, target: Target) -> tuple[int, int]:
    """Pixels at once, and the vectors of weights that are held beside their sums and one vector of the input."""
    if not target.is_avx2:
        return max(1, min(_MOST_PIXELS, _SUMS // filters)), _HELD
    pixels = max(1, min(_MOST_PIXELS, (_FEW_REGISTERS - 1 - filters) // filters))
    return pixels, _FEW_REGISTERS - 1 - pixels * filters


class FewFilters(Window):
    """Writes one kernel."""

    def __init__(self, spec: WindowSpec, target: Target) -> None:
        super().__init__(spec, target)
        self.filters = spec.filters
        self.pixels, self.held = _in_registers(self.filters, target)
        self.loose = 0

    def _unit(self, unit: Value) -> None:
        self._place(unit)
        self._channels(self.body.i(0), None)

    def _sums(self) -> list[Value]:
        return [self._initial()] * (self.pixels * self.filters)

    def _accumulate(
        self, state: list[Value], row: Value, start: Value, position: Value, offset: Value, mask: Value | None, guarded: bool
    ) -> None:
        """One line of the kernel: all channels, vector by vector."""
        body, channels = self.body, self.v["channels"]
        whole, rest = body.div(channels, self.lanes), body.rem(channels, self.lanes)
        vectors = body.div(body.add(channels, self.lanes - 1), self.lanes)
        line = body.at(self.v["weights"], body.mul(body.mul(position, vectors), self.filters * self.lanes * self.size))
        with body.carry(0, whole, 1, state) as vector:
            self._line(state, row, line, start, vector, None, guarded)
        with body.carry(whole, vectors, 1, state) as vector:
            self._line(state, row, line, start, vector, body.mask(rest, self.lanes), guarded)

    def _line(
        self, state: list[Value], row: Value, line: Value, start: Value, vector: Value, mask: Value | None, guarded: bool
    ) -> None:
        """A vector of channels of all pixels that a line of the kernel sees."""
        body, taps, stride, dilation = self.body, self.kernel[2], self.strides[2], self.dilations[2]
        nbytes = self.lanes * self.size
        source = body.at(row, body.mul(vector, nbytes))
        weights = body.at(line, body.mul(vector, taps * self.filters * nbytes))
        if taps * self.filters > self.held:
            with body.carry(0, taps, 1, state) as tap:
                held = self._weights(body.at(weights, body.mul(tap, self.filters * nbytes)))
                for p in range(self.pixels):
                    at = body.add(body.add(start, p * stride), body.mul(tap, dilation))
                    self._multiply(state, p, self._pixel(source, at, mask, guarded), held)
            return
        every = [self._weights(body.at(weights, tap * self.filters * nbytes)) for tap in range(taps)]
        uses: dict[int, list[tuple[int, int]]] = {}
        for p in range(self.pixels):
            for tap in range(taps):
                uses.setdefault(p * stride + tap * dilation, []).append((p, tap))
        for at in sorted(uses):
            value = self._pixel(source, body.add(start, at), mask, guarded)
            for p, tap in uses[at]:
                self._multiply(state, p, value, every[tap])

    def _weights(self, pointer: Value) -> list[Value]:
        nbytes = self.lanes * self.size
        return [self.body.load(self.body.at(pointer, f * nbytes), self.spec.dtype, self.lanes) for f in range(self.filters)]

    def _pixel(self, source: Value, at: Value, mask: Value | None, guarded: bool) -> Value:
        body, v = self.body, self.v
        pointer = body.at(source, body.mul(at, v["x_pixel"]))
        if guarded:
            pointer = body.b.select(body.b.icmp_unsigned("<", at, v["width"]), pointer, self.neutral)
        return self._load(pointer, mask)

    def _multiply(self, state: list[Value], p: int, value: Value, weights: Sequence[Value]) -> None:
        for f, weight in enumerate(weights):
            i = p * self.filters + f
            state[i] = self.body.fma(value, weight, state[i], self.spec.dtype, self.lanes)

    def _write(
        self, state: list[Value], channel: Value, column: Value, start: Value, mask: Value | None, guarded: bool
    ) -> None:
        each = self.filters
        sums = [self._together(state[p * each : (p + 1) * each]) for p in range(self.pixels)]
        few = self.body.mask(self.body.i(each), self.lanes)
        super()._write(sums, channel, column, start, few, guarded)

    def _together(self, vectors: Sequence[Value]) -> Value:
        """The sum of each vector's lanes: that of the first in lane 0, of the second in lane 1, ..."""
        body, lanes = self.body, self.lanes
        parts = [*vectors, *[self._initial()] * ((1 << (len(vectors) - 1).bit_length()) - len(vectors))]
        width = lanes  # lanes that belong to one sum
        while len(parts) > 1:
            halves = [
                [base + group * width + i for base in (0, lanes) for group in range(lanes // width) for i in half]
                for half in (range(width // 2), range(width // 2, width))
            ]
            parts = [
                body.b.fadd(body.shuffle(a, b, halves[0]), body.shuffle(a, b, halves[1]))
                for a, b in zip(parts[::2], parts[1::2], strict=True)
            ]
            width //= 2
        (total,) = parts
        first = width
        while width > 1:
            width //= 2
            total = body.b.fadd(total, body.shuffle(total, total, [(lane + width) % lanes for lane in range(lanes)]))
        return total if first == 1 else body.shuffle(total, total, [lane * first % lanes for lane in range(lanes)])
