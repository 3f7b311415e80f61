"""TensorrtExecutionProvider and NvTensorRTRTXExecutionProvider: whole parts by NVIDIA's compilers, on NVIDIA's GPUs.

One class over two libraries: full TensorRT (10 or later) where it is installed, TensorRT for RTX otherwise. Parts read and
write the memory of the CUDA device that CUDAExecutionProvider uses, so that neighbours hand tensors over without copies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from intarsia.ep.device import Allocator, DataTransfer, Device, DeviceTensor
from intarsia.ep.provider import CompileContext, ComputeCapability, KernelLookup, Program
from intarsia.errors import EPFail
from intarsia.graph.model import Graph
from intarsia.printable import get_logger
from intarsia.providers.missing_libraries import looked_for
from intarsia.providers.tensorrt import library as libraries
from intarsia.providers.tensorrt.library import FULL, RTX, Library, told
from intarsia.providers.tensorrt.options import RtxOptions, TensorrtOptions, without_effect
from intarsia.providers.tensorrt.profiles import Profile, Shape3
from intarsia.providers.tensorrt.profiles import parse as parse_profiles
from intarsia.providers.vendor.artifact_cache import ArtifactCache, part_key
from intarsia.providers.vendor.program import Executable, Interface
from intarsia.providers.vendor.provider import VendorExecutionProvider
from intarsia.providers.vendor.shape_profile import is_open, sizes_of

if TYPE_CHECKING:
    from intarsia.device.cuda import CudaDevice
    from intarsia.providers.tensorrt.survey import TensorrtSurvey
    from intarsia.providers.tensorrt.translator import TensorrtTranslator, TranslatedPart

_logger = get_logger("intarsia.providers.tensorrt")
TAKEN_WHOLE = frozenset((
    "Gelu", "GroupNormalization", "HardSwish", "LayerNormalization", "Mish", "RMSNormalization", "RotaryEmbedding", "Swish",
))  # fmt: skip
"""Fused operators that the parser has; Attention is written out, since most of its forms do not build."""


class TensorrtExecutionProvider(VendorExecutionProvider):
    """Takes what the installed library's parser reads and computes as ONNX says (`refusals`)."""

    name: ClassVar[str] = "TensorrtExecutionProvider"
    Options: ClassVar[type[Any]] = TensorrtOptions
    libraries: ClassVar[tuple[str, ...]] = (FULL, RTX)
    option_prefix: ClassVar[str] = "trt_profile"
    part_microseconds = 60.0
    copy_gbyte_per_s = 20.0
    gflop_per_s = 20000.0
    fused_operators: ClassVar[frozenset[str] | None] = TAKEN_WHOLE
    evaluates_shapes: ClassVar[bool] = True
    flushes_denormals = True
    not_exact: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("ArgMax", "ArgMin", "Hardmax", "TopK"), "which of several equal elements comes first is not said"),
        **dict.fromkeys(("Max", "Min", "Clip", "Relu", "MaxPool", "ReduceMax", "ReduceMin"), "NaN may be lost"),
        "ReduceLogSumExp": "of infinities it is NaN",
        **dict.fromkeys(("Gather", "GatherElements", "GatherND"), "an index out of range gives 0, and no error"),
    }

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.settings = self.options.settings()
        self._given_profiles = parse_profiles(self.settings.profiles, self.option_prefix)
        self._profiles: tuple[Profile, ...] = self._given_profiles
        ignored = without_effect(self.options)
        if getattr(self.options, "trt_cuda_graph_enable", False) and not self.library.rtx:
            ignored.append("trt_cuda_graph_enable")  # launches become graphs by TensorRT for RTX alone
        if ignored:
            _logger.warning("%s: no effect with %s: %s", self.name, self.library.title, ", ".join(ignored))
        for path in self.settings.plugins:
            self._load_plugins(path)

    # what is there

    @classmethod
    def unavailable(cls) -> str:
        from intarsia.device import cuda

        why = libraries.missing(cls.libraries) or cuda.missing()
        return f"{why}. {looked_for(cls.name)}".strip() if why else ""

    @classmethod
    def missing_for(cls, options: Any) -> str:
        from intarsia.device.gpu import no_such_device

        return cls.unavailable() or no_such_device(options.device_id, cls.devices())

    @classmethod
    def library_version(cls) -> str:
        found = libraries.find(cls.libraries)
        return found.title if found is not None else ""

    @classmethod
    def devices(cls) -> list[Device]:
        from intarsia.device.cuda import devices

        return devices()

    @property
    def library(self) -> Library:
        """The first of `libraries` that is installed."""
        found = libraries.find(self.libraries)
        if found is None:
            raise EPFail(f"{self.name} cannot be used on this machine: {libraries.missing(self.libraries)}")
        return found

    @property
    def gpu(self) -> CudaDevice:
        """The device, shared with CUDAExecutionProvider where that has the same options."""
        from intarsia.device.cuda import Setup, open_device

        return open_device(Setup(self.options.device_id, stream=self.options.user_compute_stream))

    @property
    def device(self) -> Device:
        return self.gpu.device

    def get_data_transfer(self) -> DataTransfer:
        from intarsia.device.gpu import GpuTransfer

        return GpuTransfer(self.gpu)

    def get_allocator(self) -> Allocator:
        from intarsia.device.gpu import GpuAllocator

        return GpuAllocator(self.gpu)

    def own(self, value: Any) -> DeviceTensor:
        from intarsia.device.gpu import GpuTransfer, Slice
        from intarsia.device.memory import brought

        gpu = self.gpu
        if not isinstance(value, DeviceTensor):
            return GpuTransfer(gpu).copy_in(np.ascontiguousarray(value), gpu.device)
        source = brought(gpu, value)
        place = Slice(gpu.allocate(source.handle.nbytes), 0, source.handle.nbytes)
        gpu.copy(source.handle, place)
        return DeviceTensor(value.dtype, value.shape, gpu.device, place)

    def _load_plugins(self, path: str) -> None:
        import ctypes

        try:
            ctypes.CDLL(path, mode=getattr(ctypes, "RTLD_GLOBAL", 0))
        except OSError as error:
            raise EPFail(f"{self.name}: the plugins in {path!r} cannot be loaded: {error}") from error

    # what it takes

    def make_translator(self) -> TensorrtTranslator:
        from intarsia.providers.tensorrt.chips import CHIPS
        from intarsia.providers.tensorrt.translator import made_translator

        settings = self.options.settings()
        chips = tuple(CHIPS[name] for name in settings.chips) or (self.gpu.architecture,)
        return made_translator(self.library, settings, self.options.in_float32, chips)

    def make_survey(self, graph: Graph) -> TensorrtSurvey:
        from intarsia.providers.tensorrt.survey import TensorrtSurvey

        return TensorrtSurvey(graph, self.make_translator())

    def get_capability(self, graph: Graph, kernel_lookup: KernelLookup) -> list[ComputeCapability]:
        from intarsia.providers.tensorrt.quantized import OPERATORS as QUANTIZERS

        self._profiles = tuple(profile.resolved(graph) for profile in self._given_profiles)
        if getattr(self.options, "trt_int8_enable", False) and not any(n.op_type in QUANTIZERS for n in graph.nodes):
            _logger.warning("%s: trt_int8_enable has no effect: quantise the model before, it has no QuantizeLinear", self.name)
        offered = super().get_capability(graph, kernel_lookup)
        if self.settings.least_nodes <= 1:
            return offered
        members = [nodes[0] for nodes in (offer.nodes for offer in offered)]
        large = {i for group in _neighbours(graph, members) if len(group) >= self.settings.least_nodes for i in group}
        return [offer for offer in offered if offer.nodes[0] in large]

    # how a part becomes an engine

    def compile(self, graph: Graph, context: CompileContext) -> Program:
        profiles = self._part_profiles(graph)
        if not profiles:
            return super().compile(graph, context)
        return self.program(
            graph, context, static=False, admits=lambda shapes: any(p.admits(sizes_of(graph, shapes)) for p in self._profiles)
        )

    def _part_profiles(self, graph: Graph) -> list[dict[str, Shape3]]:
        """The shapes of a part's inputs, by profile; [] where its sizes do not vary, or do not follow from the profiles."""
        if not is_open(graph) or not self._profiles:
            return []
        found = [profile.of_part(graph) for profile in self._profiles]
        return [shapes for shapes in found if shapes is not None] if all(shapes is not None for shapes in found) else []

    def build(self, translated: TranslatedPart, context: CompileContext) -> bytes:
        from intarsia.providers.tensorrt.cached_results import TimingCache
        from intarsia.providers.tensorrt.engine_builder import BuildRequest, build
        from intarsia.providers.tensorrt.engine_file import EngineFile

        times = TimingCache(self.library, self.gpu, self.settings.timing_cache_path)
        request = BuildRequest(self.settings, self._part_profiles(translated.source), self.settings.chips)
        with contextlib.closing(translated), self.gpu.working():
            made = build(translated, request, times.find())
        times.keep(made.timing_cache)
        return EngineFile(made.engine, self.settings.stripped).to_bytes()

    def load_part(self, artifact: bytes, interface: Interface, graph: Graph, context: CompileContext) -> Executable:
        from intarsia.providers.tensorrt.cached_results import KernelCache
        from intarsia.providers.tensorrt.engine_file import EngineFile
        from intarsia.providers.tensorrt.executable import RuntimeOptions, TensorrtExecutable
        from intarsia.providers.tensorrt.refit import refit

        stored = EngineFile.of(artifact)
        engine = self._deserialized(stored.engine)
        if stored.stripped:
            with self.gpu.working():
                refit(self.library, engine, self.translator.legalized(graph))
                artifact = EngineFile(bytes(engine.serialize())).to_bytes()
        kernels = KernelCache(self.library, self.gpu, self.settings.runtime_cache_path, stored.engine)
        options = RuntimeOptions(self.settings.cuda_graph, context.on_step, kernels.find, kernels.keep)
        return TensorrtExecutable(self.library, self.gpu, engine, artifact, interface, options)

    def _deserialized(self, data: bytes) -> Any:
        library, gpu = self.library, self.gpu
        with gpu.working(), library.messages.collected() as lines:
            runtime = library.module.Runtime(library.logger)
            why = _invalid(library, runtime, data)
            engine = None if why else runtime.deserialize_cuda_engine(data)
        if engine is None:
            raise EPFail(
                f"{library.title} does not load an engine on {gpu.device.description} (compute capability "
                f"{gpu.architecture / 10}): {why or told(lines)}"
            )
        return engine

    # what an engine depends on

    def device_settings(self) -> Mapping[str, str]:
        settings = self.settings
        names = ("workspace_nbytes", "shared_nbytes", "stripped", "chips", "level", "streams", "sparse", "hardware_compatible")
        return {
            **{name: str(getattr(settings, name)) for name in names},
            "profiles": " | ".join(f"{p} {dict(p.symbols)}" for p in self._profiles),
        }

    def device_versions(self) -> Mapping[str, str]:
        gpu = self.gpu
        return {"gpu": f"{gpu.device.description}, compute capability {gpu.architecture / 10}"}

    def part_key(self, graph: Graph) -> str:
        """Of engines without weights the structure alone."""
        return part_key(graph, weights=not self.settings.stripped)

    def artifact_cache(self) -> ArtifactCache:
        if not self.settings.cache:
            return ArtifactCache()
        from pathlib import Path

        folder = Path(self.settings.cache_path)
        return ArtifactCache(str(folder / self.settings.cache_prefix if self.settings.cache_prefix else folder))


