"""A program that runs its nodes one by one, each by a function; intermediates are freed after their last use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia.ep.capability import KernelEntry
from intarsia.ep.device import detached
from intarsia.ep.program import NodeReport, Program, RunContext
from intarsia.errors import EPFail, IntarsiaError
from intarsia.graph.model import Graph, Node
from intarsia.run_status import CURRENT_RUN

if TYPE_CHECKING:
    from intarsia.ep.provider import ExecutionProvider

NodeFunction = Callable[[Node, Sequence[Any]], Sequence[Any]]
Observer = Callable[[str, Any], object]
"""Called with the name of a value and the value."""


class NodeProgram(Program):
    """Runs `graph.nodes` in order, `functions[i]` for node i.

    Args:
        graph: the part; its subgraphs' captured values are not resolved here: functions get the node's inputs followed by
            the values that its subgraphs capture, in sorted order of their names.
        functions: one per node.
        constants: name -> tensor in the provider's memory, for every constant of the part.
        provider: name, for error messages.
    """

    def __init__(self, graph: Graph, functions: Sequence[NodeFunction], constants: dict[str, Any], provider: str) -> None:
        self.inputs = tuple(graph.input_names())
        self.outputs = tuple(graph.output_names())
        self.graph, self.provider = graph, provider
        self._constants = constants
        keep = {*self.outputs, *constants}
        last: dict[str, int] = {}
        reads = [_reads(node) for node in graph.nodes]
        for i, node in enumerate(graph.nodes):
            last.update(dict.fromkeys((*(n for n in reads[i] if n), *(n for n in node.outputs if n)), i))
        free: list[list[str]] = [[] for _ in graph.nodes]
        for name, i in last.items():
            if name not in keep:
                free[i].append(name)
        self._steps = list(zip(graph.nodes, functions, reads, free, strict=True))

    def run(self, inputs: Sequence[Any], run: RunContext | None = None) -> list[Any]:
        if run is None:
            return self._run(inputs, None)
        token = CURRENT_RUN.set(run)
        try:
            return self._run(inputs, run)
        finally:
            CURRENT_RUN.reset(token)

    def observed(self, inputs: Sequence[Any], observe: Observer) -> None:
        """A run without results: `observe` gets each value of a node before the next node runs, which may write over it."""
        self._run(inputs, None, observe)

    def _run(self, inputs: Sequence[Any], run: RunContext | None, observe: Observer | None = None) -> list[Any]:
        values = {"": None, **self._constants, **dict(zip(self.inputs, inputs, strict=True))}
        for node, function, reads, free in self._steps:
            if run is not None:
                run.check()
            results = self._call(node, function, [values[n] for n in reads])
            values.update((n, result) for n, result in zip(node.outputs, results, strict=False) if n)
            if observe is not None:
                for name in node.outputs:
                    if name:
                        observe(name, values[name])
            for name in free:
                values.pop(name, None)
        if observe is not None:
            return []
        results = []
        for name in self.outputs:
            results.append(detached(values[name], [*inputs, *self._constants.values(), *results]))
        return results

    def _call(self, node: Node, function: NodeFunction, operands: list[Any]) -> Sequence[Any]:
        try:
            return function(node, operands)
        except IntarsiaError:
            raise
        except Exception as error:
            where = f"node {node.name or node.outputs[0]!r} ({node.qualified_op})"
            raise EPFail(f"{self.provider} could not run {where}: {type(error).__name__}: {error}") from error

    def nodes(self) -> list[NodeReport]:
        return [
            NodeReport(next((n for n in node.outputs if n), ""), "host", node.op_type, "runs node by node")
            for node in self.graph.nodes
        ]

    def describe(self, stage: str = "program") -> str:
        return str(self.graph) if stage == "program" else ""


def captures_of(node: Node) -> list[str]:
    """Names that the node's subgraphs read from outside, sorted."""
    captured: set[str] = set()
    for sub in node.subgraphs:
        captured |= sub.captured_names()
    return sorted(captured)


def _reads(node: Node) -> list[str]:
    return [*node.inputs, *captures_of(node)]


def kernel_program(provider: ExecutionProvider, graph: Graph) -> NodeProgram:
    """The part as calls of the provider's registered kernels, constants copied to its memory once."""
    registry = provider.get_kernel_registry()
    functions: list[NodeFunction] = []
    for node in graph.nodes:
        found = registry.find(node, graph) if registry is not None else None
        if not isinstance(found, KernelEntry):
            why = found.reason if found is not None else "it has no kernel registry and does not override compile()"
            raise EPFail(
                f"{provider.name} took node {node.name or node.outputs[0]!r} ({node.qualified_op}) but cannot run it: {why}"
            )
        functions.append(found.kernel)
    arrays = {name: constant.numpy() for name, constant in graph.constants.items()}
    if provider.device.host:
        return NodeProgram(graph, functions, arrays, provider.name)
    transfer = provider.get_data_transfer()
    constants = {name: transfer.copy_in(array, provider.device) for name, array in arrays.items()}
    return NodeProgram(graph, functions, constants, provider.name)
