"""Half-quadratic quantisation (Badri and Shaji, 2023): zero points that make the error of weights sparse. It needs no data."""

from __future__ import annotations

import numpy as np

from intarsia.quantization.numerics.block_weights import BlockFormat, BlockWeights, in_blocks

_NORM, _BETA, _GROWTH, _ROUNDS = 0.7, 10.0, 1.01, 20


def half_quadratic(weights: np.ndarray, form: BlockFormat) -> BlockWeights:
    """Blocks whose zero points are fractions: those that minimise the p-norm (0.7) of the error, by alternating steps.

    A step shrinks the error of the weights towards 0, and takes the mean of what is left as the new zero point; it ends when
    the mean error does not fall.
    """
    blocks = in_blocks(weights, form)
    least, most = blocks.min(axis=1, keepdims=True), blocks.max(axis=1, keepdims=True)
    width = most - least
    steps = np.minimum(np.float32(form.top) / np.where(width == 0, np.float32(form.top), width), np.float32(2e4))
    points = np.rint(-least * steps)
    best = np.inf
    beta = np.float32(_BETA)
    for _ in range(_ROUNDS):
        codes = np.clip(np.rint(blocks * steps + points), 0, form.top)
        error = blocks - (codes - points) / steps
        size = float(np.abs(error).mean())
        if size >= best:
            break
        best = size
        points = (codes - (blocks - _shrunk(error, beta)) * steps).mean(axis=1, keepdims=True)
        beta *= np.float32(_GROWTH)
    codes = np.clip(np.rint(blocks * steps + points), 0, form.top).astype(np.uint8)
    scales = (np.float32(1) / steps)[:, 0].astype(weights.dtype).astype(np.float32)
    return BlockWeights(codes, scales, points[:, 0].astype(np.float32), form)


def _shrunk(error: np.ndarray, beta: np.float32) -> np.ndarray:
    """What minimises |x|^p + beta/2 |x - error|^2, approximately."""
    size = np.abs(error)
    left = size - (np.float32(1) / beta) * (size + np.float32(1e-8)) ** np.float32(_NORM - 1)
    return np.asarray(np.sign(error) * np.maximum(left, 0))
