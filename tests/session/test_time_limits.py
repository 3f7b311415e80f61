"""Limits of time reach the making of a session, and what Python computes of a run."""

import itertools
import threading
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import intarsia as ort
from intarsia import progress
from intarsia.codegen.llvm.compile_workers import Compilers
from intarsia.graph.dtypes import DType
from intarsia.graph.load import load
from intarsia.model import run_timeout
from intarsia.ops import registry
from intarsia.ops.framework.infer import infer
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret
from intarsia.run_status import CURRENT_RUN

node, info = helper.make_node, helper.make_tensor_value_info


def chain(count: int) -> bytes:
    nodes = [node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    ends = [info(name, TensorProto.FLOAT, ["n"]) for name in ("v0", f"v{count}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def limited(seconds: str) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.creation_timeout_s", seconds)
    return options


def test_making_a_session_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(run_timeout.time, "monotonic", lambda: next(clock))
    with pytest.raises(ort.RunTimeout, match=r"making the session takes over 3 s \('session.creation_timeout_s'\)"):
        ort.InferenceSession(chain(4), limited("3"))


def test_making_a_session_in_time() -> None:
    session = ort.InferenceSession(chain(4), limited("1000"))
    np.testing.assert_array_equal(session.run(None, {"v0": np.ones(2, np.float32)})[0], [1, 1])


def test_a_time_below_0_is_an_error() -> None:
    with pytest.raises(ort.InvalidArgument, match=r"'session.creation_timeout_s': expected seconds, or 0 for no limit; got -1"):
        ort.InferenceSession(chain(1), limited("-1"))


def test_inference_may_be_stopped() -> None:
    asked = []
    with progress.reported(None, lambda: asked.append(1)):
        infer(load(chain(200)), registry())
    assert len(asked) >= 3


def test_a_compilation_may_be_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who waits for LLVM looks now and then whether the session is still wanted, and ends the processes that compile for it."""

    class Over(Exception):
        pass

    begun, stopped = threading.Event(), threading.Event()

    def compiled(*_: object) -> bytes:
        begun.set()
        assert stopped.wait(300), "nobody stopped the compilation"
        raise ort.EPFail("it was stopped")

    def check() -> None:
        if begun.is_set():
            raise Over

    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(Compilers, "compiled", compiled)
    monkeypatch.setattr(Compilers, "stop", lambda *_: stopped.set())
    with progress.reported(None, check), pytest.raises(Over):
        ort.InferenceSession(chain(4), providers=["CPUExecutionProvider"])
    assert stopped.is_set()


def test_a_definition_may_be_stopped() -> None:
    """Between two primitives of one node."""

    class Over(Exception):
        pass

    class Stop:
        seen = 0

        def check(self) -> None:
            self.seen += 1
            if self.seen > 3:
                raise Over

        def count_trips(self, count: int = 1) -> None:
            raise AssertionError("no loop")

    x = k.input(0, DType.FLOAT, (2,))
    root = k.exp(k.neg(k.absolute(k.sqrt(x))))
    stop = Stop()
    token = CURRENT_RUN.set(stop)
    try:
        with pytest.raises(Over):
            interpret([root], [np.ones(2, np.float32)])
    finally:
        CURRENT_RUN.reset(token)
    assert stop.seen == 4


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_an_endless_loop_without_nodes(provider: str) -> None:
    body = helper.make_graph(
        [], "body", [info("i", TensorProto.INT64, []), info("going", TensorProto.BOOL, []), info("v", TensorProto.FLOAT, [1])],
        [info("going", TensorProto.BOOL, []), info("v", TensorProto.FLOAT, [1])],
    )  # fmt: skip
    one = info("x", TensorProto.FLOAT, [1])
    graph = helper.make_graph(
        [node("Loop", ["", "", "x"], ["y"], body=body)], "endless", [one], [info("y", TensorProto.FLOAT, [1])]
    )
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(source, options, providers=[provider])
    with pytest.raises(ort.RunTimeout, match=r"the run took longer than its timeout of 0.2 s"):
        session.run(None, {"x": np.ones(1, np.float32)}, timeout=0.2)


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_an_attribute_that_asks_for_endless_work_does_not_outlast_a_timeout(provider: str) -> None:
    """Its definition is traced in the run, since only that knows the shapes: one state for each step of the window."""
    inputs = [info(name, TensorProto.FLOAT, None) for name in "xw"]
    outputs = [info(name, TensorProto.FLOAT, None) for name in "ys"]
    long = node("CausalConvWithState", ["x", "w"], ["y", "s"], domain="com.microsoft", state_window=1 << 33)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([long], "g", inputs, outputs), opset_imports=opsets, ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=[provider])
    with pytest.raises(ort.RunTimeout, match=r"0\.2 s"):
        session.run(None, {"x": np.ones((2, 3, 5), np.float32), "w": np.ones((3, 1, 4), np.float32)}, timeout=0.2)
