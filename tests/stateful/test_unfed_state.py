"""The warning for states that are never fed back, and that right programs get none."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from state_models import RNG, growing, recurrent

import intarsia as ort
from intarsia.stateful.unfed_state import RUNS

SCALE = np.float32(1)
ZERO = np.zeros((1, 4), np.float32)


def session(model: Any = None, **entries: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    for key, value in entries.items():
        options.add_session_config_entry(f"session.{key}", value)
    return ort.InferenceSession((model or recurrent()).SerializeToString(), options)


def x() -> np.ndarray:
    return RNG.standard_normal((1, 3)).astype(np.float32)


def told(use: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        use()
    return [str(r.message) for r in records if r.category is ort.StateWarning]


def test_a_dead_state_is_told_once() -> None:
    one = session()
    (message,) = told(lambda: [one.run(None, {"x": x(), "state": ZERO, "scale": SCALE}) for _ in range(4 * RUNS)])
    assert "'stateN' -> 'state'" in message
    assert "session.stateful()" in message


def fed_back(one: ort.InferenceSession) -> None:
    state = ZERO
    for _ in range(2 * RUNS):
        _, state = one.run(None, {"x": x(), "state": state, "scale": SCALE})


def several_streams(one: ort.InferenceSession) -> None:
    states = [ZERO] * 5
    for i in range(3 * RUNS):
        _, states[i % 5] = one.run(None, {"x": x(), "state": states[i % 5], "scale": SCALE})


def copies(one: ort.InferenceSession) -> None:
    state = ZERO.copy()
    for _ in range(2 * RUNS):
        state[...] = one.run(None, {"x": x(), "state": state, "scale": SCALE})[1]


def one_feed(one: ort.InferenceSession) -> None:
    """A measurement of time."""
    feed = {"x": x(), "state": ZERO, "scale": SCALE}
    for _ in range(2 * RUNS):
        one.run(None, feed)


def other_states(one: ort.InferenceSession) -> None:
    for _ in range(2 * RUNS):
        one.run(None, {"x": x(), "state": RNG.standard_normal((1, 4)).astype(np.float32), "scale": SCALE})


def some_outputs(one: ort.InferenceSession) -> None:
    for _ in range(2 * RUNS):
        one.run(["y"], {"x": x(), "state": ZERO, "scale": SCALE})


def a_binding(one: ort.InferenceSession) -> None:
    binding = one.io_binding()
    for _ in range(2 * RUNS):
        binding.bind_cpu_input("x", x())
        binding.bind_cpu_input("state", ZERO)
        binding.bind_cpu_input("scale", SCALE)
        binding.bind_output("y")
        binding.bind_output("stateN")
        one.run_with_iobinding(binding)


def stateful(one: ort.InferenceSession) -> None:
    stream = one.stateful()
    for _ in range(2 * RUNS):
        stream.run(None, {"x": x(), "scale": SCALE})


def new_streams(one: ort.InferenceSession) -> None:
    """Each of a few runs."""
    for _ in range(RUNS):
        fresh = one.stateful()
        for _ in range(2):
            fresh.run(None, {"x": x(), "scale": SCALE})


RIGHT = [fed_back, several_streams, copies, one_feed, other_states, some_outputs, a_binding, stateful, new_streams]


@pytest.mark.parametrize("program", RIGHT, ids=lambda f: f.__name__)
def test_right_programs_are_told_nothing(program: Callable[[ort.InferenceSession], None]) -> None:
    assert told(lambda: program(session())) == []


@pytest.mark.parametrize("program", RIGHT, ids=lambda f: f.__name__)
def test_later_runs_are_as_fast_as_without(program: Callable[[ort.InferenceSession], None]) -> None:
    one = session()
    program(one)
    assert not one._engine.watched


def test_an_entry_switches_it_off() -> None:
    one = session(warn_unfed_state="0")
    assert told(lambda: [one.run(None, {"x": x(), "state": ZERO, "scale": SCALE}) for _ in range(2 * RUNS)]) == []


def test_empty_caches_are_no_dead_states() -> None:
    """Prompts that are scored in one run each."""
    one, empty = session(growing()), np.zeros((1, 1, 0, 4), np.float32)
    feeds = [
        {
            "x": RNG.standard_normal((1, 5, 3)).astype(np.float32),
            "past_key_values.0.key": empty,
            "past_key_values.0.value": empty,
        }
        for _ in range(2 * RUNS)
    ]
    assert told(lambda: [one.run(None, feed) for feed in feeds]) == []


def test_an_embedding_of_text_has_no_states() -> None:
    assert session(recurrent("position", "embedding"))._engine.state_watch is None
