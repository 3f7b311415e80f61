"""The table of schedules of Fourier transforms: what it chooses and why not the others, and that each that applies gives the
right numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import schedule_models as t

from intarsia.providers.cpu.kernels.fourier.fft import SCHEDULES, Fourier
from intarsia.providers.cpu.lowering.lower import Lowered

MODULE = "intarsia.providers.cpu.kernels.fourier.fft"
Shape = tuple[int | str, ...]


def model(shape: Shape, onesided: int = 0) -> bytes:
    """DFT along the axis before the last."""
    node = helper.make_node("DFT", ["x", "", "axis"], ["y"], onesided=onesided)
    return t.model_of(node, {"x": (np.float32, shape)}, {"axis": np.array(len(shape) - 2)}, np.float32)


def lowered(shape: Shape, onesided: int = 0) -> Lowered:
    return t.lowered(model(shape, onesided), t.AVX512)


CASES: dict[str, tuple[Shape, int, str, int]] = {  # a signal, whether half of the spectrum is kept; the schedule, its steps
    "short lines": ((64, 100, 2), 0, "one-pass", 1),
    "many long lines": ((64, 4096, 2), 0, "one-pass", 1),
    "many very long lines": ((64, 16384, 2), 0, "two-passes", 2),
    "a long line": ((1, 4096, 2), 0, "two-passes", 2),
    "a long real line": ((1, 4096, 1), 1, "long-lines", 3),
    "a long line of prime length": ((1, 1009, 2), 0, "long-lines", 7),
    "dynamic lengths": ((1, "n", 2), 0, "one-pass", 1),
}


@pytest.mark.parametrize("name", CASES)
def test_the_choice_that_is_told_is_what_is_lowered(name: str) -> None:
    shape, onesided, chosen, steps = CASES[name]
    made = lowered(shape, onesided)
    found = t.report(made, "DFT")
    assert found.chosen == chosen
    assert len(t.labels(made)) == steps, t.labels(made)
    t.check_report(found, SCHEDULES)


def test_every_schedule_is_chosen_somewhere() -> None:
    assert {s.name for s in SCHEDULES} == {case[2] for case in CASES.values()}


@pytest.mark.parametrize(
    ("shape", "onesided", "schedule", "reason"),
    [
        ((1, "n", 2), 0, "long-lines", "its sizes are known only in a run"),
        ((1, "n", 2), 0, "two-passes", "its sizes are known only in a run"),
        ((64, 4096, 2), 0, "long-lines", "64 lines fill a vector"),
        ((64, 4096, 2), 0, "two-passes", "lines of 4096 elements, fewer than 8192, gain nothing by two passes"),
        ((1, 100, 2), 0, "long-lines", "lines of 100 elements, fewer than 512, gain nothing by several passes"),
        ((1, 4096, 2), 0, "long-lines", "its lines are complex, of a length with small factors alone, or cut"),
        ((1, 4096, 8, 2), 0, "two-passes", "lines of 8 elements"),
        ((1, 1009, 2), 0, "two-passes", "1009 is no product of two factors that fill vectors"),
        ((1, 513, 1), 1, "two-passes", "what it keeps of the result is not the half that two passes compute"),
    ],
)
def test_why_it_does_not_apply(shape: Shape, onesided: int, schedule: str, reason: str) -> None:
    found = t.said(t.report(lowered(shape, onesided), "DFT"), schedule)
    assert not found.applies and found.applies.reason.startswith(reason), found


def test_the_faster_one_by_estimate_is_the_one_that_is_chosen() -> None:
    """Far from where they are equal: the estimates are not asked, but are told."""
    for name, slower in (("a long line", "one-pass"), ("a long real line", "two-passes")):
        shape, onesided, chosen, _ = CASES[name]
        found = t.report(lowered(shape, onesided), "DFT")
        assert t.said(found, chosen).seconds < t.said(found, slower).seconds, name


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: s.name)
def test_whatever_applies_is_right(schedule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, seen = np.random.default_rng(6), 0
    for shape, onesided in (((1, 1024, 2), 0), ((3, 1024, 1), 1), ((1, 1009, 2), 0), ((40, 60, 2), 0), ((1, 2018, 1), 1)):
        made = lowered(shape, onesided)
        (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, Fourier))
        if not schedule.applies(template, made.env):
            continue
        seen += 1
        with monkeypatch.context() as patch:
            session = t.session_by(schedule, MODULE, model(shape, onesided), {}, patch)
        x = rng.standard_normal(shape).astype(np.float32)
        signal = x[..., 0].astype(np.float64) if shape[-1] == 1 else x[..., 0] + 1j * x[..., 1].astype(np.float64)
        expected = np.fft.rfft(signal) if onesided else np.fft.fft(signal)
        found = session.run(None, {"x": x})[0]
        scale = np.abs(expected).max()
        np.testing.assert_allclose((found[..., 0] + 1j * found[..., 1]) / scale, expected / scale, atol=2e-6)
    assert seen
