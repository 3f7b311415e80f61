"""The reference provider: every node by its definition, interpreted with NumPy. Slow, and the measure of all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from intarsia.ep.capability import Support
from intarsia.ep.node_program import NodeProgram, captures_of
from intarsia.ep.provider import CURRENT_RUN, CompileContext, ExecutionProvider, Program
from intarsia.graph.model import Graph, Node
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node


class ReferenceExecutionProvider(ExecutionProvider):
    """Runs on any machine that has NumPy. `supports` says no only to operators that have no definition."""

    name: ClassVar[str] = "ReferenceExecutionProvider"

    def supports(self, node: Node, graph: Graph) -> Support:
        if registry().find(node.domain, node.op_type, node.version or 10_000) is None:
            return Support.no(f"{node.qualified_op} version {node.version} has no definition", code="no-kernel")
        for sub in node.subgraphs:
            for inner in sub.nodes:
                found = self.supports(inner, sub)
                if not found:
                    return Support.no(f"its subgraph {sub.name!r}: {found.reason}", code=found.code)
        return Support.yes()

    def compile(self, graph: Graph, context: CompileContext) -> Program:
        constants = {name: constant.numpy() for name, constant in graph.constants.items()}
        return NodeProgram(graph, [evaluate] * len(graph.nodes), constants, self.name)


def evaluate(node: Node, operands: Sequence[Any]) -> list[Any]:
    """Outputs of one node: `operands` are its inputs, then the values that its subgraphs capture, by name in order."""
    inputs = list(operands[: len(node.inputs)])
    captured = dict(zip(captures_of(node), operands[len(node.inputs) :], strict=True))

    def run_graph(graph: Graph, values: Sequence[Any]) -> list[Any]:
        return _run_body(graph, values, captured)

    return evaluate_node(node, inputs, registry(), run_graph, captured)


def _run_body(graph: Graph, values: Sequence[Any], outer: Mapping[str, Any]) -> list[Any]:
    """A subgraph's outputs; names it does not define are found in `outer`."""
    known: dict[str, Any] = {"": None, **outer, **{name: constant.numpy() for name, constant in graph.constants.items()}}
    known.update(zip(graph.input_names(), values, strict=True))
    run = CURRENT_RUN.get()
    for node in graph.nodes:
        if run is not None:
            run.check()
        operands = [known[n] for n in [*node.inputs, *captures_of(node)]]
        known.update((n, v) for n, v in zip(node.outputs, evaluate(node, operands), strict=False) if n)
    return [known[n] for n in graph.output_names()]
