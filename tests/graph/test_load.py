"""Models from all kinds of sources become graphs."""

from __future__ import annotations

import gc
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia.errors import InvalidArgument, InvalidGraph, InvalidModelError, InvalidProtobuf, NoSuchFile
from intarsia.graph import load as load_module
from intarsia.graph.dims import Expr, symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.formats.protobuf_wire import Message
from intarsia.graph.load import MAX_IR_VERSION, load
from intarsia.graph.model import AttributeRef, Graph, OptionalType, SequenceType, TensorType


def small_model(nodes: list[onnx.NodeProto], **graph_parts: Any) -> onnx.ModelProto:
    inputs = graph_parts.pop("inputs", ["x"])
    outputs = graph_parts.pop("outputs", ["y"])
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in inputs],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in outputs],
        **graph_parts,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_contents(mlp: onnx.ModelProto) -> None:
    graph = load(mlp.SerializeToString())
    assert graph.name == "mlp"
    assert graph.input_names() == ["x"]
    assert graph.inputs[0].type == TensorType(DType.FLOAT, (symbol("batch"), 4))
    assert graph.outputs[0].type == TensorType(DType.FLOAT, (symbol("batch"), 3))
    assert graph.types == {"h": TensorType(DType.FLOAT, (symbol("batch"), 3))}
    assert [n.op_type for n in graph.nodes] == ["Gemm", "Relu", "Add"]
    assert graph.nodes[0].attributes == {"alpha": 0.5, "transB": 0}
    assert [n.name for n in graph.nodes] == ["dense", "Relu_1", "add"]
    assert [n.origin for n in graph.nodes] == [("dense",), ("Relu_1",), ("add",)]
    assert graph.nodes[2].doc == "the bias"
    assert all(n.version == 0 for n in graph.nodes)
    np.testing.assert_array_equal(graph.constants["w"].numpy(), np.arange(12, dtype=np.float32).reshape(4, 3))
    np.testing.assert_array_equal(graph.constants["b"].numpy(), np.float32([1, 2, 3]))
    assert not graph.constants["w"].numpy().flags.writeable
    assert not graph.constants["b"].numpy().flags.writeable
    assert graph.opset_imports == {"": 20}
    assert graph.metadata.producer_name == "tests"
    assert graph.metadata.properties == {"author": "nobody", "task": "none"}
    assert graph.metadata.graph_doc == "a small network"


def test_every_source_gives_the_same_graph(mlp: onnx.ModelProto, tmp_path: Path, plain: Any) -> None:
    data = mlp.SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    expected = plain(load(data))
    with path.open("rb") as file:
        graphs = [load(path), load(str(path)), load(bytearray(data)), load(memoryview(data)), load(mlp), load(file)]
    graphs.append(load(io.BytesIO(data)))
    for graph in graphs:
        assert plain(graph) == expected
    assert graphs[0].metadata.path == str(path)


def test_a_writable_buffer_is_copied(mlp: onnx.ModelProto) -> None:
    buffer = bytearray(mlp.SerializeToString())
    graph = load(buffer)
    buffer[:] = bytes(len(buffer))
    assert graph.constants["w"].numpy()[0, 1] == 1


def test_subgraphs_functions_and_types(branching: onnx.ModelProto) -> None:
    graph = load(branching.SerializeToString())
    if_node, scale, _, optional, normalizer = graph.nodes
    then, other = if_node.attributes["then_branch"], if_node.attributes["else_branch"]
    assert isinstance(then, Graph)
    assert then.captured_names() == {"x"}
    assert other.constants["two"].numpy() == np.float32(2)
    assert [n.op_type for n in other.nodes] == ["Mul"]
    assert scale.domain == "custom"
    assert optional.attributes["type"] == TensorType(DType.INT64, (2,))
    assert normalizer.attributes == {"stopwords": ["a", "é"], "is_case_sensitive": 1}
    assert isinstance(graph.outputs[0].type, SequenceType)
    assert isinstance(graph.outputs[1].type, OptionalType)
    function = graph.functions["custom", "Scale", ""]
    assert function.attributes == {"alpha": 3.0}
    assert function.nodes[0].attributes == {"value_float": AttributeRef("alpha", onnx.AttributeProto.FLOAT)}
    assert function.opset_imports == {"": 20}


