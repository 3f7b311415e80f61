"""Penalties and what is left out, by hand and beside transformers; the draw has the probabilities that it should have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import intarsia as ort
from intarsia.generation.sampling import Sampler, probabilities
from intarsia.generation.search_options import SearchOptions

SCORES = np.array([2.0, 1.0, 0.5, -1.0, 3.0], np.float32)


def sampler(prompt: list[int] | None = None, ends: frozenset[int] = frozenset(), **options: Any) -> Sampler:
    return Sampler(SearchOptions.of({}, options), prompt or [], ends)


def test_zero_temperature_is_the_likeliest() -> None:
    assert [sampler().next_token(SCORES) for _ in range(3)] == [4, 4, 4]


def test_the_repetition_penalty_divides_and_multiplies() -> None:
    found = sampler([0, 3], repetition_penalty=2.0).adjusted(SCORES)
    np.testing.assert_allclose(found, [1.0, 1.0, 0.5, -2.0, 3.0])


def test_presence_and_frequency_count_what_was_generated() -> None:
    own = sampler([0], presence_penalty=0.5, frequency_penalty=0.25)
    own.took(4)
    own.took(4)
    np.testing.assert_allclose(own.adjusted(SCORES), [2.0, 1.0, 0.5, -1.0, 2.0])


def test_no_end_before_the_least_number_of_tokens() -> None:
    own = sampler(ends=frozenset({4}), min_new_tokens=1)
    assert own.next_token(SCORES) == 0
    assert own.next_token(SCORES) == 4


def test_scores_that_are_no_numbers() -> None:
    for temperature in (0, 1.0):
        with pytest.raises(ort.Fail, match="are not numbers"):
            sampler(temperature=temperature).next_token(np.array([1, np.nan], np.float32))
    with pytest.raises(ort.InvalidArgument, match="no token may come next"):
        sampler().next_token(SCORES, np.zeros(5, bool))
    assert sampler(temperature=1e-320).next_token(SCORES) == 4


def test_only_allowed_tokens() -> None:
    assert sampler().next_token(SCORES, np.array([0, 1, 1, 0, 0], bool)) == 1


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"top_k": 2}, [4, 0]),
        ({"top_p": 0.6}, [4]),
        ({"top_p": 0.7}, [4, 0]),
        ({"min_p": 0.2}, [4, 0]),
        ({"min_p": 1.0}, [4]),
        ({"top_k": 3, "top_p": 0.99, "min_p": 0.1}, [4, 0, 1]),
        ({}, [4, 0, 1, 2, 3]),
    ],
)
def test_what_is_left(options: dict[str, Any], left: list[int]) -> None:
    tokens, chances = probabilities(SCORES, SearchOptions.of({}, {"temperature": 1.0, **options}))
    assert tokens.tolist() == left
    weights = np.exp(SCORES[left].astype(np.float64))
    np.testing.assert_allclose(chances, weights / weights.sum())


def test_draws_are_as_frequent_as_they_are_likely() -> None:
    own = sampler(temperature=0.8, seed=5)
    found = np.bincount([own.next_token(SCORES) for _ in range(20_000)], minlength=5) / 20_000
    weights = np.exp(SCORES.astype(np.float64) / 0.8)
    np.testing.assert_allclose(found, weights / weights.sum(), atol=0.015)


def test_what_transformers_leaves_out() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    warpers = pytest.importorskip("transformers.generation.logits_process", reason="needs transformers")
    random = np.random.default_rng(0)
    for _ in range(40):
        scores = (random.standard_normal(50) * 3).astype(np.float32)
        t, k = float(random.uniform(0.3, 2)), int(random.integers(1, 50))
        p, m = float(random.uniform(0.2, 1)), float(random.uniform(0, 0.3))
        tokens, chances = probabilities(scores, SearchOptions(temperature=t, top_k=k, top_p=p, min_p=m))
        made = torch.from_numpy(scores)[None]
        for warper in (
            warpers.TemperatureLogitsWarper(t), warpers.TopKLogitsWarper(k), warpers.TopPLogitsWarper(p),
            warpers.MinPLogitsWarper(m),
        ):  # fmt: skip
            made = warper(None, made)
        expected = torch.softmax(made[0].double(), 0).numpy()
        assert sorted(tokens.tolist()) == np.nonzero(expected)[0].tolist()
        np.testing.assert_allclose(chances, expected[tokens], rtol=1e-5)
    given = torch.tensor([[1, 4]])
    penalty = warpers.RepetitionPenaltyLogitsProcessor(1.3)(given, torch.from_numpy(SCORES)[None])[0].numpy()
    np.testing.assert_allclose(sampler([1, 4], repetition_penalty=1.3).adjusted(SCORES), penalty, rtol=1e-6)
