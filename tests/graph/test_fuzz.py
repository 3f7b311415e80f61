"""Damaged models raise Intarsia's errors and nothing else, and cost no memory beyond their size."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from intarsia.errors import IntarsiaError
from intarsia.graph.load import load
from intarsia.graph.model import Graph
from intarsia.graph.save import to_model_bytes
from intarsia.graph.verify import verify

MEMORY_NBYTES = 64 << 20
FIXTURES_STAY = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)  # fmt: skip


@pytest.fixture
def seed_model(mlp: onnx.ModelProto, branching: onnx.ModelProto) -> bytes:
    """A small model with a bit of everything."""
    model = onnx.ModelProto()
    model.CopyFrom(branching)
    model.graph.node.extend(mlp.graph.node)
    model.graph.initializer.extend(mlp.graph.initializer)
    for dtype in (TensorProto.INT4, TensorProto.INT64, TensorProto.BFLOAT16, TensorProto.BOOL, TensorProto.UINT64):
        model.graph.initializer.append(helper.make_tensor(f"t{dtype}", dtype, [2, 3], np.ones(6)))
    model.graph.initializer.append(helper.make_tensor("text_c", TensorProto.STRING, [2], ["a", "b"]))
    external = model.graph.initializer.add(name="ext", data_type=TensorProto.FLOAT, dims=[2], data_location=1)
    external.external_data.add(key="location", value="w.bin")
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32([1, 2]), "sp"), numpy_helper.from_array(np.int64([1, 3])), [2, 2]
    )
    model.graph.sparse_initializer.append(sparse)
    return model.SerializeToString()


def exercise(data: bytes, folder: Path) -> None:
    """Everything that the graph stage does with a model; Intarsia's errors are the expected way to fail."""
    try:
        graph = load(data, base_dir=folder)
        read_constants(graph)
        verify(graph)
        str(graph)
        to_model_bytes(graph)
    except IntarsiaError as error:
        assert len(str(error)) > 10  # noqa: PT017


def read_constants(graph: Graph) -> None:
    for constant in graph.constants.values():
        if constant.nbytes < 1 << 20 or constant.source == "":
            assert constant.numpy().shape == constant.shape
    for node in graph.nodes:
        for sub in node.subgraphs:
            read_constants(sub)


def check(data: bytes, folder: Path) -> None:
    tracemalloc.start()
    try:
        exercise(data, folder)
        assert tracemalloc.get_traced_memory()[1] < MEMORY_NBYTES
    finally:
        tracemalloc.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "w.bin").write_bytes(bytes(8))
    return tmp_path


def test_the_seed_itself_is_valid(seed_model: bytes, folder: Path) -> None:
    graph = load(seed_model, base_dir=folder)
    read_constants(graph)
    assert len(graph.constants) == 10


@FIXTURES_STAY
@given(data=st.data())
def test_bytes_replaced(seed_model: bytes, folder: Path, data: st.DataObject) -> None:
    changed = bytearray(seed_model)
    changes = st.lists(st.tuples(st.integers(0, len(changed) - 1), st.integers(0, 255)), min_size=1, max_size=6)
    for position, byte in data.draw(changes):
        changed[position] = byte
    check(bytes(changed), folder)


@FIXTURES_STAY
@given(data=st.data())
def test_pieces_removed_and_inserted(seed_model: bytes, folder: Path, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(seed_model)))
    end = data.draw(st.integers(start, min(len(seed_model), start + 40)))
    check(seed_model[:start] + data.draw(st.binary(max_size=12)) + seed_model[end:], folder)


def test_every_truncation(seed_model: bytes, folder: Path) -> None:
    for end in range(len(seed_model)):
        exercise(seed_model[:end], folder)


def test_every_byte_turned_over(seed_model: bytes, folder: Path) -> None:
    for position in range(len(seed_model)):
        for mask in (0xFF, 0x80, 0x01):
            changed = bytearray(seed_model)
            changed[position] ^= mask
            exercise(bytes(changed), folder)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
@example(b"\x08\x0a\x3a\x00")
def test_any_bytes(data: bytes) -> None:
    exercise(data, Path())


@settings(max_examples=100, deadline=None)
@given(
    dims=st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 4), max_size=70),
    dtype=st.integers(-1, 40),
    raw=st.binary(max_size=16),
)
def test_hostile_tensors(dims: list[int], dtype: int, raw: bytes) -> None:
    tensor = TensorProto(name="t", data_type=dtype, dims=dims, raw_data=raw)
    graph = helper.make_graph([], "g", [], [], [tensor])
    check(helper.make_model(graph, ir_version=10).SerializeToString(), Path())


@settings(max_examples=100, deadline=None)
@given(
    dims=st.lists(st.integers(-2, 1 << 40), max_size=4),
    indices=st.lists(st.integers(-1, 1 << 40), max_size=3),
)
def test_hostile_sparse_tensors(dims: list[int], indices: list[int]) -> None:
    values = numpy_helper.from_array(np.ones(len(indices), np.float32), "s")
    sparse = onnx.SparseTensorProto(dims=dims, values=values, indices=numpy_helper.from_array(np.int64(indices)))
    graph = helper.make_graph([], "g", [], [], sparse_initializer=[sparse])
    exercise(helper.make_model(graph, ir_version=10).SerializeToString(), Path())
