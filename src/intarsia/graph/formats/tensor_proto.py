"""Tensors as ONNX stores them: TensorProto and SparseTensorProto, read in place."""

from __future__ import annotations

import math
from array import array

import numpy as np

from intarsia.errors import InvalidGraph, InvalidModelError, InvalidProtobuf
from intarsia.graph.dims import format_shape
from intarsia.graph.dtypes import DType
from intarsia.graph.formats.external_data import ExternalFiles
from intarsia.graph.formats.file_bytes import FileBytes
from intarsia.graph.formats.protobuf_wire import (
    Buffer,
    Region,
    Span,
    count_varints,
    fields,
    packed_ints,
    packed_varints,
    place,
    signed,
    text,
    text_or_bytes,
    view,
)
from intarsia.graph.leniency import overlook
from intarsia.graph.model import Constant, SparseTensor
from intarsia.printable import get_logger

MAX_RANK = 32  # of any tensor (decision 0137)
MAX_DENSIFIED_NBYTES = 1 << 31  # a sparse tensor is a few bytes in the file, whatever its dense size

_logger = get_logger(__name__)
_MOST_NBYTES = 1 << 16  # what a constant reads of a file is retained up to this

_BY_NUMBER = {int(dtype): dtype for dtype in DType}
_BITS = {int(dtype): dtype.bits for dtype in DType if dtype not in (DType.UNDEFINED, DType.STRING)}

_FLOATS, _INT32, _STRINGS, _INT64, _RAW, _DOUBLES, _UINT64 = 4, 5, 6, 7, 9, 10, 11  # field numbers of the data
_FIELD_NAMES = {
    _FLOATS: "float_data", _INT32: "int32_data", _STRINGS: "string_data", _INT64: "int64_data", _RAW: "raw_data",
    _DOUBLES: "double_data", _UINT64: "uint64_data",
}  # fmt: skip
_DATA_FIELD = {
    DType.FLOAT: _FLOATS, DType.COMPLEX64: _FLOATS, DType.DOUBLE: _DOUBLES, DType.COMPLEX128: _DOUBLES,
    DType.INT64: _INT64, DType.UINT32: _UINT64, DType.UINT64: _UINT64, DType.STRING: _STRINGS,
}  # fmt: skip


