"""The part of `InferenceSession` that stands beside `run`: asynchronous runs, values, memory and placement by onnxruntime's
methods, and the session's life cycle."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from intarsia.ep.provider import RunContext
from intarsia.errors import Fail, IntarsiaError, InvalidArgument, NotImplemented, WrongType
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.model.background_compile import Underway
from intarsia.model.single_program_model import DirectModel
from intarsia.options.config_keys import EFFICIENT, WORKLOAD, check_dynamic_option
from intarsia.options.session_options import RunOptions, SessionOptions
from intarsia.providers.registry import CPU
from intarsia.run_status import new_flag
from intarsia.session.memory_and_profile import SessionReports

if TYPE_CHECKING:
    import contextvars
    from array import array

    from intarsia.graph.model import Graph
    from intarsia.machine.resources import Account
    from intarsia.model.background_compile import AnyModel
    from intarsia.model.builder import Maker
    from intarsia.model.compiled_model import CompiledModel
    from intarsia.model.signature_verification import SignedFiles
    from intarsia.model.trace_profile import Profile
    from intarsia.options.ep_devices import OrtEpDevice
    from intarsia.providers.registry import ProviderChoice
    from intarsia.session.async_threads import AsyncThreads
    from intarsia.session.low_level_session import LowLevelSession
    from intarsia.session.pickling import FileState
    from intarsia.values.ort_device import OrtDevice, OrtMemoryInfo
    from intarsia.values.ort_value import OrtValue, OrtValueVector

Callback = Callable[[list[Any], Any, str], None]

_ASYNC_THREADS = 8


class _Threads:
    """The threads of asynchronous runs; new ones in a forked child."""

    lock = fork_safety.lock()
    pool: AsyncThreads | None = None
    pid = 0


def _async_pool() -> AsyncThreads:
    with _Threads.lock:
        if _Threads.pool is None or _Threads.pid != os.getpid():
            from intarsia.session.async_threads import AsyncThreads

            count = min(_ASYNC_THREADS, os.cpu_count() or 1)
            _Threads.pool, _Threads.pid = AsyncThreads(max(2, count)), os.getpid()
        return _Threads.pool


@dataclass(frozen=True)
class OrtEpAssignedNode:
    """A node of the model after optimisation."""

    name: str
    domain: str
    op_type: str


@dataclass(frozen=True)
class OrtEpAssignedSubgraph:
    """Nodes that one provider runs together."""

    ep_name: str
    nodes: tuple[OrtEpAssignedNode, ...]

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """The nodes of the part, as they were assigned."""
        return list(self.nodes)


@functools.cache
def _ort_value_type() -> type[OrtValue]:
    """It is imported by the first who asks for it."""
    from intarsia.values.ort_value import OrtValue

    return OrtValue


class _Closed:
    """What a closed session reads feeds with and runs: both say that it is closed."""

    def _raise(self, *_: Any, **__: Any) -> NoReturn:
        raise Fail("the session is closed: make a new InferenceSession")

    quick = read = run = run_some = bound = _raise
    feed_call = awaits = None

    @property
    def outputs(self) -> NoReturn:
        self._raise()

    inputs = programs = partition = outputs


class SessionApi(SessionReports):
    """Base of `InferenceSession`; see there."""

    _graph: Callable[[], Graph]
    _model: AnyModel
    _whole_model: Callable[[], CompiledModel]
    _check_source: Callable[[], None]
    _run_some: Callable[..., list[Any]]
    _profile: Profile | None
    _trips: tuple[int, str] | None
    _providers: list[str]
    _sess_options: SessionOptions
    _source: Any
    _arguments: tuple[Any, ...]
    _reader: Any
    _sparse: frozenset[str]
    _variants: dict[Any, Any]
    _auto: Any
    _disabled: frozenset[str]
    _efficient: bool
    _maker: Maker
    _choices: Sequence[ProviderChoice]
    _create: Callable[..., None]
    run: Callable[..., list[Any]]
    get_inputs: Callable[[], list[Any]]
    get_outputs: Callable[[], list[Any]]

    # --- running in other ways ---

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callback,
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """`run` on another thread; `callback(results, user_data, error)` is called there when it has ended.

        `error` is "" after success, else the message, and `results` is then []. The inputs must not change before that. The
        program's end waits a few seconds for runs that have begun, and stops what is left.

        Raises:
            InvalidArgument: an input is missing, or `callback` cannot be called.
        """
        if not callable(callback):
            raise WrongType(f"run_async: expected a function for callback, got {callback!r}")
        if isinstance(input_feed, Mapping):
            self._check_complete(input_feed)

        def work() -> None:
            try:
                results, error = self.run(output_names, input_feed, run_options), ""
            except IntarsiaError as failure:
                results, error = [], str(failure) or type(failure).__name__
            callback(results, user_data, error)

        import contextvars

        _async_pool().submit(_reporting, contextvars.copy_context(), work)

    def _check_complete(self, feed: Mapping[str, Any]) -> None:
        needed = [a.name for a in self.get_inputs() if not a.type.startswith("optional")]
        missing = [name for name in needed if name not in feed]
        if missing:
            raise InvalidArgument(f"Required inputs ({missing}) are missing from input feed ({list(feed)}).")

    async def arun(
        self,
        output_names: Sequence[str] | None,
        input_feed: Any,
        run_options: RunOptions | None = None,
        **arguments: Any,
    ) -> list[Any]:
        """`run` for coroutines: the event loop goes on while another thread computes. Cancelling the task stops the run.

        Raises:
            As `run`.
        """
        import asyncio

        options = run_options if run_options is not None else RunOptions()
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(_async_pool(), lambda: self.run(output_names, input_feed, options, **arguments))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.done():
                options.terminate = True
                future.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """`run` with `OrtValue`s in and out."""
        return list(map(_ort_value_type(), self.run(output_names, input_dict_ort_values, run_options)))

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: Sequence[OrtValue],
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Sequence[OrtDevice],
    ) -> None:
        """`run` with lists of names and values; the results are appended to `fetches`, or written into what is there. A result
        whose fetch device is not the host stays there.

        Raises:
            InvalidArgument: lists of different lengths, or a device that no provider keeps values on.
        """
        if len(feed_names) != len(feeds) or len(fetch_names) != len(fetch_devices):
            raise InvalidArgument(
                f"run_with_ortvaluevector: expected a value per feed and a device per fetch, got {len(feed_names)} feed names, "
                f"{len(feeds)} values, {len(fetch_names)} fetch names and {len(fetch_devices)} devices"
            )
        from intarsia.session.io_binding import IOBinding
        from intarsia.values.ort_value import OrtValue, device_of

        places = [device_of(device, 0) for device in fetch_devices]
        if any(kind != "cpu" for kind, _ in places):
            binding = IOBinding(self)
            for name, value in zip(feed_names, feeds, strict=True):
                binding.bind_ortvalue_input(name, value)
            for name, place in zip(fetch_names, places, strict=True):
                binding.bind_output(name, *place)
            binding.run(run_options)
            results = [value._value for value in binding.get_outputs()]
        else:
            results = self.run(list(fetch_names), dict(zip(feed_names, feeds, strict=True)), run_options)
        for i, result in enumerate(results):
            if i < len(fetches):
                fetches[i].update_inplace(result)
            else:
                fetches.push_back(OrtValue(result))

    def create_ortvalue_from_shape_and_type(
        self,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """A tensor in the memory that this session's runs use, its elements not set."""
        from intarsia.values.ort_value import OrtValue

        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    def _verified(self, source: Any) -> SignedFiles | None:
        """What the signature covers that the options ask for."""
        if not any(key.startswith("session.signature") for key in self._sess_options.config_entries()):
            return None
        from intarsia.model.signature_verification import verified

        return verified(source, self._sess_options)

    # --- what `run` does besides running ---

    def _checked(self, options: RunOptions, feed: Any) -> tuple[Any, bool]:
        """The feed with the parameters of the options' adapters, and whether there are any."""
        if not isinstance(options, RunOptions):
            raise WrongType(f"run_options: expected RunOptions, got {type(options).__name__}")
        if not options.__dict__["_adapters"]:
            return feed, False
        from intarsia.values.lora import with_adapters

        return with_adapters(feed, self._reader.values, options.adapters), True

    def _run_untrusted(
        self, model: Any, inputs: list[Any], names: Any, run: RunContext | None, stay: frozenset[str]
    ) -> list[Any]:
        """A run of an untrusted session that has no timeout of its own."""
        from intarsia.model.untrusted import SECONDS, limit

        options = run.options if run is not None else None
        return self._run_timed(model, inputs, names, options, limit(self._sess_options, SECONDS), stay)

    def _new_flag(self) -> array[int]:
        return new_flag() if self._trips is None else new_flag(self._trips[0])

    def _run_with_few_trips(
        self, model: Any, inputs: list[Any], names: Any, run: RunContext | None, stay: frozenset[str]
    ) -> list[Any]:
        """A run without a timeout whose trips are counted."""
        options, flag = run.options if run is not None else None, self._new_flag()
        if options is not None:
            options.follow(flag)
        try:
            limited = RunContext(options, run.config if run is not None else None, flag, None, self._trips)
            return self._run_some(model, inputs, names, limited, stay)
        finally:
            if options is not None:
                options.unfollow(flag)

    def _check_results(self, results: list[Any]) -> None:
        from intarsia.model.untrusted import check_results

        check_results(results, self._sess_options)

    def _run_counted(
        self, account: Account, model: Any, inputs: list[Any], names: Any, run: RunContext | None, stay: frozenset[str]
    ) -> list[Any]:
        """A run whose memory is counted. Where it does not have enough, idle memory of intermediate tensors is given back, and
        it begins once more."""
        try:
            with account.counting():
                return self._run_some(model, inputs, names, run, stay)
        except MemoryError:
            if not self._arena().give_back():
                raise
        with account.counting():
            return self._run_some(model, inputs, names, run, stay)

    def _run_timed(
        self, model: Any, inputs: list[Any], names: Any, options: RunOptions | None, timeout: float,
        stay: frozenset[str] = frozenset(),
    ) -> list[Any]:  # fmt: skip
        from intarsia.model.run_timeout import checked_timeout, deadline

        seconds, flag = checked_timeout(timeout), self._new_flag()
        config = options.config_entries() if options is not None else None
        run = RunContext(options, config, flag, seconds, self._trips)
        if options is not None:
            options.follow(flag)
        try:
            with deadline(seconds, flag):
                return self._run_some(model, inputs, names, run, stay)
        finally:
            if options is not None:
                options.unfollow(flag)

    def _with_sparse(self, results: list[Any], names: Sequence[str]) -> list[Any]:
        """Results whose type in the model is a sparse tensor as `SparseTensor`s."""
        from intarsia.values.sparse_tensor import SparseTensor

        return [
            SparseTensor.from_dense(value) if name in self._sparse and isinstance(value, np.ndarray) else value
            for name, value in zip(names, results, strict=True)
        ]

    def _delivered(self, results: list[Any], framework: str) -> list[Any]:
        from intarsia.values.delivery import delivered

        return delivered(results, framework)

    # --- what the session is ---

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, in nanoseconds of `time.perf_counter_ns`; 0 where it is off."""
        return self._profile.start_ns if self._profile is not None else 0

    def get_tuning_results(self) -> list[Any]:
        """[]: kernels here are not tuned by running them."""
        return []

    def set_tuning_results(self, results: Sequence[Any], *, error_on_invalid: bool = False) -> None:
        """Accepted and not used.

        Raises:
            NotImplemented: `error_on_invalid` and there are results.
        """
        if error_on_invalid and results:
            names = [entry.get("ep") if isinstance(entry, Mapping) else entry for entry in results]
            raise NotImplemented(f"Invalid TuningResults: {names}: no provider of this session supports TunableOp")

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """The parts of the optimised graph, in execution order, with their providers and nodes; the nodes of the CPU provider
        one by one, as in onnxruntime.

        Raises:
            Fail: "session.record_ep_graph_assignment_info" was not set to "1".
        """
        key = "session.record_ep_graph_assignment_info"
        if self._sess_options.config(key) != "1":
            raise Fail(
                f"Session configuration entry '{key}' must be set to \"1\" to retrieve EP graph assignment information. "
                "InferenceSession.explain() needs no setting"
            )
        split = self._whole_model().partition
        found = []
        for part in split.parts:
            nodes = [split.graph.nodes[i] for i in part.nodes]
            listed = [OrtEpAssignedNode(n.name, "" if n.domain == "ai.onnx" else n.domain, n.op_type) for n in nodes]
            groups = [(node,) for node in listed] if part.provider.name == CPU else [tuple(listed)]
            found += [OrtEpAssignedSubgraph(part.provider.name, group) for group in groups]
        return found

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """The memory in which each input is read: a device's where all readers are providers that work there, else the host's.
        `run` takes it from anywhere."""
        return self._memories(self.get_inputs(), reads=True)

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """The memory in which each output is made; `run` gives it in the host's, a binding where it is."""
        return self._memories(self.get_outputs(), reads=False)

    def _memories(self, values: Sequence[Any], *, reads: bool) -> list[OrtMemoryInfo]:
        from intarsia.options.ep_devices import device_of
        from intarsia.values.ort_enums import OrtDeviceMemoryType

        places: dict[str, set[str]] = {}
        model = self._settled_model()
        for part in () if isinstance(model, DirectModel) else model.partition.parts:
            for name in part.graph.input_names() if reads else part.graph.output_names():
                on_host = part.provider.device.host or (reads and name in part.host_inputs)
                places.setdefault(name, set()).add("" if on_host else part.provider.name)
        found = []
        for value in values:
            (name, *others) = places.get(value.name) or ("",)
            device = device_of(name) if name and not others else None
            memory = device.memory_info(OrtDeviceMemoryType.DEFAULT) if device is not None else None
            found.append(memory or _host_memory())
        return found

    def get_input_epdevices(self) -> list[OrtEpDevice | None]:
        """For each input the device of the first provider that reads it; None where nobody does."""
        from intarsia.options.ep_devices import device_of

        readers: dict[str, str] = {}
        for part in self._whole_model().partition.parts:
            for name in part.graph.input_names():
                readers.setdefault(name, part.provider.name)
        return [device_of(readers[a.name]) if a.name in readers else None for a in self.get_inputs()]

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Change a provider's behaviour between runs; like `set_providers` not while the session runs.

        "ep.dynamic.workload_type" = "Efficient": runs take one thread, and nothing spins, so that others have the machine;
        "Default": as the session's options say. Other options of onnxruntime are accepted and have no effect.

        Raises:
            UnknownOption, InvalidArgument: another option or value.
        """
        for key, value in options.items():
            check_dynamic_option(key, value)
        efficient = options.get(WORKLOAD, EFFICIENT if self._efficient else "") == EFFICIENT
        if efficient != self._efficient:
            self._efficient, auto = efficient, self._auto
            try:
                self._create([choice.argument for choice in self._choices if not choice.implied] or None, None)
                self._auto = auto
            except BaseException:
                self._efficient = not efficient
                raise

    def _threads_and_entries(self) -> tuple[int, bool, dict[str, str]]:
        """What of the options providers are told: threads, whether bits must not depend on them, configuration entries."""
        options = self._sess_options
        entries = options.config_entries()
        if self._disabled:  # all names of rewrites to leave out in one place
            key = "optimization.disable_specified_optimizers"
            entries = {**entries, key: ";".join([entries.get(key, ""), *sorted(self._disabled)])}
        if not self._efficient:
            return options.intra_op_num_threads, options.use_deterministic_compute, entries
        return 1, options.use_deterministic_compute, {**entries, "session.intra_op.allow_spinning": "0"}

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Let providers drop the graphs that launches have become (see "enable_cuda_graph"): later runs make new ones.

        Args:
            graph_annotation_id: graphs are kept by the sizes of inputs, not by number: all are dropped.
        """
        for provider in self._maker.providers:
            provider.release_graphs()

    # --- life cycle ---

    @property
    def is_compiled(self) -> bool:
        """False while "session.compile_in_background" has the reference provider serve runs."""
        return not isinstance(self._model, Underway)

    def wait_until_compiled(self, timeout: float | None = None) -> None:
        """Come back once runs are those of the session's providers. Nothing to wait for without
        "session.compile_in_background".

        Args:
            timeout: seconds; None: however long it takes.

        Raises:
            TimeoutError: it takes longer.
            EPFail, NotImplemented: a provider cannot compile its part, or none takes a node; runs raise it too.
            Fail: the session was made in a process that was forked since.
        """
        from intarsia.model.run_timeout import checked_timeout

        seconds = checked_timeout(timeout) if timeout is not None else None
        if isinstance(self._model, Underway):
            self._model.finished(seconds)

    def close(self) -> None:
        """Free the session's model and memory. Later runs raise Fail; one that is going on ends as usual."""
        closed: Any = _Closed()
        self._reader = self._model = closed
        self._whole_model = closed.run
        self._variants = {}

    @property
    def closed(self) -> bool:
        """Whether `close` was called: then nothing can be run any more."""
        return isinstance(self._model, _Closed)

    def __repr__(self) -> str:
        source = "a model in memory" if not isinstance(self._source, (str, os.PathLike)) else repr(os.fspath(self._source))
        return f"<{type(self).__name__} of {source}: {'closed' if self.closed else ', '.join(self._providers)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """A session pickles as what it was made from: path or bytes, options, providers. Loading makes a new session."""
        source = self._source
        if isinstance(source, (bytearray, memoryview)):
            source = bytes(source)
        if not isinstance(source, (str, bytes, os.PathLike)):
            from intarsia.graph.save import to_model_bytes

            source = to_model_bytes(self._graph())
        elif isinstance(source, (str, os.PathLike)):
            self._check_source()
        from intarsia.session.pickling import file_state

        providers, provider_options, keywords = self._arguments
        return _made, (type(self), source, self._sess_options, providers, provider_options, keywords, file_state(source))

    # --- onnxruntime's private attributes that programs read ---

    @functools.cached_property
    def _sess(self) -> LowLevelSession:
        from intarsia.session.low_level_session import LowLevelSession

        return LowLevelSession.of(self)

    @property
    def _model_bytes(self) -> bytes | None:
        return self._source if isinstance(self._source, bytes) else None


def context_of(options: RunOptions | None) -> RunContext | None:
    """The context of a run with these options."""
    if options is None:
        return None
    state = options.__dict__
    return RunContext(options, dict(state["_config"]), state["_flag"])


def trips_of(options: SessionOptions) -> tuple[int, str] | None:
    """How many trips the loops of a run may have, and the setting that says so; None: any number.

    Raises:
        InvalidArgument: a number below 0, or none in an untrusted session.
    """
    key = TRIPS
    if options.untrusted and options.config(key) == "0":
        from intarsia.model import untrusted

        return untrusted.limit(options, untrusted.TRIPS), untrusted.TRIPS
    most = int(options.config(key))
    if most < 0:
        raise InvalidArgument(f"configuration entry {key!r}: expected a number of trips, or 0 for no limit; got {most}")
    return (most, key) if most else None


TRIPS = "session.loop_trips"
CREATION_TIMEOUT = "session.creation_timeout_s"


def limited_making(text: str, check: Callable[[], None]) -> Callable[[], None]:
    """`check`, and the end of the time for making a session.

    Raises:
        InvalidArgument: a time below 0.
    """
    from intarsia.model.run_timeout import making

    seconds = int(text)
    if seconds < 0:
        raise InvalidArgument(f"configuration entry {CREATION_TIMEOUT!r}: expected seconds, or 0 for no limit; got {text}")
    return making(seconds, CREATION_TIMEOUT, check) if seconds else check


def reads_config(asked: Any, options: SessionOptions) -> bool:
    """Whether session options are to be read from the model: as asked, else as ORT_LOAD_CONFIG_FROM_MODEL says.

    Raises:
        InvalidArgument: it is asked for, but the session is untrusted.
    """
    if options.untrusted:
        if asked:
            raise InvalidArgument("read_config_from_model: an untrusted session takes no options from the model")
        return False
    return bool(int(asked)) if asked is not None else os.environ.get("ORT_LOAD_CONFIG_FROM_MODEL") == "1"


def _made(
    kind: type[Any], source: Any, options: SessionOptions, providers: Any, provider_options: Any, keywords: dict[str, Any],
    before: FileState | None = None,
) -> Any:  # fmt: skip
    from intarsia.session.pickling import check_file

    check_file(source, before)
    return kind(source, options, providers, provider_options, **keywords)


def _reporting(context: contextvars.Context, work: Callable[[], None]) -> None:
    """Run `work`; an exception of the caller's function is reported as those of threads are."""
    try:
        context.run(work)
    except BaseException as error:  # noqa: BLE001 # there is no caller it could be raised to
        threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread())))


def _host_memory() -> OrtMemoryInfo:
    from intarsia.values.ort_device import OrtMemoryInfo
    from intarsia.values.ort_enums import OrtAllocatorType, OrtMemType

    return OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, OrtMemType.DEFAULT)
