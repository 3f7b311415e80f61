"""Whose the cache and its entries are, and what else may lie there: nothing of others is read, and nothing waits."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import intarsia
from intarsia.cache import disk_cache as cache_module
from intarsia.cache.disk_cache import DiskCache, get_cache
from intarsia.datasets import get_example

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners and permissions are POSIX's")

OTHER = 12345  # a user who has nothing to do with this one
as_root = pytest.mark.skipif(os.name == "posix" and os.geteuid() != 0, reason="only root can give files to others")


def entry(directory: Path, key: str = "entry-aa") -> Path:
    return directory / key[-2:] / key


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write to every file")
def test_nobody_cuts_an_entry_by_chance(tmp_path: Path) -> None:
    """It may be mapped: pages that are gone would end the process."""
    cache = DiskCache(tmp_path)
    assert cache.put("entry-aa", b"x" * 1000)
    with pytest.raises(PermissionError):
        os.truncate(entry(tmp_path), 10)
    assert cache.put("entry-aa", b"y" * 1000)
    assert cache.get("entry-aa") == b"y" * 1000
    assert cache.clear() == 1


def test_it_is_made_for_its_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert DiskCache(tmp_path / "a" / "cache").put("entry-aa", b"x")
    finally:
        os.umask(before)
    made = tmp_path / "a" / "cache"
    assert [mode(path) for path in (made, made / "aa", entry(made))] == [0o700, 0o700, 0o600 if os.name == "nt" else 0o400]


def test_so_does_whoever_else_is_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    assert Path(get_example("mul_1.onnx")).is_relative_to(tmp_path / "cache")
    assert mode(tmp_path / "cache") == 0o700


@pytest.mark.parametrize("bits", [0o620, 0o602, 0o666])
def test_entries_that_others_may_write(tmp_path: Path, bits: int, caplog: pytest.LogCaptureFixture) -> None:
    cache = DiskCache(tmp_path / "c")
    for key in ("entry-aa", "other-aa"):
        assert cache.put(key, b"x" * 100)
        entry(tmp_path / "c", key).chmod(bits)
    for _ in range(2):
        for key in ("entry-aa", "other-aa"):
            assert cache.get(key) is None
            assert cache.open(key) is None
            assert cache.map(key, 4096) is None
    (said,) = warnings_of(caplog)
    assert "entry-aa is not used: others may write to it (entries hold machine code; INTARSIA_CACHE_READ_ONLY=1 trusts" in said
    assert cache.put("entry-aa", b"mine")
    assert cache.get("entry-aa") == b"mine"


@as_root
def test_entries_of_another_owner(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = DiskCache(tmp_path / "c")
    assert cache.put("entry-aa", b"x")
    os.chown(entry(tmp_path / "c"), OTHER, OTHER)
    assert cache.get("entry-aa") is None
    assert cache.open("entry-aa") is None
    assert [f"belongs to another user ({OTHER})" in said for said in warnings_of(caplog)] == [True]


def pipe(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def link(path: Path) -> None:
    target = path.with_name("elsewhere-aa")
    DiskCache(path.parents[1]).put("elsewhere-aa", b"x")
    path.symlink_to(target)


def link_to_nothing(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("odd", [pipe, folder, link, link_to_nothing, link_to_itself, device])
def test_odd_files_in_the_place_of_entries(
    tmp_path: Path, odd: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = entry(tmp_path / "c")
    path.parent.mkdir(parents=True)
    tmp_path.joinpath("c").chmod(0o700)
    odd(path)
    cache = DiskCache(tmp_path / "c")
    assert cache.get("entry-aa") is None
    assert cache.peek("entry-aa") is None
    assert cache.open("entry-aa") is None
    assert cache.map("entry-aa", 4096) is None
    cache.damaged()
    cache.entries()
    replaced = cache.put("entry-aa", b"new")
    assert replaced == (odd is not folder)
    assert cache.get("entry-aa") == (b"new" if replaced else None)
    assert cache.put("other-aa", b"y"), "one odd file turns the cache off"
    cache.prune(0)
    cache.clear()
    assert len(warnings_of(caplog)) <= 1


def test_odd_folders_and_marks(tmp_path: Path) -> None:
    """A folder of entries that is a link is not emptied, and the mark of the last look is a pipe."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "letter").write_text("dear")
    home = tmp_path / "c"
    home.mkdir(0o700)
    (home / "er").symlink_to(precious)
    os.mkfifo(home / ".pruned")
    cache = DiskCache(home)
    assert cache.put("entry-aa", b"x")
    cache.prune(0)
    cache.clear()
    cache.verify()
    assert (precious / "letter").read_text() == "dear"


