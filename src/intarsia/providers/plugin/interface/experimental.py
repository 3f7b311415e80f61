"""Functions that releases may add and drop, which plugins ask for by name: those by which programs keep compiled parts.

A program that gives such functions to Intarsia has its own way to plugins too: its data is in the EPContext node that they are
given, and taken out of the node that they make. So a plugin is told that there are none, and does not warn of a host without.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from intarsia.providers.plugin.interface.api_tables import Entry
from intarsia.providers.plugin.interface.handles import HostObject, find, give, put, take_back
from intarsia.providers.plugin.interface.host_tables import entry, guarded
from intarsia.providers.plugin.interface.session_state import SessionOptions


class ContextConfig(HostObject):
    """OrtEpContextConfig: by which functions compiled parts are read and written."""


def _get_config(options: int, out: int) -> None:
    find(options, SessionOptions)
    put(out, give(ContextConfig()))


def _get_function(config: int, function: int, state: int) -> None:
    find(config, ContextConfig)
    put(function, None)
    put(state, None)


_FUNCTIONS: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "OrtEpApi_SessionOptions_GetEpContextConfig_SinceV28": ("S", "pp", _get_config),
    "OrtEpApi_ReleaseEpContextConfig_SinceV28": ("v", "p", take_back),
    "OrtEpApi_EpContextConfig_GetEpContextDataReadFunc_SinceV28": ("S", "ppp", _get_function),
    "OrtEpApi_EpContextConfig_GetEpContextDataWriteFunc_SinceV28": ("S", "ppp", _get_function),
}


@functools.cache
def _made(name: str) -> Any:
    result, arguments, function = _FUNCTIONS[name]
    return Entry(name, result, arguments, 28).prototype(callback=True)(guarded(function, name, result))


@entry("OrtApi", "GetExperimentalFunction")
def _get_experimental_function(name: bytes | None) -> int | None:
    """Null for what is not there: plugins ask before they call it."""
    wanted = (name or b"").decode("utf-8", "replace")
    return ctypes.cast(_made(wanted), ctypes.c_void_p).value if wanted in _FUNCTIONS else None
