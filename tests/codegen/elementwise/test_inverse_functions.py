"""float32 inverse trigonometric and hyperbolic functions against float64: units in the last place, and special values."""

from __future__ import annotations

import numpy as np
import pytest
from test_transcendental import every_float32, ulp_distance, unary

# The largest distance allowed, and what to look at beside numbers of all magnitudes.
FUNCTIONS = {
    "atan": (np.arctan, 2, (-20, 20)),
    "asin": (np.arcsin, 2, (-1, 1)),
    "acos": (np.arccos, 2, (-1, 1)),
    "sinh": (np.sinh, 5, (-90, 90)),
    "cosh": (np.cosh, 4, (-90, 90)),
    "asinh": (np.arcsinh, 1, (-3, 3)),
    "acosh": (np.arccosh, 1, (1, 3)),
    "atanh": (np.arctanh, 1, (-1, 1)),
}


@pytest.mark.parametrize("op", FUNCTIONS)
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # signalling NaN among the bit patterns
def test_all_magnitudes(op: str) -> None:
    exact, most, (low, high) = FUNCTIONS[op]
    x = np.concatenate([every_float32(16_007), np.linspace(low, high, 100_001).astype(np.float32)])
    with np.errstate(all="ignore"):
        assert ulp_distance(unary(op, x), exact(x.astype(np.float64))).max() <= most


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_tangent() -> None:
    x = np.concatenate([every_float32(16_007), np.linspace(-20, 20, 100_001).astype(np.float32)])
    x = x[~(np.abs(x) >= 2.0**46)]
    assert ulp_distance(unary("tan", x), np.tan(x.astype(np.float64))).max() <= 3


@pytest.mark.parametrize("op", [*FUNCTIONS, "tan"])
def test_zeros_and_specials(op: str) -> None:
    x = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-20], np.float32)
    function = FUNCTIONS[op][0] if op in FUNCTIONS else np.tan
    with np.errstate(all="ignore"):
        expected = function(x.astype(np.float64)).astype(np.float32)
    found = unary(op, x)
    np.testing.assert_allclose(found, expected, rtol=3e-7, atol=0)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(expected[known]))
