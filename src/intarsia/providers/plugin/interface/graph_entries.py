"""Entries of OrtApi about graphs, nodes, values and attributes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from intarsia.errors import Fail, InvalidArgument, NotFound
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Metadata
from intarsia.providers.plugin.interface import graph_view
from intarsia.providers.plugin.interface.allocators import allocate, duplicate
from intarsia.providers.plugin.interface.graph_view import Attribute, GraphView, NodeView, ValueInfo
from intarsia.providers.plugin.interface.handles import (
    HostObject,
    checked,
    find,
    find_all,
    give,
    put,
    put_array,
    put_handles,
    put_optional,
)
from intarsia.providers.plugin.interface.host_tables import entry
from intarsia.providers.plugin.interface.tensors import packed_tensor

_SIZE = ctypes.c_size_t


def _list_entries(count_entry: str, list_entry: str, kind: type[Any], what: str) -> None:
    """The pair of entries that count and list what `kind` has under an attribute's name."""

    def count(handle: int, out: int) -> None:
        put(out, len(getattr(find(handle, kind), what)), _SIZE)

    def fill(handle: int, out: int, room: int) -> None:
        put_handles(out, getattr(find(handle, kind), what), room, what.replace("_", " "))

    entry("OrtApi", count_entry)(count)
    entry("OrtApi", list_entry)(fill)


_list_entries("Graph_GetNumInputs", "Graph_GetInputs", GraphView, "inputs")
_list_entries("Graph_GetNumOutputs", "Graph_GetOutputs", GraphView, "outputs")
_list_entries("Graph_GetNumInitializers", "Graph_GetInitializers", GraphView, "initializers")
_list_entries("Graph_GetNumNodes", "Graph_GetNodes", GraphView, "nodes")
_list_entries("Node_GetNumInputs", "Node_GetInputs", NodeView, "inputs")
_list_entries("Node_GetNumOutputs", "Node_GetOutputs", NodeView, "outputs")
_list_entries("Node_GetNumImplicitInputs", "Node_GetImplicitInputs", NodeView, "implicit_inputs")


def _put_text(table_entry: str, kind: type[Any], read: Callable[[Any], str]) -> None:
    """An entry that puts the address of a text about an object."""

    def put_text(handle: int, out: int) -> None:
        found = find(handle, kind)
        put(out, found.text(read(found)))

    entry("OrtApi", table_entry)(put_text)


def _put_number(table_entry: str, kind: type[Any], read: Callable[[Any], Any], number: Any = ctypes.c_int32) -> None:
    """An entry that puts a number about an object."""

    def put_number(handle: int, out: int) -> None:
        put(out, read(find(handle, kind)), number)

    entry("OrtApi", table_entry)(put_number)


# graphs

_put_text("Graph_GetName", GraphView, lambda view: view.graph.name)
_put_text("Graph_GetModelPath", GraphView, lambda view: view.graph.metadata.path)
_put_number("Graph_GetOnnxIRVersion", GraphView, lambda view: view.graph.metadata.ir_version or 10, ctypes.c_int64)
_put_number("Graph_GetNumOperatorSets", GraphView, lambda view: len(_opsets(view)), _SIZE)
_put_number("Graph_GetParentNode", GraphView, lambda view: view.parent and view.parent.handle, ctypes.c_void_p)


def _opsets(view: GraphView) -> dict[str, int]:
    while view.parent is not None:
        view = view.parent.graph
    return view.graph.opset_imports


@entry("OrtApi", "Graph_GetOperatorSets")
def _get_operator_sets(handle: int, domains: int, versions: int, room: int) -> None:
    view = find(handle, GraphView)
    found = _opsets(view)
    put_array(domains, [view.text(name) for name in found], room, "operator sets")
    put_array(versions, list(found.values()), room, "operator sets", ctypes.c_int64)


@entry("OrtApi", "Graph_GetGraphView")
def _get_graph_view(handle: int, nodes: int, count: int, out: int) -> None:
    put(out, give(find(handle, GraphView).part(find_all(nodes, count, NodeView))))


class ModelMetadata(HostObject):
    """OrtModelMetadata."""

    def __init__(self, metadata: Metadata, graph_name: str) -> None:
        super().__init__()
        self.metadata, self.graph_name = metadata, graph_name


@entry("OrtApi", "Graph_GetModelMetadata")
def _get_model_metadata(handle: int, out: int) -> None:
    graph = find(handle, GraphView).graph
    put(out, give(ModelMetadata(graph.metadata, graph.name)))


def _metadata_text(table_entry: str, read: Callable[[ModelMetadata], str]) -> None:
    def get(handle: int, allocator: int, out: int) -> None:
        put(out, duplicate(allocator, read(find(handle, ModelMetadata))))

    entry("OrtApi", table_entry)(get)


