"""Rules over tensors known by position (positions.py): masks of ones vanish, gathers over whole grids become views."""

from __future__ import annotations

from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.positions import grid_of, linear_of
from intarsia.passes.rewriter import Patch
from intarsia.passes.rule import Match, Rule, RuleSet, op
from intarsia.passes.shapes import reshape_target


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


RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    (
        # b and ones = b;  b or zeros = b
        Rule("remove_neutral_mask", op("And|Or"), _neutral_operand, shared=True),
        # x[i, j] over all i, j = x
        Rule("gather_whole_grid", op("GatherND"), _gather_whole_grid, shared=True),
    ),
)
