"""A part that a plugin compiled as a whole: OrtNodeComputeInfo behind a `Program`."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from intarsia.ep.device import DeviceTensor
from intarsia.ep.program import FeedCall, NodeReport, Program, RunContext
from intarsia.ep.provider import StepObserver
from intarsia.errors import EPFail
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.plugin.array_feed import array_feed
from intarsia.providers.plugin.interface.graph_view import GraphView, read_names
from intarsia.providers.plugin.interface.model_editor import taken_nodes
from intarsia.providers.plugin.interface.status import raise_for
from intarsia.providers.plugin.interface.tensors import OrtValue, new_tensor
from intarsia.providers.plugin.kernel_context import KernelContext, NodeComputeContext
from intarsia.providers.plugin.memory import PluginMemory
from intarsia.providers.plugin.plugin_ep import PluginEp
from intarsia.providers.plugin.profiling import EpProfiler

_IDLE_CALLS = 16  # contexts that a part keeps between runs


class FusedPart:
    """A graph and the node that stands for it: what Compile is given.

    Args:
        drops_constants: the plugin keeps constants itself; else they are inputs of each call.
    """

    def __init__(self, graph: Graph, name: str, drops_constants: bool) -> None:
        every = range(len(graph.nodes))
        self.name, self.graph = name, graph
        self.view = GraphView(graph, every, outputs=graph.output_names())
        read = read_names(graph, every)
        self.reads = [n for n in read if not (drops_constants and n in graph.constants)]
        node = Node(name, list(self.reads), graph.output_names(), domain="com.intarsia.plugin", name=name, version=1)
        types = {n: kind for n in (*self.reads, *graph.output_names()) if (kind := graph.type_of(n)) is not None}
        self._around = Graph(name=name, nodes=[node], types=types, inputs=graph.inputs, outputs=graph.outputs)
        self._around.constants = {n: graph.constants[n] for n in self.reads if n in graph.constants}
        self.node = GraphView(self._around).nodes[0]


class ComputeInfo:
    """What a plugin compiled a part to, with its state; released with the last reference."""

    def __init__(self, ep: PluginEp, address: int, name: str) -> None:
        self._ep = ep
        self._context = NodeComputeContext(name)
        self._made = ep.compiled(address, self._context.handle)
        prototype = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._compute = prototype(self._made.members.address_of("Compute"))

    def compute(self, context: KernelContext) -> None:
        """One call.

        Raises:
            IntarsiaError: it failed; of the kind that the plugin says.
        """
        status = self._compute(self._made.address, self._made.state, context.handle)
        if status:
            raise_for(status, "Compute", self._ep.name)

    def __del__(self) -> None:
        made = getattr(self, "_made", None)
        if made is not None:
            self._ep.release(made)


@dataclass(frozen=True)
class Made:
    """What a plugin made of a part.

    Attributes:
        context: the EPContext node that holds it, where the session requested such nodes; None: the plugin gave none.
    """

    part: FusedPart
    info: ComputeInfo
    context: Node | None


def compile_parts(ep: PluginEp, parts: Sequence[FusedPart]) -> list[Made]:
    """What the plugin makes of parts, of which it is told together: their compiled forms may share data.

    Raises:
        EPFail: it cannot, or gives nothing.
    """
    array = ctypes.c_void_p * len(parts)
    graphs, nodes = array(*(part.view.handle for part in parts)), array(*(part.node.handle for part in parts))
    infos, contexts = array(), array()
    ep.members.call("Compile", *map(ctypes.addressof, (graphs, nodes)), len(parts), *map(ctypes.addressof, (infos, contexts)))
    found = taken_nodes(ctypes.addressof(contexts), len(parts))
    if missing := [part.name for part, info in zip(parts, infos, strict=True) if not info]:
        for address in filter(None, infos):
            ep.members.call_if_there("ReleaseNodeComputeInfos", ctypes.addressof((ctypes.c_void_p * 1)(address)), 1)
        raise EPFail(f"{ep.name} compiled {missing[0]!r} to nothing, and gave no error")
    return [
        Made(part, ComputeInfo(ep, info or 0, part.name), node) for part, info, node in zip(parts, infos, found, strict=True)
    ]


class _Call:
    """A context with the values that it is given: used by one run at a time, and kept for later ones."""

    def __init__(self, part: FusedPart, ep: PluginEp, memory: PluginMemory | None) -> None:
        graph = part.graph
        self.memory = memory
        self.types = [_dtype(graph, name) for name in graph.output_names()]
        self.numpy = [dtype.numpy for dtype in self.types]
        self.reusable = [dtype.bits >= 8 and dtype is not DType.STRING for dtype in self.types]
        self.context = KernelContext(len(part.reads), len(self.types), self._new_output, ep.logger)
        self.context.stream = ep.stream
        for i, name in enumerate(part.reads):
            if (constant := graph.constants.get(name)) is not None:
                there = memory.from_host(constant.numpy()) if memory is not None else part.view.value(name).value
                self.context.set_input(i, there)
        places = {name: i for i, name in enumerate(part.reads)}
        self.places = [places.get(name, -1) for name in graph.input_names()]
        self.static = [_static_shape(graph, name) for name in graph.output_names()]
        self.shapes: list[tuple[int, ...] | None] = list(self.static)

    def prepare(self, inputs: Sequence[Any]) -> None:
        """Put in the inputs, and new outputs of the sizes of the last call."""
        for place, value in zip(self.places, inputs, strict=True):
            if place >= 0:
                self._put(place, value)
        for i, shape in enumerate(self.shapes):
            held = self.context.outputs[i]
            if shape is None:
                self.context.set_output(i, None)
            elif held is None or self.memory is not None or held.shape != shape:
                self.context.set_output(i, self._new_output(i, shape), certain=self.static[i] is not None)
            else:
                held.replace(np.empty(shape, self.numpy[i]))

    def _new_output(self, index: int, shape: Sequence[int]) -> OrtValue:
        if self.memory is not None:
            return self.memory.new_tensor(self.types[index], shape)
        return new_tensor(self.types[index], shape)

    def _put(self, place: int, value: Any) -> None:
        if isinstance(value, DeviceTensor):
            self.context.set_input(place, value.handle)
            return
        held = self.context.inputs[place]
        if held is None or not isinstance(value, np.ndarray) or not held.takes(value):
            self.context.set_input(place, OrtValue.of(value) if value is not None else None)

    def results(self) -> list[Any]:
        """The outputs of the call, which are the caller's from now on."""
        found: list[Any] = []
        for i, value in enumerate(self.context.outputs):
            if value is None:
                raise EPFail(f"output {i} was not written")
            if self.memory is not None:
                found.append(self.memory.tensor(value))
                self.context.set_output(i, None)
                continue
            self.shapes[i] = value.shape if self.reusable[i] else None
            found.append(value.array())
            value.let_go()
        for place in self.places:
            if place >= 0 and (held := self.context.inputs[place]) is not None and self.memory is None:
                held.let_go()
        return found


