"""The prose of the documents is 100 columns wide; decisions (docs/design/decisions) have short paragraphs and an index."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "docs" / "design" / "decisions"
FILES = sorted(DECISIONS.glob("[0-9]*.md"))
SECTIONS = ["Context", "Decision", "Consequences", "Measured"]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wrap_docs", ROOT / "scripts" / "wrap_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def title(decision: Path) -> str:
    return decision.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


@pytest.mark.parametrize("folder", [DECISIONS])
def test_prose_is_not_wide_and_paragraphs_of_decisions_are_short(script: ModuleType, folder: Path) -> None:
    assert not [complaint for document in folder.glob("*.md") for complaint in script.complaints(document)]


def test_a_decision_has_a_title_and_its_sections_in_order() -> None:
    for decision in FILES:
        first, *headings = re.findall(r"^#+ .*$", decision.read_text(encoding="utf-8"), re.MULTILINE)
        assert first == f"# {title(decision)}", decision.name
        assert headings in ([f"## {s}" for s in SECTIONS[:3]], [f"## {s}" for s in SECTIONS]), decision.name


def test_the_index_lists_each_decision_once_with_its_title() -> None:
    index = (DECISIONS / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\d{4})\]\(([^)]+)\) \| (.*) \|$", index, re.MULTILINE)
    assert rows == [(f.name[:4], f.name, title(f)) for f in FILES]
    assert [number for number, _, _ in rows] == [f"{i + 1:04}" for i in range(len(rows))]  # a new one takes the next number


@pytest.mark.parametrize("place", ["src/intarsia", "."])
def test_files_that_decisions_name_exist(place: str) -> None:
    """A path with a folder is one of the package or of the repository; others (`name.py`) are not read."""
    named = {path for f in FILES for path in re.findall(r"`((?:\w+/)+(?:\w+\.(?:py|txt))?)`", f.read_text(encoding="utf-8"))}
    top = {"tests", "benchmarks", "scripts", "examples", "docs"}
    chosen = {path for path in named if (path.partition("/")[0] in top) == (place == ".")}
    assert chosen
    assert not sorted(path for path in chosen if not (ROOT / place / path).exists())
