"""Runs of any feed, with all that a caller may want: conversions, options, limits, some outputs, tensors of other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.ep.program import RunContext
from intarsia.errors import EPFail, WrongType
from intarsia.options.session_options import RunOptions
from intarsia.session.call_paths.limits import deadline_context
from intarsia.session.call_paths.model_calls import run_some
from intarsia.session.call_paths.model_variants import read

if TYPE_CHECKING:
    from intarsia.model.closed_model import ClosedModel
    from intarsia.model.runnable import Runnable
    from intarsia.session.local_engine import LocalEngine
    from intarsia.values.feeds import FeedReader


def checked_run(
    engine: LocalEngine, output_names: Sequence[str] | None, feed: Any, run_options: RunOptions | None,
    timeout: float | None, framework: str | None, taps: Sequence[str] | None, /,
) -> list[Any] | None:  # fmt: skip
    """Read and convert the feed, and run the model for it under the limits of the session and the run."""
    model: Runnable = engine.model
    try:
        inputs = None
        if type(feed) is dict and (
            run_options is not None or timeout is not None or framework is not None or engine.watched
            or (output_names and output_names != engine.output_names)
        ):  # fmt: skip # otherwise the plain path has tried that
            inputs = engine.reader.quick(feed, model.awaits)
            if inputs is not None and engine.by_sizes is not None:
                model = engine.by_sizes.model(engine, inputs)
        if run_options is not None:
            feed, adapted = checked_feed(run_options, feed, engine.reader)
            inputs = None if adapted else inputs
        if inputs is None:
            model, inputs = read(engine, feed)
        if timeout is None:
            context = RunContext.of(run_options) if run_options is not None else None
            results = run_some(engine, model, inputs, output_names, context)
        else:
            with deadline_context(run_options, timeout, engine.trips) as run:
                results = run_some(engine, model, inputs, output_names, run)
        if engine.guard:
            engine.inspection().check_finite(results, feed, run_options)
    except EPFail as error:
        engine.fall_back(error, model)
        return None
    if framework is None and not engine.sparse:
        return results
    return delivered(results, framework, engine.sparse, output_names or engine.output_names)


def checked_feed(options: RunOptions, feed: Any, reader: FeedReader | ClosedModel) -> tuple[Any, bool]:
    """The feed with the parameters of the options' adapters, and whether there are any."""
    if not isinstance(options, RunOptions):
        raise WrongType(f"run_options: expected RunOptions, got {type(options).__name__}")
    if not options.__dict__["_adapters"]:
        return feed, False
    from intarsia.values.lora import with_adapters

    return with_adapters(feed, reader.values, options.adapters), True


def delivered(results: list[Any], framework: str | None, sparse: frozenset[str], names: Sequence[str]) -> list[Any]:
    """Results as the caller wants them: those whose type in the model is a sparse tensor as `SparseTensor`s, then as tensors
    of a framework."""
    if sparse:
        from intarsia.values.sparse_tensor import SparseTensor

        results = [
            SparseTensor.from_dense(value) if name in sparse and isinstance(value, np.ndarray) else value
            for name, value in zip(names, results, strict=True)
        ]
    if framework is None:
        return results
    from intarsia.values import delivery

    return delivery.delivered(results, framework)
