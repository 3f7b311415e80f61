"""Packed B of byte products: panels as in `pack`, of groups of four bytes along k, always signed.

An unsigned B is packed as b - 128 (bits flipped); its zero point has to be lowered by 128 too. Rows beyond K are zero.
"""

from __future__ import annotations

import functools

import numpy as np

from intarsia.codegen.builder.kernel_body import Module, Value
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common.panels import pack_matrix, padded_columns
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import GROUP, SUMS, groups
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import ByteDot, byte_tile


def pack_bytes(b: np.ndarray, tile: Tile) -> np.ndarray:
    """Pack int8 [..., taps, K, N] into panels: int32 [..., groups * padded N]; every tap begins a group."""
    *batch, taps, k, n = b.shape
    filled = np.zeros((*batch, taps, groups(k) * GROUP, n), np.int8)
    filled[..., :k, :] = b
    grouped = filled.reshape(*batch, taps * groups(k), GROUP, n)
    words = np.ascontiguousarray(np.moveaxis(grouped, -2, -1)).view("<i4")[..., 0].view(np.int32)
    return pack_matrix(words, tile)


def pack_byte_pairs(b: np.ndarray, tile: Tile) -> np.ndarray:
    """As `pack_bytes` for `widened_int16`: int16 [..., words * padded N], pairs of bytes along k."""
    *batch, taps, k, n = b.shape
    filled = np.zeros((*batch, taps, -(-k // 2) * 2, n), np.int8)
    filled[..., :k, :] = b
    grouped = filled.reshape(*batch, filled.shape[-3] * filled.shape[-2] // 2, 2, n)
    pairs = np.ascontiguousarray(np.moveaxis(grouped, -2, -1)).view("<i2")[..., 0].view(np.int16)
    return pack_matrix(pairs, tile)


def byte_packed_nbytes(k: int, n: int, tile: Tile) -> int:
    """Bytes of one packed [K, N] matrix of one tap."""
    return groups(k) * padded_columns(n, tile) * tile.itemsize


# --- packing as a step --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BytePackSpec:
    """Pack B [K, N] of `dtype` (UINT8 or INT8) at run time, and sum its columns (as they are packed, in int32)."""

    dtype: DType


@functools.cache
def byte_pack_text(spec: BytePackSpec, target: Target) -> KernelText:
    """The step that packs; see `byte_pack_args`."""
    module = Module(target)
    body = module.kernel()
    tile = byte_tile(target)
    lanes = tile.lanes
    dot = ByteDot(body, target, lanes)
    args, tid, nthreads = body.args
    source, ld, packed = body.load_pointer(args, 0), body.load_i64(args, 1), body.load_pointer(args, 2)
    sums = body.load_pointer(args, 3)
    k, n, batch, stride = (body.load_i64(args, i) for i in range(4, 8))
    vectors = body.div(body.add(n, lanes - 1), lanes)
    depth = body.div(body.add(k, GROUP - 1), GROUP)
    matrix_nbytes = body.mul(body.mul(depth, vectors), target.vector_bytes)
    ones = dot.unsigned(body.constant(0x01010101, SUMS, lanes))
    first, last = body.share(body.mul(batch, vectors), tid, nthreads)

    def row(pointer: Value, exists: Value, mask: Value) -> Value:
        """One row's bytes as 32-bit numbers; 0 where there are none."""
        typ = body.vector_type(SUMS, lanes)
        bytes_ = body.load_masked(body.b.select(exists, pointer, source), mask, DType.UINT8, lanes)
        wide = body.b.zext(bytes_, typ)
        return body.b.select(body.splat(exists, lanes), wide, body.zero(SUMS, lanes))

    with body.loop(first, last) as unit:
        b, vector = body.div(unit, vectors), body.rem(unit, vectors)
        column = body.mul(vector, lanes)
        mask = body.mask(body.sub(n, column), lanes)
        panel, within = body.div(vector, tile.vectors), body.rem(vector, tile.vectors)
        width = body.min(tile.vectors, body.sub(vectors, body.mul(panel, tile.vectors)))
        origin = body.at(source, body.mul(b, stride), column)
        start = body.mul(body.mul(panel, tile.vectors), depth)
        out = body.at(packed, body.mul(b, matrix_nbytes), body.mul(body.add(start, within), target.vector_bytes))
        step = body.mul(width, target.vector_bytes)
        state = [body.zero(SUMS, lanes)]
        with body.carry(0, depth, 1, state) as p:
            words = body.zero(SUMS, lanes)
            flips = body.zero(SUMS, lanes)
            for i in range(GROUP):
                at = body.add(body.mul(p, GROUP), i)
                exists = body.less(at, k)
                value = row(body.at(origin, body.mul(at, ld)), exists, mask)
                words = body.b.or_(words, body.b.shl(value, body.constant(8 * i, SUMS, lanes)))
                flip = body.splat(body.b.select(exists, body.const32(0x80 << (8 * i)), body.const32(0)), lanes)
                flips = body.b.or_(flips, flip)
            if spec.dtype is DType.UINT8:
                shown = body.b.select(mask, flips, body.zero(SUMS, lanes))
                words = body.b.xor(words, shown)
            body.store(words, body.at(out, body.mul(p, step)), SUMS)
            state[0] = dot.add(state[0], ones, dot.signed(words))
        place = body.at(sums, body.mul(body.add(body.mul(b, n), column), 4))
        body.store_masked(state[0], place, mask, SUMS)
    body.b.ret_void()
    return module.text("pack_bytes")


def byte_pack_args(
    source: Address, ld_nbytes: int, packed: Address, sums: Address, k: int, n: int, batch: int = 1, batch_nbytes: int = 0
) -> list[Argument]:
    """The packing step's arguments: addresses of B, of the panels and of int32 [batch, N]; sizes; bytes between matrices."""
    return [source, ld_nbytes, packed, sums, k, n, batch, batch_nbytes]
