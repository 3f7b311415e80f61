"""Quantised models on a simulated phone: which operations compute on the numbers themselves, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper
from simulated_nnapi import SimulatedLibrary

import intarsia as ort

NAME = "NnapiExecutionProvider"
Phone = Callable[..., SimulatedLibrary]
RNG = np.random.default_rng(11)


def session(text: str, opset: int = 17, **constants: Any) -> ort.InferenceSession:
    head = f'<ir_version: 8, opset_import: ["": {opset}, "com.microsoft": 1]> '
    proto = onnx.parser.parse_model(head + text)
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items())
    options = ort.SessionOptions()
    for name, value in {"partition.keep_islands": "1", "session.cache_weights_mib": "0"}.items():
        options.add_session_config_entry(name, value)
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return ort.InferenceSession(proto.SerializeToString(), options, providers=[NAME])


def operations(made: ort.InferenceSession) -> list[str]:
    """Name and element type of the result of each operation."""
    lines = "\n".join(p.describe() for p in made._engine.whole_model().programs).splitlines()
    return [f"{line.split('(')[0].strip()} {line.rsplit('TENSOR_', 1)[1].split('[')[0]}" for line in lines if "TENSOR_" in line]


def real(q: np.ndarray, scale: float, zero: int) -> np.ndarray:
    return (q.astype(np.float64) - zero) * scale


def quantised(x: np.ndarray, scale: float, zero: int, kind: Any = np.uint8) -> np.ndarray:
    limits = np.iinfo(kind)
    return np.clip(np.rint(x / scale) + zero, limits.min, limits.max).astype(kind)


def within_a_step(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1
    assert (found == expected).mean() > 0.5  # halves go another way


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("level", [29, 30, 1000008])
def test_numbers_alone_are_rounded_as_onnx_says(kind: Any, level: int, phone: Phone) -> None:
    """Halves to even, where NNAPI's QUANTIZE takes them away from zero; and the way back is exact."""
    phone(level)
    x = np.float32([-3, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e6, -1e6, 0.49999997, 8388609])
    if kind is np.int8 and level < 30:
        with pytest.raises(ort.IntarsiaError, match="TENSOR_QUANT8_ASYMM_SIGNED from feature level 30 on, and this is 29"):
            session("g (float[11] x) => (int8[11] y) {y = QuantizeLinear(x, s, z)}", s=np.float32(1), z=np.int8(0))
        return
    text = f"g (float[11] x) => ({kind.__name__}[11] y) {{y = QuantizeLinear(x, s, z)}}"
    for scale, zero in ((1.0, 3), (0.5, 0)):
        made = session(text, s=np.float32(scale), z=kind(zero))
        np.testing.assert_array_equal(made.run(None, {"x": x})[0], quantised(x, np.float32(scale), zero, kind))
    every = np.arange(np.iinfo(kind).min, np.iinfo(kind).max + 1).astype(kind)
    back = session(
        f"g ({kind.__name__}[256] x) => (float[256] y) {{y = DequantizeLinear(x, s, z)}}", s=np.float32(0.1), z=kind(7)
    )
    np.testing.assert_array_equal(back.run(None, {"x": every})[0], (every.astype(np.float32) - 7) * np.float32(0.1))


