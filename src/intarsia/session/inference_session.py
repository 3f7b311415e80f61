"""`InferenceSession`: a model made ready for the providers of this machine. It calls the stages and holds their results."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

from intarsia import progress
from intarsia.ep.device import DeviceTensor
from intarsia.ep.provider import CompileContext, ExecutionProvider, RunContext
from intarsia.errors import EPFail, Fail, IntarsiaError, InvalidArgument, WrongType, crashed, is_of_a_signal_handler, nearest
from intarsia.graph.model import SparseTensorType
from intarsia.log import session_logger
from intarsia.machine import fork_safety
from intarsia.machine.resources import ACCOUNT
from intarsia.model import background_compile
from intarsia.model.background_compile import Underway
from intarsia.model.builder import Maker
from intarsia.model.shape_specialization import (
    SizeBranches,
    hosted,
    pinned,
    with_any_elements,
    with_branches_apart,
    with_windows_apart,
)
from intarsia.model.signature import ModelMetadata, NodeArg
from intarsia.model.single_program_model import DirectModel
from intarsia.model.warm_start import (
    Signature,
    Start,
    WarmStart,
    identity,
    if_it_can,
    is_unchanged,
    small_model_key,
    warm_start,
)
from intarsia.options.session_options import RunOptions, SessionOptions
from intarsia.plan.size_constraints import BranchApart, ElementsApart, SizesApart
from intarsia.providers.fallback import check_taken, fallback_mode, report
from intarsia.providers.options import option_texts, values_of
from intarsia.providers.registry import CPU, ProviderArgument, ProviderChoice, resolve, started
from intarsia.run_status import CURRENT_RUN
from intarsia.session.inspection import SessionDebug
from intarsia.session.memory_and_profile import SHRINKAGE, arena_of
from intarsia.session.ort_methods import CREATION_TIMEOUT, SessionApi, context_of, limited_making, reads_config, trips_of
from intarsia.values.feeds import FeedReader, SizesDiffer, out_of_ort_values

if TYPE_CHECKING:
    from intarsia.ep.arena import Arena
    from intarsia.graph.model import Graph
    from intarsia.model.background_compile import AnyModel
    from intarsia.model.compiled_model import CompiledModel
    from intarsia.model.provider_selection import Choice
    from intarsia.model.trace_profile import Profile
    from intarsia.reports.explain import Explanation
    from intarsia.session.io_binding import IOBinding

_BRANCHES_APART = ("", "branches apart")
_WINDOWS_APART = ("", "windows apart")
_ELEMENTS_APART = ("", "elements apart")
_OWN_SIZES = ("", "own sizes")  # the key of a variant; others are names of initializers
_PATIENCE = 100  # runs
_KEYWORDS = ("disabled_optimizers", "enable_fallback", "new_ops", "read_config_from_model")


class InferenceSession(SessionApi, SessionDebug):
    """A loaded, optimised, partitioned and compiled model.

    Args:
        path_or_bytes: a path, the model's bytes, a binary file object or an `onnx.ModelProto`.
        sess_options: see `SessionOptions`.
        providers: names in order of priority, each alone or as (name, options). None: those of `sess_options`, else the CPU.
            The CPU is always the last resort, unless "session.disable_cpu_ep_fallback" is "1". The word "auto": the
            available providers that are fastest on this model, measured once (see `intarsia.model.provider_selection`).
        provider_options: a dict for each provider, where `providers` are names alone.
        disabled_optimizers: names of rewrite rules, and of passes of the CPU provider, to leave out.
        new_ops: operators for this session: functions decorated by `intarsia.op` or `intarsia.host_op`, `OperatorLibrary`s,
            modules or their files, or classes in the style of onnx's `OpRun`.
        enable_fallback: False: as `disable_fallback`.
        read_config_from_model: take session options from the model's metadata "ort_config" (by default where the environment
            variable ORT_LOAD_CONFIG_FROM_MODEL is "1").

    A session is a context manager (`close` at its end). It pickles as what it was made from.

    A provider that exists but cannot work on this machine, or takes no node, is left out with a `ProviderWarning` when another
    of those named works, and is an error otherwise ("session.provider_fallback" says otherwise); a name that does not exist is
    an error.

    Raises:
        NoSuchFile, InvalidProtobuf, InvalidGraph, ExternalDataError: the model cannot be read or is not valid.
        UnknownOption, InvalidArgument: an argument is wrong.
        NotImplemented: operators that the model needs do not exist (all are listed), or no provider takes one.
        EPFail: no named provider works on this machine, or one cannot compile its part.
    """

    def __new__(cls, path_or_bytes: Any = None, sess_options: SessionOptions | None = None, *_: Any, **__: Any) -> Self:
        """An object of a class of its own where the model is to be in a process apart."""
        if isinstance(sess_options, SessionOptions) and sess_options.config("untrusted.process") == "1":
            from intarsia.model import untrusted

            return object.__new__(untrusted.class_apart(cls, sess_options))
        return object.__new__(cls)

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[ProviderArgument] | str | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        for name in kwargs:
            if name not in _KEYWORDS:
                raise TypeError(f"InferenceSession() got an unexpected keyword argument {name!r}; {nearest(name, _KEYWORDS)}")
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise WrongType(f"sess_options: expected SessionOptions, got {type(sess_options).__name__}")
        self._sess_options = sess_options if sess_options is not None else SessionOptions()
        self._disabled = frozenset(kwargs.get("disabled_optimizers") or ())
        self._enable_fallback = bool(kwargs.get("enable_fallback", True))
        self._fallback_lock = fork_safety.lock()
        self._operators = self._sess_options.operators_in_force(kwargs.get("new_ops"))
        is_path = isinstance(path_or_bytes, (str, os.PathLike))
        check = self._sess_options.check_cancelled
        if self._sess_options.untrusted:
            from intarsia.model import untrusted

            path_or_bytes = untrusted.checked_source(path_or_bytes, self._sess_options)
            check = untrusted.watch_of(self._sess_options)
        self._signed = self._verified(path_or_bytes)
        if (seconds := self._sess_options.config(CREATION_TIMEOUT)) != "0":
            check = limited_making(seconds, check)
        self._model_path = os.fspath(path_or_bytes) if is_path else None
        self._source: Any = path_or_bytes
        self._efficient = False
        self._hooks: list[tuple[tuple[str, ...], Callable[[str, Any], object]]] = []
        self._arguments = (providers, provider_options, kwargs)
        self._loaded: Graph | None = None
        self._identity, self._content = identity(path_or_bytes), ""
        self._profile: Profile | None = None
        start_ns = time.perf_counter_ns()
        with progress.reported(self._sess_options.progress_callback, check):
            progress.step("load")
            if reads_config(kwargs.get("read_config_from_model"), self._sess_options):
                from intarsia.model import load_and_optimize

                self._sess_options = load_and_optimize.configured(self._graph(), self._sess_options)
            if self._sess_options.enable_profiling:
                from intarsia.model.trace_profile import Profile

                self._profile = Profile(start_ns)
            self._create(providers, provider_options)
            if self.is_compiled:
                progress.step(progress.READY)

    def _create(
        self, providers: Sequence[ProviderArgument] | str | None, provider_options: Sequence[Mapping[str, Any]] | None
    ) -> None:
        """Everything that depends on the providers; sets no attribute before all of it has succeeded."""
        start = time.perf_counter_ns()
        options = self._sess_options
        if not providers and options.has_providers():
            metadata = self._graph().metadata.properties if options.has_selection() else {}
            providers, provider_options = options.providers_for(metadata), None
        auto: Choice | None = None
        if providers in ("auto", ["auto"], ("auto",)):
            auto = self._measured(provider_options)
            providers = auto.winner.providers
        cpu_fallback = options.config("session.disable_cpu_ep_fallback") == "0"
        listed = providers if isinstance(providers, Sequence) else ()  # what else it may be `resolve` says
        named = [p if isinstance(p, str) else p[0] if isinstance(p, tuple) else p for p in listed]
        if not cpu_fallback and (not providers or CPU in named):
            raise InvalidArgument(
                f"'session.disable_cpu_ep_fallback' is '1', but {CPU} is among the providers (or none is named): name others"
            )
        mode = fallback_mode(options.config("session.provider_fallback"))
        if mode == "warn":
            from intarsia.session.process_settings import check_threads

            check_threads(options.use_per_session_threads)
        choices, instances = started(resolve(providers, provider_options, cpu_fallback=cpu_fallback, mode=mode), mode)
        if "_model" in self.__dict__ and self._loaded is None:
            self._check_source()
        maker = self._maker_for(instances, auto is not None and auto.winner.keep_islands, self._profile)
        log = maker.log
        entry = self._warm_start(instances, log)
        found = entry.find(instances[0], maker.context) if entry is not None else None
        if found is None and self._is_one_program(choices):
            from intarsia.ep_context.format import program_of

            graph = self._graph()
            found = Start(Signature.of(graph, graph), DirectModel(program_of(graph, instances[0], maker.context)))
            if isinstance(self._source, (str, bytes, os.PathLike)):
                self._loaded = None  # its code is in the program; it is loaded again for `explain`
        if found is None:
            if_it_can(instances[0], "when it was to get ready for a model", instances[0].warm_up)
            found = self._compiled_start(maker, choices, mode, entry)
        self._choices, self._fallback_mode, self._auto = choices, mode, auto
        self._maker, self._entry = maker, entry
        if entry is None:
            self._content = small_model_key(self._source, self._identity)
        self._signature = signature = found.signature
        self._model = found.model
        self._reader = FeedReader(signature.inputs)
        guard = options.config("session.nonfinite")
        self._guard = "" if guard == "ignore" else guard
        self._sparse = frozenset(v.name for v in signature.outputs if isinstance(v.type, SparseTensorType))
        self._tells = options.log_severity_level == 0
        self._trips = trips_of(options)
        self._watched = self._is_watched()
        self._output_names = [v.name for v in signature.outputs]
        self._variants: dict[tuple[str, ...], tuple[CompiledModel, FeedReader]] = {}
        self._shapes: Sequence[object] = ()  # of the last run that Python made, and those that came again last
        self._expected: Sequence[object] = ()
        self._patience = 0  # runs after which shapes are looked at again: these had no such function
        self._by_size: SizeBranches | bool | None = True if hosted(found.model) else None
        self._lock = fork_safety.lock()
        self._providers = [choice.name for choice in choices]
        self._provider_options = {p.name: p.options for p in instances}
        self._note("session_initialization", start)
        self._log = log
        if isinstance(found.model, Underway):
            found.model.start()
        elif options.log_severity_level == 0 or log.isEnabledFor(10):
            log.debug("placement of %s\n%s", signature.metadata.path or "the model", self.explain())

    def _compiled_start(self, maker: Maker, choices: Sequence[ProviderChoice], mode: str, entry: WarmStart | None) -> Start:
        """The model compiled, or under way where "session.compile_in_background" asks for that."""
        options, graph, first = self._sess_options, self._graph(), maker.providers[0]
        named = [c.name for c in choices if not c.implied]
        path = self._model_path or graph.metadata.path or None

        def compiled(ready: Graph) -> CompiledModel:
            whole = maker.of_optimised(ready)
            check_taken(whole.partition, named, mode)
            if options.config("ep.context_enable") == "1":
                from intarsia.session.context_export import write_context

                write_context(whole, maker.context, options, path)
            precompiled = any(node.compiled_part for node in whole.partition.graph.nodes)
            if entry is not None and not precompiled and all(part.provider is first for part in whole.partition.parts):
                entry.keep(Signature.of(graph, whole.partition.graph), whole, first)
            return whole

        ready = maker.optimised(graph)
        if options.config(background_compile.KEY) == "1" and not any(node.compiled_part for node in ready.nodes):
            return Start(Signature.of(graph, ready), self._underway(maker, ready, compiled))
        whole = compiled(ready)
        return Start(Signature.of(graph, whole.partition.graph), whole)

    def _underway(self, maker: Maker, ready: Graph, compiled: Callable[[Graph], CompiledModel]) -> Underway:
        """A model that is compiled while the session is used; not for a session that is closed or made anew meanwhile."""
        session, options = ref(self), self._sess_options

        def wanted(model: Underway) -> bool:
            options.check_cancelled()
            owner = session()
            return owner is not None and owner._model is model

        def take(model: Underway, whole: CompiledModel) -> None:
            owner = session()
            if owner is not None and owner._model is model:
                owner._model = whole

        serving = maker.stand_in(ready)
        return Underway(serving, lambda: compiled(ready), options.progress_callback, wanted, take)

    def _maker_for(self, instances: tuple[ExecutionProvider, ...], keep_islands: bool, profile: Profile | None) -> Maker:
        options = self._sess_options
        log = session_logger(options.log_severity_level, options.logid)
        strategy = next((getattr(p.options, "arena_extend_strategy", None) for p in instances if p.device.host), None)
        context = CompileContext(
            *self._threads_and_entries(), memory=arena_of(options, strategy), read_compiled=options.context_reader,
            inter_op_num_threads=options.inter_op_num_threads,
            parallel=options.execution_mode.name == "ORT_PARALLEL",
        )  # fmt: skip
        return Maker(options, self._disabled, instances, context, log, profile, self._operators, keep_islands)

    def _measured(self, provider_options: Sequence[Mapping[str, Any]] | None) -> Choice:
        """The providers that are fastest on this model."""
        from intarsia.model.provider_selection import SHAPES, choose
        from intarsia.model.warm_start import model_key

        if provider_options is not None:
            raise InvalidArgument("provider_options: providers='auto' takes every provider with its default options; name them")
        options = self._sess_options
        key = model_key(self._source) if self._source is not None else None
        settings = repr((
            options.graph_optimization_level, sorted(self._disabled), options.intra_op_num_threads,
            options.use_deterministic_compute, sorted(options.free_dimension_overrides.items()),
            sorted(options.denotation_overrides.items()), sorted(options.config_entries().items()),
        ))  # fmt: skip

        def make(names: Sequence[str], keep_islands: bool) -> CompiledModel:
            instances = tuple(choice.create() for choice in resolve(list(names)))
            return self._maker_for(instances, keep_islands, None).compiled(self._graph())

        return choose(self._graph(), make, key, settings, options.config(SHAPES))

    def _graph(self) -> Graph:
        """The model as a graph; a session that began from the cache loads it when somebody asks for more than results."""
        if self._loaded is None:
            from intarsia.model import load_and_optimize

            start = time.perf_counter_ns()
            self._check_source()
            self._loaded = load_and_optimize.load_model(self._source, self._sess_options, self._signed)
            if self._signed is not None:
                self._signed.check(self._source, f"the model {os.fspath(self._source)!r}")
            if not isinstance(self._source, (str, bytes, os.PathLike)):
                self._source = None
            self._note("model_loading_uri" if self._model_path is not None else "model_loading_array", start)
        return self._loaded

    def _check_source(self) -> None:
        """Raises Fail where the session's file is not what it was made from any more."""
        entry: WarmStart | None = self.__dict__.get("_entry")
        if entry is not None:
            same = entry.is_of(self._source)
        else:
            same = is_unchanged(self._source, self._identity, self._content)
        if not same:
            raise Fail(f"{self._source}: the file has changed since the session was made from it: make a new session")

    def _warm_start(self, instances: tuple[ExecutionProvider, ...], log: logging.Logger) -> WarmStart | None:
        """Where this session may begin from the cache: the first provider may have the whole model and keeps programs, all work
        in host memory, and nothing changes or watches the model."""
        options = self._sess_options
        told = options.log_severity_level == 0 or log.isEnabledFor(logging.DEBUG)  # of the placement of every node
        watched = self._profile is not None or told or options.optimized_model_filepath
        changed = options.initializers or options.external_files or self._operators is not None
        keeps = type(instances[0]).save is not ExecutionProvider.save and all(p.device.host for p in instances)
        ahead = options.config("ep.context_enable") == "1" or options.config("session.disable_model_compile") == "1"
        if not keeps or self._loaded is not None or watched or changed or ahead:
            return None
        settings = {
            "the provider": repr([(provider.name, values_of(provider.options)) for provider in instances]),
            "the optimisation": repr((options.graph_optimization_level, sorted(self._disabled))),
            "determinism": repr(options.use_deterministic_compute),
            "a dimension's name": repr(sorted(options.free_dimension_overrides.items())),
            "a dimension's denotation": repr(sorted(options.denotation_overrides.items())),
            "a configuration entry": repr(sorted(options.config_entries().items())),
            "folders that may be read": options.whitelisted_data_folders,
            "trust": repr((options.untrusted, self._signed and self._signed.digest)),
        }
        return warm_start(self._source, options, settings)

    def _is_one_program(self, choices: Sequence[ProviderChoice]) -> bool:
        """Whether the model is one compiled part, for the only provider asked for, and nothing changes or watches it."""
        graph, options = self._graph(), self._sess_options
        if len(graph.nodes) != 1 or not graph.nodes[0].compiled_part:
            return False
        node = graph.nodes[0]
        source = node.attributes.get("source")
        asked = all(name == source for name in (choices[0].name, *(c.name for c in choices if not c.implied)))
        whole = node.inputs == graph.input_names() and node.outputs == graph.output_names() and not graph.overridable
        written = options.optimized_model_filepath or options.config("ep.context_enable") == "1"
        return asked and whole and not written and self._profile is None and self._operators is None

    def _arena(self) -> Arena:
        """Where intermediate tensors in host memory lie."""
        return self._maker.context.memory

    def _whole_model(self) -> CompiledModel:
        """The model with its partition, which a session that began from the cache does not have."""
        model = self._settled_model()
        return self._compiled(self._graph()) if isinstance(model, DirectModel) else model

    def _settled_model(self) -> CompiledModel | DirectModel:
        """The model, once it is compiled."""
        return self._model.finished() if isinstance(self._model, Underway) else self._model

    def _profiled(self, graph: Graph, profile: Profile) -> CompiledModel:
        """A model made as the session's own, which tells `profile` of its kernels."""
        return replace(self._maker, profile=profile).compiled(graph)

    def _compiled(self, graph: Graph) -> CompiledModel:
        """Another graph made ready as the session's own was."""
        return self._maker.compiled(graph)

    def _note(self, name: str, start_ns: int) -> None:
        if self._profile is not None:
            self._profile.add("Session", name, start_ns)

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Any,
        run_options: RunOptions | None = None,
        *,
        timeout: float | None = None,
        framework: str | None = None,
        taps: Sequence[str] | None = None,
    ) -> list[Any]:
        """Compute outputs.

        Args:
            output_names: which; None or empty: all, in the model's order.
            input_feed: by input name (a dict, or a pandas or Arrow table by column) or by position (a list): an array of the
                model's element type, an OrtValue, a tensor of PyTorch, CuPy, JAX or anything else with `__dlpack__`,
                `__array_interface__` or `__array__`, or Python numbers and nested lists, which are converted. Sequences are
                lists, maps are dicts.
            run_options: to stop the run, or leave out what the outputs do not need.
            timeout: seconds after which the run is stopped.
            framework: give results as tensors of this library ("torch", "jax", "cupy", "tensorflow") or as "ortvalue".
            taps: names or patterns ("*" and "?") of values or nodes inside the model: the result is then a `Tapped`, a list of
                outputs with the intermediate tensors by name in its `taps`.

        Returns:
            A list of arrays (lists for sequences, dicts for maps, None for empty optionals, `SparseTensor`s for sparse outputs)
            that belong to the caller.

        Raises:
            InvalidArgument: an input is missing, unknown, or of another type, rank or size; an output is unknown.
            RunTimeout: the run took longer than `timeout`.
            Fail: the run was stopped or could not be finished.
        """
        plain = run_options is None and timeout is None and framework is None and taps is None and not self._watched
        usual = plain and (not output_names or output_names == self._output_names)
        model: AnyModel = self._model
        if usual and (call := model.feed_call) is not None:
            try:
                results = call(input_feed)
                if results is None and (held := out_of_ort_values(input_feed)) is not None:
                    results = call(held)
            except Exception as error:
                if not self._recovers(error, model):
                    raise
                results, model = None, self._model
            if results is not None:
                return results
        try:
            inputs = self._reader.quick(input_feed, model.awaits) if type(input_feed) is dict else None
            if inputs is not None and self._by_size is not None:
                model = self._for_sizes(inputs)
            if inputs is not None and usual:
                results = self._run_model(model, inputs)
                if self._patience:
                    self._patience -= 1
                elif model is self._model:
                    self._note_shapes(model, inputs)
                return results
            if run_options is not None:
                input_feed, adapted = self._checked(run_options, input_feed)
                inputs = None if adapted else inputs
            if taps is not None or self._hooks:
                return self._observed(input_feed, output_names, taps, run_options)
            if inputs is None:
                model, inputs = self._read(input_feed)
            if timeout is not None:
                results = self._run_timed(model, inputs, output_names, run_options, timeout)
            else:
                results = self._run_some(model, inputs, output_names, context_of(run_options))
            if self._guard:
                self._check_finite(results, input_feed, run_options)
            if self._sparse:
                results = self._with_sparse(results, output_names or self._output_names)
            return results if framework is None else self._delivered(results, framework)
        except EPFail as error:
            self._fall_back(error, model)
        return self.run(output_names, input_feed, run_options, timeout=timeout, framework=framework, taps=taps)

    def _run_model(
        self, model: AnyModel, inputs: list[Any], run: RunContext | None = None, wanted: tuple[str, ...] = (),
        stay: frozenset[str] = frozenset(),
    ) -> list[Any]:  # fmt: skip
        """The outputs `wanted`, all without names. Where the model is not made for such sizes, one is made that is."""
        try:
            return model.run_some(wanted, inputs, run, stay) if wanted else model.run(inputs, run)
        except BranchApart:
            apart = self._branches_apart(model)
            if apart is None:
                raise
            return self._run_model(apart, inputs, run, wanted, stay)
        except SizesApart as error:
            apart = self._sizes_apart(model, inputs, error)
            if apart is None:
                raise
            return self._run_model(apart, inputs, run, wanted, stay)
        except (IntarsiaError, MemoryError):
            raise
        except Exception as error:
            raise self._crash_of(model, error) from error

    def _sizes_apart(self, model: AnyModel, inputs: list[Any], error: SizesApart) -> CompiledModel | None:
        """The variant for sizes that `model` has no kernels for: with elements of sequences of any shape; with the sizes of
        inputs as numbers; and where the sizes are others, with pools in Python. None where it is that."""
        elements = isinstance(error, ElementsApart)
        numbers = pinned(self._graph(), inputs) if model is self._model and not elements else None
        if numbers is not None:
            return self._made(("pinned", *(str(getattr(x, "shape", "")) for x in inputs)), lambda: numbers)[0]
        key, apart = (_ELEMENTS_APART, with_any_elements) if elements else (_WINDOWS_APART, with_windows_apart)
        known = self._variants.get(key)
        if known is not None:
            return None if known[0] is model else known[0]
        graph = apart(self._graph())
        return None if graph is None else self._made(key, lambda: graph)[0]

    def _branches_apart(self, model: AnyModel) -> CompiledModel | None:
        """The variant of one of this session's models whose branches are programs of their own; None where it is one."""
        key = next((key for key, (known, _) in list(self._variants.items()) if known is model), ())
        if key[-1:] == _BRANCHES_APART[-1:]:
            return None
        if model is self._model or isinstance(model, (DirectModel, Underway)):
            return self._made(_BRANCHES_APART, lambda: with_branches_apart(self._graph()))[0]
        return self._made((*key, *_BRANCHES_APART), lambda: with_branches_apart(model.partition.graph))[0]

    def _crash_of(self, model: AnyModel, error: Exception) -> EPFail:
        """The error for one that the provider of a whole model did not mean to raise."""
        return crashed(self._provider_of(model), "in a run", error)

    def _note_shapes(self, model: AnyModel, inputs: Sequence[Any]) -> None:
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
        if model.feed_call is None:
            self._patience = _PATIENCE

    def _prepared(self, model: AnyModel, prepare: Callable[[], None]) -> None:
        """Let a model prepare later runs; where its provider crashes, that is as in a run."""
        try:
            prepare()
        except (IntarsiaError, MemoryError):
            raise
        except Exception as error:
            raise self._crash_of(model, error) from error

    def _run_on_devices(
        self, output_names: Sequence[str], input_feed: Any, run_options: RunOptions | None, stay: frozenset[str]
    ) -> list[Any]:
        """`run`, whose outputs `stay` are device tensors where a device made them."""
        if run_options is not None:
            input_feed, _ = self._checked(run_options, input_feed)
        model, inputs = self._read(input_feed)
        try:
            return self._run_some(model, inputs, output_names, context_of(run_options), stay)
        except EPFail as error:
            self._fall_back(error, model)
        return self.run(output_names, input_feed, run_options)

    def _recovers(self, error: BaseException, model: AnyModel) -> bool:
        """After an error in a run of `model`: whether a provider failed or crashed and the session was made anew without it.

        Raises:
            EPFail: it failed or crashed, and no other may take its place.
        """
        meant = isinstance(error, IntarsiaError | MemoryError) and not isinstance(error, EPFail)
        if meant or not isinstance(error, Exception) or is_of_a_signal_handler(error):
            return False
        self._fall_back(error if isinstance(error, EPFail) else self._crash_of(model, error), model)
        return True

    def _provider_of(self, model: AnyModel) -> str:
        """The provider that has a whole model, "" where there are several."""
        parts = () if isinstance(model, (DirectModel, Underway)) else model.partition.parts
        return parts[0].provider.name if len(parts) == 1 else "" if parts else self._providers[0]

    def _fall_back(self, error: EPFail, model: AnyModel) -> None:
        """Make the session anew without the provider that failed in a run of `model`; raises `error` where that may not be."""
        with self._fallback_lock:
            if model is not self._model and not any(model is m for m, _ in self._variants.values()):
                return  # another thread's run has failed too, and the session is a new one already
            failed = error.provider or self._provider_of(model)
            left: list[Any] = [c.argument for c in self._choices if c.name != failed and not c.implied]
            allowed = self._fallback_mode == "warn" or (self._fallback_mode == "listed" and left)
            if not self._enable_fallback or not failed or failed == CPU or not allowed:
                raise error
            self._create(left, None)
            report(f"{failed} failed in a run: {error}. The session goes on with {', '.join(self._providers)}.")

    def _run_some(
        self, model: AnyModel, inputs: list[Any], output_names: Sequence[str] | None,
        run: RunContext | None, stay: frozenset[str] = frozenset(),
    ) -> list[Any]:  # fmt: skip
        if isinstance(output_names, str):
            raise WrongType(f"output_names: expected a list of names, got {output_names!r}; write [{output_names!r}]")
        if self._sess_options.untrusted and (run is None or run.timeout is None):
            return self._run_untrusted(model, inputs, output_names, run, stay)
        if self._trips is not None and (run is None or run.trips is None):
            return self._run_with_few_trips(model, inputs, output_names, run, stay)
        if run is not None:
            run.check()
        start = time.perf_counter_ns()
        wanted = tuple(output_names) if output_names else model.outputs
        for name in wanted:
            if not isinstance(name, str):
                raise WrongType(f"output_names: expected names, got {name!r} ({type(name).__name__})")
        account = self._arena().account
        if account is not None and ACCOUNT.get() is not account:
            results = self._run_counted(account, model, inputs, wanted, run, stay)
            if self._sess_options.untrusted:  # here, as what is refused within is tried again
                self._check_results(results)
            return results
        token = CURRENT_RUN.set(run)
        try:
            if wanted == model.outputs and not stay and not any(isinstance(x, DeviceTensor) for x in inputs):
                results = self._run_model(model, inputs, run)
            else:
                results = self._run_model(model, inputs, run, wanted, stay)
        finally:
            CURRENT_RUN.reset(token)
        if self._sess_options.untrusted and account is None:
            self._check_results(results)
        self._note("model_run", start)
        if self._tells or (run is not None and run.options is not None):
            self._tell(wanted, inputs, run, start)
        if run is not None and SHRINKAGE in run.config:
            self._shrink(model, run.config[SHRINKAGE])
        return results

    def _read(self, feed: Any) -> tuple[AnyModel, list[Any]]:
        """The compiled model for a feed and its inputs. Where these give one symbol two sizes, as onnxruntime allows, it is a
        model without that symbol."""
        model, reader = self._variant(feed)
        try:
            inputs = reader.read(feed)
            return (self._for_sizes(inputs) if model is self._model and self._by_size is not None else model), inputs
        except SizesDiffer as error:
            if reader is not self._reader:
                raise
            why = str(error)
        from intarsia.model import load_and_optimize

        def opened() -> Graph:
            self._log.warning("%s; the model is compiled anew without shared sizes for such inputs", why)
            return load_and_optimize.with_own_sizes(self._graph())

        model, reader = self._made(_OWN_SIZES, opened)
        return model, reader.read(feed)

    def _for_sizes(self, inputs: Sequence[Any]) -> AnyModel:
        """The model for inputs of these sizes, where they decide which branches run."""
        if self._by_size is True:
            from intarsia.ops import registry

            model = self._settled_model()
            graph = self._maker.optimised(self._graph()) if isinstance(model, DirectModel) else model.partition.graph
            operators = self._operators if self._operators is not None else registry()
            self._by_size = SizeBranches(graph, model, operators, lambda path, opened: self._made(("sizes", path), opened)[0])
        found = self._by_size.model(inputs) if isinstance(self._by_size, SizeBranches) else None
        return self._model if found is None else found

    def _variant(self, feed: Mapping[str, Any]) -> tuple[AnyModel, FeedReader]:
        """The compiled model for a feed: where it overrides initializers, one that takes those as inputs."""
        given = self._overridden(feed)
        if not given:
            return self._model, self._reader
        from intarsia.model import load_and_optimize

        return self._made(given, lambda: load_and_optimize.with_inputs(self._graph(), given))

    def _made(self, key: tuple[str, ...], opened: Callable[[], Graph]) -> tuple[CompiledModel, FeedReader]:
        """The variant `key` of the model; compiled from the graph that `opened` gives where it is not there."""
        with self._lock:
            if key not in self._variants:
                graph = opened()
                self._variants[key] = (self._compiled(graph), FeedReader(graph.inputs))
            return self._variants[key]

    def _overridden(self, feed: Any) -> tuple[str, ...]:
        """The initializers for which the feed has other values."""
        return tuple(v.name for v in self._signature.overridable if v.name in feed) if isinstance(feed, Mapping) else ()

    def io_binding(self) -> IOBinding:
        """A new, empty binding for this session."""
        from intarsia.session.io_binding import IOBinding

        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run on what is bound; results are the binding's outputs. Raises InvalidArgument for another session's binding."""
        ready = getattr(iobinding, "_ready", None)  # which keeps the memory alive that it reads and writes
        if ready is not None and run_options is None and iobinding._session is self and iobinding._model is self._model:
            try:
                if ready.again(None):
                    return
            except Exception as error:
                if not self._recovers(error, iobinding._model):
                    raise
        from intarsia.session.io_binding import IOBinding

        if not isinstance(iobinding, IOBinding) or iobinding._session is not self:
            raise InvalidArgument(
                "run_with_iobinding: expected a binding made by this session's io_binding(): "
                "IOBinding must be used with the session that created it."
            )
        iobinding.run(run_options)

    def explain(self) -> Explanation:
        """Where each node runs, how, and why no other provider runs it."""
        from intarsia.reports.explain import Explanation, node_names

        found = Explanation.of(node_names(self._graph()), self._whole_model(), self._providers)
        return found if self._auto is None else replace(found, choice=str(self._auto))

    @cached_property
    def _bindable(self) -> frozenset[str]:
        """Names of inputs, and of initializers that a run may replace."""
        return frozenset(v.name for v in (*self._signature.inputs, *self._signature.overridable))

    @cached_property
    def _inputs_meta(self) -> list[NodeArg]:
        return [NodeArg.of(v) for v in self._signature.inputs]

    @cached_property
    def _outputs_meta(self) -> list[NodeArg]:
        return [NodeArg.of(v) for v in self._signature.outputs]

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that every run needs."""
        return list(self._inputs_meta)

    def get_outputs(self) -> list[NodeArg]:
        """Name, type and shape of each output, in the model's order; sizes that are not fixed are names or None."""
        return list(self._outputs_meta)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that a run may replace by giving an input of that name."""
        return [NodeArg.of(v) for v in self._signature.overridable]

    def get_modelmeta(self) -> ModelMetadata:
        """What the file says of itself: producer, graph, domain, descriptions, version, its own properties."""
        return ModelMetadata.of(self._signature.metadata, self._signature.name)

    def get_providers(self) -> list[str]:
        """Names of the session's providers in order of priority."""
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """By provider: every option with its effective value as text."""
        return {name: option_texts(options) for name, options in self._provider_options.items()}

    def get_session_options(self) -> SessionOptions:
        """The options the session was made with (the same object)."""
        return self._sess_options

    def set_providers(
        self,
        providers: Sequence[ProviderArgument] | str | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Make the session anew for other providers; on an error it stays as it was. Not while it is running."""
        self._create(providers, provider_options)

    def end_profiling(self) -> str:
        """Write the profile and return the file's name; "" where `enable_profiling` was not set."""
        return self._profile.save(self._sess_options.profile_file_prefix) if self._profile is not None else ""

    def enable_fallback(self) -> None:
        """A run in which a provider fails makes the session anew without that provider and runs again, with a
        `ProviderWarning`, where "session.provider_fallback" allows others in its place. This is the default."""
        self._enable_fallback = True

    def disable_fallback(self) -> None:
        """A run in which a provider fails raises that provider's `EPFail`; the session stays as it is."""
        self._enable_fallback = False
