"""Matching by a lazily built DFA: every character costs one look-up, or a set of NFA states that is found for the first time.

The tree of a pattern becomes Thompson's NFA. A state of the DFA is the set of its states that are reached behind a character;
what follows is looked up by the next one. A text is read once to find where matches begin, from its end to its beginning, and
from each beginning onwards to the end of the longest match, as RE2 does for onnxruntime's Tokenizer.
(R. Cox, "Regular Expression Matching in the Wild", 2010, https://swtch.com/~rsc/regexp/regexp3.html)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from intarsia.ops.text.re2_syntax import Choice, Edge, Leaf, Node, PatternError, Repeat, Series

_MOST_STATES = 20_000  # of the NFA: what is found for the first time costs as much
_MOST_LOOKED_UP = 100_000  # transitions that are memoized
_OTHER, _WORD, _NEWLINE, _NOTHING = range(4)  # kinds of characters as edges see them; nothing: before and behind the text
_WORD_CHARACTERS = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")


def _holds(edge: str, before: int, after: int) -> bool:
    """Whether an edge is between characters of these kinds."""
    if edge == "begin":
        return before == _NOTHING
    if edge == "end":
        return after == _NOTHING
    if edge == "line begin":
        return before in (_NOTHING, _NEWLINE)
    if edge == "line end":
        return after in (_NOTHING, _NEWLINE)
    return ((before == _WORD) != (after == _WORD)) == (edge == "word edge")


class _Nfa:
    """States are numbers; 0 is the first, 1 the last.

    Attributes:
        free: state -> states that it leads to without a character.
        edges: state -> (kind of edge, state that it leads to there).
        steps: state -> (number of a leaf, state that it leads to by a character of it).
        leaves: the sets of characters, in Python's syntax.
    """

    def __init__(self, tree: Node) -> None:
        self.free: list[list[int]] = [[], []]
        self.edges: list[list[tuple[str, int]]] = [[], []]
        self.steps: list[list[tuple[int, int]]] = [[], []]
        self.leaves: dict[str, int] = {}
        waiting = [(tree, 0, 1)]
        while waiting:
            node, start, end = waiting.pop()
            if isinstance(node, Leaf):
                self.steps[start].append((self.leaves.setdefault(node.text, len(self.leaves)), end))
            elif isinstance(node, Edge):
                self.edges[start].append((node.kind, end))
            elif isinstance(node, Choice):
                waiting += [(item, start, end) for item in node.items]
            elif isinstance(node, Series):
                waiting += self._joined(node.items, start, end)
            else:
                waiting += self._repeated(node, start, end)

    def _state(self) -> int:
        if len(self.free) >= _MOST_STATES:
            raise PatternError(f"it needs over {_MOST_STATES:,} states")
        self.free.append([])
        self.edges.append([])
        self.steps.append([])
        return len(self.free) - 1

    def _joined(self, items: Sequence[Node], start: int, end: int) -> list[tuple[Node, int, int]]:
        if not items:
            self.free[start].append(end)
            return []
        places = [start, *(self._state() for _ in items[1:]), end]
        return list(zip(items, places, places[1:], strict=False))

    def _repeated(self, node: Repeat, start: int, end: int) -> list[tuple[Node, int, int]]:
        made, at = [], start
        for _ in range(node.least):
            following = self._state()
            made.append((node.item, at, following))
            at = following
        if node.most is None:
            again = self._state()
            self.free[at].append(again)
            self.free[again].append(end)
            return [*made, (node.item, again, again)]
        for _ in range(node.most - node.least):
            self.free[at].append(end)
            following = self._state()
            made.append((node.item, at, following))
            at = following
        self.free[at].append(end)
        return made

    def reversed(self) -> _Nfa:
        """What reads the same texts from their ends."""
        out = object.__new__(_Nfa)
        out.leaves = self.leaves
        out.free, out.edges, out.steps = [[] for _ in self.free], [[] for _ in self.free], [[] for _ in self.free]
        for state in range(len(self.free)):
            for target in self.free[state]:
                out.free[target].append(state)
            for kind, target in self.edges[state]:
                out.edges[target].append((kind, state))
            for leaf, target in self.steps[state]:
                out.steps[target].append((leaf, state))
        return out


class _State(dict[str, "_State"]):
    """A state of the DFA: the next one by each character that was read there.

    Attributes:
        core: states of the NFA that are reached by the last character.
        kind: that character's kind, as far as the pattern has edges.
        accepts: kind of the next character -> whether a match is complete here.
    """

    __slots__ = ("accepts", "core", "dfa", "kind")

    def __init__(self, dfa: _Dfa, core: frozenset[int], kind: int) -> None:
        super().__init__()
        self.dfa, self.core, self.kind = dfa, core, kind
        self.accepts: dict[int, bool] = {}

    def __missing__(self, c: str) -> _State:
        following = self[c] = self.dfa.following(self, c)
        return following


class _Dfa:
    """Reads forwards from 0 to 1 from one place on, or backwards from 1 to 0, where a match may end at every place."""

    def __init__(self, nfa: _Nfa, *, backwards: bool) -> None:
        self.nfa, self.backwards = nfa, backwards
        self.first, self.last = (1, 0) if backwards else (0, 1)
        self.always = frozenset({self.first}) if backwards else frozenset()
        self.looks = any(nfa.edges)  # whether the kinds of characters count
        self.leaves = [re.compile(text) for text in nfa.leaves]
        self.known: dict[tuple[frozenset[int], int], _State] = {}
        self.left = _MOST_LOOKED_UP
        self.members: dict[str, tuple[bool, ...]] = {}

    def kind(self, c: str) -> int:
        """The kind of a character, or of none (the empty string)."""
        if not self.looks:
            return _OTHER
        if not c:
            return _NOTHING
        return _WORD if c in _WORD_CHARACTERS else _NEWLINE if c == "\n" else _OTHER

    def begin(self, before: str) -> _State:
        """The state beside the character `before`, which was not read."""
        return self._state(frozenset({self.first}), self.kind(before))

    def _state(self, core: frozenset[int], kind: int) -> _State:
        found = self.known.get((core, kind))
        if found is None:
            found = self.known[core, kind] = _State(self, core, kind)
        return found

    def accepts(self, state: _State, after: str) -> bool:
        """Whether a match is complete where `after` comes next ("": the end)."""
        kind = self.kind(after)
        found = state.accepts.get(kind)
        if found is None:
            found = state.accepts[kind] = self.last in self._closure(state, kind)
        return found

    def following(self, state: _State, c: str) -> _State:
        """The state behind a character that was not read in `state` before."""
        kind = self.kind(c)
        inside = self.members.get(c)
        if inside is None:
            inside = self.members[c] = tuple(leaf.match(c) is not None for leaf in self.leaves)
        steps = self.nfa.steps
        core = frozenset(t for s in self._closure(state, kind) for leaf, t in steps[s] if inside[leaf]) | self.always
        self.left -= 1
        if self.left <= 0:  # what was found is forgotten, all at once
            self.known, self.members, self.left = {}, {}, _MOST_LOOKED_UP
        return self._state(core, kind)

    def _closure(self, state: _State, other: int) -> set[int]:
        """All states of the NFA that are reached without a character, where one of kind `other` comes next."""
        before, after = (other, state.kind) if self.backwards else (state.kind, other)
        found = set(state.core)
        waiting = list(found)
        free, edges = self.nfa.free, self.nfa.edges
        while waiting:
            at = waiting.pop()
            targets = free[at]
            if edges[at]:
                targets = [*targets, *(target for kind, target in edges[at] if _holds(kind, before, after))]
            for target in targets:
                if target not in found:
                    found.add(target)
                    waiting.append(target)
        return found


class Automaton:
    """Matches texts against a pattern's tree, in time that grows as the text does.

    Raises:
        PatternError: its automaton is too large.
    """

    def __init__(self, tree: Node) -> None:
        nfa = _Nfa(tree)
        self.forwards, self.backwards = _Dfa(nfa, backwards=False), _Dfa(nfa.reversed(), backwards=True)

    def fullmatch(self, text: str) -> bool:
        """Whether the whole text matches."""
        dfa = self.forwards
        state = dfa.begin("")
        for c in text:
            state = state[c]
            if not state.core:
                return False
        return dfa.accepts(state, "")

    def starts(self, text: str) -> list[int]:
        """Where a match begins, in ascending order."""
        dfa = self.backwards
        state = dfa.begin("")
        found = [len(text)] if dfa.accepts(state, text[-1:]) else []
        for at in range(len(text) - 1, -1, -1):
            c = text[at]
            state = state[c]
            if dfa.accepts(state, text[at - 1] if at else ""):
                found.append(at)
        return found[::-1]

    def longest(self, text: str, start: int) -> int:
        """The end of the longest match that begins at `start`, where one does."""
        dfa = self.forwards
        state = dfa.begin(text[start - 1] if start else "")
        end = -1
        for at in range(start, len(text)):
            c = text[at]
            if dfa.accepts(state, c):
                end = at
            state = state[c]
            if not state.core:
                return end
        return len(text) if dfa.accepts(state, "") else end