def test_unnamed_and_negative_sizes_are_fresh_symbols() -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, "n", -1, 0])
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g", [value], [helper.make_empty_tensor_value_info("y")]
    )
    loaded = load(helper.make_model(graph))
    type_ = loaded.inputs[0].type
    assert isinstance(type_, TensorType)
    assert type_.shape is not None
    a, b, c, d = type_.shape
    assert isinstance(a, Expr)
    assert str(a).startswith("x_d0#")
    assert str(c).startswith("x_d2#")
    assert b == symbol("n")
    assert a != c
    assert d == 0
    assert loaded.outputs[0].type is None


def test_initializers_that_are_inputs_can_be_overridden() -> None:
    w = numpy_helper.from_array(np.float32([1, 2]), "w")
    graph = load(small_model([helper.make_node("Add", ["x", "w"], ["y"])], inputs=["x", "w"], initializer=[w]))
    assert graph.input_names() == ["x"]
    assert graph.overridable == ["w"]
    assert "w" in graph.constants


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ({"value": numpy_helper.from_array(np.int64([[1, 2]]), "ignored")}, np.int64([[1, 2]])),
        ({"value_float": 1.5}, np.float32(1.5)),
        ({"value_floats": [1.5, 2.0]}, np.float32([1.5, 2])),
        ({"value_int": -3}, np.int64(-3)),
        ({"value_ints": [1, -2]}, np.int64([1, -2])),
        ({"value_string": "é"}, np.array("é", object)),
        ({"value_strings": ["a", "b"]}, np.array(["a", "b"], object)),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else "",
)
def test_constant_nodes_become_constants(attribute: dict[str, Any], expected: np.ndarray) -> None:
    nodes = [helper.make_node("Constant", [], ["c"], **attribute), helper.make_node("Identity", ["c"], ["y"])]
    graph = load(small_model(nodes))
    assert [n.op_type for n in graph.nodes] == ["Identity"]
    assert graph.nodes[0].name == "Identity_1"
    found = graph.constants["c"]
    assert found.name == "c"
    assert found.dtype.numpy == found.numpy().dtype == np.asarray(expected).dtype
    assert found.shape == found.numpy().shape == np.shape(expected)
    assert found.numpy().tolist() == np.asarray(expected).tolist()


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("where", ["initializer", "node"])
def test_sparse_tensors_become_dense(linear: bool, where: str) -> None:
    indices = np.int64([1, 5]) if linear else np.int64([[0, 1], [1, 2]])
    values = numpy_helper.from_array(np.float32([3, 4]), "s")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(indices, "i"), [2, 3])
    if where == "initializer":
        graph = load(small_model([helper.make_node("Identity", ["s"], ["y"])], sparse_initializer=[sparse]))
    else:
        nodes = [helper.make_node("Constant", [], ["s"], sparse_value=sparse), helper.make_node("Identity", ["s"], ["y"])]
        graph = load(small_model(nodes))
    np.testing.assert_array_equal(graph.constants["s"].numpy(), np.float32([[0, 3, 0], [0, 0, 4]]))
    assert graph.constants["s"].shape == (2, 3)


def test_attribute_values() -> None:
    node = helper.make_node(
        "Op", ["x"], ["y"], domain="d", f=0.5, i=-7, s="text", fs=[1.0, 2.0], ints=[1, -1], ss=["a", "b"],
        t=numpy_helper.from_array(np.float16([1, 2]), "t"),
    )  # fmt: skip
    node.attribute.append(helper.make_attribute("raw", b"\xff\x00"))
    node.attribute.append(helper.make_attribute("empty", [], attr_type=onnx.AttributeProto.INTS))
    found = load(small_model([node])).nodes[0].attributes
    assert found.pop("t").tolist() == [1, 2]
    assert found == {
        "f": 0.5, "i": -7, "s": "text", "fs": [1.0, 2.0], "ints": [1, -1], "ss": ["a", "b"], "raw": b"\xff\x00", "empty": [],
    }  # fmt: skip


def test_attributes_without_a_type_as_in_ir_version_1() -> None:
    node = helper.make_node("Op", ["x"], ["y"], i=3, fs=[1.0], s="a")
    for attribute in node.attribute:
        attribute.ClearField("type")
    assert load(small_model([node])).nodes[0].attributes == {"i": 3, "fs": [1.0], "s": "a"}


def test_packed_attribute_lists() -> None:
    """Protobuf readers take repeated numbers packed too, whatever the definition says."""
    graph, node = Message(), Message()
    node.string(4, "Op")
    for name, number, payload in (("fs", 7, np.float32([0.5, 2]).tobytes()), ("is", 8, b"\x01\xac\x02")):
        attribute = Message()
        attribute.string(1, name)
        attribute.raw(number, payload)
        node.message(5, attribute)
    graph.message(1, node)
    assert load(with_graph(graph)).nodes[0].attributes == {"fs": [0.5, 2.0], "is": [1, 300]}


