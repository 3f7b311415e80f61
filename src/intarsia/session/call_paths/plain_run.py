"""Runs that want all outputs of a feed that needs no conversion, and nothing else: the first of the call paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia.errors import EPFail, IntarsiaError, crashed

if TYPE_CHECKING:
    from intarsia.model.runnable import Runnable
    from intarsia.options.session_options import RunOptions
    from intarsia.session.local_engine import LocalEngine

_PATIENCE = 100  # runs


def plain_run(
    engine: LocalEngine, output_names: Sequence[str] | None, feed: Any, run_options: RunOptions | None,
    timeout: float | None, framework: str | None, taps: Sequence[str] | None, /,
) -> list[Any] | None:  # fmt: skip
    """Read the feed, if nothing of it has to be converted, and run the model; nobody watches."""
    if (
        run_options is not None or timeout is not None or framework is not None or taps is not None or engine.watched
        or (output_names and output_names != engine.output_names) or type(feed) is not dict
    ):  # fmt: skip
        return None
    model = engine.model
    try:
        inputs = engine.reader.quick(feed, model.awaits)
        if inputs is None:
            return None
        if engine.by_sizes is not None:
            model = engine.by_sizes.model(engine, inputs)
        try:
            results = model.run(inputs)
        except Exception as error:  # noqa: BLE001 - it is raised again where nothing can be done about it
            results = engine.run_model(engine.other_model(model, inputs, error), inputs)
        met = engine.met_shapes
        if met.patience:
            met.patience -= 1
        elif model is engine.model:
            met.note(engine, model, inputs)
    except EPFail as error:
        engine.fall_back(error, model)
        return None
    return results


class MetShapes:
    """The shapes of a session's plain runs, by which its model prepares fast calls for those that come again.

    Attributes:
        patience: runs after which shapes are looked at again, where the model has no fast call for those that came again.
    """

    def __init__(self) -> None:
        self.patience = 0
        self._last: Sequence[object] = ()
        self._expected: Sequence[object] = ()  # those that came again last

    def note(self, engine: LocalEngine, model: Runnable, inputs: Sequence[Any]) -> None:
        """After a run: where the shapes are those of the one before, later ones go by a fast call for these, if any; else by
        one for all shapes that were met."""
        shapes = [getattr(x, "shape", None) for x in inputs]
        if shapes != self._last:
            if self._last and engine.by_sizes is None:
                _prepared(engine, model, model.expect_sizes)
            self._last = shapes
            return
        if shapes != self._expected and engine.by_sizes is None:
            _prepared(engine, model, lambda: model.expect_feed(inputs))
        self._expected = shapes
        if not model.fast_calls:
            self.patience = _PATIENCE


def _prepared(engine: LocalEngine, model: Runnable, prepare: Callable[[], None]) -> None:
    """Let a model prepare later runs; where its provider crashes, that is as in a run."""
    try:
        prepare()
    except (IntarsiaError, MemoryError):
        raise
    except Exception as error:
        from intarsia.session.call_paths.recovery import provider_of

        raise crashed(provider_of(engine, model), "in a run", error) from error
