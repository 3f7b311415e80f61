"""Det and Inverse of float32 or float64 by kernels."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, product, symbols_of
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference
from intarsia.plan.step import SCRATCH, STATUS, Argument, Below, Ref, ScratchCall, Sizes, Step
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import operand_specs, result_spec
from intarsia.providers.cpu.kernels.linalg import determinant_kernel as template
from intarsia.providers.cpu.kernels.linalg import inverse_kernel

_SERIAL_ELEMENTS = 4096


def det(node: Node, inference: Inference) -> Template | None:
    """Det of square matrices [*, M, M]; where sizes are symbols, they are checked once they are known."""
    (x,) = operand_specs(node, inference)
    out = result_spec(node, inference)
    if x is None or len(x.shape) < 2 or x.dtype not in template.DTYPES or out is None:
        return None
    return Det(node, (node.inputs[0],), (x,), out, takes_epilogue=False)


def inverse(node: Node, inference: Inference) -> Template | None:
    """com.microsoft::Inverse of square matrices [*, M, M]."""
    made = det(node, inference)
    if made is None:
        return None
    rows, columns = made.operand(0).shape[-2:]
    if rows != columns and not symbols_of(columns - rows):
        return None
    return Inverse(node, made.reads, made.types, made.output, takes_epilogue=False)


@dataclass(frozen=True)
class _Square(Template):
    """A template for square matrices."""

    @property
    def _shape(self) -> tuple[Dim, ...]:
        return self.operand(0).shape

    def equal_sizes(self) -> Sequence[tuple[Dim, Dim]]:
        return [(self._shape[-2], self._shape[-1])]

    def _call(self, out: str, row_nbytes: Dim, *more: Ref) -> SquareCall:
        shape = self._shape
        return SquareCall(self.reads[0], out, product(shape[:-2]), shape[-1], row_nbytes, more)


@dataclass(frozen=True)
class SquareCall(ScratchCall):
    """Matrices of size [size, size]; a thread has `thread_nbytes` of scratch memory."""

    x: str
    y: str
    matrices: Dim
    size: Dim
    thread_nbytes: Dim
    more: tuple[Ref, ...] = ()

    @property
    def form(self) -> object:
        return self.matrices, self.size, self.thread_nbytes, len(self.more)

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return [Ref(self.x), Ref(self.y), size(self.matrices), size(self.size), Ref(SCRATCH), *self.more]

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * size(self.thread_nbytes)


@dataclass(frozen=True)
class Det(_Square):
    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        x, n = self.operand(0), self._shape[-1]
        return [
            Step(
                template.kernel_text(x.dtype, target), self.reads, (out,), self._call(out, n * n * (x.dtype.bits // 8)),
                serial=Below(product(self._shape), _SERIAL_ELEMENTS), label="det",
            )
        ]  # fmt: skip


@dataclass(frozen=True)
class Inverse(_Square):
    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        x, call = self.operand(0), self._call(out, self._shape[-1] * 8, Ref(STATUS))
        return [
            Step(
                inverse_kernel.kernel_text(x.dtype, target), self.reads, (out,), call,
                serial=Below(product(self._shape), _SERIAL_ELEMENTS // 16), label="inverse", checked=True,
            )
        ]  # fmt: skip
