"""Matrices of weights in blocks along K, each with a scale and a zero point: codes of 2, 4 or 8 bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from intarsia.errors import InvalidArgument
from intarsia.quantization.numerics.shares import shares

BITS = (2, 4, 8)


@dataclass(frozen=True)
class BlockFormat:
    """How weights are stored.

    Attributes:
        bits: of a code.
        block: weights along K that share a scale.
        symmetric: the zero point is the middle of the codes.
    """

    bits: int = 4
    block: int = 128
    symmetric: bool = False

    def __post_init__(self) -> None:
        if self.bits not in BITS:
            raise InvalidArgument(f"weights in blocks: expected 2, 4 or 8 bits, got {self.bits}")
        if self.block < 8 or self.block * self.bits % 8:
            raise InvalidArgument(f"weights in blocks: expected blocks of 8 or more that fill bytes, got {self.block}")

    @property
    def top(self) -> int:
        """The greatest code."""
        return (1 << self.bits) - 1

    @property
    def middle(self) -> int:
        return 1 << (self.bits - 1)

    def blocks_of(self, rows: int) -> int:
        return -(-rows // self.block)


@dataclass(frozen=True)
class BlockWeights:
    """A matrix [K, N] in codes: weight = scale * (code - zero point).

    Attributes:
        codes: uint8 [blocks, block, N]; rows behind K have the zero point.
        scales: float32 [blocks, N].
        points: zero points [blocks, N], uint8, or float32 where the algorithm has fractions; None: the middle.
    """

    codes: np.ndarray
    scales: np.ndarray
    points: np.ndarray | None
    format: BlockFormat

    def dequantized(self, rows: int) -> np.ndarray:
        """The matrix that the codes stand for, float32 [rows, N]."""
        points = np.float32(self.format.middle) if self.points is None else self.points.astype(np.float32)[:, None]
        wide = (self.codes.astype(np.float32) - points) * self.scales[:, None]
        return np.asarray(wide.reshape(-1, wide.shape[-1])[:rows])

    @cached_property
    def packed_columns(self) -> np.ndarray:
        """uint8 [N, blocks, block * bits / 8], as MatMulNBits reads it."""
        blocks, block, columns = self.codes.shape
        per = 8 // self.format.bits
        found = np.empty((columns, blocks, block // per), np.uint8)

        for first, last in shares(blocks, block * columns):
            part = self.codes[first:last, 0::per].copy()
            for i in range(1, per):
                part |= self.codes[first:last, i::per] << np.uint8(i * self.format.bits)
            found[:, first:last] = part.transpose(2, 0, 1)
        return found

    def packed_points(self) -> np.ndarray | None:
        """uint8 [N, ceil(blocks * bits / 8)]; floats as they are, [N, blocks]; None for symmetric blocks."""
        if self.points is None:
            return None
        columns = np.ascontiguousarray(self.points.T)
        if columns.dtype != np.uint8:
            return columns
        per = 8 // self.format.bits
        padded = np.full((len(columns), -(-columns.shape[1] // per) * per), self.format.middle, np.uint8)
        padded[:, : columns.shape[1]] = columns
        return packed_bits(padded, self.format.bits)


def packed_bits(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes along the last axis in bytes, the first in the low bits."""
    if bits == 8:
        return codes
    parts = codes.reshape(*codes.shape[:-1], -1, 8 // bits)
    found = parts[..., 0].copy()
    for i in range(1, 8 // bits):
        found |= parts[..., i] << np.uint8(i * bits)
    return found


Algorithm = Callable[[np.ndarray, BlockFormat], BlockWeights]
"""A matrix of float32 or float16 [K, N] -> the same in blocks."""


def in_blocks(weights: np.ndarray, form: BlockFormat) -> np.ndarray:
    """float32 [blocks, block, N] of a matrix [K, N], 0 behind its rows."""
    rows, columns = weights.shape
    count = form.blocks_of(rows)
    if rows == count * form.block and weights.dtype == np.float32:
        return weights.reshape(count, form.block, columns)
    found = np.zeros((count * form.block, columns), np.float32)
    found[:rows] = weights
    return found.reshape(count, form.block, columns)


def nearest(weights: np.ndarray, form: BlockFormat, ratio: float = 1.0) -> BlockWeights:
    """Round to nearest: the range of each block is that of its values and 0, or of its largest magnitude.

    Args:
        ratio: of the range that is kept; what is outside is clipped.
    """
    blocks = in_blocks(weights, form)
    count, block, columns = blocks.shape
    codes = np.empty(blocks.shape, np.uint8)
    scales, points = np.empty((count, columns), np.float32), np.empty((count, columns), np.uint8)
    for first, last in shares(count, 8 * block * columns):
        part = blocks[first:last]
        scales[first:last], points[first:last] = block_ranges(part, form, weights.dtype, ratio)
        codes[first:last] = rounded_codes(part, scales[first:last], points[first:last], form)
    return BlockWeights(codes, scales, None if form.symmetric else points, form)


def block_ranges(
    blocks: np.ndarray, form: BlockFormat, dtype: np.dtype | type = np.float32, ratio: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Scales (float32, rounded to `dtype`) and zero points (uint8), [blocks, N]."""
    least, most = blocks.min(axis=1) * np.float32(ratio), blocks.max(axis=1) * np.float32(ratio)
    if form.symmetric:
        scales = np.where(np.abs(most) > np.abs(least), most, least) / np.float32(-form.middle)
        return scales.astype(dtype).astype(np.float32), np.full(scales.shape, form.middle, np.uint8)
    least, most = np.minimum(least, 0), np.maximum(most, 0)
    scales = ((most - least) / np.float32(form.top)).astype(dtype).astype(np.float32)
    points = np.clip(np.floor(-least / np.where(scales != 0, scales, 1) + np.float32(0.5)), 0, form.top) * (scales != 0)
    return scales, points.astype(np.uint8)


def rounded_codes(blocks: np.ndarray, scales: np.ndarray, points: np.ndarray, form: BlockFormat) -> np.ndarray:
    """uint8 codes of blocks; halves go up, as in MLAS."""
    inverse = np.where(scales != 0, np.float32(1) / np.where(scales != 0, scales, np.float32(1)), np.float32(0))
    wide = blocks * inverse[:, None]
    wide += points.astype(np.float32)[:, None]
    wide += np.float32(0.5)
    np.clip(wide, np.float32(0), np.float32(form.top), out=wide)
    return wide.astype(np.uint8)  # which rounds down