def test_nodes_are_brought_into_order() -> None:
    nodes = [
        helper.make_node("Add", ["a", "b"], ["y"]),
        helper.make_node("Relu", ["x"], ["b"]),
        helper.make_node("Neg", ["x"], ["a"]),
    ]
    assert [n.op_type for n in load(small_model(nodes)).nodes] == ["Relu", "Neg", "Add"]


def test_captured_values_count_for_the_order() -> None:
    sub = helper.make_graph([helper.make_node("Relu", ["late"], ["s"])], "sub", [], [helper.make_empty_tensor_value_info("s")])
    nodes = [helper.make_node("If", ["x"], ["y"], then_branch=sub, else_branch=sub), helper.make_node("Neg", ["x"], ["late"])]
    assert [n.op_type for n in load(small_model(nodes)).nodes] == ["Neg", "If"]


def test_old_models_without_operator_set() -> None:
    model = small_model([helper.make_node("Relu", ["x"], ["y"])])
    model.ir_version = 2
    model.ClearField("opset_import")
    assert load(model).opset_imports == {"": 1}
    model.ir_version = 3
    with pytest.raises(InvalidModelError, match="imports no operator set"):
        load(model)


def test_ir_versions(mlp: onnx.ModelProto) -> None:
    assert onnx.IR_VERSION <= MAX_IR_VERSION
    mlp.ir_version = MAX_IR_VERSION
    assert load(mlp).metadata.ir_version == MAX_IR_VERSION
    mlp.ir_version = MAX_IR_VERSION + 1
    with pytest.raises(InvalidModelError, match=f"IR version {MAX_IR_VERSION + 1} is not supported, at most {MAX_IR_VERSION}"):
        load(mlp)
    mlp.ir_version = 0
    with pytest.raises(InvalidModelError, match="IR version 0, expected 1 to"):
        load(mlp)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(NoSuchFile, match=r"no\.onnx' does not exist: check the name"):
        load(tmp_path / "no.onnx")
    with pytest.raises(FileNotFoundError, match=r"its folder .* does not exist either"):
        load(tmp_path / "nowhere" / "no.onnx")
    with pytest.raises(NoSuchFile, match="is a folder"):
        load(tmp_path)
    with pytest.raises(NoSuchFile, match="the name is not valid"):
        load("a\0b")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows says that such a file is not found")
def test_path_through_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"")
    with pytest.raises(NoSuchFile, match="does not exist: a part of its path is a file, not a folder"):
        load(tmp_path / "a.onnx" / "b.onnx")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs a file that this user may not read")
