"""The provider protocol: what a kind of hardware or a library implements to run parts of a model.

A provider needs a `name`, either `supports` and `compile`, or only a kernel registry; and, when its tensors are not in host
memory, a `device` and a `DataTransfer`. Everything else has a default here.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from intarsia.ep.arena import Arena
from intarsia.ep.capability import ComputeCapability, Kernel, KernelEntry, KernelLookup, KernelRegistry, Support
from intarsia.ep.device import HOST, Allocator, DataTransfer, Device, DeviceTensor, HostAllocator
from intarsia.ep.program import BoundCall, NodeReport, Program, RunContext
from intarsia.errors import EPFail, UnknownOption
from intarsia.graph.model import Graph, Node
from intarsia.lazy_dataclass import dataclass
from intarsia.run_status import CURRENT_RUN

if TYPE_CHECKING:
    from intarsia.ep.hardware import EpDevice, EpMemory, HardwareDevice
    from intarsia.partition.partition import Partition

__all__ = [
    "CURRENT_RUN",
    "HOST",
    "Allocator",
    "BoundCall",
    "CompileContext",
    "ComputeCapability",
    "DataTransfer",
    "Device",
    "DeviceTensor",
    "EpDevice",
    "EpMemory",
    "ExecutionProvider",
    "HardwareDevice",
    "HostAllocator",
    "Kernel",
    "KernelEntry",
    "KernelLookup",
    "KernelRegistry",
    "NoOptions",
    "NodeReport",
    "NotSaved",
    "Program",
    "RunContext",
    "SavedProgram",
    "StepObserver",
    "Support",
]


def __getattr__(name: str) -> Any:
    """Devices are for who lists hardware."""
    if name not in ("EpDevice", "EpMemory", "HardwareDevice"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from intarsia.ep import hardware

    return getattr(hardware, name)


class StepObserver(Protocol):
    """Is told of each kernel of a run."""

    def __call__(self, name: str, nodes: Sequence[str], start_ns: int, end_ns: int, nbytes: int = 0, /) -> None: ...


@dataclass(frozen=True)
class DeviceEvent:
    """What a device's own profiler measured, for a session's profile.

    Attributes:
        category: "Session", "Node", "Kernel" or "Api".
        start_ns, end_ns: as `time.perf_counter_ns`.
        thread: its number in the trace.
        arguments: what else is known, by name.
    """

    category: str
    name: str
    start_ns: int
    end_ns: int
    thread: int = 0
    arguments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CompileContext:
    """What the session requires of a compiled part.

    Attributes:
        intra_op_num_threads: threads one run may use; 0: as many as the machine gives this process.
        deterministic: only kernels whose result does not depend on timing or thread count.
        config: session configuration entries (`SessionOptions.add_session_config_entry`).
        on_step: where a profile is wanted, called after each kernel of a run with what it is, the names of its nodes, and
            when it began and ended (`time.perf_counter_ns`), and where known the bytes it read and wrote.
        collect_from: where a profile is wanted, takes a function that gives what a device measured since it was called last,
            which is called when the profile is read; gives when the profile began (`time.perf_counter_ns`).
        memory: where intermediate tensors lie: the session's arena, with its limit.
        inter_op_num_threads: branches of small steps that may run at the same time; 0: as many as threads, 1: none.
        parallel: whether the user wants them also where they spare little (`ExecutionMode.ORT_PARALLEL`).
        read_compiled: gives the bytes of a compiled part that a model keeps outside, by name; None: they are files.
    """

    intra_op_num_threads: int = 0
    deterministic: bool = False
    config: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    on_step: StepObserver | None = None
    collect_from: Callable[[Callable[[], Iterable[DeviceEvent]]], int] | None = field(default=None, compare=False, repr=False)
    memory: Arena = field(default_factory=Arena, compare=False, repr=False)
    read_compiled: Callable[[str], memoryview] | None = field(default=None, compare=False, repr=False)
    inter_op_num_threads: int = 0
    parallel: bool = False


class NotSaved(Exception):
    """A program cannot be cached; says why.

    `outputs`: names of values whose nodes are in the way, where a program without them could be cached.
    """

    def __init__(self, why: str, outputs: Iterable[str] = ()) -> None:
        super().__init__(why)
        self.outputs = frozenset(outputs)


@dataclass(frozen=True)
class SavedProgram:
    """A program as bytes: `head`, and `parts`, which are large and are returned as one block in memory.

    `scattered_nbytes`: at the end of the block, what a run reads here and there: tables of which data choose the rows.
    """

    head: bytes
    parts: Sequence[bytes | memoryview] = ()
    scattered_nbytes: int = 0


@dataclass(frozen=True)
class NoOptions:
    """For providers without options."""


class ExecutionProvider:
    """Base class of all providers: which nodes a kind of hardware or a library takes, and how it runs them.

    | group | methods | when they are called |
    |---|---|---|
    | must | `supports`, `compile` | a session is made |
    | may | `unavailable`, `missing_for`, `device`, `get_capability`, `reads_on_host`, `get_kernel_registry`, \
