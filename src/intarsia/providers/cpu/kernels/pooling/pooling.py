"""Channels-last pooling as calls of the hand-scheduled kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Shape
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.nn.sliding_windows import is_large
from intarsia.plan.step import Argument, KernelCall, Ref, Sizes, Step, Work
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.loop_cost import SERIAL_ELEMENTS
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace, forms_of
from intarsia.providers.cpu.kernels.common.tensor_spec import operand_specs, result_spec
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import WindowSpec, window_args, window_operand
from intarsia.providers.cpu.kernels.conv.window_geometry import (
    DTYPES,
    WHOLE,
    Geometry,
    Place,
    Windowed,
    kernel_shape,
    strides_and_dilations,
    windowed,
)
from intarsia.providers.cpu.kernels.conv.window_products import WindowOperands
from intarsia.providers.cpu.kernels.pooling import pooling_arguments, pooling_kernel

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference

_WIDEST_WINDOW = 64  # a line of the window is written out


def pool(node: Node, inference: Inference) -> Template | None:
    """MaxPool and AveragePool."""
    made = windowed(node, inference, Pool)
    if made is None or len([o for o in node.outputs if o]) != 1:
        return None
    window = kernel_shape(node, made.types)
    if window[-1] > _WIDEST_WINDOW or is_large(window):
        return None
    # ceil_mode adds windows; the kernel counts like ONNX from opset 19 on, which is what older models mean too
    return made


def global_pool(node: Node, inference: Inference) -> Template | None:
    types = operand_specs(node, inference)
    out = result_spec(node, inference)
    x = types[0]
    if x is None or x.dtype not in DTYPES or out is None:
        return None
    return GlobalPool(node, (node.inputs[0],), types, out)


@dataclass(frozen=True)
class Pool(Windowed):
    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        kernel = kernel_shape(self.node, self.types)
        operation = "max" if self.node.op_type == "MaxPool" else "average"
        spec = WindowSpec(operation, kernel, *strides_and_dilations(self.node, len(kernel)), self.data.dtype, epilogue)
        counted = bool(self.node.attributes.get("count_include_pad", 0))
        reads = (self.reads[0], *(o.name for o in operands))
        call = PoolCall(self.geometry(kernel), spec, target, counted, self.reads[0], out, tuple(operands))
        label = f"{operation} pool {'x'.join(map(str, kernel))}"
        return [Step(pooling_kernel.kernel_text(spec, target), reads, (out,), call, label=label, work=_PoolWork(call.geometry))]


@dataclass(frozen=True)
class PoolCall(KernelCall):
    """The arguments of one call of a pooling kernel, once its sizes are known."""

    geometry: Geometry
    spec: WindowSpec
    target: Target
    counted: bool
    x: str
    y: str
    operands: tuple[FusedOperand, ...]
    x_place: Place = WHOLE
    y_place: Place = WHOLE

    @property
    def form(self) -> object:
        return self.geometry, self.spec, self.target, self.counted, forms_of(self.operands), self.x_place, self.y_place

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape, output = self.geometry.at(size), tuple(size(d) for d in self.geometry.y[1:-1])
        given = [window_operand(o.kind, o.dtype, Ref(o.name), shape.channels, output) for o in self.operands]
        data = WindowOperands(
            Ref(self.x, self.x_place.offset_nbytes), Ref(self.y, self.y_place.offset_nbytes), operands=given,
            x_pixel_nbytes=self.x_place.pixel_nbytes or None, y_pixel_nbytes=self.y_place.pixel_nbytes or None,
        )  # fmt: skip
        return window_args(self.spec, self.target, shape, data, output=output, count_include_pad=self.counted)


@dataclass(frozen=True)
class _PoolWork(Work):
    geometry: Geometry

    def __call__(self, size: Sizes) -> float:
        elements = math.prod(size(d) for d in self.geometry.y) * math.prod(self.geometry.kernel)
        return elements / SERIAL_ELEMENTS


@dataclass(frozen=True)
class GlobalPool(Template):
    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        x = self.operand(0)
        operation = "max" if self.node.op_type == "GlobalMaxPool" else "average"
        spec = pooling_arguments.GlobalPoolSpec(operation, x.dtype, epilogue)
        reads = (self.reads[0], *(o.name for o in operands))
        call = GlobalPoolCall(spec, x.shape, self.reads[0], out, reads[1:])
        return [Step(pooling_kernel.global_pool_text(spec, target), reads, (out,), call, label=f"global {operation} pool")]


@dataclass(frozen=True)
class GlobalPoolCall(KernelCall):
    """`shape`: of x, [N, spatial..., C]."""

    spec: pooling_arguments.GlobalPoolSpec
    shape: Shape
    x: str
    y: str
    operands: tuple[str, ...]

    @property
    def form(self) -> object:
        return self.spec, self.shape, len(self.operands)

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        sizes = (size(self.shape[0]), math.prod(size(d) for d in self.shape[1:-1]), size(self.shape[-1]))
        given = [Ref(o) for o in self.operands]
        return pooling_arguments.global_pool_args(self.spec, Ref(self.x), Ref(self.y), sizes, given)
