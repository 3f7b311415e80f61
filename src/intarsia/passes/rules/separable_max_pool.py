"""The largest element of a large window is found along one axis after the other, which takes fewer comparisons."""

from __future__ import annotations

import math

from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch
from intarsia.passes.rule import Match, Rule, RuleSet, op

_WORTH = 2  # times as many comparisons as one axis after the other takes: the pools between write and read all elements


def _one_axis_after_the_other(m: Match) -> Patch | None:
    node, rewriter = m.root, m.rewriter
    how = node.attributes
    kernel = how.get("kernel_shape")
    if kernel is None or how.get("auto_pad", "NOTSET") != "NOTSET" or any(node.outputs[1:]):
        return None
    rank = len(kernel)
    strides, dilations = (how.get(name) or [1] * rank for name in ("strides", "dilations"))
    pads = how.get("pads") or [0] * (2 * rank)
    wrong = min([*kernel, *strides, *dilations], default=1) < 1
    if wrong or sum(size > 1 for size in kernel) < 2:  # those that this rule makes have one
        return None
    separable = sum(size * math.prod(strides[n + 1 :]) for n, size in enumerate(kernel))
    if math.prod(kernel) < _WORTH * separable:
        return None
    patch, value = m.patch(), node.inputs[0]
    for n in range(rank):

        def only(values: list[int], otherwise: int, axis: int = n) -> list[int]:
            return [v if i % rank == axis else otherwise for i, v in enumerate(values)]

        its = {
            "kernel_shape": only(kernel, 1),
            "strides": only(strides, 1),
            "dilations": only(dilations, 1),
            "pads": only(pads, 0),
        }
        out = rewriter.fresh(f"{patch.stem}.axis{n}", patch.types)
        patch.node(node.copy(inputs=[value], outputs=[out], attributes=how | its, origin=patch.origin))
        value = out
    return patch.result(value, node.outputs[0])


RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    (
        # max over (i, j) = max over i of max over j
        Rule("large_maxima_by_axes", op("MaxPool"), _one_axis_after_the_other),
    ),
)
