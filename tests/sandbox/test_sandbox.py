"""Untrusted sessions in a separate process: the same answers, limits held from outside, and what the process cannot do."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import intarsia as ort
from intarsia.errors import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    ModelLoadCanceled,
    NotImplemented,
    OutOfMemory,
    RunTimeout,
    WrongType,
)
from intarsia.sandbox import process as apart_process
from intarsia.sandbox.messages import Channel, Ended, NotUnderstood, packed, unpacked
from intarsia.sandbox.process import ProcessEnded

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and /proc are looked at")

HEAD = '<ir_version: 10, opset_import: ["": 20]>'
ADD = HEAD + "g (float[n] x) => (float[n] y) { y = Add(x, x) }"
ENDLESS = (
    HEAD
    + """
g (float x, bool go) => (float y) {
  none = Constant <value_int = 9223372036854775807> ()
  y = Loop (none, go, x) <body = b (int64 i, bool c, float v) => (bool d, float w) { d = Identity(c)
     w = Sin(v) }>
}"""
)
X = {"x": np.array([1, 2], np.float32)}


def options(**limits: int) -> ort.SessionOptions:
    made = ort.SessionOptions()
    made.untrusted = True
    made.add_session_config_entry("untrusted.process", "1")
    for name, value in limits.items():
        made.add_session_config_entry(f"untrusted.{name}", str(value))
    return made


def model(text: str = ADD) -> bytes:
    data: bytes = onnx.parser.parse_model(text).SerializeToString()
    return data


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """The process reads the cache and writes nothing: what most of these tests run is compiled once."""
    for text in (ADD, ENDLESS):
        ort.InferenceSession(model(text))


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that stops when it is asked to is not ended because the machine does other things."""
    monkeypatch.setattr(apart_process, "GRACE_SECONDS", 120.0)


@pytest.fixture
def impatient(_patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one does not stop."""
    monkeypatch.setattr(apart_process, "GRACE_SECONDS", 1.0)


def limit_seconds(session: Any, seconds: int) -> None:
    """Of the runs of a session that is made."""
    session.get_session_options().add_session_config_entry("untrusted.seconds", str(seconds))


@pytest.fixture(scope="module")
def adding() -> Any:
    with ort.InferenceSession(model(), options()) as session:
        yield session


def process_of(session: Any) -> subprocess.Popen[bytes]:
    found: subprocess.Popen[bytes] = session._engine._process._popen
    return found


class Doubling(ort.InferenceSession):
    """A program's own kind of session."""

    def doubled(self, feed: Any) -> Any:
        return 2 * self.run(None, feed)[0]


def test_a_session_is_of_the_class_that_was_asked_for() -> None:
    with Doubling(model(), options()) as session:
        assert type(session) is Doubling
        assert process_of(session).pid != os.getpid()
        assert session.doubled(X).tolist() == [4, 8]


def test_the_answers_are_a_sessions(adding: Any) -> None:
    assert isinstance(adding, ort.InferenceSession)
    assert process_of(adding).pid != os.getpid()
    assert adding.run(None, X)[0].tolist() == [2, 4]
    assert adding.run(["y"], {"x": [1.0, 2.0]})[0].tolist() == [2, 4]
    assert adding.run(None, X, ort.RunOptions(), timeout=60, framework="ortvalue")[0].numpy().tolist() == [2, 4]
    assert adding.run(None, {"x": np.zeros(0, np.float32)})[0].shape == (0,)
    big = np.arange(3_000_000, dtype=np.float32)  # more than a pipe holds
    np.testing.assert_array_equal(adding.run(None, {"x": big[::-1]})[0], 2 * big[::-1])
    assert [(a.name, a.type, a.shape) for a in adding.get_inputs()] == [("x", "tensor(float)", ["n"])]
    assert adding.get_outputs()[0].shape == ["n"]
    assert adding.get_providers() == ["CPUExecutionProvider"]
    assert adding.get_modelmeta().graph_name == "g"
    assert [node.op for node in adding.explain().nodes] == ["Add"]


def test_a_result_is_the_programs_own(adding: Any) -> None:
    (y,) = adding.run(None, X)
    y[:] = 7
    assert adding.run(None, X)[0].tolist() == [2, 4]


def test_every_way_to_run(adding: Any) -> None:
    binding = adding.io_binding()
    binding.bind_cpu_input("x", X["x"])
    target = np.zeros(2, np.float32)
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(target))
    for _ in range(3):
        adding.run_with_iobinding(binding)
        assert binding.copy_outputs_to_cpu()[0].tolist() == [2, 4]
    assert adding.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(X["x"])})[0].numpy().tolist() == [2, 4]
    done, found = threading.Event(), list[Any]()
    adding.run_async(None, X, lambda results, data, error: (found.append((results, data, error)), done.set()), 5)
    assert done.wait(300)
    assert found[0][0][0].tolist() == [2, 4]
    assert found[0][1:] == (5, "")


