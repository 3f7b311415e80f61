"""TensorRT's Python module, imitated over an imitated GPU: engines hold ONNX, and run by the reference provider.

Parsing and building are the real TensorRT-RTX's as well where it is given (`real`), so that nothing runs here that it would not
build. What goes wrong is what was seen with version 1.7.1: a call that fails returns None or False and logs why.
"""

from __future__ import annotations

import ctypes
import enum
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
from fake_driver import Machine

from intarsia.ep.provider import CompileContext
from intarsia.graph.dtypes import DType
from intarsia.graph.load import load
from intarsia.graph.model import Constant, Graph, TensorType
from intarsia.ops import registry
from intarsia.ops.framework.infer import infer
from intarsia.providers.reference import ReferenceExecutionProvider
from intarsia.providers.tensorrt.network import TYPES
from intarsia.providers.vendor.shape_profile import bind

MAGIC = b"imitated engine\n"
HEADER = 64


class DataType(enum.IntEnum):
    FLOAT, HALF, INT8, INT32, BOOL, UINT8, FP8, BF16, INT64, INT4, FP4 = range(11)


class Severity(enum.IntEnum):
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)


class ComputeCapability(enum.IntEnum):
    NONE, CURRENT, SM75, SM80, SM86, SM89, SM120, SM121 = 0, 1, 75, 80, 86, 89, 120, 121


class BuilderFlag(enum.IntEnum):
    REFIT, STRIP_PLAN, SPARSE_WEIGHTS = range(3)


class MemoryPoolType(enum.IntEnum):
    WORKSPACE, TACTIC_SHARED_MEMORY = 0, 5


class ProfilingVerbosity(enum.IntEnum):
    LAYER_NAMES_ONLY, NONE, DETAILED = range(3)


class NetworkDefinitionCreationFlag(enum.IntEnum):
    STRONGLY_TYPED = 1


class OnnxParserFlag(enum.IntEnum):
    NATIVE_INSTANCENORM = 0


class HardwareCompatibilityLevel(enum.IntEnum):
    NONE, AMPERE_PLUS = range(2)


class CudaGraphStrategy(enum.IntEnum):
    DISABLED, WHOLE_GRAPH_CAPTURE = range(2)


class EngineValidity(enum.IntEnum):
    VALID, SUBOPTIMAL, INVALID = range(3)


class EngineInvalidityDiagnostics(enum.IntFlag):
    VERSION_MISMATCH, UNSUPPORTED_CC, MALFORMED_ENGINE = 1, 2, 32


class LayerInformationFormat(enum.IntEnum):
    ONELINE, JSON = range(2)


class FakeTensorrt:
    """The module.

    Attributes:
        machine: the GPU.
        real: tensorrt_rtx, where what is parsed and built is to be parsed and built by it, too.
        fault: what goes wrong next: "build" (None and a message), "nothing" (None without one), "memory", "load", "context",
            "run", "lost" (of the device, in a run), "refit".
        lacks: operators that the parser does not have.
        builds, loads, runs, refits, profiles_set: how often.
        workspace_needed: bytes of scratch memory.
        log: messages that went to the logger.
    """

    DataType, ComputeCapability, BuilderFlag, MemoryPoolType = DataType, ComputeCapability, BuilderFlag, MemoryPoolType
    ProfilingVerbosity, NetworkDefinitionCreationFlag = ProfilingVerbosity, NetworkDefinitionCreationFlag
    OnnxParserFlag, HardwareCompatibilityLevel = OnnxParserFlag, HardwareCompatibilityLevel
    CudaGraphStrategy = CudaGraphStrategy
    EngineValidity, EngineInvalidityDiagnostics = EngineValidity, EngineInvalidityDiagnostics
    LayerInformationFormat = LayerInformationFormat

    def __init__(self, machine: Machine, version: str = "1.7.1.116", real: Any = None) -> None:
        self.machine, self.__version__, self.real = machine, version, real
        self.fault = ""
        self.lacks: frozenset[str] = frozenset()
        self.builds = self.loads = self.runs = self.refits = self.profiles_set = 0
        self.workspace_needed = 0
        self.log: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.kernels_kept: list[bytes] = []
        self.cancelled = False
        self.real_logger: Any = None
        module = self

        class ILogger:
            Severity = Severity

            def __init__(self) -> None:
                module.logger = self

            def log(self, severity: Any, msg: str) -> None: ...

        class IProgressMonitor:
            def __init__(self) -> None: ...

        class IProfiler:
            def __init__(self) -> None: ...

        self.ILogger, self.IProgressMonitor, self.IProfiler = ILogger, IProgressMonitor, IProfiler
        self.logger: Any = None

    def say(self, text: str, severity: Severity = Severity.ERROR) -> None:
        self.log.append(text)
        self.logger.log(severity, text)

    def takes_fault(self, *kinds: str) -> str:
        """The fault that was ordered, where it is one of these: it happens once."""
        found = self.fault if self.fault in kinds else ""
        if found:
            self.fault = ""
        return found

    def Builder(self, logger: Any) -> Builder:  # the module's names
        return Builder(self)

    def OnnxParser(self, network: Network, logger: Any) -> OnnxParser:
        return OnnxParser(self, network)

    def Runtime(self, logger: Any) -> Runtime:
        return Runtime(self)

    def Refitter(self, engine: Engine, logger: Any) -> Refitter:
        return Refitter(self, engine)

    def OnnxParserRefitter(self, refitter: Refitter, logger: Any) -> OnnxParserRefitter:
        return OnnxParserRefitter(self, refitter)


