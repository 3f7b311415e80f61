"""The text that a decoder's cache holds, and the scores behind another that begins like it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from intarsia.generation.causal_decoder import common_length

if TYPE_CHECKING:
    from intarsia.generation.causal_decoder import CausalDecoder


class CachedText:
    """A decoder and the tokens in its cache. For one call at a time.

    Attributes:
        tokens: those in the cache; whoever runs the decoder keeps the list in step.
    """

    def __init__(self, decoder: CausalDecoder) -> None:
        self.decoder = decoder
        self.tokens: list[int] = []

    def scores_behind(self, prompt: list[int]) -> tuple[np.ndarray, int]:
        """The scores behind a prompt, [vocabulary], and how many of its tokens the cache had.

        The cache has the prompt then. After an error it is taken to have nothing.
        """
        cached, self.tokens = self.tokens, []
        known, decoder = common_length(cached, prompt[:-1]), self.decoder
        if known < len(cached) and not decoder.can_rewind:
            known = 0
        if known:
            decoder.rewind(len(cached) - known)
            scores = decoder.advance(np.array([prompt[known:]], np.int64))
        else:
            scores = decoder.begin([prompt])
        self.tokens = list(prompt)
        first: np.ndarray = scores[0]
        return first, known

    def forget(self) -> None:
        """The cache holds what is not known any more."""
        self.tokens = []
