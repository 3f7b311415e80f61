"""A Reshape whose target is computed becomes one with a constant target only where a run has nothing to check."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import intarsia as ort
from intarsia.errors import InvalidArgument, InvalidGraph

X = np.arange(6, dtype=np.float32).reshape(2, 3)
PROVIDERS = ["CPUExecutionProvider", "ReferenceExecutionProvider"]


def fails() -> Any:
    return pytest.raises((InvalidArgument, InvalidGraph), match=r"cannot be reshaped|cannot reshape")


def session(graph: str, provider: str) -> ort.InferenceSession:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}')
    return ort.InferenceSession(model.SerializeToString(), providers=[provider])


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("sizes", ["2,3", "A,B"])
@pytest.mark.parametrize("declared", ["[M]", "", "[7]"])
def test_a_target_that_does_not_fit(provider: str, sizes: str, declared: str) -> None:
    made = session(f"g (float[{sizes}] x, int64[1] s) => (float{declared} y) {{ y = Reshape(x, s) }}", provider)
    if declared != "[7]":
        for target in ([6], [-1]):
            np.testing.assert_array_equal(made.run(None, {"x": X, "s": np.array(target)})[0], X.reshape(-1))
    for wrong in ([7], [5], [0], [-2]):
        with fails():
            made.run(None, {"x": X, "s": np.array(wrong)})


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_part_of_the_target_that_does_not_fit(provider: str) -> None:
    text = "g (float[A,B] x, int64[1] k) => (float[M,N] y) { c = Constant<value = int64[1] {3}>() s = Concat<axis = 0>(k, c)"
    made = session(text + " y = Reshape(x, s) }", provider)
    np.testing.assert_array_equal(made.run(None, {"x": X, "k": np.array([2])})[0], X)
    with fails():
        made.run(None, {"x": X, "k": np.array([3])})


@pytest.mark.parametrize("provider", PROVIDERS)
def test_another_inputs_shape(provider: str) -> None:
    made = session("g (float[A,B] x, float[C] z) => (float[M] y) { s = Shape(z)  y = Reshape(x, s) }", provider)
    np.testing.assert_array_equal(made.run(None, {"x": X, "z": np.zeros(6, np.float32)})[0], X.reshape(-1))
    with fails():
        made.run(None, {"x": X, "z": np.zeros(5, np.float32)})


def test_a_target_that_surely_fits_is_a_constant() -> None:
    text = """g (float[A,B,12] x) => (float[M,N,P,Q] y) { s = Shape<start = 0, end = 2>(x)
        c = Constant<value = int64[2] {3, 4}>()  t = Concat<axis = 0>(s, c)  r = Reshape(x, t)  y = Neg(r) }"""
    made = session(text, "CPUExecutionProvider")
    assert {n.op for n in made.explain().nodes if n.kind != "unused"} >= {"Reshape", "Neg"}
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 12)
    np.testing.assert_array_equal(made.run(None, {"x": x})[0], -x.reshape(1, 2, 3, 4))
