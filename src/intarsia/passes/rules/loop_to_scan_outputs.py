"""Loops that only collect: a carried tensor or sequence that each iteration makes longer is a stacked output.

What a loop carries has then one size, so that its body needs no new plan in each iteration, and can be native code.
"""

from __future__ import annotations

from collections.abc import Iterator

from intarsia.graph.dims import Expr, number_of, symbols_of
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType, Value, ValueType
from intarsia.lazy_dataclass import dataclass
from intarsia.passes.analysis.loop_types import body_inference, taken_types
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch, Rewriter
from intarsia.passes.rule import Match, Op, Rule, RuleSet


@dataclass(frozen=True)
class _Collected:
    """A carried value, by its position: the body's node that appends to it, and what it appends."""

    position: int
    node: Node
    row: str
    kind: TensorType


def _collect(m: Match) -> Patch | None:
    rewriter, loop = m.rewriter, m.root
    body = loop.attributes.get("body")
    if not isinstance(body, Graph) or loop.domain or len(loop.outputs) < len(loop.inputs) - 2:
        return None
    if len(body.inputs) != len(loop.inputs) or len(body.outputs) < len(loop.inputs) - 1:
        return None
    types: dict[str, ValueType] | None = None
    for position, appending in _appending(body, len(loop.inputs) - 2):
        if not _can_take(rewriter, loop, position, appending):
            continue
        if types is None:
            types = body_inference(body, taken_types(loop, body, rewriter), rewriter).types
        kind = types.get(appending.inputs[1])
        if not isinstance(kind, TensorType) or kind.shape is None or not _fixed(kind, rewriter, loop, body):
            continue
        patch = _patch(m, _Collected(position, appending, appending.inputs[1], kind))
        if patch is not None:
            return patch
    return None


def _fixed(kind: TensorType, rewriter: Rewriter, loop: Node, body: Graph) -> bool:
    """Whether a value of the body has the same sizes in every iteration: they follow from those of what is there before."""
    needed = {s for d in kind.shape or () for s in symbols_of(d)}
    if not needed:
        return True
    known: set[str] = set()
    for name in (*loop.inputs[2:], *body.captured_names()):
        before = rewriter.types.get(name)
        elements = rewriter.values.get(name)
        dims = [*((before.shape or ()) if isinstance(before, TensorType) else ())]
        dims += [] if elements is None else [e for e in elements.reshape(-1) if isinstance(e, Expr)]
        known.update(s for d in dims for s in symbols_of(d))
    return needed <= known


def _appending(body: Graph, carried: int) -> Iterator[tuple[int, Node]]:
    """Carried values that the body only makes longer, at their end."""
    made_by = body.producers()
    given = body.output_names()
    reads = [name for node in body.nodes for name in (*node.inputs, *(node.used_names() - set(node.inputs)))]
    for position in range(carried):
        old, new = body.inputs[2 + position].name, given[1 + position]
        node = made_by.get(new)
        if node is None or node.domain or node.op_type not in ("Concat", "SequenceInsert") or len(node.inputs) != 2:
            continue
        if node.inputs[0] == old != node.inputs[1] and reads.count(old) == 1 and old not in given:
            if new not in reads and given.count(new) == 1:
                yield position, node


def _can_take(rewriter: Rewriter, loop: Node, position: int, appending: Node) -> bool:
    """Whether what the loop begins with can be put before its rows."""
    start = loop.inputs[2 + position]
    if appending.op_type == "Concat":
        return rewriter.rank(start) is not None
    made_by = rewriter.producer.get(start)
    return made_by is not None and made_by.op_type in ("SequenceEmpty", "SequenceConstruct") and not made_by.domain


