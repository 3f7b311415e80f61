"""A part that a plugin runs node by node: its kernels, constants where they read them, and values between host and device."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import nullcontext
from typing import Any

import numpy as np

from intarsia.ep.device import DeviceTensor
from intarsia.ep.program import FeedCall, NodeReport, PlanMemory, Program, ProgramMemory, RunContext
from intarsia.ep.provider import StepObserver
from intarsia.errors import EPFail, IntarsiaError
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType, Value
from intarsia.providers.plugin.array_feed import array_feed
from intarsia.providers.plugin.bodies import with_functions
from intarsia.providers.plugin.interface.allocators import host_allocator
from intarsia.providers.plugin.interface.graph_view import CHANNELS_LAST, GraphView, NodeView
from intarsia.providers.plugin.interface.members import Members
from intarsia.providers.plugin.interface.status import raise_for
from intarsia.providers.plugin.interface.tensors import OrtValue, new_tensor, packed_tensor
from intarsia.providers.plugin.kernel_context import KernelContext
from intarsia.providers.plugin.kernel_info import KernelInfo
from intarsia.providers.plugin.kernel_registry import KernelEntry, KernelRegistry, NoKernel
from intarsia.providers.plugin.layout import LaidOut, channels_last
from intarsia.providers.plugin.memory import PluginMemory
from intarsia.providers.plugin.owned import Released
from intarsia.providers.plugin.plugin_ep import PluginEp
from intarsia.providers.plugin.prepared_run import CopyBefore, PreparedRun, Recording
from intarsia.providers.plugin.shared_weights import PackedWeight, PackedWeightCache, shared

_IDLE_RUNS = 2  # that a program keeps for other sizes, or other threads
_TRANSPOSE = 13
"""The version of Transpose in which values are put in another order; later ones have more types."""


class Kernel:
    """A plugin's kernel for one node (OrtKernelImpl), released with the last reference."""

    def __init__(self, ep: PluginEp, entry: KernelEntry, info: KernelInfo) -> None:
        self._ep, self.info, self.definition = ep, info, entry.definition
        self._weights: list[PackedWeight] = []
        made = ctypes.c_void_p(None)
        where = f"kernel of node {info.view.node.name or info.view.node.outputs[0]!r} ({info.view.node.qualified_op})"
        raise_for(entry.create(entry.state, info.handle, ctypes.addressof(made)), where, ep.name)
        self._members = Members("OrtKernelImpl", made.value or 0, ep.name)
        self._made = Released(self._members)
        ep.own(self._made)
        prototype = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        if not self._members.has("Compute"):
            raise EPFail(f"{ep.name} made a {where} without a function Compute")
        self._compute = prototype(self._members.address_of("Compute"))

    def compute(self, context: KernelContext) -> None:
        """One call."""
        raise_for(self._compute(self._members.address, context.handle), "Compute", self._ep.name)

    def pack(self, index: int, value: OrtValue, memory: PluginMemory | None) -> bool:
        """Let it pack a constant input; whether it has, and needs the original no more.

        Raises:
            EPFail: it left what it packed to be shared, and cannot be told where that is.
        """
        if not self._members.has("PrePackWeight"):
            return False
        packed = ctypes.c_bool(False)
        cache = PackedWeightCache() if memory is None else None  # bytes are compared in the host's memory
        allocator = memory.allocator.address if memory is not None else ctypes.addressof(host_allocator())
        self._members.call(
            "PrePackWeight", value.handle, index, allocator, cache.handle if cache is not None else None,
            ctypes.addressof(packed),
        )  # fmt: skip
        if packed.value and cache is not None and cache.stored is not None:
            weight = shared(cache.stored, f"{self._ep.factory.members.address} {self.info.view.node.qualified_op}")
            cache.stored = None
            count = len(weight.buffers)
            addresses = (ctypes.c_void_p * count)(*(address for address, _ in weight.buffers))
            sizes = (ctypes.c_size_t * count)(*(nbytes for _, nbytes in weight.buffers))
            where = ctypes.addressof(addresses), ctypes.addressof(sizes)
            self._members.call("SetSharedPrePackedWeight", *where, count, index)
            self._weights.append(weight)
        return packed.value

    def __del__(self) -> None:
        if (made := getattr(self, "_made", None)) is not None:
            self._ep.release(made)