@pytest.mark.parametrize("channels", [False, True], ids=["by tensor", "by channel"])
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolutions(kind: Any, channels: bool, groups: int, phone: Phone) -> None:
    """With a bias and Relu, all in one operation of 8 bits."""
    phone(31)
    w = RNG.integers(-127, 128, (8, 4 // groups, 3, 3)).astype(np.int8)
    ws = RNG.uniform(0.005, 0.02, 8).astype(np.float32) if channels else np.float32(0.01)
    zero, result = kind(np.iinfo(kind).min + 100), kind(np.iinfo(kind).min)
    bias = RNG.integers(-500, 500, 8).astype(np.int32)
    name = kind.__name__
    text = f"""g ({name}[1, 4, 7, 7] x) => ({name}[1, 8, 4, 4] y) {{
        d = DequantizeLinear(x, xs, xz)  v = DequantizeLinear<axis = 0>(w, ws, wz)  b = DequantizeLinear<axis = 0>(bias, bs)
        c = Conv<pads = [1, 1, 1, 1], strides = [2, 2], group = {groups}>(d, v, b)  r = Relu(c)
        y = QuantizeLinear(r, ys, yz)
    }}"""
    made = session(
        text, xs=np.float32(0.02), xz=zero, w=w, ws=ws, wz=np.zeros(np.shape(ws), np.int8), bias=bias,
        bs=np.asarray(np.float32(0.02) * ws), ys=np.float32(0.03), yz=result,
    )  # fmt: skip
    x = RNG.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, (1, 4, 7, 7)).astype(kind)
    assert sum("CONV" in line for line in operations(made)) == 1
    assert all("QUANT8" in line for line in operations(made))
    padded = np.pad(real(x, 0.02, int(zero)), ((0, 0), (0, 0), (1, 1), (1, 1)))
    weights = w * np.broadcast_to(ws, 8).astype(np.float64)[:, None, None, None]
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    pieces = zip(np.split(windows, groups, 1), np.split(weights, groups), strict=True)
    parts = [np.einsum("nchwij,ocij->nohw", seen, own) for seen, own in pieces]
    sums = np.concatenate(parts, 1) + (bias * np.float64(0.02) * ws)[None, :, None, None]
    within_a_step(made.run(None, {"x": x})[0], quantised(np.maximum(sums, 0), 0.03, int(result), kind))


@pytest.mark.parametrize("signed", [False, True])
def test_products(signed: bool, phone: Phone) -> None:
    """Gemm with weights of the other signedness, whose numbers are moved by 128."""
    phone(31)
    kind: Any = np.int8 if signed else np.uint8
    w = RNG.integers(-127, 128, (6, 5)).astype(np.int8)
    text = f"""g ({kind.__name__}[3, 6] x) => ({kind.__name__}[3, 5] y) {{
        d = DequantizeLinear(x, xs, xz)  v = DequantizeLinear(w, ws, wz)  c = Gemm(d, v, b)  y = QuantizeLinear(c, ys, xz)
    }}"""
    bias, zero = RNG.uniform(-1, 1, 5).astype(np.float32), kind(10)
    made = session(text, xs=np.float32(0.03), xz=zero, w=w, ws=np.float32(0.02), wz=np.int8(3), b=bias, ys=np.float32(0.1))
    assert "FULLY_CONNECTED QUANT8_ASYMM" + "_SIGNED" * signed in operations(made)
    x = RNG.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, (3, 6)).astype(kind)
    expected = real(x, 0.03, 10) @ real(w, 0.02, 3) + bias
    within_a_step(made.run(None, {"x": x})[0], quantised(expected, 0.1, 10, kind))


UNITS = {
    "add": ("c = Add(d, e)", lambda a, b: a + b, "ADD"),
    "sub": ("c = Sub(d, e)", lambda a, b: a - b, "SUB"),
    "mul": ("c = Mul(d, e)", lambda a, b: a * b, "MUL"),
    "concat": ("c = Concat<axis = 0>(d, e)", lambda a, b: np.concatenate([a, b]), "CONCATENATION"),
}


@pytest.mark.parametrize("name", UNITS)
def test_two_operands(name: str, phone: Phone) -> None:
    phone(31)
    node, function, operation = UNITS[name]
    rows = 4 if name == "concat" else 2
    text = f"""g (uint8[2, 9] x, uint8[2, 9] z) => (uint8[{rows}, 9] y) {{
        d = DequantizeLinear(x, xs, xz)  e = DequantizeLinear(z, zs, zz)  {node}  y = QuantizeLinear(c, ys, yz)
    }}"""
    made = session(
        text, xs=np.float32(0.02), xz=np.uint8(100), zs=np.float32(0.03), zz=np.uint8(90), ys=np.float32(0.06), yz=np.uint8(120)
    )
    assert operations(made) == [f"{operation} QUANT8_ASYMM"]
    x, z = (RNG.integers(0, 256, (2, 9)).astype(np.uint8) for _ in range(2))
    expected = function(real(x, 0.02, 100), real(z, 0.03, 90))
    within_a_step(made.run(None, {"x": x, "z": z})[0], quantised(expected, 0.06, 120))


def test_what_the_rules_forbid_is_computed_of_real_numbers(phone: Phone) -> None:
    """MUL has to have a scale above the product of the others."""
    phone(31)
    text = """g (uint8[2, 9] x) => (uint8[2, 9] y) {
        d = DequantizeLinear(x, xs, xz)  c = Mul(d, d)  y = QuantizeLinear(c, ys, xz)
    }"""
    made = session(text, xs=np.float32(1), xz=np.uint8(100), ys=np.float32(0.5))
    assert "MUL FLOAT32" in operations(made) and "MUL QUANT8_ASYMM" not in operations(made)
    x = RNG.integers(90, 110, (2, 9)).astype(np.uint8)
    np.testing.assert_array_equal(made.run(None, {"x": x})[0], quantised(real(x, 1, 100) ** 2, 0.5, 100))


