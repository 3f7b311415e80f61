"""If, Loop, Scan, SequenceMap: ONNX's cases, types of loop-carried values, older versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from intarsia.errors import Fail, InvalidGraph
from intarsia.graph.dims import Expr, symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.load import load
from intarsia.graph.model import Graph, TensorType, Value
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node
from intarsia.ops.framework.infer import infer
from intarsia.testing.cases import suite

CONTROL = ("If", "Loop", "Scan", "SequenceMap")


def run(
    graph: Graph, inputs: Sequence[Any], outer: Mapping[str, Any] | None = None, opsets: Mapping[str, int] | None = None
) -> list[Any]:
    """A graph by its nodes' definitions; subgraphs see the values around them."""
    opsets = graph.opset_imports or opsets or {}
    values = dict(outer or {}) | {name: c.numpy() for name, c in graph.constants.items()}
    values |= dict(zip(graph.input_names(), inputs, strict=True))

    def run_body(body: Graph, given: Sequence[Any]) -> list[Any]:
        return run(body, given, values, opsets)

    for node in graph.nodes:
        resolved = node.copy(version=node.version or opsets.get(node.domain, 1))
        arguments = [values[n] if n else None for n in node.inputs]
        outputs = evaluate_node(resolved, arguments, registry(), run_body)
        values.update({n: v for n, v in zip(node.outputs, outputs, strict=True) if n})
    return [values[n] for n in graph.output_names()]


def control_cases() -> dict[str, Any]:
    return {name: c for name, c in suite("node").items() if any(n.op_type in CONTROL for n in c.model.graph.node)}


CASES = control_cases()


def same(actual: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert isinstance(actual, list)
        for a, e in zip(actual, expected, strict=True):
            same(a, e)
    elif expected is None:
        assert actual is None
    else:
        expected = onnx.numpy_helper.to_array(expected) if isinstance(expected, onnx.TensorProto) else np.asarray(expected)
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    graph = load(CASES[name].model)
    for inputs, outputs in CASES[name].data_sets:
        for actual, expected in zip(run(graph, inputs), outputs, strict=True):
            same(actual, expected)


@pytest.mark.parametrize("name", CASES)
def test_types(name: str) -> None:
    case = CASES[name]
    graph = load(case.model)
    types = infer(graph, registry()).types
    for value, array in zip(graph.outputs, case.data_sets[0][1], strict=True):
        kind = types.get(value.name)
        if isinstance(kind, TensorType) and kind.shape is not None:
            assert kind.dtype is DType.of(np.asarray(array).dtype)
            assert len(kind.shape) == np.ndim(array)
            assert all(isinstance(d, Expr) or d == n for d, n in zip(kind.shape, np.shape(array), strict=True))


def tensor(name: str, kind: int, shape: Sequence[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def growing_loop() -> Graph:
    """x, y = Loop(trips, true, x): x <- Concat(x, x0), y collects Size of x."""
    body = helper.make_graph(
        [
            helper.make_node("Concat", ["x", "x0"], ["grown"], axis=0),
            helper.make_node("Identity", ["going"], ["still"]),
            helper.make_node("Identity", ["i"], ["step"]),
        ],
        "body",
        [tensor("i", TensorProto.INT64, []), tensor("going", TensorProto.BOOL, []), tensor("x", TensorProto.FLOAT, None)],
        [
            tensor("still", TensorProto.BOOL, []),
            tensor("grown", TensorProto.FLOAT, None),
            tensor("step", TensorProto.INT64, []),
        ],
    )
    node = helper.make_node("Loop", ["trips", "", "x0"], ["x", "steps"], body=body)
    graph = helper.make_graph(
        [node],
        "g",
        [tensor("trips", TensorProto.INT64, []), tensor("x0", TensorProto.FLOAT, ["n", 3])],
        [tensor("x", TensorProto.FLOAT, None), tensor("steps", TensorProto.INT64, None)],
    )
    return load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def test_loop_carried_size_that_grows_becomes_a_symbol() -> None:
    graph = growing_loop()
    types = infer(graph, registry()).types
    grown = types["x"]
    assert isinstance(grown, TensorType)
    assert grown.shape is not None
    assert isinstance(grown.shape[0], Expr)
    assert grown.shape[0] != symbol("n")
    assert grown.shape[1] == 3
    assert isinstance(types["steps"], TensorType)
    assert len(types["steps"].shape or ()) == 1


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_loop_stacks_scan_outputs(trips: int) -> None:
    x, steps = run(growing_loop(), [np.array(trips, np.int64), np.ones((2, 3), np.float32)])
    assert x.shape == (2 * (trips + 1), 3)
    assert steps.dtype == np.int64
    np.testing.assert_array_equal(steps, np.arange(trips))


def branches(then_shape: Sequence[int], else_shape: Sequence[int]) -> Graph:
    def branch(name: str, shape: Sequence[int]) -> onnx.GraphProto:
        value = helper.make_tensor("v", TensorProto.FLOAT, shape, np.zeros(shape, np.float32).ravel().tolist())
        return helper.make_graph([helper.make_node("Constant", [], [name], value=value)], name, [], [tensor(name, 1, None)])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("a", then_shape), else_branch=branch("b", else_shape))
    graph = helper.make_graph([node], "g", [tensor("c", TensorProto.BOOL, [])], [tensor("y", TensorProto.FLOAT, None)])
    return load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def test_if_branches_of_different_shapes() -> None:
    kind = infer(branches([2, 3], [2, 5]), registry()).types["y"]
    assert isinstance(kind, TensorType)
    assert kind.shape is not None
    assert kind.shape[0] == 2
    assert isinstance(kind.shape[1], Expr)
    assert infer(branches([2], [2, 5]), registry()).types["y"] == TensorType(DType.FLOAT)
    (y,) = run(branches([2, 3], [2, 5]), [np.array(False)])
    assert y.shape == (2, 5)


def running_sum(opset: int, **attributes: Any) -> Graph:
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Identity", ["t"], ["out"])],
        "body",
        [tensor("s", 1, [2]), tensor("x", 1, [2])],
        [tensor("t", 1, [2]), tensor("out", 1, [2])],
    )
    lengths = ["lengths"] if opset == 8 else []
    node = helper.make_node("Scan", [*lengths, "s0", "xs"], ["s1", "ys"], body=body, num_scan_inputs=1, **attributes)
    inputs = [tensor("s0", 1, None), tensor("xs", 1, None)]
    if opset == 8:
        inputs.insert(0, tensor("lengths", TensorProto.INT64, None))
    graph = helper.make_graph([node], "g", inputs, [tensor("s1", 1, None), tensor("ys", 1, None)])
    return load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]))


