"""The arguments of kernels of convolutions of bytes, once their sizes are known."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import CLAIMS, SCRATCH, Argument, Code, KernelCall, Ref, ScratchCall, Sizes
from intarsia.providers.cpu.kernels.conv import window_products
from intarsia.providers.cpu.kernels.conv.conv_arguments import FilterCall
from intarsia.providers.cpu.kernels.conv.grouped import depthwise_arguments
from intarsia.providers.cpu.kernels.conv.window_geometry import Geometry
from intarsia.providers.cpu.kernels.conv.window_products import WindowOperands
from intarsia.providers.cpu.kernels.conv.winograd import spec as winograd_spec
from intarsia.providers.cpu.kernels.matmul import gemm_arguments
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import Threads
from intarsia.providers.cpu.kernels.matmul_int8 import widened_int16
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import SUMS


@dataclass(frozen=True)
class ByteWinogradCall(FilterCall, ScratchCall):
    """The arguments of Winograd's kernel; `zero`: the buffer of the input's zero point."""

    zero: str = ""

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape = self.geometry.at(size)
        data = WindowOperands(
            Ref(self.x), Ref(self.y), Ref(self.weights), self._given(shape, SUMS), micro=Code(self.micro), taps=Ref(self.taps),
            number=Ref(self.zero),
        )  # fmt: skip
        return winograd_spec.winograd_args(self.spec, self.target, shape, data, Threads(threads, Ref(CLAIMS), Ref(SCRATCH)))

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * winograd_spec.scratch_nbytes(self.spec, self.target, self.geometry.at(size), threads)


@dataclass(frozen=True)
class ByteProductCall(FilterCall):
    """The arguments of sums of windows.

    Attributes:
        parts: how many int8 numbers add up to a weight.
        panel_nbytes: of weights whose order keeps sums within 16 bits; 0: they have none.
        few: the micro-kernel for few pixels, where that is another.
    """

    parts: int = 1
    panel_nbytes: int = 0
    few: str = ""

    @property
    def form(self) -> object:
        return super().form, self.parts, self.panel_nbytes, self.few

    @property
    def has_scratch(self) -> bool:
        """Where panels are widened."""
        return bool(self.spec.in_words)

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape = self.geometry.at(size)
        taps = window_products.displacements(shape, SUMS, self.target, parts=self.parts, in_words=self.spec.in_words)
        micro = Code(
            self.few if self.few and not gemm_arguments.many_rows(window_products.rows(shape), self.spec.tile) else self.micro
        )
        return window_products.conv_args(
            self.spec, self.target, shape,
            WindowOperands(
                Ref(self.x), Ref(self.y), Ref(self.weights), self._given(shape, SUMS), micro=micro, taps=taps
            ),
            Threads(threads, Ref(CLAIMS), Ref(SCRATCH) if self.spec.in_words else 0),
            parts=self.parts, panel_nbytes=self.panel_nbytes,
        )  # fmt: skip

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * window_products.panel_nbytes(self.spec, self.target, self.geometry.at(size), self.parts)


@dataclass(frozen=True)
class ByteWindowCall(FilterCall):
    """The arguments of depthwise convolutions, and of those of small groups; `zero`: the buffer of the input's zero point."""

    zero: str = ""

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape = self.geometry.at(size)
        given = self._windows(shape.channels, shape.output)
        data = WindowOperands(Ref(self.x), Ref(self.y), Ref(self.weights), given, number=Ref(self.zero))
        return depthwise_arguments.depthwise_args(self.spec, self.target, shape, data)


@dataclass(frozen=True)
class WidenCall(KernelCall):
    """Writes an input less its zero point, with its border, in 16 bits."""

    geometry: Geometry
    x: str
    words: str
    number: str

    @property
    def form(self) -> object:
        return self.geometry

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return widened_int16.widen_args(self.geometry.at(size), Ref(self.x), Ref(self.words), Ref(self.number))
