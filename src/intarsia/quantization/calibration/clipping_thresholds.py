"""Which range of a histogram to quantise: by percentile, by relative entropy, by mean squared error."""

from __future__ import annotations

import numpy as np

from intarsia.errors import InvalidArgument


def percentile_range(counts: np.ndarray, edges: np.ndarray, percentile: float, symmetric: bool) -> tuple[float, float]:
    """The range with `percentile` per cent of the values, as much cut off on each side; of magnitudes where symmetric.

    Raises:
        InvalidArgument: a percentile outside [0, 100].
    """
    if not 0 <= percentile <= 100:
        raise InvalidArgument(f"Invalid percentile. Must be in range 0 <= percentile <= 100, got {percentile}")
    shares = np.cumsum(counts / max(1, counts.sum()))
    if symmetric:
        end = float(edges[min(int(np.searchsorted(shares, percentile / 100.0)), len(edges) - 1)])
        return -end, end
    cut = (100.0 - percentile) / 200.0
    left, right = (int(np.searchsorted(shares, share)) for share in (cut, 1.0 - cut))
    return float(edges[min(left, len(edges) - 1)]), float(edges[min(right, len(edges) - 1)])


def entropy_range(counts: np.ndarray, edges: np.ndarray, levels: int) -> tuple[float, float]:
    """The range, symmetric about the middle bin, whose values in `levels` steps diverge least from what they were.

    As in "8-bit inference with TensorRT" (Migacz, GTC 2017): what is cut off counts in the outer bins of the reference, and a
    step's count is spread over those of its bins that are not empty. Without more bins than levels the range is the whole one.
    """
    middle, half = counts.size // 2, levels // 2
    best, found = np.inf, (float(edges[0]), float(edges[-1]))
    for reach in range(half, middle + 1):
        start, end = middle - reach, min(middle + reach + 1, counts.size)
        divergence = _divergence(counts, start, end, levels)
        if divergence < best:
            best, found = divergence, (float(edges[start]), float(edges[end]))
    return found


def _divergence(counts: np.ndarray, start: int, end: int, levels: int) -> float:
    inside = counts[start:end].astype(np.float64)
    reference = inside.copy()
    reference[0] += counts[:start].sum()
    reference[-1] += counts[end:].sum()
    full = reference > 0
    merged = max(1, inside.size // levels)
    starts = np.arange(levels)[: inside.size] * merged
    widths = np.diff(np.append(starts, inside.size))
    steps, filled = np.add.reduceat(inside, starts), np.add.reduceat(full.astype(np.float64), starts)
    spread = np.repeat(steps / np.maximum(filled, 1), widths) * full
    p, q = smoothed(reference), smoothed(spread)
    if p is None or q is None:
        return float(np.inf)
    return relative_entropy(p, q)


def relative_entropy(p: np.ndarray, q: np.ndarray) -> float:
    """The Kullback-Leibler divergence of two histograms, in nats; infinite where q has nothing and p something."""
    p, q = p / p.sum(), q / q.sum()
    there = p > 0
    if (q[there] <= 0).any():
        return float(np.inf)
    return float((p[there] * np.log(p[there] / q[there])).sum())


def smoothed(counts: np.ndarray, amount: float = 1e-4) -> np.ndarray | None:
    """The counts with `amount` in empty bins, taken from the others; None where all are empty, or too few to take it from."""
    empty = counts == 0
    filled = counts.size - int(empty.sum())
    if not filled:
        return None
    taken = amount * (counts.size - filled) / filled
    found = counts.astype(np.float64) + np.where(empty, amount, -taken)
    return None if (found <= 0).any() else found


def least_error_range(counts: np.ndarray, edges: np.ndarray, levels: int, symmetric: bool) -> tuple[float, float]:
    """The range whose quantisation in `levels` steps has the least mean squared error: what is clipped against the step.

    Ranges from a hundredth of the whole one to all of it are tried; rounding inside costs a twelfth of the squared step.
    """
    centres = (edges[:-1].astype(np.float64) + edges[1:].astype(np.float64)) / 2
    least, most = float(edges[0]), float(edges[-1])
    if symmetric:
        most = max(abs(least), abs(most))
        least = -most
    shares = np.linspace(0.01, 1.0, 100)[:, None]
    low, high = np.minimum(least * shares, 0), np.maximum(most * shares, 0)
    outside = centres - np.clip(centres, low, high)
    inside = (outside == 0) * ((high - low) / (levels - 1)) ** 2 / 12
    errors = ((outside**2 + inside) * counts).sum(axis=1)
    best = int(np.argmin(errors[::-1]))  # of equal ones the widest
    return float(low[::-1][best, 0]), float(high[::-1][best, 0])


def mean_and_deviation(counts: np.ndarray, edges: np.ndarray, power: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the bins' centres, each to a signed power, in the edges' type.

    Raises:
        InvalidArgument: a power that is not positive.
    """
    if power <= 0:
        raise InvalidArgument(f"power={power} <= 0 is invalid.")
    centres = (edges[:-1].astype(np.float64) + edges[1:].astype(np.float64)) / 2
    values = np.sign(centres) * np.abs(centres) ** power
    total = max(1, counts.sum())
    mean = (counts * values).sum() / total
    deviation = np.sqrt(max(0.0, (counts * (values - mean) ** 2).sum() / total))
    return np.array(mean, edges.dtype), np.array(deviation, edges.dtype)
