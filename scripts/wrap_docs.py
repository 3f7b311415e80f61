"""Wrap the prose of the documents at 100 columns.

    python scripts/wrap_docs.py            # wraps all documents
    python scripts/wrap_docs.py --check    # exit code 1 and a list of lines where something is wider, or a paragraph too long
    python scripts/wrap_docs.py FILE...    # only these

A paragraph is written anew only where one of its lines is too wide. Tables, listings, headings, link definitions and HTML
stay as they are, and so does a line that is one long word, such as a URL. A decision (docs/design/decisions)
has paragraphs of at most five lines, since one idea needs no more.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
WIDTH = 100
LINES = 5  # of a paragraph of a decision
DECISIONS = ROOT / "docs" / "design" / "decisions"
COMMAND = "python scripts/wrap_docs.py"

_FENCE = re.compile(r"\s*(```|~~~)")
_VERBATIM = re.compile(r"\s*(\||#|<|\[[^\]]+\]: )")  # tables, headings, HTML, link definitions
_ITEM = re.compile(r"(\s*)([-*+]|\d+[.)])(\s+)")
_INDENTED = re.compile(r" {4,}|\t")
_WORD = re.compile(r"(?:`[^`]{1,60}`|\S)+")  # short spans of code are not torn
# What a line must not begin with, or Markdown reads it as an item, a heading, a quotation, a table or an underline.
_MARK = re.compile(r"([-*+]|#+|\d+[.)]|=+|-+|>.*|\|.*)$")


class Block(NamedTuple):
    """Lines of a text that belong together, from the one with index `start` on. `prose` says whether they may be wrapped."""

    start: int
    lines: tuple[str, ...]
    prose: bool

    @property
    def too_wide(self) -> list[int]:
        """The numbers, from 1, of lines of prose that are too wide and can be broken."""
        wide = [i for i, line in enumerate(self.lines) if len(line) > WIDTH and self.prose]
        unbreakable = wrapped(self.lines) if wide else []
        return [self.start + i + 1 for i in wide if self.lines[i] not in unbreakable]


def documents() -> list[Path]:
    """All documents whose prose has a width."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> Iterator[Block]:
    """The paragraphs and items of a text, and what stands between them, in order."""
    start, lines = 0, text.split("\n")
    prose = False
    for i, kind in enumerate(_kinds(lines)):
        if i and (kind != "continued" or not prose):
            yield Block(start, tuple(lines[start:i]), prose)
            start = i
        prose = kind != "verbatim"
    yield Block(start, tuple(lines[start:]), prose)


def _kinds(lines: Sequence[str]) -> Iterator[str]:
    """Of each line, whether it is "verbatim", an "item", or prose that is "continued" where prose stands before it."""
    fence, in_item = "", False
    for line in lines:
        mark = _FENCE.match(line)
        if fence or mark:
            fence = "" if mark and mark[1] == fence else fence or (mark[1] if mark else "")
            yield "verbatim"
        elif not line.strip() or _VERBATIM.match(line) or (_INDENTED.match(line) and not in_item):
            in_item = in_item and (not line.strip() or line.startswith(" "))
            yield "verbatim"
        else:
            item = _ITEM.match(line)
            in_item = bool(item) or (in_item and line.startswith(" "))
            yield "item" if item else "continued"


def wrapped(lines: Sequence[str]) -> list[str]:
    """The lines of one paragraph or item, at most `WIDTH` wide where words allow it."""
    item = _ITEM.match(lines[0])
    first = item[0] if item else lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    rest = " " * len(first)
    result, line = [], first
    for word in _words(" ".join((lines[0][len(first) :], *lines[1:]))):
        if line.strip() and line != first and len(line) + 1 + len(word) > WIDTH:
            result.append(line)
            line = rest + word
        else:
            line += word if line in {first, rest} else " " + word
    return [*result, line]


def _words(text: str) -> list[str]:
    words: list[str] = []
    for word in _WORD.findall(text):
        if words and _MARK.match(word):
            words[-1] += " " + word
        else:
            words.append(word)
    return words


def rewritten(text: str) -> str:
    """A document with every paragraph wrapped that has a line too wide."""
    lines: list[str] = []
    for block in blocks(text):
        lines += wrapped(block.lines) if block.too_wide else block.lines
    return "\n".join(lines)


def complaints(path: Path) -> list[str]:
    """What is wrong with a document, each as `file:line: what`."""
    found = []
    for block in blocks(path.read_text(encoding="utf-8")):
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        found += [f"{name}:{line}: wider than {WIDTH} columns; {COMMAND} wraps it" for line in block.too_wide]
        if block.prose and path.parent == DECISIONS and len(block.lines) > LINES:
            found.append(f"{name}:{block.start + 1}: a paragraph of {len(block.lines)} lines; {LINES} are enough for one idea")
    return found


def main(arguments: Sequence[str]) -> int:
    """Wraps, or with `--check` complains of, the documents named, or all."""
    paths = [Path(a).resolve() for a in arguments if a != "--check"] or documents()
    if "--check" in arguments:
        found = [complaint for path in paths for complaint in complaints(path)]
        print("\n".join(found), file=sys.stderr, end="\n" if found else "")
        return bool(found)
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if (new := rewritten(text)) != text:
            path.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
