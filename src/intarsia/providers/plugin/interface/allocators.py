"""OrtAllocator: the host's own for the processor's memory, and use of those that plugins bring."""

from __future__ import annotations

import atexit
import ctypes
import functools
from typing import Any

from intarsia.errors import OutOfMemory
from intarsia.providers.plugin.interface.api_tables import NEWEST, structure, tables
from intarsia.providers.plugin.interface.handles import give, put
from intarsia.providers.plugin.interface.hardware import HOST_MEMORY, KeyValues
from intarsia.providers.plugin.interface.host_tables import entry
from intarsia.providers.plugin.interface.members import Members
from intarsia.providers.plugin.interface.native_entries import nothing
from intarsia.runtime.interpreter import lasting

_ALIGNMENT = 64
_malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(("PyMem_RawMalloc", ctypes.pythonapi))
_free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(("PyMem_RawFree", ctypes.pythonapi))


def _allocate(_: int | None, nbytes: int) -> int | None:
    """Aligned memory behind the address of the block that it is in; null where there is none."""
    block = _malloc(nbytes + 2 * _ALIGNMENT) if nbytes < 1 << 62 else None
    if not block:
        return None
    address: int = (block + 2 * _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
    ctypes.c_void_p.from_address(address - 8).value = block
    return address


def _release(_: int | None, address: int | None) -> None:
    if address:
        _free(ctypes.c_void_p.from_address(address - 8).value)


def _info(_: int | None) -> int:
    return HOST_MEMORY.handle


def _allocate_on_stream(this: int | None, nbytes: int, stream: int | None) -> int | None:
    return _allocate(this, nbytes)


def _statistics(_: int | None, out: int) -> None:
    put(out, give(KeyValues({})))


_FUNCTIONS = {
    "Alloc": _allocate, "Free": _release, "Info": _info, "Reserve": _allocate, "GetStats": _statistics,
    "AllocOnStream": _allocate_on_stream,
}  # fmt: skip


@functools.cache
def host_allocator() -> Any:
    """The OrtAllocator of the processor's memory, which lives as long as the process."""
    allocator = structure("OrtAllocator")(version=NEWEST)
    allocator.held = []
    for one in tables()["OrtAllocator"]:
        if (function := _FUNCTIONS.get(one.name)) is not None:
            callback = one.prototype(callback=True)(function)
            allocator.held.append(callback)
            setattr(allocator, one.name, ctypes.cast(callback, ctypes.c_void_p).value)
    atexit.register(_retire, lasting(allocator))
    return allocator


def _retire(allocator: Any) -> None:
    """The interpreter ends: what plugins free after it stays."""
    if address := nothing():
        for name in _FUNCTIONS:
            setattr(allocator, name, address)


def allocate(allocator: int | None, nbytes: int) -> int:
    """Memory of an allocator (null: the host's).

    Raises:
        OutOfMemory: it has none.
    """
    members = Members("OrtAllocator", allocator or ctypes.addressof(host_allocator()), "an allocator")
    found: int | None = members.call("Alloc", nbytes)
    if not found:
        raise OutOfMemory(f"an allocator of a plugin has no {nbytes:,} bytes")
    return found


def duplicate(allocator: int | None, text: str) -> int:
    """A copy of a text in memory of an allocator."""
    content = text.encode("utf-8", "replace") + b"\0"
    address = allocate(allocator, len(content))
    ctypes.memmove(address, content, len(content))
    return address


@entry("OrtApi", "GetAllocatorWithDefaultOptions")
def _get_default_allocator(out: int) -> None:
    put(out, ctypes.addressof(host_allocator()))


@entry("OrtApi", "AllocatorAlloc")
def _allocator_alloc(allocator: int, nbytes: int, out: int) -> None:
    put(out, allocate(allocator, nbytes))


@entry("OrtApi", "AllocatorFree")
def _allocator_free(allocator: int, address: int | None) -> None:
    if address:
        Members("OrtAllocator", allocator, "an allocator").call("Free", address)


@entry("OrtApi", "AllocatorGetInfo")
def _allocator_info(allocator: int, out: int) -> None:
    put(out, Members("OrtAllocator", allocator, "an allocator").call("Info"))
