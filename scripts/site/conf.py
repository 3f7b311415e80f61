"""Sphinx's configuration of the documentation site, which build.py copies beside what it stages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from intarsia import __version__

project = "Intarsia"
version = release = __version__
copyright = "the Intarsia contributors"  # Sphinx's name
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
root_doc = "index"
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header"]  # headings of tables that begin at the third level

html_theme = "furo"
html_title = f"Intarsia {__version__}"
html_show_sourcelink = False
html_copy_source = False
html_search_scorer = str(Path(__file__).parent / "search_scorer.js")
pygments_style = "default"
highlight_language = "text"

default_role = "code"  # docstrings are written as Markdown's `code`
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True
add_module_names = False


def _restructured(app: Any, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """A docstring as reStructuredText: stars are stars, an indented block after a paragraph is a listing."""
    lines[:] = listings([stars(line) for line in joined(lines)])


def joined(lines: list[str]) -> list[str]:
    """The lines, with those together that a span of code goes over."""
    result: list[str] = []
    for line in lines:
        if result and result[-1].count("`") % 2:
            result[-1] += f" {line.strip()}"
        else:
            result.append(line)
    return result


def stars(line: str) -> str:
    """The line with signs of reStructuredText outside of code as themselves, and code that a word follows (`OrtValue`s)."""
    parts = re.split(r"(`[^`]*`)", line)
    for i, part in enumerate(parts):
        if i % 2:
            parts[i] += "\\ " if re.match(r"\w", parts[i + 1]) else ""
        else:
            parts[i] = re.sub(r"([*|]|(?<=\w)_(?!\w))", r"\\\1", part)
    return "".join(parts)


def listings(lines: list[str]) -> list[str]:
    """The lines, with `::` before each block that follows an empty line and is indented by four more than what is before it."""
    result: list[str] = []
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        before = [text for text in lines[:i] if text.strip()]
        starts = bool(line.strip() and before and i and not lines[i - 1].strip())
        if starts and indent >= len(before[-1]) - len(before[-1].lstrip()) + 4:
            margin = " " * (len(before[-1]) - len(before[-1].lstrip()))
            result += [f"{margin}::", ""]
        result.append(line)
    return result


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _restructured, priority=400)  # before napoleon
