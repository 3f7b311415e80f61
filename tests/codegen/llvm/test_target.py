"""Kernels for older CPUs, run on this one: bytes, packed weights and float16 at every level of features."""

from __future__ import annotations

import platform

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
if platform.machine().lower() not in ("x86_64", "amd64"):
    pytest.skip("the levels are those of x86-64", allow_module_level=True)

import intarsia as ort
from intarsia.codegen.llvm.target import FEATURES_VARIABLE, Target

LEVELS = ("sse2", "x86-64-v2", "avx2", "avx2,+avxvnni", "avx512", "-avx512vnni", "")
NEEDED = {"avx2": "avx2", "avx2,+avxvnni": "avxvnni", "avx512": "avx512bw", "-avx512vnni": "avx512bw"}


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv(FEATURES_VARIABLE, raising=False)
    needed = NEEDED.get(request.param)
    if needed is not None and not Target.host().has(needed):
        pytest.skip(f"this CPU has no {needed}")
    if request.param:
        monkeypatch.setenv(FEATURES_VARIABLE, request.param)
    return str(request.param)


def run(nodes: list, feeds: dict[str, np.ndarray], constants: dict[str, np.ndarray], kind: np.dtype) -> np.ndarray:
    def info(name: str, dtype: np.dtype, shape: tuple[int, ...] | None) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)

    graph = helper.make_graph(
        nodes, "g", [info(n, v.dtype, v.shape) for n, v in feeds.items()], [info("y", kind, None)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)[0]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_matmul_integer(level: str, dtype: type) -> None:
    rng = np.random.default_rng(1)
    info = np.iinfo(dtype)
    a = rng.integers(info.min, info.max + 1, (23, 35)).astype(dtype)
    b = rng.integers(-128, 128, (35, 41)).astype(np.int8)
    expected = (a.astype(np.int64) - 5) @ (b.astype(np.int64) + 3)
    nodes = [helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])]
    zeros = {"za": dtype(5), "zb": np.int8(-3)}
    np.testing.assert_array_equal(run(nodes, {"a": a}, {"b": b, **zeros}, np.dtype(np.int32)), expected)
    np.testing.assert_array_equal(run(nodes, {"a": a, "b": b}, zeros, np.dtype(np.int32)), expected)


