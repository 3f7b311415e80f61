"""A warning for programs that never feed a state back: each of their runs begins from the same state as the first."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.stateful.state_pairs import State, find_states

if TYPE_CHECKING:
    from intarsia.model.signature import NodeArg

RUNS = 16  # that are looked at
_MOST_INPUTS = 16  # of a model that is looked at: recurrent networks have few, and caches grow, which is seen at once
_SAMPLE = 1 << 16  # bytes of an array that are compared


class StateWarning(UserWarning):
    """A state output of a model was never fed back into the input that it belongs to."""


class StateWatch:
    """Looks at the first runs of a session for states of fixed size that are never fed back.

    A state is told of where `RUNS` runs gave it one and the same value, none of which a run had computed, while other inputs
    and the state outputs changed.
    """

    def __init__(self, states: Sequence[State], inputs: Sequence[str]) -> None:
        self._states = {s.input: s for s in states}
        self._inputs = [name for name in inputs if name not in self._states]
        self._given: dict[str, set[int]] = {name: set() for name in self._states}
        self._made: dict[str, set[int]] = {name: set() for name in self._states}
        self._fed: set[int] = set()
        self._runs = 0

    @classmethod
    def of(cls, inputs: Sequence[NodeArg], outputs: Sequence[NodeArg]) -> StateWatch | None:
        """For a model that has states by its names; None for others."""
        if not (1 < len(inputs) <= _MOST_INPUTS and 1 < len(outputs) <= _MOST_INPUTS):
            return None
        states = [s for s in find_states(inputs, outputs, None) if s.grows is None]
        return cls(states, [a.name for a in inputs]) if states else None

    def saw(self, names: Sequence[str], feed: Any, results: Sequence[Any]) -> bool:
        """A run was made; whether enough was seen."""
        if not isinstance(feed, Mapping):
            return True
        found = dict(zip(names, results, strict=False))
        if any(s.input not in feed or s.output not in found for s in self._states.values()):
            return True
        for name, state in list(self._states.items()):
            before, after = _print_of(feed[name]), _print_of(found[state.output])
            self._given[name].add(before)
            if before in self._made[name] or len(self._given[name]) > 1 or before == after:
                del self._states[name]  # fed back, changed by the program, or a state that stays as it is
            self._made[name].add(after)
        self._fed.add(zlib.crc32(b"".join(_print_of(feed[n]).to_bytes(4, "little") for n in self._inputs if n in feed)))
        self._runs += 1
        if self._runs == RUNS and self._states and len(self._fed) > RUNS // 2:
            self._warn()
        return self._runs == RUNS or not self._states

    def _warn(self) -> None:
        pairs = ", ".join(f"{s.output!r} -> {s.input!r}" for s in self._states.values())
        warnings.warn(
            f"{RUNS} runs began from the same state: outputs that look like states were never fed back ({pairs}). "
            "session.stateful() does it by itself. Where each run is a sequence of its own, all is well: "
            "the configuration entry 'session.warn_unfed_state' set to '0' says so.",
            StateWarning,
            stacklevel=5,
        )


def _print_of(value: Any) -> int:
    """A checksum of an array's bytes, of large ones in part."""
    array = np.asarray(getattr(value, "_value", value))
    if array.dtype.hasobject:
        return 0
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    step = max(1, data.size // _SAMPLE)
    return zlib.crc32(data[::step].tobytes())
