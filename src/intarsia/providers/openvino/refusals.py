"""What OpenVINO is not given although it would take it: where it computes something else than ONNX says.

Element types first. OpenVINO's CPU plugin computes 64-bit integers in 32 bits (2**40 becomes 0), float64 in float32, and 8-bit
integers saturate where ONNX wraps around, all without a word. So 64-bit integers are taken only where their values are known
to be small: shapes, indices, and what is moved or added of them.
"""

from __future__ import annotations

import platform

import numpy as np

from intarsia.ep.capability import Support
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.openvino.saturation import adds_bytes_in_16_bits, saturating
from intarsia.providers.openvino.wrong import WRONG, WRONG_OF_NAN, WRONG_ON_ARM64
from intarsia.providers.vendor.narrow_integers import INDEX_INPUTS, MAKES_SMALL, MOVES, NarrowIntegers

TAKEN = frozenset((DType.FLOAT, DType.FLOAT16, DType.BFLOAT16, DType.INT32, DType.INT64, DType.INT8, DType.UINT8, DType.BOOL))
_BFLOAT16_INFINITY = 0x7F80  # its bits
ON_ARM64 = platform.machine().lower() in ("aarch64", "arm64")

_INTEGER_EXACT = (
    frozenset(
        "Abs Add ArgMax ArgMin BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Clip ConstantOfShape CumSum Equal "
        "Greater GreaterOrEqual Less LessOrEqual Max Min Mul Neg NonZero OneHot Range ScatterElements ScatterND Shape Sign "
        "Size Sub Sum Where".split()
    )
    | MOVES
) - {"Trilu"}
"""Operators that OpenVINO computes in integers. The others go through float32 and are wrong from 2**24 on (ReduceSum, MatMul,
Div, Mod, Pow, Relu, Trilu, ... of [2**24 + 1]), and Div and Mod round in between too."""

_EIGHT_BITS = frozenset(
    "Cast CastLike QuantizeLinear DequantizeLinear Equal Less Greater LessOrEqual GreaterOrEqual Where".split()
)


@dataclass
class Analysis:
    """Of one graph: its 64-bit integers that are certainly below 2**31, and its products that would saturate."""

    graph: Graph
    narrow: NarrowIntegers
    saturating: frozenset[str] = frozenset()

    @classmethod
    def of(cls, graph: Graph, device: str = "CPU") -> Analysis:
        wrong = saturating(graph) if adds_bytes_in_16_bits(device) else frozenset()
        return cls(graph, NarrowIntegers.of(graph), wrong)

    def refusal(self, node: Node) -> Support | None:
        """Why the element types of `node` cannot be left to OpenVINO; None where they can."""
        index = () if node.domain else INDEX_INPUTS.get(node.op_type, ())
        if any(self._is_empty(name) for name in node.inputs if name):
            return Support.no(f"{node.op_type} of an empty tensor, of which OpenVINO makes other shapes", code="wrong")
        if node.qualified_op == "Slice" and any(self.narrow.is_wide(n) and not self._is_index(n) for n in node.inputs[1:3]):
            return Support.no("Slice to positions that may be 2**63, which OpenVINO reads in 32 bits", code="wrong")
        for i, name in enumerate([*node.inputs, *node.outputs]):
            if not name:
                continue
            kind = self.graph.type_of(name)
            if not isinstance(kind, TensorType) or type(kind) is not TensorType:
                return Support.no(
                    f"{name!r} is {kind if kind is not None else 'of unknown type'}: only dense tensors", code="type"
                )
            if kind.dtype not in TAKEN:
                extra = " (OpenVINO computes it in float32)" if kind.dtype is DType.DOUBLE else ""
                return Support.no(f"{name!r} has elements of type {kind.dtype.onnx_name}{extra}", code="type")
            if kind.dtype is DType.BFLOAT16 and self._is_infinite(name):
                return Support.no(f"{name!r} is infinite bfloat16, which OpenVINO takes for a finite number", code="wrong")
            if kind.dtype is DType.INT64 and not (i < len(node.inputs) and i in index) and name not in self.narrow:
                return Support.no(
                    f"{name!r} holds int64 numbers of unknown size, which OpenVINO computes in 32 bits", code="type"
                )
            data = i >= len(node.inputs) or i not in index
            if data and kind.dtype in (DType.INT32, DType.INT64) and not self._exact(node, i):
                return Support.no(f"{node.op_type} of integers, which OpenVINO computes in float32", code="wrong")
            if kind.dtype in (DType.INT8, DType.UINT8) and node.op_type not in MOVES | _EIGHT_BITS:
                return Support.no(f"{node.op_type} of {kind.dtype.onnx_name}: OpenVINO saturates where ONNX wraps", code="type")
        return None

    def _is_empty(self, name: str) -> bool:
        kind = self.graph.type_of(name)
        return isinstance(kind, TensorType) and 0 in (kind.shape or ())

    def _is_index(self, name: str) -> bool:
        """Whether OpenVINO knows the numbers when it reads the model, or they are small."""
        return name in self.graph.constants or name in self.narrow

    def _is_infinite(self, name: str) -> bool:
        """Whether some elements of a constant of bfloat16 are."""
        constant = self.graph.constants.get(name)
        return constant is not None and bool(((constant.numpy().view(np.uint16) & 0x7FFF) == _BFLOAT16_INFINITY).any())

    @staticmethod
    def _exact(node: Node, i: int) -> bool:
        made = i - len(node.inputs) in MAKES_SMALL.get(node.op_type, ())
        return bool(node.domain) or made or node.op_type in _INTEGER_EXACT


def refusal(node: Node, analysis: Analysis, *, exact_nan: bool = True) -> Support | None:
    """Why `node` is not given to OpenVINO, before OpenVINO is asked."""
    if node.has_subgraphs:
        return Support.no(f"{node.op_type} has subgraphs, which stay with a provider that runs them", code="subgraph")
    tables = [WRONG, *[WRONG_OF_NAN] * exact_nan, *[WRONG_ON_ARM64] * ON_ARM64]
    for table in tables:
        check = table.get(node.qualified_op)
        if check is not None and (why := check(node, analysis.graph)):
            return Support.no(f"OpenVINO's {node.op_type} differs from ONNX: {why}", code="wrong")
    if node.outputs[0] in analysis.saturating:
        return Support.no(
            f"OpenVINO's {node.op_type} of 8 bits adds products in 16 bits on this CPU, which has no VNNI, and saturates; "
            "signed weights of 7 bits would not",
            code="wrong",
        )
    return analysis.refusal(node)
