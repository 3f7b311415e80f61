"""Loading: a file, bytes or `onnx.ModelProto` becomes a `Graph` whose weights stay where they are.

The proto definitions that the tag numbers below come from: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.errors import InvalidGraph, InvalidModelError, InvalidProtobuf, NoGraph
from intarsia.graph.constant_nodes import constant_of_node
from intarsia.graph.formats.attribute_proto import AttributeReader
from intarsia.graph.formats.external_data import ExternalFiles
from intarsia.graph.formats.file_bytes import FileBytes
from intarsia.graph.formats.model_source import ModelSource, Source, is_model_proto, is_ort_format, open_source, recognise
from intarsia.graph.formats.protobuf_wire import MAX_DEPTH, Buffer, Span, fields, located_fields, place, region, signed, text
from intarsia.graph.formats.tensor_proto import add_constant, densified, read_entry, read_sparse, read_tensor
from intarsia.graph.formats.type_proto import TypeReader
from intarsia.graph.model import (
    DEFAULT_DOMAIN,
    Constant,
    Function,
    Graph,
    Metadata,
    Node,
    TensorType,
    ValueType,
    domain_named,
    opset_import,
)
from intarsia.graph.order import sorted_nodes

# The newest IR version of the onnx package that this reader was written against (onnx 1.23: IR 14, opset 28). Newer
# ones may change what fields mean, so they are refused rather than misread.
MAX_IR_VERSION = 14
_PROTO_LIMIT_NBYTES = (1 << 31) - 1
_WHOLE_ORT_NBYTES = 16 << 20  # what ORT format says is all over the file: up to this it is read at once
_COPIED_TENSOR_NBYTES = 1 << 16  # tensors of a proto over 2 GB that are larger are left in the proto


def load(
    source: ModelSource,
    *,
    base_dir: str | os.PathLike[str] | None = None,
    external: Callable[[Path | None, str], ExternalFiles] = ExternalFiles,
) -> Graph:
    """The graph of a model in ONNX's or ORT format, nodes in topological order. Weights are mapped, and read when first used.

    Args:
        source: a path, bytes, a binary file object or an `onnx.ModelProto`.
        base_dir: the folder that external data lies in; by default the folder of the model file.
        external: makes what finds external data from that folder and the model's path.

    Raises:
        NoSuchFile: the path does not exist.
        InvalidProtobuf: the bytes are not an ONNX model, are cut short or corrupt.
        ExternalDataError: an external weight file is missing, too short or outside the folder.
        InvalidGraph: the nodes form a cycle, or a constant has no name.
        InvalidModelError: any other contradiction in the model; the IR version is not known.
        InvalidArgument: `source` is of another type or cannot be read.
    """
    if is_model_proto(source):
        return _load_proto(source, base_dir, external)
    opened = open_source(source, base_dir)
    try:
        return _read(opened, {}, external(opened.folder, opened.path if base_dir is None else ""))
    finally:
        if isinstance(opened.buffer, FileBytes):
            opened.buffer.forget_pages()


def _read(source: Source, left_out: dict[str, Constant], files: ExternalFiles) -> Graph:
    if is_ort_format(source.buffer):
        from intarsia.graph.formats.ort_format import read_ort_format

        buffer = source.buffer
        if isinstance(buffer, FileBytes) and len(buffer) <= _WHOLE_ORT_NBYTES:
            buffer = buffer.read(0, len(buffer))
        graph = read_ort_format(buffer, source.label)
        graph.metadata.path = source.path
        return graph
    try:
        reader = _Reader(source.buffer, source.label, files, left_out)
        graph = reader.model()
    except InvalidProtobuf as error:
        meaning = recognise(source.buffer[:1024])
        detail = f"not an ONNX model: it is {meaning}" if meaning else str(error)
        kind = InvalidProtobuf if meaning else type(error)
        raise kind(f"{source.label}: {detail}") from None
    except UnicodeDecodeError as error:
        start = bytes(error.object[:40])
        raise InvalidProtobuf(f"{source.label}: the string {start!r} in the model is not UTF-8: {error.reason}") from None
    graph.metadata.path, graph.metadata.external_files = source.path, files.used
    return graph


def _load_proto(
    proto: Any, base_dir: str | os.PathLike[str] | None, external: Callable[[Path | None, str], ExternalFiles]
) -> Graph:
    from google.protobuf.message import EncodeError

    folder = Path(base_dir) if base_dir is not None else None
    left_out: dict[str, Constant] = {}
    try:
        data = proto.SerializeToString()
        if len(data) > _PROTO_LIMIT_NBYTES:
            raise ValueError("too large to be parsed by others")
    except (ValueError, EncodeError):  # over 2 GB; protobuf's versions differ in what they raise
        data = _without_large_tensors(proto, left_out)
    return _read(Source(data, "ModelProto", folder), left_out, external(folder, ""))


def _without_large_tensors(proto: Any, left_out: dict[str, Constant]) -> bytes:
    """The serialized proto without its large in-memory initializers, which become constants that read the proto."""
    skeleton = type(proto)()
    for descriptor, value in proto.ListFields():
        if descriptor.name != "graph":
            _copy_field(skeleton, descriptor.name, value)
    for descriptor, value in proto.graph.ListFields():
        if descriptor.name != "initializer":
            _copy_field(skeleton.graph, descriptor.name, value)
    skeleton.graph.SetInParent()
    for tensor in proto.graph.initializer:
        nbytes = len(tensor.raw_data)
        if nbytes <= _COPIED_TENSOR_NBYTES:
            skeleton.graph.initializer.append(tensor)
        else:
            left_out[tensor.name] = _proto_constant(tensor, nbytes)
    data: bytes = skeleton.SerializeToString()
    return data


def _copy_field(target: Any, name: str, value: Any) -> None:
    if hasattr(value, "extend") or hasattr(value, "append"):
        getattr(target, name).extend(value)
    elif hasattr(value, "CopyFrom"):
        getattr(target, name).CopyFrom(value)
    else:
        setattr(target, name, value)


def _proto_constant(tensor: Any, nbytes: int) -> Constant:
    header = type(tensor)()
    header.name, header.data_type = tensor.name, tensor.data_type
    header.dims.extend(tensor.dims)
    header.data_location = 1
    for key, value in (("location", "raw_data"), ("length", str(nbytes))):
        header.external_data.add(key=key, value=value)
    encoded = header.SerializeToString()

    class InProto(ExternalFiles):
        """The proto's own bytes instead of an external file."""

        def view(self, tensor: str, properties: dict[str, str], needed_nbytes: int) -> tuple[Buffer, int]:
            if needed_nbytes != nbytes:
                raise InvalidModelError(
                    f"ModelProto: tensor {tensor!r} needs {needed_nbytes} bytes of raw_data, it has {nbytes}"
                )
            return b"", 0

    stored = read_tensor(encoded, 0, len(encoded), InProto(None), "ModelProto")

    def data() -> np.ndarray:
        stored.buffer = tensor.raw_data
        return stored.array()

    return Constant(stored.name, stored.dtype, stored.shape, data, "ModelProto")