def test_moved_numbers_keep_their_scale(phone: Phone) -> None:
    """Bytes that are only moved between the two ends are never real."""
    phone(31)
    text = """g (float[2, 3, 4] x) => (float[4, 6] y) {
        q = QuantizeLinear(x, s, z)  t = Transpose<perm = [2, 0, 1]>(q)  r = Reshape(t, shape)  y = DequantizeLinear(r, s, z)
    }"""
    made = session(text, s=np.float32(0.1), z=np.uint8(12), shape=np.int64([4, 6]))
    assert operations(made)[-3:] == ["TRANSPOSE QUANT8_ASYMM", "RESHAPE QUANT8_ASYMM", "DEQUANTIZE FLOAT32"]
    x = RNG.uniform(-1, 20, (2, 3, 4)).astype(np.float32)
    expected = real(quantised(x, np.float32(0.1), 12), 0.1, 12).transpose(2, 0, 1).reshape(4, 6)
    np.testing.assert_allclose(made.run(None, {"x": x})[0], expected, rtol=1e-6)


def test_two_meanings_of_the_same_bytes(phone: Phone) -> None:
    """An operand has one scale: of two, neither is it."""
    phone(31)
    text = """g (uint8[5] x) => (float[5] a, float[5] b) {
        a = DequantizeLinear(x, s, z)  b = DequantizeLinear(x, t, u)
    }"""
    made = session(text, s=np.float32(0.1), z=np.uint8(12), t=np.float32(3), u=np.uint8(0))
    x = np.uint8([0, 1, 12, 200, 255])
    a, b = made.run(None, {"x": x})
    np.testing.assert_allclose(a, real(x, 0.1, 12), rtol=1e-6)
    np.testing.assert_array_equal(b, real(x, 3, 0).astype(np.float32))


CONTRIB = {
    "QLinearAdd": ("QLinearAdd(x, s, z, x, s, z, t, u)", lambda v: v + v, "ADD QUANT8_ASYMM"),
    "QLinearMul": ("QLinearMul(x, s, z, x, s, z, t, u)", lambda v: v * v, "MUL QUANT8_ASYMM"),
    "QLinearSigmoid": ("QLinearSigmoid(x, s, z, p, o)", lambda v: 1 / (1 + np.exp(-v)), "LOGISTIC QUANT8_ASYMM"),
    "QLinearLeakyRelu": ("QLinearLeakyRelu<alpha = 0.5>(x, s, z, t, u)", lambda v: np.where(v < 0, v / 2, v), "PRELU FLOAT32"),
    "QLinearAveragePool": (
        "QLinearAveragePool<kernel_shape = [2, 2], strides = [2, 2]>(x, s, z, s, z)",
        lambda v: v.reshape(1, 2, 2, 2, 2, 2).mean((3, 5)), "AVERAGE_POOL_2D QUANT8_ASYMM",
    ),
    "QLinearGlobalAveragePool": (
        "QLinearGlobalAveragePool(x, s, z, t, u)", lambda v: v.mean((2, 3), keepdims=True), "AVERAGE_POOL_2D FLOAT32"
    ),
    "QLinearConcat": (
        "QLinearConcat<axis = 1>(t, u, x, s, z, x, s, z)", lambda v: np.concatenate([v, v], 1), "CONCATENATION QUANT8_ASYMM"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRIB)
def test_operators_of_onnxruntime(name: str, phone: Phone) -> None:
    phone(31)
    call, function, operation = CONTRIB[name]
    x = RNG.integers(0, 256, (1, 2, 4, 4)).astype(np.uint8)
    expected = function(real(x, 0.05, 128))
    scale, zero = (1 / 256, 0) if "p, o" in call else (0.05, 128) if call.endswith("s, z, s, z)") else (0.2, 100)
    text = f"g (uint8[1, 2, 4, 4] x) => (uint8[{', '.join(map(str, expected.shape))}] y) {{y = com.microsoft.{call}}}"
    made = session(
        text, s=np.float32(0.05), z=np.uint8(128), t=np.float32(0.2), u=np.uint8(100), p=np.float32(1 / 256), o=np.uint8(0)
    )
    assert operation in operations(made)
    within_a_step(made.run(None, {"x": x})[0], quantised(expected, scale, zero))
