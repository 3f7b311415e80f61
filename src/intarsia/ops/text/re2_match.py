"""Regular expressions of RE2: whole matches (ONNX's RegexFullMatch) and longest ones (com.microsoft's Tokenizer).

Time grows as the text does, whatever the pattern, as with RE2. Python's `re` backtracks: some patterns take it time that
doubles with every character. It serves those for which there is one way at most to match any text (Brueggemann-Klein's strongly
deterministic expressions), so that there is nothing to go back to; an automaton of ours serves the others (`re2_automaton`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from intarsia.ops.text.re2_automaton import Automaton
from intarsia.ops.text.re2_syntax import Choice, Edge, Leaf, Node, PatternError, Ranges, Repeat, Series, parse

_MOST_PLACES = 256  # characters of a pattern, repetitions written out, up to which it is looked whether it is deterministic
_MOST_DEPTH = 40  # and of groups in groups
_SHORT = 64  # characters of the longest match up to which trying at every place is no search that grows by itself
_IN_A_WORD = "[0-9A-Za-z_]"
_EDGES = {
    "begin": r"\A", "end": r"\Z", "line begin": "(?m:^)", "line end": "(?m:$)",
    "word edge": f"(?:(?<={_IN_A_WORD})(?!{_IN_A_WORD})|(?<!{_IN_A_WORD})(?={_IN_A_WORD}))",
    "no word edge": f"(?:(?<={_IN_A_WORD})(?={_IN_A_WORD})|(?<!{_IN_A_WORD})(?!{_IN_A_WORD}))",
}  # fmt: skip


class Pattern:
    """A compiled pattern.

    Raises:
        PatternError: it is not of RE2's syntax, or names a script (`\\p{Greek}`) or bytes (`\\C`), which are not supported.
    """

    def __init__(self, pattern: str) -> None:
        tree = parse(pattern)
        self._tree = tree
        python = re.compile(_text(tree)) if _is_deterministic(tree) else None
        self.fullmatch: Callable[[str], Any] = python.fullmatch if python is not None else self._automaton.fullmatch
        """What is true where the whole text matches."""
        self._spans = python if python is not None and _is_found_by_trying(tree) else None

    @functools.cached_property
    def _automaton(self) -> Automaton:
        return Automaton(self._tree)

    def longest_matches(self, text: str) -> Iterator[tuple[int, int]]:
        """First and last place of the longest match at the first place that has one, and so on behind it. Behind an empty
        match the next is looked for one character on."""
        if self._spans is not None:
            yield from (found.span() for found in self._spans.finditer(text))
            return
        automaton, behind = self._automaton, 0
        for start in automaton.starts(text):
            if start >= behind:
                end = automaton.longest(text, start)
                yield start, end
                behind = max(end, start + 1)


@functools.lru_cache(256)
def compiled(pattern: str) -> Pattern:
    """RE2's `pattern`.

    Raises:
        PatternError: as `Pattern`; it names the pattern.
    """
    try:
        return Pattern(pattern)
    except PatternError as error:
        raise PatternError(f"pattern {_shown(pattern)} is not a regular expression of RE2: {error}") from None


def _shown(pattern: str) -> str:
    return repr(pattern) if len(pattern) <= 200 else f"{pattern[:200]!r}... of {len(pattern):,} characters"


def _text(node: Node) -> str:
    """The pattern in Python's syntax, without groups that are numbered."""
    if isinstance(node, Leaf):
        return node.text
    if isinstance(node, Edge):
        return _EDGES[node.kind]
    if isinstance(node, Repeat):
        return f"(?:{_text(node.item)}){{{node.least},{'' if node.most is None else node.most}}}"
    if isinstance(node, Choice):
        return f"(?:{'|'.join(map(_text, node.items))})"
    return "".join(map(_text, node.items))


# --- patterns that match a text in one way at most --------------------------------------------------------------------


class _AmbiguousError(Exception):
    """A text may match in several ways, or the pattern is too large to tell."""


def _is_deterministic(tree: Node) -> bool:
    try:
        _Places().of(tree, 0)
    except _AmbiguousError:
        return False
    return True


class _Ends:
    """The places that a match may begin and end with, and whether it may be empty."""

    def __init__(self, first: list[int], last: list[int], empty: bool) -> None:
        self.first, self.last, self.empty = first, last, empty


