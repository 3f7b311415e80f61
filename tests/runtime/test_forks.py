"""Forks while other threads run models and make sessions, and the end of a program in which threads run models."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import intarsia
from intarsia.machine import fork_safety
from intarsia.model.gc_pause import collection_paused

forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

MODELS = '''
import multiprocessing, os, sys, threading, time
import numpy as np
import onnx.parser
import intarsia as ort

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
LOOP = HEAD + """ g (float[n,n] x) => (float[n,n] y) <int64 most = {1000000000}, bool true = {1}> {
    y = Loop(most, true, x) <body = b (int64 i, bool c, float[n,n] v) => (bool d, float[n,n] w) {
        d = Identity(c) u = MatMul(v, v) w = Tanh(u) }>
}"""
PRODUCT = HEAD + " g (float[n,n] x) => (float[n,n] y) { u = MatMul(x, x) y = Tanh(u) }"
WINDOWS = HEAD + """ g (float[1,1,n,m] x) => (float[1,1,o,p] y) <float[1,1,3,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}> {
    a = Conv(x, w) b = Relu(a) c = MaxPool<kernel_shape = [2, 2]>(b) y = Softmax<axis = 3>(c) }"""

def session(text, **keywords):
    return ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), **keywords)

def ones(*shape):
    return np.ones(shape, np.float32)
'''


def run(code: str, *arguments: str, timeout: float = 600, **environment: str) -> subprocess.CompletedProcess[str]:
    source = Path(intarsia.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(source), **environment}
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", MODELS + code, *arguments],
        capture_output=True, text=True, timeout=timeout, env=env, check=False,
    )  # fmt: skip


FORKED = '''
def waited(pid, seconds=200):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "hangs"

def tried(delay):
    """A process of its own, since modules are imported once: another thread works, and it forks after a while."""
    pid = os.fork()
    if pid:
        return waited(pid, 400)
    made = session(WINDOWS) if WHAT != "making" else None
    x = ones(1, 1, 12, 12)
    def work():
        (made or session(WINDOWS)).run(None, {"x": x})
    threading.Thread(target=work, daemon=True).start()
    time.sleep(delay)
    child = os.fork()
    if child == 0:
        if made is not None:
            made.run(None, {"x": x})
        own = session(PRODUCT)
        np.testing.assert_allclose(own.run(None, {"x": ones(2, 2)})[0], np.tanh(2.0), rtol=1e-5)
        with own._engine.variants_lock:
            pass
        os._exit(0)
    os._exit(0 if waited(child) == 0 else 1)

WHAT = sys.argv[1]
print([tried(delay) for delay in map(float, sys.argv[2:])])
'''


@forking
@pytest.mark.parametrize("what", ["making", "running"])
def test_a_child_of_a_process_whose_other_thread_works(what: str, tmp_path: Path) -> None:
    delays = [f"{0.002 * i * (i if what == 'making' else 1):.3f}" for i in range(8)]
    for _ in range(2):  # with an empty cache, and with a filled one
        done = run(FORKED, what, *delays, timeout=1200, INTARSIA_CACHE_DIR=str(tmp_path), INTARSIA_PROGRAM_CACHE="1")
        assert (done.stdout.strip(), done.stderr) == (str([0] * len(delays)), "")


@forking
def test_locks_are_free_in_a_child_that_others_held() -> None:
    plain, recursive, held, ready = fork_safety.lock(), fork_safety.recursive_lock(), threading.Event(), threading.Barrier(2)

    class Slow:
        @functools.cached_property
        def value(self) -> int:
            ready.wait(300)
            held.wait(600)
            return 1

    Slow.__module__ = "intarsia.machine.fork_safety"  # as the package's own
    fork_safety.Slow = Slow  # type: ignore[attr-defined]

    def work() -> None:
        with plain, recursive, collection_paused():
            assert Slow().value == 1

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    try:
        child = os.fork()
        if child == 0:
            import gc

            Slow.value.func = lambda self: 2  # type: ignore[attr-defined, method-assign]
            other = threading.Thread(target=lambda: Slow().value, daemon=True)
            other.start()
            other.join(300)
            free = plain.acquire(timeout=60) and recursive.acquire(timeout=60) and gc.isenabled() and not other.is_alive()
            os._exit(0 if free else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert plain.locked()
    finally:
        held.set()
        thread.join()
        del fork_safety.Slow  # type: ignore[attr-defined]


@forking
def test_what_is_held_while_a_process_forks() -> None:
    lock, entered = fork_safety.held_lock(3), threading.Event()
    left: list[float] = []

    def work() -> None:
        with lock:
            entered.set()
            time.sleep(0.2)
            left.append(time.monotonic())

    thread = threading.Thread(target=work)
    thread.start()
    assert entered.wait(300)
    child = os.fork()
    if child == 0:
        os._exit(0 if left and lock.acquire(timeout=60) else 1)
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert lock.acquire(timeout=60)
    lock.release()
    fork_safety._held.remove((3, lock))


@forking
def test_a_fork_while_kernels_are_handed_to_threads() -> None:
    """The lock that a thread pool's module takes before a fork is not held while this process waits for the engine's."""
    code = """
