"""Sessions whose kernels a process compiles while the first tier serves runs, and which sessions those are."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia as ort
from intarsia.cache.disk_cache import get_cache
from intarsia.ep.node_program import NodeProgram
from intarsia.model import compile_process
from intarsia.model.background_compile import Underway
from intarsia.model.compile_process import CompileQueue, Waiter
from intarsia.model.single_program_model import DirectModel
from intarsia.providers.cpu import CPUExecutionProvider
from intarsia.providers.cpu.first_tier import kernel_image

pytestmark = pytest.mark.skipif(not compile_process.can_be_started(), reason="no processes for compiling on this system")

KEY = "session.compile_in_background"
X = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
SECONDS = 300


def model(text: str = "g (float[n, m] x) => (float[n, m] y) { a = Exp(x)  y = Neg(a) }", imports: str = "") -> bytes:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17{imports}]> {text}').SerializeToString()


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(folder))
    monkeypatch.delenv("INTARSIA_PROGRAM_CACHE")
    monkeypatch.setenv("INTARSIA_COMPILE_IN_BACKGROUND", "auto")
    if not kernel_image.is_made():
        assert kernel_image.make()
    return folder


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Processes begin once it is set; `processes` of the module counts them."""
    gate, run = threading.Event(), compile_process._Job.run
    begun.clear()

    def later(self: Any) -> bool:
        begun.append(threading.current_thread().name)
        assert gate.wait(SECONDS)
        return run(self)

    monkeypatch.setattr(compile_process._Job, "run", later)
    yield gate
    gate.set()
    until(lambda: not compile_process.queue()._working)


begun: list[str] = []


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def session_of(source: Any = None, **entries: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    for key, value in entries.items():
        options.add_session_config_entry(key.replace("__", "."), value)
    return ort.InferenceSession(model() if source is None else source, options)


def test_runs_change_over_to_what_a_process_compiled(held: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CPUExecutionProvider, "compile", None)  # nothing is compiled here
    session = session_of()
    assert not session.is_compiled
    before = session.run(None, {"x": X})[0]
    held.set()
    session.wait_until_compiled(SECONDS)
    until(lambda: session.is_compiled)
    assert isinstance(session._model, DirectModel)
    after = session.run(None, {"x": X})[0]
    for y in (before, after):
        np.testing.assert_allclose(y, -np.exp(X), rtol=1e-6)
    assert session_of().is_compiled  # from the cache


LOCKED = """
    import sys
    from intarsia.session.compile_worker import alone
    with alone(*sys.argv[1:]):
        print("in", flush=True)
        sys.stdin.readline()
"""


def test_processes_that_compile_the_same_wait_for_each_other(tmp_path: Path) -> None:
    """One makes the entry, and the others begin from it; whoever is ended meanwhile lets the next one go on."""
    command = [sys.executable, "-c", textwrap.dedent(LOCKED), str(tmp_path), "key"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    first = subprocess.Popen(command, **pipes)
    assert first.stdout is not None and first.stdout.readline() == "in\n"
    others = [subprocess.Popen(command, **pipes) for _ in range(2)]
    waiting = [f" {other.pid} " for other in others]

    def locks() -> list[str]:
        return [line for line in Path("/proc/locks").read_text().splitlines() if "->" in line]

    until(lambda: all(any(pid in line for line in locks()) for pid in waiting))
    with subprocess.Popen([*command[:-1], "another key"], **pipes) as free:
        assert free.communicate("\n")[0] == "in\n" and free.returncode == 0
    first.kill()
    first.communicate()
    for other in others:
        assert other.stdin is not None
        other.stdin.write("\n")
        other.stdin.flush()
    assert [other.communicate()[0] for other in others] == ["in\n"] * 2
    assert not list(tmp_path.glob(".lock-*"))
    with subprocess.Popen([*command[:-2], str(tmp_path / "missing"), "key"], **pipes) as unlocked:
        assert unlocked.communicate("\n")[0] == "in\n"


def test_a_file_with_its_weights_beside_it(tmp_path: Path, held: threading.Event) -> None:
    made = onnx.load_from_string(model("g (float[n, 3] x) => (float[n, 40] y) { y = MatMul(x, w) }"))
    w = np.random.default_rng(1).standard_normal((3, 40)).astype(np.float32)
    made.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    path = tmp_path / "m.onnx"
    onnx.save(made, path, save_as_external_data=True, location="m.bin", size_threshold=0)
    for name in ("m.onnx", "m.bin"):
        os.utime(tmp_path / name, (1, 1))
    time.sleep(2.1)  # until their last change is no recent one
    session = session_of(str(path))
    assert not session.is_compiled
    held.set()
    session.wait_until_compiled(SECONDS)
    assert isinstance(session._engine.settled_model(), DirectModel)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], X @ w, rtol=1e-5, atol=1e-6)