class _Step:
    """A node with its kernel: which inputs and outputs it has in the host's memory, and what may be dropped after it."""

    def __init__(self, view: NodeView, kernel: Kernel, memory: PluginMemory | None, packed: AbstractSet[int]) -> None:
        self.view, self.kernel = view, kernel
        names = [value.name if value is not None else "" for value in view.inputs]
        self.inputs = ["" if i in packed else name for i, name in enumerate(names)]  # what it packed it reads no more
        self.outputs = [value.name if value is not None else "" for value in view.outputs]
        definition = kernel.definition
        self.host_inputs = [memory is None or definition.input_on_host(i) for i in range(len(self.inputs))]
        self.host_outputs = [memory is None or definition.output_on_host(i) for i in range(len(self.outputs))]
        self.types = [_dtype(value.kind) if value is not None else DType.UNDEFINED for value in view.outputs]
        self.captured = [value.name for value in view.implicit_inputs]
        self.last_use: list[str] = []


def _dtype(kind: Any) -> DType:
    return kind.dtype if isinstance(kind, TensorType) else DType.UNDEFINED


class KernelProgram(Program):
    """Runs a part's nodes in order by a plugin's kernels.

    Args:
        graph: the part.
        memory: the plugin's; None where it works in the host's.

    `graph`: the part as the plugin runs it.

    Raises:
        EPFail: a node has no kernel, or the plugin cannot make it.
    """

    def __init__(
        self, ep: PluginEp, registry: KernelRegistry, graph: Graph, memory: PluginMemory | None,
        on_step: StepObserver | None = None,
    ) -> None:  # fmt: skip
        self._on_step = on_step
        self.inputs, self.outputs = tuple(graph.input_names()), tuple(graph.output_names())
        self._laid_out = laid_out(ep, registry, graph)
        graph = self._laid_out.graph
        self._ep, self.graph, self._memory = ep, graph, memory
        self._lock = None if ep.concurrent else threading.RLock()
        self._constants = _Constants(graph, memory)
        self._view = GraphView(graph, range(len(graph.nodes)), outputs=graph.output_names())
        self._steps = [self._step(view, registry) for view in self._view.nodes]
        self._constants.keep({(n, on_host) for s in self._steps for n, on_host in zip(s.inputs, s.host_inputs, strict=True)})
        self._note_last_uses()
        self._repeats = not any(step.captured or step.view.node.has_subgraphs for step in self._steps)
        self._idle: list[PreparedRun] = []
        self._last: tuple[Any, ...] = ()

    def _step(self, view: NodeView, registry: KernelRegistry) -> _Step:
        found = registry.find(view)
        if isinstance(found, NoKernel):
            raise EPFail(f"{self._ep.name} took node {view.node.name or view.node.outputs[0]!r}, and has {found}")
        constants = {}
        for i, name in enumerate(view.node.inputs):
            if name in self.graph.constants:
                constants[i] = self._constants.value(name, on_host=self._on_host(found, i))
        kernel = Kernel(self._ep, found, KernelInfo(self._ep, view, constants, self._memory))
        packed = {i for i, value in constants.items() if kernel.pack(i, value, self._memory)}
        kernel.info.constants = {i: value for i, value in constants.items() if i not in packed}
        return _Step(view, kernel, self._memory, packed)

    def _on_host(self, found: KernelEntry, index: int) -> bool:
        return self._memory is None or found.definition.input_on_host(index)

    def _note_last_uses(self) -> None:
        last: dict[str, int] = {}
        for i, step in enumerate(self._steps):
            last.update(dict.fromkeys((*step.inputs, *step.captured, *step.outputs), i))
        for name, i in last.items():
            if name and name not in self.outputs and name not in self.graph.constants:
                self._steps[i].last_use.append(name)

    def run(self, inputs: Sequence[Any], run: RunContext | None = None) -> list[Any]:
        if self._lock is None:
            return self._run(inputs, run)
        with self._lock:
            return self._run(inputs, run)

    def _run(self, inputs: Sequence[Any], run: RunContext | None) -> list[Any]:
        with self._ep.run(run):
            return self._computed(inputs, run)

    def _computed(self, inputs: Sequence[Any], run: RunContext | None) -> list[Any]:
        if self._repeats and (prepared := self._prepared(inputs)) is not None:
            results = self._run_again(prepared, inputs, run)
            if results is not None:
                return results
        return self._run_anew(inputs, run)

    def feed_call(self, inputs: Sequence[Any]) -> FeedCall | None:
        """For arrays of these types and shapes, with the copies to the device and back as part of the run."""
        return array_feed(self.inputs, inputs, self._run_arrays) if self._repeats else None

    def _run_arrays(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        with self._lock or nullcontext(), self._ep.run(None):
            results = self._computed(arrays, None)
            memory = self._memory
            return results if memory is None else [memory.to_host(result.handle) for result in results]

    def _prepared(self, inputs: Sequence[Any]) -> PreparedRun | None:
        """One for such inputs, taken from those that no run uses."""
        for prepared in self._idle:
            if prepared.takes(inputs):
                try:
                    self._idle.remove(prepared)
                except ValueError:  # another thread has it
                    continue
                return prepared
        return None

    def _run_again(self, prepared: PreparedRun, inputs: Sequence[Any], run: RunContext | None) -> list[Any] | None:
        """The results of a prepared run; None where sizes turn out to be others, which depend on data then."""
        bound = prepared.begin(inputs)
        for i, (step, context) in enumerate(zip(self._steps, prepared.contexts, strict=True)):
            if run is not None:
                run.check()
            bound.copy_before(i)
            context.missed = False
            self._call(step, context)
            if context.missed:
                self._repeats = False
                self._idle.clear()
                return None
        bound.end()
        if len(self._idle) < _IDLE_RUNS:
            self._idle.append(prepared)
        memory = self._memory
        return [memory.tensor(value) if memory is not None else value.array() for value in bound.results]

    def _run_anew(self, inputs: Sequence[Any], run: RunContext | None) -> list[Any]:
        values = _Values(self._constants, self._memory)
        for name, value in zip(self.inputs, inputs, strict=True):
            values.give(name, value)
        contexts = self._compute_all(values, run)
        results = [self._result(values, name) for name in self.outputs]
        if self._repeats:
            self._prepare(inputs, values, contexts)
        return results

    def _prepare(self, inputs: Sequence[Any], values: _Values, contexts: list[KernelContext]) -> None:
        """Have a run ready for inputs as they came now twice in a row."""
        sizes = tuple((type(value), getattr(value, "shape", None), getattr(value, "dtype", None)) for value in inputs)
        again, self._last = sizes == self._last, sizes
        made = {id(value) for context in contexts for value in context.outputs if value is not None}
        results = [value for name in self.outputs if (value := values.found(name, on_host=self._memory is None)) is not None]
        own = made.intersection(map(id, results))
        if not again or len(own) < len(self.outputs):  # some of them are inputs, constants or copies of what is on the host
            return
        given = [values.given.get(name) for name in self.inputs]
        prepared = PreparedRun(Recording(contexts, values.copies, given, results), self._memory)
        self._idle[:] = [*self._idle[-(_IDLE_RUNS - 1) :], prepared]

    def run_values(self, given: Mapping[str, OrtValue], run: RunContext | None) -> list[OrtValue]:
        """The outputs for inputs by name, within a run of another program: this is a body of one of its nodes."""
        values = _Values(self._constants, self._memory)
        for name, value in given.items():
            values.put(name, value)
        self._compute_all(values, run)
        return [values.anywhere(name) for name in self.outputs]

    def _compute_all(self, values: _Values, run: RunContext | None) -> list[KernelContext]:
        contexts: list[KernelContext] = []
        for step in self._steps:
            if run is not None:
                run.check()
            values.call = len(contexts)
            contexts.append(self._compute(step, values, run))
        return contexts

    def _compute(self, step: _Step, values: _Values, run: RunContext | None) -> KernelContext:
        def new_output(index: int, shape: Sequence[int]) -> OrtValue | None:
            if not step.outputs[index]:
                return None
            if step.host_outputs[index] or self._memory is None:
                return new_tensor(step.types[index], shape)
            return self._memory.new_tensor(step.types[index], shape)

        context = KernelContext(len(step.inputs), len(step.outputs), new_output, self._ep.logger)
        context.stream, context.run = self._ep.stream, run
        if step.captured:
            context.captured = {name: values.anywhere(name) for name in step.captured}
        for i, name in enumerate(step.inputs):
            if name:
                context.set_input(i, values.at(name, on_host=step.host_inputs[i]))
        self._call(step, context)
        for name, value in zip(step.outputs, context.outputs, strict=True):
            if name and value is not None:
                values.put(name, value)
        values.drop(step.last_use)
        return context

    def _call(self, step: _Step, context: KernelContext) -> None:
        """Have a kernel compute."""
        start = time.perf_counter_ns() if self._on_step is not None else 0
        try:
            step.kernel.compute(context)
        except IntarsiaError as error:
            node = step.view.node
            raise type(error)(f"{error} (node {node.name or node.outputs[0]!r}, {node.qualified_op})") from error
        if self._on_step is not None:
            node = step.view.node
            self._on_step(node.op_type, [node.name or step.outputs[0]], start, time.perf_counter_ns())

    def _result(self, values: _Values, name: str) -> Any:
        """An output, in the memory of the device, as the caller's own."""
        if self._memory is None:
            return np.array(values.at(name, on_host=True).array())
        return self._memory.tensor(values.own(name))

    def nodes(self) -> list[NodeReport]:
        name = f"{self._ep.name} {self._ep.version}".strip()
        return [
            NodeReport(self._laid_out.sources[out], "compiled", f"{name}: kernel of {step.view.node.qualified_op}")
            for step in self._steps
            if (out := next((n for n in step.outputs if n), "")) in self._laid_out.sources
        ]

    def memory(self) -> ProgramMemory:
        held = [PlanMemory("", one.nbytes, 0, 0, blocks=1, idle=1) for one in self._idle]
        return ProgramMemory(0, 0, self._constants.nbytes_on_device(), held)

    def trim(self) -> int:
        freed = sum(one.nbytes for one in self._idle)
        self._idle.clear()
        return freed

    def describe(self, stage: str = "program") -> str:
        return str(self.graph) if stage == "program" else ""


def laid_out(ep: PluginEp, registry: KernelRegistry, graph: Graph) -> LaidOut:
    """A part as a plugin runs it: nodes that it has no kernel for written out, and in the order of data that it prefers, as far
    as it has kernels for that."""
    outputs = {name for node in graph.nodes for name in node.outputs}
    graph = with_functions(graph, lambda one: _lacking(registry, one))

    def converts(node: Node) -> bool:
        known = not node.domain and (CHANNELS_LAST, node.op_type) in registry.entries
        if not known or ep.converts_layout("", node.op_type) is False:
            return False
        kind = graph.type_of(node.inputs[0])
        turned = Node("Transpose", node.inputs[:1], node.inputs[:1], version=_TRANSPOSE)
        alone = [node.copy(domain=CHANNELS_LAST), turned]
        views = [GraphView(_with_nodes(graph, [one])).nodes[0] for one in alone]
        return isinstance(kind, TensorType) and all(isinstance(registry.find(view), KernelEntry) for view in views)

    if not ep.prefers_channels_last:
        return LaidOut(graph, {name: name for name in outputs})
    found = channels_last(graph, converts, _TRANSPOSE)
    return LaidOut(found.graph, {name: source for name, source in found.sources.items() if source in outputs})


def _lacking(registry: KernelRegistry, graph: Graph) -> list[int]:
    """Nodes without a kernel, but for those with bodies."""
    views = (view for view in GraphView(graph).nodes if not view.node.has_subgraphs)
    return [view.index for view in views if isinstance(registry.find(view), NoKernel)]


def _with_nodes(graph: Graph, nodes: list[Node]) -> Graph:
    """A graph of the same values with other nodes."""
    made = Graph(graph.name, graph.inputs, graph.outputs, nodes, graph.constants, graph.types)
    made.opset_imports = graph.opset_imports
    return made


def adds_float16(ep: PluginEp, registry: KernelRegistry, memory: PluginMemory | None) -> bool:
    """Whether the plugin adds two numbers of float16, tried out."""
    kind = TensorType(DType.FLOAT16, (1,))
    values = [Value(name, kind) for name in "abc"]
    for version in (14, 13, 7):
        node = Node("Add", ["a", "b"], ["c"], name="add", version=version)
        graph = Graph("float16", values[:2], values[2:], [node], opset_imports={"": version})
        if isinstance(registry.find(GraphView(graph).nodes[0]), KernelEntry):
            return _sum_of_ones(ep, registry, graph, memory) == 2
    return False


def _sum_of_ones(ep: PluginEp, registry: KernelRegistry, graph: Graph, memory: PluginMemory | None) -> float:
    """What a graph of one sum gives for ones of float16; 0 where it fails."""
    one = np.ones(1, np.float16)
    try:
        inputs = [memory.tensor(memory.from_host(one)) if memory is not None else one for _ in range(2)]
        (found,) = KernelProgram(ep, registry, graph, memory).run(inputs)
        return float((memory.to_host(found.handle) if memory is not None else found)[0])
    except IntarsiaError:
        return 0.0


class _Constants:
    """A part's constants, in the host's memory and, where kernels read them there, in the device's."""

    def __init__(self, graph: Graph, memory: PluginMemory | None) -> None:
        self._graph, self._memory = graph, memory
        self._values: dict[tuple[str, bool], OrtValue] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._graph.constants

    def nbytes_on_device(self) -> int:
        """Bytes of those that were copied to the device."""
        return sum(int(value.fields.nbytes) for (_, on_host), value in self._values.items() if not on_host)

    def keep(self, wanted: AbstractSet[tuple[str, bool]]) -> None:
        """Let go of those that no kernel reads: names, and whether in the host's memory."""
        self._values = {key: value for key, value in self._values.items() if key in wanted}

    def value(self, name: str, *, on_host: bool) -> OrtValue:
        """A constant there; copied when it is first requested."""
        found = self._values.get((name, on_host))
        if found is None:
            constant = self._graph.constants[name]
            found = packed_tensor(constant.numpy(), constant.dtype)
            if not on_host and self._memory is not None:
                source, found = found, self._memory.new_tensor(constant.dtype, constant.shape)
                self._memory.copy(source, found)
            self._values[name, on_host] = found
        return found


class _Values:
    """The values of one run, each in one memory or in both.

    Attributes:
        given: inputs of the part.
        copies: those that were made so far; `call`: the number of the call that is about to be.
    """

    def __init__(self, constants: _Constants, memory: PluginMemory | None) -> None:
        self._constants, self._memory = constants, memory
        self._values: dict[tuple[str, bool], OrtValue] = {}
        self.given: dict[str, OrtValue] = {}
        self.copies: list[CopyBefore] = []
        self.call = 0

    def give(self, name: str, value: Any) -> None:
        """An input of the part: an array, or a tensor of the device."""
        if value is None:
            return
        there = isinstance(value, DeviceTensor)
        self.given[name] = value.handle if there else OrtValue.of_array(np.ascontiguousarray(value))
        self._values[name, not there] = self.given[name]

    def put(self, name: str, value: OrtValue) -> None:
        """What a node has computed."""
        self._values[name, value.memory.on_host] = value

    def drop(self, names: Sequence[str]) -> None:
        """What nobody reads any more."""
        for name in names:
            self._values.pop((name, True), None)
            self._values.pop((name, False), None)

    def at(self, name: str, *, on_host: bool) -> OrtValue:
        """A value there, copied where it is in the other memory only."""
        if name in self._constants:
            return self._constants.value(name, on_host=on_host)
        found = self._values.get((name, on_host))
        if found is None:
            other = self._values[name, not on_host]
            assert self._memory is not None
            found = new_tensor(other.dtype, other.shape) if on_host else self._memory.new_tensor(other.dtype, other.shape)
            self._memory.copy(other, found)
            self._values[name, on_host] = found
            self.copies.append(CopyBefore(self.call, other, found))
        return found

    def found(self, name: str, *, on_host: bool) -> OrtValue | None:
        """A value where it is there and was no input or constant."""
        return self._values.get((name, on_host)) if name not in self.given else None

    def anywhere(self, name: str) -> OrtValue:
        """A value in the memory of the device if it is there, else in the host's."""
        found = self._values.get((name, False)) or self._values.get((name, True))
        return found if found is not None else self.at(name, on_host=self._memory is None)

    def own(self, name: str) -> OrtValue:
        """A value on the device that is no input and no constant: copied where it is one."""
        value = self.at(name, on_host=False)
        if name not in self.given and name not in self._constants:
            return value
        assert self._memory is not None
        copied = self._memory.new_tensor(value.dtype, value.shape)
        self._memory.copy(value, copied)
        return copied
