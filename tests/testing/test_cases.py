"""ONNX's cases: made once, then read from the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intarsia.testing import cases
from intarsia.testing.cases import model_and_data, suite


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if not isinstance(a, np.ndarray):
        return a is b is None
    if a.dtype == object:
        return a.tolist() == b.tolist()
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_node_cases_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models and data of sequences, optionals, texts and narrow floats are what onnx made."""
    names = ("test_identity_sequence", "test_identity_opt", "test_string_concat", "test_cast_FLOAT_to_BFLOAT16", "test_add")
    wanted = {name: suite("node")[name] for name in names}
    made: list[str] = []

    def make(kind: str) -> dict[str, Any]:
        made.append(kind)
        return wanted

    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cases, "_made", make)
    for _ in range(2):
        found = suite.__wrapped__("node")
        assert found.keys() == wanted.keys()
        for name, case in found.items():
            assert case.model == wanted[name].model
            assert (case.rtol, case.atol, case.kind) == (wanted[name].rtol, wanted[name].atol, wanted[name].kind)
            assert _same([list(s) for s in model_and_data(case)[1]], [list(s) for s in model_and_data(wanted[name])[1]])
    assert made == ["node"]


def test_kinds_in_files_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    assert suite.__wrapped__("simple").keys() == suite("simple").keys()
    assert not list(tmp_path.rglob("cases-*"))
