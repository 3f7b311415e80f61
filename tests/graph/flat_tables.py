"""Trees of Python values written as FlatBuffers; models in ORT format for tests.

A table is a dict of values by the number of their field: a `Scalar`, text, bytes, an array (a vector of numbers), another
table, or a list of texts or of tables. One object that is there several times is written once.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import AttributeProto, numpy_helper

Table = dict[int, Any]


class Scalar(NamedTuple):
    """A number; `code` is its format for `struct`."""

    code: str
    value: float


def _i(value: int) -> Scalar:
    return Scalar("i", value)


def _q(value: int) -> Scalar:
    return Scalar("q", value)


def written(root: Table, identifier: bytes) -> bytes:
    """The buffer, children behind their parents."""
    out = bytearray(4) + identifier
    waiting: list[tuple[int, Any]] = [(0, root)]
    places: dict[int, int] = {}  # of values that are written, by identity
    while waiting:
        place, value = waiting.pop()
        if places.get(id(value), 0) > place:
            struct.pack_into("<I", out, place, places[id(value)] - place)
            continue
        out += bytes(-len(out) % 4)
        if isinstance(value, dict):
            start = _table(out, value, waiting)
        elif isinstance(value, (str, bytes)):
            data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
            start = len(out)
            out += struct.pack("<I", len(data)) + data + b"\0"
        elif isinstance(value, np.ndarray):
            out += bytes(-(len(out) + 4) % 8)
            start = len(out)
            out += struct.pack("<I", value.size) + value.tobytes()
        else:
            start = len(out)
            out += struct.pack("<I", len(value)) + bytes(4 * len(value))
            waiting += [(start + 4 + 4 * i, item) for i, item in enumerate(value)]
        struct.pack_into("<I", out, place, start - place)
        places[id(value)] = start
    return bytes(out)


def _table(out: bytearray, table: Table, waiting: list[tuple[int, Any]]) -> int:
    count = max(table, default=-1) + 1
    offsets, body = [0] * count, bytearray(4)
    links = []
    for number, value in sorted(table.items()):
        code = value.code if isinstance(value, Scalar) else "I"
        body += bytes(-len(body) % struct.calcsize(code))
        offsets[number] = len(body)
        if isinstance(value, Scalar):
            body += struct.pack(f"<{code}", value.value)
        else:
            links.append((len(body), value))
            body += bytes(4)
    begin = len(out)
    out += struct.pack(f"<{count + 2}H", 4 + 2 * count, len(body), *offsets)
    out += bytes(-len(out) % 8)
    start = len(out)
    struct.pack_into("<i", body, 0, start - begin)
    out += body
    waiting += [(start + at, value) for at, value in links]
    return start


# --- models in ORT format ---


def ort_model(model: onnx.ModelProto) -> bytes:
    """The model in ORT format, as far as Intarsia reads it; what the format has no field for is left out."""
    opsets = [{0: entry.domain, 1: _q(entry.version)} for entry in model.opset_import]
    entries = [{0: entry.key, 1: entry.value} for entry in model.metadata_props]
    made: Table = {
        0: _q(model.ir_version), 1: opsets, 2: model.producer_name, 3: model.producer_version, 4: model.domain,
        5: _q(model.model_version), 6: model.doc_string, 7: _graph(model.graph), 8: model.graph.doc_string, 9: entries,
    }  # fmt: skip
    return written({0: "5", 1: made}, b"ORTM")


def _graph(graph: onnx.GraphProto) -> Table:
    return {
        0: [_tensor(t) for t in graph.initializer], 1: [_value(v) for v in (*graph.input, *graph.output, *graph.value_info)],
        2: [_node(n, i) for i, n in enumerate(graph.node)], 3: Scalar("I", len(graph.node)),
        5: [v.name for v in graph.input], 6: [v.name for v in graph.output],
        7: [
            {0: _tensor(s.values), 1: _tensor(s.indices), 2: np.array(s.dims, np.int64)} for s in graph.sparse_initializer
        ],
    }  # fmt: skip


def _tensor(tensor: onnx.TensorProto) -> Table:
    made: Table = {0: tensor.name, 2: np.array(tensor.dims, np.int64), 3: _i(tensor.data_type)}
    if tensor.data_type == onnx.TensorProto.STRING:
        made[5] = list(tensor.string_data)
        return made
    try:
        made[4] = tensor.raw_data or numpy_helper.to_array(tensor).tobytes()
    except (ValueError, TypeError, KeyError):  # one that is wrong itself
        made[4] = b""
    return made


def _node(node: onnx.NodeProto, number: int) -> Table:
    return {
        0: node.name, 1: node.doc_string, 2: node.domain, 3: _i(1), 4: Scalar("I", number), 5: node.op_type, 6: _i(0),
        8: list(node.input), 9: list(node.output), 10: [_attribute(a) for a in node.attribute],
    }  # fmt: skip


def _attribute(attribute: AttributeProto) -> Table:
    made: Table = {0: attribute.name, 2: _i(attribute.type)}
    kinds = AttributeProto
    values: dict[int, tuple[int, Any]] = {
        kinds.FLOAT: (3, lambda: Scalar("f", attribute.f)), kinds.INT: (4, lambda: _q(attribute.i)),
        kinds.STRING: (5, lambda: attribute.s), kinds.TENSOR: (6, lambda: _tensor(attribute.t)),
        kinds.GRAPH: (7, lambda: _graph(attribute.g)), kinds.FLOATS: (8, lambda: np.array(attribute.floats, np.float32)),
        kinds.INTS: (9, lambda: np.array(attribute.ints, np.int64)), kinds.STRINGS: (10, lambda: list(attribute.strings)),
        kinds.TENSORS: (11, lambda: [_tensor(t) for t in attribute.tensors]),
        kinds.GRAPHS: (12, lambda: [_graph(g) for g in attribute.graphs]),
    }  # fmt: skip
    if attribute.type in values:
        number, value = values[attribute.type]
        made[number] = value()
    return made


def _value(value: onnx.ValueInfoProto) -> Table:
    made: Table = {0: value.name, 1: value.doc_string}
    kind = _type(value.type)
    if kind is not None:
        made[2] = kind
    return made


def _type(kind: onnx.TypeProto) -> Table | None:
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        held: Table = {0: _i(kind.tensor_type.elem_type)}
        if kind.tensor_type.HasField("shape"):
            held[1] = {0: [{0: _size(d)} for d in kind.tensor_type.shape.dim]}
        return {1: Scalar("B", 1), 2: held}
    if which == "sequence_type":
        return {1: Scalar("B", 2), 2: {0: _type(kind.sequence_type.elem_type) or {}}}
    if which == "map_type":
        return {1: Scalar("B", 3), 2: {0: _i(kind.map_type.key_type), 1: _type(kind.map_type.value_type) or {}}}
    return None


def _size(size: onnx.TensorShapeProto.Dimension) -> Table:
    if size.dim_param:
        return {0: Scalar("b", 2), 2: size.dim_param}
    return {0: Scalar("b", 1), 1: _q(size.dim_value)} if size.HasField("dim_value") else {0: Scalar("b", 0)}


@cache
def shared_parts(count: int) -> list[bytes]:
    """Models in ORT format in which `count` fields refer to one thing of about as many elements: names, documentation,
    attributes of integers, strings and tensors, and nodes."""
    ints = np.arange(count, dtype=np.int64)
    attribute: Table = {0: "a", 2: _i(AttributeProto.INTS), 9: ints}
    tensor: Table = {0: "w", 2: np.array([count]), 3: _i(onnx.TensorProto.INT64), 4: ints.view(np.uint8)}
    strings: Table = {0: "a", 2: _i(AttributeProto.STRINGS), 10: ["s" * count] * count}
    tensors: Table = {0: "a", 2: _i(AttributeProto.TENSORS), 11: [tensor] * count}
    node: Table = {0: "n", 5: "Abs", 8: ["x"], 9: ["y"]}
    graphs: list[Table] = [
        {2: [{**node, 8: ["x" * count] * count}]}, {2: [{**node, 1: "d" * count}] * count},
        *({2: [{**node, 10: found}]} for found in ([attribute] * count, [strings], [tensors])),
        {2: [{**node, 10: [attribute]}] * count}, {0: [{**tensor, 0: "n" * count}] * count}, {5: ["x" * count] * count},
    ]  # fmt: skip
    return [
        written({0: "5", 1: {0: _q(9), 1: [{0: "", 1: _q(20)}], 7: {5: ["x"], 6: ["y"], **graph}}}, b"ORTM") for graph in graphs
    ]
