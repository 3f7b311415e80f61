"""One run for several streams: states and inputs are joined along their batch axes, and results are divided again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import InvalidArgument

if TYPE_CHECKING:
    from intarsia.model.signature import NodeArg
    from intarsia.stateful.stateful_session import StatefulSession


def joined_run(streams: Sequence[StatefulSession], feeds: Sequence[Any], output_names: Sequence[str] | None) -> list[list[Any]]:
    """As `run_together`."""
    _check_streams(streams, feeds)
    first = streams[0]
    names = list(output_names) if output_names else [a.name for a in first._outputs]
    first._check_names(names)
    named = [stream._named(feed) for stream, feed in zip(streams, feeds, strict=True)]
    known = {a.name for a in first._inputs} | {s.input for s in first.states}
    for i, feed in enumerate(named):
        unknown = sorted(feed.keys() - known)
        if unknown:
            raise InvalidArgument(f"run_together: {unknown} of feed {i} are no inputs; expected {sorted(known)}")
    befores = [_before(stream, feed) for stream, feed in zip(streams, named, strict=True)]
    for stream, before, feed in zip(streams, befores, named, strict=True):
        stream._check_length(before, feed)
    batch = Batch(first)
    rows = [batch.rows(feed) for feed in named]
    joined = first.fork()
    joined.max_length = None  # of each stream, which was looked at
    joined._values = {s.input: _joined(s.input, s.batch, [before[s.input] for before in befores]) for s in first.states}
    given = [a for a in first._inputs if any(a.name in f for f in named)]
    feed = {a.name: _joined_input(a, batch.axis_of(a), [f.get(a.name) for f in named]) for a in given}
    results = dict(zip(first._fetched, joined.run(first._fetched, feed), strict=True))
    ends = np.cumsum(rows)
    axes = {a.name: batch.axis_of_output(a, results[a.name], int(ends[-1])) for a in first._outputs}
    axes |= {s.output: s.batch for s in first.states}
    parts: list[dict[str, Any]] = []
    for i, stream in enumerate(streams):
        span = slice(int(ends[i] - rows[i]), int(ends[i]))
        own = {name: _part(results[name], axis, span) for name, axis in axes.items()}
        stream._check_made(own)
        parts.append(own)
    for stream, before, own in zip(streams, befores, parts, strict=True):
        stream._advance(before, own)
    return [[own[name] for name in names] for own in parts]


def _check_streams(streams: Sequence[StatefulSession], feeds: Sequence[Any]) -> None:
    if len(streams) != len(feeds):
        raise InvalidArgument(f"run_together: expected a feed for each of {len(streams)} streams, got {len(feeds)}")
    first = streams[0]
    if any(s.session is not first.session or s.states != first.states for s in streams):
        raise InvalidArgument("run_together: expected streams of one session with the same states")
    if len(set(map(id, streams))) != len(streams):
        raise InvalidArgument("run_together: a stream is there twice")


def _before(stream: StatefulSession, feed: dict[str, Any]) -> dict[str, np.ndarray]:
    """A stream's states before its run; those of the feed come first, and are taken out of it."""
    given = {name: stream._given(name, feed[name]) for name in stream._by_input if name in feed}
    before = {**(stream._values or stream._first(feed)), **given}
    for name in given:
        del feed[name]
    return before


class Batch:
    """Where the rows of inputs and outputs are: along the axis whose size has the name of the states' batch; along the first,
    where sizes have no names."""

    def __init__(self, stream: StatefulSession) -> None:
        dims = [s.shape[s.batch] for s in stream.states if s.batch is not None]
        self._name = next((d for d in dims if isinstance(d, str)), None)
        self._inputs = stream._inputs

    def axis_of(self, given: NodeArg) -> int | None:
        """The axis of an input's or output's rows, or None."""
        if self._name is not None and self._name in given.shape:
            return given.shape.index(self._name)
        unnamed = bool(given.shape) and (given.shape[0] is None or "batch" in str(given.shape[0]).lower())
        return 0 if unnamed else None

    def axis_of_output(self, given: NodeArg, value: Any, rows: int) -> int | None:
        """That of an output: also the first, where nothing is declared and its size is that of all rows."""
        found = self.axis_of(given)
        if found is None and not (given.shape and isinstance(given.shape[0], int)) and np.shape(value)[:1] == (rows,):
            return 0
        return found

    def rows(self, feed: dict[str, Any]) -> int:
        """How many rows a feed has."""
        axes = ((np.shape(feed[a.name]), self.axis_of(a)) for a in self._inputs if a.name in feed)
        return next((int(shape[axis]) for shape, axis in axes if axis is not None and axis < len(shape)), 1)


def _joined(name: str, axis: int | None, values: list[np.ndarray]) -> np.ndarray:
    if axis is None:
        raise InvalidArgument(f"run_together: the state {name!r} has no axis of rows")
    shapes = {(*v.shape[:axis], *v.shape[axis + 1 :]) for v in values}
    if len(shapes) > 1:
        raise InvalidArgument(
            f"run_together: the states {name!r} differ in other axes than that of rows ({axis}): "
            f"{', '.join(str(list(v.shape)) for v in values)}"
        )
    return np.concatenate(values, axis)


def _joined_input(given: NodeArg, axis: int | None, values: list[Any]) -> Any:
    missing = [i for i, v in enumerate(values) if v is None]
    if missing:
        raise InvalidArgument(f"run_together: the input {given.name!r} is missing in the feeds {missing}")
    if axis is not None:
        arrays = [np.asarray(v) for v in values]
        if len({(*a.shape[:axis], *a.shape[axis + 1 :]) for a in arrays}) > 1:
            raise InvalidArgument(
                f"run_together: the inputs {given.name!r} differ in other axes than that of rows ({axis}): "
                f"{', '.join(str(list(a.shape)) for a in arrays)}"
            )
        return np.concatenate(arrays, axis)
    if any(not np.array_equal(v, values[0]) for v in values[1:]):
        raise InvalidArgument(f"run_together: the input {given.name!r} has no axis of rows, and differs between the feeds")
    return values[0]


def _part(value: Any, axis: int | None, span: slice) -> Any:
    if axis is None:
        return value
    place = [slice(None)] * axis
    return np.ascontiguousarray(value[(*place, span)])
