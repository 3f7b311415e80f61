"""One case of `operators.py`: a model of one node and its inputs; and arrays of random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Operand = "np.ndarray | Weight | None"


@dataclass(frozen=True)
class Weight:
    """An operand that is an initializer, as shapes, axes, weights and scales are in exported models."""

    array: np.ndarray


@dataclass(frozen=True)
class Case:
    """One node: operands in order (None: omitted; a list: a sequence), number of outputs, and the opset it is written for.

    `taken`: how many operands the node takes; the others are only captured by its bodies.
    """

    op: str
    label: str
    operands: tuple[Any, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""
    opset: int = 21
    quick: bool = False
    taken: int | None = None

    @property
    def name(self) -> str:
        return f"{self.op} {self.label}"

    def feeds(self) -> dict[str, Any]:
        return {f"x{i}": x for i, x in enumerate(self.operands) if x is not None and not isinstance(x, Weight)}

    def model(self, is_open: bool = False) -> Any:
        """The model, an `onnx.ModelProto`; `is_open`: sizes of inputs are symbols, but for channels (see `open_shape`)."""
        import onnx
        from onnx import helper, numpy_helper

        inputs, weights = [], []
        for i, x in enumerate(self.operands):
            if isinstance(x, Weight):
                weights.append(numpy_helper.from_array(np.asarray(x.array, order="C"), f"x{i}"))
            elif isinstance(x, list):
                kind = helper.np_dtype_to_tensor_dtype(x[0].dtype)
                inputs.append(helper.make_tensor_sequence_value_info(f"x{i}", kind, None))
            elif x is not None:
                kind = helper.np_dtype_to_tensor_dtype(x.dtype) if x.dtype != object else onnx.TensorProto.STRING
                inputs.append(helper.make_tensor_value_info(f"x{i}", kind, open_shape(x.shape) if is_open else x.shape))
        outputs = [f"y{i}" for i in range(self.outputs)]
        names = [f"x{i}" if x is not None else "" for i, x in enumerate(self.operands)]
        node = helper.make_node(self.op, names[: self.taken], outputs, name="node", domain=self.domain, **self.attributes)
        values = [helper.make_empty_tensor_value_info(n) for n in outputs]
        graph = helper.make_graph([node], self.op, inputs, values, weights)
        opsets = [helper.make_opsetid("", self.opset)]
        if self.domain:
            opsets.append(helper.make_opsetid(self.domain, 3 if self.domain == "ai.onnx.ml" else 1))
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def open_shape(shape: Sequence[int]) -> list[int | str]:
    """Sizes as models leave them open: equal ones have one name, ones stay, and so do the second axis of images and the last of
    others."""
    channels = 1 if len(shape) > 3 else len(shape) - 1 if len(shape) > 1 else -1
    return [size if i == channels or size < 2 else f"size{size}" for i, size in enumerate(shape)]


SMALL, LARGE = (32, 32), (1024, 1024)


class _Numbers:
    """Where random numbers come from. Without a generator arrays are zeros, which take neither time nor memory."""

    rng: np.random.Generator | None = None


def draw(rng: np.random.Generator | None) -> None:
    """Arrays come from this generator from here on. None: what follows only names cases, and all their numbers are 0."""
    _Numbers.rng = rng


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    rng = _Numbers.rng
    return np.zeros(shape, dtype) if rng is None else rng.standard_normal(shape, np.float32).astype(dtype)


def between(low: float, high: float, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    rng = _Numbers.rng
    return np.zeros(shape, dtype) if rng is None else (low + (high - low) * rng.random(shape, np.float32)).astype(dtype)


def integers(low: int, high: int, *shape: int, dtype: Any = np.int64) -> np.ndarray:
    rng = _Numbers.rng
    return np.zeros(shape, dtype) if rng is None else rng.integers(low, high, shape).astype(dtype)


def booleans(*shape: int) -> np.ndarray:
    rng = _Numbers.rng
    return np.zeros(shape, bool) if rng is None else rng.random(shape) < 0.5


def ints(*values: int) -> Weight:
    return Weight(np.array(values, np.int64))


def number(value: float, dtype: Any = np.float32) -> Weight:
    return Weight(np.array(value, dtype))
