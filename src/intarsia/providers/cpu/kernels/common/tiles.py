"""The register tiles of products: what micro-kernels compute at once, and so how wide panels of B are."""

from __future__ import annotations

import functools

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Tile:
    """The register tile of a target: at most `rows` by `vectors` vectors of `lanes` elements."""

    rows: int
    vectors: int
    lanes: int
    itemsize: int

    @property
    def width(self) -> int:
        """Columns of a full panel of packed B (NR)."""
        return self.vectors * self.lanes

    @property
    def nbytes(self) -> int:
        return self.rows * self.width * self.itemsize


def multiplies_by_lanes(target: Target) -> bool:
    """Whether a multiply-add takes one lane of a vector for all (ARM64); x86 broadcasts from memory beside multiply-adds."""
    return target.arch == "aarch64"


@functools.cache
def tile_of(dtype: DType, target: Target) -> Tile:
    """The tile for accumulators of `dtype`: 28 of 32 or 12 of 16 vector registers, the rest for B and a broadcast; 16 of 32
    where eight hold rows of A.

    INT32 sums products of bytes (`microkernel_int8`); these need more registers where no instruction does that at once.
    """
    lanes = target.vector_bytes * 8 // dtype.bits
    many = target.vector_bytes == 64
    rows = 8 if multiplies_by_lanes(target) else 14 if many else 6
    if dtype is DType.INT32 and not (target.has("avx512vnni") or target.has("avxvnni")):
        rows = 8 if multiplies_by_lanes(target) else 10 if many else 4
    return Tile(rows, 2, lanes, dtype.bits // 8)


def product_tile(n: int, dtype: DType, target: Target) -> Tile:
    """The tile for a matrix product with `n` columns.

    8 x 3 vectors need 11 loads for 24 multiply-adds where 14 x 2 need 16 for 28; it is taken unless what is left of `n`
    in its last panel is worse off (a single vector: about a third more time; none where the target halves vectors).
    """
    tile = tile_of(dtype, target)
    if tile.rows != 14:
        return tile
    wide = Tile(8, 3, tile.lanes, tile.itemsize)
    if target.halves_vectors:
        return wide
    return wide if columns_time(n, wide) <= columns_time(n, tile) else tile


def columns_time(n: int, tile: Tile) -> float:
    """What `n` columns take by a tile of 8 x 3 or 14 x 2 vectors, in the time of a vector of columns that fill the former."""
    vectors = -(-n // tile.lanes)
    if tile.vectors == 3:
        return [0.0, 1.35, 2.1][vectors % 3] + vectors // 3 * 3
    return 1.06 * (vectors // 2 * 2) + 1.35 * (vectors % 2)
