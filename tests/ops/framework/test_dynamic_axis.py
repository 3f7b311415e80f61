"""Axes that only a run knows: native code for all of them, and those that a tensor does not have are refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx.parser
import pytest

from intarsia import InferenceSession
from intarsia.errors import IntarsiaError

X = np.random.default_rng(5).standard_normal((3, 1, 4, 2)).astype(np.float32)
AXES = range(-4, 4)
Case = tuple[str, str, Callable[[np.ndarray, int], np.ndarray]]


def exclusive(x: np.ndarray, axis: int) -> np.ndarray:
    return np.flip(np.cumsum(np.flip(x, axis), axis), axis) - x


FOUR, THREE = "float[e, f, g, h] y", "float[e, f, g] y"
CASES: dict[str, Case] = {
    "cumsum": ("int64 axis", "float[a, b, c, d] y) { y = CumSum(e, axis) }", np.cumsum),
    "cumsum of the rest": ("int64 axis", "float[a, b, c, d] y) { y = CumSum<exclusive = 1, reverse = 1>(e, axis) }", exclusive),
    "sum": ("int64[1] axis", f"{FOUR}) {{ y = ReduceSum(e, axis) }}", lambda x, i: x.sum(i, keepdims=True)),
    "mean": ("int64[1] axis", f"{THREE}) {{ y = ReduceMean<keepdims = 0>(e, axis) }}", lambda x, i: x.mean(i)),
    "logarithm": (
        "int64[1] axis", f"{THREE}) {{ y = ReduceLogSumExp<keepdims = 0>(e, axis) }}",
        lambda x, i: np.log(np.exp(x.astype(np.float64)).sum(i)),
    ),
}  # fmt: skip


def session(case: Case, provider: str = "CPUExecutionProvider") -> InferenceSession:
    kind, rest, _ = case
    text = (
        f'<ir_version: 9, opset_import: ["" : 20]> g (float[a, b, c, d] x, {kind}) => ({rest.replace("{", "{ e = Exp(x) ", 1)}'
    )
    return InferenceSession(onnx.parser.parse_model(text).SerializeToString(), providers=[provider])


def feed(case: Case, axis: int) -> dict[str, np.ndarray]:
    return {"x": X, "axis": np.array(axis if case[0] == "int64 axis" else [axis])}


@pytest.mark.parametrize("name", CASES)
def test_each_axis_in_turn(name: str) -> None:
    pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
    case = CASES[name]
    run = session(case)
    for axis in AXES:
        (y,) = run.run(None, feed(case, axis))
        np.testing.assert_allclose(y, case[2](np.exp(X), axis), rtol=1e-5, atol=1e-5)
    assert "host" not in str(run.explain())


@pytest.mark.parametrize("name", CASES)
def test_axes_that_there_are_not(name: str) -> None:
    run = session(CASES[name])
    for axis in (4, -5, 100):
        with pytest.raises(IntarsiaError):
            run.run(None, feed(CASES[name], axis))


def test_an_axis_of_one_goes() -> None:
    case = ("int64[1] axis", f"{THREE}) {{ y = Squeeze(e, axis) }}", np.squeeze)
    run = session(case)
    for axis in (1, -3):
        np.testing.assert_allclose(run.run(None, feed(case, axis))[0], np.exp(X).squeeze(axis), rtol=1e-6)
    with pytest.raises(IntarsiaError):
        run.run(None, feed(case, 0))


def test_an_axis_of_one_comes() -> None:
    case = ("int64[1] axis", "float[e, f, g, h, i] y) { y = Unsqueeze(e, axis) }", np.expand_dims)
    run = session(case)
    for axis in range(-5, 5):
        np.testing.assert_allclose(run.run(None, feed(case, axis))[0], np.expand_dims(np.exp(X), axis), rtol=1e-6)
