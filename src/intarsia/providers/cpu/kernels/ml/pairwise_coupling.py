"""PairProbabilities by a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference
from intarsia.plan.step import SCRATCH, Argument, Below, Ref, ScratchCall, Sizes, Step
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import operand_specs, result_spec
from intarsia.providers.cpu.kernels.ml import pairwise_coupling_kernel as template

_SERIAL_WORK = 2048  # rows by the square of classes, of which a round is a few operations each


def pair_probabilities(node: Node, inference: Inference) -> Template | None:
    """PairProbabilities of scores whose number of columns fits the classes."""
    types, classes = operand_specs(node, inference), int(node.attributes["classes"])
    out, pairs = result_spec(node, inference), classes * (classes - 1) // 2
    raw, *tables = types
    if raw is None or len(raw.shape) != 2 or raw.shape[1] != pairs or out is None:
        return None
    if any(t is None or t.dtype is not DType.DOUBLE for t in types) or any(t is None or t.shape != (pairs,) for t in tables):
        return None
    return PairProbabilities(node, tuple(node.inputs), types, out, takes_epilogue=False, rows=raw.shape[0], classes=classes)


@dataclass(frozen=True)
class PairProbabilities(Template):
    rows: Dim = field(kw_only=True)
    classes: int = field(kw_only=True)

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        call = PairsCall((*self.reads, out), self.rows, self.classes, template.scratch_nbytes(self.classes, target))
        serial = Below(self.rows, max(1, _SERIAL_WORK // self.classes**2))
        return [Step(template.kernel_text(target), self.reads, (out,), call, serial=serial, label="probabilities of pairs")]


@dataclass(frozen=True)
class PairsCall(ScratchCall):
    """A thread has `thread_nbytes` of scratch memory."""

    buffers: tuple[str, ...]
    rows: Dim
    classes: int
    thread_nbytes: int

    @property
    def form(self) -> object:
        return self.rows, self.classes, self.thread_nbytes

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return [*map(Ref, self.buffers), Ref(SCRATCH), size(self.rows), self.classes]

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * self.thread_nbytes
