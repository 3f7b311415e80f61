"""What of a definition becomes a kernel of its own (`providers/cpu/split.py`)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import intarsia
from intarsia.graph.dtypes import DType
from intarsia.graph.load import load
from intarsia.kernel import lang as k
from intarsia.providers.cpu.split import Piece, split_definition


def _pieces(root: k.Tensor) -> list[Piece]:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 6])
    proto = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "g", [value], [helper.make_empty_tensor_value_info("y")]
    )
    graph = load(helper.make_model(proto).SerializeToString())
    return split_definition("y", root, graph.nodes[0], graph, {})


@pytest.mark.parametrize(("places", "count"), [([0, 1, 1, 2, 2, 3], 2), ([2, 0], 1)])
def test_sums_that_are_taken_more_than_once_are_a_kernel(places: list[int], count: int) -> None:
    sums = k.reduce_sum(k.input("x", DType.FLOAT, (4, 6)), [1])
    pieces = _pieces(k.take(sums, k.constant(np.array(places, np.int64)), 0) * 2.0)
    assert len(pieces) == count
    assert pieces[-1].name == "y"


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize(("mode", "torch_mode", "a"), [("linear", "bilinear", -0.75), ("cubic", "bicubic", -0.5)])
def test_antialiased_resize_along_two_axes_as_torch(mode: str, torch_mode: str, a: float, is_open: bool) -> None:
    torch = pytest.importorskip("torch", reason="the reference of interpolation")
    x = np.random.default_rng(5).standard_normal((1, 2, 300, 260), np.float32)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, "h", "w"] if is_open else x.shape)]
    scales = helper.make_tensor("scales", TensorProto.FLOAT, [2], [0.25, 0.25])
    attributes = {"mode": mode, "antialias": 1, "axes": [2, 3], "cubic_coeff_a": a, "exclude_outside": 1}
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], **attributes)
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")], [scales])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)
    (got,) = intarsia.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    wanted = torch.nn.functional.interpolate(torch.from_numpy(x).double(), size=(75, 65), mode=torch_mode, antialias=True)
    np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-4, atol=1e-5)
