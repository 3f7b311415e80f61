"""Searches that run several texts or tokens at once: they give what the plain search, or all texts by hand, give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("tokenizers", reason="text generation needs tokenizers (the extra 'generate')")

from decoder_models import decoder, folder, scores

import intarsia as ort
from intarsia import generation
from intarsia.generation.causal_decoder import CausalDecoder
from intarsia.generation.speculation import from_the_text
from intarsia.generation.text_generator import TextGenerator


@pytest.fixture(scope="module")
def session() -> ort.InferenceSession:
    return ort.InferenceSession(decoder().SerializeToString())


def test_guesses_from_the_text() -> None:
    assert from_the_text([1, 2, 3, 4, 9, 2, 3], 3) == [4, 9, 2]
    assert from_the_text([1, 2, 5, 1, 2, 6, 1, 2], 2) == [6, 1]
    assert from_the_text([1, 2, 3], 2) == []
    assert from_the_text([7], 2) == []


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "top_k": 3, "seed": 2}, {"repetition_penalty": 1.5}])
@pytest.mark.parametrize("guesses", [1, 4])
def test_guesses_change_nothing(session: ort.InferenceSession, options: dict[str, Any], guesses: int) -> None:
    prompt = [5, 80, 5, 80, 5, 80, 5]
    plain = TextGenerator(session).generate(prompt, max_new_tokens=30, **options)
    model = TextGenerator(session)
    found = model.generate(prompt, max_new_tokens=30, guesses=guesses, **options)
    assert found.tokens == plain.tokens
    assert found.guessed_tokens >= found.accepted_tokens
    assert model.decoder.length == len(prompt) + len(found.tokens) - 1
    again = model.generate([*prompt, *found.tokens, 9], max_new_tokens=3, **options)
    assert again.reused_tokens == len(prompt) + len(found.tokens) - 1
    assert again.tokens == TextGenerator(session).generate([*prompt, *found.tokens, 9], max_new_tokens=3, **options).tokens


def test_a_draft_of_the_same_weights_is_always_right(session: ort.InferenceSession) -> None:
    model = TextGenerator(session, draft=CausalDecoder(session))
    plain = TextGenerator(session).generate([5, 80, 9], max_new_tokens=20)
    for _ in range(2):
        found = model.generate([5, 80, 9], max_new_tokens=20, guesses=4)
        assert found.tokens == plain.tokens
        assert found.guessed_tokens > 10
        assert found.guessed_tokens - found.accepted_tokens <= 4  # those behind the end


def test_a_draft_that_fails_leaves_the_text(session: ort.InferenceSession) -> None:
    short = decoder()
    places = next(t for t in short.graph.initializer if t.name == "places")
    places.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(places)[:8], "places"))
    model = TextGenerator(session, draft=CausalDecoder(ort.InferenceSession(short.SerializeToString())))
    plain = TextGenerator(session).generate([5, 80, 9], max_new_tokens=20)
    assert model.generate([5, 80, 9], max_new_tokens=20, guesses=4).tokens == plain.tokens
    assert model.draft is not None
    assert model.draft.failed


def test_a_stream_that_is_left_early_leaves_a_cache_that_is_right(session: ort.InferenceSession, tmp_path: Path) -> None:
    model = generation.load(folder(tmp_path))
    pieces = model.stream("the fox the fox the fox", max_new_tokens=40, guesses=4)
    next(pieces)
    pieces.close()
    expected = generation.load(tmp_path).generate("the fox the fox", max_new_tokens=10)
    assert model.generate("the fox the fox", max_new_tokens=10).tokens == expected.tokens


def test_more_beams_are_never_less_likely(session: ort.InferenceSession) -> None:
    def total(tokens: list[int]) -> float:
        rows = scores([5, 80, *tokens])
        return float(sum(r[t] - np.log(np.exp(r - r.max()).sum()) - r.max() for r, t in zip(rows[1:], tokens, strict=False)))

    model = TextGenerator(session)
    greedy = model.generate([5, 80], max_new_tokens=6)
    wide = model.generate([5, 80], max_new_tokens=6, num_beams=8)
    assert total(wide.tokens) >= total(greedy.tokens) - 1e-6
    assert len(wide.tokens) == 6
    assert wide.finish_reason == "length"
    two = model.generate([[5, 80], [9]], max_new_tokens=6, num_beams=8)
    assert two[0].tokens == wide.tokens


def test_as_many_beams_as_texts_find_the_best(session: ort.InferenceSession) -> None:
    """Two tokens by 300 beams are an exhaustive search."""
    found = TextGenerator(session).generate([5, 80], max_new_tokens=2, num_beams=300)
    first = scores([5, 80])[-1]
    totals = {}
    for a in np.argsort(-first)[:40].tolist():
        second = scores([5, 80, a])[-1]
        base = first[a] - np.log(np.exp(first - first.max()).sum()) - first.max()
        for b in np.argsort(-second)[:5].tolist():
            totals[a, b] = base + second[b] - np.log(np.exp(second - second.max()).sum()) - second.max()
    assert tuple(found.tokens) == max(totals, key=lambda pair: totals[pair])


@pytest.mark.parametrize("options", [{"temperature": 1.0}, {"guesses": 2}])
def test_what_a_beam_search_does_not_take(session: ort.InferenceSession, options: dict[str, Any]) -> None:
    with pytest.raises(ort.InvalidArgument, match="a beam search takes no"):
        TextGenerator(session).generate([5], num_beams=2, **options)
