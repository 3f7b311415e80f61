"""onnxruntime's compiled session class, `onnxruntime.capi._pybind_state.InferenceSession`, over Intarsia's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intarsia.errors import Fail, InvalidArgument
from intarsia.model.signature import ModelMetadata, NodeArg
from intarsia.options.session_options import RunOptions, SessionOptions
from intarsia.session.ort_methods import OrtMethods
from intarsia.values.ort_value import OrtValue, OrtValueVector

if TYPE_CHECKING:
    from intarsia.session.inference_session import InferenceSession
    from intarsia.session.io_binding import IOBinding
    from intarsia.values.ort_device import OrtMemoryInfo


class LowLevelSession:
    """A session in two steps: made from options and a model, then `initialize_session` with providers."""

    def __init__(
        self, options: SessionOptions, model: str | bytes, load_from_file: bool = True, read_config: bool = False
    ) -> None:
        if load_from_file and not isinstance(model, str):
            raise InvalidArgument(f"load_from_file: expected a path, got {type(model).__name__}")
        self._made: InferenceSession | None = None
        self._plan = (options, model, read_config)

    @classmethod
    def of(cls, session: Any) -> LowLevelSession:
        """The low-level form of a session."""
        made = cls.__new__(cls)
        made._made = session
        return made

    def initialize_session(
        self,
        providers: Sequence[str] = (),
        provider_options: Sequence[Mapping[str, str]] = (),
        disabled_optimizers: Sequence[str] | set[str] = (),
    ) -> None:
        """Load and compile the model. Raises as `InferenceSession`."""
        options, model, read_config = self._plan
        given = list(provider_options) or None
        self._made = OrtMethods._session_class(
            model, options, list(providers) or None, given, disabled_optimizers=set(disabled_optimizers),
            read_config_from_model=read_config,
        )  # fmt: skip

    @property
    def _session(self) -> InferenceSession:
        if self._made is None:
            raise Fail("the session is not initialized: call initialize_session() first")
        return self._made

    def run(
        self, output_names: Sequence[str], input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        return self._session.run(list(output_names), input_feed, run_options)

    def run_async(
        self,
        output_names: Sequence[str],
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        self._session.run_async(output_names, input_feed, callback, user_data, run_options)

    def run_with_ort_values(
        self, feeds: Mapping[str, OrtValue], output_names: Sequence[str], run_options: RunOptions | None = None
    ) -> OrtValueVector:
        """As the session's method, with the feed first."""
        return OrtValueVector(self._session.run_with_ort_values(list(output_names), feeds, run_options))

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        self._session.run_with_iobinding(iobinding, run_options)

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: OrtValueVector,
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Sequence[Any],
    ) -> None:
        self._session.run_with_ortvaluevector(run_options, feed_names, feeds, fetch_names, fetches, fetch_devices)

    @property
    def inputs_meta(self) -> list[NodeArg]:
        return self._session.get_inputs()

    @property
    def outputs_meta(self) -> list[NodeArg]:
        return self._session.get_outputs()

    @property
    def overridable_initializers(self) -> list[NodeArg]:
        return self._session.get_overridable_initializers()

    @property
    def model_meta(self) -> ModelMetadata:
        return self._session.get_modelmeta()

    @property
    def session_options(self) -> SessionOptions:
        return self._session.get_session_options()

    @property
    def get_profiling_start_time_ns(self) -> int:
        return self._session.get_profiling_start_time_ns()

    @property
    def input_meminfos(self) -> list[OrtMemoryInfo]:
        return self._session.get_input_memory_infos()

    @property
    def output_meminfos(self) -> list[OrtMemoryInfo]:
        return self._session.get_output_memory_infos()

    @property
    def input_epdevices(self) -> list[Any]:
        return self._session.get_input_epdevices()

    def create_ortvalue_from_shape_and_type(self, shape: Sequence[int], element_type: Any, device: Any = "cpu") -> OrtValue:
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device)

    create_ortvalue_from_shape_and_onnx_type = create_ortvalue_from_shape_and_type

    def is_webgpu_graph_capture_enabled(self) -> bool:
        """False: no provider here captures graphs."""
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self._session, name)


class SessionObjectInitializer:
    """onnxruntime's default settings of a session, as an object of its own."""


def get_default_session_options() -> SessionOptions:
    """New session options with their defaults."""
    return SessionOptions()


def get_session_initializer() -> SessionObjectInitializer:
    return SessionObjectInitializer()
