"""Operator sets that a model uses and does not import."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper as h

import intarsia as ort
from intarsia.errors import NotImplemented

X = np.float32([[1, -2, 3]])


def model(nodes: list[onnx.NodeProto], imports: dict[str, int]) -> bytes:
    x, y = (h.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 3]) for n in "xy")
    opsets = [h.make_opsetid(domain, version) for domain, version in imports.items()]
    made: bytes = h.make_model(h.make_graph(nodes, "g", [x], [y]), opset_imports=opsets, ir_version=8).SerializeToString()
    return made


@pytest.mark.parametrize("provider", ["ReferenceExecutionProvider", "CPUExecutionProvider"])
def test_they_are_the_newest_released(provider: str, caplog: pytest.LogCaptureFixture) -> None:
    nodes = [h.make_node("QuickGelu", ["x"], ["t"], domain="com.microsoft"), h.make_node("Neg", ["t"], ["y"])]
    expected = -X / (1 + np.exp(-1.702 * X.astype(np.float64)))
    for imports, said in (
        ({"": 17}, "com.microsoft (taken as version 1)"), ({"com.microsoft": 1}, "ai.onnx (taken as version 26)"),
    ):  # fmt: skip
        caplog.clear()
        session = ort.InferenceSession(model(nodes, imports), providers=[provider])
        np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, rtol=1e-5)
        assert f"the model does not import operator sets that it uses: {said}" in caplog.text


def test_those_in_subgraphs_too() -> None:
    value = h.make_tensor_value_info("t", onnx.TensorProto.FLOAT, [1, 3])
    body = h.make_graph([h.make_node("QuickGelu", ["x"], ["t"], domain="com.microsoft", alpha=1.0)], "b", [], [value])
    condition = h.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(np.array(True)))
    nodes = [condition, h.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)]
    (y,) = ort.InferenceSession(model(nodes, {"": 17}), providers=["ReferenceExecutionProvider"]).run(None, {"x": X})
    np.testing.assert_allclose(y, X / (1 + np.exp(-X.astype(np.float64))), rtol=1e-5)


def test_others_are_errors() -> None:
    with pytest.raises(NotImplemented, match=r"own::Twice \(domain 'own' is not imported\)"):
        ort.InferenceSession(model([h.make_node("Twice", ["x"], ["y"], domain="own")], {"": 17}))


def test_old_layer_normalisations_take_any_attribute() -> None:
    """onnxruntime's own, which stands in the default domain; the standard operator checks its attributes."""
    scale = onnx.numpy_helper.from_array(np.ones(3, np.float32), "s")
    node = h.make_node("LayerNormalization", ["x", "s"], ["y"], epsion=1e-3)
    for opset in (12, 17):
        made = onnx.load_from_string(model([node], {"": opset}))
        made.graph.initializer.append(scale)
        if opset == 17:
            with pytest.raises(ort.InvalidGraph, match="Unrecognized attribute: epsion for operator LayerNormalization"):
                ort.InferenceSession(made.SerializeToString())
        else:
            (y,) = ort.InferenceSession(made.SerializeToString()).run(None, {"x": X})
            np.testing.assert_allclose(y, (X - X.mean()) / np.sqrt(X.var() + 1e-5), rtol=1e-5)
