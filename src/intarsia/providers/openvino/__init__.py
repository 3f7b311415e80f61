"""OpenVINOExecutionProvider: whole subgraphs through the openvino package, on Intel's and other CPUs, Intel GPUs and NPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from intarsia.ep.device import Device
from intarsia.ep.provider import (
    HOST,
    CompileContext,
    ComputeCapability,
    ExecutionProvider,
    KernelLookup,
    NotSaved,
    Program,
    SavedProgram,
    Support,
)
from intarsia.errors import EPFail, InvalidArgument, UnknownOption, nearest
from intarsia.graph.model import Graph, Node
from intarsia.machine import fork_safety
from intarsia.printable import get_logger
from intarsia.providers.openvino.options import OpenVINOOptions

if TYPE_CHECKING:
    from intarsia.providers.openvino.program import OpenVINOProgram
    from intarsia.providers.openvino.survey import Survey

_CORE_PROPERTIES = frozenset(("CACHE_DIR", "CACHE_MODE", "ENABLE_MMAP", "AUTO_BATCH_TIMEOUT", "LOG_LEVEL"))
_logger = get_logger("intarsia.providers.openvino")


class OpenVINOExecutionProvider(ExecutionProvider):
    """Takes what OpenVINO converts and its device plugin runs, except where its results differ from ONNX (`refusals`).

    Tensors stay in host memory and are shared with OpenVINO, not copied. Float32 unless the options ask for less.
    """

    name: ClassVar[str] = "OpenVINOExecutionProvider"
    Options: ClassVar[type[Any]] = OpenVINOOptions
    part_microseconds = 60.0
    flushes_denormals = True  # of constants
    not_exact: ClassVar[Mapping[str, str]] = {
        "Relu": "NaN becomes 0: it is fused into products, which a Select behind it would prevent",
        "com.microsoft::FusedGemm": "NaN becomes 0 by Relu",
        "com.microsoft::FusedConv": "NaN becomes 0 by Relu",
        **dict.fromkeys(("Softmax", "LogSoftmax", "Attention"), "a row with NaN or infinities may have other NaNs"),
        "ReduceMean": "of nothing it is 0: ONNX leaves it open",
        "Upsample": "an infinite pixel makes no NaN where its weight is 0",
        "GridSample": "places that are NaN or infinite give NaN",
    }

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        if why := self.unavailable() or self.missing_for(self.options):
            raise EPFail(f"{self.name} cannot be used on this machine: {why}")
        self.device_options = self.openvino_options(self.options)
        self._properties = self._checked_properties()
        self._lock = fork_safety.lock()
        self._survey: Survey | None = None

    @classmethod
    def openvino_options(cls, options: Any) -> OpenVINOOptions:
        """What `options`, of the provider's own kind, are for OpenVINO."""
        assert isinstance(options, OpenVINOOptions)
        return options

    @classmethod
    def unavailable(cls) -> str:
        from intarsia.providers.openvino.runtime import missing

        return missing()

    @classmethod
    def library_version(cls) -> str:
        from intarsia.providers.openvino.runtime import installed_version

        return installed_version()

    @classmethod
    def devices(cls) -> list[Device]:
        from intarsia.providers.openvino import runtime

        if runtime.missing() or runtime.broken():
            return [HOST]
        found = []
        for name in runtime.devices():
            kind, _, index = name.partition(".")
            description = str(runtime.core().get_property(name, "FULL_DEVICE_NAME"))
            vendor = next((v for v in ("Intel", "AMD", "NVIDIA", "ARM", "Apple") if v.lower() in description.lower()), "")
            found.append(Device(kind.lower(), int(index or 0), host=True, vendor=vendor, description=description))
        return found or [HOST]

    @classmethod
    def missing_for(cls, options: Any) -> str:
        """What the device of `options` lacks here."""
        from intarsia.providers.openvino import runtime

        options = cls.openvino_options(options)
        if why := runtime.broken() or runtime.missing_device(options.device):
            return why
        if options.device_luid:
            seen = {name: _luid(name) for name in runtime.devices()}
            if options.device_luid.lower() not in seen.values():
                return f"no device has device_luid {options.device_luid!r}; seen: {seen}"
        return ""

    def _checked_properties(self) -> dict[str, Any]:
        """What `load_config` says, its names checked with the device."""
        from intarsia.providers.openvino.runtime import core

        options = self.device_options
        if options.device.partition(".")[0] not in ("CPU", "GPU", "NPU"):
            return dict(options.properties)
        known = core().get_property(options.device, "SUPPORTED_PROPERTIES")
        settable = {name for name, mutability in known.items() if str(mutability) != "RO"} | _CORE_PROPERTIES
        for key in options.properties:
            if key not in settable:
                raise UnknownOption(
                    f"option 'load_config' of {self.name}: {options.device} has no property {key!r}; {nearest(key, settable)}"
                )
        requested = options.resolved_precision
        if requested in ("FP16", "BF16") and options.device.startswith("CPU"):
            able = core().get_property(options.device, "OPTIMIZATION_CAPABILITIES")
            if requested not in able:
                raise InvalidArgument(
                    f"option 'precision' of {self.name}: this CPU does not compute in {requested}, OpenVINO would take another "
                    f"type without a word (it can: {', '.join(able)}); choose 'FP32' or 'ACCURACY'"
                )
        found = dict(options.properties)
        if options.model_priority != "DEFAULT":
            self._add(found, known, "MODEL_PRIORITY", options.model_priority, "model_priority")
        if options.enable_opencl_throttling:
            self._add(found, known, "GPU_QUEUE_THROTTLE", "LOW", "enable_opencl_throttling")
        return found

    def _add(self, found: dict[str, Any], known: Any, key: str, value: str, option: str) -> None:
        if key in known:
            found.setdefault(key, value)
        else:
            _logger.warning("option %r of %s has no effect on %s", option, self.name, self.device_options.device)

    def _config(self, context: CompileContext | None) -> dict[str, Any]:
        """Properties for `compile_model`."""
        options = self.device_options
        config: dict[str, Any] = {}
        if options.hint:
            config["INFERENCE_PRECISION_HINT"] = options.hint
        else:
            config["EXECUTION_MODE_HINT"] = "ACCURACY"
        if options.num_streams == 1:
            config["PERFORMANCE_HINT"] = "LATENCY"
        config["NUM_STREAMS"] = str(options.num_streams)
        threads = options.num_of_threads or (context.intra_op_num_threads if context is not None else 0)
        if threads and "CPU" in options.device:
            config["INFERENCE_NUM_THREADS"] = threads
        if options.cache_dir:
            config["CACHE_DIR"] = options.cache_dir
        if context is not None and context.on_step is not None:
            config["PERF_COUNT"] = True
        return {**config, **self._properties}

    def supports(self, node: Node, graph: Graph) -> Support:
        survey = self._survey_of(graph)
        with self._lock:
            return survey.answer(node)

    def get_capability(self, graph: Graph, kernel_lookup: KernelLookup) -> list[ComputeCapability]:
        """Every free node that OpenVINO takes; it is asked about all of them at once, and node by node where it objects."""
        survey = self._survey_of(graph)
        free = [i for i in range(len(graph.nodes)) if kernel_lookup.is_free(i)]
        with self._lock:
            return [ComputeCapability((i,)) for i in survey.taken(free)]

    def _survey_of(self, graph: Graph) -> Survey:
        from intarsia.providers.openvino.survey import Survey

        hint = self.device_options.hint
        with self._lock:
            if self._survey is None or self._survey.graph is not graph:
                properties = {"INFERENCE_PRECISION_HINT": hint} if hint else {}
                self._survey = Survey(graph, self.device_options.device, properties, exact_nan=self.device_options.exact_nan)
            return self._survey

    def compile(self, graph: Graph, context: CompileContext) -> Program:
        from intarsia.providers.openvino.compiling import Compiler

        with self._lock:
            model = self._survey.take_model(graph) if self._survey is not None else None
        compiler = Compiler(graph, self.device_options, self._config(context), model)
        return self._program_type()(
            graph,
            compiler.compile,
            provider=self.name,
            static=compiler.static,
            passed_through=compiler.passed_through,
            on_step=context.on_step,
        )

    @classmethod
    def _program_type(cls) -> type[OpenVINOProgram]:
        from intarsia.providers.openvino.program import OpenVINOProgram

        return OpenVINOProgram

    def save(self, program: Program) -> SavedProgram:
        """The compiled model as OpenVINO exports it, weights included."""
        import pickle

        from intarsia.providers.openvino.program import OpenVINOProgram, SavedPart
        from intarsia.providers.openvino.runtime import shortened

        options = self.device_options
        if not isinstance(program, OpenVINOProgram) or program.compiled is None:
            raise NotSaved("OpenVINO compiles it for each shape")
        if options.context or options.device.partition(".")[0] not in ("CPU", "GPU", "NPU"):
            raise NotSaved(f"OpenVINO does not export a model for {options.device}")
        try:
            blob = program.compiled.export_model().getvalue()
        except RuntimeError as error:
            raise NotSaved(f"OpenVINO does not export it: {shortened(error)}") from error
        return SavedProgram(pickle.dumps((self._stamp(), SavedPart.of(program))), [blob])

    def restore(self, head: bytes, block: np.ndarray, context: CompileContext) -> Program | None:
        """Imported with the requested precision: OpenVINO forgets it in what it exports."""
        import pickle

        from intarsia.providers.openvino import runtime
        from intarsia.providers.openvino.compiling import check_precision

        stamp, part = pickle.loads(head)  # noqa: S301 # it comes with machine code
        if stamp != self._stamp():
            _logger.debug("not from the cache: made by %s, this is %s", stamp, self._stamp())
            return None
        config = {k: v for k, v in self._config(context).items() if k != "CACHE_DIR"}
        try:
            compiled = runtime.core().import_model(block.tobytes(), self.device_options.device, config)
            check_precision(compiled, config, self.device_options.device)
        except (RuntimeError, EPFail) as error:
            _logger.debug("not from the cache: %s", runtime.shortened(error))
            return None
        return self._program_type()(
            part.graph,
            lambda _: compiled,
            provider=self.name,
            passed_through=part.passed_through,
            on_step=context.on_step,
        )

    def compatibility_info(self) -> str:
        return self._stamp()

    def _stamp(self) -> str:
        """What an exported model depends on besides the options."""
        from intarsia.providers.openvino.runtime import core, installed_version

        device = self.device_options.device
        return f"openvino {installed_version()} on {device} {core().get_property(device, 'FULL_DEVICE_NAME')}"


def _luid(device: str) -> str:
    from intarsia.providers.openvino.runtime import core

    try:
        return str(core().get_property(device, "DEVICE_LUID")).lower()
    except RuntimeError:
        return ""
