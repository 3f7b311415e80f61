"""The session of a model that is in a process apart, as its program sees it."""

from __future__ import annotations

import functools
import os
import pickle
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

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
from intarsia.log import logger
from intarsia.model.signature import NodeArg
from intarsia.model.trace_profile import Profile
from intarsia.model.untrusted import MEMORY, OUTPUT, PROCESS, SECONDS, limit
from intarsia.model.warm_start import Signature
from intarsia.options.session_options import RunOptions, SessionOptions
from intarsia.printable import get_logger, visible_lines
from intarsia.progress import LoadProgress
from intarsia.providers.fallback import ProviderWarning
from intarsia.providers.registry import CPU, REFERENCE
from intarsia.sandbox.messages import NotUnderstood, packed, unpacked
from intarsia.sandbox.process import Process, ProcessEnded
from intarsia.session.ort_methods import CREATION_TIMEOUT
from intarsia.values.feeds import FeedReader

if TYPE_CHECKING:
    from intarsia.ep.provider import RunContext
    from intarsia.reports.explain import Explanation

_OWN_MIB = 1024  # of the process: code, the compiler, the model's file
_WRITTEN = ("session.optimized_model_filepath", "ep.context_enable")
_PROVIDERS = (CPU, REFERENCE)


@functools.cache
def class_of(kind: Any) -> Any:
    """A class of sessions whose models are in processes apart."""
    return type(kind.__name__, (_Apart, kind), {"__module__": kind.__module__, "_kind": kind})


@dataclass(frozen=True)
class _Model:
    """What stands for the compiled model in the session."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    feed_call = awaits = None

    def bound(self, *_: Any) -> None:
        """None: runs are the process's."""

    run_into = expect_feed = expect_sizes = bound


class _Profile(Profile):
    """The program's events and the process's."""

    others: tuple[dict[str, Any], ...] = ()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [*super().events, *self.others]


