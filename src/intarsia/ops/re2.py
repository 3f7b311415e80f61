"""Regular expressions of RE2, which ONNX's RegexFullMatch takes, written as Python's.

They differ: \\d, \\w and [[:alpha:]] hold ASCII only, \\pL and \\p{Lu} are categories of Unicode, flags hold from
where they stand, and there is nothing that needs backtracking. What RE2 refuses is refused here.
(Syntax: https://github.com/google/re2/wiki/Syntax)
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Sequence
from itertools import groupby

Ranges = tuple[tuple[int, int], ...]  # of code points, first and last

_LAST = sys.maxunicode
_MOST_REPEATS = 1000


def _of(text: str) -> Ranges:
    """Ranges written as pairs of characters."""
    return tuple((ord(a), ord(b)) for a, b in zip(text[::2], text[1::2], strict=True))


_DIGIT, _UPPER, _LOWER = _of("09"), _of("AZ"), _of("az")
_WORD = (*_DIGIT, *_UPPER, *_of("__"), *_LOWER)
_PERL = {"d": _DIGIT, "w": _WORD, "s": _of("\t\n\f\r  ")}
_POSIX = {
    "alnum": (*_DIGIT, *_UPPER, *_LOWER), "alpha": (*_UPPER, *_LOWER), "ascii": _of("\0\x7f"), "blank": _of("\t\t  "),
    "cntrl": _of("\0\x1f\x7f\x7f"), "digit": _DIGIT, "graph": _of("!~"), "lower": _LOWER, "print": _of(" ~"),
    "punct": _of("!/:@[`{~"), "space": _of("\t\r  "), "upper": _UPPER, "word": _WORD, "xdigit": (*_DIGIT, *_of("AFaf")),
}  # fmt: skip
_CONTROLS = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_IN_A_WORD = "[0-9A-Za-z_]"
_EDGES = {
    "A": r"\A", "z": r"\Z",
    "b": f"(?:(?<={_IN_A_WORD})(?!{_IN_A_WORD})|(?<!{_IN_A_WORD})(?={_IN_A_WORD}))",
    "B": f"(?:(?<={_IN_A_WORD})(?={_IN_A_WORD})|(?<!{_IN_A_WORD})(?!{_IN_A_WORD}))",
}  # fmt: skip


class PatternError(ValueError):
    """The pattern is none of RE2's, or one that is not supported."""


@functools.lru_cache(256)
def compiled(pattern: str) -> re.Pattern[str]:
    """RE2's `pattern` for Python. It has no numbered groups.

    Raises:
        PatternError: it is not of RE2's syntax, or names a script (`\\p{Greek}`) or bytes (`\\C`), which are not supported.
    """
    try:
        return re.compile(_Translation(pattern).text())
    except (PatternError, re.error, RecursionError) as error:
        raise PatternError(f"pattern {pattern!r} is not a regular expression of RE2: {error}") from None


