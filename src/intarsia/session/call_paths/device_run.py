"""Runs through a binding (`IOBinding`) whose inputs or outputs are in a device's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intarsia.ep.program import RunContext
from intarsia.errors import EPFail
from intarsia.session.call_paths.checked_run import checked_feed
from intarsia.session.call_paths.model_calls import run_some
from intarsia.session.call_paths.model_variants import read

if TYPE_CHECKING:
    from intarsia.options.session_options import RunOptions
    from intarsia.session.local_engine import LocalEngine


def device_run(
    engine: LocalEngine, output_names: Sequence[str], feed: Mapping[str, Any], run_options: RunOptions | None,
    stay: frozenset[str],
) -> list[Any]:  # fmt: skip
    """As `Engine.run_on_devices`."""
    if run_options is not None:
        feed, _ = checked_feed(run_options, feed, engine.reader)
    model, inputs = read(engine, feed)
    try:
        return run_some(engine, model, inputs, output_names, RunContext.of(run_options), stay)
    except EPFail as error:
        engine.fall_back(error, model)
    return engine.run(output_names, feed, run_options)
