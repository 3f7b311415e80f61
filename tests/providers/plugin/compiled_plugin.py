"""The plugin library of faulty_plugin.c, compiled here, and the faults that a test orders of it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import intarsia as ort
from intarsia.providers.plugin.interface.api_tables import tables

NAME, CPU = "FaultyExecutionProvider", "CPUExecutionProvider"
VERSION = 23
"""Of the interface that it is written for: the oldest that compiles whole subgraphs."""
SOURCE = Path(__file__).with_name("faulty_plugin.c")
KERNELS_SOURCE, KERNELS_VERSION = Path(__file__).with_name("kernel_plugin.c"), 24
"""The plugin of kernels, for the oldest version that has them."""
KERNELS = "KernelExecutionProvider"


def compiler() -> str | None:
    """A C compiler with POSIX threads; None where there is none."""
    return None if sys.platform == "win32" else next(filter(None, map(shutil.which, ("clang-19", "clang", "gcc", "cc"))), None)


def compiled(
    folder: Path, *flags: str, version: int = VERSION, file: str = "libonnxruntime_providers_faulty.so", source: Path = SOURCE
) -> Path:
    """A library, for a version of the interface. The test is skipped where no C compiler is there."""
    found = compiler()
    if found is None:
        pytest.skip("no C compiler (clang, gcc) on this machine")
    lines = [f"#define VERSION {version}"]
    for table, entries in tables().items():
        lines += [f"#define {table}_{entry.name} {i}" for i, entry in enumerate(entries)]
    (folder / "entries.h").write_text("\n".join(lines) + "\n")
    command = [found, "-O1", "-Wall", "-Werror", "-Wno-unused-parameter", "-shared", "-fPIC", f"-I{folder}", *flags]
    subprocess.run([*command, "-o", folder / file, source, "-lm", "-lpthread"], check=True)
    return folder / file


class FaultyPlugin:
    """The library at a path, and what it has been ordered to do."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library: Any = ctypes.CDLL(str(path))
        self._library.talk_for.restype = ctypes.c_long

    @contextmanager
    def failing(self, fault: str) -> Iterator[None]:
        """Let it fail in a call, by name."""
        self._library.order_fault(fault.encode())
        try:
            yield
        finally:
            self._library.order_fault(b"")

    def alive(self) -> dict[str, int]:
        """Objects that it has made and not been given back."""
        counts = (ctypes.c_long * 4)()
        self._library.count_alive(counts)
        return dict(zip(("factories", "providers", "compute infos", "states"), counts, strict=True))

    def give_back_the_last(self) -> None:
        """Free the factory that was made last."""
        self._library.release_last()

    @contextmanager
    def talking(self) -> Iterator[None]:
        """Let a thread of its own write into the log all the while."""
        self._library.talk_for(1)
        try:
            yield
            end = time.monotonic() + 60
            while not self._library.talk_for(1) and time.monotonic() < end:  # where cores are busy, it comes to speak late
                time.sleep(0.01)
        finally:
            said = self._library.talk_for(0)
        assert said > 0

    @contextmanager
    def registered(self, name: str = "faulty") -> Iterator[None]:
        """Registered with Intarsia."""
        ort.register_execution_provider_library(name, self.path)
        try:
            yield
        finally:
            ort.unregister_execution_provider_library(name)


class KernelPlugin:
    """The library of kernel_plugin.c at a path: what it has made and done, and what it is ordered to do."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library: Any = ctypes.CDLL(str(path))

    def counts(self) -> dict[str, int]:
        """Kernels and helpers that it has made and not been given back; calls of its functions so far."""
        counts = (ctypes.c_long * 7)()
        self._library.count_kernels(counts)
        return dict(zip(("alive", "helpers", "joined", "transposed", "packed", "shared", "calls"), counts, strict=True))

    @contextmanager
    def failing(self, fault: str) -> Iterator[None]:
        """Let it fail in a function, by name."""
        self._library.order_fault(fault.encode())
        try:
            yield
        finally:
            self._library.order_fault(b"")

    def shared_places(self) -> list[int]:
        """Where the packed weights are that its kernels were told of, of the last four."""
        places = (ctypes.c_long * 4)()
        self._library.places_shared(places)
        return list(places)

    @contextmanager
    def registered(self, layout: str = "NCHW") -> Iterator[None]:
        """Registered with Intarsia; `layout`: what it says that it prefers."""
        self._library.order_layout(layout.encode())
        ort.register_execution_provider_library("kernels", self.path)
        try:
            yield
        finally:
            ort.unregister_execution_provider_library("kernels")
