"""A run of a plugin's kernels that has been once, ready to be run again on inputs of the same types and sizes.

Each kernel's call has its inputs and outputs in place, so that the plugin finds outputs of the right sizes without asking
Python. Values between kernels share memory where they are not needed at the same time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia.ep.device import DeviceTensor
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.plugin.interface.tensors import OrtValue, new_tensor
from intarsia.providers.plugin.kernel_context import KernelContext
from intarsia.providers.plugin.memory import Buffer, PluginMemory

Place = tuple[KernelContext, int]
"""An input of a call."""


@dataclass(frozen=True)
class CopyBefore:
    """A value that is copied to the other memory before call number `call`."""

    call: int
    source: OrtValue
    target: OrtValue


@dataclass(frozen=True)
class Recording:
    """What a run did: the calls in order, copies between them, the values it was given, and its results."""

    contexts: Sequence[KernelContext]
    copies: Sequence[CopyBefore]
    given: Sequence[OrtValue | None]
    results: Sequence[OrtValue]


class _Given:
    """An input of the part, and where the calls read it."""

    def __init__(self, value: OrtValue, there: bool) -> None:
        self.dtype, self.shape, self.there = value.dtype, value.shape, there
        self.places: list[Place] = []

    def takes(self, value: Any) -> bool:
        if self.there:
            return isinstance(value, DeviceTensor) and value.shape == self.shape and value.dtype is self.dtype
        return isinstance(value, np.ndarray) and value.shape == self.shape and value.dtype == self.dtype.numpy


class _Result:
    """An output of the part, the call that makes it, and where other calls read it."""

    def __init__(self, value: OrtValue, maker: Place) -> None:
        self.dtype, self.shape, self.maker = value.dtype, value.shape, maker
        self.places: list[Place] = []


class PreparedRun:
    """Used by one run at a time.

    Args:
        recording: a run whose results its own calls have made, where the plugin's kernels work.
        memory: the plugin's; None where it works in the host's.

    Attributes:
        nbytes: of the memory that it holds between runs.
    """

    def __init__(self, recording: Recording, memory: PluginMemory | None) -> None:
        self.contexts, self._memory = list(recording.contexts), memory
        self.nbytes = 0
        makers = {id(v): (c, i) for c in self.contexts for i, v in enumerate(c.outputs) if v is not None}
        self._given = [_Given(v, not v.memory.on_host) if v is not None else None for v in recording.given]
        self._results = [_Result(value, makers[id(value)]) for value in recording.results]
        self._copies: list[list[tuple[_Given | _Result | OrtValue, OrtValue]]] = [[] for _ in self.contexts]
        varying: dict[int, _Given | _Result] = {
            id(v): one for v, one in zip(recording.given, self._given, strict=True) if v is not None and one is not None
        }
        varying |= {id(v): one for v, one in zip(recording.results, self._results, strict=True)}
        for copy in recording.copies:
            self._copies[copy.call].append((varying.get(id(copy.source), copy.source), copy.target))
        for context in self.contexts:
            for i, value in enumerate(context.inputs):
                if value is not None and (one := varying.get(id(value))) is not None:
                    one.places.append((context, i))
        self._varying: list[_Given | _Result] = [*filter(None, self._given), *self._results]
        self._share_memory(set(varying))
        self._let_go()

    def _share_memory(self, varying: set[int]) -> None:
        """Give the values between kernels blocks that those after them use again."""
        if self._memory is None:
            between = (v for c in self.contexts for v in c.outputs if v is not None and id(v) not in varying)
            self.nbytes = sum(int(value.fields.nbytes) for value in between)
            return
        read_last = {id(v): i for i, c in enumerate(self.contexts) for v in c.inputs if v is not None}
        for i, copies in enumerate(self._copies):
            read_last.update((id(source), max(i, read_last.get(id(source), 0))) for source, _ in copies)
        free: defaultdict[int, list[Buffer]] = defaultdict(list)
        ends: defaultdict[int, list[tuple[int, Buffer]]] = defaultdict(list)
        replaced: dict[int, OrtValue] = {}
        alive = []  # so that no other value gets the number of one of these
        for i, context in enumerate(self.contexts):
            for j, value in enumerate(context.outputs):
                if value is None or id(value) in varying or value.memory.on_host:
                    continue
                nbytes = max(int(value.fields.nbytes), 1)
                buffer = free[nbytes].pop() if free[nbytes] else self._new_buffer(nbytes)
                made = OrtValue.at(value.dtype, value.shape, buffer.address, buffer, value.memory)
                alive.append(value)
                replaced[id(value)] = made
                context.set_output(j, made)
                ends[read_last.get(id(value), i)].append((nbytes, buffer))
            for nbytes, buffer in ends.pop(i, ()):
                free[nbytes].append(buffer)
        for context, copies in zip(self.contexts, self._copies, strict=True):
            for j, value in enumerate(context.inputs):
                if value is not None and id(value) in replaced:
                    context.set_input(j, replaced[id(value)])
            copies[:] = [(replaced.get(id(source), source), target) for source, target in copies]

    def _new_buffer(self, nbytes: int) -> Buffer:
        assert self._memory is not None
        self.nbytes += nbytes
        return Buffer(self._memory, nbytes)

    def takes(self, inputs: Sequence[Any]) -> bool:
        """Whether it is for inputs of these types and sizes, in the memory that they are in."""
        return all(
            value is None if one is None else one.takes(value) for one, value in zip(self._given, inputs, strict=True)
        )

    def begin(self, inputs: Sequence[Any]) -> _Bound:
        """Put inputs, and new results, in place."""
        values: dict[int, OrtValue] = {}
        for given, value in zip(self._given, inputs, strict=True):
            if given is not None:
                values[id(given)] = value.handle if given.there else OrtValue.of_array(np.ascontiguousarray(value))
        results = []
        for result in self._results:
            made = self._new(result.dtype, result.shape)
            context, i = result.maker
            context.set_output(i, made)
            values[id(result)] = made
            results.append(made)
        for one in self._varying:
            for context, i in one.places:
                context.set_input(i, values[id(one)])
        return _Bound(self, values, results)

    def _new(self, dtype: DType, shape: Sequence[int]) -> OrtValue:
        return self._memory.new_tensor(dtype, shape) if self._memory is not None else new_tensor(dtype, shape)

    def _let_go(self) -> None:
        """Hold no input and no result until the next run."""
        for one in self._varying:
            for context, i in one.places:
                context.set_input(i, None)
        for result in self._results:
            result.maker[0].set_output(result.maker[1], None)


class _Bound:
    """A prepared run with its inputs and results in place. `results`: what it gives, when all calls are done."""

    def __init__(self, prepared: PreparedRun, values: dict[int, OrtValue], results: list[OrtValue]) -> None:
        self._prepared, self._values, self.results = prepared, values, results

    def copy_before(self, call: int) -> None:
        """Copy what a call reads in another memory than it was made in."""
        prepared = self._prepared
        for source, target in prepared._copies[call]:
            assert prepared._memory is not None
            value = source if isinstance(source, OrtValue) else self._values[id(source)]
            prepared._memory.copy(value, target)

    def end(self) -> None:
        """Let go of inputs and results."""
        self._prepared._let_go()
