"""Tables of a FlatBuffers buffer, read in place. The encoding: https://flatbuffers.dev/internals.

A table's fields are found through its vtable, by their number in the schema; what is left out has a default. All positions
are checked; sub-tables, vectors and strings lie behind what refers to them, so that no table can contain itself. Many may refer
to one, which writers do with short texts: what is read altogether is limited in proportion to the buffer.
"""

from __future__ import annotations

import struct

import numpy as np

from intarsia.graph.formats.protobuf_wire import Buffer, Span, text, view

_MOST_READ = 4  # times the buffer's bytes: in vectors
_TEXT_SHARE = 64  # by as much less a text counts, since writers may share these


class FlatTable:
    """One table. `left`: how much may still be read of its buffer, for all tables of a root.

    Its methods take the number of a field.

    Raises:
        IndexError: a position lies outside the buffer, or more is read than any proper buffer has.
        UnicodeDecodeError: a string is not UTF-8.
    """

    __slots__ = ("buffer", "left", "place")

    def __init__(self, buffer: Buffer, place: int, left: list[int]) -> None:
        self.buffer, self.place, self.left = buffer, place, left

    @staticmethod
    def root(buffer: Buffer) -> FlatTable:
        return FlatTable(buffer, _target(buffer, 0), [_MOST_READ * _TEXT_SHARE * len(buffer)])

    def scalar(self, number: int, code: str, default: float = 0) -> int | float:
        """A number; `code` is its format for `struct`: "i" for int32, "q" for int64."""
        place = self._field(number)
        return _read(self.buffer, place, code) if place else default

    def integer(self, number: int, code: str = "i", default: int = 0) -> int:
        return int(self.scalar(number, code, default))

    def span(self, number: int, item_nbytes: int = 1) -> Span:
        """Begin and end of a vector's items, (0, 0) where it is left out."""
        place = self._field(number)
        if not place:
            return 0, 0
        start = _target(self.buffer, place) + 4
        end = start + int(_read(self.buffer, start - 4, "I")) * item_nbytes
        if end > len(self.buffer):
            raise IndexError(f"a vector at byte {start - 4} ends at byte {end} of {len(self.buffer)}")
        self._take((end - start) * _TEXT_SHARE, start)
        return start, end

    def _take(self, amount: int, place: int) -> None:
        self.left[0] -= amount
        if self.left[0] < 0:
            raise IndexError(f"byte {place} and others are read again and again: more than {_MOST_READ} times the buffer")

    def spans(self, number: int) -> list[Span]:
        """Begin and end of each string of a vector of strings."""
        places = range(*self.span(number, 4), 4)
        return [self._text_span(_target(self.buffer, place)) for place in places]

    def text(self, number: int) -> str:
        """A string, "" where it is left out."""
        place = self._field(number)
        return text(self.buffer, *self._text_span(_target(self.buffer, place))) if place else ""

    def texts(self, number: int) -> list[str]:
        return [text(self.buffer, a, b) for a, b in self.spans(number)]

    def numbers(self, number: int, dtype: str) -> np.ndarray:
        """A vector of numbers, shape [n]; `dtype` is NumPy's name of a little-endian type: "<i8"."""
        width = np.dtype(dtype).itemsize
        start, end = self.span(number, width)
        return view(self.buffer, start, end - start).view(dtype) if end > start else np.empty(0, dtype)

    def table(self, number: int) -> FlatTable | None:
        place = self._field(number)
        return FlatTable(self.buffer, _target(self.buffer, place), self.left) if place else None

    def tables(self, number: int) -> list[FlatTable]:
        places = range(*self.span(number, 4), 4)
        return [FlatTable(self.buffer, _target(self.buffer, place), self.left) for place in places]

    def _text_span(self, place: int) -> Span:
        end = place + 4 + int(_read(self.buffer, place, "I"))
        if end > len(self.buffer):
            raise IndexError(f"a string at byte {place} ends at byte {end} of {len(self.buffer)}")
        self._take(end - place, place)
        return place + 4, end

    def _field(self, number: int) -> int:
        """Where the field is, 0 where it is left out."""
        vtable = self.place - int(_read(self.buffer, self.place, "i"))
        if 4 + 2 * number >= _read(self.buffer, vtable, "H"):
            return 0
        offset = int(_read(self.buffer, vtable + 4 + 2 * number, "H"))
        return self.place + offset if offset else 0


def _target(buffer: Buffer, place: int) -> int:
    """What the offset at `place` refers to."""
    return place + int(_read(buffer, place, "I"))


def _read(buffer: Buffer, place: int, code: str) -> int | float:
    form = _FORMS[code]
    end = place + form.size
    if place < 0 or end > len(buffer):
        raise IndexError(f"byte {place} of {len(buffer)}")
    value: int | float = form.unpack(buffer[place:end])[0]
    return value


_FORMS = {code: struct.Struct(f"<{code}") for code in "bBhHiIqQfd"}
