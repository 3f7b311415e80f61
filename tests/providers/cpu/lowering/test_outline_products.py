"""What of a definition becomes a kernel of its own (`providers/cpu/lowering/outline_products.py`)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import intarsia
from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.load import load
from intarsia.primitives import lang as k
from intarsia.providers.cpu.lowering.outline_products import Piece, split_definition


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


def _resized(x: np.ndarray, shape: list[int | str], **given: object) -> intarsia.InferenceSession:
    """A session of one Resize, of opset 17; `given`: its attributes, and `scales` or `sizes`."""
    kind = "scales" if "scales" in given else "sizes"
    values = given.pop(kind)
    numbers = helper.make_tensor("n", TensorProto.FLOAT if kind == "scales" else TensorProto.INT64, [x.ndim], values)
    node = helper.make_node("Resize", ["x", "", "n"] if kind == "scales" else ["x", "", "", "n"], ["y"], **given)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")], [numbers])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return intarsia.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize(
    ("size", "mode", "torch_mode"),
    [
        ((33, 20), "linear", "bilinear"),
        ((33, 20), "cubic", "bicubic"),
        ((40, 11), "linear", "bilinear"),
        ((5, 7), "linear", "bilinear"),
        ((9, 30, 11), "linear", "trilinear"),
    ],
)
def test_resize_axis_by_axis_as_torch(size: tuple[int, ...], mode: str, torch_mode: str, is_open: bool) -> None:
    torch = pytest.importorskip("torch", reason="the reference of interpolation")
    x = np.random.default_rng(6).standard_normal((2, 3, *(8, 10, 9)[: len(size)]), np.float32)
    session = _resized(x, [2, 3, *"abc"[: len(size)]] if is_open else list(x.shape), mode=mode, sizes=[2, 3, *size])
    wanted = torch.nn.functional.interpolate(torch.from_numpy(x).double(), size=size, mode=torch_mode).numpy()
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)


def test_resize_of_open_sizes_that_change() -> None:
    x = np.ones((1, 2, 6, 5), np.float32)
    session = _resized(x, ["n", 2, "h", "w"], mode="linear", scales=[1.0, 1.0, 2.0, 2.0])
    for shape in ((1, 2, 6, 5), (2, 2, 3, 4), (1, 2, 0, 4), (1, 2, 6, 5)):
        got = session.run(None, {"x": np.ones(shape, np.float32)})[0]
        assert got.shape == (*shape[:2], 2 * shape[2], 2 * shape[3])
        np.testing.assert_allclose(got, 1.0, rtol=1e-6)


def test_rows_that_open_sizes_decide_are_tables() -> None:
    h = symbol("h")
    x = k.input("x", DType.FLOAT, (h, 6))
    ratio = k.iota((h,), 0, DType.FLOAT) / k.cast(k.size(h), DType.FLOAT)
    pieces = _pieces(x * k.reshape(ratio, [h, 1]))
    assert [piece.root.prim for piece in pieces] == ["div", "mul"]
    assert len(_pieces(k.input("x", DType.FLOAT, (h,)) * k.iota((h,), 0, DType.FLOAT))) == 1
