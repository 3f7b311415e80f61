"""Intermediate tensors of a run. A tapped value becomes one more output of a model made beside the session's own: what is
tapped is computed as always and retained, everything else is fused as before."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from typing import Any

from intarsia.errors import InvalidArgument, nearest
from intarsia.graph.model import Graph, Node, Value


class Tapped(list[Any]):
    """The outputs of a run, as always, and the tapped values by name in `taps`."""

    def __init__(self, outputs: Iterable[Any], taps: Iterable[tuple[str, Any]]) -> None:
        super().__init__(outputs)
        self.taps = dict(taps)


def tappable(graph: Graph) -> dict[str, Node]:
    """Every value that a node of the model (outside subgraphs) computes, in execution order, with that node."""
    return {name: node for node in graph.nodes for name in node.outputs if name}


def matching(graph: Graph, patterns: Sequence[str]) -> list[str]:
    """The values that the patterns name: by a value's own name, by its node's, or by "*" and "?" in either.

    Raises:
        InvalidArgument: a pattern names nothing.
    """
    if isinstance(patterns, str):
        raise InvalidArgument(f"taps: expected a list of names or patterns, got {patterns!r}; write [{patterns!r}]")
    values = tappable(graph)
    found: dict[str, None] = {}
    for pattern in patterns:
        hits = [n for n, node in values.items() if _matches(n, pattern) or (node.name and _matches(node.name, pattern))]
        if not hits:
            known = {*values, *(node.name for node in graph.nodes if node.name)}
            raise InvalidArgument(f"taps: no value and no node of the model matches {pattern!r}; {_near(pattern, known)}")
        found.update(dict.fromkeys(hits))
    return list(found)


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def _near(pattern: str, known: set[str]) -> str:
    return nearest(pattern, known) if len(known) <= 20 else nearest(pattern, known).partition(" (valid")[0]


def with_taps(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with these values as further outputs."""
    tapped = graph.clone()
    outputs = set(graph.output_names())
    tapped.outputs = [*graph.outputs, *(Value(name, graph.types.get(name)) for name in names if name not in outputs)]
    return tapped
