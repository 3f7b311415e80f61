"""`import intarsia`: light, complete, and by the names that onnxruntime's users know."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import intarsia as ort
from intarsia.errors import InvalidArgument
from intarsia.log import session_logger


def python(code: str) -> str:
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(Path(ort.__file__).parents[1])},
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_importing_loads_nothing_heavy() -> None:
    code = "import sys, intarsia; print(*{'numpy', 'onnx', 'llvmlite', 'ml_dtypes'} & set(sys.modules))"
    assert python(code).split() == ["numpy"]


def test_importing_loads_only_what_a_warm_start_needs() -> None:
    """These cost more than all of Intarsia's own modules on the way to a session, or are a compiler's."""
    slow = "email hashlib importlib.metadata json pathlib random shutil socket subprocess tempfile"
    own = (
        "ops primitives codegen.llvm.jit codegen.elementwise.emitter passes.optimizer partition.partition "
        "providers.cpu.lowering.lower model.load_and_optimize model.compiled_model"
    )
    names = {*slow.split(), *(f"intarsia.{name}" for name in own.split())}
    code = f"import sys, numpy; before = set(sys.modules); import intarsia; print(*({names!r} - before) & set(sys.modules))"
    assert python(code) == "\n"


def test_a_session_on_the_reference_provider_needs_neither_onnx_nor_llvm(make_model, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(make_model("g (float[3] x) => (float[3] y) { a = Neg(x)  y = Abs(a) }").SerializeToString())
    code = (
        "import sys, intarsia, numpy\n"
        f"session = intarsia.InferenceSession({str(path)!r}, providers=['ReferenceExecutionProvider'])\n"
        "print(session.run(None, {'x': numpy.float32([1, 2, 3])})[0].tolist(), *{'onnx', 'llvmlite'} & set(sys.modules))"
    )
    assert python(code) == "[1.0, 2.0, 3.0]\n"


def test_every_public_name_exists() -> None:
    for name in ort.__all__:
        assert getattr(ort, name) is not None
    assert set(ort.__all__) <= set(dir(ort))
    assert ort.get_version_string() == ort.__version__
    with pytest.raises(AttributeError, match="module 'intarsia' has no attribute 'InferenceSesion'"):
        ort.InferenceSesion  # noqa: B018


def test_exceptions_by_onnxruntimes_module() -> None:
    from intarsia.capi import onnxruntime_pybind11_state as state

    assert state.InvalidArgument is InvalidArgument
    assert issubclass(state.Fail, state.RuntimeException)


class TestLogging:
    @pytest.fixture(autouse=True)
    def restored(self):
        logger = logging.getLogger("intarsia")
        before = logger.level
        yield
        logger.setLevel(before)

    def test_severity(self) -> None:
        ort.set_default_logger_severity(3)
        assert logging.getLogger("intarsia").level == logging.ERROR
        with pytest.raises(InvalidArgument, match=r"log severity: expected 0 \(verbose\) to 4 \(fatal\), got 9"):
            ort.set_default_logger_severity(9)
        ort.set_default_logger_verbosity(1)
        with pytest.raises(InvalidArgument, match="log verbosity: expected an integer, got 'x'"):
            ort.set_default_logger_verbosity("x")  # type: ignore[arg-type]

    def test_sessions_leave_no_loggers_behind(self) -> None:
        session_logger(0, "left-behind")
        assert "intarsia.session.left-behind" not in logging.Logger.manager.loggerDict

    def test_programs_without_logging_see_verbose_records_on_stderr(self) -> None:
        code = "from intarsia.log import session_logger; session_logger(0, 'x').debug('seen')\n"
        code += "import logging; logging.getLogger('intarsia').info('unseen')"
        found = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONPATH": str(Path(ort.__file__).parents[1])},
        )
        assert found.stderr == "DEBUG:intarsia.session.x: seen\n"
