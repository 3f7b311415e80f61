"""An order of nodes in which they can run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import onnx

from intarsia.errors import InvalidGraph


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs in a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def names_read(graph: onnx.GraphProto) -> Iterator[str]:
    """The names that a graph's nodes read, and those that the graphs in it read or give."""
    for node in graph.node:
        yield from node.input
        for sub in subgraphs(node):
            yield from names_read(sub)
            yield from (output.name for output in sub.output)


def in_order(nodes: Sequence[onnx.NodeProto], known: Collection[str]) -> list[onnx.NodeProto]:
    """The nodes, each behind those whose outputs it reads, graphs inside it included: breadth first from what is known.

    First come nodes without inputs, then what can run once each of the `known` names, in alphabetical order, is there, then
    what follows from these: the order that onnxruntime's tools give.

    Args:
        known: names of inputs and stored tensors.

    Raises:
        InvalidGraph: nodes that read each other's outputs, or a value that nothing gives.
    """
    made = {name for node in nodes for name in node.output if name}
    readers: dict[str, list[int]] = {}
    missing = []
    for i, node in enumerate(nodes):
        captured = {n for sub in subgraphs(node) for n in names_read(sub)} if node.attribute else set()
        reads = [name for name in node.input if name] + sorted((captured & made) - set(node.input))
        missing.append(len(reads))
        for name in reads:
            readers.setdefault(name, []).append(i)
    order = [i for i, count in enumerate(missing) if not count]
    for name in sorted(set(known)):
        _give(readers, missing, order, name)
    at = 0
    while at < len(order):
        for name in nodes[order[at]].output:
            if name:
                _give(readers, missing, order, name)
        at += 1
    if len(order) != len(nodes):
        left = next(n for i, n in enumerate(nodes) if missing[i])
        raise InvalidGraph(f"Graph is not a DAG, or node {left.name or left.op_type!r} reads a value that nothing gives")
    return [nodes[i] for i in order]


def _give(readers: dict[str, list[int]], missing: list[int], order: list[int], name: str) -> None:
    """Note that a value is there, and which nodes can run by that."""
    for i in readers.get(name, ()):
        missing[i] -= 1
        if not missing[i]:
            order.append(i)
