"""Convolutions beside each other whose results are added: networks that were trained in branches (RepVGG, MobileOne)."""

from __future__ import annotations

from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch
from intarsia.passes.rule import Match, Rule, RuleSet, Var, op


def _how(node: Node) -> dict[str, Any]:
    return {key: value for key, value in node.attributes.items() if key != "kernel_shape"}


def _added(m: Match) -> Patch | None:
    rewriter, (first, second) = m.rewriter, (m.node("first"), m.node("second"))
    if first is second or first.inputs[0] != second.inputs[0] or _how(first) != _how(second):
        return None
    a, b = (rewriter.constant(node.inputs[1]) for node in (first, second))
    if a is None or b is None or a.shape != b.shape or not a.dtype == b.dtype == DType.FLOAT:
        return None
    biases = [rewriter.constant(node.inputs[2]) for node in (first, second) if len(node.inputs) > 2 and node.inputs[2]]
    if any(found is None for found in biases):
        return None
    patch = m.patch()
    inputs = [first.inputs[0], patch.lazy_constant(a.dtype, a.shape, lambda: a.numpy() + b.numpy(), "weights")]
    if biases:
        inputs.append(patch.constant(np.sum([found.numpy() for found in biases if found is not None], 0), "bias"))
    made = patch.op("Conv", inputs, version=first.version, **first.attributes)
    if "rest" in m:
        made = patch.op("Add", [m["rest"], made])
    return patch.result(made, m.root.outputs[0])


_FIRST, _SECOND = op("Conv", name="first"), op("Conv", name="second")

RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    (
        # conv(x, u) + conv(x, v) = conv(x, u + v)
        Rule("add_of_convolutions", (op("Add", _FIRST, _SECOND), op("Add", op("Add", Var("rest"), _FIRST), _SECOND)), _added),
    ),
)
