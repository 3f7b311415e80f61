"""Boxes: proposals, non-maximum suppression, regions of interest, keypoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from nnapi_kernels import Failed, layout_back, layout_moved, reals

Array = np.ndarray
F = np.float32


def _overlap(a: Array, b: Array) -> Any:
    """Intersection over union of two boxes by their corners."""
    areas = [(r[2] - r[0]) * (r[3] - r[1]) for r in (a, b)]
    width = max(min(a[2], b[2]) - max(a[0], b[0]), F(0))
    height = max(min(a[3], b[3]) - max(a[1], b[1]), F(0))
    both = width * height
    return both / (areas[0] + areas[1] - both)


def _suppressed(scores: Array, box: Callable[[int], Array], chosen: list[int], most: int,
                keeps: Callable[[int, Any], bool]) -> list[int]:  # fmt: skip
    """The best of `chosen` one by one; after each, those that `keeps` (index, overlap) does not want are dropped."""
    left, found = list(chosen), []
    while left and (most < 0 or len(found) < most):
        best = max(range(len(left)), key=lambda i: scores[left[i]])
        left[0], left[best] = left[best], left[0]
        top = left.pop(0)
        found.append(top)
        i = 0
        while i < len(left):
            if keeps(left[i], _overlap(box(left[i]), box(top))):
                i += 1
            else:
                left[i] = left[-1]
                left.pop()
    return found


def _by_class(scores: Array, boxes: Callable[[int], Array], threshold: float, most: int, most_of_class: int,
              keeps: Callable[[int, Any], bool]) -> list[int]:  # fmt: skip
    """Positions in `scores` [boxes, classes], flat; class 0 is the background."""
    flat, classes = scores.reshape(-1), scores.shape[1]
    found: list[int] = []
    for c in range(1, classes):
        chosen = [b * classes + c for b in range(len(scores)) if flat[b * classes + c] > F(threshold)]
        found += _suppressed(flat, boxes, chosen, most_of_class, keeps)
    found.sort(key=lambda i: -flat[i])
    return found if most < 0 else found[:most]


@reals("BOX_WITH_NMS_LIMIT")
def box_with_nms_limit(scores: Array, boxes: Array, batches: Array, threshold: float, most: int, kernel: int, overlap: float,
                       sigma: float, soft_threshold: float) -> list[Array]:  # fmt: skip
    scores, boxes = scores.astype(F).copy(), boxes.astype(F)
    classes = scores.shape[1]
    kept: list[tuple[Any, Array, int, int]] = []
    for batch in dict.fromkeys(batches.tolist()):
        rows = np.nonzero(batches == batch)[0]
        own, corners = scores[rows], boxes[rows].reshape(-1, 4)
        flat = own.reshape(-1)

        def keeps(i: int, iou: Any, flat: Array = flat) -> bool:
            if kernel == 0:
                factor = F(1 if iou < F(overlap) else 0)
            elif kernel == 1:
                factor = F(1) if iou < F(overlap) else F(1) - iou
            else:
                factor = np.exp(-iou * iou / F(sigma))
            flat[i] *= factor
            return bool(flat[i] >= F(soft_threshold))

        found = _by_class(own, corners.__getitem__, threshold, most, most, keeps)
        found.sort(key=lambda i, flat=flat: (i % classes, -flat[i]))
        kept += [(flat[i], corners[i], i % classes, batch) for i in found]
    n = len(kept)
    return [
        np.array([k[0] for k in kept], F).reshape(n), np.array([k[1] for k in kept], F).reshape(n, 4),
        np.array([k[2] for k in kept], np.int64).reshape(n), np.array([k[3] for k in kept], np.int64).reshape(n),
    ]  # fmt: skip


def _transformed(regions: Array, deltas: Array, heights: Array, widths: Array) -> Array:
    """Corners [n, 4] moved and scaled by `deltas` [n, classes, 4], inside images of these sizes [n]."""
    w, h = regions[:, 2] - regions[:, 0], regions[:, 3] - regions[:, 1]
    if (w < 0).any() or (h < 0).any():
        raise Failed("a region that ends before it begins")
    x, y = (regions[:, 0] + regions[:, 2]) / 2, (regions[:, 1] + regions[:, 3]) / 2
    w, h, x, y = (v[:, None] for v in (w, h, x, y))
    new_w, new_h = np.exp(deltas[..., 2]) * w, np.exp(deltas[..., 3]) * h
    new_x, new_y = x + deltas[..., 0] * w, y + deltas[..., 1] * h
    corners = [new_x - new_w / 2, new_y - new_h / 2, new_x + new_w / 2, new_y + new_h / 2]
    limits = [widths[:, None], heights[:, None]] * 2
    return np.stack([np.clip(c, 0, top) for c, top in zip(corners, limits, strict=True)], -1)


@reals("AXIS_ALIGNED_BBOX_TRANSFORM")
def bbox_transform(regions: Array, deltas: Array, batches: Array, images: Array) -> Array:
    sizes = images[batches]
    found = _transformed(regions, deltas.reshape(len(regions), deltas.shape[1] // 4, 4), sizes[:, 0], sizes[:, 1])
    return found.reshape(deltas.shape)


@reals("GENERATE_PROPOSALS")
def generate_proposals(scores: Array, deltas: Array, anchors: Array, images: Array, stride_h: float, stride_w: float,
                       before: int, after: int, overlap: float, least: float, nchw: bool) -> list[Array]:  # fmt: skip
    scores, deltas = layout_moved(scores, nchw).astype(F), layout_moved(deltas, nchw).astype(F)
    n, h, w, _ = scores.shape
    shifts = np.stack(np.broadcast_arrays(np.arange(w) * stride_w, np.arange(h)[:, None] * stride_h), -1)
    regions = (anchors + np.tile(shifts, 2)[:, :, None]).reshape(-1, 4).astype(F)
    found_scores, found, batches = [], [], []
    for b in range(n):
        height, width = images[b, :2]
        ones = np.ones(len(regions))
        moved = _transformed(regions, deltas[b].reshape(-1, 1, 4), height * ones, width * ones)[:, 0].astype(F)
        flat = scores[b].reshape(-1)
        chosen = list(range(len(flat)))
        if 0 < before < len(chosen):
            chosen = sorted(chosen, key=lambda i, flat=flat: -flat[i])[:before]
        sizes = moved[:, 2:] - moved[:, :2]
        centres = moved[:, :2] + sizes / 2
        good = (sizes > F(least)).all(1) & (centres[:, 0] < width) & (centres[:, 1] < height)
        chosen = [i for i in chosen if good[i]]
        for i in _suppressed(flat, moved.__getitem__, chosen, after, lambda _, iou: bool(iou < F(overlap))):
            found_scores.append(flat[i])
            found.append(moved[i])
            batches.append(b)
    return [np.array(found_scores, F), np.array(found, F).reshape(-1, 4), np.array(batches, np.int64)]


@reals("DETECTION_POSTPROCESSING")
def detection_postprocessing(scores: Array, deltas: Array, anchors: Array, *rest: Any) -> list[Array]:
    scales, (regular, most, of_detection, of_class, threshold, overlap, background) = rest[:4], rest[4:]
    batches, _, classes = scores.shape
    out = (np.zeros((batches, most)), np.zeros((batches, most, 4)), np.zeros((batches, most), int), np.zeros(batches, int))
    for b in range(batches):
        own, d = scores[b].astype(F), deltas[b]
        y = anchors[:, 0] + anchors[:, 2] * d[:, 0] / scales[0]
        x = anchors[:, 1] + anchors[:, 3] * d[:, 1] / scales[1]
        half_h = anchors[:, 2] * np.exp(d[:, 2] / scales[2]) / 2
        half_w = anchors[:, 3] * np.exp(d[:, 3] / scales[3]) / 2
        boxes = np.stack([y - half_h, x - half_w, y + half_h, x + half_w], -1).astype(F)

        def keeps(_: int, iou: Any) -> bool:
            return bool(iou < F(overlap))

        if regular:
            found = _by_class(own, lambda i, boxes=boxes: boxes[i // classes], threshold, most, of_class, keeps)
            results = [(own.reshape(-1)[i], boxes[i // classes], i % classes) for i in found]
        else:
            best = own[:, 1:].max(1)
            chosen = [i for i in range(len(own)) if best[i] > F(threshold)]
            results = []
            for i in _suppressed(best, boxes.__getitem__, chosen, most, keeps):
                order = sorted(range(1, classes), key=lambda c, i=i: -own[i, c])[: min(classes - 1, of_detection)]
                results += [(own[i, c], boxes[i], c) for c in order]
        for k, (score, box, c) in enumerate(results[:most]):
            out[0][b, k], out[1][b, k], out[2][b, k] = score, box, c - (0 if background else 1)
        out[3][b] = len(results)
    return list(out)


def _check_regions(regions: Array) -> None:
    if (regions < 0).any() or (regions[:, 2:] < regions[:, :2]).any():
        raise Failed("a region outside, or that ends before it begins")


@reals("ROI_ALIGN")
def roi_align(x: Array, regions: Array, batches: Array, height: int, width: int, stride_h: float, stride_w: float,
              samples_h: int, samples_w: int, nchw: bool) -> Array:  # fmt: skip
    _check_regions(regions)
    x = layout_moved(x, nchw)
    found = np.zeros((len(regions), height, width, x.shape[3]), x.dtype)
    for r, (region, batch) in enumerate(zip(regions, batches, strict=True)):
        x1, y1, x2, y2 = region / [stride_w, stride_h, stride_w, stride_h]
        rows = _places(y1, y2, height, samples_h, x.shape[1])
        columns = _places(x1, x2, width, samples_w, x.shape[2])
        found[r] = np.einsum("ih,jw,hwc->ijc", rows, columns, x[batch])
    return layout_back(found, nchw)


def _places(start: float, end: float, count: int, samples: int, size: int) -> Array:
    """Shares [count, size] of the pixels in each bin's mean."""
    step = max(end - start, 1.0) / count
    samples = samples if samples > 0 else int(np.ceil(np.float32(step)))
    at = start + step * np.arange(count)[:, None] + step / samples * (np.arange(samples) + 0.5)
    low = np.floor(at).astype(int)
    share = np.where(low >= size - 1, 0, at - low)
    low = np.minimum(low, size - 1)
    weights = np.zeros((count, size))
    for i in range(count):
        np.add.at(weights[i], low[i], (1 - share[i]) / samples)
        np.add.at(weights[i], np.minimum(low[i] + 1, size - 1), share[i] / samples)
    return weights


