"""Tree ensembles by a kernel: packed when the model is compiled (`decompose_classical.py`), descended natively."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.codegen.llvm.target import Target
from intarsia.errors import NodeFailed
from intarsia.graph.dims import Dim, numbers_of
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference
from intarsia.ops.ml.native import check_features
from intarsia.plan.step import ALWAYS, SCRATCH, Argument, Below, KernelCall, Ref, ScratchCall, Sizes, Step
from intarsia.primitives import lang as k
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import operand_specs, result_spec
from intarsia.providers.cpu.kernels.ml import trees_kernel as template

_SERIAL_STEPS = 8192  # below so many nodes passed, other threads are not woken
_SCRATCH_NBYTES = 1 << 17  # keys and sums of a block of rows
_MAX_BLOCK = 512
_SHARES = 4  # blocks per thread, so that none waits long for another
_PARTIAL = 4096  # sums of chunks of a forest that lie side by side


def tree_sums(node: Node, inference: Inference) -> Template | None:
    """TreeSums of float or double."""
    types = operand_specs(node, inference)
    out = result_spec(node, inference)
    if None in types or out is None:
        return None
    return TreeSums(node, tuple(node.inputs), types, out, takes_epilogue=False)


@dataclass(frozen=True)
class TreeSums(Template):
    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        attributes, call = self.node.attributes, self._call(out)
        form = template.Form(call.dtype, attributes["votes"], self.operand(4).dtype, attributes["aggregate"])
        writes: tuple[str, ...] = (out,)
        if call.chunks > 1:
            writes = (out, workspace.temporary(call.partial, DType.DOUBLE, (_PARTIAL,)))
        steps = [
            Step(
                template.kernel_text(form, target), self.reads, writes, call, serial=call.serial, label="trees",
                chosen=self.reads,
            )
        ]  # fmt: skip
        if call.chunks > 1:
            combine = template.combine_text(attributes["aggregate"], target)
            steps.append(Step(combine, writes, (out,), CombineCall(call), serial=ALWAYS, label="trees, parts together"))
        return steps

    def _ints(self, i: int) -> tuple[int, ...]:
        """The shape of a constant."""
        return numbers_of(self.operand(i).shape)

    def _call(self, out: str) -> TreesCall:
        x, attributes = self.operand(0), self.node.attributes
        return TreesCall(
            self.reads, out, f"{out}%parts", x.shape[0] if len(x.shape) == 2 else 1, x.shape[-1], x.dtype, self._ints(2)[0],
            int(attributes["scores"]), self._ints(3)[0], int(attributes["steps"]), int(attributes["features"]),
            f"node {self.node.name!r} ({self.node.qualified_op})",
        )  # fmt: skip


@dataclass(frozen=True)
class TreesCall(ScratchCall):
    """The descent of all rows through all trees.

    Attributes:
        reads: x, nodes, trees, columns, weights, first, targets.
        partial: sums of chunks of the forest, where rows alone do not keep the threads busy.
        rows: of x; `have`: features that a row has.
        steps: nodes that a row passes, `features`: that the trees read.
        where: the node, for messages.
    """

    reads: tuple[str, ...]
    y: str
    partial: str
    rows: Dim
    have: Dim
    dtype: DType
    trees: int
    scores: int
    columns: int
    steps: int
    features: int
    where: str

    @property
    def form(self) -> object:
        known = (self.dtype, self.trees, self.scores, self.columns, self.steps, self.features, self.where)
        return (self.rows, self.have, *known)

    @property
    def chunks(self) -> int:
        return max(1, -(-self.trees // template.CHUNK))

    @property
    def serial(self) -> Below:
        return Below(self.rows * self.steps, _SERIAL_STEPS)

    def parts(self, size: Sizes, threads: int) -> int:
        """1, or the number of chunks of trees where rows alone do not keep the threads busy."""
        rows = size(self.rows)
        few = rows < threads * template.LANES and self.chunks * rows * self.scores <= _PARTIAL
        return self.chunks if threads > 1 and few and not self.serial(size) else 1

    def _block(self, size: Sizes, threads: int) -> int:
        """Rows whose keys and sums fit the cache, and that leave every thread something to do."""
        row_nbytes = self.columns * self.dtype.bits // 8 + self.scores * 8
        share = -(-size(self.rows) // (1 if self.serial(size) else _SHARES * threads))
        rows = max(1, min(_SCRATCH_NBYTES // max(row_nbytes, 1), _MAX_BLOCK, share))
        return -(-rows // template.LANES) * template.LANES

    def _scratch(self, size: Sizes, threads: int) -> tuple[int, int]:
        return template.scratch_places(self.dtype, self.columns, self.scores, self._block(size, threads))

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * self._scratch(size, threads)[1]

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        have = size(self.have)
        try:
            check_features(have, self.features)
        except k.DefinitionError as error:
            raise NodeFailed(f"{self.where}: {error}") from None
        parts, (accumulators, stride) = self.parts(size, threads), self._scratch(size, threads)
        return [
            *map(Ref, self.reads), Ref(self.y if parts == 1 else self.partial), Ref(SCRATCH), size(self.rows),
            have * self.dtype.bits // 8, self.trees, self.scores, self.columns, self._block(size, threads), parts, stride,
            accumulators,
        ]  # fmt: skip


@dataclass(frozen=True)
class CombineCall(KernelCall):
    """Adds up the sums of the forest's chunks."""

    trees: TreesCall

    @property
    def form(self) -> object:
        return self.trees.form

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        trees = self.trees
        return [Ref(trees.partial), Ref(trees.y), size(trees.rows) * trees.scores, trees.parts(size, threads)]
