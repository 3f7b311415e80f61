"""Types as ONNX stores them: ValueInfoProto and TypeProto."""

from __future__ import annotations

from intarsia.errors import InvalidModelError, InvalidProtobuf
from intarsia.graph.dims import PLACEHOLDERS, Dim, Expr, Shape, fresh_symbol, symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.formats.protobuf_wire import MAX_DEPTH, Buffer, Span, fields, place, signed, text
from intarsia.graph.model import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Value, ValueType

_BY_NUMBER = {int(dtype): dtype for dtype in DType}
_CACHED_NBYTES = 512  # encoded types up to this size are remembered


class Symbols:
    """The symbols of one model's dimensions: equal names give one symbol. `fresh` counts those that are equal to no other."""

    def __init__(self) -> None:
        self._named: dict[str, Expr] = {}
        self.fresh = 0

    def named(self, name: str, stem: str) -> Expr:
        """The symbol of a dimension's name; of "", and of names that mean nothing, a fresh one, called after `stem`."""
        if not name or name in PLACEHOLDERS:
            self.fresh += 1
            return fresh_symbol(name or stem)
        found = self._named.get(name)
        if found is None:
            found = self._named[name] = symbol(name)
        return found


def dtype_numbered(number: int, name: str) -> DType:
    """The element type with a number of `TensorProto.DataType`. Raises InvalidModelError, for the value `name`."""
    dtype = _BY_NUMBER.get(number)
    if dtype is None:
        raise InvalidModelError(
            f"type of {name!r}: element type {number} is unknown, expected a TensorProto.DataType of 1 to {max(_BY_NUMBER)}"
        )
    return dtype


class TypeReader:
    """Reads types; equal encodings without unnamed dimensions are read once."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self._symbols = Symbols()
        self._types: dict[bytes, ValueType | None] = {}

    def value_info(self, start: int, end: int, depth: int) -> Value:
        buffer = self.buffer
        name = doc = ""
        span: Span | None = None
        for tag, a, b in fields(buffer, start, end, "ValueInfoProto"):
            if tag == 0x0A:
                name = buffer[a:b].decode()
            elif tag == 0x12:
                span = (a, b)
            elif tag == 0x1A:
                doc = buffer[a:b].decode(errors="replace")
        if not name:
            raise InvalidProtobuf(f"the ValueInfoProto at byte {place(buffer, start)} has no name")
        return Value(name, self.type(*span, name, depth + 1) if span is not None else None, doc)

    def type(self, start: int, end: int, name: str, depth: int) -> ValueType | None:
        """The TypeProto in `buffer[start:end]` of the value `name`; None where it says nothing (or is opaque)."""
        if end - start > _CACHED_NBYTES:
            return self._type(start, end, name, depth)
        encoded = self.buffer[start:end]
        if encoded in self._types:
            return self._types[encoded]
        fresh = self._symbols.fresh
        found = self._type(start, end, name, depth)
        if fresh == self._symbols.fresh:
            self._types[encoded] = found
        return found

    def _type(self, start: int, end: int, name: str, depth: int) -> ValueType | None:
        if depth > MAX_DEPTH:
            raise InvalidProtobuf(f"type of {name!r} at byte {place(self.buffer, start)}: nested in over {MAX_DEPTH} messages")
        found: ValueType | None = None
        for tag, a, b in fields(self.buffer, start, end, "TypeProto"):
            if tag == 0x0A:
                found = TensorType(*self._tensor(a, b, name))
            elif tag == 0x22:
                found = SequenceType(self._element(a, b, name, depth))
            elif tag == 0x4A:
                found = OptionalType(self._element(a, b, name, depth))
            elif tag == 0x42:
                found = SparseTensorType(*self._tensor(a, b, name))
            elif tag == 0x2A:
                found = self._map(a, b, name, depth)
        return found

    def _tensor(self, start: int, end: int, name: str) -> tuple[DType, Shape | None]:
        dtype, shape = DType.UNDEFINED, None
        for tag, a, b in fields(self.buffer, start, end, "TypeProto.Tensor"):
            if tag == 0x08:
                dtype = dtype_numbered(a, name)
            elif tag == 0x12:
                shape = self._shape(a, b, name)
        return dtype, shape

    def _shape(self, start: int, end: int, name: str) -> Shape:
        buffer = self.buffer
        dims: list[Dim] = []
        for tag, a, b in fields(buffer, start, end, "TensorShapeProto"):
            if tag != 0x0A:
                continue
            size, param = None, ""
            for tag_, c, d in fields(buffer, a, b, "TensorShapeProto.Dimension"):
                if tag_ == 0x08:
                    size, param = (c if c < 1 << 63 else None), ""  # a negative size means "unknown" to some exporters
                elif tag_ == 0x12:
                    size, param = None, text(buffer, c, d)
            dims.append(size if size is not None else self._symbols.named(param, f"{name}_d{len(dims)}"))
        return tuple(dims)

    def _element(self, start: int, end: int, name: str, depth: int) -> ValueType | None:
        for tag, a, b in fields(self.buffer, start, end, "TypeProto"):
            if tag == 0x0A:
                return self.type(a, b, name, depth + 2)
        return None

    def _map(self, start: int, end: int, name: str, depth: int) -> MapType:
        key, value = DType.UNDEFINED, None
        for tag, a, b in fields(self.buffer, start, end, "TypeProto.Map"):
            if tag == 0x08:
                key = dtype_numbered(signed(a), name)
            elif tag == 0x12:
                value = self.type(a, b, name, depth + 2)
        return MapType(key, value)
