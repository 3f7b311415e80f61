"""A simulated phone for each test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "simulator"))

from phone import simulated_phone
from simulated_nnapi import Device, SimulatedLibrary


@pytest.fixture
def phone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., SimulatedLibrary]]:
    """Makes a simulated phone of a feature level, with these devices, the one that the provider finds."""
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    with ExitStack() as stack:

        def make(level: int = 31, devices: list[Device] | None = None) -> SimulatedLibrary:
            return stack.enter_context(simulated_phone(level, devices))

        yield make
