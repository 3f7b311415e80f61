"""A session's model as it is run in this process: compiled, with variants for feeds that need another, and every way to run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import ref

from intarsia.ep.provider import ExecutionProvider
from intarsia.graph.model import SparseTensorType
from intarsia.log import session_logger
from intarsia.machine import fork_safety
from intarsia.model.background_compile import Underway
from intarsia.model.shape_specialization import hosted
from intarsia.model.signature import NodeArg
from intarsia.model.single_program_model import DirectModel
from intarsia.plan.size_constraints import SizesNeedVariant
from intarsia.printable import DEBUG
from intarsia.providers.options import option_texts
from intarsia.session.call_paths.plain_run import MetShapes, plain_run
from intarsia.session.session_builder import SessionBuilder, trips_of
from intarsia.values.feeds import FeedReader

if TYPE_CHECKING:
    import logging

    import numpy as np

    from intarsia.ep.arena import Arena
    from intarsia.ep.provider import BoundCall, CompileContext, RunContext
    from intarsia.errors import EPFail
    from intarsia.graph.model import Graph
    from intarsia.model.closed_model import ClosedModel
    from intarsia.model.compiled_model import CompiledModel
    from intarsia.model.runnable import Runnable
    from intarsia.model.trace_profile import Profile
    from intarsia.options.session_options import RunOptions
    from intarsia.providers.registry import ProviderArgument
    from intarsia.reports.explain import Explanation
    from intarsia.session.call_paths.model_calls import Limit
    from intarsia.session.call_paths.models_by_size import ModelsBySize
    from intarsia.session.call_paths.protocol import CallPath
    from intarsia.session.inspection import Inspection
    from intarsia.session.session_builder import Built
    from intarsia.session.session_reports import Reports
    from intarsia.stateful.unfed_state import StateWatch

_STATE_WORDS = ("state", "hidden", "cell", "cache", "past", "prev", "mem", "_in", "in_")

Hook = tuple[tuple[str, ...], Callable[[str, Any], object]]


class LocalEngine:
    """Implements `session.engine.Engine`.

    Attributes:
        built: what was made for the providers in force.
        variants: compiled models for feeds that the session's own cannot run, with their readers, by what they are for.
        by_sizes: the models for inputs whose sizes decide which branches run; None: these decide nothing.
        paths: the ways of a run behind the model's fast calls, in the order in which they are tried.
        limits: those of every run, from the outermost inwards.
        hooks: see `Inspection.add_hook`.
        state_watch: looks at the first runs for states that are not fed back; None: nothing does.
        trips: how many trips of loops a run may have, and the setting that says so; None: any number.
        changed_over: how many runs were the first tier's, and until when; "" where none was, or it still serves runs.
    """

    built: Built
    model: Runnable
    output_names: list[str]
    paths: tuple[CallPath, ...]
    closed = _closed_early = False
    state_watch: StateWatch | None = None
    changed_over = ""

    def __init__(self, builder: SessionBuilder, *, may_fall_back: bool) -> None:
        self.builder, self.source, self.options = builder, builder.source, builder.options
        self.profile = builder.profile
        self.may_fall_back = may_fall_back
        self.hooks: list[Hook] = []
        self.fallback_lock, self.variants_lock = fork_safety.lock(), fork_safety.lock()
        self._made = False

    # --- making ---

    def create(
        self, providers: Sequence[ProviderArgument] | str | None, provider_options: Sequence[Mapping[str, Any]] | None
    ) -> None:
        """Make everything that depends on the providers; nothing changes before all of it has succeeded."""
        start, options, owner = time.perf_counter_ns(), self.options, ref(self)

        def wanted(model: Underway) -> bool:
            engine = owner()
            return engine is not None and engine.model is model

        def take(model: Underway, whole: Runnable) -> None:
            engine = owner()
            if engine is not None and engine.model is model:
                engine.by_sizes = _models_by_size(whole)
                engine.model = whole
                seconds = (time.perf_counter_ns() - start) / 1e9
                engine.changed_over = (
                    f"the first {model.runs} runs were the first tier's; kernels were there after {seconds:.2f} s"
                )
                engine.log.info(engine.changed_over)

        built, made = self.builder.build(providers, provider_options, (wanted, take), anew=self._made)
        self.built, self._made, self.closed, self._closed_early = built, True, False, False
        self.signature, self.model, self.log = built.signature, made, built.maker.log
        self.reader: FeedReader | ClosedModel = FeedReader(built.signature.inputs)
        guard = options.config("session.nonfinite")
        self.guard = "" if guard == "ignore" else guard
        self.sparse = frozenset(v.name for v in built.signature.outputs if isinstance(v.type, SparseTensorType))
        self.tells = options.log_severity_level == 0
        self.trips = trips_of(options)
        self.limits = self._found_limits()
        self.state_watch = self._found_state_watch()
        self.look()
        self.output_names = [v.name for v in built.signature.outputs]
        self.variants: dict[tuple[str, ...], tuple[CompiledModel, FeedReader]] = {}
        self.paths, self.met_shapes = _AT_FIRST, MetShapes()
        self.by_sizes = _models_by_size(made)
        self.providers = [choice.name for choice in built.choices]
        if self.profile is not None:
            self.profile.add("Session", "session_initialization", start)
        if isinstance(made, Underway):
            self.log.info("runs are the first tier's until kernels are compiled")
            made.start()
        elif options.log_severity_level == 0 or self.log.isEnabledFor(DEBUG):
            self.log.debug("placement of %s\n%s", built.signature.metadata.path or "the model", self.explain())

    def _found_limits(self) -> tuple[Limit, ...]:
        """As `limits_of`."""
        if not self.options.untrusted and self.trips is None and self.arena().account is None:
            return ()
        from intarsia.session.call_paths.limits import limits_of

        return limits_of(self)

    def _found_state_watch(self) -> StateWatch | None:
        """What looks at the first runs of a model with states: most models have one input or one output, and none."""
        names = [v.name for v in self.signature.inputs]
        if len(names) < 2 or len(self.signature.outputs) < 2 or not any(map(_may_be_state, names)):
            return None
        if self.options.config("session.warn_unfed_state") == "0":
            return None
        from intarsia.stateful.unfed_state import StateWatch

        return StateWatch.of(self.inputs_meta, self.outputs_meta)

    def set_efficient(self, efficient: bool | None) -> None:
        """Whether runs leave the machine to others (None: as it is); makes the session anew where that changes."""
        builder = self.builder
        if efficient is not None and efficient != builder.efficient:
            before, builder.efficient = self.built, efficient
            try:
                self.create([choice.argument for choice in before.choices if not choice.implied] or None, None)
                self.built = replace(self.built, auto=before.auto)
            except BaseException:
                builder.efficient = not efficient
                raise

    def look(self) -> None:
        """See whether a run is more than its results."""
        told = self.tells or self.profile is not None
        self.watched = bool(told or self.limits or self.guard or self.hooks or self.sparse or self.state_watch)

    def close(self) -> None:
        """Free the model and its memory. Later runs raise Fail; one that is going on ends as usual."""
        from intarsia.model.closed_model import ClosedModel

        self._closed_early = not self.is_compiled
        self.reader = self.model = ClosedModel()
        self.closed = True
        self.variants, self.by_sizes = {}, None

    # --- what it is ---

    @property
    def is_compiled(self) -> bool:
        return not self._closed_early and not isinstance(self.model, Underway)

    @property
    def tier(self) -> str:
        """Which tier serves runs now: "first" or "tuned"."""
        return "first" if isinstance(self.model, Underway) or self.built.maker.first_tier else "tuned"

    def wait_until_compiled(self, timeout: float | None) -> None:
        """As `InferenceSession.wait_until_compiled`, which has looked at `timeout`."""
        if self._closed_early:
            self.check_open()
        model = self.model
        if isinstance(model, Underway):
            model.finished(timeout)

    def check_open(self) -> None:
        """Raises Fail where the session is closed."""
        if self.closed:
            self.model.finished()

    def graph(self) -> Graph:
        """The model as it was loaded."""
        return self.source.graph()

    def compile_context(self) -> CompileContext:
        """What providers are told of the session."""
        return self.built.maker.context

    def arena(self) -> Arena:
        """Where intermediate tensors in host memory lie."""
        return self.built.maker.context.memory

    def whole_model(self) -> CompiledModel:
        """The model with its partition, which a session that began from the cache does not have."""
        self.check_open()
        model = self.settled_model()
        return self.built.maker.compiled(self.graph()) if isinstance(model, DirectModel) else model

    def settled_model(self) -> CompiledModel | DirectModel:
        """The model, once it is compiled."""
        return self.model.finished()

    def profiled(self, graph: Graph, profile: Profile) -> CompiledModel:
        """A model made as the session's own, which tells `profile` of its kernels."""
        return replace(self.built.maker, profile=profile).compiled(graph)

    def explain(self) -> Explanation:
        """Where each node runs, how, and why no other provider runs it."""
        from intarsia.reports.explain import Explanation
        from intarsia.stateful.state_pairs import told_states

        found = Explanation.of(self.graph(), self.whole_model(), self.providers)
        states = told_states(self.inputs_meta, self.outputs_meta, self.graph)
        found = replace(found, remarks=(*found.remarks, *states)) if states else found
        if self.changed_over:
            found = replace(found, remarks=(*found.remarks, self.changed_over))
        return found if self.built.auto is None else replace(found, choice=str(self.built.auto))

    def inspection(self) -> Inspection:
        """Looks at values inside the model."""
        from intarsia.session.inspection import Inspection

        return Inspection(self)

    def reports(self) -> Reports:
        """Reports on the model and its runs."""
        from intarsia.session.session_reports import Reports

        return Reports(self)

    @cached_property
    def bindable(self) -> frozenset[str]:
        """Names of inputs, and of initializers that a run may replace."""
        return frozenset(v.name for v in (*self.signature.inputs, *self.signature.overridable))

    @cached_property
    def inputs_meta(self) -> list[NodeArg]:
        return [NodeArg.of(v) for v in self.signature.inputs]

    @cached_property
    def outputs_meta(self) -> list[NodeArg]:
        return [NodeArg.of(v) for v in self.signature.outputs]

    @cached_property
    def overridable_meta(self) -> list[NodeArg]:
        return [NodeArg.of(v) for v in self.signature.overridable]

    def option_texts(self) -> dict[str, dict[str, str]]:
        """By provider: every option with its effective value as text."""
        return {p.name: option_texts(p.options) for p in self.built.maker.providers}

    def set_dynamic_options(self, options: Mapping[str, str]) -> bool:
        """Hand options to the providers that have such; whether there is one."""
        default = ExecutionProvider.set_dynamic_options
        found = [p for p in self.built.maker.providers if options and type(p).set_dynamic_options is not default]
        for provider in found:
            provider.set_dynamic_options(options)
        return bool(found)

    def release_graphs(self) -> None:
        """Let providers drop the graphs that launches have become."""
        for provider in self.built.maker.providers:
            provider.release_graphs()

    def end_profiling(self) -> str:
        """Write the profile and return the file's name; "" where there is none."""
        return self.profile.save(self.options.profile_file_prefix) if self.profile is not None else ""

    # --- runs ---

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Any,
        run_options: RunOptions | None = None,
        timeout: float | None = None,
        framework: str | None = None,
        taps: Sequence[str] | None = None,
    ) -> list[Any]:
        """As `InferenceSession.run`, which goes on here where no fast call of the model does: by the first path that does."""
        for path in self.paths:
            results = path(self, output_names, input_feed, run_options, timeout, framework, taps)
            if results is not None:
                watch = self.state_watch
                if watch is not None and watch.saw(output_names or self.output_names, input_feed, results):
                    self.stop_watching_states()
                return results
        return self.run(output_names, input_feed, run_options, timeout, framework, taps)  # by the session that was made anew

    def stop_watching_states(self) -> None:
        """Enough was seen of whether states are fed back, or runs go where it cannot be seen."""
        if self.state_watch is not None:
            self.state_watch = None
            self.look()

    def run_model(
        self, model: Runnable, inputs: list[Any], run: RunContext | None = None, wanted: tuple[str, ...] = (),
        stay: frozenset[str] = frozenset(),
    ) -> list[Any]:  # fmt: skip
        """The outputs `wanted`, all without names. Where the model is not made for such sizes, one is made that is.

        Raises:
            EPFail: also where its provider crashed.
        """
        try:
            return model.run_some(wanted, inputs, run, stay) if wanted else model.run(inputs, run)
        except Exception as error:  # noqa: BLE001 - it is raised again where nothing can be done about it
            other = self.other_model(model, inputs, error)
        return self.run_model(other, inputs, run, wanted, stay)

    def other_model(self, model: Runnable, inputs: list[Any], error: Exception) -> Runnable:
        """After an error in a run of `model`: the variant that can run these inputs, where it was not made for them.

        Raises:
            EPFail: its provider crashed.
            error itself: anything else.
        """
        from intarsia.session.call_paths.recovery import other_model

        return other_model(self, model, inputs, error)

    def recovers(self, error: BaseException, model: Runnable) -> bool:
        """As `Engine.recovers`."""
        from intarsia.session.call_paths.recovery import recovers

        return recovers(self, error, model)

    def fall_back(self, error: EPFail, model: Runnable) -> None:
        """Make the session anew without the provider that failed in a run of `model`; raises `error` where that may not be."""
        from intarsia.session.call_paths.recovery import fall_back

        fall_back(self, error, model)

    def run_on_devices(
        self, output_names: Sequence[str], input_feed: Any, run_options: RunOptions | None, stay: frozenset[str]
    ) -> list[Any]:
        """As `Engine.run_on_devices`."""
        from intarsia.session.call_paths.device_run import device_run

        return device_run(self, output_names, input_feed, run_options, stay)

    def run_into(self, feed: Mapping[str, Any], targets: Mapping[str, Any]) -> list[Any] | None:
        """As `Engine.run_into`: a plain run. Where that is not possible, `run` says what is wrong."""
        if self.watched or self.by_sizes is not None or targets.keys() != set(self.output_names):
            return None
        model = self.model
        inputs = self.reader.quick(feed, model.awaits)
        try:
            made = None if inputs is None else model.run_into(inputs, targets)
        except SizesNeedVariant:
            return None
        except Exception as error:
            if not self.recovers(error, model):
                raise
            return None
        if made is None:
            return None
        results = dict(zip(model.outputs, made, strict=True))
        return [results[name] for name in targets]

    def bound(self, model: Runnable, inputs: list[np.ndarray], targets: Mapping[str, Any]) -> BoundCall | None:
        """As `Engine.bound`."""
        if self.watched:
            return None
        try:
            return model.bound(inputs, targets)
        except SizesNeedVariant:  # they are run by another model
            return None
        except Exception as error:
            if not self.recovers(error, model):
                raise
            return None

    def log_of(self, options: RunOptions | None) -> logging.Logger:
        """The session's logger, or that of a run which requests another level or has a name."""
        if options is None or (options.log_severity_level < 0 and not options.logid):
            return self.log
        severity, own = options.log_severity_level, self.options
        names = [name for name in (own.logid, options.logid) if name]
        return session_logger(severity if severity >= 0 else own.log_severity_level, ".".join(names))


def _may_be_state(name: str) -> bool:
    """Whether an input may be a state, by a look that costs no import."""
    lower = name.lower()
    return lower in ("h", "c", "h0", "c0", "hx", "cx") or any(word in lower for word in _STATE_WORDS)


def _models_by_size(model: Runnable) -> ModelsBySize | None:
    """What finds the model for inputs whose sizes decide which branches run; None where they decide nothing."""
    if not hosted(model):
        return None
    from intarsia.session.call_paths.models_by_size import ModelsBySize

    return ModelsBySize()


def _later_paths(
    engine: LocalEngine, output_names: Sequence[str] | None, feed: Any, run_options: RunOptions | None,
    timeout: float | None, framework: str | None, taps: Sequence[str] | None, /,
) -> list[Any] | None:  # fmt: skip
    """All other paths, imported by the first run of a session that gets to them: most sessions need none."""
    from intarsia.session.call_paths.ordered import PATHS

    engine.paths = PATHS
    for path in PATHS[1:]:
        results = path(engine, output_names, feed, run_options, timeout, framework, taps)
        if results is not None:
            return results
    return None


_AT_FIRST: tuple[CallPath, ...] = (plain_run, _later_paths)
