"""Operators of your own, in tensor primitives or as NumPy functions. See docs/custom-operators.md.

import intarsia
from intarsia.custom_ops import primitives as k

@intarsia.op("my.domain::Scale")
def scale(x, *, factor=2.0):
    return x * factor
"""

from intarsia.custom_ops.library import OperatorLibrary, host_op, op, unregister_operator
from intarsia.graph.broadcasting import broadcast_shapes
from intarsia.graph.dims import Dim, dim_max, dim_min, fresh_symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import MapType, OptionalType, SequenceType, TensorType, ValueType
from intarsia.ops.framework.registry import NodeContext
from intarsia.primitives import lang as primitives
from intarsia.primitives.lang import DefinitionError, SymbolicValueError, Tensor

__all__ = [
    "DType",
    "DefinitionError",
    "Dim",
    "MapType",
    "NodeContext",
    "OperatorLibrary",
    "OptionalType",
    "SequenceType",
    "SymbolicValueError",
    "Tensor",
    "TensorType",
    "ValueType",
    "broadcast_shapes",
    "dim_max",
    "dim_min",
    "fresh_symbol",
    "host_op",
    "op",
    "primitives",
    "unregister_operator",
]
