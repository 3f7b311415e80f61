"""Calls of a session's compiled models: under its limits and those of the run, logged, and noted in the profile."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from intarsia.ep.device import DeviceTensor
from intarsia.errors import WrongType
from intarsia.run_status import CURRENT_RUN

if TYPE_CHECKING:
    from collections.abc import Callable

    from intarsia.ep.program import RunContext
    from intarsia.model.runnable import Runnable
    from intarsia.session.local_engine import LocalEngine

    Limit = Callable[[LocalEngine, "ModelCall", Callable[["ModelCall"], list[Any]]], list[Any]]

SHRINKAGE = "memory.enable_memory_arena_shrinkage"


class ModelCall(NamedTuple):
    """The outputs `names` (None or empty: all) that a model has for inputs; those of `stay` as device tensors where a device
    made them."""

    model: Runnable
    inputs: list[Any]
    names: Sequence[str] | None
    run: RunContext | None
    stay: frozenset[str]


def run_some(
    engine: LocalEngine, model: Runnable, inputs: list[Any], names: Sequence[str] | None, run: RunContext | None,
    stay: frozenset[str] = frozenset(), limits: tuple[Limit, ...] | None = None,
) -> list[Any]:  # fmt: skip
    """The outputs as `ModelCall` says, under `limits`, of which the first is the outermost (None: the session's)."""
    if limits is None:
        limits = engine.limits
    if limits:
        call, within = ModelCall(model, inputs, names, run, stay), limits[1:]
        return limits[0](engine, call, lambda inner: run_some(engine, *inner, within))
    if run is not None:
        run.check()
    logged, profile = engine.tells or (run is not None and run.options is not None), engine.profile
    start = time.perf_counter_ns() if logged or profile is not None else 0
    wanted = model.outputs
    if isinstance(names, str):
        check_names(names)
    if names:
        wanted = tuple(names)
        check_names(wanted)
    token = CURRENT_RUN.set(run)
    try:
        if wanted == model.outputs and not stay and not _any_on_device(inputs):
            results = engine.run_model(model, inputs, run)
        else:
            results = engine.run_model(model, inputs, run, wanted, stay)
    finally:
        CURRENT_RUN.reset(token)
    if profile is not None:
        profile.add("Session", "model_run", start, {"tier": engine.tier})
    if logged:
        _log_run(engine, wanted, inputs, run, start)
    if run is not None and SHRINKAGE in run.config and engine.is_compiled:  # what serves meanwhile has no memory to give back
        from intarsia.reports.memory_report import shrink

        shrink(model.finished(), run.config[SHRINKAGE])
    return results


def _any_on_device(inputs: Sequence[Any]) -> bool:
    for x in inputs:  # noqa: SIM110 - a generator would take as long as all else here
        if isinstance(x, DeviceTensor):
            return True
    return False


def _log_run(engine: LocalEngine, wanted: Sequence[str], inputs: Sequence[Any], run: RunContext | None, start_ns: int) -> None:
    """Log a run (level DEBUG)."""
    log = engine.log_of(run.options if run is not None else None)
    if log.isEnabledFor(logging.DEBUG):
        milliseconds = (time.perf_counter_ns() - start_ns) / 1e6
        given = ", ".join(f"{list(x.shape)}" if hasattr(x, "shape") else type(x).__name__ for x in inputs)
        log.debug("run of %s -> %s took %.3f ms", given, ", ".join(wanted), milliseconds)


def check_names(names: Sequence[str]) -> None:
    """Raises WrongType where outputs are not requested by names."""
    if isinstance(names, str):
        raise WrongType(f"output_names: expected a list of names, got {names!r}; write [{names!r}]")
    for name in names:
        if not isinstance(name, str):
            raise WrongType(f"output_names: expected names, got {name!r} ({type(name).__name__})")
