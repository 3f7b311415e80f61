"""Signals in native code, and steps that are left while they compute.

What waits for a signal runs in a process of its own, so that a test fails where nothing ends the run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the executor is native code made with llvmlite")

from intarsia.codegen.llvm.jit import get_engine, kernel_text
from intarsia.plan.executor_abi import LONG, call_words, sliced_words
from intarsia.runtime.executor import OK, TERMINATED, CallBlock, StepTableBuilder, get_pool, sliced_step

# args: scratch, cells, pieces: scratch[tid's own word] += 1, cells[tid] += pieces + nthreads * 1000
NOTE = """
define void @__SYMBOL__(ptr %args, i64 %tid, i64 %nthreads) nounwind {
  %scratch = load ptr, ptr %args
  %cp = getelementptr i64, ptr %args, i64 1
  %cells = load ptr, ptr %cp
  %bytes = shl i64 %tid, 6
  %own = getelementptr i8, ptr %scratch, i64 %bytes
  %v0 = load i64, ptr %own
  %v1 = add i64 %v0, 1
  store i64 %v1, ptr %own
  %cell = getelementptr i64, ptr %cells, i64 %tid
  %c0 = load i64, ptr %cell
  %big = mul i64 %nthreads, 1000
  %pp = getelementptr i64, ptr %args, i64 2
  %pieces = load i64, ptr %pp
  %one = add i64 %big, %pieces
  %c1 = add i64 %c0, %one
  store i64 %c1, ptr %cell
  ret void
}
"""

# args: flag, cells: cells[tid] = 1, and the flag is set by number 5
STOP_AT_FIVE = """
define void @__SYMBOL__(ptr %args, i64 %tid, i64 %nthreads) nounwind {
  %flag = load ptr, ptr %args
  %cp = getelementptr i64, ptr %args, i64 1
  %cells = load ptr, ptr %cp
  %cell = getelementptr i64, ptr %cells, i64 %tid
  store i64 1, ptr %cell
  %five = icmp eq i64 %tid, 5
  br i1 %five, label %set, label %out
set:
  store i64 1, ptr %flag
  br label %out
out:
  ret void
}
"""


def load(name: str, text: str) -> int:
    kernel = kernel_text(name, text)
    return get_engine().load([kernel])[kernel.symbol]


def words(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_sliced_step_plays_all_its_threads_and_shares_their_scratch(threads: int) -> None:
    slices = 5
    cells, scratch = np.zeros(threads * slices, np.int64), np.zeros(threads * 8, np.int64)
    args = words(scratch.ctypes.data, cells.ctypes.data, 1)
    call = call_words()
    outer = words(*sliced_words((load("note", NOTE), args.ctypes.data, 3), slices, call.ctypes.data, 0, 64, pieces=2))
    builder = StepTableBuilder()
    builder.step(sliced_step(), outer.ctypes.data)
    table = builder.build()
    call[:2] = table.rows.ctypes.data, 1
    for _ in range(2):
        assert get_pool(threads).run_block(int(call.ctypes.data)) == OK
    assert cells.tolist() == [2 * (slices + 1000 * threads * slices)] * (threads * slices)
    assert args[2] == 1, "the step's own arguments were changed"
    assert scratch[::8].tolist() == [2 * slices] * threads


def test_a_flag_is_seen_between_slices_and_ends_the_run() -> None:
    cells, after = np.zeros(16, np.int64), np.zeros(16, np.int64)
    flag = words(0)
    first, second = words(flag.ctypes.data, cells.ctypes.data), words(flag.ctypes.data, after.ctypes.data)
    kernel = load("stop_at_five", STOP_AT_FIVE)
    call = call_words()
    outer = words(*sliced_words((kernel, first.ctypes.data, 2), 16, call.ctypes.data))
    builder = StepTableBuilder()
    builder.step(sliced_step(), outer.ctypes.data)
    table = builder.build()
    call[:2] = table.rows.ctypes.data, 1
    call[5] = flag.ctypes.data
    assert get_pool(1).run_block(int(call.ctypes.data)) == TERMINATED
    assert cells.tolist() == [1] * 6 + [0] * 10, "slices after the one that set the flag were called"
    builder.step(kernel, second.ctypes.data)
    longer = builder.build()
    flag[0], call[0], call[1] = 0, longer.rows.ctypes.data, 2
    assert get_pool(1).run_block(int(call.ctypes.data)) == TERMINATED
    assert not after.any()
    flag[0], call[5] = 0, 0
    assert get_pool(1).run_block(int(call.ctypes.data)) == OK, "what ended one run ended the next one"
    assert cells.all()


def test_a_long_run_outside_the_main_thread_is_as_any_other() -> None:
    cells = np.zeros(8, np.int64)
    scratch = np.zeros(8, np.int64)
    args = words(scratch.ctypes.data, cells.ctypes.data, 1)
    builder = StepTableBuilder()
    builder.step(load("note", NOTE), args.ctypes.data, serial=True)
    block = CallBlock(builder.build(), long=True)
    assert block.words[7] == LONG
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(get_pool(1).run_block(block.address)))
    thread.start()
    thread.join()
    assert found == [OK]
    assert cells[0] == 1001


HEAD = """
import os, signal, sys, threading, time
import numpy as np
import onnx.parser
import intarsia as ort
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
def model(text):
    return onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> ' + text).SerializeToString()
