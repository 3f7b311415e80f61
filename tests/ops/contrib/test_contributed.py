"""Operators of com.microsoft, and composite functions in half precision, against float64 NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from contributed_cases import gelu, gelu_tanh, layer_norm, rms_norm, run

RNG = np.random.default_rng(6)
X = RNG.standard_normal((2, 3, 8)).astype(np.float32)
SKIP = RNG.standard_normal((2, 3, 8)).astype(np.float32)
GAMMA, BETA, BIAS = (RNG.standard_normal(8).astype(np.float32) for _ in range(3))


def test_gelus() -> None:
    np.testing.assert_allclose(run("Gelu", [X])[0], gelu(X), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(run("BiasGelu", [X, BIAS])[0], gelu(X + BIAS), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(run("FastGelu", [X])[0], gelu_tanh(X), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(run("FastGelu", [X, BIAS])[0], gelu_tanh(X + BIAS), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(run("QuickGelu", [X], alpha=1.5)[0], X / (1 + np.exp(-1.5 * X)), rtol=1e-5, atol=1e-6)


def test_gelu_by_tanh_where_it_is_nearly_zero() -> None:
    """1 + tanh would have no digit of it."""
    x = np.linspace(-8, -2, 97, dtype=np.float32)
    wide = x.astype(np.float64)
    exact = wide / (1 + np.exp(-math.sqrt(8 / math.pi) * (wide + 0.044715 * wide**3)))
    np.testing.assert_allclose(run("FastGelu", [x])[0], exact, rtol=2e-5)
    extremes = np.array([np.inf, 3e38, 1e20, -1e20, 0.0], np.float32)
    np.testing.assert_array_equal(run("FastGelu", [extremes])[0], np.maximum(extremes, 0))


def test_skip_layer_normalization() -> None:
    y, mean, inverse, total = run("SkipLayerNormalization", [X, SKIP, GAMMA, BETA, BIAS], outputs=4, epsilon=1e-5)
    summed = X + SKIP + BIAS
    np.testing.assert_allclose(total, summed, rtol=1e-6)
    np.testing.assert_allclose(y, layer_norm(summed, 1e-5) * GAMMA + BETA, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean, summed.mean(-1, keepdims=True), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(inverse, 1 / np.sqrt(summed.var(-1, keepdims=True) + 1e-5), rtol=1e-4)
    assert len(run("SkipLayerNormalization", [X, SKIP[:1], GAMMA])) == 1


def test_skip_simplified_layer_normalization() -> None:
    y, _, _, total = run("SkipSimplifiedLayerNormalization", [X, SKIP, GAMMA, BIAS], outputs=4)
    np.testing.assert_allclose(total, X + SKIP + BIAS, rtol=1e-6)
    np.testing.assert_allclose(y, rms_norm(X + SKIP + BIAS) * GAMMA, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_simplified_layer_normalization(domain: str) -> None:
    found = run("SimplifiedLayerNormalization", [X, GAMMA], domain=domain, axis=-1, epsilon=1e-6)[0]
    np.testing.assert_allclose(found, rms_norm(X, 1e-6) * GAMMA, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [0, 1])
def test_fused_matmul(batch: int) -> None:
    a = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
    b = RNG.standard_normal((6, 3, 4, 5) if batch else (2, 3, 6, 5)).astype(np.float32)
    left, right = (x.transpose(1, 2, 0, 3) if batch else x for x in (a, b))
    found = run("FusedMatMul", [a, b], alpha=0.5, transB=1, transBatchA=batch, transBatchB=batch)[0]
    np.testing.assert_allclose(found, 0.5 * left @ right.swapaxes(-1, -2), rtol=1e-4, atol=1e-5)


HALF: list[tuple[str, int, Callable[[np.ndarray], np.ndarray]]] = [
    ("Gelu", 20, gelu),
    ("Softplus", 22, lambda x: np.log1p(np.exp(x))),
    ("Mish", 22, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    ("Elu", 22, lambda x: np.where(x < 0, np.expm1(x), x)),
    ("Sigmoid", 13, lambda x: 1 / (1 + np.exp(-x))),
    ("Softmax", 13, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    ("LogSoftmax", 13, lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True))),
    ("HardSwish", 22, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    ("Swish", 24, lambda x: x / (1 + np.exp(-x))),
]


@pytest.mark.parametrize(("dtype", "ulp"), [(np.float16, 2**-11), (ml_dtypes.bfloat16, 2**-8)])
@pytest.mark.parametrize(("op", "version", "reference"), HALF, ids=[h[0] for h in HALF])
def test_half_precision_is_rounded_once(
    op: str, version: int, reference: Callable[..., np.ndarray], dtype: Any, ulp: float
) -> None:
    x = X.astype(dtype)
    found = run(op, [x], domain="", version=version)[0]
    assert found.dtype == x.dtype
    np.testing.assert_allclose(found.astype(np.float64), reference(x.astype(np.float64)), rtol=1.05 * ulp, atol=1e-6)


def test_layer_normalization_of_large_half_values() -> None:
    x = (X * 1000).astype(np.float16)
    y = run("LayerNormalization", [x, np.ones(8, np.float16)], domain="", version=17)[0]
    np.testing.assert_allclose(y.astype(np.float64), layer_norm(x), rtol=2**-10, atol=1e-6)


def test_softplus_and_sigmoid_do_not_overflow() -> None:
    x = np.array([-1000, 0, 1000], np.float32)
    np.testing.assert_allclose(run("Softplus", [x], domain="", version=22)[0], [0, math.log(2), 1000])
    np.testing.assert_allclose(run("Sigmoid", [x], domain="", version=13)[0], [0, 0.5, 1])
    np.testing.assert_allclose(run("Mish", [x], domain="", version=22)[0], [0, 0, 1000])