class _Apart:
    """Stands before `InferenceSession` in the order of classes, for what is done in the process."""

    _kind: type[Any]
    _sess_options: SessionOptions
    _signature: Signature
    _source: Any
    _arguments: tuple[Any, ...]
    _output_names: list[str]
    _model: Any
    _reader: Any
    _variants: dict[Any, Any]
    _profile: Profile | None
    _process: Process | None
    closed: bool

    def _verified(self, source: Any) -> None:
        if any(key.startswith("session.signature") for key in self._sess_options.config_entries()):
            raise InvalidArgument(f"{PROCESS!r} is '1', and 'session.signature...' is set: a process apart reads no signatures")

    def _create(self, providers: Any, provider_options: Any) -> None:
        """Start the process, and make the session there; sets no attribute before that has succeeded."""
        options, old = self._sess_options, self.__dict__.get("_process")
        _check(options, providers)
        if hasattr(self._source, "SerializeToString"):
            self._source = self._source.SerializeToString()
        self._check_source()  # type: ignore[attr-defined]
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
        self._signature, self._reader = signature, FeedReader(signature.inputs)
        self._inputs_meta, self._outputs_meta, self._overridable_meta = inputs, outputs, overridable
        self._output_names = [v.name for v in signature.outputs]
        self._model = _Model(tuple(v.name for v in signature.inputs), tuple(self._output_names))
        self._sparse = frozenset(v.name for v in signature.outputs if isinstance(v.type, SparseTensorType))
        self._providers, self._option_texts = listed, texts
        self._variants, self._by_size, self._auto, self._guard, self._tells = {}, None, None, "", False
        self._trips = None  # they are counted there
        self._log, self._watched, self._patience, self._lock = logger, True, 0, threading.Lock()
        if self._profile is not None and not isinstance(self._profile, _Profile):
            self._profile = _Profile(self._profile.start_ns)
        if old is not None:
            old.close()

    def _begun(self, providers: Any, provider_options: Any) -> tuple[Process, dict[str, Any]]:
        """A process that has the session, and what it says of the model."""
        options, source = self._sess_options, self._source
        arguments = (_options_there(options), providers, provider_options, self._arguments[2])
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
            self._check_source()  # type: ignore[attr-defined]
            self._process, _ = self._begun(*self._providing)
        return self._process

    def _ask(self, question: dict[str, Any], doing: str) -> dict[str, Any]:
        seconds = float(limit(self._sess_options, SECONDS))
        most = limit(self._sess_options, OUTPUT) << 20
        answer, _ = self._alive().ask(
            {**question, "seconds": seconds}, (), seconds, lambda: None, doing=doing, most_nbytes=most
        )  # fmt: skip
        return answer

    def _run_some(
        self, model: Any, inputs: list[Any], output_names: Sequence[str] | None, run: RunContext | None,
        stay: frozenset[str] = frozenset(),
    ) -> list[Any]:  # fmt: skip
        if isinstance(output_names, str):
            raise WrongType(f"output_names: expected a list of names, got {output_names!r}; write [{output_names!r}]")
        wanted = list(output_names or self._output_names)
        for name in wanted:
            if not isinstance(name, str):
                raise WrongType(f"output_names: expected names, got {name!r} ({type(name).__name__})")
        check_outputs(wanted, self._output_names)
        options = run.options if run is not None else None
        timeout = run.timeout if run is not None else None
        seconds = float(limit(self._sess_options, SECONDS)) if timeout is None else timeout
        check = run.check if run is not None else _nothing
        check()
        start, arrays = time.perf_counter_ns(), list[np.ndarray]()
        try:
            feed = [[name, packed(value, arrays)] for name, value in zip(model.inputs, inputs, strict=True)]
        except TypeError as error:
            raise WrongType(f"input_feed: {error}") from error
        question = {
            "do": "run", "names": wanted, "feed": feed, "seconds": seconds,
            "options": {} if options is None else _changed(options), "entries": dict(run.config) if run is not None else {},
        }  # fmt: skip
        most = limit(self._sess_options, OUTPUT) << 20
        process, listen = self._alive(), functools.partial(_told, self._sess_options)
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
        self._note("model_run", start)  # type: ignore[attr-defined]
        return results

    def _variant(self, feed: Mapping[str, Any]) -> tuple[Any, FeedReader]:
        given = self._overridden(feed)  # type: ignore[attr-defined]
        if not given:
            return self._model, self._reader
        if given not in self._variants:
            values = (*self._signature.inputs, *(v for v in self._signature.overridable if v.name in given))
            self._variants[given] = _Model(tuple(v.name for v in values), self._model.outputs), FeedReader(values)
        found: tuple[Any, FeedReader] = self._variants[given]
        return found

    def _fall_back(self, error: Exception, model: Any) -> NoReturn:
        """The process has done what could be done about a provider that fails."""
        raise error

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplemented(
            f"the session's model is in a process apart ({PROCESS!r}), which runs and explains it, and nothing else: make a "
            "session without that entry, of a model that you trust, to look inside"
        )

    _graph = _whole_model = _settled_model = _arena = _compiled = _profiled = _measured = _refuse
    set_ep_dynamic_options = memory_report = profile = add_hook = release_captured_graph = _refuse

    def _is_watched(self) -> bool:
        return True

    def get_overridable_initializers(self) -> list[NodeArg]:
        """As `InferenceSession`."""
        return list(self._overridable_meta)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """As `InferenceSession`."""
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
                lists = {name: tuple(map(str, row[name])) for name in ("origin", "inputs", "outputs")}
                words = {name: str(row[name]) for name in ("name", "op", "provider", "kind", "kernel", "note")}
                numbers = {name: int(row[name]) for name in ("flop", "nbytes")}
                told_of: dict[str, Any] = {**lists, **words, **numbers, "estimated": bool(row["estimated"])}
                nodes.append(NodeExplanation(**told_of, refusals=refusals))
            texts = [tuple(map(str, told[name])) for name in ("steps", "providers", "remarks")]
            copies, nbytes = int(told["copies"]), int(told["copied_nbytes"])
            return Explanation(tuple(nodes), texts[0], texts[1], copies, nbytes, str(told["choice"]), texts[2])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ProcessEnded(f"the session's process said what is no explanation ({error!r})") from error

    def end_profiling(self) -> str:
        """As `InferenceSession`; the process's events are those since it was started last."""
        if self._profile is None:
            return ""
        told = self._ask({"do": "profile"}, "giving its profile")
        try:
            later = (int(told["start_ns"]) - self._profile.start_ns) / 1e3
            self._profile.others = tuple({**event, "ts": float(event["ts"]) + later} for event in told["events"])  # type: ignore[attr-defined]
        except (KeyError, TypeError, ValueError) as error:
            raise ProcessEnded(f"the session's process said what is no profile ({error!r})") from error
        return self._profile.save(self._sess_options.profile_file_prefix)

    def close(self) -> None:
        """As `InferenceSession`; the process ends."""
        process = self.__dict__.get("_process")
        if process is not None:
            process.close()
        self._process = None
        super().close()  # type: ignore[misc]

    def __reduce__(self) -> tuple[Any, ...]:
        reduced: tuple[Any, tuple[Any, ...]] = super().__reduce__()  # type: ignore[assignment]
        return reduced[0], (self._kind, *reduced[1][1:])


def _nothing() -> None:
    """What is called where nobody can wish a run to stop."""


def _check(options: SessionOptions, providers: Any) -> None:
    """Raises InvalidArgument where the options ask for what a process apart does not do."""
    named = [p if isinstance(p, str) else p[0] for p in ([providers] if isinstance(providers, str) else providers or ())]
    named += [name for name, _ in options.providers] if not providers else []
    others = [name for name in named if name not in _PROVIDERS]
    if others:
        known = " and ".join(_PROVIDERS)
        raise InvalidArgument(f"{PROCESS!r} is '1': a process apart has {known}, and not {', '.join(others)}")
    if options.optimized_model_filepath or options.config("ep.context_enable") == "1":
        raise InvalidArgument(f"{PROCESS!r} is '1': a process apart writes no files, but {' or '.join(_WRITTEN)} is set")
    if options.context_reader is not None or options.config("session.use_env_allocators") == "1":
        raise InvalidArgument(f"{PROCESS!r} is '1': a process apart has no callbacks and no allocators of the program")


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
        warnings.warn(text, ProviderWarning, stacklevel=2)
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
