"""Loops that repeat rows: what exporters write for `repeat_interleave` with counts that data decides is one Gather.

for i in range(n): sequence += [x[i] repeated r[i] times]      =      x[index],  index = 0 (r[0] times), 1 (r[1] times), ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.passes.analysis.loop_types import always_goes_on
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch, Rewriter
from intarsia.passes.rule import Match, Op, Rule, RuleSet


class _Body:
    """A loop's body, read backwards from what it gives."""

    def __init__(self, body: Graph, around: Rewriter) -> None:
        self.made_by, self.body, self.around = body.producers(), body, around

    def node(self, name: str, op_type: str) -> Node | None:
        found = self.made_by.get(name)
        while found is not None and found.op_type == "Identity" and op_type != "Identity":
            found = self.made_by.get(found.inputs[0])
        return found if found is not None and found.op_type == op_type and not found.domain else None

    def ints(self, name: str) -> list[int] | None:
        """Elements of a constant of integers."""
        array: np.ndarray | None = None
        if name in self.body.constants:
            array = self.body.constants[name].numpy()
        elif (node := self.node(name, "Constant")) is not None:
            value: Any = node.attributes.get("value")
            value = node.attributes.get("value_ints", node.attributes.get("value_int")) if value is None else value
            array = None if value is None else np.asarray(value)
        elif name not in self.made_by:
            return self.around.ints(name)
        return None if array is None or array.dtype.kind not in "iu" else [int(v) for v in array.reshape(-1)]

    def piece(self, name: str) -> tuple[str, int] | None:
        """(tensor, axis) where the value is element i of it, cut in pieces of one, i being the number of the iteration."""
        at = self.node(name, "SequenceAt")
        if at is None or at.inputs[1] != self.body.inputs[0].name:
            return None
        split = self.around.producer.get(at.inputs[0])
        if split is None or split.op_type != "SplitToSequence" or split.domain:
            return None
        if len(split.inputs) > 1 and split.inputs[1]:
            if not _is_ones(split.inputs[1], self.around):
                return None
        elif not split.attributes.get("keepdims", 1):
            return None
        return split.inputs[0], int(split.attributes.get("axis", 0))


def _is_ones(name: str, around: Rewriter) -> bool:
    node = around.producer.get(name)
    if node is not None and node.op_type == "ConstantOfShape" and not node.domain:
        value = node.attributes.get("value")
        return value is not None and np.asarray(value).reshape(-1).tolist() == [1]
    found = around.ints(name)
    return found is not None and set(found) == {1}


def _repeated(m: Match) -> Patch | None:
    rewriter, root = m.rewriter, m.root
    loop = rewriter.producer.get(root.inputs[0])
    body = loop.attributes.get("body") if loop is not None else None
    if (
        loop is None
        or loop.op_type != "Loop"
        or loop.domain
        or not isinstance(body, Graph)
        or root.attributes.get("new_axis", 0)
    ):
        return None
    if len(loop.inputs) != 3 or len(loop.outputs) != 1 or len(body.inputs) != 3 or len(body.outputs) != 2:
        return None
    start = rewriter.producer.get(loop.inputs[2])
    if start is None or start.op_type != "SequenceEmpty" or not always_goes_on(loop, body, rewriter):
        return None
    found = _pieces(_Body(body, rewriter), body, int(root.attributes["axis"]))
    if found is None:
        return None
    x, counts, axis = found
    kind, many = rewriter.types.get(x), rewriter.types.get(counts)
    trips = rewriter.values.get(loop.inputs[0])
    if not isinstance(kind, TensorType) or not isinstance(many, TensorType) or many.dtype is not DType.INT64:
        return None
    if kind.shape is None or many.shape is None or len(many.shape) != 1 or kind.shape[axis] != many.shape[0]:
        return None
    if trips is None or trips.size != 1 or trips.reshape(-1)[0] != many.shape[0]:
        return None
    return _gathered(m, x, counts, axis)


