"""Products whose operands are constants of another type, of unusual shapes, or captured by a body."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from cpu_models import check
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort
from intarsia.errors import RunTimeout


def _run(nodes: list[Any], feed: dict[str, np.ndarray], constants: dict[str, np.ndarray], shapes: dict[str, Any]) -> np.ndarray:
    element = helper.np_dtype_to_tensor_dtype
    inputs = [helper.make_tensor_value_info(n, element(v.dtype), shapes.get(n, v.shape)) for n, v in feed.items()]
    out = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(next(iter(feed.values())).dtype), None)
    graph = helper.make_graph(nodes, "g", inputs, [out], [numpy_helper.from_array(v, n) for n, v in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feed)[0]


def _random(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("constant", ["", "a", "b", "ac", "bc"])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_half_products_with_constants_on_either_side(constant: str, batch: tuple[int, ...]) -> None:
    arrays = {"a": _random(*batch, 5, 20, dtype=np.float16), "b": _random(*batch, 20, 7, dtype=np.float16)}
    arrays["c"] = _random(7, dtype=np.float16)
    nodes = [helper.make_node("MatMul", ["a", "b"], ["p"]), helper.make_node("Add", ["p", "c"], ["y"])]
    feed = {n: v for n, v in arrays.items() if n not in constant}
    y = _run(nodes, feed, {n: v for n, v in arrays.items() if n in constant}, {})
    a, b, c = (arrays[n].astype(np.float64) for n in "abc")
    np.testing.assert_allclose(y, a @ b + c, atol=2e-2)


def test_half_convolution_by_constant_weights() -> None:
    x, w = _random(1, 2, 6, 6, dtype=np.float16), _random(4, 2, 3, 3, dtype=np.float16)
    y = _run([helper.make_node("Conv", ["x", "w"], ["y"])], {"x": x}, {"w": w}, {})
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (2, 3))
    np.testing.assert_allclose(y, np.einsum("nchwij,mcij->nmhw", windows, w.astype(np.float64)), atol=2e-2)


@pytest.mark.parametrize("c", [(7,), (1,), (5, 1), (1, 7), (5, 7), ()])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm_adds_a_c_of_any_shape_that_broadcasts(c: tuple[int, ...], named: bool, transposed: int) -> None:
    a, b, bias = _random(5, 9), _random(7, 9) if transposed else _random(9, 7), _random(*c)
    nodes = [helper.make_node("Gemm", ["a", "b", "c"], ["z"], transB=transposed, beta=0.5)]
    nodes.append(helper.make_node("Relu", ["z"], ["y"]))
    shapes = {n: [f"{n}{i}" for i in range(v.ndim)] for n, v in (("a", a), ("b", b), ("c", bias))} if named else {}
    y = _run(nodes, {"a": a, "b": b, "c": bias}, {}, shapes)
    np.testing.assert_allclose(y, np.maximum(a @ (b.T if transposed else b) + 0.5 * bias, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("then", [True, False])
def test_a_branch_with_captured_weights(then: bool) -> None:
    w, b, x = _random(8, 8), _random(8), _random(3, 8)

    def branch(name: str, op: str) -> Any:
        nodes = [
            helper.make_node("Gemm", ["x", "w", "b"], [f"{name}z"], transB=1), helper.make_node(op, [f"{name}z"], [f"{name}y"])
        ]  # fmt: skip
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}y", TensorProto.FLOAT, None)])

    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=branch("t", "Relu"), else_branch=branch("e", "Neg"))]
    y = _run(nodes, {"x": x, "c": np.array(then)}, {"w": w, "b": b}, {"x": ["n", 8]})
    z = x @ w.T + b
    np.testing.assert_allclose(y, np.maximum(z, 0) if then else -z, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_product_with_a_constant_vector(dtype: type) -> None:
    a, v = _random(5, 9, dtype=dtype), _random(9, dtype=dtype)
    np.testing.assert_allclose(_run([helper.make_node("MatMul", ["a", "v"], ["y"])], {"a": a}, {"v": v}, {}), a @ v, rtol=1e-4)


@pytest.mark.parametrize("operand", ["c", "r"])
def test_an_operand_per_row_is_not_one_per_column(operand: str) -> None:
    """A vector as long as the result is wide, added per column or, under another shape, per row."""
    text = "g (float[2,4,3] x, float[3,4] w, float[4] b) => (float[2,4,4] y) <int64[2] s = {4, 1}> { p = MatMul(x, w)  "
    text += "y = Add(p, b) }" if operand == "c" else "r = Reshape(b, s)  y = Add(p, r) }"
    rng = np.random.default_rng(4)
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 4, 3), (3, 4), (4,)))
    check(text, {"x": x, "w": w, "b": b})
    text = "g (float[2,3,3] x, float[3,4,2] w, float[4] b) => (float[2,4,4] y) { y = ConvTranspose(x, w, b) }"
    check(text, {"x": x[:, :3], "w": rng.standard_normal((3, 4, 2)).astype(np.float32), "b": b})


def test_product_after_one_that_was_stopped() -> None:
    """What threads claim of a step is as it was before the run that was stopped in it."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((1024, 1024)).astype(np.float32)
    x = rng.standard_normal((2048, 1024)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x" if i == 0 else f"y{i - 1}", "w"], [f"y{i}"]) for i in range(8)]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y7", TensorProto.FLOAT, x.shape)], [numpy_helper.from_array(w / 32, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": x})[0]
    for seconds in (0.001, 0.004, 0.02):
        with contextlib.suppress(RunTimeout):
            session.run(None, {"x": x}, timeout=seconds)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)
