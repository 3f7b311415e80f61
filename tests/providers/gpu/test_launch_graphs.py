"""Launches that come again as graphs, on imitated drivers: when they become one, what changes in it, what goes wrong.

What kernels compute is the emulation's business in `test_results`; elsewhere they compute nothing.
"""

from __future__ import annotations

import gc
import itertools
import json
import logging
import threading
from typing import Any

import cuda_emulation
import numpy as np
import pytest
from fake_driver import GRAPH_NBYTES
from offline_kernels import imitated
from stream_kinds import Kind, X, stream_gpu  # noqa: F401 - a fixture

import intarsia
from intarsia.device import cuda, graphs
from intarsia.device.graphs import LEAST_LAUNCHES, MET, USE

FEEDS = {"x": X}
CHAIN = 5  # launches of `chain`
FAILURES = {
    "create": ("cuGraphCreate", "hipGraphCreate", "no graph can be made"),
    "node": ("cuGraphAddKernelNode", "hipGraphAddKernelNode", "a kernel is refused"),
    "instantiate": ("cuGraphInstantiate", "hipGraphInstantiate", "a graph cannot be instantiated"),
    "launch": ("cuGraphLaunch", "hipGraphLaunch", "a graph cannot be started"),
    "change": ("cuGraphExecKernelNodeSetParams", "hipGraphExecKernelNodeSetParams", "a kernel's arguments cannot change"),
}


def session_of(nodes: list[Any], kind: str, options: dict[str, object], inputs: list[Any], weights: dict[str, np.ndarray],
               others: tuple[str, ...] = ()) -> intarsia.InferenceSession:  # fmt: skip
    from onnx import helper, numpy_helper

    outputs = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    settings = intarsia.SessionOptions()
    if not others:
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return intarsia.InferenceSession(model.SerializeToString(), settings, [(kind, options), *others])


def chain(kind: str = "CUDAExecutionProvider", **options: object) -> intarsia.InferenceSession:
    """Softmax and product in turn, CHAIN launches."""
    from onnx import helper

    names = ["x", *(f"h{i}" for i in range(CHAIN - 1)), "y"]
    nodes = []
    for i, (a, b) in enumerate(itertools.pairwise(names)):
        op, inputs = ("MatMul", [a, "w"]) if i % 2 else ("Softmax", [a])
        nodes.append(helper.make_node(op, inputs, [b], name=f"n{i}"))
    weights = np.random.default_rng(3).standard_normal((8, 8)).astype(np.float32)
    return session_of(nodes, kind, options, [helper.make_tensor_value_info("x", 1, ["n", 8])], {"w": weights})


def computed(x: np.ndarray) -> np.ndarray:
    weights = np.random.default_rng(3).standard_normal((8, 8)).astype(np.float32)
    for i in range(CHAIN):
        powers = np.exp(x - x.max(1, keepdims=True))
        x = x @ weights if i % 2 else powers / powers.sum(1, keepdims=True)
    return x


def starts(log: list[str], since: int = 0) -> list[str]:
    return [w for w in log[since:] if w == "launch" or "graph" in w]


def runs_of(session: intarsia.InferenceSession, count: int, rows: int = 8) -> None:
    for _ in range(count):
        session.run(None, {"x": np.ones((rows, 8), np.float32)})


def device_of(kind: Kind) -> Any:
    (device,) = kind.module._opened.values()
    return device


# --- when -------------------------------------------------------------------------------------------------------------


def test_without_being_asked_for(gpu: Kind) -> None:
    """CUDA's launches become a graph in the third run of the same sizes; ROCm's only where that is asked for."""
    session = chain(gpu.provider)
    runs_of(session, 5)
    whole = f"graph of {CHAIN}"
    alone = ["launch"] * CHAIN
    assert starts(gpu.machine.log) == (alone * 2 + [whole] * 3 if gpu.kind == "cuda" else alone * 5)
    runs_of(session, MET, 9)
    assert gpu.machine.log.count(whole) == (4 if gpu.kind == "cuda" else 0)
    counters = device_of(gpu).counters
    assert counters.launches == (5 + MET) * CHAIN
    assert (counters.graphs, counters.replays) == ((2, 4) if gpu.kind == "cuda" else (0, 0))


def test_asked_for(gpu: Kind) -> None:
    """From the second run on, however few launches there are."""
    session = gpu.session(**{gpu.graphs: True})
    for _ in range(3):
        session.run(None, FEEDS)
    assert starts(gpu.machine.log) == ["launch", "launch", "graph of 2", "graph of 2"]
    session.run(None, {"x": np.ones((9, 8), np.float32)})
    assert gpu.machine.log[-2:] == ["launch", "out"]