def test_kinds_of_values() -> None:
    text = (
        HEAD
        + """
g (string[n] words, float[2] x, float16[1] h, seq(float[2]) many, optional(seq(float[2])) perhaps)
  => (string[n] same, seq(float[2]) more, float16[1] half, bool there) {
  same = Identity(words)
  more = SequenceInsert(many, x)
  half = Add(h, h)
  there = OptionalHasElement(perhaps)
}"""
    )
    x = np.array([1, 2], np.float32)
    feed = {"words": np.array(["ä", "", "\ud800"], object), "x": x, "h": np.ones(1, np.float16), "many": [x], "perhaps": None}
    with ort.InferenceSession(model(text), options()) as session:
        same, more, half, there = session.run(None, feed)
    assert same.tolist() == ["ä", "", "\ud800"]
    assert [each.tolist() for each in more] == [[1, 2], [1, 2]]
    assert half.dtype == np.float16
    assert half.tolist() == [2]
    assert not there


def test_an_initializer_that_a_run_replaces() -> None:
    proto = onnx.parser.parse_model(HEAD + "g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2, np.float32), "w"))
    with ort.InferenceSession(proto, options()) as session:
        assert session.run(None, X)[0].tolist() == [2, 3]
        assert session.run(None, {**X, "w": np.array([5, 5], np.float32)})[0].tolist() == [6, 7]
        assert session.run(None, X)[0].tolist() == [2, 3]
        assert [a.name for a in session.get_overridable_initializers()] == ["w"]


def test_errors_are_a_sessions(adding: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"Invalid input name: z"):
        adding.run(None, {**X, "z": X["x"]})
    with pytest.raises(InvalidArgument, match=r"Invalid output name:q"):
        adding.run(["q"], X)
    with pytest.raises(InvalidArgument, match="x"):
        adding.run(None, {"x": np.zeros((2, 2), np.float32)})
    with pytest.raises(WrongType, match="output_names"):
        adding.run("y", X)
    with pytest.raises(InvalidGraph, match=r"nodes, at most 1 are allowed \('untrusted\.nodes'\)"):
        ort.InferenceSession(model(HEAD + "g (float[n] x) => (float[n] y) { z = Sin(x)\n y = Cos(z) }"), options(nodes=1))
    trusting = options()
    trusting.untrusted = False
    with pytest.raises(InvalidArgument, match="untrusted is False"):
        ort.InferenceSession(model(), trusting)
    assert adding.run(None, X)[0].tolist() == [2, 4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda o: setattr(o, "optimized_model_filepath", "m.onnx"), "writes no files"),
        (lambda o: o.add_provider("WebGpuExecutionProvider"), "and not WebGpuExecutionProvider"),
        (lambda o: o.add_session_config_entry("session.signature", "m.sig"), "reads no signatures"),
        (lambda o: o.add_initializer("w", lambda: 0), "cannot be sent to another process"),
    ],
)
def test_what_a_process_apart_does_not_do(change: Any, message: str) -> None:
    made = options()
    change(made)
    with pytest.raises(InvalidArgument, match=message):
        ort.InferenceSession(model(), made)