@pytest.mark.parametrize("bits", [0o770, 0o707, 0o777])
def test_a_directory_that_others_may_write(tmp_path: Path, bits: int, caplog: pytest.LogCaptureFixture) -> None:
    home = tmp_path / "c"
    assert DiskCache(home).put("entry-aa", b"x")
    home.chmod(bits)
    cache = DiskCache(home)
    assert cache.get("entry-aa") is None
    assert not cache.put("other-aa", b"x")
    assert not cache.writable
    assert (cache.entries(), cache.place, cache.free_nbytes() > 0) == ([], "", True)
    (said,) = warnings_of(caplog)
    assert "is not used: others may write to it (it holds machine code); chmod go-w" in said
    home.chmod(0o755)
    assert DiskCache(home).get("entry-aa") == b"x"


@as_root
def test_a_directory_of_another_owner(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    home = tmp_path / "c"
    assert DiskCache(home).put("entry-aa", b"x")
    os.chown(home, OTHER, OTHER)
    assert DiskCache(home).get("entry-aa") is None
    assert [f"belongs to another user ({OTHER})" in said for said in warnings_of(caplog)] == [True]


def test_the_usual_place_is_closed_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTARSIA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    home = tmp_path / "intarsia"
    home.mkdir()
    home.chmod(0o775)  # as an earlier version made it where the umask is 002
    cache_module._cache.cache_clear()
    assert get_cache().put("entry-aa", b"x")
    assert mode(home) == 0o700


def test_a_shared_one_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    home = tmp_path / "c"
    assert DiskCache(home).put("entry-aa", b"x")
    home.chmod(0o777)
    entry(home).chmod(0o666)
    if os.geteuid() == 0:
        os.chown(home, OTHER, OTHER)
        os.chown(entry(home), OTHER, OTHER)
    os.utime(entry(home), (0, 0))
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(home))
    monkeypatch.setenv("INTARSIA_CACHE_READ_ONLY", "1")
    cache = get_cache()
    assert cache.get("entry-aa") == b"x"
    assert not cache.put("other-aa", b"x")
    assert not cache.writable
    assert (cache.clear(), cache.prune(0)) == (0, 0)
    assert {path.name for path in home.rglob("*") if path.is_file()} == {"entry-aa", ".pruned"}
    assert entry(home).stat().st_mtime == 0
    assert warnings_of(caplog) == []


def test_sessions_go_on_without_what_is_refused(tmp_path: Path) -> None:
    """A cache that a session has filled, of which every entry is another kind of odd then."""
    code = """
import sys, numpy as np, onnx.parser, intarsia as ort
from intarsia.cache import disk_cache
disk_cache.PREBUILT = ""  # what was made when a checkout was set up would stand in for some entries
text = '<ir_version: 8, opset_import: ["" : 17]> g (float[n,3] x) => (float[n,3] y) { a = Exp(x) y = Softmax(a) }'
open(sys.argv[1], "wb").write(onnx.parser.parse_model(text).SerializeToString())
session = ort.InferenceSession(sys.argv[1])
print(session.run(None, {"x": np.zeros((2, 3), np.float32)})[0].sum())
"""
    home = tmp_path / "c"
    env = {**os.environ, "INTARSIA_CACHE_DIR": str(home), "INTARSIA_PROGRAM_CACHE": "1",
           "PYTHONPATH": str(Path(intarsia.__file__).parents[1])}  # fmt: skip
    for turn in range(4):
        command = [sys.executable, "-c", code, str(tmp_path / "m.onnx")]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=True)
        assert done.stdout == "2.0\n"
        # After the first turn every entry is odd; after a later one, whether a session reads an odd one follows from its name.
        assert done.stderr.count("is not used") in ((0,), (1,), (0, 1), (0, 1))[turn], done.stderr
        for i, path in enumerate(sorted(path for path in home.rglob("*-*") if path.is_file() and not path.is_symlink())):
            if turn == 0 or i % 3 == turn - 1:
                path.unlink()
                (pipe, folder, link_to_nothing)[i % 3](path)
