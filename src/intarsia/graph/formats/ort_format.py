"""Models in ORT format: onnxruntime's FlatBuffers form of an optimised model (`model.ort`), read in place.

The schema: https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/flatbuffers/schema/ort.fbs. The numbers of
fields below are positions in its tables. What such a file says beyond ONNX (which kernels to take, nodes of runtime
optimisations, edges between nodes) is left out: it follows from the graph, or is onnxruntime's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from intarsia.errors import InvalidGraph, InvalidModelError, InvalidProtobuf
from intarsia.graph.dims import Dim, Shape
from intarsia.graph.formats import attribute_proto as kinds
from intarsia.graph.formats.flatbuffer import FlatTable
from intarsia.graph.formats.protobuf_wire import MAX_DEPTH, Buffer, text_or_bytes
from intarsia.graph.formats.tensor_proto import StoredTensor, add_constant, densified, sparse_tensor, stored_tensor
from intarsia.graph.formats.type_proto import Symbols, dtype_numbered
from intarsia.graph.model import (
    Graph,
    MapType,
    Metadata,
    Node,
    SequenceType,
    SparseTensor,
    TensorType,
    Value,
    ValueType,
    opset_import,
)
from intarsia.graph.order import sorted_nodes

_PARAM = 2  # DimensionValueType
_TENSOR, _SEQUENCE, _MAP = 1, 2, 3  # TypeInfoValue


def read_ort_format(buffer: Buffer, label: str) -> Graph:
    """The graph of a model in ORT format; weights stay in the buffer.

    Raises:
        InvalidProtobuf: the buffer is cut short or corrupt.
        InvalidModelError: as for an ONNX model.
    """
    try:
        return _Reader(buffer, label).model()
    except (IndexError, UnicodeDecodeError) as error:
        raise InvalidProtobuf(f"{label}: the ORT-format model is cut short or corrupt: {error}") from None


class _Reader:
    def __init__(self, buffer: Buffer, label: str) -> None:
        self.buffer, self.label = buffer, label
        self.symbols = Symbols()
        self._left = len(buffer) // 4  # tables that it can have: a buffer that lists one table again and again has more

    def model(self) -> Graph:
        model = FlatTable.root(self.buffer).table(1)
        inner = model.table(7) if model is not None else None
        if model is None or inner is None:
            raise InvalidProtobuf(f"{self.label}: the ORT-format file has no model")
        graph = self.graph(inner, 0)
        graph.opset_imports = dict(
            opset_import(t.text(0), t.integer(1, "q"), self.label) for t in self._counted(model.tables(1))
        )
        graph.metadata = Metadata(
            ir_version=model.integer(0, "q"), producer_name=model.text(2), producer_version=model.text(3), domain=model.text(4),
            model_version=model.integer(5, "q"), doc=model.text(6), graph_doc=model.text(8),
            properties={entry.text(0): entry.text(1) for entry in self._counted(model.tables(9))},
        )  # fmt: skip
        graph.make_names_unique()
        return graph

    def graph(self, table: FlatTable, depth: int) -> Graph:
        if depth > MAX_DEPTH:
            raise InvalidProtobuf(f"{self.label}: graph at byte {table.place}: graphs are nested more than {MAX_DEPTH} deep")
        declared = {value.name: value for value in map(self._value, self._counted(table.tables(1)))}
        graph = Graph(types={name: value.type for name, value in declared.items() if value.type is not None})
        tensors = [self._tensor(t).constant() for t in self._counted(table.tables(0))]
        for constant in (*tensors, *(densified(*self._sparse(t), self.label) for t in self._counted(table.tables(7)))):
            add_constant(graph.constants, constant)
        inputs = table.texts(5)
        graph.inputs = [declared.get(name, Value(name)) for name in inputs if name not in graph.constants]
        graph.overridable = [name for name in inputs if name in graph.constants]
        outputs = table.texts(6)
        if "" in outputs:
            raise InvalidGraph(f"{self.label}: output {outputs.index('')} of the graph at byte {table.place} has no name")
        graph.outputs = [declared.get(name, Value(name)) for name in outputs]
        nodes = [self._node(t, i, depth) for i, t in enumerate(self._counted(table.tables(2)))]
        graph.nodes = sorted_nodes(nodes, f"{self.label}: graph")
        return graph

    def _counted(self, tables: list[FlatTable]) -> list[FlatTable]:
        self._left -= len(tables)
        if self._left < 0:
            raise IndexError(f"more tables than {len(self.buffer)} bytes can hold")
        return tables

    def _node(self, table: FlatTable, index: int, depth: int) -> Node:
        op_type = table.text(5)
        if not op_type:
            raise InvalidGraph(f"{self.label}: node {index} at byte {table.place} has no op_type")
        name = table.text(0) or f"{op_type}_{index}"
        attributes = dict(self._attribute(t, name, depth) for t in self._counted(table.tables(10)))
        return Node(op_type, table.texts(8), table.texts(9), attributes, table.text(2), name, doc=table.text(1), origin=(name,))

    def _attribute(self, table: FlatTable, node: str, depth: int) -> tuple[str, Any]:
        name, kind = table.text(0), table.integer(2)
        read = _ATTRIBUTES.get(kind)
        if read is None:
            raise InvalidModelError(f"{self.label}: node {node!r}: attribute {name!r} has the type {kind}, expected 1 to 10")
        return name, read(self, table, depth)

    def _one(self, table: FlatTable, number: int) -> FlatTable:
        found = table.table(number)
        if found is None:
            raise InvalidModelError(f"{self.label}: attribute {table.text(0)!r} at byte {table.place} has no value")
        return self._counted([found])[0]

    def _string(self, table: FlatTable, number: int) -> str | bytes:
        start, end = table.span(number)
        return text_or_bytes(self.buffer, start, end)

    def _tensor(self, table: FlatTable) -> StoredTensor:
        if table.integer(6, "q", -1) >= 0:
            raise InvalidModelError(f"{self.label}: tensor {table.text(0)!r} is in another file, expected all in one")
        name, number, dims = table.text(0), table.integer(3), table.numbers(2, "<i8").tolist()
        return stored_tensor(self.buffer, table.place, self.label, name, number, dims, table.span(4), table.spans(5))

    def _sparse(self, table: FlatTable) -> tuple[str, SparseTensor]:
        values, indices = self._tensor(self._one(table, 0)), self._tensor(self._one(table, 1))
        return values.name, sparse_tensor(values, indices.array().astype(np.int64), table.numbers(2, "<i8").tolist())

    def _value(self, table: FlatTable) -> Value:
        name, kind = table.text(0), table.table(2)
        return Value(name, self._type(kind, name, 0) if kind is not None else None, table.text(1))

    def _type(self, table: FlatTable | None, name: str, depth: int) -> ValueType | None:
        held = table.table(2) if table is not None else None
        if table is None or held is None:
            return None
        if depth > MAX_DEPTH:
            raise InvalidProtobuf(f"{self.label}: type of {name!r} at byte {table.place}: nested more than {MAX_DEPTH} deep")
        kind = table.integer(1, "B")
        if kind == _TENSOR:
            shape = held.table(1)
            return TensorType(dtype_numbered(held.integer(0), name), self._shape(shape, name) if shape is not None else None)
        if kind == _SEQUENCE:
            return SequenceType(self._type(held.table(0), name, depth + 1))
        if kind == _MAP:
            return MapType(dtype_numbered(held.integer(0), name), self._type(held.table(1), name, depth + 1))
        return None

    def _shape(self, table: FlatTable, name: str) -> Shape:
        dims: list[Dim] = []
        for i, dimension in enumerate(self._counted(table.tables(0))):
            value = dimension.table(0)
            kind, size = (value.integer(0, "b"), value.integer(1, "q")) if value is not None else (0, 0)
            if kind == 1 and size >= 0:
                dims.append(size)
                continue
            param = value.text(2) if value is not None and kind == _PARAM else ""
            dims.append(self.symbols.named(param, f"{name}_d{i}"))
        return tuple(dims)


_ATTRIBUTES: dict[int, Callable[[_Reader, FlatTable, int], Any]] = {
    kinds.FLOAT: lambda r, t, d: float(t.scalar(3, "f")),
    kinds.INT: lambda r, t, d: t.integer(4, "q"),
    kinds.STRING: lambda r, t, d: r._string(t, 5),
    kinds.TENSOR: lambda r, t, d: r._tensor(r._one(t, 6)).array(),
    kinds.GRAPH: lambda r, t, d: r.graph(r._one(t, 7), d + 1),
    kinds.FLOATS: lambda r, t, d: t.numbers(8, "<f4").tolist(),
    kinds.INTS: lambda r, t, d: t.numbers(9, "<i8").tolist(),
    kinds.STRINGS: lambda r, t, d: [text_or_bytes(r.buffer, a, b) for a, b in t.spans(10)],
    kinds.TENSORS: lambda r, t, d: [r._tensor(one).array() for one in r._counted(t.tables(11))],
    kinds.GRAPHS: lambda r, t, d: [r.graph(one, d + 1) for one in r._counted(t.tables(12))],
}  # sparse tensors have a number of their own, and no field in the schema
