"""TopK by a kernel of its own: a sorted list or histograms per row, rows shared out among threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from intarsia.codegen.llvm.target import Target
from intarsia.errors import NodeFailed
from intarsia.graph.dims import Dim, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.operands import normal_axis
from intarsia.plan.step import SCRATCH, Argument, Below, Ref, ScratchCall, Sizes, Step
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import operand_specs, spec_of
from intarsia.providers.cpu.kernels.selection import topk_kernel as template

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference

_SERIAL_ELEMENTS = 4096


def top_k(node: Node, inference: Inference) -> Template | None:
    """TopK of any type that ONNX allows, along any axis; k may be known at run time only."""
    types = operand_specs(node, inference)
    x, first = types[0], next((n for n in node.outputs if n), "")
    out = spec_of(inference.types.get(first))
    if x is None or not x.shape or x.dtype not in template.DTYPES or out is None or not out.shape:
        return None
    axis = normal_axis(int(node.attributes.get("axis", -1)), len(x.shape))
    largest = bool(node.attributes.get("largest", 1))
    return TopK(node, (node.inputs[0],), types[:1], out, takes_epilogue=False, axis=axis, largest=largest)


@dataclass(frozen=True)
class TopK(Template):
    axis: int = field(kw_only=True)
    largest: bool = field(kw_only=True)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(n for n in self.node.outputs if n)

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        x, y, axis = self.operand(0), self.output.shape, self.axis
        values, indices = (*self.node.outputs, "")[:2]
        call = TopKCall(
            self.reads[0], values, indices, x.dtype, product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1 :]),
            y[axis], f"node {self.node.name!r} ({self.node.qualified_op})", axis,
        )  # fmt: skip
        return [
            Step(
                template.kernel_text(x.dtype, self.largest, target), (self.reads[0],), self.outputs, call,
                serial=Below(product(x.shape), _SERIAL_ELEMENTS), label=f"top k, axis {axis}",
            )
        ]  # fmt: skip


@dataclass(frozen=True)
class TopKCall(ScratchCall):
    """The `k` largest or smallest of `n` neighbours; `values` or `indices` are "" where they are not wanted. For messages:
    `where`, `axis`."""

    x: str
    values: str
    indices: str
    dtype: DType
    outer: Dim
    n: Dim
    inner: Dim
    k: Dim
    where: str
    axis: int

    @property
    def form(self) -> object:
        wanted = bool(self.values), bool(self.indices)
        return (*wanted, self.dtype, self.outer, self.n, self.inner, self.k, self.where, self.axis)

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        n, k = size(self.n), size(self.k)
        if not 0 <= k <= n:
            raise NodeFailed(f"{self.where}: k is {k}; expected 0 to the {n} elements of axis {self.axis}")
        return template.topk_args(
            self.dtype, outer=size(self.outer), n=n, inner=size(self.inner), k=k, x=Ref(self.x),
            values=Ref(self.values) if self.values else 0, indices=Ref(self.indices) if self.indices else 0,
            scratch=Ref(SCRATCH),
        )  # fmt: skip

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * template.scratch_nbytes(self.dtype, size(self.n), max(size(self.k), 0))