class Tensor:
    def __init__(self, name: str, dtype: DataType | Any, shape: tuple[int, ...]) -> None:
        self.name, self.dtype, self.shape = name, dtype, shape
        self.is_shape_tensor = False


class Network:
    """INetworkDefinition."""

    def __init__(self, module: FakeTensorrt, flags: int) -> None:
        self.module, self.flags = module, flags
        self.graph: Graph | None = None
        self.model = b""
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.real: Any = None

    @property
    def num_inputs(self) -> int:
        return len(self.inputs)

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

    def get_input(self, i: int) -> Tensor:
        return self.inputs[i]

    def get_output(self, i: int) -> Tensor:
        return self.outputs[i]

    @property
    def num_layers(self) -> int:
        return len(self.graph.nodes) if self.graph is not None else 0


UNREAD = (DType.UINT8, DType.UINT4, DType.INT16)
"""Types that the real parser does not quantise to."""


class ParserError:
    def __init__(self, node: str, operator: str, text: str) -> None:
        self._node, self._operator, self._text = node, operator, text

    def desc(self) -> str:
        return self._text

    def node_operator(self) -> str:
        return self._operator


class OnnxParser:
    def __init__(self, module: FakeTensorrt, network: Network) -> None:
        self.module, self.network = module, network
        self.errors: list[Any] = []
        self.lists: list[list[int]] = []
        self._keep: list[Any] = []

    def set_flag(self, flag: OnnxParserFlag) -> None:
        assert flag in OnnxParserFlag

    num_errors = property(lambda self: len(self.errors))
    num_subgraphs = property(lambda self: len(self.lists))

    def get_error(self, i: int) -> Any:
        return self.errors[i]

    def get_subgraph_nodes(self, i: int) -> list[int]:
        return self.lists[i]

    def is_subgraph_supported(self, i: int) -> bool:
        """As seen: False of every list where the model has a node that is lacking."""
        return len(self.lists) == 1

    def _real(self) -> tuple[Any, Any]:
        real = self.module.real
        if self.module.real_logger is None:
            self.module.real_logger = real.Logger(real.Logger.INTERNAL_ERROR)
        builder = real.Builder(self.module.real_logger)
        network = builder.create_network(1 << int(real.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        parser = real.OnnxParser(network, self.module.real_logger)
        parser.set_flag(real.OnnxParserFlag.NATIVE_INSTANCENORM)
        self._keep += [builder, network, parser]
        return parser, (builder, network)

    def parse(self, model: bytes, path: str = "") -> bool:
        graph = load(path or model)
        for node in graph.nodes:
            if node.op_type in self.module.lacks:
                self.errors = [ParserError(node.name, node.op_type, f"Assertion failed: creator && {node.op_type}: no plugin")]
                self.module.say(f"importer: {node.op_type} is not there")
                return False
        for node in graph.nodes:
            unread = [kind for name in (*node.inputs, *node.outputs) if (kind := _dtype(graph, name)) in UNREAD]
            if node.op_type in ("QuantizeLinear", "DequantizeLinear") and unread:
                self.errors = [ParserError(node.name, node.op_type, f"Found unsupported input type of {unread[0].onnx_name}")]
                return False
        if self.module.real is not None:
            parser, made = self._real()
            if not (parser.parse(model, path) if path else parser.parse(model)):
                self.errors = [parser.get_error(i) for i in range(parser.num_errors)]
                return False
            self.network.real = made
        self.network.graph, self.network.model = graph, model
        self._read_types(graph)
        return True

    def _read_types(self, graph: Graph) -> None:
        types = infer(graph, registry(), strict=False)
        self.network.inputs = [_tensor(v.name, v.type) for v in graph.inputs]
        self.network.outputs = [_tensor(v.name, types.types.get(v.name, v.type)) for v in graph.outputs]
        if self.network.real is not None:
            theirs = self.network.real[1]
            for tensor, real in [
                *((t, theirs.get_input(i)) for i, t in enumerate(self.network.inputs)),
                *((t, theirs.get_output(i)) for i, t in enumerate(self.network.outputs)),
            ]:
                assert tensor.name == real.name
                tensor.dtype, tensor.shape = DataType[real.dtype.name], tuple(real.shape)

    def supports_model_v2(self, model: bytes, path: str = "") -> bool:
        if self.module.real is not None:
            parser, _ = self._real()
            good = parser.supports_model_v2(model, path) if path else parser.supports_model_v2(model)
            self.lists = [list(parser.get_subgraph_nodes(i)) for i in range(parser.num_subgraphs)]
        else:
            good = True
            self.lists = [list(range(len(load(path or model).nodes)))]
        bad = {i for i, node in enumerate(load(path or model).nodes) if node.op_type in self.module.lacks}
        self.lists = [kept for found in self.lists if (kept := [i for i in found if i not in bad])]
        return bool(good and not bad)


def _tensor(name: str, kind: Any) -> Tensor:
    assert isinstance(kind, TensorType)
    shape = tuple(d if isinstance(d, int) else -1 for d in kind.shape or ())
    return Tensor(name, DataType[TYPES.get(kind.dtype, "UINT8")], shape)


class BuilderConfig:
    def __init__(self, module: FakeTensorrt) -> None:
        self.module = module
        self.progress_monitor: Any = None
        self.profiling_verbosity = ProfilingVerbosity.LAYER_NAMES_ONLY
        self.flags: set[BuilderFlag] = set()
        self.limits: dict[MemoryPoolType, int] = {}
        self.chips: list[ComputeCapability] = []
        self.profiles: list[dict[str, tuple[Any, Any, Any]]] = []
        self.timing: TimingCache | None = None
        self.builder_optimization_level, self.max_aux_streams = 3, -1
        self.hardware_compatibility_level = HardwareCompatibilityLevel.NONE

    def set_flag(self, flag: BuilderFlag) -> None:
        self.flags.add(flag)

    def set_memory_pool_limit(self, pool: MemoryPoolType, nbytes: int) -> None:
        self.limits[pool] = nbytes

    @property
    def num_compute_capabilities(self) -> int:
        return len(self.chips)

    @num_compute_capabilities.setter
    def num_compute_capabilities(self, count: int) -> None:
        self.chips = [ComputeCapability.NONE] * count

    def set_compute_capability(self, chip: ComputeCapability, i: int) -> bool:
        self.chips[i] = chip
        return True

    def add_optimization_profile(self, profile: Profile) -> int:
        self.profiles.append(dict(profile.shapes))
        return len(self.profiles) - 1

    def create_timing_cache(self, data: bytes) -> TimingCache:
        return TimingCache(bytes(data))

    def set_timing_cache(self, cache: TimingCache, ignore_mismatch: bool) -> bool:
        self.timing = cache
        return True

    def get_timing_cache(self) -> TimingCache | None:
        return self.timing


class TimingCache:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def serialize(self) -> bytes:
        return self.data + b"measured;"


class Profile:
    def __init__(self) -> None:
        self.shapes: dict[str, tuple[Any, Any, Any]] = {}

    def set_shape(self, name: str, least: Sequence[int], best: Sequence[int], most: Sequence[int]) -> None:
        assert all(a <= b <= c for a, b, c in zip(least, best, most, strict=True))
        self.shapes[name] = tuple(least), tuple(best), tuple(most)


class Builder:
    def __init__(self, module: FakeTensorrt) -> None:
        self.module = module

    def create_network(self, flags: int) -> Network:
        assert flags == 1 << NetworkDefinitionCreationFlag.STRONGLY_TYPED
        return Network(self.module, flags)

    def create_builder_config(self) -> BuilderConfig:
        return BuilderConfig(self.module)

    def create_optimization_profile(self) -> Profile:
        return Profile()

    def build_serialized_network(self, network: Network, config: BuilderConfig) -> bytes | None:
        module = self.module
        assert network.graph is not None
        module.builds += 1
        module.requests.append({"limits": config.limits, "chips": config.chips, "flags": config.flags, "config": config})
        fault = module.takes_fault("build", "nothing", "memory")
        if fault == "build":
            module.say("IBuilder::buildSerializedNetwork: Error Code 1: Myelin ([the imitation broke])")
        if fault == "memory" or module.workspace_needed > config.limits.get(MemoryPoolType.WORKSPACE, 1 << 62):
            module.say("Error Code 10: Internal Error (Could not find any implementation: insufficient workspace)")
            return None
        if fault or not self._watched(config):
            return None
        if any(-1 in t.shape for t in network.inputs) and not config.profiles:
            module.say("Error Code 4: API Usage Error (Network has dynamic or shape inputs, but no optimization profile)")
            return None
        if network.real is not None and not self._really_builds(network, config):
            return None
        chips = [90 if c is ComputeCapability.CURRENT else int(c) for c in config.chips] or [90]
        stripped = BuilderFlag.STRIP_PLAN in config.flags
        model = _unweighted(network.model) if stripped else network.model
        body = pickle.dumps((model, config.profiles, stripped, config.flags))
        head = MAGIC + f"{module.__version__} {','.join(map(str, chips))}".encode()
        return head.ljust(HEADER) + body

    def _watched(self, config: BuilderConfig) -> bool:
        """Two phases; False where the monitor wants to stop."""
        monitor = config.progress_monitor
        if monitor is None:
            return True
        monitor.phase_start("Building Engine", None, 3)
        monitor.phase_start("Tactics", "Building Engine", 5)
        going = all([monitor.step_complete("Tactics", 4), *(monitor.step_complete("Building Engine", i) for i in (1, 2, 3))])
        monitor.phase_finish("Tactics")
        monitor.phase_finish("Building Engine")
        self.module.cancelled = not going
        return going

    def _really_builds(self, network: Network, config: BuilderConfig) -> bool:
        real, (builder, theirs) = self.module.real, network.real
        given = builder.create_builder_config()
        given.num_compute_capabilities = 1
        few_bits = {DType.FLOAT8E4M3FN, DType.FLOAT4E2M1} & _types(network.graph)
        given.set_compute_capability(real.ComputeCapability.SM120 if few_bits else real.ComputeCapability.SM80, 0)
        for shapes in config.profiles:
            profile = builder.create_optimization_profile()
            for name, (least, best, most) in shapes.items():
                profile.set_shape(name, least, best, most)
            given.add_optimization_profile(profile)
        if builder.build_serialized_network(theirs, given) is None:
            self.module.say("the real builder made nothing of it")
            return False
        return True


def _dtype(graph: Graph, name: str) -> DType | None:
    kind = infer(graph, registry(), strict=False).types.get(name)
    return kind.dtype if isinstance(kind, TensorType) else None


def _types(graph: Graph | None) -> set[DType]:
    """Of all values of a graph."""
    assert graph is not None
    found = infer(graph, registry(), strict=False)
    return {kind.dtype for kind in found.types.values() if isinstance(kind, TensorType)}


def _unweighted(model: bytes) -> bytes:
    """The model with zeros for weights."""
    from intarsia.graph.save import to_model_bytes

    graph = load(model)
    graph.constants = {
        n: c if c.dtype.is_integer or c.size <= 16 else Constant.of(n, np.zeros(c.shape, c.dtype.numpy))
        for n, c in graph.constants.items()
    }
    return to_model_bytes(graph)


class Runtime:
    engine_header_size = HEADER

    def __init__(self, module: FakeTensorrt) -> None:
        self.module = module

    def get_engine_validity(self, head: bytes) -> tuple[EngineValidity, int]:
        if not head.startswith(MAGIC):
            return EngineValidity.INVALID, EngineInvalidityDiagnostics.MALFORMED_ENGINE
        version, chips = head.removeprefix(MAGIC).decode().split()
        if version != self.module.__version__:
            return EngineValidity.INVALID, EngineInvalidityDiagnostics.VERSION_MISMATCH
        if "90" not in chips.split(","):
            return EngineValidity.INVALID, EngineInvalidityDiagnostics.UNSUPPORTED_CC
        return EngineValidity.VALID, 0

    def deserialize_cuda_engine(self, data: bytes) -> Engine | None:
        self.module.loads += 1
        if self.module.takes_fault("load"):
            self.module.say("IRuntime::deserializeCudaEngine: Error Code 1: the imitation loads nothing")
            return None
        return Engine(self.module, bytes(data))


class Engine:
    """ICudaEngine."""

    def __init__(self, module: FakeTensorrt, data: bytes) -> None:
        self.module, self.data = module, data
        self.model, self.profiles, self.stripped, self.flags = pickle.loads(data[HEADER:])
        self.weighted = not self.stripped
        self.graph = load(self.model)
        self.types = infer(self.graph, registry(), strict=False).types

    device_memory_size_v2 = 4096

    @property
    def num_optimization_profiles(self) -> int:
        return max(len(self.profiles), 1)

    def get_tensor_dtype(self, name: str) -> DataType:
        kind = self.types[name]
        assert isinstance(kind, TensorType)
        return DataType[TYPES[kind.dtype]]

    def get_tensor_profile_shape(self, name: str, i: int) -> tuple[Any, Any, Any]:
        return tuple(self.profiles[i][name])

    def create_runtime_config(self) -> RuntimeConfig:
        return RuntimeConfig(self.module)

    def create_execution_context(self, config: RuntimeConfig | None = None) -> Context | None:
        if self.module.takes_fault("context"):
            self.module.say("Error Code 2: OutOfMemory (no memory for a context)")
            return None
        assert self.weighted, "an engine without weights gives no context"
        return Context(self, config)

    def create_engine_inspector(self) -> Inspector:
        return Inspector(self)

    def serialize(self) -> bytes:
        assert self.weighted
        return self.data[:HEADER] + pickle.dumps((self.model, self.profiles, False, self.flags))


class Inspector:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def get_engine_information(self, form: LayerInformationFormat) -> str:
        """All nodes in one layer, as Myelin makes it."""
        import json

        names = "\x1e".join(f"[ONNX Layer: {node.name}]" for node in self.engine.graph.nodes)
        return json.dumps({"Layers": [{"Name": "__myl_Fused", "Metadata": names}]})


class RuntimeConfig:
    def __init__(self, module: FakeTensorrt) -> None:
        self.module = module
        self.cuda_graph_strategy = CudaGraphStrategy.DISABLED
        self.cache: RuntimeCache | None = None

    def create_runtime_cache(self) -> RuntimeCache:
        return RuntimeCache(self.module)

    def set_runtime_cache(self, cache: RuntimeCache) -> bool:
        self.cache = cache
        return True


class RuntimeCache:
    def __init__(self, module: FakeTensorrt) -> None:
        self.module = module
        self.data = b""

    def deserialize(self, data: bytes) -> bool:
        if not bytes(data).startswith(b"kernels of "):
            return False
        self.data = bytes(data)
        return True

    def serialize(self) -> bytes:
        self.module.kernels_kept.append(b"kernels of this machine")
        return self.module.kernels_kept[-1]


class Context:
    """IExecutionContext."""

    def __init__(self, engine: Engine, config: RuntimeConfig | None) -> None:
        self.engine, self.module, self.config = engine, engine.module, config
        self.shapes: dict[str, tuple[int, ...]] = {
            v.name: tuple(v.type.shape)  # type: ignore[union-attr,arg-type]
            for v in engine.graph.inputs
            if all(isinstance(d, int) for d in v.type.shape)  # type: ignore[union-attr]
        }
        self.addresses: dict[str, int] = {}
        self.profile = 0
        self.profiler: Any = None
        self._bound: dict[tuple[tuple[int, ...], ...], tuple[Graph, Any]] = {}

    def set_optimization_profile_async(self, i: int, stream: int) -> bool:
        self.module.profiles_set += 1
        self.profile = i
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        declared = next(v.type.shape for v in self.engine.graph.inputs if v.name == name)  # type: ignore[union-attr]
        fits = len(shape) == len(declared)
        fits = fits and all(not isinstance(d, int) or d == n for d, n in zip(declared, shape, strict=True))
        if fits and self.engine.profiles:
            least, _, most = self.engine.profiles[self.profile][name]
            fits = all(a <= n <= b for a, n, b in zip(least, shape, most, strict=True))
        if not fits:
            self.module.say(f"IExecutionContext::setInputShape: Error Code 3: {name}: {shape} does not satisfy any profile")
            return False
        self.shapes[name] = tuple(shape)
        return True

    def set_tensor_address(self, name: str, address: int) -> bool:
        if not self.module.machine.inside(address, 1):
            self.module.say(f"{name}: {address:#x} is in no allocation")
            return False
        self.addresses[name] = address
        return True

    def infer_shapes(self) -> list[str]:
        return [name for name in self.engine.graph.input_names() if name not in self.shapes]

    def _program(self) -> tuple[Graph, Any]:
        graph = self.engine.graph
        shapes = tuple(self.shapes[n] for n in graph.input_names())
        if shapes not in self._bound:
            bound = bind(graph, shapes)
            self._bound[shapes] = bound, ReferenceExecutionProvider().compile(bound, CompileContext())
        return self._bound[shapes]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        if name in self.shapes:
            return self.shapes[name]
        kind = self._program()[0].type_of(name)
        return tuple(d if isinstance(d, int) else -1 for d in kind.shape)  # type: ignore[union-attr]

    def execute_async_v3(self, stream: int) -> bool:
        module, graph = self.module, self.engine.graph
        module.runs += 1
        fault = module.takes_fault("run", "lost")
        if fault == "lost":
            from fake_cuda import CUresult

            module.machine.failures["cuStreamSynchronize"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
        unset = [n for n in (*graph.input_names(), *graph.output_names()) if n not in self.addresses]
        if fault or unset:
            module.say(f"IExecutionContext::enqueueV3: Error Code 1: Cuda Runtime (unset: {unset})")
            return False
        bound, program = self._program()
        inputs = [self._array(n, bound, dict(self.addresses)) for n in graph.input_names()]
        outputs = [self._array(n, bound, dict(self.addresses)) for n in graph.output_names()]

        def work() -> None:
            for place, result in zip(outputs, program.run([np.array(x) for x in inputs]), strict=True):
                place[...] = result

        module.machine.push(stream, "do", work)
        if self.profiler is not None:  # the real one waits for the end of the run then
            self.profiler.report_layer_time("__myl_Fused", 0.25)
        return True

    def _array(self, name: str, graph: Graph, addresses: dict[str, int]) -> np.ndarray:
        """A tensor's memory; all of it must lie in one allocation."""
        kind = self.engine.types[name]
        assert isinstance(kind, TensorType)
        dtype: DType = kind.dtype
        shape = self.get_tensor_shape(name)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.numpy.itemsize
        assert self.module.machine.inside(addresses[name], nbytes), f"{name}: {nbytes} bytes are in no allocation"
        flat = np.frombuffer((ctypes.c_char * nbytes).from_address(addresses[name]), np.uint8)
        return flat.view(dtype.numpy).reshape(shape)


class Refitter:
    def __init__(self, module: FakeTensorrt, engine: Engine) -> None:
        self.module, self.engine = module, engine
        self.model: bytes | None = None

    def get_missing_weights(self) -> list[str]:
        return [] if self.model is not None else ["w"]

    def refit_cuda_engine(self) -> bool:
        if self.module.takes_fault("refit"):
            self.module.say("IRefitter::refitCudaEngine: the imitation refits nothing")
            return False
        assert self.model is not None and BuilderFlag.REFIT in self.engine.flags
        self.engine.model, self.engine.graph, self.engine.weighted = self.model, load(self.model), True
        self.module.refits += 1
        return True


class OnnxParserRefitter:
    def __init__(self, module: FakeTensorrt, refitter: Refitter) -> None:
        self.module, self.refitter = module, refitter
        self.num_errors = 0

    def refit_from_bytes(self, model: bytes) -> bool:
        ours, theirs = load(model), load(self.refitter.engine.model)
        if [n.op_type for n in ours.nodes] != [n.op_type for n in theirs.nodes]:
            self.module.say("the weights are those of another model")
            return False
        self.refitter.model = bytes(model)
        return True