def test_what_looks_inside_is_refused(adding: Any) -> None:
    for call in (
        lambda: adding.profile(X), adding.memory_report, lambda: adding.add_hook(["y"], print),
        lambda: adding.run(None, X, taps=["y"]), adding.get_input_memory_infos, lambda: adding.set_ep_dynamic_options({}),
        lambda: adding.set_ep_dynamic_options({"ep.dynamic.workload_type": "Default"}),
    ):  # fmt: skip
        with pytest.raises(NotImplemented, match=r"in a separate process \('untrusted\.process'\)"):
            call()


def test_waiting_for_what_is_compiled(adding: Any) -> None:
    assert adding.is_compiled
    for seconds in (None, 1):
        adding.wait_until_compiled(seconds)
    with pytest.raises(WrongType, match="timeout: expected seconds, got"):
        adding.wait_until_compiled("x")


def test_results_are_limited() -> None:
    text = HEAD + "g (float[n] x, int64[1] m) => (float[k] y) { y = Tile(x, m) }"
    with ort.InferenceSession(model(text), options(output_mib=1)) as session:
        with pytest.raises(OutOfMemory, match=r"'untrusted\.output_mib'"):
            session.run(None, {**X, "m": np.array([1 << 20])})
        assert session.run(None, {**X, "m": np.array([2])})[0].tolist() == [1, 2, 1, 2]


def test_a_run_that_does_not_end() -> None:
    feed = {"x": np.float32(1), "go": np.array(True)}
    with ort.InferenceSession(model(ENDLESS), options(trips=1 << 60)) as session:
        limit_seconds(session, 2)
        with pytest.raises(RunTimeout, match=r"\b2 s"):
            session.run(None, feed)
        with pytest.raises(RunTimeout, match=r"0\.2 s"):
            session.run(None, feed, timeout=0.2)
        limit_seconds(session, 600)
        run = ort.RunOptions()
        threading.Timer(0.3, lambda: setattr(run, "terminate", True)).start()
        with pytest.raises(Fail, match="terminate"):
            session.run(None, feed, run)
        before = process_of(session).pid
        assert session.run(None, {**feed, "go": np.array(False)})[0] == 1
        assert process_of(session).pid == before  # it has stopped by itself


@pytest.mark.usefixtures("impatient")
def test_a_process_that_does_not_stop_is_ended() -> None:
    with ort.InferenceSession(model(), options()) as session:
        limit_seconds(session, 1)
        first = process_of(session)
        os.kill(first.pid, signal.SIGSTOP)  # as what holds the interpreter for ever
        with pytest.raises(RunTimeout, match=r"in a run took longer than 1 s, and was ended"):
            session.run(None, X)
        assert first.poll() == -signal.SIGKILL
        limit_seconds(session, 600)
        assert session.run(None, X)[0].tolist() == [2, 4]
        assert process_of(session) is not first


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
def test_a_process_that_ends_in_a_run(number: signal.Signals) -> None:
    with ort.InferenceSession(model(ENDLESS), options(trips=1 << 60)) as session:
        process = session._engine._process

        def kill() -> None:
            while process._wait.check is None:  # until it is asked
                time.sleep(0.01)
            time.sleep(0.1)
            os.kill(process._popen.pid, number)

        threading.Thread(target=kill).start()
        with pytest.raises(ProcessEnded, match=rf"in a run was ended by {number.name} \(.+\)"):
            session.run(None, {"x": np.float32(1), "go": np.array(True)})
        assert session.run(None, {"x": np.float32(1), "go": np.array(False)})[0] == 1


