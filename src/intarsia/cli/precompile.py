"""Kernels that many models have in common, compiled before any model is there: `compile_common`.

Kernels are shared by all models of a cache, so a model that was never seen needs few new ones where small networks with the
usual layers were compiled before: convolutions with their activations, poolings, attention, recurrent layers. What they compute
is of no interest; their sizes are those at which usual models choose the same kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from intarsia.options.session_options import SessionOptions
from intarsia.session.inference_session import InferenceSession

ACTIVATIONS = ("", "Relu", "Clip", "SiLU", "HardSwish", "Sigmoid")
_HIDDEN, _HEADS, _TOKENS = 768, 12, 128


def compile_common(report: Callable[[str], None] = lambda name: None) -> int:
    """Compile them, and the first tier, for this machine into its cache; returns how many were not there. `report` is told each
    network's name."""
    from intarsia.codegen.llvm.jit import get_engine
    from intarsia.providers.cpu.first_tier import kernel_image

    engine = get_engine()
    before = engine.compiled
    if not kernel_image.is_made():
        kernel_image.make()
    for name, make in NETWORKS.items():
        report(name)
        options = SessionOptions()
        options.add_session_config_entry("session.cache_weights_mib", "0")  # nobody starts from these
        options.add_session_config_entry("session.compile_in_background", "0")
        session = InferenceSession(make().SerializeToString(), options)
        for size in (1, 2):  # a second size needs code of its own
            (x,) = session.get_inputs()
            session.run(None, {x.name: np.zeros([size if isinstance(d, str) else d for d in x.shape], np.float32)})
    return engine.compiled - before