`get_data_transfer`, `get_allocator` | a session is made; transfers: in runs |
    | lifetime | `devices`, `ep_devices`, `emulated`, `library_version`, `warm_up`, `on_session`, `on_partitioned`, `share`, \
`save`, `restore`, `context_node`, `compatibility_info`, `check_compatibility`, \
`model_compatibility`, `set_dynamic_options`, `release_graphs` \
| devices are listed; a model is compiled, saved, loaded; options change |

    `supports` and `compile` have a default where `get_kernel_registry` gives kernels. A session calls all of these in the
    thread that makes it, and `get_data_transfer` in all threads that run it; sessions that were given one instance may call
    it at the same time. An `EPFail` gives the nodes to the next provider where the user allowed that; so does any exception
    that is not Intarsia's own, which counts as a crash of the provider. docs/custom-providers.md has this at length.

    Attributes:
        name: the name users give in `providers=[...]`; by custom it ends in "ExecutionProvider".
        Options: a frozen dataclass; its fields are the options, their types and defaults what is accepted.
        copy_latency_us: microseconds that one copy between host and device takes at least; this and the next two are rough,
            and decide whether a few nodes are worth their copies.
        copy_gbyte_per_s: 10^9 bytes per second of such a copy.
        gflop_per_s: 10^9 floating-point operations per second of the device.
        part_microseconds: microseconds that calling one part costs by itself: a part in host memory that has less work than
            this is left to the next provider in host memory.
        fused_operators: which of the operators that the optimizer puts instead of several nodes (Gelu, LayerNormalization,
            Attention, ...: `partition.decompose.FUSED`) it takes as they are. The others are decomposed before it is asked,
            where it takes all the pieces. None: it is asked about all as they are.
        evaluates_shapes: integer shape arithmetic may be given to it although its memory is not the host's: it evaluates that
            on the host, before a run.
        not_exact: operators that it takes although it computes NaN, infinities or the borders of the type otherwise than ONNX
            says ("com.microsoft::" before those of that domain), and how. Documented, and for no ordinary number.
        quantized_steps: by how many steps of its scale a result of QLinearConv and its kind may differ, where what computes it
            rounds otherwise than ONNX says.
        options_may_help: whether options can make it work where it does not by default: only `missing_for` decides then.
        stop_operators: operators that it is not given, nor what depends on their results (`partition.stop_operators`).
        own_contexts: whether its compiled parts are EPContext nodes of its own format: `context_node` makes them, and `compile`
            is given them.
        flushes_denormals: whether it may take numbers below the least normal one (float32: 1.18e-38) for 0.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Any]] = NoOptions
    copy_latency_us: float = 15.0
    copy_gbyte_per_s: float = 10.0
    gflop_per_s: float = 2000.0
    part_microseconds: float = 0.0
    fused_operators: ClassVar[frozenset[str] | None] = None
    evaluates_shapes: ClassVar[bool] = False
    not_exact: ClassVar[Mapping[str, str]] = {}
    quantized_steps: ClassVar[int] = 0
    stop_operators: ClassVar[frozenset[str]] = frozenset()
    own_contexts: ClassVar[bool] = False
    flushes_denormals: ClassVar[bool] = False
    options_may_help: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        honour_old_names(cls)

    def __init__(self, options: Any = None) -> None:
        self.options = options if options is not None else self.Options()

    # must: what it takes, and how that runs

    def supports(self, node: Node, graph: Graph) -> Support:
        """Whether this provider can run `node` of `graph`, and if not, why. By default: whether a kernel is registered for it.

        Args:
            node: of the optimised graph, with its version resolved; also a node of another provider, for `explain()`.
            graph: has the types of all values (`graph.type_of(name)`), and constants.
        """
        registry = self.get_kernel_registry()
        if registry is None:
            return Support.no(f"{self.name} has no kernels and does not say what it supports", code="no-kernel")
        found = registry.find(node, graph)
        return found if isinstance(found, Support) else Support.yes()

    def compile(self, graph: Graph, context: CompileContext) -> Program:
        """Compile one part of a model. By default: a program that runs its nodes one by one with the registered kernels.

        Args:
            graph: the part's nodes in execution order; its inputs and outputs are those of the program.
            context: the session's threads, configuration entries and arena.

        Raises:
            EPFail: the part cannot be compiled; the next provider gets its nodes where the user allowed that.
        """
        from intarsia.ep.node_program import kernel_program

        return kernel_program(self, graph)

    # may: where it works, what it takes in groups, how tensors reach it

    @classmethod
    def unavailable(cls) -> str:
        """What this provider lacks on this machine, and what to install; "" where it works."""
        return ""

    @classmethod
    def missing_for(cls, options: Any) -> str:
        """What these `options` (an instance of `Options`) need and the machine lacks: a device, a driver; "" for nothing."""
        return ""

    @property
    def device(self) -> Device:
        """The device whose memory this instance's programs read and write; the host's by default."""
        return HOST

    def get_capability(self, graph: Graph, kernel_lookup: KernelLookup) -> list[ComputeCapability]:
        """The nodes this provider offers to run, alone or in groups. By default every free node that it `supports`, alone.

        Args:
            graph: the whole optimised graph, types included.
            kernel_lookup: the kernel of each node, and whether a provider before this one has the node.
        """
        return [
            ComputeCapability((i,))
            for i, node in enumerate(graph.nodes)
            if kernel_lookup.is_free(i) and self.supports(node, graph)
        ]

    def reads_on_host(self, node: Node, index: int) -> bool:
        """Whether this provider wants the node's input number `index` (a shape, axes, ...) as a host array."""
        return False

    def get_kernel_registry(self) -> KernelRegistry | None:
        """The kernels of a provider that runs node by node; None where it compiles whole parts."""
        return None

    def get_data_transfer(self) -> DataTransfer:
        """What copies tensors between the host's memory and `device`. Needed where `device` is not the host.

        Raises:
            EPFail: the provider has none.
        """
        raise EPFail(f"{self.name} works in the memory of {self.device} but has no DataTransfer: override get_data_transfer()")

    def get_allocator(self) -> Allocator:
        """The allocator of `device`'s memory.

        Raises:
            EPFail: the provider has none.
        """
        if self.device.host:
            return HostAllocator()
        raise EPFail(f"{self.name} has no allocator for {self.device}: override get_allocator()")

    # lifetime: from the list of devices to programs that outlive their process

    @classmethod
    def devices(cls) -> list[Device]:
        """The devices of this machine that this provider can use; the host by default."""
        return [HOST]

    @classmethod
    def ep_devices(cls) -> list[EpDevice] | None:
        """What `get_ep_devices` lists of this provider: it on each piece of hardware, with its memories; None: made of
        `devices()`, each on the hardware at its address or of its model."""
        return None

    @classmethod
    def emulated(cls) -> bool:
        """Whether all devices that it finds are this machine's processor, behind a driver for devices."""
        return False

    @classmethod
    def library_version(cls) -> str:
        """The version of the library that the provider is made of; "" where that is Intarsia itself."""
        return ""

    def warm_up(self) -> None:
        """Start what compiling needs and takes long, while the session loads its model; nothing by default.

        Called on the session's first provider, before each model that is not in the cache. It should return at once.
        """

    def on_session(self, context: CompileContext) -> None:
        """Look at what a session requires of all parts, before it is asked what it takes; nothing by default."""

    def on_partitioned(self, split: Partition) -> None:
        """Look at how a model was partitioned among all providers, before its parts are compiled; nothing by default."""

    def share(self, program: Program, context: CompileContext) -> Program | None:
        """A program for another session that shares code and weights with `program`; None where they cannot be shared."""
        return None

    def save(self, program: Program) -> SavedProgram:
        """A program of this provider as bytes, so that a later session starts without compiling. By default none is saved.

        Raises:
            NotSaved: it cannot be saved; the session goes on.
        """
        raise NotSaved(f"{self.name} does not keep programs")

    def restore(self, head: bytes, block: np.ndarray, context: CompileContext) -> Program | None:
        """The program that `save` made these bytes from, or None where it has to be compiled anew.

        Args:
            head: as saved.
            block: uint8 [nbytes], 64-byte aligned: the saved parts one after the other.
        """
        return None

    def context_node(self, program: Program) -> Node | None:
        """The EPContext node of a program, where `own_contexts`: made while the session's "ep.context_enable" is "1", and as
        "ep.context_embed_mode" and "ep.context_file_path" say. None: it cannot be stored."""
        return None

    def compatibility_info(self) -> str:
        """What programs saved here need besides this package, as text: a library's version, a device, a CPU's features."""
        return self.library_version()

    def check_compatibility(self, info: str) -> tuple[str, bool]:
        """Whether a program that was saved with this `info` (`compatibility_info` of another machine) can be restored here.

        Returns:
            What is missing, or what would be better on this machine ("": nothing), and whether it can be restored.
        """
        mine = self.compatibility_info()
        return ("", True) if info == mine else (f"it needs {info}; this is {mine}", False)

    @classmethod
    def model_compatibility(cls, options: Any, info: str) -> int:
        """Whether a compiled model whose metadata has this `info` can be used on this machine, where `own_contexts`: a value
        of `OrtCompiledModelCompatibility`."""
        return 0

    def set_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Take options of `set_ep_dynamic_options` that Intarsia does not know, between runs.

        Raises:
            UnknownOption: the provider has none, which is the default.
        """
        raise UnknownOption(f"{self.name} has no options that change between runs, and none named {', '.join(options)}")

    def release_graphs(self) -> None:
        """Drop what was recorded of runs to be replayed (graphs of launches); nothing by default."""


_OLD_NAMES = {
    "warm_up": "expect", "share": "again", "on_partitioned": "divided", "compatibility_info": "saved_for",
    "check_compatibility": "fits",
}  # fmt: skip
"""Methods of `ExecutionProvider` -> the names that they had in 0.1, which 0.2 still honours."""


def honour_old_names(cls: type) -> None:
    """Let what a class defines under the old name of a method be found under the new one, and the other way round.

    Each class that defines one name gets the other one for the same function, so that `super()` leads to the same place by
    both. A class that defines both, for several versions of Intarsia, is left as it is. Gives one DeprecationWarning for a
    class that defines old names.
    """
    renamed = []
    for new, old in _OLD_NAMES.items():
        base = next((b for b in cls.__mro__ if new in vars(b) or old in vars(b)), object)
        if new not in vars(base) and old in vars(base):
            setattr(cls, new, vars(base)[old])
            renamed.append(f"{old} -> {new}")
        elif old not in vars(base) and new in vars(base):
            setattr(cls, old, _deprecated(vars(base)[new], old, new))
    if renamed:
        warnings.warn(
            f"{cls.__qualname__} defines methods of ExecutionProvider under names of an earlier version, which the next one "
            f"does not know; rename them: {', '.join(renamed)}",
            DeprecationWarning,
            stacklevel=3,
        )


def _deprecated(method: Callable[..., Any], old: str, new: str) -> Callable[..., Any]:
    """A method that warns of its name and does as `method`."""

    @functools.wraps(method)
    def call(self: ExecutionProvider, *args: Any, **kwargs: Any) -> Any:
        why = f"ExecutionProvider.{old} is now called {new}; the next version does not know the old name"
        warnings.warn(why, DeprecationWarning, stacklevel=2)
        return method(self, *args, **kwargs)

    return call


honour_old_names(ExecutionProvider)
