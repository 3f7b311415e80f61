"""Blocks whose scale and zero point are searched for, as llama.cpp's k-quants are: weights count by their magnitude."""

from __future__ import annotations

import numpy as np

from intarsia.quantization.numerics.block_weights import BlockFormat, BlockWeights, block_ranges, in_blocks, rounded_codes

_STEPS = 20


def least_squares(weights: np.ndarray, form: BlockFormat) -> BlockWeights:
    """Of some ranges of each block, the one whose weighted squared error is least once its scale is fitted.

    A weight counts as the root mean square of its block and its own magnitude together. Zero points stay whole numbers.
    """
    blocks = in_blocks(weights, form)
    counts = np.sqrt((blocks**2).mean(axis=1, keepdims=True)) + np.abs(blocks)
    scales, points = block_ranges(blocks, form, weights.dtype)
    codes = rounded_codes(blocks, scales, points, form)
    best = _error(blocks, codes, scales, points, counts)
    for ratio in np.linspace(0.7, 1.05, _STEPS, dtype=np.float32):
        tried, their_points = block_ranges(blocks, form, weights.dtype, float(ratio))
        found = rounded_codes(blocks, tried, their_points, form)
        fitted = _fitted(blocks, found, their_points, counts, tried).astype(weights.dtype).astype(np.float32)
        error = _error(blocks, found, fitted, their_points, counts)
        better = error < best
        best = np.where(better, error, best)
        scales, points = np.where(better, fitted, scales), np.where(better, their_points, points)
        codes = np.where(better[:, None], found, codes)
    return BlockWeights(codes, scales, None if form.symmetric else points, form)


def _centred(codes: np.ndarray, points: np.ndarray) -> np.ndarray:
    return codes.astype(np.float32) - points.astype(np.float32)[:, None]


def _error(
    blocks: np.ndarray, codes: np.ndarray, scales: np.ndarray, points: np.ndarray, counts: np.ndarray
) -> np.ndarray:  # fmt: skip
    difference = blocks - _centred(codes, points) * scales[:, None]
    return np.asarray((counts * difference**2).sum(axis=1))


def _fitted(blocks: np.ndarray, codes: np.ndarray, points: np.ndarray, counts: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The scale of each block by weighted least squares; where all codes are the zero point, as it was."""
    centred = _centred(codes, points)
    above, below = (counts * centred * blocks).sum(axis=1), (counts * centred**2).sum(axis=1)
    return np.where(below > 0, above / np.where(below > 0, below, 1), scales)
