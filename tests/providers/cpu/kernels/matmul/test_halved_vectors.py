"""Products on CPUs whose units compute a vector in two halves: rows as they lie, in tiles of their own; here also imitated."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper as oh
import pytest

import intarsia as ort
from intarsia.codegen.llvm import target as targets
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.tiles import Tile, product_tile
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import blocked_tile

_AVX512 = "+avx512f,+avx512bw,+avx512dq,+avx512vl"


def made(cpu: str, features: str = _AVX512) -> Target:
    return Target.create("x86_64-unknown-linux-gnu", cpu, features)


def test_the_tile_follows_from_the_cpu() -> None:
    assert made("znver4").halves_vectors
    assert not any(t.halves_vectors for t in (made("znver5"), made("sapphirerapids"), made("znver4", "+avx2,+fma")))
    assert {product_tile(n, DType.FLOAT, made("znver4")) for n in (16, 32, 64, 768)} == {Tile(8, 3, 16, 4)}
    assert product_tile(64, DType.FLOAT, made("sapphirerapids")) == Tile(14, 2, 16, 4)
    assert all(t.reads_rows for t in (made("znver4"), made("znver3", "+avx2,+fma"), made("haswell", "+avx2,+fma")))
    assert not any(t.reads_rows for t in (made("sapphirerapids"), made("core2", "+sse3")))
    assert not Target.create("aarch64-unknown-linux-gnu", "cortex-a76", "+neon").reads_rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("halved", [False, True])
def test_products(halved: bool, threads: int, dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """relu(x W1 + b) W2 + x W3, for numbers of rows on both sides of what is packed elsewhere."""
    host = Target.host()
    monkeypatch.setattr(targets, "_HALVING", frozenset({host.cpu} if halved else ()))
    rng = np.random.default_rng([halved, threads, dtype is np.float64])  # models of their own: programs are kept by content
    sizes = {"w1": (96, 1024), "b": (1024,), "w2": (1024, 200), "w3": (96, 200)}
    w = {name: rng.standard_normal(size).astype(dtype) for name, size in sizes.items()}
    kind = oh.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        oh.make_node("Gemm", ["x", "w1", "b"], ["h"]), oh.make_node("Relu", ["h"], ["r"]),
        oh.make_node("MatMul", ["r", "w2"], ["o"]), oh.make_node("MatMul", ["x", "w3"], ["s"]),
        oh.make_node("Add", ["o", "s"], ["y"]),
    ]  # fmt: skip
    graph = oh.make_graph(
        nodes, "g", [oh.make_tensor_value_info("x", kind, ["rows", 96])], [oh.make_tensor_value_info("y", kind, ["rows", 200])],
        [onnx.numpy_helper.from_array(array, name) for name, array in w.items()],
    )  # fmt: skip
    source = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 20)], ir_version=9).SerializeToString()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    exact = {name: array.astype(np.float64) for name, array in w.items()}
    for rows in (1, 3, 9, 31, 64, 131, 700):
        x = rng.standard_normal((rows, 96)).astype(dtype)
        wide = x.astype(np.float64)
        expected = np.maximum(wide @ exact["w1"] + exact["b"], 0) @ exact["w2"] + wide @ exact["w3"]
        tolerance = 3e-3 if dtype is np.float32 else 1e-11
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=0, atol=tolerance)
    if host.vector_bytes >= 32 and host.arch == "x86_64":
        plan = "\n".join(p.describe("plan") for p in session._engine.whole_model().programs)  # type: ignore[attr-defined]
        assert ("pack rows" in plan) == (host.vector_bytes == 64 and not halved)


def test_half_vectors_where_half_a_vector_is_left_over() -> None:
    half, whole = Tile(8, 3, 8, 4), Tile(8, 3, 16, 4)
    found = {n: blocked_tile(n, 100, DType.FLOAT, made("znver4"), halves=True) for n in (8, 24, 40, 120, 48, 28, 152)}
    assert [n for n, tile in found.items() if tile == half] == [8, 24, 40, 120]
    assert found[48] == whole
    assert blocked_tile(24, 100, DType.FLOAT, made("znver4")).lanes == 16, "only where it is asked for"
    assert blocked_tile(24, 100, DType.FLOAT, made("sapphirerapids"), halves=True).lanes == 16


@pytest.mark.parametrize("filters", [5, 20, 24, 40, 72, 100])
@pytest.mark.parametrize(
    "attributes", [{}, {"pads": [1, 1, 1, 1], "strides": [2, 2]}, {"pads": [1, 1, 1, 1], "group": 2}], ids=str
)
def test_convolutions(filters: int, attributes: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """relu(conv(x, w) + b + residual) with few filters, by half vectors."""
    monkeypatch.setattr(targets, "_HALVING", frozenset({Target.host().cpu}))
    rng, group = np.random.default_rng([filters, len(attributes), 9]), int(attributes.get("group", 1))  # type: ignore[call-overload]
    side = 3 if attributes else 1
    x = rng.standard_normal((2, 24, 14, 13)).astype(np.float32)
    w = rng.standard_normal((filters * group, 24 // group, side, side)).astype(np.float32)
    b = rng.standard_normal(filters * group).astype(np.float32)
    nodes = [
        oh.make_node("Conv", ["x", "w", "b"], ["c"], **attributes), oh.make_node("Sigmoid", ["c"], ["s"]),
        oh.make_node("Conv", ["x", "w", "b"], ["d"], **attributes), oh.make_node("Add", ["d", "s"], ["a"]),
        oh.make_node("Relu", ["a"], ["y"]),
    ]  # fmt: skip
    graph = oh.make_graph(
        nodes, "g", [oh.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
        [oh.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(w, "w"), onnx.numpy_helper.from_array(b, "b")],
    )  # fmt: skip
    source = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 20)], ir_version=9).SerializeToString()
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_winograd", "1")
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    summed = convolved(x.astype(np.float64), w, attributes, group) + b.reshape(-1, 1, 1)
    expected = np.maximum(summed + 1 / (1 + np.exp(-summed)), 0)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=0, atol=2e-4)


def convolved(x: np.ndarray, w: np.ndarray, attributes: dict[str, object], group: int) -> np.ndarray:
    """The sums in float64."""
    pad, step, side = int("pads" in attributes), 2 if "strides" in attributes else 1, w.shape[-1]
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (side, side), (2, 3))[:, :, ::step, ::step]
    parts = zip(np.split(windows, group, 1), np.split(w.astype(np.float64), group, 0), strict=True)
    return np.concatenate([np.einsum("nchwij,mcij->nmhw", p, q, optimize=True) for p, q in parts], 1)
