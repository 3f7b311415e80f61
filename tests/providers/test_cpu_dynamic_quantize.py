"""DynamicQuantizeLinear by two kernels: exactly what the definition gives, for every length."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
pytest.importorskip("onnx", reason="the models are built with onnx.parser")

from cpu_models import check, normal, session_of

TEXT = "g (float[n] x) => (uint8[n] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }"


def test_lengths() -> None:
    check(TEXT, *({"x": normal(n) * 3} for n in (1, 15, 16, 17, 63, 64, 65, 1000, 40_000)), rtol=0)


def test_ranges_without_one_side_and_zeros() -> None:
    x = np.abs(normal(200))
    check(TEXT, {"x": x}, {"x": -x}, {"x": np.zeros(200, np.float32)}, {"x": x + 100}, {"x": -x - 100}, rtol=0)


def test_no_elements() -> None:
    y, scale, zero = session_of(TEXT).run(None, {"x": np.zeros(0, np.float32)})
    assert y.shape == (0,)
    assert (scale, zero) == (0, 0)


def test_single_outputs_are_loops() -> None:
    check("g (float[n] x) => (uint8[n] y) { y, s, z = DynamicQuantizeLinear(x) }", {"x": normal(100)}, rtol=0)
    check("g (float[n] x) => (float s) { y, s, z = DynamicQuantizeLinear(x) }", {"x": normal(100)}, rtol=1e-6)
