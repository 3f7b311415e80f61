"""A vendor's library in Python behind its C interface: calls go through the same machine types as to the real one."""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from fake_driver import Machine

HANDLES = 0x10000
"""Numbers of handles begin here: none is an address, or 0."""


class Wrong(Exception):
    """A call that the real library would refuse, with the status it would return."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class FakeLibrary:
    """Base: objects by their handles, and what was wrong.

    Attributes:
        machine: whose memory and streams the library works on; None: no call may need them.
        wrong: calls that were refused as mistakes (not as unsupported), and why.
        log: what was executed.
    """

    signatures: Mapping[str, tuple[Any, tuple[Any, ...]]]
    internal_error: int

    def __init__(self, machine: Machine | None = None) -> None:
        self.machine = machine
        self.wrong: list[str] = []
        self.log: list[str] = []
        self.objects: dict[int, Any] = {}
        self.last = ""

    def handle(self, thing: Any) -> int:
        made = HANDLES + 16 * (len(self.objects) + 1)
        self.objects[made] = thing
        return made

    def thing(self, handle: int | None, kind: type) -> Any:
        found = self.objects.get(handle or 0)
        if not isinstance(found, kind):
            raise Wrong(self.bad_parameter, f"{handle} is no {kind.__name__}")
        return found

    bad_parameter = 7
    unsupported: frozenset[int] = frozenset()

    def exported(self) -> Any:
        """Its functions as C functions."""
        made = types.SimpleNamespace()
        for name, (result, arguments) in self.signatures.items():
            method = getattr(self, name)
            if result is ctypes.c_int and arguments:
                setattr(made, name, ctypes.CFUNCTYPE(result, *arguments)(self._guarded(name, method)))
            else:  # texts and versions: a callback cannot own what it returns
                setattr(made, name, method)
        return made

    def _guarded(self, name: str, method: Callable[..., Any]) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            try:
                return int(method(*arguments) or 0)
            except Wrong as error:
                self.last = str(error)
                if error.status not in self.unsupported:
                    self.wrong.append(f"{name}: {error}")
                return error.status
            except Exception as error:  # noqa: BLE001 - nothing may leave a callback
                self.wrong.append(f"{name}: {type(error).__name__}: {error}")
                return self.internal_error

        return call

    # --- memory ---

    def array(self, address: int, dtype: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
        """Device memory as a strided array; all of it must lie in one allocation."""
        extent = dtype.itemsize * (1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)))
        if self.machine is not None and not self.machine.inside(address, extent):
            raise Wrong(self.bad_parameter, f"{extent} bytes at {address:#x} are in no allocation")
        flat = np.frombuffer((ctypes.c_char * extent).from_address(address), np.uint8)
        steps = tuple(s * dtype.itemsize for s in strides)
        return np.lib.stride_tricks.as_strided(flat[: dtype.itemsize].view(dtype), shape, steps)

    def start(self, stream: int | None, work: Callable[[], None]) -> None:
        """In the stream: now, later, or whenever the graph is replayed that captures it."""
        if self.machine is None:
            work()
            return
        if (stream or 0) not in self.machine.streams:
            raise Wrong(self.bad_parameter, f"{stream} is no stream")
        if self.machine.captures(stream or 0):
            self.machine.captured.append(work)  # type: ignore[union-attr]
        else:
            self.machine.log.append("library")
            self.machine.push(stream or 0, "do", work)


def tf32(a: np.ndarray) -> np.ndarray:
    """float32 rounded to the ten bits that tensor cores read."""
    bits = np.ascontiguousarray(a, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
