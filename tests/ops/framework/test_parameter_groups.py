"""Parameters that stand for several inputs or attributes: what the registry knows of them, and what a definition is given."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.evaluate import evaluate_record
from intarsia.ops.framework.operands import OMITTED
from intarsia.ops.framework.parameter_groups import FlatDefinition, ParameterGroup, flat, keyword_names, takes_any_keyword
from intarsia.ops.framework.quantized import OutputQuantization, Quantized, QuantizedMatrix
from intarsia.ops.framework.registry import REQUIRED, OpRecord
from intarsia.primitives import lang as k


@dataclass(frozen=True)
class Reach(ParameterGroup):
    size: int
    strides: Sequence[int] | None = None


@dataclass(frozen=True)
class Earlier(ParameterGroup):
    past_key: Any
    past_value: Any = None


def grouped(x: Any, bias: Any = None, earlier: Earlier = Earlier(None), *, alpha: float = 1.0, reach: Reach) -> Any:  # noqa: B008
    return x, bias, earlier, alpha, reach


def record(function: Any, **more: Any) -> OpRecord:
    return OpRecord("test", "Grouped", 1, flat(function), **more)


def test_a_function_without_groups_is_itself() -> None:
    def plain(x: k.Tensor, *, alpha: float = 1.0) -> k.Tensor:
        return x * alpha

    assert flat(plain) is plain
    assert keyword_names(plain) == {"alpha"} and not takes_any_keyword(plain)


def test_the_registry_sees_fields() -> None:
    found = record(grouped)
    assert found.input_names == ("x", "bias", "past_key", "past_value")
    assert found.attributes == {"alpha": 1.0, "size": REQUIRED, "strides": None}
    assert found.attribute_types == {"alpha": "FLOAT", "size": "INT", "strides": "INTS"}
    assert not (found.takes_any_attribute or found.wants_context or found.variadic)
    assert keyword_names(found.function) == {"alpha", "size", "strides"}


def test_what_follows_an_optional_input_is_required_by_its_default() -> None:
    """A field without a default behind an optional parameter: inputs are positional, so that it needs one."""
    found = record(grouped)
    assert inspect.signature(found.function).parameters["past_key"].default is OMITTED
    assert found.required_inputs == (0, 2)


def test_groups_are_filled_by_place_and_by_name() -> None:
    function = flat(grouped)
    assert function(1, 2, 3, 4, size=5, strides=[6]) == (1, 2, Earlier(3, 4), 1.0, Reach(5, [6]))
    assert function(1, None, 3, alpha=0.5, size=5) == (1, None, Earlier(3), 0.5, Reach(5))


def test_inputs_that_are_left_out_leave_no_gap() -> None:
    def behind(x: Any, bias: Any = None, *, reach: Reach) -> Any:
        return x, bias, reach

    assert flat(behind)(1, size=2) == (1, None, Reach(2))

    def before(bias: Any = 7, scale: Quantized = Quantized(0, 1, 2), *rest: Any) -> Any:  # type: ignore[arg-type] # noqa: B008
        return bias, scale, rest

    with pytest.raises(TypeError, match="values"):
        flat(before)()
    assert flat(before)(1, 2, 3, 4, 5, 6) == (1, Quantized(2, 3, 4), (5, 6))  # type: ignore[arg-type]


def test_a_missing_attribute_is_named() -> None:
    node = Node("Grouped", ["x", "", "k"], ["y"], {}, "test", version=1)
    with pytest.raises(Exception, match="required attribute 'size' is missing"):
        evaluate_record(record(grouped), node, [np.ones(2), None, np.ones(2)])


def test_names_of_quantised_operands() -> None:
    assert Quantized.onnx_names("A") == ["A", "A_scale", "A_zero_point"]
    assert QuantizedMatrix.onnx_names("A") == ["A", "a_scale", "a_zero_point"]
    assert OutputQuantization.onnx_names("y") == ["y_scale", "y_zero_point"]


def test_a_definition_is_computed_with_its_groups() -> None:
    def scaled(x: Quantized, *, reach: Reach) -> k.Tensor:
        return (k.cast(x.values, DType.FLOAT) - k.cast(x.zero_point, DType.FLOAT)) * x.scale * float(reach.size)

    inputs = [np.array([1, 3], np.uint8), np.float32(0.5), np.uint8(1)]
    node = Node("Grouped", ["x", "s", "z"], ["y"], {"size": 3}, "test", version=1)
    (y,) = evaluate_record(record(scaled), node, inputs)
    np.testing.assert_array_equal(y, np.float32([0, 3]))


def test_where_a_definition_stands_is_what_it_wraps() -> None:
    function = flat(grouped)
    assert isinstance(function, FlatDefinition)
    assert (function.__module__, function.__qualname__, function.__wrapped__) == (__name__, "grouped", grouped)


def test_any_attribute() -> None:
    def anything(x: Any, *, reach: Reach, **attributes: Any) -> Any:
        return x, reach, attributes

    function = flat(anything)
    assert takes_any_keyword(function) and record(anything).takes_any_attribute
    assert function(1, size=2, other=3) == (1, Reach(2), {"other": 3})


def test_an_input_before_a_group_that_may_be_none_is_optional() -> None:
    def behind(x: Any, bias: k.Tensor | None, earlier: Earlier, *, alpha: float = 1.0) -> Any:
        return x, bias, earlier, alpha

    found = record(behind)
    assert found.required_inputs == (0, 2)
    assert flat(behind)(1, None, 3) == (1, None, Earlier(3), 1.0)
