"""Which kind of plan a program is bound to, and that each computes what it should."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import intarsia as ort
from intarsia.providers.cpu.program.bound_plan import Plan

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
X = np.float32([[3, 0, -1], [0, 2, 4]])
TRUE, FALSE = np.array(True), np.array(False)

CASES: dict[str, tuple[str, dict[str, Any], list[Any]]] = {
    "SegmentPlan": ("g (float[a,b] x) => (float[a,b] y) { y = Add(x, x) }", {"x": X}, [X + X]),
    "ArrangedPlan": (
        "g (float[a,b] x) => (float[a,b] y, float[n] z) <int64[1] flat = {-1}> { y = Add(x, x) z = Reshape(y, flat) }",
        {"x": X}, [X + X, (X + X).reshape(-1)],
    ),
    "ArrangedPlan of no unit": ("g (float[a,b] x) => (float[a,b] y) { y = Identity(x) }", {"x": X}, [X]),
    "CallListPlan": (
        ("g (string[n] s, float[a,b] x) => (string[n] t, float[a,b] y) "
        '{ t = StringNormalizer<case_change_action = "UPPER">(s) y = Neg(x) }'),
        {"s": np.array(["a", "b"], object), "x": X}, [np.array(["A", "B"], object), -X],
    ),
    "DynamicPlan": (
        ("g (float[a,b] x) => (int64[m] y) <int64[1] flat = {-1}> { r = Reshape(x, flat) u, i, j, k = Unique<sorted = 1>(r) "
        "y = Neg(i) }"),
        {"x": X}, [-np.unique(X, return_index=True)[1]],
    ),
    "BranchPlan": (
        ("g (bool c, float[a,b] x) => (y) { y = If (c) <then_branch = t () => (p) { p = ReduceSum<keepdims = 0>(x) }, "
        "else_branch = f () => (q) { q = Neg(x) }> }"),
        {"c": FALSE, "x": X}, [-X],
    ),
    "LoopPlan": (
        ("g (int64 m, bool c, float[a] x) => (float[k] y) { y = Loop(m, c, x) <body = b (int64 i, bool ci, float[j] s) => "
        "(bool co, float[l] so) { co = Identity(ci) so = Concat<axis = 0>(s, s) }> }"),
        {"m": np.array(3), "c": TRUE, "x": X[0]}, [np.tile(X[0], 8)],
    ),
}  # fmt: skip


def session_of(text: str, *, profiled: bool = False) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.enable_profiling = profiled
    return ort.InferenceSession(
        onnx.parser.parse_model(HEAD + text).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def plans(session: ort.InferenceSession) -> list[Plan]:
    (program,) = session._model.programs
    return list(program._plans.values())


@pytest.mark.parametrize("name", CASES)
def test_kinds(name: str) -> None:
    text, feed, expected = CASES[name]
    session = session_of(text)
    for _ in range(3):
        for found, wanted in zip(session.run(None, feed), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert [type(plan).__name__ for plan in plans(session)] == [name.split()[0]]


def test_timed_units(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a profile is wanted, each unit is told of; a plan of one segment tells of its steps itself."""
    monkeypatch.chdir(tmp_path)
    for name, kind in (("DynamicPlan", "TimedPlan"), ("CallListPlan", "TimedPlan"), ("SegmentPlan", "SegmentPlan")):
        text, feed, expected = CASES[name]
        session = session_of(text, profiled=True)
        for found, wanted in zip(session.run(None, feed), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert [type(plan).__name__ for plan in plans(session)] == [kind]


@pytest.mark.parametrize("name", ["SegmentPlan", "ArrangedPlan", "ArrangedPlan of no unit"])
def test_other_sizes_have_plans_of_the_same_kind(name: str) -> None:
    text, _, _ = CASES[name]
    session = session_of(text)
    for rows in (1, 2, 5, 3):
        x = np.arange(4 * rows, dtype=np.float32).reshape(rows, 4)
        found = session.run(None, {"x": x})
        np.testing.assert_array_equal(found[0], x if "no unit" in name else x + x)
        assert [y.shape for y in found[1:]] == [(4 * rows,)] * (len(found) - 1)
    assert {type(plan).__name__ for plan in plans(session)} == {name.split()[0]}


def test_a_condition_of_several_elements_goes_as_any_unit() -> None:
    """The definition says what is wrong with it."""
    text, feed, _ = CASES["BranchPlan"]
    session = session_of(text.replace("bool c", "bool[n] c"))
    np.testing.assert_array_equal(session.run(None, {**feed, "c": FALSE.reshape(1)})[0], -X)
    with pytest.raises(ort.IntarsiaError, match="If"):
        session.run(None, {**feed, "c": np.array([True, False])})
