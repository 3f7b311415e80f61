"""`StatefulSession`: runs on the true inputs of a model, whose states it keeps from one run to the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from intarsia.errors import Fail, InvalidArgument, WrongType, nearest
from intarsia.graph.size_expressions import evaluate
from intarsia.stateful.initial_state import element_dtype, first_shape, known_sizes, zeros
from intarsia.stateful.state_pairs import State, find_states

if TYPE_CHECKING:
    import os

    from intarsia.model.signature import NodeArg


_OF_AN_ENCODER = ("encoder", "cross")


class StatefulSession:
    """A session of a model with states, made by `InferenceSession.stateful`.

    A state is an output that is the next value of an input: `present.0.key` of `past_key_values.0.key`, `stateN` of `state`.
    States begin as zeros (growing ones empty) with the first run after `reset`.

    Args:
        session: runs the model. Any number of stateful sessions share one.
        states: by output the input that it is fed into; None: as names, types and shapes say.
        initial: first values by input, instead of zeros.
        sizes: of named dimensions that neither the model nor the inputs say, such as a cache's fixed length.
        max_length: how long a growing state may become along its axis. A run that would make it longer is an error.
        history: how many runs can be taken back where a state does not grow; 0: none.

    Attributes:
        session: what runs the model.
        states: what is fed back (see `State`).
        runs: how many runs there were since `reset`.

    One run at a time; `fork` gives another thread a stream of its own.

    Raises:
        InvalidArgument: the model has no states that can be seen and none are said, or an argument does not fit the model.
    """

    def __init__(
        self, session: Any, states: Mapping[str, str] | None = None, *, initial: Mapping[str, Any] | None = None,
        sizes: Mapping[str, int] | None = None, max_length: int | None = None, history: int = 0,
    ) -> None:  # fmt: skip
        if session.closed:
            raise Fail("stateful: the session is closed")
        for name, value in (("states", states), ("initial", initial), ("sizes", sizes)):
            if value is not None and not isinstance(value, Mapping):
                raise WrongType(f"{name}: expected a dict, got {type(value).__name__}")
        inputs, outputs = session.get_inputs(), session.get_outputs()
        self.states = find_states(inputs, outputs, session._engine.graph, states)
        if not self.states:
            raise InvalidArgument(
                "stateful: no output looks like the next value of an input "
                f"(inputs {[a.name for a in inputs]}, outputs {[a.name for a in outputs]}): "
                "say which is by states={'output': 'input'}"
            )
        self.session = session
        self._by_input = {s.input: s for s in self.states}
        fed_back = {s.output for s in self.states}
        self._inputs = [a for a in inputs if a.name not in self._by_input]
        self._outputs = [a for a in outputs if a.name not in fed_back]
        self._sizes = self._checked_sizes(sizes or {})
        self._initial = {name: self._given(name, value) for name, value in (initial or {}).items()}
        if max_length is not None:
            check_whole("max_length", max_length, 1)
        check_whole("history", history, 0)
        self.max_length = max_length
        self._declared = {a.name: a.shape for a in outputs}
        self._fetched = [*(a.name for a in self._outputs), *(s.output for s in self.states)]
        self._growing = next((s for s in self.states if s.grows is not None), None)
        self._fixed = tuple(s for s in self.states if s.grows is None)
        if max_length is not None and self._growing is None:
            raise InvalidArgument(f"max_length: no state of the model grows, so it bounds nothing: {list(self._by_input)}")
        self._history: deque[tuple[int, dict[str, np.ndarray]]] = deque(maxlen=history)
        self._windowed = ""  # a growing state that a run has made no longer, so that its earlier places are gone
        self._values: dict[str, np.ndarray] = {}
        self._loops: dict[Any, Any] = {}  # of `run_many`, shared by all forks
        self.runs = 0
        self._lock = RLock()

    # --- what it is ---

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that `run` takes: the model's without its states."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs that `run` gives: the model's without its states."""
        return list(self._outputs)

    @property
    def state(self) -> dict[str, np.ndarray]:
        """The states by input, as the next run takes them; {} before the first run. The arrays are not to be written to."""
        return dict(self._values)

    @state.setter
    def state(self, values: Mapping[str, Any]) -> None:
        if not isinstance(values, Mapping):
            raise WrongType(f"state: expected a dict by input, got {type(values).__name__}")
        missing = [s.input for s in self.states if s.input not in values]
        if missing:
            raise InvalidArgument(f"state: expected a value for each of {list(self._by_input)}, got none for {missing}")
        with self._lock:
            self._values = {name: self._given(name, value) for name, value in values.items()}
            self._windowed = ""
            self._history.clear()

    @property
    def length(self) -> int:
        """How long the growing states are; where none grows, how many runs there were since `reset`."""
        if self._growing is None:
            return self.runs
        assert self._growing.grows is not None
        value = self._values.get(self._growing.input)
        return 0 if value is None else int(value.shape[self._growing.grows])

    @property
    def nbytes(self) -> int:
        """Bytes that the states take now."""
        return sum(v.nbytes for v in self._values.values())

    def __repr__(self) -> str:
        return f"<StatefulSession of {self.session!r}: {len(self.states)} states, {self.runs} runs, length {self.length}>"

    # --- runs ---

    def run(self, output_names: Sequence[str] | None, input_feed: Any, run_options: Any = None, **keywords: Any) -> list[Any]:
        """One run on the true inputs, after which the states are what it gave.

        Args:
            output_names: which outputs, states' among them; None: all but these.
            input_feed: the true inputs by name, or by position. An input that is a state is taken instead of what was kept.
            run_options, keywords: as of `InferenceSession.run`.

        Raises:
            InvalidArgument: an input is missing or wrong, or a state would be longer than `max_length`. The states are then as
                before, as after every error.
        """
        feed = self._named(input_feed)
        self._check_names(output_names or ())
        with self._lock:
            before = self._values or self._first(feed)
            self._check_length(before, feed)
            results = dict(
                zip(
                    self._fetched,
                    self.session.run(self._fetched, {**before, **feed}, run_options, **keywords),
                    strict=True,
                )
            )
            self._check_made(results)
            self._advance({**before, **{n: np.asarray(feed[n]) for n in self._by_input if n in feed}}, results)
        if not output_names:
            return [results[a.name] for a in self._outputs]
        states = {s.output for s in self.states}  # what is given belongs to the caller
        return [np.array(results[name]) if name in states else results[name] for name in output_names]

    def __call__(self, **inputs: Any) -> Any:
        """`run` with inputs as keywords. One output is given alone, several as a list."""
        found = self.run(None, inputs)
        return found[0] if len(found) == 1 else found

    def run_many(self, input_feed: Any, output_names: Sequence[str] | None = None) -> list[np.ndarray]:
        """Many runs in one call, whose states go from one to the next.

        Where no state grows and the CPU runs the model, all of them are one native loop, without Python between blocks.

        Args:
            input_feed: as for `run`. An array with one axis more than its input holds a block for each run along its first
                axis; others are the same in every run.
            output_names: as for `run`.

        Returns:
            Each output with a first axis of runs.

        Raises:
            InvalidArgument: no input has blocks, or they are not equally many; as `run`.
        """
        from intarsia.stateful.block_loop import run_blocks

        return run_blocks(self, self._named(input_feed), output_names)

    # --- streams ---

    def reset(self, rows: Iterable[int] | None = None) -> None:
        """Begin anew: all states, or those of some rows of the batch, which get their first values."""
        with self._lock:
            if rows is None:
                self._values, self.runs, self._windowed = {}, 0, ""
                self._history.clear()
                return
            chosen = list(rows)
            if self._growing is not None:
                raise InvalidArgument("reset: rows of a growing state cannot begin anew alone, as all rows are equally long")
            self._values = {s.input: self._with_fresh_rows(s, chosen) for s in self.states} if self._values else {}
            self._history.clear()

    def select_rows(self, rows: Sequence[int]) -> None:
        """Keep these rows of the batch, in this order; a row may be there several times, as for a beam search.

        Raises:
            InvalidArgument: a row that is not there, or a state without rows.
        """
        chosen = list(rows)
        with self._lock:
            made = {}
            for s in self.states:
                value = self._values.get(s.input)
                if value is None:
                    continue
                count = value.shape[s.batch] if s.batch is not None else 0
                if s.batch is None or not all(0 <= row < count for row in chosen):
                    raise InvalidArgument(f"select_rows: expected rows 0 to {count - 1} of the state {s.input!r}, got {chosen}")
                made[s.input] = np.ascontiguousarray(value.take(chosen, s.batch))
            self._values = made
            self._history.clear()

    def fork(self) -> StatefulSession:
        """Another stream that goes on from here. Memory is shared as far as the streams' histories are the same."""
        other: StatefulSession = object.__new__(type(self))
        with self._lock:
            other.__dict__.update(self.__dict__)
            other._values, other._history = dict(self._values), self._history.copy()
        other._lock = RLock()
        return other

    def rewind(self, count: int = 1) -> None:
        """Go back: growing states lose their last `count` places; where a state does not grow, to the end of an earlier run.

        Where no state grows, `count` is a number of runs.

        Raises:
            InvalidArgument: there are not that many, or, with states that do not grow, `history` does not reach so far or
                no run ended there.
        """
        check_whole("rewind", count, 0)
        with self._lock:
            values = self._values
            grown = (values[s.input].shape[s.grows] for s in self.states if s.grows is not None and s.input in values)
            length = min([self.length, *grown])
            if count > length:
                raise InvalidArgument(f"rewind: expected 0 to {length}, got {count}")
            if count and self._windowed:
                raise InvalidArgument(
                    f"rewind: the model cuts the state {self._windowed!r} to its last places, so that earlier ones are gone"
                )
            if count == 0:
                return
            fixed = self._fixed_at(self.length - count) if self._fixed else {}
            shorter = {}
            for s in self.states:
                if s.grows is None:
                    continue
                keep = [slice(None)] * len(s.shape)
                keep[s.grows] = slice(0, self._values[s.input].shape[s.grows] - count)
                shorter[s.input] = np.ascontiguousarray(self._values[s.input][tuple(keep)])
            self._values = {**shorter, **fixed}
            if self._growing is None:
                self.runs -= count

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the states to a file that `load` reads. Raises NotWritten, Fail (there are none yet)."""
        from intarsia.stateful.state_file import save_states

        if not self._values:
            raise Fail("save: there are no states before the first run")
        save_states(path, self.states, self._values, self.runs)

    def load(self, path: str | os.PathLike[str]) -> Self:
        """Go on from a file that `save` wrote of a session of the same states.

        Raises:
            NoSuchFile: it does not exist.
            InvalidArgument: it is no such file, or of other states.
        """
        from intarsia.stateful.state_file import load_states

        values, runs = load_states(path, self.states)
        self.state = values
        self.runs = runs
        return self

    # --- inside ---

    def _named(self, feed: Any) -> dict[str, Any]:
        if isinstance(feed, Mapping):
            return dict(feed)
        if isinstance(feed, (list, tuple)) and len(feed) == len(self._inputs):
            return {a.name: value for a, value in zip(self._inputs, feed, strict=True)}
        if len(self._inputs) == 1 and not isinstance(feed, (list, tuple)):
            return {self._inputs[0].name: feed}
        raise InvalidArgument(
            f"run: expected the inputs {[a.name for a in self._inputs]} by name or as a list of {len(self._inputs)}, "
            f"got {type(feed).__name__}{f' of {len(feed)}' if isinstance(feed, (list, tuple)) else ''}"
        )

    def _given(self, name: str, value: Any) -> np.ndarray:
        state = self._by_input.get(name)
        if state is None:
            raise InvalidArgument(f"{name!r} is no state of the model; {nearest(name, list(self._by_input))}")
        array = np.asarray(value)
        wanted = element_dtype(state)
        if array.dtype != wanted or array.ndim != len(state.shape):
            raise InvalidArgument(
                f"state {name!r}: expected {wanted} of rank {len(state.shape)}, got {array.dtype} of shape {array.shape}"
            )
        fixed = all(not isinstance(d, int) or d == n for d, n in zip(state.shape, array.shape, strict=True))
        if not fixed:
            raise InvalidArgument(f"state {name!r}: expected the shape {list(state.shape)}, got {list(array.shape)}")
        return np.array(array, order="C")

    def _first(self, feed: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """States before anything was run."""
        made = {}
        for s in self.states:
            if s.input in feed:
                continue
            initial = self._initial.get(s.input)
            made[s.input] = initial if initial is not None else zeros(s, first_shape(s, self._inputs, feed, self._sizes))
        return made

    def _with_fresh_rows(self, state: State, rows: list[int]) -> np.ndarray:
        value = self._values[state.input].copy()
        if state.batch is None:
            raise InvalidArgument(f"reset: the state {state.input!r} has no axis of rows")
        first = self._initial.get(state.input)
        place: list[Any] = [slice(None)] * value.ndim
        place[state.batch] = rows
        if any(not 0 <= row < value.shape[state.batch] for row in rows):
            raise InvalidArgument(f"reset: expected rows 0 to {value.shape[state.batch] - 1}, got {rows}")
        if first is None:
            value[tuple(place)] = zeros(state, ()).item()
        else:
            value[tuple(place)] = first if first.shape[state.batch] == 1 else first[tuple(place)]
        return value

    def _check_length(self, before: Mapping[str, np.ndarray], feed: Mapping[str, Any]) -> None:
        """Raises InvalidArgument where the run would make a growing state longer than `max_length`."""
        state = self._growing
        if self.max_length is None or state is None or state.grows is None:
            return
        now = before[state.input] if state.input in before else np.asarray(feed[state.input])
        length = now.shape[state.grows]
        declared = self._declared[state.output]
        dim = declared[state.grows] if declared else None
        name = state.shape[state.grows]
        known = known_sizes(self._inputs, feed, {**self._sizes, **({name: length} if isinstance(name, str) else {})})
        after = evaluate(dim, known) if isinstance(dim, str) else None
        if after is not None:
            self._refuse_length(after, length)

    def _check_made(self, results: Mapping[str, Any]) -> None:
        """`_check_length` where only the run has shown how long a state becomes."""
        state = self._growing
        if self.max_length is not None and state is not None and state.grows is not None:
            self._refuse_length(np.asarray(results[state.output]).shape[state.grows], self.length)

    def _refuse_length(self, after: int, length: int) -> None:
        assert self.max_length is not None
        if after > self.max_length:
            raise InvalidArgument(
                f"max_length: the states would be {after} long after this run, at most {self.max_length} is allowed "
                f"(they are {length} long now): reset(), rewind(), or give a larger max_length"
            )

    def _advance(self, before: Mapping[str, np.ndarray], results: Mapping[str, Any], runs: int = 1) -> None:
        """Keep what `runs` runs gave."""
        length = self.length
        values = {s.input: _next(s, before.get(s.input), results[s.output]) for s in self.states}
        for s in self.states:
            old = before.get(s.input)
            if s.grows is not None and old is not None and old.size and values[s.input].shape[s.grows] <= old.shape[s.grows]:
                self._windowed = s.input
        if self._fixed and self._history.maxlen:
            self._history.append((length, {s.input: before[s.input] for s in self._fixed if s.input in before}))
        self._values = values
        self.runs += runs

    def _fixed_at(self, length: int) -> dict[str, np.ndarray]:
        """States that do not grow as they were when the growing ones had this length. What was kept behind it is dropped."""
        found: dict[str, np.ndarray] | None = next((held for at, held in reversed(self._history) if at == length), None)
        if found is None:
            names = [s.input for s in self._fixed]
            raise InvalidArgument(
                f"rewind: the states {names} do not grow, and what they were {self.length - length} "
                f"{'runs' if self._growing is None else 'places'} ago is not kept "
                f"(kept: {sorted({self.length - at for at, _ in self._history}) or 'nothing'}; history={self._history.maxlen}; "
                "run_many, load, select_rows and setting the state forget it): make the session by stateful(history=runs)"
            )
        while self._history and self._history[-1][0] >= length:
            self._history.pop()
        return found

    def _checked_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        known = [d for s in self.states for d in s.shape if isinstance(d, str)]
        known += [d for a in self._inputs for d in a.shape if isinstance(d, str)]
        for name, size in sizes.items():
            if name not in known:
                found = nearest(str(name), sorted(set(known)))
                raise InvalidArgument(f"sizes: {name!r} is no dimension of a state or an input; {found}")
            check_whole(f"sizes[{name!r}]", size, 0)
        return dict(sizes)

    def _check_names(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self._fetched:
                raise InvalidArgument(f"{name!r} is no output of the model; {nearest(name, self._fetched)}")


def _next(state: State, before: np.ndarray | None, after: Any) -> np.ndarray:
    """The state after a run. A merged decoder gives nothing for the caches of its encoder, which then stay as they are."""
    value: np.ndarray = np.asarray(after)
    stays = before is not None and before.size and not value.size and any(w in state.input.lower() for w in _OF_AN_ENCODER)
    return before if stays and before is not None else value


def check_whole(name: str, value: Any, least: int) -> None:
    """Raises WrongType for what is no whole number, InvalidArgument for one that is too small."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise WrongType(f"{name}: expected a whole number, got {value!r}")
    if value < least:
        raise InvalidArgument(f"{name}: expected at least {least}, got {value}")


def run_together(
    streams: Sequence[StatefulSession], feeds: Sequence[Any], output_names: Sequence[str] | None = None
) -> list[list[Any]]:
    """One run for several streams of one session, joined along the batch axes.

    Args:
        streams: forks of one stateful session, or sessions made of the same `InferenceSession`.
        feeds: for each stream what its `run` takes, with as many rows as its states have. Inputs without rows (numbers,
            and inputs whose first axis is fixed) have to be equal.
        output_names: as for `StatefulSession.run`.

    Returns:
        For each stream what its `run` would give.

    Raises:
        InvalidArgument: streams of different sessions, states of unequal lengths, inputs without rows that differ.
    """
    from intarsia.stateful.joined_streams import joined_run

    lists = isinstance(streams, Sequence) and isinstance(feeds, Sequence)
    if not lists or not streams or not all(isinstance(s, StatefulSession) for s in streams):
        raise WrongType("run_together: expected a list of stateful sessions and a list of feeds")
    return joined_run(streams, feeds, output_names)
