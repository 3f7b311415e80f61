"""Compilation in other processes: what comes back, what becomes of processes that end, crash, are stopped, or cannot be had."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="compiles with llvmlite")

from intarsia.cache.disk_cache import DiskCache
from intarsia.codegen.llvm import compile_ir, compile_workers
from intarsia.codegen.llvm.compile_ir import Effort, Request
from intarsia.codegen.llvm.compile_workers import VARIABLE, Compilers
from intarsia.codegen.llvm.jit import Compilation, Engine, KernelText, kernel_text
from intarsia.codegen.llvm.target import Target
from intarsia.errors import EPFail, InvalidArgument

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes that compile are started on Linux only")

TEXT = "define void @__SYMBOL__(ptr %a, i64 %t, i64 %n) nounwind {\n  store i64 NUMBER, ptr %a\n  ret void\n}"


def number(value: int) -> KernelText:
    return kernel_text("number", TEXT.replace("NUMBER", str(value)))


def request(kernel: KernelText) -> Request:
    host = Target.host()
    return Request(kernel.symbol, kernel.ir, host.triple, host.cpu, host.features)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compilers]:
    """Processes of the test's own."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(compile_workers, "LINGER_SECONDS", 3600.0)  # on a machine that does other things, too
    found = Compilers()
    monkeypatch.setattr(compile_workers, "_compilers", found)
    yield found
    found.close()
    if found._timer is not None:
        found._timer.cancel()


def pids(of: Compilers) -> list[int]:
    return [process._popen.pid for process in (*of._free, *of._busy)]


def test_processes_may_be_started_before_they_are_asked(own: Compilers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "3")
    monkeypatch.setattr(compile_workers, "available_cores", lambda: 3)
    own.expect()
    first = pids(own)
    assert len(first) == 2
    own.expect()
    assert pids(own) == first
    wanted = request(number(6))
    assert own.compiled(wanted) == compile_ir.compiled(wanted)
    assert sorted(pids(own)) == sorted(first)
    assert own._timer is not None  # they end although nobody may come
    monkeypatch.setenv(VARIABLE, "0")
    own.close()
    own.expect()
    assert not pids(own)


def test_a_process_that_ended_before_it_was_asked_is_not_missed(own: Compilers) -> None:
    own.expect(1)
    (gone,) = pids(own)
    assert own.facts() == compile_ir.facts()
    os.kill(gone, signal.SIGKILL)
    wanted = request(number(7))
    assert own.compiled(wanted) == compile_ir.compiled(wanted)
    assert pids(own) != [gone]


def test_what_takes_longest_is_compiled_first(own: Compilers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the length of the text, several times that where LLVM's passes run over it."""
    monkeypatch.setattr("intarsia.codegen.llvm.compile_workers.at_once", lambda: 1)
    order: list[str] = []
    begun, go = threading.Event(), threading.Event()

    def compiled(request: Request, owner: object = None) -> bytes:
        order.append(request.symbol)
        begun.set()
        assert go.wait(300)
        return b""

    monkeypatch.setattr(own, "compiled", compiled)
    filler = "; a comment\n" * 50
    first, short, passes = number(1), number(2), kernel_text("passes", filler + TEXT)
    plain, longest = (kernel_text("final", filler * n + TEXT, Effort.CODE) for n in (3, 20))
    quick = kernel_text("quick", filler * 2 + TEXT, Effort.QUICK)
    with Compilation(Engine(Target.host(), DiskCache(tmp_path))) as running:
        running.begin(first)
        assert begun.wait(300)
        for kernel in (short, plain, quick, passes, longest):
            running.begin(kernel)
        go.set()
        assert {kernel for kernel, _ in running.results([first, short, plain, quick, passes, longest])} == {
            first, short, plain, quick, passes, longest,
        }  # fmt: skip
    assert order == [kernel.symbol for kernel in (first, longest, passes, quick, plain, short)]


def test_a_process_compiles_as_this_one_does(own: Compilers) -> None:
    wanted = request(number(5))
    assert own.compiled(wanted) == compile_ir.compiled(wanted)
    (first,) = pids(own)
    own.compiled(request(number(6)))
    assert pids(own) == [first]
    assert own.facts() == compile_ir.facts()


def test_a_quick_choice_of_instructions_is_one_kernels_alone(own: Compilers) -> None:
    whole = request(number(7))
    before = own.compiled(whole)
    assert own.compiled(request(number(8))._replace(effort=Effort.QUICK))
    assert own.compiled(whole) == before
    assert len(pids(own)) == 1


ADDS = """
define internal i64 @one(ptr %p) alwaysinline nounwind {
  %x = load i64, ptr %p
  %y = add i64 %x, 1
  ret i64 %y
}
define void @__SYMBOL__(ptr %p, i64 %tid, i64 %nthreads) nounwind {
  %y = call i64 @one(ptr %p)
  store i64 %y, ptr %p
  ret void
}
"""
EFFORTS = (Effort.ALL, Effort.VECTORS, Effort.CODE, Effort.QUICK, Effort.CONTROL)


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("processes", ["0", "1"])
def test_every_effort_makes_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, effort: str, processes: str) -> None:
    monkeypatch.setenv(VARIABLE, processes)
    engine, kernel = Engine(Target.host(), DiskCache(tmp_path)), kernel_text("adds", ADDS, effort)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(engine.load([kernel])[kernel.symbol])
    number = ctypes.c_int64(41)
    call(ctypes.addressof(number), 0, 1)
    assert number.value == 42


