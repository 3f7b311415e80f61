"""Execution providers that are vendors' plugin libraries: a class for each factory, as any other provider's."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from intarsia.ep.device import HOST, DataTransfer, Device
from intarsia.ep.hardware import EpDevice, HardwareDevice
from intarsia.ep.provider import CompileContext, ComputeCapability, ExecutionProvider, KernelLookup, Program, Support
from intarsia.errors import EPFail, ModelRequiresCompilation
from intarsia.graph.model import Graph, Node
from intarsia.machine import fork_safety
from intarsia.providers.plugin import contexts
from intarsia.providers.plugin.capability import CapabilityQuery, Claim, ask
from intarsia.providers.plugin.compiled_part import CompiledPart, FusedPart, Made, compile_parts
from intarsia.providers.plugin.contexts import TogetherCompiled
from intarsia.providers.plugin.factory import Factory
from intarsia.providers.plugin.interface.graph_view import OF_CONTEXTS, GraphView
from intarsia.providers.plugin.interface.hardware import KINDS, OrtEpDevice, OrtHardware
from intarsia.providers.plugin.kernel_program import KernelProgram, adds_float16
from intarsia.providers.plugin.kernel_registry import KernelEntry
from intarsia.providers.plugin.memory import PluginMemory, PluginTransfer, default_memory, memory_of
from intarsia.providers.plugin.options import PluginOptions
from intarsia.providers.plugin.plugin_ep import PluginEp
from intarsia.providers.plugin.profiling import EpProfiler, profiler_of
from intarsia.providers.plugin.survey import Survey

if TYPE_CHECKING:
    from intarsia.partition.partition import Partition


class PluginExecutionProvider(ExecutionProvider):
    """A provider of a plugin library. `provider_class` makes a class of it for each factory.

    Attributes:
        factory: what makes it.
        library_path: the file of its library.
        hardware: this machine's devices, as the plugin is told of them.
    """

    factory: ClassVar[Factory]
    library_path: ClassVar[str]
    hardware: ClassVar[Sequence[OrtHardware]]
    Options: ClassVar[type[Any]] = PluginOptions
    options_may_help: ClassVar[bool] = True
    own_contexts: ClassVar[bool] = True
    fused_operators: ClassVar[frozenset[str] | None] = frozenset(("Gelu", "HardSwish", "LayerNormalization", "Mish"))
    """Of opset 20 and before, which plugins have; the others are younger than most."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        if why := self.missing_for(self.options):
            raise EPFail(f"{self.name} cannot be used on this machine: {why}")
        self._lock = fork_safety.recursive_lock()
        self._surveyed: Survey | None = None
        self._claims: dict[str, Claim] = {}
        self._ep: PluginEp | None = None
        self._entries: dict[str, str] = self.options.entries(self.factory.name)
        self._parts = 0
        self._together = TogetherCompiled()
        self._model: Graph | None = None
        self._profiler: EpProfiler | None = None

    # the library and its devices

    @classmethod
    def unavailable(cls) -> str:
        return cls.missing_for(cls.Options())

    @classmethod
    def missing_for(cls, options: Any) -> str:
        if cls.taken_devices(options):
            return ""
        seen = ", ".join(map(str, cls.told_hardware(options))) or "none"
        return (
            f"{cls.factory.library.path.name} takes none of the devices that it was told of ({seen}); where it should run on "
            'one all the same, the options "intarsia.vendor_id" and "intarsia.device_type" say what it is told of them'
        )

    @classmethod
    def why_no_devices(cls) -> str:
        """Why it takes none of this machine's devices; "" where it takes some."""
        return cls.unavailable()

    @classmethod
    def incompatibility(cls, device: HardwareDevice) -> tuple[int, int, str]:
        """Why the plugin does not work on a device, as it says itself: bits of OrtDeviceEpIncompatibilityReason, its own
        number, and words; zeros and "" where it says nothing."""
        found = cls.factory.incompatibility(OrtHardware.of(device))
        return (found.reasons, found.code, found.notes) if found is not None else (0, 0, "")

    @classmethod
    def told_hardware(cls, options: PluginOptions) -> list[OrtHardware]:
        """The devices as the plugin is told of them with these options."""
        return [options.told(device) for device in cls.hardware]

    @classmethod
    def taken_devices(cls, options: PluginOptions) -> list[OrtEpDevice]:
        """The devices that the plugin takes with these options."""
        return cls.factory.devices(cls.told_hardware(options))

    @classmethod
    def ep_devices(cls) -> list[EpDevice]:
        return [device.device for device in cls.taken_devices(cls.Options())]

    @classmethod
    def library_version(cls) -> str:
        return cls.factory.version

    @classmethod
    def devices(cls) -> list[Device]:
        found = [_device(i, d.hardware) for i, d in enumerate(cls.taken_devices(cls.Options()))]
        return found or [HOST]

    @property
    def ep(self) -> PluginEp:
        """The plugin's provider, made when it is first needed."""
        with self._lock:
            if self._ep is None:
                devices = self.taken_devices(self.options)
                chosen = self.options.chosen(devices)
                self._ep = PluginEp(self.factory, chosen, self._entries)
            return self._ep

    def on_session(self, context: CompileContext) -> None:
        """Take the session's configuration entries; a provider that was made with others is made anew."""
        entries = {**context.config, **self.options.entries(self.factory.name)}
        with self._lock:
            if entries != self._entries:
                self._entries, self._ep, self._surveyed, self._profiler = entries, None, None, None
                self.__dict__.pop("_memory", None)
                self.__dict__.pop("_computes_float16", None)

    # what it takes

    def supports(self, node: Node, graph: Graph) -> Support:
        with self._lock:
            return self._survey(graph).answer(node)

    def get_capability(self, graph: Graph, kernel_lookup: KernelLookup) -> list[ComputeCapability]:
        free = [i for i in range(len(graph.nodes)) if kernel_lookup.is_free(i)]
        with self._lock:
            claims = self._survey(graph).claims(free)
        self._claims.update((_key(graph, claim.nodes), claim) for claim in claims)
        return [ComputeCapability(claim.nodes, whole=claim.fused) for claim in claims]

    def _survey(self, graph: Graph) -> Survey:
        if self._surveyed is None or self._surveyed.graph is not graph:
            allowed = self.options.allows_deviations
            self._surveyed = Survey(graph, self.ep, allow_deviations=allowed, float16=lambda: self._computes_float16)
        return self._surveyed

    def reads_on_host(self, node: Node, index: int) -> bool:
        with self._lock:
            found = self._surveyed.kernel(node) if self._surveyed is not None and self.ep.registry is not None else ""
        return isinstance(found, KernelEntry) and found.definition.input_on_host(index)

    def compile(self, graph: Graph, context: CompileContext) -> Program:
        claim = self._claims.get(_key(graph, range(len(graph.nodes))))
        registry = self.ep.registry
        with self._lock:
            given = contexts.is_context(graph)
            if registry is not None and (claim is None or not claim.fused) and not given:
                return KernelProgram(self.ep, registry, graph, self._memory, context.on_step)
            try:
                made = self._together.made(graph, lambda graphs: self._made(graphs, context))
            except EPFail as error:
                if not given:
                    raise
                raise ModelRequiresCompilation(f"{error}; compile the original model again (intarsia.ModelCompiler)") from error
            if self._profiler is None:
                self._profiler = profiler_of(self.ep, context)
            return CompiledPart(self.ep, made, memory=self._memory, on_step=context.on_step, profiler=self._profiler)

    def _made(self, graphs: Sequence[Graph], context: CompileContext) -> list[Made]:
        """What the plugin makes of parts.

        Raises:
            EPFail: it cannot, or not without weights, where the session wants that.
        """
        contexts.check_weightless(self.ep, self._entries)
        parts: list[FusedPart] = []
        for graph in graphs:
            claim = self._claims.get(_key(graph, range(len(graph.nodes))))
            shown = contexts.checked(graph, context) if contexts.is_context(graph) else graph
            self._parts += 1
            parts.append(FusedPart(shown, f"{self.name}_{self._parts}", claim is None or claim.drops_constants))
        return compile_parts(self.ep, parts)

    # parts that were compiled ahead

    def on_partitioned(self, split: Partition) -> None:
        """Parts that become EPContext nodes, or are such nodes, are compiled together; the plugin is asked about the latter."""
        self._model = split.graph
        mine = [part for part in split.parts if part.provider is self]
        given = [part for part in mine if contexts.is_context(part.graph)]
        if self._entries.get("ep.context_enable") == "1" and self.ep.registry is None:
            self._together.expect([part.graph for part in mine])
        elif given:
            devices = self.options.chosen(self.taken_devices(self.options))
            contexts.check_compatibility(self.factory, devices, split.graph.metadata.properties, self._entries)
            with self._lock:
                query = CapabilityQuery(self.ep.members, self.ep.logger)
                answer = ask(query, split.graph, sorted(i for part in given for i in part.nodes))
            self._together.expect([part.graph for part in given if not answer.taken.isdisjoint(part.nodes)])

    def context_node(self, program: Program) -> Node | None:
        made = program.context if isinstance(program, CompiledPart) else None
        return made and replace(made, attributes={**OF_CONTEXTS, **made.attributes})  # as onnxruntime writes them

    def compatibility_info(self) -> str:
        """What the plugin says of the model that was compiled last; "" where it says nothing."""
        if self._model is None or not self.ep.members.has("GetCompiledModelCompatibilityInfo"):
            return ""
        said = self.ep.members.call("GetCompiledModelCompatibilityInfo", GraphView(self._model).handle)
        return said.decode("utf-8", "replace") if said else ""

    @classmethod
    def model_compatibility(cls, options: PluginOptions, info: str) -> int:
        """What the plugin says of a model that was compiled ahead, by the words in its metadata: an
        OrtCompiledModelCompatibility."""
        return contexts.compatibility(cls.factory, options.chosen(cls.taken_devices(options)), info)

    @cached_property
    def _computes_float16(self) -> bool:
        """Whether a sum of two numbers of float16 comes out right: some plugins take such nodes and fail in a run."""
        registry = self.ep.registry
        return registry is not None and adds_float16(self.ep, registry, self._memory)

    def set_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Hand options between runs to the plugin.

        Raises:
            EPFail: it has none, or does not take these; of the kind that it says.
        """
        keys, values = ([text.encode() for text in texts] for texts in (options, options.values()))
        arrays = [(ctypes.c_char_p * len(texts))(*texts) for texts in (keys, values)]
        self.ep.members.call("SetDynamicOptions", *map(ctypes.addressof, arrays), len(options))

    # its memory

    @cached_property
    def _memory(self) -> PluginMemory | None:
        """The memory of its device; None where that is the host's."""
        return PluginMemory(self.ep, default_memory(self.ep), self.device) if not self.device.host else None

    @cached_property
    def device(self) -> Device:
        """By what the plugin says of its devices, so that it need not be started for that."""
        chosen = self.options.chosen(self.taken_devices(self.options))
        info = memory_of(chosen)
        if info.on_host:
            return HOST
        hardware = chosen[0].hardware
        kind = f"{self.factory.name.removesuffix('ExecutionProvider').lower()}-plugin"
        described = hardware.metadata.values.get("Description", "")
        return Device(kind, info.place.device_id, vendor=hardware.vendor, description=described)

    def get_data_transfer(self) -> DataTransfer:
        return PluginTransfer(self._memory) if self._memory is not None else super().get_data_transfer()


def _key(graph: Graph, nodes: Sequence[int]) -> str:
    """What names a group of nodes in the graph and in its part."""
    return "\n".join(next((n for n in graph.nodes[i].outputs if n), "") for i in nodes)


def _device(index: int, hardware: OrtHardware) -> Device:
    kind = KINDS[hardware.type]
    return Device(kind, index, host=True, vendor=hardware.vendor, description=hardware.metadata.values.get("Description", ""))


def provider_class(factory: Factory, hardware: Sequence[OrtHardware], name: str = "") -> type[PluginExecutionProvider]:
    """The class of a factory's providers.

    Args:
        hardware: this machine's devices.
        name: what it is called; by default as the plugin calls itself.
    """
    members: Mapping[str, Any] = {
        "name": name or factory.name, "factory": factory, "hardware": tuple(hardware), "vendor": factory.vendor,
        "library_path": str(factory.library.path), "__module__": __name__,
        "__doc__": f"{factory.name} {factory.version} of {factory.library.path.name}.",
    }  # fmt: skip
    return type(name or factory.name, (PluginExecutionProvider,), dict(members))
