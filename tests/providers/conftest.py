"""Makes `cpu_models` and other modules importable by the tests of this folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from device_kinds import Kind

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(params=("opencl", "webgpu"))
def gpu(request: pytest.FixtureRequest) -> Kind:
    """A kind of device; files that want the device itself have a fixture of this name of their own."""
    from device_kinds import KINDS

    found = KINDS[request.param]
    if why := found.module.missing():
        pytest.skip(f"no device for {found.provider}: {why}")
    return found
