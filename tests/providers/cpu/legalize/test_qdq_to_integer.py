"""QDQ and QOperator models run in integers, within one step of their float32 definition."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia as ort


class Builder:
    """A model whose tensors are quantised and dequantised between the nodes."""

    def __init__(self, signed: bool) -> None:
        self.nodes, self.constants, self.signed = [], {}, signed
        self.rng = np.random.default_rng(5)

    def constant(self, name: str, value: np.ndarray) -> str:
        self.constants[name] = np.asarray(value)
        return name

    def add(self, op: str, inputs: list[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def pair(self, name: str, scale: float, zero: int) -> str:
        zero_type = np.int8 if self.signed else np.uint8
        s = self.constant(f"{name}_s", np.float32(scale))
        z = self.constant(f"{name}_z", zero_type(zero - 128 if self.signed else zero))
        self.add("QuantizeLinear", [name, s, z], f"{name}_q")
        return self.add("DequantizeLinear", [f"{name}_q", s, z], f"{name}_d")

    def weights(self, name: str, shape: tuple[int, ...], axis: int | None, scale: float = 0.01) -> str:
        self.constant(f"{name}_q", self.rng.integers(-127, 128, shape).astype(np.int8))
        count = () if axis is None else (shape[axis],)
        self.constant(f"{name}_s", ((self.rng.random(count) + 0.5) * scale).astype(np.float32))
        self.constant(f"{name}_z", np.zeros(count, np.int8))
        inputs = [f"{name}_q", f"{name}_s", f"{name}_z"]
        return self.add("DequantizeLinear", inputs, name, **({} if axis is None else {"axis": axis}))

    def bias(self, name: str, x_scale: str, w: str, size: int) -> str:
        scale = self.constants[x_scale] * self.constants[f"{w}_s"]
        self.constant(f"{name}_q", self.rng.integers(-2000, 2000, size).astype(np.int32))
        self.constant(f"{name}_s", np.asarray(scale, np.float32))
        return self.add("DequantizeLinear", [f"{name}_q", f"{name}_s"], name, **({"axis": 0} if scale.ndim else {}))

    def model(self, inputs: dict[str, list], output: str) -> bytes:
        graph = helper.make_graph(
            self.nodes, "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(v, n) for n, v in self.constants.items()],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def convolutional(signed: bool, per_channel: bool) -> bytes:
    """Two convolutions, the second with a residual; max pooling; a fully connected layer."""
    b, axis = Builder(signed), 0 if per_channel else None
    x = b.pair("x", 0.03, 120)
    c1 = b.add("Conv", [x, b.weights("w1", (24, 5, 3, 3), axis), b.bias("b1", "x_s", "w1", 24)], "c1", pads=[1, 1, 1, 1])
    r1 = b.pair(b.add("Relu", [c1], "r1"), 0.02, 0)
    p1 = b.pair(b.add("MaxPool", [r1], "p1", kernel_shape=[2, 2], strides=[2, 2]), 0.02, 0)
    d1 = b.add("Conv", [p1, b.weights("wd", (24, 1, 3, 3), axis)], "d1", pads=[1, 1, 1, 1], group=24)
    d2 = b.pair(d1, 0.03, 128)
    c2 = b.pair(b.add("Conv", [d2, b.weights("w2", (24, 24, 1, 1), axis)], "c2"), 0.02, 100)
    total = b.pair(b.add("Relu", [b.add("Add", [c2, p1], "sum")], "r2"), 0.03, 3)
    flat = b.add("Flatten", [b.add("GlobalAveragePool", [total], "mean")], "flat")
    f = b.pair(flat, 0.0203, 0)  # no mean of steps is half of one
    w3 = b.weights("w3", (10, 24), axis)
    y = b.pair(b.add("Gemm", [f, w3, b.bias("b3", "flat_s", "w3", 10)], "y", transB=1), 0.02, 128)
    return b.model({"x": ["N", 5, 12, 12]}, y)


def sequence(signed: bool, per_channel: bool) -> bytes:
    """Products by weights, and of two activations."""
    b, axis = Builder(signed), 1 if per_channel else None
    x = b.pair("x", 0.03, 120)
    q = b.pair(b.add("MatMul", [x, b.weights("wq", (19, 32), axis)], "q"), 0.02, 128)
    kk = b.pair(b.add("MatMul", [x, b.weights("wk", (19, 32), axis)], "k"), 0.02, 130)
    kt = b.pair(b.add("Transpose", [kk], "kt", perm=[0, 2, 1]), 0.02, 130)
    scores = b.pair(b.add("MatMul", [q, kt], "scores"), 0.05, 128)
    weights = b.pair(b.add("Softmax", [scores], "p", axis=-1), 1 / 255, 0)
    y = b.pair(b.add("MatMul", [weights, kk], "y"), 0.02, 128)
    return b.model({"x": ["N", "T", 19]}, y)


def run(model: bytes, x: np.ndarray, provider: str = "CPUExecutionProvider", **config: str) -> tuple[np.ndarray, set[str]]:
    options = ort.SessionOptions()
    for key, value in config.items():
        options.add_session_config_entry(key.replace("__", "."), value)
    made = ort.InferenceSession(model, options, providers=[provider])
    return made.run(None, {"x": x})[0], {n["kernel"] for n in made.explain().to_dict()["nodes"]}


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(("make", "shape", "step"), [
    (convolutional, (2, 5, 12, 12), 0.02), (sequence, (2, 9, 19), 0.02),
])  # fmt: skip
def test_pairs_run_in_integers(make: object, shape: tuple[int, ...], step: float, signed: bool, per_channel: bool) -> None:
    model = make(signed, per_channel)  # type: ignore[operator]
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    expected, _ = run(model, x, "ReferenceExecutionProvider")
    actual, kernels = run(model, x)
    assert np.abs(actual - expected).max() <= step * 1.001
    assert np.mean(np.abs(actual - expected) > step / 2) < 0.05
    assert not any(k.startswith(("Conv+", "MatMul+", "Gemm+")) or k in ("Conv", "MatMul", "Gemm") for k in kernels)
    assert any("Integer" in k for k in kernels)


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
@pytest.mark.parametrize("dtype", [np.uint16, np.int16])
def test_activations_of_16_bits(dtype: type, domain: str) -> None:
    """They stay floats, rounded to steps in the epilogues of what computes them."""
    rng, low = np.random.default_rng(3), np.iinfo(dtype).min
    nodes: list = []
    constants: dict[str, np.ndarray] = {}

    def add(op: str, inputs: list[str], output: str, **attributes: object) -> str:
        mixed = {"domain": domain} if op.endswith("tizeLinear") else {}
        nodes.append(helper.make_node(op, inputs, [output], **mixed, **attributes))
        return output

    def pair(name: str, scale: float, zero: int, readers: int = 1) -> list[str]:
        constants[f"{name}_s"], constants[f"{name}_z"] = np.float32(scale), dtype(zero + low)
        add("QuantizeLinear", [name, f"{name}_s", f"{name}_z"], f"{name}_q")
        return [add("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], f"{name}_d{i}") for i in range(readers)]

    def weights(name: str, shape: tuple[int, ...]) -> str:
        constants[f"{name}_q"] = rng.integers(-127, 128, shape).astype(np.int8)
        constants[f"{name}_s"], constants[f"{name}_z"] = np.float32(0.01), np.int8(0)
        return add("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], name)

    (x,) = pair("x", 1e-4, 32768)
    one, other = pair(add("Relu", [add("Conv", [x, weights("w1", (24, 5, 3, 3))], "c1")], "r1"), 1e-4, 0, readers=2)
    add("Add", [add("Conv", [one, weights("w2", (24, 24, 1, 1))], "c2"), other], "sum")
    (y,) = pair("sum", 4e-4, 30000)
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 5, 12, 12])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    values = rng.normal(size=(2, 5, 12, 12)).astype(np.float32)
    expected, _ = run(model, values, "ReferenceExecutionProvider")
    actual, kernels = run(model, values)
    apart = np.abs(actual - expected) / 4e-4
    assert apart.max() <= 1.01, "a step of what was quantised last"
    assert np.mean(apart > 0.5) < 0.01
    fused = [k for k in kernels if "Conv" in k]
    assert fused
    assert all("Snap" in k for k in fused), kernels


@pytest.mark.parametrize(("after", "rounded"), [(0.001, False), (0.002, True)])
def test_steps_of_16_bits_that_were_rounded_before(after: float, rounded: bool) -> None:
    """What only moves values that lie on steps leaves them there."""
    constants = {"shape": np.array([0, -1]), "zero": np.uint16(30000), "s0": np.float32(0.001), "s1": np.float32(after)}
    nodes = [helper.make_node("Sin", ["x"], ["sin"])]
    for index, (source, moved) in enumerate((("sin", "flat"), ("flat", "y"))):
        parameters = [f"s{index}", "zero"]
        nodes.append(helper.make_node("QuantizeLinear", [source, *parameters], [f"q{index}"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"q{index}", *parameters], [f"d{index}"]))
        nodes.append(helper.make_node("Reshape", [f"d{index}", "shape"], [moved]))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 7])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    values = np.random.default_rng(1).normal(size=(4, 3, 7)).astype(np.float32)
    expected, _ = run(model, values, "ReferenceExecutionProvider")
    actual, kernels = run(model, values)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)
    assert any("Snap" in k for k in kernels) == rounded, kernels


def test_pairs_stay_floats_on_request() -> None:
    model = convolutional(True, True)
    x = np.random.default_rng(1).normal(size=(2, 5, 12, 12)).astype(np.float32)
    expected, _ = run(model, x, "ReferenceExecutionProvider")
    actual, kernels = run(model, x, session__disable_quant_qdq="1")
    assert np.abs(actual - expected).max() <= 0.02 * 1.001
    assert not any("Integer" in k for k in kernels)


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("types", [(np.uint8, np.int8, np.uint8), (np.int8, np.int8, np.int8), (np.uint8, np.uint8, np.int8)])
def test_qlinear_conv_is_its_definition(types: tuple[type, type, type], per_channel: bool) -> None:
    rng = np.random.default_rng(2)
    x_type, w_type, y_type = types
    count = (20,) if per_channel else ()
    w = rng.integers(np.iinfo(w_type).min, np.iinfo(w_type).max + 1, (20, 7, 3, 3)).astype(w_type)
    constants = {
        "xs": np.float32(0.02), "xz": x_type(7), "w": w, "ws": (rng.random(count) * 0.01 + 0.002).astype(np.float32),
        "wz": np.full(count, 9, w_type), "ys": np.float32(0.9), "yz": y_type(5),
        "b": rng.integers(-1000, 1000, 20).astype(np.int32),
    }  # fmt: skip
    node = helper.make_node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"], pads=[1, 0, 1, 2])
    kinds = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", kinds[x_type], ["N", 7, 6, 8])],
        [helper.make_tensor_value_info("y", kinds[y_type], None)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    info = np.iinfo(x_type)
    x = rng.integers(info.min, info.max + 1, (2, 7, 6, 8)).astype(x_type)
    expected, _ = run(model, x, "ReferenceExecutionProvider")
    actual, kernels = run(model, x)
    np.testing.assert_array_equal(actual, expected)
    assert any("ConvInteger" in k for k in kernels)


def product_model(node: object, inputs: dict[str, tuple[type, list]], constants: dict[str, np.ndarray], output: type) -> bytes:
    def info(name: str, dtype: type, shape: list | None) -> object:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)

    graph = helper.make_graph(
        [node], "g", [info(n, d, s) for n, (d, s) in inputs.items()], [info("y", output, None)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("per_column", [True, False])
def test_qgemm(transposed: int, real: bool, per_column: bool) -> None:
    rng = np.random.default_rng(4)
    count = (21,) if per_column else ()
    constants = {
        "as": np.float32(0.02), "az": np.uint8(9),
        "b": rng.integers(-128, 128, (21, 30) if transposed else (30, 21)).astype(np.int8),
        "bs": (rng.random(count) * 0.01 + 0.01).astype(np.float32), "bz": np.full(count, 3, np.int8),
        "c": rng.integers(-500, 500, 21).astype(np.int32), "ys": np.float32(0.37), "yz": np.uint8(120),
    }  # fmt: skip
    names = ["x", "as", "az", "b", "bs", "bz", "c", *([] if real else ["ys", "yz"])]
    node = helper.make_node("QGemm", names, ["y"], domain="com.microsoft", transB=transposed, alpha=0.5)
    model = product_model(node, {"x": (np.uint8, ["M", 30])}, constants, np.float32 if real else np.uint8)
    x = rng.integers(0, 256, (13, 30)).astype(np.uint8)
    b = constants["b"].T if transposed else constants["b"]
    total = (x.astype(np.int64) - 9) @ (b.astype(np.int64) - 3) + constants["c"]
    expected = total * (0.5 * 0.02 * constants["bs"].astype(np.float64))
    actual, kernels = run(model, x)
    if real:
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)
    else:
        steps = np.clip(np.round(expected / np.float32(0.37)) + 120, 0, 255)
        assert np.abs(actual - steps).max() <= 1 and np.mean(actual != steps) < 0.02
    assert any("MatMulInteger" in k for k in kernels)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("b_type", [np.uint8, np.int8])
@pytest.mark.parametrize("per_column", [True, False])
def test_dynamic_quantize_matmul(b_type: type, per_column: bool, constant: bool) -> None:
    rng = np.random.default_rng(6)
    info, count = np.iinfo(b_type), (19,) if per_column else ()
    values = {
        "b": rng.integers(info.min, info.max + 1, (40, 19)).astype(b_type),
        "bs": (rng.random(count) * 0.01 + 0.01).astype(np.float32), "bz": rng.integers(0, 100, count).astype(b_type),
        "bias": rng.normal(size=19).astype(np.float32),
    }  # fmt: skip
    node = helper.make_node("DynamicQuantizeMatMul", ["x", "b", "bs", "bz", "bias"], ["y"], domain="com.microsoft")
    inputs = {"x": (np.float32, ["B", "M", 40])}
    if not constant:
        inputs["b"] = (b_type, [40, 19])
    constants = {n: v for n, v in values.items() if constant or n != "b"}
    model = product_model(node, inputs, constants, np.float32)
    x = rng.normal(size=(2, 5, 40)).astype(np.float32)
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = (high - low) / np.float32(255)
    zero = np.clip(np.round(-low / scale), 0, 255)
    a = np.clip(np.round(x / scale) + zero, 0, 255) - zero
    expected = a @ (values["b"].astype(np.float64) - values["bz"]) * (np.float64(scale) * values["bs"]) + values["bias"]
    made = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    feeds = {"x": x} if constant else {"x": x, "b": values["b"]}
    np.testing.assert_allclose(made.run(None, feeds)[0], expected, rtol=1e-5, atol=1e-4)
    assert "byte gemm" in made._model.programs[0].describe("plan")


@pytest.mark.parametrize("signed", [True, False])
def test_residuals_are_read_as_bytes(signed: bool) -> None:
    """What is added behind a product of bytes is dequantised there, not written out as float32 before."""
    options = ort.SessionOptions()
    made = ort.InferenceSession(convolutional(signed, True), options, providers=["CPUExecutionProvider"])
    made.run(None, {"x": np.zeros((1, 5, 12, 12), np.float32)})
    plan = made._model.programs[0].describe("plan")
    assert "p1_q" in plan and "p1_d" not in plan


@pytest.mark.parametrize("signed", [True, False])
def test_what_two_products_add_is_stored_as_bytes(signed: bool) -> None:
    """Of a convolution beside another one, which the sum is computed with, bytes are kept; the sum dequantises them."""
    b = Builder(signed)
    x = b.pair("x", 0.03, 120)
    beside = b.pair(b.add("Conv", [x, b.weights("w1", (24, 5, 1, 1), 0)], "c1"), 0.02, 110)
    main = b.pair(b.add("Conv", [x, b.weights("w2", (24, 5, 1, 1), 0)], "c2"), 0.025, 100)
    y = b.pair(b.add("Add", [main, beside], "sum"), 0.03, 90)
    model = b.model({"x": ["N", 5, 6, 7]}, y)
    data = np.random.default_rng(1).normal(size=(2, 5, 6, 7)).astype(np.float32)
    expected, _ = run(model, data, "ReferenceExecutionProvider")
    actual, _ = run(model, data)
    assert np.abs(actual - expected).max() <= 0.03 * 1.001
    assert np.mean(np.abs(actual - expected) > 0.015) < 0.05
    made = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    made.run(None, {"x": data})
    plan = made._model.programs[0].describe("plan")
    assert ("c1_q" in plan) != ("c2_q" in plan)
    assert "c1_d" not in plan and "c2_d" not in plan


TRANSPOSED = [  # kernel, stride, pads, output_padding
    ((2, 2), 2, (0, 0, 0, 0), (0, 0)),
    ((4, 4), 2, (1, 1, 1, 1), (0, 0)),
    ((3, 3), 2, (1, 1, 1, 1), (1, 1)),
    ((3, 2), 3, (0, 1, 2, 0), (0, 0)),
    ((3, 3), 1, (1, 1, 1, 1), (0, 0)),
    ((2, 3), 1, (0, 2, 1, 0), (0, 0)),
]


@pytest.mark.parametrize("case", TRANSPOSED)
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("behind", ["quantised", "real", "relu"])
def test_transposed_convolution(case: tuple, signed: bool, behind: str) -> None:
    kernel, stride, pads, extra = case
    b = Builder(signed)
    x = b.pair("x", 0.03, 120)
    y = b.add(
        "ConvTranspose", [x, b.weights("w", (5, 24, *kernel), 1), b.bias("b", "x_s", "w", 24)], "c",
        strides=[stride] * 2, pads=pads, output_padding=extra,
    )  # fmt: skip
    if behind != "real":
        y = b.pair(y if behind == "quantised" else b.add("Relu", [y], "r"), 0.02, 100)
    model = b.model({"x": ["N", 5, 6, 7]}, y)
    data = np.random.default_rng(1).normal(size=(2, 5, 6, 7)).astype(np.float32)
    expected, _ = run(model, data, "ReferenceExecutionProvider")
    actual, kernels = run(model, data)
    step = 1e-4 if behind == "real" else 0.02
    assert np.abs(actual - expected).max() <= step * 1.001
    assert np.mean(np.abs(actual - expected) > step / 2) < 0.05
    assert any("ConvInteger" in k for k in kernels)


@pytest.mark.parametrize("factor", [3e-6, 0.5, 1e12, 1e35])
@pytest.mark.parametrize("y_type", [np.uint8, np.int8])
def test_products_of_any_size_are_limited(factor: float, y_type: type) -> None:
    """Sums times a scale that takes them far beyond a byte, and beyond float32; rounded half to even."""
    rng, info = np.random.default_rng(8), np.iinfo(y_type)
    w = rng.integers(-127, 128, (20, 7, 1, 1)).astype(np.int8)
    constants = {
        "xs": np.float32(1), "xz": np.uint8(7), "w": w, "ws": np.float32(factor), "wz": np.int8(0),
        "ys": np.float32(1), "yz": y_type(3),
    }  # fmt: skip
    node = helper.make_node("QLinearConv", ["x", *constants], ["y"])
    model = product_model(node, {"x": (np.uint8, ["N", 7, 6, 8])}, constants, y_type)
    x = rng.integers(0, 256, (2, 7, 6, 8)).astype(np.uint8)
    sums = np.einsum("nchw,mc->nmhw", x.astype(np.int64) - 7, w[..., 0, 0].astype(np.int64))
    expected = np.clip(np.round(sums * np.float64(np.float32(factor))) + 3, info.min, info.max)
    actual, _ = run(model, x)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    "scales", [(0.5, 0.25, 1.0), (2.0**-4, 2.0**-4, 2.0**-60), (2.0**30, 1.0, 2.0**28), (2.0**70, 2.0**68, 2.0**-60)]
)
@pytest.mark.parametrize("signed", [True, False])
def test_residual_sums_of_any_size_are_limited(scales: tuple[float, float, float], signed: bool) -> None:
    """(product's steps) * scale + (residual's steps) * scale, in steps of the sum: half to even, whatever the scales are."""
    inner, x_scale, outer = scales
    b, low = Builder(signed), -128 if signed else 0
    x = b.pair("x", x_scale, 120)
    w = b.weights("w", (64, 64, 1, 1), None)
    b.constants["w_s"] = np.float32(2.0**-6)
    c = b.pair(b.add("Conv", [x, w], "c"), inner, 100)
    y = b.pair(b.add("Add", [c, x], "sum"), outer, 90)
    model = b.model({"x": ["N", 64, 3, 5]}, y)
    steps = np.random.default_rng(4).integers(-150, 150, (2, 64, 3, 5))

    def rounded(number: np.ndarray, scale: float, zero: int) -> np.ndarray:
        zero += low
        return (np.clip(np.round(number / scale) + zero, low, low + 255) - zero) * scale

    first = rounded(steps * x_scale, x_scale, 120)
    weights = b.constants["w_q"][..., 0, 0].astype(np.float64) * 2.0**-6
    second = rounded(np.einsum("nchw,mc->nmhw", first, weights), inner, 100)
    actual, kernels = run(model, (steps * x_scale).astype(np.float32))
    np.testing.assert_array_equal(actual, rounded(first + second, outer, 90).astype(np.float32))
    assert any("ConvInteger" in k for k in kernels)
