"""What random models are drawn with: nodes, weights, and the choice of the next step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_T = TypeVar("_T")


class DrawnGraph:
    """A model drawn by `rng`.

    Attributes:
        fixed: of each size of the inputs, whether it is a number in the model.
        sizes: the inputs' sizes in the first run.
    """

    STEPS: Mapping[str, float]
    """The methods that add a few nodes behind a value and answer the new one, or None where they cannot; and how often."""
    GROWTH: Sequence[int]
    """By how much each size grows from run to run, unless it is fixed."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.fixed: list[bool] = []
        self.sizes: list[int] = []

    def walk(self, values: list[_T], steps: int, last: float) -> None:
        """`steps` times one of `STEPS` behind one of `values`, with probability `last` behind the last."""
        kinds, shares = list(self.STEPS), np.array(list(self.STEPS.values()))
        for _ in range(steps):
            kind = kinds[self.rng.choice(len(kinds), p=shares / shares.sum())]
            source = values[-1] if self.rng.random() < last else values[self.rng.integers(len(values))]
            made = getattr(self, kind)(source)
            if made is not None:
                values.append(made)

    def pick(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """A node; the name of its output, or the names of several."""
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = array
        return name

    def weight(self, shape: tuple[int, ...], low: float = -1.0, high: float = 1.0) -> str:
        return self.constant(self.rng.uniform(low, high, shape).astype(np.float32))

    def filters(self, shape: tuple[int, ...], terms: float) -> str:
        """Weights of sums of `terms` terms, which leave magnitudes as they are."""
        return self.weight(shape, -1.7 / np.sqrt(terms), 1.7 / np.sqrt(terms))

    def numbers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def scalar(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def dims(self, *names: str) -> list[Any]:
        """Of each size its name, or the number where it is fixed."""
        return [size if fixed else name for name, fixed, size in zip(names, self.fixed, self.sizes, strict=True)]

    def sizes_of(self, run: int) -> list[int]:
        """The sizes in the `run`-th call."""
        return [s if f else s + run * g for s, f, g in zip(self.sizes, self.fixed, self.GROWTH, strict=True)]

    def made(self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[str]) -> onnx.ModelProto:
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in dict.fromkeys(outputs)]
        weights = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        graph = helper.make_graph(self.nodes, "drawn", list(inputs), infos, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
