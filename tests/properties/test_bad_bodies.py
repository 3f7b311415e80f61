"""Control flow whose bodies, counts or scanned inputs do not fit: an error that says what was expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper

import intarsia as ort
from intarsia.errors import InvalidGraph, OutOfMemory

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
PAIR = np.ones(2, np.float32)
value = helper.make_tensor_value_info


def floats(name: str, shape: list[Any] | None) -> onnx.ValueInfoProto:
    return value(name, T.FLOAT, shape)


def graph(nodes: list[Any], inputs: list[Any], outputs: list[Any], name: str = "body") -> onnx.GraphProto:
    return helper.make_graph(nodes, name, inputs, outputs)


def run(provider: str, nodes: list[Any], inputs: list[Any], outputs: list[str], feeds: dict[str, Any]) -> list[Any]:
    made = graph(nodes, inputs, [floats(n, None) for n in outputs], "g")
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return ort.InferenceSession(model.SerializeToString(), providers=[provider]).run(None, feeds)


NEXT = [
    helper.make_node("Identity", ["c"], ["co"]),
    helper.make_node("Add", ["v", "v"], ["vo"]),
    helper.make_node("Add", ["v", "v"], ["s"]),
]
TAKEN = [value("i", T.INT64, []), value("c", T.BOOL, []), floats("v", [2])]
GIVEN = [value("co", T.BOOL, []), floats("vo", [2]), floats("s", [2])]
DOUBLING = graph(NEXT, TAKEN, GIVEN)


def loop(provider: str, body: Any, trips: Any = 3) -> list[Any]:
    node = helper.make_node("Loop", ["M", "", "x0"], ["x", "ys"], body=body, name="L")
    m = np.asarray(trips, None if isinstance(trips, float) else np.int64)
    kind = value("M", int(helper.np_dtype_to_tensor_dtype(m.dtype)), list(m.shape))
    return run(provider, [node], [kind, floats("x0", [2])], ["x", "ys"], {"M": m, "x0": PAIR})


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("trips", [2**60, 2**63 - 1])
def test_a_loop_that_would_stack_more_than_memory(provider: str, trips: int) -> None:
    with pytest.raises(OutOfMemory, match="MiB"):
        loop(provider, DOUBLING, trips)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_loop_of_a_negative_count_runs_no_iteration(provider: str) -> None:
    x, ys = loop(provider, DOUBLING, -(2**63))
    assert x.tolist() == [1, 1] and len(ys) == 0


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("operands", [["M"], ["M", ""]])
def test_a_loop_that_is_given_a_count_alone(operands: list[str], provider: str) -> None:
    inner = graph([NEXT[0], helper.make_node("Add", ["x", "x"], ["s"])], TAKEN[:2], [GIVEN[0], GIVEN[2]])
    inputs = [value("M", T.INT64, []), floats("x", [2])]
    node = helper.make_node("Loop", operands, ["ys"], body=inner)
    (ys,) = run(provider, [node], inputs, ["ys"], {"M": np.int64(3), "x": PAIR})
    assert ys.tolist() == [[2, 2]] * 3


INTEGER = helper.make_node("Cast", ["v"], ["vo"], to=T.INT64)
LOOPS: dict[str, tuple[Any, Any, str]] = {
    "few outputs": (graph(NEXT, TAKEN, GIVEN[:2]), 3, "body gives 2 outputs; expected 3"),
    "no outputs": (graph(NEXT, TAKEN, []), 3, "body gives 0 outputs; expected 3"),
    "many inputs": (graph(NEXT, [*TAKEN, floats("w", [2])], GIVEN), 3, "body takes 4 inputs; expected 3"),
    "no graph": (3, 3, "body.*expected a graph"),
    "two counts": (DOUBLING, [2, 3], r"M is INT64 of shape \[2\]; expected one int64"),
    "a float count": (DOUBLING, 2.0, "input 0 .* is double; expected int64"),
    "conditions": (
        graph([helper.make_node("Greater", ["v", "v"], ["co"]), *NEXT[1:]], TAKEN, [value("co", T.BOOL, [2]), *GIVEN[1:]]), 3,
        r"the body's condition is BOOL of shape \[2\]; expected one bool",
    ),
    "another type": (
        graph([NEXT[0], INTEGER, NEXT[2]], TAKEN, [GIVEN[0], value("vo", T.INT64, [2]), GIVEN[2]]), 3,
        r"carried value 0 starts as tensor\(float\); body makes it tensor\(int64\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("case", LOOPS)
def test_loops(case: str, provider: str) -> None:
    body, trips, message = LOOPS[case]
    with pytest.raises(InvalidGraph, match=message):
        loop(provider, body, trips)


ADD = graph([helper.make_node("Add", ["x", "x"], ["a"])], [], [floats("a", [2])], "add")
TWICE = graph([helper.make_node("Add", ["x", "x"], ["f"])], [], [floats("f", [2]), floats("f", [2])], "twice")
NONE = graph([], [], [], "none")
TAKING = graph([helper.make_node("Identity", ["z"], ["d"])], [floats("z", [2])], [floats("d", [2])], "taking")
WHOLE = graph([helper.make_node("Cast", ["x"], ["e"], to=T.INT64)], [], [value("e", T.INT64, [2])], "whole")
BRANCHES: list[tuple[Any, Any, Any, str]] = [
    (ADD, WHOLE, True, r"output 0 is tensor\(float\) of then_branch and tensor\(int64\) of else_branch"),
    (ADD, NONE, True, "else_branch gives 0 outputs; expected 1"),
    (NONE, ADD, True, "then_branch gives 0 outputs; expected 1"),
    (TAKING, ADD, False, "then_branch takes 1 inputs; expected 0"),
    (TWICE, ADD, False, "then_branch gives 2 outputs, else_branch 1; expected as many"),
    (ADD, ADD, [True, False], r"cond is BOOL of shape \[2\]; expected one bool"),
    (ADD, ADD, 1.0, "input 0 .* is double; expected bool"),
    (ADD, None, True, "required attribute 'else_branch' is missing"),
]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("case", range(len(BRANCHES)))
def test_branches(case: int, provider: str) -> None:
    then, otherwise, condition, message = BRANCHES[case]
    cond = np.asarray(condition)
    given = {"then_branch": then, "else_branch": otherwise}
    node = helper.make_node("If", ["b"], ["y"], name="I", **{k: v for k, v in given.items() if v is not None})
    inputs = [value("b", int(helper.np_dtype_to_tensor_dtype(cond.dtype)), list(cond.shape)), floats("x", [2])]
    with pytest.raises(InvalidGraph, match=message):
        run(provider, [node], inputs, ["y"], {"b": cond, "x": PAIR})


UNTYPED: list[tuple[str, list[str], dict[str, Any], str]] = [
    ("If", ["b"], {"then_branch": TWICE, "else_branch": ADD}, "then_branch gives 2 outputs, else_branch 1; expected as many"),
    ("If", ["b"], {"then_branch": ADD, "else_branch": NONE}, "else_branch gives 0 outputs; expected 1"),
    ("If", ["b"], {"then_branch": TAKING, "else_branch": ADD}, "then_branch takes 1 inputs; expected 0"),
    ("Loop", ["b", ""], {"body": DOUBLING}, "body takes 3 inputs; expected 2"),
    ("Loop", ["b", "", "x"], {"body": graph(NEXT, TAKEN, GIVEN[:1])}, "body gives 1 outputs; expected 2"),
    ("Scan", ["b"], {"body": DOUBLING, "num_scan_inputs": 1}, "body takes 3 inputs; expected 1"),
    ("Scan", ["b"], {"body": TAKING, "num_scan_inputs": 2}, "num_scan_inputs is 2; expected 1 to 1"),
    ("SequenceMap", ["b"], {"body": DOUBLING}, "body takes 3 inputs; expected 1"),
]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("inside", [False, True], ids=["", "inside a loop"])
@pytest.mark.parametrize("case", range(len(UNTYPED)))
def test_bodies_of_operands_whose_types_are_not_known(case: int, inside: bool, provider: str) -> None:
    """What a body takes and gives is compared although types cannot be inferred: rules for bodies rely on it."""
    op, operands, attributes, message = UNTYPED[case]
    nodes = [helper.make_node(op, operands, ["y"], name="here", **attributes)]
    if inside:
        head = [value("trip", T.INT64, []), value("going", T.BOOL, [])]
        again = helper.make_node("Identity", ["going"], ["on"])
        body = graph([again, *nodes], head, [value("on", T.BOOL, []), floats("y", None)])
        nodes = [helper.make_node("Loop", ["M", ""], ["ys"], body=body)]
    inputs = [onnx.ValueInfoProto(name="b"), floats("x", [2]), value("M", T.INT64, [])]
    with pytest.raises(InvalidGraph, match=rf"'(\w+/)?here' \({op}\): {message}"):
        run(provider, nodes, inputs, ["ys" if inside else "y"], {"b": np.array(True), "x": PAIR, "M": np.int64(2)})


SCANNED = graph(
    [helper.make_node("Add", ["sum", "p"], ["more"]), helper.make_node("Mul", ["p", "q"], ["product"])],
    [floats("sum", [2]), floats("p", [2]), floats("q", [2])], [floats("more", [2]), floats("product", [2])],
)  # fmt: skip
SCANS: list[tuple[dict[str, Any], tuple[int, int], str]] = [
    ({}, (3, 4), r"scan inputs have lengths \[3, 4\]; expected one length"),
    ({}, (0, 3), r"scan inputs have lengths \[0, 3\]; expected one length"),
    ({"scan_input_axes": [5, 0]}, (3, 3), "scan input 0 has rank 2: axis 5 is out of range"),
    ({"scan_input_axes": [0]}, (3, 3), r"scan_input_axes is \[0\]; expected 2 values"),
    ({"scan_input_directions": [2, 0]}, (3, 3), r"scan_input_directions is \[2, 0\]; expected 2 values from 0 to 1"),
    ({"scan_input_directions": [1]}, (3, 3), r"scan_input_directions is \[1\]; expected 2 values from 0 to 1"),
    ({"scan_output_axes": [7]}, (3, 3), "scan output 0 has rank 2: axis 7 is out of range"),
    ({"scan_output_directions": [3]}, (3, 3), r"scan_output_directions is \[3\]; expected 1 values from 0 to 1"),
    ({"num_scan_inputs": 0}, (3, 3), "num_scan_inputs is 0; expected 1 to 3"),
    ({"num_scan_inputs": 99}, (3, 3), "num_scan_inputs is 99; expected 1 to 3"),
]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("static", [False, True], ids=["symbolic", "static"])
@pytest.mark.parametrize("case", range(len(SCANS)))
def test_scans(case: int, static: bool, provider: str) -> None:
    attributes, (a, b), message = SCANS[case]
    node = helper.make_node(
        "Scan", ["s0", "a", "b"], ["s", "ys"], name="S", body=SCANNED, **{"num_scan_inputs": 2} | attributes
    )
    inputs = [floats("s0", [2]), floats("a", [a if static else "m", 2]), floats("b", [b if static else "n", 2])]
    feeds = {"s0": PAIR, "a": np.ones((a, 2), np.float32), "b": np.ones((b, 2), np.float32)}
    with pytest.raises(InvalidGraph, match=message):
        run(provider, [node], inputs, ["s", "ys"], feeds)
