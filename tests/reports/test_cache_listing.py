"""What the cache is listed as, and that listing changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import intarsia as ort
from intarsia.cache.disk_cache import CacheEntry, DiskCache, get_cache
from intarsia.reports.cache_listing import CHOICES, KINDS, OTHERS, by_kind, kind_of, warm_starts

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.mark.parametrize(
    ("key", "kind"),
    [("obj-12", KINDS["obj"]), ("start-12", KINDS["start"]), ("0123abcd", CHOICES), ("something-else", OTHERS)],
)
def test_kinds(key: str, kind: str) -> None:
    assert kind_of(key) == kind


def test_entries_by_kind() -> None:
    entries = [CacheEntry("obj-1", 10, 5.0), CacheEntry("obj-2", 20, 3.0), CacheEntry("start-1", 100, 1.0)]
    assert [(k.name, k.entries, k.nbytes, k.last_used) for k in by_kind(entries)] == [
        (KINDS["start"], 1, 100, 1.0),
        (KINDS["obj"], 2, 30, 5.0),
    ]


def test_models_with_their_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("INTARSIA_PROGRAM_CACHE", "1")
    ort.InferenceSession(MODEL)
    (start,) = warm_starts(get_cache())
    (weights,) = [entry.nbytes for entry in get_cache().entries() if entry.key.startswith("weights-")]
    (head,) = [entry.nbytes for entry in get_cache().entries() if entry.key.startswith("start-")]
    assert start.model == str(MODEL)
    assert head < start.nbytes <= head + weights
    assert [text.partition(":")[0] for text in start.inputs] == ["image"]
    ort.InferenceSession(MODEL.read_bytes())
    assert len(warm_starts(get_cache())) == 2
    assert len(warm_starts(get_cache(), 1)) == 1


def test_entries_of_another_version_are_listed_without_a_name(tmp_path: Path) -> None:
    store = DiskCache(tmp_path)
    assert store.put("start-abc", b"not a pickle")
    (start,) = warm_starts(store)
    assert (start.key, start.model, start.inputs) == ("abc", "", ())


def test_looking_is_no_use(tmp_path: Path) -> None:
    store = DiskCache(tmp_path)
    assert store.put("start-abc", b"x")
    path = next(tmp_path.rglob("start-abc"))
    os.utime(path, (1000.0, 1000.0))
    assert store.peek("start-abc") == b"x"
    warm_starts(store)
    assert path.stat().st_mtime == 1000.0
    path.chmod(0o600)
    path.write_bytes(b"damaged")
    assert store.peek("start-abc") is None
    assert path.exists()
    assert store.peek("absent") is None
    assert DiskCache(None).peek("absent") is None