class _Places:
    """Glushkov's automaton, whose states are the characters of the pattern: each character of a text leads to one at most."""

    def __init__(self) -> None:
        self.sets: list[Ranges] = []
        self.following: list[list[int]] = []

    def of(self, node: Node, depth: int) -> _Ends:
        """Raises _AmbiguousError where a text could match in two ways."""
        if depth > _MOST_DEPTH:
            raise _AmbiguousError
        if isinstance(node, Leaf):
            return self._place(node)
        if isinstance(node, Edge):
            return _Ends([], [], True)
        if isinstance(node, Choice):
            return self._choice([self.of(item, depth + 1) for item in node.items])
        if isinstance(node, Series):
            found = _Ends([], [], True)
            for item in node.items:
                found = self._joined(found, self.of(item, depth + 1))
            return found
        return self._repeated(node, depth + 1)

    def _place(self, leaf: Leaf) -> _Ends:
        if leaf.ranges is None or len(self.sets) == _MOST_PLACES:
            raise _AmbiguousError
        self.sets.append(leaf.ranges)
        self.following.append([])
        return _Ends([len(self.sets) - 1], [len(self.sets) - 1], False)

    def _require_disjoint(self, these: Iterable[int], those: Sequence[int]) -> None:
        for a in these:
            for b in those:
                if a == b or not _are_disjoint(self.sets[a], self.sets[b]):
                    raise _AmbiguousError

    def _follow(self, before: Iterable[int], first: Sequence[int]) -> None:
        for place in before:
            self._require_disjoint(self.following[place], first)
            self.following[place] += first

    def _joined(self, a: _Ends, b: _Ends) -> _Ends:
        self._follow(a.last, b.first)
        if a.empty:
            self._require_disjoint(a.first, b.first)
        first = a.first + b.first if a.empty else a.first
        return _Ends(first, a.last + b.last if b.empty else b.last, a.empty and b.empty)

    def _choice(self, items: Sequence[_Ends]) -> _Ends:
        if any(item.empty for item in items[:-1]):  # of two only the last is taken after the others, for the longest match
            raise _AmbiguousError
        for i, item in enumerate(items):
            for other in items[:i]:
                self._require_disjoint(item.first, other.first)
        return _Ends([p for item in items for p in item.first], [p for item in items for p in item.last], items[-1].empty)

    def _repeated(self, node: Repeat, depth: int) -> _Ends:
        found = _Ends([], [], True)
        for _ in range(node.least):
            found = self._joined(found, self._never_empty(node.item, depth))
        if node.most is None:
            item = self._never_empty(node.item, depth)
            self._follow(item.last, item.first)
            return self._joined(found, _Ends(item.first, item.last, True))
        optional = _Ends([], [], True)
        for _ in range(node.most - node.least):
            inner = self._joined(self._never_empty(node.item, depth), optional)
            optional = _Ends(inner.first, inner.last, True)
        return self._joined(found, optional)

    def _never_empty(self, node: Node, depth: int) -> _Ends:
        found = self.of(node, depth)
        if found.empty:
            raise _AmbiguousError
        return found


@functools.lru_cache(4096)
def _are_disjoint(a: Ranges, b: Ranges) -> bool:
    if len(a) * len(b) <= 16:
        return all(high < low or last < first for first, high in a for low, last in b) if a and b else True
    parts = sorted([(*part, 0) for part in a] + [(*part, 1) for part in b])
    ends = [-1, -1]
    for low, high, which in parts:
        if low <= ends[1 - which]:
            return False
        ends[which] = max(ends[which], high)
    return True


def _is_found_by_trying(tree: Node) -> bool:
    """Whether looking for a match from every place in turn takes time that grows as the text does: no match that fails has
    read far. One of any length is one character over and over, which does not fail."""
    if isinstance(tree, Repeat) and isinstance(tree.item, Leaf) and tree.least <= 1 and tree.most is None:
        return True
    longest = _longest(tree)
    return longest is not None and longest <= _SHORT


def _longest(node: Node) -> int | None:
    """Characters of the longest match; None: no limit."""
    if isinstance(node, Leaf):
        return 1
    if isinstance(node, Edge):
        return 0
    if isinstance(node, Repeat):
        once = _longest(node.item)
        return None if once is None or node.most is None else once * node.most
    sizes = [_longest(item) for item in node.items]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return None
    return max(known, default=0) if isinstance(node, Choice) else sum(known)