class _Translation:
    def __init__(self, pattern: str) -> None:
        self.pattern, self.at = pattern, 0
        self.flags = frozenset[str]()
        self.around: list[frozenset[str]] = []  # flags outside of the groups that are open
        self.parts: list[str] = []

    def text(self) -> str:
        repeatable = repeated = False
        while self.at < len(self.pattern):
            if (count := self._repetition()) is not None:
                if not repeatable or repeated:
                    raise PatternError(f"there is nothing to repeat at position {self.at}")
                self.parts.append(count)
                repeated = True
                continue
            made = self._next()
            repeatable, repeated = made not in ("(?:", "|", ""), False
            self.parts.append(made)
        if self.around:
            raise PatternError("a group is not closed")
        return "".join(self.parts)

    def _next(self) -> str:
        c = self._take()
        if c == "\\":
            return self._escape()
        if c == "[":
            return self._class()
        if c == "(":
            return self._group()
        if c == ")":
            if not self.around:
                raise PatternError(f"a group is closed that was not opened, at position {self.at - 1}")
            self.flags = self.around.pop()
            return ")"
        if c == "|":
            return "|"
        if c == ".":
            return "(?s:.)" if "s" in self.flags else r"[^\n]"
        if c == "^":
            return "(?m:^)" if "m" in self.flags else r"\A"
        if c == "$":
            return "(?m:$)" if "m" in self.flags else r"\Z"
        return self._literal(c)

    def _take(self) -> str:
        if self.at >= len(self.pattern):
            raise PatternError("it ends in the middle")
        self.at += 1
        return self.pattern[self.at - 1]

    def _matched(self, expression: str) -> re.Match[str] | None:
        found = re.compile(expression).match(self.pattern, self.at)
        self.at = found.end() if found else self.at
        return found

    def _literal(self, text: str) -> str:
        quoted = re.escape(text)
        return f"(?i:{quoted})" if "i" in self.flags else quoted if len(text) == 1 else f"(?:{quoted})"

    def _repetition(self) -> str | None:
        found = self._matched(r"(?:[*+?]|\{(\d+)(?:,(\d*))?\})\??")
        if found is None:
            return None
        least, most = found[1], found[2]
        if least and (int(least) > _MOST_REPEATS or (most and not int(least) <= int(most) <= _MOST_REPEATS)):
            raise PatternError(f"the repetition {found[0]!r} is not one of at most {_MOST_REPEATS}")
        return found[0]

    def _group(self) -> str:
        outside = self.flags
        if self._matched(r"\?P?<\w+>") or not self._matched(r"\?"):
            self.around.append(outside)
            return "(?:"
        found = self._matched(r"([imsU]*)(?:-([imsU]+))?([:)])")
        if found is None or not (found[1] or found[2] or found[3] == ":"):
            raise PatternError(f"a group begins with what RE2 does not know, at position {self.at}")
        self.flags = (self.flags | set(found[1])) - set(found[2] or "")
        if found[3] == ")":
            return ""
        self.around.append(outside)
        return "(?:"

    # --- escapes and classes ---

    def _escape(self) -> str:
        if self._matched("Q"):
            end = self.pattern.find(r"\E", self.at)
            text = self.pattern[self.at : end if end >= 0 else None]
            self.at = end + 2 if end >= 0 else len(self.pattern)
            return "".join(map(self._literal, text))
        c = self._take()
        if c in _EDGES:
            return _EDGES[c]
        self.at -= 1
        ranges = self._named()
        return self._literal(chr(self._code())) if ranges is None else self._one_of(ranges, False)

    def _named(self) -> Ranges | None:
        """The class that follows a backslash, if it is one."""
        if found := self._matched("[dwsDWS]"):
            ranges = _PERL[found[0].lower()]
            return ranges if found[0].islower() else _others(ranges)
        if found := self._matched(r"([pP])(?:\{(\^?)(\w+)\}|(\w))"):
            ranges = _category(found[3] or found[4])
            return ranges if (found[1] == "p") != bool(found[2]) else _others(ranges)
        return None

    def _code(self) -> int:
        """The character that follows a backslash."""
        if found := self._matched(r"x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})"):
            code = int(found[1] or found[2], 16)
        elif found := self._matched("0[0-7]{0,2}|[1-7][0-7]{1,2}"):
            code = int(found[0], 8)
        else:
            c = self._take()
            if c not in _CONTROLS and (c.isalnum() or c == "_" or not c.isascii()):
                raise PatternError(f"the escape \\{c} is not supported, at position {self.at - 2}")
            code = ord(_CONTROLS.get(c, c))
        if code > _LAST:
            raise PatternError(f"{code:#x} is no character")
        return code

    def _class(self) -> str:
        negated, ranges, first = bool(self._matched(r"\^")), list[tuple[int, int]](), True
        while first or not self._matched(r"\]"):
            first = False
            if found := self._matched(r"\[:(\^?)(\w+):\]"):
                if found[2] not in _POSIX:
                    raise PatternError(f"there is no class {found[0]}")
                ranges += _others(_POSIX[found[2]]) if found[1] else _POSIX[found[2]]
                continue
            escaped = bool(self._matched(r"\\"))
            named = self._named() if escaped else None
            if named is not None:
                ranges += named
                continue
            low = self._code() if escaped else ord(self._take())
            high = low
            if self._matched(r"-(?!\])"):
                high = self._code() if self._matched(r"\\") else ord(self._take())
            if high < low:
                raise PatternError(f"the range {chr(low)}-{chr(high)} is empty, at position {self.at}")
            ranges.append((low, high))
        return self._one_of(ranges, negated)

    def _one_of(self, ranges: Sequence[tuple[int, int]], negated: bool) -> str:
        inside = "".join(f"\\U{a:08x}" if a == b else f"\\U{a:08x}-\\U{b:08x}" for a, b in ranges)
        text = f"[{'^' if negated else ''}{inside}]" if inside else "(?!)"
        return f"(?i:{text})" if "i" in self.flags else text


def _others(ranges: Sequence[tuple[int, int]]) -> Ranges:
    """All code points outside of them."""
    found, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            found.append((start, low - 1))
        start = max(start, high + 1)
    return (*found, (start, _LAST)) if start <= _LAST else tuple(found)


@functools.cache
def _category(name: str) -> Ranges:
    """The code points of a general category of Unicode, or of all that begin with a letter."""
    if name == "Any":
        return ((0, _LAST),)
    found: list[tuple[int, int]] = []
    for same, run in groupby(enumerate(_categories()), key=lambda pair: pair[1].startswith(name)):
        if same:
            codes = [code for code, _ in run]
            found.append((codes[0], codes[-1]))
    if not found or len(name) > 2:
        raise PatternError(
            f"{name!r} is no general category of Unicode (scripts are not supported: write ranges of characters)"
        )
    return tuple(found)


@functools.cache
def _categories() -> tuple[str, ...]:
    return tuple(map(unicodedata.category, map(chr, range(_LAST + 1))))
