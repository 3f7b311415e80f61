"""A plugin library of the tests' own."""

from __future__ import annotations

import pytest
from tests.providers.plugin.compiled_plugin import (
    KERNELS_SOURCE,
    KERNELS_VERSION,
    FaultyPlugin,
    KernelPlugin,
    compiled,
)


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> FaultyPlugin:
    """A plugin that takes Relu of float32, and fails where it is ordered to."""
    return FaultyPlugin(compiled(tmp_path_factory.mktemp("faulty")))


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> KernelPlugin:
    """A plugin of kernels in the host's memory, If, Loop and Scan among them."""
    folder, file = tmp_path_factory.mktemp("kernels"), "libonnxruntime_providers_kernels.so"
    return KernelPlugin(compiled(folder, version=KERNELS_VERSION, file=file, source=KERNELS_SOURCE))
