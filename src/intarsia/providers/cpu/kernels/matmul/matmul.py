"""MatMul and Gemm, and the schedules that compute them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.ep.capability import Support
from intarsia.graph.dims import Dim, evaluate, is_static, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.pack_b import in_fewer_bits
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.panels import pack_matrix
from intarsia.providers.cpu.kernels.common.precision import stored_type, timed_for
from intarsia.providers.cpu.kernels.common.schedule import (
    Candidates,
    Constants,
    KernelRequest,
    LoweringEnv,
    Schedule,
    candidates,
    choose,
)
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import operand_specs, result_spec
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.matmul import gemm as gemm_schedules
from intarsia.providers.cpu.kernels.matmul.gemm import ConstantRows, Strassen
from intarsia.providers.cpu.kernels.matmul.in_16_bits import Bfloat16MatMulPacked, Bfloat16MatMulRows, Float16MatMul
from intarsia.providers.cpu.kernels.matmul.matmul_arguments import Batches, merged_batches
from intarsia.providers.cpu.kernels.matmul.packed_a import TILE_14X2, PackedA
from intarsia.providers.cpu.kernels.matmul_nbits.block_quant_kernel import BlockFormat

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference

_DTYPES = (DType.FLOAT, DType.DOUBLE)
_WIDENED_ROWS = 64  # for which weights that a model has in fewer bits are stored as float32, where widening them takes time
SCHEDULES: tuple[Schedule[MatMul], ...] = (
    Bfloat16MatMulRows("bfloat16-rows"),
    Bfloat16MatMulPacked("bfloat16-packed"),
    Float16MatMul("float16"),
    Strassen("strassen"),
    ConstantRows("constant-rows"),
    PackedA("packed-a"),
    PackedA("packed-a-14x2", TILE_14X2),
    gemm_schedules.Gemm("gemm"),
)  # in the order of preference; the last takes every product


def matmul(node: Node, inference: Inference) -> Template | None:
    """MatMul of float or double matrices with at most two batch axes once leading axes are merged."""
    types = operand_specs(node, inference)
    a, b = types[0], types[1]
    out = result_spec(node, inference)
    if a is None or b is None or out is None or a.dtype not in _DTYPES:
        return None
    if len(a.shape) < 2 or len(b.shape) < 2:
        return None
    made = MatMul(node, (node.inputs[0], node.inputs[1]), types, out)
    return made if made.batches() is not None else None


def gemm(node: Node, inference: Inference) -> Template | None:
    """Gemm with an untransposed A: a MatMul, with alpha, beta and C in the epilogue."""
    types = operand_specs(node, inference)
    a, b = types[0], types[1]
    out = result_spec(node, inference)
    if a is None or b is None or out is None or a.dtype not in _DTYPES or node.attributes.get("transA", 0):
        return None
    if len(a.shape) != 2 or len(b.shape) != 2:
        return None
    return Gemm(node, (node.inputs[0], node.inputs[1]), types, out)


@dataclass(frozen=True)
class MatMul(Template):
    """[..., M, K] x [..., K, N]; a constant second operand is packed into panels once."""

    alone: ClassVar[str] = "MatMul"

    @property
    def transposed(self) -> bool:
        """Whether the second operand is given as [N, K]."""
        return False

    def equal_sizes(self) -> list[tuple[Dim, Dim]]:
        a, b = self.operand(0), self.operand(1)
        return [(a.shape[-1], b.shape[-1 if self.transposed else -2])]

    def broadcast_sizes(self) -> list[tuple[Dim, Dim]]:
        a, b, out = self.operand(0), self.operand(1), self.output.shape
        return [p for x in (a.shape, b.shape) for p in zip(x[-3::-1], out[-3::-1], strict=False)]

    def batches(self) -> Batches | None:
        """The batch axes merged into two at most, or None if they do not fit."""
        a, b = self.operand(0), self.operand(1)
        if all(d == 1 for d in b.shape[:-2]):
            return Batches((1, 1), (0, 0), (0, 0), (0, 0), product(a.shape[:-1]))
        return merged_batches(a.shape[:-2], b.shape[:-2], a.shape[-2])

    @property
    def dtype(self) -> DType:
        """The element type of A."""
        return self.operand(0).dtype

    @property
    def weight_bits(self) -> float:
        """Bits of memory that a number of B takes."""
        return self.dtype.bits

    @property
    def depth(self) -> Dim:
        """K."""
        return self.operand(0).shape[-1]

    @property
    def columns(self) -> Dim:
        """N."""
        return self.operand(1).shape[-2 if self.transposed else -1]

    @cached_property
    def rows_and_batches(self) -> Batches:
        """M, and the batch axes."""
        found = self.batches()
        assert found is not None
        return found

    @property
    def is_single(self) -> bool:
        """Whether it is a product by one matrix."""
        return self.rows_and_batches.sizes == (1, 1)

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """K and N of a constant matrix."""
        b = self.operand(1)
        depth, columns = (evaluate(d, {}) for d in (b.shape[-2:][::-1] if self.transposed else b.shape[-2:]))
        return depth, columns

    def reads_floats(self) -> Support:
        """Whether A is stored as the kernels of floats read it; another step may store it as bfloat16 (`narrow`)."""
        return Support.no("its first operand is stored as bfloat16") if self.dtype is DType.BFLOAT16 else Support.yes()

    def schedule_table(self) -> tuple[Schedule[Any], ...]:
        return SCHEDULES

    def schedule_key(self, env: LoweringEnv) -> str | None:
        if not self.is_single or not env.constants.is_constant(self.reads[1]):
            return None
        sizes = self.rows_and_batches.rows, self.columns, self.depth
        if not is_static(sizes):
            return None
        return " ".join(("gemm", *timed_for(self.dtype, env.options_of(self), env.target), "x".join(map(str, sizes))))

    def candidates(self, env: LoweringEnv) -> Candidates | None:
        return candidates(self, env)

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        request = KernelRequest(target, workspace, epilogue, tuple(operands), out)
        return choose(self, request.env).steps(self, request)

    def rounds(self, target: Target, workspace: Workspace) -> tuple[str, ...]:
        if self.dtype is not DType.FLOAT:
            return ()
        env = LoweringEnv(target, workspace.options, workspace, workspace.choices)
        return self.reads[:1] if choose(self, env).rounds(self, env) else ()

    def matrix(self, constants: Constants) -> tuple[np.ndarray, Hashable]:
        """The second operand, a constant, as [K, N], and its view (`Packing`)."""
        weights = constants.array(self.reads[1])
        assert weights is not None, self.reads[1]
        # a definition may read the constant under another shape
        rows, columns = (evaluate(d, {}) for d in self.operand(1).shape[-2:])
        matrix = weights.reshape(rows, columns)
        return matrix.T if self.transposed else matrix, (rows, columns, self.transposed)

    def right(
        self, workspace: Workspace, single: bool, tile: Tile, target: Target
    ) -> tuple[str, str, BlockFormat | None, DType | None]:
        """The second operand's buffer, layout, and the type it is stored in where that is not its own; packed if it is a
        constant matrix (`single`: no batch axes)."""
        a, name = self.operand(0), self.reads[1]
        if not single or not workspace.is_constant(name):
            return name, "columns" if self.transposed else "rows", None, None
        matrix, view = self.matrix(workspace)
        rows = math.prod(d for d in a.shape[:-1] if isinstance(d, int))
        own = workspace.original_type(name) if target.halves_vectors or rows < _WIDENED_ROWS else None
        stored = stored_type(workspace.options, target, own) if a.dtype is DType.FLOAT else None
        narrow = in_fewer_bits(matrix, stored) if stored is not None else None
        if narrow is not None:
            assert stored is not None
            packing = Packing(Layout.PANELS, tile.width, stored, view)
            return workspace.add(name, packing, lambda: pack_matrix(narrow, tile)), "packed", None, stored
        packing = Packing(Layout.PANELS, tile.width, a.dtype, view)
        packed = workspace.add(name, packing, lambda: pack_matrix(matrix.astype(a.dtype.numpy, copy=False), tile))
        return packed, "packed", None, None


@dataclass(frozen=True)
class Gemm(MatMul):
    """alpha A B + beta C."""

    alone: ClassVar[str] = "Gemm"

    @property
    def transposed(self) -> bool:
        return bool(self.node.attributes.get("transB", 0))

    def result(self, acc: Tensor) -> Tensor:
        alpha, beta = self.node.attributes.get("alpha", 1.0), self.node.attributes.get("beta", 1.0)
        out = acc if alpha == 1 else acc * alpha
        if len(self.types) < 3 or self.types[2] is None or beta == 0:
            return out
        c = k.input(self.node.inputs[2], self.types[2].dtype, self.types[2].shape)
        return out + (c if beta == 1 else c * beta)


@dataclass(frozen=True)
class TransposedMatMul(MatMul):
    """[..., M, K] x [..., N, K]."""

    alone: ClassVar[str] = ""

    @property
    def transposed(self) -> bool:
        return True
