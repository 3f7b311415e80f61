"""Names of values that the CPU provider makes beside a model's own, and the way back.

A name that is made of another has `MARK` in it ("y%border", "y%sums", "x%last3"). A model may have any name: a value of it that
is called "y%border" would be the same buffer. So no value of a graph that is lowered has the mark in its name
(`without_mark`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from intarsia.graph.model import Graph

MARK = "%"
_TWIN = f"{MARK}last"


def original_name(name: str) -> str:
    """The value that a name made here stands for."""
    return name.partition(_TWIN)[0]


def derived_name(name: str, what: str) -> str:
    """A new name for a part of what computes `name`."""
    return f"{name}{_TWIN}{what}"


def without_mark(graph: Graph) -> Graph:
    """A copy in which no name of a value, those of bodies included, has the mark; the graph itself where none has."""
    used = _names(graph)
    renames: dict[str, str] = {}
    for name in sorted(n for n in used if MARK in n):
        fresh = name.replace(MARK, "_")
        while fresh in used:
            fresh += "_"
        used.add(fresh)
        renames[name] = fresh
    return _renamed(graph, renames) if renames else graph


def _names(graph: Graph) -> set[str]:
    """Of all values, those of bodies included."""
    found = graph.defined_names()
    return found.union(*(_names(body) for node in graph.nodes for body in node.subgraphs))


def _renamed(graph: Graph, renames: Mapping[str, str]) -> Graph:
    own = graph.defined_names()
    out = graph.own_renamed({old: new for old, new in renames.items() if old in own})
    for node in out.nodes:
        node.replace_subgraphs(lambda body: _renamed(body, renames))
    return out
