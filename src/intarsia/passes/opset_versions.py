"""Operator versions that rules write, and when two versions of an operator mean the same."""

from __future__ import annotations

from functools import cache
from typing import Any

# Since-versions that the rewrite rules give to the nodes they make.
_EMITTED = {
    "Abs": 13, "Add": 14, "And": 7, "Attention": 23, "AveragePool": 22, "BatchNormalization": 15, "Cast": 13, "Clip": 13,
    "Concat": 13, "Conv": 11, "ConstantOfShape": 9, "ConvTranspose": 11, "CumSum": 14, "Div": 14, "Erf": 13, "Exp": 13,
    "Expand": 13, "Gather": 13, "Gelu": 20, "Gemm": 13, "GlobalAveragePool": 1, "GroupNormalization": 21,
    "GlobalMaxPool": 1, "HardSwish": 14, "Range": 11,
    "Identity": 13, "InstanceNormalization": 6, "LayerNormalization": 17, "MatMul": 13, "Mish": 18, "Mul": 14, "Pad": 13,
    "Pow": 13, "RMSNormalization": 23, "Reciprocal": 13, "ReduceMean": 18, "ReduceSum": 13, "Relu": 14, "Reshape": 14,
    "RotaryEmbedding": 23, "ScatterElements": 18, "Shape": 15, "Sigmoid": 13, "Slice": 13, "Softmax": 13, "Softplus": 1,
    "Split": 13, "Sqrt": 13, "Squeeze": 13, "Sub": 14, "Swish": 24, "Tanh": 13, "Transpose": 13, "Unsqueeze": 13, "Where": 9,
}  # fmt: skip

# Versions that changed what a node means without changing its signature.
_CHANGED_MEANING = {
    "Softmax": (13,), "LogSoftmax": (13,), "Hardmax": (13,), "GroupNormalization": (21,), "Resize": (11,), "Scan": (9,),
    "PRelu": (7,),
}  # fmt: skip

def emitted_version(op_type: str) -> int:
    """The since-version of `op_type` that rules write.

    Raises:
        KeyError: no rule writes this operator.
    """
    return _EMITTED[op_type]


@cache
def same_meaning(domain: str, op_type: str, version: int, other: int) -> bool:
    """Whether a node of one since-version means the same when read by the other (ONNX's schemas compared).

    A later version may add optional inputs, attributes with defaults and element types; the defaults it had must stay.
    """
    if version == other:
        return True
    low, high = sorted((version, other))
    if any(low < v <= high for v in _CHANGED_MEANING.get(op_type, ())):
        return False
    import onnx.defs

    try:
        before, after = (onnx.defs.get_schema(op_type, v, domain) for v in (low, high))
    except onnx.defs.SchemaError:
        return False
    if len(after.inputs) < len(before.inputs) or len(after.outputs) < len(before.outputs):
        return False
    for a, b in zip(before.inputs, after.inputs, strict=False):
        if a.option != b.option and b.option == onnx.defs.OpSchema.FormalParameterOption.Single:
            return False
    optional = onnx.defs.OpSchema.FormalParameterOption
    if any(p.option == optional.Single for p in after.inputs[len(before.inputs) :]):
        return False
    return _attributes_compatible(before.attributes, after.attributes)


def _attributes_compatible(before: dict[str, Any], after: dict[str, Any]) -> bool:
    for name, attribute in before.items():
        other = after.get(name)
        if other is None or other.type != attribute.type or other.required and not attribute.required:
            return False
        if other.default_value.SerializeToString() != attribute.default_value.SerializeToString():
            return False
    return all(not after[name].required for name in after if name not in before)