LOOP = '''g (float[4] x, int64 n) => (float[4] y) { c = Constant<value = bool {1}>()
    y = Loop(n, c, x) <body = b (int64 i, bool d, float[4] a) => (bool e, float[4] a2) { e = Identity(d)  a2 = Neg(a) }> }'''
session = ort.InferenceSession(model(LOOP))
x, endless = np.float32([1, 2, 3, 4]), np.array(1 << 60)
assert (session.run(None, {"x": x, "n": np.array(3)})[0] == -x).all()
def runs():  # whether the main thread is in a session's code
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame is not None and not frame.f_globals["__name__"].startswith("intarsia.session."):
        frame = frame.f_back
    return frame is not None
def kill(number=signal.SIGINT, begun=runs):
    def work():
        while not begun():
            time.sleep(0.01)
        time.sleep(0.1)
        os.kill(os.getpid(), number)
    threading.Thread(target=work, daemon=True).start()
"""

CASES = {
    "Ctrl-C ends a plain run, and the session goes on": """
        kill()
        try:
            session.run(None, {"x": x, "n": endless})
        except KeyboardInterrupt:
            print("stopped")
        assert (session.run(None, {"x": x, "n": np.array(3)})[0] == -x).all()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    """,
    "again and again": """
        for _ in range(3):
            kill()
            try:
                session.run(None, {"x": x, "n": endless})
            except KeyboardInterrupt:
                print("stopped")
    """,
    "a run with a timeout, or with options": """
        for arguments in ({"timeout": 1000}, {"run_options": ort.RunOptions()}):
            kill()
            try:
                session.run(None, {"x": x, "n": endless}, **arguments)
            except KeyboardInterrupt:
                print("stopped")
    """,
    "a binding": """
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_cpu_input("n", endless)
        binding.bind_output("y")
        kill()
        try:
            session.run_with_iobinding(binding)
        except KeyboardInterrupt:
            print("stopped")
        binding.bind_cpu_input("n", np.array(3))
        session.run_with_iobinding(binding)
        assert (binding.copy_outputs_to_cpu()[0] == -x).all()
    """,
    "a handler that returns lets the run go on to its end": """
        seen = []
        signal.signal(signal.SIGINT, lambda number, frame: seen.append(frame.f_code.co_name))
        kill(begun=lambda: True)
        y = session.run(None, {"x": x, "n": np.array(30_000_001)})[0]
        assert (y == -x).all()
        while not seen:
            time.sleep(0.01)  # where the run was done before the signal came
        print("stopped", seen)
    """,
    "a handler stops the run by its options": """
        options = ort.RunOptions()
        def handler(number, frame):
            options.terminate = True
        signal.signal(signal.SIGTERM, handler)
        kill(signal.SIGTERM)
        try:
            session.run(None, {"x": x, "n": endless}, options)
        except ort.Fail as error:
            assert "terminate" in str(error)
            print("stopped")
    """,
    "an alarm that raises": """
        def handler(number, frame):
            raise TimeoutError("alarm")
        signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            session.run(None, {"x": x, "n": endless})
        except TimeoutError as error:
            print("stopped", error)
    """,
    "a handler that runs a model": """
        results = []
        def handler(number, frame):
            results.append(session.run(None, {"x": x, "n": np.array(300_001)})[0])
            raise SystemExit(0)
        signal.signal(signal.SIGINT, handler)
        kill()
        try:
            session.run(None, {"x": x, "n": endless})
        except SystemExit:
            assert (results[0] == -x).all()
            print("stopped")
    """,
    "in the middle of one product": """
        large = ort.InferenceSession(model("g (float[n, k] x, float[k, m] w) => (float[n, m] y) { y = MatMul(x, w) }"))
        a = np.ones(40_000_000, np.float32)
        kill()
        try:
            large.run(None, {"x": a.reshape(2000, -1), "w": a.reshape(-1, 2000)})
            print("finished")
        except KeyboardInterrupt:
            print("stopped")
        b = np.eye(300, dtype=np.float32)
        assert (large.run(None, {"x": b, "w": b})[0] == b).all()
    """,
    "in a forked child": """
        pid = os.fork()
        if pid == 0:
            kill()
            try:
                session.run(None, {"x": x, "n": endless})
            except KeyboardInterrupt:
                print("stopped", flush=True)
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    """,
    "ignored where the program ignores it": """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        kill(begun=lambda: True)
        assert (session.run(None, {"x": x, "n": np.array(20_000_001)})[0] == -x).all()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        print("stopped")
    """,
}


@pytest.mark.skipif(sys.platform == "win32", reason="signals cannot be sent so on Windows")
@pytest.mark.parametrize("case", CASES)
def test_signals_are_answered_in_native_code(case: str) -> None:
    import textwrap

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    code = HEAD + textwrap.dedent(CASES[case])
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=600, env=environment, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), case
    assert done.stdout.startswith("stopped")
