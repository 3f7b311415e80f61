"""OrtModelEditorApi: nodes, graphs and models that a plugin makes: the EPContext nodes of what it compiled, above all.

What a plugin adds to a graph or a model is the host's from then on, and it may not release it itself.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from intarsia.errors import InvalidArgument
from intarsia.graph.dims import fresh_symbol, symbol
from intarsia.graph.model import (
    Attribute,
    Constant,
    Graph,
    MapType,
    Node,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    Value,
    ValueType,
)
from intarsia.providers.plugin.interface import graph_view
from intarsia.providers.plugin.interface.element_types import element_type
from intarsia.providers.plugin.interface.handles import (
    HostObject,
    checked,
    find,
    find_all,
    give,
    numbers,
    pointers,
    put,
    take_back,
    texts,
)
from intarsia.providers.plugin.interface.host_tables import entry
from intarsia.providers.plugin.interface.tensors import OrtValue, TensorInfo, TypeInfo, tensor


class MadeAttribute(graph_view.Attribute):
    """OrtOpAttr of a plugin's own."""


class MadeValue(HostObject):
    """OrtValueInfo of a plugin's own."""

    def __init__(self, name: str, kind: ValueType | None) -> None:
        super().__init__()
        self.value = Value(name, kind)


class MadeNode(HostObject):
    """OrtNode of a plugin's own."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node


class MadeGraph(HostObject):
    """OrtGraph of a plugin's own."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[MadeNode] = []
        self.inputs: list[MadeValue] = []
        self.outputs: list[MadeValue] = []
        self.initializers: dict[str, OrtValue] = {}

    def graph(self, opsets: dict[str, int]) -> Graph:
        """It as Intarsia's.

        Raises:
            InvalidArgument: it has no outputs.
        """
        if not self.outputs:
            raise InvalidArgument("the graph of a model has no outputs; call SetGraphInputs and SetGraphOutputs before")
        made = Graph(name="made", nodes=[one.node for one in self.nodes], opset_imports=dict(opsets))
        made.inputs, made.outputs = [one.value for one in self.inputs], [one.value for one in self.outputs]
        made.types = {one.value.name: one.value.type for one in self.inputs if one.value.type is not None}
        made.constants = {name: _constant(name, value) for name, value in self.initializers.items()}
        return made


class MadeModel(HostObject):
    """OrtModel of a plugin's own."""

    def __init__(self, opsets: dict[str, int]) -> None:
        super().__init__()
        self.opsets = opsets
        self.made: MadeGraph | None = None

    def graph(self) -> Graph:
        """Its graph as Intarsia's.

        Raises:
            InvalidArgument: it has none.
        """
        if self.made is None:
            raise InvalidArgument("the model has no graph; call AddGraphToModel before")
        return self.made.graph(self.opsets)


def _constant(name: str, value: OrtValue) -> Constant:
    return Constant(name, value.dtype, value.shape, value.array)


# types


def _type_entry(name: str, kind: Callable[[ValueType | None], ValueType]) -> None:
    def create(handle: int, out: int) -> None:
        put(out, give(TypeInfo(kind(find(handle, TypeInfo).kind))))

    entry("OrtModelEditorApi", name)(create)


_type_entry("CreateSequenceTypeInfo", SequenceType)
_type_entry("CreateOptionalTypeInfo", OptionalType)


def _tensor_type(info: TensorInfo) -> TensorType:
    if info.shape is None:
        return TensorType(info.dtype, None)
    named = info.symbols or ("",) * len(info.shape)
    dims = zip(info.shape, named, strict=True)
    return TensorType(info.dtype, tuple(d if d >= 0 else symbol(name) if name else fresh_symbol() for d, name in dims))


@entry("OrtModelEditorApi", "CreateTensorTypeInfo")
def _create_tensor_type(handle: int, out: int) -> None:
    put(out, give(TypeInfo(_tensor_type(find(handle, TensorInfo)))))


@entry("OrtModelEditorApi", "CreateSparseTensorTypeInfo")
def _create_sparse_type(handle: int, out: int) -> None:
    kind = _tensor_type(find(handle, TensorInfo))
    put(out, give(TypeInfo(SparseTensorType(kind.dtype, kind.shape))))


@entry("OrtModelEditorApi", "CreateMapTypeInfo")
def _create_map_type(key: int, value: int, out: int) -> None:
    put(out, give(TypeInfo(MapType(element_type(key), find(value, TypeInfo).kind))))


# nodes and values


@entry("OrtModelEditorApi", "CreateValueInfo")
def _create_value_info(name: bytes, kind: int, out: int) -> None:
    put(out, give(MadeValue(name.decode("utf-8", "replace"), find(kind, TypeInfo).kind)))


@entry("OrtApi", "CreateOpAttr")
def _create_attribute(name: bytes, data: int | None, count: int, kind: int, out: int) -> None:
    put(out, give(MadeAttribute(name.decode("utf-8", "replace"), _attribute_value(data, count, kind), kind)))


