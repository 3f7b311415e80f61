"""MatMul and Gemm as calls of the packed GEMM kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class MatMul(Template):
    """[..., M, K] x [..., K, N]; a constant second operand is packed into panels once."""

    @property
    def transposed(self) -> bool:
        """Whether the second operand is given as [N, K]."""
        return False

    def equal_sizes(self) -> list[tuple[Dim, Dim]]:
        a, b = self.types[0], self.types[1]
        assert a is not None and b is not None and a.shape is not None and b.shape is not None
        return [(a.shape[-1], b.shape[-1 if self.transposed else -2])]

    def batches(self) -> Batches | None:
        """The batch axes merged into two at most, or None if they do not fit."""
        a, b = self.types[0], self.types[1]
        assert a is not None and b is not None and a.shape is not None and b.shape is not None
        if all(d == 1 for d in b.shape[:-2]):
            return Batches((1, 1), (0, 0), (0, 0), (0, 0), product(a.shape[:-1]))
        return merged_batches(a.shape[:-2], b.shape[:-2], a.shape[-2])

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        a, b = self.types[0], self.types[1]
        found = self.batches()
        assert a is not None and b is not None and a.shape is not None and b.shape is not None and found is not None
        batch, rows = found.sizes, found.rows
        tile = tile_of(a.dtype, target)
        weights = workspace.array(self.reads[1]) if batch == (1, 1) else None
        right = self.reads[1]
        if weights is not None:
            matrix = weights.reshape(weights.shape[-2:])
            matrix = matrix.T if self.transposed else matrix
            key = f"panels{tile.width}{'t' * self.transposed}{tile.itemsize}"
            right = workspace.add(right, key, lambda: pack_matrix(matrix.astype(a.dtype.numpy, copy=False), tile))
        zero = workspace.add("", "taps", lambda: np.zeros(1, np.int64))
        layout = "columns" if self.transposed else "rows"
        spec = template.GemmSpec(a.dtype, "packed" if weights is not None else layout, epilogue)
        m, depth, n = rows, a.shape[-1], b.shape[-2 if self.transposed else -1]
        item = itemsize(a.dtype)
        out_item = itemsize(epilogue.dtype) if epilogue else item

        def arguments(size: Sizes, threads: int) -> Sequence[Ref | int]:
            mm, kk, nn = size(m), size(depth), size(n)
            of_a, of_b, of_c = mm * kk * item, kk * nn * item, mm * nn * out_item
            c_batch = (size(found.c[0]) * of_c, size(found.c[1]) * of_c)
            return template.matrix_args(
                spec, target, micro=micro_address(a.dtype, target), a=Ref(self.reads[0]), b=Ref(right), c=Ref(out),  # type: ignore[arg-type]
                m=mm, n=nn, k=kk, batch=(size(batch[0]), size(batch[1])),
                a_batch=(size(found.a[0]) * of_a, size(found.a[1]) * of_a),
                b_batch=(size(found.b[0]) * of_b, size(found.b[1]) * of_b), c_batch=c_batch,
                operands=[_operand(o, nn, itemsize(o.dtype), out_item, c_batch) for o in operands],
                scratch=Ref(SCRATCH), taps=Ref(zero),  # type: ignore[arg-type]
            )  # fmt: skip

        reads = (self.reads[0], right, zero, *(o.name for o in operands))
        return [
            Step(
                template.kernel_text(spec, target), reads, (out,), arguments,
                scratch_nbytes=lambda size, threads: threads * template.scratch_nbytes(spec, target, size(depth)),
                serial=lambda size: size(m) * size(n) * size(depth) * size(batch[0]) * size(batch[1]) < _SERIAL_PRODUCTS,
                label=f"gemm {m}x{n}x{depth}",
            )
        ]  # fmt: skip


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class TransposedMatMul(MatMul):
    """[..., M, K] x [..., N, K]."""

    @property
    def transposed(self) -> bool:
        return True


@dataclass(frozen=True)
class Batches:
    """Two batch axes: their sizes, and the distance of neighbours in A, B and C, in matrices (0: the same one again)."""

    sizes: tuple[Dim, Dim]
    a: tuple[Dim, Dim]
    b: tuple[Dim, Dim]
    c: tuple[Dim, Dim]
    rows: Dim


def merged_batches(lead_a: tuple[Dim, ...], lead_b: tuple[Dim, ...], rows: Dim) -> Batches | None:
    """Leading axes that broadcast against each other, merged where neighbours belong to the same operands."""
    rank = max(len(lead_a), len(lead_b))
    lead_a, lead_b = (1,) * (rank - len(lead_a)) + lead_a, (1,) * (rank - len(lead_b)) + lead_b
    merged: list[tuple[tuple[bool, bool], Dim]] = []
    for x, y in zip(lead_a, lead_b, strict=True):
        if x != y and x != 1 and y != 1:
            return None
        if x == y == 1:
            continue
        owners, size = (x != 1, y != 1), x if x != 1 else y
        if merged and merged[-1][0] == owners:
            merged[-1] = (owners, merged[-1][1] * size)
        else:
            merged.append((owners, size))
    if len(merged) > 2:
        return None
    axes = [((False, False), 1)] * (2 - len(merged)) + merged
    (outer, n0), (inner, n1) = axes

    def distances(owner: int) -> tuple[Dim, Dim]:
        within: Dim = n1 if inner[owner] else 1
        return (within if outer[owner] else 0, 1 if inner[owner] else 0)

    return Batches((n0, n1), distances(0), distances(1), (n1, 1), rows)


def _operand(o: FusedOperand, n: int, item: int, out_item: int, c_batch: tuple[int, int]) -> template.Operand:
    if o.kind == "full":
        scale = (c_batch[0] // out_item * item, c_batch[1] // out_item * item)
        return template.Operand(Ref(o.name), row=n * item, batch0=scale[0], batch1=scale[1])  # type: ignore[arg-type]
    return template.Operand(Ref(o.name))  # type: ignore[arg-type]
