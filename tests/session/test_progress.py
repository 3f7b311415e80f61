"""How far the making of a session has come, and stopping it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia as ort
from intarsia.progress import LoadProgress

KERNELS = ("Sin", "Sqrt", "Abs", "Neg")


def model(operators: tuple[str, ...] = KERNELS) -> bytes:
    """A kernel for each operator: their results are outputs, and each is summed along another number of axes."""
    lines = [f"y{i} = {op}(x)  z{i} = Transpose<perm = [1, 0]>(y{i})" for i, op in enumerate(operators)]
    outputs = ", ".join(f"float[m, n] z{i}" for i in range(len(operators)))
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[n, m] x) => ({outputs}) {{ {"  ".join(lines)} }}'
    return onnx.parser.parse_model(text).SerializeToString()


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, so that kernels are compiled; what this process has loaded it keeps."""
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def options_with(callback: object) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.set_progress_callback(callback)  # type: ignore[arg-type]
    return options


def test_stages_come_in_order_and_the_fraction_never_falls(cold: Path) -> None:
    seen: list[LoadProgress] = []
    ort.InferenceSession(model(), options_with(seen.append))
    stages = list(dict.fromkeys(now.stage for now in seen))
    assert stages == ["load", "optimize", "lower", "compile", "ready"]
    fractions = [now.fraction for now in seen]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)
    compiled = [now for now in seen if now.stage == "compile"]
    total = max(now.total for now in compiled)  # the thread pool's code may follow by itself
    assert [now.done for now in compiled if now.total == total] == list(range(total + 1))
    assert total > 1


def test_a_warm_start_is_loaded_and_ready(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model())
    os.utime(path, (1, 1))
    ort.InferenceSession(str(path))
    seen: list[str] = []
    session = ort.InferenceSession(str(path), options_with(lambda now: seen.append(now.stage)))
    assert (seen[0], seen[-1]) == ("load", "ready")
    assert session.run(None, {"x": np.zeros((2, 3), np.float32)})[0].shape == (3, 2)


@pytest.mark.parametrize("stage", ["load", "optimize", "lower", "compile", "ready"])
def test_a_callback_stops_the_making(cold: Path, stage: str) -> None:
    options = options_with(lambda now: now.stage != stage)
    with pytest.raises(ort.ModelLoadCanceled, match="the progress callback returned False"):
        ort.InferenceSession(model(), options)
    options.set_progress_callback(None)
    x = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
    found = ort.InferenceSession(model(), options).run(None, {"x": x})
    np.testing.assert_allclose(found[0], np.sin(x).T, rtol=1e-6)


@pytest.mark.parametrize("stage", ["optimize", "lower", "compile"])
def test_what_a_callback_raises_is_raised(cold: Path, stage: str) -> None:
    def callback(now: LoadProgress) -> None:
        if now.stage == stage:
            raise LookupError(f"at {now.done} of {now.total}")

    with pytest.raises(LookupError, match="at 0 of"):
        ort.InferenceSession(model(), options_with(callback))


def test_the_flag_stops_a_compilation_that_is_going_on(cold: Path) -> None:
    options = ort.SessionOptions()

    def callback(now: LoadProgress) -> None:
        if now.stage == "compile" and now.done == 1:
            setter = threading.Thread(target=options.set_load_cancellation_flag, args=(True,))
            setter.start()
            setter.join()

    options.set_progress_callback(callback)
    with pytest.raises(ort.ModelLoadCanceled, match="due to user request"):
        ort.InferenceSession(model(("Sinh", "Cosh", "Atan", "Asinh")), options)
    assert list((cold / "cache").rglob("obj-*")), "the kernel that was compiled is not in the cache"


def test_a_callback_is_a_function_and_stays_in_its_process() -> None:
    options = ort.SessionOptions()
    with pytest.raises(ort.InvalidArgument, match="set_progress_callback: expected a function or None, got 1"):
        options.set_progress_callback(1)  # type: ignore[arg-type]
    options.set_progress_callback(lambda now: None)
    assert pickle.loads(pickle.dumps(options)).progress_callback is None


CODE = """
import os, signal, sys, threading, time
sys.path[:0] = {path!r}
from test_progress import model, KERNELS
import intarsia as ort
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
options = ort.SessionOptions()
def callback(now):
    if now.stage == "compile" and now.done == 1:
        os.kill(os.getpid(), signal.SIGINT)
options.set_progress_callback(callback)
try:
    ort.InferenceSession(model(), options)
except KeyboardInterrupt:
    print("stopped")
options.set_progress_callback(None)
ort.InferenceSession(model(), options)
print("made")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals cannot be sent so on Windows")
def test_interrupt_ends_a_compilation(tmp_path: Path) -> None:
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": paths, "INTARSIA_CACHE_DIR": str(tmp_path)}
    code = textwrap.dedent(CODE).format(path=[str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, env=environment, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\nmade\n", "")