def test_weights_that_changed_meanwhile_are_not_those_of_the_session(tmp_path: Path, held: threading.Event) -> None:
    path, other = tmp_path / "m.onnx", tmp_path / "other.onnx"
    path.write_bytes(model())
    other.write_bytes(model("g (float[n, m] x) => (float[n, m] y) { a = Exp(x)  y = Abs(a) }"))
    for each in (path, other):
        os.utime(each, (1, 1))
    session = session_of(str(path))
    other.replace(path)
    held.set()
    session.wait_until_compiled(SECONDS)
    assert not isinstance(session._engine.settled_model(), DirectModel)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], -np.exp(X), rtol=1e-6)


def test_a_thread_compiles_where_the_process_fails(held: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    held.set()
    session.wait_until_compiled(SECONDS)
    assert not isinstance(session._engine.settled_model(), DirectModel)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], -np.exp(X), rtol=1e-6)


def test_a_thread_compiles_where_there_is_no_memory_for_a_request(
    held: threading.Event, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = session_of()
    monkeypatch.setattr(os, "memfd_create", None)  # as in a Python that has none
    held.set()
    session.wait_until_compiled(SECONDS)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], -np.exp(X), rtol=1e-6)
    assert "a process for kernels failed, a thread compiles: TypeError" in caplog.text


def test_a_queue_without_a_thread_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, told = CompileQueue(), threading.Event()

    def none_left(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            queue.ask(b"no request", lambda: None, Waiter(lambda _: None))
    queue.ask(b"no request", lambda: None, Waiter(lambda _: told.set()))
    assert told.wait(SECONDS)


def test_operators_of_the_program_are_compiled_by_a_thread() -> None:
    @ort.op("test.process::Twice")
    def twice(x: Any) -> Any:
        return x + x

    try:
        text = "g (float[n, m] x) => (float[n, m] y) { y = test.process.Twice(x) }"
        session = session_of(model(text, ', "test.process" : 1'))
        session.wait_until_compiled(SECONDS)
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], 2 * X)
    finally:
        ort.unregister_operator("test.process::Twice")


def test_what_cannot_be_kept_is_tried_once(held: threading.Event) -> None:
    held.set()
    source = model("""g (bool c, int64[1] at, float[n] x) => (y) {
        y = If(c) <then_branch = t () => (p) { s = Shape(x)  p = Unsqueeze(s, at) },
                   else_branch = e () => (q) { q = NonZero(x) }>
    }""")
    session = session_of(source)
    assert not session.is_compiled
    session.wait_until_compiled(SECONDS)
    assert not isinstance(session._engine.settled_model(), DirectModel)
    assert session_of(source).is_compiled


def test_sessions_of_one_model_share_a_process(held: threading.Event) -> None:
    sessions = [session_of() for _ in range(4)]
    other = session_of(model("g (float[n, m] x) => (float[n, m] y) { y = Tanh(x) }"))
    held.set()
    for session in (*sessions, other):
        session.wait_until_compiled(SECONDS)
    assert begun == ["intarsia-compile-queue"] * 2


@pytest.mark.parametrize("how", ["close", "del"])
def test_what_was_begun_is_kept_when_its_session_is_gone(how: str, held: threading.Event) -> None:
    session = session_of()
    until(lambda: bool(begun))
    if how == "close":
        session.close()
        assert not session.is_compiled
    del session
    gc.collect()
    held.set()
    until(lambda: not compile_process.queue()._working)
    assert session_of().is_compiled
    assert not any(thread.name == "intarsia-compile" for thread in threading.enumerate())


AT_ONCE: dict[str, Callable[[], ort.InferenceSession]] = {
    "the entry": lambda: session_of(session__compile_in_background="0"),
    "no cache for sessions": lambda: session_of(session__cache_weights_mib="0"),
    "a limit of memory": lambda: session_of(session__memory_limit_mib="100"),
    "a limit of time": lambda: session_of(session__creation_timeout_s="100"),
    "another provider": lambda: ort.InferenceSession(model(), providers=["ReferenceExecutionProvider"]),
    "deterministic": lambda: session_with(use_deterministic_compute=True),
    "deterministic, and the entry": lambda: session_with({KEY: "1"}, use_deterministic_compute=True),
    "untrusted": lambda: session_with(untrusted=True),
    "random numbers": lambda: session_of(model("g () => (float[2] y) { y = RandomNormal<shape = [2]>() }")),
    "random numbers in a body": lambda: session_of(
        model("""g (bool c) => (y) { y = If(c) <then_branch = t () => (float[2] p) { p = RandomNormal<shape = [2]>() },
              else_branch = e () => (float[2] q) { q = RandomUniform<shape = [2]>() }> }""")
    ),
    "functions of the program": lambda: session_with(reader=lambda _: memoryview(b"")),
}  # fmt: skip


