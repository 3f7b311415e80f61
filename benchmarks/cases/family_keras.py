"""What tf2onnx makes of Keras applications, for `families.py`: one layer each as it is written, images channels last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

from cases.family import Family, Run
from cases.graph_writer import FLOAT, INT64, Writer, built

IMAGE = ["n", "h", "w", 3]


class Layers(Writer):
    """Keras' layers over images that stay as NCHW between them; borders are Pads, normalisations are not folded."""

    def conv(self, x: str, a: int, b: int, kernel: int, stride: int = 1, groups: int = 1, bias: bool = False) -> str:
        how: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "group": groups, "dilations": [1, 1]}
        if kernel > 1 and stride > 1:
            low, high = (kernel - 1) // 2, kernel // 2
            x = self.node("Pad", x, self.ints(0, 0, low, low, 0, 0, high, high), self.weight(0.0))
            how["auto_pad"] = "VALID"
        else:
            how["auto_pad"] = "SAME_UPPER" if kernel > 1 else "VALID"
        weights = [self.normal(b, a // groups, kernel, kernel)]
        return str(self.node("Conv", x, *weights, *([self.normal(b)] if bias else []), **how))

    def norm(self, x: str, width: int) -> str:
        statistics = (self.weight(np.linspace(0.5, 1.5, width)), self.normal(width), self.normal(width))
        return str(self.node("BatchNormalization", x, *statistics, self.weight(np.linspace(0.5, 2, width)), epsilon=1e-3))

    def relu6(self, x: str) -> str:
        return str(self.node("Clip", self.node("Relu", x), self.weight(0.0), self.weight(6.0)))

    def hard_swish(self, x: str) -> str:
        y = self.relu6(self.node("Add", x, self.weight(3.0)))
        return str(self.node("Mul", x, self.node("Mul", y, self.weight(1 / 6))))

    def swish(self, x: str) -> str:
        return str(self.node("Mul", x, self.node("Sigmoid", x)))

    def flat_pool(self, x: str) -> str:
        """GlobalAveragePooling2D with keepdims=False."""
        return str(self.node("Squeeze", self.node("GlobalAveragePool", x), self.ints(2, 3)))

    def excite(self, x: str, width: int, inner: int) -> str:
        """Pooled, made an image of one pixel again by a Reshape, two dense convolutions, multiplied."""
        batch = self.node("Slice", self.node("Shape", self.flat_pool(x)), self.ints(0), self.ints(1), self.ints(0))
        batch = self.node("Cast", self.node("Cast", batch, to=TensorProto.INT32), to=INT64)
        y = self.node("Reshape", self.flat_pool(x), self.node("Concat", batch, self.ints(1, 1, width), axis=0))
        y = self.node("Transpose", y, perm=[0, 3, 1, 2])
        y = self.swish(self.conv(y, width, inner, 1, bias=True))
        y = self.node("Sigmoid", self.conv(y, inner, width, 1, bias=True))
        return str(self.node("Mul", x, y))

    def dense(self, x: str, a: int, b: int) -> str:
        return str(self.node("Add", self.node("MatMul", x, self.normal(a, b)), self.normal(b)))

    def tensordot(self, x: str, a: int, b: int) -> str:
        """A Dense layer over three axes as TensorFlow's tensordot: sizes gathered, multiplied, put together again."""
        shape = self.node("Cast", self.node("Shape", x), to=TensorProto.INT32)
        free = self.node("Gather", shape, self.ints(0, 1))
        rows = self.node("ReduceProd", free, axes=[0], keepdims=0)
        rows = self.node("Unsqueeze", self.node("Cast", rows, to=INT64), self.ints(0))
        flat = self.node("Reshape", x, self.node("Concat", rows, self.ints(a), axis=0))
        y = self.node("MatMul", flat, self.normal(a, b))
        y = self.node("Reshape", y, self.node("Concat", self.node("Cast", free, to=INT64), self.ints(b), axis=0))
        return str(self.node("Add", y, self.normal(b)))

    def layer_norm(self, x: str, width: int) -> str:
        mean = self.node("ReduceMean", x, axes=[-1], keepdims=1)
        apart = self.node("Sub", x, mean)
        variance = self.node("ReduceMean", self.node("Mul", apart, apart), axes=[-1], keepdims=1)
        root = self.node("Reciprocal", self.node("Sqrt", self.node("Add", variance, self.weight(1e-6))))
        factor = self.node("Mul", root, self.weight(np.linspace(0.5, 1.5, width)))
        shift = self.node("Sub", self.normal(width), self.node("Mul", mean, factor))
        return str(self.node("Add", self.node("Mul", x, factor), shift))

    def gelu(self, x: str) -> str:
        y = self.node("Erf", self.node("Mul", x, self.weight(2**-0.5)))
        return str(self.node("Mul", self.node("Mul", self.weight(0.5), x), self.node("Add", y, self.weight(1.0))))


def _images(*shapes: tuple[int, int, int], name: str = "image") -> list[Run]:
    return [{name: torch.rand(*s, 3)} for s in shapes]


def _classes(w: Layers, x: str, width: int, classes: int = 100) -> onnx.ModelProto:
    w.nodes.append(helper.make_node("Softmax", [w.dense(w.flat_pool(x), width, classes)], ["predictions"], axis=-1))
    return w.model({"image": (FLOAT, IMAGE)}, {"predictions": (FLOAT, ["n", classes])}, 13)


def keras_residual() -> Family:
    """ResNet50 of Keras: biases before unfolded normalisations, Pad before the stem and before its pooling, strides in 1x1."""

    def write(_: int) -> onnx.ModelProto:
        w = Layers()
        x = w.node("Transpose", "image", perm=[0, 3, 1, 2])
        x = w.node("Pad", x, w.ints(0, 0, 3, 3, 0, 0, 3, 3))
        x = w.node("Conv", x, w.normal(32, 3, 7, 7), w.normal(32), kernel_shape=[7, 7], strides=[2, 2], auto_pad="VALID")
        x = w.node("Pad", w.node("Relu", w.norm(x, 32)), w.ints(0, 0, 1, 1, 0, 0, 1, 1))
        x, width = w.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], auto_pad="VALID"), 32
        for inner, stride in ((32, 1), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1)):
            out, short = 4 * inner, x
            if width != out:
                short = w.norm(w.conv(x, width, out, 1, stride, bias=True), out)
            y = w.node("Relu", w.norm(w.conv(x, width, inner, 1, stride, bias=True), inner))
            y = w.node("Relu", w.norm(w.conv(y, inner, inner, 3, bias=True), inner))
            x, width = w.node("Relu", w.node("Add", short, w.norm(w.conv(y, inner, out, 1, bias=True), out))), out
        return _classes(w, x, width)

    return built(write, _images((1, 160, 160), (3, 96, 128), (1, 160, 160)))


