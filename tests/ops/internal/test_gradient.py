"""ai.onnx.preview.training::Gradient against torch.autograd, on the CPU and the reference provider."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import pytest

import intarsia
from intarsia.errors import InvalidGraph, NotImplemented
from intarsia.graph.model import Node
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node

torch = pytest.importorskip("torch", reason="gradients are compared with torch.autograd")

from gradient_cases import Case, cases, normal  # noqa: E402

TRAINING = "ai.onnx.preview.training"
PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")


def gradient(xs: Sequence[str], y: str, zs: Sequence[str] = (), inputs: Sequence[str] = (), name: str = "g") -> onnx.NodeProto:
    attributes: dict[str, Any] = {"xs": list(xs), "y": y, **({"zs": list(zs)} if zs else {})}
    given = list(inputs) or [*xs, *zs]
    return oh.make_node("Gradient", given, [f"d_{x}" for x in xs], name=name, domain=TRAINING, **attributes)


def model(
    nodes: Sequence[onnx.NodeProto], feeds: dict[str, np.ndarray], outputs: Sequence[str],
    constants: dict[str, Any] | None = None, shapes: dict[str, Sequence[Any]] | None = None, opset: int = 22,
) -> onnx.ModelProto:  # fmt: skip
    inputs = [
        oh.make_tensor_value_info(n, oh.np_dtype_to_tensor_dtype(x.dtype), (shapes or {}).get(n, x.shape))
        for n, x in feeds.items()
    ]
    graph = oh.make_graph(
        nodes, "g", inputs, [oh.make_tensor_value_info(o, onnx.TensorProto.FLOAT, None) for o in outputs],
        [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in (constants or {}).items()],
    )  # fmt: skip
    imports = [oh.make_opsetid("", opset), oh.make_opsetid(TRAINING, 1), oh.make_opsetid("com.microsoft", 1)]
    return oh.make_model(graph, opset_imports=imports, ir_version=10)


def run(proto: onnx.ModelProto, feeds: dict[str, np.ndarray], provider: str) -> list[np.ndarray]:
    session = intarsia.InferenceSession(proto.SerializeToString(), providers=[provider])
    return [np.asarray(y) for y in session.run(None, feeds)]


def assemble(case: Case) -> tuple[onnx.ModelProto, dict[str, np.ndarray], np.ndarray]:
    feeds = {f"x{i}": v for i, v in enumerate(case.feeds)}
    names, constants = list(feeds), {}
    for i, value in enumerate(case.constants):
        if isinstance(value, tuple):
            names.insert(1, f"c{i}")
            constants[f"c{i}"] = value[1]
        elif value is None:
            names.append("")
        else:
            names.append(f"c{i}")
            constants[f"c{i}"] = value
    if case.op == "Where":
        names.insert(0, "condition")
        constants["condition"] = case.feeds[0] > case.feeds[1]
    with torch.no_grad():
        shape = tuple(case.twin(*(torch.tensor(v) for v in case.feeds)).shape)
    weights = normal(*shape)
    outputs = ["h", "unused"] if case.op == "TopK" else ["h"]
    nodes = [
        oh.make_node(case.op, names, outputs, domain=case.domain, name="op", **case.attributes),
        oh.make_node("Mul", ["h", "weights"], ["y"]),
        gradient(list(feeds), "y"),
    ]
    return model(nodes, feeds, [f"d_{n}" for n in feeds], {**constants, "weights": weights}, opset=case.opset), feeds, weights


@pytest.mark.parametrize("case", cases(), ids=lambda c: c.id or c.op)
def test_operator(case: Case) -> None:
    proto, feeds, weights = assemble(case)
    leaves = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in feeds.values()]
    expected = torch.autograd.grad((case.twin(*leaves) * torch.tensor(weights, dtype=torch.float64)).sum(), leaves)
    for provider in PROVIDERS:
        for found, wanted in zip(run(proto, feeds, provider), expected, strict=True):
            assert found.dtype == np.float32
            scale = max(1.0, float(wanted.abs().max()))
            np.testing.assert_allclose(
                found, wanted.numpy(), rtol=case.tolerance, atol=case.tolerance * scale, err_msg=provider
            )


W, X0 = normal(3, 2), normal(4, 3)
NETWORK = [
    oh.make_node("MatMul", ["x", "w"], ["h"]), oh.make_node("Tanh", ["h"], ["t"]), oh.make_node("Mul", ["t", "h"], ["p"]),
    oh.make_node("ReduceSum", ["p"], ["y"], keepdims=0),
]  # fmt: skip


def network(x: Any, w: Any) -> Any:
    h = x @ w
    return (h.tanh() * h).sum()


def torch_gradient(function: Callable[..., Any], *values: np.ndarray) -> list[np.ndarray]:
    leaves = [torch.tensor(v, requires_grad=True) for v in values]
    return [g.numpy() for g in torch.autograd.grad(function(*leaves), leaves)]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_values_that_are_read_twice(provider: str) -> None:
    found = run(model([*NETWORK, gradient(["x", "w"], "y")], {"x": X0, "w": W}, ["d_x", "d_w"]), {"x": X0, "w": W}, provider)
    for a, b in zip(found, torch_gradient(network, X0, W), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_symbolic_sizes(provider: str) -> None:
    proto = model([*NETWORK, gradient(["x", "w"], "y")], {"x": X0, "w": W}, ["d_x", "d_w"], shapes={"x": ["batch", 3]})
    session = intarsia.InferenceSession(proto.SerializeToString(), providers=[provider])
    for rows in (1, 7):
        x = normal(rows, 3)
        for a, b in zip(session.run(None, {"x": x, "w": W}), torch_gradient(network, x, W), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_outputs_that_are_not_wanted() -> None:
    node = gradient(["x", "w"], "y")
    node.output[0] = ""
    found = run(model([*NETWORK, node], {"x": X0, "w": W}, ["d_w"]), {"x": X0, "w": W}, PROVIDERS[0])
    np.testing.assert_allclose(found[0], torch_gradient(network, X0, W)[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_intermediate_tensor(provider: str) -> None:
    found = run(model([*NETWORK, gradient(["h"], "y")], {"x": X0, "w": W}, ["d_h"]), {"x": X0, "w": W}, provider)
    expected = torch_gradient(lambda h: (h.tanh() * h).sum(), X0 @ W)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_at_other_values(provider: str) -> None:
    """The inputs are not the tensors that xs and zs name: the graph is computed again from them."""
    x1, w1 = normal(4, 3), normal(3, 2)
    feeds = {"x": X0, "w": W, "x1": x1, "w1": w1}
    nodes = [*NETWORK, gradient(["x"], "y", ["w"], inputs=["x1", "w1"])]
    found = run(model(nodes, feeds, ["y", "d_x"]), feeds, provider)
    np.testing.assert_allclose(found[0], network(torch.tensor(X0), torch.tensor(W)), rtol=1e-4)
    np.testing.assert_allclose(found[1], torch_gradient(network, x1, w1)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_second_derivative(provider: str) -> None:
    nodes = [*NETWORK, gradient(["x", "w"], "y")]
    second = oh.make_node("Gradient", ["x"], ["dd"], name="second", domain=TRAINING, xs=["x"], zs=["w"], y="d_w")
    second.input.append("w")
    found = run(model([*nodes, second], {"x": X0, "w": W}, ["dd"]), {"x": X0, "w": W}, provider)
    x, w = torch.tensor(X0, requires_grad=True), torch.tensor(W, requires_grad=True)
    (first,) = torch.autograd.grad(network(x, w), [w], create_graph=True)
    np.testing.assert_allclose(found[0], torch.autograd.grad(first.sum(), [x])[0].numpy(), rtol=1e-4, atol=1e-5)


def test_third_derivative() -> None:
    nodes = [oh.make_node("Exp", ["x"], ["e"]), oh.make_node("Mul", ["e", "x"], ["y"]), gradient(["x"], "y")]
    for name, y in (("dd", "d_x"), ("ddd", "dd")):
        nodes.append(oh.make_node("Gradient", ["x"], [name], name=name, domain=TRAINING, xs=["x"], y=y))
    found = run(model(nodes, {"x": X0}, ["dd", "ddd"]), {"x": X0}, PROVIDERS[0])
    np.testing.assert_allclose(found[0], np.exp(X0) * (X0 + 2), rtol=1e-5)
    np.testing.assert_allclose(found[1], np.exp(X0) * (X0 + 3), rtol=1e-5)


def test_independent_tensor_and_the_tensor_itself() -> None:
    nodes = [
        oh.make_node("Exp", ["x"], ["y"]),
        gradient(["x", "z"], "y"),
        oh.make_node("Gradient", ["y"], ["one"], domain=TRAINING, xs=["y"], y="y"),
    ]
    found = run(model(nodes, {"x": X0, "z": W}, ["d_x", "d_z", "one"]), {"x": X0, "z": W}, PROVIDERS[0])
    np.testing.assert_allclose(found[0], np.exp(X0), rtol=1e-5)
    np.testing.assert_array_equal(found[1], np.zeros_like(W))
    np.testing.assert_array_equal(found[2], np.ones_like(X0))


def test_relu_has_no_derivative_at_zero() -> None:
    x = np.array([-1, 0, 2], np.float32)
    found = run(model([oh.make_node("Relu", ["x"], ["y"]), gradient(["x"], "y")], {"x": x}, ["d_x"]), {"x": x}, PROVIDERS[0])
    assert found[0].tolist() == [0, 0, 1]


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-10), (np.float16, 1e-2)])
def test_other_types(dtype: Any, tolerance: float) -> None:
    x, w = X0.astype(dtype), W.astype(dtype)
    proto = model([*NETWORK, gradient(["x", "w"], "y")], {"x": x, "w": w}, ["d_x", "d_w"])
    for output in proto.graph.output:
        output.type.tensor_type.elem_type = oh.np_dtype_to_tensor_dtype(np.dtype(dtype))
    for a, b in zip(
        run(proto, {"x": x, "w": w}, PROVIDERS[0]), torch_gradient(network, x.astype("f8"), w.astype("f8")), strict=True
    ):
        assert a.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_through_a_function() -> None:
    body = [oh.make_node("Sin", ["a"], ["s"]), oh.make_node("Mul", ["s", "a"], ["b"])]
    proto = model([oh.make_node("F", ["x"], ["y"], domain="own"), gradient(["x"], "y")], {"x": X0}, ["d_x"])
    proto.functions.append(oh.make_function("own", "F", ["a"], ["b"], body, [oh.make_opsetid("", 22)]))
    proto.opset_import.append(oh.make_opsetid("own", 1))
    np.testing.assert_allclose(run(proto, {"x": X0}, PROVIDERS[0])[0], np.sin(X0) + X0 * np.cos(X0), rtol=1e-4, atol=1e-6)


def test_gradient_descent_in_a_loop() -> None:
    """Four steps of x -= 0.1 d(x^2)/dx."""
    body = oh.make_graph(
        [
            oh.make_node("Mul", ["v", "v"], ["square"]),
            oh.make_node("Gradient", ["v"], ["slope"], domain=TRAINING, xs=["v"], y="square"),
            oh.make_node("Mul", ["slope", "rate"], ["step"]),
            oh.make_node("Sub", ["v", "step"], ["next"]),
            oh.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [
            oh.make_tensor_value_info("i", onnx.TensorProto.INT64, []),
            oh.make_tensor_value_info("go", onnx.TensorProto.BOOL, []),
            oh.make_tensor_value_info("v", onnx.TensorProto.FLOAT, [4, 3]),
        ],
        [
            oh.make_tensor_value_info("on", onnx.TensorProto.BOOL, []),
            oh.make_tensor_value_info("next", onnx.TensorProto.FLOAT, [4, 3]),
        ],
    )
    constants = {"n": np.int64(4), "true": np.bool_(True), "rate": np.float32(0.1)}
    proto = model([oh.make_node("Loop", ["n", "true", "x"], ["y"], body=body)], {"x": X0}, ["y"], constants)
    np.testing.assert_allclose(run(proto, {"x": X0}, PROVIDERS[0])[0], X0 * 0.8**4, rtol=1e-5)


def test_without_optimisation() -> None:
    options = intarsia.SessionOptions()
    options.graph_optimization_level = intarsia.GraphOptimizationLevel.ORT_DISABLE_ALL
    proto = model([*NETWORK, gradient(["w"], "y", ["x"])], {"x": X0, "w": W}, ["d_w"])
    session = intarsia.InferenceSession(proto.SerializeToString(), options)
    np.testing.assert_allclose(session.run(None, {"x": X0, "w": W})[0], torch_gradient(network, X0, W)[1], rtol=1e-4, atol=1e-5)


def load(nodes: Sequence[onnx.NodeProto], feeds: dict[str, np.ndarray] | None = None) -> None:
    intarsia.InferenceSession(model(nodes, feeds or {"x": X0}, [nodes[-1].output[0]]).SerializeToString())


def test_operator_without_a_derivative() -> None:
    texts = [oh.make_node("Cast", ["x"], ["t"], to=8), oh.make_node("Cast", ["t"], ["y"], to=1), gradient(["x"], "y")]
    load(texts)  # the way leads through strings, which no derivative passes: it is zero
    nodes = [oh.make_node("Unique", ["x"], ["y"], name="u"), gradient(["x"], "y")]
    with pytest.raises(NotImplemented, match="Unique of node 'u', between xs and 'y', has no derivative"):
        load(nodes)
    nodes = [oh.make_node("Unheard", ["x"], ["y"], name="u"), gradient(["x"], "y")]
    with pytest.raises(NotImplemented, match=r"ai.onnx::Unheard \(version 22\), node 'u'"):
        load(nodes)


def test_integers_have_no_derivative() -> None:
    count = {"x": np.arange(3)}
    with pytest.raises(NotImplemented, match=r"'x' is a .*; only floating point tensors have a derivative"):
        load([oh.make_node("Neg", ["x"], ["y"]), gradient(["x"], "y")], count)


def test_complex_numbers_have_no_derivative() -> None:
    from intarsia.graph.dtypes import DType
    from intarsia.primitives import lang as k
    from intarsia.primitives.autodiff import gradient as differentiate

    x = k.input(0, DType.FLOAT, (2,))
    bits = k.bitcast(k.bitcast(x, DType.INT32), DType.FLOAT)
    assert differentiate([bits], [x], [x]) == [None]  # integers pass nothing on
    assert differentiate([k.Tensor("unheard", (x,), (), DType.FLOAT, (2,))], [None], [x]) == [None]
    with pytest.raises(k.DefinitionError, match=r"the primitive unheard of .* has no derivative"):
        differentiate([k.Tensor("unheard", (x,), (), DType.FLOAT, (2,))], [x], [x])


def test_node_without_its_graph() -> None:
    node = Node("Gradient", ["x"], ["d"], {"xs": ["x"], "y": "y"}, TRAINING, version=1)
    with pytest.raises(InvalidGraph, match="the gradient of 'y' is known only in the graph that computes it"):
        evaluate_node(node, [X0], registry())


def test_attributes_and_inputs_are_checked() -> None:
    exp = oh.make_node("Exp", ["x"], ["y"])
    with pytest.raises(InvalidGraph, match="required attribute 'y' is missing"):
        load([exp, oh.make_node("Gradient", ["x"], ["d"], domain=TRAINING, xs=["x"])])
    with pytest.raises(InvalidGraph, match="name 1 tensors, but it has 2 inputs; expected one for each"):
        load([exp, gradient(["x"], "y", inputs=["x", "x"])])
    with pytest.raises(InvalidGraph, match="it has 2 outputs for 1 tensors in xs"):
        load([exp, oh.make_node("Gradient", ["x"], ["d", "e"], domain=TRAINING, xs=["x"], y="y")])
    with pytest.raises(InvalidGraph, match="no tensor 'z' is computed before it"):
        load([exp, gradient(["x"], "z")])
    with pytest.raises(InvalidGraph, match="no tensor 'z' is computed before it"):
        load([exp, gradient(["x"], "z"), oh.make_node("Neg", ["y"], ["z"])])
    with pytest.raises(InvalidGraph, match="no tensor 'd_x' is computed before it"):
        load([exp, gradient(["x"], "d_x")])


def test_a_model_written_out_is_not_saved(tmp_path: Any) -> None:
    options = intarsia.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "m.onnx")
    proto = model([oh.make_node("Exp", ["x"], ["y"]), gradient(["x"], "y")], {"x": X0}, ["d_x"])
    with pytest.raises(NotImplemented, match=r"Gradient was written out.*cannot be saved"):
        intarsia.InferenceSession(proto.SerializeToString(), options)
