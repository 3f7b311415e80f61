"""ONNX's function bodies beside the operators' definitions here: what a node leaves out has its default in them."""

from __future__ import annotations

import numpy as np
import onnx.helper as oh
import pytest
from onnx import TensorProto

import intarsia as ort
from intarsia.graph.load import load
from intarsia.graph.model import Graph
from intarsia.graph.save import to_model_proto
from intarsia.ops import registry
from intarsia.ops.framework.infer import infer
from intarsia.passes.graph.inline import inline_functions

X = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)


def run(graph: Graph) -> np.ndarray:
    model = to_model_proto(infer(graph, registry()).graph).SerializeToString()
    session = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"])
    return np.asarray(session.run(None, {"x": X})[0])


@pytest.mark.parametrize(
    "op", ["MeanVarianceNormalization", "Celu", "Shrink", "Selu", "ThresholdedRelu", "Elu", "LeakyRelu", "HardSigmoid", "Gelu"]
)
def test_defaults(op: str) -> None:
    values = [oh.make_tensor_value_info(name, TensorProto.FLOAT, X.shape) for name in "xy"]
    made = oh.make_graph([oh.make_node(op, ["x"], ["y"])], "g", values[:1], values[1:])
    graph = infer(load(oh.make_model(made, opset_imports=[oh.make_opsetid("", 20)], ir_version=9)), registry()).graph
    written = inline_functions(graph, registry(), lambda node: node.op_type == op)
    assert op not in {node.op_type for node in written.nodes}
    np.testing.assert_allclose(run(written), run(graph), rtol=1e-5, atol=1e-6)
