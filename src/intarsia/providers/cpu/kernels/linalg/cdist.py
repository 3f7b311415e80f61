"""CDist by Euclidean distance by a kernel; other metrics by their definition."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference
from intarsia.plan.step import SCRATCH, Argument, Below, Ref, ScratchCall, Sizes, Step
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import operand_specs, result_spec
from intarsia.providers.cpu.kernels.linalg import cdist_kernel as template

_SERIAL_DIFFERENCES = 50_000


def cdist(node: Node, inference: Inference) -> Template | None:
    """CDist of float or double, metric euclidean or sqeuclidean."""
    types = operand_specs(node, inference)
    a, b = types[:2]
    out = result_spec(node, inference)
    if a is None or b is None or a.dtype is not b.dtype or out is None:
        return None
    if a.dtype not in template.DTYPES or len(a.shape) != 2 or len(b.shape) != 2:
        return None
    if node.attributes.get("metric", "sqeuclidean") not in ("euclidean", "sqeuclidean"):
        return None
    if isinstance(a.shape[1], int) and isinstance(b.shape[1], int) and a.shape[1] != b.shape[1]:
        return None
    return Distances(node, (node.inputs[0], node.inputs[1]), types, out, takes_epilogue=False)


@dataclass(frozen=True)
class Distances(Template):
    @property
    def _shapes(self) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
        return self.operand(0).shape, self.operand(1).shape

    @property
    def _dtype(self) -> DType:
        return self.operand(0).dtype

    def equal_sizes(self) -> Sequence[tuple[Dim, Dim]]:
        a, b = self._shapes
        return [(a[1], b[1])]

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        a, b = self._shapes
        root = self.node.attributes.get("metric", "sqeuclidean") == "euclidean"
        call = DistancesCall((*self.reads, out), a[0], b[0], a[1], self._dtype, target)
        return [
            Step(
                template.kernel_text(self._dtype, root, target), self.reads, (out,), call,
                serial=Below(product((*a, b[0])), _SERIAL_DIFFERENCES), label="distances",
            )
        ]  # fmt: skip


@dataclass(frozen=True)
class DistancesCall(ScratchCall):
    """`buffers`: a [m, features], b [n, features], and the distances [m, n]."""

    buffers: tuple[str, ...]
    m: Dim
    n: Dim
    features: Dim
    dtype: DType
    target: Target

    @property
    def form(self) -> object:
        return self.m, self.n, self.features, self.dtype, self.target

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return [*(Ref(n) for n in self.buffers), Ref(SCRATCH), size(self.m), size(self.n), size(self.features)]

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * template.scratch_nbytes(size(self.features), self.dtype, self.target)
