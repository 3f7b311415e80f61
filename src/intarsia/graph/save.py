"""Saving: a `Graph` becomes an ONNX model. Weights are written from where they lie, without copies of the whole."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import InvalidArgument
from intarsia.graph.dims import Dim, written_name
from intarsia.graph.dtypes import DType
from intarsia.graph.formats import attribute_proto as kinds
from intarsia.graph.formats.atomic_write import Write, replace_files
from intarsia.graph.formats.protobuf_wire import Message
from intarsia.graph.formats.tensor_proto import pack_bits
from intarsia.graph.model import (
    Attribute,
    AttributeRef,
    Constant,
    Function,
    Graph,
    MapType,
    Node,
    OptionalType,
    SequenceType,
    SparseTensor,
    SparseTensorType,
    TensorType,
    Value,
    ValueType,
)  # fmt: skip
from intarsia.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import onnx

MAX_PROTO_NBYTES = (1 << 31) - 1  # protobuf's readers refuse more
NEW_MODEL_IR_VERSION = 10  # of graphs that were not loaded; newer element types raise it
EXTERNAL_ALIGNMENT = 4096  # offsets SHOULD be multiples of the page size (onnx.proto, external_data)

_IR_VERSION_OF_DTYPE = {
    DType.FLOAT4E2M1: 11, DType.FLOAT8E8M0: 12, DType.UINT2: 13, DType.INT2: 13, DType.FLOAT6E2M3: 14, DType.FLOAT6E3M2: 14,
}  # fmt: skip


def to_model_bytes(graph: Graph) -> bytes:
    """The graph as a serialized ONNX model with all weights inside.

    Raises:
        InvalidArgument: it is over protobuf's limit of 2 GB, or an attribute has no ONNX type.
    """
    message = _Writer(None).model(graph)
    _check_size(message)
    return message.join()


def to_model_proto(graph: Graph) -> onnx.ModelProto:
    """The graph as an `onnx.ModelProto`, for tools that take one (imports onnx).

    Raises:
        InvalidArgument: as `to_model_bytes`.
    """
    import onnx

    return onnx.ModelProto.FromString(to_model_bytes(graph))


def save(
    graph: Graph,
    path: str | os.PathLike[str],
    external_threshold_bytes: int | None = None,
    external_file: str | None = None,
    beside: Sequence[tuple[Path, Write]] = (),
) -> None:
    """Write the graph as an ONNX file; a file that is there already is replaced only when everything is written.

    Args:
        graph: the graph.
        path: the model file.
        external_threshold_bytes: constants of at least this size go into a second file beside the model (needed for models
            over 2 GB); None keeps all of them in the model.
        external_file: name of that second file, without a folder; by default the model's name with ".data" added.
        beside: other files that belong to it, and are replaced with it.

    Raises:
        InvalidArgument: the model is over 2 GB without external data, or `external_file` has a folder in it.
        NotWritten: the files cannot be written.
    """
    target = Path(path)
    name = external_file if external_file is not None else f"{target.name}.data"
    if not name or Path(name).name != name or "\\" in name or name == target.name:
        raise InvalidArgument(f"external_file is {name!r}, expected the name of another file in the model's folder")
    external = None if external_threshold_bytes is None else _External(name, external_threshold_bytes)
    message = _Writer(external).model(graph)
    _check_size(message)
    # Written under other names first: the graph's weights may be read from the very files that are replaced.
    weights = [(target.with_name(name), external.write)] if external is not None and external.parts else []
    replace_files([*beside, *weights, (target, lambda file: file.writelines(message.chunks))])


def _check_size(message: Message) -> None:
    if message.nbytes > MAX_PROTO_NBYTES:
        raise InvalidArgument(
            f"the model has {message.nbytes:,} bytes, over protobuf's limit of 2 GB: "
            "use save(graph, path, external_threshold_bytes=1024) to put the weights into a second file"
        )


@dataclass
class _External:
    """The second file of a model: what is to be written where."""

    name: str
    threshold_bytes: int
    parts: list[tuple[int, memoryview]] = field(default_factory=list)
    nbytes: int = 0

    def add(self, data: memoryview) -> int:
        offset = -(-self.nbytes // EXTERNAL_ALIGNMENT) * EXTERNAL_ALIGNMENT
        self.parts.append((offset, data))
        self.nbytes = offset + len(data)
        return offset

    def write(self, file: Any) -> None:
        for offset, data in self.parts:
            file.seek(offset)
            file.write(data)


class _Writer:
    """Messages of ONNX, from the inside out. Each method returns the message named by its ONNX type."""

    def __init__(self, external: _External | None) -> None:
        self.external = external
        self.ir_version = 0

    def model(self, graph: Graph) -> Message:
        metadata, out = graph.metadata, Message()
        self.ir_version = metadata.ir_version or _needed_ir_version(graph)
        out.integer(1, self.ir_version)
        for number, text in ((2, metadata.producer_name), (3, metadata.producer_version), (4, metadata.domain)):
            if text:
                out.string(number, text)
        if metadata.model_version:
            out.integer(5, metadata.model_version)
        if metadata.doc:
            out.string(6, metadata.doc)
        out.message(7, self.graph(graph, metadata.graph_doc))
        self._opsets(out, 8, graph.opset_imports)
        self._entries(out, 14, metadata.properties.items())
        for function in graph.functions.values():
            out.message(25, self.function(function))
        return out

    @staticmethod
    def _opsets(out: Message, number: int, opsets: dict[str, int]) -> None:
        for domain, version in opsets.items():
            opset = Message()
            opset.string(1, domain)
            opset.integer(2, version)
            out.message(number, opset)

    @staticmethod
    def _entries(out: Message, number: int, entries: Iterable[tuple[str, str]]) -> None:
        for key, value in entries:
            entry = Message()
            entry.string(1, key)
            entry.string(2, value)
            out.message(number, entry)

    def graph(self, graph: Graph, doc: str = "") -> Message:
        out = Message()
        # Before IR version 4 every initializer is a graph input too; constants that are none must be nodes.
        as_nodes = set() if self.ir_version >= 4 else set(graph.constants) - set(graph.overridable)
        for name in graph.constants:
            if name in as_nodes:
                out.message(1, self._constant_node(graph.constants[name]))
        for node in graph.nodes:
            out.message(1, self.node(node))
        out.string(2, graph.name or "graph")
        for name, constant in graph.constants.items():
            if name not in as_nodes:
                out.message(5, self.constant(constant))
        if doc:
            out.string(10, doc)
        for value in graph.inputs:
            out.message(11, self.value_info(value))
        for name in graph.overridable:
            out.message(11, self.value_info(Value(name, graph.overridable_type(name))))
        for value in graph.outputs:
            out.message(12, self.value_info(_as_known(value, graph)))
        named = {*graph.input_names(), *graph.output_names(), *graph.constants}  # these have their types elsewhere
        for name, type_ in graph.types.items():
            if name not in named:
                out.message(13, self.value_info(Value(name, type_)))
        return out

    def _constant_node(self, constant: Constant) -> Message:
        tensor = Message()
        tensor.string(1, "value")
        tensor.message(5, self.constant(constant))
        tensor.integer(20, kinds.TENSOR)
        out = Message()
        out.string(2, constant.name)
        out.string(4, "Constant")
        out.message(5, tensor)
        return out

    def constant(self, constant: Constant) -> Message:
        external = self.external
        if external is None or constant.dtype is DType.STRING or constant.nbytes < external.threshold_bytes:
            return self.tensor(constant.numpy(), constant.dtype, constant.name)
        out = _tensor_header(constant.shape, constant.dtype, constant.name)
        data = _raw(constant.numpy(), constant.dtype)
        offset = external.add(data)
        self._entries(out, 13, (("location", external.name), ("offset", str(offset)), ("length", str(len(data)))))
        out.integer(14, 1)
        return out

    @staticmethod
    def tensor(array: np.ndarray, dtype: DType, name: str = "") -> Message:
        out = _tensor_header(array.shape, dtype, name)
        if dtype is DType.STRING:
            out.strings(6, (v if isinstance(v, bytes) else str(v) for v in array.reshape(-1).tolist()))
        else:
            out.raw(9, _raw(array, dtype))
        return out

    def sparse_tensor(self, sparse: SparseTensor) -> Message:
        out = Message()
        out.message(1, self.tensor(sparse.values, DType.of(sparse.values.dtype)))
        out.message(2, self.tensor(sparse.indices, DType.INT64))
        for size in sparse.dims:
            out.integer(3, size)
        return out

    def value_info(self, value: Value) -> Message:
        out = Message()
        out.string(1, value.name)
        if value.type is not None:
            out.message(2, self.type(value.type))
        if value.doc:
            out.string(3, value.doc)
        return out

    def type(self, type_: ValueType | None) -> Message:
        out, inner = Message(), Message()
        if isinstance(type_, TensorType):
            inner.integer(1, type_.dtype)
            if type_.shape is not None:
                shape = Message()
                for dim in type_.shape:
                    shape.message(1, _dimension(dim))
                inner.message(2, shape)
            out.message(8 if isinstance(type_, SparseTensorType) else 1, inner)
        elif isinstance(type_, MapType):
            inner.integer(1, type_.key)
            inner.message(2, self.type(type_.value))
            out.message(5, inner)
        elif isinstance(type_, (SequenceType, OptionalType)):
            if type_.element is not None:
                inner.message(1, self.type(type_.element))
            out.message(4 if isinstance(type_, SequenceType) else 9, inner)
        return out

    def node(self, node: Node) -> Message:
        out = Message()
        out.strings(1, node.inputs)
        out.strings(2, node.outputs)
        if node.name:
            out.string(3, node.name)
        out.string(4, node.op_type)
        for name, value in node.attributes.items():
            out.message(5, self.attribute(node, name, value))
        if node.doc:
            out.string(6, node.doc)
        if node.domain:
            out.string(7, node.domain)
        if node.overload:
            out.string(8, node.overload)
        self._entries(out, 9, node.metadata.items())
        return out

    def function(self, function: Function) -> Message:
        out = Message()
        out.string(1, function.name)
        out.strings(4, function.inputs)
        out.strings(5, function.outputs)
        out.strings(6, (name for name, default in function.attributes.items() if default is None))
        for node in function.nodes:
            out.message(7, self.node(node))
        self._opsets(out, 9, function.opset_imports)
        out.string(10, function.domain)
        for name, default in function.attributes.items():
            if default is not None:
                out.message(11, self.attribute(None, name, default))
        if function.overload:
            out.string(13, function.overload)
        return out

    def attribute(self, node: Node | None, name: str, value: Attribute) -> Message:
        out = Message()
        out.string(1, name)
        if isinstance(value, AttributeRef):
            out.string(21, value.name)
            kind = value.kind
        elif isinstance(value, (list, tuple, range)):
            kind = self._list_attribute(out, node, name, list(value))
        else:
            kind = self._single_attribute(out, node, name, value)
        out.integer(20, kind)
        return out

    def _single_attribute(self, out: Message, node: Node | None, name: str, value: Attribute) -> int:
        if isinstance(value, (bool, int, np.bool_, np.integer)):
            out.integer(3, int(value))
            return kinds.INT
        if isinstance(value, (float, np.floating)):
            out.float32(2, float(value))
            return kinds.FLOAT
        if isinstance(value, (str, bytes)):
            out.string(4, value)
            return kinds.STRING
        kind, number, _ = _MESSAGE_KINDS[_message_kind(node, name, value)]
        out.message(number, self._message(value))
        return kind

    def _list_attribute(self, out: Message, node: Node | None, name: str, values: list[Any]) -> int:
        if not values:
            return _empty_list_kind(node, name)
        if all(isinstance(v, (str, bytes)) for v in values):
            out.strings(9, values)
            return kinds.STRINGS
        if all(isinstance(v, (bool, int, np.bool_, np.integer)) for v in values):
            for v in values:
                out.integer(8, int(v))
            return kinds.INTS
        if all(isinstance(v, (int, float, np.number)) for v in values):
            for v in values:
                out.float32(7, float(v))
            return kinds.FLOATS
        chosen = {_message_kind(node, name, v) for v in values}
        if len(chosen) > 1:
            raise InvalidArgument(f"{_place(node)}: attribute {name!r} mixes {', '.join(sorted(chosen))}, expected one type")
        kind, _, number = _MESSAGE_KINDS[chosen.pop()]
        for v in values:
            out.message(number, self._message(v))
        return kind + 1 if kind in (kinds.SPARSE_TENSOR, kinds.TYPE_PROTO) else kind + 5

    def _message(self, value: Attribute) -> Message:
        if isinstance(value, np.ndarray):
            return self.tensor(value, DType.of(value.dtype))
        if isinstance(value, Graph):
            return self.graph(value.inputs_as_declared())
        if isinstance(value, SparseTensor):
            return self.sparse_tensor(value)
        return self.type(value)


# What an attribute holds: its AttributeProto.AttributeType, field number, and field number in lists.
_MESSAGE_KINDS = {
    "tensor": (kinds.TENSOR, 5, 10), "graph": (kinds.GRAPH, 6, 11),
    "sparse tensor": (kinds.SPARSE_TENSOR, 22, 23), "type": (kinds.TYPE_PROTO, 14, 15),
}  # fmt: skip


def _message_kind(node: Node | None, name: str, value: Attribute) -> str:
    if isinstance(value, np.ndarray):
        return "tensor"
    if isinstance(value, Graph):
        return "graph"
    if isinstance(value, SparseTensor):
        return "sparse tensor"
    if isinstance(value, (TensorType, SequenceType, OptionalType, MapType)):
        return "type"
    given = type(value).__name__
    raise InvalidArgument(f"{_place(node)}: attribute {name!r} is a {given}, which ONNX has no attribute type for")


def _place(node: Node | None) -> str:
    return f"node {node.name!r} ({node.op_type})" if node is not None else "function"


def _empty_list_kind(node: Node | None, name: str) -> int:
    """The type of an empty list: as the operator's schema in onnx says, integers where it does not know the operator."""
    if node is None:
        return kinds.INTS
    from onnx import defs

    with suppress(defs.SchemaError):
        declared = defs.get_schema(node.op_type, domain=node.domain).attributes.get(name)
        if declared is not None:
            return int(declared.type.value)
    return kinds.INTS


