"""Sessions that are used while their kernels are compiled ("session.compile_in_background")."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia as ort
from intarsia.ep.program import RunContext
from intarsia.model import background_compile
from intarsia.model.background_compile import Compilation, Underway, _OvertakenError
from intarsia.model.single_program_model import DirectModel
from intarsia.providers.cpu import CPUExecutionProvider

KEY = "session.compile_in_background"
X = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)


def model(text: str = "g (float[n, m] x) => (float[n, m] y) { a = Exp(x)  y = Neg(a) }", imports: str = "") -> bytes:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17{imports}]> {text}').SerializeToString()


def options_of(**entries: str) -> ort.SessionOptions:
    options = ort.SessionOptions()
    for key, value in {KEY: "1", **{k.replace("__", "."): v for k, v in entries.items()}}.items():
        options.add_session_config_entry(key, value)
    return options


class Gate:
    """Compiling waits until it is opened, and may fail then."""

    def __init__(self) -> None:
        self.open, self.reached = threading.Event(), threading.Event()
        self.failure: Exception | None = None
        self.compiled = 0


@pytest.fixture(autouse=True)
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate, compile_part = Gate(), CPUExecutionProvider.compile

    def compile(self: Any, graph: Any, context: Any) -> Any:
        gate.reached.set()
        assert gate.open.wait(300)
        if gate.failure is not None:
            raise gate.failure
        gate.compiled += 1
        return compile_part(self, graph, context)

    monkeypatch.setattr(CPUExecutionProvider, "compile", compile)
    yield gate
    gate.open.set()
    for thread in threading.enumerate():
        if thread.name == "intarsia-compile":
            thread.join(300)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_runs_before_and_after(gate: Gate) -> None:
    session = ort.InferenceSession(model(), options_of())
    assert not session.is_compiled
    assert [v.name for v in session.get_inputs()] == ["x"]
    assert session.get_outputs()[0].shape == ["n", "m"]
    np.testing.assert_allclose(session.run(None, {"x": X})[0], -np.exp(X), rtol=1e-6)
    assert gate.compiled == 0
    with pytest.raises(TimeoutError, match=r"the session is not compiled after 0\.01 s"):
        session.wait_until_compiled(0.01)
    gate.open.set()
    session.wait_until_compiled(300)
    until(lambda: session.is_compiled)
    np.testing.assert_allclose(session.run(["y"], {"x": X[:1]})[0], -np.exp(X[:1]), rtol=1e-6)
    assert gate.compiled == 1
    session.wait_until_compiled()


def test_without_the_entry_there_is_nothing_to_wait_for() -> None:
    session = ort.InferenceSession(model())
    assert session.is_compiled
    session.wait_until_compiled(1)
    with pytest.raises(ort.InvalidArgument, match="timeout: expected seconds above 0, got 0"):
        session.wait_until_compiled(0)


def test_a_run_is_overtaken_by_the_compiled_model(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_compile, "_PATIENCE_SECONDS", 0.0)
    began, ends, calls = threading.Event(), threading.Event(), []

    @ort.host_op("test.background::Slow", shape=lambda x: x)
    def slow(x: np.ndarray) -> np.ndarray:
        calls.append(threading.current_thread().name)
        began.set()
        assert ends.wait(300)
        return x + 1

    try:
        text = "g (float[n] x) => (float[n] y) { a = test.background.Slow(x)  y = Neg(a) }"
        session = ort.InferenceSession(model(text, ', "test.background" : 1'), options_of())
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(session.run(None, {"x": X[0]})[0]))
        thread.start()
        assert began.wait(300)
        gate.open.set()
        session.wait_until_compiled(300)
        ends.set()
        thread.join(300)
        np.testing.assert_allclose(found[0], -(X[0] + 1))
        assert len(calls) == 2  # by the stand-in, which is stopped after it, and by the compiled model
    finally:
        ort.unregister_operator("test.background::Slow")


def test_a_provider_that_cannot_compile(gate: Gate) -> None:
    session = ort.InferenceSession(model(), options_of())
    assert session.run(None, {"x": X})[0].shape == (2, 3)
    gate.failure = ort.EPFail("no room for kernels")
    gate.open.set()
    for _ in range(2):
        with pytest.raises(ort.EPFail, match="no room for kernels"):
            session.wait_until_compiled(300)
        with pytest.raises(ort.EPFail, match="no room for kernels"):
            session.run(None, {"x": X})
    assert not session.is_compiled


def test_operators_that_do_not_exist_are_an_error_at_once() -> None:
    with pytest.raises(ort.NotImplemented, match="Nothing"):
        ort.InferenceSession(model("g (float[n] x) => (float[n] y) { y = Nothing(x) }"), options_of())


@pytest.mark.parametrize("how", ["close", "del", "set_providers"])
def test_nobody_compiles_for_a_session_that_is_gone(gate: Gate, how: str) -> None:
    before = threading.enumerate()
    session = ort.InferenceSession(model(), options_of())
    assert gate.reached.wait(300)
    threads = [t for t in threading.enumerate() if t.name == "intarsia-compile" and t not in before]
    assert threads
    if how == "close":
        session.close()
        assert not session.is_compiled
        with pytest.raises(ort.Fail, match="the session is closed"):
            session.wait_until_compiled(1)
    elif how == "del":
        del session
        gc.collect()
    else:
        session.set_providers(["ReferenceExecutionProvider"])
    gate.open.set()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    if how == "close":
        with pytest.raises(ort.Fail, match="the session is closed"):
            session.run(None, {"x": X})
    elif how == "set_providers":
        assert session.get_providers()[0] == "ReferenceExecutionProvider"


def test_cancelled_by_the_options(gate: Gate) -> None:
    options = options_of()
    session = ort.InferenceSession(model(), options)
    options.set_load_cancellation_flag(True)
    gate.open.set()
    with pytest.raises(ort.ModelLoadCanceled):
        session.wait_until_compiled(300)


def test_progress_ends_when_it_is_compiled(gate: Gate) -> None:
    options, seen = options_of(), []
    options.set_progress_callback(lambda now: seen.append((now.stage, threading.current_thread().name)))
    session = ort.InferenceSession(model(), options)
    assert ("ready", "intarsia-compile") not in seen
    assert {"load", "optimize"} <= {stage for stage, _ in seen}
    gate.open.set()
    session.wait_until_compiled(300)
    assert seen[-1] == ("ready", "intarsia-compile")


def test_time_limits_and_terminate_are_the_callers(gate: Gate) -> None:
    session = ort.InferenceSession(model(), options_of())
    run = ort.RunOptions()
    run.terminate = True
    with pytest.raises(ort.Fail, match="terminate flag"):
        session.run(None, {"x": X}, run)
    assert session.run(None, {"x": X}, timeout=60)[0].shape == (2, 3)
    run = ort.RunOptions()
    run.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    assert session.run(None, {"x": X}, run)[0].shape == (2, 3)


def test_bindings_change_over(gate: Gate) -> None:
    session = ort.InferenceSession(model(), options_of())
    binding, y = session.io_binding(), np.empty_like(X)
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    for _ in range(3):
        y[:] = 0
        binding.run()
        np.testing.assert_allclose(y, -np.exp(X), rtol=1e-6)
        gate.open.set()
        session.wait_until_compiled(300)


def test_questions_about_the_compiled_model_wait_for_it(gate: Gate) -> None:
    session = ort.InferenceSession(model(), options_of())
    threading.Timer(0.05, gate.open.set).start()
    assert {row.provider for row in session.explain().nodes} == {"CPUExecutionProvider"}
    assert session.is_compiled
    assert "CPUExecutionProvider" in str(session.memory_report())


def test_the_next_session_begins_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTARSIA_PROGRAM_CACHE")
    path = tmp_path / "m.onnx"
    path.write_bytes(model())
    os.utime(path, (1, 1))
    first = ort.InferenceSession(str(path), options_of())
    first.wait_until_compiled(300)
    assert isinstance(ort.InferenceSession(str(path), options_of())._model, DirectModel)


def test_a_compiled_model_is_written(tmp_path: Path) -> None:
    target = tmp_path / "m_ctx.onnx"
    options = options_of(ep__context_enable="1", ep__context_file_path=str(target), ep__context_embed_mode="1")
    session = ort.InferenceSession(model(), options)
    session.wait_until_compiled(300)
    again = ort.InferenceSession(str(target), options_of(session__trust_compiled_model="1"))
    assert again.is_compiled  # there is nothing to compile
    np.testing.assert_allclose(again.run(None, {"x": X})[0], -np.exp(X), rtol=1e-6)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_has_the_stand_in(gate: Gate) -> None:
    session = ort.InferenceSession(model(), options_of())
    assert gate.reached.wait(300)
    child = os.fork()
    if child == 0:
        try:
            right = np.allclose(session.run(None, {"x": X})[0], -np.exp(X))
            session.wait_until_compiled(5)
            os._exit(1)
        except ort.Fail as error:
            os._exit(0 if right and "fork after wait_until_compiled" in str(error) else 2)
        finally:
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_interpreter_ends_while_it_is_compiled(tmp_path: Path) -> None:
    """The thread stops at its next stage, and nothing is said."""
    (tmp_path / "m.onnx").write_bytes(model())
    program = f"""
        import threading
        import intarsia as ort
        from intarsia.providers.cpu import CPUExecutionProvider
        looked, compile_part = threading.Event(), CPUExecutionProvider.compile
        def compile_later(*arguments):
            looked.wait()
            return compile_part(*arguments)
        CPUExecutionProvider.compile = compile_later
        options = ort.SessionOptions()
        options.add_session_config_entry({KEY!r}, "1")
        session = ort.InferenceSession({str(tmp_path / "m.onnx")!r}, options)
        print(session.is_compiled)
        looked.set()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


