"""Beam search: the likeliest texts, of which several are followed at once. As transformers does it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from intarsia.errors import InvalidArgument
from intarsia.generation.generated_text import Generation
from intarsia.generation.sampling import Sampler

if TYPE_CHECKING:
    from intarsia.generation.search_options import SearchOptions
    from intarsia.generation.text_generator import TextGenerator


class Hypotheses:
    """The best texts that have ended, at most `count`."""

    def __init__(self, count: int, length_penalty: float) -> None:
        self._count, self._penalty = count, length_penalty
        self.found: list[tuple[float, list[int]]] = []

    def add(self, total: float, tokens: list[int]) -> None:
        """One whose logarithms of probabilities sum to `total`."""
        self.found.append((total / len(tokens) ** self._penalty, tokens))
        self.found.sort(key=lambda each: -each[0])
        del self.found[self._count :]

    def is_full(self, best_total: float, length: int) -> bool:
        """Whether no text that goes on from `best_total` can be better, where it ended now."""
        return len(self.found) == self._count and self.found[-1][0] >= best_total / length**self._penalty


def beam_search(model: TextGenerator, prompt: list[int], options: SearchOptions) -> Generation:
    """The likeliest text by `options.num_beams` beams; `finish_reason` is "end" or "length"."""
    start, beams = time.perf_counter(), options.num_beams
    made, room = Generation(prompt_tokens=len(prompt)), model.room_for(prompt, options)
    decoder = model.new_decoder()
    first = decoder.begin([prompt])
    if beams > first.shape[1]:
        raise InvalidArgument(f"num_beams: expected at most as many as tokens ({first.shape[1]}), got {beams}")
    scores = np.repeat(first, beams, 0)
    decoder.select_rows([0] * beams)
    totals = np.array([0.0] + [-1e9] * (beams - 1))  # all begin alike: the first alone counts
    texts: list[list[int]] = [[] for _ in range(beams)]
    ended = Hypotheses(beams, options.length_penalty)
    penalties = Sampler(options, prompt, model.end_tokens)
    for count in range(1, room + 1):
        adjusted = (penalties.behind(text).adjusted(row) for text, row in zip(texts, scores, strict=True))
        logarithms = np.stack(list(map(_log_softmax, adjusted)))
        candidates = (logarithms + totals[:, None]).ravel()
        best = np.argpartition(-candidates, min(2 * beams, candidates.size - 1))[: 2 * beams]
        going: list[tuple[int, int, float]] = []
        for rank, place in enumerate(best[np.argsort(-candidates[best], kind="stable")].tolist()):
            beam, token = divmod(place, logarithms.shape[1])
            if token in model.end_tokens:
                if rank < beams:
                    ended.add(candidates[place], [*texts[beam], token])
            elif len(going) < beams:
                going.append((beam, token, candidates[place]))
        made.first_token_s = made.first_token_s or time.perf_counter() - start
        texts = [[*texts[beam], token] for beam, token, _ in going]
        totals = np.array([total for _, _, total in going])
        if count == room or ended.is_full(float(totals.max()), count):
            break
        decoder.select_rows([beam for beam, _, _ in going])
        scores = decoder.advance(np.array([[token] for _, token, _ in going], np.int64))
    if not ended.is_full(float(totals.max()), count):
        for text, total in zip(texts, totals, strict=True):
            ended.add(float(total), text)
    made.tokens = ended.found[0][1]
    made.finish_reason = "end" if made.tokens[-1] in model.end_tokens else "length"
    made.text = model.tokenizer.decode(made.tokens) if model.tokenizer is not None else ""
    made.seconds = time.perf_counter() - start
    return made


def _log_softmax(scores: np.ndarray) -> np.ndarray:
    wide = scores.astype(np.float64)
    shifted = wide - wide.max()
    found: np.ndarray = shifted - np.log(np.exp(shifted).sum())
    return found
