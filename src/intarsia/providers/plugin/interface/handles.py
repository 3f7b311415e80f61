"""What a plugin holds of the host's objects: numbers that stand for them.

A handle is looked up and never followed, so that one that is stale or wrong is an error with its number. An object lives as
long as its owner here has it; what the interface gives to the plugin is held until the plugin releases it.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from typing import Any, TypeVar

from intarsia.errors import InvalidArgument

_FIRST, _STEP = 0x1001, 16  # odd: no address of a struct
_numbers = itertools.count(_FIRST, _STEP)


class HostObject:
    """Something of the host's that a plugin knows by `handle`."""

    def __init__(self) -> None:
        self._texts: dict[str, bytes] = {}
        self.handle = self._make_handle()
        _objects[self.handle] = self

    def _make_handle(self) -> int:
        return next(_numbers)

    def text(self, value: str) -> int:
        """The address of a text in UTF-8 that lives as long as this object."""
        encoded = self._texts.setdefault(value, value.encode("utf-8", "replace"))
        return address_of(encoded)


_T = TypeVar("_T", bound=HostObject)
_objects: weakref.WeakValueDictionary[int, HostObject] = weakref.WeakValueDictionary()
_held: dict[int, HostObject] = {}  # by plugins


def find(handle: int | None, kind: type[_T]) -> _T:
    """The object behind a handle.

    Raises:
        InvalidArgument: there is none, or it is of another kind.
    """
    found = _objects.get(handle or 0)
    if not isinstance(found, kind):
        what = f"is a {type(found).__name__}" if found is not None else "is none, or was released"
        raise InvalidArgument(f"expected the handle of a {kind.__name__}; {handle or 0:#x} {what}")
    return found


def find_all(address: int | None, count: int, kind: type[_T]) -> list[_T]:
    """The objects of an array of handles."""
    return [find(handle, kind) for handle in pointers(address, count)]


def give(found: _T) -> int:
    """The handle of an object that the plugin owns from now on."""
    _held[found.handle] = found
    return found.handle


def take_back(handle: int | None) -> None:
    """The plugin releases what it was given; null and what it never owned are left alone, as the interface says."""
    _held.pop(handle or 0, None)


def held_count() -> int:
    """How many objects plugins own."""
    return len(_held)


def address_of(encoded: bytes) -> int:
    """Where the bytes are; valid as long as they are."""
    address = ctypes.cast(ctypes.c_char_p(encoded), ctypes.c_void_p).value
    assert address is not None
    return address


# reading and writing what plugins point to


def pointers(address: int | None, count: int) -> list[int]:
    """`count` addresses at an address; null is 0."""
    if not count:
        return []
    checked(address)
    return [pointer or 0 for pointer in (ctypes.c_void_p * count).from_address(address or 0)]


def numbers(address: int | None, count: int, kind: Any = ctypes.c_int64) -> list[int]:
    """`count` numbers at an address."""
    return list((kind * count).from_address(checked(address))) if count else []


def texts(address: int | None, count: int) -> list[str]:
    """`count` C strings by an array of their addresses."""
    return [text_at(pointer) for pointer in pointers(address, count)]


def text_at(address: int | None) -> str:
    """A C string; "" for null."""
    return ctypes.string_at(address).decode("utf-8", "replace") if address else ""


def checked(address: int | None) -> int:
    """Raises InvalidArgument for null where something is to be written or read."""
    if not address:
        raise InvalidArgument("expected an address, got null")
    return address


def put(address: int | None, value: Any, kind: Any = ctypes.c_void_p) -> None:
    """Write one value of a ctypes kind."""
    kind.from_address(checked(address)).value = value


def put_optional(address: int | None, value: Any, kind: Any = ctypes.c_void_p) -> None:
    """As `put`, where a null address means that nobody wants it."""
    if address:
        put(address, value, kind)


def put_handles(address: int | None, found: list[Any], room: int, what: str) -> None:
    """Write the handles of objects (null for None) into an array of `room` places.

    Raises:
        InvalidArgument: they are more than that.
    """
    put_array(address, [value.handle if value is not None else None for value in found], room, what)


def put_array(address: int | None, values: list[Any], room: int, what: str, kind: Any = ctypes.c_void_p) -> None:
    """Write values of a ctypes kind into an array of `room` places; as `put_handles`."""
    if len(values) > room:
        raise InvalidArgument(f"there are {len(values)} {what}, room is for {room}")
    if values:
        (kind * len(values)).from_address(checked(address))[:] = values
