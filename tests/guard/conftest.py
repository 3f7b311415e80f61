"""Cases at guard pages: fixtures, and the summary of what they covered."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), *(str(Path(__file__).parents[1] / name) for name in ("ops", "properties"))]


@pytest.fixture(scope="session")
def guarded_process() -> Iterator[object]:
    """One process for all operators that this process of pytest tests."""
    from guarded_process import GuardedProcess

    found = GuardedProcess()
    yield found
    found.close()
