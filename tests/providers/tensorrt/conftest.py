"""An imitated GPU with an imitated TensorRT on it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from intarsia.device import cuda, nvrtc
from intarsia.providers.tensorrt import library
from intarsia.providers.vendor import survey


@pytest.fixture
def imitated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes the module `tensorrt_rtx` (or `tensorrt`) an imitation, over an imitated driver, with a cache of its own."""
    if why := nvrtc.missing():
        pytest.skip(f"CUDA's device cannot be opened: {why}")
    from fake_cuda import FakeCuda
    from fake_tensorrt import FakeTensorrt

    machine = FakeCuda()
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cuda, "driver", lambda: machine)
    monkeypatch.setattr(cuda._opened, "_devices", {})
    monkeypatch.setattr(survey, "_answers", {})  # imitations lack this and that
    cuda.missing.cache_clear()
    library.opened.cache_clear()

    def make(name: str = "tensorrt_rtx", **given: Any) -> FakeTensorrt:
        made = FakeTensorrt(machine, **given)
        monkeypatch.setitem(sys.modules, name, made)
        library.opened.cache_clear()
        return made

    yield make
    cuda.missing.cache_clear()
    library.opened.cache_clear()
