"""GatherBlockQuantized of 4 and 2 bits on the CPU provider, against NumPy and onnxruntime."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
pytest.importorskip("onnx", reason="the models are built with onnx.helper")

import onnx
from onnx import TensorProto, helper
from onnx.helper import make_tensor

import intarsia

RANGES = {"UINT4": (0, 16), "INT4": (-8, 8), "UINT2": (0, 4), "INT2": (-2, 2)}


def model_of(
    kind: str, data: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, indices: tuple[int, ...], **attributes: Any
) -> bytes:
    code = getattr(TensorProto, kind)
    weights = [make_tensor("data", code, data.shape, data.reshape(-1).tolist()), onnx.numpy_helper.from_array(scales, "scales")]
    inputs = ["data", "indices", "scales"]
    if zeros is not None:
        weights.append(make_tensor("zeros", code, zeros.shape, zeros.reshape(-1).tolist()))
        inputs.append("zeros")
    node = helper.make_node("GatherBlockQuantized", inputs, ["y"], name="node", domain="com.microsoft", **attributes)
    given = helper.make_tensor_value_info("indices", TensorProto.INT64, indices)
    made = helper.make_empty_tensor_value_info("y")
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", [given], [made], weights)
    serialized: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return serialized


def dequantized(data: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, axis: int, size: int) -> np.ndarray:
    def spread(x: np.ndarray) -> np.ndarray:
        return np.repeat(x, size, axis).take(range(data.shape[axis]), axis).astype(np.float64)

    return (data - (0 if zeros is None else spread(zeros))) * spread(scales)


@pytest.mark.parametrize("kind", RANGES)
@pytest.mark.parametrize(("columns", "axis"), [(64, 1), (40, 1), (33, 1), (48, 0)])
def test_tables(kind: str, columns: int, axis: int) -> None:
    if not hasattr(TensorProto, kind):
        pytest.skip(f"this version of onnx has no {kind}")
    rng = np.random.default_rng(columns)
    low, high = RANGES[kind]
    data = rng.integers(low, high, (20, columns))
    blocks = [20, columns]
    blocks[axis] = -(-blocks[axis] // 16)
    scales = rng.random(blocks).astype(np.float32) + 0.5
    for zeros, indices in itertools.product(
        (None, rng.integers(low, high, blocks)), (np.array([3, 0, -1, 19]), np.array([[7]]))
    ):
        expected = np.take(dequantized(data, scales, zeros, axis, 16), indices, axis=1 - axis)
        attributes = {"block_size": 16, "quantize_axis": axis, "gather_axis": 1 - axis}
        session = intarsia.InferenceSession(
            model_of(kind, data, scales, zeros, indices.shape, **attributes), providers=["CPUExecutionProvider"]
        )
        assert {n.kind for n in session.explain().nodes} == {"compiled"}
        (y,) = session.run(None, {"indices": indices})
        np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize("kind", ["UINT4", "INT4"])
def test_as_onnxruntime(kind: str) -> None:
    peer = pytest.importorskip("onnxruntime", reason="the peer whose operator this is")
    rng = np.random.default_rng(0)
    low, high = RANGES[kind]
    data, scales = rng.integers(low, high, (50, 64)), rng.random((50, 4)).astype(np.float32)
    indices = rng.integers(0, 50, (3, 5))
    for zeros in (None, rng.integers(low, high, (50, 4))):
        model = model_of(kind, data, scales, zeros, indices.shape, block_size=16)
        found, wanted = (
            m.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"indices": indices})[0]
            for m in (intarsia, peer)
        )
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_packed_bytes_of_all_widths_are_compiled() -> None:
    rng = np.random.default_rng(1)
    for bits in (2, 4, 8):
        each = 8 // bits
        numbers = rng.integers(0, 1 << bits, (9, 64))
        packed = sum(numbers[:, i::each] << i * bits for i in range(each)).astype(np.uint8)
        scales = rng.random((9, 4)).astype(np.float32)
        model = model_of("UINT8", packed, scales, None, (4,), bits=bits, block_size=16)
        session = intarsia.InferenceSession(model, providers=["CPUExecutionProvider"])
        assert {n.kind for n in session.explain().nodes} == {"compiled"}
        (y,) = session.run(None, {"indices": np.array([8, 0, 3, 3])})
        expected = (numbers - (1 << (bits - 1))) * np.repeat(scales, 16, 1)
        np.testing.assert_allclose(y, expected[[8, 0, 3, 3]], rtol=1e-6)
