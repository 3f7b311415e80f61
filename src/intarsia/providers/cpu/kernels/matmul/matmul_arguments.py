"""The arguments of a matrix product's kernels, once its sizes are known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import CLAIMS, SCRATCH, Argument, Code, KernelCall, Ref, ScratchCall, Sizes
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.template import FusedOperand, forms_of
from intarsia.providers.cpu.kernels.common.tiles import Tile, tile_of
from intarsia.providers.cpu.kernels.matmul import gemm_arguments
from intarsia.providers.cpu.kernels.matmul import packed_a_kernel as tiled
from intarsia.providers.cpu.kernels.matmul.matmul_steps import fused_operand
from intarsia.providers.cpu.kernels.matmul.pack_a import pack_tiles_args


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


@dataclass(frozen=True)
class GemmCall(ScratchCall):
    """The arguments of one call of the GEMM kernel, once its sizes are known."""

    spec: gemm_arguments.GemmSpec
    target: Target
    micros: tuple[str, ...]  # that of few rows, and where panels of 16 bits are widened that of many
    a: str
    b: str
    c: str
    taps: str
    m: Dim
    k: Dim
    n: Dim
    batches: Batches
    operands: tuple[FusedOperand, ...]
    claimed: bool = False  # its end, in pieces

    @property
    def form(self) -> object:
        operands = forms_of(self.operands)
        return (self.spec, self.micros, self.m, self.k, self.n, self.batches, operands, self.claimed)

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        m, k, n, batches = size(self.m), size(self.k), size(self.n), self.batches
        item, tile = itemsize(self.spec.dtype), self.spec.tile or tile_of(self.spec.dtype, self.target)
        micro = self.micros[-1] if gemm_arguments.many_rows(m, tile) else self.micros[0]
        out_item = itemsize(self.spec.epilogue.dtype) if self.spec.epilogue else item
        of_a, of_b, of_c = m * k * item, k * n * item, m * n * out_item
        c_batch = (size(batches.c[0]) * of_c, size(batches.c[1]) * of_c)
        return gemm_arguments.matrix_args(
            self.spec, self.target, micro=Code(micro), a=Ref(self.a), b=Ref(self.b), c=Ref(self.c),
            m=m, n=n, k=k, batch=(size(batches.sizes[0]), size(batches.sizes[1])),
            a_batch=(size(batches.a[0]) * of_a, size(batches.a[1]) * of_a),
            b_batch=(size(batches.b[0]) * of_b, size(batches.b[1]) * of_b), c_batch=c_batch,
            operands=[fused_operand(o, n, itemsize(o.dtype), out_item, c_batch) for o in self.operands],
            scratch=Ref(SCRATCH), taps=Ref(self.taps), claims=Ref(CLAIMS) if self.claimed else 0,
            threads=threads if self.claimed else 1,
        )  # fmt: skip

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * gemm_arguments.scratch_nbytes(self.spec, self.target, size(self.k))


class PackedProduct(ABC):
    """A product whose A is packed by one step, and multiplied by others, each a range of K blocks: a frozen dataclass."""

    @property
    @abstractmethod
    def form(self) -> object:
        """As `KernelCall.form`, of all its steps."""

    @abstractmethod
    def packing(self, size: Sizes) -> Sequence[Argument]:
        """The arguments of the step that packs."""

    @abstractmethod
    def part_arguments(self, part: tuple[int, int], size: Sizes, threads: int) -> Sequence[Argument]:
        """The arguments of one that multiplies: `part` is the first of K, and how many."""

    @abstractmethod
    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        """Of one that multiplies."""


@dataclass(frozen=True)
class PackCall(KernelCall):
    """Packs A."""

    product: PackedProduct

    @property
    def form(self) -> object:
        return type(self.product), self.product.form

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return self.product.packing(size)


@dataclass(frozen=True)
class PartCall(ScratchCall):
    """Multiplies packed A by a range of B's rows."""

    product: PackedProduct
    part: tuple[int, int]

    @property
    def form(self) -> object:
        return type(self.product), self.product.form, self.part

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return self.product.part_arguments(self.part, size, threads)

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return self.product.scratch_nbytes(size, threads)


@dataclass(frozen=True)
class PackedAProduct(PackedProduct):
    """A product by the kernels of floats, of which A is packed where it has many rows."""

    spec: gemm_arguments.GemmSpec
    target: Target
    micros: tuple[str, str]  # for A in rows, and for packed A
    a: tuple[str, str]  # A, and where it is packed
    b: str
    c: str
    taps: str
    partial: str
    m: Dim
    k: int
    n: int
    operands: tuple[FusedOperand, ...]

    @property
    def tile(self) -> Tile:
        assert self.spec.tile is not None
        return self.spec.tile

    @property
    def form(self) -> object:
        operands = forms_of(self.operands)
        return (self.spec, self.micros, bool(self.partial), self.m, self.k, self.n, operands)

    def packing(self, size: Sizes) -> Sequence[Argument]:
        m = size(self.m)
        rows = m if tiled.packs(m, self.tile) else 0
        return pack_tiles_args(Ref(self.a[0]), self.k * self.tile.itemsize, Ref(self.a[1]), rows, self.k, self.tile)

    def part_arguments(self, part: tuple[int, int], size: Sizes, threads: int) -> Sequence[Argument]:
        out_item = itemsize(self.spec.epilogue.dtype) if self.spec.epilogue else self.tile.itemsize
        few, many = map(Code, self.micros)
        plain, packed = map(Ref, self.a)
        return tiled.tiled_args(
            self.spec, self.target, micro=(few, many), a=(plain, packed), b=Ref(self.b), c=Ref(self.c),
            m=size(self.m), n=self.n, k=self.k, taps=Ref(self.taps), scratch=Ref(SCRATCH), part=part,
            partial=Ref(self.partial) if self.partial else 0, claims=Ref(CLAIMS), threads=threads,
            operands=[fused_operand(o, self.n, itemsize(o.dtype), out_item, (0, 0)) for o in self.operands],
        )  # fmt: skip

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * tiled.tiled_scratch_nbytes(self.spec, self.target, size(self.m), self.k)
