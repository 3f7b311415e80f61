"""Range and Resize whose sizes come from computed or floating-point values."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import intarsia as ort

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")


def _session(nodes: list, inputs: list, provider: str, constants: dict[str, np.ndarray]) -> ort.InferenceSession:
    from onnx import numpy_helper

    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return ort.InferenceSession(model.SerializeToString(), providers=[provider])


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("step", [1.0, 2.0, 0.5])
def test_a_range_up_to_a_size_in_floating_point(provider: str, dtype: type, step: float) -> None:
    to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Cast", ["n"], ["f"], to=to), helper.make_node("Range", ["start", "f", "step"], ["r"]),
        helper.make_node("Cast", ["r"], ["c"], to=TensorProto.FLOAT), helper.make_node("Mul", ["c", "c"], ["m"]),
        helper.make_node("ReduceSum", ["m"], ["t"], keepdims=0), helper.make_node("Add", ["m", "t"], ["y"]),
    ]  # fmt: skip
    constants = {"zero": np.array(0), "start": np.array(1, dtype), "step": np.array(step, dtype)}
    session = _session(nodes, [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])], provider, constants)
    for n in (5, 1, 8):
        r = np.arange(1, n, step) ** 2
        (y,) = session.run(None, {"x": np.zeros(n, np.float32)})
        np.testing.assert_allclose(y, r + r.sum(), rtol=1e-6)


def test_a_range_up_to_a_size_is_compiled() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Cast", ["n"], ["f"], to=TensorProto.FLOAT), helper.make_node("Range", ["start", "f", "step"], ["r"]),
        helper.make_node("Add", ["r", "x"], ["y"]),
    ]  # fmt: skip
    constants = {"zero": np.array(0), "start": np.array(0, np.float32), "step": np.array(1, np.float32)}
    x = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])]
    session = _session(nodes, x, "CPUExecutionProvider", constants)
    assert all(row["kind"] != "host" for row in session.explain().to_dict()["nodes"])
    np.testing.assert_array_equal(session.run(None, {"x": np.ones(4, np.float32)})[0], [1, 2, 3, 4])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_scales_that_are_inputs_leave_the_rank_known(provider: str) -> None:
    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["r"], mode="nearest", coordinate_transformation_mode="asymmetric",
                         nearest_mode="floor"),
        helper.make_node("ReduceSum", ["r", "axes"], ["t"], keepdims=1), helper.make_node("Add", ["r", "t"], ["y"]),
    ]  # fmt: skip
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"]),
        helper.make_tensor_value_info("scales", TensorProto.FLOAT, [2]),
    ]
    session = _session(nodes, inputs, provider, {"axes": np.array([1])})
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for scales in ((1, 2), (3, 1)):
        (y,) = session.run(None, {"x": x, "scales": np.array(scales, np.float32)})
        big = x.repeat(scales[0], 0).repeat(scales[1], 1)
        np.testing.assert_allclose(y, big + big.sum(1, keepdims=True))
    if provider == "CPUExecutionProvider":
        kinds = {row["op"]: row["kind"] for row in session.explain().to_dict()["nodes"]}
        assert kinds["Resize"] == "host" and kinds["Add"] == "compiled"
