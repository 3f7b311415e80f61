"""Sequences whose elements are known one by one are none: exporters write split, tensor_split and unbind with them."""

from __future__ import annotations

import numpy as np

from intarsia.graph.model import Graph, Node, SequenceType
from intarsia.passes.analysis.loop_types import always_goes_on
from intarsia.passes.graph.inline import copy_nodes
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch, Rewriter
from intarsia.passes.rule import Match, Op, Rule, RuleSet

_TRIPS, _NODES = 16, 256  # a loop is written out where it has at most this many iterations, and nodes in all of them


def _elements(m: Match, name: str) -> tuple[Patch, list[str]] | None:
    """A patch with what the elements need, and their names, where their number is known."""
    rewriter = m.rewriter
    node = rewriter.producer.get(name)
    if node is None or node.domain:
        return None
    if node.op_type == "SequenceEmpty":
        return m.patch(), []
    if node.op_type == "SequenceConstruct":
        return m.patch(), list(node.inputs)
    if node.op_type == "SequenceInsert":
        found = _elements(m, node.inputs[0])
        at = _position(rewriter, node, len(found[1])) if found is not None else None
        if found is None or at is None:
            return None
        found[1].insert(at, node.inputs[1])
        return found
    return _parts(m, node) if node.op_type == "SplitToSequence" else None


def _position(rewriter: Rewriter, insert: Node, length: int) -> int | None:
    if len(insert.inputs) < 3 or not insert.inputs[2]:
        return length
    at = rewriter.ints(insert.inputs[2])
    return at[0] % (length + 1) if at is not None and -length <= at[0] <= length else None


def _parts(m: Match, node: Node) -> tuple[Patch, list[str]] | None:
    """The pieces that SplitToSequence makes, by one Split."""
    shape, axis = m.rewriter.shape(node.inputs[0]), int(node.attributes.get("axis", 0))
    if not shape or not -len(shape) <= axis < len(shape):
        return None
    extent, given = shape[axis], len(node.inputs) > 1 and node.inputs[1]
    sizes = m.rewriter.ints(node.inputs[1]) if given else [1]
    if sizes is None:
        return None
    if not given or m.rewriter.rank(node.inputs[1]) == 0:
        if not isinstance(extent, int) or sizes[0] <= 0:
            return None
        sizes = [min(sizes[0], extent - i) for i in range(0, extent, sizes[0])]
    if not sizes or len(sizes) > _NODES:
        return None
    patch = m.patch()
    if len(sizes) == 1 and extent == sizes[0]:
        names = [node.inputs[0]]
    else:
        taken: dict[str, object] = {}
        for _ in sizes:
            taken[m.rewriter.fresh(f"{patch.stem}.part", taken)] = None
        names = list(taken)
        inputs = [node.inputs[0], patch.ints(*sizes)]
        patch.node(Node("Split", inputs, list(names), {"axis": axis}, version=13, origin=patch.origin))
    if not given and not node.attributes.get("keepdims", 1):
        names = [patch.op("Squeeze", [name, patch.ints(axis % len(shape))]) for name in names]
    return patch, names


def _element(m: Match) -> Patch | None:
    at, found = m.rewriter.ints(m.root.inputs[1]), _elements(m, m.root.inputs[0])
    if at is None or found is None or not -len(found[1]) <= at[0] < len(found[1]):
        return None
    return found[0].result(found[1][at[0]], m.root.outputs[0])


def _length(m: Match) -> Patch | None:
    found = _elements(m, m.root.inputs[0])
    if found is None:
        return None
    patch = m.patch()
    return patch.result(patch.constant(np.array(len(found[1]), np.int64), "length"), m.root.outputs[0])


def _joined(m: Match) -> Patch | None:
    found, axis = _elements(m, m.root.inputs[0]), int(m.root.attributes["axis"])
    if found is None or not found[1]:
        return None
    patch, names = found
    if m.root.attributes.get("new_axis", 0):
        names = [patch.op("Unsqueeze", [name, patch.ints(axis)]) for name in names]
    return patch.result(patch.op("Concat", names, axis=axis), m.root.outputs[0])


def _written_out(m: Match) -> Patch | None:
    """The iterations of a loop that carries a sequence, one behind the other."""
    rewriter, loop = m.rewriter, m.root
    body, trips = loop.attributes.get("body"), rewriter.ints(loop.inputs[0]) if loop.inputs[0] else None
    if trips is None or not isinstance(body, Graph) or loop.domain or not 0 <= trips[0] <= _TRIPS:
        return None
    carried = len(loop.inputs) - 2
    if len(loop.outputs) != carried or trips[0] * len(body.nodes) > _NODES or not always_goes_on(loop, body, rewriter):
        return None
    if not any(isinstance(rewriter.types.get(name), SequenceType) for name in loop.inputs[2:]):
        return None
    patch, state = m.patch(), list(loop.inputs[2:])
    true = patch.constant(np.array(True), "true")
    for i in range(trips[0]):
        given = (patch.constant(np.array(i, np.int64), "trip"), true, *state)
        _, *state = copy_nodes(patch, body, dict(zip((v.name for v in body.inputs), given, strict=True)))
    for name, old in zip(state, loop.outputs, strict=True):
        if old:
            patch.result(name, old)
    return patch


RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    (
        # a loop of few iterations that carries a sequence = its iterations
        Rule("write_out_loop", Op(("Loop",)), _written_out, shared=True, retypes=True),
        # [x, y, ...][1] = y
        Rule("element_of_sequence", Op(("SequenceAt",)), _element, shared=True, retypes=True),
        Rule("length_of_sequence", Op(("SequenceLength",)), _length, shared=True),
        # ConcatFromSequence([x, y, ...]) = Concat(x, y, ...)
        Rule("join_elements", Op(("ConcatFromSequence",)), _joined, shared=True),
    ),
)
