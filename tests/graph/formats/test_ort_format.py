"""Models in ORT format, as onnxruntime writes them: the same graph as from ONNX, weights in place, damage told."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort
from intarsia.errors import IntarsiaError, InvalidProtobuf, UnknownOperator
from intarsia.graph.load import load

peer = pytest.importorskip("onnxruntime", reason="writes the files of these tests")

Converted = Callable[..., Path]


@pytest.fixture
def converted(tmp_path: Path) -> Converted:
    """The file that onnxruntime makes of a model, at one of its levels of optimisation."""

    def convert(model: onnx.ModelProto, level: str = "ORT_DISABLE_ALL") -> Path:
        path = tmp_path / "model.ort"
        options = peer.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = getattr(peer.GraphOptimizationLevel, level)
        options.optimized_model_filepath = str(path)
        options.add_session_config_entry("session.save_model_format", "ORT")
        peer.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return path

    return convert


def value(name: str, kind: int, sizes: Sequence[int | str | None]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, sizes)


@pytest.fixture
def everything() -> onnx.ModelProto:
    """Attributes of every kind that the format has, strings, overridable and sparse initializers, subgraphs, sequences."""
    one = [value("t", TensorProto.FLOAT, ["n", 4])]
    branches = {
        "then_branch": helper.make_graph([helper.make_node("Mul", ["p", "two"], ["t"])], "then", [], one),
        "else_branch": helper.make_graph([helper.make_node("Neg", ["p"], ["t"])], "else", [], one),
    }
    features = {"max_gram_length": 1, "min_gram_length": 1, "max_skip_count": 0, "mode": "IDF", "ngram_counts": [0],
                "ngram_indexes": [0, 1], "pool_strings": ["a", "ü"], "weights": [0.5, 2.0]}  # fmt: skip
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["g"], name="dense", doc_string="a product", alpha=0.5, transB=1),
        helper.make_node("MatMul", ["g", "sparse"], ["p"]),
        helper.make_node("If", ["on"], ["y"], **branches),
        helper.make_node("SequenceConstruct", ["y", "g"], ["parts"]),
        helper.make_node("TfIdfVectorizer", ["words"], ["found"], **features),
        helper.make_node("ConstantOfShape", ["shape"], ["filled"], value=helper.make_tensor("v", TensorProto.INT64, [1], [7])),
    ]
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32([1, 2]), "sparse"), numpy_helper.from_array(np.int64([0, 5])), [4, 4]
    )
    graph = helper.make_graph(
        nodes, "g",
        [value("x", TensorProto.FLOAT, ["n", 3]), value("w", TensorProto.FLOAT, [4, 3]), value("on", TensorProto.BOOL, []),
         value("words", TensorProto.STRING, [None])],
        [value("y", TensorProto.FLOAT, ["n", 4]), helper.make_tensor_sequence_value_info("parts", TensorProto.FLOAT, None),
         value("found", TensorProto.FLOAT, [2]), value("filled", TensorProto.INT64, [2, 1])],
        [numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "w"),
         numpy_helper.from_array(np.float32(2), "two"), numpy_helper.from_array(np.int64([2, 1]), "shape")],
        sparse_initializer=[sparse],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="tests")
    model.metadata_props.add(key="author", value="someone")
    return model


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_runs_as_the_onnx_model(everything: onnx.ModelProto, converted: Converted, provider: str) -> None:
    session = ort.InferenceSession(converted(everything), providers=[provider])
    direct = ort.InferenceSession(everything.SerializeToString(), providers=[provider])
    assert [(v.name, v.shape, v.type) for v in session.get_inputs()] == [(v.name, v.shape, v.type) for v in direct.get_inputs()]
    assert [v.name for v in session.get_overridable_initializers()] == ["w"]
    meta = session.get_modelmeta()
    assert (meta.producer_name, meta.custom_metadata_map) == ("tests", {"author": "someone"})
    words = np.array(["ü", "b", "ü"], object)
    for rows in (2, 5):
        feed = {"x": np.random.default_rng(rows).random((rows, 3), np.float32), "on": np.array(rows == 2), "words": words}
        for given in (feed, {**feed, "w": np.ones((4, 3), np.float32)}):
            for found, expected in zip(session.run(None, given), direct.run(None, given), strict=True):
                np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("level", ["ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED"])
def test_optimised_models(converted: Converted, level: str) -> None:
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "k", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(rng.random((8, 3, 3, 3), np.float32), "k"),
        numpy_helper.from_array(rng.random(8, np.float32), "b"),
    ]
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, ["n", 3, 9, 9])], [value("y", TensorProto.FLOAT, None)], weights
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = rng.random((2, 3, 9, 9), np.float32)
    expected = peer.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    path = converted(model, level)
    for source in (path, path.read_bytes()):
        np.testing.assert_allclose(ort.InferenceSession(source).run(None, {"x": x})[0], expected[0], rtol=1e-5)


def test_layouts_of_one_processor_are_told(converted: Converted) -> None:
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "k"], ["y"], domain="com.microsoft.nchwc")],
        "g", [value("x", TensorProto.FLOAT, [1, 16, 8, 8])], [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones((16, 16, 1, 1), np.float32), "k")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft.nchwc", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    with pytest.raises(UnknownOperator, match=r"nchwc::Conv .*one kind of processor: .*ORT_ENABLE_EXTENDED"):
        ort.InferenceSession(converted(model))


@pytest.mark.parametrize(("name", "entry"), [("m.ort", "ONNX"), ("m.onnx", "ORT")])
def test_it_is_not_written(everything: onnx.ModelProto, tmp_path: Path, name: str, entry: str) -> None:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / name)
    options.add_session_config_entry("session.save_model_format", entry)
    with pytest.raises(ort.NotImplemented, match=rf"{name}: ORT format is read here, not written; .*ends in \.onnx"):
        ort.InferenceSession(everything.SerializeToString(), options)
    assert not list(tmp_path.iterdir())


def test_damage_gives_typed_errors(everything: onnx.ModelProto, converted: Converted) -> None:
    data = converted(everything).read_bytes()

    def check(changed: bytes) -> None:
        try:
            graph = load(changed)
            [c.numpy() for c in graph.constants.values() if c.nbytes < 1 << 20]
        except IntarsiaError as error:
            assert len(str(error)) > 10  # noqa: PT017

    for end in range(8, len(data), 11):
        check(data[:end])
    for position in range(8, len(data), 2):
        changed = bytearray(data)
        changed[position] ^= (0xFF, 0x80, 0x01)[position % 3]
        check(bytes(changed))
    with pytest.raises(InvalidProtobuf, match="the ORT-format model is cut short or corrupt: "):
        load(data[: len(data) // 4])


def flat(value: Any, out: bytearray, done: dict[int, int]) -> int:
    """Write tables (dicts by number of field), vectors of tables (lists), strings and int32 numbers; the place of `value`.

    A value that is the same object is written once, behind all that refers to it.
    """
    if isinstance(value, str):
        place = len(out)
        out += len(value).to_bytes(4, "little") + value.encode() + bytes(4 - len(value) % 4)
        return place
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    if isinstance(value, dict):
        width = 4 + 2 * (max(value) + 1)
        offsets = {number: 4 + 4 * i for i, number in enumerate(value)}
        vtable = len(out)
        out += struct.pack("<2H", width, 4 + 4 * len(value))
        out += b"".join(struct.pack("<H", offsets.get(i, 0)) for i in range(max(value) + 1))
        out += bytes(-len(out) % 4)
        place = len(out)
        out += struct.pack("<i", place - vtable)
    else:
        place = len(out)
        out += struct.pack("<I", len(value))
    slots = len(out)
    out += bytes(4 * len(items))
    for i, (_, item) in enumerate(items):
        at = slots + 4 * i
        if isinstance(item, int):
            struct.pack_into("<i", out, at, item)
            continue
        if done.get(id(item), 0) <= at:
            done[id(item)] = flat(item, out, done)
        struct.pack_into("<I", out, at, done[id(item)] - at)
    return place


def test_one_graph_in_every_node_again_and_again() -> None:
    """A small file whose graphs, written out, would have 100**8 nodes."""
    graph: dict[int, Any] = {6: []}
    for _ in range(8):
        attribute = {0: "body", 2: 5, 7: graph}
        graph = {2: [{5: "Loop", 10: [attribute]}] * 100}
    out = bytearray(4) + b"ORTM"
    struct.pack_into("<I", out, 0, flat({0: "6", 1: {7: graph}}, out, {}))
    with pytest.raises(InvalidProtobuf, match=f"more tables than {len(out)} bytes can hold"):
        load(bytes(out))


def test_what_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "m.ort"
    path.write_bytes(b"\x08\x00\x00\x00ORTM" + bytes(50))
    with pytest.raises(InvalidProtobuf, match=r"m\.ort: the ORT-format"):
        load(path)
    path.write_bytes(b"\xff\xff\xff\x7fORTM" + bytes(50))
    with pytest.raises(InvalidProtobuf, match=r"cut short or corrupt: byte 2147483647 of 58"):
        load(path)


def test_a_constant_twice(converted: Converted, caplog: pytest.LogCaptureFixture) -> None:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "aa"], ["s"]), helper.make_node("Add", ["s", "bb"], ["y"])],
        "g", [value("x", TensorProto.FLOAT, [1])], [value("y", TensorProto.FLOAT, [1])],
        [numpy_helper.from_array(np.full(1, number, np.float32), name) for name, number in (("aa", 1), ("bb", 2))],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data = converted(model).read_bytes().replace(b"bb\0", b"aa\0")
    assert load(data).constants["aa"].numpy() in (1, 2)  # onnxruntime writes them in an order of its own
    assert "the constant 'aa' is defined twice" in caplog.text
