"""Models in files over 1 MiB: read in blocks, and understood, and refused, as the same bytes in memory are."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import intarsia as ort
from intarsia.graph.formats import file_bytes, protobuf_wire
from intarsia.graph.formats.file_bytes import FileBytes
from intarsia.graph.load import load
from intarsia.graph.model import Graph

RNG = np.random.default_rng(0)
LARGE = RNG.standard_normal((300, 1000), np.float32)  # that the file is not read at once


def body_of(value: float, nodes: int) -> onnx.GraphProto:
    """A branch of many nodes: longer than what is read at once."""
    names = [f"inner_{value}_{i}" for i in range(nodes)]
    constant = helper.make_node("Constant", [], [names[0]], value=numpy_helper.from_array(np.float32([value])))
    chain = [helper.make_node("Neg", [a], [b], name=f"a name of the node that makes {b}") for a, b in pairwise(names)]
    return helper.make_graph([constant, *chain], "branch", [], [helper.make_tensor_value_info(names[-1], 1, [1])])


def model(count: int = 100) -> onnx.ModelProto:
    """Short and long nodes, tensors of all sizes between them, branches, a function."""
    nodes, constants, last = [], [numpy_helper.from_array(LARGE, "large")], "x"
    for i in range(count):
        weight = RNG.standard_normal((1, int(RNG.integers(1, 3000)) if i % 50 == 0 else 3), np.float32)
        constants.append(numpy_helper.from_array(weight, f"w{i}"))
        nodes += [
            helper.make_node("ReduceMean", [f"w{i}"], [f"m{i}"], axes=[1], name=f"mean {i}", doc_string="text " * (i % 97)),
            helper.make_node("Add", [last, f"m{i}"], [f"y{i}"]),
        ]
        last = f"y{i}"
    branches = {"then_branch": body_of(1.0, 200), "else_branch": body_of(2.0, 3)}
    nodes += [
        helper.make_node("If", ["c"], ["branch"], **branches),
        helper.make_node("Twice", [last], ["twice"], domain="own"),
        helper.make_node("Sum", ["twice", "branch"], ["y"]),
    ]
    function = helper.make_function(
        "own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    inputs = [helper.make_tensor_value_info("x", 1, ["n", 1]), helper.make_tensor_value_info("c", 9, [])]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", 1, ["n", 1])], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=9)


@pytest.fixture(scope="module")
def data() -> bytes:
    return model().SerializeToString()


def in_file(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    return path


def check_equal(found: Graph, expected: Graph) -> None:
    assert str(found) == str(expected)
    assert found.constants.keys() == expected.constants.keys()
    for name, constant in expected.constants.items():
        np.testing.assert_array_equal(found.constants[name].numpy(), constant.numpy())
        assert found.constants[name].source.rpartition(" at ")[2] == constant.source.rpartition(" at ")[2]


@pytest.mark.parametrize(("least", "most", "short"), [(1 << 14, 1 << 18, 1 << 12), (64, 100, 20), (31, 997, 300), (1, 1, 1)])
def test_blocks_of_any_size_give_the_graph_of_the_bytes(
    tmp_path: Path, data: bytes, least: int, most: int, short: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protobuf_wire, "_LEAST_BLOCK_NBYTES", least)
    monkeypatch.setattr(protobuf_wire, "_MOST_BLOCK_NBYTES", most)
    monkeypatch.setattr(protobuf_wire, "_IN_BLOCK_NBYTES", short)
    assert len(data) > file_bytes.WHOLE_NBYTES
    check_equal(load(in_file(tmp_path, data)), load(data))


def test_corrupt_bytes_are_told_as_in_memory(tmp_path: Path, data: bytes) -> None:
    """One byte is another, or the end is missing: wherever that is, file and bytes give one graph or one message."""
    from_file = failed = 0
    at_nodes = data.index(b"ReduceMean")
    for place in [*range(at_nodes - 10, at_nodes + 20), *(int(p) for p in RNG.integers(at_nodes, at_nodes + 8_000, 30))]:
        changed = bytearray(data)
        changed[place] ^= 0xFF
        outcome = [result(load_named(source)) for source in (in_file(tmp_path, bytes(changed)), bytes(changed))]
        assert outcome[0] == outcome[1], place
        from_file, failed = from_file + 1, failed + outcome[0].startswith("error")
    assert from_file == 60
    assert failed > 10
    for length in (len(data) - 1, len(data) - 100, at_nodes + 1_100_000):
        outcome = [result(load_named(source)) for source in (in_file(tmp_path, data[:length]), data[:length])]
        assert outcome[0] == outcome[1]
        assert "cut short" in outcome[0]


def load_named(source: Path | bytes) -> Graph | Exception:
    try:
        return load(source)
    except ort.IntarsiaError as error:
        return type(error)(str(error).replace(str(source), "model bytes") if isinstance(source, Path) else str(error))


def result(outcome: Graph | Exception) -> str:
    return f"error {type(outcome).__name__}: {outcome}" if isinstance(outcome, Exception) else str(outcome)


def single_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often a place of the file is asked for by itself."""
    counted, get = [0], FileBytes.__getitem__

    def counting(self: FileBytes, place: int | slice) -> int | bytes:
        counted[0] += 1
        return get(self, place)

    monkeypatch.setattr(FileBytes, "__getitem__", counting)
    return counted


def test_short_fields_are_read_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of Python for each byte of each node made a model of 5,000 nodes take 1.7 times as long."""
    single = single_reads(monkeypatch)
    load(in_file(tmp_path, model(100).SerializeToString()))
    before, single[0] = single[0], 0
    load(in_file(tmp_path, model(1100).SerializeToString()))
    assert single[0] < before + 1000 * 3  # of 1,000 more means and sums; 20 of their weights are long


def test_small_weights_do_not_keep_blocks_in_memory(tmp_path: Path, data: bytes) -> None:
    graph = load(in_file(tmp_path, data))
    array = graph.constants["w1"].numpy()
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    assert len(owner) < 200  # type: ignore[arg-type] # the tensor's own message


def test_an_open_file_and_a_stream_are_the_same(tmp_path: Path, data: bytes) -> None:
    check_equal(load(io.BytesIO(data)), load(in_file(tmp_path, data)))
