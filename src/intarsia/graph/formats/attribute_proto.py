"""Node attributes as ONNX stores them: AttributeProto."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from intarsia.errors import InvalidModelError, InvalidProtobuf
from intarsia.graph.formats.external_data import ExternalFiles
from intarsia.graph.formats.protobuf_wire import (
    Buffer,
    Span,
    fields,
    float32,
    packed_floats,
    packed_ints,
    place,
    signed,
    text,
    text_or_bytes,
)
from intarsia.graph.formats.tensor_proto import read_sparse, read_tensor
from intarsia.graph.formats.type_proto import TypeReader
from intarsia.graph.model import Attribute, AttributeRef, Graph

FLOAT, INT, STRING, TENSOR, GRAPH = 1, 2, 3, 4, 5  # AttributeProto.AttributeType
FLOATS, INTS, STRINGS, TENSORS, GRAPHS = 6, 7, 8, 9, 10
SPARSE_TENSOR, SPARSE_TENSORS, TYPE_PROTO, TYPE_PROTOS = 11, 12, 13, 14

_SINGLE_MESSAGE = {0x2A: TENSOR, 0x32: GRAPH, 0xB2: SPARSE_TENSOR, 0x72: TYPE_PROTO}
_MANY_MESSAGES = {0x52: TENSORS, 0x5A: GRAPHS, 0xBA: SPARSE_TENSORS, 0x7A: TYPE_PROTOS}
_ELEMENT = {TENSORS: TENSOR, GRAPHS: GRAPH, SPARSE_TENSORS: SPARSE_TENSOR, TYPE_PROTOS: TYPE_PROTO}
_SCALARS = (FLOAT, INT, STRING)
_LISTS = (FLOATS, INTS, STRINGS)
_LONG_NBYTES = 1 << 16  # lists of numbers or strings from this size on are read by protobuf's own parser
_LIST_TAGS = (0x3A, 0x3D, 0x40, 0x42, 0x4A)  # floats, ints and strings, packed or one by one
_NOTHING: dict[int, Any] = {FLOAT: 0.0, INT: 0, STRING: "", **dict.fromkeys((*_LISTS, *_ELEMENT))}  # protobuf's defaults


class AttributeReader:
    """Reads attributes into Python values. `in_function` allows references to a function's own attributes."""

    def __init__(
        self, buffer: Buffer, label: str, files: ExternalFiles, types: TypeReader, graph: Callable[[int, int, int], Graph]
    ) -> None:
        self.buffer, self.label, self.files, self.types, self.graph = buffer, label, files, types, graph
        self.in_function = False

    def attribute(self, start: int, end: int, depth: int, *, lazy: bool = False) -> tuple[str, Attribute]:
        """The name and value of the AttributeProto in `buffer[start:end]`; a `lazy` tensor stays a `StoredTensor`."""
        long = self._long_list(start, end) if end - start >= _LONG_NBYTES else None
        return long or self._attribute(start, end, depth, lazy)

    def _attribute(self, start: int, end: int, depth: int, lazy: bool) -> tuple[str, Attribute]:
        buffer = self.buffer
        name = reference = ""
        kind = seen = 0
        single: dict[int, Any] = {}
        many: dict[int, list[Any]] = {}
        for tag, a, b in fields(buffer, start, end, "AttributeProto"):
            if tag == 0x0A:
                name = buffer[a:b].decode()
            elif tag == 0xA0:
                kind = a
            elif tag == 0x18:
                single[INT] = signed(a)
                seen = INT
            elif tag == 0x40:
                many.setdefault(INTS, []).append(signed(a))
                seen = INTS
            elif tag == 0x15:
                single[FLOAT] = float32(buffer, a)
                seen = FLOAT
            elif tag == 0x22:
                single[STRING] = text_or_bytes(buffer, a, b)
                seen = STRING
            elif tag in _SINGLE_MESSAGE:
                seen = _SINGLE_MESSAGE[tag]
                single[seen] = (a, b)
            elif tag == 0xAA:
                reference = text(buffer, a, b)
            else:
                seen = self._list_item(tag, a, b, many) or seen
        if not name:
            raise InvalidProtobuf(f"the AttributeProto at byte {place(buffer, start)} has no name")
        if reference:
            if not self.in_function:
                raise InvalidModelError(
                    f"{self.label}: attribute {name!r} at byte {place(buffer, start)} refers to the attribute "
                    f"{reference!r}, which is possible in functions only"
                )
            return name, AttributeRef(reference, kind)
        kind = kind or seen
        given: Any = single.get(kind, many.get(kind))
        if given is None:
            if single or many or kind not in _NOTHING:
                raise self._mismatch(name, kind, seen)
            return name, _NOTHING[kind] if kind in _SCALARS else []
        if kind in _SCALARS or kind in _LISTS:
            return name, given
        if kind in _ELEMENT:
            return name, [self._message(name, _ELEMENT[kind], span, depth) for span in given]
        return name, self._message(name, kind, given, depth, lazy=lazy)

    def _long_list(self, start: int, end: int) -> tuple[str, Attribute] | None:
        """The attribute where it is a list that follows its name, as a tree ensemble's nodes; None: read it field by field."""
        name_tag, a, b = next(iter(fields(self.buffer, start, end, "AttributeProto")))
        if name_tag != 0x0A or b >= end or self.buffer[b] not in _LIST_TAGS:
            return None
        from google.protobuf.message import DecodeError
        from onnx import AttributeProto

        try:
            proto = AttributeProto.FromString(bytes(self.buffer[start:end]))
        except DecodeError:
            return None  # reading it field by field says what is wrong
        given = {FLOATS: proto.floats, INTS: proto.ints, STRINGS: proto.strings}.get(proto.type)
        if proto.ref_attr_name or not given:
            return None
        items = list(given)
        if proto.type == STRINGS:  # such as the modes of a forest's nodes: few different ones
            read = {raw: text_or_bytes(raw, 0, len(raw)) for raw in set(items)}
            items = [read[raw] for raw in items]
        return self.buffer[a:b].decode(), items

    def _list_item(self, tag: int, a: int, b: int, many: dict[int, list[Any]]) -> int:
        """Add an item of one of the rarer list fields to `many`; the attribute type it stands for, 0 if unknown."""
        buffer = self.buffer
        if tag == 0x3D:
            kind = FLOATS
            many.setdefault(kind, []).append(float32(buffer, a))
        elif tag == 0x3A:
            kind = FLOATS
            many.setdefault(kind, []).extend(packed_floats(buffer, a, b))
        elif tag == 0x42:
            many.setdefault(INTS, []).extend(packed_ints(buffer, a, b))
            kind = INTS
        elif tag == 0x4A:
            kind = STRINGS
            many.setdefault(kind, []).append(text_or_bytes(buffer, a, b))
        elif tag in _MANY_MESSAGES:
            kind = _MANY_MESSAGES[tag]
            many.setdefault(kind, []).append((a, b))
        else:
            kind = 0
        return kind

    def _mismatch(self, name: str, kind: int, seen: int) -> InvalidModelError:
        given = f"a value of type {seen}" if seen else "no value"
        return InvalidModelError(
            f"{self.label}: attribute {name!r} declares type {kind} (AttributeProto.AttributeType) and has {given}"
        )

    def _message(self, name: str, kind: int, span: Span, depth: int, *, lazy: bool = False) -> Attribute:
        start, end = span
        if kind == TENSOR:
            tensor = read_tensor(self.buffer, start, end, self.files, self.label)
            return tensor if lazy else tensor.array()
        if kind == GRAPH:
            return self.graph(start, end, depth + 1)
        if kind == SPARSE_TENSOR:
            return read_sparse(self.buffer, start, end, self.files, self.label)[1]
        return self.types.type(start, end, name, depth + 1)