from intarsia.codegen.llvm import jit
from intarsia.machine import fork_safety
ThreadPoolExecutor = jit._thread_pools().ThreadPoolExecutor  # as whoever compiles has it
fork_safety._PATIENCE_SECONDS = 1e6  # two threads that wait for each other do so for ever
entered = threading.Event()
def work():
    with jit._lock, ThreadPoolExecutor(1) as pool:
        entered.set()
        end = time.monotonic() + 1
        while time.monotonic() < end:
            pool.submit(time.sleep, 0).result()
thread = threading.Thread(target=work)
thread.start()
entered.wait()
child = os.fork()
if child == 0:
    os._exit(0 if jit._lock.acquire(timeout=60) else 1)
print(os.waitpid(child, 0)[1])
thread.join()
"""
    assert run(code, timeout=120).stdout.split() == ["0"]


@forking
def test_a_thread_pools_module_that_is_imported_while_a_process_forks() -> None:
    """It takes a lock before each fork and gives it back afterwards: this one had begun already."""
    code = """
from intarsia.machine import fork_safety
lock, entered = fork_safety.held_lock(9), threading.Event()
assert "concurrent.futures.thread" not in sys.modules
def work():
    with lock:
        entered.set()
        time.sleep(0.1)
        import concurrent.futures.thread
thread = threading.Thread(target=work)
thread.start()
entered.wait()
for _ in range(2):
    child = os.fork()
    if child == 0:
        with lock, sys.modules["concurrent.futures.thread"]._global_shutdown_lock:
            os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
thread.join()
from concurrent.futures import ThreadPoolExecutor
print(ThreadPoolExecutor(1).submit(lambda: 5).result())
"""
    done = run(code)
    assert (done.stdout.split(), done.stderr) == (["0", "0", "5"], "")


@forking
def test_a_fork_waits_for_an_import(tmp_path: Path) -> None:
    """Of the package's own; one that a program asked for goes on, or would never end if it waited for the fork."""
    (tmp_path / "slowly.py").write_text("import __main__\n__main__.entered.set()\n__main__.held()\n__main__.ended.set()\n")
    code = f"""
sys.path.insert(0, {str(tmp_path)!r})
from intarsia.machine import fork_safety
fork_safety._PATIENCE_SECONDS = 1e6
entered, ended, forked = threading.Event(), threading.Event(), threading.Event()
space = {{"__name__": "intarsia.made_up"}}
exec("def work():\\n    import slowly", space)
theirs = {{"__name__": "somebody"}}
exec("def work():\\n    import slowly", theirs)
for work, held in ((theirs["work"], forked.wait), (space["work"], lambda: time.sleep(0.3))):
    sys.modules.pop("slowly", None)
    entered.clear(), ended.clear()
    thread = threading.Thread(target=work)
    thread.start()
    entered.wait()
    child = os.fork()
    if child == 0:
        os._exit(ended.is_set())
    forked.set()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    thread.join()
import slowly
"""
    done = run(code, timeout=120)
    assert (done.stdout.split(), done.stderr) == (["0", "1"], "")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method: str, tmp_path: Path) -> None:
    if method not in __import__("multiprocessing").get_all_start_methods():
        pytest.skip(f"no {method} here")
    (tmp_path / "worked.py").write_text("def work(session, x):\n    return float(session.run(None, {'x': x})[0][0, 0])\n")
    code = f"""
sys.path.insert(0, {str(tmp_path)!r})
import worked
if __name__ == "__main__":
    made = session(PRODUCT)
    endless = session(LOOP)
    threading.Thread(target=endless.run, args=(None, {{"x": ones(50, 50)}}), daemon=True).start()
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        print(pool.starmap(worked.work, [(made, ones(n, n)) for n in (1, 2, 3)]))
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert [round(float(y), 3) for y in done.stdout.strip("[]\n").split(",")] == [0.762, 0.964, 0.995]


ENDS = {
    "a daemon thread": "threading.Thread(target=made.run, args=(None, feed), daemon=True).start()",
    "two of them": "for _ in range(2): threading.Thread(target=made.run, args=(None, feed), daemon=True).start()",
    "with options": "threading.Thread(target=made.run, args=(None, feed, ort.RunOptions()), daemon=True).start()",
    "with a timeout": "threading.Thread(target=lambda: made.run(None, feed, timeout=1000), daemon=True).start()",
    "asynchronous runs": "for _ in range(12): made.run_async(None, feed, print, None)",
    "again and again": """
