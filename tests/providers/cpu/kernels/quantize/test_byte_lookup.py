"""Functions of 8-bit tensors by a table: all elements, both types, and scales that only a run knows."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
pytest.importorskip("onnx", reason="the models are built with onnx.parser")

from cpu_models import check, kinds

from intarsia.codegen.llvm.target import Target
from intarsia.providers.cpu.kernels.quantize.byte_lookup_kernel import kernel_text

HEADER = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("op", ["QLinearSigmoid", "QLinearLeakyRelu<alpha = 0.3>"])
def test_all_elements(op: str, dtype: str) -> None:
    text = f"g ({dtype}[n] x) => ({dtype}[n] y) {{ y = com.microsoft.{op}(x, a, p, b, q) }}"
    zero = np.array(120 if dtype == "uint8" else -3, dtype)
    constants = {"a": np.array(0.05, np.float32), "p": zero, "b": np.array(0.01, np.float32), "q": zero}
    every = np.arange(256, dtype=np.uint8).view(dtype)
    feeds = [{"x": np.resize(every, n)} for n in (0, 1, 15, 16, 17, 63, 64, 65, 191, 256, 1001, 100_000)]
    assert list(kinds(check(text, *feeds, constants=constants, rtol=0, header=HEADER)).values()) == ["compiled"]


def test_scales_of_a_run() -> None:
    text = "g (uint8[n] x, float a, uint8 p) => (uint8[n] y) { y = com.microsoft.QLinearSigmoid(x, a, p, a, p) }"
    feed = {"x": np.arange(256, dtype=np.uint8), "a": np.array(0.02, np.float32), "p": np.array(100, np.uint8)}
    check(text, feed, rtol=0, header=HEADER)


def test_registers_hold_the_table() -> None:
    for features, instruction in (("+avx2,+fma", "avx2.pshuf.b"), ("+avx2,+avx512vbmi", "vpermi2var.qi.512"), ("", None)):
        text = kernel_text(Target.create("x86_64-unknown-linux-gnu", "x86-64", features)).ir
        assert ("llvm.x86" in text) is (instruction is not None)
        assert instruction is None or instruction in text
