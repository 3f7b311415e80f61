"""Devices that are open: one for all sessions of the process that ask for the same."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, ValuesView
from operator import attrgetter
from typing import Generic, TypeVar

from intarsia.device import forking, known_answers
from intarsia.device.gpu import Gpu
from intarsia.errors import EPFail
from intarsia.machine import fork_safety

Key = TypeVar("Key")
Opened = TypeVar("Opened", bound=Gpu)


class OpenDevices(Generic[Key, Opened]):
    """Devices of one kind, by how they were requested.

    Args:
        kind: as `forking` knows it.
        title: its name in messages.
        lost: whether a device is of no use any more, and has to be opened again.
    """

    def __init__(self, kind: str, title: str, lost: Callable[[Opened], object] = attrgetter("lost")) -> None:
        self._kind, self._title, self._lost = kind, title, lost
        self._devices: dict[Key, Opened] = {}
        self._lock = fork_safety.lock()

    def get(self, key: Key, missing: Callable[[], str], make: Callable[[], Opened]) -> Opened:
        """The device, opened by `make` where it is not open yet or was lost, once it has passed its known-answer test.

        Raises:
            EPFail: a parent of this process used the driver, `missing` says why there is no such device, or it computes wrong
                results.
        """
        forking.require(self._kind, self._title)
        with self._lock:
            found = self._devices.get(key)
            if found is None or self._lost(found):
                if why := missing():
                    raise EPFail(f"{self._title}: no device: {why}")
                made = make()
                known_answers.require(made, again=found is not None)
                found = self._devices[key] = made
            return found

    def items(self) -> ItemsView[Key, Opened]:
        return self._devices.items()

    def values(self) -> ValuesView[Opened]:
        return self._devices.values()
