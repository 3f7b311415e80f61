"""What other converters write, for `families.py`: old opsets, Constant nodes, local functions, islands of float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from torch import nn

from cases.family import Calling, Family, Run, exported
from cases.graph_writer import FLOAT, INT64, Sizes, Writer, built


def paddle_recogniser() -> Family:
    """Opset 11 with Constant nodes for all weights, hard swishes spelt out, sizes by Shape, Slice, Cast and Concat."""

    def write(opset: int) -> onnx.ModelProto:
        w = Writer(constants=True)

        def conv(x: str, a: int, b: int, kernel: int, stride: Sequence[int] = (1, 1), groups: int = 1) -> str:
            how = {
                "strides": list(stride),
                "kernel_shape": [kernel] * 2,
                "pads": [kernel // 2] * 4,
                "group": groups,
                "dilations": [1, 1],
            }
            x = w.node("Conv", x, w.normal(b, a // groups, kernel, kernel), **how)
            statistics = [w.weight(np.linspace(0.5, 1.5, b)), w.normal(b), w.normal(b), w.weight(np.linspace(0.5, 2, b))]
            return str(w.node("BatchNormalization", x, *statistics, epsilon=1e-5, momentum=0.9))

        def swish(x: str) -> str:
            y = w.node("Clip", w.node("Add", x, w.weight([3.0])), w.weight(0.0), w.weight(6.0))
            return str(w.node("Div", w.node("Mul", x, y), w.weight([6.0])))

        def excite(x: str, width: int) -> str:
            y = w.node("GlobalAveragePool", x)
            y = w.node("Relu", w.node("Conv", y, w.normal(width // 4, width, 1, 1), w.normal(width // 4), kernel_shape=[1, 1]))
            y = w.node("Conv", y, w.normal(width, width // 4, 1, 1), w.normal(width), kernel_shape=[1, 1])
            return str(w.node("Mul", x, w.node("HardSigmoid", y, alpha=0.2, beta=0.5)))

        x, width = swish(conv("x", 3, 16, 3, (2, 2))), 16
        early = None
        for out, stride in ((32, (1, 1)), (48, (2, 1)), (96, (2, 1)), (128, (2, 1))):
            x = excite(swish(conv(x, width, width, 5, stride, width)), width)
            x, width = swish(conv(x, width, out, 1)), out
            early = early or x
        size = w.node("Slice", w.node("Shape", x), w.ints(2), w.ints(4), w.ints(0))
        whole = w.node("Concat", w.node("Slice", w.node("Shape", early), w.ints(0), w.ints(2), w.ints(0)), size, axis=0)
        small = w.node(
            "Resize", early, w.weight([]), w.weight([]), whole, mode="linear", coordinate_transformation_mode="half_pixel"
        )
        x = w.node("Concat", x, small, axis=1)
        x = w.node("AveragePool", x, kernel_shape=[3, 2], strides=[3, 2])
        x = w.node("Transpose", w.node("Squeeze", x, axes=[2]), perm=[0, 2, 1])
        steps = w.node("Cast", w.node("Slice", w.node("Shape", x), w.ints(1), w.ints(2), w.ints(0)), to=TensorProto.INT32)
        for _ in range(2):
            qkv = w.node("Add", w.node("MatMul", x, w.normal(160, 480)), w.normal(480))
            target = w.node("Concat", w.ints(0), w.node("Cast", steps, to=INT64), w.ints(3), w.ints(8), w.ints(20), axis=0)
            qkv = w.node("Transpose", w.node("Reshape", qkv, target), perm=[2, 0, 3, 1, 4])
            q, k, v = (w.node("Squeeze", w.node("Slice", qkv, w.ints(i), w.ints(i + 1), w.ints(0)), axes=[0]) for i in range(3))
            scores = w.node("MatMul", w.node("Mul", q, w.weight([20**-0.5])), w.node("Transpose", k, perm=[0, 1, 3, 2]))
            y = w.node("Transpose", w.node("MatMul", w.node("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
            y = w.node("Reshape", y, w.node("Concat", w.ints(0), w.node("Cast", steps, to=INT64), w.ints(160), axis=0))
            x = w.node("Add", x, w.node("Add", w.node("MatMul", y, w.normal(160, 160)), w.normal(160)))
            mean = w.node("ReduceMean", x, axes=[-1])
            centred = w.node("Sub", x, mean)
            variance = w.node("ReduceMean", w.node("Pow", centred, w.weight(2.0)), axes=[-1])
            root = w.node("Sqrt", w.node("Add", variance, w.weight(1e-5)))
            x = w.node("Add", w.node("Mul", w.node("Div", centred, root), w.normal(160)), w.normal(160))
        logits = w.node("Add", w.node("MatMul", x, w.normal(160, 500)), w.normal(500))
        w.nodes.append(helper.make_node("Softmax", [logits], ["softmax_0.tmp_0"], axis=2))
        sizes: Sizes = ["DynamicDimension.0", 3, 48, "DynamicDimension.1"]
        return w.model(
            {"x": (FLOAT, sizes)}, {"softmax_0.tmp_0": (FLOAT, ["DynamicDimension.2", "DynamicDimension.3", 500])}, 11
        )

    runs = [{"x": torch.randn(b, 3, 48, n)} for b, n in ((1, 320), (6, 160), (1, 404), (1, 320))]
    return built(write, runs)


def _old(opset: int, runs: Sequence[Run]) -> Family:
    """Attributes where inputs are now: Upsample, Slice, Clip, Pad, TopK, Dropout, BatchNormalization, Reshape."""

    def write(_: int) -> onnx.ModelProto:
        w = Writer()

        def block(x: str, a: int, b: int, stride: int = 1) -> str:
            y = w.node("Conv", x, w.normal(b, a, 3, 3), kernel_shape=[3, 3], pads=[1] * 4, strides=[stride] * 2)
            y = w.node("BatchNormalization", y, *(w.normal(b) for _ in range(3)), w.weight(np.linspace(0.5, 2, b)))
            return str(w.node("LeakyRelu", y, alpha=0.1))

        a = block(block("x", 3, 16, 2), 16, 32, 2)
        b = block(
            w.node("Pad", w.node("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2]), pads=[0, 0, 1, 1, 0, 0, 0, 0]), 32, 32
        )
        if opset < 10:
            b = w.node("Slice", b, axes=[2, 3], starts=[1, 1], ends=[9999, 9999])
        else:
            b = w.node("Slice", b, w.ints(1, 1), w.ints(9999, 9999), w.ints(2, 3))
        if opset < 9:
            b = w.node("Upsample", b, scales=[1.0, 1.0, 2.0, 2.0], mode="nearest")
        else:
            b = w.node("Upsample" if opset < 10 else "Resize", b, w.weight([1, 1, 2, 2]), mode="nearest")
        y = w.node("Clip", w.node("Add", a, b), min=0.0, max=6.0)
        y = w.node("Dropout", w.node("Concat", y, w.node("Neg", y), axis=1), ratio=0.5)
        y = block(y, 64, 32, 2)
        y = w.node("Reshape", w.node("GlobalAveragePool", y), w.ints(-1, 32))
        y = w.node("Gemm", y, w.normal(20, 32), w.normal(20), transB=1)
        y = w.node("Softmax", y)
        w.nodes.append(helper.make_node("Identity", [y], ["scores"]))
        if opset < 10:
            w.nodes.append(helper.make_node("TopK", [y], ["best", "places"], k=5, axis=1))
        else:
            w.nodes.append(helper.make_node("TopK", [y, w.ints(5)], ["best", "places"], axis=1))
        outputs = {"scores": (FLOAT, ["n", 20]), "best": (FLOAT, ["n", 5]), "places": (INT64, ["n", 5])}
        model = w.model({"x": (FLOAT, ["n", 3, "h", "w"])}, outputs, opset)
        model.ir_version = 3  # every weight is an input as well
        for tensor in w.weights:
            model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        return model

    return built(write, runs)


def _pictures() -> list[Run]:
    return [{"x": torch.randn(*s)} for s in ((1, 3, 64, 64), (2, 3, 96, 32), (1, 3, 64, 64))]


def opset_7() -> Family:
    return _old(7, _pictures())


def opset_9() -> Family:
    return _old(9, _pictures())


def opset_10() -> Family:
    return _old(10, _pictures())


def local_functions() -> Family:
    """Functions in functions, with attributes handed down, optional inputs and a branch inside."""

    def write(opset: int) -> onnx.ModelProto:
        domain, ids = "models.layers", [helper.make_opsetid("", max(opset, 17)), helper.make_opsetid("models.layers", 1)]
        slope = helper.make_node("LeakyRelu", ["y"], ["z"])
        attribute = slope.attribute.add()
        attribute.name, attribute.ref_attr_name, attribute.type = "alpha", "slope", onnx.AttributeProto.FLOAT
        dense = helper.make_function(
            domain, "Dense", ["x", "w", "b"], ["z"],
            [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"]), slope], ids, ["slope"],
        )  # fmt: skip
        inner = [
            helper.make_node("Dense", ["x", "w1", "b1"], ["h"], domain=domain),
            helper.make_node("Dense", ["h", "w2", "b2"], ["r"], domain=domain),
        ]
        for node in inner:
            attribute = node.attribute.add()
            attribute.name, attribute.ref_attr_name, attribute.type = "slope", "slope", onnx.AttributeProto.FLOAT
        info = helper.make_tensor_value_info
        then = helper.make_graph([helper.make_node("Add", ["x", "r"], ["t"])], "t", [], [info("t", FLOAT, None)])
        other = helper.make_graph([helper.make_node("Sub", ["x", "r"], ["e"])], "e", [], [info("e", FLOAT, None)])
        inner.append(helper.make_node("ReduceSum", ["r"], ["s"], keepdims=0))
        inner += [
            helper.make_node("Constant", [], ["zero"], value_float=0.0),
            helper.make_node("Greater", ["s", "zero"], ["positive"]),
        ]
        inner += [helper.make_node("If", ["positive"], ["o"], then_branch=then, else_branch=other)]
        block = helper.make_function(domain, "Block", ["x", "w1", "b1", "w2", "b2"], ["o"], inner, ids, ["slope"])
        w = Writer()
        x = "x"
        for i in range(6):
            weights = (w.normal(128, 256), w.normal(256), w.normal(256, 128), w.normal(128))
            x = w.node("Block", x, *weights, domain=domain, slope=0.1 * i)
        w.nodes.append(helper.make_node("Identity", [x], ["y"]))
        model = w.model({"x": (FLOAT, ["n", 128])}, {"y": (FLOAT, ["n", 128])}, max(opset, 17))
        model.opset_import.append(ids[1])
        model.functions.extend([dense, block])
        model.ir_version = 8
        return model

    return built(write, [{"x": torch.randn(n, 128)} for n in (16, 1, 5, 0, 16)])


def half_islands() -> Family:
    """float16 all through, but for what a converter keeps in float32 between Casts; inputs and outputs are float32."""
    body = [nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.GELU(), nn.Flatten(2)]
    parts = {"body": nn.Sequential(*body), "norm": nn.LayerNorm(64), "qkv": nn.Linear(64, 192), "out": nn.Linear(64, 64)}

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = m.body(x).transpose(1, 2)
        for _ in range(2):
            q, k, v = m.qkv(m.norm(y)).chunk(3, -1)
            y = y + m.out((q * 0.125 @ k.transpose(1, 2)).softmax(-1) @ v)
        return y.mean(1)

    module = Calling(forward, **parts)
    runs = [{"x": torch.randn(n, 3, 32, 32)} for n in (1, 4, 1)]

    def build(dynamo: bool, opset: int) -> onnx.ModelProto:
        from onnxconverter_common import float16

        model = exported(Family(module.eval(), runs, {"x": {0: "batch"}}), dynamo, opset)
        return float16.convert_float_to_float16(
            model, keep_io_types=True, op_block_list=["Softmax", "LayerNormalization", "ReduceMean"]
        )

    return Family(None, runs, {}, build=build)


FAMILIES = (paddle_recogniser, opset_7, opset_9, opset_10, local_functions, half_islands)  # fmt: skip