def keras_efficient() -> Family:
    """EfficientNet of Keras: bytes scaled and standardised, depthwise windows behind Pads, excitation through a Reshape."""

    def write(_: int) -> onnx.ModelProto:
        w = Layers()
        x = w.node("Mul", w.node("Cast", "image", to=FLOAT), w.weight(1 / 255))
        x = w.node("Div", w.node("Sub", x, w.weight([0.485, 0.456, 0.406])), w.weight([0.229, 0.224, 0.225]))
        x, width = w.swish(w.norm(w.conv(w.node("Transpose", x, perm=[0, 3, 1, 2]), 3, 32, 3, 2), 32)), 32
        blocks = ((16, 3, 1, 1), (24, 3, 2, 6), (24, 3, 1, 6), (40, 5, 2, 6), (40, 5, 1, 6), (80, 3, 2, 6), (80, 3, 1, 6))
        for out, kernel, stride, wider in blocks:
            y, inner = x, width * wider
            if wider > 1:
                y = w.swish(w.norm(w.conv(y, width, inner, 1), inner))
            y = w.swish(w.norm(w.conv(y, inner, inner, kernel, stride, inner), inner))
            y = w.norm(w.conv(w.excite(y, inner, max(1, width // 4)), inner, out, 1), out)
            x, width = (w.node("Add", y, x) if stride == 1 and out == width else y), out
        model = _classes(w, w.swish(w.norm(w.conv(x, width, 320, 1), 320)), 320)
        model.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
        return model

    runs = [{"image": (torch.rand(*s, 3) * 255).to(torch.uint8)} for s in ((1, 160, 160), (4, 160, 160), (1, 128, 96))]
    return built(write, runs)


def keras_mobile() -> Family:
    """MobileNetV3 of Keras: hard swishes as Add, Relu, Clip and two Muls; hard sigmoids; the head on one pixel."""

    def write(_: int) -> onnx.ModelProto:
        w = Layers()
        x = w.node("Sub", w.node("Mul", "image", w.weight(1 / 127.5)), w.weight(1.0))
        x, width = w.hard_swish(w.norm(w.conv(w.node("Transpose", x, perm=[0, 3, 1, 2]), 3, 16, 3, 2), 16)), 16
        for out, kernel, stride, wider in (
            (24, 3, 2, 4),
            (24, 3, 1, 3),
            (40, 5, 2, 3),
            (40, 5, 1, 3),
            (80, 3, 2, 6),
            (80, 3, 1, 3),
        ):
            inner = width * wider
            y = w.hard_swish(w.norm(w.conv(x, width, inner, 1), inner))
            y = w.hard_swish(w.norm(w.conv(y, inner, inner, kernel, stride, inner), inner))
            z = w.node("Relu", w.conv(w.node("GlobalAveragePool", y), inner, inner // 4, 1, bias=True))
            z = w.node("Add", w.conv(z, inner // 4, inner, 1, bias=True), w.weight(3.0))
            y = w.node("Mul", y, w.node("Mul", w.relu6(z), w.weight(1 / 6)))
            y = w.norm(w.conv(y, inner, out, 1), out)
            x, width = (w.node("Add", x, y) if stride == 1 else y), out
        x = w.hard_swish(w.norm(w.conv(x, width, 480, 1), 480))
        x = w.hard_swish(w.conv(w.node("GlobalAveragePool", x), 480, 512, 1, bias=True))
        x = w.node("Transpose", w.conv(x, 512, 100, 1, bias=True), perm=[0, 2, 3, 1])
        batch = w.node("Slice", w.node("Shape", x), w.ints(0), w.ints(1), w.ints(0))
        x = w.node("Reshape", x, w.node("Concat", batch, w.ints(100), axis=0))
        w.nodes.append(helper.make_node("Softmax", [x], ["predictions"], axis=-1))
        return w.model({"image": (FLOAT, IMAGE)}, {"predictions": (FLOAT, ["n", 100])}, 13)

    return built(write, _images((1, 160, 160), (8, 128, 128), (1, 160, 160)))


def keras_flat() -> Family:
    """A small classifier as tutorials write it: Conv, Relu, MaxPool, Flatten channels last, two Dense layers."""

    def write(_: int) -> onnx.ModelProto:
        w = Layers()
        x, width = w.node("Transpose", "image", perm=[0, 3, 1, 2]), 3
        for out in (32, 64, 64):
            x = w.node("Conv", x, w.normal(out, width, 3, 3), w.normal(out), kernel_shape=[3, 3], auto_pad="VALID")
            x, width = w.node("MaxPool", w.node("Relu", x), kernel_shape=[2, 2], strides=[2, 2], auto_pad="VALID"), out
        x = w.node("Reshape", w.node("Transpose", x, perm=[0, 2, 3, 1]), w.ints(-1, 6 * 6 * 64))
        x = w.node("Relu", w.dense(x, 6 * 6 * 64, 128))
        w.nodes.append(helper.make_node("Softmax", [w.dense(x, 128, 10)], ["predictions"], axis=-1))
        return w.model({"image": (FLOAT, ["n", 64, 64, 3])}, {"predictions": (FLOAT, ["n", 10])}, 13)

    return built(write, _images((1, 64, 64), (32, 64, 64), (1, 64, 64)))


def keras_transformer() -> Family:
    """MultiHeadAttention by Einsum, dense layers by tensordot, normalisations and GELU in their parts, a mask of padding."""

    def write(_: int) -> onnx.ModelProto:
        w = Layers()
        x = w.node("Gather", w.normal(1000, 128, scale=1.0), "tokens")
        length = w.node("Slice", w.node("Shape", "tokens"), w.ints(1), w.ints(2), w.ints(0))
        places = w.node("Slice", w.normal(512, 128, scale=1.0), w.ints(0), length, w.ints(0))
        x = w.node("Add", x, places)
        there = w.node("Cast", w.node("Not", w.node("Equal", "tokens", w.weight(0, np.int32))), to=FLOAT)
        hidden = w.node("Mul", w.node("Sub", w.weight(1.0), w.node("Unsqueeze", there, w.ints(1, 2))), w.weight(-1e9))
        for _ in range(2):
            q, k, v = (
                w.node("Add", w.node("Einsum", x, w.normal(128, 4, 32, scale=0.1), equation="abc,cde->abde"), w.normal(4, 32))
                for _ in range(3)
            )
            scores = w.node("Einsum", k, w.node("Mul", q, w.weight(32**-0.5)), equation="aecd,abcd->acbe")
            y = w.node("Einsum", w.node("Softmax", w.node("Add", scores, hidden), axis=-1), v, equation="acbe,aecd->abcd")
            y = w.node("Add", w.node("Einsum", y, w.normal(4, 32, 128, scale=0.1), equation="abcd,cde->abe"), w.normal(128))
            x = w.layer_norm(w.node("Add", x, y), 128)
            x = w.layer_norm(w.node("Add", x, w.tensordot(w.gelu(w.tensordot(x, 128, 512)), 512, 128)), 128)
        x = w.node("ReduceMean", x, axes=[1], keepdims=0)
        w.nodes.append(helper.make_node("Sigmoid", [w.dense(x, 128, 1)], ["score"]))
        return w.model({"tokens": (TensorProto.INT32, ["n", "length"])}, {"score": (FLOAT, ["n", 1])}, 13)

    tokens = [torch.randint(1, 1000, s, dtype=torch.int32) for s in ((1, 100), (8, 64), (3, 17), (1, 100))]
    for x in tokens[1:]:
        x[:, -5:] = 0
    return built(write, [{"tokens": x} for x in tokens])


def keras_u_net() -> Family:
    """Transposed convolutions with sizes computed beside them, joins, a last Sigmoid, channels last at both ends."""

    def write(_: int) -> onnx.ModelProto:
        w = Layers()
        x, width, levels = w.node("Transpose", "image", perm=[0, 3, 1, 2]), 3, []

        def double(x: str, a: int, b: int) -> str:
            x = w.node("Relu", w.norm(w.conv(x, a, b, 3, bias=True), b))
            return str(w.node("Relu", w.norm(w.conv(x, b, b, 3, bias=True), b)))

        for out in (16, 32, 64):
            x = double(x, width, out)
            levels.append((x, out))
            x, width = w.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], auto_pad="VALID"), out
        x, width = double(x, 64, 128), 128
        for level, out in levels[::-1]:
            how = {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "VALID"}
            x = w.node("ConvTranspose", x, w.normal(width, out, 2, 2), **how)
            x = w.node("Add", x, w.weight(np.linspace(-0.1, 0.1, out).reshape(1, out, 1, 1)))
            x, width = double(w.node("Concat", x, level, axis=1), 2 * out, out), out
        x = w.node("Transpose", w.conv(x, 16, 1, 1, bias=True), perm=[0, 2, 3, 1])
        w.nodes.append(helper.make_node("Sigmoid", [x], ["mask"]))
        return w.model({"image": (FLOAT, IMAGE)}, {"mask": (FLOAT, ["n", "h", "w", 1])}, 13)

    return built(write, _images((1, 128, 128), (2, 64, 96), (1, 128, 128)))


def keras_atrous() -> Family:
    """Dilations as SpaceToBatch writes them: Pad, Reshape, Transpose, a plain convolution, and all of it back."""

    def write(_: int) -> onnx.ModelProto:
        w = Layers()
        x, size = w.node("Transpose", "image", perm=[0, 3, 1, 2]), 64
        x = w.node("Relu", w.norm(w.conv(x, 3, 64, 3, 2), 64))
        for rate in (2, 4):
            y = w.node("Pad", w.node("Transpose", x, perm=[0, 2, 3, 1]), w.ints(0, rate, rate, 0, 0, rate, rate, 0))
            part = (size + 2 * rate) // rate
            y = w.node("Reshape", y, w.ints(-1, part, rate, part, rate, 64))
            y = w.node("Reshape", w.node("Transpose", y, perm=[2, 4, 0, 1, 3, 5]), w.ints(-1, part, part, 64))
            y = w.node("Transpose", y, perm=[0, 3, 1, 2])
            y = w.node("Conv", y, w.normal(64, 64, 3, 3), kernel_shape=[3, 3], auto_pad="VALID")
            y = w.node("Transpose", y, perm=[0, 2, 3, 1])
            y = w.node("Reshape", y, w.ints(rate, rate, -1, part - 2, part - 2, 64))
            y = w.node("Reshape", w.node("Transpose", y, perm=[2, 3, 0, 4, 1, 5]), w.ints(-1, size, size, 64))
            x = w.node("Relu", w.norm(w.node("Transpose", y, perm=[0, 3, 1, 2]), 64))
        x = w.node("Transpose", w.conv(x, 64, 21, 1, bias=True), perm=[0, 2, 3, 1])
        w.nodes.append(helper.make_node("ArgMax", [x], ["classes"], axis=3, keepdims=0))
        w.nodes.append(helper.make_node("Identity", [x], ["logits"]))
        outputs = {"classes": (INT64, ["n", 64, 64]), "logits": (FLOAT, ["n", 64, 64, 21])}
        return w.model({"image": (FLOAT, ["n", 128, 128, 3])}, outputs, 13)

    return built(write, _images((1, 128, 128), (2, 128, 128), (1, 128, 128)))


def keras_recurrent() -> Family:
    """Bidirectional LSTMs as two of one direction between Transposes and reversed Slices, words in, tags out."""

    def write(_: int) -> onnx.ModelProto:
        w = Layers()
        x, width = w.node("Gather", w.normal(500, 64, scale=1.0), "words"), 64
        for _ in range(2):
            sides = []
            for backwards in (False, True):
                y = x if not backwards else w.node("Slice", x, w.ints(-1), w.ints(-(2**31) + 1), w.ints(1), w.ints(-1))
                y = w.node("Transpose", y, perm=[1, 0, 2])
                weights = (w.normal(1, 256, width, scale=0.1), w.normal(1, 256, 64, scale=0.1), w.normal(1, 512))
                y, _, _ = w.node("LSTM", y, *weights, outputs=3, hidden_size=64)
                y = w.node("Transpose", w.node("Squeeze", y, w.ints(1)), perm=[1, 0, 2])
                sides.append(
                    y if not backwards else w.node("Slice", y, w.ints(-1), w.ints(-(2**31) + 1), w.ints(1), w.ints(-1))
                )
            x, width = w.node("Concat", *sides, axis=2), 128
        w.nodes.append(helper.make_node("Softmax", [w.tensordot(x, 128, 20)], ["tags"], axis=-1))
        return w.model({"words": (TensorProto.INT32, ["n", "length"])}, {"tags": (FLOAT, ["n", "length", 20])}, 13)

    shapes: Sequence[tuple[int, int]] = ((1, 40), (8, 33), (2, 1), (1, 40))
    return built(write, [{"words": torch.randint(0, 500, s, dtype=torch.int32)} for s in shapes])


FAMILIES = (
    keras_residual, keras_efficient, keras_mobile, keras_flat, keras_transformer, keras_u_net, keras_atrous, keras_recurrent,
)  # fmt: skip
