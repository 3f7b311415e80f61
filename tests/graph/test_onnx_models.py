"""Every model of onnx's own tests: what is read equals what onnx reads, and survives being saved and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, helper, numpy_helper

from intarsia.graph.dims import Expr
from intarsia.graph.load import load
from intarsia.graph.model import AttributeRef, Graph, MapType, Node, OptionalType, SequenceType, TensorType, ValueType
from intarsia.graph.save import to_model_bytes
from intarsia.graph.verify import verify
from intarsia.testing.cases import suite

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
FILES = sorted(DATA.rglob("*.onnx"))


@pytest.fixture(scope="module")
def node_models() -> list[Any]:
    return [(name, case.model) for name, case in suite("node").items()]


def same_array(ours: np.ndarray, theirs: np.ndarray) -> bool:
    if theirs.dtype == object:
        return bool(ours.shape == theirs.shape and ours.tolist() == theirs.tolist())
    return ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.tobytes() == theirs.tobytes()


def check_type(ours: ValueType | None, theirs: onnx.TypeProto) -> None:
    kind = theirs.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        proto = getattr(theirs, kind)
        assert isinstance(ours, TensorType)
        assert ours.dtype == proto.elem_type
        assert (ours.shape is None) == (not proto.HasField("shape"))
        for mine, dim in zip(ours.shape or (), proto.shape.dim, strict=True):
            if dim.HasField("dim_value"):
                assert mine == dim.dim_value
            else:
                assert isinstance(mine, Expr)
                assert str(mine) == dim.dim_param if dim.dim_param else "#" in str(mine)
    elif kind == "map_type":
        assert isinstance(ours, MapType)
        assert ours.key == theirs.map_type.key_type
        check_type(ours.value, theirs.map_type.value_type)
    elif kind in ("sequence_type", "optional_type"):
        assert isinstance(ours, SequenceType if kind == "sequence_type" else OptionalType)
        check_type(ours.element, getattr(theirs, kind).elem_type)
    else:
        assert ours is None


def check_attribute(ours: Any, theirs: AttributeProto) -> None:
    if theirs.ref_attr_name:
        assert ours == AttributeRef(theirs.ref_attr_name, theirs.type)
    elif theirs.type == AttributeProto.TENSOR:
        assert same_array(ours, numpy_helper.to_array(theirs.t))
    elif theirs.type == AttributeProto.GRAPH:
        check_graph(ours, theirs.g)
    elif theirs.type == AttributeProto.TYPE_PROTO:
        check_type(ours, theirs.tp)
    else:
        expected = helper.get_attribute_value(theirs)
        if theirs.type == AttributeProto.STRING:
            ours = ours.encode()
        elif theirs.type == AttributeProto.STRINGS:
            ours = [s.encode() for s in ours]
        assert ours == (list(expected) if isinstance(ours, list) else expected)
        assert type(ours) is type(expected) or isinstance(ours, list)


def check_node(ours: Node, theirs: onnx.NodeProto) -> None:
    assert ours.op_type == theirs.op_type
    assert ours.domain == theirs.domain.replace("ai.onnx", "") or theirs.domain.startswith("ai.onnx.")
    assert ours.inputs == list(theirs.input)
    assert ours.outputs == list(theirs.output)
    assert (ours.overload, ours.doc) == (theirs.overload, theirs.doc_string)
    assert ours.name == theirs.name or not theirs.name
    assert ours.origin == (ours.name,)
    assert list(ours.attributes) == [a.name for a in theirs.attribute]
    for attribute in theirs.attribute:
        check_attribute(ours.attributes[attribute.name], attribute)


def check_graph(ours: Graph, theirs: onnx.GraphProto) -> None:
    constant_nodes = [n for n in theirs.node if n.op_type == "Constant"]
    initializers = {t.name: t for t in theirs.initializer}
    sparse = {t.values.name for t in theirs.sparse_initializer}
    assert set(ours.constants) == set(initializers) | {n.output[0] for n in constant_nodes} | sparse
    for name, tensor in initializers.items():
        assert same_array(ours.constants[name].numpy(), numpy_helper.to_array(tensor)), name
        assert ours.constants[name].shape == tuple(tensor.dims)
    for node in constant_nodes:
        if node.attribute[0].name == "value":
            assert same_array(ours.constants[node.output[0]].numpy(), numpy_helper.to_array(node.attribute[0].t))
    given = [v for v in theirs.input if v.name not in initializers]
    assert [v.name for v in ours.inputs] == [v.name for v in given]
    assert ours.overridable == [v.name for v in theirs.input if v.name in initializers]
    assert [v.name for v in ours.outputs] == [v.name for v in theirs.output]
    for mine, value in zip([*ours.inputs, *ours.outputs], [*given, *theirs.output], strict=True):
        check_type(mine.type, value.type)
    nodes = [n for n in theirs.node if n.op_type != "Constant"]
    assert len(ours.nodes) == len(nodes)
    for mine_, node in zip(ours.nodes, nodes, strict=True):
        check_node(mine_, node)


def check_model(data: bytes, model: onnx.ModelProto, plain: Any) -> None:
    graph = load(data)
    verify(graph)
    check_graph(graph, model.graph)
    opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}
    assert graph.opset_imports == (opsets or {"": 1})
    assert graph.metadata.ir_version == model.ir_version
    for theirs in model.functions:
        ours = graph.functions[theirs.domain, theirs.name, theirs.overload]
        assert (ours.inputs, ours.outputs) == (list(theirs.input), list(theirs.output))
        for mine, node in zip(ours.nodes, theirs.node, strict=True):
            check_node(mine, node)
    saved = to_model_bytes(graph)
    assert plain(load(saved)) == plain(graph)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.parent.name)
def test_stored_models(path: Path, plain: Any) -> None:
    check_model(path.read_bytes(), onnx.load(path), plain)


def test_operator_models(node_models: list[Any], plain: Any) -> None:
    assert len(node_models) > 1500
    for name, model in node_models:
        try:
            check_model(model.SerializeToString(), model, plain)
        except Exception as error:
            error.add_note(f"in onnx's node test {name}")
            raise


def test_saved_models_pass_onnx_checker(node_models: list[Any]) -> None:
    for name, model in node_models[::10]:
        try:
            onnx.checker.check_model(model)
        except onnx.checker.ValidationError:
            continue
        try:
            onnx.checker.check_model(to_model_bytes(load(model)))
        except onnx.checker.ValidationError as error:
            error.add_note(f"in onnx's node test {name}")
            raise
