"""The simulated library instead of the machine's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from simulated_nnapi import Device, SimulatedLibrary

from intarsia.providers.nnapi import library


@contextmanager
def simulated_phone(level: int = 31, devices: list[Device] | None = None) -> Iterator[SimulatedLibrary]:
    """A phone of a feature level, with these devices, is the one that the provider finds."""
    opened, function = library._opened[:], library.open_functions
    found = SimulatedLibrary(level, devices)
    library._opened.clear()
    library.open_functions = lambda: found
    try:
        yield found
    finally:
        library._opened[:] = opened
        library.open_functions = function
