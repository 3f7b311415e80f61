"""The arguments of the kernels of products by blocks of bits, once their sizes are known."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import CLAIMS, SCRATCH, AlteredCall, Argument, Code, KernelCall, Ref, Shares, Sizes
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.template import FusedOperand, forms_of
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.matmul import gemm_arguments
from intarsia.providers.cpu.kernels.matmul import packed_a_kernel as tiled
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec
from intarsia.providers.cpu.kernels.matmul.matmul_arguments import PackedProduct
from intarsia.providers.cpu.kernels.matmul.matmul_steps import SHARE_PRODUCTS, fused_operand
from intarsia.providers.cpu.kernels.matmul.pack_a import pack_tiles_args
from intarsia.providers.cpu.kernels.matmul_nbits import block_quant_int8, block_quant_packed_a
from intarsia.providers.cpu.kernels.matmul_nbits.block_quant_kernel import BlockFormat

BYTES_IN_TIME = 4  # multiply-adds of bytes in the time of one of float32
_NO_ROWS = gemm_arguments.ARGUMENTS["tiles"]


@dataclass(frozen=True)
class OfRowsCall(AlteredCall):
    """The call of a GEMM kernel's step that does nothing unless there are `least` rows (`many`), or fewer."""

    rows: Dim
    least: int
    many: bool

    @property
    def form(self) -> object:
        return (type(self.call), self.call.form, self.rows, self.least, self.many)

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        found = list(self.call.arguments(size, threads))
        if (size(self.rows) >= self.least) != self.many:
            found[_NO_ROWS] = 0
        return found


@dataclass(frozen=True)
class TiledBlocks(PackedProduct):
    """One product of many rows of float32; nothing to do for few.

    Attributes:
        source, packed: A, and where its tiles are packed; the same buffer where these lie.
        partial: sums between ranges of K blocks, "" if there is one.
    """

    spec: GemmSpec
    blocks: BlockFormat
    target: Target
    micro: str
    source: str
    packed: str
    b: str
    c: str
    taps: str
    partial: str
    m: Dim
    k: int
    n: int
    operands: tuple[FusedOperand, ...]

    @property
    def form(self) -> object:
        operands = forms_of(self.operands)
        return (self.spec, self.blocks, self.micro, bool(self.partial), self.m, self.k, self.n, operands)

    @property
    def tile(self) -> Tile:
        assert self.spec.tile is not None
        return self.spec.tile

    def _rows(self, size: Sizes) -> int:
        m = size(self.m)
        return m if m >= block_quant_packed_a.least_rows(self.tile, self.target) else 0

    def packing(self, size: Sizes) -> Sequence[Argument]:
        return pack_tiles_args(Ref(self.source), 4 * self.k, Ref(self.packed), self._rows(size), self.k, self.tile)

    def part_arguments(self, part: tuple[int, int], size: Sizes, threads: int) -> Sequence[Argument]:
        out_item = itemsize(self.spec.epilogue.dtype) if self.spec.epilogue else 4
        m, micro, a = self._rows(size), Code(self.micro), Ref(self.packed)
        args = tiled.tiled_args(
            self.spec, self.target, micro=(micro, micro), a=(a, a), b=Ref(self.b), c=Ref(self.c),
            m=m, n=self.n, k=self.k, taps=Ref(self.taps), scratch=Ref(SCRATCH), part=part,
            partial=Ref(self.partial) if self.partial else 0, claims=Ref(CLAIMS), threads=threads,
            operands=[fused_operand(o, self.n, itemsize(o.dtype), out_item, (0, 0)) for o in self.operands],
        )  # fmt: skip
        return block_quant_packed_a.with_blocks(args, self.spec, self.blocks, self.target, m, self.k)

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * block_quant_packed_a.scratch_nbytes(self.spec, self.blocks, self.target, self._rows(size), self.k)


def byte_shares(products: Dim) -> Shares:
    """The work of so many multiplications of bytes."""
    return Shares(products, SHARE_PRODUCTS * BYTES_IN_TIME)


@dataclass(frozen=True)
class QuantizeCall(KernelCall):
    """Makes `numbers`, bytes, of A's rows of `k`, and `scales` of their blocks."""

    source: str
    numbers: str
    scales: str
    m: Dim
    k: int

    @property
    def form(self) -> object:
        return self.m, self.k

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return [Ref(self.source), Ref(self.numbers), Ref(self.scales), size(self.m), self.k]


@dataclass(frozen=True)
class ByteBlocksCall(KernelCall):
    """The product of rows that became bytes.

    Attributes:
        numbers, scales: A's bytes, and the scales of their blocks.
    """

    spec: GemmSpec
    blocks: BlockFormat
    target: Target
    micro: str
    numbers: str
    scales: str
    b: str
    c: str
    m: Dim
    k: int
    n: int
    operands: tuple[FusedOperand, ...]

    @property
    def form(self) -> object:
        operands = forms_of(self.operands)
        return (self.spec, self.blocks, self.micro, self.m, self.k, self.n, operands)

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        out_item = itemsize(self.spec.epilogue.dtype) if self.spec.epilogue else 4
        factors = block_quant_int8.Factors(
            Code(self.micro), Ref(self.numbers), Ref(self.scales), Ref(self.b), Ref(self.c), self.n * out_item
        )
        operands = [fused_operand(o, self.n, itemsize(o.dtype), out_item, (0, 0)) for o in self.operands]
        return block_quant_int8.block_args(
            self.blocks, self.target, factors, (size(self.m), self.n, self.k), operands, Ref(CLAIMS), threads
        )
