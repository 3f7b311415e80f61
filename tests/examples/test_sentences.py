"""User documents have short sentences: at most 25 words. Documents that are older are listed here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = 25
# Documents that are older than this test and were not rewritten yet. The list only becomes shorter.
OLDER = {
    "CONTRIBUTING.md", "docs/compatibility.md",
    "docs/onnxruntime-plugin.md", "docs/operators.md",
    "docs/performance.md", "docs/pipeline.md", "docs/plugins.md", "docs/providers.md",
    "docs/quantization.md",
}  # fmt: skip
DOCUMENTS = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")} - {ROOT / name for name in OLDER})
_FENCE = re.compile(r"^ *(```|~~~).*?^ *\1[^\n]*$", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
_END = re.compile(r"(?<=[.!?])[\"')*]*\s+(?=[A-Z`*\[\"'(0-9])")


def sentences(text: str) -> list[str]:
    """The sentences of paragraphs and of items, without listings, tables and headings; a link counts as its words."""
    text = re.sub(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^()]*\)", r"\1", _FENCE.sub("\n", text))
    text = re.sub(r"`[^`]*`", "Code", text)  # a span of code is one word
    paragraphs: list[list[str]] = [[]]
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith(("|", "#", "<", ">")):
            paragraphs.append([])
        elif item := _ITEM.match(line):
            paragraphs.append([line[item.end() :]])
        else:
            paragraphs[-1].append(line.strip())
    joined = (" ".join(lines) for lines in paragraphs)
    return [sentence for paragraph in joined for sentence in _END.split(paragraph) if sentence]


def longer(text: str) -> list[str]:
    return [sentence for sentence in sentences(text) if len(re.findall(r"[\w%][\w%'.,/+-]*", sentence)) > WORDS]


def test_sentences_are_found() -> None:
    text = "# Not one\n\nOne `a b c`. Two is\nhere: [a link](x.md)!\n\n- an item\n- Another. And on\n\n| a | table |\n"
    text += "\n```\nNot this.\n```\n"
    assert sentences(text) == ["One Code.", "Two is here: a link!", "an item", "Another.", "And on"]
    assert longer("word " * 26 + ".") and not longer("word " * 25 + ".")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda f: f.relative_to(ROOT).as_posix())
def test_sentences_are_short(document: Path) -> None:
    found = longer(document.read_text(encoding="utf-8"))
    assert not found, f"more than {WORDS} words: " + "\n".join(found)


def test_documents_that_are_older_exist_and_have_long_sentences() -> None:
    assert not sorted(name for name in OLDER if not longer((ROOT / name).read_text(encoding="utf-8"))), "take them off the list"
