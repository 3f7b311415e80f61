"""Rules over tensors known by position (positions.py): masks of ones vanish, gathers over whole grids become views."""

from __future__ import annotations

import numpy as np

from intarsia.passes.analysis.affine_index import grid_of, linear_of
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch
from intarsia.passes.rule import Match, Rule, RuleSet, op
from intarsia.passes.rules.simplify_shapes import reshape_target


def _neutral_operand(m: Match) -> Patch | None:
    """And with ones, Or with zeros: the other operand, repeated to the result's shape where it is smaller."""
    rewriter, node = m.rewriter, m.root
    neutral = 1 if node.op_type == "And" else 0
    for one, other in (node.inputs, node.inputs[::-1]):
        found = linear_of(rewriter, one)
        if (
            found is None
            or found.fill != neutral
            or rewriter.constant(one) is not None
            and rewriter.constant(other) is not None
        ):
            continue
        if rewriter.shape(other) is None or rewriter.shape(node.outputs[0]) is None:
            continue
        patch = m.patch()
        if rewriter.shape(other) != rewriter.shape(node.outputs[0]):
            other = patch.op("Expand", [other, patch.op("Shape", [one])])
        return patch.result(other, node.outputs[0])
    return None


def _gather_whole_grid(m: Match) -> Patch | None:
    """data[i, j] for i on one axis of the result, j on a later one: data itself with axes of size 1 between."""
    rewriter, node = m.rewriter, m.root
    data, out = rewriter.shape(node.inputs[0]), rewriter.shape(node.outputs[0])
    forms = grid_of(rewriter, node)
    if data is None or out is None or forms is None or len(forms) != len(data):
        return None
    axes = []
    for form, size in zip(forms, data, strict=True):
        where = [k for k, c in enumerate(form.coefficients) if c]
        if form.offset != 0 or len(form.coefficients) != len(out):
            return None
        if size == 1 and not where:
            continue
        if len(where) != 1 or form.coefficients[where[0]] != 1 or out[where[0]] != size:
            return None
        axes.append(where[0])
    if axes != sorted(set(axes)) or any(d != 1 for k, d in enumerate(out) if k not in axes):
        return None
    target = reshape_target(data, out)
    if target is None:
        return None
    patch = m.patch()
    return patch.result(patch.op("Reshape", [node.inputs[0], patch.ints(*target)]), node.outputs[0])


def _nonzero_of_ones(m: Match) -> Patch | None:
    """Positions of what is nowhere 0, on one axis: all of them. Exporters write a slice that is assigned to so."""
    rewriter, name = m.rewriter, m.root.inputs[0]
    found = linear_of(rewriter, name)
    if rewriter.rank(name) != 1 or found is None or not found.fill:
        return None
    patch = m.patch()
    count = patch.op("Squeeze", [patch.op("Shape", [name]), patch.ints(0)])
    zero, one = (patch.constant(np.array(i, np.int64)) for i in (0, 1))
    return patch.result(patch.op("Unsqueeze", [patch.op("Range", [zero, count, one]), patch.ints(0)]), m.root.outputs[0])


def _assigned_slice(m: Match) -> Patch | None:
    """Rows that are scattered over a box of the data: the data's parts before and behind it, and the rows, side by side."""
    rewriter, node = m.rewriter, m.root
    data, rows = rewriter.shape(node.inputs[0]), rewriter.shape(node.inputs[2])
    forms = grid_of(rewriter, node)
    if data is None or rows is None or forms is None or node.attributes.get("reduction", "none") != "none":
        return None
    if len(rows) != len(data) or len(forms) > len(data):
        return None
    cuts: list[tuple[int, int, int, int]] = []  # axis, where the box begins and ends, size
    for axis, (size, count) in enumerate(zip(data, rows, strict=True)):
        form = forms[axis] if axis < len(forms) else None
        if form is not None:
            unit = [0] * len(forms)
            unit[axis] = 1
            along = list(form.coefficients)
            if count == 1:
                along[axis : axis + 1] = unit[axis : axis + 1]
            if along != unit or not isinstance(form.offset, int) or form.offset < 0:
                return None
        begin = form.offset if form is not None else 0
        assert isinstance(begin, int)
        if begin == 0 and size == count:
            continue
        if not isinstance(size, int) or not isinstance(count, int) or begin + count > size or not count:
            return None
        cuts.append((axis, begin, begin + count, size))
    patch, source = m.patch(), node.inputs[0]
    around = []  # of each cut: what lies before and behind the box
    for axis, begin, end, size in cuts:
        sides = [(0, begin), (end, size)]
        around.append([_part(patch, source, axis, *side) if side[0] < side[1] else "" for side in sides])
        source = _part(patch, source, axis, begin, end) if (axis, begin, end, size) != cuts[-1] else source
    made = node.inputs[2]
    for (axis, *_), (before, behind) in zip(cuts[::-1], around[::-1], strict=True):
        made = patch.op("Concat", [n for n in (before, made, behind) if n], axis=axis)
    return patch.result(made, node.outputs[0])


def _part(patch: Patch, name: str, axis: int, begin: int, end: int) -> str:
    return patch.op("Slice", [name, patch.ints(begin), patch.ints(end), patch.ints(axis)])


RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    (
        # x[i, j] over all i, j = x
        Rule("gather_whole_grid", op("GatherND"), _gather_whole_grid, shared=True),
        # ScatterND over a box = Concat(data before, rows, data behind)
        # nonzero(ones(n)) = [range(n)]
        Rule("nonzero_of_ones", op("NonZero"), _nonzero_of_ones, shared=True),
        Rule("assign_slice", op("ScatterND"), _assigned_slice, shared=True),
    ),
)

EXTENDED_RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    (
        # b and ones = b;  b or zeros = b
        Rule("remove_neutral_mask", op("And|Or"), _neutral_operand, shared=True),
    ),
)
