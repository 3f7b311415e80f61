"""The disk cache: whole entries or none, among processes, through damage and in directories that cannot be written."""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
from pathlib import Path

import numpy as np
import pytest

from intarsia.cache.disk_cache import DiskCache, cache_directory, cache_enabled, content_key, get_cache
from intarsia.errors import InvalidArgument


def files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file() and path.name != ".pruned"]


def test_put_and_get(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    assert cache.get("absent") is None
    assert cache.put("key-1", b"payload")
    assert cache.put("key-2", b"")
    assert cache.get("key-1") == b"payload"
    assert cache.get("key-2") == b""
    assert DiskCache(tmp_path).get("key-1") == b"payload"
    assert {entry.key for entry in cache.entries()} == {"key-1", "key-2"}
    assert cache.size() == sum(path.stat().st_size for path in files(tmp_path))
    assert cache.clear() == 2
    assert cache.get("key-1") is None


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[:-1], lambda b: b"", lambda b: b[:5], lambda b: b + b"x", lambda b: b[:-2] + b"??", lambda b: b"?" + b[1:]],
)
def test_damage_is_found_and_removed(tmp_path: Path, damage, caplog: pytest.LogCaptureFixture) -> None:
    cache = DiskCache(tmp_path)
    cache.put("key", b"a long enough payload")
    (path,) = files(tmp_path)
    path.chmod(0o600)
    path.write_bytes(damage(path.read_bytes()))
    with caplog.at_level(logging.WARNING, "intarsia"):
        assert cache.get("key") is None
    assert "is damaged: it is removed" in caplog.text
    assert not path.exists()
    cache.put("key", b"new")
    assert cache.get("key") == b"new"


def test_verify_removes_damaged_entries(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put("good", b"1")
    cache.put("poor", b"2")
    poor = next(path for path in files(tmp_path) if path.name == "poor")
    poor.chmod(0o600)
    poor.write_bytes(b"rubbish")
    assert cache.verify() == ["poor"]
    assert [entry.key for entry in cache.entries()] == ["good"]


@pytest.mark.parametrize("most", [None, 1000, 0])
def test_many_parts_of_a_large_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int | None) -> None:
    """Whatever a system writes at once (0: one piece after the other)."""
    if most == 0:
        monkeypatch.delattr(os, "writev", raising=False)
    elif most is not None:
        monkeypatch.setattr(os, "writev", lambda handle, pieces: os.write(handle, b"".join(pieces)[:most]), raising=False)
    random = np.random.default_rng(0)
    parts = [random.bytes(int(n)) for n in random.integers(0, 200, 1500)]
    if most != 1000:
        parts[700:700] = [memoryview(random.bytes(5 << 20)), random.bytes(3 << 20)]
    cache = DiskCache(str(tmp_path))
    assert cache.put("large", parts, scattered_nbytes=1 << 20)
    assert cache.get("large") == b"".join(parts)


def test_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    for index in range(4):
        cache.put(f"key{index}", bytes(1000))
        path = next(path for path in files(tmp_path) if path.name == f"key{index}")
        os.utime(path, (1e9 + index, 1e9 + index))
    assert cache.get("key0") is not None  # renews its time of use
    assert cache.prune(2500) == 2
    assert sorted(entry.key for entry in cache.entries()) == ["key0", "key3"]


@pytest.mark.not_under_wine("a file's time of access is not set")
def test_size_is_bounded_once_a_process(tmp_path: Path) -> None:
    DiskCache(tmp_path).put("old", bytes(5000))
    (old,) = (path for path in files(tmp_path) if path.name == "old")
    os.utime(old, (1e9, 1e9))
    DiskCache(tmp_path, max_bytes=6000).put("lately", bytes(5000))  # no look within the hour
    assert [entry.key for entry in DiskCache(tmp_path).entries()] == ["old", "lately"]
    os.utime(tmp_path / ".pruned", (1e9, 1e9))
    DiskCache(tmp_path, max_bytes=6000).put("new", bytes(500))
    assert [entry.key for entry in DiskCache(tmp_path).entries()] == ["lately", "new"]


@pytest.mark.not_under_wine("a file's time of access is not set")
def test_a_large_entry_has_the_size_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intarsia.cache.disk_cache._LARGE_NBYTES", 4000)
    DiskCache(tmp_path).put("old", bytes(5000))
    (old,) = (path for path in files(tmp_path) if path.name == "old")
    os.utime(old, (1e9, 1e9))
    DiskCache(tmp_path, max_bytes=6000).put("new", bytes(5000))
    assert [entry.key for entry in DiskCache(tmp_path).entries()] == ["new"]