class StoredTensor:
    """A TensorProto whose header is read and checked, and whose data is still in its buffer."""

    __slots__ = ("buffer", "count", "dtype", "field", "location", "loose", "name", "shape", "source", "spans", "start")

    def __init__(self, buffer: Buffer, start: int, label: str) -> None:
        self.buffer, self.start, self.source = buffer, place(buffer, start), label
        self.name = ""
        self.dtype = DType.UNDEFINED
        self.shape: tuple[int, ...] = ()
        self.count = 1
        self.field = 0
        self.spans: list[Span] = []
        self.location = ""  # of a file of its own, relative to the model's folder
        self.loose: array[int] | None = None  # unpacked numbers, or start and end of each string

    def error(self, problem: str) -> InvalidModelError:
        return InvalidModelError(f"{self.source}: tensor {self.name!r} at byte {self.start}: {problem}")

    def constant(self, name: str | None = None) -> Constant:
        source = f"{self.source} at byte {self.start}"
        name, retained = self.name if name is None else name, not self._is_read_again
        made = Constant(name, self.dtype, self.shape, self.array, source, retained)
        if self.location and len(self.spans) == 1:
            (start, end) = self.spans[0]
            made.place = (self.location, start, end - start)
        if not retained and len(self.shape) == 2:
            made.read_row = self.read_row
        return made

    def read_row(self, row: int, room: np.ndarray) -> None:
        """Fill `room` with a row of a matrix that lies in a file as it is in memory. Raises as `FileBytes.array`."""
        assert isinstance(self.buffer, FileBytes)
        self.buffer.read_into(self.spans[0][0] + row * room.nbytes, room.view(np.uint8).data)

    @property
    def _is_read_again(self) -> bool:
        """Whether the data is large, and as it is in a file: reading it takes less than keeping it."""
        if not isinstance(self.buffer, FileBytes) or len(self.spans) != 1 or self.spans[0][1] - self.spans[0][0] < _MOST_NBYTES:
            return False
        return self.field in (_FLOATS, _DOUBLES) or (self.field == _RAW and self.dtype.bits >= 8)

    def array(self) -> np.ndarray:
        """The data as a read-only array of `shape`: a view of the buffer where NumPy's layout is ONNX's."""
        if self.dtype is DType.STRING:
            out = self._strings()
        elif self.count == 0:
            out = np.empty(self.shape, self.dtype.numpy)
        elif self.field == _RAW:
            out = self._raw()
        else:
            try:
                out = self._typed()
            except InvalidProtobuf as error:
                raise self.error(str(error)) from None
        out.flags.writeable = False
        return out

    def _raw(self) -> np.ndarray:
        (start, end), dtype = self.spans[0], self.dtype
        if dtype.bits < 8:
            packed = view(self.buffer, start, end - start)
            return unpack_bits(packed, dtype, self.count).reshape(self.shape)
        if dtype is DType.BOOL:
            codes = view(self.buffer, start, self.count)
            return np.reshape(codes.view(np.bool_) if int(codes.max()) <= 1 else codes != 0, self.shape)
        return view(self.buffer, start, end - start).view(dtype.numpy).reshape(self.shape)

    def _strings(self) -> np.ndarray:
        out = np.empty(self.count, object)
        if self.loose is not None:
            ends = iter(self.loose)
            for i, (start, end) in enumerate(zip(ends, ends, strict=True)):
                out[i] = text_or_bytes(self.buffer, start, end)
        return out.reshape(self.shape)

    def _typed(self) -> np.ndarray:
        dtype = self.dtype
        if self.field in (_FLOATS, _DOUBLES):
            return self._floats().view(dtype.numpy).reshape(self.shape)
        if self.loose is not None:
            values = np.frombuffer(self.loose, np.uint64)
        else:
            parts = [packed_varints(self.buffer, start, end) for start, end in self.spans]
            values = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if dtype is DType.BOOL:
            return np.not_equal(values, 0).reshape(self.shape)
        if dtype.bits in (2, 4):
            return unpack_bits(values.astype(np.uint8), dtype, self.count).reshape(self.shape)
        width = max(1, dtype.bits // 8)
        return values.astype(f"u{width}").view(dtype.numpy).reshape(self.shape)

    def _floats(self) -> np.ndarray:
        stored = np.dtype(np.float32 if self.field == _FLOATS else np.float64)
        if self.loose is not None:
            return np.frombuffer(self.loose, np.uint64).astype(f"u{stored.itemsize}").view(stored)
        parts = [view(self.buffer, a, b - a).view(stored) for a, b in self.spans if b > a]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _check_header(self, number: int, dims: list[int]) -> None:
        if number not in _BY_NUMBER or number == 0:
            raise self.error(f"element type {number} is unknown, expected a TensorProto.DataType of 1 to {max(_BY_NUMBER)}")
        self.dtype = _BY_NUMBER[number]
        self.shape = tuple(dims)
        if len(dims) > MAX_RANK:
            raise self.error(f"it has {len(dims)} dimensions, at most {MAX_RANK} are supported")
        if dims:
            if min(dims) < 0:
                raise self.error(f"dimensions {format_shape(dims)} contain a negative size")
            self.count = math.prod(dims)
            if math.prod(d or 1 for d in dims) > 1 << 56:  # NumPy counts bytes in 63 bits, for empty arrays too
                raise self.error(f"dimensions {format_shape(dims)} are too large for any memory")

    def _check_data(self) -> None:
        """Refuse data whose amount differs from what the shape needs, before anything is allocated for it."""
        described = f"{self.dtype.onnx_name}{format_shape(self.shape)}"
        if self.field == 0:
            if self.count:
                raise self.error(f"{described} has no data")
            return
        name = _FIELD_NAMES[self.field]
        if self.field == _RAW:
            if self.dtype is DType.STRING:
                raise self.error("strings cannot be stored in raw_data, expected string_data")
            needed, given, unit = (self.count * _BITS[self.dtype] + 7) // 8, self.spans[0][1] - self.spans[0][0], "bytes"
        else:
            expected = _DATA_FIELD.get(self.dtype, _INT32)
            if self.field != expected:
                raise self.error(f"{described} is stored in {name}, expected {_FIELD_NAMES[expected]} or raw_data")
            needed, given, unit = self._needed_entries(), self._given_entries(), "entries"
        if needed != given:
            raise self.error(f"{described} needs {needed} {unit} of {name}, it has {given}")

    def _needed_entries(self) -> int:
        if self.dtype in (DType.COMPLEX64, DType.COMPLEX128):
            return 2 * self.count
        bits = 8 if self.dtype is DType.STRING else _BITS[self.dtype]
        return -(-self.count // (8 // bits)) if bits in (2, 4) else self.count

    def _given_entries(self) -> int:
        if self.loose is not None:
            if self.spans:
                raise self.error(f"{_FIELD_NAMES[self.field]} is stored both packed and unpacked")
            return len(self.loose) // (2 if self.field == _STRINGS else 1)
        if self.field in (_FLOATS, _DOUBLES):
            width = 4 if self.field == _FLOATS else 8
            if any((end - start) % width for start, end in self.spans):
                raise self.error(f"the bytes of {_FIELD_NAMES[self.field]} are no multiple of {width}")
            return sum(end - start for start, end in self.spans) // width
        return sum(count_varints(self.buffer, start, end) for start, end in self.spans)


_LOOSE_TAGS = {
    _FLOATS << 3 | 5: _FLOATS, _INT32 << 3: _INT32, _INT64 << 3: _INT64, _DOUBLES << 3 | 1: _DOUBLES,
    _UINT64 << 3: _UINT64, _STRINGS << 3 | 2: _STRINGS,
}  # fmt: skip
_PACKED_TAGS = {
    _FLOATS << 3 | 2: _FLOATS, _INT32 << 3 | 2: _INT32, _INT64 << 3 | 2: _INT64, _DOUBLES << 3 | 2: _DOUBLES,
    _UINT64 << 3 | 2: _UINT64,
}  # fmt: skip


def read_tensor(buffer: Buffer, start: int, end: int, files: ExternalFiles, label: str) -> StoredTensor:
    """The TensorProto in `buffer[start:end]`; its data is not read yet.

    Raises:
        InvalidModelError: unknown element type, negative or impossible dimensions, or data that does not fit them.
        ExternalDataError: the file that holds its data is missing, too short or outside the model's folder.
    """
    if isinstance(buffer, Region):
        buffer, start, end = buffer.part(start, end), 0, end - start
    tensor = StoredTensor(buffer, start, label)
    dims: list[int] = []
    number = location = 0
    external: dict[str, str] = {}
    for tag, a, b in fields(buffer, start, end, "TensorProto"):
        if tag == 0x08:
            dims.append(signed(a))
        elif tag == 0x10:
            number = a
        elif tag == 0x42:
            tensor.name = text(buffer, a, b)
        elif tag == 0x4A:
            tensor.field, tensor.spans = _RAW, [(a, b)]
        elif tag in _PACKED_TAGS:
            _add_span(tensor, _PACKED_TAGS[tag], (a, b))
        elif tag in _LOOSE_TAGS:
            _add_loose(tensor, tag, a, b)
        elif tag == 0x0A:
            dims += packed_ints(buffer, a, b)
        elif tag == 0x6A:
            key, value = read_entry(buffer, a, b)
            external[key] = value
        elif tag == 0x70:
            location = a
        elif tag == 0x1A:
            raise tensor.error("it is stored in segments, which are not supported: save the whole tensor in one piece")
    tensor._check_header(number, dims)
    if location == 1:
        _attach_external(tensor, external, files)
    else:
        tensor._check_data()
    return tensor


def stored_tensor(
    buffer: Buffer, start: int, label: str, name: str, number: int, dims: list[int], raw: Span, strings: list[Span]
) -> StoredTensor:
    """A tensor that another format than TensorProto describes, its bytes as `raw_data` has them, or its strings.

    Args:
        start: where it is described, for messages.
        number: its element type, of `TensorProto.DataType`.

    Raises:
        InvalidModelError: as `read_tensor`.
    """
    tensor = StoredTensor(buffer, start, label)
    tensor.name = name
    tensor._check_header(number, dims)
    if tensor.dtype is DType.STRING:
        tensor.field, tensor.loose = _STRINGS, array("Q", [place for span in strings for place in span])
    else:
        tensor.field, tensor.spans = _RAW, [raw]
    tensor._check_data()
    return tensor


def _add_span(tensor: StoredTensor, field: int, span: Span) -> None:
    if tensor.field not in (0, field):
        if span[0] == span[1]:
            return
        if any(b > a for a, b in tensor.spans):
            raise tensor.error(f"its data is stored twice, in {_FIELD_NAMES[tensor.field]} and in {_FIELD_NAMES[field]}")
        tensor.spans = []
    tensor.field = field
    tensor.spans.append(span)


def _add_loose(tensor: StoredTensor, tag: int, a: int, b: int) -> None:
    field = _LOOSE_TAGS[tag]
    if tensor.field not in (0, field):
        raise tensor.error(f"its data is stored twice, in {_FIELD_NAMES[tensor.field]} and in {_FIELD_NAMES[field]}")
    tensor.field = field
    if tensor.loose is None:
        tensor.loose = array("Q")
    if field == _STRINGS:
        tensor.loose.append(a)
        tensor.loose.append(b)
    else:
        tensor.loose.append(a if tag & 7 == 0 else int.from_bytes(tensor.buffer[a:b], "little"))


def _attach_external(tensor: StoredTensor, external: dict[str, str], files: ExternalFiles) -> None:
    if tensor.dtype is DType.STRING:
        raise tensor.error("strings cannot be stored as external data, expected string_data")
    needed = (tensor.count * _BITS[tensor.dtype] + 7) // 8
    tensor.buffer, offset = files.view(tensor.name, external, needed)
    tensor.source, tensor.start, tensor.location = external["location"], offset, external["location"]
    tensor.field, tensor.loose, tensor.spans = _RAW, None, [(offset, offset + needed)]


def read_entry(buffer: Buffer, start: int, end: int) -> tuple[str, str]:
    """A StringStringEntryProto."""
    key = value = ""
    for tag, a, b in fields(buffer, start, end, "StringStringEntryProto"):
        if tag == 0x0A:
            key = buffer[a:b].decode()
        elif tag == 0x12:
            value = buffer[a:b].decode()
    return key, value


def unpack_bits(packed: np.ndarray, dtype: DType, count: int) -> np.ndarray:
    """The `count` elements of a 2-, 4- or 6-bit type that the bytes of `packed` hold, first element in the lowest bits."""
    bits = dtype.bits
    if bits == 6:  # four elements in three bytes
        groups = np.zeros((-(-count // 4), 3), np.uint8)
        groups.reshape(-1)[: packed.size] = packed
        word = groups[:, 0] | groups[:, 1].astype(np.uint32) << 8 | groups[:, 2].astype(np.uint32) << 16
        codes = np.stack([(word >> shift & 0x3F).astype(np.uint8) for shift in (0, 6, 12, 18)], axis=-1)
    else:
        codes = np.stack([packed >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)], axis=-1)
    return codes.reshape(-1)[:count].view(dtype.numpy)


def pack_bits(values: np.ndarray, dtype: DType) -> np.ndarray:
    """The inverse of `unpack_bits`: uint8 bytes, the last one filled up with zero bits."""
    bits = dtype.bits
    codes = np.ascontiguousarray(values).reshape(-1).view(np.uint8) & np.uint8((1 << bits) - 1)
    per_group = 4 if bits == 6 else 8 // bits
    nbytes = (codes.size * bits + 7) // 8
    lanes = np.zeros((-(-codes.size // per_group), per_group), np.uint8)
    lanes.reshape(-1)[: codes.size] = codes
    if bits == 6:
        a, b, c, d = lanes.T
        out = np.stack([a | b << 6, b >> 2 | c << 4, c >> 4 | d << 2], axis=-1)
    else:
        out = np.bitwise_or.reduce(lanes << np.arange(0, 8, bits, dtype=np.uint8), axis=1)
    return out.reshape(-1)[:nbytes]


def read_sparse(buffer: Buffer, start: int, end: int, files: ExternalFiles, label: str) -> tuple[str, SparseTensor]:
    """The SparseTensorProto in `buffer[start:end]` and its name (the name of its values).

    Raises:
        InvalidModelError: values, indices and dims do not fit together.
    """
    parts: dict[int, StoredTensor] = {}
    dims: list[int] = []
    for tag, a, b in fields(buffer, start, end, "SparseTensorProto"):
        if tag in (0x0A, 0x12):
            parts[tag] = read_tensor(buffer, a, b, files, label)
        elif tag == 0x18:
            dims.append(signed(a))
        elif tag == 0x1A:
            dims += packed_ints(buffer, a, b)
    if 0x0A not in parts:
        raise InvalidModelError(f"{label}: sparse tensor at byte {place(buffer, start)} has no values")
    indices = parts[0x12].array() if 0x12 in parts else np.empty(0, np.int64)
    return parts[0x0A].name, sparse_tensor(parts[0x0A], indices, dims)


def sparse_tensor(values: StoredTensor, indices: np.ndarray, dims: list[int]) -> SparseTensor:
    """Raises InvalidModelError where values, indices and dims do not fit together."""
    _check_sparse(values, indices, dims)
    return SparseTensor(values.array(), indices, tuple(dims))


def _check_sparse(values: StoredTensor, indices: np.ndarray, dims: list[int]) -> None:
    if not dims or min(dims) < 0:
        raise values.error(f"sparse tensor dimensions are {format_shape(dims)}, expected one or more sizes")
    size = math.prod(dims)
    if values.dtype is DType.STRING or len(values.shape) != 1:
        given = f"{values.dtype.onnx_name}{format_shape(values.shape)}"
        raise values.error(f"sparse tensor values are {given}, expected numbers in one dimension")
    if size * max(8, values.dtype.bits) // 8 > MAX_DENSIFIED_NBYTES:
        raise values.error(f"sparse tensor {format_shape(dims)} is over {MAX_DENSIFIED_NBYTES} bytes when dense")
    nnz, rank = values.count, len(dims)
    if indices.dtype != np.int64 or indices.shape not in ((nnz,), (nnz, rank)):
        shapes = f"int64[{nnz}] or int64[{nnz}, {rank}]"
        raise values.error(f"sparse tensor indices are {indices.dtype}{format_shape(indices.shape)}, expected {shapes}")
    limits = np.array([size] if indices.ndim == 1 else dims, np.int64)
    if nnz and bool(((indices < 0) | (indices >= limits)).any()):
        raise values.error(f"a sparse tensor index lies outside {format_shape(dims)}")


def densified(name: str, sparse: SparseTensor, source: str) -> Constant:
    """A sparse tensor as a dense constant, filled in when it is first read."""

    def dense() -> np.ndarray:
        out = np.zeros(sparse.dims, sparse.values.dtype)
        if sparse.indices.ndim == 1:
            out.reshape(-1)[sparse.indices] = sparse.values
        else:
            out[tuple(sparse.indices.T)] = sparse.values
        out.flags.writeable = False
        return out

    return Constant(name, DType.of(sparse.values.dtype), sparse.dims, dense, source)


def add_constant(constants: dict[str, Constant], constant: Constant) -> None:
    """Add a constant of a model. Of several of one name the last counts, as in onnxruntime, and a warning says so.

    Raises:
        InvalidGraph: it has no name.
    """
    if not constant.name:
        raise InvalidGraph(f"the constant from {constant.source} has no name")
    before = constants.get(constant.name)
    if before is not None:
        twice = f"the constant {constant.name!r} is defined twice, by {before.source} and by {constant.source}"
        overlook(_logger, f"{twice}: the latter counts; name one of them otherwise")
    constants[constant.name] = constant
