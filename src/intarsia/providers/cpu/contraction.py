"""MatMul and Gemm as calls of the packed GEMM kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia.codegen import gemm as template
from intarsia.codegen.epilogue import Epilogue
from intarsia.codegen.finish import itemsize
from intarsia.codegen.microkernel import micro_address, tile_of
from intarsia.codegen.pack import pack_matrix
from intarsia.codegen.target import Target
from intarsia.graph.dims import Dim, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.kernel import lang as k
from intarsia.kernel.lang import Tensor
from intarsia.ops.infer import Inference
from intarsia.plan.step import SCRATCH, Ref, Sizes, Step
from intarsia.providers.cpu.template import FusedOperand, Template, Workspace, tensor_types

_DTYPES = (DType.FLOAT, DType.DOUBLE)
_SERIAL_PRODUCTS = 100_000  # below this a second thread costs more than it saves


def matmul(node: Node, inference: Inference) -> Template | None:
    """MatMul of float or double matrices with at most two batch axes once leading axes are merged."""
    types = tensor_types(node, inference)
    a, b = types[0], types[1]
    out = inference.types.get(node.outputs[0])
    if a is None or b is None or not isinstance(out, TensorType) or a.dtype not in _DTYPES or out.shape is None:
        return None
    if a.shape is None or b.shape is None or len(a.shape) < 2 or len(b.shape) < 2:
        return None
    made = MatMul(node, (node.inputs[0], node.inputs[1]), types, out)
    return made if made.batches() is not None else None


def gemm(node: Node, inference: Inference) -> Template | None:
    """Gemm with an untransposed A: a MatMul, with alpha, beta and C in the epilogue."""
    types = tensor_types(node, inference)
    a, b = types[0], types[1]
    out = inference.types.get(node.outputs[0])
    if a is None or b is None or not isinstance(out, TensorType) or a.dtype not in _DTYPES or node.attributes.get("transA", 0):
        return None
    if a.shape is None or b.shape is None or len(a.shape) != 2 or len(b.shape) != 2:
        return None
    return Gemm(node, (node.inputs[0], node.inputs[1]), types, out)


class MatMul(Template):
    """[..., M, K] x [..., K, N]; a constant second operand is packed into panels once."""

    @property
    def transposed(self) -> bool:
        """Whether the second operand is given as [N, K]."""
        return False

    def batches(self) -> tuple[tuple[Dim, Dim], tuple[int, int], tuple[int, int], Dim] | None:
        """((batch0, batch1), A's batch strides in matrices, B's, rows M), or None if the batch axes do not fit two."""
        a, b = self.types[0], self.types[1]
        assert a is not None and b is not None and a.shape is not None and b.shape is not None
        if all(d == 1 for d in b.shape[:-2]):
            return (1, 1), (0, 0), (0, 0), product(a.shape[:-1])
        lead_a, lead_b = a.shape[:-2], b.shape[:-2]
        rank = max(len(lead_a), len(lead_b))
        lead_a, lead_b = (1,) * (rank - len(lead_a)) + lead_a, (1,) * (rank - len(lead_b)) + lead_b
        if lead_a == lead_b:
            return (1, product(lead_a)), (0, 1), (0, 1), a.shape[-2]
        return None

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        a, b = self.types[0], self.types[1]
        found = self.batches()
        assert a is not None and b is not None and a.shape is not None and b.shape is not None and found is not None
        batch, a_batch, b_batch, rows = found
        tile = tile_of(a.dtype, target)
        weights = workspace.array(self.reads[1]) if batch == (1, 1) else None
        right = self.reads[1]
        if weights is not None:
            matrix = weights.reshape(weights.shape[-2:])
            matrix = matrix.T if self.transposed else matrix
            right = workspace.add(right, f"panels{tile.width}{'t' * self.transposed}", lambda: pack_matrix(matrix, tile))
        zero = workspace.add("", "taps", lambda: np.zeros(1, np.int64))
        layout = "columns" if self.transposed else "rows"
        spec = template.GemmSpec(a.dtype, "packed" if weights is not None else layout, epilogue)
        m, depth, n = rows, a.shape[-1], b.shape[-2 if self.transposed else -1]
        item = itemsize(a.dtype)
        out_item = itemsize(epilogue.dtype) if epilogue else item

        def arguments(size: Sizes, threads: int) -> Sequence[Ref | int]:
            mm, kk, nn = size(m), size(depth), size(n)
            strides = (mm * kk * item, kk * nn * item, mm * nn * out_item)
            return template.matrix_args(
                spec, target, micro=micro_address(a.dtype, target), a=Ref(self.reads[0]), b=Ref(right), c=Ref(out),  # type: ignore[arg-type]
                m=mm, n=nn, k=kk, batch=(size(batch[0]), size(batch[1])),
                a_batch=(0, a_batch[1] * strides[0]), b_batch=(0, b_batch[1] * strides[1]), c_batch=(0, strides[2]),
                operands=[_operand(o, nn, strides[2], itemsize(o.dtype)) for o in operands],
                scratch=Ref(SCRATCH), taps=Ref(zero),  # type: ignore[arg-type]
            )  # fmt: skip

        reads = (self.reads[0], right, zero, *(o.name for o in operands))
        return [
            Step(
                template.kernel_text(spec, target), reads, (out,), arguments,
                scratch_nbytes=lambda size, threads: threads * template.scratch_nbytes(spec, target, size(depth)),
                serial=lambda size: size(m) * size(n) * size(depth) * size(batch[1]) < _SERIAL_PRODUCTS,
                label=f"gemm {m}x{n}x{depth}",
            )
        ]  # fmt: skip


class Gemm(MatMul):
    """alpha A B + beta C."""

    @property
    def transposed(self) -> bool:
        return bool(self.node.attributes.get("transB", 0))

    def result(self, acc: Tensor) -> Tensor:
        alpha, beta = self.node.attributes.get("alpha", 1.0), self.node.attributes.get("beta", 1.0)
        out = acc if alpha == 1 else acc * alpha
        if len(self.types) < 3 or self.types[2] is None or beta == 0:
            return out
        c = k.input(self.node.inputs[2], self.types[2].dtype, self.types[2].shape or ())  # type: ignore[arg-type]
        return out + (c if beta == 1 else c * beta)


def _operand(o: FusedOperand, n: int, c_batch: int, item: int) -> template.Operand:
    if o.kind == "full":
        return template.Operand(Ref(o.name), row=n * item, batch1=c_batch)  # type: ignore[arg-type]
    return template.Operand(Ref(o.name))  # type: ignore[arg-type]
