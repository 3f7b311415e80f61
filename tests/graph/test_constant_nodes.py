"""Constant's attributes: in functions a reference may give one of another type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, helper, numpy_helper

import intarsia as ort
from intarsia.errors import InvalidGraph

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")


def called(attribute: str, kind: int, given: Any, provider: str) -> list[Any]:
    """What a function gives whose Constant takes its attribute from the call."""
    node = helper.make_node("Constant", [], ["y"])
    node.attribute.add(name=attribute, ref_attr_name="a", type=kind)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    call, y = helper.make_node("F", [], ["y"], domain="own", a=given), helper.make_tensor_value_info("y", 0, None)
    function = helper.make_function("own", "F", [], ["y"], [node], opsets[:1], attributes=["a"])
    model = helper.make_model(
        helper.make_graph([call], "g", [], [y]), opset_imports=opsets, functions=[function], ir_version=10
    )
    return list(ort.InferenceSession(model.SerializeToString(), providers=[provider]).run(None, {}))


SPARSE = helper.make_sparse_tensor(
    numpy_helper.from_array(np.float32([5]), "v"), numpy_helper.from_array(np.int64([1]), "i"), [3]
)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("attribute", "kind", "given", "expected"),
    [
        ("value_float", AttributeProto.FLOAT, 1.5, np.float32(1.5)),
        ("value_floats", AttributeProto.FLOATS, [1.0, 2.0], np.float32([1, 2])),
        ("value_int", AttributeProto.INT, -3, np.int64(-3)),
        ("value_ints", AttributeProto.INTS, [1, 2], np.int64([1, 2])),
        ("value_string", AttributeProto.STRING, "a\0", np.array("a\0", object)),
        ("value_strings", AttributeProto.STRINGS, ["a", "b"], np.array(["a", "b"], object)),
        ("value", AttributeProto.TENSOR, numpy_helper.from_array(np.float32([[1]])), np.float32([[1]])),
        ("sparse_value", AttributeProto.SPARSE_TENSOR, SPARSE, np.float32([0, 5, 0])),
    ],
)
def test_references(attribute: str, kind: int, given: Any, expected: np.ndarray, provider: str) -> None:
    (found,) = called(attribute, kind, given, provider)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("attribute", "kind", "given", "message"),
    [
        ("value_float", AttributeProto.FLOAT, "3", "value_float is a str, expected float"),
        ("value_float", AttributeProto.FLOAT, [1.0, 2.0], "value_float is a list, which does not fit its name"),
        ("value_floats", AttributeProto.FLOATS, 1.0, "value_floats is a float, which does not fit its name"),
        ("value_int", AttributeProto.INT, 1.5, "value_int is a float, expected int64"),
        ("value_string", AttributeProto.STRING, 1, "value_string is a int, expected string"),
        ("value_strings", AttributeProto.STRINGS, "a", "value_strings is a str, which does not fit its name"),
        ("value", AttributeProto.TENSOR, "abc", "value is a str, expected a tensor"),
        ("value", AttributeProto.TENSOR, 1.0, "value is a float, expected a tensor"),
        ("sparse_value", AttributeProto.SPARSE_TENSOR, [1], "sparse_value is a list, expected a tensor"),
    ],
)
def test_references_to_attributes_of_another_type(
    attribute: str, kind: int, given: Any, message: str, provider: str
) -> None:
    with pytest.raises(InvalidGraph, match=rf"\(Constant\).*: {message}"):
        called(attribute, kind, given, provider)
