"""OrtKernelContext: the inputs and outputs of one call of what a plugin compiled.

Its handle is the address of a struct, so that native code answers for inputs, and for outputs whose sizes are those that were
made ready (`native_entries`). An output of other sizes is made by Python, in the middle of the plugin's call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence

from intarsia.ep.program import RunContext
from intarsia.errors import EPFail, InvalidArgument
from intarsia.providers.plugin.interface.allocators import host_allocator
from intarsia.providers.plugin.interface.handles import HostObject, checked, find, numbers, put
from intarsia.providers.plugin.interface.hardware import MemoryInfo
from intarsia.providers.plugin.interface.host_tables import entry
from intarsia.providers.plugin.interface.native_structs import CONTEXT_MARK, ContextFields
from intarsia.providers.plugin.interface.session_state import Logger
from intarsia.providers.plugin.interface.tensors import OrtValue
from intarsia.providers.plugin.streams import SyncStream

NewOutput = Callable[[int, Sequence[int]], "OrtValue | None"]
"""Makes output number i of these sizes; None: nobody wants it."""


class KernelContext(HostObject):
    """One call's inputs (None where omitted) and outputs.

    Args:
        input_count, output_count: how many there are.
        new_output: makes an output that was not made ready, or has other sizes.
        logger: the provider's.

    Attributes:
        captured: what bodies of the node read of the graph around it.
        run: whose call it is; None outside of a run.
        missed: whether an output had to be made in the middle of the call.
    """

    def __init__(self, input_count: int, output_count: int, new_output: NewOutput, logger: Logger) -> None:
        self.new_output, self.logger = new_output, logger
        self.inputs: list[OrtValue | None] = [None] * input_count
        self.outputs: list[OrtValue | None] = [None] * output_count
        self.stream: SyncStream | None = None
        self.missed = False
        self.captured: Mapping[str, OrtValue] = {}
        self.run: RunContext | None = None
        self._inputs = (ctypes.c_void_p * max(1, input_count))()
        self._outputs = (ctypes.c_void_p * max(1, output_count))()
        self._preallocated = (ctypes.c_void_p * max(1, output_count))()
        self.fields = ContextFields(
            CONTEXT_MARK, input_count, output_count, ctypes.addressof(self._inputs), ctypes.addressof(self._outputs),
            ctypes.addressof(self._preallocated),
        )  # fmt: skip
        super().__init__()

    def _make_handle(self) -> int:
        return ctypes.addressof(self.fields)

    def set_input(self, index: int, value: OrtValue | None) -> None:
        """Give it an input, which it keeps."""
        self.inputs[index] = value
        self._inputs[index] = value.handle if value is not None else None

    def set_output(self, index: int, value: OrtValue | None, *, certain: bool = False) -> None:
        """Make an output ready. `certain`: its sizes cannot be others, so that the plugin may write to it at once."""
        self.outputs[index] = value
        self._outputs[index] = value.handle if value is not None else None
        self._preallocated[index] = value.handle if value is not None and certain else None

    def output(self, index: int, shape: Sequence[int]) -> OrtValue | None:
        """Output number `index` with these sizes: what was made ready, or a new one; None where nobody wants it."""
        found = self.outputs[index]
        if found is None or found.shape != tuple(shape):
            found = self.new_output(index, shape)
            self.missed = self.missed or found is not None
            self.set_output(index, found)
        return found


def _context(handle: int, index: int, count: str) -> KernelContext:
    context = find(handle, KernelContext)
    room = getattr(context.fields, count)
    if not 0 <= index < room:
        raise InvalidArgument(f"a call with {room} {count.removesuffix('_count')}s has no number {index}")
    return context


@entry("OrtApi", "KernelContext_GetInputCount")
def _get_input_count(handle: int, out: int) -> None:
    put(out, find(handle, KernelContext).fields.input_count, ctypes.c_size_t)


@entry("OrtApi", "KernelContext_GetOutputCount")
def _get_output_count(handle: int, out: int) -> None:
    put(out, find(handle, KernelContext).fields.output_count, ctypes.c_size_t)


@entry("OrtApi", "KernelContext_GetInput")
def _get_input(handle: int, index: int, out: int) -> None:
    value = _context(handle, index, "input_count").inputs[index]
    put(out, value.handle if value is not None else None)


@entry("OrtApi", "KernelContext_GetOutput")
def get_output(handle: int, index: int, dims: int | None, rank: int, out: int) -> None:
    """An output; also what native code calls for sizes that were not made ready."""
    context = _context(handle, index, "output_count")
    value = context.output(index, numbers(dims, rank))
    put(out, value.handle if value is not None else None)


@entry("OrtApi", "KernelContext_GetPreallocatedOutput")
def _get_preallocated(handle: int, index: int, out: int) -> None:
    put(out, _context(handle, index, "output_count")._preallocated[index])


@entry("OrtApi", "KernelContext_GetLogger")
def _get_logger(handle: int, out: int) -> None:
    put(out, find(handle, KernelContext).logger.handle)


@entry("OrtApi", "KernelContext_GetSyncStream")
def _get_stream(handle: int, out: int) -> None:
    stream = find(handle, KernelContext).stream
    put(out, stream.handle if stream is not None else None)


@entry("OrtApi", "KernelContext_GetGPUComputeStream")
def _get_native_stream(handle: int, out: int) -> None:
    stream = find(handle, KernelContext).stream
    put(out, stream.native if stream is not None else None)


@entry("OrtApi", "KernelContext_GetAllocator")
def _get_allocator(handle: int, info: int, out: int) -> None:
    find(handle, KernelContext)
    if not find(info, MemoryInfo).on_host:
        raise EPFail(
            "a kernel asked its context for memory of the device; only the host's is there, see KernelInfoGetAllocator"
        )
    put(out, ctypes.addressof(host_allocator()))


@entry("OrtApi", "KernelContext_ParallelFor")
def _parallel_for(handle: int, function: int, total: int, batches: int, data: int | None) -> None:
    """One after another: the plugin's own threads do what is worth threads."""
    find(handle, KernelContext)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)(checked(function))
    for i in range(total):
        call(data, i)


class NodeComputeContext(HostObject):
    """OrtNodeComputeContext: what a compiled part is told when its state is made."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


@entry("OrtEpApi", "NodeComputeContext_NodeName")
def _get_compute_name(handle: int) -> int:
    context = find(handle, NodeComputeContext)
    return context.text(context.name)
