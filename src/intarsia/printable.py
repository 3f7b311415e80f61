"""Texts of others (names in models, metadata, file names) as terminals and logs may have them.

A terminal obeys some characters (escape sequences, backspaces), shows others in another order (bidirectional overrides), or not
at all (of no width). Everything that a model's author chose and that Intarsia prints, logs or raises passes through here: such
characters are written as Python's `repr` writes them.
"""

from __future__ import annotations

import logging


def visible(text: str) -> str:
    """A name on one line: what cannot be printed is written out (`\\x1b`, `\\n`, `\\u202e`, lone surrogates)."""
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text])


def visible_lines(text: str) -> str:
    """A text of several lines, which keep their ends and indents; else as `visible`."""
    if text.isprintable():
        return text
    return "\n".join(["\t".join(map(visible, line.split("\t"))) for line in text.split("\n")])


class _VisibleRecords(logging.Filter):
    """Writes out what a record's message has of such characters."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        shown = visible_lines(text)
        if shown is not text and shown != text:
            record.msg, record.args = shown, None
        return True


_filter = _VisibleRecords()


def guarded(found: logging.Logger) -> logging.Logger:
    """A logger whose records are visible, whoever handles them."""
    found.addFilter(_filter)  # which adds it once
    return found


def get_logger(name: str) -> logging.Logger:
    """The logger of a part of the package."""
    return guarded(logging.getLogger(name))
