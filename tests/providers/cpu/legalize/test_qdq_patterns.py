"""What stands between quantisers in exported models: types of 16 bits, zero points by channel, nodes that move or bend bytes.
Always within one step of the definition; in integers where bytes are multiplied."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia as ort

SHAPE = (2, 6, 9, 8)


class Graph:
    """A model of opset 21, whose quantisers and dequantisers also have 16 bits."""

    def __init__(self, weights: type = np.int8, zeros: bool = False) -> None:
        self.nodes: list = []
        self.constants: dict[str, np.ndarray] = {}
        self.rng, self.kind, self.zeros = np.random.default_rng(7), weights, zeros

    def add(self, op: str, inputs: list[str], **attributes: object) -> str:
        output = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def constant(self, value: np.ndarray) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def pair(self, name: str, scale: float, zero: np.generic) -> str:
        how = [self.constant(np.float32(scale)), self.constant(zero)]
        return self.add("DequantizeLinear", [self.add("QuantizeLinear", [name, *how]), *how])

    def weights(self, shape: tuple[int, ...], axis: int) -> str:
        info, count = np.iinfo(self.kind), shape[axis]
        numbers = self.constant(self.rng.integers(info.min + 1, info.max, shape).astype(self.kind))
        scales = self.constant(((self.rng.random(count) + 0.5) * 1.3 / info.max).astype(np.float32))
        zeros = self.constant((self.rng.integers(0, 50, count) * self.zeros).astype(self.kind))
        return self.add("DequantizeLinear", [numbers, scales, zeros], axis=axis)

    def convolution(self, x: str, size: int = 3) -> str:
        return self.add("Conv", [x, self.weights((8, 6, size, size), 0)], pads=[size // 2] * 4)

    def inner(self, x: str) -> str:
        return self.pair(self.convolution(x), 0.05, np.uint8(90))

    def model(self, output: str) -> bytes:
        self.nodes.append(helper.make_node("Identity", [output], ["y"]))
        graph = helper.make_graph(
            self.nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(v, n) for n, v in self.constants.items()],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def check(graph: Graph, output: str, step: float, integers: bool) -> None:
    model = graph.model(output)
    x = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32) * 2
    expected = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"]).run(None, {"x": x})[0]
    made = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    actual = made.run(None, {"x": x})[0]
    assert np.abs(actual - expected).max() <= step * 1.01
    assert any("Integer" in n.kernel for n in made.explain().nodes) == integers


@pytest.mark.parametrize(
    ("first", "last", "weights", "zeros"),
    [
        (np.uint16(30000), np.uint16(32000), np.int8, False),
        (np.int16(0), np.int16(100), np.int8, False),
        (np.uint16(30000), np.uint8(100), np.int8, False),
        (np.uint8(120), np.uint16(32000), np.int8, False),
        (np.uint16(30000), np.uint16(32000), np.int16, False),
        (np.uint8(120), np.uint8(100), np.int8, True),
        (np.uint8(120), np.uint8(100), np.uint8, True),
        (np.int8(-8), np.int8(3), np.int8, False),
    ],
)
@pytest.mark.parametrize("operator", ["Conv", "MatMul", "ConvTranspose"])
def test_types(operator: str, first: np.generic, last: np.generic, weights: type, zeros: bool) -> None:
    g = Graph(weights, zeros)
    x = g.pair("x", 0.03 if first.dtype.itemsize == 1 else 0.0005, first)
    if operator == "Conv":
        y = g.convolution(x)
    elif operator == "MatMul":
        y = g.add("MatMul", [x, g.weights((8, 11), 1)])
    else:
        y = g.add("ConvTranspose", [x, g.weights((6, 16, 2, 2), 1)], strides=[2, 2])
    step = 0.05 if last.dtype.itemsize == 1 else 0.0005
    check(g, g.pair(y, step, last), step, first.dtype.itemsize == 1 and weights is not np.int16)


ONE: dict[str, Callable[[Graph, str], str]] = {
    "Sigmoid": lambda g, x: g.add("Sigmoid", [x]),
    "LeakyRelu": lambda g, x: g.add("LeakyRelu", [x], alpha=0.1),
    "HardSwish": lambda g, x: g.add("HardSwish", [x]),
    "Relu": lambda g, x: g.add("Relu", [x]),
    "Clip": lambda g, x: g.add("Clip", [x, g.constant(np.float32(0)), g.constant(np.float32(6))]),
    "Softmax": lambda g, x: g.add("Softmax", [x], axis=1),
    "GlobalAveragePool": lambda g, x: g.add("GlobalAveragePool", [x]),
    "AveragePool": lambda g, x: g.add("AveragePool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    "MaxPool": lambda g, x: g.add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    "Resize, linear": lambda g, x: g.add("Resize", [x, "", g.constant(np.array([1, 1, 2, 2], np.float32))], mode="linear"),
    "Resize, nearest": lambda g, x: g.add("Resize", [x, "", g.constant(np.array([1, 1, 2, 2], np.float32))], mode="nearest"),
    "Gemm": lambda g, x: g.add("Gemm", [g.pair(g.add("Flatten", [x]), 0.05, np.uint8(90)), g.weights((10, 576), 0)], transB=1),
}


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize(("step", "zero"), [(0.031, np.uint8(100)), (0.05, np.uint8(90)), (1 / 128, np.int8(0))])
def test_behind_a_convolution(name: str, step: float, zero: np.generic) -> None:
    g = Graph()
    check(g, g.pair(ONE[name](g, g.inner(g.pair("x", 0.03, np.uint8(120)))), step, zero), step, True)


@pytest.mark.parametrize("operator", ["Add", "Mul", "Concat", "Max"])
@pytest.mark.parametrize("steps", [(0.04, 0.03), (0.05, 0.05)])
def test_two_branches(operator: str, steps: tuple[float, float]) -> None:
    g = Graph()
    x = g.pair("x", 0.03, np.uint8(120))
    branches = [g.inner(x), g.pair(g.convolution(x, 1), steps[0], np.uint8(90))]
    y = g.add(operator, branches, **({"axis": 1} if operator == "Concat" else {}))
    check(g, g.pair(y, steps[1], np.uint8(90)), steps[1], True)
