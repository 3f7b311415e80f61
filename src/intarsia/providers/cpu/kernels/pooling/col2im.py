"""Col2Im by a kernel: the sizes of its image and block are known when the model is compiled, or follow from its inputs'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, product
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference
from intarsia.ops.nn.sliding_windows import WindowAttributes, place_windows
from intarsia.plan.step import Argument, Below, KernelCall, Ref, Sizes, Step
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import operand_specs, result_spec
from intarsia.providers.cpu.kernels.pooling import col2im_kernel as template

_SERIAL_ELEMENTS = 16384

_Axis = tuple[Dim, Dim, Dim, int, int, Dim]  # the fields of `template.Axis`


def col2im(node: Node, inference: Inference) -> Template | None:
    """Col2Im of float32 or float64 with a block whose sizes are known."""
    x, out = operand_specs(node, inference)[0], result_spec(node, inference)
    image, block = (inference.values.get(n) for n in node.inputs[1:3])
    if x is None or x.dtype not in template.DTYPES or image is None or block is None:
        return None
    if out is None or not all(isinstance(d, int) for d in block.flat):
        return None
    strides, pads, dilations = (node.attributes.get(name) for name in ("strides", "pads", "dilations"))
    given = WindowAttributes(strides=strides, pads=pads, dilations=dilations)
    sizes = [int(d) for d in block.flat]
    windows = place_windows(list(image.flat), sizes, given)
    axes = tuple(zip(image.flat, sizes, windows.out, windows.strides, windows.dilations, windows.low, strict=True))
    return Col2Im(node, (node.inputs[0],), (x,), out, takes_epilogue=False, axes=axes)


@dataclass(frozen=True)
class Col2Im(Template):
    axes: tuple[_Axis, ...] = field(kw_only=True)

    def equal_sizes(self) -> Sequence[tuple[Dim, Dim]]:
        x = self.operand(0)
        area = product(axis[1] for axis in self.axes)
        return [(x.shape[1], self.output.shape[1] * area), (x.shape[2], product(axis[2] for axis in self.axes))]

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        x = self.operand(0)
        kernel = template.kernel_text(len(self.axes), x.dtype, target)
        serial = Below(product(x.shape), _SERIAL_ELEMENTS)
        call = Col2ImCall(self.reads[0], out, product(self.output.shape[:2]), self.axes)
        return [Step(kernel, self.reads, (out,), call, serial=serial, label="col2im")]


@dataclass(frozen=True)
class Col2ImCall(KernelCall):
    """`units`: images by channels."""

    x: str
    y: str
    units: Dim
    axes: tuple[_Axis, ...]

    @property
    def form(self) -> object:
        return self.units, self.axes

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        axes = [template.Axis(*(size(d) for d in axis)) for axis in self.axes]
        return template.col2im_args(Ref(self.x), Ref(self.y), units=size(self.units), axes=axes)
