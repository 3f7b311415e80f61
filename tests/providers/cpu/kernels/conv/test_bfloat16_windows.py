"""Convolutions of pairs of bfloat16 where they lie: odd numbers of channels, and groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from pair_models import needs_pairs, plan, rounded, session

torch = pytest.importorskip("torch", reason="results are compared with torch's in float64")

pytestmark = needs_pairs
BY_PAIRS = "(bfloat16 by AVX512-BF16)"
CASES: dict[str, tuple[list, list[int], dict[str, Any]]] = {
    "stem": (["N", 3, "H", "W"], [64, 3, 7, 7], {"strides": [2, 2], "pads": [3, 3, 3, 3]}),
    "stem without border": ([2, 3, 25, 31], [72, 3, 4, 4], {"strides": [4, 4]}),
    "odd, uneven border": (["N", 17, "H", "W"], [64, 17, 3, 2], {"pads": [0, 1, 2, 0], "strides": [2, 1]}),
    "odd, dilated": ([1, 35, 15, 19], [64, 35, 3, 3], {"dilations": [2, 3], "strides": [2, 2]}),
    "odd, one axis": (["N", 5, "L"], [64, 5, 9], {"pads": [4, 4]}),
    "odd, volume": ([1, 3, 9, 10, 11], [64, 3, 3, 3, 3], {"pads": [1] * 6, "strides": [1, 2, 2]}),
    "groups of 16": (["N", 64, "H", "W"], [64, 16, 3, 3], {"group": 4, "pads": [1, 1, 1, 1]}),
    "groups of 32, strides": ([2, 96, 13, 15], [96, 32, 3, 3], {"group": 3, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "groups of 6 to 40": ([2, 12, 13, 15], [80, 6, 3, 3], {"group": 2, "dilations": [1, 2]}),
    "groups of 8": (["N", 72, "H", "W"], [72, 8, 3, 3], {"group": 9, "pads": [1, 1, 1, 1]}),
    "groups of 4, strides": ([2, 64, 13, 15], [64, 4, 3, 3], {"group": 16, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "groups of 2, one axis": (["N", 66, "L"], [66, 2, 9], {"group": 33, "pads": [4, 4], "dilations": [2]}),
    "groups of 4, volume": ([1, 64, 5, 6, 7], [64, 4, 3, 3, 3], {"group": 16, "pads": [1] * 6}),
    "pointwise groups": ([2, 128, 9, 10], [128, 64, 1, 1], {"group": 2}),
}


def reference(x: np.ndarray, w: np.ndarray, given: dict[str, Any]) -> np.ndarray:
    """The convolution in float64."""
    rank = w.ndim - 2
    pads = given.get("pads", [0] * 2 * rank)
    padded = np.pad(x, [(0, 0), (0, 0), *((pads[i], pads[rank + i]) for i in range(rank))])
    ones = [1] * rank
    convolve = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}[rank]
    found: np.ndarray = convolve(
        torch.from_numpy(padded), torch.from_numpy(w), stride=given.get("strides", ones),
        dilation=given.get("dilations", ones), groups=given.get("group", 1),
    ).numpy()  # fmt: skip
    return found


@pytest.mark.parametrize("name", CASES)
def test_windows(name: str) -> None:
    shape, filters, given = CASES[name]
    rng = np.random.default_rng(5)
    w = rng.standard_normal(filters).astype(np.float32)
    made = session([helper.make_node("Conv", ["x", "w"], ["y"], **given)], {"x": shape}, {"w": w})
    x = rng.standard_normal([{"N": 2, "H": 21, "W": 26, "L": 40}.get(d, d) for d in shape]).astype(np.float32)
    exact, terms = (reference(f(rounded(x)), f(rounded(w)), given) for f in (np.asarray, np.abs))
    found = made.run(None, {"x": x})[0]
    assert BY_PAIRS in plan(made) and found.shape == exact.shape
    assert (np.abs(found - exact) <= 3e-6 * terms + 1e-30).all()


def test_nan_stays_in_its_windows() -> None:
    """A pixel's channel of zeros is its own, so no window reads what lies behind it."""
    given = {"strides": [2, 2], "pads": [3, 3, 3, 3]}
    rng = np.random.default_rng(6)
    w = rng.standard_normal((64, 3, 7, 7)).astype(np.float32)
    made = session([helper.make_node("Conv", ["x", "w"], ["y"], **given)], {"x": [1, 3, 24, 24]}, {"w": w})
    x = rng.standard_normal((1, 3, 24, 24)).astype(np.float32)
    x[0, 1, 10, 11] = np.nan
    np.testing.assert_array_equal(np.isnan(made.run(None, {"x": x})[0]), np.isnan(reference(rounded(x), rounded(w), given)))


def test_odd_channels_of_a_rounded_tensor() -> None:
    """What another convolution stores in bfloat16 gets its channel more, too."""
    rng = np.random.default_rng(7)
    w, v = (rng.standard_normal(s).astype(np.float32) for s in ((67, 64, 1, 1), (64, 67, 3, 3)))
    given = {"pads": [1, 1, 1, 1], "strides": [2, 2]}
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node("Conv", ["a", "v"], ["y"], **given)]
    made = session(nodes, {"x": ["N", 64, 11, 12]}, {"w": w, "v": v})
    x = rng.standard_normal((2, 64, 11, 12)).astype(np.float32)
    exact = reference(rounded(reference(rounded(x), rounded(w), {}).astype(np.float32)), rounded(v), given)
    found = made.run(None, {"x": x})[0]
    assert plan(made).count(BY_PAIRS) == 2
    assert np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean()) < 1e-3


def test_small_groups_of_a_rounded_tensor() -> None:
    """A convolution before them rounds what they read, and they round what one behind them reads."""
    rng = np.random.default_rng(8)
    u, v, w = (rng.standard_normal(s).astype(np.float32) for s in ((64, 64, 1, 1), (64, 4, 3, 3), (64, 64, 1, 1)))
    given = {"pads": [1, 1, 1, 1], "group": 16}
    nodes = [
        helper.make_node("Conv", ["x", "u"], ["a"]), helper.make_node("Conv", ["a", "v"], ["b"], **given),
        helper.make_node("Relu", ["b"], ["c"]), helper.make_node("Conv", ["c", "w"], ["y"]),
    ]  # fmt: skip
    made = session(nodes, {"x": ["N", 64, 11, 12]}, {"u": u, "v": v, "w": w})
    x = rng.standard_normal((2, 64, 11, 12)).astype(np.float32)
    a = rounded(reference(rounded(x), rounded(u), {}).astype(np.float32))
    c = rounded(np.maximum(reference(a, rounded(v), given), 0).astype(np.float32))
    exact = reference(c, rounded(w), {})
    found = made.run(None, {"x": x})[0]
    assert plan(made).count(BY_PAIRS) == 3 and plan(made).count("round") == 1
    assert np.abs(found - exact).max() <= 4e-3 * np.abs(exact).max()
