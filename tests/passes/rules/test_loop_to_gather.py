"""Loops that repeat rows by counts that data decides, as torch's exporter writes `repeat_interleave`: one Gather."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import intarsia as ort
from intarsia.errors import InvalidArgument
from intarsia.graph.load import load
from intarsia.passes.optimizer import optimize

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'


def model_of(axis: int = 0, before: str = "1", after: str = "-1", target: str = "-1, 3", minus: bool = True) -> onnx.ModelProto:
    """`x` [n, 3] (or [3, n]) with each row repeated `r` times."""
    shape = "float[n, 3]" if axis == 0 else "float[3, n]"
    expand = "wanted = Identity(joined)"
    if minus:
        expand = """room = Shape(joined)  ones = ConstantOfShape<value = int64[1] {1}>(room)  less = Mul(ones, minus)
            same = Equal(joined, less)  wanted = Where(same, ones, joined)"""
    sizes = len(before.split(",")), len(after.split(",")) if after else 0
    joined = f"int64[{sizes[0]}] k1 = {{{before}}}, int64[{sizes[1]}] k2 = {{{after}}}"
    text = f"""{HEADER} g ({shape} x, int64[n] r) => (float[p, q] y)
        <{joined}, int64[2] target = {{{target}}}, int64[1] up = {{{axis + 1}}}, int64[1] minus = {{-1}}> {{
        on = Constant<value = bool {{1}}>()  size = Shape(r)  ones_n = ConstantOfShape<value = int64[1] {{1}}>(size)
        counts = SplitToSequence<axis = 0>(r, ones_n)  rows = SplitToSequence<axis = {axis}>(x, ones_n)
        trips = Squeeze(size)  empty = SequenceEmpty<dtype = 1>()
        all = Loop (trips, on, empty) <body = b (int64 i, bool c, seq(float[u, v]) old) => (bool go, seq(float[u, v]) new) {{
            count = SequenceAt(counts, i)  row = SequenceAt(rows, i)  high = Unsqueeze(row, up)
            joined = Concat<axis = 0>(k1, count, k2)
            {expand}
            big = Expand(high, wanted)  part = Reshape(big, target)
            new = SequenceInsert(old, part)  go = Cast<to = 9>(on) }}>
        y = ConcatFromSequence<axis = {axis}>(all) }}"""
    return onnx.parser.parse_model(text)


def fires(model: onnx.ModelProto) -> bool:
    return "repeat_rows" in [entry.rule for entry in optimize(load(model)).log]


def run(model: onnx.ModelProto, x: np.ndarray, r: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, {"x": x, "r": r})[0]
    return found


@pytest.mark.parametrize("minus", [True, False])
@pytest.mark.parametrize("counts", [[2, 0, 3, 1], [0, 0, 5, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
def test_rows_and_columns(counts: list[int], minus: bool) -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    rows = model_of(after="-1" if minus else "1", minus=minus)
    columns = model_of(1, before="-1, 1" if minus else "3, 1", after="", target="3, -1", minus=minus)
    assert fires(rows)
    assert fires(columns)
    np.testing.assert_array_equal(run(rows, x, np.array(counts)), np.repeat(x, counts, axis=0))
    np.testing.assert_array_equal(run(columns, np.ascontiguousarray(x.T), np.array(counts)), np.repeat(x.T, counts, axis=1))


def test_what_is_more_than_repeating_stays_a_loop() -> None:
    widened = model_of(after="3", target="-1, 3")
    widened.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1
    assert not fires(widened)  # the other axis is expanded as well
    assert not fires(model_of(before="2"))  # each row twice as often
    np.testing.assert_array_equal(
        run(model_of(before="2"), np.ones((2, 3), np.float32), np.array([1, 2])), np.ones((6, 3), np.float32)
    )


def test_fewer_trips_than_rows_stay_a_loop() -> None:
    model = model_of()
    trips = next(n for n in model.graph.node if n.output[0] == "trips")
    trips.op_type, trips.input[0] = "Identity", "given"
    model.graph.input.append(onnx.helper.make_tensor_value_info("given", onnx.TensorProto.INT64, []))
    assert not fires(model)


def test_negative_counts_are_an_error() -> None:
    with pytest.raises(InvalidArgument, match="negative"):
        run(model_of(), np.ones((2, 3), np.float32), np.array([-3, 1]))
