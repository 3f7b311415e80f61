"""Values that only products of bfloat16 read are stored in bfloat16 (`store_as_bfloat16`): results are as if products rounded
them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from pair_models import needs_pairs, plan, rounded, session

import intarsia as ort

pytestmark = needs_pairs
RNG = np.random.default_rng(11)


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def roundings(made: ort.InferenceSession) -> int:
    """How many steps round what a product reads."""
    return sum("round " in line for line in plan(made).splitlines())


def assert_close(found: np.ndarray, exact: np.ndarray) -> None:
    """Sums in float32 may round an intermediate value to the neighbouring bfloat16."""
    assert found.shape == exact.shape
    assert np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean()) < 1e-3


@pytest.mark.parametrize("rows", [1, 9, 40])
def test_products_behind_each_other(rows: int) -> None:
    w, v = numbers(96, 130), numbers(130, 70)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["y"]),
    ]  # fmt: skip
    made = session(nodes, {"x": ["M", 96]}, {"w": w, "v": v})
    x = numbers(rows, 96)
    exact = rounded(np.maximum(rounded(x) @ rounded(w), 0)) @ rounded(v)
    assert_close(made.run(None, {"x": x})[0], exact)
    assert roundings(made) == 1  # of x


def test_normalisation_that_two_products_read() -> None:
    scale, shift, w, v = numbers(64), numbers(64), numbers(64, 64), numbers(64, 80)
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["n"]), helper.make_node("MatMul", ["n", "w"], ["a"]),
        helper.make_node("MatMul", ["n", "v"], ["b"]), helper.make_node("Concat", ["a", "b"], ["y"], axis=-1),
    ]  # fmt: skip
    made = session(nodes, {"x": ["N", "L", 64]}, {"scale": scale, "shift": shift, "w": w, "v": v})
    x = numbers(2, 12, 64)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    normal = rounded(centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + shift)
    assert_close(made.run(None, {"x": x})[0], np.concatenate([normal @ rounded(w), normal @ rounded(v)], -1))
    assert roundings(made) == 0


@pytest.mark.parametrize("also", ["output", "sum", "product"])
def test_what_others_read_stays_as_it_is(also: str) -> None:
    """An output, an operand of a sum, and the second factor of a product need float32."""
    w, v = numbers(64, 64), numbers(64, 64)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Tanh", ["a"], ["t"]),
        helper.make_node("MatMul", ["t", "v"], ["b"]),
    ]  # fmt: skip
    outputs = ("y",)
    if also == "output":
        nodes.append(helper.make_node("Neg", ["b"], ["y"]))
        outputs = ("y", "t")
    elif also == "sum":
        nodes.append(helper.make_node("Add", ["b", "t"], ["y"]))
    else:
        nodes.append(helper.make_node("MatMul", ["b", "t"], ["y"]))
    made = session(nodes, {"x": [64, 64]}, {"w": w, "v": v}, outputs)
    x = numbers(64, 64)
    t = np.tanh(rounded(x) @ rounded(w))
    b = rounded(t) @ rounded(v)
    found = made.run(None, {"x": x})
    assert_close(found[0], {"output": -b, "sum": b + t, "product": b @ t}[also])
    if also == "output":
        np.testing.assert_allclose(found[1], t, atol=1e-4)
    assert roundings(made) == 2


def test_convolutions_behind_each_other() -> None:
    w, v, u = numbers(64, 64, 1, 1), numbers(64, 64, 3, 3), numbers(64, 64, 1, 1)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "u"], ["y"]),
    ]  # fmt: skip
    made = session(nodes, {"x": ["N", 64, "H", "W"]}, {"w": w, "v": v, "u": u})
    x = numbers(2, 64, 9, 11)
    first = rounded(np.maximum(np.einsum("nchw,mc->nmhw", rounded(x), rounded(w[:, :, 0, 0])), 0))
    padded = np.pad(first, ((0, 0), (0, 0), (1, 1), (1, 1)))
    middle = sum(
        np.einsum("nchw,mc->nmhw", padded[:, :, i : i + 9 : 2, j : j + 11 : 2], rounded(v[:, :, i, j]))
        for i in range(3) for j in range(3)
    )  # fmt: skip
    middle = rounded(np.maximum(middle, 0))
    assert_close(made.run(None, {"x": x})[0], np.einsum("nchw,mc->nmhw", middle, rounded(u[:, :, 0, 0])))
    assert roundings(made) <= 1  # of x, which is turned as well


@pytest.mark.parametrize("also", ["", "output", "pool"])
def test_residual_sums_of_convolutions(also: str) -> None:
    """What a convolution rounds anyway is added rounded, too; not where others read it."""
    w, v, u = numbers(64, 64, 1, 1), numbers(64, 64, 1, 1), numbers(64, 64, 1, 1)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["c"]), helper.make_node("Add", ["c", "b"], ["d"]),
        helper.make_node("Relu", ["d"], ["e"]), helper.make_node("Conv", ["e", "u"], ["y"]),
    ]  # fmt: skip
    outputs = {"": ("y",), "output": ("y", "b"), "pool": ("y", "other")}[also]
    if also == "pool":
        nodes.append(helper.make_node("GlobalMaxPool", ["b"], ["other"]))
    made = session(nodes, {"x": ["N", 64, "H", "W"]}, {"w": w, "v": v, "u": u}, outputs)
    x = numbers(2, 64, 9, 11)

    def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.einsum("nchw,mc->nmhw", rounded(x), rounded(w[:, :, 0, 0]))
        return found

    b = np.maximum(convolved(x, w), 0)
    d = convolved(b, v) + (b if also else rounded(b))
    assert_close(made.run(None, {"x": x})[0], convolved(np.maximum(d, 0), u))
    assert roundings(made) == (2 if also else 1)


def test_numbers_that_a_product_takes_as_zeros() -> None:
    """Below the smallest normal number a producer may store zeros; NaN stays."""
    w, v = np.eye(64, dtype=np.float32), np.eye(64, dtype=np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Mul", ["a", "small"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["y"]),
    ]  # fmt: skip
    made = session(nodes, {"x": [64, 64]}, {"w": w, "v": v, "small": np.float32([2.0**-100])})
    x = numbers(64, 64)
    x[0], x[1, 0], x[2, 1] = 2.0**-30, np.inf, np.nan
    found = made.run(None, {"x": x})[0]
    assert np.all(found[0] == 0)
    assert np.isnan(found[1:3]).all()  # an infinite number times 0
    assert_close(found[3:], rounded(rounded(x[3:]) * 2.0**-100))


def test_rows_whose_number_only_the_run_knows() -> None:
    """Sizes that are found in the run: kernels may be missing, so nothing is narrowed."""
    w, v = numbers(64, 64), numbers(64, 64)
    nodes = [
        helper.make_node("NonZero", ["m"], ["at"]), helper.make_node("Transpose", ["at"], ["which"]),
        helper.make_node("GatherND", ["x", "which"], ["g"]), helper.make_node("MatMul", ["g", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]), helper.make_node("MatMul", ["b", "v"], ["y"]),
    ]  # fmt: skip
    made = session(nodes, {"x": ["M", 64], "m": ["M"]}, {"w": w, "v": v})
    x, m = numbers(30, 64), (np.arange(30) % 3 > 0).astype(np.float32)
    exact = rounded(np.maximum(rounded(x[m > 0]) @ rounded(w), 0)) @ rounded(v)
    assert_close(made.run(None, {"x": x, "m": m})[0], exact)
