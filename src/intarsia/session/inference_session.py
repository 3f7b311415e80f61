"""`InferenceSession`: onnxruntime's session over an engine, which holds the model and runs it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Never, Self

from intarsia import progress
from intarsia.errors import InvalidArgument, WrongType, nearest
from intarsia.options.session_options import RunOptions, SessionOptions
from intarsia.session.local_engine import LocalEngine
from intarsia.session.ort_methods import OrtMethods
from intarsia.session.session_builder import ModelSource, SessionBuilder, limited_making, reads_config

if TYPE_CHECKING:
    from intarsia.providers.registry import ProviderArgument
    from intarsia.reports.explain import Explanation
    from intarsia.reports.memory_report import MemoryReport
    from intarsia.reports.profile_report import ProfileReport
    from intarsia.session.engine import Engine
    from intarsia.session.io_binding import IOBinding
    from intarsia.session.low_level_session import LowLevelSession

_ARGUMENTS = (
    "sess_options", "providers", "provider_options", "disabled_optimizers", "enable_fallback", "new_ops",
    "read_config_from_model",
)  # fmt: skip
_KEYWORDS = {"disabled_optimizers": None, "enable_fallback": True, "new_ops": None, "read_config_from_model": None}


class InferenceSession(OrtMethods):
    """A loaded, optimised, partitioned and compiled model.

    Args:
        path_or_bytes: a path, the model's bytes, a binary file object or an `onnx.ModelProto`.
        sess_options: see `SessionOptions`.
        providers: names in order of priority, each alone or as (name, options). None: those of `sess_options`, else the CPU.
            The CPU is always the last resort, unless "session.disable_cpu_ep_fallback" is "1". The word "auto": the
            available providers that are fastest on this model, measured once (see `intarsia.model.auto_provider`).
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

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[ProviderArgument] | str | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        disabled_optimizers: Iterable[str] | None = None,
        enable_fallback: bool = True,
        new_ops: Any = None,
        read_config_from_model: bool | int | None = None,
        **unknown: Never,
    ) -> None:
        for name in unknown:
            raise TypeError(f"InferenceSession() got an unexpected keyword argument {name!r}; {nearest(name, _ARGUMENTS)}")
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise WrongType(f"sess_options: expected SessionOptions, got {type(sess_options).__name__}")
        options = sess_options if sess_options is not None else SessionOptions()
        given = (disabled_optimizers, enable_fallback, new_ops, read_config_from_model)
        keywords = {name: value for (name, usual), value in zip(_KEYWORDS.items(), given, strict=True) if value is not usual}
        self._arguments = (providers, provider_options, keywords)
        self._engine: Engine = _engine(path_or_bytes, options, *self._arguments)
        self._sess_options = self._engine.options

    def run(
        self, output_names: Sequence[str] | None, input_feed: Any, run_options: RunOptions | None = None, *,
        timeout: float | None = None, framework: str | None = None, taps: Sequence[str] | None = None,
    ) -> list[Any]:  # fmt: skip
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
        engine = self._engine
        model = engine.model
        calls = model.fast_calls
        if (
            calls and run_options is None and timeout is None and framework is None and taps is None and not engine.watched
            and (not output_names or output_names == engine.output_names)
        ):  # fmt: skip
            try:
                results = calls[0](input_feed)  # outside of the loop, which takes a tenth of the time of a short run
                if results is not None:
                    return results
                for call in calls[1:]:
                    results = call(input_feed)
                    if results is not None:
                        return results
            except Exception as error:
                if not engine.recovers(error, model):
                    raise
        return engine.run(output_names, input_feed, run_options, timeout, framework, taps)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run on what is bound; results are the binding's outputs. Raises InvalidArgument for another session's binding."""
        try:
            ready: Any = iobinding._ready  # which keeps the memory alive that it reads and writes
        except AttributeError:  # it is no binding
            ready = None
        engine = self._engine  # whose model is its own: a binding for it is this session's
        if ready is not None and run_options is None and iobinding._model is engine.model and not engine.watched:
            try:
                if ready.again(None):
                    return
            except Exception as error:
                if not engine.recovers(error, iobinding._model):
                    raise
        from intarsia.session.io_binding import IOBinding

        if not isinstance(iobinding, IOBinding) or iobinding._session is not self:
            raise InvalidArgument(
                "run_with_iobinding: expected a binding made by this session's io_binding(): "
                "IOBinding must be used with the session that created it."
            )
        iobinding.run(run_options)

    def _repr_html_(self) -> str:
        """For notebooks: inputs, outputs and providers."""
        from intarsia.reports.page.notebook import session_html

        return session_html(self)

    def explain(self) -> Explanation:
        """Where each node runs, how, and why no other provider runs it."""
        return self._engine.explain()

    def profile(self, input_feed: Any, runs: int = 10, *, warmup: int = 2, roofline: bool = True) -> ProfileReport:
        """Where the time of a run goes: by kernel, operator, layer of the model and provider, with copies by themselves.

        The model is compiled once more for it (mostly from the cache); the session's own runs stay as they are.

        Args:
            input_feed: as for `run`.
            runs, warmup: how many runs are timed, and how many come before them.
            roofline: compare with what the machine can do at most, which takes a second where it was not measured before.

        Raises:
            InvalidArgument: the feed, or the number of runs.
            Fail, EPFail: a run.
        """
        return self._engine.reports().profile(input_feed, runs, warmup=warmup, roofline=roofline)

    def memory_report(self, shapes: Mapping[str, Sequence[int]] | None = None) -> MemoryReport:
        """Who holds what: weights (mapped, in the model's bytes, packed), and for each shape of the inputs the memory of
        intermediate tensors, workspace and outputs, by provider.

        Args:
            shapes: by input: say what a run on inputs of these shapes would need too. Nothing is run.

        Raises:
            InvalidArgument: an input is not there, of another rank or size, or a size that is needed is missing.
        """
        return self._engine.reports().memory_report(shapes)

    def add_hook(self, patterns: Sequence[str], function: Callable[[str, Any], object]) -> Callable[[], None]:
        """Call `function(name, value)` after each run for every value or node that `patterns` names, in execution order.

        Returns:
            What takes the hook away.

        Raises:
            InvalidArgument: a pattern names nothing.
            Fail: the session is closed.
        """
        return self._engine.inspection().add_hook(patterns, function)

    # --- life cycle ---

    @property
    def is_compiled(self) -> bool:
        """False while "session.compile_in_background" has the first tier serve runs."""
        return self._engine.is_compiled

    def wait_until_compiled(self, timeout: float | None = None) -> None:
        """Come back once runs are those of the session's providers. Nothing to wait for without
        "session.compile_in_background".

        Args:
            timeout: seconds; None: however long it takes.

        Raises:
            TimeoutError: it takes longer.
            EPFail, NotImplemented: a provider cannot compile its part, or none takes a node; runs raise it too.
            Fail: the session was made in a process that was forked since.
            InvalidArgument, WrongType: `timeout` is no number of seconds.
        """
        if timeout is not None:
            from intarsia.model.run_timeout import checked_timeout

            timeout = checked_timeout(timeout)
        self._engine.wait_until_compiled(timeout)

    def close(self) -> None:
        """Free the session's model and memory. Later runs raise Fail; one that is going on ends as usual."""
        self._engine.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called: then nothing can be run any more."""
        return self._engine.closed

    def __repr__(self) -> str:
        source = self._engine.source.given
        named = repr(os.fspath(source)) if isinstance(source, (str, os.PathLike)) else "a model in memory"
        return f"<{type(self).__name__} of {named}: {'closed' if self.closed else ', '.join(self._engine.providers)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """A session pickles as what it was made from: path or bytes, options, providers. Loading makes a new session."""
        from intarsia.session.pickling import reduced

        return reduced(type(self), self._engine.source, self._sess_options, self._arguments)

    @cached_property
    def _sess(self) -> LowLevelSession:
        from intarsia.session.low_level_session import LowLevelSession

        return LowLevelSession.of(self)


OrtMethods._session_class = InferenceSession


def _engine(given: Any, options: SessionOptions, providers: Any, provider_options: Any, keywords: Mapping[str, Any]) -> Engine:
    """The engine of a new session, ready."""
    operators = options.operators_in_force(keywords.get("new_ops"))
    separate = options.config("untrusted.process") == "1"
    check = options.check_cancelled
    if separate or options.untrusted:
        from intarsia.model import untrusted

        if not options.untrusted:
            raise InvalidArgument(f"{untrusted.PROCESS!r} is '1', but SessionOptions.untrusted is False: set it as well")
        given = untrusted.checked_source(given, options)
        check = untrusted.watch_of(options)
    source = ModelSource(given, options)
    check = limited_making(options, check)
    start_ns = time.perf_counter_ns()
    with progress.reported(options.progress_callback, check):
        progress.step("load")
        if reads_config(keywords.get("read_config_from_model"), options):
            from intarsia.model import load_and_optimize

            options = source.options = load_and_optimize.configured(source.graph(), options)
        if options.enable_profiling:
            from intarsia.model.trace_profile import Profile

            source.profile = Profile(start_ns)
        engine: Engine
        if separate:
            from intarsia.sandbox.remote_engine import RemoteEngine

            engine = RemoteEngine(source, options, keywords)
        else:
            disabled = frozenset(keywords.get("disabled_optimizers") or ())
            builder = SessionBuilder(source, options, disabled, operators)
            engine = LocalEngine(builder, may_fall_back=bool(keywords.get("enable_fallback", True)))
        engine.create(providers, provider_options)
        if engine.is_compiled:
            progress.step(progress.READY)
    return engine
