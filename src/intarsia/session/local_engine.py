"""A session's model as it is run in this process: compiled, with variants for feeds that need another, and every way to run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from intarsia.ep.device import DeviceTensor
from intarsia.ep.provider import BoundCall, CompileContext, RunContext
from intarsia.errors import EPFail, IntarsiaError, WrongType, crashed, is_of_a_signal_handler
from intarsia.graph.model import SparseTensorType
from intarsia.log import session_logger
from intarsia.machine import fork_safety
from intarsia.machine.resources import ACCOUNT
from intarsia.model.background_compile import Underway
from intarsia.model.shape_specialization import SizeBranches, hosted
from intarsia.model.signature import NodeArg
from intarsia.model.single_program_model import DirectModel
from intarsia.options.session_options import RunOptions
from intarsia.plan.size_constraints import BranchApart, SizesApart
from intarsia.providers.fallback import report
from intarsia.providers.options import option_texts
from intarsia.providers.registry import CPU, ProviderArgument
from intarsia.run_status import CURRENT_RUN
from intarsia.session.session_builder import SessionBuilder, trips_of
from intarsia.values.feeds import FeedReader, SizesDiffer

if TYPE_CHECKING:
    from intarsia.ep.arena import Arena
    from intarsia.graph.model import Graph
    from intarsia.model.compiled_model import CompiledModel
    from intarsia.model.runnable import Runnable
    from intarsia.model.trace_profile import Profile
    from intarsia.reports.explain import Explanation
    from intarsia.session.inspection import Inspection
    from intarsia.session.session_builder import Built
    from intarsia.session.session_reports import Reports

Hook = tuple[tuple[str, ...], Callable[[str, Any], object]]

SHRINKAGE = "memory.enable_memory_arena_shrinkage"

_PATIENCE = 100  # runs


class LocalEngine:
    """Implements `session.engine.Engine`.

    Attributes:
        built: what was made for the providers in force.
        variants: compiled models for feeds that the session's own cannot run, with their readers, by what they are for.
        hooks: see `Inspection.add_hook`.
        trips: how many trips of loops a run may have, and the setting that says so; None: any number.
    """

    built: Built
    model: Runnable
    output_names: list[str]
    closed = False

    def __init__(self, builder: SessionBuilder, *, may_fall_back: bool) -> None:
        self.builder, self.source, self.options = builder, builder.source, builder.options
        self.profile = builder.profile
        self.may_fall_back = may_fall_back
        self.hooks: list[Hook] = []
        self._fallback_lock = fork_safety.lock()
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

        def take(model: Underway, whole: CompiledModel) -> None:
            engine = owner()
            if engine is not None and engine.model is model:
                engine.model = whole

        built, made = self.builder.build(providers, provider_options, (wanted, take), anew=self._made)
        self.built, self._made, self.closed = built, True, False
        self.signature, self.model, self.log = built.signature, made, built.maker.log
        self.reader: Any = FeedReader(built.signature.inputs)
        guard = options.config("session.nonfinite")
        self.guard = "" if guard == "ignore" else guard
        self._sparse = frozenset(v.name for v in built.signature.outputs if isinstance(v.type, SparseTensorType))
        self._tells = options.log_severity_level == 0
        self.trips = trips_of(options)
        self.look()
        self.output_names = [v.name for v in built.signature.outputs]
        self.variants: dict[tuple[str, ...], tuple[CompiledModel, FeedReader]] = {}
        self._shapes: Sequence[object] = ()  # of the last run that Python made, and those that came again last
        self._expected: Sequence[object] = ()
        self._patience = 0  # runs after which shapes are looked at again: these had no such function
        self._by_size: SizeBranches | bool | None = True if hosted(made) else None
        self._lock = fork_safety.lock()
        self.providers = [choice.name for choice in built.choices]
        if self.profile is not None:
            self.profile.add("Session", "session_initialization", start)
        if isinstance(made, Underway):
            made.start()
        elif options.log_severity_level == 0 or self.log.isEnabledFor(logging.DEBUG):
            self.log.debug("placement of %s\n%s", built.signature.metadata.path or "the model", self.explain())

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
        told = self._tells or self.profile is not None
        counted = self.arena().account is not None or self.trips is not None
        self.watched = bool(told or counted or self.guard or self.hooks or self._sparse or self.options.untrusted)

    def close(self) -> None:
        """Free the model and its memory. Later runs raise Fail; one that is going on ends as usual."""
        from intarsia.model.closed_model import ClosedModel

        closed: Any = ClosedModel()
        self.reader = self.model = closed
        self.closed = True
        self.variants, self._by_size = {}, None

    # --- what it is ---

    @property
    def is_compiled(self) -> bool:
        return not isinstance(self.model, Underway)

    def wait_until_compiled(self, timeout: float | None) -> None:
        """As `InferenceSession.wait_until_compiled`, which has looked at `timeout`."""
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
        from intarsia.reports.explain import Explanation, node_names

        found = Explanation.of(node_names(self.graph()), self.whole_model(), self.providers)
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
        """As `InferenceSession.run`, which goes on here where the model's native function does not do."""
        plain = run_options is None and timeout is None and framework is None and taps is None and not self.watched
        usual = plain and (not output_names or output_names == self.output_names)
        model: Runnable = self.model
        try:
            inputs = self.reader.quick(input_feed, model.awaits) if type(input_feed) is dict else None
            if inputs is not None and self._by_size is not None:
                model = self._for_sizes(inputs)
            if inputs is not None and usual:
                results = self._run_model(model, inputs)
                if self._patience:
                    self._patience -= 1
                elif model is self.model:
                    self._note_shapes(model, inputs)
                return results
            if run_options is not None:
                input_feed, adapted = checked_feed(run_options, input_feed, self.reader)
                inputs = None if adapted else inputs
            if taps is not None or self.hooks:
                return self.inspection().run(input_feed, output_names, taps, run_options)
            if inputs is None:
                model, inputs = self._read(input_feed)
            if timeout is not None:
                from intarsia.session import limited_runs

                results = limited_runs.timed(self, model, inputs, output_names, run_options, timeout)
            else:
                results = self.run_some(model, inputs, output_names, RunContext.of(run_options))
            if self.guard:
                self.inspection().check_finite(results, input_feed, run_options)
            return delivered(results, framework, self._sparse, output_names or self.output_names)
        except EPFail as error:
            self._fall_back(error, model)
        return self.run(output_names, input_feed, run_options, timeout, framework, taps)

    def _run_model(
        self, model: Runnable, inputs: list[Any], run: RunContext | None = None, wanted: tuple[str, ...] = (),
        stay: frozenset[str] = frozenset(),
    ) -> list[Any]:  # fmt: skip
        """The outputs `wanted`, all without names. Where the model is not made for such sizes, one is made that is."""
        try:
            return model.run_some(wanted, inputs, run, stay) if wanted else model.run(inputs, run)
        except (BranchApart, SizesApart) as error:
            from intarsia.session import variants

            apart = variants.apart(self, model, inputs, error)
            if apart is None:
                raise
            return self._run_model(apart, inputs, run, wanted, stay)
        except (IntarsiaError, MemoryError):
            raise
        except Exception as error:
            raise self._crash_of(model, error) from error

    def _crash_of(self, model: Runnable, error: Exception) -> EPFail:
        """The error for one that the provider of a whole model did not mean to raise."""
        return crashed(self._provider_of(model), "in a run", error)

    def _note_shapes(self, model: Runnable, inputs: Sequence[Any]) -> None:
        """After a plain run: where the shapes are those of the one before, later ones go by a native function for these, if
        any; else by one for all shapes that were met."""
        shapes = [getattr(x, "shape", None) for x in inputs]
        if shapes != self._shapes:
            if self._shapes and self._by_size is None:
                self._prepared(model, model.expect_sizes)
            self._shapes = shapes
            return
        if shapes != self._expected and self._by_size is None:
            self._prepared(model, lambda: model.expect_feed(inputs))
        self._expected = shapes
        if not model.native_calls:
            self._patience = _PATIENCE

    def _prepared(self, model: Runnable, prepare: Callable[[], None]) -> None:
        """Let a model prepare later runs; where its provider crashes, that is as in a run."""
        try:
            prepare()
        except (IntarsiaError, MemoryError):
            raise
        except Exception as error:
            raise self._crash_of(model, error) from error

    def run_on_devices(
        self, output_names: Sequence[str], input_feed: Any, run_options: RunOptions | None, stay: frozenset[str]
    ) -> list[Any]:
        """`run`, whose outputs `stay` are device tensors where a device made them."""
        if run_options is not None:
            input_feed, _ = checked_feed(run_options, input_feed, self.reader)
        model, inputs = self._read(input_feed)
        try:
            return self.run_some(model, inputs, output_names, RunContext.of(run_options), stay)
        except EPFail as error:
            self._fall_back(error, model)
        return self.run(output_names, input_feed, run_options)

    def recovers(self, error: BaseException, model: Runnable) -> bool:
        """After an error in a run of `model`: whether a provider failed or crashed and the session was made anew without it.

        Raises:
            EPFail: it failed or crashed, and no other may take its place.
        """
        meant = isinstance(error, IntarsiaError | MemoryError) and not isinstance(error, EPFail)
        if meant or not isinstance(error, Exception) or is_of_a_signal_handler(error):
            return False
        self._fall_back(error if isinstance(error, EPFail) else self._crash_of(model, error), model)
        return True

    def _provider_of(self, model: Runnable) -> str:
        """The provider that has a whole model, "" where there are several."""
        parts = () if model.partition is None else model.partition.parts
        return parts[0].provider.name if len(parts) == 1 else "" if parts else self.providers[0]

    def _fall_back(self, error: EPFail, model: Runnable) -> None:
        """Make the session anew without the provider that failed in a run of `model`; raises `error` where that may not be."""
        with self._fallback_lock:
            if model is not self.model and not any(model is m for m, _ in self.variants.values()):
                return  # another thread's run has failed too, and the session is a new one already
            failed = error.provider or self._provider_of(model)
            left: list[Any] = [c.argument for c in self.built.choices if c.name != failed and not c.implied]
            allowed = self.built.mode == "warn" or (self.built.mode == "listed" and left)
            if not self.may_fall_back or not failed or failed == CPU or not allowed:
                raise error
            self.create(left, None)
            report(f"{failed} failed in a run: {error}. The session goes on with {', '.join(self.providers)}.")

    def run_some(
        self, model: Runnable, inputs: list[Any], output_names: Sequence[str] | None,
        run: RunContext | None, stay: frozenset[str] = frozenset(),
    ) -> list[Any]:  # fmt: skip
        """The outputs of a compiled model under the limits of the session and the run, logged and noted."""
        if isinstance(output_names, str):
            check_names(output_names)
        if self.options.untrusted and (run is None or run.timeout is None):
            from intarsia.session import limited_runs

            return limited_runs.untrusted(self, model, inputs, output_names, run, stay)
        if self.trips is not None and (run is None or run.trips is None):
            from intarsia.session import limited_runs

            return limited_runs.with_few_trips(self, model, inputs, output_names, run, stay)
        if run is not None:
            run.check()
        start = time.perf_counter_ns()
        wanted = tuple(output_names) if output_names else model.outputs
        check_names(wanted)
        account = self.arena().account
        if account is not None and ACCOUNT.get() is not account:
            from intarsia.session import limited_runs

            return limited_runs.counted(self, account, model, inputs, wanted, run, stay)
        token = CURRENT_RUN.set(run)
        try:
            if wanted == model.outputs and not stay and not any(isinstance(x, DeviceTensor) for x in inputs):
                results = self._run_model(model, inputs, run)
            else:
                results = self._run_model(model, inputs, run, wanted, stay)
        finally:
            CURRENT_RUN.reset(token)
        if self.options.untrusted and account is None:
            from intarsia.model.untrusted import check_results

            check_results(results, self.options)
        if self.profile is not None:
            self.profile.add("Session", "model_run", start)
        if self._tells or (run is not None and run.options is not None):
            self._log_run(wanted, inputs, run, start)
        if run is not None and SHRINKAGE in run.config and not isinstance(model, Underway):  # what serves meanwhile keeps none
            from intarsia.reports.memory_report import shrink

            shrink(model.finished(), run.config[SHRINKAGE])
        return results

    def log_of(self, options: RunOptions | None) -> logging.Logger:
        """The session's logger, or that of a run which asks for another level or has a name."""
        if options is None or (options.log_severity_level < 0 and not options.logid):
            return self.log
        severity, own = options.log_severity_level, self.options
        names = [name for name in (own.logid, options.logid) if name]
        return session_logger(severity if severity >= 0 else own.log_severity_level, ".".join(names))

    def _log_run(self, wanted: Sequence[str], inputs: Sequence[Any], run: RunContext | None, start_ns: int) -> None:
        """Log a run (level DEBUG)."""
        log = self.log_of(run.options if run is not None else None)
        if log.isEnabledFor(logging.DEBUG):
            milliseconds = (time.perf_counter_ns() - start_ns) / 1e6
            given = ", ".join(f"{list(x.shape)}" if hasattr(x, "shape") else type(x).__name__ for x in inputs)
            log.debug("run of %s -> %s took %.3f ms", given, ", ".join(wanted), milliseconds)

    def _read(self, feed: Any) -> tuple[Runnable, list[Any]]:
        """The compiled model for a feed and its inputs. Where these give one symbol two sizes, as onnxruntime allows, it is a
        model without that symbol."""
        model, reader = self._model_for(feed)
        try:
            inputs = reader.read(feed)
            return (self._for_sizes(inputs) if model is self.model and self._by_size is not None else model), inputs
        except SizesDiffer as error:
            if reader is not self.reader:
                raise
            why = str(error)
        from intarsia.session import variants

        model, reader = variants.with_own_sizes(self, why)
        return model, reader.read(feed)

    def _for_sizes(self, inputs: Sequence[Any]) -> Runnable:
        """The model for inputs of these sizes, where they decide which branches run."""
        if self._by_size is True:
            from intarsia.ops import registry

            model = self.settled_model()
            graph = self.built.maker.optimised(self.graph()) if model.partition is None else model.partition.graph
            operators = self.builder.operators if self.builder.operators is not None else registry()
            owner = ref(self)

            def made(path: str, opened: Callable[[], Graph]) -> CompiledModel:
                engine = owner()
                assert engine is not None  # it asks for the model of a run
                return engine.variant(("sizes", path), opened)[0]

            self._by_size = SizeBranches(graph, model, operators, made)
        found = self._by_size.model(inputs) if isinstance(self._by_size, SizeBranches) else None
        return self.model if found is None else found

    def _model_for(self, feed: Mapping[str, Any]) -> tuple[Runnable, FeedReader]:
        """The compiled model for a feed: where it overrides initializers, one that takes those as inputs."""
        given = self.overridden(feed)
        if not given:
            return self.model, self.reader
        from intarsia.model import load_and_optimize

        return self.variant(given, lambda: load_and_optimize.with_inputs(self.graph(), given))

    def variant(self, key: tuple[str, ...], opened: Callable[[], Graph]) -> tuple[CompiledModel, FeedReader]:
        """The variant `key` of the model; compiled from the graph that `opened` gives where it is not there."""
        with self._lock:
            self.check_open()
            variants = self.variants  # others, where the session is closed or made anew meanwhile
            if key not in variants:
                graph = opened()
                variants[key] = (self.built.maker.compiled(graph), FeedReader(graph.inputs))
            return variants[key]

    def overridden(self, feed: Any) -> tuple[str, ...]:
        """The initializers for which the feed has other values."""
        return tuple(v.name for v in self.signature.overridable if v.name in feed) if isinstance(feed, Mapping) else ()

    def run_into(self, feed: Mapping[str, Any], targets: Mapping[str, Any]) -> list[Any] | None:
        """All outputs by a plain run, in the targets' order, each written into its target (None: new memory); None where that
        is not possible, and `run` says what is wrong."""
        if self.watched or self._by_size is not None or targets.keys() != set(self.output_names):
            return None
        model = self.model
        inputs = self.reader.quick(feed, model.awaits)
        try:
            made = None if inputs is None else model.run_into(inputs, targets)
        except SizesApart:
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
        """What runs `model` on fixed memory, where it can be called so."""
        if self.watched:
            return None
        try:
            return model.bound(inputs, targets)
        except SizesApart:  # they are run by another model
            return None
        except Exception as error:
            if not self.recovers(error, model):
                raise
            return None


def checked_feed(options: RunOptions, feed: Any, reader: Any) -> tuple[Any, bool]:
    """The feed with the parameters of the options' adapters, and whether there are any."""
    if not isinstance(options, RunOptions):
        raise WrongType(f"run_options: expected RunOptions, got {type(options).__name__}")
    if not options.__dict__["_adapters"]:
        return feed, False
    from intarsia.values.lora import with_adapters

    return with_adapters(feed, reader.values, options.adapters), True


def check_names(names: Sequence[str]) -> None:
    """Raises WrongType where outputs are not asked for by names."""
    if isinstance(names, str):
        raise WrongType(f"output_names: expected a list of names, got {names!r}; write [{names!r}]")
    for name in names:
        if not isinstance(name, str):
            raise WrongType(f"output_names: expected names, got {name!r} ({type(name).__name__})")


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