def test_where_it_does_not_pay_or_is_not_wanted(gpu: Kind) -> None:
    few, unwanted, by_run = gpu.session(), chain(gpu.provider, **{gpu.graphs: False}), chain(gpu.provider, **{gpu.graphs: True})
    assert LEAST_LAUNCHES > 2
    options = intarsia.RunOptions()
    options.add_run_config_entry("gpu_graph_id", "-1")
    for _ in range(MET + 2):
        few.run(None, FEEDS)
        unwanted.run(None, FEEDS)
        by_run.run(None, FEEDS, options)
    assert not [w for w in gpu.machine.log if "graph" in w]
    assert len(gpu.module._opened.values()) == 1  # the option is no reason for a device of one's own


def test_the_option_is_told_as_onnxruntime_does(gpu: Kind) -> None:
    told = chain(gpu.provider, **{gpu.graphs: 1}).get_provider_options()[gpu.provider]
    assert told[gpu.graphs] == "1"
    assert chain(gpu.provider, **{gpu.graphs: "0"}).get_provider_options()[gpu.provider][gpu.graphs] == "0"


@pytest.mark.parametrize(
    "given", [{"user_compute_stream": 0}, {"do_copy_in_default_stream": False}, {"user_compute_stream": 1}]
)
def test_streams(gpu: Kind, given: dict[str, object]) -> None:
    """Graphs are started in the session's stream, the default one too; what is captured is in none that others use."""
    if given.get("user_compute_stream"):
        with gpu.open()._current():
            given = {"user_compute_stream": gpu.machine.stream()}
    session = chain(gpu.provider, **{gpu.graphs: True}, **given)
    runs_of(session, 4)
    assert starts(gpu.machine.log)[CHAIN:] == [f"graph of {CHAIN}"] * 3


# --- what changes -----------------------------------------------------------------------------------------------------


def test_other_memory_changes_arguments_and_no_graph(gpu: Kind) -> None:
    session = chain(gpu.provider, **{gpu.graphs: True})
    binding = session.io_binding()
    given = [intarsia.OrtValue.ortvalue_from_numpy(X, gpu.kind, 0) for _ in range(2)]
    targets = [intarsia.OrtValue.ortvalue_from_numpy(X, gpu.kind, 0) for _ in range(2)]
    logs = []
    for i in (0, 0, 0, 1, 1):
        binding.bind_ortvalue_input("x", given[i])
        binding.bind_ortvalue_output("y", targets[i])
        since = len(gpu.machine.log)
        session.run_with_iobinding(binding)
        logs.append([w for w in gpu.machine.log[since:] if w == "change" or "graph" in w])
    graph = f"graph of {CHAIN}"
    assert logs[0] == [] and logs[1][-1] == graph and logs[2][-1] == graph
    assert logs[3][:-1].count("change") in (1, 2) and logs[3][-1] == graph  # the result is copied into its target, or not
    assert device_of(gpu).counters.graphs == 1


