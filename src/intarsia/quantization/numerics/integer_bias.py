"""Biases in 32-bit integers: their scale is the input's times the weights', which may be too small for them."""

from __future__ import annotations

import numpy as np

_MOST = float(np.iinfo(np.int32).max)
_MARGIN = 1.0001


def least_bias_scale(bias: np.ndarray, per_channel: bool) -> np.ndarray:
    """The smallest scale (float64) by which a bias fits 32 bits: one number, or one of each channel."""
    size = np.abs(bias.astype(np.float64))
    largest = size if per_channel else size.max(initial=0.0)
    return np.asarray(_MARGIN * largest / _MOST)


def widened_weight_scale(input_scale: np.ndarray, weight_scale: np.ndarray, bias: np.ndarray) -> np.ndarray | None:
    """Scales of weights, in their type, made as large as the bias needs: None where they are large enough.

    Args:
        input_scale: a scalar.
        weight_scale: a scalar, or one of each channel; there the bias has one element for each.
        bias: float32 or float16.
    """
    if not weight_scale.size:
        return None
    per_channel = weight_scale.ndim == 1 and weight_scale.size == bias.size
    if weight_scale.ndim and not per_channel:
        return None
    product = input_scale.astype(np.float64).reshape(()) * weight_scale.astype(np.float64)
    least = least_bias_scale(bias.reshape(-1), per_channel)
    small = (product < least) & (product > 0.0)
    if not small.any():
        return None
    wanted = weight_scale.astype(np.float64) * np.where(small, least / np.where(small, product, 1.0), 1.0)
    stored = wanted.astype(weight_scale.dtype)
    if stored.dtype.itemsize == 2:  # rounding to float16 must not undo it
        stored = np.where(stored < wanted, np.nextafter(stored, np.array(np.inf, stored.dtype)), stored)
    return np.where(small, stored, weight_scale).astype(weight_scale.dtype)


def quantized_bias(bias: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, bool]:
    """The bias in int32, clipped, and whether something was."""
    with np.errstate(all="ignore"):
        wide = np.rint(bias.astype(np.float64) / scale.astype(np.float64))
    info = np.iinfo(np.int32)
    clipped = bool((np.abs(wide) > info.max).any())
    return np.clip(np.nan_to_num(wide), info.min, info.max).astype(np.int32), clipped
