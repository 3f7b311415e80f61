"""Scales of Upsample and Resize that a model computes as one size by another: an image "as large as that one"."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import intarsia as ort
from intarsia.errors import IntarsiaError

SIZES = ((5, 7, 10, 14), (8, 8, 4, 4), (13, 20, 25, 39), (25, 30, 13, 11), (7, 9, 20, 9), (1, 3, 5, 3))


def model(opset: int, operator: str, mode: str, of: str = "x", apart: bool = False) -> bytes:
    """`x` as large as `y`: scales are y's sizes by `of`'s, as a vector or (`apart`) each by itself."""
    nodes = []
    for name in ("y", of):
        nodes += [helper.make_node("Shape", [name], [f"{name}_shape"]), _slice(opset, f"{name}_shape", f"{name}_sizes", 2, 4)]
        nodes.append(helper.make_node("Cast", [f"{name}_sizes"], [f"{name}_floats"], to=TensorProto.FLOAT))
    nodes.append(helper.make_node("Div", ["y_floats", f"{of}_floats"], ["quotients"]))
    if apart:
        nodes += [_slice(opset, "quotients", "rows", 0, 1), _slice(opset, "quotients", "columns", 1, 2)]
    parts = ["rows", "columns"] if apart else ["quotients"]
    nodes.append(helper.make_node("Concat", ["ones", *parts], ["scales"], axis=0))
    nodes.append(helper.make_node(operator, ["x", "scales"] if opset < 11 else ["x", "", "scales"], ["z"], mode=mode))
    constants = [helper.make_tensor("ones", TensorProto.FLOAT, [2], [1, 1])]
    constants += [helper.make_tensor(f"at{i}", TensorProto.INT64, [1], [i]) for i in (0, 1, 2, 4)]
    graph = helper.make_graph(
        nodes,
        "sized",
        [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, c, f"{n}_h", f"{n}_w"])
            for n, c in (("x", 3), ("y", 1), ("w", 1))
        ],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 3, "h", "w"])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()


def _slice(opset: int, x: str, out: str, start: int, end: int) -> onnx.NodeProto:
    if opset < 10:
        return helper.make_node("Slice", [x], [out], axes=[0], starts=[start], ends=[end])
    return helper.make_node("Slice", [x, f"at{start}", f"at{end}", "at0"], [out])


def feeds(x: tuple[int, int], y: tuple[int, int], w: tuple[int, int] = (1, 1)) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {n: rng.random((1, c, *size), np.float32) for n, c, size in (("x", 3, x), ("y", 1, y), ("w", 1, w))}


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(("opset", "operator"), [(9, "Upsample"), (10, "Resize"), (13, "Resize")])
def test_as_large_as_another_image(opset: int, operator: str, mode: str, apart: bool) -> None:
    made = model(opset, operator, mode, apart=apart)
    session = ort.InferenceSession(made, providers=["CPUExecutionProvider"])
    assert all(node.kind != "host" for node in session.explain().nodes)
    peer = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    for h, w, to_h, to_w in SIZES:
        if operator == "Upsample" and (to_h < h or to_w < w):
            continue  # onnxruntime does not take it
        given = feeds((h, w), (to_h, to_w))
        (found,), (wanted,) = session.run(None, given), peer.run(None, given)
        assert found.shape == wanted.shape == (1, 3, to_h, to_w)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6)  # positions are exact here, there float32


@pytest.mark.parametrize("opset", [10, 13])
def test_between_convolutions(opset: int) -> None:
    """Layouts put scales in another order."""
    made = onnx.load_from_string(model(opset, "Resize", "nearest"))
    node, weights = made.graph.node[-1], np.random.default_rng(1).standard_normal((3, 3, 3, 3)).astype(np.float32)
    for at, (before, after) in enumerate((("x", "seen"), ("large", "z"))):
        made.graph.node.insert(at * len(made.graph.node), helper.make_node("Conv", [before, "filters"], [after], pads=[1] * 4))
    node.input[0], node.output[0] = "seen", "large"
    made.graph.initializer.append(onnx.numpy_helper.from_array(weights, "filters"))
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    assert all(n.kind != "host" for n in session.explain().nodes)
    peer = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for h, w, to_h, to_w in SIZES:
        given = feeds((h, w), (to_h, to_w))
        (found,), (wanted,) = session.run(None, given), peer.run(None, given)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["nearest", "linear"])
def test_by_the_sizes_of_a_third(kind: str) -> None:
    """What the new size is only a run knows; it is right nevertheless."""
    made = model(13, "Resize", kind, of="w")
    session = ort.InferenceSession(made, providers=["CPUExecutionProvider"])
    peer = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    given = feeds((6, 9), (8, 6), (4, 3))
    (found,), (wanted,) = session.run(None, given), peer.run(None, given)
    assert found.shape == wanted.shape == (1, 3, 12, 18)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-7)
    with pytest.raises(IntarsiaError, match="greater than 0"):
        session.run(None, feeds((6, 9), (0, 6), (4, 3)))
