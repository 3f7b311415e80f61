"""Pooling, Resize, GridSample and MaxUnpool over drawn sizes and attributes, against float64.

What is compiled in (kernels, strides, modes) is drawn from a few structures; sizes and data differ between their examples.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from drawn_nodes import Drawn, array, check, drawn, seeds, structures, wide
from hypothesis import given
from hypothesis import strategies as st
from test_products import windows

FLOATS = (np.float32, np.float64, np.float16)


@drawn
@given(structures, seeds, st.data())
def test_pooling(structure: int, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(structure)
    op, dtype = str(rng.choice(["MaxPool", "AveragePool", "LpPool"])), FLOATS[rng.choice(3, p=(0.6, 0.2, 0.2))]
    rank = int(rng.choice([1, 2, 3], p=(0.3, 0.5, 0.2)))
    kernel = tuple(int(w) for w in rng.choice([1, 2, 3, 4], rank))
    strides, dilations = ([int(v) for v in rng.choice(values, rank)] for values in ([1, 2, 3], [1, 1, 2]))
    pads = [int(rng.integers(0, w)) for w in (*kernel, *kernel)]
    ceil, counted, p, channels = (
        bool(rng.integers(2)),
        bool(rng.integers(2)),
        int(rng.integers(1, 4)),
        int(rng.choice([1, 2, 9])),
    )
    span = [(w - 1) * e + 1 for w, e in zip(kernel, dilations, strict=True)]
    longer = st.sampled_from([0, 1, 2, 5] if rank < 3 else [0, 1])
    space = [max(1, s - pads[i] - pads[i + rank]) + data.draw(longer) for i, s in enumerate(span)]
    x = array(seed, (data.draw(st.integers(0, 2)), channels, *space), dtype)
    out, high = [], []
    for i, (n, s, step) in enumerate(zip(space, span, strides, strict=True)):
        total = n + pads[i] + pads[i + rank] - s
        count = -(-total // step) + 1 if ceil else total // step + 1
        if ceil and (count - 1) * step >= n + pads[i]:  # a window must begin inside the input or its left padding
            count -= 1
        out.append(count)
        high.append(max((count - 1) * step + s - n - pads[i], pads[i + rank]))
    amounts = [(0, 0), (0, 0), *zip(pads[:rank], high, strict=True)]
    cut = (slice(None), slice(None), *(slice(0, n) for n in out))
    inner = tuple(range(-rank, 0))
    attributes: dict[str, Any] = {
        "kernel_shape": list(kernel), "strides": strides, "pads": pads, "dilations": dilations, "ceil_mode": int(ceil),
    }  # fmt: skip
    padded = np.pad(wide(x), amounts, constant_values=-np.inf if op == "MaxPool" else 0.0)
    w = windows(padded, kernel, strides, dilations)[cut]
    if op == "MaxPool":
        expected = w.max(inner)
    elif op == "LpPool":
        attributes["p"] = p
        expected = (np.abs(w) ** p).sum(inner) ** (1 / p)
    else:
        attributes["count_include_pad"] = int(counted)
        ones = np.pad(np.ones(space), list(zip(pads[:rank], pads[rank:], strict=True)), constant_values=float(counted))
        ones = np.pad(ones, [(0, high[i] - pads[i + rank]) for i in range(rank)])
        with np.errstate(all="ignore"):
            expected = w.sum(inner) / windows(ones[None, None], kernel, strides, dilations)[cut].sum(inner)
    check(Drawn(op, [x], attributes, opset=22), expected, 40, scale=2)


@drawn
@given(
    st.sampled_from(["GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"]),
    st.sampled_from((np.float32, np.float16)),
    st.integers(1, 3),
    seeds,
    st.data(),
)
def test_global_pooling(op: str, dtype: Any, rank: int, seed: int, data: st.DataObject) -> None:
    sides = [data.draw(st.sampled_from([1, 2, 5, 7])) for _ in range(rank)]
    v = wide(x := array(seed, (data.draw(st.integers(0, 2)), data.draw(st.sampled_from([1, 3, 16])), *sides), dtype))
    along = tuple(range(2, 2 + rank))
    reduced = {
        "GlobalMaxPool": v.max,
        "GlobalAveragePool": v.mean,
        "GlobalLpPool": lambda *a, **b: np.sqrt((v * v).sum(*a, **b)),
    }
    check(Drawn(op, [x]), reduced[op](along, keepdims=True), 40, scale=4)


COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
HALF = Fraction(1, 2)
ROUNDING = {
    "round_prefer_floor": lambda x: math.ceil(x - HALF),
    "round_prefer_ceil": lambda x: math.floor(x + HALF),
    "floor": math.floor,
    "ceil": math.ceil,
}


def places(length: int, out: int, scale: Fraction, transform: str) -> list[Fraction]:
    """x_original of ONNX's Resize, exactly."""
    found = []
    for o in range(out):
        half = (o + HALF) / scale - HALF
        if transform == "half_pixel_symmetric":
            half += Fraction(length, 2) * (1 - out / (scale * length))
        if transform == "pytorch_half_pixel" and out == 1:
            half = Fraction(0)
        if transform == "align_corners":
            half = Fraction(0) if out == 1 else o * (length - 1) / (scale * length - 1)
        found.append(o / scale if transform == "asymmetric" else half)
    return found


