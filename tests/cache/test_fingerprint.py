"""What programs in the cache depend on: this package's files, or what its installer wrote of them."""

from __future__ import annotations

import marshal
import os
from pathlib import Path

import pytest

from intarsia.cache import fingerprint


@pytest.fixture
def package(tmp_path: Path) -> Path:
    root = tmp_path / "site-packages" / "intarsia"
    (root / "ops").mkdir(parents=True)
    (root / "__pycache__").mkdir()
    for name in ("__init__.py", "ops/shape.py", "__pycache__/shape.py", "py.typed"):
        (root / name).write_bytes(b"x = 1\n")
    return root


def test_sources_below_a_folder(package: Path) -> None:
    found = fingerprint._states(str(package))
    assert sorted(Path(path) for path, _, _ in found) == [package / "__init__.py", package / "ops" / "shape.py"]
    assert {size for _, size, _ in found} == {6}


@pytest.mark.parametrize("name", ["__init__.py", "ops/shape.py", "ops/new.py"])
def test_any_change_is_seen(package: Path, name: str) -> None:
    before = sorted(fingerprint._states(str(package)))
    (package / name).write_text("x = 2\n")
    os.utime(package / name, ns=(1, 1))
    assert sorted(fingerprint._states(str(package))) != before


@pytest.fixture
def settled(package: Path) -> Path:
    """The package as it was changed long ago, which is when a listing of it is noted; `_states` has noted it."""
    for path in sorted(package.rglob("*"), reverse=True):
        os.utime(path, ns=(10**18, 10**18))
    os.utime(package, ns=(10**18, 10**18))
    fingerprint._states(str(package))
    return package


def test_a_noted_listing_is_read_instead_of_the_folders(settled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fingerprint._states(str(settled))
    monkeypatch.setattr(fingerprint, "_listing", lambda root: pytest.fail("the folders were read"))
    assert fingerprint._states(str(settled)) == first
    (settled / "ops" / "shape.py").write_text("x = 20\n")  # in place: no folder changes
    assert fingerprint._states(str(settled)) != first


@pytest.mark.parametrize("name", ["new.py", "ops/new.py", "ops/deeper/new.py"])
def test_a_new_file_is_seen_behind_a_noted_listing(settled: Path, name: str) -> None:
    (settled / name).parent.mkdir(exist_ok=True)
    (settled / name).write_text("")
    assert settled / name in {Path(path) for path, _, _ in fingerprint._states(str(settled))}


def test_a_removed_file_is_seen_behind_a_noted_listing(settled: Path) -> None:
    (settled / "ops" / "shape.py").unlink()
    os.utime(settled / "ops", ns=(10**18, 10**18))  # as on a file system whose folders have no times
    assert [Path(path) for path, _, _ in fingerprint._states(str(settled))] == [settled / "__init__.py"]


def test_what_changed_just_now_is_not_noted(package: Path) -> None:
    fingerprint._states(str(package))
    assert not fingerprint.get_cache().has(f"sources-of-{fingerprint.content_key(str(package))}")


@pytest.mark.parametrize("noted", [b"", b"no listing", marshal.dumps(3), marshal.dumps(([("", "")], []))])
def test_what_is_no_listing_is_made_anew(settled: Path, noted: bytes) -> None:
    expected = fingerprint._states(str(settled))
    fingerprint.get_cache().put(f"sources-of-{fingerprint.content_key(str(settled))}", noted)
    assert fingerprint._states(str(settled)) == expected


def test_of_an_installed_package_the_list_of_its_files_says_it(package: Path) -> None:
    root = str(package)
    assert fingerprint._installed(root) == b""
    record = package.parent / "intarsia-0.1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    assert fingerprint._installed(root) == b""
    record.write_text("intarsia/__init__.py,,\n")
    first = fingerprint._installed(root)
    (package / "ops" / "shape.py").write_text("x = 3\n")
    assert first == fingerprint._installed(root) != b""
    record.unlink()
    record.write_text("intarsia/__init__.py,sha256=1,6\n")  # as an installer writes it anew
    assert fingerprint._installed(root) not in (first, b"")


def test_a_checkout_is_not_installed(package: Path, tmp_path: Path) -> None:
    package.parent.rename(tmp_path / "src")
    assert fingerprint._installed(str(tmp_path / "src" / "intarsia")) == b""
