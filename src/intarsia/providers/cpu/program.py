"""The CPU provider's program: native segments and host steps, bound to input shapes and run."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.codegen.engine import get_engine
from intarsia.codegen.target import Target
from intarsia.errors import Fail, InvalidArgument
from intarsia.graph.dims import Shape, evaluate
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.ops.evaluate import evaluate_node
from intarsia.ops.registry import Registry
from intarsia.partition.provider import CompileContext, NodeReport, Program, RunContext
from intarsia.plan.segment import BoundSegment, Segment
from intarsia.providers.cpu.host import host_kernel
from intarsia.providers.cpu.layout import original_name
from intarsia.providers.cpu.lower import HostStep, lower_graph
from intarsia.runtime.executor import Pool, get_pool

PLAN_LIMIT = 64  # input shapes whose plans are kept


class Plan:
    """A program bound to input shapes: what can be bound before data is seen."""

    def __init__(self, env: dict[str, int], units: list[BoundSegment | Segment | HostStep]) -> None:
        self.env, self.units = env, units
        self.single = units[0] if len(units) == 1 and isinstance(units[0], BoundSegment) else None


class CpuProgram(Program):
    """Compiled code of one part of a graph; `run` may be called from several threads at once."""

    def __init__(self, graph: Graph, registry: Registry, context: CompileContext, target: Target | None = None) -> None:
        self.registry, self.context = registry, context
        self.target = target or Target.host()
        self.lowered = lower_graph(graph, registry, self.target)
        self.inputs = tuple(graph.input_names())
        self.outputs = tuple(graph.output_names())
        self.pool: Pool = get_pool(context.intra_op_num_threads, spinning=context.allow_spinning)
        self._load()
        self._plans: OrderedDict[tuple[object, ...], Plan] = OrderedDict()
        self._lock = threading.Lock()
        self._bodies: dict[object, tuple[Graph, CpuProgram]] = {}
        self._input_types = [graph.type_of(n) for n in self.inputs]
        self._results = self._place_outputs()
        self._data_inputs = self._inputs_read_as_sizes()

    def _load(self) -> None:
        segments = [u for u in self.lowered.units if isinstance(u, Segment)]
        texts = {k.symbol: k for segment in segments for s in segment.steps for k in (s.kernel, *s.calls)}
        addresses = get_engine(self.target).load(list(texts.values())) if texts else {}
        for segment in segments:
            segment.addresses = addresses

    def _place_outputs(self) -> list[tuple[str, bool]]:
        """For each output the value that holds it, and whether it must be copied to be the caller's own."""
        seen: set[str] = {*self.inputs, *self.lowered.constants, *self.lowered.graph.constants}
        out = []
        for name in self.outputs:
            source = self.lowered.grouping.canonical(name)
            out.append((source, source in seen))
            seen.add(source)
        return out

    def _inputs_read_as_sizes(self) -> list[int]:
        named = {self.lowered.grouping.canonical(value) for value, axis in self.lowered.sources.values() if axis < 0}
        return [i for i, n in enumerate(self.inputs) if n in named]

    # --- running ---

    def run(self, inputs: Sequence[Any], run: RunContext | None = None) -> list[Any]:
        key: tuple[object, ...] = tuple([x.shape if type(x) is np.ndarray else None for x in inputs])
        if self._data_inputs:
            key += tuple(inputs[i].tobytes() for i in self._data_inputs)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._bind(key, inputs)
        elif len(self._plans) > PLAN_LIMIT // 2:
            self._touch(key)
        if plan.single is not None and run is None:
            segment = plan.single.segment
            named = dict(zip(self.inputs, inputs, strict=True)) if segment.inputs != self.inputs else None
            given = inputs if named is None else [named[n] for n in segment.inputs]
            results = self._run_segment(plan.single, given)
            if segment.outputs == self.outputs:
                return results
            values = dict(zip(segment.outputs, results, strict=True))
            return self._collect(values, inputs, plan.env)
        return self._run_units(plan, inputs, run)

    def _run_segment(self, bound: BoundSegment, inputs: Sequence[np.ndarray]) -> list[Any]:
        state = bound.acquire(self.context.on_step is not None)
        externals = state.externals
        i = 0
        for x in inputs:
            externals[i] = x.__array_interface__["data"][0]
            i += 1
        results = []
        for shape, dtype in bound.outputs:
            y = np.empty(shape, dtype)
            externals[i] = y.__array_interface__["data"][0]
            results.append(y)
            i += 1
        self.pool.run_block(state.block_address)
        if state.times is not None:
            self._report_times(bound, state.times)
        if bound.checked and state.status.any():
            self._report_status(bound, state.status)
        bound.release(state)
        return results

    def _report_times(self, bound: BoundSegment, times: np.ndarray) -> None:
        assert self.context.on_step is not None
        for i, step in enumerate(bound.segment.steps):
            self.context.on_step(step.label, [original_name(n) for n in step.nodes], int(times[i]), int(times[i + 1]))

    def _report_status(self, bound: BoundSegment, status: np.ndarray) -> None:
        i = int(np.flatnonzero(status)[0])
        step = bound.segment.steps[i]
        node = next((n for n in self.lowered.graph.nodes if n.outputs[0] in step.nodes), None)
        where = f"node {node.name!r} ({node.qualified_op})" if node is not None else step.label
        raise InvalidArgument(
            f"{where}: an index is out of range; expected indices from -size to size - 1 along the indexed axis"
        )

    def _run_units(self, plan: Plan, inputs: Sequence[Any], run: RunContext | None) -> list[Any]:
        values: dict[str, Any] = dict(zip(self.inputs, inputs, strict=True))
        env = dict(plan.env)
        for unit in plan.units:
            if run is not None:
                run.check()
            if isinstance(unit, HostStep):
                self._run_host(unit, values)
                for name in unit.node.outputs:
                    self._learn(name, values.get(name), env)
                continue
            segment = unit if isinstance(unit, Segment) else unit.segment
            bound = segment.bind_again(env, self.pool.num_threads) if isinstance(unit, Segment) else unit
            results = self._run_segment(bound, [values[n] for n in segment.inputs])
            values.update(zip(segment.outputs, results, strict=True))
            for name in segment.outputs:
                self._learn(name, values[name], env)
        return self._collect(values, inputs, env)

    def _collect(self, values: dict[str, Any], inputs: Sequence[Any], env: Mapping[str, int]) -> list[Any]:
        given = dict(zip(self.inputs, inputs, strict=True))
        out = []
        for name, (source, shared) in zip(self.outputs, self._results, strict=True):
            value = values.get(source)
            if value is None:
                value = given.get(source)
            if value is None and source in self.lowered.graph.constants:
                value = self.lowered.graph.constants[source].numpy()
            kind = self.lowered.types.get(name)
            if isinstance(value, np.ndarray) and isinstance(kind, TensorType) and kind.shape is not None and name != source:
                value = _reshaped(name, value, kind.shape, env)
            out.append(value.copy() if shared and isinstance(value, np.ndarray) else value)
        return out

    # --- binding ---

    def _bind(self, key: tuple[object, ...], inputs: Sequence[Any]) -> Plan:
        env: dict[str, int] = {}
        for name, kind, x in zip(self.inputs, self._input_types, inputs, strict=True):
            self._check_shape(name, kind, x, env)
            self._learn(name, x, env)
        for name, constant in self.lowered.graph.constants.items():
            if any(value == name for value, _ in self.lowered.sources.values()):
                self._learn(name, constant.numpy(), env)
        units: list[BoundSegment | Segment | HostStep] = []
        for unit in self.lowered.units:
            if isinstance(unit, Segment):
                try:
                    units.append(unit.bind(env, self.pool.num_threads))
                except KeyError:
                    units.append(unit)  # its sizes depend on data: it is bound in each run
            else:
                units.append(unit)
        plan = Plan(env, units)
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > PLAN_LIMIT:
                self._plans.popitem(last=False)
        return plan

    def _touch(self, key: tuple[object, ...]) -> None:
        """Note that a plan was used, once plans are so many that one may soon be dropped."""
        with self._lock:
            if key in self._plans:
                self._plans.move_to_end(key)

    def _check_shape(self, name: str, kind: object, x: Any, env: Mapping[str, int]) -> None:
        if not isinstance(kind, TensorType) or kind.shape is None or not isinstance(x, np.ndarray):
            return
        if x.ndim != len(kind.shape):
            given = f"rank {x.ndim} (shape {list(x.shape)})"
            raise InvalidArgument(f"input {name!r} has {given}; expected rank {len(kind.shape)}: {kind}")

    def _learn(self, name: str, value: Any, env: dict[str, int]) -> None:
        """Sizes (and elements) of a value that is there now."""
        if not isinstance(value, np.ndarray):
            return
        for symbol, (source, axis) in self.lowered.sources.items():
            if source == name or self.lowered.grouping.canonical(source) == name:
                if axis < 0:
                    env[symbol] = int(value.reshape(-1)[-1 - axis])
                elif source == name and axis < value.ndim:
                    env.setdefault(symbol, value.shape[axis])

    # --- host steps ---

    def _run_host(self, step: HostStep, values: dict[str, Any]) -> None:
        node = step.node
        operands = [self._value(n, values) for n in step.reads]
        inputs = [self._shaped(n, x, values) for n, x in zip(node.inputs, operands[: len(node.inputs)], strict=True)]
        captured = dict(zip(sorted(node.used_names() - set(node.inputs)), operands[len(node.inputs) :], strict=True))

        def run_graph(graph: Graph, given: Sequence[Any]) -> list[Any]:
            return self._run_body(node, graph, given, {**captured, **dict(zip(node.inputs, inputs, strict=True))})

        kernel = host_kernel(node)
        results = kernel(node, inputs, self.target) if kernel else evaluate_node(node, inputs, self.registry, run_graph)
        values.update((name, value) for name, value in zip(node.outputs, results, strict=True) if name)

    def _value(self, name: str, values: Mapping[str, Any]) -> Any:
        if not name:
            return None
        found = values.get(name)
        if found is None and name not in values:
            if name in self.lowered.constants:
                return self.lowered.constants[name]
            if name in self.lowered.graph.constants:
                return self.lowered.graph.constants[name].numpy()
            raise Fail(f"value {name!r} is needed by a host operator but was not computed")
        return found

    def _shaped(self, name: str, value: Any, values: Mapping[str, Any]) -> Any:
        """An operand under its own shape: its buffer may be known under another name with another shape."""
        kind = self.lowered.types.get(name)
        if not isinstance(value, np.ndarray) or not isinstance(kind, TensorType) or kind.shape is None:
            return value
        if len(kind.shape) == value.ndim and name not in self.lowered.grouping.alias:
            return value
        env: dict[str, int] = {}
        for known, array in values.items():
            self._learn(known, array, env)
        return _reshaped(name, value, kind.shape, env)

    def _run_body(self, node: Node, graph: Graph, given: Sequence[Any], captured: Mapping[str, Any]) -> list[Any]:
        """A subgraph, compiled as a program of its own whose further inputs are the values it captures."""
        from intarsia.providers.cpu.body import body_program

        program, names = body_program(self, graph, given, captured)
        return program.run([*given, *(captured[n] for n in names)])

    # --- what it is ---

    def nodes(self) -> list[NodeReport]:
        reports: dict[str, NodeReport] = {}
        for g in self.lowered.grouping.groups:
            label = "+".join(n.op_type for n in g.nodes)
            for node in g.nodes:
                first = original_name(next(n for n in node.outputs if n))
                report = NodeReport(first, "host", node.op_type, g.host) if g.host else NodeReport(first, "compiled", label)
                reports.setdefault(first, report)  # a transpose that layout put behind a node has the same original name
        for first, reason in self.lowered.grouping.folded.items():
            first = original_name(first)
            reports.setdefault(first, NodeReport(first, "view" if "memory" in reason else "folded", "", reason))
        return list(reports.values())

    def describe(self, stage: str = "program") -> str:
        from intarsia.providers.cpu.text import describe

        return describe(self, stage)


def _reshaped(name: str, value: np.ndarray, dims: Shape, env: Mapping[str, int]) -> np.ndarray:
    shape = tuple(evaluate(d, env) for d in dims)
    if math.prod(shape) != value.size:
        given = f"{list(value.shape)} ({value.size} elements)"
        raise InvalidArgument(f"value {name!r}: {given} cannot be reshaped to {list(shape)} ({math.prod(shape)} elements)")
    return value.reshape(shape)
