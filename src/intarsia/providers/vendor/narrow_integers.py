"""Which 64-bit integers of a graph certainly lie below 2**31, for vendors that compute them in 32 bits."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, TensorType
from intarsia.lazy_dataclass import dataclass

NARROW_LIMIT = 1 << 31

MOVES = frozenset(
    "Concat DepthToSpace Expand Flatten Gather GatherElements GatherND Identity Pad Reshape Slice SpaceToDepth Split "
    "Squeeze Tile Transpose Trilu Unsqueeze".split()
)
"""Operators that put elements elsewhere and compute nothing."""

MAKES_SMALL = {"Shape": (0,), "Size": (0,), "ArgMax": (0,), "ArgMin": (0,), "NonZero": (0,), "TopK": (1,)}
"""Operators with outputs (by index) that are sizes or positions, hence below 2**31 in any tensor that fits into memory."""

_SMALL_IF_INPUTS_ARE = frozenset("Add Sub Mul Min Max Range Where Neg Abs Clip".split()) | MOVES
_SMALL_TYPES = (DType.BOOL, DType.INT8, DType.UINT8, DType.INT16, DType.INT32)

INDEX_INPUTS: dict[str, tuple[int, ...]] = {
    "Shape": (0,), "Size": (0,),
    "Gather": (1,), "GatherElements": (1,), "GatherND": (1,), "Reshape": (1,), "Slice": (1, 2, 3, 4), "Squeeze": (1,),
    "Unsqueeze": (1,), "Expand": (1,), "Tile": (1,), "Pad": (1, 3), "Split": (1,), "TopK": (1,), "Resize": (3,),
    "ReduceSum": (1,), "ReduceMean": (1,), "ReduceMax": (1,), "ReduceMin": (1,), "ReduceProd": (1,), "ReduceL1": (1,),
    "ReduceL2": (1,), "ReduceLogSum": (1,), "ReduceLogSumExp": (1,), "ReduceSumSquare": (1,), "CumSum": (1,), "OneHot": (0, 1),
    "ConstantOfShape": (0,), "Trilu": (1,), "ScatterElements": (1,), "ScatterND": (1,), "LSTM": (4,), "GRU": (4,), "RNN": (4,),
    "RotaryEmbedding": (3,), "Attention": (6,),
}  # fmt: skip
"""Inputs (by index) that are positions, sizes or axes, or of which only the shape is read."""


@dataclass
class NarrowIntegers:
    """Values of one graph that hold 64-bit integers between -2**31 and 2**31 - 1.

    Sums and products of sizes and positions count as such: a tensor of 2**31 elements on one axis does not fit.
    """

    graph: Graph
    names: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, graph: Graph) -> NarrowIntegers:
        found = cls(graph)
        for node in graph.nodes:
            if node.domain:
                continue
            small = MAKES_SMALL.get(node.op_type, ())
            found.names.update(node.outputs[i] for i in small if i < len(node.outputs) and node.outputs[i])
            if node.op_type == "Cast" and found._from_small_type(node):
                found.names.update(n for n in node.outputs if n)
            index = INDEX_INPUTS.get(node.op_type, ())
            data = [n for i, n in enumerate(node.inputs) if n and i not in index and found.is_wide(n)]
            if node.op_type in _SMALL_IF_INPUTS_ARE and all(n in found for n in data):
                found.names.update(n for n in node.outputs if n and found.is_wide(n))
        return found

    def is_wide(self, name: str) -> bool:
        """Whether the value's elements are of 64 bits."""
        kind = self.graph.type_of(name)
        return isinstance(kind, TensorType) and kind.dtype is DType.INT64

    def __contains__(self, name: str) -> bool:
        constant = self.graph.constants.get(name)
        return name in self.names or (constant is not None and is_narrow(constant))

    def _from_small_type(self, node: Node) -> bool:
        kind = self.graph.type_of(node.inputs[0])
        return isinstance(kind, TensorType) and kind.dtype in _SMALL_TYPES


def is_narrow(constant: Constant) -> bool:
    """Whether all elements of a constant fit into 32 bits; True where they are no 64-bit integers."""
    array = constant.numpy()
    return array.dtype != np.int64 or not array.size or bool(array.min() >= -NARROW_LIMIT and array.max() < NARROW_LIMIT)
