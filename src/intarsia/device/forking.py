"""Devices in forked processes: no driver survives a fork, so the child is told so, where it would wait for ever."""

from __future__ import annotations

import os
from typing import Any, NoReturn, Protocol
from weakref import WeakSet

from intarsia.errors import DeviceLost, EPFail

_HOW = "open no device before the fork, or start processes by multiprocessing's 'spawn'"
_used: set[str] = set()  # kinds of devices whose drivers this process has called
_inherited: frozenset[str] = frozenset()  # those of them that a parent used before it was forked


class Owner(Protocol):
    """A device: what is called of it takes its lock."""

    device: Any
    lock: Any
    lost: str


_opened: WeakSet[Owner] = WeakSet()


class LeftBehind:
    """Instead of the lock of a device that the parent of this process opened."""

    def __init__(self, device: object) -> None:
        self._device = device

    def __enter__(self) -> NoReturn:
        raise DeviceLost(f"{self._device} was opened by a process that this one was forked from: {_HOW}")

    def __exit__(self, *_: object) -> None:
        """Never reached."""

    def let_go(self) -> None:
        """Nothing: the memory is the parent's."""


def use(kind: str) -> None:
    """Note that this process calls the driver of a kind of devices."""
    _used.add(kind)


def opened(device: Owner) -> None:
    """Note a device, which is lost in processes that are forked from now on."""
    _opened.add(device)


def unusable(kind: str) -> str:
    """Why no device of a kind can be used in this process; "" where none of its parents used one."""
    return f"a process that this one was forked from has used its driver: {_HOW}" if kind in _inherited else ""


def require(kind: str, title: str) -> None:
    """Raise EPFail where no device of a kind can be used in this process."""
    if why := unusable(kind):
        raise EPFail(f"{title}: no device: {why}")


def _leave_behind() -> None:
    global _inherited  # noqa: PLW0603 # a fact about the process
    _inherited = frozenset(_used)
    for gpu in list(_opened):
        gpu.lock, gpu.lost = LeftBehind(gpu.device), "forked"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_behind)
