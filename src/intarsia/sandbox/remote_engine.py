"""The engine of a session whose model is in a separate process."""

from __future__ import annotations

import functools
import os
import pickle
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from intarsia.ep.provider import RunContext
from intarsia.errors import Fail, InvalidArgument, ModelLoadCanceled, NotImplemented, OutOfMemory, WrongType, check_outputs
from intarsia.graph.dims import Dim, fresh_symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import (
    MapType,
    Metadata,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    Value,
    ValueType,
)
from intarsia.lazy_dataclass import dataclass
from intarsia.model.closed_model import ClosedModel
from intarsia.model.signature import NodeArg
from intarsia.model.trace_profile import Profile
from intarsia.model.untrusted import MEMORY, OUTPUT, PROCESS, SECONDS, limit
from intarsia.model.warm_start import Signature
from intarsia.options.session_options import RunOptions, SessionOptions
from intarsia.printable import get_logger, visible_lines
from intarsia.progress import LoadProgress
from intarsia.providers.fallback import warn
from intarsia.providers.registry import CPU, REFERENCE
from intarsia.sandbox.messages import NotUnderstood, packed, unpacked
from intarsia.sandbox.process import Process, ProcessEnded
from intarsia.session.call_paths.checked_run import checked_feed, delivered
from intarsia.session.call_paths.limits import deadline_context
from intarsia.session.call_paths.model_calls import check_names
from intarsia.session.session_builder import CREATION_TIMEOUT
from intarsia.values.feeds import FeedReader

if TYPE_CHECKING:
    from intarsia.reports.explain import Explanation
    from intarsia.session.session_builder import ModelSource

_OWN_MIB = 1024  # of the process: code, the compiler, the model's file
_WRITTEN = ("session.optimized_model_filepath", "ep.context_enable")
_PROVIDERS = (CPU, REFERENCE)


