"""Writes graphs node by node, as converters leave them, for `family_habits.py` and `family_tensorflow.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cases.family import Family, Run

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Sizes = Sequence[int | str]


class Writer:
    """Nodes and weights of a graph in the making; weights become initializers, or Constant nodes as some converters have it."""

    def __init__(self, constants: bool = False) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.constants, self.random, self.count = constants, np.random.default_rng(0), 0

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}_{self.count}"

    def weight(self, value: Any, dtype: Any = np.float32) -> str:
        name, array = self.name("const"), np.asarray(value, dtype)
        if self.constants:
            tensor = numpy_helper.from_array(array)
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.weights.append(numpy_helper.from_array(array, name))
        return name

    def normal(self, *shape: int, scale: float | None = None) -> str:
        scale = scale or 1 / np.sqrt(np.prod(shape[1:]) or 1)
        return self.weight(self.random.standard_normal(shape) * scale)

    def ints(self, *values: int) -> str:
        return self.weight(values, np.int64)

    def node(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        names = [self.name(kind) for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=names[0], **attributes))
        return names[0] if outputs == 1 else names

    def model(self, inputs: dict[str, tuple[int, Sizes]], outputs: dict[str, tuple[int, Sizes]], opset: int) -> onnx.ModelProto:
        """The model of these inputs (type, sizes) and outputs: named values of the graph."""
        values = [[helper.make_tensor_value_info(n, *t) for n, t in side.items()] for side in (inputs, outputs)]
        graph = helper.make_graph(self.nodes, "converted", *values, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=min(8, 3 + opset // 4))


def built(write: Any, runs: Sequence[Run]) -> Family:
    """A family of a graph that `write(opset)` makes; onnxruntime is the reference."""
    return Family(None, runs, {}, build=lambda _, opset: write(opset))
