"""Consoles of a known width, whatever the terminal is that the tests are begun from, and whoever imported them."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """COLUMNS is for processes that a test begins: the consoles of this one read it when they are imported."""
    try:
        from intarsia.cli import show
    except ImportError:  # rich is missing: what needs it is skipped
        return
    monkeypatch.setenv("COLUMNS", "400")
    for console in (show.screen, show.errors):
        monkeypatch.setattr(console, "_width", 400)
