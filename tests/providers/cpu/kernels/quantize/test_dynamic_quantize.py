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


def test_between_convolutions_bytes_stay_channels_last() -> None:
    """What a convolution of bytes reads is quantised where its pixels lie; one transpose before, one behind."""
    text = """g (float[n, 5, 9, 8] x) => (float[n, 12, 9, 8] y) {
        q1, s1, z1 = DynamicQuantizeLinear(x)
        i1 = ConvInteger <pads = [1, 1, 1, 1]> (q1, w1, z1, zw)
        f1 = Cast <to = 1> (i1)
        t1 = Mul(s1, ws)
        a1 = Mul(f1, t1)
        b1 = Add(a1, bias)
        r1 = Relu(b1)
        q2, s2, z2 = DynamicQuantizeLinear(r1)
        i2 = ConvInteger <pads = [1, 1, 1, 1], group = 12> (q2, w2, z2, zw)
        f2 = Cast <to = 1> (i2)
        t2 = Mul(s2, ws)
        y = Mul(f2, t2) }"""
    rng = np.random.default_rng(3)
    constants = {
        "w1": rng.integers(-127, 128, (12, 5, 3, 3)).astype(np.int8),
        "w2": rng.integers(-127, 128, (12, 1, 3, 3)).astype(np.int8),
        "zw": np.int8(0), "ws": np.float32(0.01), "bias": normal(12, 1, 1),
    }  # fmt: skip
    session = check(text, {"x": normal(2, 5, 9, 8)}, {"x": normal(1, 5, 9, 8, seed=1) + 2}, constants=constants)
    plan = session._model.programs[0].describe("plan").split("sizes:")[1]
    assert plan.lower().count("transpose") <= 2
    assert "byte depthwise" in plan
