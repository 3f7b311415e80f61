"""The syntax of RE2, which ONNX's RegexFullMatch and com.microsoft's Tokenizer take, read into a tree.

It differs from Python's: \\d, \\w and [[:alpha:]] hold ASCII only, \\pL and \\p{Lu} are categories of Unicode, flags hold
from where they stand, and there is nothing that needs backtracking. What RE2 refuses is refused here.
(Syntax: https://github.com/google/re2/wiki/Syntax)
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import field
from itertools import groupby

from intarsia.lazy_dataclass import dataclass

Ranges = tuple[tuple[int, int], ...]  # of code points, first and last

_LAST = sys.maxunicode
_MOST_REPEATS = 1000  # of a repetition, and of nested ones together, as in RE2
_MOST_DEPTH = 1000  # of groups in groups, as in RE2


@dataclass(frozen=True)
class Leaf:
    """One character of a set, which `text` is in Python's syntax. `ranges`: all that may be in it; None: not known."""

    text: str
    ranges: Ranges | None = field(compare=False)


@dataclass(frozen=True)
class Edge:
    """A place between two characters.

    Attributes:
        kind: "begin", "end" (of the text), "line begin", "line end", "word edge" or "no word edge".
    """

    kind: str


@dataclass(frozen=True)
class Series:
    """One after the other; without items: nothing."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    """One of them."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """`least` times to `most` times (None: as often as one likes)."""

    item: Node
    least: int
    most: int | None


Node = Leaf | Edge | Series | Choice | Repeat


class PatternError(ValueError):
    """The pattern is none of RE2's, or one that is not supported."""


def parse(pattern: str) -> Node:
    """The tree of a pattern. Groups are not recorded: nobody asks what was in them.

    Raises:
        PatternError: it is not of RE2's syntax, or names a script (`\\p{Greek}`) or bytes (`\\C`), which are not supported.
    """
    return _Parser(pattern).tree()


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
_EDGES = {"A": Edge("begin"), "z": Edge("end"), "b": Edge("word edge"), "B": Edge("no word edge")}
# Characters beyond ASCII that are letters of ASCII in another case: the sign for Kelvin, the long s.
_OTHER_CASES = {"k": 0x212A, "s": 0x17F}


