"""Native code that no model is needed for: compiled once, loaded from the cache afterwards, by every name."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("llvmlite", reason="the functions are compiled with llvmlite")

from intarsia.cache.disk_cache import get_cache
from intarsia.cache.fingerprint import fingerprint
from intarsia.codegen.llvm.cached_image import CachedImage
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target

linked_here = pytest.mark.skipif(
    sys.platform not in ("linux", "win32") or Target.host().arch != "x86_64", reason="links ELF objects for x86-64"
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("INTARSIA_CPU_FEATURES", raising=False)


def texts(target: Target) -> Mapping[str, KernelText]:
    def constant(name: str, value: int) -> KernelText:
        return KernelText(name, f"define i64 @{name}() {{ ret i64 {value} }}")

    return {"seven": constant("f7", 7), "nine": constant("f9", 9)}


def values(addresses: Mapping[str, int]) -> dict[str, int]:
    return {name: ctypes.CFUNCTYPE(ctypes.c_int64)(address)() for name, address in addresses.items()}


def no_texts(target: Target) -> Mapping[str, KernelText]:
    pytest.fail("it was compiled again")


@linked_here
def test_it_is_compiled_once() -> None:
    image = CachedImage("numbers", texts)
    assert not image.is_made()
    assert image.load() is None
    assert values(image.addresses()) == {"seven": 7, "nine": 9}
    assert image.is_made()
    later = CachedImage("numbers", no_texts)
    assert values(later.addresses()) == {"seven": 7, "nine": 9}
    get_cache().clear()
    assert later.load() == later.addresses(), "what is loaded stays"


@linked_here
def test_another_cpu_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    image = CachedImage("numbers", texts)
    image.make()
    monkeypatch.setenv("INTARSIA_CPU_FEATURES", "avx2")
    assert not image.is_made()
    assert image.load() is None


@linked_here
def test_what_another_layout_wrote_is_made_anew(caplog: pytest.LogCaptureFixture) -> None:
    CachedImage("numbers", texts).make()
    get_cache().put(f"numbers-{fingerprint()}", b"cintarsia.codegen.image\nImage\n.")  # a pickle of a module that is gone
    assert values(CachedImage("numbers", texts).addresses()) == {"seven": 7, "nine": 9}
    assert "No module named 'intarsia.codegen.image'" in caplog.text


@pytest.mark.parametrize("what", ["off", "not linked"])
def test_without_the_cache_it_is_compiled_in_each_process(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    if what == "off":
        monkeypatch.setenv("INTARSIA_CACHE", "0")
    else:
        monkeypatch.setattr("intarsia.codegen.llvm.link_objects.link", lambda *_: None)
    image = CachedImage("numbers", texts)
    assert values(image.addresses()) == {"seven": 7, "nine": 9}
    assert not image.is_made()
    assert image.addresses() == image.load()
    assert not list(Path(os.environ["INTARSIA_CACHE_DIR"]).rglob("numbers-*"))
