"""Large graphs: the steps that making a session takes grow as the graph does, and operators take any number of operands."""

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort
from intarsia.graph.load import load
from intarsia.graph.model import Constant, Node
from intarsia.ops.framework import infer
from intarsia.passes.optimizer import optimize
from intarsia.passes.rule import Rule

PROVIDERS = ["CPUExecutionProvider", "ReferenceExecutionProvider"]
FEW, TIMES, MOST = 50, 4, 5.5  # nodes, and how many times more; how many times more lines may run then: 16 if it were squared
node = helper.make_node


def info(name: str, shape: list[Any] | None = None) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: list[Any] | None = None) -> bytes:
    graph = helper.make_graph(nodes, "large", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def layers(count: int) -> bytes:
    """MatMul, Add, Sigmoid, Softmax, one after the other."""
    nodes, value = [], "x"
    for i in range(count // 4):
        nodes += [node("MatMul", [value, "w"], [f"m{i}"]), node("Add", [f"m{i}", "b"], [f"a{i}"])]
        nodes += [node("Sigmoid", [f"a{i}"], [f"s{i}"]), node("Softmax", [f"s{i}"], [f"z{i}"])]
        value = f"z{i}"
    constants = [numpy_helper.from_array(np.ones(s, np.float32), n) for n, s in (("w", (8, 8)), ("b", (8,)))]
    return model(nodes, [info("x", ["n", 8])], [info(value)], constants)


def outputs(count: int) -> bytes:
    names = [f"y{i}" for i in range(count)]
    constants = [numpy_helper.from_array(np.float32([i, 1]), f"c{i}") for i in range(count)]
    return model(
        [node("Add", ["x", f"c{i}"], [n]) for i, n in enumerate(names)],
        [info("x", ["n", 2])],
        list(map(info, names)),
        constants,
    )


def inputs(count: int) -> bytes:
    names = [f"x{i}" for i in range(count)]
    nodes = [*(node("Relu", [n], [f"r{n}"]) for n in names), node("Concat", [f"r{n}" for n in names], ["y"], axis=0)]
    return model(nodes, [info(n, ["n"]) for n in names], [info("y")])


def readers(count: int) -> bytes:
    """One value that all nodes read."""
    constants = [numpy_helper.from_array(np.full((4, 4), i, np.float32), f"w{i}") for i in range(count)]
    nodes = [node("MatMul", ["x", f"w{i}"], [f"m{i}"]) for i in range(count)]
    nodes.append(node("Concat", [f"m{i}" for i in range(count)], ["y"], axis=0))
    return model(nodes, [info("x", ["n", 4])], [info("y")], constants)


def chain(count: int) -> bytes:
    names = ("Sin", "Tanh", "Abs", "Neg")
    nodes = [node(names[i % 4], [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    return model(nodes, [info("v0", ["n"])], [info(f"v{count}")])


def branched(count: int) -> bytes:
    """Two ways from each sum to the next, through a convolution that a norm follows and past it."""
    nodes, value = [], "x"
    for i in range(count // 4):
        nodes += [node("Conv", [value, "w"], [f"c{i}"]), node("Relu", [f"n{i}"], [f"r{i}"])]
        nodes.insert(-1, node("BatchNormalization", [f"c{i}", "one", "zero", "zero", "one"], [f"n{i}"]))
        nodes.append(node("Add", [f"r{i}", value], [f"s{i}"]))
        value = f"s{i}"
    weights = {"w": np.ones((4, 4, 1, 1)), "one": np.ones(4), "zero": np.zeros(4)}
    constants = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()]
    return model(nodes, [info("x", ["n", 4, 5, 5])], [info(value)], constants)


def equal(count: int) -> bytes:
    """Nodes that compute the same, all read by one."""
    nodes = [node("Sigmoid" if i % 2 else "Relu", ["x"], [f"v{i}"], name=f"node {i}") for i in range(count)]
    nodes.append(node("Concat", [f"v{i}" for i in range(count)], ["y"], axis=0))
    return model(nodes, [info("x", ["n", 4])], [info("y")])


def overridable(count: int) -> bytes:
    """Initializers that are inputs, too, as in models of old."""
    nodes = [node("Add", [f"v{i}", f"w{i}"], [f"v{i + 1}"]) for i in range(count)]
    given = [info("v0", ["n", 4]), *(info(f"w{i}", [4]) for i in range(count))]
    constants = [numpy_helper.from_array(np.full(4, i, np.float32), f"w{i}") for i in range(count)]
    return model(nodes, given, [info(f"v{count}")], constants)


def lines(run: Callable[[], object]) -> int:
    """Lines of this package that run."""
    found = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal found
        if event == "call" and "intarsia" not in frame.f_code.co_filename:
            return None
        found += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return found


GRAPHS = [layers, outputs, inputs, readers, chain, branched, equal, overridable]


@pytest.mark.parametrize("entry", ["session.compile_in_background=0", "session.first_tier_only=1"])
@pytest.mark.parametrize("make", GRAPHS, ids=lambda f: f.__name__)
def test_steps_of_making_a_session_are_linear(make: Callable[[int], bytes], entry: str) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry(*entry.split("="))
    ort.InferenceSession(make(FEW - 2), options)  # imports
    few, many = (make(count) for count in (FEW, FEW * TIMES))
    first, second = (lines(lambda source=source: ort.InferenceSession(source, options)) for source in (few, many))  # type: ignore[misc]
    assert second < first * MOST, f"{second / first:.1f} times the lines for {TIMES} times the nodes"


@pytest.mark.parametrize("make", [layers, branched, equal], ids=lambda f: f.__name__)
def test_rules_are_tried_as_often_as_there_are_nodes(make: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in calls, not in time: what is tried at a node, and how often an operator's definition is called to infer."""
    calls = Counter[str]()
    for owner, name in ((Rule, "apply"), (infer, "trace")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name), calls, name))
    for count in (400, 1600):
        graph = load(make(count))
        before = calls.copy()
        optimize(graph)
        tried, traced = (calls[name] - before[name] for name in ("apply", "trace"))
        assert tried <= 12 * count + 200, f"{tried / count:.1f} tries of a rule for each of {count} nodes"
        assert traced <= 30, f"{traced} definitions were called for {count} nodes of few operators and shapes"


def counted(function: Callable[..., Any], calls: Counter[str], name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        calls[name] += 1
        return function(*arguments, **named)

    return call


def test_a_node_that_stands_for_others_names_them_all() -> None:
    """In the order of the model, also where it is rewritten afterwards."""
    (relu,) = (n for n in optimize(load(equal(9))).graph.nodes if n.op_type == "Relu")
    assert relu.origin == ("node 0", "node 2", "node 4", "node 6", "node 8")
    graph = load(equal(4))
    graph.nodes[-1:] = [Node("Sub", ["v0", "zero"], ["a"], name="first"), Node("Concat", ["a", "v2"], ["y"], {"axis": 0})]
    graph.constants["zero"] = Constant.of("zero", np.float32(0))
    (relu,) = (n for n in optimize(graph).graph.nodes if n.op_type == "Relu")
    assert relu.origin == ("node 0", "node 2")


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("count", [97, 300, 5000])
@pytest.mark.parametrize("op_type", ["Sum", "Mean", "Max", "Min", "Concat"])
def test_many_operands(op_type: str, count: int, provider: str) -> None:
    """Sums are made from the first operand to the last: rounded as that says."""
    axis = {"axis": 0} if op_type == "Concat" else {}
    source = model(
        [node(op_type, ["x", *["z"] * (count - 1)], ["y"], **axis)], [info("x", ["n"]), info("z", ["n"])], [info("y")]
    )
    x, z = np.float32([1e8, -3]), np.float32([1.5, 0.1])
    got = ort.InferenceSession(source, providers=[provider]).run(None, {"x": x, "z": z})[0]
    terms = np.stack([x, *[z] * (count - 1)])
    expected = {
        "Sum": np.cumsum(terms, 0)[-1], "Mean": np.cumsum(terms, 0)[-1] / np.float32(count), "Max": terms.max(0),
        "Min": terms.min(0), "Concat": terms.reshape(-1),
    }[op_type]  # fmt: skip
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_many_operands_of_other_shapes_and_types() -> None:
    """Operands that broadcast, of a type whose sums are rounded to fewer digits, joined along the last axis."""
    parts = [np.full((1 + 2 * (i % 2), 1), i % 7, np.float16) for i in range(400)]
    names = [f"x{i}" for i in range(400)]
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, list(p.shape)) for n, p in zip(names, parts, strict=True)]
    y, z = (helper.make_tensor_value_info(n, TensorProto.FLOAT16, None) for n in "yz")
    thrice = [names[i] if i % 2 else f"t{i}" for i in range(400)]
    nodes = [node("Sum", names, ["y"]), *(node("Expand", [n, "s"], [f"t{i}"]) for i, n in enumerate(names) if not i % 2)]
    nodes.append(node("Concat", thrice, ["z"], axis=-1))
    source = model(nodes, given, [y, z], [numpy_helper.from_array(np.int64([3, 1]), "s")])
    found = [ort.InferenceSession(source, providers=[p]).run(None, dict(zip(names, parts, strict=True))) for p in PROVIDERS]
    total = parts[0]
    for part in parts[1:]:
        total = (total.astype(np.float32) + part).astype(np.float16)
    for summed, joined in found:
        np.testing.assert_array_equal(summed, total)
        np.testing.assert_array_equal(joined, np.concatenate([np.broadcast_to(p, (3, 1)) for p in parts], 1))
