"""A provider with faults to order, on a device with a memory of its own, for testing what a session makes of them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar, Literal

import numpy as np

from intarsia.ep.device import Allocator
from intarsia.ep.node_program import NodeProgram
from intarsia.ep.provider import CompileContext, DataTransfer, Device, DeviceTensor, ExecutionProvider, Program, Support
from intarsia.errors import DeviceLost, EPFail, OutOfMemory
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node

DEVICE = Device("faulty", description="memory that NumPy cannot read, with faults to order")


@dataclass(frozen=True)
class FaultOptions:
    """Which faults, and when. Counters begin with 1 and count over the provider's life; 0 means never.

    Attributes:
        out_of_memory_at: number of the allocation that fails.
        memory_limit: bytes that may be allocated at once.
        lost_at: number of the kernel in which the device is lost. From then on everything on it fails, until `reset`.
        wrong_at: number of the kernel whose result is wrong.
        crash_at: number of the kernel that raises an error which is not Intarsia's.
        copy_fails_at: number of the copy, in or out, that fails.
        slow_copy_milliseconds: how long each copy takes.
        compilation: "ok", "fails" (with EPFail, as it should) or "crashes" (with another error).
        takes: operators to take, separated by commas; "": all.
    """

    out_of_memory_at: int = 0
    memory_limit: int = 0
    lost_at: int = 0
    wrong_at: int = 0
    crash_at: int = 0
    copy_fails_at: int = 0
    slow_copy_milliseconds: float = 0.0
    compilation: Literal["ok", "fails", "crashes"] = "ok"
    takes: str = ""


class Buffer:
    """Bytes on the device. They are freed when the last reference to the buffer goes."""

    __slots__ = ("__weakref__", "content", "memory", "nbytes")

    def __init__(self, memory: Memory, nbytes: int) -> None:
        self.memory: Memory | None = None
        self.nbytes = nbytes
        self.content: Any = None
        memory.take(nbytes)
        self.memory = memory

    def __del__(self) -> None:
        if self.memory is not None:
            self.memory.give_back(self.nbytes)


@dataclass
class Memory:
    """The device's memory, its accounts, and whether the device is lost.

    Attributes:
        live_buffers, live_nbytes: what is allocated now.
        peak_nbytes: the most that ever was.
        allocations, copies, kernels: counters.
    """

    options: FaultOptions
    live_buffers: int = 0
    live_nbytes: int = 0
    peak_nbytes: int = 0
    allocations: int = 0
    copies: int = 0
    kernels: int = 0
    lost: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def take(self, nbytes: int) -> None:
        with self._lock:
            self.check()
            self.allocations += 1
            full = 0 < self.options.memory_limit < self.live_nbytes + nbytes
            if full or self.allocations == self.options.out_of_memory_at:
                raise OutOfMemory(
                    f"{FaultInjectingExecutionProvider.name}: no memory for {nbytes:,} bytes on {DEVICE}: {self.live_nbytes:,} "
                    f"bytes are in use by {self.live_buffers} tensors (limit: {self.options.memory_limit or 'none'}); "
                    "use a smaller batch, or leave nodes to another provider"
                )
            self.live_buffers += 1
            self.live_nbytes += nbytes
            self.peak_nbytes = max(self.peak_nbytes, self.live_nbytes)

    def give_back(self, nbytes: int) -> None:
        with self._lock:
            self.live_buffers -= 1
            self.live_nbytes -= nbytes

    def check(self) -> None:
        """Raise DeviceLost where the device is."""
        if self.lost:
            raise DeviceLost(
                f"{FaultInjectingExecutionProvider.name}: the device {DEVICE} was lost in kernel {self.options.lost_at}; "
                "make the session anew, or with other providers"
            )

    def copy(self) -> None:
        with self._lock:
            self.check()
            self.copies += 1
            number = self.copies
        if number == self.options.copy_fails_at:
            raise EPFail(f"{FaultInjectingExecutionProvider.name}: copy {number} failed, as it was told to")
        if self.options.slow_copy_milliseconds:
            time.sleep(self.options.slow_copy_milliseconds / 1e3)

    def kernel(self) -> bool:
        """Count a kernel; whether its result shall be wrong."""
        with self._lock:
            self.check()
            self.kernels += 1
            number = self.kernels
            self.lost = number == self.options.lost_at
            self.check()
        if number == self.options.crash_at:
            raise ZeroDivisionError(f"kernel {number} crashed, as it was told to")
        return number == self.options.wrong_at


class FaultTransfer(DataTransfer):
    """Copies in and out; each counts, may be slow, and may fail."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def copy_in(self, array: np.ndarray, device: Device) -> DeviceTensor:
        self.memory.copy()
        return self.store(array)

    def copy_out(self, tensor: DeviceTensor) -> np.ndarray:
        self.memory.copy()
        return self.read(tensor)

    def store(self, array: np.ndarray) -> DeviceTensor:
        """A new tensor on the device with the elements of `array`."""
        array = np.asarray(array)
        dtype = DType.STRING if array.dtype == object else DType.of(array.dtype)
        buffer = Buffer(self.memory, array.nbytes)
        buffer.content = array.tolist() if dtype is DType.STRING else array.tobytes()
        return DeviceTensor(dtype, array.shape, DEVICE, buffer)

    def read(self, tensor: DeviceTensor) -> np.ndarray:
        """The tensor's elements as a new array."""
        self.memory.check()
        if tensor.dtype is DType.STRING:
            return np.array(tensor.handle.content, dtype=object).reshape(tensor.shape)
        return np.frombuffer(tensor.handle.content, tensor.dtype.numpy).reshape(tensor.shape).copy()


