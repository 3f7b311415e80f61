"""Runs a compiled model: one execution for each caller, used again where the library allows, in a burst, with shared memory."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from intarsia.ep.provider import CompileContext
from intarsia.errors import EPFail
from intarsia.graph.model import Graph, TensorType, Value
from intarsia.machine import fork_safety
from intarsia.providers.nnapi.compilation import CompiledModel
from intarsia.providers.nnapi.library import DEAD_OBJECT, Handle, Library, NnapiDevice, NnapiError
from intarsia.providers.vendor.program import Executable, Interface, narrowed

Memory = Literal["pointers", "shared", "domains"]
_RETAINED_CALLERS = 4


class NnapiExecutable(Executable):
    """One compiled model. Several threads run it at once, each with an execution of its own."""

    def __init__(
        self, library: Library, compiled: CompiledModel, interface: Interface, memory: Memory, devices: Sequence[NnapiDevice]
    ) -> None:
        self._library, self._compiled, self._interface, self._memory = library, compiled, interface, memory
        self._devices = [d.name for d in devices]
        self.nbytes = compiled.model.nbytes
        self._lock = fork_safety.lock()
        self._callers: list[Caller] = []

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        given = [_stored(array, value) for array, value in zip(inputs, self._interface.inputs, strict=True)]
        if not given:
            given = [np.zeros(1, np.float32)]  # no model is without inputs
        with self._lock:
            caller = self._callers.pop() if self._callers else None
        try:
            if caller is None:
                caller = Caller(self._library, self._compiled, self._memory)
            found = caller.run(given)
        except NnapiError as error:
            lost = " (the device was lost; make a new session)" if error.code == DEAD_OBJECT else ""
            raise EPFail(f"NnapiExecutionProvider failed in a run: {error}{lost}") from error
        except OSError as error:
            raise EPFail(f"NnapiExecutionProvider has no shared memory for a run: {error}; use memory='pointers'") from error
        with self._lock:
            if len(self._callers) < _RETAINED_CALLERS:
                self._callers.append(caller)
        return [_given_back(x, value) for x, value in zip(found, self._interface.outputs, strict=True)]

    def artifact(self) -> bytes:
        return self._compiled.artifact

    def kernels(self) -> dict[str, str]:
        where = f"NNAPI ({', '.join(self._devices)})" if self._devices else "NNAPI"
        return {value.name: where for value in self._interface.outputs}

    def describe(self) -> str:
        model = self._compiled.model
        devices = ", ".join(self._devices) or "the library's choice"
        return (
            f"  feature level {model.level}, {len(model.calls)} operations, {model.nbytes} bytes of constants, on {devices}\n"
            f"{model.describe()}"
        )


class HostExecutable(Executable):
    """A part on the CPU, for sizes that NNAPI does not take."""

    def __init__(self, graph: Graph, context: CompileContext) -> None:
        from intarsia.providers.registry import CPU, REFERENCE, load_provider, why_unavailable

        provider = load_provider(CPU)
        self.provider = CPU if not why_unavailable(provider) else REFERENCE
        self._program = load_provider(self.provider)().compile(graph, context)

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self._program.run(list(inputs))

    def describe(self) -> str:
        return f"  by {self.provider}"


def _stored(array: np.ndarray, value: Value) -> np.ndarray:
    """As the library reads it: 64-bit integers in 32 bits."""
    if array.dtype == np.int64:
        array = narrowed(array, value.name, "NnapiExecutionProvider")
    return np.ascontiguousarray(array)


def _given_back(array: np.ndarray, value: Value) -> np.ndarray:
    kind = value.type
    assert isinstance(kind, TensorType) and kind.shape is not None, value
    return array.astype(kind.dtype.numpy, copy=False).reshape([int(d) for d in kind.shape if isinstance(d, int)])


class Caller:
    """One caller's execution with its memory."""

    def __init__(self, library: Library, compiled: CompiledModel, memory: Memory) -> None:
        self._library, self._compiled = library, compiled
        model = compiled.model
        self._types = [[model.operands[i].type for i in chosen] for chosen in (model.inputs, model.outputs)]
        compilation = compiled.handle
        self._reusable = library.has("Execution_setReusable")
        self._burst = library.made("Burst", compilation.pointer, needs=[compilation]) if library.has("Burst_create") else None
        self._region = None if memory == "pointers" else Region(library, [t.nbytes for side in self._types for t in side])
        self._domains: list[Handle] = []
        if memory == "domains" and library.has("Memory_createFromDesc"):
            self._domains = _domains(library, compilation, *map(len, self._types))
        self._execution: Handle | None = None

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs, in new memory."""
        library, region = self._library, self._region
        if region is not None:
            for i, array in enumerate(inputs):
                region.view(i)[:] = array.reshape(-1).view(np.uint8)
                if self._domains:
                    self._copied(region.part(i), self._domains[i])
        execution = self._execution if self._reusable else None
        if execution is None:
            execution = self._made()
            if region is not None:
                self._set_regions(execution)
            self._execution = execution if self._reusable else None
        if region is None:
            results = [np.empty(t.dims, t.kind.numpy) for t in self._types[1]]
            for i, array in enumerate(inputs):
                library.call("Execution_setInput", execution.pointer, i, None, array.ctypes.data, array.nbytes)
            for i, array in enumerate(results):
                library.call("Execution_setOutput", execution.pointer, i, None, array.ctypes.data, array.nbytes)
            self._compute(execution)
            return results
        self._compute(execution)
        count = len(self._types[0])
        if self._domains:
            for i in range(len(self._types[1])):
                self._copied(self._domains[count + i], region.part(count + i))
        return [np.array(region.view(count + i)).view(t.kind.numpy).reshape(t.dims) for i, t in enumerate(self._types[1])]

    def _made(self) -> Handle:
        compilation = self._compiled.handle
        execution = self._library.made("Execution", compilation.pointer, needs=[compilation])
        if self._reusable:
            self._library.call("Execution_setReusable", execution.pointer, True)
        return execution

    def _set_regions(self, execution: Handle) -> None:
        region = self._region
        assert region is not None
        at = 0
        for side, name in zip(self._types, ("Execution_setInputFromMemory", "Execution_setOutputFromMemory"), strict=True):
            for i in range(len(side)):
                if self._domains:
                    place: tuple[Any, ...] = (self._domains[at].pointer, 0, 0)
                else:
                    place = (region.part(at).pointer, 0, region.sizes[at])
                self._library.call(name, execution.pointer, i, None, *place)
                at += 1

    def _copied(self, source: Handle, target: Handle) -> None:
        self._library.call("Memory_copy", source.pointer, target.pointer)

    def _compute(self, execution: Handle) -> None:
        library = self._library
        if self._burst is not None:
            library.call("Execution_burstCompute", execution.pointer, self._burst.pointer)
            return
        if library.has("Execution_compute"):
            library.call("Execution_compute", execution.pointer)
            return
        event = library.made("Execution", execution.pointer, needs=[execution], function="startCompute")
        library.call("Event_wait", event.pointer)


def _domains(library: Library, compilation: Handle, inputs: int, outputs: int) -> list[Handle]:
    """Memory of the drivers for each input and output."""
    found = []
    for role, count in (("addInputRole", inputs), ("addOutputRole", outputs)):
        for i in range(count):
            description = library.made("MemoryDesc")
            library.call(f"MemoryDesc_{role}", description.pointer, compilation.pointer, i, 1.0)
            library.call("MemoryDesc_finish", description.pointer)
            made = library.made("Memory", description.pointer, needs=[compilation], function="createFromDesc")
            description.close()
            found.append(made)
    return found


class Region:
    """Memory that this process and the drivers have mapped, with a place for each input and output."""

    def __init__(self, library: Library, sizes: Sequence[int]) -> None:
        self.sizes = list(sizes)
        self._parts: list[Handle] = []
        self._views: list[np.ndarray] = []
        for nbytes in self.sizes:
            descriptor = os.memfd_create("intarsia-nnapi")
            try:
                os.ftruncate(descriptor, nbytes)
                mapped = mmap.mmap(descriptor, nbytes)
                self._views.append(np.frombuffer(mapped, np.uint8))
                given = (nbytes, mmap.PROT_READ | mmap.PROT_WRITE, descriptor, 0)
                self._parts.append(library.made("Memory", *given, needs=[mapped], function="createFromFd"))
            finally:
                os.close(descriptor)

    def part(self, index: int) -> Handle:
        return self._parts[index]

    def view(self, index: int) -> np.ndarray:
        return self._views[index]


def has_shared_memory() -> bool:
    """Whether this system makes memory that processes share without a file (Linux, Android from 11 on)."""
    return hasattr(os, "memfd_create")
