"""Sequences whose elements are known one by one: exporters write split, tensor_split and unbind with them."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import intarsia as ort
from intarsia.graph.load import load
from intarsia.passes.optimizer import optimize

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'
X = np.arange(60, dtype=np.float32).reshape(5, 12)


def run(text: str, level: ort.GraphOptimizationLevel = ort.GraphOptimizationLevel.ORT_ENABLE_ALL) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    model = onnx.parser.parse_model(HEADER + text).SerializeToString()
    found: list[np.ndarray] = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, {"x": X})
    return found


def gone(text: str) -> None:
    """No sequence is left, and the results are those of the graph as it is written."""
    kinds = {node.op_type for node in optimize(load(onnx.parser.parse_model(HEADER + text))).graph.nodes}
    assert not [kind for kind in kinds if "Sequence" in kind or kind == "Loop"]
    plain = run(text, ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
    for found, expected in zip(run(text), plain, strict=True):
        np.testing.assert_array_equal(found, expected)


def split_at(*cuts: int) -> str:
    """torch.tensor_split(x, cuts, 1), as its exporter writes it."""
    ends = ", ".join(map(str, (0, *cuts, 9999)))
    parts = " ".join(f"p{i} = Constant<value = int64 {{{i}}}>()  y{i} = SequenceAt(all, p{i})" for i in range(len(cuts) + 1))
    outputs = ", ".join(f"float[n, m{i}] y{i}" for i in range(len(cuts) + 1))
    return f""" g (float[n, 12] x) => ({outputs}) <int64[{len(cuts) + 2}] ends = {{{ends}}}> {{
        trips = Constant<value = int64 {{{len(cuts) + 1}}}>()  on = Constant<value = bool {{1}}>()
        empty = SequenceEmpty<dtype = 1>()
        all = Loop (trips, on, empty) <body = b (int64 i, bool c, seq(float[u, v]) old) => (bool go, seq(float[u, v]) new) {{
            one = Constant<value = int64 {{1}}>()  next = Add(i, one)
            low = Gather<axis = 0>(ends, i)  high = Gather<axis = 0>(ends, next)  axis = Constant<value_ints = [1]>()
            first = Unsqueeze(low, zero_axis)  last = Unsqueeze(high, zero_axis)  zero_axis_2 = Identity(axis)
            part = Slice(x, first, last, zero_axis_2)
            new = SequenceInsert(old, part)  go = Identity(c) }}>
        {parts} }}""".replace("<int64", "<int64[1] zero_axis = {0}, int64", 1)


@pytest.mark.parametrize("cuts", [(1,), (4,), (3, 3), (2, 5, 9)])
def test_pieces_that_a_loop_cuts(cuts: tuple[int, ...]) -> None:
    gone(split_at(*cuts))
    for found, expected in zip(run(split_at(*cuts)), np.split(X, cuts, 1), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("made", "at"),
    [
        ("s = SplitToSequence<axis = 1>(x, sizes)", 0),
        ("s = SplitToSequence<axis = -1>(x, sizes)", -1),
        ("s = SplitToSequence<axis = 1>(x, five)", 2),
        ("s = SplitToSequence<axis = 1, keepdims = 0>(x)", 7),
        ("s = SplitToSequence<axis = 1>(x)", -12),
        ("r = Neg(x)  s = SequenceConstruct(x, r)", 1),
        ("r = Neg(x)  a = SequenceConstruct(x, x)  s = SequenceInsert(a, r)", 2),
        ("r = Neg(x)  a = SequenceConstruct(x, x)  s = SequenceInsert(a, r, zero)", 0),
        ("a = SequenceEmpty<dtype = 1>()  s = SequenceInsert(a, x)", 0),
    ],
)
def test_an_element(made: str, at: int) -> None:
    weights = f"int64[2] sizes = {{4, 8}}, int64 five = {{5}}, int64 zero = {{0}}, int64 at = {{{at}}}"
    last = "y = SequenceAt(s, at) count = SequenceLength(s)"
    gone(f" g (float[n, 12] x) => (float y, int64 count) <{weights}> {{ {made} {last} }}")


@pytest.mark.parametrize("new_axis", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_joined_elements(axis: int, new_axis: int) -> None:
    gone(f""" g (float[n, 12] x) => (float y) {{ r = Neg(x)  s = SequenceConstruct(x, r, x)
        y = ConcatFromSequence<axis = {axis}, new_axis = {new_axis}>(s) }}""")


def test_what_sizes_decide_stays_a_sequence() -> None:
    text = (
        HEADER
        + """ g (float[n, 12] x) => (float y) <int64 two = {2}, int64 at = {1}> {
        s = SplitToSequence<axis = 0>(x, two)  y = SequenceAt(s, at) }"""
    )
    kinds = [node.op_type for node in optimize(load(onnx.parser.parse_model(text))).graph.nodes]
    assert "SplitToSequence" in kinds


def test_a_position_that_does_not_exist_stays_an_error() -> None:
    text = " g (float[n, 12] x) => (float y) <int64 at = {3}> { s = SequenceConstruct(x, x)  y = SequenceAt(s, at) }"
    with pytest.raises(ort.errors.IntarsiaError):
        run(text)
