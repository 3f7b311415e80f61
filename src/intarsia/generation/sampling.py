"""From the scores of all tokens to the next one: penalties, temperature, what is left out, and the draw."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from intarsia.errors import Fail, InvalidArgument

if TYPE_CHECKING:
    from intarsia.generation.search_options import SearchOptions


class Sampler:
    """Chooses the tokens of one text.

    Args:
        options: the settings.
        prompt: tokens before the generated ones, which the repetition penalty counts too.
        end_tokens: that may not come before `min_new_tokens`.
    """

    def __init__(self, options: SearchOptions, prompt: list[int], end_tokens: frozenset[int]) -> None:
        self.options, self.end_tokens = options, end_tokens
        self._seen = set(prompt)
        self._made: Counter[int] = Counter()
        self._count = 0
        self._random = np.random.default_rng(options.seed)

    def next_token(self, scores: np.ndarray, allowed: np.ndarray | None = None) -> int:
        """The next token.

        Args:
            scores: [vocabulary], of any float type; not changed.
            allowed: [vocabulary] of bool: tokens that may come; None: all.
        """
        adjusted = self.adjusted(scores, allowed)
        token = int(adjusted.argmax()) if self.options.temperature == 0 else self._drawn(probabilities(adjusted, self.options))
        self.took(token)
        return token

    def adjusted(self, scores: np.ndarray, allowed: np.ndarray | None = None) -> np.ndarray:
        """The scores with penalties, and -infinity for what may not come. float32 [vocabulary]."""
        options = self.options
        made = np.array(scores, np.float32)
        if options.repetition_penalty != 1 and self._seen:
            at = np.fromiter((t for t in self._seen if t < made.size), np.int64)
            some = made[at]
            made[at] = np.where(some > 0, some / options.repetition_penalty, some * options.repetition_penalty)
        if self._made and (options.presence_penalty or options.frequency_penalty):
            at = np.fromiter(self._made, np.int64, len(self._made))
            times = np.fromiter(self._made.values(), np.float32, len(self._made))
            made[at] -= options.presence_penalty + options.frequency_penalty * times
        if np.isnan(made).any():
            raise Fail("the model's scores are not numbers (NaN): session.nonfinite='error' names the node that made the first")
        if allowed is not None:
            made[~allowed[: made.size]] = -np.inf
        if self._count < options.min_new_tokens:
            ends = [t for t in self.end_tokens if 0 <= t < made.size]
            others = np.ones(made.size, bool)
            others[ends] = False
            if (made[others] > -np.inf).any():  # a grammar may leave nothing but the end
                made[ends] = -np.inf
        if not (made > -np.inf).any():
            raise InvalidArgument("no token may come next: the grammar does not fit the model's vocabulary")
        return made

    def behind(self, tokens: list[int]) -> Sampler:
        """One whose text has these tokens too."""
        other = Sampler(self.options, [], self.end_tokens)
        other._seen = self._seen | set(tokens)
        other._made, other._count = Counter(tokens), len(tokens)
        return other

    def took(self, token: int) -> None:
        """Note a token that the text goes on with."""
        self._seen.add(token)
        self._made[token] += 1
        self._count += 1

    def _drawn(self, chances: tuple[np.ndarray, np.ndarray]) -> int:
        tokens, weights = chances
        ends = np.cumsum(weights)
        place = int(np.searchsorted(ends, self._random.random() * ends[-1], "right"))
        return int(tokens[min(place, tokens.size - 1)])


def probabilities(scores: np.ndarray, options: SearchOptions) -> tuple[np.ndarray, np.ndarray]:
    """The tokens that are left, the likeliest first, and their probabilities in float64.

    The order is transformers': temperature, top_k, top_p, min_p.
    """
    scaled = scores.astype(np.float64)
    scaled = (scaled - scaled.max()) / max(options.temperature, 1e-6)
    if 0 < options.top_k < scaled.size:
        tokens = np.argpartition(scaled, -options.top_k)[-options.top_k :]
        tokens = tokens[np.argsort(-scaled[tokens], kind="stable")]
    else:
        tokens = np.argsort(-scaled, kind="stable")
    likely = scaled[tokens]
    chances = np.exp(likely - likely[0])
    chances /= chances.sum()
    if options.top_p < 1:
        before = np.cumsum(chances) - chances
        count = max(1, int((before < options.top_p).sum()))
        tokens, chances = tokens[:count], chances[:count]
    if options.min_p:
        count = max(1, int((chances >= options.min_p * chances[0]).sum()))
        tokens, chances = tokens[:count], chances[:count]
    left = chances > 0
    return tokens[left], chances[left] / chances[left].sum()
