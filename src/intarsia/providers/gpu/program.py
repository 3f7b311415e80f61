"""A part of a graph on a device: plans by the sizes of its inputs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.codegen.clike import Dialect
from intarsia.codegen.clike.split_into_kernels import Job
from intarsia.codegen.clike.vendor_libraries.calls import Choice, Libraries
from intarsia.device.gpu import Gpu, GpuTransfer
from intarsia.device.graphs import Graphs
from intarsia.device.memory import brought
from intarsia.ep.capability import Support
from intarsia.ep.device import DeviceTensor
from intarsia.ep.provider import NodeReport, Program, RunContext, StepObserver
from intarsia.errors import EPFail
from intarsia.graph.model import Graph, Node
from intarsia.machine import fork_safety
from intarsia.ops.tensor.random_tensors import state_words
from intarsia.providers.gpu.binder import bind
from intarsia.providers.gpu.decompositions.rules import STATE
from intarsia.providers.gpu.node_support import read_as_numbers
from intarsia.providers.gpu.plan import Constants, Plan, described
from intarsia.providers.gpu.plan_cache import PlanStore
from intarsia.providers.gpu.stages import stages

_RETAINED_PLANS = 16
GRAPH = "graphs of launches"
"""Stands where a provider's or a library's name does: what says no to a node."""
LIBRARY_OPERATORS = {
    "cuBLASLt": frozenset("MatMul Gemm FusedMatMul FusedGemm GemmFastGelu MatMulInteger".split()),
    "cuDNN": frozenset(("Conv", "FusedConv")),
}
"""What is told of libraries before sizes are known."""


class GpuProgram(Program):
    """Runs one part, in stages (see `stages`). Inputs that definitions need as numbers (shapes, axes) come from the host; all
    others are device tensors."""

    def __init__(
        self, graph: Graph, gpu: Gpu, on_step: StepObserver | None = None, libraries: Libraries | None = None,
        dialect: Dialect | None = None, graphs: Graphs | None = None,
    ) -> None:  # fmt: skip
        """`on_step`: where a profile is wanted, is told of each launch, with the device's own times. `dialect`: what kernels
        are printed in, if not in the device's. `graphs`: where launches that come again become graphs."""
        dialect = dialect or gpu.dialect
        self.inputs, self.outputs = tuple(graph.input_names()), tuple(graph.output_names())
        self.graph, self.gpu, self._libraries = graph, gpu, libraries
        constants = Constants(gpu)
        found = stages(graph, dialect, gpu.limits)
        names = {described(node): next((n for n in node.outputs if n), "") for node in graph.nodes}
        self._graphs, self._timed = graphs, on_step is not None
        self._stages = [
            _Stage(g, gpu, constants, not i, names, on_step, libraries, dialect, graphs) for i, g in enumerate(found)
        ]
        self._names = names
        self._cuts = [_first_reader(g, {n for s in found[:i] for n in s.output_names()}) for i, g in enumerate(found) if i]
        if graphs is not None:
            for node, what in self._cuts:
                graphs.say(f"the host reads {what}, which the device computes, before it knows what to launch", node)
        self._states = list(dict.fromkeys(n for g in found for n in g.input_names() if n.endswith(STATE)))
        self._last = {n: i for i, stage in enumerate(self._stages) for n in stage.inputs}

    def run(self, inputs: Sequence[Any], run: RunContext | None = None) -> list[Any]:
        known: dict[str, Any] = dict(zip(self.inputs, inputs, strict=True))
        for name in self._states:
            known[name] = GpuTransfer(self.gpu).copy_in(state_words(None), self.gpu.device)
        for i, stage in enumerate(self._stages):
            if run is not None:
                run.check()
            made = stage.run([known[n] for n in stage.inputs], run)
            for name in stage.inputs:
                if self._last[name] == i and name not in self.outputs:
                    del known[name]  # its memory may serve the next stage
            known.update(zip(stage.outputs, made, strict=True))
        return [known[n] for n in self.outputs]

    @property
    def plans(self) -> list[Plan]:
        return [plan for stage in self._stages for plan in stage.plans]

    def trim(self) -> int:
        for stage in self._stages:
            stage.trim()
        return self.gpu.trim()

    def describe(self, stage: str = "program") -> str:
        plans = self.plans
        if stage == "program":
            several = f", in {len(self._stages)} stages" if len(self._stages) > 1 else ""
            return f"{self.gpu.device} ({self.gpu.device.description}), {len(self.graph.nodes)} nodes{several}"
        if stage == "plan":
            return "\n\n".join("\n".join(p.lines()) for p in plans)
        if stage in ("kernels", "source"):
            return "\n".join(dict.fromkeys(job.kernel.source for plan in plans for job in plan.jobs))
        return ""

    def nodes(self) -> list[NodeReport]:
        jobs = [job for plan in self.plans for job in plan.jobs]
        schedules = {job.node: _schedule(job) for job in jobs}
        choices: dict[str, list[Choice]] = {}
        for job in jobs:
            if job.choice is not None:
                choices.setdefault(job.choice.node or job.node, []).append(job.choice)
        prevented = self._prevented()
        reports = []
        for node in self.graph.nodes:
            schedule = schedules.get(described(node), "part of another kernel" if schedules else "")
            missing = self._missing(node) if not jobs else None
            found = choices.get(described(node)) or ([missing] if missing is not None else [])
            used = {choice.library for choice in found if choice.code == "library"}
            declined = {
                choice.library: Support.no(choice.reason, code=choice.code, suggestion=choice.suggestion)
                for choice in found
                if choice.library not in used
            }
            if described(node) in prevented:
                declined[GRAPH] = Support.no(prevented[described(node)], code="graph")
            reports.append(NodeReport(next((n for n in node.outputs if n), ""), "compiled", schedule, declined=declined))
        return reports

    def _prevented(self) -> dict[str, str]:
        """By node, why launches with those of it are no graph."""
        return {} if self._graphs is None else dict(self._graphs.prevented)

    def remarks(self) -> list[str]:
        if self._graphs is None:
            return []
        timed = [f"{self.gpu.device}: each launch is timed, so none is part of a graph here"] if self._timed else []
        return [*timed, *self._graphs.lines()]

    def _missing(self, node: Node) -> Choice | None:
        """Before any run: why the library that might compute the node is not there."""
        library = next((name for name, ops in LIBRARY_OPERATORS.items() if node.op_type in ops), "")
        return self._libraries.missing(library) if library and self._libraries is not None else None


