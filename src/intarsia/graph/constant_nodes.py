"""The value of a Constant node, which one of its attributes holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from intarsia.errors import InvalidGraph
from intarsia.graph.dtypes import DType
from intarsia.graph.formats.tensor_proto import StoredTensor, densified
from intarsia.graph.model import Constant, Node, SparseTensor

# element type of a Constant's attribute, and the kinds of NumPy's types that hold such elements
_ELEMENTS = {
    "value_float": (DType.FLOAT, "fiu"), "value_floats": (DType.FLOAT, "fiu"), "value_int": (DType.INT64, "iu"),
    "value_ints": (DType.INT64, "iu"), "value_string": (DType.STRING, ""), "value_strings": (DType.STRING, ""),
}  # fmt: skip


def constant_of_node(node: Node, where: str) -> Constant:
    """Exactly one attribute of the node is given (ONNX's Constant), of the type that its name says.

    Raises:
        InvalidGraph: it is another number of outputs or attributes, an attribute that Constant has not, or one of another type.
    """
    if len(node.outputs) != 1 or len(node.attributes) != 1:
        raise InvalidGraph(
            f"{where} has {len(node.outputs)} outputs and the attributes {sorted(node.attributes)}, expected one of each; in a "
            "function an attribute may be a reference to one that its call gives, or that has a default"
        )
    (output,), ((key, value),) = node.outputs, node.attributes.items()
    if key in ("value", "sparse_value"):
        return _tensor(key, value, output, where)
    if key not in _ELEMENTS:
        raise InvalidGraph(f"{where} has the attribute {key!r}, expected one of {['value', 'sparse_value', *_ELEMENTS]}")
    dtype, kinds = _ELEMENTS[key]
    given = _texts(value) if dtype is DType.STRING else _numbers(value, kinds)
    if given is None:
        raise InvalidGraph(f"{where}: {key} is a {type(value).__name__}, expected {dtype.onnx_name}")
    if given.ndim != key.endswith("s"):
        raise InvalidGraph(f"{where}: {key} is a {type(value).__name__}, which does not fit its name")
    array = given.astype(dtype.numpy)
    array.flags.writeable = False
    return Constant(output, dtype, array.shape, array, where)


def _numbers(value: Any, kinds: str) -> np.ndarray | None:
    try:
        array = np.array(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return array if array.dtype.kind in kinds or not array.size else None


def _texts(value: Any) -> np.ndarray | None:
    """Without NumPy's own type of texts, which drops zeros at their ends."""
    array = np.array(value, object)
    return array if all(isinstance(x, str | bytes) for x in array.reshape(-1)) else None


def _tensor(key: str, value: Any, output: str, where: str) -> Constant:
    if isinstance(value, StoredTensor):
        return value.constant(output)
    if isinstance(value, SparseTensor):
        return densified(output, value, where)
    if isinstance(value, np.ndarray):
        return Constant.of(output, value)
    raise InvalidGraph(f"{where}: {key} is a {type(value).__name__}, expected a tensor")
