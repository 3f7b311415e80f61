"""Sizes that a model computes in floating point are known before it runs, as exporters write them for ceil(n / stride)."""

from __future__ import annotations

import math

import numpy as np
import onnx.parser
import pytest

import intarsia as ort
from intarsia.graph.dims import Expr
from intarsia.graph.load import load
from intarsia.ops import registry
from intarsia.ops.framework.infer import infer

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'
SCALARS = """<int64 two = {2}, int64 at = {2}, float half = {0.5}, float three = {3.0}, float one = {1.0}, float odd = {0.1},
    float minus = {-2.0}>"""


def graph(lines: str, kind: str = "n") -> onnx.ModelProto:
    """`k`, an integer scalar that is computed from the size of the last axis of `x`, and that many zeros."""
    text = f"""{HEADER} g (float[1, 2, {kind}] x) => (int64 k, float[z] y) {SCALARS} {{
        shape = Shape(x)  n = Gather(shape, at)  f = Cast<to = 1>(n)  {lines}
        axes = Constant<value = int64[1] {{0}}>()  many = Unsqueeze(k, axes)  y = ConstantOfShape(many) }}"""
    return onnx.parser.parse_model(text)


FOLLOWED = {
    "ceil of a quotient": ("q = Div(f, three)  c = Ceil(q)  k = Cast<to = 7>(c)", lambda n: math.ceil(n / 3)),
    "frames of a causal convolution": (
        "q = Div(f, three)  a = Add(q, one)  c = Ceil(a)  i = Cast<to = 7>(c)  k = Mul(i, two)",
        lambda n: 2 * math.ceil(n / 3 + 1),
    ),
    "floor of a product": ("p = Mul(f, half)  s = Sub(p, half)  c = Floor(s)  k = Cast<to = 7>(c)", lambda n: (n - 1) // 2),
    "cut off": ("p = Mul(f, half)  a = Add(p, half)  k = Cast<to = 7>(a)", lambda n: (n + 1) // 2),
    "cut off below zero": (
        "m = Neg(f)  p = Mul(m, half)  t = Cast<to = 7>(p)  a = Neg(t)  k = Identity(a)", lambda n: n // 2,
    ),
    "whole again": ("p = Mul(f, half)  d = Mul(p, three)  e = Add(d, p)  h = Mul(e, half)  r = Round(h)  k = Cast<to = 7>(r)",
        lambda n: n),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["n", "7"])
@pytest.mark.parametrize("name", FOLLOWED)
def test_known_before_the_run(name: str, kind: str) -> None:
    lines, wanted = FOLLOWED[name]
    model = graph(lines, kind)
    found = infer(load(model), registry()).values["k"].item()
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    plain = ort.InferenceSession(model.SerializeToString(), providers=["ReferenceExecutionProvider"])
    for n in (7,) if kind == "7" else (1, 2, 3, 7, 12, 1001):
        assert (found.evaluate({"n": n}) if isinstance(found, Expr) else found) == wanted(n)
        feeds = {"x": np.zeros((1, 2, n), np.float32)}
        for a, b in zip(session.run(None, feeds), plain.run(None, feeds), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "lines",
    [
        "q = Div(f, odd)  c = Ceil(q)  k = Cast<to = 7>(c)",  # no quotient of small integers
        "q = Div(f, minus)  c = Ceil(q)  k = Cast<to = 7>(c)",
        "q = Mul(f, half)  c = Round(q)  k = Cast<to = 7>(c)",
        "q = Div(one, f)  c = Ceil(q)  k = Cast<to = 7>(c)",
        "q = Sqrt(f)  c = Ceil(q)  k = Cast<to = 7>(c)",
    ],
)
def test_what_only_a_run_knows(lines: str) -> None:
    model = graph(lines)
    known = infer(load(model), registry()).values.get("k")
    assert known is None or "[" in str(known.item())  # an element that a run reads
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    plain = ort.InferenceSession(model.SerializeToString(), providers=["ReferenceExecutionProvider"])
    for n in (1, 10):
        feeds = {"x": np.zeros((1, 2, n), np.float32)}
        try:
            wanted = plain.run(None, feeds)
        except ort.errors.IntarsiaError:
            continue  # a negative size
        for a, b in zip(session.run(None, feeds), wanted, strict=True):
            np.testing.assert_array_equal(a, b)
