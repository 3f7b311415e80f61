"""Texts of others (names in models, metadata, file names) as terminals and logs may have them.

A terminal obeys some characters (escape sequences, backspaces), shows others in another order (bidirectional overrides), or not
at all (of no width). Everything that a model's author chose and that Intarsia prints, logs or raises passes through here: such
characters are written as Python's `repr` writes them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import logging

DEBUG, INFO, WARNING = 10, 20, 30  # the standard library's levels


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


class _VisibleRecords:
    """A filter of loggers. Writes out what a record's message has of such characters."""

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


def file_name(name: str) -> str:
    """An output's name as that of a file: what separates folders, or cannot be seen, is "_"."""
    return "".join(c if c.isprintable() and c not in "/\\" else "_" for c in name)


def get_logger(name: str) -> logging.Logger:
    """The logger of a part of the package."""

    def found() -> logging.Logger:
        import logging

        return guarded(logging.getLogger(name))

    return late_logger(found)


def late_logger(make: Callable[[], logging.Logger]) -> logging.Logger:
    """The logger that `make` gives, found when it has something to say."""
    return cast("logging.Logger", _LateLogger(make))


class _LateLogger:
    """A logger that is not looked for before it has to be: `logging`, with what it imports, is a tenth of the package's own
    import. While no part of the program has imported it, nobody can have requested records below a warning."""

    def __init__(self, make: Callable[[], logging.Logger]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        return getattr(self.made(), name)

    def made(self) -> logging.Logger:
        """The logger itself."""
        found = vars(self).get("_made")
        if found is None:
            found = self._made = self._make()
        return cast("logging.Logger", found)

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 # as the standard library's
        return self.made().isEnabledFor(level) if "logging" in sys.modules else level >= WARNING

    def log(self, level: int, message: object, *arguments: object, stacklevel: int = 1, **named: Any) -> None:
        if level >= WARNING or "logging" in sys.modules:
            self.made().log(level, message, *arguments, stacklevel=stacklevel + 1, **named)

    def debug(self, message: object, *arguments: object, stacklevel: int = 1, **named: Any) -> None:
        self.log(DEBUG, message, *arguments, stacklevel=stacklevel + 1, **named)

    def info(self, message: object, *arguments: object, stacklevel: int = 1, **named: Any) -> None:
        self.log(INFO, message, *arguments, stacklevel=stacklevel + 1, **named)