def prepared(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let this be done in processes that are started from now on, before they are asked anything."""
    program = apart_process._program()
    before = f"; from intarsia.sandbox import worker; exec({code!r}, vars(worker))"
    program[-1] = program[-1].replace("; main()", f"{before}; main()")
    monkeypatch.setattr(apart_process, "_program", lambda: program)


@pytest.mark.parametrize("nbytes", [3, 1 << 20])
def test_the_last_words_of_a_process(nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may write to no file any more, and a pipe holds less than it may say before."""
    prepared(monkeypatch, f"def run(*_):\n os.write(2, b'.' * {nbytes} + b'no memory')\n os.abort()\n_Child._do_run = run")
    with ort.InferenceSession(model(), options()) as session:
        with pytest.raises(ProcessEnded, match=r"ended by SIGABRT \(.+\)\. It said: \.+no memory$") as caught:
            session.run(None, X)
        assert len(str(caught.value)) < 3000


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("impatient")
def test_a_process_that_talks_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is always something to read, and the process has turned off the alarm that would end it."""
    endless = "def run(self, *_):\n signal.setitimer(signal.ITIMER_REAL, 0)\n while True: self.say({'warning': '.' * 5000})\n"
    prepared(monkeypatch, endless + "_Child._do_run = run")
    with ort.InferenceSession(model(), options()) as session:
        limit_seconds(session, 1)
        with pytest.raises(RunTimeout, match=r"in a run took longer than 1 s, and was ended"):
            session.run(None, X)


def test_threads_take_turns(adding: Any) -> None:
    found: list[list[float]] = []

    def work(k: int) -> None:
        for _ in range(10):
            (y,) = adding.run(None, {"x": np.full(1000, k, np.float32)})
            found.append(sorted(set(y.tolist())))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted([[2.0 * k] for k in range(4) for _ in range(10)])


def test_making_can_be_stopped() -> None:
    stages: list[str] = []
    made = options()
    made.set_progress_callback(lambda p: stages.append(p.stage))
    ort.InferenceSession(model(), made).close()
    assert stages[0] == "load"
    assert stages[-1] == "ready"
    made.set_progress_callback(lambda p: False)
    with pytest.raises(ModelLoadCanceled, match="progress callback returned False"):
        ort.InferenceSession(model(), made)


def test_profiles(tmp_path: Path) -> None:
    made = options()
    made.enable_profiling, made.profile_file_prefix = True, str(tmp_path / "p")
    with ort.InferenceSession(model(), made) as session:
        session.run(None, X)
        text = Path(session.end_profiling()).read_text(encoding="utf-8")
    assert "_kernel_time" in text
    assert text.count('"model_run"') == 2  # here and there


def test_warnings_and_the_log_come_over(caplog: pytest.LogCaptureFixture) -> None:
    made = options()
    made.log_severity_level = 0
    with caplog.at_level("DEBUG", "intarsia"), ort.InferenceSession(model(), made):
        pass
    assert "placement of" in caplog.text
    assert "has given up: core dumps, written files" in caplog.text


def is_gone(pid: int) -> bool:
    for _ in range(2400):
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_the_process_ends_with_its_session() -> None:
    session: Any = ort.InferenceSession(model(), options())
    first = process_of(session).pid
    session.set_providers(["ReferenceExecutionProvider"])
    assert session.run(None, X)[0].tolist() == [2, 4]
    second = process_of(session).pid
    assert is_gone(first)
    copy = pickle.loads(pickle.dumps(session))
    third = process_of(copy).pid
    assert copy.run(None, X)[0].tolist() == [2, 4]
    copy.close()
    assert is_gone(third)
    with pytest.raises(Fail, match="the session is closed"):
        copy.run(None, X)
    del session
    gc.collect()
    assert is_gone(second)


PROGRAM = """
import os, signal, sys, threading
import numpy as np, onnx.parser
import intarsia as ort
sys.path.insert(0, {tests!r})
from test_sandbox import ENDLESS, model, options, process_of
session = ort.InferenceSession(model(ENDLESS), options(trips=1 << 60))
print(process_of(session).pid, flush=True)
feed = {{"x": np.float32(1), "go": np.array(True)}}
threading.Thread(target=lambda: session.run(None, feed), daemon=True).start()
threading.Event().wait(0.5)
{end}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(3)", "sys.exit(0)"])
def test_the_process_ends_with_its_program(end: str) -> None:
    """However the program ends, in the middle of a run."""
    code = PROGRAM.format(tests=str(Path(__file__).parent), end=end)
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=600, check=False)
    assert is_gone(int(done.stdout))


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_forked_child_has_a_process_of_its_own(adding: Any) -> None:
    before = process_of(adding).pid
    pid = os.fork()
    if pid == 0:
        ok = adding.run(None, X)[0].tolist() == [2, 4] and process_of(adding).pid != before
        adding.close()
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert adding.run(None, X)[0].tolist() == [2, 4]
    assert process_of(adding).pid == before


