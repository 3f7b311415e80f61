"""Which names of outputs and inputs say that one is the other's next state: `present.0.key` and `past_key_values.0.key`."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cache, cached_property

from intarsia.lazy_dataclass import dataclass

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CERTAIN = frozenset("past prev previous old present new next updated upd".split())
_POSSIBLE = frozenset("in input i init initial out output o n final".split())
_STATES = frozenset("state hidden cell cache h c hx cx kv ssm mem mems memory rnn gru lstm".split())
_SPELLINGS = {
    "hn": ("h", "n"), "cn": ("c", "n"), "h0": ("h", "0"), "c0": ("c", "0"), "pkv": ("past",), "keys": ("key",),
    "values": ("value",), "states": ("state",), "caches": ("cache",), "cached": ("cache",), "memories": ("memory",),
}  # fmt: skip
_NUMBERED_FIRST = frozenset({"h", "c", "state", "hidden", "cell", "cache"})  # h0 and hn, state0 and stateN


class Likeness(IntEnum):
    """How sure names make that an output is the next value of an input."""

    NONE = 0
    POSSIBLE = 1  # "x_in" and "x_out", which images are called too
    LIKELY = 2  # a word that states are called, and a sign of before and after: "state" and "stateN"
    CERTAIN = 3  # a word for before or after in time: "past", "next"


@dataclass(frozen=True)
class Stem:
    """A name without the words that tell before from after.

    Attributes:
        words: what is left, in lower case and singular: one word or number each.
        certain: a word such as "past" or "next" was left out, which nothing but a state is called.
        marked: any such word was left out, "in" and "out" among them.
    """

    words: tuple[str, ...]
    certain: bool
    marked: bool

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
    return Stem(tuple(left), certain, len(left) < len(words))


def likeness(output: str, given: str) -> Likeness:
    """How sure the names make that the output is the next value of the input `given`."""
    after, before = stem_of(output), stem_of(given)
    if not (after.marked or before.marked) or after.key not in before.keys:
        return Likeness.NONE
    if after.certain or before.certain:
        return Likeness.CERTAIN
    if after.names_state:
        return Likeness.LIKELY
    return Likeness.POSSIBLE if after.marked and before.marked else Likeness.NONE
