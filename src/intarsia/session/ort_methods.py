"""onnxruntime's methods of `InferenceSession` beside `run`: asynchronous runs, values, tuning, and where things lie."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from intarsia.errors import NotImplemented
from intarsia.options.config_keys import DYNAMIC_KEYS, EFFICIENT, WORKLOAD, check_dynamic_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from intarsia.model.signature import ModelMetadata, NodeArg
    from intarsia.options.ep_devices import OrtEpDevice
    from intarsia.options.session_options import RunOptions, SessionOptions
    from intarsia.providers.registry import ProviderArgument
    from intarsia.session.async_threads import Callback
    from intarsia.session.engine import Engine
    from intarsia.session.io_binding import IOBinding
    from intarsia.session.session_reports import OrtEpAssignedSubgraph
    from intarsia.stateful.stateful_session import StatefulSession
    from intarsia.values.ort_device import OrtDevice, OrtMemoryInfo
    from intarsia.values.ort_value import OrtValue, OrtValueVector


@functools.cache
def _ort_value_type() -> type[OrtValue]:
    """It is imported by the first who requests it."""
    from intarsia.values.ort_value import OrtValue

    return OrtValue


class _Read:
    """A method read as an attribute, until an object has one of its own of that name: a subclass may use it for something."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read

    def __get__(self, session: Any, kind: type[Any] | None = None) -> Any:
        return self if session is None else self._read(session)


