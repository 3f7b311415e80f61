"""The prose of the documents is 100 columns wide; decisions (docs/design/decisions) have short paragraphs and an index. Names
and prose use the words of the glossary: of those that are not used, the ones that are easily told are looked for."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import intarsia

PACKAGE = Path(intarsia.__file__).parent
ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "docs" / "design" / "decisions"
GLOSSARY = ROOT / "docs" / "design" / "glossary.md"
FILES = sorted(DECISIONS.glob("[0-9]*.md"))
SECTIONS = ["Context", "Decision", "Consequences", "Measured"]
NAMES = {"apart", "asked", "asks", "kept"}
"""Words of no name of the package's own: each has several of the field's behind it (separate, decomposed; requested, required;
cached, memoized, retained)."""
PHRASES = re.compile(r"\b(in the place of|taken apart|process(es)? apart|asked for|asks (for|of))\b", re.IGNORECASE)
LISTED = {  # lines with such a phrase that stay: texts of kernels, whose symbols are hashes of them
    "runtime/spmd_feed.py": 3,
}


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


def test_prose_is_100_columns_wide_and_paragraphs_of_decisions_have_five_lines(script: ModuleType) -> None:
    documents = script.documents()
    assert {"README.md", "CONTRIBUTING.md", "SECURITY.md"} < {d.name for d in documents}
    assert set(documents) > {*FILES, ROOT / "docs" / "pipeline.md"}
    assert not [complaint for document in documents for complaint in script.complaints(document)]


LONG = "a word and another one, " * 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("short\nlines\nstay\n", None),
        (f"| {LONG} |\n", None),
        (f"# {LONG}\n", None),
        (f"```\n{LONG}\n```\n", None),
        (f"- item\n\n  ```python\n  {LONG}\n  ```\n", None),
        (f"[name]: https://example.org/{'x' * 100}\n", None),
        (f"https://example.org/{'x' * 100}\n", None),
        (f"an indented listing:\n\n    {LONG}\n", None),
        ("x" * 60 + " " + "y" * 60 + "\n", "x" * 60 + "\n" + "y" * 60 + "\n"),
        ("- " + "x" * 60 + " " + "y" * 60 + "\n", "- " + "x" * 60 + "\n  " + "y" * 60 + "\n"),
        ("12. " + "x" * 60 + " " + "y" * 60 + "\n", "12. " + "x" * 60 + "\n    " + "y" * 60 + "\n"),
        ("- one\n- " + "x" * 60 + "\n  " + "y" * 100 + "\n", None),
        ("x" * 80 + " `code of words`, " + "y" * 20 + "\n", "x" * 80 + " `code of words`,\n" + "y" * 20 + "\n"),
        ("x" * 90 + " `code of words`, y\n", "x" * 90 + "\n`code of words`, y\n"),
        ("x" * 97 + " a - 1 and more\n", "x" * 97 + "\na - 1 and more\n"),
    ],
)  # fmt: skip
def test_only_prose_is_wrapped_and_no_line_becomes_an_item(script: ModuleType, text: str, expected: str | None) -> None:
    wrapped = script.rewritten(text)
    assert wrapped == (text if expected is None else expected)
    assert script.rewritten(wrapped) == wrapped


def test_a_wide_line_is_told_and_wrapped(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = tmp_path / "page.md"
    document.write_text(f"# Title\n\n{LONG}\n", encoding="utf-8")
    assert script.main(["--check", str(document)]) == 1
    assert capsys.readouterr().err == f"{document}:3: wider than 100 columns; python scripts/wrap_docs.py wraps it\n"
    assert script.main([str(document)]) == 0
    assert script.main(["--check", str(document)]) == 0
    assert document.read_text(encoding="utf-8").split() == ["#", "Title", *LONG.split()]


def test_a_long_paragraph_of_a_decision_is_told(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "DECISIONS", tmp_path)
    document = tmp_path / "0001-why.md"
    document.write_text("# Why\n\n" + "line\n" * 5 + "\n" + "line\n" * 6 + "\n| a |\n| - |\n" + "| b |\n" * 9, encoding="utf-8")
    assert script.main(["--check", str(document)]) == 1
    assert capsys.readouterr().err == f"{document}:9: a paragraph of 6 lines; 5 are enough for one idea\n"


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


def test_the_glossary_has_one_line_a_word_in_order() -> None:
    terms, _, unused = GLOSSARY.read_text(encoding="utf-8").partition("## Words that are not used")
    for table in (terms, unused):
        words = re.findall(r"^\| (?!-)(.+?) \|", table, re.MULTILINE)[1:]
        assert len(words) > 5
        assert words == sorted(set(words), key=str.lower)


@pytest.mark.parametrize("place", ["src/intarsia", "."])
def test_files_that_decisions_and_the_glossary_name_exist(place: str) -> None:
    """A path with a folder is one of the package or of the repository; others (`name.py`) are not read."""
    texts = [f.read_text(encoding="utf-8") for f in (*FILES, GLOSSARY)]
    named = {path for text in texts for path in re.findall(r"`((?:\w+/)+(?:\w+\.(?:py|txt))?)`", text)}
    top = {"tests", "benchmarks", "scripts", "examples", "docs"}
    chosen = {path for path in named if (path.partition("/")[0] in top) == (place == ".")}
    assert chosen
    assert not sorted(path for path in chosen if not (ROOT / place / path).exists())


def words(name: str) -> set[str]:
    return {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Names that a module defines: functions, classes, parameters, variables, attributes, and fields of classes."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def test_names_are_of_the_glossary() -> None:
    found = [
        f"{file.relative_to(PACKAGE)}:{line} {name}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for line, name in [(1, file.stem), *names(ast.parse(file.read_text(encoding="utf-8")))]
        if words(name) & NAMES
    ]
    assert not found, "docs/design/glossary.md has the field's words for these:\n" + "\n".join(found)


def test_prose_has_the_words_of_the_glossary(script: ModuleType) -> None:
    documents = [d for d in script.documents() if d != GLOSSARY]
    found: dict[str, list[str]] = {}
    for file, place in [*((f, PACKAGE) for f in sorted(PACKAGE.rglob("*.py"))), *((d, ROOT) for d in documents)]:
        name = file.relative_to(place).as_posix()
        for line, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if PHRASES.search(text):
                found.setdefault(name, []).append(f"{name}:{line} {text.strip()}")
    more = [line for name, lines in found.items() if len(lines) > LISTED.get(name, 0) for line in lines]
    assert not more, "docs/design/glossary.md says what to write instead:\n" + "\n".join(more)


def test_what_is_looked_for_is_found() -> None:
    tree = ast.parse("class KeptLines:\n  def f(self, names_apart):\n    self._asked = KEPT = 1\nprint(kept)")
    assert {name for _, name in names(tree) if words(name) & NAMES} == {"KeptLines", "names_apart", "KEPT", "_asked"}
    assert words("unkept_NNAPIModel") == {"unkept", "nnapi", "model"}
    assert PHRASES.search("It is asked for twice") and not PHRASES.search("tasks for it; a provider is asked whether")
