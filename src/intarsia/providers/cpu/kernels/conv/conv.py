"""Channels-last convolution of floats, and the schedules that compute it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, is_static, number_of, product
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.packing import Layout
from intarsia.providers.cpu.kernels.common.panels import pack_matrix
from intarsia.providers.cpu.kernels.common.precision import timed_for
from intarsia.providers.cpu.kernels.common.schedule import (
    Candidates,
    KernelRequest,
    LoweringEnv,
    Schedule,
    candidates,
    choose,
)
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Workspace
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.conv import line_buffer_kernel
from intarsia.providers.cpu.kernels.conv.direct import ImplicitGemm, LineBuffer
from intarsia.providers.cpu.kernels.conv.few_output_channels import FewOutputChannels
from intarsia.providers.cpu.kernels.conv.grouped import depthwise_arguments
from intarsia.providers.cpu.kernels.conv.grouped.depthwise import Depthwise
from intarsia.providers.cpu.kernels.conv.grouped.small_groups import SmallGroups
from intarsia.providers.cpu.kernels.conv.pointwise import PickedPixels, Pointwise, PointwiseStrassen
from intarsia.providers.cpu.kernels.conv.reduced_precision import (
    Bfloat16PackedRows,
    Bfloat16PackedWindows,
    Bfloat16Rows,
    Bfloat16Windows,
    Float16Rows,
)
from intarsia.providers.cpu.kernels.conv.window_geometry import Filtered, strides_and_dilations
from intarsia.providers.cpu.kernels.conv.winograd.winograd import Winograd, WinogradBfloat16

_STRASSEN, _POINTWISE = PointwiseStrassen("pointwise-strassen"), Pointwise("pointwise")
SCHEDULES: tuple[Schedule[Convolution], ...] = (
    SmallGroups("small-groups"),
    Depthwise("depthwise"),
    FewOutputChannels("few-output-channels"),
    WinogradBfloat16("winograd2-bfloat16"),
    Bfloat16Rows("bfloat16-rows"),
    Bfloat16Windows("bfloat16-windows"),
    Bfloat16PackedRows("bfloat16-packed-rows"),
    Bfloat16PackedWindows("bfloat16-packed-windows"),
    Float16Rows("float16-rows"),
    Winograd("winograd4", 4),
    Winograd("winograd2", 2),
    PickedPixels("picked-pixels-strassen", _STRASSEN),
    PickedPixels("picked-pixels", _POINTWISE),
    _STRASSEN,
    _POINTWISE,
    LineBuffer("line-buffer"),
    ImplicitGemm("implicit-gemm"),
)  # in the order of preference; the last takes every convolution


@dataclass(frozen=True)
class Convolution(Filtered):
    """Convolution by constant filters."""

    alone: ClassVar[str] = "Conv"
    packed_ahead: ClassVar[bool] = True  # a run packs whole vectors

    @cached_property
    def pixels(self) -> Dim:
        """Of the output, in all images."""
        return product(self.output.shape[:-1])

    @cached_property
    def is_pointwise(self) -> bool:
        """Whether it is a plain matrix product for each group: every pixel by itself."""
        kernel = self.kernel
        return not any(self.pads) and math.prod(kernel) == math.prod(strides_and_dilations(self.node, len(kernel))[0]) == 1

    def packed(self, workspace: Workspace, layout: Layout, tile: Tile | None, target: Target) -> tuple[str, list[Step]]:
        """The buffer of the packed filters (PANELS of pointwise ones, WINDOWS or DEPTHWISE), and what packs them."""
        weights, packing = self.constant_filters(workspace), self.packing(layout, tile)
        if tile is None:
            return workspace.add(self.reads[1], packing, lambda: depthwise_arguments.pack_weights(weights, target)), []
        if layout is Layout.PANELS:
            matrix = weights.reshape(weights.shape[:2]).T
            return workspace.add(self.reads[1], packing, lambda: pack_matrix(matrix, tile)), []
        return workspace.add(self.reads[1], packing, lambda: line_buffer_kernel.pack_windows(weights, tile, self.group)), []

    def result(self, acc: Tensor) -> Tensor:
        if len(self.types) < 3 or self.types[2] is None:
            return acc
        return acc + k.input(self.node.inputs[2], acc.dtype, self.types[2].shape)

    def schedule_table(self) -> tuple[Schedule[Convolution], ...]:
        return SCHEDULES

    def schedule_key(self, env: LoweringEnv) -> str | None:
        if not is_static((*self.data.shape, *self.output.shape)):
            return None
        shape = self.geometry(self.kernel).at(number_of)
        return " ".join(map(str, ("conv", *timed_for(self.data.dtype, env.options_of(self), env.target), shape)))

    def candidates(self, env: LoweringEnv) -> Candidates | None:
        return candidates(self, env)

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        request = KernelRequest(target, workspace, epilogue, tuple(operands), out)
        return choose(self, request.env).steps(self, request)

    def rounds(self, target: Target, workspace: Workspace) -> tuple[str, ...]:
        env = LoweringEnv(target, workspace.options, workspace, workspace.choices)
        return self.reads[:1] if choose(self, env).rounds(self, env) else ()

    @property
    def sums_rounded(self) -> bool:
        return True
