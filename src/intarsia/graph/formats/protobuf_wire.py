"""Protobuf's wire format, as far as ONNX uses it: reading in place and writing without copies.

A message is a run of (tag, payload) pairs; a tag is `field number << 3 | wire type`. `fields` walks one message and
leaves the meaning of the payloads to its caller, which compares whole tags, so that unknown fields (and known numbers
with another wire type) are skipped as the specification requires: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from intarsia.errors import InvalidProtobuf
from intarsia.graph.formats.file_bytes import FileBytes


class Region(bytes):
    """Bytes of a longer buffer. `base`: where they begin in it; `whole_nbytes`: its size. Messages count from its beginning."""

    base: int
    whole_nbytes: int

    @staticmethod
    def of(data: bytes, base: int, whole_nbytes: int) -> Region:
        found = Region(data)
        found.base, found.whole_nbytes = base, whole_nbytes
        return found

    def part(self, start: int, end: int) -> Region:
        """Bytes of it that do not keep the others in memory."""
        found = Region(self[start:end])
        found.base, found.whole_nbytes = self.base + start, self.whole_nbytes
        return found


Buffer = bytes | mmap.mmap | FileBytes  # memory or a file; all give an int for `buffer[i]` and bytes for `buffer[a:b]`
Span = tuple[int, int]  # where a payload lies in its buffer: first byte, byte after the last

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_DEPTH = 100  # nested messages; protobuf's own readers stop there too
_PAYLOAD_LIMIT = 1 << 63
_SMALL_PACKED = 48  # below this many bytes a Python loop is faster than NumPy
_CUT = -1  # instead of a tag
_LEAST_BLOCK_NBYTES, _MOST_BLOCK_NBYTES = 1 << 14, 1 << 18  # of a file, read at once
_IN_BLOCK_NBYTES = 1 << 12  # longer fields stay in the file, of which only what is requested is read


def place(buffer: Buffer, position: int) -> int:
    """A position as messages tell it: from the beginning of what the buffer is a part of."""
    return position + buffer.base if isinstance(buffer, Region) else position


def _whole_nbytes(buffer: Buffer) -> int:
    return buffer.whole_nbytes if isinstance(buffer, Region) else len(buffer)


def region(buffer: Buffer, start: int, end: int) -> Region | None:
    """`buffer[start:end]` of a file in memory; None where it is there already, or is long."""
    if not isinstance(buffer, FileBytes) or end - start > _MOST_BLOCK_NBYTES:
        return None
    return Region.of(buffer.read(start, end - start), start, len(buffer))


def located_fields(buffer: Buffer, start: int, end: int, message: str) -> Iterator[tuple[Buffer, int, int, int]]:
    """`fields` of a message of many: (buffer, tag, first, last). Of a file, short ones lie in a `Region` that is in memory."""
    if not isinstance(buffer, FileBytes):
        for tag, first, last in fields(buffer, start, end, message):
            yield buffer, tag, first, last
        return
    block = 4 * _LEAST_BLOCK_NBYTES
    while start < end:
        part = Region.of(buffer.read(start, min(block, end - start)), start, len(buffer))
        block, done = min(2 * block, _MOST_BLOCK_NBYTES), len(part)
        for tag, first, last in fields(part, 0, len(part), message, cut=True):
            if tag == _CUT:
                done = first
            elif last - first > _IN_BLOCK_NBYTES:
                yield buffer, tag, start + first, start + last
            else:
                yield part, tag, first, last
        if not done:  # a field that is longer than the block, or corrupt
            tag, first, done = next(fields(buffer, start, end, message))
            yield buffer, tag, first, done
            done, block = done - start, _LEAST_BLOCK_NBYTES
        start += done


def fields(
    buffer: Buffer, start: int, end: int, message: str = "message", *, cut: bool = False
) -> Iterator[tuple[int, int, int]]:
    """The fields of the message in `buffer[start:end]`.

    Yields (tag, first, last): for a varint its unsigned value (and 0), else the span of the payload.

    Args:
        cut: the message may go on behind `end`: where a field does, (-1, its beginning, 0) is the last that is given.

    Raises:
        InvalidProtobuf: the message is cut short or corrupt; says at which byte.
    """
    position = at = start
    try:
        while position < end:
            at = position
            tag = buffer[position]
            position += 1
            if tag > 0x7F:
                if buffer[position] < 0x80:  # field numbers 16 to 2047
                    tag += (buffer[position] - 1) << 7
                    position += 1
                else:
                    tag, position = varint(buffer, position - 1)
            kind = tag & 7
            if kind == 2:
                size = buffer[position]
                position += 1
                if size > 0x7F:
                    if buffer[position] < 0x80:
                        size += (buffer[position] - 1) << 7
                        position += 1
                    else:
                        size, position = varint(buffer, position - 1)
                stop = position + size
                if stop > end:
                    raise _overrun(buffer, message, tag, at, size, (position, end), cut=cut)
                yield tag, position, stop
                position = stop
            elif kind == 0:
                value = buffer[position]
                position += 1
                if value > 0x7F:
                    value, position = varint(buffer, position - 1)
                if position > end:
                    raise _overrun(buffer, message, tag, at, position - at, (at, end), cut=cut)
                yield tag, value, 0
            elif kind == 5 or kind == 1:
                stop = position + (4 if kind == 5 else 8)
                if stop > end:
                    raise _overrun(buffer, message, tag, at, stop - position, (position, end), cut=cut)
                yield tag, position, stop
                position = stop
            else:
                raise InvalidProtobuf(
                    f"corrupt {message} at byte {place(buffer, at)}: tag {tag:#x} has wire type {kind}, expected 0, 1, 2 or 5"
                )
            if tag < 8:
                raise InvalidProtobuf(f"corrupt {message} at byte {place(buffer, at)}: field number 0 is not allowed")
    except IndexError:
        if not cut:
            raise InvalidProtobuf(
                f"{message} is cut short: it ends at byte {_whole_nbytes(buffer)} inside the field at byte {place(buffer, at)}"
            ) from None
        yield _CUT, at, 0


_MOST_CUT = 1 << 44  # bytes that a field may lack because its file was cut; more are a wrong number


def _overrun(buffer: Buffer, message: str, tag: int, at: int, size: int, given: Span, *, cut: bool) -> Exception:
    """The error for the field at `at`, whose `size` bytes are more than the span that is left of its message."""
    if cut:
        return IndexError()
    field, left = f"its field {tag >> 3} at byte {place(buffer, at)}", given[1] - given[0]
    whole = _whole_nbytes(buffer)
    if place(buffer, given[1]) == whole and size < _MOST_CUT:
        return InvalidProtobuf(
            f"{message} is cut short: there are {whole:,} of at least {whole - left + size:,} bytes ({field} needs {size:,}, "
            f"and {left:,} are left): fetch or copy it again"
        )
    return InvalidProtobuf(f"corrupt {message}: {field} claims {size} bytes, but the message ends after {left}")


def view(buffer: Buffer, start: int, nbytes: int) -> np.ndarray:
    """Bytes from `start` on, uint8 [nbytes], read-only: in place, or in memory of their own where the buffer is a file."""
    if isinstance(buffer, FileBytes):
        return buffer.array(start, nbytes)
    return np.frombuffer(buffer, np.uint8, nbytes, start)


def varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The varint at `position` as an unsigned 64-bit value, and the position after it."""
    value = shift = 0
    start = position
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
        if shift > 63:
            raise InvalidProtobuf(f"corrupt varint at byte {place(buffer, start)}: it is longer than 10 bytes")


