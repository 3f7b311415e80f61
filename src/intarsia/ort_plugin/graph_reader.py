"""onnxruntime's graph (OrtGraph) as a `Graph`, by the functions of OrtApi.

Types are those that onnxruntime inferred. Weights are read where they lie when somebody requests them, which must be while
onnxruntime's call lasts: what is made of them is a copy.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from intarsia.errors import EPFail, NotImplemented
from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.graph.formats.tensor_proto import unpack_bits
from intarsia.graph.formats.type_proto import Symbols
from intarsia.graph.model import Constant, Graph, Metadata, Node, TensorType, Value
from intarsia.ort_plugin.c_api import TENSOR, OrtApi
from intarsia.providers.plugin.interface.element_types import element_type

UNREADABLE = "unreadable"
"""In a node's metadata: what of it could not be read, so that it stays with onnxruntime."""

_INT, _INTS, _FLOAT, _FLOATS, _STRING, _STRINGS, _GRAPH, _TENSOR = range(1, 9)  # OrtOpAttrType
_LISTS = {_INTS: np.int64, _FLOATS: np.float32}
_FIRST_NBYTES = 256
_DEFAULT_ACTIVATIONS = ["Tanh", "Tanh"]  # onnxruntime writes defaults out: RNN's has two names also for one direction


