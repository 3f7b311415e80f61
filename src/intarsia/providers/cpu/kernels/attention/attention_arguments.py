"""The attention kernel's parameters: compile-time spec, division of work, scratch layout, arguments."""

from __future__ import annotations

import functools
import math
import struct
from dataclasses import replace
from typing import NamedTuple

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common.tiles import Tile, tile_of

KEY_PANELS = 16  # panels of keys in a block
UNBOUNDED = 1 << 40  # a window that hides nothing
ANY_QUERIES = 1 << 40  # more than there ever are
_FEW_ROWS = 8  # so many read K faster where it lies than they have it packed
_HELD_TILES = 8  # tiles of queries that share a pass over the keys where these are several blocks
POINTERS = ("micro", "pack", "q", "k", "v", "out", "mask", "lengths", "taps", "scratch")
FIELDS = (
    *POINTERS,
    *(
        "scratch_nbytes batch heads group queries keys size vsize q_batch q_head q_row k_batch k_head k_row v_batch v_head "
        "v_row o_batch o_head o_row mask_batch mask_head mask_row scale softcap uncap offset step left right more tiles rows "
        "extra blocks copy_k copy_v v_at q_at s_at o_at m_at l_at"
    ).split(),
)


@dataclass(frozen=True)
class AttentionSpec:
    """Compile-time parameters of the kernel (float32).

    Attributes:
        mask: None, "float" (added to the scores) or "bool" (false hides a key).
        bounded: whether keys are limited by the query's position (causal, windows).
        softcap: whether scores become softcap * tanh(score / softcap).
        lengths: None, or the type (INT32, INT64) of an array with the number of keys of each batch entry.
        trailing: with `lengths`, queries are the last positions of the keys that are there.
        pairs: whether products are those of pairs of bfloat16 (VDPBF16PS), where queries lie across lanes.
    """

    mask: str | None = None
    bounded: bool = False
    softcap: bool = False
    lengths: DType | None = None
    trailing: bool = False
    pairs: bool = False

    @property
    def masked(self) -> bool:
        """Whether a row may be without keys; it then becomes zeros."""
        return self.mask is not None or self.bounded or self.lengths is not None


class Heads(NamedTuple):
    """Where an operand lies: the address of its first row, and bytes between batch entries, heads and rows."""

    address: Address
    batch: int = 0
    head: int = 0
    row: int = 0


@dataclass(frozen=True)
class Scoring:
    """Transforms of scores before the softmax, and the keys that a query attends to.

    Attributes:
        scale: what Q K^T is multiplied by; None: 1 / sqrt(size of a head).
        softcap: see `AttentionSpec`; 0 where there is none.
        left, right: how many keys before and behind its own position a query sees, with `AttentionSpec.bounded` (causal:
            right = 0).
    """

    scale: float | None = None
    softcap: float = 0.0
    left: int = UNBOUNDED
    right: int = UNBOUNDED

    def scale_of(self, size: int) -> float:
        """The scale for heads of `size` numbers."""
        return self.scale if self.scale is not None else 1.0 / math.sqrt(max(1, size))


class KeysAndValues(NamedTuple):
    """Where all keys and values lie, as a kernel reads them; `lengths` is the address of how many there are for each batch
    entry, to which `more` is added."""

    k: Heads
    v: Heads
    lengths: Address = 0
    more: int = 0


class Operands(NamedTuple):
    """Where the operands of a call lie."""

    q: Heads
    stored: KeysAndValues
    out: Heads
    mask: Heads = Heads(0)


class Resources(NamedTuple):
    """Further operands of a call: the functions that it calls (a micro-kernel, `pack_text`), a table, and scratch memory."""

    micro: Address
    taps: Address
    scratch: Address
    pack: Address = 0
    claims: Address = 0


@dataclass(frozen=True)
class AttentionShape:
    """Sizes: `heads` of Q share `kv_heads` of K and V in groups; `size` is a head's of Q and K, `vsize` of V. Row i of Q is at
    position `offset + i * step` among the keys."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    size: int
    vsize: int
    offset: int = 0
    step: int = 1

    @property
    def group(self) -> int:
        """Heads of Q that share one of K and V; 1 where there are none."""
        return self.heads // self.kv_heads if self.kv_heads else 1


class _Layout(NamedTuple):
    """Division of work, and layout of a thread's scratch memory."""

    tiles: int
    blocks: int
    copy_k: bool
    copy_v: bool
    offsets: tuple[int, ...]  # of V's panels, the queries, scores, results, highest scores, sums
    nbytes: int


