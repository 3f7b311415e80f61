"""Tree ensembles by a kernel: packed when the model is compiled (`decompose_classical.py`), descended natively."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.codegen.llvm.target import Target
from intarsia.errors import NodeFailed
from intarsia.graph.dims import numbers_of
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference
from intarsia.ops.ml.native import check_features
from intarsia.plan.step import SCRATCH, Argument, Ref, Sizes, Step
from intarsia.primitives import lang as k
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace, tensor_types
from intarsia.providers.cpu.kernels.ml import trees_kernel as template

_SERIAL_STEPS = 8192  # below so many nodes passed, other threads are not woken
_SCRATCH_NBYTES = 1 << 17  # keys and sums of a block of rows
_MAX_BLOCK = 512
_SHARES = 4  # blocks per thread, so that none waits long for another
_PARTIAL = 4096  # sums of parts of a forest that are kept side by side


def tree_sums(node: Node, inference: Inference) -> Template | None:
    """TreeSums of float or double."""
    types = tensor_types(node, inference)
    out = inference.types.get(node.outputs[0])
    if any(t is None or t.shape is None for t in types) or not isinstance(out, TensorType) or out.shape is None:
        return None
    return TreeSums(node, tuple(node.inputs), types, out, takes_epilogue=False)


@dataclass(frozen=True)
class TreeSums(Template):
    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        attributes, parts = self.node.attributes, self._chunks()
        form = template.Form(self._type(0).dtype, attributes["votes"], self._type(4).dtype, attributes["aggregate"])
        writes: tuple[str, ...] = (out,)
        if parts > 1:
            writes = (out, workspace.temporary(self._partial, DType.DOUBLE, (_PARTIAL,)))
        steps = [
            Step(
                template.kernel_text(form, target), self.reads, writes, self._arguments, scratch_nbytes=self._scratch_nbytes,
                serial=self._serial, label="trees", chosen=self.reads,
            )
        ]  # fmt: skip
        if parts > 1:
            combine = template.combine_text(attributes["aggregate"], target)
            steps.append(Step(combine, writes, (out,), self._combine_arguments, serial=_always, label="trees, parts together"))
        return steps

    def _type(self, i: int) -> TensorType:
        kind = self.types[i]
        assert kind is not None
        return kind

    @property
    def _partial(self) -> str:
        return f"{self.outputs[0]}%parts"

    def _ints(self, i: int) -> tuple[int, ...]:
        """The shape of a constant."""
        return numbers_of(self._type(i).shape or ())

    def _trees(self) -> int:
        return self._ints(2)[0]

    def _chunks(self) -> int:
        return max(1, -(-self._trees() // template.CHUNK))

    def _rows(self, size: Sizes) -> int:
        shape = self._type(0).shape or ()
        return size(shape[0]) if len(shape) == 2 else 1

    def _serial(self, size: Sizes) -> bool:
        return self._rows(size) * int(self.node.attributes["steps"]) < _SERIAL_STEPS

    def _parts(self, size: Sizes, threads: int) -> int:
        """1, or the number of chunks of trees where rows alone do not keep the threads busy."""
        rows, chunks = self._rows(size), self._chunks()
        few = rows < threads * template.LANES and chunks * rows * int(self.node.attributes["scores"]) <= _PARTIAL
        return chunks if threads > 1 and few and not self._serial(size) else 1

    def _block(self, size: Sizes, threads: int) -> int:
        """Rows whose keys and sums fit the cache, and that leave every thread something to do."""
        scores, columns = int(self.node.attributes["scores"]), self._ints(3)[0]
        row_nbytes = columns * self._type(0).dtype.bits // 8 + scores * 8
        share = -(-self._rows(size) // (1 if self._serial(size) else _SHARES * threads))
        rows = max(1, min(_SCRATCH_NBYTES // max(row_nbytes, 1), _MAX_BLOCK, share))
        return -(-rows // template.LANES) * template.LANES

    def _scratch(self, size: Sizes, threads: int) -> tuple[int, int]:
        scores = int(self.node.attributes["scores"])
        return template.scratch_places(self._type(0).dtype, self._ints(3)[0], scores, self._block(size, threads))

    def _scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * self._scratch(size, threads)[1]

    def _arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        attributes, x = self.node.attributes, self._type(0)
        assert x.shape is not None
        have = size(x.shape[-1])
        try:
            check_features(have, int(attributes["features"]))
        except k.DefinitionError as error:
            raise NodeFailed(f"node {self.node.name!r} ({self.node.qualified_op}): {error}") from None
        parts, (accumulators, stride) = self._parts(size, threads), self._scratch(size, threads)
        data, nodes, trees, columns, weights, first, targets = (Ref(name) for name in self.reads)
        return [
            data, nodes, trees, columns, weights, first, targets, Ref(self.outputs[0] if parts == 1 else self._partial),
            Ref(SCRATCH), self._rows(size), have * x.dtype.bits // 8, self._trees(), int(attributes["scores"]),
            self._ints(3)[0], self._block(size, threads), parts, stride, accumulators,
        ]  # fmt: skip

    def _combine_arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        count = self._rows(size) * int(self.node.attributes["scores"])
        return [Ref(self._partial), Ref(self.outputs[0]), count, self._parts(size, threads)]


def _always(size: Sizes) -> bool:
    return True
