"""Numbers of few bits: which forms of QuantizeLinear and DequantizeLinear the parser and builder take, and rules for others.

NVIDIA's libraries have signed integers of 8 and 4 bits and floats of 8 (E4M3) and 4 bits (E2M1), with scales of a tensor, of an
axis or of blocks, and no zero points. Unsigned numbers whose zero point is the middle of their range are the signed ones less
that; weights in other forms are dequantised when they are translated, as ONNX says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.passes.rewriter import Patch
from intarsia.passes.rule import Match, Op, Rule
from intarsia.providers.vendor.legalization_rules import typed

OPERATORS = ("QuantizeLinear", "DequantizeLinear")
TYPES = frozenset((DType.INT8, DType.INT4, DType.FLOAT8E4M3FN, DType.FLOAT4E2M1))
_SIGNED: Mapping[DType, tuple[DType, int]] = {DType.UINT8: (DType.INT8, 128), DType.UINT4: (DType.INT4, 8)}
_LEAST_CHIP: Mapping[DType, int] = {DType.FLOAT8E4M3FN: 89, DType.FLOAT4E2M1: 100}  # 10 times the compute capability
_REAL = frozenset((DType.FLOAT, DType.FLOAT16, DType.BFLOAT16))


def refusal(node: Node, graph: Graph, chips: Collection[int]) -> str:
    """Why one of `OPERATORS` is not given to the parser, as what it does there; "" where it may be tried.

    Args:
        chips: 10 times the compute capabilities that the engine is for.
    """
    turned = node.op_type == "DequantizeLinear"
    stored, real = (node.inputs[0], node.outputs[0]) if turned else (node.outputs[0], node.inputs[0])
    kind = _dtype(graph, stored)
    if _dtype(graph, real) not in _REAL:
        return f"quantised numbers are of floats there, and {real!r} is not"
    if _dtype(graph, node.inputs[1]) not in _REAL:
        return "scales are floats of 16 or 32 bits there"
    if kind is None:
        return f"the type of {stored!r} is not known"
    if (least := _LEAST_CHIP.get(kind, 0)) and (old := [chip for chip in chips if chip < least]):
        needs = f"{kind.onnx_name} needs compute capability {least / 10}"
        return f"{needs} or later, and this is for {', '.join(str(chip / 10) for chip in sorted(old))}"
    if turned and all(name in graph.constants for name in node.inputs if name):
        return ""
    if node.inputs[1] not in graph.constants:
        return "scales are constants there"
    if not turned and not int(node.attributes.get("saturate", 1)):
        return "what is too large becomes the largest number there, also where 'saturate' is 0"
    if kind not in TYPES and kind not in _SIGNED:
        return f"it has no {kind.onnx_name}"
    return _zero_point(node, graph, kind)


def _zero_point(node: Node, graph: Graph, kind: DType) -> str:
    name = node.inputs[2] if len(node.inputs) > 2 else ""
    middle = _SIGNED[kind][1] if kind in _SIGNED else 0
    if name and name not in graph.constants:
        return "zero points are constants there"
    zero = graph.constants[name].numpy() if name else np.zeros(())
    if (zero.astype(np.float32) == middle).all():
        return ""
    return f"zero points of {kind.onnx_name} are {middle} there" + (", as the signed numbers' 0" if middle else "")


def _dtype(graph: Graph, name: str) -> DType | None:
    kind = graph.type_of(name)
    return kind.dtype if isinstance(kind, TensorType) else None


def _attributes(node: Node) -> dict[str, object]:
    return {name: value for name, value in node.attributes.items() if name != "output_dtype"}


def _array(m: Match, name: str) -> np.ndarray | None:
    found = m.rewriter.constant(name) if name else None
    return None if found is None else found.numpy()


def _is_middle(zero: np.ndarray | None, kind: DType) -> bool:
    return kind in _SIGNED and zero is not None and bool((zero.astype(np.int32) == _SIGNED[kind][1]).all())


def _weights(m: Match) -> Patch | None:
    """Unsigned weights about the middle are signed ones about 0; in a form that is not there, they are dequantised here."""
    node = m.root
    numbers, scale, zero = (_array(m, name) for name in (*node.inputs, "")[:3])
    kind = m.rewriter.dtype(node.inputs[0])
    has_zero = len(node.inputs) > 2 and bool(node.inputs[2])
    if numbers is None or scale is None or kind is None or (has_zero and zero is None):
        return None
    if kind in TYPES and (zero is None or not zero.astype(np.float32).any()):
        return None
    patch = m.patch()
    if _is_middle(zero, kind):
        signed, middle = _SIGNED[kind]
        moved = patch.constant((numbers.astype(np.int16) - middle).astype(signed.numpy), "signed")
        made = patch.op(node.op_type, [moved, node.inputs[1]], version=node.version, type=_result(m), **_attributes(node))
        return patch.result(made, node.outputs[0])
    return patch.result(patch.constant(_dequantized(node, numbers, scale, zero), "real"), node.outputs[0])


def _result(m: Match) -> TensorType:
    return typed(m, m.root.outputs[0])


def _dequantized(node: Node, numbers: np.ndarray, scale: np.ndarray, zero: np.ndarray | None) -> np.ndarray:
    """(numbers - zero) scale, in the scale's type."""
    exact = numbers.astype(np.int64) if zero is not None and numbers.dtype.kind != "f" else numbers.astype(np.float32)
    if zero is not None:
        exact = exact - _along(node, zero.astype(exact.dtype), numbers.shape)
    return np.asarray(exact.astype(scale.dtype) * _along(node, scale, numbers.shape))


def _along(node: Node, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """One value for each number: of the tensor, of an axis, or of blocks along it."""
    if values.size == 1:
        return values.reshape(())
    axis = int(node.attributes.get("axis", 1)) % len(shape)
    if block := int(node.attributes.get("block_size", 0)):
        return np.repeat(values, block, axis)[tuple(slice(n) for n in shape)]
    return values.reshape([-1 if i == axis else 1 for i in range(len(shape))])


def _unsigned_pair(m: Match) -> Patch | None:
    """DequantizeLinear of QuantizeLinear, both about the middle of unsigned numbers, is so about 0 of signed ones."""
    node = m.root
    kind = m.rewriter.dtype(node.inputs[0])
    made = m.rewriter.producer_of(node.inputs[0], "QuantizeLinear")
    if made is None or kind is None or kind not in _SIGNED:
        return None
    zeros = [_array(m, n.inputs[2]) if len(n.inputs) > 2 else None for n in (made, node)]
    if not all(_is_middle(zero, kind) for zero in zeros) or zeros[0] is None:
        return None
    signed = _SIGNED[kind][0]
    patch = m.patch()
    zero = patch.constant(np.zeros(zeros[0].shape, signed.numpy), "zero")
    quantised = patch.op(
        "QuantizeLinear", [*made.inputs[:2], zero], version=made.version, type=typed(m, node.inputs[0], dtype=signed),
        **_attributes(made),
    )  # fmt: skip
    real = patch.op(node.op_type, [quantised, node.inputs[1]], version=node.version, type=_result(m), **_attributes(node))
    return patch.result(real, node.outputs[0])


RULES = (
    Rule("quantised_weights", Op(("DequantizeLinear",)), _weights),
    Rule("signed_for_unsigned", Op(("DequantizeLinear",)), _unsigned_pair),
)
