"""Loops that carry what no iteration changes: it is read from around them, with the same results."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import intarsia as ort
from intarsia.graph.load import load
from intarsia.passes.optimizer import optimize

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'
LEVELS = (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)

WEIGHTS = f"""{HEADER} g (int64 M, float[2, 4] x, float[4, 4] w) => (float[2, 4] y, float[4, 4] z, float[a, 4, 4] all) {{
    y, z, all = Loop (M, , x, w) <body = b (int64 i, bool on, float[2, 4] old, float[4, 4] w) =>
        (bool go, float[2, 4] new, float[4, 4] same, float[4, 4] row) {{
        go = Identity(on)  p = MatMul(old, w)  new = Tanh(p)
        middle = Identity(w)  same = Identity(middle)  row = Neg(same) }}> }}"""
"""The weights are carried under their own name, through two Identities."""

OUTPUTS = f"""{HEADER} g (int64 M, bool c, float[3] x, float[3] w) => (float[3] y, float[3] z, float[a, 3] all) {{
    y, z, all = Loop (M, c, x, w) <body = b (int64 i, bool on, float[3] old, float[3] kept) =>
        (bool go, float[3] kept, float[3] kept, float[3] kept) {{ go = Identity(on) }}> }}"""
"""What is handed on is the next value of another, and a row of a stacked output, too."""

LEFT_OUT = WEIGHTS.replace("y, z, all = Loop", "y = Loop").replace(", float[4, 4] z, float[a, 4, 4] all) {", ") {", 1)
"""The outputs for the weights and the rows are left out."""

NESTED = f"""{HEADER} g (int64 M, float[3] x, float[3] w) => (float[3] y) {{
    y, unused = Loop (M, , x, w) <body = outer (int64 i, bool on, float[3] old, float[3] a) =>
        (bool go, float[3] new, float[3] a) {{
        go = Identity(on)
        new, rest = Loop (M, , old, a) <body = inner (int64 j, bool on2, float[3] o, float[3] b) =>
            (bool go2, float[3] n, float[3] b) {{ go2 = Identity(on2)  s = Mul(o, b)  n = Add(s, a) }}> }}> }}"""

ALONE = f"""{HEADER} g (int64 M, float[3] x) => (float[3] y) {{
    y = Loop (M, , x) <body = b (int64 i, bool on, float[3] v) => (bool go, float[3] v) {{ go = Identity(on) }}> }}"""


def feeds(text: str, trips: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    sizes = {i.name: i.shape for i in ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString()).get_inputs()}
    given: dict[str, np.ndarray] = {n: rng.standard_normal(s).astype(np.float32) for n, s in sizes.items() if n in "xw"}
    return given | {n: np.array(trips if n == "M" else True) for n in sizes if n in "Mc"}


@pytest.mark.parametrize("trips", [0, 1, 4])
@pytest.mark.parametrize(
    "text", [WEIGHTS, OUTPUTS, NESTED, ALONE, LEFT_OUT], ids=["weights", "outputs", "nested", "alone", "left_out"]
)
def test_same_results(text: str, trips: int) -> None:
    model = onnx.parser.parse_model(text)
    fired = "read_around_loops" in [entry.rule for entry in optimize(load(model)).log]
    assert fired == (text is not LEFT_OUT)
    given = feeds(text, trips)
    results = []
    for level, provider in ((LEVELS[0], "Reference"), (LEVELS[0], "CPU"), (LEVELS[1], "CPU"), (LEVELS[1], "Reference")):
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        session = ort.InferenceSession(model.SerializeToString(), options, providers=[f"{provider}ExecutionProvider"])
        results.append(session.run(None, given))
    for found in results[1:]:
        for f, e in zip(found, results[0], strict=True):
            assert f.shape == e.shape
            np.testing.assert_allclose(f, e, rtol=1e-5)


def test_what_changes_is_carried_on() -> None:
    text = WEIGHTS.replace("same = Identity(middle)", "same = Neg(middle)")
    assert "read_around_loops" not in [entry.rule for entry in optimize(load(onnx.parser.parse_model(text))).log]


def test_a_loop_of_nothing_else_is_gone() -> None:
    graph = optimize(load(onnx.parser.parse_model(ALONE))).graph
    assert [n.op_type for n in graph.nodes] == ["Identity"]
