"""Control flow and recurrent layers on WebGPU: what a body carries stays on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import intarsia
from intarsia.device.webgpu import missing, open_device

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no WebGPU device: {missing()}")
onnx = pytest.importorskip("onnx", reason="models are written with onnx.helper")
helper = onnx.helper
FLOAT, INT64, BOOL = 1, 7, 9


def graph(nodes: Sequence[Any], inputs: dict[str, tuple[int, Any]], outputs: dict[str, tuple[int, Any]] | Sequence[str],
          constants: dict[str, np.ndarray] | None = None) -> Any:  # fmt: skip
    kinds = outputs if isinstance(outputs, dict) else {}
    return helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, *kind) for n, kind in inputs.items()],
        [helper.make_tensor_value_info(n, *kinds.get(n, (0, None))) for n in outputs],
        [onnx.numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )  # fmt: skip


def compared(made: Any, feeds: dict[str, np.ndarray], tolerance: float = 1e-5) -> tuple[int, int]:
    """Run with every node on the device, compare with the reference; copies in and out, and bytes out, of one more run."""
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = intarsia.InferenceSession(model, options, ["WebGpuExecutionProvider"], enable_fallback=False)
    wanted = intarsia.InferenceSession(model, providers=["ReferenceExecutionProvider"]).run(None, feeds)
    for found, expected in zip(session.run(None, feeds), wanted, strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    counters = open_device().counters
    before = counters.copies_out, counters.copied_out_nbytes
    session.run(None, feeds)
    return counters.copies_out - before[0], counters.copied_out_nbytes - before[1]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_condition_is_all_that_is_read_of_an_if(sign: int) -> None:
    y = {"y": (FLOAT, [64, 64])}
    branches = {
        "then_branch": graph([helper.make_node("MatMul", ["x", "x"], ["y"])], {}, y),
        "else_branch": graph([helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Add", ["n", "t"], ["y"])], {}, y),
    }
    nodes = [
        helper.make_node("Exp", ["x"], ["t"]), helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]), helper.make_node("If", ["c"], ["y"], **branches),
        helper.make_node("Mul", ["y", "t"], ["z"]),
    ]  # fmt: skip
    made = graph(nodes, {"x": (FLOAT, [64, 64])}, ["z"], {"zero": np.float32(0).reshape(())})
    x = (sign * np.linspace(0, 1, 64 * 64, dtype=np.float32) / 8).reshape(64, 64)
    assert compared(made, {"x": x}) == (2, 64 * 64 * 4 + 1)  # the output and one bool


def body(nodes: Sequence[Any], state: Any, outputs: Sequence[str], constants: dict[str, np.ndarray] | None = None) -> Any:
    kinds = {n: (BOOL, []) if n == "on" else (FLOAT, state) for n in outputs}
    return graph(nodes, {"i": (INT64, []), "going": (BOOL, []), "h": (FLOAT, state)}, kinds, constants)


def test_a_loop_that_ends_by_its_data() -> None:
    nodes = [
        helper.make_node("MatMul", ["h", "w"], ["m"]), helper.make_node("ReduceMax", ["m"], ["top"], keepdims=0),
        helper.make_node("Less", ["top", "limit"], ["on"]), helper.make_node("Identity", ["m"], ["out"]),
    ]  # fmt: skip
    constants = {"w": (1.5 * np.eye(32)).astype(np.float32), "limit": np.float32(20).reshape(())}
    loop = helper.make_node("Loop", ["", "yes", "x"], ["y"], body=body(nodes, [32, 32], ["on", "out"], constants))
    made = graph([loop], {"x": (FLOAT, [32, 32])}, ["y"], {"yes": np.array(True)})
    x = np.random.default_rng(0).uniform(0, 1, (32, 32)).astype(np.float32)
    copies, nbytes = compared(made, {"x": x})
    assert nbytes == 32 * 32 * 4 + copies - 1  # one bool an iteration, and the output


def test_a_counted_loop_reads_nothing_and_stacks_rows() -> None:
    nodes = [
        helper.make_node("Cast", ["i"], ["f"], to=FLOAT), helper.make_node("Add", ["h", "f"], ["out"]),
        helper.make_node("Mul", ["out", "x"], ["row"]), helper.make_node("Identity", ["going"], ["on"]),
    ]  # fmt: skip
    loop = helper.make_node("Loop", ["n", "yes", "x"], ["y", "rows"], body=body(nodes, [3, 5], ["on", "out", "row"]))
    made = graph([loop], {"x": (FLOAT, [3, 5]), "n": (INT64, [])}, ["y", "rows"], {"yes": np.array(True)})
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    for count in (7, 1, 0):
        assert compared(made, {"x": x, "n": np.array(count)})[1] == 60 * (1 + count)


def test_a_loop_whose_state_grows_is_written_out() -> None:
    nodes = [helper.make_node("Concat", ["h", "x"], ["out"], axis=0), helper.make_node("Identity", ["going"], ["on"])]
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body(nodes, ["k", 4], ["on", "out"]))
    made = graph([loop], {"x": (FLOAT, [2, 4])}, ["y"], {"n": np.array(3)})
    compared(made, {"x": np.arange(8, dtype=np.float32).reshape(2, 4)})


def test_states_that_change_places() -> None:
    inputs = {"i": (INT64, []), "going": (BOOL, []), "a": (FLOAT, [4]), "b": (FLOAT, [4])}
    nodes = [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Identity", ["b"], ["next"])]
    inner = graph(nodes, inputs, {"going": (BOOL, []), "next": (FLOAT, [4]), "sum": (FLOAT, [4])})
    loop = helper.make_node("Loop", ["n", "", "x", "x"], ["y", "z"], body=inner)  # Fibonacci's numbers
    made = graph([loop], {"x": (FLOAT, [4])}, ["y", "z"], {"n": np.array(10)})
    compared(made, {"x": np.arange(4, dtype=np.float32)})


def test_scan_backward_along_other_axes() -> None:
    kinds = {"state": (FLOAT, [3]), "row": (FLOAT, [3])}
    inner = graph([helper.make_node("Add", ["s", "r"], ["state"]), helper.make_node("Mul", ["state", "r"], ["row"])],
                  {"s": (FLOAT, [3]), "r": (FLOAT, [3])}, kinds)  # fmt: skip
    scan = helper.make_node(
        "Scan", ["s0", "x"], ["s", "y"], body=inner, num_scan_inputs=1, scan_input_axes=[1], scan_input_directions=[1],
        scan_output_axes=[1], scan_output_directions=[1],
    )  # fmt: skip
    made = graph([scan], {"s0": (FLOAT, [3]), "x": (FLOAT, [3, 6])}, ["s", "y"])
    x = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)
    assert compared(made, {"s0": x[:, 0], "x": x}) == (2, 4 * (3 + 18))


@pytest.mark.parametrize(("operator", "gates", "options"), [
    ("LSTM", 4, {"direction": "bidirectional", "lengths": True}),
    ("LSTM", 4, {"clip": 0.4, "input_forget": 1, "peepholes": True}),
    ("LSTM", 4, {"activations": ["HardSigmoid", "Softsign", "Elu"], "direction": "reverse"}),
    ("GRU", 3, {"direction": "bidirectional", "linear_before_reset": 1}), ("GRU", 3, {"lengths": True}),
    ("RNN", 1, {"activations": ["LeakyRelu"], "activation_alpha": [0.1]}),
    ("RNN", 1, {"activations": ["Softplus", "ThresholdedRelu"], "direction": "bidirectional"}),
], ids=str)  # fmt: skip
def test_recurrent_layers_stay_on_the_device(operator: str, gates: int, options: dict[str, Any]) -> None:
    rng, batch, size, hidden = np.random.default_rng(0), 3, 5, 4
    steps = {"LSTM": 6, "GRU": 5, "RNN": 1}[operator]  # two steps of a loop are one trip
    options = dict(options)
    ragged, peepholes = options.pop("lengths", False), options.pop("peepholes", False)
    directions = 2 if options.get("direction") == "bidirectional" else 1
    shapes = {"w": (gates * hidden, size), "r": (gates * hidden, hidden), "b": (2 * gates * hidden,), "h0": (batch, hidden)}
    constants = {n: rng.uniform(-1, 1, (directions, *s)).astype(np.float32) for n, s in shapes.items()}
    names = ["x", "w", "r", "b", "lengths" if ragged else "", "h0"]
    if peepholes:
        names += ["", "p"]
        constants["p"] = rng.uniform(-1, 1, (directions, 3 * hidden)).astype(np.float32)
    if ragged:
        constants["lengths"] = np.array([steps, 2, 4], np.int32)
    outputs = ["y", "yh", "yc"] if operator == "LSTM" else ["y", "yh"]
    node = helper.make_node(operator, names, outputs, hidden_size=hidden, **options)
    x = rng.standard_normal((steps, batch, size)).astype(np.float32)
    copies, _ = compared(graph([node], {"x": (FLOAT, ["s", batch, size])}, outputs, constants), {"x": x})
    assert copies == len(outputs)


def test_both_directions_take_two_launches_a_step() -> None:
    rng, steps, size, hidden = np.random.default_rng(0), 9, 5, 4
    shapes = {"w": (4 * hidden, size), "r": (4 * hidden, hidden)}
    constants = {n: rng.uniform(-1, 1, (2, *s)).astype(np.float32) for n, s in shapes.items()}
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=hidden, direction="bidirectional")
    made = graph([node], {"x": (FLOAT, [steps, 1, size])}, ["y"], constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    session = intarsia.InferenceSession(model, providers=["WebGpuExecutionProvider"])
    session.run(None, {"x": rng.standard_normal((steps, 1, size)).astype(np.float32)})
    (plan,) = session._engine.whole_model().programs[0].plans
    (region,) = plan.regions
    assert (region.count, region.stop - region.start) == (steps // 2, 4)


def test_branches_of_different_sizes() -> None:
    """The plan is cut before the condition; in a body what reads sizes goes into the branches, if it can."""
    y = {"then_branch": (FLOAT, [3]), "else_branch": (FLOAT, [1])}
    bodies = {
        name: graph([helper.make_node("Slice", ["x", "zero", n], ["y"])], {}, {"y": y[name]})
        for name, n in (("then_branch", "three"), ("else_branch", "one"))
    }
    constants = {n: np.array([i]) for n, i in (("zero", 0), ("one", 1), ("three", 3))}
    nodes = [helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0), helper.make_node("Cast", ["s"], ["c"], to=BOOL),
             helper.make_node("If", ["c"], ["y"], **bodies)]  # fmt: skip
    for sign in (1, 0):
        compared(graph(nodes, {"x": (FLOAT, [5])}, ["y"], constants), {"x": np.full(5, sign, np.float32)})
    inner = [*nodes, helper.make_node("ReduceSum", ["y"], ["t"], keepdims=0), helper.make_node("Identity", ["going"], ["on"])]
    body = graph(inner, {"i": (INT64, []), "going": (BOOL, [])}, {"on": (BOOL, []), "t": (FLOAT, [])}, constants)
    loop, trips = helper.make_node("Loop", ["trips", ""], ["sums"], body=body), {"trips": np.array(2)}
    compared(graph([loop], {"x": (FLOAT, [5])}, ["sums"], trips), {"x": np.ones(5, np.float32)})
    outputs = {"on": (BOOL, []), "y": (FLOAT, [None])}
    carried = graph([*nodes, inner[-1]], {"i": (INT64, []), "going": (BOOL, []), "before": (FLOAT, [None])}, outputs, constants)
    loop = helper.make_node("Loop", ["trips", "", "x"], ["last"], body=carried)
    with pytest.raises(intarsia.NotImplemented, match="its branches give different sizes, and its condition is known only at"):
        compared(graph([loop], {"x": (FLOAT, [5])}, ["last"], trips), {"x": np.ones(5, np.float32)})


def test_what_only_sizes_decide_is_told_when_sizes_are_known() -> None:
    """A Squeeze without axes, of sizes that the inputs and a shape among them give; branches of different ranks, one of which
    a shape chooses."""
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["wide"]), helper.make_node("Squeeze", ["wide"], ["s"]),
        helper.make_node("Split", ["shape"], ["first", "rest"], num_outputs=2),
        helper.make_node("ReduceMax", ["first"], ["rows"], keepdims=0), helper.make_node("Equal", ["rows", "one"], ["single"]),
        helper.make_node(
            "If", ["single"], ["b"],
            then_branch=graph([helper.make_node("Identity", ["half"], ["t"])], {}, {"t": (FLOAT, [])}),
            else_branch=graph([helper.make_node("Mul", ["x", "half"], ["e"])], {}, {"e": (FLOAT, None)}),
        ),
        helper.make_node("Add", ["s", "b"], ["y"]),
    ]  # fmt: skip
    constants = {"half": np.float32(0.5).reshape(()), "one": np.array(1)}
    made = graph(nodes, {"x": (FLOAT, ["n", 1, 3]), "shape": (INT64, [4])}, ["y"], constants)
    x = np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 1, 3)
    compared(made, {"x": x, "shape": np.array([1, 4, 1, 3])})
    compared(made, {"x": x[:1], "shape": np.array([2, 1, 1, 3])})