def confined(code: str) -> str:
    """What a process that has given up what it may do prints."""
    start = "from intarsia.sandbox import confine\nheld = confine.limit_resources(256 << 20) + confine.filter_system_calls()\n"
    done = subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(code)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="system calls of Linux")
def test_what_a_confined_process_cannot_do(tmp_path: Path) -> None:
    file = tmp_path / "there"
    file.write_text("text")
    shown = confined(f"""
        import ctypes, os, resource, signal, socket, subprocess, threading
        assert "network" in held and "memory" in held, held
        def tried(what, call):
            try:
                call()
            except (OSError, MemoryError, RuntimeError, ValueError) as error:
                print(what, type(error).__name__)
            else:
                print(what, "done")
        def append():
            with open({str(file)!r}, "a") as f: f.write("more")
        tried("socket", socket.socket)
        tried("fork", os.fork)
        tried("exec", lambda: os.execv("/bin/true", ["true"]))
        tried("spawn", lambda: subprocess.run(["true"]))
        tried("write", append)
        tried("new", lambda: os.open({str(tmp_path / "new")!r}, os.O_CREAT | os.O_RDONLY))
        tried("remove", lambda: os.unlink({str(file)!r}))
        tried("rename", lambda: os.rename({str(file)!r}, {str(file)!r} + "2"))
        tried("mode", lambda: os.chmod({str(file)!r}, 0o777))
        tried("kill", lambda: os.kill(os.getppid(), 0))
        tried("limits", lambda: resource.setrlimit(resource.RLIMIT_CORE, (1, 1)))
        tried("limited", lambda: resource.getrlimit(resource.RLIMIT_DATA))
        tried("affinity", lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)))
        tried("others", lambda: os.sched_setaffinity(os.getppid(), [0]))
        tried("memory", lambda: bytearray(1 << 30))
        tried("read", lambda: open({str(file)!r}).read())
        tried("thread", lambda: threading.Thread(target=int).start())
        tried("itself", lambda: os.kill(os.getpid(), 0))
    """)
    said = dict(line.split() for line in shown.split("\n") if line.strip())
    assert {name for name, outcome in said.items() if outcome == "done"} == {"limited", "affinity", "read", "thread", "itself"}
    assert said["memory"] == "MemoryError"
    assert said["socket"] == "PermissionError"
    assert file.read_text() == "text"
    assert [each.name for each in tmp_path.iterdir()] == ["there"]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_what_the_process_has_of_the_program(adding: Any, tmp_path: Path) -> None:
    os.environ["A_SECRET_OF_THE_PROGRAM"] = "1"
    try:
        with (tmp_path / "open").open("w") as held, ort.InferenceSession(model(), options()) as session:
            os.set_inheritable(held.fileno(), True)
            place = Path(f"/proc/{process_of(session).pid}")
            assert b"A_SECRET" not in (place / "environ").read_bytes()
            there = [str(each.readlink()) for each in (place / "fd").iterdir()]
            assert not [name for name in there if str(tmp_path) in name or "socket" in name]
            limits = (place / "limits").read_text()
            assert [line.split()[-3:] for line in limits.splitlines() if "core file" in line] == [["0", "0", "bytes"]]
            assert "Seccomp:\t2" in (place / "status").read_text()
    finally:
        del os.environ["A_SECRET_OF_THE_PROGRAM"]


