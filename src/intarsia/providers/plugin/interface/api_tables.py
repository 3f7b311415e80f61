"""onnxruntime's C tables as data: the order of their entries, and what each takes and gives.

A line of api_tables.txt is `NAME RESULT:ARGUMENTS SINCE`: a letter for each type (`TYPES`), and the version of the interface in
which the entry came (23 for onnxruntime 1.23). `-` stands for a field that is a number and no function.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from intarsia.lazy_dataclass import dataclass

OLDEST, NEWEST = 22, 32
"""Versions of the interface that a plugin may ask for."""
SPARE = 32
"""Entries behind the last one that is known by name: releases add to the ends of tables."""

_TEXT = ctypes.c_char_p
TYPES: Mapping[str, Any] = {
    "v": None, "S": ctypes.c_void_p, "p": ctypes.c_void_p, "s": _TEXT, "w": ctypes.c_wchar_p if os.name == "nt" else _TEXT,
    "z": ctypes.c_size_t, "i": ctypes.c_int32, "I": ctypes.c_uint32, "l": ctypes.c_int64, "L": ctypes.c_uint64,
    "f": ctypes.c_float, "d": ctypes.c_double, "b": ctypes.c_bool,
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One entry of a table.

    Attributes:
        result: letter of what it gives: "S" is a status (null: success).
        arguments: letters of what it takes, "-" for a field that is no function.
        since: the version of the interface that brought it.
    """

    name: str
    result: str
    arguments: str
    since: int

    @property
    def is_function(self) -> bool:
        return self.arguments != "-"

    def prototype(self, *, callback: bool = False) -> Any:
        """Its ctypes type; a callback gives texts as addresses, which it has to keep."""
        result = ctypes.c_void_p if callback and self.result in "sw" else TYPES[self.result]
        return ctypes.CFUNCTYPE(result, *(TYPES[letter] for letter in self.arguments))


@functools.cache
def tables() -> Mapping[str, tuple[Entry, ...]]:
    """All tables by name, their entries in order."""
    found: dict[str, list[Entry]] = {}
    for line in Path(__file__).with_name("api_tables.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            entries = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            name, types, since = line.split()
            result, _, arguments = types.partition(":")
            entries.append(Entry(name, result, arguments, int(since)))
    return {name: tuple(entries) for name, entries in found.items()}


@functools.cache
def structure(table: str) -> type[ctypes.Structure]:
    """A table as a C struct of addresses (and of the numbers that begin those that plugins fill)."""
    fields: list[tuple[str, Any]] = [
        (entry.name, ctypes.c_void_p if entry.is_function else TYPES[entry.result]) for entry in tables()[table]
    ]
    return type(table, (ctypes.Structure,), {"_fields_": fields})
