"""Depthwise convolution in channels-last layout: every channel has a window of its own (group == C), or several (M > C)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from intarsia.codegen.builder.kernel_body import Value
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.conv.grouped.depthwise_line_buffer import LineBuffer, can_buffer_lines
from intarsia.providers.cpu.kernels.conv.grouped.sliding_window import Window
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import LINE, PIXELS, WindowSpec
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape


def depthwise_spec(shape: ConvShape, dtype: DType = DType.FLOAT, epilogue: Epilogue | None = None) -> WindowSpec:
    """The spec of a depthwise convolution.

    Raises:
        ValueError: a filter sees more than its own channel (`kernels.conv.implicit_gemm` takes those).
    """
    if not shape.group == shape.channels == shape.filters:
        raise ValueError(
            f"depthwise convolution has group == channels == filters; got group {shape.group}, {shape.channels} channels, "
            f"{shape.filters} filters: use codegen.conv"
        )
    return WindowSpec("multiply", shape.kernel, shape.strides, shape.dilations, dtype, epilogue)


@functools.lru_cache(maxsize=256)
def kernel_text(spec: WindowSpec, target: Target) -> KernelText:
    """The kernel of a spec; its arguments are `depthwise_args`."""
    kind = LineBuffer if spec.buffers_lines else Window if spec.multiplier == 1 else _Multiplied
    return kind(spec, target).text()


class _Multiplied(Window):
    """A channel of the input is loaded once, and spread over the lanes of those of the output that see it."""

    def _seen_from(self, channel: Value) -> Value:
        return super()._seen_from(self.body.div(channel, self.spec.multiplier))

    def _load(self, pointer: Value, mask: Value | None) -> Value:
        body, many, dtype = self.body, self.spec.multiplier, self.spec.dtype
        count = self.lanes // many
        if mask is None:
            seen = body.load(pointer, dtype, count)
        else:
            present = body.div(body.rem(self.v["channels"], self.lanes), many)
            seen = body.load_masked(pointer, body.mask(present, count), dtype, count)
        return body.shuffle(seen, seen, [lane // many for lane in range(self.lanes)])


def takes(weights: Sequence[int], group: int, lanes: int) -> bool:
    """Whether a convolution by weights of this shape [M, C / group, *kernel] is one of this kernel's: a vector sees two
    channels or more, and all filters of each."""
    multiplier, rest = divmod(weights[0], group)
    whole = multiplier > 0 and multiplier & (multiplier - 1) == 0 and (multiplier == 1 or 2 * multiplier <= lanes)
    return group > 1 and weights[1] == 1 and rest == 0 and whole


_PIXELS = (8, 6, 5)  # where these fit a line better than `PIXELS`
_REGISTERS_FOR_8 = 64  # bytes of vectors of a machine with 32 registers
_END = 0.5  # of a pixel's time that a line's next piece costs
_WORTH = 0.95  # of the time with `PIXELS` that is worth another kernel
_HIGH = 5  # lines of a window that are worth a copy of the image's,
_LESS_HIGH = 3  # and that are where pixels lie in four sets or fewer, of vectors as long as a cache line
_FAR = 9  # lines from a dilated window's first to its last that are worth it, too
_CROWDED = 256  # bytes between pixels by whose multiples these fall into few sets of a cache,
_MOST_CROWDED = 1024  # into four or fewer
_LONG = 12  # pixels of a line that then do not stay there


def scheduled(spec: WindowSpec, channels: int, width: int | None, target: Target) -> WindowSpec:
    """How a window goes over an image of so many channels, of which a line of output has `width` pixels (None: not known): so
    many pixels at once that few are computed in vain, from lines that are copied where those of the image drive each other out
    of the cache."""
    if width is not None:
        spec = replace(spec, pixels=pixels_at_once(width, target))
    seen = (spec.kernel[-2] - 1) * spec.dilations[-2] + 1 if len(spec.kernel) > 1 else 1
    pixel = channels * itemsize(spec.x_dtype or spec.dtype)
    least = _LESS_HIGH if pixel % _MOST_CROWDED == 0 and target.vector_bytes == LINE else _HIGH
    high = len(spec.kernel) > 1 and (spec.kernel[-2] >= least or seen >= _FAR) and spec.strides[-2] == 1
    crowded = pixel % _CROWDED == 0 and (width is None or width >= _LONG)
    return replace(spec, buffers_lines=high and crowded and can_buffer_lines(spec))


def pixels_at_once(width: int, target: Target) -> int:
    """So many that few are computed in vain."""
    times = {p: -(-width // p) * (p + _END) for p in (PIXELS, *_PIXELS)}
    few = [p for p in _PIXELS if times[p] < _WORTH * times[PIXELS] and (p < 8 or target.vector_bytes >= _REGISTERS_FOR_8)]
    return min(few, key=times.__getitem__, default=PIXELS)


