"""Models and comparisons that the tests of the graph stage share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia.graph.model import Constant, Function, Graph, Node, SparseTensor


def _plain(value: Any) -> Any:
    """A value that `==` compares by content; unnamed sizes (`x_d0#7`) lose their running number."""
    if isinstance(value, Graph):
        return _plain_graph(value)
    if isinstance(value, Node):
        attributes = {key: _plain(v) for key, v in value.attributes.items()}
        return (
            value.op_type, value.inputs, value.outputs, attributes, value.domain, value.name, value.version,
            value.overload, value.doc, value.origin, value.metadata,
        )  # fmt: skip
    if isinstance(value, Constant):
        return value.name, value.dtype, value.shape, _plain(value.numpy())
    if isinstance(value, Function):
        nodes = [_plain(n) for n in value.nodes]
        attributes = {key: _plain(v) for key, v in value.attributes.items()}
        return value.domain, value.name, value.overload, value.inputs, value.outputs, attributes, nodes, value.opset_imports
    if isinstance(value, np.ndarray):
        data = value.tolist() if value.dtype == object else value.tobytes()
        return value.dtype.name, value.shape, data
    if isinstance(value, SparseTensor):
        return _plain(value.values), _plain(value.indices), value.dims
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, (int, float, str, bytes)):
        return type(value).__name__, str(value) if isinstance(value, float) else value
    return re.sub(r"#\d+", "#", str(value))


def _plain_graph(graph: Graph) -> dict[str, Any]:
    metadata = vars(graph.metadata) | {"path": "", "external_files": ()}
    return {
        "name": graph.name,
        "inputs": [(v.name, _plain(v.type), v.doc) for v in graph.inputs],
        "outputs": [(v.name, _plain(v.type), v.doc) for v in graph.outputs],
        "nodes": [_plain(n) for n in graph.nodes],
        "constants": {name: _plain(c) for name, c in graph.constants.items()},
        "types": {name: _plain(t) for name, t in graph.types.items()},
        "opset_imports": graph.opset_imports,
        "functions": {key: _plain(f) for key, f in graph.functions.items()},
        "overridable": graph.overridable,
        "metadata": metadata,
    }


@pytest.fixture
def plain() -> Callable[[Graph], dict[str, Any]]:
    """A graph as nested dicts and lists, compared by content."""
    return _plain_graph


@pytest.fixture
def mlp() -> onnx.ModelProto:
    """Gemm, Relu, Add over float[batch, 4], with two initializers and declared inner types."""
    w = np.arange(12, dtype=np.float32).reshape(4, 3)
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["h"], name="dense", alpha=0.5, transB=0),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Add", ["r", "b"], ["y"], name="add", doc_string="the bias"),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(w, "w"), helper.make_tensor("b", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])],
        value_info=[helper.make_tensor_value_info("h", TensorProto.FLOAT, ["batch", 3])],
        doc_string="a small network",
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10, producer_name="tests")
    helper.set_model_props(model, {"author": "nobody", "task": "none"})
    return model


@pytest.fixture
def branching() -> onnx.ModelProto:
    """If with two branches that capture outer values, sequences and optionals, a function with a referenced attribute."""
    value = helper.make_tensor_value_info
    then = helper.make_graph([helper.make_node("Mul", ["x", "x"], ["t"])], "then", [], [value("t", TensorProto.FLOAT, None)])
    other = helper.make_graph(
        [helper.make_node("Constant", [], ["two"], value_float=2.0), helper.make_node("Mul", ["x", "two"], ["e"])],
        "else", [], [value("e", TensorProto.FLOAT, None)],
    )  # fmt: skip
    scale = helper.make_node("Constant", [], ["factor"])
    scale.attribute.add(name="value_float", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT)
    function = helper.make_function(
        "custom", "Scale", ["a"], ["b"], [scale, helper.make_node("Mul", ["a", "factor"], ["b"])],
        [helper.make_opsetid("", 20)], [], [helper.make_attribute("alpha", 3.0)],
    )  # fmt: skip
    nodes = [
        helper.make_node("If", ["c"], ["i"], then_branch=then, else_branch=other),
        helper.make_node("Scale", ["i"], ["y"], domain="custom", alpha=4.0),
        helper.make_node("SequenceConstruct", ["y", "y"], ["s"]),
        helper.make_node("Optional", [], ["o"], type=helper.make_tensor_type_proto(TensorProto.INT64, [2])),
        helper.make_node("StringNormalizer", ["text"], ["u"], stopwords=["a", "é"], is_case_sensitive=1),
    ]
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    graph = helper.make_graph(
        nodes, "branching",
        [value("c", TensorProto.BOOL, []), value("x", TensorProto.FLOAT, [None, 3]), value("text", TensorProto.STRING, ["n"])],
        [
            helper.make_value_info("s", helper.make_sequence_type_proto(tensor)),
            helper.make_value_info("o", helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.INT64, [2]))),
            value("u", TensorProto.STRING, [None]),
        ],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("custom", 1)]
    return helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=10)
