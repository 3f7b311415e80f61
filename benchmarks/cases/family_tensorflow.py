"""What converters from TensorFlow and Keras write, for `families.py`: images and sounds channels last, loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

from cases.family import Family
from cases.graph_writer import FLOAT, INT64, Sizes, Writer, built


def _tensorflow(padded: bool) -> Family:
    """Images channels last: every convolution between two Transposes, Relu6 by Min and Max, means by ReduceMean; borders by
    Pads (`padded`) or by auto_pad, which sizes decide where strides are 2."""

    def write(opset: int) -> onnx.ModelProto:
        w = Writer()
        zero, six = w.weight(0.0), w.weight(6.0)

        def relu6(x: str) -> str:
            return w.node("Min", w.node("Max", x, zero), six)

        def conv(x: str, a: int, b: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
            if padded and stride == 2:
                x = w.node("Pad", x, w.ints(0, 0, 0, 0, 0, 1, 1, 0))
            x = w.node("Transpose", x, perm=[0, 3, 1, 2])
            how = {"strides": [stride] * 2, "kernel_shape": [kernel] * 2, "group": groups}
            how |= {"pads": [0] * 4} if padded and stride == 2 else {"auto_pad": "SAME_UPPER"}
            x = w.node("Conv", x, w.normal(b, a // groups, kernel, kernel), **how)
            x = w.node("Transpose", x, perm=[0, 2, 3, 1])
            return w.node("Add", w.node("Mul", x, w.weight(np.linspace(0.5, 1.5, b))), w.weight(np.linspace(-0.1, 0.1, b)))

        x = w.node("Sub", w.node("Mul", "image", w.weight(2 / 255.0)), w.weight(1.0))
        x, width = relu6(conv(x, 3, 16, 3, 2)), 16
        for out, stride in ((24, 2), (24, 1), (40, 2), (40, 1), (80, 2), (80, 1)):
            y = relu6(conv(x, width, 4 * width, 1))
            y = relu6(conv(y, 4 * width, 4 * width, 3, stride, 4 * width))
            y = conv(y, 4 * width, out, 1)
            x, width = (w.node("Add", x, y) if stride == 1 else y), out
        x = w.node("ReduceMean", x, axes=[1, 2], keepdims=0)
        shape = w.node("Cast", w.node("Shape", x), to=TensorProto.INT32)
        batch = w.node("Cast", w.node("Slice", shape, w.ints(0), w.ints(1), w.ints(0)), to=INT64)
        x = w.node("Reshape", x, w.node("Concat", batch, w.ints(80), axis=0))
        w.nodes.append(
            helper.make_node("Softmax", [w.node("Add", w.node("MatMul", x, w.normal(80, 10)), w.normal(10))], ["probabilities"])
        )
        sizes: Sizes = ["unk__1", "unk__2", "unk__3", 3]
        return w.model({"image": (FLOAT, sizes)}, {"probabilities": (FLOAT, ["unk__4", 10])}, min(opset, 13))

    runs = [{"image": torch.rand(*s, 3) * 255} for s in ((1, 160, 160), (4, 96, 128), (1, 131, 77), (1, 160, 160))]
    return built(write, runs)


def tensorflow_mobile() -> Family:
    return _tensorflow(True)


def tensorflow_same() -> Family:
    return _tensorflow(False)


def tensorflow_segmentation() -> Family:
    """Channels last all through: poolings, resizes and joins between Transposes, borders by auto_pad, ArgMax."""

    def write(opset: int) -> onnx.ModelProto:
        w = Writer()

        def turned(kind: str, x: str, *more: str, **how: Any) -> str:
            y = w.node(kind, w.node("Transpose", x, perm=[0, 3, 1, 2]), *more, **how)
            return str(w.node("Transpose", y, perm=[0, 2, 3, 1]))

        def conv(x: str, a: int, b: int, kernel: int = 3) -> str:
            x = turned(
                "Conv", x, w.normal(b, a, kernel, kernel), auto_pad="SAME_UPPER", kernel_shape=[kernel] * 2, strides=[1, 1]
            )
            x = w.node("Add", x, w.normal(b))
            return str(w.node("Mul", x, w.node("Sigmoid", x)))

        levels, x, width = [], "image", 3
        for out in (16, 32, 64):
            x = conv(conv(x, width, out), out, out)
            levels.append((x, out))
            x = turned("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER")
            width = out
        x, width = conv(x, 64, 96), 96
        for level, out in levels[::-1]:
            size = w.node("Slice", w.node("Shape", level), w.ints(1), w.ints(3), w.ints(0))
            both = w.node("Slice", w.node("Shape", x), w.ints(0), w.ints(1), w.ints(0))
            sizes = w.node("Concat", both, w.ints(width), size, axis=0)
            how = {"mode": "linear", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "floor"}
            x = turned("Resize", x, "", "", sizes, **how)
            x, width = conv(w.node("Concat", x, level, axis=3), width + out, out), out
        logits = conv(x, 16, 5, 1)
        w.nodes.append(helper.make_node("ArgMax", [logits], ["classes"], axis=3, keepdims=0))
        w.nodes.append(helper.make_node("Softmax", [logits], ["probabilities"], axis=-1))
        inputs = {"image": (FLOAT, ["n", "h", "w", 3])}
        return w.model(
            inputs, {"classes": (INT64, ["n", "h", "w"]), "probabilities": (FLOAT, ["n", "h", "w", 5])}, max(13, min(opset, 17))
        )

    return built(write, [{"image": torch.rand(*s, 3)} for s in ((1, 128, 128), (2, 72, 100), (1, 128, 128))])


def keras_sound() -> Family:
    """One-dimensional convolutions as two-dimensional ones of one line, between Unsqueeze, Transposes and Squeeze; a GRU."""

    def write(opset: int) -> onnx.ModelProto:
        w = Writer()

        def conv(x: str, a: int, b: int, kernel: int, stride: int) -> str:
            x = w.node("Transpose", w.node("Unsqueeze", x, w.ints(1)), perm=[0, 3, 1, 2])
            x = w.node(
                "Conv", x, w.normal(b, a, 1, kernel), auto_pad="SAME_UPPER", kernel_shape=[1, kernel], strides=[1, stride]
            )
            x = w.node("Squeeze", w.node("Transpose", x, perm=[0, 2, 3, 1]), w.ints(1))
            x = w.node("Add", w.node("Mul", x, w.normal(b, scale=1.0)), w.normal(b))
            return str(w.node("Relu", x))

        x = conv(conv(conv("x", 40, 64, 5, 2), 64, 96, 3, 1), 96, 96, 3, 2)
        steps = w.node("Transpose", x, perm=[1, 0, 2])
        weights = (w.normal(1, 288, 96, scale=0.1), w.normal(1, 288, 96, scale=0.1), w.normal(1, 576))
        y, _ = w.node("GRU", steps, *weights, outputs=2, hidden_size=96, linear_before_reset=1)
        y = w.node("Transpose", w.node("Squeeze", y, w.ints(1)), perm=[1, 0, 2])
        mean = w.node("ReduceMean", y, axes=[-1], keepdims=1)
        centred = w.node("Sub", y, mean)
        variance = w.node("ReduceMean", w.node("Mul", centred, centred), axes=[-1], keepdims=1)
        factor = w.node(
            "Mul", w.node("Reciprocal", w.node("Sqrt", w.node("Add", variance, w.weight(1e-3)))), w.normal(96, scale=1.0)
        )
        y = w.node("Add", w.node("Mul", y, factor), w.node("Sub", w.normal(96), w.node("Mul", mean, factor)))
        y = w.node("Add", w.node("MatMul", y, w.normal(96, 30)), w.normal(30))
        w.nodes.append(helper.make_node("Softmax", [y], ["letters"], axis=-1))
        return w.model({"x": (FLOAT, ["n", "time", 40])}, {"letters": (FLOAT, ["n", "steps", 30])}, max(13, min(opset, 17)))

    return built(write, [{"x": torch.randn(*s, 40)} for s in ((1, 200), (3, 101), (1, 57), (1, 200))])


def tensorflow_while() -> Family:
    """A while loop over a tensor array: a row gathered, a cell, and a row appended in each trip."""

    def write(opset: int) -> onnx.ModelProto:
        w, b = Writer(), Writer()
        kernel, bias = w.normal(96, 256, scale=0.1), w.normal(256, scale=0.1)
        time_major = w.node("Transpose", "x", perm=[1, 0, 2])
        shape = w.node("Shape", time_major)
        steps = w.node("Squeeze", w.node("Slice", shape, w.ints(0), w.ints(1), w.ints(0)), w.ints(0))
        batch = w.node("Slice", shape, w.ints(1), w.ints(2), w.ints(0))
        zeros = w.node("Expand", w.weight(np.zeros((1, 1))), w.node("Concat", batch, w.ints(64), axis=0))
        b.count = 10_000
        row = b.node("Gather", time_major, "counter", axis=0)
        gates = b.node("Add", b.node("MatMul", b.node("Concat", row, "h", axis=1), kernel), bias)
        i, j, f, o = b.node("Split", gates, outputs=4, axis=1)
        forget = b.node("Mul", "c", b.node("Sigmoid", b.node("Add", f, b.weight(1.0))))
        c = b.node("Add", forget, b.node("Mul", b.node("Sigmoid", i), b.node("Tanh", j)))
        h = b.node("Mul", b.node("Tanh", c), b.node("Sigmoid", o))
        following = b.node("Add", "counter", b.weight(1, np.int64))
        going = b.node("Less", following, steps)
        kept = b.node("Identity", h)
        info = helper.make_tensor_value_info
        carried = [info("i", INT64, []), info("cond", TensorProto.BOOL, []), info("counter", INT64, [])]
        carried += [info("h", FLOAT, ["n", 64]), info("c", FLOAT, ["n", 64])]
        ends = [
            info(going, TensorProto.BOOL, []),
            info(following, INT64, []),
            info(h, FLOAT, ["n", 64]),
            info(c, FLOAT, ["n", 64]),
        ]
        body = helper.make_graph(b.nodes, "body", carried, [*ends, info(kept, FLOAT, ["n", 64])], b.weights)
        start, true = w.weight(0, np.int64), w.node("Less", w.weight(0, np.int64), steps)
        outputs = ["count", "last", "memory", "rows"]
        w.nodes.append(helper.make_node("Loop", ["", true, start, zeros, zeros], outputs, body=body))
        w.nodes.append(helper.make_node("Transpose", ["rows"], ["y"], perm=[1, 0, 2]))
        return w.model(
            {"x": (FLOAT, ["n", "time", 32])},
            {"y": (FLOAT, ["n", "time", 64]), "last": (FLOAT, ["n", 64])},
            max(13, min(opset, 17)),
        )

    return built(write, [{"x": torch.randn(*s, 32)} for s in ((1, 40), (3, 17), (2, 1), (1, 40))])


FAMILIES = (
    tensorflow_mobile,
    tensorflow_same,
    tensorflow_segmentation,
    keras_sound,
    tensorflow_while,
)