def _pieces(read: _Body, body: Graph, axis: int) -> tuple[str, str, int] | None:
    """What is repeated, how often, and along which axis, where the body appends that to its sequence."""
    append = read.node(body.outputs[1].name, "SequenceInsert")
    if append is None or len(append.inputs) != 2 or append.inputs[0] != body.inputs[2].name:
        return None
    reshape = read.node(append.inputs[1], "Reshape")
    expand = read.node(reshape.inputs[0], "Expand") if reshape is not None else None
    grown = read.node(expand.inputs[0], "Unsqueeze") if expand is not None else None
    if reshape is None or expand is None or grown is None:
        return None
    piece = read.piece(grown.inputs[0])
    wanted = read.ints(reshape.inputs[1])
    axes = read.ints(grown.inputs[1]) if len(grown.inputs) > 1 else grown.attributes.get("axes")
    if piece is None or wanted is None or axes is None:
        return None
    kind = read.around.types.get(piece[0])
    if not isinstance(kind, TensorType) or not kind.shape or not -len(kind.shape) <= axis < len(kind.shape):
        return None
    rank = len(kind.shape)
    at = axis % rank
    if piece[1] % rank != at or [a % (rank + 1) for a in axes] != [at + 1] or len(wanted) != rank or wanted[at] != -1:
        return None
    if any(w != d and not (w == 0 and i < at) for i, (w, d) in enumerate(zip(wanted, kind.shape, strict=True)) if i != at):
        return None
    counts = _counts(read, expand.inputs[1], kind, at)
    return None if counts is None else (piece[0], counts, at)


def _counts(read: _Body, name: str, kind: TensorType, at: int) -> str | None:
    """The tensor of counts, where the shape says to repeat the piece by its element and to leave the other axes as they are."""
    where = read.node(name, "Where")  # -1 stands for "as it is", which Expand writes as 1
    joined = read.node(where.inputs[2] if where is not None else name, "Concat")
    if joined is None or len(joined.inputs) != 3 or (where is not None and not _minus_ones(read, where, joined)):
        return None
    before, after = read.ints(joined.inputs[0]), read.ints(joined.inputs[2])
    piece = read.piece(joined.inputs[1])
    shape = kind.shape or ()
    if before is None or after is None or piece is None or piece[1] != 0:
        return None
    if len(before) != at + 1 or len(after) != len(shape) - at - 1:
        return None
    expected: Sequence[Any] = (*shape[:at], 1, *shape[at + 1 :])
    if any(w not in (1, -1) and w != d for w, d in zip((*before, *after), expected, strict=True)):
        return None
    return piece[0]


def _minus_ones(read: _Body, where: Node, joined: Node) -> bool:
    """Where(Equal(shape, -1), 1, shape)."""
    equal, ones = read.node(where.inputs[0], "Equal"), read.node(where.inputs[1], "ConstantOfShape")
    if equal is None or ones is None or joined.outputs[0] not in equal.inputs:
        return False
    other = next((n for n in equal.inputs if n != joined.outputs[0]), "")
    product = read.node(other, "Mul")
    if product is not None and ones.outputs[0] in product.inputs:
        other = next((n for n in product.inputs if n != ones.outputs[0]), "")
    value = ones.attributes.get("value")
    return read.ints(other) == [-1] and value is not None and np.asarray(value).reshape(-1).tolist() == [1]


def _gathered(m: Match, x: str, counts: str, axis: int) -> Patch:
    """Ends of the runs are counted where they lie; how many ended before a place is the number of its row."""
    patch = m.patch()
    zero, one = patch.constant(np.array(0, np.int64), "zero"), patch.ints(1)
    ends = patch.op("CumSum", [counts, zero])
    total = patch.op("ReduceSum", [counts, patch.ints(0)], keepdims=1)
    room = patch.op("ConstantOfShape", [patch.op("Add", [total, one])], value=np.array([0], np.int64))
    ones = patch.op("ConstantOfShape", [patch.op("Shape", [counts])], value=np.array([1], np.int64))
    marks = patch.op("ScatterElements", [room, ends, ones], axis=0, reduction="add")
    index = patch.op("Slice", [patch.op("CumSum", [marks, zero]), patch.ints(0), patch.ints(-1)])
    return patch.result(patch.op("Gather", [x, index], axis=axis), m.root.outputs[0])


RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    (
        # ConcatFromSequence of pieces that a loop repeats = Gather
        Rule("repeat_rows", Op(("ConcatFromSequence",)), _repeated, shared=True),
    ),
)
