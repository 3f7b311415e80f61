"""The library as a file, and as onnxruntime meets it: in its own process, in another, at the end of one."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import intarsia
from intarsia.codegen.llvm.link_objects import link
from intarsia.codegen.llvm.shared_object import shared_object
from intarsia.errors import EPFail, NotImplemented
from intarsia.ort_plugin import library, stubs_text
from intarsia.ort_plugin.loaded_library import library_bytes

LINUX = sys.platform == "linux"
pytestmark = pytest.mark.skipif(not LINUX, reason="the library is made for Linux")


def run(program: str, *arguments: str) -> str:
    """What a program writes, in a Python of its own; it has to end well."""
    prelude = "import numpy as np, onnxruntime, intarsia, os, sys\nonnxruntime.set_default_logger_severity(4)\n"
    done = subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


SESSION = """
from onnx import parser
source = parser.parse_model(
    '<ir_version: 9, opset_import: ["" : 19]> g (float[n, 8] x) => (float[n, 8] y) '
    "{ t = Transpose(x) m = MatMul(x, t) y = MatMul(m, x) }"
).SerializeToString()
onnxruntime.register_execution_provider_library("IntarsiaCPU", intarsia.plugin_library())
def make():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_provider_for_devices([d for d in onnxruntime.get_ep_devices() if d.ep_name == "IntarsiaCPU"], {})
    return onnxruntime.InferenceSession(source, options)
session, feed = make(), {"x": np.ones((2, 8), np.float32)}
"""


def test_the_same_file_for_the_whole_process(devices: list[Any]) -> None:
    path = intarsia.plugin_library()
    assert intarsia.plugin_library() == path
    assert Path(path).read_bytes() == library_bytes()
    assert Path(path).stat().st_mode & 0o077 == 0


def test_it_exports_its_functions_and_needs_no_library(devices: list[Any]) -> None:
    loaded = ctypes.CDLL(intarsia.plugin_library())
    for name in stubs_text.EXPORTS:
        assert getattr(loaded, name)
    for name in ("fail", "gone", "nonexistent"):
        assert not hasattr(loaded, name)


def test_the_device_says_what_it_is(devices: list[Any]) -> None:
    (device,) = devices
    assert (device.ep_name, device.ep_vendor) == ("IntarsiaCPU", "Intarsia")
    assert "CPU" in str(device.device.type)


def test_code_that_calls_outside_is_refused() -> None:
    from intarsia.codegen.llvm.jit import emit_object
    from intarsia.codegen.llvm.target import Target

    target = Target.create(Target.host().triple)
    calls = "declare i64 @strlen(ptr)\ndefine i64 @f(ptr %p) { %r = call i64 @strlen(ptr %p) ret i64 %r }"
    linked = link([emit_object(calls, target)], ["f"])
    assert linked is not None
    with pytest.raises(EPFail, match="must be position-independent and call nothing outside"):
        shared_object(linked, "f.so")


def test_other_systems_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "plan9")
    monkeypatch.setattr(library, "_loaded", [])
    with pytest.raises(NotImplemented, match=r"Linux on x86-64; this is plan9 .*InferenceSession instead"):
        intarsia.plugin_library()


def test_a_process_without_our_python(tmp_path: Path) -> None:
    """The file alone, whose table nobody filled, says what it needs."""
    path = tmp_path / "alone.so"
    path.write_bytes(library_bytes())
    said = run(
        """
        try:
            onnxruntime.register_execution_provider_library("IntarsiaCPU", sys.argv[1])
        except Exception as error:
            print(error)
        """,
        str(path),
    )
    assert "import intarsia there, and register what intarsia.plugin_library() returns" in said


@pytest.mark.parametrize(
    "end",
    [
        "pass",
        "del session",
        "onnxruntime.capi._pybind_state.ours = session",
        "del session; onnxruntime.unregister_execution_provider_library('IntarsiaCPU')",
    ],
    ids=["open", "closed", "held", "unregistered"],
)
def test_the_process_ends_well(end: str) -> None:
    assert run(f"{SESSION}print(session.run(None, feed)[0].sum()); session.run(None, feed)\n{end}\n") == "256.0\n"


def test_a_daemon_thread_that_runs_on_sizes_that_are_new_ends_with_the_process() -> None:
    """Its runs need Python, which has ended: they wait for the end of the process, and nothing is printed."""
    said = run(
        SESSION
        + """
import threading
begun = threading.Event()
def work():
    for n in range(1, 1 << 20):
        session.run(None, {"x": np.ones((n % 2000 + 1, 8), np.float32)})
        if n == 50: begun.set()
threading.Thread(target=work, daemon=True).start()
assert begun.wait(60)
os.dup2(1, 2)
onnxruntime.set_default_logger_severity(3)
"""
    )
    assert not said


def test_nothing_is_left_behind() -> None:
    path = run("print(intarsia.plugin_library())").strip()
    assert path.endswith(".so")
    assert not Path(path).parent.exists()


def test_a_child_goes_on() -> None:
    said = run(
        SESSION
        + """
session.run(None, feed)
child = os.fork()
if not child:
    print(session.run(None, feed)[0].sum())
    print(make().run(None, {"x": np.ones((3, 8), np.float32)})[0].sum(), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert os.path.exists(intarsia.plugin_library())
print(session.run(None, feed)[0].sum())
"""
    )
    assert said == "256.0\n576.0\n256.0\n"
