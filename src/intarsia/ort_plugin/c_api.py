"""OrtApi, OrtEpApi and OrtModelEditorApi: functions of onnxruntime that the plugin calls, by their names, and statuses.

Where a function stands in its table is what `providers.plugin.interface.api_tables` says: tables only grow at their ends, so a
place is the same in all versions that have it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from intarsia import errors
from intarsia.errors import EPFail
from intarsia.providers.plugin.interface.api_tables import tables

VERSION = 24
"""The version of the interface that the plugin is written for: onnxruntime 1.24 and all later ones offer it."""

_SPARE = 24  # words that later versions have behind the fields of a structure

FAIL, INVALID_ARGUMENT, NO_SUCH_FILE, NOT_IMPLEMENTED, INVALID_GRAPH, EP_FAIL = 1, 2, 3, 9, 10, 11
_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (EPFail, EP_FAIL),
    (errors.InvalidGraph, INVALID_GRAPH),
    (errors.NotImplemented, NOT_IMPLEMENTED),
    (errors.InvalidArgument, INVALID_ARGUMENT),
    (errors.NoSuchFile, NO_SUCH_FILE),
)
TENSOR = 1  # of ONNXType
_MOST_ARGUMENTS = 10

_FUNCTIONS = [ctypes.PYFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * n) for n in range(_MOST_ARGUMENTS + 1)]
"""Kinds of functions by how many words they take: none calls back, so that the GIL stays where it is."""


class OrtApi:
    """The functions of one onnxruntime.

    Attributes:
        places: addresses of all functions that these tables and the model editor's have in `VERSION`, by name.
    """

    def __init__(self, base: int) -> None:
        """`base`: the address of OrtApiBase.

        Raises:
            EPFail: this onnxruntime is older than 1.24.
        """
        get, version = (ctypes.c_uint64 * 2).from_address(base)
        table = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(get)(VERSION)
        if not table:
            found = ctypes.PYFUNCTYPE(ctypes.c_char_p)(version)() or b""
            raise EPFail(f"IntarsiaCPU needs onnxruntime 1.{VERSION} or newer; this is {found.decode()}")
        self.places = _read(table, "OrtApi")
        ep_api = _FUNCTIONS[0](self.places["GetEpApi"])()
        self.places |= _read(ep_api, "OrtEpApi")
        if editor := _FUNCTIONS[0](self.places["GetModelEditorApi"])():  # builds for small machines have none
            self.places |= {name: at for name, at in _read(editor, "OrtModelEditorApi").items() if name not in self.places}
        self._functions: dict[tuple[str, int], Any] = {}

    def word(self, name: str, *arguments: Any) -> int:
        """What a function returns, as a word."""
        function = self._functions.get((name, len(arguments)))
        if function is None:
            function = self._functions[name, len(arguments)] = _FUNCTIONS[len(arguments)](self.places[name])
        return function(*arguments) or 0

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a status.

        Raises:
            EPFail: the status is an error; with onnxruntime's words.
        """
        status = self.word(name, *arguments)
        if status:
            message = ctypes.string_at(self.word("GetErrorMessage", status)).decode(errors="replace")
            self.word("ReleaseStatus", status)
            raise EPFail(f"onnxruntime's {name}: {message}")

    def get(self, name: str, *arguments: Any) -> int:
        """What a function puts where its last argument points, as a word (numbers are not negative)."""
        out = ctypes.c_uint64()
        self.call(name, *arguments, ctypes.byref(out))
        return out.value

    def text(self, name: str, *arguments: Any) -> str:
        """The same, where that is the address of a text."""
        address = self.get(name, *arguments)
        return ctypes.string_at(address).decode() if address else ""

    def items(self, count: str, name: str, handle: int) -> list[int]:
        """All items of a handle: `count` is the function that counts them, `name` the one that gives them."""
        many = self.get(count, handle)
        found = (ctypes.c_uint64 * many)()
        if many:
            self.call(name, handle, found, many)
        return list(found)

    def status(self, error: BaseException) -> int:
        """A new status for an error, with its words."""
        code = next((code for kind, code in _CODES if isinstance(error, kind)), FAIL)
        text = str(error) if isinstance(error, errors.IntarsiaError) else f"{type(error).__name__}: {error}"
        return self.word("CreateStatus", code, f"IntarsiaCPU: {text}".encode())


def early_status(base: int, error: BaseException) -> int:
    """A status for an error where the tables are not known: by the first function of OrtApi, which every version has."""
    get = ctypes.c_uint64.from_address(base).value
    table = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(get)(1)
    create = _FUNCTIONS[2](ctypes.c_uint64.from_address(table).value)
    return create(EP_FAIL, f"IntarsiaCPU: {error}".encode()) or 0


def structure(name: str, functions: Mapping[str, int]) -> ctypes.Array[ctypes.c_uint64]:
    """A structure of functions (OrtEpFactory, OrtEp, OrtNodeComputeInfo) as onnxruntime reads it: those that are not given
    are 0."""
    fields = _entries(name)
    words = (ctypes.c_uint64 * (len(fields) + _SPARE))()
    words[0] = VERSION
    for i, field in enumerate(fields[1:], 1):
        words[i] = functions.get(field, 0)
    return words


def _entries(table: str) -> list[str]:
    """Names of a table's entries, in order, up to the last that `VERSION` has."""
    return [entry.name for entry in tables()[table] if entry.since <= VERSION]


def _read(address: int, table: str) -> dict[str, int]:
    names = _entries(table)
    return dict(zip(names, (ctypes.c_uint64 * len(names)).from_address(address), strict=True))
