"""The message for an index out of range names the index, its place, and the size that it has to fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import intarsia as ort
from intarsia.errors import NodeFailed
from intarsia.run_status import INDEX_IS_OUT_OF_RANGE

X, PLACES = np.ones((10, 2), np.float32), np.int64([3, 30])


def failure(text: str, **feed: Any) -> str:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> g {text}')
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    with pytest.raises(NodeFailed) as caught:
        session.run(None, feed)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "feed", "expected"),
    [
        ("(float[10,2] x, int64[n] i) => (float[n,2] y) { [emb] y = Gather<axis=0>(x, i) }", {"x": X, "i": PLACES},
         "node 'emb' (Gather): an index is out of range: 30 at [1] of 'i'; expected -10 to 9, since dimension 0 of 'x' has 10"),
        ("(float[m,2] x, int64[n] i) => (float[m,n] y) { [emb] y = Gather<axis=-1>(x, i) }", {"x": X, "i": np.int64([1, -3])},
         "-3 at [1] of 'i'; expected -2 to 1, since dimension 1 of 'x' has 2 elements"),
        ("(float[m,2] x, int32[n] i) => (float[n,2] y) { k = Cast<to=7>(i) j = Add(k, k) [e] z = Gather(x, j) y = Relu(z) }",
         {"x": X, "i": np.int32([1, 7])}, "14 at [1] of 'j'; expected -10 to 9"),
        ("(float[10,2] x, int64[2,2] i) => (float[2,2] y) { [n] y = GatherElements<axis=1>(x, i) }",
         {"x": X, "i": np.int64([[0, 1], [2, 0]])}, "2 at [1, 0] of 'i'; expected -2 to 1, since dimension 1 of 'x'"),
        ("(float[10,2] x, int64[2,2] i) => (float[2] y) { [n] y = GatherND(x, i) }",
         {"x": X, "i": np.int64([[0, 1], [2, 5]])}, "5 at [1, 1] of 'i'; expected -2 to 1, since dimension 1 of 'x'"),
        ("(float[2,5] x, int64[2,1] i) => (float[2] y) { [n] y = GatherND<batch_dims=1>(x, i) }",
         {"x": np.ones((2, 5), np.float32), "i": np.int64([[4], [-6]])}, "-6 at [1, 0] of 'i'; expected -5 to 4"),
        ("(float[10] x, int64[2] i, float[2] u) => (float[10] y) { [n] y = ScatterElements(x, i, u) }",
         {"x": X[:, 0], "i": PLACES, "u": X[0]}, "30 at [1] of 'i'; expected -10 to 9"),
        ("(float[10] x, int64[2,1] i, float[2] u) => (float[10] y) { [n] y = ScatterND(x, i, u) }",
         {"x": X[:, 0], "i": PLACES[:, None], "u": X[0]}, "30 at [1, 0] of 'i'; expected -10 to 9"),
    ],
)  # fmt: skip
def test_messages(text: str, feed: dict[str, Any], expected: str) -> None:
    assert expected in failure(text, **feed)


def test_indices_that_take_long_to_compute_are_not_computed_again() -> None:
    text = """(float[10,2] x, float[4,4] a) => (float[4,4,2] y)
        { p = MatMul(a, a)  j = Cast<to=7>(p)  [emb] y = Gather(x, j) }"""
    assert INDEX_IS_OUT_OF_RANGE in failure(text, x=X, a=np.full((4, 4), 100, np.float32))