def _attribute_value(data: int | None, count: int, kind: int) -> Attribute:
    """What is at an address: `count` numbers or texts, or bytes of one text.

    Raises:
        InvalidArgument: of another type, or null.
    """
    if count < 0:
        raise InvalidArgument(f"an attribute of {count} elements")
    if kind == graph_view.STRING:
        return _text_or_bytes(ctypes.string_at(checked(data), count) if count else b"")
    if kind == graph_view.STRINGS:
        return texts(data, count)
    number = {graph_view.INT: ctypes.c_int64, graph_view.INTS: ctypes.c_int64}.get(kind, ctypes.c_float)
    if kind in (graph_view.INT, graph_view.FLOAT):
        return number.from_address(checked(data)).value
    if kind in (graph_view.INTS, graph_view.FLOATS):
        return numbers(data, count, number)
    if kind == graph_view.TENSOR:
        return tensor(data).array().copy()
    raise InvalidArgument(f"CreateOpAttr makes numbers, texts, lists of them and tensors; got type {kind}")


def _text_or_bytes(content: bytes) -> str | bytes:
    """ONNX has one type for both: what is UTF-8 is text."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


@entry("OrtModelEditorApi", "CreateNode")
def _create_node(operator: bytes, domain: bytes | None, name: bytes | None, *more: int) -> None:
    inputs, input_count, outputs, output_count, attributes, attribute_count, out = more
    given = find_all(attributes, attribute_count, graph_view.Attribute)
    values = {one.name: one.value for one in given}
    for one in given:  # they are the node's from now on; the interface's words do not say so, and onnxruntime deletes them
        take_back(one.handle)
    node = Node(
        operator.decode("utf-8", "replace"), texts(inputs, input_count), texts(outputs, output_count), values,
        (domain or b"").decode("utf-8", "replace"), (name or b"").decode("utf-8", "replace"),
    )  # fmt: skip
    put(out, give(MadeNode(node)))


# graphs and models


@entry("OrtModelEditorApi", "CreateGraph")
def _create_graph(out: int) -> None:
    put(out, give(MadeGraph()))


def _taken(handles: int, count: int) -> list[MadeValue]:
    """Values that a graph takes over; their places in the plugin's array become null."""
    found = find_all(handles, count, MadeValue)
    for value in found:
        take_back(value.handle)
    if count:
        (ctypes.c_void_p * count).from_address(handles)[:] = [None] * count
    return found


@entry("OrtModelEditorApi", "SetGraphInputs")
def _set_inputs(graph: int, values: int, count: int) -> None:
    made = find(graph, MadeGraph)
    made.inputs = _taken(values, count)


@entry("OrtModelEditorApi", "SetGraphOutputs")
def _set_outputs(graph: int, values: int, count: int) -> None:
    made = find(graph, MadeGraph)
    made.outputs = _taken(values, count)


@entry("OrtModelEditorApi", "AddInitializerToGraph")
def _add_initializer(graph: int, name: bytes, handle: int, external: bool) -> None:
    made, value = find(graph, MadeGraph), tensor(handle)
    wanted = name.decode("utf-8", "replace")
    if wanted in made.initializers or any(value is other for other in made.initializers.values()):
        raise InvalidArgument(f"the graph has the initializer {wanted!r}, or its value, already")
    made.initializers[wanted] = value
    take_back(handle)


@entry("OrtModelEditorApi", "AddNodeToGraph")
def _add_node(graph: int, handle: int) -> None:
    made, node = find(graph, MadeGraph), find(handle, MadeNode)
    if node in made.nodes:
        raise InvalidArgument(f"the graph has the node {node.node.name!r} already")
    made.nodes.append(node)
    take_back(handle)


@entry("OrtModelEditorApi", "CreateModel")
def _create_model(domains: int, versions: int, count: int, out: int) -> None:
    opsets = zip(texts(domains, count), numbers(versions, count, ctypes.c_int32), strict=True)
    put(out, give(MadeModel({domain if domain != "ai.onnx" else "": version for domain, version in opsets})))


@entry("OrtModelEditorApi", "AddGraphToModel")
def _add_graph(model: int, handle: int) -> None:
    made, graph = find(model, MadeModel), find(handle, MadeGraph)
    if made.made is not None:
        raise InvalidArgument("the model has a graph already")
    made.made = graph
    take_back(handle)


def taken_nodes(address: int, count: int) -> list[Node | None]:
    """Nodes that a plugin put into an array, which are the host's from now on; None for places that are null.

    Raises:
        InvalidArgument: a node that `CreateNode` did not make.
    """
    found: list[Node | None] = []
    for handle in pointers(address, count):
        found.append(find(handle, MadeNode).node if handle else None)
        take_back(handle)
    return found
