"""What the providers of GPUs that work through streams have in common: onnxruntime's options, and the device they mean."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar, Literal

from intarsia.device.graphs import Graphs
from intarsia.device.streams import Setup, StreamDevice
from intarsia.errors import InvalidArgument
from intarsia.lazy_dataclass import dataclass
from intarsia.partition.partition import Partition, label
from intarsia.printable import get_logger
from intarsia.providers.gpu.provider import GpuExecutionProvider
from intarsia.providers.missing_libraries import looked_for
from intarsia.providers.options import FIRST_DEVICE, DeviceId

NO_LIMIT = 2**64 - 1
_logger = get_logger("intarsia")


@dataclass(frozen=True)
class StreamOptions:
    """Options of every such provider, under onnxruntime's names."""

    device_id: DeviceId = FIRST_DEVICE
    gpu_mem_limit: int = NO_LIMIT  # bytes of the device's memory that all sessions with these options may use
    arena_extend_strategy: Literal["kNextPowerOfTwo", "kSameAsRequested"] = "kNextPowerOfTwo"  # sizes of blocks
    do_copy_in_default_stream: bool = True  # False: copies have a stream of their own, ordered with kernels by events
    user_compute_stream: int | None = None  # address of a stream (0: the default one); None: a stream of its own
    has_user_compute_stream: bool = False  # follows from user_compute_stream
    gpu_external_alloc: int = 0  # address of a function void* (size_t) to have memory from; 0: the driver's
    gpu_external_free: int = 0  # address of a function void (void*) to give it back
    gpu_external_empty_cache: int = 0  # taken, and not called: a provider that gives memory back frees what it had
    tunable_op_enable: bool = False
    tunable_op_tuning_enable: bool = False
    tunable_op_max_tuning_duration_ms: int = 0

    def __post_init__(self) -> None:
        if self.gpu_mem_limit <= 0:
            raise InvalidArgument(f"gpu_mem_limit: expected a number of bytes above 0, got {self.gpu_mem_limit}")
        if bool(self.gpu_external_alloc) != bool(self.gpu_external_free):
            raise InvalidArgument("gpu_external_alloc and gpu_external_free: expected both or none")
        if self.has_user_compute_stream and self.user_compute_stream is None:
            raise InvalidArgument("has_user_compute_stream is set: expected the stream's address as user_compute_stream")


EFFECTIVE = frozenset((
    "device_id", "gpu_mem_limit", "arena_extend_strategy", "do_copy_in_default_stream", "user_compute_stream",
    "has_user_compute_stream", "gpu_external_alloc", "gpu_external_free", "gpu_external_empty_cache",
))  # fmt: skip


class StreamExecutionProvider(GpuExecutionProvider):
    """Base of the providers by CUDA and by ROCm."""

    Options: ClassVar[type[Any]] = StreamOptions
    effective: ClassVar[frozenset[str]] = EFFECTIVE
    copy_gbyte_per_s = 20.0

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._graphs: Graphs | None = None
        changed = {f.name for f in fields(self.Options) if getattr(self.options, f.name) != f.default} - self.effective
        if changed:
            _logger.info("%s: no effect, since kernels are its own: %s", self.name, ", ".join(sorted(changed)))

    def setup(self) -> Setup:
        """The device that the options mean."""
        o = self.options
        return Setup(
            o.device_id, 0 if o.gpu_mem_limit >= NO_LIMIT >> 1 else o.gpu_mem_limit,
            o.arena_extend_strategy == "kNextPowerOfTwo", o.user_compute_stream, not o.do_copy_in_default_stream,
            (o.gpu_external_alloc, o.gpu_external_free),
        )  # fmt: skip

    @property
    def wants_graphs(self) -> bool | None:
        """Whether launches are to become graphs; None: where that pays."""
        raise NotImplementedError

    @property
    def graphs(self) -> Graphs | None:
        wanted, gpu = self.wants_graphs, self.gpu
        if wanted is False:
            return None
        if self._graphs is None or self._graphs.gpu is not gpu:  # the device was lost and opened again
            assert isinstance(gpu, StreamDevice)
            self._graphs = Graphs(gpu, bool(wanted))
        return self._graphs

    def release_graphs(self) -> None:
        if self._graphs is not None:
            self._graphs.release()

    def on_partitioned(self, split: Partition) -> None:
        if self.wants_graphs:
            for row in split.placements:
                why = row.refusals.get(self.name)
                if row.provider != self.name and (why is None or why.code != "shape"):  # shapes are known before a run
                    assert self.graphs is not None
                    reason = f": {why.reason}" if why is not None else ""
                    node = f"node {label(row.node)!r} ({row.node.qualified_op})"
                    self.graphs.say(f"it runs on {row.provider}{reason}", node)

    @classmethod
    def unavailable(cls) -> str:
        why = cls.missing()
        return f"{why}. {looked_for(cls.name)}".strip() if why else ""

    @classmethod
    def missing(cls) -> str:
        """What is missing for a device; "" where nothing is."""
        raise NotImplementedError
