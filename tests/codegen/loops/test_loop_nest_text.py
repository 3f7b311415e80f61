"""The IR of one kernel, as golden text (`pytest --update-golden` writes it anew)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("llvmlite", reason="loops are compiled with llvmlite")

from intarsia.codegen.llvm.target import Target
from intarsia.codegen.loops.loop_nest import lower
from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k


def test_mean_of_rows(check_golden: Callable[[str, str], None]) -> None:
    """The mean is found once a row: its loop stands before that over the row's elements."""
    x = k.input(0, DType.FLOAT, (symbol("n"), 6))
    kernel = lower([x - k.reduce_mean(x, [1], True)], Target.create("x86_64-unknown-linux-gnu", "x86-64-v3"), prefix="mean")
    check_golden("mean_of_rows.ll", kernel.text.ir.replace(kernel.text.symbol, "mean"))
    assert (kernel.operands, kernel.outputs, kernel.checked, [str(s) for s in kernel.sizes]) == ((0,), 1, False, ["n"])
