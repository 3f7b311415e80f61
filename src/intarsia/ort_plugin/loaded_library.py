"""The file of the library, and its table of functions in this process."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from intarsia.cache.disk_cache import cached, content_key
from intarsia.cache.fingerprint import fingerprint
from intarsia.errors import EPFail
from intarsia.ort_plugin import stubs_text

FILE = "libintarsia_cpu.so"
_LEAVING = 0.05
"""Seconds in which daemon threads that are in Python's functions come out of them, and wait in the library: one that wants the
interpreter's lock when the interpreter has ended is ended by it in the middle of C++ code, which aborts the process."""


class Library:
    """The library in this process.

    Attributes:
        path: of its file.
        functions: addresses of its functions, by name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise EPFail(
                f"the plugin library {str(path)!r} cannot be loaded ({error}): set TMPDIR to a folder whose files may be "
                "executed"
            ) from error
        names = (*stubs_text.ENTRIES, *(stub.name for stub in stubs_text.STUBS), *stubs_text.CONSTANTS, *stubs_text.ZEROS)
        self.functions = {name: _address(self._library[name]) for name in names}
        self._words = stubs_text.words()
        self._table = (ctypes.c_void_p * len(self._words)).in_dll(self._library, stubs_text.TABLE)

    def fill(self, addresses: Mapping[str, int]) -> None:
        """Set words of the table."""
        for name, address in addresses.items():
            self._table[self._words[name]] = address

    def leave(self) -> None:
        """Let no function go on in Python any more. What needs none goes on: constants, and errors."""
        for name in (*stubs_text.ENTRIES, *(stub.name for stub in stubs_text.STUBS)):
            self._table[self._words[name]] = None
        if threading.active_count() > 1:
            time.sleep(_LEAVING)


def library_bytes() -> bytes:
    """The library's file: the same for all processes of this machine."""
    return cached(f"plugin-{content_key(fingerprint(), *stubs_text.EXPORTS)}", _compiled)


def _compiled() -> bytes:
    from intarsia.codegen.llvm.jit import emit_object
    from intarsia.codegen.llvm.link_objects import link
    from intarsia.codegen.llvm.shared_object import shared_object
    from intarsia.codegen.llvm.target import Target

    target = Target.create(Target.host().triple)
    linked = link([emit_object(stubs_text.library_text(target), target)], stubs_text.EXPORTS)
    if linked is None:
        raise EPFail(f"the plugin library could not be linked for {target.triple}")
    return shared_object(linked, FILE)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0
