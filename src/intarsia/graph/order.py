"""Topological order of nodes."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from intarsia.errors import InvalidGraph
from intarsia.graph.model import Graph, Node

_SHOWN = 8  # nodes of a cycle that an error message lists


def sort_nodes(graph: Graph) -> None:
    """Bring `graph.nodes`, and those of all subgraphs, into topological order (in place).

    Nodes that are in order already keep their places; the others move as little as their inputs allow.

    Raises:
        InvalidGraph: the nodes form a cycle; names its nodes.
    """
    graph.nodes = sorted_nodes(graph.nodes)
    for node in graph.nodes:
        for sub in node.subgraphs:
            sort_nodes(sub)


def sorted_nodes(nodes: list[Node], where: str = "graph") -> list[Node]:
    """`nodes` in topological order; the same list where it is in order already.

    Raises:
        InvalidGraph: the nodes form a cycle; names its nodes.
    """
    producer = {name: i for i, node in enumerate(nodes) for name in node.outputs if name}
    needs: list[set[int]] = []
    in_order = True
    for i, node in enumerate(nodes):
        before = {producer[name] for name in _read_names(node) if name in producer}
        in_order = in_order and all(j < i for j in before)
        needs.append(before)
    if in_order:
        return nodes
    readers: list[list[int]] = [[] for _ in nodes]
    waiting = [len(before) for before in needs]
    for i, before in enumerate(needs):
        for j in before:
            readers[j].append(i)
    ready = [i for i, count in enumerate(waiting) if count == 0]
    out: list[Node] = []
    while ready:
        i = heapq.heappop(ready)
        out.append(nodes[i])
        for reader in readers[i]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    if len(out) < len(nodes):
        cycle = _describe(nodes, _cycle(needs, waiting))
        raise InvalidGraph(f"{where}: the nodes {cycle} form a cycle: each needs the one before")
    return out


def _read_names(node: Node) -> Sequence[str] | set[str]:
    for value in node.attributes.values():
        if isinstance(value, (Graph, list)):
            return node.used_names()
    return node.inputs


def _cycle(needs: list[set[int]], waiting: list[int]) -> list[int]:
    """One cycle among the nodes that still wait, in the order of the data."""
    at = next(i for i, count in enumerate(waiting) if count)
    path: list[int] = []
    seen: dict[int, int] = {}
    while at not in seen:
        seen[at] = len(path)
        path.append(at)
        at = min(j for j in needs[at] if waiting[j])
    return path[seen[at] :][::-1]


def _describe(nodes: list[Node], cycle: list[int]) -> str:
    shown = [f"{nodes[i].name or nodes[i].op_type!r} ({nodes[i].op_type})" for i in cycle[:_SHOWN]]
    if len(cycle) > _SHOWN:
        shown.append(f"... ({len(cycle)} in all)")
    return " -> ".join([*shown, shown[0]])
