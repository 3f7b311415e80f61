"""FlatBuffers that refer to one thing again and again: a small file must not fill the memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from flat_tables import Scalar, Table, ort_model, shared_parts, written

import intarsia as ort
from intarsia.errors import InvalidArgument, InvalidGraph, InvalidProtobuf
from intarsia.graph.load import load

AGAIN = "read again and again: more than 4 times the buffer"
COUNT = 5000


@pytest.mark.parametrize("data", shared_parts(COUNT))
def test_models_cost_memory_in_proportion_to_their_bytes(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidProtobuf, match=AGAIN):
            load(data)
        assert tracemalloc.get_traced_memory()[1] < 400 * len(data)
    finally:
        tracemalloc.stop()


def test_adapters(tmp_path: Path) -> None:
    value = np.ones(COUNT, np.float32)
    parameter: Table = {0: "x", 1: np.array([COUNT]), 2: Scalar("i", 1), 3: value.view(np.uint8)}
    versions = {i: Scalar("i", 1) for i in range(3)}
    path = tmp_path / "a.onnx_adapter"
    path.write_bytes(written({**versions, 3: [parameter]}, b"TORT"))
    np.testing.assert_array_equal(ort.AdapterFormat.read_adapter(path).get_parameters()["x"].numpy(), value)
    path.write_bytes(written({**versions, 3: [parameter] * 1000}, b"TORT"))
    with pytest.raises(InvalidArgument, match=AGAIN):
        ort.AdapterFormat.read_adapter(path)


@pytest.mark.parametrize("dims", [[0, 2**63 - 1], [1] * 70, [-1, -3], [2**62, 4]])
def test_shapes_of_no_array(dims: list[int], tmp_path: Path) -> None:
    value = np.ones(0 if 0 in dims else 1, np.float32)
    parameter: Table = {0: "x", 1: np.array(dims), 2: Scalar("i", 1), 3: value.view(np.uint8)}
    path = tmp_path / "a.onnx_adapter"
    path.write_bytes(written({**{i: Scalar("i", 1) for i in range(3)}, 3: [parameter]}, b"TORT"))
    with pytest.raises(InvalidArgument, match=r"parameter 'x': (no array has the shape|4 bytes do not fit)"):
        ort.AdapterFormat.read_adapter(path)


@pytest.mark.parametrize("what", ["input", "output"])
def test_names_that_are_none(what: str) -> None:
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["": 20]> g (float[n] x) => (float[n] y) { y = Abs(x) }')
    getattr(model.graph, what)[0].name = ""
    with pytest.raises(InvalidGraph, match=f"{what}.* has no name"):
        ort.InferenceSession(ort_model(model))


def test_texts_may_be_shared() -> None:
    """As writers do: a long name that hundreds of nodes take is there once."""
    name = "x" * 100
    nodes = " ".join(f"y{i} = Abs({name})" for i in range(300))
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 20]> g (float[n] {name}) => (float[n] y0) {{ {nodes} }}'
    )
    (y,) = ort.InferenceSession(ort_model(model)).run(None, {name: np.float32([-1, 2])})
    np.testing.assert_array_equal(y, [1, 2])
