"""The arguments of a convolution's kernel."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.argument_tables import Table
from intarsia.plan.step import CLAIMS, SCRATCH, Argument, Code, KernelCall, Ref, ScratchCall, Sizes
from intarsia.providers.cpu.kernels.common.template import FusedOperand, forms_of
from intarsia.providers.cpu.kernels.conv import (
    few_output_channels_kernel,
    line_buffer_kernel,
    pointwise_kernel,
    window_products,
)
from intarsia.providers.cpu.kernels.conv.grouped import depthwise_arguments
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import window_operand
from intarsia.providers.cpu.kernels.conv.window_geometry import WHOLE, Geometry, Place
from intarsia.providers.cpu.kernels.conv.window_products import WindowOperands
from intarsia.providers.cpu.kernels.conv.winograd import spec as winograd_plan
from intarsia.providers.cpu.kernels.matmul import gemm_arguments
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import Threads


@dataclass(frozen=True)
class FilterCall(KernelCall):
    """Base of the calls of convolutions of floats and of bytes."""

    geometry: Geometry
    spec: Any
    target: Target
    x: str
    weights: str
    y: str
    operands: tuple[FusedOperand, ...]
    micro: str = ""
    taps: str = ""

    @property
    def form(self) -> object:
        return self.geometry, self.spec, self.target, forms_of(self.operands), self.micro

    def _given(self, shape: window_products.ConvShape, dtype: DType) -> list[gemm_arguments.Operand]:
        return [window_products.conv_operand(o.kind, o.dtype, Ref(o.name), shape, self.target, dtype) for o in self.operands]

    def _windows(self, channels: int, output: tuple[int, ...]) -> list[gemm_arguments.Operand]:
        return [window_operand(o.kind, o.dtype, Ref(o.name), channels, output) for o in self.operands]


@dataclass(frozen=True)
class ConvolutionCall(FilterCall):
    """The arguments of one call of a convolution's kernel, once its sizes are known."""

    x_place: Place = WHOLE
    y_place: Place = WHOLE

    @property
    def form(self) -> object:
        return (self.geometry, self.spec, self.target, forms_of(self.operands), self.micro, self.x_place, self.y_place)

    def _data(self, operands: list[gemm_arguments.Operand], taps: Ref | Table | int = 0) -> WindowOperands:
        """What the kernel reads and writes."""
        return WindowOperands(
            self._x(), self._y(), Ref(self.weights), operands, self.x_place.pixel_nbytes or None,
            self.y_place.pixel_nbytes or None, Code(self.micro) if self.micro else 0, taps,
        )  # fmt: skip

    def _x(self) -> Ref:
        return Ref(self.x, self.x_place.offset_nbytes)

    def _y(self) -> Ref:
        return Ref(self.y, self.y_place.offset_nbytes)


class ProductCall(ConvolutionCall):
    """A product of an image's lines by filters, which can be called for some of the lines."""

    @abstractmethod
    def placed(
        self, shape: window_products.ConvShape, x: Ref, y: Ref | int, claims: Ref | int = 0, threads: int = 1
    ) -> Sequence[Argument]:
        """The arguments for lines that lie at `x` and `y`."""


@dataclass(frozen=True)
class ImplicitGemmCall(ProductCall):
    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return self.placed(self.geometry.at(size), Ref(self.x), self._y(), Ref(CLAIMS), threads)

    def placed(
        self, shape: window_products.ConvShape, x: Ref, y: Ref | int, claims: Ref | int = 0, threads: int = 1
    ) -> Sequence[Argument]:
        taps = window_products.displacements(shape, self.spec.dtype, self.target)
        data = self._data(self._given(shape, self.spec.dtype), taps)._replace(x=x, y=y, x_pixel_nbytes=None)
        return window_products.conv_args(self.spec, self.target, shape, data, Threads(threads, claims))


@dataclass(frozen=True)
class PointwiseCall(ProductCall):
    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return self.placed(self.geometry.at(size), self._x(), self._y(), Ref(CLAIMS), threads)

    def placed(
        self, shape: window_products.ConvShape, x: Ref, y: Ref | int, claims: Ref | int = 0, threads: int = 1
    ) -> Sequence[Argument]:
        return pointwise_kernel.rows_args(
            self.spec, self.target, micro=Code(self.micro), a=x, b=Ref(self.weights), c=y,
            m=shape.batch * math.prod(shape.output), n=shape.filters, k=shape.channels,
            taps=pointwise_kernel.row_taps(self.spec.dtype, self.target),
            claims=claims, operands=self._given(shape, self.spec.dtype), threads=threads,
            lda=self.x_place.pixel_nbytes or None, ldc=self.y_place.pixel_nbytes or None,
        )  # fmt: skip


@dataclass(frozen=True)
class LineBufferCall(ConvolutionCall, ScratchCall):
    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape = self.geometry.at(size)
        given = [
            line_buffer_kernel.window_operand(self.spec, o.kind, o.dtype, Ref(o.name), shape, threads) for o in self.operands
        ]
        data = self._data(given, line_buffer_kernel.window_tables(self.spec, self.target, shape, threads))
        return line_buffer_kernel.window_args(self.spec, self.target, shape, data, Threads(threads, Ref(CLAIMS), Ref(SCRATCH)))

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * line_buffer_kernel.window_scratch_nbytes(self.spec, self.geometry.at(size), threads)


@dataclass(frozen=True)
class WinogradCall(ConvolutionCall, ScratchCall):
    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape = self.geometry.at(size)
        data = self._data(self._given(shape, DType.FLOAT), Ref(self.taps))
        return winograd_plan.winograd_args(self.spec, self.target, shape, data, Threads(threads, Ref(CLAIMS), Ref(SCRATCH)))

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * winograd_plan.scratch_nbytes(self.spec, self.target, self.geometry.at(size), threads)


@dataclass(frozen=True)
class DepthwiseCall(ConvolutionCall):
    """Of depthwise convolutions, and of those of small groups."""

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape = self.geometry.at(size)
        data = self._data(self._windows(shape.filters, shape.output))
        return depthwise_arguments.depthwise_args(self.spec, self.target, shape, data)


@dataclass(frozen=True)
class FewFiltersCall(ConvolutionCall):
    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape = self.geometry.at(size)
        data = self._data(self._windows(shape.filters, shape.output))
        return few_output_channels_kernel.few_filters_args(self.spec, self.target, shape, data)
