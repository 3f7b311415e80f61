"""Several prompts at once: one batch, shorter prompts padded at the left; rows that have ended leave it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from intarsia.generation.generated_text import Generation
from intarsia.generation.sampling import Sampler
from intarsia.generation.stop_texts import StopTexts

if TYPE_CHECKING:
    from intarsia.generation.search_options import SearchOptions
    from intarsia.generation.text_generator import TextGenerator


class Row:
    """One text of the batch."""

    def __init__(self, model: TextGenerator, prompt: list[int], options: SearchOptions) -> None:
        self.model = model
        self.generation = Generation(prompt_tokens=len(prompt))
        self.room = model.room_for(prompt, options)
        self.sampler = Sampler(options, prompt, model.end_tokens)
        self.text = StopTexts(model.tokenizer, options.stop)
        self.constraint = model._constraint(options)

    def choose(self, scores: np.ndarray, start: float) -> int:
        """The row's next token."""
        made = self.generation
        token = self.sampler.next_token(scores, self.constraint.allowed(scores.size) if self.constraint is not None else None)
        self.model._take(token, self.text, made, self.room, start)
        if self.constraint is not None and not made.finish_reason:
            self.constraint.took(token)
        return token


def generate_batch(model: TextGenerator, prompts: list[list[int]], options: SearchOptions) -> list[Generation]:
    """A `Generation` for each prompt. Where the model has no mask, prompts of unequal lengths go one after the other."""
    if not prompts:
        return []
    if len(set(map(len, prompts))) > 1 and not model.decoder.takes_padding:
        return [model.generate(prompt, **_given(options)) for prompt in prompts]
    start = time.perf_counter()
    rows = [Row(model, prompt, options) for prompt in prompts]
    decoder = model.new_decoder()
    longest = max(map(len, prompts))
    if model.max_length is not None:
        for row in rows:
            row.room = min(row.room, model.max_length - longest)
    scores, going = decoder.begin(prompts), list(range(len(rows)))
    while True:
        tokens = [rows[row].choose(scores[i], start) for i, row in enumerate(going)]
        left = [i for i, row in enumerate(going) if not rows[row].generation.finish_reason]
        if not left:
            return [row.generation for row in rows]
        if len(left) < len(going):
            decoder.select_rows(left)
        going = [going[i] for i in left]
        scores = decoder.advance(np.array([[tokens[i]] for i in left], np.int64))


def _given(options: SearchOptions) -> dict[str, object]:
    from dataclasses import fields

    return {f.name: getattr(options, f.name) for f in fields(options)}
