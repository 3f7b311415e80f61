"""IntarsiaCPU, registered with the onnxruntime of this process for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from plugin_sessions import NAME, Sessions

import intarsia


@pytest.fixture(scope="session")
def devices() -> Iterator[list[Any]]:
    onnxruntime = pytest.importorskip("onnxruntime", minversion="1.24")
    onnxruntime.register_execution_provider_library(NAME, intarsia.plugin_library())
    yield [device for device in onnxruntime.get_ep_devices() if device.ep_name == NAME]
    onnxruntime.unregister_execution_provider_library(NAME)


@pytest.fixture
def sessions(devices: list[Any]) -> Sessions:
    return Sessions(devices)