def _patch(m: Match, found: _Collected) -> Patch | None:
    rewriter, loop = m.rewriter, m.root
    start, end = loop.inputs[2 + found.position], loop.outputs[found.position]
    axis, rank = int(found.node.attributes.get("axis", 0)), len(found.kind.shape or ())
    first: list[str] = []  # elements of a sequence before the first iteration
    if found.node.op_type == "Concat":
        if rewriter.rank(start) != rank or not _can_join(found.kind, axis):
            return None
    elif rewriter.producer[start].op_type == "SequenceConstruct":
        first = rewriter.producer[start].inputs
        if any(rewriter.types.get(name) != found.kind for name in first):
            return None
    patch = m.patch()
    stacked = rewriter.fresh(f"{patch.stem}.rows", patch.types)
    patch.types[stacked] = TensorType(DType.UNDEFINED)
    inputs = [n for i, n in enumerate(loop.inputs) if i != 2 + found.position]
    outputs = [*(n for i, n in enumerate(loop.outputs) if i != found.position), stacked]
    attributes = {**loop.attributes, "body": _shorter(loop.attributes["body"], found)}
    patch.node(Node("Loop", inputs, outputs, attributes, "", loop.name, loop.version, origin=patch.origin))
    if not end:
        return patch
    if found.node.op_type == "SequenceInsert":
        if first:
            begin = [patch.op("Unsqueeze", [name, patch.ints(0)]) for name in first]
            stacked = patch.op("Concat", [*begin, stacked], axis=0)
        return patch.result(patch.op("SplitToSequence", [stacked], version=11, axis=0, keepdims=0), end)
    rows = _side_by_side(patch, stacked, found.kind, axis % rank)
    return patch.result(patch.op("Concat", [start, rows], axis=axis), end)


def _shorter(body: Graph, found: _Collected) -> Graph:
    """The body without the carried value, whose rows are a further output."""
    made = body.clone()
    made.nodes = [n for n in made.nodes if found.node.outputs[0] not in n.outputs]
    made.inputs = [v for i, v in enumerate(body.inputs) if i != 2 + found.position]
    made.outputs = [v for i, v in enumerate(body.outputs) if i != 1 + found.position]
    made.outputs = [*made.outputs, Value(found.row, found.kind)]
    return made


def _can_join(kind: TensorType, axis: int) -> bool:
    """Whether rows of this type can be put side by side by `_side_by_side`."""
    shape = kind.shape or ()
    if not -len(shape) <= axis < len(shape):
        return False
    return shape[axis] == 1 or all(isinstance(d, int) and d > 0 for d in shape)


def _side_by_side(patch: Patch, stacked: str, kind: TensorType, axis: int) -> str:
    """[rows, *shape] as one tensor in which the rows lie one behind the other along `axis` of the shape."""
    shape = kind.shape or ()
    if axis:
        stacked = patch.op("Transpose", [stacked], perm=[*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1)])
    if shape[axis] == 1:
        return patch.op("Squeeze", [stacked, patch.ints(axis + 1)])
    return patch.op("Reshape", [stacked, patch.ints(*(-1 if i == axis else number_of(d) for i, d in enumerate(shape)))])


def _joined(m: Match) -> Patch | None:
    rewriter, root = m.rewriter, m.root
    split = rewriter.producer.get(root.inputs[0])
    if split is None or split.op_type != "SplitToSequence" or len(split.inputs) != 1 or split.attributes.get("keepdims", 1):
        return None
    kind = rewriter.types.get(split.inputs[0])
    if split.attributes.get("axis", 0) or not isinstance(kind, TensorType) or not kind.shape:
        return None
    row = kind.shape[1:]
    rank, axis, patch = len(row), int(root.attributes["axis"]), m.patch()
    if not root.attributes.get("new_axis", 0):
        if not _can_join(TensorType(kind.dtype, row), axis):
            return None
        return patch.result(_side_by_side(patch, split.inputs[0], TensorType(kind.dtype, row), axis % rank), root.outputs[0])
    if not -rank - 1 <= axis <= rank:
        return None
    axis %= rank + 1
    perm = [*range(1, axis + 1), 0, *range(axis + 1, rank + 1)]
    return patch.result(patch.op("Transpose", [split.inputs[0]], perm=perm), root.outputs[0])


RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    (
        # x = Concat(x, row) in each iteration = Concat(x, all rows); the same of SequenceInsert
        Rule("collect_rows", Op(("Loop",)), _collect, shared=True, retypes=True),
        # ConcatFromSequence(SplitToSequence(rows)) = rows under another shape
        Rule("join_split_rows", Op(("ConcatFromSequence",)), _joined, shared=True),
    ),
)