def _dtype(graph: Graph, name: str) -> DType:
    kind = graph.type_of(name)
    if not isinstance(kind, TensorType):
        raise EPFail(f"output {name!r} is {kind}; plugins are given tensors")
    return kind.dtype


def _static_shape(graph: Graph, name: str) -> tuple[int, ...] | None:
    kind = graph.type_of(name)
    if not isinstance(kind, TensorType) or kind.shape is None or kind.dtype.bits < 8 or kind.dtype is DType.STRING:
        return None
    sizes = tuple(d for d in kind.shape if isinstance(d, int))
    return sizes if len(sizes) == len(kind.shape) else None


class CompiledPart(Program):
    """A part as a plugin compiled it, in host memory.

    `context`: the EPContext node that holds it, where the plugin made one.
    """

    def __init__(
        self, ep: PluginEp, made: Made, *, memory: PluginMemory | None = None, on_step: StepObserver | None = None,
        profiler: EpProfiler | None = None,
    ) -> None:  # fmt: skip
        part, info = made.part, made.info
        self._profiler = profiler
        self.context = made.context
        self._memory, self._on_step = memory, on_step
        self.inputs, self.outputs = tuple(part.graph.input_names()), tuple(part.graph.output_names())
        self._ep, self._part, self._info = ep, part, info
        self._idle: list[_Call] = []
        self._lock = None if ep.concurrent else threading.Lock()

    def run(self, inputs: Sequence[Any], run: RunContext | None = None) -> list[Any]:
        if run is not None:
            run.check()
        call = self._idle.pop() if self._idle else _Call(self._part, self._ep, self._memory)
        call.prepare(inputs)
        with self._ep.run(run):
            self._compute(call.context)
        results = call.results()
        if len(self._idle) < _IDLE_CALLS:
            self._idle.append(call)
        return results

    def feed_call(self, inputs: Sequence[Any]) -> FeedCall | None:
        """In host memory: for arrays of these types and shapes, without what `run` does for others."""
        return array_feed(self.inputs, inputs, self.run) if self._memory is None else None

    def _compute(self, context: KernelContext) -> None:
        start = time.perf_counter_ns() if self._on_step is not None else 0
        told = self._profiler.told(self._part.name) if self._profiler is not None else nullcontext()
        with self._lock or nullcontext(), told:
            self._info.compute(context)
        if self._on_step is not None:
            names = [node.name or node.outputs[0] for node in self._part.graph.nodes]
            self._on_step(self._part.name, names, start, time.perf_counter_ns())

    def nodes(self) -> list[NodeReport]:
        name = f"{self._ep.name} {self._ep.version}".strip()
        return [
            NodeReport(next((n for n in node.outputs if n), ""), "compiled", f"{name}: {self._part.name}")
            for node in self._part.graph.nodes
        ]

    def describe(self, stage: str = "program") -> str:
        return str(self._part.graph) if stage == "program" else ""
