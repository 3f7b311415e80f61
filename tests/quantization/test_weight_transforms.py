"""What changes weights before they are rounded, against float64 NumPy: cross-layer equalisation, bias correction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from quantised_cases import Reader, model, numbers, saved, stored

import intarsia
from intarsia.errors import InvalidArgument
from intarsia.quantization import QuantType, quantize_static
from intarsia.quantization.writers.cross_layer import equalize_layers

Feed = dict[str, np.ndarray]


def run(path: Path | onnx.ModelProto, feeds: list[Feed]) -> np.ndarray:
    source = path.SerializeToString() if isinstance(path, onnx.ModelProto) else path
    session = intarsia.InferenceSession(source, providers=["ReferenceExecutionProvider"])
    return np.concatenate([session.run(None, feed)[0] for feed in feeds])


def skewed() -> onnx.ModelProto:
    """Conv, Relu, depthwise Conv, LeakyRelu, MaxPool, grouped Conv, mean, Flatten, Gemm, Relu, Gemm; channels of all sizes."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "c1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "r1"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], "c2", pads=[1, 1, 1, 1], group=8),
        helper.make_node("LeakyRelu", ["c2"], ["r2"], "r2", alpha=0.1),
        helper.make_node("MaxPool", ["r2"], ["p2"], "p2", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p2", "w3"], ["c3"], "c3", group=2),
        helper.make_node("GlobalAveragePool", ["c3"], ["a"], "a"),
        helper.make_node("Flatten", ["a"], ["f"], "f"),
        helper.make_node("Gemm", ["f", "w4", "b4"], ["g"], "g4", transB=1, alpha=0.5),
        helper.make_node("Relu", ["g"], ["r4"], "r4"),
        helper.make_node("Gemm", ["r4", "w5", "b5"], ["y"], "g5"),
    ]
    sizes = np.float32(10) ** np.linspace(-1.5, 1.5, 8, dtype=np.float32)
    tensors = {
        "w1": numbers(1, 8, 3, 3, 3) * sizes[:, None, None, None], "b1": numbers(2, 8) * sizes,
        "w2": numbers(3, 8, 1, 3, 3) / 3, "b2": numbers(4, 8) * sizes,
        "w3": numbers(5, 12, 4, 1, 1) / np.tile(sizes.reshape(2, 1, 4), (1, 6, 1)).reshape(12, 4, 1, 1) / 4,
        "w4": numbers(6, 16, 12), "b4": numbers(7, 16), "w5": numbers(8, 16, 5), "b5": numbers(9, 5),
    }  # fmt: skip
    return model(nodes, tensors, {"x": ["n", 3, 8, 8], "y": ["n", 5]})


def shaped(made: onnx.ModelProto) -> onnx.ModelProto:
    return onnx.shape_inference.infer_shapes(made)


FEEDS = [{"x": numbers(i, 4, 3, 8, 8)} for i in range(8)]


def squared(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.square(found.astype(np.float64) - exact).sum() / np.square(exact).sum())


def test_equalised_layers_compute_the_same_with_equal_ranges() -> None:
    made = shaped(skewed())
    before = {name: values.astype(np.float64) for name, values in stored(made).items()}
    exact = run(made, FEEDS)
    assert equalize_layers(made) == 4
    onnx.checker.check_model(made)
    assert squared(run(made, FEEDS), exact) < 1e-10
    after = {name: values.astype(np.float64) for name, values in stored(made).items()}
    # what channels were divided by, from the weights: b1 by the same, and the filters behind times it
    factors = before["w1"][:, 0, 0, 0] / after["w1"][:, 0, 0, 0]
    assert np.allclose(after["b1"] * factors, before["b1"], rtol=1e-5)
    second = before["w2"][:, 0, 0, 0] * factors / after["w2"][:, 0, 0, 0]
    assert np.allclose(after["b2"] * second, before["b2"], rtol=1e-5)
    largest = np.abs(after["w1"]).reshape(8, -1).max(axis=1), np.abs(after["w2"]).reshape(8, -1).max(axis=1)
    assert np.allclose(*largest, rtol=1e-2)  # a channel has one range in both layers
    for name in ("w1", "w2"):
        spread = [np.abs(w[name]).reshape(8, -1).max(axis=1) for w in (before, after)]
        assert spread[1].max() / spread[1].min() < max(20.0, spread[0].max() / spread[0].min() / 2)


def test_layers_whose_values_others_read_stay() -> None:
    made = shaped(skewed())
    made.graph.output.append(helper.make_tensor_value_info("r1", onnx.TensorProto.FLOAT, ["n", 8, 8, 8]))
    before = stored(made)["w1"]
    assert equalize_layers(made) == 3
    assert np.array_equal(stored(made)["w1"], before)
    bounded = shaped(skewed())
    bounded.graph.node[1].CopyFrom(helper.make_node("Sigmoid", ["c1"], ["r1"], "r1"))
    assert equalize_layers(bounded) == 3


ONE_SCALE: dict[str, Any] = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}


