"""Looking inside a session's model: taps, hooks, and the guard against values that are not finite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia.ep.provider import RunContext
from intarsia.errors import Fail
from intarsia.reports.taps import Tapped, matching, with_taps
from intarsia.session.call_paths.model_calls import run_some
from intarsia.session.call_paths.model_variants import overridden, variant

if TYPE_CHECKING:
    from intarsia.graph.model import Graph
    from intarsia.options.session_options import RunOptions
    from intarsia.session.local_engine import LocalEngine

_MOST_TAPPED = 8  # models with taps that a session retains


class Inspection:
    """What the values inside the model of `engine` are."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine

    def add_hook(self, patterns: Sequence[str], function: Callable[[str, Any], object]) -> Callable[[], None]:
        """As `InferenceSession.add_hook`."""
        engine = self._engine
        engine.check_open()
        hook = (tuple(matching(engine.graph(), patterns)), function)
        engine.hooks.append(hook)
        engine.look()

        def remove() -> None:
            if hook in engine.hooks:
                engine.hooks.remove(hook)
            engine.look()

        return remove

    def run(
        self, feed: Any, output_names: Sequence[str] | None, taps: Sequence[str] | None, options: RunOptions | None
    ) -> list[Any]:
        """A run whose intermediate values somebody wants."""
        hooks = list(self._engine.hooks)
        hooked = [name for names, _ in hooks for name in names]
        found = self.tapped(feed, [*(taps or ()), *hooked], output_names, RunContext.of(options))
        for names, function in hooks:
            for name in names:
                function(name, found.taps[name])
        if self._engine.guard:
            self.check_finite(found, feed, options)
        if taps is None:
            return list(found)
        found.taps = {name: found.taps[name] for name in matching(self._engine.graph(), taps)}
        return found

    def tapped(
        self, feed: Any, patterns: Sequence[str], output_names: Sequence[str] | None = None, run: RunContext | None = None
    ) -> Tapped:
        """A run of a model of its own, whose outputs are the model's and the tapped values."""
        from intarsia.model import load_and_optimize

        engine = self._engine
        names = tuple(matching(engine.graph(), patterns))
        given = overridden(engine, feed)
        key = ("taps", *given, "", *names)

        def make_graph() -> Graph:
            for old in [k for k in engine.variants if k[0] == "taps"][: -_MOST_TAPPED or None]:
                del engine.variants[old]
            graph = engine.graph()
            return with_taps(load_and_optimize.with_inputs(graph, given) if given else graph, names)

        model, reader = variant(engine, key, make_graph)
        wanted = list(output_names or engine.output_names)
        results = run_some(engine, model, reader.read(feed), [*wanted, *names], run)
        return Tapped(results[: len(wanted)], zip(names, results[len(wanted) :], strict=True))

    def check_finite(self, results: Sequence[Any], feed: Any, options: RunOptions | None = None) -> None:
        """Name the node that first made a NaN or an infinity, where an output has one.

        Raises:
            Fail: "session.nonfinite" is "error".
        """
        from intarsia.reports.nonfinite import first_nonfinite, nonfinite

        if any(nonfinite(value) for value in results):
            found = first_nonfinite(self._engine.graph(), feed, lambda names: self.tapped(feed, names).taps)
            if found is not None and self._engine.guard == "error":
                raise Fail(f"an output is not finite: {found}")
            told = found or "it is once intermediate values are outputs"
            self._engine.log_of(options).warning("an output is not finite: %s", told)