def session_with(entries: dict[str, str] | None = None, reader: Any = None, **properties: Any) -> ort.InferenceSession:
    options = ort.SessionOptions()
    for name, value in properties.items():
        setattr(options, name, value)
    for key, value in (entries or {}).items():
        options.add_session_config_entry(key, value)
    if reader is not None:
        options.set_ep_context_data_read_func(reader)
    return ort.InferenceSession(model(), options)


@pytest.mark.parametrize("why", AT_ONCE)
def test_sessions_of_one_tier_are_compiled_at_once(why: str, held: threading.Event) -> None:
    assert AT_ONCE[why]().is_compiled
    assert not begun


@pytest.mark.parametrize("variable", ["INTARSIA_COMPILE_IN_BACKGROUND", "INTARSIA_COMPILER_PROCESSES"])
def test_variables_that_say_no(variable: str, held: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "0")
    assert session_of().is_compiled
    assert not begun


def test_a_cache_that_cannot_be_written(held: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_READ_ONLY", "1")
    assert session_of().is_compiled
    assert not begun


def test_without_kernels_of_the_first_tier(held: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_image, "load", lambda: None)
    assert session_of().is_compiled
    assert not begun


def test_a_variable_that_says_nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_COMPILE_IN_BACKGROUND", "yes")
    with pytest.raises(ort.InvalidArgument, match="INTARSIA_COMPILE_IN_BACKGROUND is 'yes'; expected one of auto,0,1"):
        session_of()


def test_the_first_tier_alone(held: threading.Event) -> None:
    session = session_of(session__first_tier_only="1")
    assert session.is_compiled  # there is nothing to wait for
    session.wait_until_compiled(1)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], -np.exp(X), rtol=1e-6)
    assert not begun
    assert not any(entry.key.startswith("start-") for entry in get_cache().entries())
    assert session_of(session__compile_in_background="0").is_compiled
    again = session_of(session__first_tier_only="1")  # whatever the cache has now
    assert isinstance(again._engine.settled_model().programs[0], NodeProgram)


def test_the_first_tier_alone_is_the_cpus() -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.first_tier_only", "1")
    with pytest.raises(ort.InvalidArgument, match=r"is the CPU's alone, but the providers are ReferenceExecution"):
        ort.InferenceSession(model(), options, providers=["ReferenceExecutionProvider"])
    options.add_session_config_entry("ep.context_enable", "1")
    with pytest.raises(ort.InvalidArgument, match=r"but 'ep\.context_enable' requires kernels"):
        ort.InferenceSession(model(), options, providers=["CPUExecutionProvider"])
    options.add_session_config_entry(KEY, "0")
    with pytest.raises(ort.InvalidArgument, match="which waits for the tuned tier: leave out one"):
        ort.InferenceSession(model(), options)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_changes_over_too(held: threading.Event) -> None:
    session = session_of()
    until(lambda: bool(begun))
    child = os.fork()
    if child == 0:
        try:
            held.set()
            right = np.allclose(session.run(None, {"x": X})[0], -np.exp(X))
            session.wait_until_compiled(SECONDS)
            right = right and isinstance(session._engine.settled_model(), DirectModel)
            os._exit(0 if right and np.allclose(session.run(None, {"x": X})[0], -np.exp(X)) else 2)
        finally:
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


ENDING = """
    import os, time, numpy, intarsia as ort
    from intarsia.model import compile_process
    session = ort.InferenceSession({path!r})
    print(session.is_compiled, session.run(None, {{"x": numpy.zeros((1, 1), numpy.float32)}})[0].tolist())
    children = f"/proc/{{os.getpid()}}/task"
    while not any(open(f"{{children}}/{{task}}/children").read() for task in os.listdir(children)):
        time.sleep(0.001)
    print(*(open(f"{{children}}/{{task}}/children").read() for task in os.listdir(children)))
"""