def signed(value: int) -> int:
    """An unsigned 64-bit varint value read as `int64` (protobuf writes negative numbers in ten bytes)."""
    return value - (1 << 64) if value >= _PAYLOAD_LIMIT else value


def text(buffer: Buffer, start: int, end: int) -> str:
    """The UTF-8 string in `buffer[start:end]`."""
    try:
        return buffer[start:end].decode()
    except UnicodeDecodeError as error:
        where = f"the string of {end - start} bytes at byte {place(buffer, start)}"
        raise InvalidProtobuf(f"{where} is not UTF-8: {error.reason}") from None


def text_or_bytes(buffer: Buffer, start: int, end: int) -> str | bytes:
    """A `bytes` field that usually holds text: `str` where it is UTF-8."""
    raw = buffer[start:end]
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def count_varints(buffer: Buffer, start: int, end: int) -> int:
    """How many varints the packed field has (each has one byte below 0x80)."""
    if end - start <= _SMALL_PACKED:
        return sum(byte < 0x80 for byte in buffer[start:end])
    return int(np.count_nonzero(view(buffer, start, end - start) < 0x80))


def packed_varints(buffer: Buffer, start: int, end: int) -> np.ndarray:
    """All varints of a packed field: uint64, one dimension.

    Raises:
        InvalidProtobuf: a varint is cut short or longer than 10 bytes.
    """
    if end - start <= _SMALL_PACKED:
        return np.array(list(_varints(buffer, start, end)), np.uint64)
    raw = view(buffer, start, end - start)
    last = np.flatnonzero(raw < 0x80)
    if last.size == 0 or last[-1] != raw.size - 1:
        raise _packed_cut_short(buffer, start)
    if last.size == raw.size:
        return raw.astype(np.uint64)
    first = np.empty_like(last)
    first[0] = 0
    first[1:] = last[:-1] + 1
    length = last - first + 1
    longest = int(length.max())
    if longest > 10:
        where = f"the packed numbers at byte {place(buffer, start)}"
        raise InvalidProtobuf(f"corrupt varint in {where}: it is longer than 10 bytes")
    values = (raw[first] & 0x7F).astype(np.uint64)
    for i in range(1, longest):
        longer = np.flatnonzero(length > i)
        values[longer] |= (raw[first[longer] + i] & 0x7F).astype(np.uint64) << np.uint64(7 * i)
    return values