class _Reader:
    """One pass over a model's bytes."""

    def __init__(self, buffer: Buffer, label: str, files: ExternalFiles, left_out: dict[str, Constant]) -> None:
        self.buffer, self.label, self.files, self.left_out = buffer, label, files, left_out
        self.types = TypeReader(buffer)
        self.attributes = AttributeReader(buffer, label, files, self.types, self.graph)

    def model(self) -> Graph:
        buffer = self.buffer
        metadata = Metadata()
        opsets: dict[str, int] = {}
        graph_span: Span | None = None
        functions: list[Span] = []
        for tag, a, b in fields(buffer, 0, len(buffer), "ModelProto"):
            if tag == 0x08:
                metadata.ir_version = signed(a)
            elif tag == 0x3A:
                if graph_span is not None:
                    raise InvalidProtobuf(f"the model has two graphs, at bytes {graph_span[0]} and {a}")
                graph_span = (a, b)
            elif tag == 0x42:
                domain, version = self._opset(a, b)
                opsets[domain] = version
            elif tag == 0xCA:
                functions.append((a, b))
            elif tag == 0x72:
                key, value = read_entry(buffer, a, b)
                metadata.properties[key] = value
            else:
                self._read_metadata(metadata, tag, a, b)
        self._check_versions(metadata.ir_version, opsets, graph_span is not None)
        assert graph_span is not None
        graph = self.graph(*graph_span, 2, metadata)
        graph.make_names_unique()
        graph.metadata = metadata
        graph.opset_imports = opsets
        for a, b in functions:
            function = self._function(*self._at_hand(a, b), opsets)
            self._turn_to(buffer)
            key_ = (function.domain, function.name, function.overload)
            if key_ in graph.functions:
                raise InvalidGraph(f"{self.label}: the function {'::'.join(filter(None, key_))!r} is defined twice")
            graph.functions[key_] = function
        return graph

    def _read_metadata(self, metadata: Metadata, tag: int, a: int, b: int) -> None:
        if tag == 0x12:
            metadata.producer_name = text(self.buffer, a, b)
        elif tag == 0x1A:
            metadata.producer_version = text(self.buffer, a, b)
        elif tag == 0x22:
            metadata.domain = text(self.buffer, a, b)
        elif tag == 0x28:
            metadata.model_version = signed(a)
        elif tag == 0x32:
            metadata.doc = _doc(self.buffer, a, b)

    def _check_versions(self, ir_version: int, opsets: dict[str, int], has_graph: bool) -> None:
        if not has_graph:
            raise NoGraph("not an ONNX model: it has no graph")
        if ir_version > MAX_IR_VERSION:
            raise InvalidModelError(
                f"{self.label}: IR version {ir_version} is not supported, at most {MAX_IR_VERSION} is: "
                "export the model with an older onnx, or update intarsia"
            )
        if ir_version <= 0:
            raise InvalidModelError(f"{self.label}: the model gives IR version {ir_version}, expected 1 to {MAX_IR_VERSION}")
        if not opsets:
            if ir_version >= 3:
                raise InvalidModelError(
                    f"{self.label}: the model imports no operator set (opset_import), required since IR version 3"
                )
            opsets[DEFAULT_DOMAIN] = 1

    def _opset(self, start: int, end: int) -> tuple[str, int]:
        domain, version = DEFAULT_DOMAIN, 0
        for tag, a, b in fields(self.buffer, start, end, "OperatorSetIdProto"):
            if tag == 0x0A:
                domain = text(self.buffer, a, b)
            elif tag == 0x10:
                version = signed(a)
        return opset_import(domain, version, self.label)

    def graph(self, start: int, end: int, depth: int, metadata: Metadata | None = None) -> Graph:
        """The GraphProto in `buffer[start:end]`, nested in `depth` messages."""
        if depth > MAX_DEPTH:
            where = f"graph at byte {place(self.buffer, start)}"
            raise InvalidProtobuf(f"{where}: subgraphs are nested in over {MAX_DEPTH} messages")
        whole, label, files = self.buffer, self.label, self.files
        graph = Graph(constants=dict(self.left_out) if metadata is not None else {})
        constants, nodes, inputs = graph.constants, graph.nodes, graph.inputs
        later: tuple[list[Constant], list[Constant]] = ([], [])  # of Constant nodes; sparse ones
        index = 0
        for buffer, tag, a, b in located_fields(whole, start, end, "GraphProto"):
            if buffer is not self.buffer:
                self._turn_to(buffer)
            if tag == 0x0A:
                node = self._node(a, b, index, depth + 1)
                index += 1
                if node.op_type == "Constant" and not node.domain and not self.attributes.in_function:
                    later[0].append(constant_of_node(node, f"{self.label}: node {node.name!r} (Constant)"))
                else:
                    nodes.append(node)
            elif tag == 0x2A:
                add_constant(constants, read_tensor(buffer, a, b, files, label).constant())
            elif tag == 0x6A:
                value = self.types.value_info(a, b, depth + 1)
                if value.type is not None:
                    graph.types[value.name] = value.type
            elif tag == 0x5A:
                inputs.append(self.types.value_info(a, b, depth + 1))
            elif tag == 0x62:
                graph.outputs.append(self.types.value_info(a, b, depth + 1))
            elif tag == 0x12:
                graph.name = text(buffer, a, b)
            elif tag == 0x7A:
                name, sparse = read_sparse(buffer, a, b, files, label)
                later[1].append(densified(name, sparse, f"{label} at byte {place(buffer, a)}"))
            elif tag == 0x52 and metadata is not None:
                metadata.graph_doc = _doc(buffer, a, b)
        self._turn_to(whole)
        for constant in (*later[0], *later[1]):
            add_constant(constants, constant)
        graph.overridable = [v.name for v in inputs if v.name in constants]
        if graph.overridable:
            graph.inputs = [v for v in inputs if v.name not in constants]
            for value in inputs:
                if value.name in constants and value.type is not None and _holds(value.type, constants[value.name].type):
                    graph.types[value.name] = value.type
        graph.nodes = sorted_nodes(nodes, f"{label}: graph {graph.name!r}")
        return graph

    def _turn_to(self, buffer: Buffer) -> None:
        """Read from this buffer next: the model's, or a part of it that is in memory."""
        self.buffer = self.types.buffer = self.attributes.buffer = buffer

    def _at_hand(self, start: int, end: int) -> Span:
        """Where a message is that is read now: in memory, if it is in a file and not too long for that."""
        in_memory = region(self.buffer, start, end)
        if in_memory is None:
            return start, end
        self._turn_to(in_memory)
        return 0, end - start

    def _node(self, start: int, end: int, index: int, depth: int) -> Node:
        buffer = self.buffer
        inputs: list[str] = []
        outputs: list[str] = []
        spans: list[Span] = []
        metadata: dict[str, str] = {}
        name = op_type = domain = overload = doc = ""
        for tag, a, b in fields(buffer, start, end, "NodeProto"):
            if tag == 0x0A:
                inputs.append(buffer[a:b].decode())
            elif tag == 0x12:
                outputs.append(buffer[a:b].decode())
            elif tag == 0x1A:
                name = buffer[a:b].decode()
            elif tag == 0x22:
                op_type = buffer[a:b].decode()
            elif tag == 0x2A:
                spans.append((a, b))
            elif tag == 0x3A:
                domain = buffer[a:b].decode()
            elif tag == 0x32:
                doc = _doc(buffer, a, b)
            elif tag == 0x42:
                overload = text(buffer, a, b)
            elif tag == 0x4A:
                key, value = read_entry(buffer, a, b)
                metadata[key] = value
        if not op_type:
            where = f"node {index} ({name or 'unnamed'!r}) at byte {place(buffer, start)}"
            raise InvalidGraph(f"{self.label}: {where} has no op_type")
        if not name:
            name = f"{op_type}_{index}"
        constant = op_type == "Constant" and not self.attributes.in_function
        attributes: dict[str, Any] = {}
        for a, b in spans:
            key, value = self.attributes.attribute(a, b, depth + 1, lazy=constant)
            if key in attributes:
                raise InvalidGraph(f"{self.label}: node {name!r} ({op_type}) has two attributes {key!r}")
            attributes[key] = value
        return Node(op_type, inputs, outputs, attributes, domain, name, 0, overload, doc, (name,), metadata)

    def _function(self, start: int, end: int, model_opsets: dict[str, int]) -> Function:
        buffer = self.buffer
        function = Function("", "", [], [], {}, [], {})
        spans: list[Span] = []
        self.attributes.in_function = True
        for tag, a, b in fields(buffer, start, end, "FunctionProto"):
            if tag == 0x0A:
                function.name = text(buffer, a, b)
            elif tag == 0x22:
                function.inputs.append(text(buffer, a, b))
            elif tag == 0x2A:
                function.outputs.append(text(buffer, a, b))
            elif tag == 0x32:
                function.attributes[text(buffer, a, b)] = None
            elif tag == 0x5A:
                key, value = self.attributes.attribute(a, b, 3)
                function.attributes[key] = value
            elif tag == 0x3A:
                spans.append((a, b))
            elif tag == 0x4A:
                domain, version = self._opset(a, b)
                function.opset_imports[domain] = version
            elif tag == 0x52:
                function.domain = domain_named(text(buffer, a, b))
            elif tag == 0x6A:
                function.overload = text(buffer, a, b)
        if not function.name:
            raise InvalidGraph(f"{self.label}: the function at byte {place(buffer, start)} has no name")
        nodes = [self._node(a, b, i, 3) for i, (a, b) in enumerate(spans)]
        function.nodes = sorted_nodes(nodes, f"{self.label}: function {function.name!r}")
        visible = {*function.inputs, *(name for node in nodes for name in node.outputs)}
        for node in nodes:
            node.make_names_unique(visible)
        function.opset_imports = function.opset_imports or dict(model_opsets)
        self.attributes.in_function = False
        return function


def _holds(declared: ValueType, given: TensorType) -> bool:
    """Whether an overridable initializer's declared type says less than its default's, so that values of other sizes fit."""
    if not isinstance(declared, TensorType) or declared.dtype is not given.dtype or declared == given:
        return False
    if declared.shape is None or given.shape is None:
        return True
    pairs = zip(declared.shape, given.shape, strict=False)
    return len(declared.shape) == len(given.shape) and all(d == g or not isinstance(d, int) for d, g in pairs)


def _doc(buffer: Buffer, start: int, end: int) -> str:
    return buffer[start:end].decode(errors="replace")
