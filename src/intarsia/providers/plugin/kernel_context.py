"""OrtKernelContext: the inputs and outputs of one call of what a plugin compiled.

Its handle is the address of a struct, so that native code answers for inputs, and for outputs whose sizes are those that were
made ready (`native_entries`). An output of other sizes is made by Python, in the middle of the plugin's call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from intarsia.errors import InvalidArgument
from intarsia.graph.dtypes import DType
from intarsia.providers.plugin.handles import HostObject, find, numbers, put
from intarsia.providers.plugin.host_tables import entry
from intarsia.providers.plugin.session_state import Logger
from intarsia.providers.plugin.tensors import OrtValue


class ContextFields(ctypes.Structure):
    """What native code reads: how many inputs and outputs there are, arrays of their handles (0: not there), and those of
    outputs that the plugin may write to before it knows their sizes."""

    _fields_ = (
        ("input_count", ctypes.c_int64),
        ("output_count", ctypes.c_int64),
        ("inputs", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p),
        ("preallocated", ctypes.c_void_p),
    )


NewOutput = Callable[[int, Sequence[int]], OrtValue]
"""Makes output number i of these sizes."""


class KernelContext(HostObject):
    """One call's inputs (None where omitted) and outputs.

    Args:
        input_count, output_count: how many there are.
        new_output: makes an output that was not made ready, or has other sizes.
        logger: the provider's.
    """

    def __init__(self, input_count: int, output_count: int, new_output: NewOutput, logger: Logger) -> None:
        self.new_output, self.logger = new_output, logger
        self.inputs: list[OrtValue | None] = [None] * input_count
        self.outputs: list[OrtValue | None] = [None] * output_count
        self.stream: HostObject | None = None
        self._inputs = (ctypes.c_void_p * max(1, input_count))()
        self._outputs = (ctypes.c_void_p * max(1, output_count))()
        self._preallocated = (ctypes.c_void_p * max(1, output_count))()
        self.fields = ContextFields(
            input_count, output_count, ctypes.addressof(self._inputs), ctypes.addressof(self._outputs),
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

    def output(self, index: int, shape: Sequence[int]) -> OrtValue:
        """Output number `index` with these sizes: what was made ready, or a new one."""
        found = self.outputs[index]
        if found is None or found.shape != tuple(shape):
            found = self.new_output(index, shape)
            self.set_output(index, found)
        return found


def new_host_output(types: Sequence[DType]) -> NewOutput:
    """Makes outputs of these types in host memory."""
    from intarsia.providers.plugin.tensors import new_tensor

    return lambda index, shape: new_tensor(types[index], shape)


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
    put(out, context.output(index, numbers(dims, rank)).handle)


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


class NodeComputeContext(HostObject):
    """OrtNodeComputeContext: what a compiled part is told when its state is made."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


@entry("OrtEpApi", "NodeComputeContext_NodeName")
def _get_compute_name(handle: int) -> int:
    context = find(handle, NodeComputeContext)
    return context.text(context.name)
