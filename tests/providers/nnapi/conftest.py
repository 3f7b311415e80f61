"""A simulated phone for each test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "simulator"))

from simulated_nnapi import Device, SimulatedLibrary

from intarsia.providers.nnapi import library


@pytest.fixture
def phone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., SimulatedLibrary]]:
    """Makes a simulated phone of a feature level, with these devices, the one that the provider finds."""
    made: list[SimulatedLibrary] = []
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    opened = library._opened[:]

    def make(level: int = 31, devices: list[Device] | None = None) -> SimulatedLibrary:
        found = SimulatedLibrary(level, devices)
        library._opened.clear()
        monkeypatch.setattr(library, "open_functions", lambda: found)
        made.append(found)
        return found

    yield make
    library._opened[:] = opened
