"""docs/compatibility.md says what is there, and its names are onnxruntime's."""

from __future__ import annotations

from pathlib import Path

import pytest

from intarsia.compat import api_report
from intarsia.compat.api_report import CLASSES, DIFFERS, LOW_LEVEL, MODULE, entries, report

DOCUMENT = Path(__file__).parents[2] / "docs" / "compatibility.md"


def test_nothing_is_missing() -> None:
    assert [e.name for listed in entries().values() for e in listed if e.status == "missing"] == []


def test_the_document_is_up_to_date() -> None:
    text = "write it anew: python -m intarsia.compat.api_report > docs/compatibility.md"
    assert DOCUMENT.read_text(encoding="utf-8") == report(), text


def test_differences_name_what_is_in_the_inventory() -> None:
    names = {e.name for listed in entries().values() for e in listed}
    assert DIFFERS.keys() <= names


def test_a_name_that_is_missing_is_seen(monkeypatch) -> None:
    monkeypatch.setattr(api_report, "MODULE", [*MODULE, "never_heard_of"])
    monkeypatch.setitem(CLASSES, "OrtValue", f"{CLASSES['OrtValue']} never_heard_of")
    missing = {e.name for listed in entries().values() for e in listed if e.status == "missing"}
    assert missing == {"never_heard_of", "OrtValue.never_heard_of"}


def test_the_names_are_onnxruntimes() -> None:
    peer = pytest.importorskip("onnxruntime", reason="the inventory is its own")
    from onnxruntime.capi import _pybind_state as low

    ignored = {"capi", "contextlib", "import_capi_exception", "onnxruntime_validation", "annotations"}
    public = {n for n in dir(peer) if not n.startswith("_") and n not in ignored} | {"__version__"}
    assert public <= {*MODULE, *CLASSES}
    inner = {n for n in dir(low) if not n.startswith("_")} - {"os", "platform", "warnings", "version_info"}
    assert inner <= {*LOW_LEVEL, *MODULE, *CLASSES}
    for name, members in CLASSES.items():
        found = {m for m in dir(getattr(peer, name)) if not m.startswith("_")}
        listed = set(members.split())
        if name not in ("OrtDeviceVendorId", "SessionIOBinding"):  # the members of int, and those of IOBinding
            assert found - {"name", "value"} <= listed, name
