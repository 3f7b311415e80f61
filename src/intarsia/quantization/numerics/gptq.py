"""GPTQ (Frantar et al., 2022): each row of weights is rounded, and later rows make up for its error on the inputs seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intarsia.quantization.numerics.block_weights import BlockFormat, BlockWeights, block_ranges, in_blocks, nearest

_ROWS_AT_ONCE = 128  # whose errors are applied to later rows together


class InputMoments:
    """The second moments of a product's inputs, X^T X, summed over runs: float32 [K, K]."""

    def __init__(self) -> None:
        self.sums: np.ndarray | None = None
        self.rows = 0

    def add(self, values: np.ndarray) -> None:
        """Inputs [..., K]."""
        flat = values.reshape(-1, values.shape[-1]).astype(np.float32)
        product = flat.T @ flat
        self.sums = product if self.sums is None else self.sums + product
        self.rows += len(flat)


@dataclass(frozen=True)
class GptqSettings:
    """How errors are made up for.

    Attributes:
        damping: added to the diagonal of the moments, as a share of its mean.
        by_activity: rows in the order of falling moments.
    """

    damping: float = 0.01
    by_activity: bool = False


def gptq(weights: np.ndarray, form: BlockFormat, moments: InputMoments, settings: GptqSettings) -> BlockWeights:
    """The matrix [K, N] in blocks, for inputs with these moments; as `nearest` where none were seen.

    Scales and zero points of a block are those of its weights once earlier rows are made up for; by activity they are those of
    the weights as they were, since rows of several blocks take turns.
    """
    if moments.sums is None or moments.sums.shape[0] != weights.shape[0]:
        return nearest(weights, form)
    work, hessian = weights.astype(np.float64), moments.sums.astype(np.float64)
    dead = np.diag(hessian) == 0
    hessian[dead, dead] = 1.0
    work[dead] = 0.0
    order = np.argsort(-np.diag(hessian), kind="stable") if settings.by_activity else np.arange(len(work))
    factor = _inverse_factor(hessian[np.ix_(order, order)], settings.damping)
    scales, points = block_ranges(in_blocks(work, form), form, weights.dtype)
    codes = np.empty(work.shape, np.uint8)
    _round_rows(_Rows(work[order], order, codes, scales, points), factor, form, weights.dtype, settings.by_activity)
    padded = np.zeros((len(scales) * form.block, work.shape[1]), np.uint8)
    padded[len(work) :] = np.repeat(points[-1:], len(padded) - len(work), axis=0)
    padded[: len(work)] = codes
    return BlockWeights(padded.reshape(-1, form.block, work.shape[1]), scales, None if form.symmetric else points, form)


@dataclass
class _Rows:
    """Rows that are rounded one after another.

    Attributes:
        work: the weights, in `order`; changed by errors of earlier rows.
        codes, scales, points: what is found, in the matrix's own order.
    """

    work: np.ndarray
    order: np.ndarray
    codes: np.ndarray
    scales: np.ndarray
    points: np.ndarray


def _round_rows(rows: _Rows, factor: np.ndarray, form: BlockFormat, dtype: np.dtype, fixed: bool) -> None:
    count = len(rows.work)
    for start in range(0, count, _ROWS_AT_ONCE):
        end = min(start + _ROWS_AT_ONCE, count)
        errors = np.zeros((end - start, rows.work.shape[1]))
        for i in range(start, end):
            own = rows.order[i]
            block = own // form.block
            if not fixed and own % form.block == 0:
                current = in_blocks(rows.work[i : i + form.block], form)
                rows.scales[block], rows.points[block] = (found[0] for found in block_ranges(current, form, dtype))
            scale, point = rows.scales[block].astype(np.float64), rows.points[block].astype(np.float64)
            safe = np.where(scale == 0, 1.0, scale)
            code = np.clip(np.rint(rows.work[i] / safe) + point, 0, form.top)
            rows.codes[own] = code
            errors[i - start] = (rows.work[i] - (code - point) * scale) / factor[i, i]
            rows.work[i + 1 : end] -= np.outer(factor[i, i + 1 : end], errors[i - start])
        rows.work[end:] -= factor[start:end, end:].T @ errors


def _inverse_factor(hessian: np.ndarray, damping: float) -> np.ndarray:
    """The upper Cholesky factor of the inverse of the damped matrix; damping grows until there is one."""
    mean = float(np.diag(hessian).mean())
    share = max(damping, 1e-6)
    while True:
        try:
            inverse = np.linalg.inv(hessian + share * mean * np.eye(len(hessian)))
            return np.asarray(np.linalg.cholesky((inverse + inverse.T) / 2).T)
        except np.linalg.LinAlgError:
            share *= 10.0
