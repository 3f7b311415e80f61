"""Gemm as MatMul and Add: integer operators replace products, and these are products of any rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from intarsia.quantization.description.model_editor import attributes_of
from intarsia.quantization.description.node_order import names_read, subgraphs

_DERIVED = ("", "_quantized", "_scale", "_zero_point")  # names that quantising a stored tensor adds to its own


def gemm_as_matmul(model: onnx.ModelProto) -> dict[str, str]:
    """Rewrite every Gemm with the factors 1 and an A that is not transposed, in place, graphs inside included.

    Returns:
        Transposed weights that were stored for it -> what they are the transposed of.
    """
    graph = model.graph
    rewrite = _Rewrite(_all_names(graph))
    rewrite.graph([graph])
    return rewrite.sources


def _all_names(graph: onnx.GraphProto) -> set[str]:
    found = {t.name for t in graph.initializer} | set(names_read(graph))
    found |= {v.name for v in (*graph.input, *graph.output, *graph.value_info)}
    for node in graph.node:
        found.update(node.output)
        for sub in subgraphs(node):
            found |= _all_names(sub)
    return found


class _Rewrite:
    def __init__(self, taken: set[str]) -> None:
        self.taken = taken
        self.sources: dict[str, str] = {}

    def graph(self, path: Sequence[onnx.GraphProto]) -> None:
        """Rewrite the innermost of nested graphs."""
        own = path[-1]
        made: dict[str, str] = {}
        nodes: list[onnx.NodeProto] = []
        for node in own.node:
            for sub in subgraphs(node):
                self.graph([*path, sub])
            nodes += self._replaced(node, path, made) if node.op_type == "Gemm" and not node.domain else [node]
        fresh = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
        own.ClearField("node")
        own.node.extend(fresh)

    def _replaced(self, node: onnx.NodeProto, path: Sequence[onnx.GraphProto], made: dict[str, str]) -> list[onnx.NodeProto]:
        given = attributes_of(node)
        if given.get("alpha", 1.0) != 1.0 or given.get("beta", 1.0) != 1.0 or given.get("transA", 0):
            return [node]
        found: list[onnx.NodeProto] = []
        right = node.input[1]
        if given.get("transB", 0):
            right = self._transposed(node, path, made, found)
        biased = len(node.input) > 2 and node.input[2]
        product = node.output[0] + ("_MatMul" if biased else "")

        def name(tail: str) -> str:
            return node.name + tail if node.name else ""

        found.append(helper.make_node("MatMul", [node.input[0], right], [product], name("_MatMul")))
        if biased:
            found.append(helper.make_node("Add", [product, node.input[2]], node.output, name("_Add")))
        return found

    def _transposed(
        self, node: onnx.NodeProto, path: Sequence[onnx.GraphProto], made: dict[str, str], found: list[onnx.NodeProto]
    ) -> str:
        """The name of B transposed: stored beside it, or computed."""
        source = node.input[1]
        if source in made:
            return made[source]
        stored = next((t for graph in reversed(path) for t in graph.initializer if t.name == source), None)
        result = self._free(f"{source}_Transposed")
        made[source] = result
        if stored is None:
            name = f"{node.name}_Transpose" if node.name else ""
            found.append(helper.make_node("Transpose", [source], [result], name))
            return result
        values = np.ascontiguousarray(numpy_helper.to_array(stored).T)
        path[-1].initializer.append(numpy_helper.from_array(values, result))
        self.sources[result] = source
        return result

    def _free(self, name: str) -> str:
        """The name, or the name with a number, that nothing has, nor what is derived from it."""
        found, number = name, 0
        while any(found + tail in self.taken for tail in _DERIVED):
            number += 1
            found = f"{name}_{number}"
        self.taken.update(found + tail for tail in _DERIVED)
        return found
