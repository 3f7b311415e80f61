"""The tables of functions that a plugin gets from its host, filled with Python's and native functions.

Modules of this folder mark what they have written with `entry`. An entry that nobody has written is a function too: it ends in
an error that names it. Nothing a plugin calls leads to address 0.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from intarsia.printable import get_logger
from intarsia.providers.plugin.interface.api_tables import NEWEST, OLDEST, SPARE, Entry, structure, tables
from intarsia.providers.plugin.interface.handles import HostObject, address_of, give
from intarsia.providers.plugin.interface.native_entries import NAMES, native_for, nothing
from intarsia.providers.plugin.interface.status import NotThere, Status
from intarsia.runtime.interpreter import lasting

_logger = get_logger("intarsia.providers.plugin")
_F = TypeVar("_F", bound=Callable[..., Any])
_written: dict[tuple[str, str], Callable[..., Any]] = {}
_RESULTS = {"S": None, "v": None, "p": None, "s": None, "w": None, "b": False}
SERVED = ("OrtApi", "OrtEpApi", "OrtModelEditorApi", "OrtCompileApi", "OrtInteropApi")


def entry(table: str, *names: str) -> Callable[[_F], _F]:
    """Marks a function as what these entries of a table do.

    It is called with numbers, addresses (None for null) and bytes for texts. Of entries that give a status it returns None for
    success, and any exception becomes a status of its kind.
    """
    known = {one.name for one in tables()[table]}

    def mark(function: _F) -> _F:
        for name in names:
            assert name in known, name
            _written[table, name] = function
        return function

    return mark


def is_written(table: str, name: str) -> bool:
    """Whether an entry does something here."""
    return (table, name) in _written


def served_address(table: str) -> int:
    """The address of a table, which lives as long as the process."""
    return ctypes.addressof(_served(table)[0])


@functools.cache
def _served(table: str) -> tuple[Any, list[Any]]:
    """A table, and the functions that it has to keep."""
    spare = [Entry(f"entry {len(tables()[table]) + i}", "S", "ppppppp", NEWEST) for i in range(SPARE)]
    entries = (*tables()[table], *spare)
    callbacks = [_callback(table, one) for one in entries]
    addresses = {
        one.name: ctypes.cast(callback, ctypes.c_void_p).value or 0 for one, callback in zip(entries, callbacks, strict=True)
    }
    if table == "OrtApi":
        addresses |= native_for({name: addresses[name] for name in NAMES}, served_address("OrtEpApi"))
    made = lasting((ctypes.c_void_p * len(entries))(*addresses.values()))
    staying = [i for i, one in enumerate(entries) if one.name == "GetEpApi"]
    atexit.register(_retire, made, staying)
    return made, callbacks


def _retire(table: Any, staying: list[int]) -> None:
    """The interpreter ends: destructors of plugins run after it, and call what they know of the host."""
    if address := nothing():
        table[:] = [table[i] if i in staying else address for i in range(len(table))]


def _callback(table: str, one: Entry) -> Any:
    function = _written.get((table, one.name)) or functools.partial(_unwritten, f"{table}::{one.name}")
    return one.prototype(callback=True)(guarded(function, f"{table}::{one.name}", one.result))


def _unwritten(name: str, *_: Any) -> None:
    raise NotThere(f"{name} is not among the functions that Intarsia has for plugins (versions {OLDEST} to {NEWEST})")


def guarded(function: Callable[..., Any], name: str, result: str) -> Callable[..., Any]:
    """The function as a plugin may call it: no exception leaves it. `result`: the letter of what it gives."""

    def call(*arguments: Any) -> Any:
        try:
            found = function(*arguments)
        except BaseException as error:  # noqa: BLE001 # what is not an Exception is raised behind the plugin's call
            if result == "S":
                return give(Status.of(error))
            why = f"{type(error).__name__}: {error}"
            _logger.error("a plugin called %s, which cannot say that it failed: %s", name, why)  # noqa: TRY400 # no traceback
            return _RESULTS.get(result, 0)
        if isinstance(found, HostObject):
            return give(found)
        return found

    return call


refused: list[int] = []
"""Versions that plugins requested and did not get."""


def _get_api(version: int) -> int | None:
    """The table for a version; null for one that is not offered."""
    if OLDEST <= version <= NEWEST:
        return served_address("OrtApi")
    refused.append(version)
    _logger.error(
        "a plugin requested version %d of onnxruntime's interface; Intarsia has versions %d to %d: install a release of the "
        "plugin for one of these", version, OLDEST, NEWEST,
    )  # fmt: skip
    return None


_VERSION_TEXT = f"1.{NEWEST}.0".encode()


def _get_version() -> int:
    return address_of(_VERSION_TEXT)


@functools.cache
def api_base() -> Any:
    """The OrtApiBase that a library gets."""
    functions = (
        ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(_get_api), ctypes.CFUNCTYPE(ctypes.c_void_p)(_get_version),
    )  # fmt: skip
    base: Any = structure("OrtApiBase")(*(ctypes.cast(one, ctypes.c_void_p).value for one in functions))
    base.held = functions
    return base