def quantised(folder: Path, options: dict[str, Any], made: onnx.ModelProto | None = None, **how: Any) -> np.ndarray:
    path = saved(made or skewed(), folder)
    quantize_static(path, folder / "q.onnx", Reader(FEEDS), extra_options=options, **{**ONE_SCALE, **how})
    onnx.checker.check_model(onnx.load(folder / "q.onnx"))
    return run(folder / "q.onnx", FEEDS)


def test_equalisation_lets_one_scale_fit_all_channels(tmp_path: Path) -> None:
    exact = run(skewed(), FEEDS).astype(np.float64)
    plain, equalised = (squared(quantised(tmp_path, {"CrossLayerEqualization": on}), exact) for on in (False, True))
    assert equalised < plain / 4


def deep() -> onnx.ModelProto:
    """Conv, Relu, Conv without a bias, Relu, Gemm: inputs whose means are far from 0, so that rounding shifts outputs."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "c1"),
        helper.make_node("Relu", ["c1"], ["r1"], "r1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "c2", group=2),
        helper.make_node("Relu", ["c2"], ["r2"], "r2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["a"], "a"),
        helper.make_node("Flatten", ["a"], ["f"], "f"),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], "g", alpha=2.0, beta=0.5),
    ]
    tensors = {
        "w1": numbers(1, 16, 3, 3, 3), "b1": 4 + numbers(2, 16), "w2": numbers(3, 16, 8, 3, 3) / 4, "w3": numbers(4, 16, 6),
        "b3": numbers(5, 6),
    }  # fmt: skip
    return model(nodes, tensors, {"x": ["n", 3, 8, 8], "y": ["n", 6]}, 21)


def test_corrected_biases_have_the_means_of_floats(tmp_path: Path) -> None:
    """By four bits, so that the shift is large; means of outputs by channel."""
    exact = run(deep(), FEEDS).astype(np.float64)
    how = {"weight_type": QuantType.QInt4, "activation_type": QuantType.QUInt16}
    shifts = []
    for on in (False, True):
        found = quantised(tmp_path, {"BiasCorrection": on}, deep(), **how)
        shifts.append(np.abs((found - exact).mean(axis=0)).sum())
    assert shifts[1] < 0.75 * shifts[0]  # what Relu makes of errors stays


def test_a_corrected_bias_is_that_of_numpy(tmp_path: Path) -> None:
    """One Gemm: bias - (Wq - W)^T E[x], in float64."""
    weights, bias = numbers(1, 6, 4), numbers(2, 4)
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], "g")
    made = model([node], {"w": weights, "b": bias}, {"x": ["n", 6], "y": ["n", 4]})
    feeds = [{"x": 3 + numbers(i, 5 + i, 6)} for i in range(4)]
    path = saved(made, tmp_path)
    quantize_static(path, tmp_path / "q.onnx", Reader(feeds), extra_options={"BiasCorrection": True}, **ONE_SCALE)
    found = stored(onnx.load(tmp_path / "q.onnx"))
    scale = np.abs(weights).max() * 2 / 254
    rounded = np.clip(np.rint(weights.astype(np.float64) / scale), -127, 127) * scale
    mean = np.concatenate([f["x"] for f in feeds]).astype(np.float64).mean(axis=0)
    expected = bias - mean @ (rounded - weights)
    steps = found["b_quantized_scale"]
    assert np.allclose(found["b_quantized"] * steps, expected, atol=2 * float(steps.max()) + 1e-6)


@pytest.mark.parametrize("option", ["BiasCorrection", "SmoothQuant"])
def test_data_are_needed(tmp_path: Path, option: str) -> None:
    path = saved(skewed(), tmp_path)
    with pytest.raises(InvalidArgument, match=rf"{option} requires a calibration_data_reader"):
        quantize_static(path, tmp_path / "q.onnx", extra_options={option: True}, calibration_cache_path=tmp_path / "none.json")
    if option == "BiasCorrection":
        with pytest.raises(InvalidArgument, match=r"No data is collected"):
            quantize_static(path, tmp_path / "q.onnx", Reader([]), extra_options={option: True})


def test_ranges_of_least_squared_error(tmp_path: Path) -> None:
    """An outlier in one input: clipping it costs less than steps thirty times as wide."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "m")
    made = model([node], {"w": numbers(1, 64, 8)}, {"x": ["n", 64], "y": ["n", 8]})
    feeds = [{"x": numbers(i, 500, 64)} for i in range(8)]
    feeds[3]["x"][0, 0] = 200.0
    path = saved(made, tmp_path)
    exact = np.concatenate([f["x"].astype(np.float64) @ numbers(1, 64, 8) for f in feeds])
    errors = []
    for on in (False, True):
        options = {"CalibSquaredError": on}
        quantize_static(path, tmp_path / "q.onnx", Reader(feeds), extra_options=options, per_channel=True, **ONE_SCALE)
        found = run(tmp_path / "q.onnx", feeds)
        errors.append(float(np.median(np.square(found - exact))))
    assert errors[1] < errors[0] / 3