def test_messages_of_a_stranger() -> None:
    """What a process that is not Intarsia's any more may say."""
    import json
    import struct

    def answer(data: bytes) -> Any:
        to_read, to_write = os.pipe()
        os.write(to_write, data)
        os.close(to_write)
        channel = Channel(to_read, os.open(os.devnull, os.O_WRONLY))
        try:
            return channel.receive(1 << 20)
        finally:
            channel.close()

    def framed(text: bytes, count: int = 0) -> bytes:
        return struct.pack("<QQ", len(text), count) + text

    for data in (
        framed(b"no JSON"), framed(b"[]"), framed(b"{}"), framed(b'{"nbytes": [1]}'), framed(b'{"nbytes": [-1]}', 1),
        framed(b'{"nbytes": [99999999999]}', 1), framed(b"[" * 30_000), struct.pack("<QQ", 1 << 60, 0),
        struct.pack("<QQ", 2, 1 << 60), framed(b'{"nbytes": "x"}', 1), framed(b'{"nbytes": [1e999]}', 1),
    ):  # fmt: skip
        with pytest.raises(NotUnderstood):
            answer(data)
    for data in (b"", b"short", framed(json.dumps({"nbytes": [5]}).encode(), 1) + b"abc"):
        with pytest.raises(Ended):
            answer(data)
    buffers = [np.zeros(8, np.uint8)]
    assert unpacked({"array": 0, "type": 9, "shape": [8]}, buffers).tolist() == [False] * 8
    buffers.append(np.array([0, 1, 2], np.uint8))
    for value in (
        {}, [], {"array": 0, "type": 1, "shape": [3]}, {"array": 2, "type": 1, "shape": [2]},
        {"array": 0, "type": 8, "shape": [1]}, {"array": 1, "type": 9, "shape": [3]},
        {"array": 0, "type": 99, "shape": [1]}, {"array": 0, "type": 1, "shape": [-1, -2]}, {"texts": [1], "shape": [1]},
        {"texts": ["a"], "shape": [2]}, {"map": [[[], 1]]}, {"list": 5}, {"map": [[{"list": []}, 1]]},
    ):  # fmt: skip
        with pytest.raises(NotUnderstood):
            unpacked(value, buffers)


def test_an_answer_that_is_none_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with ort.InferenceSession(model(), options()) as session:
        first = process_of(session)
        monkeypatch.setattr(session._engine._process._channel, "receive", lambda most: ({"results": [{"array": 5}]}, []))
        with pytest.raises(ProcessEnded, match="said what are no results"):
            session.run(None, X)
        assert first.poll() is not None
        assert session.run(None, X)[0].tolist() == [2, 4]


def test_errors_of_a_stranger() -> None:
    assert type(apart_process._error_of(["InvalidGraph", "x"])) is InvalidGraph
    for found in (["os", "x"], ["annotations", "x"], ["SystemExit", "x"], 5, [], ["a"], {"a": 1}):
        assert type(apart_process._error_of(found)) is Fail


def test_values_there_and_back() -> None:
    import ml_dtypes

    for value in (
        None, 1, "a", 1.5, True, np.float32(2), np.array(3, np.int8), np.zeros((0, 3)), np.array([1, 2], ml_dtypes.int4),
        np.array([[1.5, 2]], ml_dtypes.bfloat16), np.array(["a", b"b"], object), [np.ones(2), [None]],
        {1: 2.0, "a": np.ones(1)},
    ):  # fmt: skip
        arrays: list[np.ndarray] = []
        found = packed(value, arrays)
        flat = [np.ascontiguousarray(a).reshape(-1).view(np.uint8).copy() for a in arrays]
        back = unpacked(found, flat)
        assert type(back) is type(value)
        assert getattr(back, "dtype", None) == getattr(value, "dtype", None)
        assert str(back) == str(value)
    with pytest.raises(TypeError, match="object cannot be sent"):
        packed(object(), [])
