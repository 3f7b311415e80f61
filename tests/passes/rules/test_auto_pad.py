"""auto_pad as pads, where no size decides them: the same results, for sizes of every remainder."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort
from intarsia.graph.load import load
from intarsia.passes.optimizer import optimize

WEIGHT = numpy_helper.from_array(np.random.default_rng(1).standard_normal((4, 3, 2, 3)).astype(np.float32), "w")


def model(op_type: str, **attributes: Any) -> onnx.ModelProto:
    """One node over float[n, 3, h, w]."""
    inputs = ["x", "w"] if op_type == "Conv" else ["x"]
    if op_type != "Conv":
        attributes.setdefault("kernel_shape", [2, 3])
    graph = helper.make_graph(
        [helper.make_node(op_type, inputs, ["y"], **attributes)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w_"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [WEIGHT] if op_type == "Conv" else [],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def written(proto: onnx.ModelProto) -> list[int] | None:
    """The pads that the optimised node has; None: it still has auto_pad."""
    (node,) = optimize(load(proto)).graph.nodes
    return None if "auto_pad" in node.attributes else node.attributes.get("pads")


@pytest.mark.parametrize(
    ("op_type", "attributes", "pads"),
    [
        ("Conv", {"auto_pad": "SAME_UPPER"}, [0, 1, 1, 1]),
        ("Conv", {"auto_pad": "SAME_LOWER", "dilations": [3, 2]}, [2, 2, 1, 2]),
        ("Conv", {"auto_pad": "VALID", "strides": [2, 2]}, [0, 0, 0, 0]),
        ("MaxPool", {"auto_pad": "SAME_UPPER", "ceil_mode": 1}, [0, 1, 1, 1]),
        ("MaxPool", {"auto_pad": "VALID", "ceil_mode": 1, "strides": [2, 2]}, [0, 0, 0, 0]),
        ("AveragePool", {"auto_pad": "SAME_LOWER"}, [1, 1, 0, 1]),
        ("AveragePool", {"auto_pad": "SAME_UPPER", "count_include_pad": 1}, [0, 1, 1, 1]),
        ("LpPool", {"auto_pad": "SAME_UPPER"}, [0, 1, 1, 1]),
        ("Conv", {"auto_pad": "SAME_UPPER", "strides": [1, 2]}, None),  # the width's remainder decides
        ("MaxPool", {"auto_pad": "SAME_LOWER", "strides": [3, 2]}, None),
    ],
)
def test_same_results(op_type: str, attributes: dict[str, Any], pads: list[int] | None) -> None:
    proto = model(op_type, **attributes)
    assert written(proto) == pads
    session = ort.InferenceSession(proto.SerializeToString())
    plain = ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    reference = ort.InferenceSession(proto.SerializeToString(), plain, providers=["ReferenceExecutionProvider"])
    for h, w in ((8, 9), (9, 8), (7, 12)):
        x = np.random.default_rng(h).standard_normal((2, 3, h, w)).astype(np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], reference.run(None, {"x": x})[0], rtol=1e-5, atol=1e-5)


def test_both_outputs_of_a_pool() -> None:
    proto = model("MaxPool", auto_pad="SAME_UPPER")
    proto.graph.node[0].output.append("indices")
    proto.graph.output.add().CopyFrom(helper.make_tensor_value_info("indices", TensorProto.INT64, None))
    assert written(proto) == [0, 1, 1, 1]
    x = np.random.default_rng(0).standard_normal((1, 3, 5, 6)).astype(np.float32)
    y, indices = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(x.reshape(-1)[indices], y)


def test_a_wrong_auto_pad_is_told_by_the_operator() -> None:
    with pytest.raises(ort.Fail, match="auto_pad"):
        ort.InferenceSession(model("Conv", auto_pad="SAME").SerializeToString())
