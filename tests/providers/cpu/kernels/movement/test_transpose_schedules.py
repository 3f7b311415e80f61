"""The table of schedules of transposes: what it chooses and why not the other, and that each gives the right numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import schedule_models as t

from intarsia.providers.cpu.kernels.movement.transpose import SCHEDULES, Transpose
from intarsia.providers.cpu.program.schedule_report import NodeSchedules

MODULE = "intarsia.providers.cpu.kernels.movement.transpose"
Shape = tuple[int | str, ...]


def model(shape: Shape, perm: tuple[int, ...], dtype: Any = np.float32) -> bytes:
    return t.model_of(helper.make_node("Transpose", ["x"], ["y"], perm=perm), {"x": (dtype, shape)}, {}, dtype)


def told(shape: Shape, perm: tuple[int, ...], dtype: Any = np.float32) -> NodeSchedules:
    return t.report(t.lowered(model(shape, perm, dtype), t.AVX512), "Transpose")


CASES: dict[str, tuple[Shape, tuple[int, ...], str]] = {
    "an image": ((1, 3, 64, 64), (0, 2, 3, 1), "interleaved-rows"),
    "an image back": ((1, 64, 64, 4), (0, 3, 1, 2), "interleaved-rows"),
    "a dynamic image": (("n", 3, "h", "w"), (0, 2, 3, 1), "interleaved-rows"),
    "many channels": ((1, 64, 28, 28), (0, 2, 3, 1), "squares"),
    "a matrix": ((128, 300), (1, 0), "squares"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_choice(name: str) -> None:
    shape, perm, chosen = CASES[name]
    made = t.lowered(model(shape, perm), t.AVX512)
    found = t.report(made, "Transpose")
    assert found.chosen == chosen
    t.check_report(found, SCHEDULES)
    assert t.labels(made) == [f"transpose {list(perm)}"]
    assert {s.name for s in SCHEDULES} == {case[2] for case in CASES.values()}


def test_reasons() -> None:
    assert t.said(told((128, 300), (1, 0)), "interleaved-rows").applies.reason == (
        "neither side of its matrices is 2 to 8 long rows beside the other"
    )
    assert t.said(told((1, 64, 64, 4), (0, 3, 1, 2)), "squares").applies


@pytest.mark.parametrize("shape", [(4, "n"), ("n", 3), (1, 3, 8, 8)])
def test_what_loops_do_better_has_no_schedules(shape: Shape) -> None:
    """A table whose length only a run knows is mostly short, and small tensors are not worth a kernel."""
    made = t.lowered(model(shape, tuple(range(len(shape)))[::-1]), t.AVX512)
    assert not any(isinstance(g.template, Transpose) for g in made.grouping.groups)


def test_rows_by_shuffles_are_expected_to_be_faster_than_squares_that_masks_cut() -> None:
    found = told((1, 3, 64, 64), (0, 2, 3, 1))
    assert t.said(found, "interleaved-rows").seconds < t.said(found, "squares").seconds
    full = told((1, 64, 32, 32), (0, 2, 3, 1))
    assert t.said(full, "squares").seconds < 2 * 2 * 64 * 32 * 32 * 4 / 20e9


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: s.name)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64])
def test_whatever_applies_is_right(schedule: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also squares that are mostly cut, of a few rows."""
    rng = np.random.default_rng(4)
    for shape, perm in (((2, 3, 70, 33), (0, 2, 3, 1)), ((1, 41, 50, 5), (0, 3, 1, 2)), ((90, 77), (1, 0))):
        made = t.lowered(model(shape, perm, dtype), t.AVX512)
        (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, Transpose))
        if not schedule.applies(template, made.env):
            assert schedule.name == "interleaved-rows" and shape == (90, 77)
            continue
        with monkeypatch.context() as patch:
            session = t.session_by(schedule, MODULE, model(shape, perm, dtype), {}, patch)
        x = rng.integers(0, 100, shape).astype(dtype)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x.transpose(perm))
