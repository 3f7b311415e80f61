"""Loops inside the body of a growing loop, written out: a body that ran each of their trips alone becomes one native segment.

Loop(n, c, a) <body(i, c, a) => (c, b, row)>   =   a1, row1 = body(0, true, a)   a2, row2 = body(1, true, a1)  ...
                                                   rows = Concat(Unsqueeze(row1), Unsqueeze(row2), ...)
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import numpy as np

from intarsia.graph.model import Constant, Graph, Node
from intarsia.ops.control import always_goes_on, trip_type

_MOST_NODES = 512  # that a loop becomes


def unrolled(graph: Graph, outputs: AbstractSet[str]) -> Graph | None:
    """The body of a Loop, in which loops that make one of `outputs` are written out; None where one cannot be: only a run
    knows how many trips it makes, or these are too many."""
    out = graph.clone()
    out.nodes = []
    for node in graph.nodes:
        if not outputs & set(node.outputs):
            out.nodes.append(node)
        elif not _write_out(node, graph, out):
            return None
    return out


def _write_out(loop: Node, graph: Graph, out: Graph) -> bool:
    body = loop.attributes.get("body")
    if loop.op_type != "Loop" or loop.domain or not isinstance(body, Graph) or not _goes_on(loop, graph, body):
        return False
    limit = graph.constants.get(loop.inputs[0]) if loop.inputs[0] else None
    trips = int(limit.numpy().reshape(-1)[0]) if limit is not None and limit.size == 1 else 0
    states = len(loop.inputs) - 2
    if trips < 1 or trips * len(body.nodes) > _MOST_NODES or len(body.inputs) != 2 + states:
        return False
    stem = f"{next(n for n in loop.outputs if n)}%trip"
    shared = {name: f"{stem}/{name}" for name in body.constants}
    out.constants |= {shared[name]: constant.renamed(shared[name]) for name, constant in body.constants.items()}
    true = _constant(out, f"{stem}/true", np.array(True))
    carried = list(loop.inputs[2:])
    rows: list[list[str]] = [[] for _ in body.outputs[1 + states :]]
    vector = bool(trip_type(body).shape)
    for trip in range(trips):
        number = _constant(out, f"{stem}{trip}", np.full((1,) if vector else (), trip, np.int64))
        names = shared | dict(zip(body.input_names(), [number, true, *carried], strict=True))
        names |= {name: f"{stem}{trip}/{name}" for node in body.nodes for name in node.outputs if name}
        for node in body.nodes:
            made = node.copy(outputs=[names.get(n, n) for n in node.outputs], name=f"{loop.name}/{node.name}")
            Graph(nodes=[made]).replace_uses(names)
            out.nodes.append(made)
        given = [names.get(name, name) for name in body.output_names()[1:]]
        carried = given[:states]
        for found, name in zip(rows, given[states:], strict=True):
            found.append(name)
    for name, value in zip(loop.outputs, carried, strict=False):
        if name:
            out.nodes.append(Node("Identity", [value], [name], version=14, origin=loop.origin))
    for name, found in zip(loop.outputs[states:], rows, strict=False):
        if name:
            _stack(out, found, name, stem)
    return True


def _goes_on(loop: Node, graph: Graph, body: Graph) -> bool:
    """Whether only the count ends it. The condition of the body around is one that holds while the body runs."""
    name = loop.inputs[1]
    made_by = graph.producers()
    while name in made_by and made_by[name].op_type == "Identity" and not made_by[name].domain:
        name = made_by[name].inputs[0]
    if name in graph.constants:
        return always_goes_on(graph.constants[name].numpy(), body)
    holds = not name or (len(graph.inputs) > 1 and name == graph.inputs[1].name)
    return holds and always_goes_on(None, body)


def _stack(out: Graph, rows: list[str], name: str, stem: str) -> None:
    axes = _constant(out, f"{stem}/axes", np.array([0]))
    parts = [f"{row}%row{i}" for i, row in enumerate(rows)]
    for row, part in zip(rows, parts, strict=True):
        out.nodes.append(Node("Unsqueeze", [row, axes], [part], version=13))
    out.nodes.append(Node("Concat", parts, [name], {"axis": 0}, version=13))


def _constant(out: Graph, name: str, array: np.ndarray) -> str:
    out.constants.setdefault(name, Constant.of(name, array))
    return name
