"""`InferenceSession`: a model made ready for the providers of this machine. It calls the stages and holds their results."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn

from intarsia import prepare
from intarsia.binding import IOBinding
from intarsia.collection import collection_paused
from intarsia.compiled import CompiledModel, compile_model
from intarsia.errors import EPFail, InvalidArgument, nearest
from intarsia.explain import Explanation, node_names
from intarsia.feeds import FeedReader
from intarsia.graph.model import Graph, Value
from intarsia.log import session_logger
from intarsia.options import RunOptions, SessionOptions
from intarsia.partition.partition import PartitionOptions
from intarsia.partition.provider import CompileContext, RunContext
from intarsia.partition.rules import parse_rules
from intarsia.profile import Profile
from intarsia.providers.fallback import check_taken, fallback_mode, report
from intarsia.providers.options import option_texts
from intarsia.providers.registry import CPU, ProviderArgument, resolve
from intarsia.signature import ModelMetadata, NodeArg
from intarsia.values import OrtValue

_KEYWORDS = ("disabled_optimizers", "enable_fallback", "read_config_from_model")


class InferenceSession:
    """A loaded, optimised, partitioned and compiled model.

    Args:
        path_or_bytes: a path, the model's bytes, a binary file object or an `onnx.ModelProto`.
        sess_options: see `SessionOptions`.
        providers: names in order of priority, each alone or as (name, options). None: those of `sess_options`, else the CPU.
            The CPU is always the last resort, unless "session.disable_cpu_ep_fallback" is "1".
        provider_options: a dict for each provider, where `providers` are names alone.
        disabled_optimizers: names of rewrite rules to leave out.

    A provider that exists but cannot work on this machine is left out with a `ProviderWarning` when another of those named
    works, and is an error otherwise; a name that does not exist is an error.

    Raises:
        NoSuchFile, InvalidProtobuf, InvalidGraph, ExternalDataError: the model cannot be read or is not valid.
        UnknownOption, InvalidArgument: an argument is wrong.
        NotImplemented: no provider has one of the model's operators.
        EPFail: no named provider works on this machine, or one cannot compile its part.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[ProviderArgument] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        for name in kwargs:
            if name not in _KEYWORDS:
                raise TypeError(f"InferenceSession() got an unexpected keyword argument {name!r}; {nearest(name, _KEYWORDS)}")
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise InvalidArgument(f"sess_options: expected SessionOptions, got {type(sess_options).__name__}")
        self._sess_options = sess_options if sess_options is not None else SessionOptions()
        self._disabled = frozenset(kwargs.get("disabled_optimizers") or ())
        self._enable_fallback = bool(kwargs.get("enable_fallback", True))
        self._fallback_lock = threading.Lock()
        is_path = isinstance(path_or_bytes, (str, os.PathLike))
        self._model_path = os.fspath(path_or_bytes) if is_path else None
        self._profile = Profile() if self._sess_options.enable_profiling else None
        start = time.perf_counter_ns()
        self._graph = prepare.load_model(path_or_bytes, self._sess_options)
        self._note("model_loading", start)
        self._create(providers, provider_options)

    def _create(
        self, providers: Sequence[ProviderArgument] | None, provider_options: Sequence[Mapping[str, Any]] | None
    ) -> None:
        """Everything that depends on the providers; sets no attribute before all of it has succeeded."""
        start = time.perf_counter_ns()
        options = self._sess_options
        if not providers and options.has_providers():
            providers, provider_options = options.providers, None
        cpu_fallback = options.config("session.disable_cpu_ep_fallback") == "0"
        named = [p if isinstance(p, str) else p[0] if isinstance(p, tuple) else p for p in providers or ()]
        if not cpu_fallback and (not providers or CPU in named):
            raise InvalidArgument(
                f"'session.disable_cpu_ep_fallback' is '1', but {CPU} is among the providers (or none is named): name others"
            )
        mode = fallback_mode(options.config("session.provider_fallback"))
        choices = resolve(providers, provider_options, cpu_fallback=cpu_fallback, mode=mode)
        instances = [choice.create() for choice in choices]
        log = session_logger(options.log_severity_level, options.logid)
        context = CompileContext(
            options.intra_op_num_threads, options.config("session.intra_op.allow_spinning") == "1",
            options.use_deterministic_compute, options.config_entries(),
        )  # fmt: skip
        split = PartitionOptions(
            options.config("partition.keep_islands") == "1", options.config("partition.shapes_on_host") == "1",
            parse_rules(options.config_entries()),
        )  # fmt: skip

        def build(graph: Graph) -> CompiledModel:
            with collection_paused():
                ready = prepare.optimised(graph, options, self._disabled)
                return compile_model(ready, instances, context, split, log, self._profile)

        model = build(self._graph)
        check_taken(model.partition, [c.name for c in choices if not c.implied], mode)
        self._choices, self._fallback_mode = choices, mode
        self._build: Callable[[Graph], CompiledModel] = build
        self._model, self._reader = model, FeedReader(self._graph.inputs)
        self._output_names = self._graph.output_names()
        self._variants: dict[tuple[str, ...], tuple[CompiledModel, FeedReader]] = {}
        self._lock = threading.Lock()
        self._providers = [choice.name for choice in choices]
        self._provider_options = {p.name: option_texts(p.options) for p in instances}
        self._note("session_initialization", start)
        self._log = log
        if options.log_severity_level == 0 or log.isEnabledFor(10):
            log.debug("placement of %s\n%s", self._graph.metadata.path or "the model", self.explain())

    def _note(self, name: str, start_ns: int) -> None:
        if self._profile is not None:
            self._profile.add("Session", name, start_ns)

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Compute outputs.

        Args:
            output_names: which; None or empty: all, in the model's order.
            input_feed: by input name: an array of the model's element type, an OrtValue, anything with `__array__` or
                `__dlpack__`, or Python numbers and nested lists, which are converted. Sequences are lists.
            run_options: to stop the run, or leave out what the outputs do not need.

        Returns:
            Arrays (lists for sequences, dicts for maps, None for empty optionals) that belong to the caller.

        Raises:
            InvalidArgument: an input is missing, unknown, or of another type, rank or size; an output is unknown.
            Fail: the run was stopped or could not be finished.
        """
        inputs = self._reader.quick(input_feed) if type(input_feed) is dict else None
        model = self._model
        try:
            if inputs is not None and run_options is None and (not output_names or output_names == self._output_names):
                return model.run(inputs, None)
            if inputs is None:
                model, reader = self._variant(input_feed)
                inputs = reader.read(input_feed)
            return self._run_some(model, inputs, output_names, run_options)
        except EPFail as error:
            self._fall_back(error, model)
        return self.run(output_names, input_feed, run_options)

    def _fall_back(self, error: EPFail, model: CompiledModel) -> None:
        """Make the session anew without the provider that failed in a run of `model`; raises `error` where that may not be."""
        with self._fallback_lock:
            if model is not self._model and model not in (m for m, _ in self._variants.values()):
                return  # another thread's run has failed too, and the session is a new one already
            failed = error.provider or (model.partition.parts[0].provider.name if len(model.partition.parts) == 1 else "")
            left: list[Any] = [c.argument for c in self._choices if c.name != failed and not c.implied]
            allowed = self._fallback_mode == "warn" or (self._fallback_mode == "listed" and left)
            if not self._enable_fallback or not failed or failed == CPU or not allowed:
                raise error
            self._create(left, None)
            report(f"{failed} failed in a run: {error}. The session goes on with {', '.join(self._providers)}.")

    def _run_some(
        self, model: CompiledModel, inputs: list[Any], output_names: Sequence[str] | None, run_options: RunOptions | None
    ) -> list[Any]:
        if isinstance(output_names, str):
            raise InvalidArgument(f"output_names: expected a list of names, got {output_names!r}; write [{output_names!r}]")
        if run_options is not None and not isinstance(run_options, RunOptions):
            raise InvalidArgument(f"run_options: expected RunOptions, got {type(run_options).__name__}")
        run = RunContext(run_options, run_options.config_entries()) if run_options is not None else None
        if run is not None:
            run.check()
        start = time.perf_counter_ns()
        wanted = tuple(output_names) if output_names else model.outputs
        results = model.run(inputs, run) if wanted == model.outputs else model.run_some(wanted, inputs, run)
        self._note("model_run", start)
        return results

    def _variant(self, feed: Mapping[str, Any]) -> tuple[CompiledModel, FeedReader]:
        """The compiled model for a feed: where it overrides initializers, one that takes those as inputs."""
        given = tuple(n for n in self._graph.overridable if n in feed) if isinstance(feed, Mapping) else ()
        if not given:
            return self._model, self._reader
        with self._lock:
            if given not in self._variants:
                opened = prepare.with_inputs(self._graph, given)
                self._variants[given] = (self._build(opened), FeedReader(opened.inputs))
            return self._variants[given]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """`run` with `OrtValue`s in and out."""
        return [OrtValue(v) for v in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> IOBinding:
        """A new, empty binding for this session."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run on what is bound; results are the binding's outputs. Raises InvalidArgument for another session's binding."""
        if not isinstance(iobinding, IOBinding) or iobinding._session is not self:
            raise InvalidArgument("run_with_iobinding: expected a binding made by this session's io_binding()")
        iobinding.run(run_options)

    def explain(self) -> Explanation:
        """Where each node runs, how, and why no other provider runs it."""
        return Explanation.of(node_names(self._graph), self._model, self._providers)

    @cached_property
    def _inputs_meta(self) -> list[NodeArg]:
        return [NodeArg.of(v) for v in self._graph.inputs]

    @cached_property
    def _outputs_meta(self) -> list[NodeArg]:
        inferred = self._model.partition.graph
        return [NodeArg.of(v if v.type is not None else Value(v.name, inferred.type_of(v.name))) for v in self._graph.outputs]

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that every run needs."""
        return list(self._inputs_meta)

    def get_outputs(self) -> list[NodeArg]:
        return list(self._outputs_meta)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that a run may replace by giving an input of that name."""
        return [NodeArg.of(Value(n, self._graph.constants[n].type)) for n in self._graph.overridable]

    def get_modelmeta(self) -> ModelMetadata:
        return ModelMetadata.of(self._graph.metadata, self._graph.name)

    def get_providers(self) -> list[str]:
        """Names of the session's providers in order of priority."""
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """By provider: every option with its effective value as text."""
        return {name: dict(options) for name, options in self._provider_options.items()}

    def get_session_options(self) -> SessionOptions:
        """The options the session was made with (the same object)."""
        return self._sess_options

    def set_providers(
        self, providers: Sequence[ProviderArgument] | None = None, provider_options: Sequence[Mapping[str, Any]] | None = None
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

    def __reduce__(self) -> NoReturn:
        raise TypeError("an InferenceSession cannot be pickled or copied: make one from the model's path in each process")