class _Network:
    """A model that is written node by node; every method returns the name of what it adds."""

    def __init__(self, *shape: int | str) -> None:
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self._random = np.random.default_rng(0)
        self._input = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(self._random.random(shape, np.float32) + 0.1)

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def convolution(self, x: str, channels: int, filters: int, size: int = 3, stride: int = 1, group: int = 1) -> str:
        weights = self.weight(filters, channels // group, size, size), self.weight(filters)
        sizes = {"kernel_shape": [size] * 2, "pads": [size // 2] * 4, "strides": [stride] * 2}
        return self.node("Conv", x, *weights, group=group, **sizes)

    def activated(self, x: str, activation: str) -> str:
        if activation == "Clip":
            return self.node("Clip", x, self.number(0), self.number(6))
        if activation == "SiLU":
            return self.node("Mul", x, self.node("Sigmoid", x))
        return self.node(activation, x) if activation else x

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        return self.node("Add", self.node("MatMul", x, self.weight(inputs, outputs)), self.weight(outputs))

    def normalised(self, x: str, size: int) -> str:
        return self.node("LayerNormalization", x, self.weight(size), self.weight(size), axis=-1)

    def model(self, *results: str) -> ModelProto:
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
        graph = helper.make_graph(self._nodes, "common", [self._input], outputs, self._weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _residual() -> ModelProto:
    """Bottlenecks as of ResNet, at its sizes of maps, with its stem and its classifier."""
    net = _Network("batch", 3, 224, 224)
    x = net.activated(net.convolution("x", 3, 64, 7, 2), "Relu")
    x, channels = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 64
    for inner, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        y = net.activated(net.convolution(x, channels, inner, 1), "Relu")
        y = net.activated(net.convolution(y, inner, inner, 3, stride), "Relu")
        y, skip = net.convolution(y, inner, 4 * inner, 1), net.convolution(x, channels, 4 * inner, 1, stride)
        x, channels = net.activated(net.node("Add", y, skip), "Relu"), 4 * inner
        y = net.activated(net.convolution(x, channels, inner, 1), "Relu")
        y = net.activated(net.convolution(y, inner, inner, 3), "Relu")
        x = net.activated(net.node("Add", net.convolution(y, inner, channels, 1), x), "Relu")
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    return net.model(net.node("Softmax", net.node("Gemm", x, net.weight(2048, 1000), net.weight(1000))))


def _separable(activation: str) -> ModelProto:
    """Inverted bottlenecks as of the MobileNets, with and without weights for channels."""
    net = _Network("batch", 3, 224, 224)
    x = net.activated(net.convolution("x", 3, 32, 3, 2), activation)
    channels = 32
    for filters, size, stride in ((16, 3, 1), (24, 3, 2), (24, 3, 1), (40, 5, 2), (80, 3, 2), (80, 5, 1), (112, 3, 1)):
        inner = 6 * channels
        y = net.activated(net.convolution(x, channels, inner, 1), activation)
        y = net.activated(net.convolution(y, inner, inner, size, stride, inner), activation)
        if size == 5:
            means = net.node("GlobalAveragePool", y)
            gate = net.convolution(net.activated(net.convolution(means, inner, 24, 1), "Relu"), 24, inner, 1)
            y = net.node("Mul", y, net.node("HardSigmoid" if activation == "HardSwish" else "Sigmoid", gate))
        y = net.convolution(y, inner, filters, 1)
        x = net.node("Add", x, y) if filters == channels else y
        channels = filters
    x = net.activated(net.convolution(x, channels, 640, 1), activation)
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    return net.model(net.node("Gemm", x, net.weight(640, 1000), net.weight(1000)))


def _detector() -> ModelProto:
    """3 x 3 convolutions of small and large maps, with each activation, put beside each other and made larger."""
    net = _Network(1, 16, 80, 80)
    parts = []
    for activation in ACTIVATIONS:
        y = net.activated(net.convolution("x", 16, 32), activation)
        y = net.activated(net.convolution(y, 32, 32), activation)
        y = net.activated(net.convolution(y, 32, 64, 3, 2), activation)
        y = net.activated(net.convolution(y, 64, 64, 1), activation)
        parts.append(net.activated(net.convolution(y, 64, 64), activation))
    joined = net.node("Concat", *parts, axis=1)
    narrow = [net.convolution(net.convolution("x", 16, n), n, n, 3, 2) for n in (16, 80)]  # last panels of other widths
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    results = [net.node("Resize", joined, "", scales, mode=mode) for mode in ("nearest", "linear")]
    results.append(net.node("MaxPool", joined, kernel_shape=[2, 2], strides=[2, 2]))
    results.append(net.node("AveragePool", joined, kernel_shape=[3, 3], pads=[1] * 4))
    results.append(net.node("ConvTranspose", joined, net.weight(384, 32, 2, 2), strides=[2, 2]))
    return net.model(*results, *narrow)


def _encoder(activation: str) -> ModelProto:
    """Layers of a transformer, as PyTorch exports them."""
    net = _Network("batch", _TOKENS, _HIDDEN)
    heads, whole = net.integers(0, 0, _HEADS, _HIDDEN // _HEADS), net.integers(0, 0, _HIDDEN)
    x = "x"
    for _ in range(2):
        q, k, v = (net.node("Reshape", net.dense(x, _HIDDEN, _HIDDEN), heads) for _ in range(3))
        q, v = (net.node("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, v))
        scores = net.node("MatMul", q, net.node("Transpose", k, perm=[0, 2, 3, 1]))
        powers = net.node("Softmax", net.node("Div", scores, net.number(8)), axis=-1)
        y = net.node("Transpose", net.node("MatMul", powers, v), perm=[0, 2, 1, 3])
        y = net.dense(net.node("Reshape", y, whole), _HIDDEN, _HIDDEN)
        x = net.normalised(net.node("Add", y, x), _HIDDEN)
        y = net.dense(x, _HIDDEN, 4 * _HIDDEN)
        if activation == "Gelu":
            power = net.node("Erf", net.node("Div", y, net.number(2**0.5)))
            one, half = net.number(1), net.number(0.5)
            y = net.node("Mul", net.node("Mul", y, net.node("Add", power, one)), half)
        else:
            y = net.activated(y, activation)
        x = net.normalised(net.node("Add", net.dense(y, 4 * _HIDDEN, _HIDDEN), x), _HIDDEN)
    return net.model(x)


def _recurrent() -> ModelProto:
    """An LSTM in both directions, a GRU behind it, and what classifies their states."""
    net = _Network("steps", 1, 64)
    weights = net.weight(2, 512, 64), net.weight(2, 512, 128), net.weight(2, 1024)
    y = net.node("LSTM", "x", *weights, hidden_size=128, direction="bidirectional")
    y = net.node("Reshape", net.node("Transpose", y, perm=[0, 2, 1, 3]), net.integers(0, 0, -1))
    y = net.node("GRU", y, net.weight(1, 384, 256), net.weight(1, 384, 128), net.weight(1, 768), hidden_size=128)
    y = net.dense(net.node("ReduceMean", y, axes=[0, 1], keepdims=0), 128, 64)
    return net.model(net.node("Softmax", net.activated(y, "Relu")))


def _dense() -> ModelProto:
    """Dense layers with each activation, of one row and of many."""
    net = _Network("batch", 64)
    results = []
    for activation in (*ACTIVATIONS, "Tanh"):
        y = net.activated(net.node("Gemm", "x", net.weight(64, 256), net.weight(256)), activation)
        results.append(net.node("Softmax", net.dense(y, 256, 10), axis=-1))
        results.append(net.activated(net.node("Gemm", "x", net.weight(64, 48), net.weight(48)), activation))  # rows not packed
    results += [net.dense("x", 64, columns) for columns in (8, 32, 48, 72)]  # panels of all widths
    return net.model(*results)


NETWORKS: dict[str, Callable[[], ModelProto]] = {
    "dense layers": _dense,
    "residual convolutions": _residual,
    "separable convolutions with Clip": lambda: _separable("Clip"),
    "separable convolutions with HardSwish": lambda: _separable("HardSwish"),
    "separable convolutions with SiLU": lambda: _separable("SiLU"),
    "convolutions with activations": _detector,
    "attention with Gelu": lambda: _encoder("Gelu"),
    "attention with Relu": lambda: _encoder("Relu"),
    "recurrent layers": _recurrent,
}
