"""Graphs as text."""

from __future__ import annotations

import re

import numpy as np
import onnx

from intarsia.graph.dtypes import DType
from intarsia.graph.load import load
from intarsia.graph.model import AttributeRef, Node, SparseTensor, TensorType
from intarsia.graph.text import format_attribute, format_graph, format_node


def test_node() -> None:
    node = Node("Gemm", ["x", "w", ""], ["y", ""], {"transB": 1, "alpha": 0.1}, name="dense")
    assert format_node(node) == "%y, _ = Gemm(%x, %w, _, transB=1, alpha=0.1)  # dense"
    types = {"y": TensorType(DType.FLOAT, (1, 64))}
    assert format_node(node, types) == "%y: float[1, 64], _ = Gemm(%x, %w, _, transB=1, alpha=0.1)  # dense"
    assert format_node(node, types.get, "  ").startswith("  %y: float[1, 64]")
    assert str(Node("Op", [], ["y"], domain="d", overload="o")) == "%y = d::Op:o()"


def test_graph(mlp: onnx.ModelProto) -> None:
    expected = """\
graph mlp {
  # IR version 10, from tests
  # opsets: ai.onnx 20
  input %x: float[batch, 4]
  output %y: float[batch, 3]
  constant %w: float[4, 3] = 48 bytes
  constant %b: float[3] = [1., 2., 3.]
  %h: float[batch, 3] = Gemm(%x, %w, alpha=0.5, transB=0)  # dense
  %r = Relu(%h)  # Relu_1
  %y: float[batch, 3] = Add(%r, %b)  # add
}"""
    graph = load(mlp)
    assert str(graph) == expected
    graph.overridable = ["b"]
    assert "overridable constant %b: float[3]" in format_graph(graph)


def test_subgraphs_and_functions(branching: onnx.ModelProto) -> None:
    expected = """\
graph branching {
  # IR version 10
  # opsets: ai.onnx 20, custom 1
  input %c: bool[]
  input %x: float[x_d0#, 3]
  input %text: string[n]
  output %s: seq(float[...])
  output %o: optional(int64[2])
  output %u: string[u_d0#]
  %i = If(%c, else_branch=graph else {
      output %e: float[...]
      constant %two: float[] = 2.
      %e: float[...] = Mul(%x, %two)  # Mul_1
    }, then_branch=graph then {
      output %t: float[...]
      %t: float[...] = Mul(%x, %x)  # Mul_0
    })  # If_0
  %y = custom::Scale(%i, alpha=4)  # Scale_1
  %s: seq(float[...]) = SequenceConstruct(%y, %y)  # SequenceConstruct_2
  %o: optional(int64[2]) = Optional(type=int64[2])  # Optional_3
  %u: string[u_d0#] = StringNormalizer(%text, is_case_sensitive=1, stopwords=['a', 'é'])  # StringNormalizer_4
  function custom::Scale(%a, alpha=3) -> %b {
    %factor = Constant(value_float=@alpha)  # Constant_0
    %b = Mul(%a, %factor)  # Mul_1
  }
}"""
    assert re.sub(r"#\d+", "#", str(load(branching))) == expected


def test_attribute_values() -> None:
    assert format_attribute(AttributeRef("a")) == "@a"
    assert format_attribute(list(range(20))) == "[0, 1, 2, 3, 4, 5, 6, 7, ... 20 in all]"
    assert format_attribute("x" * 200).endswith("... (200 in all)")
    assert format_attribute(b"\xff") == repr(b"\xff")
    assert format_attribute(np.zeros((3, 4), np.float16)) == "float16[3, 4]"
    assert format_attribute(np.int64([[1, 2], [3, 4]])) == "[[1, 2], [3, 4]]"
    assert format_attribute(np.empty((0, 3))) == "[]"
    assert format_attribute(np.array(["a"], object)) == "['a']"
    assert format_attribute(SparseTensor(np.float32([1]), np.int64([0]), (2, 3))) == "sparse[2, 3] with 1 values"