_metadata_text("ModelMetadataGetProducerName", lambda found: found.metadata.producer_name)
_metadata_text("ModelMetadataGetGraphName", lambda found: found.graph_name)
_metadata_text("ModelMetadataGetDomain", lambda found: found.metadata.domain)
_metadata_text("ModelMetadataGetDescription", lambda found: found.metadata.doc)
_metadata_text("ModelMetadataGetGraphDescription", lambda found: found.metadata.graph_doc)
_put_number("ModelMetadataGetVersion", ModelMetadata, lambda found: found.metadata.model_version, ctypes.c_int64)


@entry("OrtApi", "ModelMetadataLookupCustomMetadataMap")
def _lookup_metadata(handle: int, allocator: int, key: bytes, out: int) -> None:
    found = find(handle, ModelMetadata).metadata.properties.get(key.decode("utf-8", "replace"))
    put(out, duplicate(allocator, found) if found is not None else None)


@entry("OrtApi", "ModelMetadataGetCustomMetadataMapKeys")
def _get_metadata_keys(handle: int, allocator: int, out: int, count: int) -> None:
    keys = list(find(handle, ModelMetadata).metadata.properties)
    put(count, len(keys), ctypes.c_int64)
    if not keys:
        put(out, None)
        return
    array = allocate(allocator, ctypes.sizeof(ctypes.c_void_p) * len(keys))
    put_array(array, [duplicate(allocator, key) for key in keys], len(keys), "keys")
    put(out, array)


# nodes

_put_number("Node_GetId", NodeView, lambda view: view.index, _SIZE)
_put_text("Node_GetName", NodeView, lambda view: view.node.name)
_put_text("Node_GetOperatorType", NodeView, lambda view: view.node.op_type)
_put_text("Node_GetDomain", NodeView, lambda view: view.domain)
_put_text("Node_GetEpName", NodeView, lambda view: view.provider)
_put_number("Node_GetSinceVersion", NodeView, lambda view: view.shown.version)
_put_number("Node_GetNumAttributes", NodeView, lambda view: len(view.attributes), _SIZE)
_put_number("Node_GetNumSubgraphs", NodeView, lambda view: len(view.subgraphs), _SIZE)
_put_number("Node_GetGraph", NodeView, lambda view: view.graph.handle, ctypes.c_void_p)


@entry("OrtApi", "Node_GetAttributes")
def _get_attributes(handle: int, out: int, room: int) -> None:
    put_handles(out, list(find(handle, NodeView).attributes.values()), room, "attributes")


@entry("OrtApi", "Node_GetAttributeByName")
def _get_attribute(handle: int, name: bytes, out: int) -> None:
    view = find(handle, NodeView)
    wanted = name.decode("utf-8", "replace")
    found = view.attributes.get(wanted)
    put(out, found.handle if found is not None else None)
    if found is None and not graph_view.declares(view.node, wanted):
        raise NotFound(f"{view.node.qualified_op} has no attribute {wanted!r}")


@entry("OrtApi", "Node_GetSubgraphs")
def _get_subgraphs(handle: int, graphs: int, room: int, names: int | None) -> None:
    view = find(handle, NodeView)
    put_handles(graphs, list(view.subgraphs.values()), room, "subgraphs")
    if names:
        put_array(names, [view.text(name) for name in view.subgraphs], room, "subgraphs")


# values

_put_text("GetValueInfoName", ValueInfo, lambda value: value.name)
_put_number("GetValueInfoTypeInfo", ValueInfo, lambda value: value.type.handle, ctypes.c_void_p)
_put_number("ValueInfo_GetValueNumConsumers", ValueInfo, lambda value: len(value.consumers), _SIZE)
_put_number("ValueInfo_IsGraphOutput", ValueInfo, lambda value: value.graph.is_output(value), ctypes.c_bool)
_put_number("ValueInfo_IsFromOuterScope", ValueInfo, lambda value: value.outer, ctypes.c_bool)
_put_number(
    "ValueInfo_IsRequiredGraphInput", ValueInfo, lambda value: value.graph.is_input(value) and value.constant is None,
    ctypes.c_bool,
)  # fmt: skip
_put_number(
    "ValueInfo_IsOptionalGraphInput", ValueInfo, lambda value: value.graph.is_input(value) and value.constant is not None,
    ctypes.c_bool,
)  # fmt: skip
_put_number(
    "ValueInfo_IsConstantInitializer", ValueInfo,
    lambda value: value.constant is not None and not value.graph.is_input(value), ctypes.c_bool,
)  # fmt: skip


