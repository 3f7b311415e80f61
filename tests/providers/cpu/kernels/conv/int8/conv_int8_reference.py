"""Convolution of bytes as sums of int64."""

from __future__ import annotations

import itertools

import numpy as np


def convolved(x: np.ndarray, w: np.ndarray, strides: tuple, dilations: tuple, pads: tuple, group: int) -> np.ndarray:
    """Centred integers [N, C, H, W] by [M, C / group, h, w]."""
    x = np.pad(x, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
    n, c, height, width = x.shape
    m, depth, kh, kw = w.shape
    oh = (height - (kh - 1) * dilations[0] - 1) // strides[0] + 1
    ow = (width - (kw - 1) * dilations[1] - 1) // strides[1] + 1
    out = np.zeros((n, group, m // group, oh, ow), np.int64)
    parts = x.reshape(n, group, c // group, height, width)
    weights = w.reshape(group, m // group, depth, kh, kw)
    for i, j in itertools.product(range(kh), range(kw)):
        top, left = i * dilations[0], j * dilations[1]
        seen = parts[
            ..., top : top + (oh - 1) * strides[0] + 1 : strides[0], left : left + (ow - 1) * strides[1] + 1 : strides[1]
        ]
        out += np.einsum("ngchw,gmc->ngmhw", seen, weights[..., i, j])
    return out.reshape(n, m, oh, ow)
