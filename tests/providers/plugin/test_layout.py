"""Graphs whose data have their channels last: what is transposed, and that results stay."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import onnx.helper as oh
import pytest
from onnx import TensorProto

import intarsia as ort
from intarsia.graph.load import load
from intarsia.graph.model import Graph, Node
from intarsia.graph.save import to_model_proto
from intarsia.ops import registry
from intarsia.ops.framework.infer import infer
from intarsia.providers.plugin.interface.graph_view import CHANNELS_LAST
from intarsia.providers.plugin.layout import channels_last

SHAPE = (2, 3, 6, 5)
CONVERTED = ("Conv", "MaxPool", "GlobalAveragePool", "BatchNormalization")


def graph(*lines: str, outputs: str = "y", **constants: np.ndarray) -> Graph:
    """Nodes `y = Op(x, w) key=value` of a picture x, and of u [2, 3, 1, 1], v [] and w [6, 5]."""
    nodes = []
    for line in lines:
        out, _, call = line.partition(" = ")
        op, _, rest = call.partition("(")
        names, _, attributes = rest.partition(")")
        given = {k: json.loads(v) for k, v in (word.split("=") for word in attributes.split())}
        nodes.append(oh.make_node(op, [n.strip() for n in names.split(",")], [out], name=out, **given))
    shapes = {"x": SHAPE, "u": (2, 3, 1, 1), "v": (), "w": (6, 5)}
    inputs = [oh.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    results = [oh.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs.split()]
    tensors = [oh.make_tensor(n, TensorProto.FLOAT, a.shape, a.ravel().tolist()) for n, a in constants.items()]
    made = oh.make_graph(nodes, "g", inputs, results, tensors)
    return infer(load(oh.make_model(made, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)), registry()).graph


def run(model: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    shapes = {"x": SHAPE, "u": (2, 3, 1, 1), "v": (), "w": (6, 5)}
    feed = {name: np.asarray(rng.standard_normal(shape), np.float32) for name, shape in shapes.items()}
    session = ort.InferenceSession(to_model_proto(model).SerializeToString(), providers=["ReferenceExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, {name: feed[name] for name in model.input_names()})]


def in_onnx_order(laid_out: Graph) -> Graph:
    """The same with each node that has its channels last between two transposes, as the domain means it."""
    made = laid_out.clone()
    made.nodes = []
    for node in laid_out.nodes:
        if node.domain != CHANNELS_LAST:
            made.nodes.append(node)
            continue
        before, after = f"{node.outputs[0]}.before", f"{node.outputs[0]}.after"
        made.nodes.append(Node("Transpose", [node.inputs[0]], [before], {"perm": [0, 3, 1, 2]}, version=13))
        made.nodes.append(node.copy(domain="", inputs=[before, *node.inputs[1:]], outputs=[after]))
        made.nodes.append(Node("Transpose", [after], [node.outputs[0]], {"perm": [0, 2, 3, 1]}, version=13))
    return made


WEIGHT = np.random.default_rng(0).standard_normal((3, 3, 3, 3)).astype(np.float32)
BIAS = np.array([1, -2, 3], np.float32).reshape(3, 1, 1)
CONV = "Conv(x, k) pads=[1,1,1,1]"
CASES = {
    "one": (graph(f"y = {CONV}", k=WEIGHT), 2),
    "a chain": (graph(f"a = {CONV}", "b = Relu(a)", "c = Conv(b, k)", "y = MaxPool(c) kernel_shape=[2,2]", k=WEIGHT), 2),
    "an addition of both": (graph(f"a = {CONV}", f"b = {CONV}", "y = Add(a, b)", k=WEIGHT), 2),
    "one operand is not there": (graph(f"a = {CONV}", "n = Neg(x)", "y = Add(a, n)", k=WEIGHT), 2),
    "one that was transposed before": (graph(f"a = {CONV}", "y = Add(a, x)", k=WEIGHT), 2),
    "a constant by channel": (graph("a = MaxPool(x) kernel_shape=[1,1]", "y = Mul(a, s)", s=BIAS), 2),
    "a constant of lower rank": (graph("a = MaxPool(x) kernel_shape=[1,1]", "y = Sub(s, a)", s=WEIGHT[0, 0, 0, :1]), 2),
    "a constant of one row": (graph("a = MaxPool(x) kernel_shape=[1,1]", "y = Sub(s, a)", s=np.arange(5, dtype=np.float32)), 2),
    "a scalar that is computed": (graph("a = MaxPool(x) kernel_shape=[1,1]", "n = Neg(v)", "y = Mul(a, n)"), 2),
    "a matrix that is computed": (graph("a = MaxPool(x) kernel_shape=[1,1]", "n = Neg(w)", "y = Mul(a, n)"), 2),
    "limits": (graph("a = MaxPool(x) kernel_shape=[1,1]", "y = Clip(a, v)"), 2),
    "two readers": (graph(f"a = {CONV}", "y = Relu(a)", "z = ReduceSum(a)", outputs="y z", k=WEIGHT), 3),
    "an output within": (graph(f"a = {CONV}", "y = Relu(a)", outputs="a y", k=WEIGHT), 3),
    "attention of channels": (
        graph(f"a = {CONV}", "p = GlobalAveragePool(a)", "g = Sigmoid(p)", "y = Mul(a, g)", k=WEIGHT), 2,
    ),
    "another of fewer axes": (graph("a = GlobalAveragePool(x)", "b = MaxPool(x) kernel_shape=[1,1]", "y = Div(b, a)"), 2),
    "nothing": (graph("y = Neg(x)"), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_results_and_transposes(name: str) -> None:
    given, transposes = CASES[name]
    found = channels_last(given, lambda node: node.op_type in CONVERTED, 13)
    assert Counter(node.op_type for node in found.graph.nodes)["Transpose"] == transposes, str(found.graph)
    assert sorted(found.sources.values()) == sorted(out for node in given.nodes for out in node.outputs)
    assert found.graph.input_names() == given.input_names() and found.graph.output_names() == given.output_names()
    for got, want in zip(run(in_onnx_order(found.graph)), run(given), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_names_that_are_taken() -> None:
    pools = "a = MaxPool(x.channels_last) kernel_shape=[1,1]", "y = MaxPool(x) kernel_shape=[1,1]"
    given = graph("x.channels_last = Neg(x)", *pools, "z = Add(a, y)", outputs="z")
    found = channels_last(given, lambda node: node.op_type in CONVERTED, 13)
    np.testing.assert_array_equal(run(in_onnx_order(found.graph))[0], run(given)[0])


def test_nodes_without_the_last_axes() -> None:
    """Matrices have no channels to put last, and results besides the first have no twin."""
    given = graph("a = Softmax(w)", "y = Relu(a)")
    assert not any(node.domain for node in channels_last(given, lambda node: True, 13).graph.nodes)