def test_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.touch(mode=0)
    with pytest.raises(InvalidArgument, match="cannot be read"):
        load(path)


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="not 'int'"):
        load(3)
    path = tmp_path / "m.onnx"
    path.write_text("x")
    with path.open(encoding="utf-8") as file, pytest.raises(InvalidArgument, match="binary mode"):
        load(file)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"empty \(0 bytes\)"),
        (b"PK\x03\x04" + bytes(50), "a zip archive"),
        (b"<!DOCTYPE html><html></html>", "an HTML page, probably a failed download"),
        (b"\n\n<html>", "an HTML page"),
        (b"<?xml version='1.0'?><net/>", "an XML file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 1\n", "Git LFS pointer.*git lfs pull"),
        (b"\x1f\x8b\x08" + bytes(50), "gzip"),
        (b"\x80\x04\x95" + bytes(50), "a Python pickle"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"\x1c\x00\x00\x00TFL3" + bytes(50), "TensorFlow Lite"),
        (b'\x40\x00\x00\x00\x00\x00\x00\x00{"a": 1}', "safetensors"),
        (b"GGUF\x03\x00\x00\x00", "GGUF"),
        (b'{"graph": 1}', "a JSON text"),
        (b"just some words\n", "a text file"),
        (bytes(100), "nothing but zero bytes"),
        (b"\xff\xfe\x01\x02" * 9, "wire type 7"),
        (b"\x08\x0a", "not an ONNX model: it has no graph"),
    ],
    ids=lambda v: "" if isinstance(v, str) else repr(v[:8]),
)
def test_other_files_are_recognised(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.onnx"
    path.write_bytes(data)
    with pytest.raises(InvalidProtobuf, match=message) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_truncated_model(mlp: onnx.ModelProto) -> None:
    data = mlp.SerializeToString()
    with pytest.raises(InvalidProtobuf, match=r"GraphProto|ModelProto.* is cut short"):
        load(data[: len(data) // 2])


def test_names_must_be_utf8(mlp: onnx.ModelProto) -> None:
    data = mlp.SerializeToString().replace(b"Gemm", b"\xffemm")
    with pytest.raises(InvalidProtobuf, match=r"the string b'\\xffemm' in the model is not UTF-8"):
        load(data)


def test_two_graphs_are_refused(mlp: onnx.ModelProto) -> None:
    with pytest.raises(InvalidProtobuf, match="the model has two graphs"):
        load(mlp.SerializeToString() * 2)


def _sparse(name: str, number: float) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.array([number], np.float32), name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([0], np.int64)), [1])


def test_the_last_of_constants_of_one_name_counts(caplog: pytest.LogCaptureFixture) -> None:
    """As in onnxruntime, which adds what Constant nodes give to the initializers, and sparse ones after them."""
    first, second = (numpy_helper.from_array(np.float32([number]), "w") for number in (1, 2))
    assert load(small_model([], initializer=[first, second])).constants["w"].numpy() == 2
    assert re.search("the constant 'w' is defined twice, by ModelProto at byte .* and by ModelProto at byte", caplog.text)
    nodes = [helper.make_node("Constant", [], ["w"], value_floats=[number]) for number in (3.0, 4.0)]
    assert load(small_model(nodes, initializer=[first])).constants["w"].numpy() == 4
    assert re.search(r"the constant 'w' is defined twice.*node 'Constant_1' \(Constant\)", caplog.text)
    assert load(small_model(nodes, initializer=[first], sparse_initializer=[_sparse("w", 5)])).constants["w"].numpy() == 5


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (helper.make_node("Constant", [], ["c"]), r"1 outputs and the attributes \[\], expected one of each"),
        (helper.make_node("Constant", [], ["c"], other=1), "has the attribute 'other', expected one of .*'value_int'"),
        (helper.make_node("Constant", [], ["c"], value_int=1, value_float=1.0), "expected one of each"),
        (helper.make_node("Constant", [], ["c"], value_ints=1), "value_ints is a int, which does not fit its name"),
        (helper.make_node("Constant", [], ["c"], value_float="x"), "value_float is a str, expected float"),
        (helper.make_node("Constant", [], [""], value_int=1), "has no name"),
        (helper.make_node("", ["x"], ["y"], name="n"), r"node 0 \('n'\) at byte \d+ has no op_type"),
    ],
)
def test_wrong_nodes(node: onnx.NodeProto, message: str) -> None:
    with pytest.raises(InvalidGraph, match=message):
        load(small_model([node]))


def test_attribute_errors() -> None:
    node = helper.make_node("Op", ["x"], ["y"], a=1)
    node.attribute.append(node.attribute[0])
    with pytest.raises(InvalidGraph, match="two attributes 'a'"):
        load(small_model([node]))
    del node.attribute[1]
    node.attribute[0].type = onnx.AttributeProto.FLOATS
    with pytest.raises(InvalidModelError, match=r"attribute 'a' declares type 6 .* has a value of type 2"):
        load(small_model([node]))
    node.attribute[0].ref_attr_name = "outer"
    with pytest.raises(InvalidModelError, match="refers to the attribute 'outer', which is possible in functions only"):
        load(small_model([node]))
    node.attribute[0].ClearField("name")
    with pytest.raises(InvalidProtobuf, match=r"AttributeProto at byte .* has no name"):
        load(small_model([node]))


def test_functions_defined_twice_or_nameless(branching: onnx.ModelProto) -> None:
    branching.functions.append(branching.functions[0])
    with pytest.raises(InvalidGraph, match="function 'custom::Scale' is defined twice"):
        load(branching)
    branching.functions[1].name = ""
    with pytest.raises(InvalidGraph, match=r"function at byte .* has no name"):
        load(branching)


def test_unknown_element_type() -> None:
    model = small_model([])
    model.graph.input[0].type.tensor_type.elem_type = 99
    with pytest.raises(InvalidModelError, match="type of 'x': element type 99 is unknown"):
        load(model)


