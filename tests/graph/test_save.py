"""Graphs become ONNX models that onnx accepts and that load as the same graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia.errors import InvalidArgument
from intarsia.graph import save as save_module
from intarsia.graph.dims import fresh_symbol, symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.load import load
from intarsia.graph.model import (
    Constant,
    Graph,
    MapType,
    Metadata,
    Node,
    OptionalType,
    SequenceType,
    SparseTensor,
    SparseTensorType,
    TensorType,
    Value,
)
from intarsia.graph.save import save, to_model_bytes, to_model_proto


@pytest.mark.parametrize("model", ["mlp", "branching"])
def test_round_trip(model: str, request: pytest.FixtureRequest, plain: Any) -> None:
    graph = load(request.getfixturevalue(model))
    data = to_model_bytes(graph)
    onnx.checker.check_model(data, full_check=True)
    again = load(data)
    assert plain(again) == plain(graph)
    assert to_model_bytes(again) == data
    assert to_model_proto(graph).SerializeToString(deterministic=True) == onnx.ModelProto.FromString(data).SerializeToString(
        deterministic=True
    )


def test_onnx_reads_the_same(mlp: onnx.ModelProto) -> None:
    saved = to_model_proto(load(mlp))
    assert [n.op_type for n in saved.graph.node] == ["Gemm", "Relu", "Add"]
    for ours, theirs in zip(saved.graph.initializer, mlp.graph.initializer, strict=True):
        np.testing.assert_array_equal(numpy_helper.to_array(ours), numpy_helper.to_array(theirs))
    assert saved.graph.input == mlp.graph.input
    assert saved.graph.output == mlp.graph.output
    assert saved.graph.value_info == mlp.graph.value_info
    assert list(saved.metadata_props) == list(mlp.metadata_props)
    assert saved.graph.doc_string == mlp.graph.doc_string


def test_every_type(plain: Any) -> None:
    tensor = TensorType(DType.FLOAT, (symbol("n"), 3, fresh_symbol("x0_d2")))
    types = [
        tensor,
        TensorType(DType.INT64, ()),
        TensorType(DType.BOOL),
        SparseTensorType(DType.FLOAT, (2, 2)),
        SequenceType(TensorType(DType.FLOAT, (symbol("n"), 3))),
        OptionalType(SequenceType(TensorType(DType.STRING))),
        MapType(DType.INT64, TensorType(DType.FLOAT)),
        SequenceType(MapType(DType.STRING, TensorType(DType.DOUBLE))),
        SequenceType(None),
        None,
    ]
    graph = Graph(
        "g", [Value(f"x{i}", t, "doc" * i) for i, t in enumerate(types)], opset_imports={"": 20}, metadata=Metadata(10)
    )
    assert plain(load(to_model_bytes(graph))) == plain(graph)
    dims = to_model_proto(graph).graph.input[0].type.tensor_type.shape.dim
    assert [d.WhichOneof("value") for d in dims] == ["dim_param", "dim_value", None]


def test_every_attribute(plain: Any) -> None:
    sparse = SparseTensor(np.float32([1, 2]), np.int64([0, 3]), (2, 2))
    sub = Graph("sub", outputs=[Value("x")])
    attributes: dict[str, Any] = {
        "f": 0.5, "i": -1, "s": "é", "raw": b"\xff", "fs": [1.0, 2.5], "is": [1, -2], "ss": ["a", b"\xff"], "none": [],
        "t": np.float16([[1, 2]]), "g": sub, "sparse": sparse, "type": TensorType(DType.INT64, (2,)),
        "ts": [np.int8([1]), np.array(["a"], object)], "gs": [sub, sub], "types": [TensorType(DType.BOOL), SequenceType(None)],
        "sparses": [sparse],
    }  # fmt: skip
    node = Node("Op", ["x"], ["y"], attributes, "d", "n", overload="o", doc="doc", origin=("n",), metadata={"a": "b"})
    graph = Graph("g", [Value("x")], [Value("y")], [node], opset_imports={"": 20, "d": 1}, metadata=Metadata(10))
    loaded = load(to_model_bytes(graph))
    assert plain(loaded) == plain(graph)


def test_numpy_and_mixed_numbers() -> None:
    attributes = {
        "i": np.int32(3),
        "f": np.float32(0.5),
        "b": True,
        "mixed": [1, 2.5],
        "ints": (1, np.int64(2)),
        "range": range(3),
    }
    graph = Graph("g", nodes=[Node("Op", [], ["y"], attributes, "d")], opset_imports={"d": 1})
    found = load(to_model_bytes(graph)).nodes[0].attributes
    assert found == {"i": 3, "f": 0.5, "b": 1, "mixed": [1.0, 2.5], "ints": [1, 2], "range": [0, 1, 2]}


def test_empty_lists_have_the_type_of_the_schema() -> None:
    attributes: dict[str, Any] = {"activation_alpha": [], "activations": [], "hidden_size": 2}
    graph = Graph("g", nodes=[Node("LSTM", ["x", "w", "r"], ["y"], attributes)], opset_imports={"": 20})
    found = {a.name: a.type for a in to_model_proto(graph).graph.node[0].attribute}
    assert found["activation_alpha"] == onnx.AttributeProto.FLOATS
    assert found["activations"] == onnx.AttributeProto.STRINGS
    unknown = Graph("g", nodes=[Node("Op", [], ["y"], {"a": []}, "nowhere")], opset_imports={"": 20})
    assert to_model_proto(unknown).graph.node[0].attribute[0].type == onnx.AttributeProto.INTS


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1, 2}, r"node 'n' \(Op\): attribute 'a' is a set, which ONNX has no attribute type for"),
        (None, "attribute 'a' is a NoneType"),
        ([np.int8([1]), TensorType(DType.BOOL)], "attribute 'a' mixes tensor, type, expected one type"),
    ],
)
def test_attributes_without_an_onnx_type(value: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        to_model_bytes(Graph("g", nodes=[Node("Op", [], ["y"], {"a": value}, name="n")]))


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.UNDEFINED], ids=lambda d: d.onnx_name)
@pytest.mark.parametrize("threshold", [None, 0])
def test_constants_of_every_type(dtype: DType, threshold: int | None, tmp_path: Path, plain: Any) -> None:
    arrays = [np.arange(7).astype(bool if dtype is DType.BOOL else np.float32).astype(dtype.numpy)]
    arrays += [arrays[0][3], arrays[0][:0], arrays[0][::2], np.asfortranarray(arrays[0][:6].reshape(2, 3))]
    if dtype is DType.STRING:
        arrays = [np.array([["a", "é"], ["", "b"]], object)]
    constants = {f"c{i}": Constant.of(f"c{i}", a) for i, a in enumerate(arrays)}
    outputs = [Value(n, c.type) for n, c in constants.items()]
    graph = Graph("g", outputs=outputs, constants=constants, opset_imports={"": 25})
    path = tmp_path / "m.onnx"
    save(graph, path, threshold)
    onnx.checker.check_model(path)
    graph.metadata.ir_version = max(10, load(path).metadata.ir_version)
    assert plain(load(path)) == plain(graph)


def test_external_data(tmp_path: Path, plain: Any) -> None:
    rng = np.random.default_rng(0)
    constants = {n: Constant.of(n, rng.standard_normal(s).astype(np.float32)) for n, s in (("a", 1000), ("b", 3), ("c", 500))}
    outputs = [Value(n, c.type) for n, c in constants.items()]
    graph = Graph("g", outputs=outputs, constants=constants, opset_imports={"": 20}, metadata=Metadata(10))
    path = tmp_path / "m.onnx"
    save(graph, path, external_threshold_bytes=1000, external_file="weights.bin")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "weights.bin"]
    assert path.stat().st_size < 1000
    onnx.checker.check_model(path)
    stored = onnx.load(path)
    for tensor in stored.graph.initializer:
        np.testing.assert_array_equal(numpy_helper.to_array(tensor, str(tmp_path)), constants[tensor.name].numpy())
    placed = {
        t.name: {e.key: int(e.value) for e in t.external_data if e.key != "location"}
        for t in onnx.load(path, load_external_data=False).graph.initializer
    }
    assert placed == {"a": {"offset": 0, "length": 4000}, "b": {}, "c": {"offset": 4096, "length": 2000}}
    assert plain(load(path)) == plain(graph)


def test_saving_over_the_files_that_the_weights_are_mapped_from(tmp_path: Path) -> None:
    w = np.arange(100_000, dtype=np.float32)
    path = tmp_path / "m.onnx"
    save(Graph("g", constants={"w": Constant.of("w", w)}, opset_imports={"": 20}), path)
    for threshold in (None, 0, 0, None):
        save(load(path), path, threshold)
        np.testing.assert_array_equal(load(path).constants["w"].numpy(), w)
    assert not list(tmp_path.glob("*.tmp"))


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    save(Graph("old", opset_imports={"": 20}), path)

    def unreadable() -> np.ndarray:
        raise OSError("gone")

    broken = Graph("new", constants={"w": Constant("w", DType.FLOAT, (1,), unreadable)}, opset_imports={"": 20})
    with pytest.raises(OSError, match="gone"):
        save(broken, path)
    assert load(path).name == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_a_target_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").mkdir()
    with pytest.raises(OSError, match=r"m\.onnx"):
        save(Graph("g", opset_imports={"": 20}), tmp_path / "m.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_all_metadata(plain: Any) -> None:
    metadata = Metadata(10, "maker", "1.0", "a.b", 7, "doc", "graph doc", {"k": "v"})
    graph = Graph("g", opset_imports={"": 20, "ai.onnx.ml": 3}, metadata=metadata)
    assert plain(load(to_model_bytes(graph))) == plain(graph)


def test_old_models_keep_constants_out_of_their_inputs(plain: Any) -> None:
    """Before IR version 4 an initializer must be an input; other constants are saved as nodes."""
    w = numpy_helper.from_array(np.float32([1, 2]), "w")
    nodes = [helper.make_node("Constant", [], ["c"], value=w), helper.make_node("Sum", ["x", "w", "c"], ["y"])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, [2]), value("w", TensorProto.FLOAT, [2])],
        [value("y", TensorProto.FLOAT, [2])],
        [w],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3)
    onnx.checker.check_model(model)
    loaded = load(model)
    saved = to_model_bytes(loaded)
    onnx.checker.check_model(saved)
    assert plain(load(saved)) == plain(loaded)


def test_the_limit_of_protobuf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save_module, "MAX_PROTO_NBYTES", 1000)
    graph = Graph("g", constants={"w": Constant.of("w", np.zeros(1000, np.float32))}, opset_imports={"": 20})
    for write in (lambda: to_model_bytes(graph), lambda: save(graph, tmp_path / "m.onnx")):
        with pytest.raises(
            InvalidArgument, match=r"over protobuf's limit of 2 GB: use save\(graph, path, external_threshold_bytes=1024\)"
        ):
            write()
    assert not list(tmp_path.iterdir())
    save(graph, tmp_path / "m.onnx", external_threshold_bytes=1024)
    assert load(tmp_path / "m.onnx").constants["w"].size == 1000


@pytest.mark.parametrize("name", ["", "a/b", "../b", "m.onnx", "a\\b"])
def test_external_file_names(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="expected the name of another file in the model's folder"):
        save(Graph("g"), tmp_path / "m.onnx", 0, name)


def test_ir_version_of_new_graphs() -> None:
    def saved(dtype: DType) -> int:
        graph = Graph("g", [Value("x", TensorType(dtype, (1,)))], opset_imports={"": 20})
        return load(to_model_bytes(graph)).metadata.ir_version

    assert [saved(d) for d in (DType.FLOAT, DType.FLOAT4E2M1, DType.INT2, DType.FLOAT6E2M3)] == [10, 11, 13, 14]
