"""Calls of what a plugin fills: OrtEpFactory, OrtEp, OrtAllocator and the other structs of functions.

A plugin says which version of the interface it was built for; what came later is beyond the end of its struct and is never
read.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from intarsia.errors import EPFail
from intarsia.providers.plugin.interface.api_tables import Entry, structure, tables
from intarsia.providers.plugin.interface.status import raise_for


@functools.cache
def _members(table: str) -> dict[str, tuple[Entry, Any]]:
    """By name: what a member is, and its type as a function."""
    return {one.name: (one, one.prototype()) for one in tables()[table] if one.is_function}


class Members:
    """A struct of functions at an address.

    Args:
        table: what it is: "OrtEp".
        provider: whose it is, for messages.
    """

    def __init__(self, table: str, address: int, provider: str) -> None:
        if not address:
            raise EPFail(f"{provider} gave null where an {table} was expected")
        self.table, self.address, self.provider = table, address, provider
        self.version = ctypes.c_uint32.from_address(address).value
        self._functions: dict[str, tuple[Any, Entry] | None] = {}

    def has(self, name: str) -> bool:
        """Whether the plugin has this function."""
        return self._find(name) is not None

    def _find(self, name: str) -> tuple[Any, Entry] | None:
        if name not in self._functions:
            self._functions[name] = self._read(name)
        return self._functions[name]

    def _read(self, name: str) -> tuple[Any, Entry] | None:
        one, prototype = _members(self.table)[name]
        if one.since > max(self.version, 1):  # beyond the end of the plugin's struct
            return None
        place = self.address + getattr(structure(self.table), name).offset
        function = ctypes.c_void_p.from_address(place).value
        return (prototype(function), one) if function else None

    def address_of(self, name: str) -> int:
        """Where the function is; 0 where there is none."""
        found = self._find(name)
        return ctypes.cast(found[0], ctypes.c_void_p).value or 0 if found is not None else 0

    def call(self, name: str, *arguments: Any) -> Any:
        """What a function gives; its first argument is the struct. A status becomes an exception of its kind.

        Raises:
            EPFail: the plugin does not have the function, or failed.
        """
        found = self._find(name)
        if found is None:
            raise EPFail(f"{self.provider}'s {self.table} (version {self.version}) has no {name}")
        function, one = found
        result = function(self.address, *arguments)
        if one.result == "S":
            raise_for(result, name, self.provider)
            return None
        return result

    def call_if_there(self, name: str, *arguments: Any) -> Any:
        """As `call`; None where the plugin does not have the function."""
        return self.call(name, *arguments) if self.has(name) else None

    def text(self, name: str) -> str:
        """The text that a function without arguments gives; "" where there is none."""
        found = self.call_if_there(name)
        return found.decode("utf-8", "replace") if found else ""