@pytest.mark.parametrize("group", [1, 20])
def test_qlinear_conv(level: str, group: int) -> None:
    rng = np.random.default_rng(2)
    x = rng.integers(0, 256, (1, 20, 7, 9)).astype(np.uint8)
    w = rng.integers(-128, 128, (20, 20 // group, 3, 3)).astype(np.int8)
    constants = {
        "xs": np.float32(0.5), "xz": np.uint8(100), "w": w, "ws": np.float32(0.25), "wz": np.int8(0), "ys": np.float32(64),
        "yz": np.uint8(128),
    }  # fmt: skip
    nodes = [helper.make_node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"], group=group)]
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64) - 100, (3, 3), (2, 3))
    sums = (
        np.einsum("nchwij,mcij->nmhw", windows, w.astype(np.int64))
        if group == 1
        else np.einsum("nchwij,cij->nchw", windows, w[:, 0].astype(np.int64))
    )
    expected = np.clip(np.round(sums / 512) + 128, 0, 255)
    np.testing.assert_array_equal(run(nodes, {"x": x}, constants, np.dtype(np.uint8)), expected)


@pytest.mark.parametrize("accuracy", [0, 4])
def test_matmul_n_bits(level: str, accuracy: int) -> None:
    rng = np.random.default_rng(3)
    b, s = rng.integers(0, 256, (37, 3, 16)).astype(np.uint8), rng.random((37, 3)).astype(np.float32)
    numbers = np.stack([b & 15, b >> 4], 3).reshape(37, 3, 32).astype(np.float64) - 8
    weights = (numbers * s[..., None]).reshape(37, 96)
    how = {"K": 96, "N": 37, "bits": 4, "block_size": 32, "accuracy_level": accuracy}
    nodes = [helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", **how)]
    for rows in (1, 9):
        x = rng.normal(size=(rows, 96)).astype(np.float32)
        actual = run(nodes, {"x": x}, {"b": b, "s": s}, np.dtype(np.float32))
        np.testing.assert_allclose(actual, x @ weights.T, rtol=1e-4, atol=1e-3 if accuracy == 0 else 0.7)


def test_matmul_bnb4(level: str) -> None:
    rng = np.random.default_rng(4)
    codes, largest = rng.integers(0, 256, 37 * 96 // 2).astype(np.uint8), rng.random(37 * 3).astype(np.float32)
    positive = [0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4]
    table = np.array([*positive, *(-v for v in positive)])
    numbers = table[np.stack([codes >> 4, codes & 15], 1)].reshape(37 * 3, 32)
    weights = (numbers * largest[:, None]).reshape(37, 96)
    how = {"K": 96, "N": 37, "block_size": 32, "quant_type": 0}
    nodes = [helper.make_node("MatMulBnb4", ["x", "b", "s"], ["y"], domain="com.microsoft", **how)]
    for rows in (1, 9):
        x = rng.normal(size=(rows, 96)).astype(np.float32)
        actual = run(nodes, {"x": x}, {"b": codes, "s": largest}, np.dtype(np.float32))
        np.testing.assert_allclose(actual, x @ weights.T, rtol=1e-4, atol=1e-5)


def test_every_float16_and_back(level: str) -> None:
    """Widening is exact, and rounding is to the nearest, half to even, NaN and subnormal numbers included."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    wide = run([helper.make_node("Cast", ["x"], ["y"], to=1)], {"x": halves}, {}, np.dtype(np.float32))
    np.testing.assert_array_equal(wide, halves.astype(np.float32))
    finite = halves.astype(np.float32)[np.isfinite(halves)]
    between = (finite[:-1] + finite[1:]) / 2
    edges = np.float32([65504, 65519.9, 65520, 1e9, -1e9, np.inf, -np.inf, np.nan, 1e-8, 2.98e-8, 2.9802322e-08, 0.0, -0.0])
    numbers = np.concatenate([finite, between, np.nextafter(between, 9), np.nextafter(between, -9), edges]).astype(np.float32)
    narrow = run([helper.make_node("Cast", ["x"], ["y"], to=10)], {"x": numbers}, {}, np.dtype(np.float16))
    with np.errstate(over="ignore"):
        expected = numbers.astype(np.float16)
    np.testing.assert_array_equal(narrow, expected)
    np.testing.assert_array_equal(np.signbit(narrow), np.signbit(expected))


def test_float16_chain_and_product(level: str) -> None:
    rng = np.random.default_rng(4)
    x, w = rng.normal(size=(9, 40)).astype(np.float16), rng.normal(size=(40, 24)).astype(np.float16)
    nodes = [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("MatMul", ["t", "w"], ["y"])]
    expected = np.tanh(x.astype(np.float64)).astype(np.float16).astype(np.float64) @ w.astype(np.float64)
    actual = run(nodes, {"x": x}, {"w": w}, np.dtype(np.float16))
    np.testing.assert_allclose(actual, expected, rtol=2e-3, atol=4e-3)


@pytest.mark.parametrize("k", [70, 1500])
def test_matmul_with_packed_rows(level: str, k: int) -> None:
    """Rows enough that the first operand is packed, and not."""
    rng = np.random.default_rng(k)
    w = rng.standard_normal((k, 200)).astype(np.float32)
    for rows in (3, 61):
        a = rng.standard_normal((rows, k)).astype(np.float32)
        y = run([helper.make_node("MatMul", ["a", "w"], ["y"])], {"a": a}, {"w": w}, np.dtype(np.float32))
        np.testing.assert_allclose(y, a.astype(np.float64) @ w, rtol=0, atol=1e-5 * k**0.5)