class FaultAllocator:
    """Memory of the device as `Buffer`s."""

    device = DEVICE
    divisible = False

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def allocate(self, nbytes: int) -> Buffer:
        return Buffer(self.memory, nbytes)

    def free(self, buffer: Buffer) -> None:
        """Nothing to do: the last reference frees it."""


class FaultInjectingExecutionProvider(ExecutionProvider):
    """Runs every operator by its definition, and fails when its options say so. `memory` has the accounts."""

    name: ClassVar[str] = "FaultInjectingExecutionProvider"
    Options: ClassVar[type[Any]] = FaultOptions
    copy_latency_us, copy_gbyte_per_s, gflop_per_s = 0.0, math.inf, math.inf  # no node is too small to be worth its copies

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.memory = Memory(self.options)

    @classmethod
    def devices(cls) -> list[Device]:
        return [DEVICE]

    @property
    def device(self) -> Device:
        return DEVICE

    def get_data_transfer(self) -> DataTransfer:
        return FaultTransfer(self.memory)

    def get_allocator(self) -> Allocator:
        return FaultAllocator(self.memory)

    def reset(self) -> None:
        """Bring a lost device back, as a driver does; the counters go on."""
        self.memory.lost = False

    def supports(self, node: Node, graph: Graph) -> Support:
        if node.has_subgraphs:
            return Support.no("control flow stays on the host", code="subgraph")
        if self.options.takes and node.op_type not in self.options.takes.replace(" ", "").split(","):
            return Support.no(f"takes only {self.options.takes}")
        if registry().find(node.domain, node.op_type, node.version or 10_000) is None:
            return Support.no(f"{node.qualified_op} has no definition", code="no-kernel")
        return Support.yes()

    def compile(self, graph: Graph, context: CompileContext) -> Program:
        if self.options.compilation == "fails":
            raise EPFail(f"{self.name}: the compiler found no way to run {len(graph.nodes)} nodes, as it was told to")
        if self.options.compilation == "crashes":
            raise ZeroDivisionError("the compiler crashed, as it was told to")
        constants = {name: self._store(constant.numpy()) for name, constant in graph.constants.items()}
        return NodeProgram(graph, [self._run] * len(graph.nodes), constants, self.name)

    def _run(self, node: Node, operands: Sequence[Any]) -> list[Any]:
        wrong = self.memory.kernel()
        results = evaluate_node(node, [self._read(x) for x in operands], registry())
        return [self._store(_spoilt(x) if wrong else x) for x in results]

    def _store(self, value: Any) -> Any:
        return [self._store(v) for v in value] if isinstance(value, list) else _if_any(value, FaultTransfer(self.memory).store)

    def _read(self, value: Any) -> Any:
        return [self._read(v) for v in value] if isinstance(value, list) else _if_any(value, FaultTransfer(self.memory).read)


def _if_any(value: Any, move: Any) -> Any:
    return None if value is None else move(value)


def _spoilt(value: Any) -> Any:
    """A copy with another first element."""
    if not isinstance(value, np.ndarray) or not value.size:
        return value
    spoilt = value.copy()
    first = spoilt.reshape(-1)[:1]
    first[...] = (~first) if spoilt.dtype == bool else "?" if spoilt.dtype == object else first + np.ones(1, spoilt.dtype)
    return spoilt
