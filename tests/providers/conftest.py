"""Devices that tests of several providers run on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from device_kinds import Kind


@pytest.fixture(params=("opencl", "webgpu"))
def gpu(request: pytest.FixtureRequest) -> Kind:
    """A kind of device; files that want the device itself have a fixture of this name of their own."""
    from device_kinds import KINDS

    found = KINDS[request.param]
    if why := found.module.missing():
        pytest.skip(f"no device for {found.provider}: {why}")
    return found