def test_efforts_do_not_disturb_each_other(own: Compilers) -> None:
    kernel, host = kernel_text("adds", ADDS), Target.host()
    asked = [Request(kernel.symbol, kernel.ir, host.triple, host.cpu, host.features, effort) for effort in EFFORTS]
    first = [own.compiled(each) for each in asked]
    assert [own.compiled(each) for each in reversed(asked)] == first[::-1]
    assert len(pids(own)) == 1
    assert len(first[EFFORTS.index(Effort.CONTROL)]) < len(first[EFFORTS.index(Effort.QUICK)])  # nothing is called


def test_errors_come_back(own: Compilers) -> None:
    with pytest.raises(EPFail, match=r"(?s)LLVM rejects the text of kernel 'bad'.*expected type"):
        own.compiled(Request("bad", "define void @bad(", "", "", ""))
    with pytest.raises(EPFail, match="'other' defines no function of that name"):
        own.compiled(Request("other", number(1).ir, "", "", ""))
    assert own.compiled(request(number(2)))
    assert len(pids(own)) == 1


def test_one_that_ended_while_it_was_free_is_replaced(own: Compilers) -> None:
    own.compiled(request(number(1)))
    (first,) = pids(own)
    os.kill(first, signal.SIGKILL)
    assert own.compiled(request(number(2)))
    assert pids(own) != [first]