def test_scan_along_other_axes_and_backwards() -> None:
    xs = np.arange(8, dtype=np.float32).reshape(2, 4)
    graph = running_sum(11, scan_input_axes=[-1], scan_output_axes=[1], scan_input_directions=[1], scan_output_directions=[1])
    s1, ys = run(graph, [np.zeros(2, np.float32), xs])
    np.testing.assert_array_equal(s1, xs.sum(1))
    np.testing.assert_array_equal(ys, np.cumsum(xs[:, ::-1], 1)[:, ::-1])


def test_scan_8_stops_each_sequence_at_its_length() -> None:
    xs = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    s1, ys = run(running_sum(8), [np.array([1, 3]), np.zeros((2, 2), np.float32), xs])
    np.testing.assert_array_equal(s1, [xs[0, 0], xs[1].sum(0)])
    np.testing.assert_array_equal(ys[0], [xs[0, 0], [0, 0], [0, 0]])
    np.testing.assert_array_equal(ys[1], np.cumsum(xs[1], 0))


def test_body_needs_a_runner() -> None:
    graph = branches([1], [1])
    with pytest.raises(InvalidGraph, match="no runner was given"):
        evaluate_node(graph.nodes[0], [np.array(True)], registry())


def test_if_condition_has_one_element() -> None:
    with pytest.raises(InvalidGraph, match=r"cond has shape \[2\]; expected one element"):
        run(branches([1], [1]), [np.array([True, False])])


def test_scan_inputs_of_different_lengths() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"])], "body", [tensor("a", 1, []), tensor("b", 1, [])], [tensor("c", 1, [])]
    )
    node = helper.make_node("Scan", ["x", "y"], ["z"], body=body, num_scan_inputs=2)
    graph = helper.make_graph([node], "g", [tensor("x", 1, [3]), tensor("y", 1, [4])], [tensor("z", 1, None)])
    loaded = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)]))
    with pytest.raises((InvalidGraph, Fail), match=r"scan inputs have lengths \[3, 4\]; expected one length"):
        run(loaded, [np.zeros(3, np.float32), np.zeros(4, np.float32)])


def test_inputs_may_be_declared_without_types() -> None:
    graph = growing_loop()
    graph.inputs = [Value(v.name) for v in graph.inputs]
    assert "x" not in infer(graph, registry()).types or infer(graph, registry()).types["x"] is not None


@pytest.mark.parametrize("limit", ["n", '""'])
@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_loop_without_a_condition_input_ends_by_its_body(provider: str, grows: bool, limit: str) -> None:
    import onnx.parser

    import intarsia as ort

    kind, step = ("float[Q]", "Concat<axis = 0>(a, one)") if grows else ("float[1]", "Add(a, one)")
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (int64 n, float[1] x) => ({kind} y, float[K] rows)
    {{ y, rows = Loop({limit}, "", x) <body = b (int64 i, bool c, {kind} a) => (bool d, {kind} e, float f)
       {{ one = Constant<value = float[1] {{1}}>()  three = Constant<value = float {{3}}>()
         e = {step}  f = ReduceSum<keepdims = 0>(e)  d = Less(f, three) }}> }}"""
    session = ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), providers=[provider])
    y, rows = session.run(None, {"n": np.array(10), "x": np.zeros(1, np.float32)})
    assert rows.tolist() == [1, 2, 3]
    assert y.tolist() == ([0, 1, 1, 1] if grows else [3])


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_a_branch_on_an_empty_input(provider: str) -> None:
    import onnx.parser

    import intarsia as ort

    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float y)
    { s = Shape(x)  zero = Constant<value = int64[1] {0}>()  e = Equal(s, zero)  c = Squeeze(e)
      y = If(c) <then_branch = t () => (float a) { a = Constant<value = float {-1}>() },
                 else_branch = f () => (float b) { b = ReduceSum<keepdims = 0>(x) }> }"""
    session = ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), providers=[provider])
    assert [float(session.run(None, {"x": np.ones(n, np.float32)})[0]) for n in (3, 0)] == [3, -1]