@pytest.mark.parametrize("temporary", [False, True])
def test_a_program_that_ends_while_kernels_are_compiled(temporary: bool, tmp_path: Path, empty_cache: Path) -> None:
    """It says nothing and waits for nobody. The process goes on for a while, unless its cache is to go with the program."""
    (tmp_path / "m.onnx").write_bytes(model())
    elsewhere = tmp_path if temporary else tmp_path / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ENDING.format(path=str(tmp_path / "m.onnx")))], capture_output=True, text=True,
        timeout=SECONDS, check=False, env={**os.environ, "TMPDIR": str(elsewhere)},
    )  # fmt: skip
    first, second = done.stdout.splitlines()
    assert (done.returncode, first, done.stderr) == (0, "False [[-1.0]]", "")
    if temporary:
        until(lambda: not Path(f"/proc/{int(second)}").exists())  # where it was not done before the program was
    else:
        until(lambda: any(empty_cache.glob("*/start-*")))


def test_the_queue_goes_on_after_a_listener_that_cannot_begin_a_thread() -> None:
    queue, told = CompileQueue(), threading.Event()

    def ending(_: bool) -> None:
        raise RuntimeError("can't start new thread at interpreter shutdown")

    queue.ask(b"no request", lambda: None, Waiter(ending))
    queue.ask(b"another", lambda: None, Waiter(lambda kept: told.set() if not kept else None))
    assert told.wait(SECONDS)


def test_sessions_that_are_closed_before_their_turn_leave_it_to_others() -> None:
    queue, first, told = CompileQueue(), threading.Event(), threading.Event()
    begun: list[str] = []
    queue.ask(b"first", first.wait, Waiter(lambda _: None))
    for i in range(20):
        queue.ask(f"closed {i}".encode(), lambda: begun.append("closed"), Waiter(lambda _: None, lambda: False))
    queue.ask(b"live", lambda: begun.append("live"), Waiter(lambda _: told.set()))
    first.set()
    assert told.wait(SECONDS)
    assert begun == ["live"]


def test_questions_wait_for_the_process(held: threading.Event) -> None:
    session = session_of()
    assert isinstance(session._engine.model, Underway)
    held.set()
    session.run(None, {"x": X})
    explained = session.explain()
    assert {row.provider for row in explained.nodes} == {"CPUExecutionProvider"}
    assert session.is_compiled
    assert re.search(r"the first \d runs were the first tier's; kernels were there after \d+\.\d\d s", str(explained))


def test_what_is_said_of_the_first_tier_alone(tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.first_tier_only", "1")
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "trace")
    session = ort.InferenceSession(
        model("g (float[n, m] x) => (float[n, m] y) { a = Exp(x)  y = Mod<fmod = 1>(a, x) }"), options
    )
    session.run(None, {"x": X + 1})
    explained = session.explain()
    assert [(row.kind, row.kernel) for row in explained.nodes] == [("compiled", "first tier: Exp"), ("host", "Mod")]
    said = "runs are the first tier's: of 2 nodes 1 by functions of its own, the others by NumPy"
    assert said in str(explained)
    assert said in str(session.profile({"x": X + 1}, 1, roofline=False))
    events = json.loads(Path(session.end_profiling()).read_text())
    assert [event["args"] for event in events if event["name"] == "model_run"] == [{"tier": "first"}]


FIRST_START = """
import sys, numpy
import intarsia
imported = set(sys.modules)
session = intarsia.InferenceSession({path!r}, providers=["CPUExecutionProvider"])
session.run(None, {{"x": numpy.ones((1, 3, 8, 8), numpy.float32)}})
print(*sorted(set(sys.modules) - imported))
sys.stdout.flush()
import os
os._exit(0)
"""


def test_a_first_session_imports_nothing_that_compiles(tmp_path: Path) -> None:
    """Each module takes some tenths of a millisecond of every first start."""
    path = tmp_path / "net.onnx"
    weights = ", ".join(["0.5"] * 54)
    path.write_bytes(model(
        "g (float[1, 3, h, w] x) => (float[1, 2] y) <float[2, 3, 3, 3] k = {" + weights + "}, float[2, 2] m = {1, 2, 3, 4}> {"
        "c = Conv<pads = [1, 1, 1, 1]>(x, k)  r = Relu(c)  p = GlobalAveragePool(r)  f = Flatten(p)  y = MatMul(f, m) }"
    ))  # fmt: skip
    run = subprocess.run([sys.executable, "-c", FIRST_START.format(path=str(path))], capture_output=True, text=True, check=True)
    found = set(run.stdout.split())
    writes = {name for name in found if re.match(r"intarsia\.(codegen\.builder|codegen\.loops|providers\.cpu\.lowering)", name)}
    writes |= {name for name in found if re.match(r"intarsia\.providers\.cpu\.kernels\..*(_kernel|microkernel|pack_b)$", name)}
    assert "intarsia.providers.cpu.first_tier.program" in found and not writes
    others = {"onnx", "llvmlite", "ml_dtypes", "logging", "hashlib", "json", "tempfile", "concurrent.futures"}
    assert not others & found
