"""Sequences whose elements are not of the shape that the model declares, and optional tensors that are not: as onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import intarsia
from intarsia.errors import InvalidArgument

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
HEADER = '<ir_version: 9, opset_import: ["" : 18]>'
AT = "g ({kind} s) => (float y) <int64 i = {{0}}> {{ {take} e = SequenceAt (q, i)  f = Exp (e)  y = Neg (f) }}"
KINDS = {
    "seq(float[2,3])": "q = Identity (s)",
    "seq(float[n,3])": "q = Identity (s)",
    "optional(seq(float[2,3]))": "q = OptionalGetElement (s)",
}
SHAPES = ((2, 3), (4, 3), (2, 4), (2, 3, 1), (), (0, 3))


def session_of(text: str, provider: str) -> intarsia.InferenceSession:
    model = parser.parse_model(HEADER + text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return intarsia.InferenceSession(model.SerializeToString(), providers=[provider])


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_elements_of_any_shape(kind: str, provider: str) -> None:
    """One session, whose elements are as declared, then not, then again."""
    session = session_of(AT.format(kind=kind, take=KINDS[kind]), provider)
    for shape in (*SHAPES, SHAPES[0]):
        x = np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)
        (y,) = session.run(None, {"s": [x]})
        assert y.shape == shape
        np.testing.assert_allclose(y, -np.exp(x), rtol=1e-6)


def test_as_onnxruntime() -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the reference of what is taken")
    kind = "seq(float[2,3])"
    model = parser.parse_model(HEADER + AT.format(kind=kind, take=KINDS[kind]))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    peer = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for shape in SHAPES:
        assert peer.run(None, {"s": [np.zeros(shape, np.float32)]})[0].shape == shape


@pytest.mark.parametrize("provider", PROVIDERS)
def test_elements_of_different_shapes(provider: str) -> None:
    text = """g (seq(float[2,3]) s) => (float y) <int64 i = {1}> {
        a = ConcatFromSequence <axis = 0> (s)  e = SequenceAt (s, i)  f = Exp (e)  t = ReduceMax (a)  y = Add (f, t)
    }"""
    feed = {"s": [np.ones((4, 3), np.float32), np.full((5, 3), 2, np.float32)]}
    (y,) = session_of(text, provider).run(None, feed)
    np.testing.assert_allclose(y, np.full((5, 3), np.exp(2) + 2, np.float32), rtol=1e-6)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_another_type_is_an_error(provider: str) -> None:
    session = session_of(AT.format(kind="seq(float[2,3])", take="q = Identity (s)"), provider)
    with pytest.raises(InvalidArgument, match=r"input 's'\[0\]: Unexpected input data type. Actual: \(tensor\(double\)\)"):
        session.run(None, {"s": [np.zeros((2, 3))]})


@pytest.mark.parametrize("provider", PROVIDERS)
def test_optional_tensors_are_of_their_shape(provider: str) -> None:
    session = session_of("g (optional(float[2,n]) s) => (float y) { e = OptionalGetElement (s)  y = Exp (e) }", provider)
    for shape in ((2, 3), (2, 5)):
        assert session.run(None, {"s": np.zeros(shape, np.float32)})[0].shape == shape
    with pytest.raises(InvalidArgument, match=r"invalid dimensions for input: s .*\n index: 0 Got: 4 Expected: 2"):
        session.run(None, {"s": np.zeros((4, 3), np.float32)})
    with pytest.raises(InvalidArgument, match="Invalid rank for input: s Got: 1 Expected: 2"):
        session.run(None, {"s": np.zeros(4, np.float32)})
