"""Operators behind which a provider takes nothing: onnxruntime's way to keep the ends of detectors off slow accelerators.

The entry "ep.nnapi.partitioning_stop_ops" lists operators, "Add,Sub"; nodes of these, and all that depend on their results,
stay with the next provider. Not given: those of `ExecutionProvider.stop_operators`; "": none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from intarsia.ep.capability import Support
from intarsia.ep.provider import ExecutionProvider
from intarsia.graph.model import Graph

CONFIG_KEYS: Mapping[str, str] = {"ep.nnapi.partitioning_stop_ops": "NnapiExecutionProvider"}
"""Session configuration entry -> the provider that it is for."""


def parse_stop_operators(config: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Provider -> operators, of the entries that are given."""
    return {
        provider: frozenset(filter(None, (name.strip() for name in config[key].split(","))))
        for key, provider in CONFIG_KEYS.items()
        if key in config
    }


def behind_stop_operators(
    graph: Graph, needs: Sequence[Collection[int]], providers: Sequence[ExecutionProvider], given: Mapping[str, Collection[str]]
) -> dict[tuple[int, int], Support]:
    """Refusals by (provider, node), both by number.

    Args:
        needs: for each node, those whose results it reads; all of them stand before it.
        given: provider -> operators, where they are not the provider's own.
    """
    found: dict[tuple[int, int], Support] = {}
    for p, provider in enumerate(providers):
        operators = given.get(provider.name, provider.stop_operators)
        stopped: dict[int, str] = {}
        for i, node in enumerate(graph.nodes) if operators else ():
            if node.op_type in operators:
                stopped[i] = node.op_type
                found[p, i] = Support.no(f"{node.op_type} is among the operators where {provider.name} stops", code="stopped")
            elif behind := next((stopped[j] for j in sorted(needs[i]) if j in stopped), ""):
                stopped[i] = behind
                found[p, i] = Support.no(f"{provider.name} stops at {behind}, and this depends on it", code="stopped")
    return found
