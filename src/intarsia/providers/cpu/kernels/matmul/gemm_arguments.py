"""What products of matrices are (`GemmSpec`), and what their kernels (`gemm_kernel`) are called with.

Without the kernels' texts: who calls kernels that are there needs nothing of what writes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.pieces import tail
from intarsia.providers.cpu.kernels.common.tiles import Tile, tile_of
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import SUMS, groups

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.matmul_nbits.block_quant_kernel import BlockFormat

B_LAYOUTS = ("packed", "rows", "columns")
A_RESIDENT_NBYTES = 1 << 20  # A's chunk: half of a second-level cache of 2 MiB
FIELDS = (
    "micro a lda b ldb c ldc m lines images n k taps ntaps batch0 batch1 a_line a_image a_batch0 a_batch1 "
    "c_line c_image c_batch0 c_batch1 b_batch0 b_batch1 tiles rows extra chunk panels panel_nbytes scratch scratch_nbytes copy "
    "claims tail piece"
).split()
ARGUMENTS = {name: i for i, name in enumerate(FIELDS)}
OPERAND_FIELDS = 6  # address, bytes between rows, lines, images, batch0, batch1


@dataclass(frozen=True)
class GemmSpec:
    """Compile-time parameters of the kernel.

    Attributes:
        dtype: FLOAT or DOUBLE, of A, B and the accumulators (C's is the epilogue's); or INT32: the sums of products of
            bytes by the micro-kernels of `microkernel_int8`, B packed by `pack_int8`.
        b_layout: "packed" (`pack_b.pack_matrix`), "rows" ([K, N]), "columns" ([N, K], the transpose) or "blocks"
            (`block_quant_kernel.pack_blocks`, of FLOAT).
        epilogue: applied to every element before it is stored; None stores the sums.
        blocks: how the layout "blocks" stores numbers.
        tile: the register tile where it is not `tile_of(dtype, target)`.
        stored: the type of packed B's elements where it is not `dtype`: `microkernel.STORED`, of FLOAT. Few rows take the
            micro-kernel that widens them, for `many_rows` panels are widened where that pays (`widens_panels`). INT8, of INT32:
            A and B are multiplied as pairs of 16-bit integers (`widened_int16`).
        halves: whether A and B are packed by `float16_kernel`, for products in float16.
        unit: what multiplies 32-bit words of A and B that are packed by `strips`: a key of `units.WORDS_IN_TIME`. With
            "blocks", VECTORS: panels of B become words of two bfloat16, as elements of A are; `k` counts them.
        ends: whether the micro-kernel finishes sums where it can (`ending`).
    """

    dtype: DType = DType.FLOAT
    b_layout: str = "packed"
    epilogue: Epilogue | None = None
    blocks: BlockFormat | None = None
    tile: Tile | None = None
    stored: DType | None = None
    halves: bool = False
    unit: str = ""
    ends: bool = False

    @property
    def b_itemsize(self) -> int:
        """Bytes of an element of packed B."""
        return 2 if self.in_words else itemsize(self.stored or self.dtype)

    @property
    def a_itemsize(self) -> int:
        """Bytes of an element of A, as `k` of arguments counts them."""
        return 2 if self.in_words else factor_nbytes(self.dtype)

    @property
    def in_words(self) -> bool:
        """Whether bytes are multiplied as pairs of 16-bit integers."""
        return self.dtype is SUMS and self.stored is not None

    def steps(self, k: int) -> int:
        """Rows of packed B that `k` numbers of A meet."""
        return -(-k // 2) if self.in_words else groups(k) if self.dtype is SUMS else k

    @property
    def numbers(self) -> int:
        """Numbers of B that an element of A meets, in "blocks"."""
        return 2 if self.unit and self.blocks is not None else 1

    def __post_init__(self) -> None:
        if self.b_layout not in (*B_LAYOUTS, "blocks"):
            raise ValueError(f"b_layout is one of {', '.join(B_LAYOUTS)}, blocks; got {self.b_layout!r}")
        if self.dtype is SUMS and self.b_layout != "packed":
            raise ValueError(f"products of bytes need a packed B; got b_layout {self.b_layout!r}")
        if self.stored is not None and (self.b_layout != "packed" or self.dtype not in (DType.FLOAT, SUMS)):
            raise ValueError(
                f"B is stored in fewer bits where it is packed and of FLOAT or INT32; got {self.b_layout!r}, {self.dtype}"
            )
        if (self.b_layout == "blocks") != (self.blocks is not None):
            raise ValueError(f"b_layout 'blocks' goes with a format of blocks; got {self.b_layout!r} and {self.blocks}")


class Operand(NamedTuple):
    """Where an epilogue operand lies: its address and the bytes between its rows, lines, images and batches.

    A "column" operand needs no more than its address, except batch strides; "row" operands are indexed by the row like C.
    """

    address: Address
    row: int = 0
    line: int = 0
    image: int = 0
    batch0: int = 0
    batch1: int = 0


class Threads(NamedTuple):
    """How threads share a call's work: for how many it is cut (any number may call the kernel), the address of an int64 0 for
    this call alone, which is 0 again at its end, and that of so many bytes for every thread as the kernel says."""

    number: int = 1
    claims: Address = 0
    scratch: Address = 0


ONE_THREAD = Threads()


def matrix_args(
    spec: GemmSpec,
    target: Target,
    *,
    micro: Address,
    a: Address,
    b: Address,
    c: Address,
    m: int,
    n: int,
    k: int,
    lda: int | None = None,
    ldb: int | None = None,
    ldc: int | None = None,
    batch: tuple[int, int] = (1, 1),
    a_batch: tuple[int, int] = (0, 0),
    b_batch: tuple[int, int] = (0, 0),
    c_batch: tuple[int, int] = (0, 0),
    operands: Sequence[Operand] = (),
    scratch: Address = 0,
    taps: Address = 0,
    claims: Address = 0,
    threads: int = 1,
    panel_nbytes: int = 0,
) -> list[Argument]:
    """The kernel's arguments for C[batch, M, N] = A[batch, M, K] B[batch, K, N].

    Addresses are those of the first element; `lda`, `ldb`, `ldc` are the bytes between rows (default: dense), the
    `*_batch` pairs the bytes between matrices along the two batch axes (0: the same one again). `micro` is the
    micro-kernel's address, `taps` that of one int64 0 (for bytes, then `byte_kernel.last_group(k)`), `scratch` that of
    `scratch_nbytes` bytes for every thread. `claims` and `threads`: see `general_args`.
    """
    size = spec.a_itemsize
    out_size = itemsize(spec.epilogue.dtype if spec.epilogue else spec.dtype)
    ldb = ldb if ldb is not None else size * (k if spec.b_layout == "columns" else n)
    ldc = ldc if ldc is not None else out_size * n
    lda = lda if lda is not None else size * k
    return general_args(
        spec, target, micro=micro, a=a, lda=lda, b=b, ldb=ldb, c=c, ldc=ldc, m=m, n=n, k=k, taps=taps, ntaps=1, batch=batch,
        a_batch=a_batch, b_batch=b_batch, c_batch=c_batch, operands=operands, scratch=scratch, claims=claims, threads=threads,
        panel_nbytes=panel_nbytes,
    )  # fmt: skip


def general_args(
    spec: GemmSpec,
    target: Target,
    *,
    micro: Address,
    a: Address,
    lda: int,
    b: Address,
    ldb: int,
    c: Address,
    ldc: int,
    m: int,
    n: int,
    k: int,
    taps: Address,
    ntaps: int,
    lines: int = 1,
    images: int = 1,
    batch: tuple[int, int] = (1, 1),
    a_outer: tuple[int, int] = (0, 0),
    c_outer: tuple[int, int] = (0, 0),
    a_batch: tuple[int, int] = (0, 0),
    b_batch: tuple[int, int] = (0, 0),
    c_batch: tuple[int, int] = (0, 0),
    operands: Sequence[Operand] = (),
    scratch: Address = 0,
    a_nbytes: int | None = None,
    claims: Address = 0,
    threads: int = 1,
    panel_nbytes: int = 0,
) -> list[Argument]:
    """As `matrix_args`, for rows on three levels and several taps.

    `a_outer` and `c_outer` are the bytes between lines and between images, `taps` the address of `ntaps` int64
    displacements of A in bytes. B has `ntaps * k` rows. `a_nbytes`: the memory that A covers in one batch, where its rows
    overlap. With `threads` given, each gets rows of its own where A and C are larger than B (what a thread wrote is then in
    its own cache when it computes the same rows of the next layer), else panels of B. `claims`: the address of an int64 0 for
    this call alone, which is 0 again at its end, for several threads.
    """
    tile = spec.tile or tile_of(spec.dtype, target)
    a_row = k * spec.a_itemsize
    k = spec.steps(k)
    tiles = -(-m // tile.rows)
    panels = -(-n // tile.width)
    all_tiles = tiles * lines * images
    chunk = all_tiles
    if panels > 1 and m > 0:
        covered = a_nbytes if a_nbytes is not None else a_row * m * lines * images
        chunks = min(all_tiles, max(1, -(-covered // A_RESIDENT_NBYTES)))
        larger = covered + ldc * m * lines * images > k * ntaps * n * tile.itemsize
        if larger and spec.b_layout == "packed" and all_tiles >= 2 * threads:
            chunks = -(-chunks // threads) * threads
        chunk = -(-all_tiles // chunks) if chunks else 1
    panel_nbytes = panel_nbytes or _panel_nbytes(spec, tile, k, ntaps, ldb)
    copied = spec.b_layout == "rows" or widens_panels(spec, target)
    copy = 1 if copied and many_rows(m * lines * images, tile) else 0
    args = [
        micro, a, lda, b, ldb, c, ldc, m, lines, images, n, k, taps, ntaps, *batch, *a_outer, *a_batch, *c_outer, *c_batch,
        *b_batch, tiles, m // max(1, tiles), m % max(1, tiles), max(1, chunk), panels, panel_nbytes, scratch,
        scratch_nbytes(spec, target, k * ntaps), copy, claims,
        *tail(
            math.prod(batch) * all_tiles * panels, tile.rows * tile.width * k * ntaps, threads if claims else 1, (chunk,)
        ),
    ]  # fmt: skip
    for operand in operands:
        args.extend(operand)
    return args


def _panel_nbytes(spec: GemmSpec, tile: Tile, k: int, ntaps: int, ldb: int) -> int:
    """The bytes from one panel of B to the next."""
    if spec.b_layout == "packed":
        return k * ntaps * tile.width * spec.b_itemsize
    if spec.blocks is not None:
        return spec.blocks.rows(k * spec.numbers) * tile.width * tile.itemsize
    return tile.width * (ldb if spec.b_layout == "columns" else tile.itemsize)


def many_rows(rows: int, tile: Tile) -> bool:
    """Whether a panel of B is copied for so many rows: where it is widened, the micro-kernel is then FLOAT's own."""
    return rows > 2 * tile.rows


def widens_panels(spec: GemmSpec, target: Target) -> bool:
    """Whether panels that are stored in fewer bits are widened for many rows. Not where vectors are halved: conversions have
    units of their own there, so that the micro-kernel widens beside its multiply-adds."""
    return spec.stored is not None and not target.halves_vectors


def argument_count(operands: int) -> int:
    """How many arguments a kernel takes whose epilogue has so many operands; these come last."""
    return len(FIELDS) + OPERAND_FIELDS * operands


def factor_nbytes(dtype: DType) -> int:
    """Bytes of an element of A where the sums are of `dtype`."""
    return 1 if dtype is SUMS else itemsize(dtype)


def scratch_nbytes(spec: GemmSpec, target: Target, k: int) -> int:
    """Bytes of scratch a thread needs: a packed panel where B is not packed already."""
    tile = spec.tile or tile_of(spec.dtype, target)
    rows = k * spec.numbers + (spec.blocks.each if spec.blocks is not None else 0)
    in_place = spec.b_layout == "packed" and not widens_panels(spec, target)
    return 0 if in_place else -(-rows * tile.width * tile.itemsize // 64) * 64