def _layout(shape: AttentionShape, target: Target, threads: int) -> _Layout:
    tile = tile_of(DType.FLOAT, target)
    tiles = -(-shape.queries // tile.rows)
    panels = -(-shape.keys // tile.width)
    held = 1
    if panels > KEY_PANELS:
        wanted = 4 * threads  # units, for an even share
        held = max(1, min(_HELD_TILES, tiles * shape.batch * shape.heads // wanted))
    blocks = -(-tiles // held)
    copy_k = shape.queries > _FEW_ROWS
    copy_v = shape.queries > 2 * tile.rows or shape.vsize % tile.lanes != 0
    value_panels = -(-shape.vsize // tile.width)
    row = tile.width * tile.itemsize
    state = held * tile.rows * tile.lanes * tile.itemsize
    sizes = [
        panels * shape.size * row if copy_k else 0,
        value_panels * shape.keys * row if copy_v else 0,
        tile.rows * _padded(shape.size, tile) * tile.itemsize,
        min(panels, KEY_PANELS) * tile.nbytes,
        held * value_panels * tile.nbytes,
        state,
        state,
    ]
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + -(-size // 64) * 64)
    return _Layout(tiles, blocks, copy_k, copy_v, tuple(ends[1:-1]), ends[-1])


def _grouped(shape: AttentionShape) -> AttentionShape:
    """Of one query, the heads that share keys become the rows of one head."""
    return shape if shape.queries != 1 else replace(shape, heads=shape.kv_heads, queries=shape.group, step=0)


def _as_rows(x: Heads, group: int) -> Heads:
    return Heads(x.address, x.batch, x.head * group, x.head)


def _padded(size: int, tile: Tile) -> int:
    return -(-size // tile.lanes) * tile.lanes


def scratch_nbytes(shape: AttentionShape, target: Target, threads: int) -> int:
    """Bytes of scratch for all threads."""
    return threads * _layout(_grouped(shape), target, threads).nbytes


def taps(target: Target) -> list[int]:
    """The displacements (int64) that the kernel's argument `taps` points to."""
    return [p * tile_of(DType.FLOAT, target).nbytes for p in range(KEY_PANELS)]


def attention_args(
    spec: AttentionSpec, target: Target, shape: AttentionShape, threads: int, operands: Operands, scoring: Scoring,
    uses: Resources,
) -> list[Argument]:  # fmt: skip
    """The arguments of `few_queries_kernel.kernel_text`.

    `uses.taps` is the address of `taps(target)`. At most `threads` threads call the kernel and share `scratch_nbytes` of
    scratch.
    """
    (q, (k, v, lengths, more), out, mask), softcap = operands, scoring.softcap
    group, scale = shape.group, scoring.scale_of(shape.size)
    if shape.queries == 1:
        q, out, mask = (_as_rows(x, group) for x in (q, out, mask))
    shape = _grouped(shape)
    layout = _layout(shape, target, threads)
    tiles = max(1, layout.tiles)
    return [
        uses.micro, uses.pack, q.address, k.address, v.address, out.address, mask.address, lengths, uses.taps, uses.scratch,
        layout.nbytes, shape.batch, shape.heads, shape.group, shape.queries, shape.keys, shape.size, shape.vsize,
        *q[1:], *k[1:], *v[1:], *out[1:], *mask[1:], _bits(scale), _bits(softcap), _bits(1 / softcap if softcap else 0.0),
        shape.offset, shape.step, scoring.left, scoring.right, more, layout.tiles, shape.queries // tiles,
        shape.queries % tiles, layout.blocks, int(layout.copy_k), int(layout.copy_v), *layout.offsets,
    ]  # fmt: skip


def _bits(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


# --- keys of earlier calls (`append_kv_kernel`) --------------------------------------------------------------------------


class CacheShape(NamedTuple):
    """Sizes of past keys or values, [batch, heads, past_rows, size], and of `rows` more behind them."""

    batch: int
    heads: int
    past_rows: int
    rows: int
    size: int


def append_args(past: Address, fresh: Heads, out: Address, shape: CacheShape, streamed: int) -> list[Argument]:
    """The appending step's arguments; from `streamed` bytes of `out` on it is written past the caches."""
    batch, heads, past_rows, rows, size = shape
    return [past, fresh.address, out, batch, heads, past_rows * size * 4, rows, size * 4, *fresh[1:], streamed]


# --- many queries, a query in each lane (`many_queries_kernel`) ---------------------------------------------------------

KEY_BLOCK = 128  # so many keys have their scores retained
_LANE_QUERIES = {64: 32, 32: 24}  # from so many on packing keys and values for them pays, with vectors of so many bytes
LANE_POINTERS = ("micro", "q", "k", "v", "out", "mask", "lengths", "taps", "scratch", "claims")
LANE_FIELDS = (
    *LANE_POINTERS,
    *(
        "scratch_nbytes batch heads group queries keys size vsize q_batch q_head q_row o_batch o_head o_row mask_batch "
        "mask_head mask_row softcap uncap offset left right more k_nbytes v_nbytes tiles vectors extra value_tiles "
        "result_rows s_at o_at m_at l_at"
    ).split(),
)
PACK_FIELDS = (
    "k v lengths k_out v_out batch heads keys size vsize k_batch k_head k_row v_batch v_head v_row k_nbytes v_nbytes scale more"
).split()


@functools.cache
def lane_tile(target: Target) -> Tile:
    """The register tile: keys (or columns of V) by queries."""
    tile = tile_of(DType.FLOAT, target)
    return Tile(8 if tile.rows == 14 else 4, 3, tile.lanes, tile.itemsize)


def least_in_lanes(target: Target) -> int:
    """Of so many queries and more, one is in each lane: fewer do not pay for packing keys and values."""
    return _LANE_QUERIES.get(target.vector_bytes, 6 * lane_tile(target).lanes)


def packed_group(target: Target) -> int:
    """Keys, and columns of V, are packed in groups of so many."""
    tile = lane_tile(target)
    return max(tile.lanes, tile.rows)


def _padded_to_tiles(count: int, tile: Tile) -> int:
    group = max(tile.lanes, tile.rows)
    return -(-count // group) * group


def packed_elements(shape: AttentionShape, target: Target) -> tuple[int, int]:
    """Elements of a head's packed keys, and of its packed values."""
    tile = lane_tile(target)
    return shape.size * _padded_to_tiles(shape.keys, tile), shape.keys * _padded_to_tiles(shape.vsize, tile)


def _lane_offsets(shape: AttentionShape, tile: Tile) -> tuple[list[int], int]:
    """Where a thread's scratch has scores, results, references and sums behind the queries, and its size."""
    row = tile.width * tile.itemsize
    sizes = [shape.size * row, KEY_BLOCK * row, _padded_to_tiles(shape.vsize, tile) * row, row, row]
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + -(-size // 64) * 64)
    return ends[1:-1], ends[-1]


def lane_scratch_nbytes(shape: AttentionShape, target: Target, threads: int) -> int:
    """Bytes of scratch for all threads."""
    return threads * _lane_offsets(shape, lane_tile(target))[1]


def lane_pack_args(
    spec: AttentionSpec, target: Target, shape: AttentionShape, given: KeysAndValues, packed: tuple[Address, Address],
    scoring: Scoring,
) -> list[Argument]:  # fmt: skip
    """The packing step's arguments.

    `packed`: where `batch * kv_heads` times `packed_elements` float32 go. Packed keys have the scale of the scores, and a
    factor of log2(e) where nothing is done to scores (`_unit`).
    """
    (k, v, lengths, more), scale = given, scoring.scale_of(shape.size)
    sizes = (4 * n for n in packed_elements(shape, target))
    return [
        k.address, v.address, lengths, *packed, shape.batch, shape.kv_heads, shape.keys, shape.size, shape.vsize,
        *k[1:], *v[1:], *sizes, _bits(scale if spec.softcap else scale * _unit(spec)), more,
    ]  # fmt: skip


def _unit(spec: AttentionSpec) -> float:
    """What scores are multiplied by for the softmax: they are exponents of two, but where a mask is added."""
    return 1.0 if spec.mask == "float" else 1.4426950408889634


def lane_args(
    spec: AttentionSpec, target: Target, shape: AttentionShape, operands: Operands, scoring: Scoring, uses: Resources
) -> list[Argument]:
    """The arguments of `many_queries_kernel.kernel_text`.

    `uses.micro` is the address of `lane_micro_text` for `lane_tile(target)`, with `spec.pairs` that of `tiled_pairs_text`;
    `taps` that of an int64 0, `claims` that of an int64 0 for this call alone, which is 0 again when all shares are done;
    `scratch` has `lane_scratch_nbytes` bytes.
    """
    (q, (k, v, lengths, more), out, mask), softcap = operands, scoring.softcap
    tile = lane_tile(target)
    vectors = -(-shape.queries // tile.lanes)
    tiles = -(-vectors // (1 if spec.bounded and target.halves_vectors else tile.vectors))
    offsets, nbytes = _lane_offsets(shape, tile)
    value_tiles = -(-shape.vsize // tile.rows)
    factors = (softcap * _unit(spec), 1 / softcap) if spec.softcap else (0.0, 0.0)
    return [
        uses.micro, q.address, k.address, v.address, out.address, mask.address, lengths, uses.taps, uses.scratch, uses.claims,
        nbytes, shape.batch, shape.heads, shape.group, shape.queries, shape.keys, shape.size, shape.vsize,
        *q[1:], *out[1:], *mask[1:], *map(_bits, factors), shape.offset, scoring.left, scoring.right, more,
        *(4 * n for n in packed_elements(shape, target)), tiles,
        vectors // max(1, tiles), vectors % max(1, tiles), value_tiles, value_tiles * tile.rows, *offsets,
    ]  # fmt: skip
