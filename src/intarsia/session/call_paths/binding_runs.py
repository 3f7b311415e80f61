"""Runs of what is bound to memory ahead of them (`IOBinding`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intarsia.ep.program import RunContext
from intarsia.errors import EPFail
from intarsia.plan.size_constraints import SizesApart
from intarsia.session.call_paths.checked_run import checked_feed
from intarsia.session.call_paths.model_calls import run_some
from intarsia.session.call_paths.model_variants import read

if TYPE_CHECKING:
    import numpy as np

    from intarsia.ep.program import BoundCall
    from intarsia.model.runnable import Runnable
    from intarsia.options.session_options import RunOptions
    from intarsia.session.local_engine import LocalEngine


def run_into(engine: LocalEngine, feed: Mapping[str, Any], targets: Mapping[str, Any]) -> list[Any] | None:
    """As `Engine.run_into`: a plain run; where that is not possible, `Engine.run` says what is wrong."""
    if engine.watched or engine.by_sizes is not None or targets.keys() != set(engine.output_names):
        return None
    model = engine.model
    inputs = engine.reader.quick(feed, model.awaits)
    try:
        made = None if inputs is None else model.run_into(inputs, targets)
    except SizesApart:
        return None
    except Exception as error:
        if not engine.recovers(error, model):
            raise
        return None
    if made is None:
        return None
    results = dict(zip(model.outputs, made, strict=True))
    return [results[name] for name in targets]


def bound(
    engine: LocalEngine, model: Runnable, inputs: list[np.ndarray], targets: Mapping[str, Any]
) -> BoundCall | None:  # fmt: skip
    """As `Engine.bound`."""
    if engine.watched:
        return None
    try:
        return model.bound(inputs, targets)
    except SizesApart:  # they are run by another model
        return None
    except Exception as error:
        if not engine.recovers(error, model):
            raise
        return None


def run_on_devices(
    engine: LocalEngine, output_names: Sequence[str], feed: Any, run_options: RunOptions | None, stay: frozenset[str]
) -> list[Any]:
    """As `Engine.run_on_devices`."""
    if run_options is not None:
        feed, _ = checked_feed(run_options, feed, engine.reader)
    model, inputs = read(engine, feed)
    try:
        return run_some(engine, model, inputs, output_names, RunContext.of(run_options), stay)
    except EPFail as error:
        engine.fall_back(error, model)
    return engine.run(output_names, feed, run_options)
