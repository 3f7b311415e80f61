"""Rules that write operators of onnxruntime's optimisers in standard operators, which providers know best: fused, channels-last
and quantised ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from intarsia.graph.model import Node
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch
from intarsia.passes.rule import Match, Rule, RuleSet, op

_DOMAIN = "com.microsoft"
_WINDOWS = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def _windows(node: Node) -> dict[str, Any]:
    """Where the convolution's windows lie."""
    return {name: node.attributes.get(name) for name in _WINDOWS}


def _transposed(m: Match, patch: Patch, name: str, last: bool) -> str:
    """A value with its channels moved behind its spatial axes (`last`), or back."""
    rank = m.rewriter.rank(m.root.inputs[0])
    assert rank is not None
    perm = [0, *range(2, rank), 1] if last else [0, rank - 1, *range(1, rank - 1)]
    return patch.op("Transpose", [name], perm=perm)


def _convolution(m: Match) -> Patch | None:
    """act(Conv(X, W, B) + Z), in either layout."""
    node = m.root
    last = node.op_type.startswith("Nhwc")
    activation = node.attributes.get("activation", "")
    if activation and activation not in _ACTIVATIONS or (last and m.rewriter.rank(node.inputs[0]) is None):
        return None
    dtype = m.rewriter.dtype(node.inputs[0])
    if dtype is None:
        return None
    patch = m.patch()
    x, *others = node.inputs
    value = patch.op(
        "Conv",
        [_transposed(m, patch, x, last=False) if last else x, *others[:2]],
        **_windows(node),
    )
    value = _transposed(m, patch, value, last=True) if last else value
    if len(others) > 2 and others[2]:
        value = patch.op("Add", [value, others[2]])
    if activation:
        parameters = [float(v) for v in node.attributes.get("activation_params") or ()]
        value = _activated(patch, value, activation, parameters, dtype.numpy)
    return patch.result(value, node.outputs[0])


# Activation -> version, names of its attributes and their defaults.
_ACTIVATIONS: dict[str, tuple[int, dict[str, float]]] = {
    "Relu": (14, {}), "Sigmoid": (13, {}), "Tanh": (13, {}), "LeakyRelu": (16, {"alpha": 0.01}), "Clip": (13, {}),
    "HardSigmoid": (6, {"alpha": 0.2, "beta": 0.5}),
}  # fmt: skip


def _activated(patch: Patch, value: str, name: str, parameters: list[float], dtype: Any) -> str:
    version, defaults = _ACTIVATIONS[name]
    if name == "Clip":
        bounds = [patch.constant(np.array(v, dtype), "bound") for v in parameters[:2]]
        return patch.op(name, [value, *bounds], version=version)
    given: dict[str, Any] = dict(zip(defaults, [*parameters, *list(defaults.values())[len(parameters) :]], strict=False))
    return patch.op(name, [value], version=version, **given)


def _quantised_convolution(m: Match) -> Patch | None:
    """QLinearConv of ONNX, between transpositions where channels are last."""
    node = m.root
    last = bool(node.attributes.get("channels_last", 0))
    if last and m.rewriter.rank(node.inputs[0]) is None:
        return None
    patch = m.patch()
    x = _transposed(m, patch, node.inputs[0], last=False) if last else node.inputs[0]
    value = patch.op("QLinearConv", [x, *node.inputs[1:]], version=10, **_windows(node))
    return patch.result(_transposed(m, patch, value, last=True) if last else value, node.outputs[0])


def _plain_concat(m: Match) -> Patch | None:
    """Concat of the integers, where every part has the output's scale and zero point."""
    scale, zero, *inputs = m.root.inputs
    if not inputs or len(inputs) % 3:
        return None
    for i in range(0, len(inputs), 3):
        for name, other in zip(inputs[i + 1 : i + 3], (scale, zero), strict=True):
            given, array = m.rewriter.array(name), m.rewriter.array(other)
            if (
                given is None
                or array is None
                or given.dtype != array.dtype
                or not np.array_equal(given.reshape(-1), array.reshape(-1))
            ):
                return None
    patch = m.patch()
    return patch.result(patch.op("Concat", inputs[::3], version=13, axis=m.root.attributes["axis"]), m.root.outputs[0])


RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    (
        # FusedConv(x, w, b, z) = act(Conv(x, w, b) + z)
        Rule("write_out_fused_convolution", op("FusedConv|NhwcConv|NhwcFusedConv", domain=_DOMAIN), _convolution),
        # QLinearConv(x) in channels-last layout = transposed QLinearConv(transposed x)
        Rule("write_out_quantised_convolution", op("QLinearConv", domain=_DOMAIN), _quantised_convolution),
        # QLinearConcat(s, z, x, s, z, ...) = Concat(x, ...)
        Rule("join_what_is_quantised_alike", op("QLinearConcat", domain=_DOMAIN), _plain_concat),
    ),
)