class GraphReader:
    """Reads one graph and those in its nodes."""

    def __init__(self, api: OrtApi) -> None:
        self.api = api
        self.nodes: list[int] = []  # handles of the outermost graph's nodes, in its order
        self._symbols = Symbols()
        self._names: dict[int, str] = {}
        self._valid = True

    def graph(self, handle: int, outermost: bool = True) -> Graph:
        """The graph of a handle.

        Raises:
            EPFail: onnxruntime refuses to say something.
        """
        api = self.api
        graph = Graph(api.text("Graph_GetName", handle), opset_imports=self._opsets(handle))
        path, version = api.text("Graph_GetModelPath", handle), api.get("Graph_GetOnnxIRVersion", handle)
        graph.metadata = Metadata(ir_version=version, path=path)
        for info in api.items("Graph_GetNumInitializers", "Graph_GetInitializers", handle):
            self._constant(graph, info)
        given = api.items("Graph_GetNumInputs", "Graph_GetInputs", handle)
        graph.inputs = [self._value(info) for info in given if self._name(info) not in graph.constants]
        graph.outputs = [self._value(info) for info in api.items("Graph_GetNumOutputs", "Graph_GetOutputs", handle)]
        handles = api.items("Graph_GetNumNodes", "Graph_GetNodes", handle)
        if outermost:
            self.nodes = handles
        graph.nodes = [self._node(graph, node, outermost) for node in handles]
        return graph

    def close(self) -> None:
        """onnxruntime's call is over: weights cannot be read any more."""
        self._valid = False

    def names(self, infos: list[int]) -> list[str]:
        """The names of values; "" for one that is left out."""
        return [self._name(info) for info in infos]

    def _opsets(self, handle: int) -> dict[str, int]:
        count = self.api.get("Graph_GetNumOperatorSets", handle)
        domains, versions = (ctypes.c_char_p * count)(), (ctypes.c_int64 * count)()
        self.api.call("Graph_GetOperatorSets", handle, domains, versions, count)
        found = {(name or b"").decode(): int(version) for name, version in zip(domains, versions, strict=True)}
        return {("" if name == "ai.onnx" else name): version for name, version in found.items()}

    # --- values ---

    def _name(self, info: int) -> str:
        if not info:
            return ""
        found = self._names.get(info)
        if found is None:
            found = self._names[info] = self.api.text("GetValueInfoName", info)
        return found

    def _value(self, info: int) -> Value:
        return Value(self._name(info), self._type(info))

    def _type(self, info: int) -> TensorType | None:
        """The type of a tensor; None of anything else, and where it is not known."""
        api = self.api
        kind = api.get("GetValueInfoTypeInfo", info)
        if not kind or api.get("GetOnnxTypeFromTypeInfo", kind) != TENSOR:
            return None
        tensor = api.get("CastTypeInfoToTensorInfo", kind)
        try:
            dtype = element_type(api.get("GetTensorElementType", tensor))
        except NotImplemented:
            return None
        if not api.word("TensorTypeAndShape_HasShape", tensor) & 1:
            return TensorType(dtype)
        rank = api.get("GetDimensionsCount", tensor)
        sizes, names = (ctypes.c_int64 * rank)(), (ctypes.c_char_p * rank)()
        if rank:
            api.call("GetDimensions", tensor, sizes, rank)
            api.call("GetSymbolicDimensions", tensor, names, rank)
        return TensorType(dtype, tuple(map(self._dim, sizes, names, [self._name(info)] * rank)))

    def _dim(self, size: int, name: bytes | None, stem: str) -> Dim:
        """A size that is negative has a name, or none; `stem` is the value's."""
        return size if size >= 0 else self._symbols.named((name or b"").decode(), stem)

    def _constant(self, graph: Graph, info: int) -> None:
        """Add an initializer."""
        name, kind = self._name(info), self._type(info)
        if name in graph.constants or kind is None or kind.shape is None:
            return
        if not self.api.get("ValueInfo_IsConstantInitializer", info) & 1:
            return  # its caller may give another value
        shape = tuple(int(n) for n in kind.shape if isinstance(n, int))
        data = Weight(self, info, name)
        graph.constants[name] = Constant(name, kind.dtype, shape, data, "onnxruntime's initializer", retained=False)

    def weight(self, info: int, name: str) -> np.ndarray:
        """The data of an initializer where onnxruntime has it.

        Raises:
            EPFail: onnxruntime's call is over.
        """
        if not self._valid:
            raise EPFail(f"weight {name!r} was requested after onnxruntime's call, when it may lie there no more")
        return self.tensor(self.api.get("ValueInfo_GetInitializerValue", info))

    def tensor(self, value: int) -> np.ndarray:
        """A tensor (OrtValue), where it lies."""
        dtype, shape, address = tensor_of(self.api, value)
        if dtype is DType.STRING:
            raise EPFail("tensors of strings are not read")
        count = math.prod(shape)
        nbytes = (count * dtype.bits + 7) // 8
        data = bytes_at(address, nbytes)
        if dtype.bits % 8:
            return unpack_bits(data, dtype, count).reshape(shape)
        return data.view(dtype.numpy).reshape(shape)

    # --- nodes ---

    def _node(self, graph: Graph, handle: int, outermost: bool) -> Node:
        api = self.api
        inputs = api.items("Node_GetNumInputs", "Node_GetInputs", handle)
        outputs = api.items("Node_GetNumOutputs", "Node_GetOutputs", handle)
        captured = api.items("Node_GetNumImplicitInputs", "Node_GetImplicitInputs", handle)
        for info in (*inputs, *captured, *outputs) if outermost else outputs:
            self._note(graph, info)
        node = Node(api.text("Node_GetOperatorType", handle), self.names(inputs), self.names(outputs))
        node.domain, node.name = api.text("Node_GetDomain", handle), api.text("Node_GetName", handle)
        node.domain = "" if node.domain == "ai.onnx" else node.domain
        node.version = api.get("Node_GetSinceVersion", handle)
        for attribute in api.items("Node_GetNumAttributes", "Node_GetAttributes", handle):
            self._attribute(node, attribute)
        if node.op_type == "RNN" and node.attributes.get("activations") == _DEFAULT_ACTIVATIONS:
            del node.attributes["activations"]
        if api.get("Node_GetNumSubgraphs", handle):
            self._subgraphs(node, handle)
        return node

    def _note(self, graph: Graph, info: int) -> None:
        """Note the type of a value, and its data where it is an initializer."""
        name = self._name(info)
        if not name or name in graph.types or name in graph.constants:
            return
        kind = self._type(info)
        if kind is not None:
            graph.types[name] = kind
            if self.api.get("ValueInfo_IsConstantInitializer", info) & 1:
                self._constant(graph, info)

    def _subgraphs(self, node: Node, handle: int) -> None:
        count = self.api.get("Node_GetNumSubgraphs", handle)
        graphs, names = (ctypes.c_uint64 * count)(), (ctypes.c_char_p * count)()
        self.api.call("Node_GetSubgraphs", handle, graphs, count, names)
        for graph, name in zip(graphs, names, strict=True):
            node.attributes[(name or b"").decode()] = self.graph(graph, outermost=False)

    def _attribute(self, node: Node, handle: int) -> None:
        kind, name = self.api.get("OpAttr_GetType", handle), self.api.text("OpAttr_GetName", handle)
        if kind == _GRAPH:
            return
        try:
            node.attributes[name] = self._tensor_attribute(handle) if kind == _TENSOR else self._plain(handle, kind)
        except EPFail as error:
            node.metadata[UNREADABLE] = f"attribute {name!r}: {error}"

    def _tensor_attribute(self, handle: int) -> np.ndarray:
        value = self.api.get("OpAttr_GetTensorAttributeAsOrtValue", handle)
        try:
            return self.tensor(value).copy()
        finally:
            self.api.word("ReleaseValue", value)

    def _plain(self, handle: int, kind: int) -> Any:
        """A number, a text or a list of these."""
        if not _INT <= kind <= _STRINGS:
            raise EPFail(f"its type, number {kind} of OrtOpAttrType, is not read")
        data = self._bytes(handle, kind)
        if kind == _INT:
            return ctypes.c_int64.from_buffer_copy(data).value
        if kind == _FLOAT:
            return ctypes.c_float.from_buffer_copy(data).value
        if kind in _LISTS:
            return np.frombuffer(data, _LISTS[kind]).tolist()
        if kind == _STRINGS:
            return [_text(part) for part in data.split(b"\0")[:-1]]
        return _text(data.rstrip(b"\0"))

    def _bytes(self, handle: int, kind: int) -> bytes:
        """An attribute's bytes: the first call says how many there are where they are more than it has room for."""
        room, used = _FIRST_NBYTES, ctypes.c_size_t()
        while True:
            data = ctypes.create_string_buffer(room)
            status = self.api.word("ReadOpAttr", handle, kind, data, room, ctypes.byref(used))
            if not status:
                return data.raw[: used.value]
            if used.value <= room:
                message = ctypes.string_at(self.api.word("GetErrorMessage", status)).decode(errors="replace")
                self.api.word("ReleaseStatus", status)
                raise EPFail(message)
            self.api.word("ReleaseStatus", status)
            room = used.value


