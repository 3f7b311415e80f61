"""Weights quantised by blocks: by their definition, and equal to onnxruntime's."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx import TensorProto
from onnx import helper as h

import intarsia as ort
from intarsia.capi import _pybind_state as state
from intarsia.errors import InvalidArgument, WrongType

BITS = {2: "quantize_matmul_2bits", 4: "quantize_matmul_4bits", 8: "quantize_matmul_8bits"}
SIZES = [(32, 4, 16), (73, 5, 32), (52, 3, 64)]


def weights(rows: int, columns: int, dtype: type, low: float = -1.0) -> np.ndarray:
    found = np.random.default_rng(rows).uniform(low, 1, (rows, columns)).astype(dtype)
    found[:, 0] = 0
    return found


def columnwise(module, bits: int, w: np.ndarray, block: int, symmetric: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    (rows, columns), per = w.shape, 8 // bits
    count = -(-rows // block)
    packed = np.zeros((columns, count, block // per), np.uint8)
    scales, points = np.zeros((columns, count), w.dtype), np.full((columns, -(-count // per)), 0x5A, np.uint8)
    getattr(module, BITS[bits])(packed, w, scales, points, block, columns, rows, symmetric)
    return packed, scales, points


def unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    shifts = np.arange(8 // bits) * bits
    return ((packed[..., None] >> shifts) & (1 << bits) - 1).reshape(*packed.shape[:-1], -1)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("rows", "columns", "block"), SIZES)
def test_half_a_step_from_the_weights(bits: int, symmetric: bool, rows: int, columns: int, block: int) -> None:
    w = weights(rows, columns, np.float32)
    packed, scales, points = columnwise(state, bits, w, block, symmetric)
    codes = unpacked(packed, bits).astype(np.float64)
    middle = np.full(scales.shape, 1 << bits - 1) if symmetric else unpacked(points, bits)[:, : scales.shape[1]]
    values = ((codes - middle[..., None]) * scales[..., None]).reshape(columns, -1)[:, :rows]
    steps = np.repeat(np.abs(scales), block, axis=1)[:, :rows]
    # a symmetric range has one code less on the side away from the largest magnitude
    assert (np.abs(values - w.T) <= steps * (1.001 if symmetric or bits == 2 else 0.501) + 1e-7).all()
    assert (points == 0x5A).all() == symmetric


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("rows", "columns", "block"), SIZES)
def test_equal_to_onnxruntime(dtype: type, symmetric: bool, rows: int, columns: int, block: int) -> None:
    peer = pytest.importorskip("onnxruntime.capi._pybind_state", reason="its results are the reference")
    w = weights(rows, columns, dtype, -0.5)
    for bits in BITS:
        found, expected = (columnwise(m, bits, w, block, symmetric) for m in (state, peer))
        whole = rows // (8 // bits)  # the rest of a byte is not defined
        np.testing.assert_array_equal(found[0].reshape(columns, -1)[:, :whole], expected[0].reshape(columns, -1)[:, :whole])
        for ours, theirs in zip(found[1:], expected[1:], strict=True):
            np.testing.assert_array_equal(ours, theirs)
    count = -(-rows // block)
    results = []
    for module in (state, peer):
        packed, scales = np.full(-(-rows * columns // 2), 0x33, np.uint8), np.zeros((count, columns), dtype)
        points = np.full(-(-count * columns // 2), 0x5A, np.uint8)
        signed = module.quantize_qdq_matmul_4bits(packed, w, scales, points, block, columns, rows, symmetric)
        results.append((packed, scales, points, np.array(signed)))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for kind in (0, 1):
        results = []
        for module in (state, peer):
            packed, largest = np.zeros((w.size + 1) // 2, np.uint8), np.zeros(-(-w.size // block), dtype)
            module.quantize_matmul_bnb4(packed, np.ascontiguousarray(w.T), largest, block, kind, columns, rows)
            results.append((packed, largest))
        for ours, theirs in zip(*results, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_two_bits_in_the_order_of_the_weights() -> None:
    w = np.float32([[-2, 3], [1, 0], [0, 1.5], [1, 3]])
    packed, scales, points = np.zeros(2, np.uint8), np.zeros((1, 2), np.float32), np.zeros(1, np.uint8)
    assert state.quantize_qdq_matmul_2bits(packed, w, scales, points, 4, 2, 4, False) is False
    assert scales.tolist() == [[1, 1]]
    assert unpacked(points, 2)[:2].tolist() == [2, 0]
    assert unpacked(packed, 2).tolist() == [0, 3, 3, 0, 2, 2, 3, 3]


def test_a_model_runs_with_packed_weights() -> None:
    w, x = weights(64, 6, np.float32), np.random.default_rng(1).uniform(-1, 1, (3, 64)).astype(np.float32)
    packed, scales, points = columnwise(state, 4, w, 32, False)
    node = h.make_node("MatMulNBits", list("xwsz"), ["y"], domain="com.microsoft", K=64, N=6, bits=4, block_size=32)
    constants = [ort_tensor(n, a) for n, a in (("w", packed), ("s", scales.reshape(-1)), ("z", points.reshape(-1)))]
    value = {n: h.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [3, 64]), ("y", [3, 6]))}
    graph = h.make_graph([node], "g", [value["x"]], [value["y"]], constants)
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17), h.make_opsetid("com.microsoft", 1)], ir_version=8)
    (y,) = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    codes, zero = unpacked(packed, 4).reshape(6, 2, 32), unpacked(points, 4)[:, :2, None]
    exact = ((codes.astype(np.float64) - zero) * scales[..., None]).reshape(6, 64)
    np.testing.assert_allclose(y, x.astype(np.float64) @ exact.T, rtol=1e-4, atol=1e-5)
    assert np.abs(y - x @ w).max() < 1


def ort_tensor(name: str, array: np.ndarray):
    from onnx import numpy_helper

    return numpy_helper.from_array(array, name)


def test_errors() -> None:
    w, packed, points = weights(32, 4, np.float32), np.zeros((4, 2, 8), np.uint8), np.zeros((4, 1), np.uint8)
    scales = np.zeros((4, 2), np.float32)
    with pytest.raises(WrongType, match="expected weights and scales in float32 or in float16, and bytes in uint8"):
        state.quantize_matmul_4bits(packed, w, scales.astype(np.float64), points, 16, 4, 32, True)
    with pytest.raises(WrongType, match="expected NumPy arrays, got list"):
        state.quantize_matmul_4bits(packed, w.tolist(), scales, points, 16, 4, 32, True)
    with pytest.raises(InvalidArgument, match=re.escape("weights [32, 4] in 4 bits: expected 64 bytes, 8 scales and 4 bytes")):
        state.quantize_matmul_4bits(packed[:2], w, scales, points, 16, 4, 32, True)
    with pytest.raises(InvalidArgument, match="expected C-contiguous arrays to write to"):
        state.quantize_matmul_4bits(packed, w, scales.T, points, 16, 4, 32, True)
    with pytest.raises(InvalidArgument, match=r"quantize_matmul_bnb4: expected 128 weights.* and 2 for blocks of 16"):
        state.quantize_matmul_bnb4(np.zeros(64, np.uint8), w, np.zeros(8, np.float32), 16, 2, 4, 32)
    with pytest.raises(InvalidArgument, match="blocks of 3 values of 4 bits: expected whole bytes"):
        state.quantize_matmul_4bits(packed, w, scales, points, 3, 4, 32, True)
