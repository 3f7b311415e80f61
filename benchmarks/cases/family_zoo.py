"""What the model zoos of mxnet, Caffe2, CNTK and others hold, for `families.py`: old opsets, and new ones, node by node."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

from cases.family import Family
from cases.graph_writer import FLOAT, INT64, Writer, built

UINT8, INT8, BOOL = TensorProto.UINT8, TensorProto.INT8, TensorProto.BOOL


def _norm(w: Writer, x: str, n: int, **how: Any) -> str:
    statistics = [
        w.weight(w.random.uniform(0.5, 1.5, n)),
        w.normal(n, scale=0.1),
        w.normal(n, scale=0.1),
        w.weight(np.linspace(0.5, 2, n)),
    ]
    return str(w.node("BatchNormalization", x, *statistics, epsilon=2e-5, momentum=0.9, **how))


def _conv(
    w: Writer, x: str, a: int, b: int, kernel: int = 3, stride: int = 1, groups: int = 1, bias: bool = False, **how: Any
) -> str:
    weights = [w.normal(b, a // groups, kernel, kernel)] + ([w.normal(b)] if bias else [])
    how = {"pads": [kernel // 2] * 4} | how
    return str(
        w.node("Conv", x, *weights, kernel_shape=[kernel] * 2, strides=[stride] * 2, group=groups, dilations=[1, 1], **how)
    )


def _named(w: Writer, *pairs: tuple[str, str]) -> None:
    for made, name in pairs:
        w.nodes.append(helper.make_node("Identity", [made], [name]))


def arc_face() -> Family:
    """mxnet, opset 8: norms in front of windows, PRelu, faces of 112x112 to 512 numbers; batch 1 and 8."""

    def write(_: int) -> onnx.ModelProto:
        w = Writer()
        x = w.node("Mul", w.node("Sub", "data", w.weight([127.5])), w.weight([0.0078125]))
        relu = lambda x, n: w.node("PRelu", x, w.weight(np.full((n, 1, 1), 0.25)))  # noqa: E731
        x, width = relu(_norm(w, _conv(w, x, 3, 64), 64), 64), 64
        for out, blocks in ((64, 2), (128, 3), (256, 4), (512, 2)):
            for i in range(blocks):
                y = _norm(w, _conv(w, _norm(w, x, width), width, out), out)
                y = _norm(w, _conv(w, relu(y, out), out, out, stride=1 if i else 2), out)
                short = x if i else _norm(w, _conv(w, x, width, out, 1, 2), out)
                x, width = w.node("Add", y, short), out
        x = w.node("Dropout", _norm(w, x, 512), ratio=0.4)
        x = w.node("Gemm", w.node("Flatten", x, axis=1), w.normal(512, 512 * 49), w.normal(512), transB=1)
        _named(w, (_norm(w, x, 512), "fc1"))
        return w.model({"data": (FLOAT, ["N", 3, 112, 112])}, {"fc1": (FLOAT, ["N", 512])}, 8)

    return built(write, [{"data": torch.rand(n, 3, 112, 112) * 255} for n in (1, 8)])


def local_responses() -> Family:
    """Caffe2, opset 9: GoogLeNet's branches and LRN, poolings that pad at one end, windows in two groups; 224x224."""

    def write(_: int) -> onnx.ModelProto:
        w = Writer()
        conv = lambda x, *sizes, **how: w.node("Relu", _conv(w, x, *sizes, bias=True, **how))  # noqa: E731
        lrn = lambda x: w.node("LRN", x, size=5, alpha=1e-4, beta=0.75, bias=1.0)  # noqa: E731

        def pool(x: str, stride: int = 2, pads: tuple[int, ...] = (0, 0, 1, 1)) -> str:
            return str(w.node("MaxPool", x, kernel_shape=[3, 3], strides=[stride] * 2, pads=list(pads)))

        x = lrn(pool(conv("data_0", 3, 64, 7, 2)))
        x = pool(lrn(conv(conv(x, 64, 64, 1), 64, 192, 3, 1, 2)))
        width = 192
        for i, (a, b1, b2, c1, c2, d) in enumerate(
            (
                (64, 96, 128, 16, 32, 32),
                (128, 128, 192, 32, 96, 64),
                (192, 96, 208, 16, 48, 64),
                (160, 112, 224, 24, 64, 64),
                (256, 160, 320, 32, 128, 128),
                (384, 192, 384, 48, 128, 128),
            )
        ):
            x = pool(x) if i in (2, 4) else x
            parts = [conv(x, width, a, 1), conv(conv(x, width, b1, 1), b1, b2), conv(conv(x, width, c1, 1), c1, c2, 5)]
            x = w.node("Concat", *parts, conv(pool(x, 1, (1, 1, 1, 1)), width, d, 1), axis=1)
            width = a + b2 + c2 + d
        x = w.node("Dropout", w.node("AveragePool", x, kernel_shape=[7, 7], strides=[1, 1]), ratio=0.4)
        x = w.node("Gemm", w.node("Reshape", x, w.ints(-1, width)), w.normal(1000, width), w.normal(1000), transB=1)
        _named(w, (w.node("Softmax", x, axis=1), "prob_1"))
        return w.model({"data_0": (FLOAT, [1, 3, 224, 224])}, {"prob_1": (FLOAT, [1, 1000])}, 9)

    return built(write, [{"data_0": torch.randn(1, 3, 224, 224)}])


