"""DynamicQuantizeLinear by two kernels, so that all threads search the extrema together, once."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference
from intarsia.plan.step import Below, BuffersAndSizes, Step
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import operand_specs, result_spec
from intarsia.providers.cpu.kernels.quantize import dynamic_quantize_kernel as template

_SERIAL_ELEMENTS = 16384


def dynamic_quantize(node: Node, inference: Inference) -> Template | None:
    """DynamicQuantizeLinear of float32, all of whose outputs are wanted."""
    (x,) = operand_specs(node, inference)
    out = result_spec(node, inference)
    if x is None or x.dtype is not DType.FLOAT or out is None:
        return None
    if len(node.outputs) != 3 or not all(node.outputs):
        return None
    return DynamicQuantize(node, (node.inputs[0],), (x,), out, takes_epilogue=False)


@dataclass(frozen=True)
class DynamicQuantize(Template):
    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self.node.outputs)

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        extrema = workspace.temporary(f"{out}%extrema", DType.FLOAT, (2, template.PARTS))
        elements = product(self.output.shape)
        serial = Below(elements, _SERIAL_ELEMENTS)
        return [
            Step(
                template.range_text(target), self.reads, (extrema,), BuffersAndSizes((*self.reads, extrema), (elements,)),
                serial=serial, label="least and largest",
            ),
            Step(
                template.quantize_text(target), (*self.reads, extrema), self.outputs,
                BuffersAndSizes((*self.reads, extrema, *self.outputs), (elements,)), serial=serial,
                label="quantize dynamically",
            ),
        ]  # fmt: skip
