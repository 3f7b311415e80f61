"""Specs of a template's operands: known ranks alone, and no template where one is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType, Value
from intarsia.ops import registry
from intarsia.ops.framework.infer import Inference, infer
from intarsia.providers.cpu.kernels.common.template import template_for
from intarsia.providers.cpu.kernels.common.tensor_spec import (
    TensorSpec,
    has_unknown_rank,
    operand_specs,
    result_spec,
    spec_of,
)

N = symbol("N")


def inferred(node: Node, **types: TensorType) -> Inference:
    inputs = [Value(name, kind) for name, kind in types.items()]
    graph = Graph("g", inputs, [Value(n, None) for n in node.outputs], [node], {}, opset_imports={"": 21})
    return infer(graph, registry())


def test_a_type_of_known_rank_is_a_spec() -> None:
    found = spec_of(TensorType(DType.FLOAT, (N, 3)))
    assert found == TensorSpec(DType.FLOAT, (N, 3))
    assert found is not None
    assert found.rank == 2
    assert str(found) == str(TensorType(DType.FLOAT, (N, 3)))
    assert replace(found, dtype=DType.DOUBLE) == TensorSpec(DType.DOUBLE, (N, 3))
    assert spec_of(TensorType(DType.FLOAT, ())) == TensorSpec(DType.FLOAT, ())


@pytest.mark.parametrize("kind", [None, TensorType(DType.FLOAT), TensorType(DType.FLOAT, None), "no type"])
def test_what_is_no_tensor_of_known_rank_has_none(kind: object) -> None:
    assert spec_of(kind) is None


def test_operands_that_are_omitted_have_none() -> None:
    node = Node("Clip", ["x", "", "high"], ["y"], version=13)
    found = inferred(node, x=TensorType(DType.FLOAT, (4, N)), high=TensorType(DType.FLOAT, ()))
    assert operand_specs(node, found) == (TensorSpec(DType.FLOAT, (4, N)), None, TensorSpec(DType.FLOAT, ()))
    assert result_spec(node, found) == TensorSpec(DType.FLOAT, (4, N))
    assert not has_unknown_rank(node, found)


def test_no_template_takes_an_operand_of_unknown_rank() -> None:
    node = Node("Gemm", ["a", "b", "c"], ["y"], version=13)
    known = {name: TensorType(DType.FLOAT, (4, 4)) for name in "ab"}
    found = inferred(node, **known, c=TensorType(DType.FLOAT, (4,)))
    made = template_for(node, found)
    assert made is not None
    assert made.operand(0) == TensorSpec(DType.FLOAT, (4, 4))
    unknown = inferred(node, **known, c=TensorType(DType.FLOAT, (4,)))
    unknown.types["c"] = TensorType(DType.FLOAT)
    assert has_unknown_rank(node, unknown)
    assert template_for(node, unknown) is None


def test_an_operand_that_is_not_there_is_named() -> None:
    node = Node("Gemm", ["a", "b"], ["y"], version=13)
    made = template_for(node, inferred(node, **{name: TensorType(DType.FLOAT, (4, 4)) for name in "ab"}))
    assert made is not None
    with pytest.raises(AssertionError, match="Gemm has no operand 2"):
        replace(made, types=(*made.types, None)).operand(2)
