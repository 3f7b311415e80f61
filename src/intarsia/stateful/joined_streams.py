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
    if not streams or len(streams) != len(feeds):
        raise InvalidArgument(
            f"run_together: expected a feed for each stream, got {len(streams)} streams and {len(feeds)} feeds"
        )
    first = streams[0]
    if any(s.session is not first.session or s.states != first.states for s in streams):
        raise InvalidArgument("run_together: expected streams of one session with the same states")
    if len(set(map(id, streams))) != len(streams):
        raise InvalidArgument("run_together: a stream is there twice")
    named = [stream._named(feed) for stream, feed in zip(streams, feeds, strict=True)]
    rows = [_rows(first._inputs, feed) for feed in named]
    befores = [stream._values or stream._first(feed) for stream, feed in zip(streams, named, strict=True)]
    joined = first.fork()
    joined._values = {s.input: _joined(s.input, s.batch, [before[s.input] for before in befores]) for s in first.states}
    feed = {a.name: _joined_input(a, [f.get(a.name) for f in named]) for a in first._inputs if any(a.name in f for f in named)}
    names = list(output_names) if output_names else [a.name for a in first._outputs]
    first._check_names(names)
    results = dict(zip(first._fetched, joined.run(first._fetched, feed), strict=True))
    ends = np.cumsum(rows)
    given: list[list[Any]] = []
    for i, (stream, before) in enumerate(zip(streams, befores, strict=True)):
        span = slice(int(ends[i] - rows[i]), int(ends[i]))
        own = {s.output: _part(results[s.output], s.batch, span) for s in first.states}
        own |= {a.name: _part(results[a.name], _batch_of(results[a.name], int(ends[-1])), span) for a in first._outputs}
        stream._advance(before, own)
        given.append([own[name] for name in names])
    return given


def _rows(inputs: Sequence[NodeArg], feed: dict[str, Any]) -> int:
    return next((int(np.shape(feed[a.name])[0]) for a in inputs if a.name in feed and _has_rows(a)), 1)


def _has_rows(given: NodeArg) -> bool:
    return bool(given.shape) and not isinstance(given.shape[0], int)


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


def _joined_input(given: NodeArg, values: list[Any]) -> Any:
    missing = [i for i, v in enumerate(values) if v is None]
    if missing:
        raise InvalidArgument(f"run_together: the input {given.name!r} is missing in the feeds {missing}")
    if _has_rows(given):
        arrays = [np.asarray(v) for v in values]
        if len({a.shape[1:] for a in arrays}) > 1:
            raise InvalidArgument(
                f"run_together: the inputs {given.name!r} differ in other axes than that of rows: "
                f"{', '.join(str(list(a.shape)) for a in arrays)}"
            )
        return np.concatenate(arrays)
    if any(not np.array_equal(v, values[0]) for v in values[1:]):
        raise InvalidArgument(f"run_together: the input {given.name!r} has no axis of rows, and differs between the feeds")
    return values[0]


def _batch_of(value: Any, rows: int) -> int | None:
    shape = np.shape(value)
    return 0 if shape and shape[0] == rows else None


def _part(value: Any, axis: int | None, span: slice) -> Any:
    if axis is None:
        return value
    place = [slice(None)] * axis
    return np.ascontiguousarray(value[(*place, span)])