def emotions() -> Family:
    """CNTK, opset 8: grey faces of 64x64, SAME_UPPER, Dropout, products with reshaped weights; one at a time."""

    def write(_: int) -> onnx.ModelProto:
        w = Writer()
        x, width = w.node("Div", w.node("Sub", "Input3", w.weight([127.5])), w.weight([127.5])), 1
        for out, count in ((64, 2), (128, 2), (256, 3), (256, 3)):
            for _ in range(count):
                how = {"auto_pad": "SAME_UPPER", "dilations": [1, 1], "group": 1, "kernel_shape": [3, 3], "strides": [1, 1]}
                x = w.node("Relu", w.node("Add", w.node("Conv", x, w.normal(out, width, 3, 3), **how), w.normal(out, 1, 1)))
                width = out
            x = w.node("Dropout", w.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], pads=[0] * 4), ratio=0.25)
        x = w.node("Reshape", x, w.ints(1, 4096))
        for a, b in ((4096, 1024), (1024, 1024), (1024, 8)):
            matrix = w.node(
                "Reshape", w.normal(256, 4, 4, b, scale=a**-0.5) if a == 4096 else w.normal(a, b, scale=a**-0.5), w.ints(a, b)
            )
            x = w.node("Add", w.node("MatMul", x, matrix), w.normal(b))
            x = w.node("Relu", x) if b != 8 else x
        _named(w, (x, "Plus692_Output_0"))
        return w.model({"Input3": (FLOAT, [1, 1, 64, 64])}, {"Plus692_Output_0": (FLOAT, [1, 8])}, 8)

    return built(write, [{"Input3": torch.rand(1, 1, 64, 64) * 255}])


