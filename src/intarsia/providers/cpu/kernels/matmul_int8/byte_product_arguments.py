"""The arguments of the kernels of products of bytes, once their sizes are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import SCRATCH, Argument, Code, KernelCall, Ref, Sizes
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Role
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape
from intarsia.providers.cpu.kernels.matmul import gemm_arguments
from intarsia.providers.cpu.kernels.matmul.matmul_arguments import Batches
from intarsia.providers.cpu.kernels.matmul.matmul_steps import fused_operand
from intarsia.providers.cpu.kernels.matmul_int8 import widened_int16
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import SUMS, last_group
from intarsia.providers.cpu.kernels.matmul_int8.pack_int8 import byte_pack_args, byte_packed_nbytes, pack_bytes


@dataclass(frozen=True)
class ByteProductCall(KernelCall):
    """The arguments of one call of the kernel. No `b`: a column of ones.

    Attributes:
        panel_nbytes: of B's panels, where these do not follow from K (`saturation_free_order`).
        few: the micro-kernel for few rows, where that is another.
    """

    spec: gemm_arguments.GemmSpec
    target: Target
    micro: str
    a: str
    b: str | None
    c: str
    m: Dim
    k: Dim
    n: Dim
    batches: Batches
    operands: tuple[FusedOperand, ...]
    tile: Tile
    panel_nbytes: int = 0
    few: str = ""

    @property
    def form(self) -> object:
        operands = tuple([(o.role, o.kind, o.dtype) for o in self.operands])
        return (
            self.spec, self.target, self.micro, self.few, self.b is None, self.m, self.k, self.n, self.batches, operands,
            self.tile, self.panel_nbytes,
        )  # fmt: skip

    @property
    def has_scratch(self) -> bool:
        """Where panels of B are widened."""
        return bool(self.spec.in_words)

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * gemm_arguments.scratch_nbytes(self.spec, self.target, self.spec.steps(size(self.k)))

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        m, k, n, batches = size(self.m), size(self.k), size(self.n), self.batches
        out_item = itemsize(self.spec.epilogue.dtype if self.spec.epilogue else SUMS)
        of_a, of_b, of_c = m * k, byte_packed_nbytes(k, n, self.tile), m * n * out_item
        c_batch = (size(batches.c[0]) * of_c, size(batches.c[1]) * of_c)
        b_batch = (size(batches.b[0]), size(batches.b[1])) if self.b is not None else (0, 0)
        b = Ref(self.b) if self.b else pack_bytes(np.ones((1, k, 1), np.int8), self.tile)
        micro = Code(self.few if self.few and not gemm_arguments.many_rows(m, self.tile) else self.micro)
        return gemm_arguments.matrix_args(
            self.spec, self.target, micro=micro, a=Ref(self.a), b=b, c=Ref(self.c),
            m=m, n=n, k=k, batch=(size(batches.sizes[0]), size(batches.sizes[1])),
            a_batch=(size(batches.a[0]) * of_a, size(batches.a[1]) * of_a), b_batch=(b_batch[0] * of_b, b_batch[1] * of_b),
            c_batch=c_batch, operands=[_operand(o, n, k, out_item, c_batch, b_batch) for o in self.operands],
            taps=np.array([0, last_group(k)], np.int64), scratch=Ref(SCRATCH) if self.spec.in_words else 0,
            panel_nbytes=self.panel_nbytes,
        )  # fmt: skip


@dataclass(frozen=True)
class WidenCall(KernelCall):
    """Writes A [rows, depth] less its zero point (in the buffer `zero`) as int16."""

    a: str
    words: str
    zero: str
    rows: Dim
    depth: Dim

    @property
    def form(self) -> object:
        return self.rows, self.depth

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape = ConvShape(1, (size(self.rows), 1), size(self.depth), 1, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0))
        return widened_int16.widen_args(shape, Ref(self.a), Ref(self.words), Ref(self.zero))


@dataclass(frozen=True)
class PackBytesCall(KernelCall):
    """Packs `count` matrices B [k, n] into panels, and sums their columns."""

    b: str
    packed: str
    sums: str
    k: Dim
    n: Dim
    count: Dim

    @property
    def form(self) -> object:
        return self.k, self.n, self.count

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        depth, columns = size(self.k), size(self.n)
        packed, sums = Ref(self.packed), Ref(self.sums)
        return byte_pack_args(Ref(self.b), columns, packed, sums, depth, columns, size(self.count), depth * columns)


def _operand(
    o: FusedOperand, n: int, depth: int, out_item: int, c_batch: tuple[int, int], b_batch: tuple[int, int]
) -> gemm_arguments.Operand:
    if o.role is Role.DEPTH:
        return gemm_arguments.Operand(np.array([depth], np.int32))
    address: Any = Ref(o.name)
    if o.role is Role.COLUMN_SUMS:
        return gemm_arguments.Operand(address, batch0=b_batch[0] * n * 4, batch1=b_batch[1] * n * 4)
    if o.kind == "row":
        many = o.role is Role.ROW_SUMS
        scale = [c // max(1, n * out_item) * itemsize(o.dtype) if many else 0 for c in c_batch]
        return gemm_arguments.Operand(address, row=itemsize(o.dtype), batch0=scale[0], batch1=scale[1])
    return fused_operand(o, n, itemsize(o.dtype), out_item, c_batch)