@pytest.mark.skipif(bool(cuda_emulation.missing()), reason=f"kernels cannot be emulated: {cuda_emulation.missing()}")
def test_results() -> None:
    """By kernels that compute: several sizes, results that are kept so that the next ones lie elsewhere, two threads."""
    with imitated("cuda", computes=True):
        session = chain(enable_cuda_graph=True)
        draw = np.random.default_rng(0)
        given = [draw.standard_normal((rows, 8)).astype(np.float32) for rows in (3, 5, 3, 5, 3, 3, 5, 5, 3)]
        found = [session.run(None, {"x": x})[0] for x in given]
        values = [session.run_with_ort_values(None, {"x": intarsia.OrtValue.ortvalue_from_numpy(x, "cuda", 0)}) for x in given]
        for x, y, (value,) in zip(given, found, values, strict=True):
            np.testing.assert_allclose(y, computed(x), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(value.numpy(), computed(x), rtol=1e-5, atol=1e-6)
        (device,) = cuda._opened.values()
        assert "change" in cuda.driver().log and device.counters.graphs == 2

        wrong: list[str] = []

        def work(x: np.ndarray) -> None:
            found = [session.run(None, {"x": x})[0] for _ in range(6)]
            wrong.extend("another thread's" for y in found if not np.allclose(y, computed(x), rtol=1e-5, atol=1e-6))

        threads = [threading.Thread(target=work, args=(x,)) for x in given[:3]]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong


# --- how many ---------------------------------------------------------------------------------------------------------


def test_the_oldest_graph_makes_room(gpu: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MOST", 2)
    session = chain(gpu.provider, **{gpu.graphs: True})
    for rows in (8, 9, 10):
        runs_of(session, 3, rows)
    assert len(gpu.machine.executables) == 2
    assert device_of(gpu).holders()[USE] == 2 * CHAIN * GRAPH_NBYTES
    before = len(gpu.machine.log)
    runs_of(session, 3, 8)  # whose graph went first: met anew
    assert starts(gpu.machine.log, before) == ["launch"] * CHAIN + [f"graph of {CHAIN}"] * 2
    runs_of(session, 1, 10)
    assert gpu.machine.log[-2] == f"graph of {CHAIN}"


def test_graphs_go_with_their_session_and_on_request(gpu: Kind) -> None:
    session = chain(gpu.provider, **{gpu.graphs: True})
    runs_of(session, 3)
    session.release_captured_graph()
    assert not gpu.machine.executables and USE not in device_of(gpu).holders()
    before = len(gpu.machine.log)
    runs_of(session, 3)
    assert starts(gpu.machine.log, before) == ["launch"] * CHAIN + [f"graph of {CHAIN}"] * 2
    del session
    gc.collect()
    assert not gpu.machine.executables and USE not in device_of(gpu).holders()


def test_memory_that_is_wanted_elsewhere(gpu: Kind) -> None:
    session = chain(gpu.provider, **{gpu.graphs: True})
    runs_of(session, 3)
    device = device_of(gpu)
    device.trim()
    gpu.machine.memory_nbytes = gpu.machine.used_nbytes
    nbytes = CHAIN * GRAPH_NBYTES // 1024 * 1024
    held = device.allocate(nbytes // 2)  # there is room where the graph was
    assert not gpu.machine.executables
    del held
    runs_of(session, 1)


def test_a_limit_counts_graphs(gpu: Kind, caplog: pytest.LogCaptureFixture) -> None:
    session = chain(gpu.provider, **{gpu.graphs: True}, gpu_mem_limit=6144)
    runs_of(session, 4)
    assert not gpu.machine.executables
    assert f"it needs {CHAIN * GRAPH_NBYTES:,} bytes, more than the limit of 6,144 leaves" in caplog.text


# --- what prevents them -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", FAILURES)
def test_failures_leave_launches_as_they_are(gpu: Kind, what: str, caplog: pytest.LogCaptureFixture) -> None:
    """The run goes on; the reason is in the log once, in the explanation and in the profile; nothing is left behind."""
    *functions, message = FAILURES[what]
    function = functions[gpu.kind == "rocm"]
    session = chain(gpu.provider, **{gpu.graphs: True})
    values = [intarsia.OrtValue.ortvalue_from_numpy(X, gpu.kind, 0) for _ in range(5)]  # each in memory of its own
    plain = 2 if what in ("launch", "change") else 1
    for value in values[:plain]:
        session.run_with_ort_values(None, {"x": value})
    gpu.machine.failures[function] = gpu.failure
    before = len(gpu.machine.log)
    for value in values[plain : plain + 3]:
        session.run_with_ort_values(None, {"x": value})
    assert not gpu.machine.failures
    assert starts(gpu.machine.log, before) == ["launch"] * CHAIN * 3
    assert not gpu.machine.executables
    assert caplog.text.count("launches are not captured as a graph") == 1 and message in caplog.text
    explained = session.explain()
    (line,) = explained.remarks
    assert message in line and line in str(explained) and line in explained.to_dict()["remarks"]
    if what in ("node", "change"):
        assert "node 'n0' (Softmax)" in caplog.text
        (row,) = [n for n in explained.nodes if n.name == "n0"]
        refusal = row.refusals["graphs of launches"]
        assert refusal.code == "graph" and message in refusal.reason and refusal.suggestion
    assert message in str(session.profile(FEEDS, runs=1, roofline=False))
    assert json.dumps(message)[1:-1] in explained.to_html()


def test_a_device_that_is_lost_meanwhile(gpu: Kind) -> None:
    session = chain(gpu.provider, **{gpu.graphs: True})
    runs_of(session, 2)
    gpu.machine.failures["cuGraphLaunch" if gpu.kind == "cuda" else "hipGraphLaunch"] = gpu.lost[1]
    with pytest.raises(intarsia.DeviceLost, match=rf"{gpu.kind}:0 a graph cannot be started: {gpu.lost[2]}; what was in its"):
        runs_of(session, 1)
    del session  # nothing is asked of a driver that has lost its device
    again = chain(gpu.provider, **{gpu.graphs: True})
    runs_of(again, 3)


def test_a_node_on_the_host_is_named(gpu: Kind, caplog: pytest.LogCaptureFixture) -> None:
    from onnx import helper

    nodes = [
        helper.make_node("Softmax", ["x"], ["h"], name="first"), helper.make_node("Softmax", ["h"], ["y"], name="last"),
        helper.make_node("StringConcat", ["s", "s"], ["z"], name="text"),
    ]  # fmt: skip
    inputs = [helper.make_tensor_value_info("x", 1, ["n", 8]), helper.make_tensor_value_info("s", 8, ["m"])]
    outputs = [helper.make_empty_tensor_value_info(n) for n in "yz"]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    providers = [(gpu.provider, {gpu.graphs: True}), "CPUExecutionProvider"]
    settings = intarsia.SessionOptions()
    settings.add_session_config_entry("partition.keep_islands", "1")
    session = intarsia.InferenceSession(model.SerializeToString(), settings, providers=providers)
    assert "node 'text' (StringConcat): it runs on CPUExecutionProvider: " in caplog.text
    assert any("node 'text' (StringConcat)" in line for line in session.explain().remarks)


def loop_model() -> Any:
    """Halves x as long as its sum is above 1: five launches and more a trip, and the host looks whether it goes on."""
    from onnx import helper, numpy_helper

    one, half = np.float32([1.0]), np.float32([0.5])
    body = helper.make_graph(
        [
            helper.make_node("Softmax", ["state"], ["p"], name="inner"),
            helper.make_node("Mul", ["p", "half"], ["q"]), helper.make_node("CumSum", ["q", "axis"], ["r"]),
            helper.make_node("ReduceSum", ["r"], ["total"], keepdims=0), helper.make_node("Identity", ["r"], ["next"]),
            helper.make_node("Greater", ["total", "limit"], ["more"]),
        ],
        "body",
        [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("go", 9, []),
         helper.make_tensor_value_info("state", 1, ["n", 8])],
        [helper.make_tensor_value_info("more", 9, []), helper.make_tensor_value_info("next", 1, ["n", 8])],
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body, name="halving")]
    weights = {"half": half, "limit": np.float32(1e6), "axis": np.int64(1), "trips": np.int64(4), "one": one}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, ["n", 8])], [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


def test_a_loop_that_the_host_looks_at_is_named_and_its_body_a_graph(
    gpu: Kind,
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = intarsia.InferenceSession(loop_model(), providers=[(gpu.provider, {gpu.graphs: True})])
    for _ in range(3):
        session.run(None, FEEDS)
    assert "node 'halving' (Loop): the host reads how often its body runs" in caplog.text
    assert [w for w in gpu.machine.log if "graph of" in w]
    (row,) = [n for n in session.explain().nodes if n.name == "halving"]
    assert row.refusals["graphs of launches"].reason == "the host reads how often its body runs"


def test_a_size_that_the_device_computes_is_named(gpu: Kind, caplog: pytest.LogCaptureFixture) -> None:
    from onnx import helper

    nodes = [helper.make_node("Softmax", ["x"], ["h"]), helper.make_node("NonZero", ["h"], ["y"], name="places")]
    session = session_of(nodes, gpu.provider, {gpu.graphs: True}, [helper.make_tensor_value_info("x", 1, ["n", 8])], {})
    session.run(None, FEEDS)
    assert "which the device computes, before it knows what to launch" in caplog.text
    (row,) = [n for n in session.explain().nodes if n.op == "NonZero"]
    assert row.refusals["graphs of launches"].code == "graph"


def test_what_is_said_unasked_is_no_warning(gpu: Kind, caplog: pytest.LogCaptureFixture) -> None:
    if gpu.kind == "rocm":
        pytest.skip("graphs are made unasked on CUDA only")
    caplog.set_level(logging.INFO, "intarsia")
    session = chain(gpu.provider)
    gpu.machine.failures["cuGraphInstantiate"] = gpu.failure
    runs_of(session, MET + 1)
    (record,) = [r for r in caplog.records if "launches are not captured as a graph" in r.getMessage()]
    assert record.levelno == logging.INFO


def test_a_profile_says_that_its_launches_are_timed_alone(gpu: Kind) -> None:
    session = chain(gpu.provider, **{gpu.graphs: True})
    runs_of(session, 2)
    report = session.profile(FEEDS, runs=1, roofline=False)
    assert any("each launch is timed, so none is part of a graph here" in line for line in report.remarks)
    assert any(f"graphs of {CHAIN} launches, {CHAIN * GRAPH_NBYTES:,} bytes" in line for line in report.remarks)
    assert report.to_dict()["remarks"] == list(report.remarks)