def test_a_crash_of_the_compiler_is_an_error(own: Compilers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "crashing.py"
    program.write_text(
        f"import sys, os\nsys.stdout.buffer.write({compile_ir.packed(('t', 'c', 'f', '1'))!r})\nsys.stdout.buffer.flush()\n"
        "sys.stdin.buffer.read(8)\nos.kill(os.getpid(), 11)\n"
    )
    monkeypatch.setattr(compile_ir, "__file__", str(program))
    with pytest.raises(EPFail, match=r"compiling kernel 'number_\w+': .* ended by SIGSEGV\); INTARSIA_COMPILER_PROCESSES=0"):
        own.compiled(request(number(1)))
    assert not pids(own)


@pytest.mark.parametrize("text", ["print('hi')", "print('hello, world', flush=True)\ninput()"])
def test_another_program_in_its_place_leaves_the_work_here(
    own: Compilers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    program = tmp_path / "other.py"
    program.write_text(text)
    monkeypatch.setattr(compile_ir, "__file__", str(program))
    with caplog.at_level("INFO", "intarsia"):
        assert own.compiled(request(number(1))) == compile_ir.compiled(request(number(1)))
        assert own.compiled(request(number(2)))
    assert len([m for m in caplog.messages if "a process for it cannot be had" in m]) == 1
    assert not pids(own)


@pytest.mark.parametrize("reason", ["off", "executable", "no such program"])
def test_without_processes_this_one_compiles(
    own: Compilers, monkeypatch: pytest.MonkeyPatch, reason: str, tmp_path: Path
) -> None:
    if reason == "off":
        monkeypatch.setenv(VARIABLE, "0")
    else:
        monkeypatch.setattr(sys, "executable", "/usr/bin/uwsgi" if reason == "executable" else str(tmp_path / "python3"))
    assert own.compiled(request(number(3))) == compile_ir.compiled(request(number(3)))
    assert not pids(own)


def test_the_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    assert compile_workers.at_once() == 1
    monkeypatch.setenv(VARIABLE, "0")
    assert compile_workers.at_once() == 1
    monkeypatch.setenv(VARIABLE, "two")
    with pytest.raises(InvalidArgument, match=r"INTARSIA_COMPILER_PROCESSES is 'two'; expected the most processes"):
        compile_workers.at_once()


def test_they_end_when_nobody_compiles_any_more(own: Compilers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_workers, "LINGER_SECONDS", 0.05)
    own.compiled(request(number(1)))
    (pid,) = pids(own)
    own.done()
    end = time.monotonic() + 300
    while _lives(pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert not pids(own)
    assert not _lives(pid)


def test_kernels_are_compiled_while_others_are_made(own: Compilers, tmp_path: Path) -> None:
    engine = Engine(Target.host(), DiskCache(tmp_path))
    with Compilation(engine) as compilation:
        compilation.begin(number(1))
        compilation.begin(number(1))
        compilation.begin(number(2))  # of which nobody asks
        addresses = engine.load([number(1), number(3)], compilation=compilation)
    assert len(addresses) == 2
    assert engine.compiled == 2
    with Compilation(engine) as again:
        again.begin(number(3))
        assert not again._codes


def test_what_is_not_done_at_the_end_is_stopped(own: Compilers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engine, begun = Engine(Target.host(), DiskCache(tmp_path)), threading.Event()
    answer = compile_workers._Process._answer

    def seen(process: compile_workers._Process) -> object:
        if process._facts is not None:  # which it is asked for first
            begun.set()
        return answer(process)

    program = tmp_path / "endless.py"
    facts = ("t", "c", "f", "1")
    program.write_text(
        f"import sys\nsys.stdout.buffer.write({compile_ir.packed(facts)!r})\nsys.stdout.buffer.flush()\nsys.stdin.read()\n"
    )
    with monkeypatch.context() as patch:
        patch.setattr(compile_ir, "__file__", str(program))
        patch.setattr(compile_workers._Process, "_answer", seen)
        with Compilation(engine) as compilation:
            compilation.begin(number(9))
            assert begun.wait(300)
    end = time.monotonic() + 300
    while own._busy and time.monotonic() < end:
        time.sleep(0.01)
    assert not pids(own)
    assert engine.load([number(4)])


def test_a_process_that_is_stopped_as_it_answers_is_not_asked_again(own: Compilers, monkeypatch: pytest.MonkeyPatch) -> None:
    """`stop` may come between an answer and the return of the process that gave it."""
    owner, answer = object(), compile_workers._Process._answer

    def answered(process: compile_workers._Process) -> object:
        found = answer(process)
        own.stop(owner)
        return found

    own.facts()
    monkeypatch.setattr(compile_workers._Process, "_answer", answered)
    assert own.compiled(request(number(1)), owner)
    monkeypatch.undo()
    assert not pids(own)
    assert own.compiled(request(number(2)), object())


def test_a_process_whose_answer_is_not_waited_for_is_not_asked_again(own: Compilers, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(process: compile_workers._Process) -> object:
        raise KeyboardInterrupt

    own.facts()
    monkeypatch.setattr(compile_workers._Process, "_answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        own.compiled(request(number(1)))
    monkeypatch.undo()
    assert not pids(own)
    assert own.compiled(request(number(2)))


def test_a_forked_child_has_processes_of_its_own(own: Compilers) -> None:
    own.compiled(request(number(1)))
    before = pids(own)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            own.forked()
            own.compiled(request(number(2)))
            os.write(write, b"same" if pids(own) == before else b"own")
            own.close()
        finally:
            os._exit(0)
    os.close(write)
    assert os.read(read, 10) == b"own"
    os.waitpid(child, 0)
    os.close(read)
    own.compiled(request(number(3)))
    assert pids(own) == before


START = """
import os, subprocess, sys
import numpy as np, onnx, intarsia
from onnx import TensorProto, helper
x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, 3]) for n in "xy")
graph = helper.make_graph([helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Neg", ["e"], ["y"])], "g", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
session = intarsia.InferenceSession(model.SerializeToString())
print(session.run(None, {"x": np.zeros((2, 3), np.float32)})[0][0, 0])
print("llvmlite.binding" in sys.modules)
"""


@pytest.mark.parametrize(("count", "inside"), [("", False), ("0", True)])
def test_a_first_start_needs_no_llvm_in_its_process(tmp_path: Path, count: str, inside: bool) -> None:
    environment = {**os.environ, "INTARSIA_CACHE_DIR": str(tmp_path), VARIABLE: count}
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, env=environment, check=True)
    if Target.host().arch != "x86_64" and not inside:
        pytest.skip("machine code is linked without LLVM on x86-64 only")
    assert done.stdout.split() == ["-1.0", str(inside)]
    assert not done.stderr


@pytest.mark.parametrize("end", ["", "sys.stdout.flush(); os._exit(0)"])
def test_processes_end_with_the_one_that_began_them(tmp_path: Path, end: str) -> None:
    code = (
        f"from intarsia.codegen.llvm import compile_workers\ncompile_workers.LINGER_SECONDS = 3600.0\n{START}\n"
        f"print(compile_workers.compilers()._free[0]._popen.pid)\n{end}"
    )
    environment = {**os.environ, "INTARSIA_CACHE_DIR": str(tmp_path), VARIABLE: ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    pid, limit = int(done.stdout.split()[-1]), time.monotonic() + 300
    while _lives(pid) and time.monotonic() < limit:
        time.sleep(0.01)
    assert not _lives(pid)


def _lives(pid: int) -> bool:
    try:
        state = re.search(r"\) (\w)", Path(f"/proc/{pid}/stat").read_text())
    except OSError:
        return False
    return state is None or state[1] != "Z"


def _compile_in_child(value: int) -> int:
    return len(compile_workers.compilers().compiled(request(number(value))))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing(method: str) -> None:
    compile_workers.compilers().compiled(request(number(1)))
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.map(_compile_in_child, [7, 8]) == [_compile_in_child(7), _compile_in_child(8)]


def test_results_are_right(own: Compilers, tmp_path: Path) -> None:
    import ctypes

    engine, out = Engine(Target.host(), DiskCache(tmp_path)), np.zeros(1, np.int64)
    for value in (11, 12):
        address = engine.load([number(value)])[number(value).symbol]
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)(out.ctypes.data, 0, 1)
        assert out[0] == value


def alone(program: str) -> list[str]:
    """What a Python prints that has `compile_ir.py`, by this name, and llvmlite, but nothing else of its packages."""
    import llvmlite

    start = (
        f"import sys\nsys.path.append({str(Path(llvmlite.__file__).parents[1])!r})\n"
        "from importlib.machinery import ModuleSpec, SourceFileLoader\nfrom types import ModuleType\n"
        f"loader = SourceFileLoader('compiler', {compile_ir.__file__!r})\ncompiler = ModuleType('compiler')\n"
        "compiler.__spec__ = ModuleSpec('compiler', loader)\nsys.modules['compiler'] = compiler\nloader.exec_module(compiler)\n"
    )
    command = [sys.executable, "-I", "-S", "-c", start + program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def test_a_process_imports_little_beside_llvmlite_and_compiles_with_it() -> None:
    asked = tuple(request(number(4)))
    names, code = alone(
        "compiler._import_quickly()\n"
        "print(*{'importlib.resources', 'llvmlite.ir', 'platform', 'typing', 'pickle'} & sys.modules.keys())\n"
        f"print(compiler.compiled(compiler.Request(*{asked!r})).hex())\n"
    )
    assert not names
    assert bytes.fromhex(code) == compile_ir.compiled(request(number(4)))


@pytest.mark.parametrize("error", ["AttributeError", "TypeError", "ImportError", "OSError"])
def test_an_llvmlite_of_another_form_is_imported_as_it_is(error: str) -> None:
    asked = tuple(request(number(5)))
    names, code = alone(
        f"class Place(str):\n    def __truediv__(self, name): raise {error}('not so')\n"
        "compiler._Place = Place\ncompiler._import_quickly()\n"
        "print(*[n for n, m in sys.modules.items() if n.startswith('llvmlite') or type(m) is compiler._Unused])\n"
        f"print(compiler.compiled(compiler.Request(*{asked!r})).hex())\n"
    )
    assert not names
    assert bytes.fromhex(code) == compile_ir.compiled(request(number(5)))


def test_a_process_that_is_stopped_as_it_starts_leaves_others_to_be_had(
    own: Compilers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = request(number(6))
    program = tmp_path / "waiting.py"
    program.write_text("import sys\nsys.stdin.read()")
    with monkeypatch.context() as patch:
        patch.setattr(compile_ir, "__file__", str(program))
        found: list[BaseException] = []

        def ask() -> None:
            try:
                own.compiled(asked, owner="somebody")
            except EPFail as error:
                found.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        while not own._busy:
            time.sleep(0.01)
        own.stop("somebody")
        thread.join()
        assert "it was stopped" in str(found[0])
    assert own.compiled(asked) == compile_ir.compiled(asked)
    assert pids(own)
