"""Convolutions, pools, and images made larger or smaller."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from nnapi_kernels import Failed, activated, layout_back, layout_moved, reals

_SAME, _VALID = 1, 2
Pads = tuple[int, int, int, int]  # left, right, top, bottom


def _implicit(scheme: int, sizes: tuple[int, int], kernel: tuple[int, int], strides: tuple[int, int]) -> Pads:
    """Paddings of a scheme: SAME has the odd element at the end."""
    if scheme == _VALID:
        return 0, 0, 0, 0
    if scheme != _SAME:
        raise Failed(f"no padding scheme {scheme}")
    pads = []
    for size, window, step in zip(sizes, kernel, strides, strict=True):
        needed = max((-(-size // step) - 1) * step + window - size, 0)
        pads += [needed // 2, needed - needed // 2]
    return pads[2], pads[3], pads[0], pads[1]


def _windows(x: np.ndarray, kernel: tuple[int, int], steps: tuple[int, int], dilation: tuple[int, int], fill: float,
             pads: Pads) -> np.ndarray:  # fmt: skip
    """x [N, H, W, C] as [N, H', W', kernel height, kernel width, C]."""
    left, right, top, bottom = pads
    x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    if x.shape[1] < spans[0] or x.shape[2] < spans[1]:
        raise Failed(f"windows of {spans} in {x.shape[1:3]}")
    views = np.lib.stride_tricks.sliding_window_view(x, spans, (1, 2))[:, :: steps[0], :: steps[1]]
    return views[..., :: dilation[0], :: dilation[1]].transpose(0, 1, 2, 4, 5, 3)


def _rows(x: np.ndarray, kept: int = 3) -> np.ndarray:
    """All dimensions behind the first `kept` as one; there may be no elements."""
    return x.reshape(*x.shape[:kept], math.prod(x.shape[kept:]))


def _conv_arguments(rest: tuple[Any, ...], x: np.ndarray, weights: np.ndarray, extra: int) -> tuple[Any, ...]:
    """Paddings, strides, what stands between them and the activation (`extra` numbers), activation, layout, dilation."""
    implicit = len(rest) == 4 + extra or (len(rest) > 4 + extra and isinstance(rest[4 + extra], bool))
    at = 1 if implicit else 4
    strides = (rest[at + 1], rest[at])
    between = rest[at + 2 : at + 2 + extra]
    fuse = rest[at + 2 + extra]
    left = rest[at + 3 + extra :]
    nchw = bool(left[0]) if left else False
    dilation = (left[2], left[1]) if len(left) == 3 else (1, 1)
    moved = layout_moved(x, nchw)
    kernel = weights.shape[1:3]
    spans = ((kernel[0] - 1) * dilation[0] + 1, (kernel[1] - 1) * dilation[1] + 1)
    pads = _implicit(rest[0], moved.shape[1:3], spans, strides) if implicit else rest[:4]
    return moved, pads, strides, between, fuse, nchw, dilation


@reals("CONV_2D")
def conv(x: np.ndarray, weights: np.ndarray, bias: np.ndarray, *rest: Any) -> np.ndarray:
    """Weights [out channels, height, width, in channels]."""
    x, pads, strides, _, fuse, nchw, dilation = _conv_arguments(rest, x, weights, 0)
    if x.shape[3] != weights.shape[3] or bias.shape != weights.shape[:1]:
        raise Failed(f"{x.shape[3]} channels, weights {weights.shape}, bias {bias.shape}")
    seen = _windows(x, weights.shape[1:3], strides, dilation, 0, pads)
    y = _rows(seen) @ _rows(weights, 1).T
    return layout_back(activated(y + bias, fuse), nchw)


@reals("GROUPED_CONV_2D")
def grouped_conv(x: np.ndarray, weights: np.ndarray, bias: np.ndarray, *rest: Any) -> np.ndarray:
    x, pads, strides, (groups,), fuse, nchw, _ = _conv_arguments(rest, x, weights, 1)
    if x.shape[3] != weights.shape[3] * groups or weights.shape[0] % groups:
        raise Failed(f"{x.shape[3]} channels in {groups} groups, weights {weights.shape}")
    seen = _windows(x, weights.shape[1:3], strides, (1, 1), 0, pads)
    parts = []
    for part, own in zip(np.split(seen, groups, -1), np.split(weights, groups), strict=True):
        parts.append(_rows(part) @ _rows(own, 1).T)
    return layout_back(activated(np.concatenate(parts, -1) + bias, fuse), nchw)


@reals("DEPTHWISE_CONV_2D")
def depthwise_conv(x: np.ndarray, weights: np.ndarray, bias: np.ndarray, *rest: Any) -> np.ndarray:
    """Weights [1, height, width, channels times multiplier]."""
    x, pads, strides, (multiplier,), fuse, nchw, dilation = _conv_arguments(rest, x, weights, 1)
    if x.shape[3] * multiplier != weights.shape[3] or weights.shape[0] != 1:
        raise Failed(f"{x.shape[3]} channels times {multiplier}, weights {weights.shape}")
    seen = _windows(x, weights.shape[1:3], strides, dilation, 0, pads)
    own = weights.reshape(*weights.shape[1:3], x.shape[3], multiplier)
    y = np.einsum("nhwijc,ijcm->nhwcm", seen, own)
    return layout_back(activated(_rows(y) + bias, fuse), nchw)


@reals("TRANSPOSE_CONV_2D")
def transpose_conv(x: np.ndarray, weights: np.ndarray, bias: np.ndarray, *rest: Any) -> np.ndarray:
    """Weights [out channels, height, width, in channels]."""
    implicit = len(rest) == 6
    nchw, fuse = bool(rest[-1]), rest[-2]
    x = layout_moved(x, nchw)
    steps = (rest[3], rest[2]) if implicit else (rest[5], rest[4])
    n, h, w, _ = x.shape
    out, kh, kw, _ = weights.shape
    full = np.zeros((n, (h - 1) * steps[0] + kh, (w - 1) * steps[1] + kw, out), x.dtype)
    for i in range(kh):
        for j in range(kw):
            full[:, i : i + (h - 1) * steps[0] + 1 : steps[0], j : j + (w - 1) * steps[1] + 1 : steps[1]] += (
                x @ weights[:, i, j].T
            )
    if implicit:
        shape = [int(d) for d in rest[0]]
        sizes = (shape[2], shape[3]) if nchw else (shape[1], shape[2])
        needed = [max((s - 1) * t + k - o, 0) for s, t, k, o in zip((h, w), steps, (kh, kw), sizes, strict=True)]
        top, left = (needed[0] // 2, needed[1] // 2) if rest[1] == _SAME else (0, 0)
        y = np.zeros((n, *sizes, out), x.dtype)
        part = full[:, top : top + sizes[0], left : left + sizes[1]]
        y[:, : part.shape[1], : part.shape[2]] = part
    else:
        left, right, top, bottom = rest[:4]
        y = full[:, top : full.shape[1] - bottom, left : full.shape[2] - right]
    return layout_back(activated(y + bias, fuse), nchw)


def _pool(x: np.ndarray, rest: tuple[Any, ...]) -> tuple[np.ndarray, np.ndarray, int, bool]:
    """Windows with NaN for what lies outside, how many elements each has, activation, layout."""
    implicit = len(rest) == 6 or (len(rest) > 6 and isinstance(rest[6], bool))
    at = 1 if implicit else 4
    step_w, step_h, width, height, fuse = rest[at : at + 5]
    nchw = bool(rest[at + 5]) if len(rest) > at + 5 else False
    x = layout_moved(x, nchw)
    pads = _implicit(rest[0], x.shape[1:3], (height, width), (step_h, step_w)) if implicit else rest[:4]
    seen = _windows(x, (height, width), (step_h, step_w), (1, 1), 0, pads)
    inside = _windows(np.ones_like(x[:1, ..., :1]), (height, width), (step_h, step_w), (1, 1), 0, pads)
    return seen, inside, fuse, nchw


@reals("AVERAGE_POOL_2D")
def average_pool(x: np.ndarray, *rest: Any) -> np.ndarray:
    seen, inside, fuse, nchw = _pool(x, rest)
    return layout_back(activated(seen.sum((3, 4)) / inside.sum((3, 4)), fuse), nchw)


@reals("L2_POOL_2D")
def l2_pool(x: np.ndarray, *rest: Any) -> np.ndarray:
    seen, inside, fuse, nchw = _pool(x, rest)
    return layout_back(activated(np.sqrt((seen * seen).sum((3, 4)) / inside.sum((3, 4))), fuse), nchw)


@reals("MAX_POOL_2D")
def max_pool(x: np.ndarray, *rest: Any) -> np.ndarray:
    seen, inside, fuse, nchw = _pool(x, rest)
    return layout_back(activated(np.where(inside > 0, seen, -np.inf).max((3, 4)), fuse), nchw)


def _target(x: np.ndarray, width: Any, height: Any) -> tuple[int, int]:
    if isinstance(width, float):
        return int(np.floor(x.shape[1] * np.float32(height))), int(np.floor(x.shape[2] * np.float32(width)))
    return height, width


def _positions(size: int, target: int, align: bool, half: bool) -> np.ndarray:
    scale = (size - 1) / (target - 1) if align and target > 1 else size / target
    places = np.arange(target)
    return np.float32(scale) * (places + np.float32(0.5)) - (0 if half == 2 else 0.5) if half else np.float32(scale) * places


@reals("RESIZE_BILINEAR")
def resize_bilinear(
    x: np.ndarray, width: Any, height: Any, nchw: bool = False, align: bool = False, half: bool = False
) -> np.ndarray:
    x = layout_moved(x, nchw)
    for axis, target in zip((1, 2), _target(x, width, height), strict=True):
        size = x.shape[axis]
        at = np.clip(_positions(size, target, align, half), 0, None)
        low = np.minimum(np.floor(at).astype(int), size - 1)
        high = np.minimum(low + 1, size - 1)
        shape = [1] * 4
        shape[axis] = target
        share = (at - np.floor(at)).astype(x.dtype).reshape(shape)
        x = np.take(x, low, axis) * (1 - share) + np.take(x, high, axis) * share
    return layout_back(x, nchw)


@reals("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest(
    x: np.ndarray, width: Any, height: Any, nchw: bool = False, align: bool = False, half: bool = False
) -> np.ndarray:
    x = layout_moved(x, nchw)
    for axis, target in zip((1, 2), _target(x, width, height), strict=True):
        size = x.shape[axis]
        at = _positions(size, target, align, 2 if half else False)
        near = np.floor(at + 0.5) if align else np.floor(at)
        x = np.take(x, np.clip(near.astype(int), 0, size - 1), axis)
    return layout_back(x, nchw)
