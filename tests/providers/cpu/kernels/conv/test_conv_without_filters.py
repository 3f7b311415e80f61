"""Convolutions of no filters have no channels, whatever they are computed by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from intarsia import InferenceSession
from intarsia.errors import NotImplemented as NoKernel

OPSETS = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("shape", [[1, 15, 9, 9], ["n", 15, "h", "w"]], ids=["known", "symbols"])
@pytest.mark.parametrize(
    ("operator", "kind"), [("Conv", np.float32), ("com.microsoft::FusedConv", np.float32), ("ConvInteger", np.uint8)]
)
def test_no_filters(operator: str, kind: Any, shape: list[Any], provider: str) -> None:
    domain, _, name = operator.rpartition("::")
    how = {"activation": "Relu"} if domain else {}
    node = helper.make_node(name, ["x", "w"], ["y"], domain=domain, **how)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    held = numpy_helper.from_array(np.zeros((0, 15, 3, 3), kind), "w")
    inputs = [helper.make_tensor_value_info("x", element, shape)]
    output = helper.make_tensor_value_info("y", 1 if kind is np.float32 else 6, None)
    model = helper.make_model(helper.make_graph([node], "g", inputs, [output], [held]), opset_imports=OPSETS, ir_version=10)
    session = InferenceSession(model.SerializeToString(), providers=[provider])
    (found,) = session.run(None, {"x": np.ones((1, 15, 9, 9), kind)})
    assert found.shape == (1, 0, 7, 7)


def test_types_without_code_are_named() -> None:
    """onnxruntime's schema of GridSample has types that it has no kernel for."""
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], domain="com.microsoft")
    inputs = [helper.make_tensor_value_info("x", 9, [1, 1, 4, 4]), helper.make_tensor_value_info("grid", 9, [1, 3, 3, 2])]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", 9, None)])
    model = helper.make_model(graph, opset_imports=OPSETS, ir_version=10)
    with pytest.raises(NoKernel, match=r"GridSample.*no code for .* of booleans; cast its operands"):
        InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
