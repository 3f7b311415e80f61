"""Functions that WGSL leaves open, written out in `codegen.clike.element`: in their whole range, of denormal numbers too."""

from __future__ import annotations

import math

import numpy as np
import onnx.helper
import pytest

import intarsia
from intarsia.device.webgpu import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no WebGPU device: {missing()}")
RNG = np.random.default_rng(0)
DENORMAL = np.float32([1e-40, 1e-45, 5.877472e-39, 1.1754942e-38])


def run(op: str, *inputs: np.ndarray, **attributes: int) -> np.ndarray:
    kinds = [onnx.helper.np_dtype_to_tensor_dtype(x.dtype) for x in inputs]
    names = [f"x{i}" for i in range(len(inputs))]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, names, ["y"], **attributes)], "g",
        [onnx.helper.make_tensor_value_info(n, k, ["N"]) for n, k in zip(names, kinds, strict=True)],
        [onnx.helper.make_tensor_value_info("y", kinds[0], ["N"])],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)
    session = intarsia.InferenceSession(model.SerializeToString(), providers=["WebGpuExecutionProvider"], enable_fallback=False)
    found: np.ndarray = session.run(None, dict(zip(names, inputs, strict=True)))[0]
    return found


def test_erf_is_nowhere_beyond_one() -> None:
    x = np.concatenate([np.linspace(-6, 6, 20001), [np.inf, -np.inf, 3e38]]).astype(np.float32)
    found = run("Erf", x)
    assert abs(found).max() == 1
    np.testing.assert_allclose(found, [math.erf(v) for v in x.astype(float)], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders_are_exact(dtype: type) -> None:
    """Of all bits that a number can have: large quotients, denormal numbers, infinities and NaN among them."""
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    any_x, any_y = (RNG.integers(0, np.iinfo(bits).max, 5000, bits, endpoint=True).view(dtype) for _ in range(2))
    x = np.concatenate([any_x, (RNG.standard_normal(5000) * 100).astype(dtype), np.array([1, -1, 0, np.inf, 5, 3e38], dtype)])
    y = np.concatenate([any_y, RNG.standard_normal(5000).astype(dtype), np.array([1e-40, -3, 2, 1, np.inf, 0.1], dtype)])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run("Mod", x, y, fmod=1), np.fmod(x, y))


def test_logarithms_and_powers_of_denormal_numbers() -> None:
    x = DENORMAL.astype(float)
    np.testing.assert_allclose(run("Log", DENORMAL), np.log(x), rtol=1e-6)
    y = np.float32([0.3, 0.25, 1e-5, -0.5])
    np.testing.assert_allclose(run("Pow", DENORMAL, y), x ** y.astype(float), rtol=1e-4)


@pytest.mark.parametrize(
    ("op", "function", "low", "high"),
    [
        ("Atan", np.arctan, -1e4, 1e4), ("Asin", np.arcsin, -1, 1), ("Acos", np.arccos, -1, 1), ("Sinh", np.sinh, -89, 89),
        ("Cosh", np.cosh, -89, 89), ("Atanh", np.arctanh, -0.99999, 0.99999), ("Acosh", np.arccosh, 1, 1e6),
    ],
)  # fmt: skip
def test_accuracy(op: str, function: np.ufunc, low: float, high: float) -> None:
    x = np.concatenate([np.linspace(low, high, 4001), np.linspace(max(low, -1), min(high, 1), 2001)]).astype(np.float32)
    np.testing.assert_allclose(run(op, x), function(x.astype(float)), rtol=1e-5, atol=1e-6)


def test_outside_their_range() -> None:
    x = np.float32([-1e30, -2, 0.999, np.nan, -np.inf])
    assert np.isnan(run("Acosh", x)).all()
    for op in ("Asin", "Acos"):
        assert np.isnan(run(op, np.float32([2, -1.5, np.inf, np.nan]))).all()
    np.testing.assert_allclose(run("Atan", np.float32([np.inf, -np.inf, np.nan])), [np.pi / 2, -np.pi / 2, np.nan], rtol=1e-6)
