"""Several tokens in one step: guesses are run with the token before them, and those that the model would have chosen are kept.

What is generated is what one step after another generates: each token is chosen from the model's own scores.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from intarsia.errors import IntarsiaError
from intarsia.generation.causal_decoder import common_length
from intarsia.log import logger

if TYPE_CHECKING:
    from intarsia.generation.causal_decoder import CausalDecoder

Proposer = Callable[[Sequence[int], int], list[int]]
"""Guesses for what comes behind tokens, at most so many."""

_LONGEST, _SHORTEST = 4, 2  # tokens that have to come again for a guess


def from_the_text(tokens: Sequence[int], count: int) -> list[int]:
    """What came, where the last tokens were there before: the longest such piece, the last of its places."""
    total = len(tokens)
    for length in range(min(_LONGEST, total - 1), _SHORTEST - 1, -1):
        last = tuple(tokens[total - length :])
        for place in range(total - length - 1, -1, -1):
            if tokens[place] == last[0] and tuple(tokens[place : place + length]) == last:
                return list(tokens[place + length : place + length + count])
    return []


class DraftModel:
    """A smaller model of the same tokens, whose likeliest tokens are the guesses."""

    def __init__(self, decoder: CausalDecoder) -> None:
        self._decoder = decoder
        self._cached: list[int] = []
        self._lock = Lock()
        self.failed = ""  # why it gives no more guesses

    def __call__(self, tokens: Sequence[int], count: int) -> list[int]:
        """The guesses: see `Proposer`."""
        if self.failed:
            return []
        try:
            with self._lock:
                return self._guesses(tokens, count)
        except IntarsiaError as error:  # the text is the model's, with or without guesses
            self.failed = str(error)
            logger.warning("the draft model gives no more guesses: %s", error)
            return []

    def _guesses(self, tokens: Sequence[int], count: int) -> list[int]:
        known = common_length(self._cached, tokens[:-1])
        if known and (known == len(self._cached) or self._decoder.can_rewind):
            self._decoder.rewind(len(self._cached) - known)
            scores = self._decoder.advance(np.array([tokens[known:]], np.int64))
        else:
            scores = self._decoder.begin([tokens])
        self._cached = list(tokens)
        guesses: list[int] = []
        while True:
            guesses.append(int(scores[0].argmax()))
            if len(guesses) == count:
                return guesses
            scores = self._decoder.advance(np.array([guesses[-1:]], np.int64))
            self._cached.append(guesses[-1])


class Speculation:
    """Scores behind tokens, of which some were run before they were chosen.

    Args:
        decoder: has the prompt; any number of its tokens can be taken back.
        tokens: the prompt, which grows with what is chosen.
        propose: gives guesses.
        count: how many in a step, at most.
        room: how many tokens the cache may hold; None: any number.
        words: how many tokens the model knows.

    Attributes:
        guessed, accepted: how many guesses were run, and how many were right.
    """

    def __init__(
        self, decoder: CausalDecoder, tokens: list[int], propose: Proposer, count: int, room: int | None, words: int
    ) -> None:
        self._decoder, self.tokens, self._propose, self._count, self._room = decoder, tokens, propose, count, room
        self._ahead: deque[tuple[int, np.ndarray]] = deque()  # guesses in the cache, with the scores behind them
        self._words = words
        self.guessed = self.accepted = 0

    def scores_behind(self, token: int) -> np.ndarray:
        """The scores behind the text with this token, [vocabulary]."""
        self.tokens.append(token)
        if self._ahead and self._ahead[0][0] == token:
            self.accepted += 1
            return self._ahead.popleft()[1]
        self.end()
        left = self._count if self._room is None else min(self._count, self._room - len(self.tokens))
        guesses = self._propose(self.tokens, left) if left > 0 else []
        guesses = list(itertools.takewhile(lambda t: t < self._words, guesses))  # a draft may know more tokens
        scores = self._decoder.advance(np.array([[token, *guesses]], np.int64), last=not guesses)
        if not guesses:
            only: np.ndarray = scores[0]
            return only
        self.guessed += len(guesses)
        self._ahead.extend(zip(guesses, scores[0, 1:], strict=True))
        first: np.ndarray = scores[0, 0]
        return first

    def end(self) -> None:
        """Forget guesses that were not chosen: the cache has the chosen tokens."""
        if self._ahead:
            self._decoder.rewind(len(self._ahead))
            self._ahead.clear()
