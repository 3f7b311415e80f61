"""Rules that write operators in terms of those that NNAPI has."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch
from intarsia.passes.rule import Match, Op, Rule, RuleSet
from intarsia.providers.vendor.legalization_rules import GEMM_TO_MATMUL, fixed_shape, typed
from intarsia.providers.vendor.qoperator_rules import QGEMM_TO_GEMM, QLINEAR_TO_QDQ, QOPERATOR_RULES

_WITH_LISTS = ("kernel_shape", "strides", "dilations")


def _line_to_image(m: Match) -> Patch | None:
    """A convolution or pool of [N, C, L] is one of [N, C, 1, L]."""
    node, shape = m.root, fixed_shape(m, m.root.inputs[0])
    result = fixed_shape(m, node.outputs[0])
    if shape is None or result is None or len(shape) != 3 or any(node.outputs[1:]):
        return None
    patch = m.patch()
    attributes = dict(node.attributes)
    for name in _WITH_LISTS:
        if attributes.get(name):
            attributes[name] = [1, *attributes[name]]
    if attributes.get("pads"):
        low, high = attributes["pads"]
        attributes["pads"] = [0, low, 0, high]
    for name in ("output_padding", "output_shape"):
        if attributes.get(name):
            attributes[name] = [0 if name == "output_padding" else 1, *attributes[name][-1:]]
    inputs = [_lifted(m, patch, node.inputs[0])]
    if node.op_type.startswith("Conv"):
        inputs.append(_lifted(m, patch, node.inputs[1]))
        inputs += node.inputs[2:]
    made = patch.op(node.op_type, inputs, version=node.version, type=typed(m, node.outputs[0], _with_one(result)), **attributes)
    flat = patch.op("Reshape", [made, patch.ints(*result)], type=typed(m, node.outputs[0]))
    return patch.result(flat, node.outputs[0])


def _with_one(shape: Sequence[int]) -> tuple[int, ...]:
    return (*shape[:2], 1, *shape[2:])


def _lifted(m: Match, patch: Patch, name: str) -> str:
    """[A, B, L] as [A, B, 1, L]."""
    shape = fixed_shape(m, name)
    assert shape is not None, name
    dims = _with_one(shape)
    constant = m.rewriter.constant(name)
    if constant is not None:
        return patch.lazy_constant(constant.dtype, dims, lambda: constant.numpy().reshape(dims))
    return patch.op("Reshape", [name, patch.ints(*dims)], type=typed(m, name, dims))


RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    (
        Rule("line_to_image", Op(("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool")), _line_to_image),
        *QLINEAR_TO_QDQ,
        GEMM_TO_MATMUL,
        QGEMM_TO_GEMM,
        *QOPERATOR_RULES,
    ),
)
