"""A node written in another version of its operator: for those who know other versions than the model's."""

from __future__ import annotations

from typing import Any

from intarsia.graph.model import Node
from intarsia.passes.opset_versions import same_meaning

# Values of attributes that a version brought: operator, attribute and value -> that version.
_NEW_VALUES = {
    ("Pad", "mode", "wrap"): 19, ("Resize", "coordinate_transformation_mode", "half_pixel_symmetric"): 19,
    ("ScatterElements", "reduction", "max"): 18, ("ScatterElements", "reduction", "min"): 18,
    ("ScatterND", "reduction", "max"): 18, ("ScatterND", "reduction", "min"): 18,
}  # fmt: skip
_BROADCASTS = frozenset(("Add", "And", "Div", "Equal", "Gemm", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"))
"""Operators of a flag "broadcast" before version 7: sizes that agree from the last axis on, where no axis is named."""
_OLD_ATTRIBUTES = frozenset(("broadcast", "consumed_inputs"))
_SAMPLING = {"linear": "bilinear", "cubic": "bicubic"}  # GridSample's modes since version 20, as they were before


def as_version(node: Node, version: int) -> Node | None:
    """The node in another version of its operator, but for the element types that this one has; itself for its own.

    None where it is not known to mean the same. It may then have nothing that came later: inputs, outputs, attributes and
    values of these.
    """
    if version == node.version:
        return node
    if node.op_type == "GridSample" and not node.domain and version < 20 <= node.version:
        mode = _text(node.attributes.get("mode", "linear"))
        return node.copy(version=version, attributes={**node.attributes, "mode": _SAMPLING.get(mode, mode)})
    if node.version < 7 <= version and node.op_type in _BROADCASTS and not node.domain and "axis" not in node.attributes:
        attributes = {name: value for name, value in node.attributes.items() if name not in _OLD_ATTRIBUTES}
        return as_version(node.copy(version=7, attributes=attributes), version)
    if not same_meaning(node.domain, node.op_type, node.version, version) or not _fits(node, version):
        return None
    return node.copy(version=version)


def _fits(node: Node, version: int) -> bool:
    """Whether the operator has in a version all that a node uses."""
    import onnx.defs

    schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    if len(node.inputs) > schema.max_input or len(node.outputs) > schema.max_output:
        return False
    return all(
        name in schema.attributes and _NEW_VALUES.get((node.op_type, name, _text(value)), 0) <= version
        for name, value in node.attributes.items()
    )


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value if isinstance(value, str) else ""
