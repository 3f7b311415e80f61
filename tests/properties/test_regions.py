"""Operators over regions of images: deformed convolutions, regions of interest, boxes, overlapping columns, grids."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from drawn_nodes import Drawn, array, check, drawn, seeds, structures, wide
from hypothesis import given
from hypothesis import strategies as st
from test_movement import constants

FLOATS = (np.float32, np.float64, np.float16)


def bilinear(image: np.ndarray, y: float, x: float) -> np.ndarray:
    """Of [c, h, w] at one place; 0 outside."""
    h, w = image.shape[1:]
    total = np.zeros(len(image))
    for i, j in itertools.product((np.floor(y), np.floor(y) + 1), (np.floor(x), np.floor(x) + 1)):
        if 0 <= i < h and 0 <= j < w:
            total = total + image[:, int(i), int(j)] * (1 - abs(y - i)) * (1 - abs(x - j))
    return total


@drawn
@given(structures, seeds, st.data())
def test_deform_conv(structure: int, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(structure)
    dtype = FLOATS[rng.choice(3, p=(0.6, 0.3, 0.1))]
    groups, per_in, per_out = ((1, 1, 1), (1, 3, 2), (2, 2, 3), (3, 1, 1))[rng.integers(4)]
    channels = groups * per_in
    offset_groups = int(rng.choice([g for g in (1, 2, 3) if channels % g == 0]))
    kernel, strides = ([int(v) for v in rng.choice(values, 2)] for values in ([1, 2, 3], [1, 1, 2]))
    dilations, pads = [int(v) for v in rng.choice([1, 1, 2], 2)], [int(v) for v in rng.choice([0, 1, 2], 4)]
    spans = [(w - 1) * d + 1 for w, d in zip(kernel, dilations, strict=True)]
    space = [max(1, s - pads[i] - pads[i + 2]) + data.draw(st.sampled_from([0, 1, 3])) for i, s in enumerate(spans)]
    out = [(space[i] + pads[i] + pads[i + 2] - spans[i]) // strides[i] + 1 for i in range(2)]
    batch = data.draw(st.sampled_from([0, 1, 1, 2]))
    x = array(seed, (batch, channels, *space), dtype, low=-1, high=1)
    w = array(seed + 1, (groups * per_out, per_in, *kernel), dtype, low=-1, high=1)
    taps = kernel[0] * kernel[1]
    offset = (np.random.default_rng(seed + 2).integers(-8, 9, (batch, offset_groups * taps * 2, *out)) / 4 + 0.0625).astype(
        dtype
    )
    bias = array(seed + 3, (groups * per_out,), dtype) if rng.integers(2) else None
    mask = array(seed + 4, (batch, offset_groups * taps, *out), dtype, low=0, high=1) if rng.integers(2) else None
    expected = np.zeros((batch, groups * per_out, *out))
    shifts = wide(offset).reshape(batch, offset_groups, taps, 2, *out)
    weights = None if mask is None else wide(mask).reshape(batch, offset_groups, taps, *out)
    for n, og, tap, i, j in itertools.product(range(batch), range(offset_groups), range(taps), range(out[0]), range(out[1])):
        u, v = divmod(tap, kernel[1])
        own = slice(og * channels // offset_groups, (og + 1) * channels // offset_groups)
        y = i * strides[0] - pads[0] + u * dilations[0] + shifts[n, og, tap, 0, i, j]
        z = j * strides[1] - pads[1] + v * dilations[1] + shifts[n, og, tap, 1, i, j]
        sampled = bilinear(wide(x)[n, own], y, z) * (1 if weights is None else weights[n, og, tap, i, j])
        for c, value in zip(range(own.start, own.stop), sampled, strict=True):
            g = c // per_in
            expected[n, g * per_out : (g + 1) * per_out, i, j] += (
                value * wide(w)[g * per_out : (g + 1) * per_out, c % per_in, u, v]
            )
    expected = expected + (0 if bias is None else wide(bias)[:, None, None])
    attributes = {
        "group": groups, "offset_group": offset_groups, "kernel_shape": kernel, "strides": strides, "dilations": dilations,
        "pads": pads,
    }  # fmt: skip
    node = Drawn("DeformConv", [x, w, offset, bias, mask], attributes, constant=(1,) if rng.integers(2) else (), opset=22)
    check(node, expected, 30 if dtype is np.float16 else 200, scale=4)


def aligned(
    image: np.ndarray, roi: np.ndarray, size: tuple[int, int], ratio: int, scale: float, half: bool, mode: str
) -> np.ndarray:
    """RoiAlign of [c, h, w]."""
    h, w = image.shape[1:]
    x1, y1, x2, y2 = roi * scale - (0.5 if half else 0.0)
    width, height = x2 - x1, y2 - y1
    if not half:
        width, height = max(width, 1.0), max(height, 1.0)
    steps = [ratio or int(np.ceil(s / n)) for s, n in zip((height, width), size, strict=True)]
    out = np.zeros((len(image), *size))
    for i, j in np.ndindex(*size):
        found = []
        for a, b in np.ndindex(*steps):
            y = y1 + (i + (a + 0.5) / steps[0]) * height / size[0]
            x = x1 + (j + (b + 0.5) / steps[1]) * width / size[1]
            if not (-1 <= y <= h and -1 <= x <= w):
                found.append(np.zeros(len(image)))
                continue
            y, x = min(max(y, 0.0), h - 1.0), min(max(x, 0.0), w - 1.0)
            if mode == "avg":
                found.append(bilinear(image, y, x))
                continue
            corners = itertools.product((np.floor(y), np.floor(y) + 1), (np.floor(x), np.floor(x) + 1))
            found.append(
                np.max(
                    [
                        image[:, min(int(p), h - 1), min(int(q), w - 1)] * (1 - abs(y - p)) * (1 - abs(x - q))
                        for p, q in corners
                    ],
                    0,
                )
            )
        if found:
            out[:, i, j] = np.mean(found, 0) if mode == "avg" else np.max(found, 0)
    return out


@drawn
@given(structures, seeds, st.data())
def test_roi_align(structure: int, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(structure)
    half, mode, ratio = bool(rng.integers(2)), str(rng.choice(["avg", "avg", "max"])), int(rng.choice([0, 1, 2, 3]))
    size, scale = (int(rng.integers(1, 4)), int(rng.integers(1, 4))), float(rng.choice([1.0, 0.5, 0.25]))
    n, c, h, w = (data.draw(st.integers(1, 4)) for _ in range(4))
    count = data.draw(st.integers(0, 4))
    x = array(seed, (n, c, h + 1, w + 1), np.float32, low=0.5 if mode == "max" else -4)
    corners = np.random.default_rng(seed + 1).integers(-8, 40, (count, 2)) / 8 / scale + 1 / 64
    rois = np.concatenate([corners, corners + np.random.default_rng(seed + 2).integers(1, 30, (count, 2)) / 8 / scale], 1)
    rois = rois.astype(np.float32)
    images = np.random.default_rng(seed + 3).integers(0, n, count)
    rows = [aligned(wide(x)[i], r, size, ratio, scale, half, mode) for i, r in zip(images, wide(rois), strict=True)]
    expected = np.stack(rows) if rows else np.zeros((0, c, *size))
    attributes = {
        "output_height": size[0], "output_width": size[1], "sampling_ratio": ratio, "spatial_scale": scale, "mode": mode,
        "coordinate_transformation_mode": "half_pixel" if half else "output_half_pixel",
    }  # fmt: skip
    check(Drawn("RoiAlign", [x, rois, images], attributes, opset=22), expected, 400, scale=4)


@drawn
@given(structures, seeds, st.data())
def test_max_roi_pool(structure: int, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(structure)
    size, scale = (int(rng.integers(1, 4)), int(rng.integers(1, 4))), float(rng.choice([1.0, 0.5]))
    n, c, h, w = (data.draw(st.integers(1, 5)) for _ in range(4))
    count = data.draw(st.integers(0, 4))
    x = array(seed, (n, c, h, w), np.float32)
    picked = np.random.default_rng(seed + 1)
    corners = picked.integers(0, 5, (count, 2)) / scale
    ends = corners + picked.integers(0, 5, (count, 2)) / scale
    rois = np.concatenate([picked.integers(0, n, (count, 1)), corners, ends], 1).astype(np.float32)
    expected = np.zeros((count, c, *size))
    for r, (image, *box) in enumerate(wide(rois)):
        x1, y1, x2, y2 = (int(np.rint(v * scale)) for v in box)
        for i, j in np.ndindex(*size):
            high, long = max(y2 - y1 + 1, 1) / size[0], max(x2 - x1 + 1, 1) / size[1]
            rows = slice(*(min(max(v + y1, 0), h) for v in (int(np.floor(i * high)), int(np.ceil((i + 1) * high)))))
            columns = slice(*(min(max(v + x1, 0), w) for v in (int(np.floor(j * long)), int(np.ceil((j + 1) * long)))))
            cut = wide(x)[int(image), :, rows, columns]
            expected[r, :, i, j] = cut.max((1, 2)) if cut.size else 0
    check(Drawn("MaxRoiPool", [x, rois], {"pooled_shape": list(size), "spatial_scale": scale}, opset=22), expected, 2)


@drawn
@given(st.integers(1, 2), st.integers(0, 3), st.integers(0, 9), st.booleans(), seeds, st.data())
def test_non_max_suppression(batch: int, classes: int, boxes: int, centred: bool, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    corners, sides = rng.integers(0, 8, (batch, boxes, 2)) / 4, rng.integers(0, 8, (batch, boxes, 2)) / 4
    if centred:
        x = np.concatenate([corners, sides], -1)
        low, high = corners - sides / 2, corners + sides / 2
    else:  # any two opposite corners
        low, high = corners, corners + sides
        swapped = rng.random((batch, boxes, 1)) < 0.5
        x = np.concatenate([np.where(swapped, high, low), np.where(swapped, low, high)], -1)
    scores = (rng.permutation(batch * classes * boxes).reshape(batch, classes, boxes) / max(batch * classes * boxes, 1)).astype(
        np.float32
    )
    most = data.draw(st.one_of(st.none(), st.sampled_from([0, 1, 2, 100])))
    overlap, least = (data.draw(st.one_of(st.none(), st.sampled_from([0.0, 0.3, 0.77]))) for _ in range(2))
    chosen = []
    for n, c in np.ndindex(batch, classes):
        kept: list[int] = []
        for i in np.argsort(-scores[n, c]):
            if least is not None and scores[n, c, i] <= np.float32(least) or len(kept) >= (most or 0):
                continue
            inner = [
                np.prod(np.maximum(np.minimum(high[n, i], high[n, k]) - np.maximum(low[n, i], low[n, k]), 0)) for k in kept
            ]
            areas = [np.prod(sides[n, i]) + np.prod(sides[n, k]) for k in kept]
            if all(a <= (overlap or 0.0) * (b - a) or a <= 0 for a, b in zip(inner, areas, strict=True)):
                kept.append(int(i))
        chosen += [(n, c, i) for i in kept]
    operands = [
        x.astype(np.float32), scores, None if most is None else np.array([most]),
        *(None if v is None else np.array([v], np.float32) for v in (overlap, least)),
    ]  # fmt: skip
    node = Drawn("NonMaxSuppression", operands, {"center_point_box": int(centred)}, constant=constants(data, 2, 3, 4))
    check(node, np.array(chosen, np.int64).reshape(-1, 3))


@drawn
@given(structures, seeds, st.data())
def test_col2im(structure: int, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(structure)
    rank, dtype = int(rng.integers(1, 4)), (np.float32, np.float64, np.int32, np.float16)[rng.integers(4)]
    block, strides = (tuple(int(v) for v in rng.choice(values, rank)) for values in ([1, 2, 3], [1, 2]))
    dilations, pads = [int(v) for v in rng.choice([1, 1, 2], rank)], [int(v) for v in rng.integers(0, 2, 2 * rank)]
    spans = [(w - 1) * d + 1 for w, d in zip(block, dilations, strict=True)]
    image = [max(1, s - pads[i] - pads[i + rank]) + data.draw(st.sampled_from([0, 1, 2])) for i, s in enumerate(spans)]
    counts = [(image[i] + pads[i] + pads[i + rank] - s) // strides[i] + 1 for i, s in enumerate(spans)]
    n, c = data.draw(st.integers(0, 2)), data.draw(st.integers(1, 3))
    x = array(seed, (n, c * int(np.prod(block)), int(np.prod(counts))), dtype)
    columns = wide(x).reshape(n, c, *block, *counts)
    full = np.zeros((n, c, *(image[i] + pads[i] + pads[i + rank] for i in range(rank))), columns.dtype)
    for tap, at in itertools.product(np.ndindex(*block), np.ndindex(*counts)):
        where = tuple(a * s + t * d for a, s, t, d in zip(at, strides, tap, dilations, strict=True))
        full[(..., *where)] += columns[(slice(None), slice(None), *tap, *at)]
    expected = full[(..., *(slice(pads[i], pads[i] + image[i]) for i in range(rank)))]
    attributes = {"strides": list(strides), "dilations": dilations, "pads": pads}
    node = Drawn("Col2Im", [x, np.array(image), np.array(block)], attributes, constant=(1, 2))
    check(node, expected, 30, scale=8)


@drawn
@given(st.sampled_from(FLOATS[:2]), st.booleans(), st.integers(2, 3), seeds, st.data())
def test_affine_grid(dtype: Any, corners: bool, rank: int, seed: int, data: st.DataObject) -> None:
    n, sides = data.draw(st.integers(0, 3)), [data.draw(st.sampled_from([1, 2, 3, 5])) for _ in range(rank)]
    theta = array(seed, (n, rank, rank + 1), dtype)
    lines = [
        (np.linspace(-1, 1, s) if s > 1 else np.array([-1.0])) if corners else (2 * np.arange(s) + 1) / s - 1 for s in sides
    ]
    mesh = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(sides)], -1)
    expected = np.einsum("...j,nij->n...i", mesh, wide(theta))
    node = Drawn("AffineGrid", [theta, np.array([n, 2, *sides])], {"align_corners": int(corners)}, constant=constants(data, 1))
    check(node, expected, 16, scale=8)