def resampling(length: int, at: list[Fraction], scale: float, a: dict[str, Any]) -> np.ndarray:
    """[len(at), length]: what each output takes of each input along an axis."""
    matrix = np.zeros((len(at), length))
    if a["mode"] == "nearest":
        nearest = [ROUNDING[a["nearest_mode"]](x) for x in at]
        matrix[np.arange(len(at)), np.clip(nearest, 0, length - 1)] = 1
        return matrix
    c, shrink = a.get("cubic_coeff_a", -0.75), min(scale, 1.0) if a.get("antialias") else 1.0
    reach = int(np.ceil((1 if a["mode"] == "linear" else 2) / shrink)) + 1
    for row, x in enumerate(float(x) for x in at):
        taps = np.arange(np.floor(x) - reach, np.floor(x) + reach + 1)
        d = np.abs(taps - x) * shrink
        if a["mode"] == "linear":
            weights = np.maximum(1 - d, 0)
        else:
            inner, outer = (c + 2) * d**3 - (c + 3) * d**2 + 1, c * d**3 - 5 * c * d**2 + 8 * c * d - 4 * c
            weights = np.where(d <= 1, inner, np.where(d < 2, outer, 0))
        if a.get("exclude_outside"):
            weights = np.where((taps < 0) | (taps >= length), 0, weights)
        np.add.at(matrix[row], np.clip(taps, 0, length - 1).astype(int), weights / weights.sum())
    return matrix


@drawn
@given(structures, seeds, st.data())
def test_resize(structure: int, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(structure)
    mode, rank = str(rng.choice(["nearest", "linear", "cubic"])), int(rng.choice([1, 2, 3], p=(0.3, 0.5, 0.2)))
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": str(rng.choice(COORDINATES))}
    if mode == "nearest":
        attributes["nearest_mode"] = str(rng.choice(list(ROUNDING)))
    if mode == "cubic":
        attributes |= {"exclude_outside": int(rng.integers(2)), "cubic_coeff_a": float(rng.choice([-0.75, -0.5]))}
    by_scales = bool(rng.integers(2))
    if mode == "linear" and by_scales and rng.integers(2):
        attributes["antialias"] = 1
    factors = [Fraction(f) for f in rng.choice(["1", "2", "1/2", "3", "3/2", "3/4", "2/3", "13/10"], rank)]
    outs = [int(n) for n in rng.choice([1, 2, 3, 5, 8], rank)]
    space = [data.draw(st.sampled_from([2, 3, 4, 7])) for _ in range(rank)]
    v = wide(x := array(seed, (data.draw(st.integers(1, 2)), 2, *space), np.float32))
    if by_scales:
        scales, sizes = np.array([1, 1, *map(float, factors)], np.float32), None
        outs = [math.floor(n * f) for n, f in zip(space, factors, strict=True)]
    else:
        scales, sizes = None, np.array([len(x), 2, *outs])
        factors = [Fraction(o, n) for o, n in zip(outs, space, strict=True)]
    for i, (n, o, f) in enumerate(zip(space, outs, factors, strict=True)):
        at = places(n, o, f, attributes["coordinate_transformation_mode"])
        v = np.moveaxis(np.tensordot(resampling(n, at, float(f), attributes), v, (1, 2 + i)), 0, 2 + i)
    constant = (2,) if by_scales else (3,) if rng.integers(2) else ()
    check(Drawn("Resize", [x, None, scales, sizes], attributes, constant=constant), v, 60, scale=8)


@drawn
@given(structures, seeds, st.data())
def test_grid_sample(structure: int, seed: int, data: st.DataObject) -> None:
    torch = pytest.importorskip("torch", reason="the independent GridSample is PyTorch's")
    rng = np.random.default_rng(structure)
    mode, padding = str(rng.choice(["linear", "nearest", "cubic"])), str(rng.choice(["zeros", "border", "reflection"]))
    corners, rank = bool(rng.integers(2)), int(rng.choice([2, 3], p=(0.8, 0.2)))
    mode = "linear" if rank == 3 and mode == "cubic" else mode
    space = [data.draw(st.sampled_from([2, 3, 4, 5])) for _ in range(rank)]
    out = [data.draw(st.sampled_from([1, 2, 3])) for _ in range(rank)]
    n = data.draw(st.integers(1, 2))
    x, grid = array(seed, (n, 2, *space), np.float32), array(seed + 1, (n, *out, rank), np.float32, low=-1.4, high=1.4)
    expected = torch.nn.functional.grid_sample(
        *(torch.from_numpy(wide(t)) for t in (x, grid)), padding_mode=padding, align_corners=corners,
        mode={"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode),
    )  # fmt: skip
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": int(corners)}
    check(Drawn("GridSample", [x, grid], attributes), expected.numpy(), 400, scale=4)


@drawn
@given(st.integers(1, 3), st.sampled_from([2, 3]), seeds, st.data())
def test_max_unpool(channels: int, step: int, seed: int, data: st.DataObject) -> None:
    """Unpooling puts the values back where MaxPool's indices say."""
    h, w = (step * data.draw(st.integers(1, 3)) for _ in range(2))
    x = np.random.default_rng(seed).permutation(channels * h * w).reshape(1, channels, h, w).astype(np.float32)
    attributes = {"kernel_shape": [step, step], "strides": [step, step]}
    pooled, at = check(Drawn("MaxPool", [x], attributes, outputs=2, opset=22))
    expected = np.zeros_like(x)
    for c, i, j in itertools.product(range(channels), range(h // step), range(w // step)):
        expected.reshape(-1)[at[0, c, i, j]] = pooled[0, c, i, j]
    np.testing.assert_array_equal(x.reshape(-1)[at.reshape(-1)], pooled.reshape(-1))
    check(Drawn("MaxUnpool", [pooled, at], attributes, opset=22), expected)
