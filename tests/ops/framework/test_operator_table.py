"""docs/operators.md says what the registry has and what the providers answer."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "operator_table.py"
OUTDATED = "docs/operators.md is not up to date; write it anew: python scripts/operator_table.py"
TYPES_OF = (
    "Add",
    "Cast",
    "LSTM",
    "MatMulInteger",
    "Reshape",
    "TopK",
    "Where",
)  # all types of all operators: the script's --check


@functools.cache
def script() -> Any:
    spec = importlib.util.spec_from_file_location("operator_table", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["operator_table"] = module
    spec.loader.exec_module(module)
    return module


def documented() -> dict[tuple[str, str], list[str]]:
    """The cells of each row, by (domain's title, operator)."""
    found = {}
    title = ""
    for line in script().TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            title = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith("| operator"):
            cells = [c.strip() for c in line.strip("|").split("|")]
            found[title, cells[0]] = cells
    return found


@pytest.fixture(scope="module")
def answered() -> list[Any]:
    found: list[Any] = script().rows(types=False)
    return found


def test_every_operator_is_listed_with_its_versions_and_how_it_runs(answered: list[Any]) -> None:
    table = documented()
    asked = {(r.domain or "ai.onnx", r.name): [r.name, ", ".join(map(str, r.versions)), r.cpu.kind] for r in answered}
    listed = {key: cells[:3] for key, cells in table.items()}
    differing = sorted("::".join(key) for key in asked.keys() | listed.keys() if asked.get(key) != listed.get(key))
    assert not differing, f"{OUTDATED} (differs in: {', '.join(differing[:8])})"
    for row in answered:
        if row.cpu.kind == "host":
            assert table[row.domain or "ai.onnx", row.name][4] == row.cpu.reason, OUTDATED


@pytest.mark.parametrize("name", TYPES_OF)
def test_types_are_those_that_the_provider_compiles(name: str) -> None:
    module = script()
    row = module.row_of("", name, module.builtin().records["", name])
    cells = documented()["ai.onnx", name]
    assert [cells[3], cells[4]] == [c.strip() for c in module._line(row).strip("|").split("|")][3:5], OUTDATED


def test_the_count_is_at_the_head(answered: list[Any]) -> None:
    native = sum(r.cpu.kind in ("compiled", "view") for r in answered)
    assert native >= 120
    text = script().TABLE.read_text(encoding="utf-8")
    assert f"**{len(answered)} operators. {native} are compiled by the CPU provider**" in text, OUTDATED


def test_no_operator_fails_on_its_example(answered: list[Any]) -> None:
    wrong = [f"{r.domain}::{r.name}: {r.cpu.reason}" for r in answered if r.tried and r.cpu.kind in ("fails", "unsupported")]
    assert not wrong


def test_an_operator_without_an_example_is_tried_on_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    module = script()
    monkeypatch.setattr(module, "examples", dict)
    row = module.row_of("", "Relu", module.builtin().records["", "Relu"])
    assert (row.cpu.kind, row.tried) == ("compiled", True)
    row = module.row_of("", "Conv", module.builtin().records["", "Conv"])
    assert row.cpu.kind in ("compiled", "not asked")
    row = module.row_of("", "Loop", module.builtin().records["", "Loop"])
    assert (row.cpu.kind, row.tried) == ("host", False)


def test_the_script_checks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = script()
    monkeypatch.setattr(module, "rows", lambda: [module.row_of("", "Relu", module.builtin().records["", "Relu"])])
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "TABLE", tmp_path / "operators.md")
    assert module.main(["--check"]) == 1
    assert "operators.md is not up to date; write it anew: python scripts/operator_table.py" in capsys.readouterr().err
    assert module.main([]) == 0
    assert "1 operators. 1 are compiled by the CPU provider" in capsys.readouterr().out
    assert module.main(["--check"]) == 0
    assert module.main(["--frob"]) == 2
