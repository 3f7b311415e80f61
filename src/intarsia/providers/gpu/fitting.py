"""Which nodes still fit the memory that a device may use, by their weights and by what the largest step works on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from intarsia.codegen.clike.storage_types import stored_nbytes
from intarsia.graph.model import Graph, Node, TensorType


def beyond(
    graph: Graph, taken: Callable[[Node], bool], on_host: Callable[[Node, int], bool], limit: int, held: int
) -> dict[int, str]:
    """Nodes that `taken` accepts but that have no room, by their id: why not.

    Nodes are counted in the order in which they run. One whose own weights are too many is left out alone. From the first on
    that does not fit any more, all are, so that values cross between the device and whoever takes the others once.

    Args:
        on_host: whether an input of a node stays on the host.
        limit: bytes that the device may use.
        held: bytes of them that others use already.
    """
    nodes = [node for node in graph.nodes if taken(node)]
    largest = max((_worked_on(graph, node) for node in nodes), default=0)
    room = limit - held - largest
    found: dict[int, str] = {}
    counted: set[str] = set()
    used, full = 0, ""
    for node in nodes:
        own = {name: nbytes for name, nbytes in _weights(graph, node, on_host) if name not in counted}
        nbytes = sum(own.values())
        alone = nbytes > room
        if alone or full or used + nbytes > room:
            what = f"its weights have {nbytes:,} bytes" if alone else f"the weights up to it have {used + nbytes:,} bytes"
            why = f"{what} and the largest step works on {largest:,}; of a limit of {limit:,}, {held:,} are in use"
            full = full or ("" if alone else why)
            found[id(node)] = why if alone else full
        else:
            counted |= own.keys()
            used += nbytes
    return found


def _weights(graph: Graph, node: Node, on_host: Callable[[Node, int], bool]) -> Iterator[tuple[str, int]]:
    """Names and bytes of the constants that a node and its bodies read on the device."""
    for i, name in enumerate(node.inputs):
        if name in graph.constants and not on_host(node, i):
            yield name, _nbytes(graph, name)
    for body in node.subgraphs:
        for inner in body.nodes:
            for name in inner.inputs:
                if name in body.constants:
                    yield f"{id(body)}.{name}", _nbytes(body, name)
                elif name in graph.constants:
                    yield name, _nbytes(graph, name)


def _nbytes(graph: Graph, name: str) -> int:
    constant = graph.constants[name]
    return stored_nbytes(constant.type.dtype, int(constant.size))


def _worked_on(graph: Graph, node: Node) -> int:
    """Bytes of a node's operands and results that are no constants, as far as their sizes are known."""
    total = 0
    for name in {*node.inputs, *node.outputs} - set(graph.constants) - {""}:
        kind = graph.type_of(name)
        if isinstance(kind, TensorType) and kind.shape is not None and all(isinstance(d, int) for d in kind.shape):
            total += stored_nbytes(kind.dtype, math.prod(d for d in kind.shape if isinstance(d, int)))
    return total