@entry("OrtApi", "ValueInfo_GetValueProducer")
def _get_producer(handle: int, out: int, index: int | None) -> None:
    producer = find(handle, ValueInfo).producer
    put(out, producer[0].handle if producer is not None else None)
    put_optional(index, producer[1] if producer is not None else 0, _SIZE)


@entry("OrtApi", "ValueInfo_GetValueConsumers")
def _get_consumers(handle: int, nodes: int, places: int, room: int) -> None:
    consumers = find(handle, ValueInfo).consumers
    put_handles(nodes, [node for node, _ in consumers], room, "consumers")
    put_array(places, [place for _, place in consumers], room, "consumers", ctypes.c_int64)


@entry("OrtApi", "ValueInfo_GetInitializerValue")
def _get_initializer(handle: int, out: int) -> None:
    value = find(handle, ValueInfo).value
    put(out, value.handle if value is not None else None)


@entry("OrtApi", "ValueInfo_GetExternalInitializerInfo")
def _get_external_initializer(handle: int, out: int) -> None:
    constant = find(handle, ValueInfo).constant
    place = constant.place if constant is not None else None
    put(out, give(ExternalInitializer(*place)) if place is not None else None)


class ExternalInitializer(HostObject):
    """OrtExternalInitializerInfo: a file (relative to the model's folder), the first byte, and how many there are."""

    def __init__(self, location: str, offset: int, nbytes: int) -> None:
        super().__init__()
        self.location, self.offset, self.nbytes = location, offset, nbytes
        self._wide = ctypes.create_unicode_buffer(location)

    @property
    def path(self) -> int:
        """The address of its file's name, as the system's paths are."""
        return ctypes.addressof(self._wide) if os.name == "nt" else self.text(self.location)


@entry("OrtApi", "CreateExternalInitializerInfo")
def _create_external_initializer(path: bytes | str, offset: int, nbytes: int, out: int) -> None:
    location = path if isinstance(path, str) else path.decode("utf-8", "surrogateescape")
    put(out, give(ExternalInitializer(location, offset, nbytes)))


@entry("OrtApi", "ExternalInitializerInfo_GetFilePath")
def _get_external_path(handle: int) -> int:
    return find(handle, ExternalInitializer).path


@entry("OrtApi", "ExternalInitializerInfo_GetFileOffset")
def _get_external_offset(handle: int) -> int:
    return find(handle, ExternalInitializer).offset


@entry("OrtApi", "ExternalInitializerInfo_GetByteSize")
def _get_external_nbytes(handle: int) -> int:
    return find(handle, ExternalInitializer).nbytes


# attributes

_put_text("OpAttr_GetName", Attribute, lambda attribute: attribute.name)
_put_number("OpAttr_GetType", Attribute, lambda attribute: attribute.kind)


@entry("OrtApi", "OpAttr_GetTensorAttributeAsOrtValue")
def _get_attribute_tensor(handle: int, out: int) -> None:
    value = find(handle, Attribute).value
    if not isinstance(value, np.ndarray):
        raise InvalidArgument("expected an attribute that is a tensor")
    put(out, give(packed_tensor(value, DType.of(value.dtype))))


@entry("OrtApi", "ReadOpAttr")
def _read_attribute(handle: int, kind: int, data: int | None, room: int, out: int) -> None:
    attribute = find(handle, Attribute)
    if attribute.kind != kind:
        raise InvalidArgument(f"attribute {attribute.name!r} is of type {attribute.kind}, was requested as {kind}")
    content = attribute_bytes(attribute.value, kind)
    put(out, len(content), _SIZE)
    if len(content) > room or not data:
        if content:
            raise Fail(f"attribute {attribute.name!r} has {len(content)} bytes, room is for {room}")
        return
    ctypes.memmove(checked(data), content, len(content))


def attribute_bytes(value: Any, kind: int) -> bytes:
    """An attribute as the interface writes it; each of several texts ends in a zero.

    Raises:
        InvalidArgument: a graph, or what has no form.
    """
    if kind in (graph_view.INT, graph_view.INTS):
        return np.atleast_1d(np.array(value, np.int64)).tobytes()
    if kind in (graph_view.FLOAT, graph_view.FLOATS):
        return np.atleast_1d(np.array(value, np.float32)).tobytes()
    if kind == graph_view.STRING:
        return _encoded(value)
    if kind == graph_view.STRINGS:
        return b"".join(_encoded(text) + b"\0" for text in value)
    raise InvalidArgument("only numbers and texts are read so; see Node_GetSubgraphs and OpAttr_GetTensorAttributeAsOrtValue")


def _encoded(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