class Weight:
    """Reads an initializer: a copy, or where it lies."""

    def __init__(self, reader: GraphReader, info: int, name: str) -> None:
        self._reader, self._info, self._name = reader, info, name

    def __call__(self) -> np.ndarray:
        return self.in_place().copy()

    def in_place(self) -> np.ndarray:
        """The data in onnxruntime's memory, for as long as its call lasts."""
        return self._reader.weight(self._info, self._name)


def tensor_of(api: OrtApi, value: int) -> tuple[DType, tuple[int, ...], int]:
    """Element type, shape and address of a tensor (OrtValue)."""
    kind, sizes, rank = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t()
    api.call("GetTensorElementTypeAndShapeDataReference", value, ctypes.byref(kind), ctypes.byref(sizes), ctypes.byref(rank))
    shape = tuple((ctypes.c_int64 * rank.value).from_address(sizes.value)) if sizes.value and rank.value else ()
    return element_type(kind.value), shape, api.get("GetTensorMutableData", value)


def bytes_at(address: int, nbytes: int) -> np.ndarray:
    """The bytes at an address, which can be written."""
    if not nbytes:
        return np.empty(0, np.uint8)
    return np.frombuffer(memoryview((ctypes.c_uint8 * nbytes).from_address(address)), np.uint8)


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
