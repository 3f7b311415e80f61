"""Which names of outputs and inputs say that one is the other's next state: `present.0.key` and `past_key_values.0.key`."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cache, cached_property

from intarsia.lazy_dataclass import dataclass

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CERTAIN = frozenset("past prev previous present".split())
_POSSIBLE = frozenset("old new next updated upd in input i init initial out output o n final".split())
_LETTERS = frozenset("io")
_STATES = frozenset("state hidden cell cache h c hx cx kv ssm mem mems memory rnn gru lstm".split())
_SPELLINGS = {
    "hn": ("h", "n"), "cn": ("c", "n"), "h0": ("h", "0"), "c0": ("c", "0"), "pkv": ("past",), "keys": ("key",),
    "values": ("value",), "states": ("state",), "caches": ("cache",), "cached": ("cache",), "memories": ("memory",),
}  # fmt: skip
_NUMBERED_FIRST = frozenset({"h", "c", "state", "hidden", "cell", "cache"})  # h0 and hn, state0 and stateN


class Likeness(IntEnum):
    """How sure names make that an output is the next value of an input."""

    NONE = 0
    POSSIBLE = 1  # "r1i" and "r1o", which may be anything
    LIKELY = 2  # a word that states are called, and a sign of before and after: "state" and "stateN"
    CERTAIN = 3  # a word that nothing but a state has: "past", "present"


@dataclass(frozen=True)
class Stem:
    """A name without the words that tell before from after.

    Attributes:
        words: what is left, in lower case and singular: one word or number each.
        certain: a word such as "past" was left out, which nothing but a state is called.
        marked: any such word was left out, "in" and "out" among them.
        lettered: all that was left out is a letter, "i" or "o".
    """

    words: tuple[str, ...]
    certain: bool
    marked: bool
    lettered: bool = False

    @cached_property
    def key(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What equal stems have in common: numbers in order, and words; exporters put either first."""
        return tuple(w for w in self.words if w.isdigit()), tuple(w for w in self.words if not w.isdigit())

    @cached_property
    def keys(self) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
        """As an input's: the first of a kind is often numbered 0, h0 beside hn."""
        words = self.words
        if len(words) == 2 and words[1] == "0" and words[0] in _NUMBERED_FIRST:
            return self.key, ((), words[:1])
        return (self.key,)

    @property
    def names_state(self) -> bool:
        """Whether a word of it is what states are called."""
        return any(word in _STATES for word in self.words)


@cache
def stem_of(name: str) -> Stem:
    """The stem of an input's or output's name."""
    words: list[str] = []
    for lower in map(str.lower, _WORDS.findall(name)):
        if lower == "states" and words[-1:] == ["hidden"]:
            words[-1] = "activations"  # "hidden_states", which layers hand on
            continue
        words += _SPELLINGS.get(lower, (lower,))
    left = [w for w in words if w not in _CERTAIN and w not in _POSSIBLE]
    certain = any(w in _CERTAIN for w in words)
    if certain and left[:2] == ["key", "value"]:  # past_key_values.0.key is present.0.key
        left = left[2:]
    out = [w for w in words if w in _CERTAIN or w in _POSSIBLE]
    if left in (["y", "h"], ["y", "c"]):  # as ONNX calls an LSTM's last states
        return Stem(tuple(left[1:]), certain, True)
    return Stem(tuple(left), certain, bool(out), bool(out) and _LETTERS.issuperset(out))


def likeness(output: str, given: str) -> Likeness:
    """How sure the names make that the output is the next value of the input `given`."""
    after, before = stem_of(output), stem_of(given)
    if not (after.marked or before.marked) or after.key not in before.keys:
        return Likeness.NONE
    if after.certain or before.certain:
        return Likeness.CERTAIN
    if after.names_state:
        return Likeness.LIKELY
    return Likeness.POSSIBLE if after.lettered and before.lettered else Likeness.NONE
