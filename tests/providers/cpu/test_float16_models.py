"""Models of float16 and bfloat16 run by float32's kernels, rounded where they end."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia as ort

KINDS = [(np.float16, 2.0**-10), (ml_dtypes.bfloat16, 2.0**-7)]


def session(nodes: list, inputs: dict, outputs: list[str], constants: dict, kind: type, outs: type | None = None) -> object:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    result = helper.np_dtype_to_tensor_dtype(np.dtype(outs or kind))
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, element, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, result, None) for n in outputs], tensors,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(("kind", "step"), KINDS)
def test_convolutions(kind: type, step: float) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 6, 9, 9)).astype(kind)
    constants = {
        "w": (rng.normal(size=(12, 6, 3, 3)) / 7).astype(kind), "b": rng.normal(size=12).astype(kind),
        "wd": (rng.normal(size=(12, 1, 3, 3)) / 3).astype(kind),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "wd"], ["d"], pads=[1, 1, 1, 1], group=12),
        helper.make_node("Add", ["d", "r"], ["s"]),
        helper.make_node("GlobalAveragePool", ["s"], ["y"]),
    ]
    made = session(nodes, {"x": ["N", 6, 9, 9]}, ["y", "r"], constants, kind)
    y, r = made.run(None, {"x": x})  # type: ignore[attr-defined]

    def convolved(x: np.ndarray, w: np.ndarray, group: int) -> np.ndarray:
        padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        w = w.astype(np.float64)
        return np.einsum("nchwij,mcij->nmhw" if group == 1 else "nchwij,cij->nchw", windows, w if group == 1 else w[:, 0])

    c = np.maximum(convolved(x, constants["w"], 1) + constants["b"].astype(np.float64)[:, None, None], 0)
    expected = (convolved(c, constants["wd"], 12) + c).mean((2, 3), keepdims=True)
    assert y.dtype == np.dtype(kind) and r.dtype == np.dtype(kind)
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=step, atol=step)
    np.testing.assert_allclose(r.astype(np.float64), c, rtol=step, atol=step)
    plan = made._model.programs[0].describe("plan")  # type: ignore[attr-defined]
    assert "conv 3x3" in plan and "depthwise 3x3" in plan


@pytest.mark.parametrize(("kind", "step"), KINDS)
def test_products_and_norms(kind: type, step: float) -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(3, 5, 24)).astype(kind)
    constants = {
        "w": (rng.normal(size=(24, 30)) / 5).astype(kind), "g": rng.normal(size=24).astype(kind),
        "v": (rng.normal(size=(7, 30)) / 5).astype(kind), "b": rng.normal(size=7).astype(kind),
        "rows": np.array([-1, 30]),
    }  # fmt: skip
    nodes = [
        helper.make_node("LayerNormalization", ["x", "g"], ["n"], axis=-1, stash_type=1),
        helper.make_node("MatMul", ["n", "w"], ["m"]),
        helper.make_node("Tanh", ["m"], ["t"]),
        helper.make_node("Reshape", ["t", "rows"], ["f"]),
        helper.make_node("Gemm", ["f", "v", "b"], ["y"], transB=1, alpha=0.5),
    ]
    made = session(nodes, {"x": ["B", "T", 24]}, ["y"], constants, kind)
    wide = {n: v.astype(np.float64) for n, v in constants.items()}
    h = x.astype(np.float64)
    normal = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-5) * wide["g"]
    expected = 0.5 * np.tanh(normal @ wide["w"]).reshape(-1, 30) @ wide["v"].T + wide["b"]
    y = made.run(None, {"x": x})[0]  # type: ignore[attr-defined]
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=step, atol=step)


def test_casts_at_the_borders() -> None:
    """float32 in and out of a float16 model: nothing is rounded between them but the weights."""
    rng = np.random.default_rng(3)
    x, w = rng.normal(size=(4, 16)).astype(np.float32), rng.normal(size=(16, 8)).astype(np.float16)
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=onnx.TensorProto.FLOAT16),
        helper.make_node("MatMul", ["h", "w"], ["p"]),
        helper.make_node("Cast", ["p"], ["y"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Cast", ["p"], ["d"], to=onnx.TensorProto.DOUBLE),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4, 16])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4, 8]),
         helper.make_tensor_value_info("d", onnx.TensorProto.DOUBLE, [4, 8]),
         helper.make_tensor_value_info("p", onnx.TensorProto.FLOAT16, [4, 8])],
        [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    made = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    y, d, p = made.run(None, {"x": x})
    expected = x.astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(d, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(p, expected, rtol=1e-3, atol=1e-3)
    assert (y.dtype, d.dtype, p.dtype) == (np.float32, np.float64, np.float16)
