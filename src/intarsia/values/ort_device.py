"""Devices and memories by onnxruntime's classes: `OrtDevice`, `OrtMemoryInfo`, `OrtArenaCfg`, and allocators of the process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from intarsia.ep.arena import FIRST_NBYTES, MOST_EXTENSION_NBYTES, STRATEGIES, Arena
from intarsia.errors import EPFail, InvalidArgument, NotImplemented, WrongType, nearest
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.values.ort_enums import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtMemoryInfoDeviceType,
    OrtMemType,
)

CPU, GPU, FPGA, NPU = 0, 1, 2, 3
_KHRONOS = 0x10000  # in place of a vendor: any device with OpenCL

_KINDS: dict[str, tuple[int, int]] = {
    "cpu": (CPU, OrtDeviceVendorId.NONE),
    "cuda": (GPU, OrtDeviceVendorId.NVIDIA),
    "cann": (NPU, OrtDeviceVendorId.HUAWEI),
    "dml": (GPU, OrtDeviceVendorId.MICROSOFT),
    "webgpu": (GPU, OrtDeviceVendorId.NONE),
    "gpu": (GPU, OrtDeviceVendorId.NONE),
    "rocm": (GPU, OrtDeviceVendorId.AMD),
    "opencl": (GPU, _KHRONOS),
    "npu": (NPU, OrtDeviceVendorId.NONE),
}
"""Device names -> device type, and the vendor where none is given. Of names that mean the same, the first is an OrtDevice's."""

DEVICE_TYPES = tuple(_KINDS)


def check_device_type(device_type: Any) -> str:
    """`device_type` in lower case.

    Raises:
        InvalidArgument: no such kind of device.
    """
    name = device_type.lower() if isinstance(device_type, str) else device_type
    if name not in _KINDS:
        if isinstance(name, str) and name.endswith("pinned"):
            raise InvalidArgument(no_pinned_memory(device_type))
        wrong = InvalidArgument if isinstance(device_type, str) else WrongType
        raise wrong(f"Unsupported device type: {device_type}; {nearest(str(device_type), DEVICE_TYPES)}")
    return str(name)


