"""What a program says about itself, as golden text (`pytest --update-golden` writes it anew)."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from cpu_models import normal, session_of

TEXT = """g (float[n, 8] x) => (float[n, 4] y, int64[2, k] z) {
    m = MatMul(x, w)  a = Add(m, b)  r = Relu(a)  s = Softmax(r)  t = Identity(s)  z = NonZero(t)  y = Neg(t) }"""
CONSTANTS = {"w": normal(8, 4), "b": normal(4)}


@pytest.mark.parametrize("stage", ["kernels", "plan", "program"])
def test_text_of_each_stage(stage: str, check_golden: Callable[[str, str], None]) -> None:
    session = session_of(TEXT, CONSTANTS)
    (program,) = session._model.programs
    if stage == "plan":
        assert program.describe(stage).startswith("no plan yet")
    session.run(None, {"x": normal(3, 8)})
    text = re.sub(r"arena [\d,]+ bytes|@\d+|panels\d+", lambda m: re.sub(r"[\d,]+", "N", m[0]), program.describe(stage))
    check_golden(f"program_{stage}.txt", text)  # the size of memory and of panels depends on the machine


def test_source_and_assembly_have_every_kernel() -> None:
    (program,) = session_of(TEXT, CONSTANTS)._model.programs
    symbols = [line.rsplit("[", 1)[1][:-1] for line in program.describe("kernels").splitlines() if line.startswith("  ")]
    assert len(symbols) == 3
    for symbol in symbols:
        assert f'@"{symbol}"' in program.describe("source") or f"@{symbol}" in program.describe("source")
        assert f"# --- {symbol}" in program.describe("assembly")


def test_plans_that_wait_for_data() -> None:
    session = session_of("g (float[n] x) => (float[k] y) { m = IsNaN(x)  i = Not(m)  c = Compress(x, i)  y = Exp(c) }")
    session.run(None, {"x": np.array([1, np.nan], np.float32)})
    (program,) = session._model.programs
    assert "Segment: bound when its sizes are known" in program.describe("plan")
