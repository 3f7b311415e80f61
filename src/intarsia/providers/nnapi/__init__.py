"""NnapiExecutionProvider: Android's accelerators through its Neural Networks API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from intarsia.ep.provider import CompileContext, Device
from intarsia.errors import EPFail, InvalidArgument
from intarsia.graph.model import Graph
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.missing_libraries import looked_for
from intarsia.providers.nnapi import library as nnapi_library
from intarsia.providers.nnapi.operands import check_level
from intarsia.providers.vendor.artifact_cache import ArtifactCache, count_compile
from intarsia.providers.vendor.program import Interface
from intarsia.providers.vendor.provider import VendorExecutionProvider
from intarsia.providers.vendor.translator import Untranslatable


@dataclass(frozen=True)
class NnapiOptions:
    """onnxruntime's flags of this provider, and options of its own.

    Attributes:
        NNAPI_FLAG_USE_FP16: float32 may be computed in float16 ("relaxed"), where a device does so.
        NNAPI_FLAG_USE_NCHW: images stay NCHW as ONNX has them, instead of NHWC; from feature level 29 on.
        NNAPI_FLAG_CPU_DISABLED: use no device that is a CPU, NNAPI's reference implementation among them; from 29 on.
        NNAPI_FLAG_CPU_ONLY: use CPUs alone; from 29 on.
        device: use the device of this name alone; "": all that the flags leave. From 29 on.
        execution_preference: what devices optimise for.
        priority: of runs, beside those of other programs; from 30 on.
        memory: how tensors reach a device: "shared" memory that both have mapped, "pointers" that the library copies from, or
            memory of the drivers ("domains"; from 30 on).
        feature_level: write models for this level at most (27 to 31, 1000006 to 1000008); 0: what the devices have.
        cache_dir: folder of compiled parts; "": Intarsia's cache.
        precision: "float16": weights and what is computed of them are float16, but for operators that lose too much by it; what
            a part takes and gives stays float32. From feature level 29 on.
    """

    NNAPI_FLAG_USE_FP16: bool = False
    NNAPI_FLAG_USE_NCHW: bool = False
    NNAPI_FLAG_CPU_DISABLED: bool = False
    NNAPI_FLAG_CPU_ONLY: bool = False
    device: str = ""
    execution_preference: Literal["low_power", "fast_single_answer", "sustained_speed"] = "fast_single_answer"
    priority: Literal["low", "medium", "high"] = "medium"
    memory: Literal["shared", "pointers", "domains"] = "shared"
    feature_level: int = 0
    cache_dir: str = ""
    precision: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        if self.NNAPI_FLAG_CPU_DISABLED and self.NNAPI_FLAG_CPU_ONLY:
            raise InvalidArgument("NNAPI_FLAG_CPU_DISABLED and NNAPI_FLAG_CPU_ONLY leave no device; set one of them")
        if self.feature_level:
            check_level(self.feature_level)


class NnapiExecutionProvider(VendorExecutionProvider):
    """Writes parts as NNAPI models, for the feature level of the devices, and asks these which operations they run."""

    name: ClassVar[str] = "NnapiExecutionProvider"
    Options: ClassVar[type[Any]] = NnapiOptions
    quantized_steps: ClassVar[int] = 1
    stop_operators: ClassVar[frozenset[str]] = frozenset(("NonMaxSuppression",))  # onnxruntime's
    not_exact: ClassVar[Mapping[str, str]] = {
        "Attention": "NaN of positions that a mask hides may be lost",
        "TopK": "NaN is not the largest number",
        "QuantizeLinear": "of NaN gives the zero point, or what the device makes of it",
    }

    @classmethod
    def unavailable(cls) -> str:
        why = nnapi_library.missing()
        return f"{why}. {looked_for(cls.name)}".rstrip(". ") if why else ""

    @classmethod
    def missing_for(cls, options: Any) -> str:
        if nnapi_library.missing():
            return ""
        found = nnapi_library.library()
        devices = found.devices()
        wanted = [name for name in ("NNAPI_FLAG_CPU_DISABLED", "NNAPI_FLAG_CPU_ONLY") if getattr(options, name)]
        wanted += ["device"] if options.device else []
        if found.level < 29 and (wanted or options.NNAPI_FLAG_USE_NCHW):
            named = [*wanted, *(["NNAPI_FLAG_USE_NCHW"] if options.NNAPI_FLAG_USE_NCHW else [])]
            return f"{', '.join(named)}: NNAPI has this from feature level 29 on (Android 10), and this is {found.level}"
        if devices and not chosen_devices(options, devices):
            names = ", ".join(f"{d.name} ({d.kind})" for d in devices)
            return f"{' and '.join(wanted) or 'its options'} leave no device; NNAPI lists {names}"
        return ""

    @classmethod
    def devices(cls) -> list[Device]:
        from intarsia.ep.device import HOST

        return [HOST]

    @classmethod
    def library_version(cls) -> str:
        return str(nnapi_library.library().level) if not nnapi_library.missing() else ""

    def __init__(self, options: Any = None) -> None:
        from intarsia.providers.nnapi.compilation import CompiledModel

        self._fresh: dict[bytes, CompiledModel] = {}
        super().__init__(options)

    def make_translator(self) -> Any:
        from intarsia.providers.nnapi.compilation import CompileSettings
        from intarsia.providers.nnapi.translator import NnapiTranslator, half_precision
        from intarsia.providers.nnapi.writer import Target

        self._library = found = nnapi_library.library()
        options = self.options
        devices = chosen_devices(options, found.devices())
        level = max((d.level for d in devices), default=found.level)
        level = min(level, found.level, options.feature_level or level)
        self._settings_of_compiler = CompileSettings(tuple(devices), options.execution_preference, options.priority)
        target = Target(level, options.NNAPI_FLAG_USE_NCHW, options.NNAPI_FLAG_USE_FP16)
        names = ", ".join(f"{d.name} {d.version} {d.level}" for d in devices)
        half = half_precision(options.precision == "float16", level, "precision")
        return NnapiTranslator(target, names, self._devices_refuse, half)

    def _devices_refuse(self, model: Any) -> str:
        from intarsia.providers.nnapi.compilation import not_supported

        try:
            return not_supported(self._library, model, self._settings_of_compiler.devices)
        except nnapi_library.NnapiError as error:
            return str(error)

    def device_versions(self) -> Mapping[str, str]:
        devices = self._settings_of_compiler.devices
        return {"runtime": str(self._library.level), **{d.name: f"{d.version}, feature level {d.level}" for d in devices}}

    def device_settings(self) -> Mapping[str, str]:
        settings = self._settings_of_compiler
        names = ", ".join(d.name for d in settings.devices)
        return {"devices": names, "preference": settings.preference, "priority": settings.priority}

    def artifact_cache(self) -> ArtifactCache:
        return ArtifactCache(self.options.cache_dir)

    def executable_for(self, graph: Graph, context: CompileContext, tell: Callable[[str], None]) -> Any:
        """Of sizes that NNAPI does not take (no elements, among others), on the CPU."""
        try:
            return self.executable(graph, context, tell)
        except EPFail as error:
            if not isinstance(error.__cause__, Untranslatable):
                raise
            tell(f"for some sizes computed on the CPU: {error.__cause__.reason}")
        from intarsia.providers.nnapi.executable import HostExecutable

        interface, rest = Interface.of(graph)
        return HostExecutable(rest, context), interface

    def build(self, translated: Any, context: CompileContext) -> bytes:
        from intarsia.providers.nnapi.compilation import compile_artifact

        made = compile_artifact(self._library, translated.to_bytes(), self._settings_of_compiler, {})
        self._fresh[made.artifact] = made
        return made.artifact

    def load(self, artifact: bytes, interface: Interface, context: CompileContext) -> Any:
        from intarsia.providers.nnapi.compilation import Artifact, compile_artifact
        from intarsia.providers.nnapi.executable import Memory, NnapiExecutable, has_shared_memory

        made = self._fresh.pop(artifact, None)
        if made is None:
            found = Artifact.of(artifact)
            if not found.files:
                count_compile(self.name)  # drivers cached nothing: they compile at every start
            made = compile_artifact(self._library, found.model, self._settings_of_compiler, found.files)
        memory: Memory = self.options.memory if has_shared_memory() else "pointers"
        return NnapiExecutable(self._library, made, interface, memory, self._settings_of_compiler.devices)


def chosen_devices(options: NnapiOptions, devices: list[nnapi_library.NnapiDevice]) -> list[nnapi_library.NnapiDevice]:
    """The devices that options leave, in the library's order."""
    return [
        d for d in devices
        if (not options.device or d.name == options.device)
        and not (options.NNAPI_FLAG_CPU_DISABLED and d.cpu)
        and (d.cpu or not options.NNAPI_FLAG_CPU_ONLY)
    ]  # fmt: skip


__all__ = ["NnapiExecutionProvider", "NnapiOptions"]