class _Group:
    """A group that is open: its alternatives so far, and the flags around it."""

    def __init__(self, flags: frozenset[str]) -> None:
        self.flags = flags
        self.choices: list[list[Node]] = [[]]

    def node(self) -> Node:
        made = [series[0] if len(series) == 1 else Series(tuple(series)) for series in self.choices]
        return made[0] if len(made) == 1 else Choice(tuple(made))


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern, self.at = pattern, 0
        self.flags = frozenset[str]()
        self.open = [_Group(self.flags)]
        self.repeats: dict[int, int] = {}  # id of a node -> the product of the repetitions in it
        self.nodes: list[Node] = []  # whose ids these are

    def tree(self) -> Node:
        repeatable = repeated = False
        while self.at < len(self.pattern):
            if (found := self._repetition()) is not None:
                if not repeatable or repeated:
                    raise PatternError(f"there is nothing to repeat at position {self.at}")
                series = self.open[-1].choices[-1]
                series[-1] = self._repeated(series[-1], *found)
                repeated = True
                continue
            repeatable, repeated = self._next(), False
        if len(self.open) > 1:
            raise PatternError("a group is not closed")
        return self.open[0].node()

    def _repeated(self, item: Node, least: int, most: int | None) -> Node:
        product = max(least, most or 1, 1) * self.repeats.get(id(item), 1)
        if product > _MOST_REPEATS:
            times = f"{product} times, at position {self.at}"
            raise PatternError(f"repetitions in repetitions are {times}; at most {_MOST_REPEATS} may be")
        made = Repeat(item, least, most)
        self._note(made, product)
        return made

    def _note(self, node: Node, product: int) -> None:
        self.repeats[id(node)] = product
        self.nodes.append(node)

    def _next(self) -> bool:
        """Read what comes next; whether it may be repeated."""
        c = self._take()
        if c == "(":
            return self._group()
        if c == ")":
            return self._closed()
        if c == "|":
            self.open[-1].choices.append([])
            return False
        self.open[-1].choices[-1] += self._single(c)
        return True

    def _single(self, c: str) -> list[Node]:
        if c == "\\":
            return self._escape()
        if c == "[":
            return [self._class()]
        if c == ".":
            return [Leaf("(?s:.)", ((0, _LAST),)) if "s" in self.flags else Leaf(r"[^\n]", _others(_of("\n\n")))]
        if c in "^$":
            whole, line = ("begin", "line begin") if c == "^" else ("end", "line end")
            return [Edge(line if "m" in self.flags else whole)]
        return [self._literal(c)]

    def _take(self) -> str:
        if self.at >= len(self.pattern):
            raise PatternError("it ends in the middle")
        self.at += 1
        return self.pattern[self.at - 1]

    def _matched(self, expression: str) -> re.Match[str] | None:
        found = re.compile(expression).match(self.pattern, self.at)
        self.at = found.end() if found else self.at
        return found

    def _literal(self, c: str) -> Leaf:
        return self._leaf(re.escape(c), ((ord(c), ord(c)),))

    def _leaf(self, text: str, ranges: Ranges) -> Leaf:
        return Leaf(f"(?i:{text})", _any_case(ranges)) if "i" in self.flags else Leaf(text, ranges)

    def _repetition(self) -> tuple[int, int | None] | None:
        found = self._matched(r"(?:([*+?])|\{(\d+)(?:(,)(\d*))?\})\??")  # what is taken first does not matter here
        if found is None:
            return None
        if found[1]:
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[found[1]]
        least = int(found[2][:8])
        most = least if not found[3] else int(found[4][:8]) if found[4] else None
        if least > _MOST_REPEATS or (most is not None and not least <= most <= _MOST_REPEATS):
            raise PatternError(f"the repetition {found[0]!r} is not one of at most {_MOST_REPEATS}")
        return least, most

    def _group(self) -> bool:
        """A group begins, or flags change; never what may be repeated."""
        outside = self.flags
        if not self._matched(r"\?P?<\w+>") and self._matched(r"\?"):
            found = self._matched(r"([imsU]*)(?:-([imsU]+))?([:)])")
            if found is None or not (found[1] or found[2] or found[3] == ":"):
                raise PatternError(f"a group begins with what RE2 does not know, at position {self.at}")
            self.flags = (self.flags | set(found[1])) - set(found[2] or "")
            if found[3] == ")":
                return False
        if len(self.open) > _MOST_DEPTH:
            raise PatternError(f"groups are nested over {_MOST_DEPTH} deep")
        self.open.append(_Group(outside))
        return False

    def _closed(self) -> bool:
        if len(self.open) == 1:
            raise PatternError(f"a group is closed that was not opened, at position {self.at - 1}")
        group = self.open.pop()
        self.flags = group.flags
        made = group.node()
        self._note(made, max((self.repeats.get(id(n), 1) for series in group.choices for n in series), default=1))
        self.open[-1].choices[-1].append(made)
        return True

    # --- escapes and classes ---

    def _escape(self) -> list[Node]:
        if self._matched("Q"):
            end = self.pattern.find(r"\E", self.at)
            text = self.pattern[self.at : end if end >= 0 else None]
            self.at = end + 2 if end >= 0 else len(self.pattern)
            return [self._literal(c) for c in text]
        c = self._take()
        if c in _EDGES:
            return [_EDGES[c]]
        self.at -= 1
        ranges = self._named()
        return [self._literal(chr(self._code())) if ranges is None else self._one_of(ranges, False)]

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

    def _class(self) -> Leaf:
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

    def _one_of(self, ranges: Sequence[tuple[int, int]], negated: bool) -> Leaf:
        inside = "".join(f"\\U{a:08x}" if a == b else f"\\U{a:08x}-\\U{b:08x}" for a, b in ranges)
        if not inside:
            return Leaf("(?s:.)", ((0, _LAST),)) if negated else Leaf("(?!)", ())
        if not negated:
            return self._leaf(f"[{inside}]", tuple(ranges))
        text = f"[^{inside}]"  # of letters in any case fewer characters than the ranges leave
        return Leaf(f"(?i:{text})" if "i" in self.flags else text, _others(ranges))


def _others(ranges: Sequence[tuple[int, int]]) -> Ranges:
    """All code points outside of them."""
    found, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            found.append((start, low - 1))
        start = max(start, high + 1)
    return (*found, (start, _LAST)) if start <= _LAST else tuple(found)


def _any_case(ranges: Ranges) -> Ranges | None:
    """With the letters of ASCII in these ranges in both cases; None where there are characters beyond ASCII."""
    if any(high > 0x7F for _, high in ranges):
        return None
    letters = {chr(c).lower() for low, high in ranges for c in range(low, high + 1) if chr(c).isalpha()}
    both = [ord(c) for letter in letters for c in (letter, letter.upper())]
    return (*ranges, *((c, c) for c in both), *((c, c) for letter, c in _OTHER_CASES.items() if letter in letters))


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
