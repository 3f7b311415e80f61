"""Products by quantised weights with infinite scales: NaN where a number of the block is 0, on the CPU as on the reference.

A kernel that scales the sum of a block would give an infinity there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
DEPTH, COLUMNS, BLOCK, ROWS = 64, 8, 32, 3
Arrays = dict[str, np.ndarray]


def both(nodes: list[Any], feeds: Arrays, constants: Arrays, kind: int = TensorProto.FLOAT) -> list[np.ndarray]:
    """What the CPU and the reference give of "y"."""
    taken = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feeds.items()]
    graph = helper.make_graph(
        nodes, "g", taken,
        [helper.make_tensor_value_info("y", kind, None)], [numpy_helper.from_array(x, n) for n, x in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return [intarsia.InferenceSession(model, providers=[p]).run(None, feeds)[0] for p in PROVIDERS]


def contributed(op: str, names: list[str], **attributes: Any) -> Any:
    return helper.make_node(op, names, ["y"], domain="com.microsoft", **attributes)


def rows_of() -> np.ndarray:
    return np.abs(np.random.default_rng(0).standard_normal((ROWS, DEPTH))).astype(np.float32) + np.float32(0.5)


def scales_of(bad: float, shape: tuple[int, ...]) -> np.ndarray:
    """Ones, but the first of the first two rows."""
    scales = np.ones(shape, np.float32)
    scales.reshape(-1, shape[-1])[:2, 0] = bad
    return scales


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("accuracy_level", [0, 4])
def test_blocks(accuracy_level: int, bits: int, bad: float) -> None:
    """Of column 0 all numbers of the block are 1, of column 1 one is 0: their sums are infinite and NaN."""
    zero, each = 1 << (bits - 1), 8 // bits
    numbers = np.full((COLUMNS, DEPTH), zero + 1, np.uint8)
    numbers[1, 5] = zero
    packed = sum(numbers[:, i::each].astype(np.int64) << (bits * i) for i in range(each))
    b = np.asarray(packed, np.uint8).reshape(COLUMNS, DEPTH // BLOCK, -1)
    names = {"K": DEPTH, "N": COLUMNS, "bits": bits, "block_size": BLOCK, "accuracy_level": accuracy_level}
    a = rows_of()
    constants = {"b": b, "s": scales_of(bad, (COLUMNS, DEPTH // BLOCK))}
    for y in both([contributed("MatMulNBits", ["a", "b", "s"], **names)], {"a": a}, constants):
        np.testing.assert_array_equal(y[:, 0], np.full(ROWS, bad, np.float32))
        assert np.isnan(y[:, 1]).all()
        np.testing.assert_allclose(y[:, 2:], np.repeat(a.sum(1, keepdims=True), COLUMNS - 2, 1), rtol=1e-2)


@pytest.mark.parametrize("quant_type", [0, 1])
def test_codes(quant_type: int) -> None:
    """Code 0 of FP4 and 7 of NF4 are zero."""
    codes = np.full((COLUMNS, DEPTH), 3, np.uint8)
    codes[1, 5] = 7 if quant_type else 0
    b = (codes[:, ::2] << 4 | codes[:, 1::2]).reshape(-1)
    largest = scales_of(np.inf, (COLUMNS, DEPTH // BLOCK)).reshape(-1)
    node = contributed("MatMulBnb4", ["a", "b", "s"], K=DEPTH, N=COLUMNS, block_size=BLOCK, quant_type=quant_type)
    for y in both([node], {"a": rows_of()}, {"b": b, "s": largest}):
        assert np.isinf(y[:, 0]).all() and np.isnan(y[:, 1]).all() and np.isfinite(y[:, 2:]).all()


@pytest.mark.parametrize("block", [0, BLOCK])
@pytest.mark.parametrize("activations", [False, True])
def test_dequantised(activations: bool, block: int) -> None:
    """DequantizeLinear before MatMul, of weights alone or of both sides."""
    w = np.ones((DEPTH, COLUMNS), np.int8)
    w[5, 1] = 0
    s = scales_of(1.0, (DEPTH // BLOCK, COLUMNS)) if block else np.ones(COLUMNS, np.float32)
    s[..., :2] = np.inf
    attributes = {"axis": 0, "block_size": block} if block else {"axis": 1}
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["r"], **attributes)]
    feeds: Arrays = {"a": rows_of()}
    constants: Arrays = {"w": w, "s": s}
    if activations:
        nodes.append(helper.make_node("DequantizeLinear", ["q", "t"], ["a"]))
        feeds, constants = {"q": np.ones((ROWS, DEPTH), np.int8)}, constants | {"t": np.float32(0.5)}
    for y in both([*nodes, helper.make_node("MatMul", ["a", "r"], ["y"])], feeds, constants):
        assert np.isinf(y[:, 0]).all() and np.isnan(y[:, 1]).all() and np.isfinite(y[:, 2:]).all()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_sums_of_integers_are_scaled(bad: float, turned: bool) -> None:
    """QGemm scales sums: 0 times infinity is NaN, whose byte is the lowest, and any other sum the highest or lowest byte."""
    a = np.array([[3, 3, 3], [3, 4, 3], [4, 2, 3]], np.uint8)
    b = np.array([[7, 6], [7, 6], [9, 4]], np.uint8)
    constants: Arrays = {
        "as": np.float32(bad), "az": np.uint8(3), "b": b.T.copy() if turned else b, "bs": np.float32(0.5), "bz": np.uint8(5),
    }  # fmt: skip
    names = ["a", *constants]
    lowest, highest = both([contributed("QGemm", names, transB=int(turned))], {"a": a}, constants)
    np.testing.assert_array_equal(lowest, highest)
    total = (a.astype(int) - 3) @ (b.astype(int) - 5)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(lowest, (total * np.float32(bad)).astype(np.float32))
    quantised = constants | {"c": np.zeros(2, np.int32), "ys": np.float32(1), "yz": np.uint8(9)}
    for y in both([contributed("QGemm", ["a", *quantised], transB=int(turned))], {"a": a}, quantised, TensorProto.UINT8):
        np.testing.assert_array_equal(y, np.where((total > 0) & np.isposinf(bad), 255, 0))


@pytest.mark.parametrize("scale", [0.0, -0.0, np.inf, np.nan])
@pytest.mark.parametrize("at", [1, 4, 6])
def test_convolutions_of_bytes_by_scales_that_are_no_numbers(at: int, scale: float) -> None:
    """Scales are divided by each other when the session is made: NaN there may make no other bytes than the reference has."""
    draw = np.random.default_rng(2)
    x = draw.integers(100, 140, (1, 3, 6, 6)).astype(np.uint8)
    quantised: list[Any] = [
        x, np.float32(0.1), np.uint8(120), draw.integers(-9, 9, (4, 3, 3, 3)).astype(np.int8), np.float32(0.1), np.int8(0),
        np.float32(0.4), np.uint8(128),
    ]  # fmt: skip
    for i in (1, 6) if at == 6 else (at,):  # 0 / 0 in the first case
        quantised[i] = np.float32(scale)
    names = ["x", *(f"c{i}" for i in range(1, len(quantised)))]
    constants = {name: np.asarray(value) for name, value in zip(names[1:], quantised[1:], strict=True)}
    cpu, reference = both([helper.make_node("QLinearConv", names, ["y"])], {"x": x}, constants, TensorProto.UINT8)
    np.testing.assert_array_equal(cpu, reference)
