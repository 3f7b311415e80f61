"""Models of bfloat16 are multiplied in pairs: what the model has in bfloat16 is rounded for products, and nothing else is."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from pair_models import CONFIG, needs_pairs, plan, rounded, session

pytestmark = needs_pairs
RNG = np.random.default_rng(17)
UNIT = {"session.matrix_unit": CONFIG["session.matrix_unit"]}  # no arithmetic is asked for
BFLOAT16, FLOAT = TensorProto.BFLOAT16, TensorProto.FLOAT
SAID = "bfloat16 by AVX512-BF16"


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(ml_dtypes.bfloat16)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


def assert_rounded_from(found: np.ndarray, exact: np.ndarray) -> None:
    """Sums in float32 may round some numbers to the neighbouring bfloat16."""
    assert found.dtype == ml_dtypes.bfloat16 and found.shape == exact.shape
    assert (wide(found) != rounded(exact)).mean() < 0.02
    np.testing.assert_allclose(wide(found), exact, rtol=2.0**-7, atol=1e-2 * np.abs(exact).max())


def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """3x3, with a border of zeros."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(wide(x), ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    return np.einsum("nchwij,mcij->nmhw", windows, wide(w))


@pytest.mark.parametrize("rows", [1, 9, 40])
def test_products_behind_each_other(rows: int) -> None:
    x, w, v = numbers(rows, 96), numbers(96, 130), numbers(130, 70)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["y"]),
    ]  # fmt: skip
    made = session(nodes, {"x": ["M", 96]}, {"w": w, "v": v}, kind=BFLOAT16, config=UNIT)
    assert_rounded_from(made.run(None, {"x": x})[0], rounded(np.maximum(wide(x) @ wide(w), 0)) @ wide(v))
    assert plan(made).count(SAID) == 2


@pytest.mark.parametrize("config", [{"session.arithmetic": "float32"}, {"session.matrix_unit": "none"}])
def test_in_float32_where_that_is_asked_for(config: dict[str, str]) -> None:
    x, w, v = numbers(40, 96), numbers(96, 130), numbers(130, 70)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("MatMul", ["a", "v"], ["y"])]
    made = session(nodes, {"x": ["M", 96]}, {"w": w, "v": v}, kind=BFLOAT16, config=config)
    assert_rounded_from(made.run(None, {"x": x})[0], wide(x) @ wide(w) @ wide(v))
    assert "gemm" in plan(made) and SAID not in plan(made)


def test_transforms_of_convolutions_stay_in_float32() -> None:
    x, w = numbers(1, 64, 28, 28), numbers(64, 64, 3, 3)
    made = session(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])], {"x": ["N", 64, 28, 28]}, {"w": w},
        kind=BFLOAT16, config=UNIT,
    )  # fmt: skip
    assert_rounded_from(made.run(None, {"x": x})[0], convolved(x, w))


def test_convolutions_and_their_residual_sum() -> None:
    x, w, v, u = numbers(1, 64, 9, 9), *(numbers(64, 64, 1, 1) for _ in range(3))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["c"]), helper.make_node("Add", ["c", "b"], ["s"]),
        helper.make_node("Conv", ["s", "u"], ["y"]),
    ]  # fmt: skip
    made = session(nodes, {"x": ["N", 64, 9, 9]}, {"w": w, "v": v, "u": u}, kind=BFLOAT16, config=UNIT)
    b = rounded(np.maximum(np.einsum("nchw,mc->nmhw", wide(x), wide(w)[:, :, 0, 0]), 0))
    s = rounded(np.einsum("nchw,mc->nmhw", b, wide(v)[:, :, 0, 0]) + b)
    assert_rounded_from(made.run(None, {"x": x})[0], np.einsum("nchw,mc->nmhw", s, wide(u)[:, :, 0, 0]))
    assert plan(made).count(SAID) == 3


def test_what_the_model_has_in_float32_is_not_rounded() -> None:
    """A product of float32 beside one of bfloat16 by the same weights, and a residual sum in float32."""
    x, w, v = RNG.standard_normal((1, 64, 9, 9)).astype(np.float32), numbers(64, 64, 1, 1), numbers(9, 64)
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Cast", ["r"], ["h"], to=BFLOAT16),
        helper.make_node("Conv", ["h", "w"], ["c"]), helper.make_node("Cast", ["c"], ["f"], to=FLOAT),
        helper.make_node("Add", ["f", "r"], ["s"]), helper.make_node("Cast", ["v"], ["u"], to=FLOAT),
        helper.make_node("Cast", ["s"], ["g"], to=BFLOAT16), helper.make_node("MatMul", ["g", "v"], ["p"]),
        helper.make_node("Cast", ["p"], ["z"], to=FLOAT), helper.make_node("MatMul", ["s", "u"], ["y"]),
    ]  # fmt: skip
    made = session(nodes, {"x": ["N", 64, 9, 9]}, {"w": w, "v": v}, ("y", "z", "s"), config=UNIT)
    y, z, s = made.run(None, {"x": x})
    r = np.maximum(wide(x), 0)
    c = np.einsum("nchw,mc->nmhw", rounded(r), wide(w)[:, :, 0, 0])
    for found, exact, bound in ((s, c + r, 1e-6), (y, (c + r) @ wide(v), 1e-6), (z, rounded(c + r) @ wide(v), 3e-3)):
        assert np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean()) < bound


def test_attention() -> None:
    batch, heads, length, width = 1, 2, 128, 32
    q, k, v = (numbers(batch, heads, length, width) for _ in range(3))
    nodes = [helper.make_node("Attention", ["q", "k", "v"], ["y"])]
    shape = ["N", heads, length, width]
    made = session(nodes, {"q": shape, "k": shape, "v": shape}, {}, kind=BFLOAT16, config=UNIT, opset=23)
    scores = wide(q) @ wide(k).swapaxes(2, 3) / np.sqrt(width)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    exact = powers / powers.sum(-1, keepdims=True) @ wide(v)
    found = wide(made.run(None, {"q": q, "k": k, "v": v})[0])
    assert np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean()) < 4e-3
    assert SAID in plan(made)


def test_a_constant_with_a_batch() -> None:
    x, w = numbers(33, 65), numbers(3, 65, 65)
    made = session([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [33, 65]}, {"w": w}, kind=BFLOAT16, config=UNIT)
    assert_rounded_from(made.run(None, {"x": x})[0], wide(x) @ wide(w))