def work():
    other = session(PRODUCT)
    while True:
        other.run(None, {"x": ones(30, 30)})
for _ in range(3): threading.Thread(target=work, daemon=True).start()""",
    "a binding": """
binding = made.io_binding()
binding.bind_cpu_input("x", feed["x"])
binding.bind_output("y")
threading.Thread(target=lambda: made.run_with_iobinding(binding), daemon=True).start()""",
    "sessions being made": """
def work():
    for n in range(1000):
        session(WINDOWS.replace("kernel_shape = [2, 2]", f"kernel_shape = [{1 + n % 7}, 2]"))
threading.Thread(target=work, daemon=True).start()""",
    "compiled in the background": """
options = ort.SessionOptions()
options.add_session_config_entry("session.compile_in_background", "1")
late = session(WINDOWS, sess_options=options)""",
}


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("what", list(ENDS))
def test_a_program_ends_while_threads_run_models(what: str, provider: str, tmp_path: Path) -> None:
    code = f"""
made = session(LOOP, providers=[{provider!r}])
feed = {{"x": ones(200, 200)}}
{ENDS[what]}
time.sleep(0.5)
print("end", flush=True)
"""
    done = run(code, timeout=300, INTARSIA_CACHE_DIR=str(tmp_path) if "made" in what or "compiled" in what else "")
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_what_runs_at_the_end_of_a_program() -> None:
    """Functions of `atexit` that were registered before and after the package's own, and destructors."""
    code = """
import atexit, weakref
results = []
def ended(when):
    print(when, float(made.run(None, {"x": ones(60, 60)})[0][0, 0]), flush=True)
atexit.register(ended, "before")
made = session(PRODUCT)
made.run(None, {"x": ones(60, 60)})
atexit.register(ended, "after")
endless = session(LOOP)
threading.Thread(target=endless.run, args=(None, {"x": ones(100, 100)}), daemon=True).start()
time.sleep(0.3)
"""
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "after 1.0\nbefore 1.0\n", "")


def test_asynchronous_runs_that_take_a_moment_are_waited_for() -> None:
    code = """
from intarsia.session import async_threads
async_threads.GRACE_SECONDS = 400.0  # on a machine that does other things
made = session(PRODUCT)
for n in (20, 400):  # so that what is waited for is a run, not a compilation
    made.run(None, {"x": ones(n, n)})
def tell(results, n, error):  # by one write: `print` writes piece by piece, and the two callbacks may run at once
    os.write(1, f"{n} {len(results)} {error!r}\\n".encode())
for n in (20, 400):
    made.run_async(None, {"x": ones(n, n)}, tell, n)
"""
    done = run(code)
    assert sorted(done.stdout.splitlines()) == ["20 1 ''", "400 1 ''"], done.stderr
