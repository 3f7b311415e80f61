"""Runs whose intermediate values somebody wants: taps, and hooks of the session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia.errors import EPFail
from intarsia.session.call_paths.checked_run import checked_feed

if TYPE_CHECKING:
    from intarsia.options.session_options import RunOptions
    from intarsia.session.local_engine import LocalEngine


def inspected_run(
    engine: LocalEngine, output_names: Sequence[str] | None, feed: Any, run_options: RunOptions | None,
    timeout: float | None, framework: str | None, taps: Sequence[str] | None, /,
) -> list[Any] | None:  # fmt: skip
    """Run a model of its own, whose outputs are the model's and the values that are looked at."""
    if taps is None and not engine.hooks:
        return None
    engine.check_open()
    given = feed
    if run_options is not None:
        feed, _ = checked_feed(run_options, feed, engine.reader)
    model = engine.model
    try:
        return engine.inspection().run(feed, output_names, taps, run_options)
    except EPFail as error:
        engine.fall_back(error, model)
    return engine.run(output_names, given, run_options, timeout, framework, taps)  # no later path knows of taps