class OrtDevice:
    """A place where tensors are: kind of device, kind of memory, vendor and number.

    Made by `OrtDevice.make("cpu", 0)`, or from numbers: `OrtDevice(type, memory, id)`, `OrtDevice(type, memory, vendor, id)`.
    """

    __slots__ = ("_id", "_memory", "_type", "_vendor")

    def __init__(self, *numbers: Any) -> None:
        if len(numbers) == 1 and isinstance(numbers[0], OrtDevice):
            other = numbers[0]
            numbers = (other._type, other._memory, other._vendor, other._id)
        if len(numbers) == 3:
            numbers = (numbers[0], numbers[1], 0, numbers[2])
        if len(numbers) != 4:
            raise WrongType(f"OrtDevice: expected (type, memory, id) or (type, memory, vendor, id), got {numbers!r}")
        kind, memory, vendor, number = (int(n) for n in numbers)
        self._type: int = kind
        self._memory: int = memory
        self._vendor: int = vendor
        self._id: int = number
        if self._type not in (CPU, GPU, FPGA, NPU):
            raise InvalidArgument(f"OrtDevice: expected a type from 0 (CPU) to 3 (NPU), got {self._type}")

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """The device number `device_id` of a kind: "cpu", "cuda", "gpu", "npu", ...

        Raises:
            InvalidArgument: no such kind.
        """
        kind, vendor = _KINDS[check_device_type(ort_device_name)]
        return OrtDevice(kind, 0, vendor if vendor_id < 0 else vendor_id, device_id)

    @staticmethod
    def cpu() -> int:
        """The number of the device type CPU."""
        return CPU

    @staticmethod
    def gpu() -> int:
        """The number of the device type GPU."""
        return GPU

    @staticmethod
    def fpga() -> int:
        """The number of the device type FPGA."""
        return FPGA

    @staticmethod
    def npu() -> int:
        """The number of the device type NPU."""
        return NPU

    cuda = dml = webgpu = gpu
    cann = npu

    @staticmethod
    def default_memory() -> int:
        """The number of the default kind of memory."""
        return 0

    def device_id(self) -> int:
        """Which of the devices of its type, from 0."""
        return self._id

    def device_type(self) -> int:
        """0 CPU, 1 GPU, 2 FPGA, 3 NPU."""
        return self._type

    def device_vendor_id(self) -> int:
        """The PCI number of the vendor; 0 where there is none."""
        return self._vendor

    def vendor_id(self) -> int:
        """The PCI number of the vendor; 0 where there is none."""
        return self._vendor

    def device_mem_type(self) -> int:
        """The kind of memory; 0 is the default one."""
        return self._memory

    def mem_type(self) -> int:
        """The kind of memory; 0 is the default one."""
        return self._memory

    def _get_c_device(self) -> OrtDevice:
        return self

    @property
    def kind(self) -> str:
        """The name by which `make` knows it."""
        named = [name for name, number in _KINDS.items() if number == (self._type, self._vendor)]
        return named[0] if named else ("cpu", "gpu", "fpga", "npu")[self._type]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OrtDevice) and hash(self) == hash(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash((self._type, self._memory, self._vendor, self._id))

    def __repr__(self) -> str:
        return f"OrtDevice(type={self._type}, memory={self._memory}, vendor={self._vendor:#06x}, id={self._id})"


_MEMORIES: dict[str, tuple[OrtMemoryInfoDeviceType, int]] = {
    "Cpu": (OrtMemoryInfoDeviceType.CPU, 0),
    "Cuda": (OrtMemoryInfoDeviceType.GPU, OrtDeviceVendorId.NVIDIA),
    "CudaPinned": (OrtMemoryInfoDeviceType.CPU, OrtDeviceVendorId.NVIDIA),
    "Cann": (OrtMemoryInfoDeviceType.NPU, OrtDeviceVendorId.HUAWEI),
    "CannPinned": (OrtMemoryInfoDeviceType.CPU, OrtDeviceVendorId.HUAWEI),
    "DML": (OrtMemoryInfoDeviceType.GPU, OrtDeviceVendorId.MICROSOFT),
    "OpenVINO_CPU": (OrtMemoryInfoDeviceType.CPU, OrtDeviceVendorId.INTEL),
    "OpenVINO_GPU": (OrtMemoryInfoDeviceType.GPU, OrtDeviceVendorId.INTEL),
    "QnnHtpShared": (OrtMemoryInfoDeviceType.CPU, OrtDeviceVendorId.QUALCOMM),
    "WebGPU_Buf": (OrtMemoryInfoDeviceType.GPU, 0),
}


class OrtMemoryInfo:
    """A memory by name: `OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, OrtMemType.DEFAULT)`."""

    def __init__(self, name: str, allocator_type: OrtAllocatorType, device_id: int, mem_type: OrtMemType) -> None:
        if name not in _MEMORIES:
            valid = nearest(str(name), _MEMORIES)
            raise InvalidArgument(f"Specified device is not supported. Try CreateMemoryInfo_V2. Got {name!r}; {valid}")
        _instance_of("allocator_type", allocator_type, OrtAllocatorType)
        _instance_of("mem_type", mem_type, OrtMemType)
        kind, vendor = _MEMORIES[name]
        self.name, self.allocator_type, self.mem_type, self.device_id = name, allocator_type, mem_type, int(device_id)
        self.device_type, self.device_vendor_id = kind, int(vendor)
        pinned = name.endswith("Pinned") or name == "QnnHtpShared"
        self.device_mem_type = OrtDeviceMemoryType.HOST_ACCESSIBLE if pinned else OrtDeviceMemoryType.DEFAULT

    @staticmethod
    def create_v2(
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        device_mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
    ) -> OrtMemoryInfo:
        """A memory of any name and kind of device."""
        _instance_of("device_type", device_type, OrtMemoryInfoDeviceType)
        _instance_of("device_mem_type", device_mem_type, OrtDeviceMemoryType)
        _instance_of("allocator_type", allocator_type, OrtAllocatorType)
        made = OrtMemoryInfo("Cpu", allocator_type, device_id, OrtMemType.DEFAULT)
        made.name, made.device_type, made.device_vendor_id = str(name), device_type, int(vendor_id)
        made.device_mem_type = device_mem_type
        return made

    @property
    def device(self) -> OrtDevice:
        """The device whose memory it is."""
        return OrtDevice(int(self.device_type), int(self.device_mem_type), self.device_vendor_id, self.device_id)

    def __repr__(self) -> str:
        return f"OrtMemoryInfo({self.name!r}, {self.allocator_type.name}, id={self.device_id}, {self.mem_type.name})"


def _instance_of(what: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise WrongType(f"{what}: expected {kind.__name__}, got {value!r}")


class OrtArenaCfg:
    """How an arena grows; -1 everywhere means the default.

    `OrtArenaCfg(max_mem, strategy, initial_chunk_size_bytes, max_dead_bytes_per_chunk)` or `OrtArenaCfg({name: number})`.
    """

    FIELDS: ClassVar[tuple[str, ...]] = (
        "max_mem",
        "arena_extend_strategy",
        "initial_chunk_size_bytes",
        "max_dead_bytes_per_chunk",
        "initial_growth_chunk_size_bytes",
        "max_power_of_two_extend_bytes",
    )

    max_mem: int
    arena_extend_strategy: int
    initial_chunk_size_bytes: int
    max_dead_bytes_per_chunk: int
    initial_growth_chunk_size_bytes: int
    max_power_of_two_extend_bytes: int

    def __init__(self, *numbers: Any) -> None:
        given: Mapping[str, Any]
        if len(numbers) == 1 and isinstance(numbers[0], Mapping):
            given = numbers[0]
        elif len(numbers) == 4:
            given = dict(zip(self.FIELDS, numbers, strict=False))
        else:
            raise WrongType(f"OrtArenaCfg: expected a dict or four numbers ({', '.join(self.FIELDS[:4])}), got {numbers!r}")
        for name in self.FIELDS:
            setattr(self, name, 0 if name == "max_mem" else -1)
        for name, value in given.items():
            if name not in self.FIELDS:
                raise InvalidArgument(f"Invalid OrtArenaCfg option: {name}; {nearest(str(name), self.FIELDS)}")
            if isinstance(value, bool) or not isinstance(value, int):
                raise WrongType(f"OrtArenaCfg option {name!r}: expected an integer, got {value!r}")
            setattr(self, name, value)

    def __repr__(self) -> str:
        return f"OrtArenaCfg({ {name: getattr(self, name) for name in self.FIELDS} })"


@dataclass(frozen=True)
class RegisteredAllocator:
    """An allocator that the process was asked to share between sessions."""

    provider: str
    memory: OrtMemoryInfo
    arena: OrtArenaCfg | None
    options: Mapping[str, str]
    memory_arena: Arena


_allocators: dict[tuple[str, str, int], RegisteredAllocator] = {}
_lock = fork_safety.lock()


def registered_allocators() -> list[RegisteredAllocator]:
    """What `create_and_register_allocator` was called with: one per provider, memory and device."""
    return list(_allocators.values())


def create_and_register_allocator(mem_info: OrtMemoryInfo, arena_cfg: OrtArenaCfg | None = None) -> None:
    """One arena of host memory for the intermediate tensors of all sessions that have "session.use_env_allocators" = "1".

    A second call gives sessions made from then on another arena. `arena_cfg`: `max_mem` is a hard limit (0: none),
    `arena_extend_strategy` 0 grows by powers of two and 1 by what is requested, beginning with `initial_chunk_size_bytes`, by
    at most `max_power_of_two_extend_bytes` at a time. `max_dead_bytes_per_chunk` and `initial_growth_chunk_size_bytes` have
    no effect.

    Raises:
        InvalidArgument: not host memory, or a strategy that does not exist.
        WrongType: arguments of other types.
    """
    create_and_register_allocator_v2("CPUExecutionProvider", mem_info, {}, arena_cfg)


def create_and_register_allocator_v2(
    provider_type: str, mem_info: OrtMemoryInfo, options: Mapping[str, str], arena_cfg: OrtArenaCfg | None = None
) -> None:
    """As `create_and_register_allocator`, for one provider's memory.

    Raises:
        NotImplemented: the provider has no shared allocators here.
    """
    _instance_of("mem_info", mem_info, OrtMemoryInfo)
    if arena_cfg is not None:
        _instance_of("arena_cfg", arena_cfg, OrtArenaCfg)
    if provider_type != "CPUExecutionProvider":
        raise NotImplemented(
            f"{provider_type} is not implemented in CreateAndRegisterAllocatorV2(): only host memory is shared"
        )
    if mem_info.device_mem_type is OrtDeviceMemoryType.HOST_ACCESSIBLE:
        raise InvalidArgument(f"create_and_register_allocator: {no_pinned_memory(mem_info.name)}")
    if mem_info.device_type is not OrtMemoryInfoDeviceType.CPU:
        raise InvalidArgument(f"create_and_register_allocator: expected host memory (named 'Cpu'), got {mem_info}")
    with _lock:
        made = RegisteredAllocator(provider_type, mem_info, arena_cfg, dict(options), _arena(mem_info, arena_cfg))
        _allocators.pop((provider_type, mem_info.name, mem_info.device_id), None)
        _allocators[provider_type, mem_info.name, mem_info.device_id] = made


def no_pinned_memory(name: str) -> str:
    """Why there is no pinned host memory of this name."""
    return (
        f"{name} is host memory that a device's driver pins, and no provider here has such a device: use ordinary host memory "
        "('Cpu', or device_type 'cpu')"
    )


def shared_arena() -> Arena | None:
    """The arena of host memory that was registered last; None where none was."""
    found = [a for a in _allocators.values() if a.provider == "CPUExecutionProvider"]
    return found[-1].memory_arena if found else None


def _arena(mem_info: OrtMemoryInfo, config: OrtArenaCfg | None) -> Arena:
    keep = mem_info.allocator_type is not OrtAllocatorType.ORT_DEVICE_ALLOCATOR
    if config is None:
        return Arena(keep=keep)
    if config.arena_extend_strategy not in (-1, 0, 1):
        raise InvalidArgument(
            "OrtArenaCfg.arena_extend_strategy: expected 0 (kNextPowerOfTwo), 1 (kSameAsRequested) or -1 (the default), "
            f"got {config.arena_extend_strategy}"
        )
    strategy = None if config.arena_extend_strategy < 0 else STRATEGIES[config.arena_extend_strategy]
    first, most = config.initial_chunk_size_bytes, config.max_power_of_two_extend_bytes
    return Arena(
        max(0, config.max_mem), f"OrtArenaCfg.max_mem = {config.max_mem}", strategy, first if first > 0 else FIRST_NBYTES,
        most if most > 0 else MOST_EXTENSION_NBYTES, keep=keep,
    )  # fmt: skip


class OrtSyncStream:
    """A device's queue of work, from `OrtEpDevice.create_sync_stream`. It is released with the last reference to it.

    Raises:
        EPFail: the provider gives out no streams.
    """

    def __init__(self, create: Callable[[], Any] | None = None) -> None:
        if create is None:
            raise EPFail("this provider has no streams that a program can hold; runs return when their results are complete")
        self._stream = create()

    def get_handle(self) -> int:
        """The queue's address, as the device's own interface knows it."""
        return int(self._stream.handle)
