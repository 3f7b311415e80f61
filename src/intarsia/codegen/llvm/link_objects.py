"""Object files linked into one block of position-independent code (`linked_image.load` puts it into a process).

`link` lays the sections of ELF objects for x86-64 out, resolves what they say of each other, and keeps a table of what a
process must fill in: addresses of libc's functions, and places that hold an address of the block itself. Whatever it does not
know (another object format or relocation) makes it return None: such kernels are loaded by LLVM's own linker. On Windows, too,
objects are ELF (`compile_ir.native_triple`).

References: System V ABI, AMD64 supplement, table 4.9 (relocation types); ELF-64 object file format.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable
from dataclasses import field

from intarsia.codegen.llvm.linked_image import HEADER, MAGIC
from intarsia.lazy_dataclass import dataclass

_ELF_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_RELOCATABLE, _X86_64 = 1, 62
_SYMTAB, _RELA, _NOBITS = 2, 4, 8
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4
_UNDEFINED, _ABSOLUTE = 0, 0xFFF1
_R_64, _R_PC32, _R_PLT32, _R_GOTPCREL, _R_PC64, _R_GOTPCRELX, _R_REX_GOTPCRELX = 1, 2, 4, 9, 24, 41, 42
_PAGE_NBYTES = 4096  # of x86-64
_JUMP = b"\xff\x25"  # jmp [rip + displacement]


@dataclass
class Table:
    """What a process needs to know of the code beside its bytes; all numbers are offsets into it.

    Attributes:
        exports: where each kernel begins.
        imports: 64-bit words that hold the address of a function of the process, by its name.
        own: 64-bit words that hold an offset into the code, to which its address is added.
        written: first and last byte + 1 of pages that code writes.
    """

    exports: dict[str, int] = field(default_factory=dict)
    imports: list[tuple[int, str]] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    written: list[tuple[int, int]] = field(default_factory=list)


def link(objects: Iterable[bytes], symbols: Iterable[str]) -> bytes | None:
    """The objects as one block that exports `symbols`, or None where that cannot be done."""
    try:
        linker = _Linker()
        for data in objects:
            linker.add(data)
        return linker.finish(symbols)
    except (_Unknown, struct.error, IndexError, KeyError, ValueError):
        return None


class _Unknown(Exception):
    """An object holds something that this linker does not know."""


@dataclass
class _Object:
    data: bytes
    sections: list[tuple[int, ...]]
    places: dict[int, int]  # section -> its offset in the code


class _Linker:
    def __init__(self) -> None:
        self.code = bytearray()
        self.table = Table()
        self.objects: list[_Object] = []
        self.defined: dict[str, int] = {}
        self.words: dict[str, int] = {}  # name or offset -> the word that holds its address
        self.jumps: dict[str, int] = {}

    def add(self, data: bytes) -> None:
        ident, kind, machine, _, _, _, offset, _, _, _, _, entry, count, _ = _ELF_HEADER.unpack_from(data)
        if ident[:6] != b"\x7fELF\x02\x01" or kind != _RELOCATABLE or machine != _X86_64 or entry != _SECTION.size:
            raise _Unknown
        sections = [_SECTION.unpack_from(data, offset + i * entry) for i in range(count)]
        placed = _Object(data, sections, {})
        for i, (_, section_type, flags, _, start, size, _, _, alignment, _) in enumerate(sections):
            if not flags & _ALLOC or not size:
                continue
            self._align(max(alignment, _PAGE_NBYTES if flags & _WRITE else 1))
            placed.places[i] = len(self.code)
            self.code += bytes(size) if section_type == _NOBITS else data[start : start + size]
            if flags & _WRITE:
                self._align(_PAGE_NBYTES)
                self.table.written.append((placed.places[i], len(self.code)))
        self.objects.append(placed)
        for i, section in enumerate(sections):
            if section[1] == _SYMTAB:
                self._define(placed, i)

    def _align(self, alignment: int) -> None:
        self.code += bytes(-len(self.code) % alignment)

    def _symbol(self, placed: _Object, table: int, index: int) -> tuple[str, int, int, int]:
        """Name, section, value and binding."""
        section = placed.sections[table]
        name, info, _, where, value, _ = _SYMBOL.unpack_from(placed.data, section[4] + index * _SYMBOL.size)
        start = placed.sections[section[6]][4] + name
        return placed.data[start : placed.data.index(b"\0", start)].decode(), where, value, info >> 4

    def _define(self, placed: _Object, table: int) -> None:
        for index in range(placed.sections[table][5] // _SYMBOL.size):
            name, where, value, binding = self._symbol(placed, table, index)
            if name and binding and where in placed.places:
                self.defined.setdefault(name, placed.places[where] + value)

    def finish(self, symbols: Iterable[str]) -> bytes:
        for placed in self.objects:
            for _, kind, _, _, start, size, link_to, target, _, _ in placed.sections:
                if kind != _RELA or target not in placed.places:
                    continue
                for at in range(start, start + size, _RELOCATION.size):
                    offset, info, addend = _RELOCATION.unpack_from(placed.data, at)
                    place = placed.places[target] + offset
                    self._relocate(place, info & 0xFFFFFFFF, self._address(placed, link_to, info >> 32), addend)
        self.table.exports = {symbol: self.defined[symbol] for symbol in symbols}
        table = pickle.dumps(vars(self.table), 5)
        return HEADER.pack(MAGIC, len(table), len(self.code)) + table + bytes(self.code)

    def _address(self, placed: _Object, table: int, index: int) -> int | str:
        """Where a symbol lies in the code, or the name of one that the process defines."""
        name, where, value, _ = self._symbol(placed, table, index)
        if where in placed.places:
            return placed.places[where] + value
        if where == _UNDEFINED and name:
            return self.defined.get(name, name)
        raise _Unknown

    def _relocate(self, place: int, kind: int, symbol: int | str, addend: int) -> None:
        if kind == _R_64:
            struct.pack_into("<q", self.code, place, addend if isinstance(symbol, str) else symbol + addend)
            if isinstance(symbol, str):
                raise _Unknown
            self.table.own.append(place)
        elif kind in (_R_PC32, _R_PLT32):
            target = self._jump(symbol) if isinstance(symbol, str) else symbol
            struct.pack_into("<i", self.code, place, target + addend - place)
        elif kind == _R_PC64 and not isinstance(symbol, str):
            struct.pack_into("<q", self.code, place, symbol + addend - place)
        elif kind in (_R_GOTPCREL, _R_GOTPCRELX, _R_REX_GOTPCRELX):
            struct.pack_into("<i", self.code, place, self._word(symbol) + addend - place)
        else:
            raise _Unknown

    def _word(self, symbol: int | str) -> int:
        """A word that holds the symbol's address once the code is loaded."""
        key = str(symbol) if isinstance(symbol, str) else f"#{symbol}"
        if key not in self.words:
            self._align(8)
            self.words[key] = len(self.code)
            if isinstance(symbol, str):
                self.table.imports.append((len(self.code), symbol))
                self.code += bytes(8)
            else:
                self.table.own.append(len(self.code))
                self.code += struct.pack("<q", symbol)
        return self.words[key]

    def _jump(self, name: str) -> int:
        """Code that goes on at a function of the process."""
        if name not in self.jumps:
            word = self._word(name)
            self._align(8)
            self.jumps[name] = len(self.code)
            self.code += _JUMP + struct.pack("<i", word - (len(self.code) + 6))
        return self.jumps[name]
