"""ConvInteger in channels-last layout, and the schedules that compute it; see `matmul_int8` for the zero points.

Filters less their zero point that need nine bits are moved by a number for each filter, times which the sums of windows are
subtracted; those of few filters or in groups are the sum of two or three parts of eight bits. Where bytes are not multiplied by
fours, weights are put in order, or the input is widened (`saturation_free_order`, `widened_int16`). Depthwise convolutions are
computed by `kernels.conv.grouped.depthwise_int8_kernel`, or in float32, in which their sums are exact.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.schedule import Constants, KernelRequest, Schedule, choose
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import has_unknown_rank, operand_specs, result_spec
from intarsia.providers.cpu.kernels.conv.int8.conv_int8_products import (
    AddedParts,
    MatrixUnitWindows,
    MovedFilters,
    SaturationFreeWindows,
    WidenedWindows,
)
from intarsia.providers.cpu.kernels.conv.int8.conv_int8_windows import ByteDepthwise, ByteSmallGroups, FloatDepthwise
from intarsia.providers.cpu.kernels.conv.int8.conv_int8_winograd import ByteWinograd
from intarsia.providers.cpu.kernels.conv.window_geometry import Filtered, explicit_pads, with_fewer_axes
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import BYTES
from intarsia.providers.cpu.kernels.matmul_int8.byte_weights import digest, is_signed_byte

SCHEDULES: tuple[Schedule[ByteConvolution], ...] = (
    ByteDepthwise("depthwise-int8"),
    FloatDepthwise("depthwise-float32"),
    ByteSmallGroups("small-groups-int8"),
    MatrixUnitWindows("matrix-unit"),
    ByteWinograd("winograd4-int16"),
    SaturationFreeWindows("saturation-free-order"),
    WidenedWindows("widened-int16"),
    MovedFilters("moved-filters"),
    AddedParts("added-parts"),
)  # in the order of preference; the last takes every convolution


def is_byte_convolution(node: Node, inference: Inference) -> bool:
    """Whether the weights and their zero point are constant, and the input has one zero point."""
    types = operand_specs(node, inference)
    if has_unknown_rank(node, inference) or any(t is None or t.dtype not in BYTES for t in types[:2]):
        return False
    x_zero = types[2] if len(types) > 2 else None
    if x_zero is not None and any(d != 1 for d in x_zero.shape):
        return False
    constants = (node.inputs[1], *(node.inputs[3:4]))
    return all(not name or name in inference.graph.constants for name in constants)


def convolution(node: Node, inference: Inference) -> Template | None:
    """Convolution of uint8 or int8."""
    out = result_spec(node, inference)
    if not is_byte_convolution(node, inference) or out is None:
        return None
    types = operand_specs(node, inference)
    made = ByteConvolution(node, tuple(node.inputs), types, out)
    if 0 in made.operand(1).shape:
        return None
    return with_fewer_axes(replace(made, pads=explicit_pads(node, made.data.shape, types)))


@dataclass(frozen=True)
class ByteConvolution(Filtered):
    """`reads` are the node's inputs: x, w, and their zero points."""

    integers: bool = True

    def filter_zero(self, constants: Constants) -> np.ndarray | None:
        """The zero point of the filters, one or one for each; None: 0."""
        return constants.array(self.reads[3]) if len(self.reads) > 3 and self.reads[3] else None

    def weights(self, constants: Constants) -> np.ndarray:
        """The filters less their zero points, int16 [M, C / group, *kernel]."""
        array, zero = self.constant_filters(constants).astype(np.int16), self.filter_zero(constants)
        return array if zero is None else array - zero.reshape(-1, *(1,) * (array.ndim - 1)).astype(np.int16)

    def weights_view(self, constants: Constants) -> tuple[Hashable, ...]:
        """What `weights` follow from besides the constant."""
        zero = self.filter_zero(constants)
        return (*self.view, digest(np.zeros(1) if zero is None else zero))

    def is_signed_byte(self, constants: Constants) -> bool:
        """Whether `weights` are int8."""
        zero = self.filter_zero(constants)
        matrix = self.constant_filters(constants).reshape(self.filter_shape[0], -1).T
        return is_signed_byte(matrix, np.zeros(1, np.int32) if zero is None else zero.reshape(-1).astype(np.int32))

    def known_zero(self, constants: Constants) -> int | None:
        """The input's zero point, or None if only a run knows it."""
        if len(self.reads) < 3 or not self.reads[2]:
            return 0
        found = constants.array(self.reads[2])
        return None if found is None else int(found.reshape(-1)[0])

    def border_number(self, workspace: Workspace) -> str:
        """The buffer of the input's zero point, with which its border is filled."""
        if len(self.reads) > 2 and self.reads[2]:
            return self.reads[2]
        return workspace.add("", Packing(Layout.BYTE, view=0), lambda: np.zeros(1, np.uint8))

    def schedule_table(self) -> tuple[Schedule[ByteConvolution], ...]:
        return SCHEDULES

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        request = KernelRequest(target, workspace, epilogue, tuple(operands), out)
        return choose(self, request.env).steps(self, request)