@dataclass(frozen=True)
class _Model:
    """What stands for the compiled model in the session."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    fast_calls = ()


class _Profile(Profile):
    """The program's events and the process's."""

    others: tuple[dict[str, Any], ...] = ()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [*super().events, *self.others]


class RemoteEngine:
    """Implements `session.engine.Engine`: a process has the session, and this calls it."""

    is_compiled, watched = True, True
    model: Any
    output_names: list[str]
    signature: Signature
    providers: list[str]
    inputs_meta: list[NodeArg]
    outputs_meta: list[NodeArg]
    overridable_meta: list[NodeArg]

    def __init__(self, source: ModelSource, options: SessionOptions, keywords: Mapping[str, Any]) -> None:
        self.source, self.options, self._keywords = source, options, dict(keywords)
        self.profile = _Profile(source.profile.start_ns) if source.profile is not None else None
        self.may_fall_back = bool(keywords.get("enable_fallback", True))
        self._process: Process | None = None
        self._reader: Any = None
        self._providing: tuple[Any, Any] = (None, None)

    def create(self, providers: Any, provider_options: Any) -> None:
        """Start the process, and make the session there; nothing changes before that has succeeded."""
        options, source, old = self.options, self.source, self._process
        _check(options, providers)
        if hasattr(source.given, "SerializeToString"):
            source.given = source.given.SerializeToString()
        source.check_unchanged()
        process, told = self._begun(providers, provider_options)
        try:
            signature = _signature(told)
            inputs = [NodeArg(*each) for each in told["inputs"]]
            outputs = [NodeArg(*each) for each in told["outputs"]]
            overridable = [NodeArg(*each) for each in told["overridable"]]
            listed = [str(name) for name in told["providers"]]
            held = ", ".join(map(str, told["held"]))
            texts = {str(n): {str(k): str(v) for k, v in each.items()} for n, each in told["provider_options"].items()}
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            process.close()
            raise ProcessEnded(f"the session's process said what is no model's signature ({error!r}), and was ended") from error
        get_logger("intarsia").info("the session's process has given up: %s", visible_lines(held) or "nothing")
        self._process, self._providing = process, (providers, provider_options)
        self.signature, self._reader = signature, FeedReader(signature.inputs)
        self.inputs_meta, self.outputs_meta, self.overridable_meta = inputs, outputs, overridable
        self.output_names = [v.name for v in signature.outputs]
        self.bindable = frozenset(v.name for v in (*signature.inputs, *signature.overridable))
        self.model = _Model(tuple(v.name for v in signature.inputs), tuple(self.output_names))
        self._sparse = frozenset(v.name for v in signature.outputs if isinstance(v.type, SparseTensorType))
        self.providers, self._option_texts = listed, texts
        if old is not None:
            old.close()

    def _begun(self, providers: Any, provider_options: Any) -> tuple[Process, dict[str, Any]]:
        """A process that has the session, and what it says of the model."""
        options, source = self.options, self.source.given
        arguments = (_options_there(options), providers, provider_options, self._keywords)
        try:
            data = [np.frombuffer(pickle.dumps(arguments), np.uint8)]
        except Exception as error:
            raise InvalidArgument(
                f"{PROCESS!r} is '1', but the session's options cannot be sent to another process: {error}. Operators of a "
                "program have to be in modules that can be imported"
            ) from error
        path = str(Path(source).absolute()) if isinstance(source, (str, os.PathLike)) else None
        if path is None:
            try:
                data.append(np.frombuffer(source, np.uint8))
            except (TypeError, ValueError) as error:
                raise WrongType(f"expected a path, bytes or a model, got {type(source).__name__}") from error
        seconds = float(limit(options, SECONDS))
        if (own := float(options.config(CREATION_TIMEOUT))) > 0:
            seconds = min(seconds, own)
        mib = int(options.config("session.memory_limit_mib")) or limit(options, MEMORY)
        question = {
            "do": "begin", "path": path, "seconds": seconds, "level": get_logger("intarsia").getEffectiveLevel(),
            "progress": options.progress_callback is not None,
            "data_nbytes": (mib + limit(options, OUTPUT) + _OWN_MIB << 20) + sum(part.nbytes for part in data),
        }  # fmt: skip
        process = Process()
        listen = functools.partial(_told, options)
        told, _ = process.ask(question, data, seconds, options.check_cancelled, doing="making the session", listen=listen)
        return process, told

    def _alive(self) -> Process:
        """The process; a new one where it has ended, or is another's."""
        if self._process is None:
            raise Fail("the session is closed: make a new InferenceSession")
        if not self._process.is_ours:
            self.source.check_unchanged()
            self._process, _ = self._begun(*self._providing)
        return self._process

    def _ask(self, question: dict[str, Any], doing: str) -> dict[str, Any]:
        seconds = float(limit(self.options, SECONDS))
        most = limit(self.options, OUTPUT) << 20
        answer, _ = self._alive().ask(
            {**question, "seconds": seconds}, (), seconds, lambda: None, doing=doing, most_nbytes=most
        )  # fmt: skip
        return answer

    def run(
        self, output_names: Sequence[str] | None, input_feed: Any, run_options: RunOptions | None = None,
        timeout: float | None = None, framework: str | None = None, taps: Sequence[str] | None = None,
    ) -> list[Any]:  # fmt: skip
        """As `InferenceSession.run`."""
        if taps is not None:
            self._refuse()
        if run_options is not None:
            input_feed, _ = checked_feed(run_options, input_feed, self._reader)
        inputs, values = self._read(input_feed)
        if timeout is None:
            results = self._run(inputs, values, output_names, RunContext.of(run_options))
        else:
            with deadline_context(run_options, timeout) as run:
                results = self._run(inputs, values, output_names, run)
        return delivered(results, framework, self._sparse, output_names or self.output_names)

    def run_on_devices(
        self, output_names: Sequence[str], input_feed: Any, run_options: RunOptions | None, stay: frozenset[str]
    ) -> list[Any]:
        """`run`: nothing stays in the process."""
        return self.run(output_names, input_feed, run_options)

    def run_into(self, feed: Mapping[str, Any], targets: Mapping[str, Any]) -> None:
        """None: `run` makes the outputs."""

    def bound(self, model: Any, inputs: list[np.ndarray], targets: Mapping[str, Any]) -> None:
        """None: the process has memory of its own."""

    def recovers(self, error: BaseException, model: Any) -> bool:
        """False: the process has done what could be done about a provider that fails."""
        return False

    def _read(self, feed: Any) -> tuple[Sequence[str], list[Any]]:
        """Names of inputs and their values, with those of initializers that the feed overrides."""
        signature = self.signature
        given = [v for v in signature.overridable if v.name in feed] if isinstance(feed, Mapping) else []
        if not given:
            return self.model.inputs, self._reader.read(feed)
        values = (*signature.inputs, *given)
        return [v.name for v in values], FeedReader(values).read(feed)

    def _run(
        self, inputs: Sequence[str], values: list[Any], output_names: Sequence[str] | None, run: RunContext | None
    ) -> list[Any]:
        check_names(output_names or ())
        wanted = list(output_names or self.output_names)
        check_outputs(wanted, self.output_names)
        options = run.options if run is not None else None
        timeout = run.timeout if run is not None else None
        seconds = float(limit(self.options, SECONDS)) if timeout is None else timeout
        check = run.check if run is not None else _nothing
        check()
        start, arrays = time.perf_counter_ns(), list[np.ndarray]()
        try:
            feed = [[name, packed(value, arrays)] for name, value in zip(inputs, values, strict=True)]
        except TypeError as error:
            raise WrongType(f"input_feed: {error}") from error
        question = {
            "do": "run", "names": wanted, "feed": feed, "seconds": seconds,
            "options": {} if options is None else _changed(options), "entries": dict(run.config) if run is not None else {},
        }  # fmt: skip
        most = limit(self.options, OUTPUT) << 20
        process, listen = self._alive(), functools.partial(_told, self.options)
        answer, buffers = process.ask(question, arrays, seconds, check, doing="in a run", listen=listen, most_nbytes=most)
        if sum(b.nbytes for b in buffers) > most:
            raise OutOfMemory(f"the results are larger than the {most:,} bytes that are allowed ({OUTPUT!r})")
        try:
            results = [unpacked(each, buffers) for each in answer["results"]]
            if len(results) != len(wanted):
                raise NotUnderstood(f"{len(results)} results of {len(wanted)}")
        except (NotUnderstood, KeyError, TypeError) as error:
            process.close()
            raise ProcessEnded(f"the session's process said what are no results ({error}), and was ended") from error
        if self.profile is not None:
            self.profile.add("Session", "model_run", start)
        return results

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplemented(
            f"the session's model is in a separate process ({PROCESS!r}), which runs and explains it, and nothing else: make a "
            "session without that entry, of a model that you trust, to look inside"
        )

    graph = whole_model = compile_context = inspection = reports = set_efficient = set_dynamic_options = release_graphs = (
        _refuse
    )

    def wait_until_compiled(self, timeout: float | None) -> None:
        """The process's session is compiled."""

    def option_texts(self) -> dict[str, dict[str, str]]:
        """As `InferenceSession.get_provider_options`."""
        return {name: dict(texts) for name, texts in self._option_texts.items()}

    def explain(self) -> Explanation:
        """As `InferenceSession`."""
        from intarsia.reports.explain import Explanation, NodeExplanation, Refusal

        found = self._ask({"do": "explain"}, "explaining")
        try:
            told = found["explanation"]
            nodes = []
            for row in told["nodes"]:
                refusals = {str(name): Refusal(**_texts(each)) for name, each in row["refusals"].items()}
                lists = {name: tuple(map(str, row[name])) for name in ("origin", "inputs", "outputs", "body")}
                words = {name: str(row[name]) for name in ("name", "op", "provider", "kind", "kernel", "note", "layer")}
                numbers = {name: int(row[name]) for name in ("flop", "nbytes")}
                told_of: dict[str, Any] = {**lists, **words, **numbers, "estimated": bool(row["estimated"])}
                nodes.append(NodeExplanation(**told_of, refusals=refusals))
            named = {n: tuple(map(str, told[n])) for n in ("steps", "providers", "remarks", "inputs", "outputs")}
            copies, nbytes, types = int(told["copies"]), int(told["copied_nbytes"]), _texts(told["types"])
            return Explanation(
                tuple(nodes), copies=copies, copied_nbytes=nbytes, choice=str(told["choice"]), types=types, **named
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ProcessEnded(f"the session's process said what is no explanation ({error!r})") from error

    def end_profiling(self) -> str:
        """As `InferenceSession`; the process's events are those since it was started last."""
        if self.profile is None:
            return ""
        told = self._ask({"do": "profile"}, "giving its profile")
        try:
            later = (int(told["start_ns"]) - self.profile.start_ns) / 1e3
            self.profile.others = tuple({**event, "ts": float(event["ts"]) + later} for event in told["events"])
        except (KeyError, TypeError, ValueError) as error:
            raise ProcessEnded(f"the session's process said what is no profile ({error!r})") from error
        return self.profile.save(self.options.profile_file_prefix)

    def stop_watching_states(self) -> None:
        """Nothing watches them here."""

    def close(self) -> None:
        """As `InferenceSession`; the process ends."""
        if self._process is not None:
            self._process.close()
        self._process = None
        self.model = self._reader = ClosedModel()

    @property
    def closed(self) -> bool:
        return isinstance(self.model, ClosedModel)


def _nothing() -> None:
    """What is called where nobody can wish a run to stop."""


def _check(options: SessionOptions, providers: Any) -> None:
    """Raises InvalidArgument where the options request what a separate process does not do."""
    named = [p if isinstance(p, str) else p[0] for p in ([providers] if isinstance(providers, str) else providers or ())]
    named += [name for name, _ in options.providers] if not providers else []
    others = [name for name in named if name not in _PROVIDERS]
    if others:
        known = " and ".join(_PROVIDERS)
        raise InvalidArgument(f"{PROCESS!r} is '1': a separate process has {known}, and not {', '.join(others)}")
    if options.optimized_model_filepath or options.config("ep.context_enable") == "1":
        raise InvalidArgument(f"{PROCESS!r} is '1': a separate process writes no files, but {' or '.join(_WRITTEN)} is set")
    if options.context_reader is not None or options.config("session.use_env_allocators") == "1":
        raise InvalidArgument(f"{PROCESS!r} is '1': a separate process has no callbacks and no allocators of the program")


def _options_there(options: SessionOptions) -> SessionOptions:
    """The options of the session that is made in the process."""
    made = SessionOptions()
    made.__dict__.update(options.__getstate__())
    entries = {key: value for key, value in options.config_entries().items() if key != PROCESS}
    made.__dict__.update(_config=entries, _cancelled=False)
    return made


def _changed(options: RunOptions) -> dict[str, Any]:
    """What of a run's options is not the default and means something in the process."""
    names = ("log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches")
    return {name: value for name in names if (value := getattr(options, name)) != options.PROPERTIES[name].default}


def _told(options: SessionOptions, said: Any) -> None:
    """What the process says before its answer: records for the log, warnings, progress.

    Raises:
        NotUnderstood: it is nothing of that.
        ModelLoadCanceled: the progress callback does not want the session any more.
    """
    try:
        ((kind, what),) = said.items()
        if kind == "log":
            name, level, text = str(what[0]), int(what[1]), visible_lines(str(what[2]))
        elif kind == "warning":
            text = visible_lines(str(what))
        else:
            point = LoadProgress(str(what[0]), int(what[1]), int(what[2]), float(what[3]), int(what[4]))
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
        raise NotUnderstood(f"neither an answer nor a remark: {error}") from error
    if kind == "log":
        get_logger(name if name.partition(".")[0] == "intarsia" else "intarsia").log(level, "%s", text)
    elif kind == "warning":
        warn(text)
    elif options.progress_callback is not None and options.progress_callback(point) is False:
        raise ModelLoadCanceled("making the session was stopped: the progress callback returned False")


def _texts(found: dict[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in found.items()}


def _signature(told: dict[str, Any]) -> Signature:
    values = [
        tuple(Value(str(name), _type(str(text), shape)) for name, text, shape in told[which])
        for which in ("inputs", "outputs", "overridable")
    ]
    producer, domain, doc, graph_doc, version = told["meta"]
    metadata = Metadata(
        producer_name=str(producer), domain=str(domain), doc=str(doc), graph_doc=str(graph_doc), model_version=int(version),
        properties=_texts(told["properties"]),
    )  # fmt: skip
    return Signature(values[0], values[1], values[2], metadata, str(told["name"]))


def _type(text: str, shape: Sequence[Any]) -> ValueType | None:
    """The type that ONNX writes so. Sizes that are not numbers are taken for different ones: the process compares them."""
    kind, _, rest = text.partition("(")
    inner = rest[:-1]
    if kind == "tensor" or kind == "sparse_tensor":
        dims: tuple[Dim, ...] = tuple(d if isinstance(d, int) else fresh_symbol("d") for d in shape)
        return (TensorType if kind == "tensor" else SparseTensorType)(_dtype(inner), dims or None)
    if kind == "seq":
        return SequenceType(_type(inner, ()))
    if kind == "optional":
        return OptionalType(_type(inner, shape))
    if kind == "map":
        key, _, value = inner.partition(",")
        return MapType(_dtype(key), _type(value, ()))
    return None


def _dtype(text: str) -> DType:
    return DType[text.upper()]