def _schedule(job: Job) -> str:
    return job.schedule if job.kernel.call is None else f"{job.kernel.call.library}'s {job.schedule}"


def _first_reader(graph: Graph, made: set[str]) -> tuple[str, str]:
    """The first node of a stage that needs a number of stages before it, and that number's name."""
    numbers = read_as_numbers(graph) & made
    for node in graph.nodes:
        if found := sorted(numbers & node.used_names()):
            return described(node), repr(found[0])
    return described(graph.nodes[0]), "a number"


class _Stage:
    """A graph whose numbers are known when it begins.

    A plan is made for each combination of input shapes and of such numbers, and the latest are retained.
    """

    def __init__(
        self,
        graph: Graph,
        gpu: Gpu,
        constants: Constants,
        on_disk: bool,
        names: Mapping[str, str],
        on_step: StepObserver | None,
        libraries: Libraries | None,
        dialect: Dialect,
        graphs: Graphs | None,
    ) -> None:
        """`on_disk`: whether plans are cached there too; `names`: outputs of nodes as they are described."""
        self.inputs, self.outputs = tuple(graph.input_names()), tuple(graph.output_names())
        self.graph, self.gpu, self._libraries, self._dialect = graph, gpu, libraries, dialect
        self._numbers = read_as_numbers(graph)
        self._constants, self._on_disk, self._names, self._on_step = constants, on_disk, names, on_step
        self._graphs = graphs
        self._plans: OrderedDict[object, Plan] = OrderedDict()
        self._lock = fork_safety.lock()
        self._store: PlanStore | None = None

    def run(self, inputs: Sequence[Any], run: RunContext | None = None) -> list[Any]:
        numbers: dict[str, np.ndarray] = {}
        tensors: dict[str, DeviceTensor] = {}
        for name, value in zip(self.inputs, inputs, strict=True):
            if name in self._numbers:
                numbers[name] = value if isinstance(value, np.ndarray) else GpuTransfer(self.gpu).copy_out(value)
            elif isinstance(value, DeviceTensor):
                tensors[name] = brought(self.gpu, value)
            else:
                raise EPFail(f"{self.gpu.device}: input {name!r} came as {type(value).__name__}; expected a device tensor")
        plan = self._plan(tensors, numbers)
        slices = {n: t.handle for n, t in tensors.items()}
        return list(plan.run(slices, run, self._observe if self._on_step is not None else None))

    def _observe(self, job: Job, start_ns: int, end_ns: int, nbytes: int) -> None:
        assert self._on_step is not None
        output = self._names.get(job.node, "")
        self._on_step(f"{job.schedule} of {job.node}", (output,) if output else (), start_ns, end_ns, nbytes)

    def _plan(self, tensors: dict[str, DeviceTensor], numbers: dict[str, np.ndarray]) -> Plan:
        shapes = {n: tuple(t.shape) for n, t in tensors.items()}
        key = (tuple(shapes.values()), tuple((a.shape, a.tobytes()) for a in numbers.values()))
        with self._lock:
            plan = self._plans.get(key)
            if plan is None:
                store = self._plan_store() if self._on_disk else None
                plan = self._plans[key] = bind(
                    self.graph, shapes, numbers, self.gpu, self._constants, store, self._libraries, self._dialect,
                    self._graphs,
                )  # fmt: skip
                if self._graphs is not None:
                    for node, what in plan.looks():
                        self._graphs.say(f"the host reads {what}", node)
                if len(self._plans) > _RETAINED_PLANS:
                    self._plans.popitem(last=False)
            else:
                self._plans.move_to_end(key)
            return plan

    def _plan_store(self) -> PlanStore:
        if self._store is None:
            self._store = PlanStore(self.graph, self._dialect, self._libraries)
        return self._store

    @property
    def plans(self) -> list[Plan]:
        return list(self._plans.values())

    def trim(self) -> None:
        with self._lock:
            self._plans.clear()
