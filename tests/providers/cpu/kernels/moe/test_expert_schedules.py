"""The table of schedules of experts' products: each is for one kind of stored matrices, and says so of the other."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import schedule_models as t

from intarsia.providers.cpu.kernels.moe.expert_matmul import SCHEDULES
from intarsia.providers.cpu.program.schedule_report import NodeSchedules, schedule_report

EXPERTS, WIDTH, INNER = 3, 32, 48


def reports(op: str, bits: int, rows: int | str = 6) -> list[NodeSchedules]:
    """What is told of the two products of a mixture of experts."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (EXPERTS, INNER, WIDTH), "w2": (EXPERTS, WIDTH, INNER)}
    if op == "MoE":
        constants = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
        inputs, attributes = ["x", "p", "w1", "", "w2"], {}
    else:
        constants = {n: rng.integers(0, 256, (e, r, c * bits // 8)).astype(np.uint8) for n, (e, r, c) in shapes.items()}
        constants |= {f"s{name}": rng.random(shape[:2], np.float32) for name, shape in shapes.items()}
        inputs, attributes = ["x", "p", "w1", "sw1", "", "w2", "sw2"], {"expert_weight_bits": bits}
    node = helper.make_node(op, inputs, ["y"], domain="com.microsoft", k=2, **attributes)
    model = t.model_of(node, {"x": (np.float32, (rows, WIDTH)), "p": (np.float32, (rows, EXPERTS))}, constants, np.float32)
    return [found for found in schedule_report(t.lowered(model, t.AVX512)) if found.op_type == "ExpertProducts"]


@pytest.mark.parametrize(
    ("op", "bits", "chosen", "other"),
    [
        ("MoE", 0, "float-panels", "its matrices are of floats"), ("QMoE", 4, "block-panels", "its matrices are of 4 bits"),
        ("QMoE", 8, "block-panels", "its matrices are of 8 bits"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("rows", [6, "n"])
def test_the_choice(op: str, bits: int, chosen: str, other: str, rows: int | str) -> None:
    found = reports(op, bits, rows)
    assert len(found) == 2
    for each in found:
        t.check_report(each, SCHEDULES)
        assert each.chosen == chosen
        (reason,) = (s.applies.reason for s in each.schedules if not s.applies)
        assert reason == other


def test_packed_bits_are_read_faster() -> None:
    """Few rows wait for the matrices."""
    of_floats, of_bits = reports("MoE", 0, 2)[0], reports("QMoE", 4, 2)[0]
    assert t.said(of_bits, "block-panels").seconds < t.said(of_floats, "float-panels").seconds


def test_every_schedule_is_chosen_somewhere() -> None:
    assert {s.name for s in SCHEDULES} == {reports(op, bits)[0].chosen for op, bits in (("MoE", 0), ("QMoE", 4))}