@reals("ROI_POOLING")
def roi_pooling(x: Array, regions: Array, batches: Array, height: int, width: int, stride_h: float, stride_w: float,
                nchw: bool) -> Array:  # fmt: skip
    _check_regions(regions)
    x = layout_moved(x, nchw)
    found = np.zeros((len(regions), height, width, x.shape[3]), x.dtype)
    for r, (region, batch) in enumerate(zip(regions, batches, strict=True)):
        x1, y1, x2, y2 = (int(np.floor(v + 0.5)) for v in region / [stride_w, stride_h, stride_w, stride_h])
        for i, rows in enumerate(_bins(y1, y2, height, x.shape[1])):
            for j, columns in enumerate(_bins(x1, x2, width, x.shape[2])):
                part = x[batch, rows, columns]
                found[r, i, j] = part.max((0, 1)) if part.size else 0
    return layout_back(found, nchw)


def _bins(start: int, end: int, count: int, size: int) -> Sequence[slice]:
    step = F(max(end - start + 1, 1)) / F(count)
    return [
        slice(min(int(np.floor(step * i + start)), size), min(int(np.ceil(step * (i + 1) + start)), size)) for i in range(count)
    ]


@reals("HEATMAP_MAX_KEYPOINT")
def heatmap_max_keypoint(heat: Array, boxes: Array, nchw: bool) -> list[Array]:
    heat = layout_moved(heat, nchw).astype(F)
    n, size, _, points = heat.shape
    scores, places = np.zeros((n, points)), np.zeros((n, points, 2))
    for b in range(n):
        start, extent = boxes[b, :2], boxes[b, 2:] - boxes[b, :2]
        if (extent < 0).any():
            raise Failed("a box that ends before it begins")
        for p in range(points):
            field = heat[b, :, :, p]
            row, column = divmod(int(field.argmax()), size)
            around = np.pad(field, 1, mode="reflect")[row : row + 3, column : column + 3]
            delta, scores[b, p] = _refined(around)
            places[b, p] = (np.array([column, row]) + delta + 0.5) / size * extent + start
    return [scores, places]


def _refined(grid: Array) -> tuple[Array, float]:
    """Where the quadratic through a 3 x 3 grid has its maximum, from the centre, and its value there."""
    b = -np.array([grid[1, 2] - grid[1, 0], grid[2, 1] - grid[0, 1]]) / 2
    mixed = (grid[2, 2] - grid[2, 0] - grid[0, 2] + grid[0, 0]) / 4
    a = np.array([[grid[1, 0] - 2 * grid[1, 1] + grid[1, 2], mixed], [mixed, grid[0, 1] - 2 * grid[1, 1] + grid[2, 1]]])
    product = a[0, 0] * a[1, 1]
    determinant = product - mixed * mixed
    if abs(determinant) < 1e-5 + 1e-5 * product:
        return np.zeros(2), float(grid[1, 1])
    delta = np.array([a[1, 1] * b[0] - mixed * b[1], a[0, 0] * b[1] - mixed * b[0]]) / determinant
    delta /= max(np.abs(delta).max() / 1.5, 1.0)
    return delta, float(grid[1, 1] - b @ delta + delta @ a @ delta / 2)
