"""Cases at guard pages: fixtures, and the summary of what they covered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def guarded_process() -> Iterator[object]:
    """One process for all operators that this process of pytest tests."""
    from guarded_process import GuardedProcess

    found = GuardedProcess()
    yield found
    found.close()
