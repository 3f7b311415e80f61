"""A plugin library of the tests' own."""

from __future__ import annotations

import pytest
from tests.providers.plugin.compiled_plugin import FaultyPlugin, compiled


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> FaultyPlugin:
    """A plugin that takes Relu of float32, and fails where it is ordered to."""
    return FaultyPlugin(compiled(tmp_path_factory.mktemp("faulty")))
