"""Blocks of machine code that start without a compiler: `link_objects.link` makes them, `load` puts one into this process.

`load` gives a block memory (`executable_memory`), fills in what only a process knows (addresses of functions of its libraries,
and of the block itself), and makes it executable. Data that code writes lie on pages of their own.

Layout of the linked bytes: a header (magic, sizes of the table and the code), the table (pickled), the code. The table is that
of `link_objects.Table`, as a dict.
"""

from __future__ import annotations

import ctypes
import pickle
import struct
from collections.abc import Mapping
from typing import Any

from intarsia.codegen.llvm import executable_memory

MAGIC = b"INTIMG02"
HEADER = struct.Struct("<8sII")

_loaded: dict[bytes, dict[str, int] | None] = {}


def load_once(linked: bytes) -> dict[str, int] | None:
    """As `load`, of blocks that this process has not loaded yet; the others' addresses are known."""
    if linked not in _loaded:
        _loaded[linked] = load(linked)
    return _loaded[linked]


def load(linked: bytes | memoryview) -> dict[str, int] | None:
    """The addresses of the kernels in a block that `link` made; None where it cannot be loaded into this process.

    A loaded block is never unloaded: a thread may run it while the interpreter ends.
    """
    table, code = read(linked)
    if table is None:
        return None
    functions = {name: executable_memory.function(name) for _, name in table["imports"]}
    if not all(functions.values()):
        return None
    base = executable_memory.allocate(len(code))
    if not base:
        return None
    for place in table["own"]:
        struct.pack_into("<q", code, place, struct.unpack_from("<q", code, place)[0] + base)
    for place, name in table["imports"]:
        struct.pack_into("<Q", code, place, functions[name])
    ctypes.memmove(base, (ctypes.c_char * len(code)).from_buffer(code), len(code))
    parts = [(0, len(code), True), *((start, end, False) for start, end in table["written"])]
    if not all(executable_memory.protect(base + start, end - start, executable) for start, end, executable in parts):
        executable_memory.free(base, len(code))  # a hardened system
        return None
    exports: Mapping[str, int] = table["exports"]
    return {symbol: base + offset for symbol, offset in exports.items()}


def unknown_functions(linked: bytes | memoryview) -> list[str]:
    """Names of functions that a block calls and this process's libraries do not have."""
    table, _ = read(linked)
    return sorted({name for _, name in table["imports"] if not executable_memory.function(name)}) if table is not None else []


def read(linked: bytes | memoryview) -> tuple[dict[str, Any] | None, bytearray]:
    """The table and the code of linked bytes; no table where they are others."""
    magic, table_nbytes, code_nbytes = HEADER.unpack_from(linked)
    start = HEADER.size + table_nbytes
    if magic != MAGIC or len(linked) < start + code_nbytes:
        return None, bytearray()
    table = pickle.loads(linked[HEADER.size : start])  # noqa: S301 # machine code follows: the cache is trusted
    return table, bytearray(linked[start : start + code_nbytes])
