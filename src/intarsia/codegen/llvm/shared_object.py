"""Linked code (`link_objects`) as a shared library of Linux, for programs that want a file by `dlopen`.

A file of ELF's kind ET_DYN: what exports are called, code, and data that is written, each on pages of its own with its own
rights. It needs no other library and no place in memory of its own: code that calls libc, or that holds its own address, is
refused.

Reference: ELF-64 object file format; System V ABI, chapter 5 (dynamic section, hash table).
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence

from intarsia.codegen.llvm.linked_image import read
from intarsia.errors import EPFail
from intarsia.lazy_dataclass import dataclass

_PAGE = 1 << 12  # of x86-64
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<QQ")
_IDENT = b"\x7fELF\x02\x01\x01" + bytes(9)
_SHARED, _X86_64 = 3, 62
_LOAD, _DYNAMIC_PART, _STACK = 1, 2, 0x6474E551
_EXECUTE, _WRITE, _READ = 1, 2, 4
_GLOBAL_FUNCTION, _GLOBAL_DATA = 0x12, 0x11
_ANY_SECTION = 1  # the file has none: any number but 0 (undefined)
_HASH, _STRTAB, _SYMTAB, _STRSZ, _SYMENT, _SONAME = 4, 5, 6, 10, 11, 14


@dataclass(frozen=True)
class _Range:
    """Pages of the code with the same rights."""

    start: int
    end: int
    rights: int


def shared_object(linked: bytes, name: str) -> bytes:
    """The bytes of a shared library called `name`, with the exports of `linked`.

    Raises:
        EPFail: the code needs other libraries, or its own address.
    """
    table, code = read(linked)
    if table is None or table["imports"] or table["own"]:
        raise EPFail(f"{name}: code of a shared library must be position-independent and call nothing outside")
    ranges = list(_ranges(len(code), sorted(table["written"])))
    names, places = _names([name, *table["exports"]])
    count = len(table["exports"]) + 1
    symbols = bytearray(_SYMBOL.size)
    hashed = struct.pack(f"<{3 + count}I", 1, count, min(1, count - 1), *_chain(count))
    first = _HEADER.size + _PROGRAM.size * (len(ranges) + 4)
    at_symbols = _aligned(first + len(hashed), 8)
    at_names = at_symbols + _SYMBOL.size * count
    base = _aligned(at_names + len(names), _PAGE)
    for export, offset in table["exports"].items():
        written = any(r.start <= offset < r.end and r.rights & _WRITE for r in ranges)
        kind = _GLOBAL_DATA if written else _GLOBAL_FUNCTION
        symbols += _SYMBOL.pack(places[export], kind, 0, _ANY_SECTION, base + offset, 8)
    at_dynamic = _aligned(base + len(code), _PAGE)
    entries = [
        (_SONAME, places[name]), (_HASH, first), (_SYMTAB, at_symbols), (_SYMENT, _SYMBOL.size), (_STRTAB, at_names),
        (_STRSZ, len(names)), (0, 0),
    ]  # fmt: skip
    dynamic = b"".join(itertools.starmap(_DYNAMIC.pack, entries))
    programs = [
        _program(_LOAD, _READ, 0, at_names + len(names)),
        *(_program(_LOAD, r.rights, base + r.start, r.end - r.start) for r in ranges),
        _program(_LOAD, _READ | _WRITE, at_dynamic, len(dynamic)),
        _program(_DYNAMIC_PART, _READ | _WRITE, at_dynamic, len(dynamic), 8),
        _program(_STACK, _READ | _WRITE, 0, 0, 16),
    ]
    sizes = (_HEADER.size, _PROGRAM.size, len(programs), 0, 0, 0)
    header = _HEADER.pack(_IDENT, _SHARED, _X86_64, 1, 0, _HEADER.size, 0, 0, *sizes)
    out = bytearray(header + b"".join(programs) + hashed)
    for place, data in ((at_symbols, symbols), (at_names, names), (base, code), (at_dynamic, dynamic)):
        out += bytes(place - len(out)) + data
    return bytes(out)


def _ranges(size: int, written: Sequence[tuple[int, int]]) -> Iterator[_Range]:
    """The code in order: what is executed, and between it what is written."""
    at = 0
    for start, end in written:
        if at < start:
            yield _Range(at, start, _READ | _EXECUTE)
        yield _Range(start, end, _READ | _WRITE)
        at = end
    if at < size:
        yield _Range(at, size, _READ | _EXECUTE)


def _names(texts: Sequence[str]) -> tuple[bytes, dict[str, int]]:
    """A table of names, and where each begins in it."""
    names, places = bytearray(b"\0"), {}
    for text in texts:
        places[text] = len(names)
        names += text.encode() + b"\0"
    return bytes(names), places


def _chain(count: int) -> Iterator[int]:
    """One bucket: each symbol is followed by the next, and the last by none."""
    yield from ((i + 1) % count if i else 0 for i in range(count))


def _program(kind: int, rights: int, place: int, nbytes: int, alignment: int = _PAGE) -> bytes:
    return _PROGRAM.pack(kind, rights, place, place, place, nbytes, nbytes, alignment)


def _aligned(place: int, alignment: int) -> int:
    return -(-place // alignment) * alignment
