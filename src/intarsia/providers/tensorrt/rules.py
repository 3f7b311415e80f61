"""Operators that NVIDIA's parser writes in a way that loses numbers, or that do not build, in terms of others.

All nodes of a part have one opset when the parser reads them: rules write the forms of the model's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch
from intarsia.passes.rule import Match, Op, Rule, RuleSet
from intarsia.providers.tensorrt import quantized
from intarsia.providers.vendor import legalization_rules
from intarsia.providers.vendor.legalization_rules import fixed_shape, reduced_axes

_AXES_BY_INPUT = {"ReduceSum": 13, "ReduceMax": 18}
_OF_ROWS = 13  # in older versions of LogSoftmax all axes from `axis` on are one


def _reduced(m: Match, patch: Patch, op_type: str, x: str, axes: Sequence[int], keepdims: int = 1) -> str:
    opset = m.rewriter.graph.opset_imports.get("", 1)
    if opset >= _AXES_BY_INPUT[op_type]:
        return patch.op(op_type, [x, patch.ints(*axes)], version=_AXES_BY_INPUT[op_type], keepdims=keepdims)
    return patch.op(op_type, [x], version=11, axes=list(axes), keepdims=keepdims)


def _log_softmax(m: Match) -> Patch | None:
    """z - log(sum(exp(z))), z = x - max(x): the parser's log(softmax(x)) is -inf from 104 below the largest on."""
    node, rank = m.root, m.rewriter.rank(m.root.inputs[0])
    if not rank:
        return None
    old = node.version < _OF_ROWS
    axis = int(node.attributes.get("axis", 1 if old else -1)) % rank
    axes = range(axis, rank) if old else [axis]
    patch, x = m.patch(), node.inputs[0]
    z = patch.op("Sub", [x, _reduced(m, patch, "ReduceMax", x, axes)], version=7)
    total = _reduced(m, patch, "ReduceSum", patch.op("Exp", [z], version=6), axes)
    return patch.result(patch.op("Sub", [z, patch.op("Log", [total], version=6)], version=7), node.outputs[0])


def _log_sum_exp(m: Match) -> Patch | None:
    """top + log(sum(exp(x - top))), top = max(x): the parser's log(sum(exp(x))) is infinite from 89 on."""
    node, axes = m.root, reduced_axes(m)
    if not axes:
        return None
    patch, x, keepdims = m.patch(), node.inputs[0], int(node.attributes.get("keepdims", 1))
    top = _reduced(m, patch, "ReduceMax", x, axes)
    shifted = patch.op("Exp", [patch.op("Sub", [x, top], version=7)], version=6)
    total = patch.op("Log", [_reduced(m, patch, "ReduceSum", shifted, axes, keepdims)], version=6)
    most = top if keepdims else _reduced(m, patch, "ReduceMax", x, axes, 0)
    return patch.result(patch.op("Add", [most, total], version=7), node.outputs[0])


def _instance_of_one(m: Match) -> Patch | None:
    """(x - x) scale + bias, where instances have one element, which the builder makes nothing of."""
    node, shape = m.root, fixed_shape(m, m.root.inputs[0])
    if shape is None or len(shape) < 3 or any(d != 1 for d in shape[2:]):
        return None
    patch, x = m.patch(), node.inputs[0]
    channels = patch.ints(1, shape[1], *(1 for _ in shape[2:]))
    scale, bias = (patch.op("Reshape", [name, channels], version=5) for name in node.inputs[1:3])
    zero = patch.op("Mul", [patch.op("Sub", [x, x], version=7), scale], version=7)
    return patch.result(patch.op("Add", [zero, bias], version=7), node.outputs[0])


_PARSER_READS = ("softmax_of_rows", "chain_of_two")
"""Rules for vendors that the parser needs not: it reads old Softmax and sums of many right."""

RULES = (
    RuleSet(
        GraphOptimizationLevel.ORT_ENABLE_BASIC,
        (
            Rule("stable_log_softmax", Op(("LogSoftmax",)), _log_softmax),
            Rule("stable_log_sum_exp", Op(("ReduceLogSumExp",)), _log_sum_exp),
            *quantized.RULES,
            Rule("instance_of_one", Op(("InstanceNormalization",)), _instance_of_one),
            *(rule for rule in legalization_rules.RULES if rule.name not in _PARSER_READS),
        ),
    ),
)
