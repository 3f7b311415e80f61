"""Types of attributes: what a node was given against what its operator's schema, or else its definition, says."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia.graph.model import AttributeRef, Graph, MapType, Node, OptionalType, SequenceType, SparseTensor, TensorType
from intarsia.ops.framework.registry import REQUIRED, OpRecord
from intarsia.primitives import lang as k

_TOLD = {
    "INT": "an integer", "FLOAT": "a number", "STRING": "a string", "TENSOR": "a tensor", "GRAPH": "a graph",
    "SPARSE_TENSOR": "a sparse tensor", "TYPE_PROTO": "a type", "INTS": "a list of integers", "FLOATS": "a list of numbers",
    "STRINGS": "a list of strings", "TENSORS": "a list of tensors", "GRAPHS": "a list of graphs",
}  # fmt: skip
_TYPES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (numbers.Integral, "INT"), (numbers.Real, "FLOAT"), ((str, bytes), "STRING"), (np.ndarray, "TENSOR"), (Graph, "GRAPH"),
    (SparseTensor, "SPARSE_TENSOR"), ((TensorType, SequenceType, OptionalType, MapType), "TYPE_PROTO"),
)  # fmt: skip
_EXACT = {int: "INT", float: "FLOAT", str: "STRING", bytes: "STRING"}  # most elements of lists: forests have millions
_COUNTS = frozenset(
    "num_heads q_num_heads kv_num_heads group groups num_groups offset_group blocksize block_size state_window".split()
)
SERVING = {("INT", "FLOAT"), ("INTS", "FLOATS")}  # what is given as an integer where a number is meant


def check_attributes(record: OpRecord, node: Node) -> None:
    """Raise DefinitionError where a required attribute is missing, or one is unknown or not of its type.

    Operators that are not Intarsia's own have a schema that checks more (`intarsia.custom_ops`).
    """
    if not record.own:
        return
    for name, default in record.attributes.items():
        if default is REQUIRED and name not in node.attributes:
            raise k.DefinitionError(f"required attribute {name!r} is missing")
    for name, value in node.attributes.items():
        declared = record.attribute_types.get(name)
        if declared is None:
            _check_known(record, node, name)
        elif value is not None and not _is_of_type(value, declared):
            raise k.DefinitionError(f"attribute {name!r} is {_shown(value)}; expected {_TOLD[declared]}")
        elif name in _COUNTS and declared == "INT" and not isinstance(value, AttributeRef):
            _check_count(record, name, value)


def _check_count(record: OpRecord, name: str, value: int) -> None:
    """A number of parts is at least 1, or 0 where leaving the attribute out means that (RotaryEmbedding's num_heads)."""
    least = 0 if record.attributes.get(name) in (0, None) else 1
    if value < least:
        raise k.DefinitionError(f"attribute {name!r} is {value}; expected a number of at least {least}")


def _check_known(record: OpRecord, node: Node, name: str) -> None:
    known = record.takes_any_attribute or name in record.attributes or name == "consumed_inputs" or name.startswith("_")
    if not known:
        raise unknown_attribute(record, node.op_type, name)


def unknown_attribute(record: OpRecord, op_type: str, name: str) -> k.DefinitionError:
    """What is said of an attribute that a version of an operator does not have."""
    return k.DefinitionError(
        f"Unrecognized attribute: {name} for operator {op_type}: "
        f"attribute {name!r} is not known to version {record.since} of the operator"
    )


def attribute_type(value: Any) -> str:
    """ONNX's word for the type of an attribute's value; "" for an empty list, a reference, and what is none."""
    if isinstance(value, (list, tuple)):
        words = {_EXACT.get(kind, "") for kind in set(map(type, value))}
        words = {attribute_type(v) for v in value} if "" in words else words
        one = "FLOAT" if words == {"INT", "FLOAT"} else words.pop() if len(words) == 1 else ""
        return one and f"{one}S"
    if isinstance(value, AttributeRef):
        return ""
    if hasattr(value, "constant"):  # a tensor that stays in its file
        return "TENSOR"
    return next((word for kind, word in _TYPES if isinstance(value, kind)), "")


def _is_of_type(value: Any, declared: str) -> bool:
    given = attribute_type(value)
    if given == declared or (given, declared) in SERVING:
        return True
    return isinstance(value, AttributeRef) or (isinstance(value, (list, tuple)) and not value and declared[-1] == "S")


def _shown(value: Any) -> str:
    if isinstance(value, (numbers.Number, str, bytes)):
        return repr(value)
    if isinstance(value, Sequence) and len(value) <= 8 and all(isinstance(v, (numbers.Number, str, bytes)) for v in value):
        return repr(list(value))
    return _TOLD.get(attribute_type(value), f"a {type(value).__name__}")