def test_prune_removes_what_dead_processes_left(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put("key", b"1")
    folder = files(tmp_path)[0].parent
    (folder / ".tmp-dead").write_bytes(b"half")
    (folder / ".tmp-live").write_bytes(b"half")
    os.utime(folder / ".tmp-dead", (time.time() - 7200,) * 2)
    cache.prune()
    assert {path.name for path in files(tmp_path)} == {"key", ".tmp-live"}
    assert [entry.key for entry in cache.entries()] == ["key"]


def test_directory_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = DiskCache(tmp_path / "file" / "below")
    with caplog.at_level(logging.WARNING, "intarsia"):
        assert not cache.put("key", b"1")
        assert not cache.put("key", b"1")
    assert cache.get("key") is None
    assert cache.entries() == []
    assert cache.clear() == 0
    assert len(caplog.records) == 1
    assert "cannot be written" in caplog.text
    assert "INTARSIA_CACHE_DIR" in caplog.text


def test_an_entry_that_another_process_clears_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, replace = DiskCache(tmp_path), os.replace

    def cleared(source: str, target: str) -> None:
        replace(source, target)
        Path(target).unlink()

    monkeypatch.setattr(os, "replace", cleared)
    assert cache.put("key", b"payload")
    assert cache.get("key") is None


def test_keys_are_file_names(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    for key in ("", "../up", "a/b", ".hidden"):
        with pytest.raises(InvalidArgument, match="a cache key is letters, digits"):
            cache.put(key, b"")


def test_content_key_keeps_parts_apart() -> None:
    assert content_key("ab", "c") != content_key("a", "bc")
    assert content_key("a") == content_key(b"a")


def test_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    assert get_cache().directory == cache_directory() == tmp_path
    assert get_cache() is get_cache()
    monkeypatch.setenv("INTARSIA_CACHE", "0")
    assert not cache_enabled()
    assert get_cache().directory is None
    assert not get_cache().put("key", b"1")
    assert get_cache().get("key") is None
    monkeypatch.delenv("INTARSIA_CACHE_DIR")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "intarsia"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("USERPROFILE" if os.name == "nt" else "HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "intarsia"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_directory() == tmp_path / "Library" / "Caches" / "intarsia"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "Local"))
    assert cache_directory() == tmp_path / "Local" / "intarsia" / "cache"


def write_and_read(directory: str, seed: int) -> int:
    cache = DiskCache(Path(directory))
    wrong = 0
    for round_ in range(60):
        key = f"key{round_ % 5}"
        expected = key.encode() * 2000
        cache.put(key, expected)
        found = cache.get(f"key{(round_ + seed) % 5}")
        wrong += found is not None and found != f"key{(round_ + seed) % 5}".encode() * 2000
    return wrong


def test_processes_that_write_the_same_entries(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        assert pool.starmap(write_and_read, [(str(tmp_path), seed) for seed in range(3)]) == [0, 0, 0]
    cache = DiskCache(tmp_path)
    assert cache.verify() == []
    assert len(files(tmp_path)) == len(cache.entries()) == 5


def test_objects(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    assert cache.load("absent") is None
    value = {"shape": (2, None), "weights": np.arange(3)}
    assert cache.store("key-1", value)
    assert cache.load("key-1")["shape"] == (2, None)
    np.testing.assert_array_equal(DiskCache(tmp_path).load("key-1")["weights"], np.arange(3))
    assert not DiskCache(None).store("key-1", value)
    assert DiskCache(None).load("key-1") is None


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"cintarsia.warm\nSignature\n.", "ModuleNotFoundError: No module named 'intarsia.warm'"),  # as files lay once
        (b"cintarsia.graph.model\nNoSuchClass\n.", "AttributeError"),
        (b"", "EOFError"),
        (b"no pickle", "UnpicklingError"),
    ],
)
def test_an_object_of_another_layout(tmp_path: Path, data: bytes, why: str, caplog: pytest.LogCaptureFixture) -> None:
    cache = DiskCache(tmp_path)
    cache.put("key-1", data)
    assert cache.load("key-1") is None
    assert why in caplog.text
    assert "another version of Intarsia: it is removed and will be made anew" in caplog.text
    assert not cache.has("key-1")