def shuffled_groups() -> Family:
    """Caffe2's ShuffleNet, opset 9: 1x1 windows in three groups, shuffles by five axes; 224x224, batch 1 and 4."""

    def write(_: int) -> onnx.ModelProto:
        w = Writer()
        x, width = (
            w.node(
                "MaxPool",
                w.node("Relu", _norm(w, _conv(w, "gpu_0/data_0", 3, 24, 3, 2), 24)),
                kernel_shape=[3, 3],
                strides=[2, 2],
                pads=[1] * 4,
            ),
            24,
        )
        for out, count in ((240, 4), (480, 6), (960, 3)):
            for i in range(count):
                new, mid, side = (out - width if i == 0 else out), out // 4, 28 if out == 240 else 14 if out == 480 else 7
                y = w.node("Relu", _norm(w, _conv(w, x, width, mid, 1, groups=1 if width == 24 else 3), mid))
                before = side if i else 2 * side
                y = w.node("Transpose", w.node("Reshape", y, w.ints(-1, 3, mid // 3, before, before)), perm=[0, 2, 1, 3, 4])
                y = w.node("Reshape", y, w.ints(-1, mid, before, before))
                y = _norm(w, _conv(w, y, mid, mid, 3, 1 if i else 2, mid), mid)
                y = _norm(w, _conv(w, y, mid, new, 1, groups=3), new)
                if i:
                    x = w.node("Relu", w.node("Add", x, y))
                else:
                    x = w.node(
                        "Relu",
                        w.node(
                            "Concat", w.node("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), y, axis=1
                        ),
                    )
                width = out
        x = w.node("Reshape", w.node("AveragePool", x, kernel_shape=[7, 7]), w.ints(-1, 960))
        x = w.node("Gemm", x, w.normal(1000, 960), w.normal(1000), transB=1)
        _named(w, (w.node("Softmax", x, axis=1), "gpu_0/softmax_1"))
        return w.model({"gpu_0/data_0": (FLOAT, ["n", 3, 224, 224])}, {"gpu_0/softmax_1": (FLOAT, ["n", 1000])}, 9)

    return built(write, [{"gpu_0/data_0": torch.randn(n, 3, 224, 224)} for n in (1, 4)])


def regions() -> Family:
    """Faster R-CNN, opset 10: anchors by NonZero, TopK, NonMaxSuppression, RoiAlign of each level, Scatter; any size."""

    def write(_: int) -> onnx.ModelProto:
        w = Writer()
        conv = lambda x, *sizes: w.node("Relu", _conv(w, x, *sizes, bias=True))  # noqa: E731

        def count(n: str) -> str:
            """0 to n - 1, as opset 10 has to write it."""
            one = onnx.numpy_helper.from_array(np.ones(1, np.int64))
            ones = w.node("ConstantOfShape", w.node("Unsqueeze", n, axes=[0]), value=one)
            return str(w.node("Cast", w.node("Squeeze", w.node("NonZero", ones), axes=[0]), to=FLOAT))

        x = w.node("Sub", "image", w.weight(np.array([102.98, 115.95, 122.77]).reshape(3, 1, 1)))
        x = w.node("Unsqueeze", x, axes=[0])
        x = w.node(
            "MaxPool", conv(w.node("Mul", x, w.weight(0.017)), 3, 48, 7, 2), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4
        )
        maps, width = [], 48
        for out, stride in ((64, 1), (128, 2), (192, 2)):
            x = conv(x, width, out, 3, stride)
            y = w.node("Relu", w.node("Add", x, _conv(w, conv(x, out, out), out, out, bias=True)))
            x, width = y, out
            maps.append((x, out, stride))
        sides = [_conv(w, m, n, 128, 1, bias=True) for m, n, _ in maps]
        for i in (1, 0):
            size = w.node("Slice", w.node("Shape", sides[i]), w.ints(2), w.ints(4), w.ints(0))
            below = w.node("Slice", w.node("Shape", sides[i + 1]), w.ints(2), w.ints(4), w.ints(0))
            ratio = w.node("Div", w.node("Cast", size, to=FLOAT), w.node("Cast", below, to=FLOAT))
            up = w.node("Resize", sides[i + 1], w.node("Concat", w.weight([1, 1]), ratio, axis=0), mode="nearest")
            sides[i] = w.node("Add", sides[i], up)
        boxes, scores = [], []
        rpn, kind, place = w.normal(128, 128, 3, 3), w.normal(3, 128, 1, 1), w.normal(12, 128, 1, 1, scale=0.01)
        for i, side in enumerate(sides):
            y = w.node("Relu", w.node("Conv", side, rpn, w.weight(np.zeros(128)), kernel_shape=[3, 3], pads=[1] * 4))
            score = w.node(
                "Reshape", w.node("Transpose", w.node("Conv", y, kind, kernel_shape=[1, 1]), perm=[0, 2, 3, 1]), w.ints(-1)
            )
            move = w.node(
                "Reshape", w.node("Transpose", w.node("Conv", y, place, kernel_shape=[1, 1]), perm=[0, 2, 3, 1]), w.ints(-1, 4)
            )
            size, stride = w.node("Shape", y), 4 * 2**i
            h, v = (w.node("Gather", size, w.weight(k, np.int64), axis=0) for k in (2, 3))
            ys, xs = (w.node("Mul", count(n), w.weight(float(stride))) for n in (h, v))
            both = w.node("Concat", w.node("Unsqueeze", h, axes=[0]), w.node("Unsqueeze", v, axes=[0]), axis=0)
            gy = w.node("Expand", w.node("Unsqueeze", ys, axes=[1]), both)
            gx = w.node("Expand", w.node("Unsqueeze", xs, axes=[0]), both)
            corner = w.node("Concat", *(w.node("Reshape", g, w.ints(-1, 1)) for g in (gx, gy, gx, gy)), axis=1)
            s = 8.0 * stride
            shapes = np.array([[-a * s / 2, -b * s / 2, a * s / 2, b * s / 2] for a, b in ((1, 1), (0.7, 1.4), (1.4, 0.7))])
            anchors = w.node(
                "Reshape", w.node("Add", w.node("Unsqueeze", corner, axes=[1]), w.weight(shapes[None])), w.ints(-1, 4)
            )
            best, which = w.node("TopK", w.node("Sigmoid", score), w.ints(60), outputs=2, axis=0)
            a, d = w.node("Gather", anchors, which, axis=0), w.node("Gather", move, which, axis=0)
            cut = lambda t, i, j: w.node("Slice", t, w.ints(i), w.ints(j), w.ints(1))  # noqa: E731
            wide = w.node("Sub", cut(a, 2, 4), cut(a, 0, 2))
            centre = w.node("Add", cut(a, 0, 2), w.node("Mul", wide, w.weight(0.5)))
            centre = w.node("Add", centre, w.node("Mul", cut(d, 0, 2), wide))
            half = w.node("Mul", w.node("Mul", w.node("Exp", w.node("Clip", cut(d, 2, 4), max=4.135)), wide), w.weight(0.5))
            box = w.node("Concat", w.node("Sub", centre, half), w.node("Add", centre, half), axis=1)
            kept = w.node(
                "NonMaxSuppression",
                w.node("Unsqueeze", box, axes=[0]),
                w.node("Reshape", best, w.ints(1, 1, -1)),
                w.ints(40),
                w.weight([0.7]),
                w.weight([0.0]),
            )
            index = w.node("Squeeze", w.node("Slice", kept, w.ints(2), w.ints(3), w.ints(1)), axes=[1])
            boxes.append(w.node("Gather", box, index, axis=0))
            scores.append(w.node("Gather", best, index, axis=0))
        box, score = w.node("Concat", *boxes, axis=0), w.node("Concat", *scores, axis=0)
        number = w.node(
            "Cast",
            w.node(
                "ReduceMin",
                w.node("Concat", w.node("Cast", w.node("Shape", score), to=FLOAT), w.weight([50.0]), axis=0),
                axes=[0],
                keepdims=1,
            ),
            to=INT64,
        )
        _, which = w.node("TopK", score, number, outputs=2, axis=0)
        box = w.node("Gather", box, which, axis=0)
        wide = w.node(
            "Sub", w.node("Slice", box, w.ints(2), w.ints(4), w.ints(1)), w.node("Slice", box, w.ints(0), w.ints(2), w.ints(1))
        )
        area = w.node(
            "Sqrt",
            w.node(
                "Mul",
                *(w.node("Squeeze", w.node("Slice", wide, w.ints(k), w.ints(k + 1), w.ints(1)), axes=[1]) for k in (0, 1)),
            ),
        )
        level = w.node(
            "Floor",
            w.node(
                "Add", w.node("Div", w.node("Log", w.node("Div", area, w.weight(64.0))), w.weight(np.log(2.0))), w.weight(1.0)
            ),
        )
        level = w.node("Cast", w.node("Clip", level, min=0.0, max=2.0), to=INT64)
        rows = w.node("Shape", level)
        shape = w.node("Concat", rows, w.ints(128, 7, 7), axis=0)
        total = w.node("ConstantOfShape", shape, value=onnx.numpy_helper.from_array(np.zeros(1, np.float32)))
        for i, side in enumerate(sides):
            mine = w.node("Squeeze", w.node("NonZero", w.node("Equal", level, w.weight(i, np.int64))), axes=[0])
            one = w.node("Gather", box, mine, axis=0)
            zeros = w.node("ConstantOfShape", w.node("Shape", mine), value=onnx.numpy_helper.from_array(np.zeros(1, np.int64)))
            pooled = w.node(
                "RoiAlign",
                side,
                one,
                zeros,
                output_height=7,
                output_width=7,
                sampling_ratio=2,
                spatial_scale=0.25 / 2**i,
                mode="avg",
            )
            where = w.node("Expand", w.node("Reshape", mine, w.ints(-1, 1, 1, 1)), w.node("Shape", pooled))
            total = w.node("Scatter", total, where, pooled, axis=0)
        y = w.node("Relu", w.node("Gemm", w.node("Flatten", total, axis=1), w.normal(512, 6272), w.normal(512), transB=1))
        y = w.node("Relu", w.node("Gemm", y, w.normal(512, 512), w.normal(512), transB=1))
        _named(
            w,
            (box, "boxes"),
            (w.node("Softmax", w.node("Gemm", y, w.normal(81, 512), w.normal(81), transB=1), axis=1), "scores"),
        )
        return w.model(
            {"image": (FLOAT, [3, "height", "width"])}, {"boxes": (FLOAT, ["n", 4]), "scores": (FLOAT, ["n", 81])}, 10
        )

    return built(write, [{"image": torch.rand(3, h, v) * 255} for h, v in ((320, 480), (256, 256), (320, 480))])


def bent_windows() -> Family:
    """DeformConv (opset 19) with factors in the last stages of a residual network, 96 and 192 channels, 160x160."""

    def write(_: int) -> onnx.ModelProto:
        w = Writer()
        x, width = w.node("Relu", _conv(w, "image", 3, 48, 7, 4, bias=True)), 48
        for out, stride, count in ((96, 2, 3), (192, 2, 3)):
            for i in range(count):
                y = w.node("Relu", _conv(w, x, width, out, 1, 1 if i else stride, bias=True))
                offsets = _conv(w, y, out, 27, bias=True)
                place, factor = w.node("Split", offsets, w.ints(18, 9), outputs=2, axis=1)
                y = w.node(
                    "DeformConv",
                    y,
                    w.normal(out, out, 3, 3),
                    place,
                    w.normal(out),
                    w.node("Sigmoid", factor),
                    kernel_shape=[3, 3],
                    pads=[1] * 4,
                )
                y = _conv(w, w.node("Relu", y), out, out, 1, bias=True)
                short = x if i else _conv(w, x, width, out, 1, stride, bias=True)
                x, width = w.node("Relu", w.node("Add", y, short)), out
        x = w.node("Flatten", w.node("GlobalAveragePool", x))
        _named(w, (w.node("Gemm", x, w.normal(100, 192), w.normal(100), transB=1), "classes"))
        return w.model({"image": (FLOAT, [1, 3, 160, 160])}, {"classes": (FLOAT, [1, 100])}, 19)

    return built(write, [{"image": torch.randn(1, 3, 160, 160)}])


def whole_graph_bytes() -> Family:
    """TFLite's networks of bytes: channels last, weights by channel, Q and DQ around everything, a Resize; 300x300."""

    def write(_: int) -> onnx.ModelProto:
        w = Writer()

        def bytes_of(x: str, scale: float = 0.05, zero: int = 128) -> str:
            q = [w.weight(scale), w.weight(zero, np.uint8)]
            return str(w.node("DequantizeLinear", w.node("QuantizeLinear", x, *q), *q))

        def conv(x: str, a: int, b: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: bool = True) -> str:
            weights = w.weight(w.random.integers(-127, 128, (b, a // groups, kernel, kernel)), np.int8)
            scale = w.weight(w.random.uniform(0.5, 1.5, b) / 60 / np.sqrt(kernel * kernel * a / groups))
            matrix = w.node("DequantizeLinear", weights, scale, w.weight(np.zeros(b), np.int8), axis=0)
            y = w.node(
                "Conv",
                x,
                matrix,
                w.normal(b, scale=0.1),
                kernel_shape=[kernel] * 2,
                strides=[stride] * 2,
                auto_pad="SAME_UPPER",
                group=groups,
            )
            return bytes_of(w.node("Clip", y, w.weight(0.0), w.weight(6.0)), 6 / 255, 0) if act else bytes_of(y)

        x = w.node(
            "Transpose", w.node("DequantizeLinear", "image", w.weight(1 / 127.5), w.weight(127, np.uint8)), perm=[0, 3, 1, 2]
        )
        x, width, kept = conv(x, 3, 32, 3, 2), 32, []
        for out, stride, count in ((24, 2, 2), (40, 2, 2), (96, 2, 3), (160, 2, 2)):
            for i in range(count):
                y = conv(conv(x, width, 4 * width, 1), 4 * width, 4 * width, 3, 1 if i else stride, 4 * width)
                y = conv(y, 4 * width, out, 1, act=False)
                x, width = bytes_of(w.node("Add", x, y)) if i else y, out
            kept.append(x)
        sized = w.node(
            "Resize", kept[-1], "", "", w.ints(1, 160, 19, 19), mode="linear", coordinate_transformation_mode="half_pixel"
        )
        y = conv(w.node("Concat", bytes_of(sized), kept[-2], axis=1), 256, 120, 1)
        y = conv(conv(y, 120, 120, 3, 1, 120), 120, 84, 1, act=False)
        y = w.node("Reshape", w.node("Transpose", y, perm=[0, 2, 3, 1]), w.ints(1, -1, 21))
        _named(w, (w.node("Softmax", y, axis=-1), "scores"))
        return w.model({"image": (UINT8, [1, 300, 300, 3])}, {"scores": (FLOAT, [1, 1444, 21])}, 13)

    return built(write, [{"image": torch.randint(0, 256, (1, 300, 300, 3), dtype=torch.uint8)}])


def scanned_states() -> Family:
    """An LSTM whose gates are normed, as a Scan over 200 frames with states, forwards and backwards; 240 wide."""

    def write(_: int) -> onnx.ModelProto:
        w, n = Writer(), 240

        def layer(x: str, a: int, backward: bool) -> str:
            b = Writer()
            b.random, b.count = w.random, 1000 * (w.count + 1)
            gates = b.node(
                "Add",
                b.node("MatMul", "frame", b.normal(a, 4 * n, scale=a**-0.5)),
                b.node("MatMul", "h", b.normal(n, 4 * n, scale=n**-0.5)),
            )
            gates = b.node("LayerNormalization", gates, b.weight(np.ones(4 * n)), b.normal(4 * n, scale=0.1), axis=-1)
            i, f, g, o = b.node("Split", gates, outputs=4, axis=-1, num_outputs=4)
            c = b.node("Add", b.node("Mul", b.node("Sigmoid", f), "c"), b.node("Mul", b.node("Sigmoid", i), b.node("Tanh", g)))
            h = b.node("Mul", b.node("Sigmoid", o), b.node("Tanh", c))
            for made, name in ((h, "h1"), (c, "c1"), (h, "kept")):
                b.nodes.append(helper.make_node("Identity", [made], [name]))
            info = lambda name, size: helper.make_tensor_value_info(name, FLOAT, ["batch", size])  # noqa: E731
            body = helper.make_graph(
                b.nodes,
                "step",
                [info("h", n), info("c", n), info("frame", a)],
                [info("h1", n), info("c1", n), info("kept", n)],
                b.weights,
            )
            size = w.node("Slice", w.node("Shape", x), w.ints(1), w.ints(2), w.ints(0))
            zero = w.node(
                "ConstantOfShape",
                w.node("Concat", size, w.ints(n), axis=0),
                value=onnx.numpy_helper.from_array(np.zeros(1, np.float32)),
            )
            _, _, kept = w.node(
                "Scan",
                zero,
                zero,
                x,
                outputs=3,
                body=body,
                num_scan_inputs=1,
                scan_input_directions=[int(backward)],
                scan_output_directions=[int(backward)],
            )
            return str(kept)

        x, width = w.node("Transpose", "frames", perm=[1, 0, 2]), 80
        for _ in range(2):
            x, width = w.node("Concat", layer(x, width, False), layer(x, width, True), axis=2), 2 * n
        _named(w, (w.node("Transpose", w.node("MatMul", x, w.normal(2 * n, 50, scale=0.05)), perm=[1, 0, 2]), "letters"))
        return w.model({"frames": (FLOAT, ["batch", "steps", 80])}, {"letters": (FLOAT, ["batch", "steps", 50])}, 18)

    return built(write, [{"frames": torch.randn(b, t, 80)} for b, t in ((1, 200), (4, 77))])


def newest_decoder() -> Family:
    """Opset 23 as exporters write it: RMSNormalization, RotaryEmbedding, Attention with caches; 40 tokens after 120."""

    def write(_: int) -> onnx.ModelProto:
        w, n = Writer(), 576
        x = w.node("Gather", w.normal(6000, n, scale=1.0), "ids", axis=0)
        cos, sin = (w.weight(f(np.arange(512)[:, None] / 1e4 ** (np.arange(32) / 32))) for f in (np.cos, np.sin))
        outputs, inputs = {}, {"ids": (INT64, ["b", "s"]), "positions": (INT64, ["b", "s"])}
        for i in range(4):
            y = w.node("RMSNormalization", x, w.weight(np.ones(n)), axis=-1, epsilon=1e-5)
            q, k, v = (w.node("MatMul", y, w.normal(n, m, scale=n**-0.5)) for m in (n, 192, 192))
            q = w.node("RotaryEmbedding", q, cos, sin, "positions", num_heads=9)
            k = w.node("RotaryEmbedding", k, cos, sin, "positions", num_heads=3)
            y, k1, v1 = w.node(
                "Attention", q, k, v, "", f"past_k{i}", f"past_v{i}", outputs=3, q_num_heads=9, kv_num_heads=3, is_causal=1
            )
            _named(w, (k1, f"k{i}"), (v1, f"v{i}"))
            for name in (f"past_k{i}", f"past_v{i}"):
                inputs[name] = (FLOAT, ["b", 3, "p", 64])
            outputs |= {f"{name}{i}": (FLOAT, ["b", 3, "t", 64]) for name in "kv"}
            x = w.node("Add", x, w.node("MatMul", y, w.normal(n, n, scale=n**-0.5)))
            y = w.node("RMSNormalization", x, w.weight(np.ones(n)), axis=-1, epsilon=1e-5)
            gate = w.node("MatMul", y, w.normal(n, 1536, scale=n**-0.5))
            y = w.node(
                "Mul", w.node("Mul", gate, w.node("Sigmoid", gate)), w.node("MatMul", y, w.normal(n, 1536, scale=n**-0.5))
            )
            x = w.node("Add", x, w.node("MatMul", y, w.normal(1536, n, scale=1536**-0.5)))
        x = w.node("RMSNormalization", x, w.weight(np.ones(n)), axis=-1, epsilon=1e-5)
        _named(w, (w.node("MatMul", x, w.normal(n, 6000, scale=n**-0.5)), "logits"))
        model = w.model(inputs, {"logits": (FLOAT, ["b", "s", 6000]), **outputs}, 23)
        model.ir_version = 11
        return model

    def run(b: int, s: int, p: int) -> dict[str, torch.Tensor]:
        past = {f"past_{kv}{i}": torch.randn(b, 3, p, 64) for i in range(4) for kv in "kv"}
        return {"ids": torch.randint(0, 6000, (b, s)), "positions": torch.arange(p, p + s).repeat(b, 1), **past}

    return built(write, [run(1, 40, 120), run(2, 1, 77), run(1, 13, 0)])


FAMILIES = (
    arc_face, local_responses, emotions, shuffled_groups, regions, bent_windows, whole_graph_bytes, scanned_states,
    newest_decoder,
)  # fmt: skip