class OrtMethods:
    """Base of `InferenceSession`; see there."""

    _session_class: ClassVar[type[Any]]
    """`InferenceSession`, for what is below it and makes one."""

    _engine: Engine
    _sess_options: SessionOptions
    run: Callable[..., list[Any]]

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
        from intarsia.session.async_threads import AsyncRuns

        AsyncRuns(self.run).call_back(output_names, input_feed, callback, user_data, run_options, self.get_inputs())

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
        from intarsia.session.async_threads import AsyncRuns

        return await AsyncRuns(self.run).wait_for(output_names, input_feed, run_options, arguments)

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
        from intarsia.session.io_binding import run_with_vectors

        run_with_vectors(self, run_options, feed_names, feeds, fetch_names, fetches, fetch_devices)

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

    def io_binding(self) -> IOBinding:
        """A new, empty binding for this session."""
        from intarsia.session.io_binding import IOBinding

        return IOBinding(self)

    def stateful(
        self, states: Mapping[str, str] | None = None, *, initial: Mapping[str, Any] | None = None,
        sizes: Mapping[str, int] | None = None, max_length: int | None = None, history: int = 0,
    ) -> StatefulSession:  # fmt: skip
        """A stream of runs whose states (caches, hidden states) are fed back by themselves. See `StatefulSession`.

        Args:
            states: by output the input that it is fed into; None: as names, types and shapes say.
            initial: first values by input, instead of zeros.
            sizes: of named dimensions that neither the model nor the inputs say.
            max_length: how long a growing state may become along its axis.
            history: how many runs can be taken back where a state does not grow.

        Raises:
            InvalidArgument: the model has no states that can be seen, or an argument does not fit the model.
        """
        from intarsia.stateful.stateful_session import StatefulSession

        return StatefulSession(self, states, initial=initial, sizes=sizes, max_length=max_length, history=history)

    # --- what the model is ---

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that every run needs."""
        return list(self._engine.inputs_meta)

    def get_outputs(self) -> list[NodeArg]:
        """Name, type and shape of each output, in the model's order; sizes that are not fixed are names or None."""
        return list(self._engine.outputs_meta)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that a run may replace by giving an input of that name."""
        return list(self._engine.overridable_meta)

    def get_modelmeta(self) -> ModelMetadata:
        """What the file says of itself: producer, graph, domain, descriptions, version, its own properties."""
        from intarsia.model.signature import ModelMetadata

        return ModelMetadata.of(self._engine.signature.metadata, self._engine.signature.name)

    def get_session_options(self) -> SessionOptions:
        """The options the session was made with (the same object)."""
        return self._sess_options

    # --- providers, and where things lie ---

    def set_providers(
        self,
        providers: Sequence[ProviderArgument] | str | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Make the session anew for other providers; on an error it stays as it was. Not while it is running."""
        self._engine.create(providers, provider_options)

    def get_providers(self) -> list[str]:
        """Names of the session's providers in order of priority."""
        return list(self._engine.providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """By provider: every option with its effective value as text."""
        return self._engine.option_texts()

    def enable_fallback(self) -> None:
        """A run in which a provider fails makes the session anew without that provider and runs again, with a
        `ProviderWarning`, where "session.provider_fallback" allows others in its place. This is the default."""
        self._engine.may_fall_back = True

    def disable_fallback(self) -> None:
        """A run in which a provider fails raises that provider's `EPFail`; the session stays as it is."""
        self._engine.may_fall_back = False

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """The parts of the optimised graph, in execution order, with their providers and nodes; the nodes of the CPU provider
        one by one, as in onnxruntime.

        Raises:
            Fail: "session.record_ep_graph_assignment_info" was not set to "1".
        """
        return self._engine.reports().assigned_subgraphs()

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """The memory in which each input is read: a device's where all readers are providers that work there, else the host's.
        `run` takes it from anywhere."""
        return self._engine.reports().memory_infos(self.get_inputs(), reads=True)

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """The memory in which each output is made; `run` gives it in the host's, a binding where it is."""
        return self._engine.reports().memory_infos(self.get_outputs(), reads=False)

    def get_input_epdevices(self) -> list[OrtEpDevice | None]:
        """For each input the device of the first provider that reads it; None where nobody does."""
        return self._engine.reports().input_devices(self.get_inputs())

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Change a provider's behaviour between runs; like `set_providers` not while the session runs.

        "ep.dynamic.workload_type" = "Efficient": runs take one thread, and nothing spins, so that others have the machine;
        "Default": as the session's options say. Other options of onnxruntime are accepted and have no effect. Any others are
        for the session's plugins (vendors' libraries), which take them or say why not.

        Raises:
            UnknownOption, InvalidArgument: another option or value.
            NotImplemented: the session's model is in a separate process.
        """
        foreign = {key: value for key, value in options.items() if key not in DYNAMIC_KEYS}
        for key in options.keys() & DYNAMIC_KEYS.keys():
            check_dynamic_option(key, options[key])
        if foreign and not self._engine.set_dynamic_options(foreign):
            for key, value in foreign.items():
                check_dynamic_option(key, value)
        self._engine.set_efficient(options[WORKLOAD] == EFFICIENT if WORKLOAD in options else None)

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Let providers drop the graphs that launches have become (see "enable_cuda_graph"): later runs make new ones.

        Args:
            graph_annotation_id: graphs are retained by the sizes of inputs, not by number: all are dropped.
        """
        self._engine.release_graphs()

    # --- profiles and tuning ---

    def end_profiling(self) -> str:
        """Write the profile and return the file's name; "" where `enable_profiling` was not set."""
        return self._engine.end_profiling()

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, in nanoseconds of `time.perf_counter_ns`; 0 where it is off."""
        profile = self._engine.profile
        return profile.start_ns if profile is not None else 0

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

    # --- onnxruntime's private attributes that programs read ---

    @_Read
    def _model_bytes(self) -> bytes | None:
        given = self._engine.source.given
        return given if isinstance(given, bytes) else None

    @_Read
    def _model_path(self) -> str | None:
        return self._engine.source.path

    @_Read
    def _inputs_meta(self) -> list[NodeArg]:
        return self._engine.inputs_meta

    @_Read
    def _outputs_meta(self) -> list[NodeArg]:
        return self._engine.outputs_meta

    @_Read
    def _providers(self) -> list[str]:
        return self._engine.providers

    @_Read
    def _provider_options(self) -> dict[str, dict[str, str]]:
        return self._engine.option_texts()

    @_Read
    def _model(self) -> Any:
        return self._engine.model

    @property
    def _enable_fallback(self) -> bool:
        return self._engine.may_fall_back

    @_enable_fallback.setter
    def _enable_fallback(self, value: object) -> None:
        if "_engine" in self.__dict__:  # else the argument `enable_fallback` says it, as in onnxruntime
            self._engine.may_fall_back = bool(value)
