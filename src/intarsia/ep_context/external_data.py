"""Compiled parts that a program keeps itself: what its functions to write and read them are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from intarsia.errors import Fail, InvalidArgument


class OrtEpContextData:
    """The bytes of a compiled part: one buffer, or several that follow each other."""

    def __init__(self, data: bytes | Sequence[bytes | memoryview] = b"") -> None:
        pieces = (data,) if isinstance(data, (bytes, bytearray, memoryview)) else data
        self._pieces = [memoryview(piece).cast("B") for piece in pieces]

    @property
    def size(self) -> int:
        """Bytes of all pieces together."""
        return sum(piece.nbytes for piece in self._pieces)

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """A range of the bytes. Raises InvalidArgument where it leaves them."""
        end = self.size if length is None else offset + length
        if not 0 <= offset <= end <= self.size:
            raise InvalidArgument(f"OrtEpContextData.read: bytes {offset} to {end} of {self.size}")
        found, start = [], 0
        for piece in self._pieces:
            found.append(piece[max(offset - start, 0) : max(end - start, 0)])
            start += piece.nbytes
        return b"".join(found)


class OrtEpContextDataBuffer:
    """Memory that a program fills with the bytes of a compiled part."""

    def __init__(self, max_size: int = 1 << 31) -> None:
        self.max_size = max_size
        self._data: bytearray | None = None

    @property
    def is_allocated(self) -> bool:
        """Whether there is memory behind it."""
        return self._data is not None

    @property
    def size(self) -> int:
        """Its bytes; 0 where there is no memory behind it."""
        return len(self._data) if self._data is not None else 0

    def allocate(self, size: int) -> None:
        """Make room for `size` bytes. Raises InvalidArgument for a second time or too many."""
        if self._data is not None or not 0 <= size <= self.max_size:
            raise InvalidArgument(f"OrtEpContextDataBuffer.allocate: once, and at most {self.max_size} bytes; got {size}")
        self._data = bytearray(size)

    def write(self, data: Any, offset: int = 0) -> None:
        """Write bytes at an offset. Raises InvalidArgument where they do not fit."""
        view = memoryview(data).cast("B")
        if self._data is None or not 0 <= offset <= offset + len(view) <= len(self._data):
            raise InvalidArgument(f"OrtEpContextDataBuffer.write: {len(view)} bytes at {offset} do not fit {self.size}")
        self._data[offset : offset + len(view)] = view

    def content(self) -> memoryview:
        """What was written. Raises InvalidArgument where nothing was allocated."""
        if self._data is None:
            raise InvalidArgument("OrtEpContextDataBuffer: expected a call of allocate(size), got none")
        return memoryview(self._data)


WriteFunction = Callable[[str, OrtEpContextData], object]
ReadFunction = Callable[[str, OrtEpContextDataBuffer], object]


def given(write: WriteFunction, name: str, pieces: Sequence[bytes | memoryview]) -> None:
    """Call the program's function with one compiled part. Raises Fail where it raises."""
    try:
        write(name, OrtEpContextData(pieces))
    except Exception as error:
        raise Fail(
            f"compiled part {name!r}: {type(error).__name__}: {error} (raised by the function given to "
            "set_ep_context_data_write_func)"
        ) from error


def taken(read: ReadFunction, most: int, name: str) -> memoryview:
    """The bytes of one compiled part from the program's function. Raises Fail where it raises, or allocates nothing."""
    buffer = OrtEpContextDataBuffer(most)
    try:
        read(name, buffer)
        return buffer.content()
    except Exception as error:
        raise Fail(
            f"compiled part {name!r}: {type(error).__name__}: {error} (raised by the function given to "
            "set_ep_context_data_read_func)"
        ) from error
