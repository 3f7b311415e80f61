"""A loaded engine: its tensors lie in the GPU's memory, and its work goes into the GPU's one stream."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.device.cuda import CudaDevice
from intarsia.device.gpu import Slice
from intarsia.device.memory import brought
from intarsia.ep.device import DeviceTensor
from intarsia.ep.provider import StepObserver
from intarsia.errors import EPFail
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.tensorrt.library import Library, told
from intarsia.providers.tensorrt.network import TYPES
from intarsia.providers.tensorrt.onnx_model import node_output
from intarsia.providers.vendor.program import Executable, Interface

_ENGINES = "TensorRT's engines"  # in the GPU's account of memory


@dataclass(frozen=True)
class RuntimeOptions:
    """How an engine is run.

    Attributes:
        cuda_graph: launches of a run become a graph.
        on_step: where a profile is wanted, is told of each layer.
        find_kernels, keep_kernels: what TensorRT-RTX compiled of this engine for this GPU in earlier processes (None: nothing),
            and keep it for later ones.
    """

    cuda_graph: bool
    on_step: StepObserver | None
    find_kernels: Callable[[], bytes | None]
    keep_kernels: Callable[[bytes], None]


class TensorrtExecutable(Executable):
    """An engine with one execution context: all callers' work goes into one stream, one after the other."""

    def __init__(
        self, library: Library, gpu: CudaDevice, engine: Any, artifact: bytes, interface: Interface, options: RuntimeOptions
    ) -> None:
        self.library, self.gpu, self._engine, self._artifact, self._interface = library, gpu, engine, artifact, interface
        self._options = options
        self._kernels: Any = None
        self._is_cached = False
        self._profile = 0
        self.nbytes = len(artifact)
        self._outputs = [self._described(value.name, value.type) for value in interface.outputs]
        with gpu.working(), library.messages.collected() as lines:
            config = self._runtime_config()
            self._context = engine.create_execution_context(config) if config is not None else engine.create_execution_context()
        if self._context is None:
            raise EPFail(f"{library.title} gives no context to run an engine in: {told(lines)}")
        self._profiler = _profiler(library, options.on_step, self._outputs_by_layer) if options.on_step is not None else None
        if self._profiler is not None:
            self._context.profiler = self._profiler
        self._scratch = int(getattr(engine, "device_memory_size_v2", 0) or 0)
        gpu.account(_ENGINES, self.nbytes + self._scratch)

    def __del__(self) -> None:
        if getattr(self, "_scratch", None) is not None:
            self.gpu.forget(_ENGINES, self.nbytes + self._scratch)

    def _described(self, name: str, kind: Any) -> tuple[str, DType]:
        assert isinstance(kind, TensorType), "other values are refused"
        given = self._engine.get_tensor_dtype(name)
        if given != getattr(self.library.module.DataType, TYPES.get(kind.dtype, ""), None):
            raise EPFail(f"the engine gives {name!r} as {given}; the part has {kind.dtype.onnx_name}")
        return name, kind.dtype

    def _runtime_config(self) -> Any:
        """TensorRT-RTX's: kernels that it compiled before, and graphs of launches. Full TensorRT has none of both."""
        if not self.library.rtx:
            return None
        trt, config = self.library.module, self._engine.create_runtime_config()
        if config is None:
            return None
        self._kernels = config.create_runtime_cache()
        found = self._options.find_kernels()
        if self._kernels is not None:
            self._is_cached = bool(found) and bool(self._kernels.deserialize(found))
            config.set_runtime_cache(self._kernels)
        if self._options.cuda_graph:
            config.cuda_graph_strategy = trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
        return config

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        tensors = [self._on_device(value) for value in inputs]
        with self.gpu.working() as stream, self.library.messages.collected() as lines:
            self._bind_inputs(tensors, stream, lines)
            results = [self._bind_output(name, dtype, lines) for name, dtype in self._outputs]
            if self._profiler is not None:
                self._profiler.begin()
            if not self._context.execute_async_v3(stream):
                self.gpu.finish()  # raises where the device is lost
                raise EPFail(f"{self.library.title} failed in a run: {told(lines)}")
        if not self._is_cached:
            self._keep_kernels()
        return results

    def _on_device(self, value: Any) -> DeviceTensor:
        if not isinstance(value, DeviceTensor):
            raise EPFail(f"{self.library.title}: an input came as {type(value).__name__}; expected a device tensor")
        return brought(self.gpu, value)

    def _bind_inputs(self, tensors: Sequence[DeviceTensor], stream: int, lines: list[str]) -> None:
        context = self._context
        if self._engine.num_optimization_profiles > 1:
            self._choose_profile([t.shape for t in tensors], stream)
        for value, tensor in zip(self._interface.inputs, tensors, strict=True):
            set_shape = context.set_input_shape(value.name, tuple(tensor.shape))
            if not set_shape or not context.set_tensor_address(value.name, _address(tensor.handle)):
                raise EPFail(
                    f"{self.library.title} takes no input {value.name!r} of shape {list(tensor.shape)}: {told(lines)}; "
                    "the profiles in the options say which shapes it is built for"
                )
        left = context.infer_shapes()
        if left:
            raise EPFail(f"{self.library.title} does not know the shapes of {', '.join(left)}: {told(lines)}")

    def _choose_profile(self, shapes: Sequence[tuple[int, ...]], stream: int) -> None:
        """The first profile that has room for these shapes."""
        for i in range(self._engine.num_optimization_profiles):
            ranges = [self._engine.get_tensor_profile_shape(v.name, i) for v in self._interface.inputs]
            if all(
                all(a <= n <= b for a, n, b in zip(least, shape, most, strict=True))
                for (least, _, most), shape in zip(ranges, shapes, strict=True)
            ):
                if i != self._profile:
                    self._context.set_optimization_profile_async(i, stream)
                    self._profile = i
                return

    def _bind_output(self, name: str, dtype: DType, lines: list[str]) -> DeviceTensor:
        shape = tuple(int(d) for d in self._context.get_tensor_shape(name))
        if any(d < 0 for d in shape):
            raise EPFail(f"{self.library.title} does not know the shape of {name!r} before it runs: {told(lines)}")
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.numpy.itemsize
        place = Slice(self.gpu.allocate(nbytes), 0, nbytes)
        if not self._context.set_tensor_address(name, _address(place)):
            raise EPFail(f"{self.library.title} writes no {name!r} there: {told(lines)}")
        return DeviceTensor(dtype, shape, self.gpu.device, place)

    def _keep_kernels(self) -> None:
        """After the first run, when TensorRT-RTX has compiled what it runs."""
        self._is_cached = True
        if self._kernels is None:
            return
        with self.gpu.working(), self.library.messages.collected():
            data = self._kernels.serialize()
        if data is not None:
            self._options.keep_kernels(bytes(data))

    def artifact(self) -> bytes | None:
        return self._artifact

    def kernels(self) -> dict[str, str]:
        """Node (by its first output) -> the layer that the engine runs it by."""
        layers = self._outputs_by_layer()
        return {output: f"{self.library.title}: {layer}" for layer, outputs in layers.items() for output in outputs}

    def _outputs_by_layer(self) -> dict[str, list[str]]:
        """Layer -> the nodes (by their first outputs) that it computes."""
        found: dict[str, list[str]] = {}
        for layer in self._layers():
            names = str(layer.get("Metadata", "")).split("\x1e")
            outputs = [node_output(name.removeprefix("[ONNX Layer: ").removesuffix("]")) for name in names]
            found[str(layer.get("Name", ""))] = [output for output in outputs if output]
        return found

    def _layers(self) -> list[dict[str, Any]]:
        inspector = self._engine.create_engine_inspector()
        if inspector is None:
            return []
        try:
            text = inspector.get_engine_information(self.library.module.LayerInformationFormat.JSON)
            layers = json.loads(text).get("Layers", [])
        except (ValueError, AttributeError):
            return []
        return [layer for layer in layers if isinstance(layer, dict)]

    def describe(self) -> str:
        profiles = self._engine.num_optimization_profiles
        text = f"  {self.library.title}: an engine of {len(self._artifact):,} bytes, {self._scratch:,} bytes of scratch memory"
        return text + (f", {profiles} profiles" if profiles > 1 else "")


def _profiler(library: Library, tell: StepObserver, layers: Callable[[], dict[str, list[str]]]) -> Any:
    """Gives the times of layers, which come after a run and have no beginning, one behind the other."""
    base = library.module.IProfiler

    class Profiler(base):  # type: ignore[misc,valid-type] # the module is not known here
        """The library calls it when a run has ended."""

        def __init__(self) -> None:
            base.__init__(self)
            self.at_ns = 0
            self.outputs: dict[str, list[str]] | None = None

        def begin(self) -> None:
            self.at_ns = time.perf_counter_ns()
            if self.outputs is None:
                self.outputs = layers()

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            begin, self.at_ns = self.at_ns, self.at_ns + int(ms * 1e6)
            tell(f"{library.title}: {layer_name}", (self.outputs or {}).get(layer_name, ()), begin, self.at_ns)

    return Profiler()


def _address(place: Slice) -> int:
    return place.memory.gpu.address_of(place.memory.buffer) + place.offset