def test_what_the_first_tier_has_no_memory_for_waits_for_the_compiled_model() -> None:
    text = "g (float[b, h, s, d] q) => (float[b, h, s, d] y) { y = Attention(q, q, q) }"
    options = options_of(session__memory_limit_mib="4")
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 23]> {text}').SerializeToString()
    session = ort.InferenceSession(made, options, providers=["CPUExecutionProvider"])
    q = np.random.default_rng(1).standard_normal((1, 8, 400, 32)).astype(np.float32)  # scores alone take 5 MiB
    (y,) = session.run(None, {"q": q})
    (wanted,) = ort.InferenceSession(made, providers=["ReferenceExecutionProvider"]).run(None, {"q": q})
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)


def test_trips_of_a_run_that_is_begun_again_count_once() -> None:
    class Model:
        inputs = outputs = ()

        def __init__(self, overtaken: bool) -> None:
            self.overtaken = overtaken

        def run(self, inputs: Any, run: RunContext) -> list[Any]:
            run.count_trips(70)
            if self.overtaken:
                raise _OvertakenError("the model is compiled")
            return [run.trips_left]

    made: Any = Model(overtaken=False)
    stand_in: Any = Model(overtaken=True)
    underway = Underway(stand_in, Compilation(lambda: made), None, lambda _: True, lambda *_: None)
    underway.start()
    run = RunContext(flag=array("q", [0, 100]), trips=(100, "session.loop_trips"))
    assert underway.run([], run) == [30]