def nested(levels: int) -> bytes:
    inner = Message()
    for _ in range(levels):
        attribute, node, graph = Message(), Message(), Message()
        attribute.string(1, "body")
        attribute.message(6, inner)
        attribute.integer(20, 5)
        node.string(4, "Loop")
        node.message(5, attribute)
        graph.message(1, node)
        inner = graph
    return with_graph(inner)


def with_graph(graph: Message) -> bytes:
    model, opset = Message(), Message()
    model.integer(1, 10)
    opset.integer(2, 20)
    model.message(8, opset)
    model.message(7, graph)
    return model.join()


def test_depth_is_bounded() -> None:
    load(nested(30))
    with pytest.raises(InvalidProtobuf, match="subgraphs are nested in over 100 messages"):
        load(nested(3000))


def test_depth_of_types_is_bounded() -> None:
    type_ = Message()
    for _ in range(3000):
        sequence, outer = Message(), Message()
        sequence.message(1, type_)
        outer.message(4, sequence)
        type_ = outer
    value, graph = Message(), Message()
    value.string(1, "x")
    value.message(2, type_)
    graph.message(11, value)
    with pytest.raises(InvalidProtobuf, match=r"type of 'x' at byte .* nested in over 100 messages"):
        load(with_graph(graph))


def test_protos_over_the_serialized_limit(mlp: onnx.ModelProto, plain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mlp.domain, mlp.model_version, mlp.doc_string = "a.b", 7, "doc"
    expected = plain(load(mlp))
    assert expected["metadata"]["model_version"] == 7
    monkeypatch.setattr(load_module, "_PROTO_LIMIT_NBYTES", 10)
    monkeypatch.setattr(load_module, "_COPIED_TENSOR_NBYTES", 10)
    assert plain(load(mlp)) == expected
    mlp.graph.initializer[0].raw_data = bytes(13)
    with pytest.raises(InvalidModelError, match="tensor 'w' needs 48 bytes of raw_data, it has 13"):
        load(mlp)


LARGE_NBYTES = 500 << 20


def write_large_model(path: Path) -> None:
    """A valid model of 500 MB, sparse on disk."""
    tensor = onnx.TensorProto(name="w", data_type=TensorProto.UINT8, dims=[LARGE_NBYTES])
    head = Message()
    head.integer(1, 10)
    graph, rest, node, size = Message(), Message(), Message(), Message()
    node.string(1, "w")
    node.string(2, "y")
    node.string(4, "Identity")
    graph.message(1, node)
    graph.string(2, "g")
    header = tensor.SerializeToString() + bytes([9 << 3 | 2])
    size.integer(1, LARGE_NBYTES)
    header += size.join()[1:]
    output, opset = Message(), Message()
    output.string(1, "y")
    opset.integer(2, 20)
    rest.message(12, output)
    with path.open("wb") as file:
        total, length = Message(), Message()
        length.integer(1, len(header) + LARGE_NBYTES)
        initializer = bytes([5 << 3 | 2]) + length.join()[1:] + header
        total.integer(1, graph.nbytes + len(initializer) + LARGE_NBYTES + rest.nbytes)
        head.message(8, opset)
        file.write(head.join() + bytes([7 << 3 | 2]) + total.join()[1:] + graph.join() + initializer)
        file.seek(LARGE_NBYTES - 1, os.SEEK_CUR)
        file.write(b"\x07" + rest.join())


CHILD = """
import sys
from intarsia.graph.load import load
def resident():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) * 1024
before = resident()
graph = load(sys.argv[1])
assert graph.constants["w"].nbytes == 500 << 20
print(resident() - before)
array = graph.constants["w"].numpy()
assert array.nbytes == 500 << 20 and array[-1] == 7
del array
print(resident() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's count of resident memory")
def test_weights_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    write_large_model(path)
    done = subprocess.run([sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded, read_and_dropped = map(int, done.stdout.split())
    assert loaded < 50 << 20
    assert read_and_dropped < 50 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's list of open files")
def test_files_are_closed_with_the_graph(tmp_path: Path) -> None:
    def is_open() -> bool:
        return path.name in {link.resolve().name for link in Path("/proc/self/fd").iterdir()}

    path = tmp_path / "open until nobody reads it.onnx"
    write_large_model(path)
    graph = load(path)
    array = graph.constants["w"].numpy()
    assert is_open()
    del graph
    gc.collect()
    assert not is_open()
    assert array[-1] == 7


def test_importing_load_is_light() -> None:
    code = "import sys, intarsia.graph.load; print([m for m in ('onnx', 'ml_dtypes', 'google.protobuf') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