def _varints(buffer: Buffer, position: int, end: int) -> Iterator[int]:
    start = position
    while position < end:
        value = buffer[position]
        position += 1
        if value > 0x7F:
            try:
                value, position = varint(buffer, position - 1)
            except IndexError:
                position = end + 1
        if position > end:
            raise _packed_cut_short(buffer, start)
        yield value


def _packed_cut_short(buffer: Buffer, start: int) -> InvalidProtobuf:
    return InvalidProtobuf(f"the packed numbers at byte {place(buffer, start)} are cut short: the last varint does not end")


def packed_ints(buffer: Buffer, start: int, end: int) -> list[int]:
    """A packed `repeated int64` field."""
    if end - start <= _SMALL_PACKED:
        return [v - (1 << 64) if v >= _PAYLOAD_LIMIT else v for v in _varints(buffer, start, end)]
    numbers: list[int] = packed_varints(buffer, start, end).view(np.int64).tolist()
    return numbers


def packed_floats(buffer: Buffer, start: int, end: int) -> list[float]:
    """A packed `repeated float` field."""
    count, rest = divmod(end - start, 4)
    if rest:
        raise InvalidProtobuf(f"corrupt packed floats at byte {place(buffer, start)}: {end - start} bytes are no multiple of 4")
    return list(struct.unpack(f"<{count}f", buffer[start:end]))


def float32(buffer: Buffer, start: int) -> float:
    value: float = _FLOAT.unpack(buffer[start : start + 4])[0]
    return value


_FLOAT = struct.Struct("<f")


class Message:
    """A message being written: a list of byte chunks, joined (or written out) only at the end.

    Embedding a message or an array's bytes appends references, so a model's weights are never copied.
    """

    __slots__ = ("chunks", "nbytes")

    def __init__(self) -> None:
        self.chunks: list[bytes | memoryview] = []
        self.nbytes = 0

    def append(self, chunk: bytes | memoryview) -> None:
        """Add fields that are encoded already."""
        self.chunks.append(chunk)
        self.nbytes += len(chunk)

    def integer(self, field: int, value: int) -> None:
        self.append(encode_varint(field << 3 | VARINT) + encode_varint(value))

    def float32(self, field: int, value: float) -> None:
        self.append(encode_varint(field << 3 | FIXED32) + _FLOAT.pack(value))

    def raw(self, field: int, value: bytes | memoryview) -> None:
        self.append(encode_varint(field << 3 | BYTES) + encode_varint(len(value)))
        if len(value):
            self.append(value)

    def string(self, field: int, value: str | bytes) -> None:
        self.raw(field, value.encode() if isinstance(value, str) else value)

    def strings(self, field: int, values: Iterable[str | bytes]) -> None:
        for value in values:
            self.string(field, value)

    def packed_integers(self, field: int, values: Sequence[int]) -> None:
        self.raw(field, b"".join(map(encode_varint, values)))

    def message(self, field: int, value: Message) -> None:
        self.append(encode_varint(field << 3 | BYTES) + encode_varint(value.nbytes))
        self.chunks += value.chunks
        self.nbytes += value.nbytes

    def join(self) -> bytes:
        return b"".join(self.chunks)


_ONE_BYTE = tuple(bytes([i]) for i in range(0x80))


def encode_varint(value: int) -> bytes:
    """The bytes of an unsigned or (in ten bytes) negative 64-bit integer."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
