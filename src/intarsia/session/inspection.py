"""The part of `InferenceSession` that looks inside a model: taps, hooks, and the guard against values that are not finite."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia.ep.provider import RunContext
from intarsia.errors import Fail
from intarsia.log import session_logger
from intarsia.options.session_options import RunOptions, SessionOptions
from intarsia.session.ort_methods import context_of
from intarsia.values.feeds import FeedReader

if TYPE_CHECKING:
    from intarsia.ep.arena import Arena
    from intarsia.graph.model import Graph
    from intarsia.model.compiled_model import CompiledModel
    from intarsia.model.trace_profile import Profile
    from intarsia.model.warm_start import Signature
    from intarsia.reports.taps import Tapped

Hook = tuple[tuple[str, ...], Callable[[str, Any], object]]
_KEPT_TAPS = 8  # models with taps that a session keeps


class SessionDebug:
    """Needs the session's graph, its maker of compiled models, and its way to run one."""

    _made: Callable[[tuple[str, ...], Callable[[], Graph]], tuple[CompiledModel, FeedReader]]
    _graph: Callable[[], Graph]
    _overridden: Callable[[Any], tuple[str, ...]]
    _run_some: Callable[..., list[Any]]
    _signature: Signature
    _output_names: list[str]
    _variants: dict[Any, Any]
    _hooks: list[Hook]
    _log: logging.Logger | logging.LoggerAdapter[Any]
    _guard: str
    _trips: tuple[int, str] | None
    _watched: bool
    _arena: Callable[[], Arena]
    _tells: bool
    _profile: Profile | None
    _sess_options: SessionOptions
    _sparse: frozenset[str]

    def add_hook(self, patterns: Sequence[str], function: Callable[[str, Any], object]) -> Callable[[], None]:
        """Call `function(name, value)` after each run for every value or node that `patterns` names, in execution order.

        Returns:
            What takes the hook away.

        Raises:
            InvalidArgument: a pattern names nothing.
        """
        from intarsia.reports.taps import matching

        hook = (tuple(matching(self._graph(), patterns)), function)
        self._hooks.append(hook)
        self._watched = True

        def remove() -> None:
            if hook in self._hooks:
                self._hooks.remove(hook)
            self._watched = self._is_watched()

        return remove

    def _observed(
        self, feed: Any, output_names: Sequence[str] | None, taps: Sequence[str] | None, options: RunOptions | None
    ) -> list[Any]:
        """A run whose intermediate values somebody wants."""
        hooks = list(self._hooks)
        hooked = [name for names, _ in hooks for name in names]
        found = self._tapped_run(feed, output_names, [*(taps or ()), *hooked], context_of(options))
        for names, function in hooks:
            for name in names:
                function(name, found.taps[name])
        if self._guard:
            self._check_finite(found, feed, options)
        if taps is None:
            return list(found)
        from intarsia.reports.taps import matching

        found.taps = {name: found.taps[name] for name in matching(self._graph(), taps)}
        return found

    def _tapped_run(
        self, feed: Any, output_names: Sequence[str] | None, patterns: Sequence[str], run: RunContext | None
    ) -> Tapped:
        """`run` on a model of its own, whose outputs are the model's and the tapped values."""
        from intarsia.model import load_and_optimize
        from intarsia.reports.taps import Tapped, matching, with_taps

        names = tuple(matching(self._graph(), patterns))
        given = self._overridden(feed)
        key = ("taps", *given, "", *names)

        def opened() -> Graph:
            for old in [k for k in self._variants if k[0] == "taps"][: -_KEPT_TAPS or None]:
                del self._variants[old]
            return with_taps(load_and_optimize.with_inputs(self._graph(), given) if given else self._graph(), names)

        model, reader = self._made(key, opened)
        wanted = list(output_names or self._output_names)
        results = self._run_some(model, reader.read(feed), [*wanted, *names], run)
        return Tapped(results[: len(wanted)], zip(names, results[len(wanted) :], strict=True))

    def _is_watched(self) -> bool:
        """Whether a run is more than its results."""
        told = self._tells or self._profile is not None
        counted = self._arena().account is not None
        counted = counted or self._trips is not None
        return bool(told or counted or self._guard or self._hooks or self._sparse or self._sess_options.untrusted)

    def _log_of(self, options: RunOptions | None) -> logging.Logger | logging.LoggerAdapter[Any]:
        """The session's logger, or that of a run which asks for another level or has a name."""
        if options is None or (options.log_severity_level < 0 and not options.logid):
            return self._log
        severity, own = options.log_severity_level, self._sess_options
        names = [name for name in (own.logid, options.logid) if name]
        return session_logger(severity if severity >= 0 else own.log_severity_level, ".".join(names))

    def _tell(self, wanted: Sequence[str], inputs: Sequence[Any], run: RunContext | None, start_ns: int) -> None:
        """Log a run (level DEBUG)."""
        log = self._log_of(run.options if run is not None else None)
        if log.isEnabledFor(logging.DEBUG):
            milliseconds = (time.perf_counter_ns() - start_ns) / 1e6
            given = ", ".join(f"{list(x.shape)}" if hasattr(x, "shape") else type(x).__name__ for x in inputs)
            log.debug("run of %s -> %s took %.3f ms", given, ", ".join(wanted), milliseconds)

    def _check_finite(self, results: Sequence[Any], feed: Any, options: RunOptions | None = None) -> None:
        """Name the node that first made a NaN or an infinity, where an output has one."""
        from intarsia.reports.nonfinite import first_nonfinite, nonfinite

        if any(nonfinite(value) for value in results):
            found = first_nonfinite(self, feed)  # type: ignore[arg-type] # it is part of a session
            if found is not None and self._guard == "error":
                raise Fail(f"an output is not finite: {found}")
            self._log_of(options).warning("an output is not finite: %s", found or "it is once intermediate values are kept")