def _tensor_header(shape: Sequence[int], dtype: DType, name: str) -> Message:
    out = Message()
    for size in shape:
        out.integer(1, size)
    out.integer(2, dtype)
    if name:
        out.string(8, name)
    return out


def _raw(array: np.ndarray, dtype: DType) -> memoryview:
    """The bytes of `raw_data`: a view of the array where its layout is ONNX's."""
    if dtype.bits < 8:
        return pack_bits(array, dtype).data
    if array.size == 0:
        return memoryview(b"")
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _dimension(dim: Dim) -> Message:
    out = Message()
    if isinstance(dim, int):
        out.integer(1, dim)
    elif (name := written_name(str(dim))) is not None:
        out.string(2, name)
    return out


def _needed_ir_version(graph: Graph) -> int:
    dtypes = [c.dtype for c in graph.constants.values()]
    dtypes += [t.dtype for t in [v.type for v in (*graph.inputs, *graph.outputs)] if isinstance(t, TensorType)]
    return max((_IR_VERSION_OF_DTYPE.get(d, 0) for d in dtypes), default=0) or NEW_MODEL_IR_VERSION


def _as_known(output: Value, graph: Graph) -> Value:
    """A graph output with the type that was inferred for it, where the model declares none, or none with a rank."""
    found, declared = graph.types.get(output.name), output.type
    if isinstance(declared, TensorType) and declared.shape is None:
        known = isinstance(found, TensorType) and declared.dtype is found.dtype
    else:
        known = declared is None and found is not None
    return Value(output.name, found, output.doc) if known else output
