"""What a program does between its native segments by other means: loops, branches, and operators of Python."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import Fail
from intarsia.graph.model import Graph, Node
from intarsia.providers.cpu.executable import HostStep, LoopStep
from intarsia.providers.cpu.program.calls.call_list import view_shape

if TYPE_CHECKING:
    from intarsia.ep.provider import RunContext
    from intarsia.providers.cpu.program.calls.dynamic_call_list import StepFunction
    from intarsia.providers.cpu.program.cpu_program import CpuProgram


def run_step_timed(
    owner: CpuProgram, step: HostStep | LoopStep, values: dict[str, Any], env: Mapping[str, int], run: RunContext | None
) -> None:
    if owner.context.on_step is None:
        _run_step(owner, step, values, env, run)
        return
    from intarsia.providers.cpu.value_names import original_name

    start = time.perf_counter_ns()
    _run_step(owner, step, values, env, run)
    names = [original_name(n) for n in step.node.outputs if n]
    label = f"{step.node.op_type} (host)" if isinstance(step, HostStep) else step.node.op_type
    owner.context.on_step(label, names[:1], start, time.perf_counter_ns())


def _run_step(
    owner: CpuProgram, step: HostStep | LoopStep, values: dict[str, Any], env: Mapping[str, int], run: RunContext | None
) -> None:
    node = step.node
    operands = [values[n] if n in values else _operand(owner, n, values) for n in step.reads]
    if any(view is not None for view in step.views):
        operands = [
            x.reshape(view_shape(name, x.shape, view, env)) if view is not None and isinstance(x, np.ndarray) else x
            for name, x, view in zip((*node.inputs, *step.captured), operands, step.views, strict=True)
        ]
    results = [*step_function(owner, step)(operands, run)]
    results += [None] * (len(node.outputs) - len(results))
    values.update((name, value) for name, value in zip(node.outputs, results, strict=True) if name)


def step_function(owner: CpuProgram, step: HostStep | LoopStep) -> StepFunction:
    """A step as a function of what its node and then its bodies read."""
    node, count = step.node, len(step.node.inputs)
    if isinstance(step, LoopStep):
        loop = owner.loops[id(step)]
        return lambda operands, run: loop.run(operands[:count], operands[count:], run)
    function = owner.functions().get(id(step))
    if function is not None:
        return lambda operands, _: function(operands)
    if node.op_type != "If" or node.domain:
        return lambda operands, run: _evaluate(owner, step, [*operands[:count]], [*operands[count:]], run)

    def chosen(operands: Sequence[Any], run: RunContext | None) -> Sequence[Any]:
        condition = operands[0]
        if condition.size != 1:
            return _evaluate(owner, step, [condition], [*operands[1:]], run)
        branch = node.attributes["then_branch" if condition.item() else "else_branch"]
        around = dict(zip(step.captured, operands[1:], strict=True)) | {node.inputs[0]: condition}
        return _run_body(owner, branch, (), around, run)[: len(node.outputs)]

    return chosen


def _evaluate(owner: CpuProgram, step: HostStep, inputs: list[Any], others: list[Any], run: RunContext | None) -> list[Any]:
    """The step by its definition; `others` are what its subgraphs capture."""
    from intarsia.ops.framework.evaluate import evaluate_node

    node = step.node
    around = dict(zip((*step.captured, *node.inputs), (*others, *inputs), strict=True))

    def run_graph(graph: Graph, given: Sequence[Any]) -> list[Any]:
        return _run_body(owner, graph, given, around, run)

    if node.op_type == "SequenceMap" and not node.domain and inputs[0]:
        return _mapped(owner, node, inputs, around, run)
    constants = owner.lowered.graph.constants if owner.lowered is not None else {}
    known = {n: constants[n] for sub in node.subgraphs for n in sub.captured_names() if n in constants}
    return evaluate_node(node, inputs, owner.registry, run_graph, {**around, **known})


def _mapped(owner: CpuProgram, node: Node, inputs: list[Any], around: Mapping[str, Any], run: RunContext | None) -> list[Any]:
    """SequenceMap: the body for every element, of which there is one."""
    from intarsia.providers.cpu.program.loops.subgraph_programs import body_program

    body: Graph = node.attributes["body"]
    count = len(inputs[0])
    if any(isinstance(x, list) and len(x) != count for x in inputs) or len(body.inputs) != len(inputs):
        from intarsia.ops.framework.evaluate import evaluate_node

        return evaluate_node(node, inputs, owner.registry, lambda graph, given: _run_body(owner, graph, given, around, run))
    given = [x if isinstance(x, list) else _dense(x) for x in inputs]
    program, names = body_program(owner, body, [x[0] if isinstance(x, list) else x for x in given], around)
    if program.mapped is not None:
        given = [list(map(_dense, x)) if isinstance(x, list) else x for x in given]
        made = program.mapped.run(given, [_dense(around[n]) for n in names], run)
        if made is not None:
            return list(made)
    found: list[list[Any]] = [[] for _ in body.outputs]
    kinds: list[object] = []
    for i in range(count):
        given = [x[i] if isinstance(x, list) else x for x in inputs]
        now: list[object] = [(x.dtype, x.ndim) if isinstance(x, np.ndarray) else type(x) for x in given]
        if not i or now != kinds:
            program, names = body_program(owner, body, given, around)
            captured, kinds = [_dense(around[n]) for n in names], now
        out = program.run_plainly([*map(_dense, given), *captured], run)
        for parts, value in zip(found, out, strict=True):
            parts.append(value)
    return list(found)


def _operand(owner: CpuProgram, name: str, values: Mapping[str, Any]) -> Any:
    if not name:
        return None
    if name in values:
        return values[name]
    if name in owner.executable.constants:
        return owner.executable.constants[name]
    raise Fail(f"value {name!r} is needed by a host operator but was not computed")


def _run_body(
    owner: CpuProgram, graph: Graph, given: Sequence[Any], captured: Mapping[str, Any], run: RunContext | None
) -> list[Any]:
    """A subgraph, compiled as a program of its own whose further inputs are the values it captures."""
    from intarsia.providers.cpu.program.loops.subgraph_programs import body_program

    program, names = body_program(owner, graph, given, captured)
    operands = [*given, *(captured[n] for n in names)]  # of host operators, which may give views
    return program.run([_dense(x) for x in operands], run)


def _dense(x: Any) -> Any:
    """The array, row-major and without gaps."""
    return x if not isinstance(x, np.ndarray) or x.flags.c_contiguous else np.ascontiguousarray(x)