class NvTensorRTRTXExecutionProvider(TensorrtExecutionProvider):
    """The same by TensorRT for RTX alone, with onnxruntime's options for it."""

    name: ClassVar[str] = "NvTensorRTRTXExecutionProvider"
    Options: ClassVar[type[Any]] = RtxOptions
    libraries: ClassVar[tuple[str, ...]] = (RTX,)
    option_prefix: ClassVar[str] = "nv_profile"


def _invalid(library: Library, runtime: Any, data: bytes) -> str:
    """Why a library says that an engine does not run here, before it is loaded; "" where it says nothing."""
    if not hasattr(runtime, "get_engine_validity"):
        return ""
    validity, diagnostics = runtime.get_engine_validity(data[: runtime.engine_header_size])
    if validity != library.module.EngineValidity.INVALID:
        return ""
    known = library.module.EngineInvalidityDiagnostics.__members__
    names = [name.lower().replace("_", " ") for name, value in known.items() if int(diagnostics) & int(value)]
    return ", ".join(names) or "it is invalid"


def _neighbours(graph: Graph, members: list[int]) -> list[list[int]]:
    """The nodes in groups that values connect."""
    group = {i: [i] for i in members}
    maker = {name: i for i in members for name in graph.nodes[i].outputs if name}
    for i in members:
        for name in graph.nodes[i].inputs:
            other = maker.get(name)
            if other is not None and group[other] is not group[i]:
                joined = [*group[other], *group[i]]
                group.update(dict.fromkeys(joined, joined))
    return list({id(found): found for found in group.values()}.values())
