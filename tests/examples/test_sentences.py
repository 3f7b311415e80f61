"""User documents have short sentences: at most 25 words. Older documents may have the long ones that they had, and no more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = 25
# Documents for users -> how many longer sentences they still have. These numbers only go down.
LONGER = {
    "README.md": 0,
    "SECURITY.md": 0,
    "docs/README.md": 0,
    "docs/caching.md": 0,
    "docs/choosing-providers.md": 0,
    "docs/cli.md": 7,
    "docs/compiled-models.md": 0,
    "docs/custom-operators.md": 0,
    "docs/custom-providers.md": 17,
    "docs/debugging.md": 12,
    "docs/devices.md": 5,
    "docs/dynamic-shapes.md": 0,
    "docs/install.md": 0,
    "docs/io-binding.md": 0,
    "docs/language-models.md": 0,
    "docs/migration.md": 0,
    "docs/model-packages.md": 5,
    "docs/onnxruntime-plugin.md": 7,
    "docs/performance-in-practice.md": 0,
    "docs/plugins.md": 8,
    "docs/providers.md": 84,
    "docs/quantising-a-model.md": 0,
    "docs/quantization.md": 4,
    "docs/quickstart.md": 0,
    "docs/security.md": 0,
    "docs/serving.md": 0,
    "docs/threads.md": 0,
    "docs/values.md": 0,
    "docs/words.md": 0,
}
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


@pytest.mark.parametrize("document", LONGER)
def test_sentences_are_short(document: str) -> None:
    found = longer((ROOT / document).read_text(encoding="utf-8"))
    assert len(found) <= LONGER[document], "\n".join(found)
    assert len(found) >= LONGER[document], f"{len(found)} are left: lower the number in LONGER"
