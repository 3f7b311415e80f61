"""Softmax and LogSoftmax on the CPU provider: which nodes the kernel for rows takes, and what loops do with the others."""

from __future__ import annotations

import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
pytest.importorskip("onnx", reason="the models are built with onnx.parser")

from cpu_models import check, normal

from intarsia.providers.cpu.program.cpu_program import CpuProgram


def by_kernel(session: object) -> bool:
    (program,) = session._model.programs  # type: ignore[attr-defined]
    assert isinstance(program, CpuProgram)
    assert program.lowered is not None
    return any(g.template is not None and "Softmax" in g.nodes[0].op_type for g in program.lowered.grouping.groups)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(("axis", "taken"), [(-1, True), (2, True), (1, False), (0, False)])
def test_axes(op: str, axis: int, taken: bool) -> None:
    text = f"g (float[2, 5, 40] x) => (float[2, 5, 40] y) {{ y = {op}<axis: int = {axis}>(x) }}"
    assert by_kernel(check(text, {"x": normal(2, 5, 40)})) == taken


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_before_opset_13_all_axes_from_one_on(op: str) -> None:
    text = f"g (float[3, 4, 10] x) => (float[3, 4, 10] y) {{ y = {op}(x) }}"
    assert by_kernel(check(text, {"x": normal(3, 4, 10)}, header='<ir_version: 7, opset_import: ["" : 11]>'))


def test_symbolic_sizes_single_rows_and_none() -> None:
    text = "g (float[n, m] x) => (float[n, m] y) { y = Softmax(x) }"
    assert by_kernel(check(text, {"x": normal(3, 70)}, {"x": normal(1, 20000)}, {"x": normal(0, 5)}, {"x": normal(300, 64)}))


def test_short_rows_other_types_and_fused_producers_are_loops() -> None:
    assert not by_kernel(check("g (float[9, 4] x) => (float[9, 4] y) { y = Softmax(x) }", {"x": normal(9, 4)}))
    text = "g (double[9, 40] x) => (double[9, 40] y) { y = Softmax(x) }"
    assert not by_kernel(check(text, {"x": normal(9, 40).astype("float64")}))
    text = "g (float[9, 40] x, float[40] m) => (float[9, 40] y) { s = Add(x, m) y = Softmax(s) }"
    assert not by_kernel(check(text, {"x": normal(9, 40), "m": normal(40)}))
