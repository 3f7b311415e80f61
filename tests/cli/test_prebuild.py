"""What is made when a checkout is set up: `intarsia.cli.prebuild`, and the cache that reads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("llvmlite", reason="kernels are compiled with llvmlite")

from intarsia.cache import disk_cache
from intarsia.cache.disk_cache import DiskCache, get_cache
from intarsia.providers.cpu.first_tier import kernel_image
from intarsia.providers.cpu.first_tier.kernel_set import kernels


def prebuilt(folder: Path) -> int:
    """What a process of its own makes there."""
    program = f"""
from intarsia.cache import disk_cache
disk_cache.PREBUILT = {str(folder)!r}  # that of this checkout is not read
from intarsia.cli.prebuild import prebuild
print(prebuild(disk_cache.PREBUILT))
"""
    return int(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package's folder of its own, and an empty cache before it."""
    folder = tmp_path / "prebuilt"
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(disk_cache, "PREBUILT", str(folder))
    return folder


def test_an_empty_cache_finds_what_was_prebuilt(folder: Path) -> None:
    assert prebuilt(folder) == len(list(kernels()))
    size = DiskCache(folder, shared=True).size()
    assert prebuilt(folder) == len(list(kernels()))
    assert DiskCache(folder, shared=True).size() == size
    cache = get_cache()
    assert kernel_image.is_made()
    assert kernel_image.load()
    assert not {entry.key.split("-")[0] for entry in cache.entries()} & {"first", "executor", "binder", "obj"}  # but facts
    left = {entry.key.split("-")[0] for entry in DiskCache(folder, shared=True).entries()}
    assert left >= {"first", "executor", "binder"}
    assert not left & {"obj", "pack", "text"}


def test_a_damaged_entry_is_absent(folder: Path, tmp_path: Path) -> None:
    own, behind = DiskCache(tmp_path / "own"), DiskCache(folder)
    behind.put("key", b"payload")
    layered = DiskCache(tmp_path / "own", behind=DiskCache(folder, shared=True))
    assert layered.get("key") == b"payload"
    assert layered.has("key")
    own.put("key", b"another")
    assert layered.get("key") == b"another"
    assert own.remove("key")
    (path,) = (p for p in folder.rglob("key") if p.is_file())
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1])
    assert layered.get("key") is None
    assert path.exists()  # the folder is not the cache's to change


def test_no_cache_reads_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    monkeypatch.setenv("INTARSIA_CACHE", "0")
    assert get_cache().behind is None
