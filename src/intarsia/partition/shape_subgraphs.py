"""Integer shape arithmetic: chains from Shape and Size through small integer tensors, whose values the host has anyway."""

from __future__ import annotations

import math

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType

READS_ONLY_SHAPE = frozenset(("Shape", "Size"))
LIMIT = 256  # elements


def host_shape_nodes(graph: Graph) -> frozenset[int]:
    """Indices of nodes that compute small integers from shapes and constants only."""
    known: set[str] = set()
    found: list[int] = []
    for i, node in enumerate(graph.nodes):
        if node.has_subgraphs:
            continue
        names = [n for n in node.inputs if n]
        starts = node.op_type in READS_ONLY_SHAPE and not node.domain
        follows = any(n in known for n in names) and all(n in known or n in graph.constants for n in names)
        if (starts or follows) and _small_integers(graph, node):
            found.append(i)
            known.update(n for n in node.outputs if n)
    return frozenset(found)


def _small_integers(graph: Graph, node: Node) -> bool:
    for name in node.outputs:
        kind = graph.type_of(name) if name else None
        if not name:
            continue
        if not isinstance(kind, TensorType) or kind.shape is None:
            return False
        sizes = [d for d in kind.shape if isinstance(d, int)]
        integers = kind.dtype.is_integer or kind.dtype is DType.BOOL
        if len(sizes) != len(kind.shape) or math.prod(sizes) > LIMIT or not integers:
            return False
    return True
