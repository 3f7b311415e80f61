"""Core ML's packages, executed by NumPy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from mil_interpreter import NumPyEngine


@pytest.fixture(autouse=True)
def _needs_coremltools() -> None:
    from intarsia.providers.coreml.converter import missing_converter

    if why := missing_converter():
        pytest.skip(why)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def engine(_needs_coremltools: None) -> Iterator[NumPyEngine]:
    """What executes packages instead of Core ML."""
    from mil_interpreter import NumPyEngine

    from intarsia.providers.coreml.runtime import executed_by

    made = NumPyEngine()
    with executed_by(made):
        yield made
