"""What a session does that finds nothing in the cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
CODE = """
import sys
from intarsia.codegen.llvm.compile_workers import Compilers
expected = []
began = Compilers.expect
def expect(self, most=2):
    expected.append(most)
    began(self, most)
Compilers.expect = expect
import intarsia
intarsia.InferenceSession({model!r}, {options})
print(len(expected), *sorted({{'llvmlite.ir', 'llvmlite.binding', 'onnx'}} & set(sys.modules)))
"""


def run(cache: Path, options: str = "None") -> str:
    code = CODE.format(model=str(DIGITS), options=options)
    environment = os.environ | {"INTARSIA_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="processes that compile are started on Linux only")
def test_compilers_are_started_at_once_where_nothing_was_compiled_yet(tmp_path: Path) -> None:
    without = "(lambda o: (o.add_session_config_entry('session.cache_weights_mib', '0'), o)[1])(intarsia.SessionOptions())"
    assert run(tmp_path) == "1"  # and neither LLVM nor onnx is in this process
    assert run(tmp_path) == "0"
    assert run(tmp_path, without) == "0"
