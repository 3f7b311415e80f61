"""Softmax and LogSoftmax along the innermost axes in float32, by a kernel for rows.

Other axes and types are loops, and so is a softmax behind element-wise nodes, which loops take in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference
from intarsia.ops.framework.operands import normal_axis
from intarsia.plan.step import Argument, KernelCall, Ref, Serial, Sizes, Step
from intarsia.providers.cpu.kernels.attention import softmax_kernel as template
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import operand_specs, result_spec

_SERIAL_ELEMENTS = 8192
_LEAST_ROW = 16  # of a known size: shorter rows are one vector that is mostly masked
_FUSED = frozenset("Add Sub Mul Div Where Cast Clip Neg Max Min Pow Sqrt".split())  # producers that loops take in


def softmax(node: Node, inference: Inference) -> Template | None:
    """Softmax or LogSoftmax of float32 over axes up to the last one."""
    (x,) = operand_specs(node, inference)
    out = result_spec(node, inference)
    if x is None or not x.shape or x.dtype is not DType.FLOAT or out is None:
        return None
    single = (node.version or 13) >= 13
    axis = int(node.attributes.get("axis", -1 if single else 1))
    start = normal_axis(axis, len(x.shape)) if axis != len(x.shape) else len(x.shape)
    row = product(x.shape[start:])
    inside = product(x.shape[start + 1 :]) if single else 1
    if inside != 1 or (isinstance(row, int) and row < _LEAST_ROW):
        return None
    made_by = inference.producer(node.inputs[0])
    if made_by is not None and made_by.op_type in _FUSED:
        return None
    return Softmax(node, (node.inputs[0],), (x,), out, takes_epilogue=False, start=start, row=row)


@dataclass(frozen=True)
class Softmax(Template):
    start: int = field(kw_only=True)
    row: Dim = field(kw_only=True)

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        log, rows = self.node.op_type == "LogSoftmax", product(self.output.shape[: self.start])
        return [
            Step(
                template.kernel_text(log, target), (self.reads[0],), (out,), SoftmaxCall(self.reads[0], out, rows, self.row),
                serial=FewRows(rows, self.row), label=self.node.op_type,
            )
        ]  # fmt: skip


@dataclass(frozen=True)
class FewRows(Serial):
    """One row, or few numbers: rows are what threads share."""

    rows: Dim
    row: Dim

    def __call__(self, size: Sizes) -> bool:
        rows = size(self.rows)
        return rows == 1 or rows * size(self.row) < _SERIAL_ELEMENTS


@dataclass(frozen=True)
class SoftmaxCall(KernelCall):
    """Of `rows` rows of `row` numbers."""

    x: str
    y: str
    rows: Dim
    row: Dim

    @property
    def form(self) -> object:
        return self.rows, self.row

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return template.softmax_args(Ref(self.x), Ref(self.y), rows=size(self.rows), n=size(self.row))
