"""A part in float16 or bfloat16, strongly typed: every value has one element type, and casts stand where it changes.

Vendors that take their precision from the model's types (CoreML's ML programs, TensorRT from 10 on) are given such a part. What
a part takes and gives stays float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from fnmatch import fnmatchcase

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops import registry
from intarsia.ops.framework.infer import infer

_LARGEST = 65504.0  # of float16
_FLOAT = int(DType.FLOAT)

IN_FLOAT32 = (
    "CumSum", "Exp", "LpNormalization", "MeanVarianceNormalization", "Pow", "Range", "Reciprocal", "ReduceL1", "ReduceL2",
    "ReduceLogSum", "ReduceLogSumExp", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
"""Operators that stay in float32: their results leave the range of float16, or lose its few digits, where operands do not."""

_OF_OTHER_TYPE: Mapping[str, tuple[int, ...]] = {"Resize": (1, 2), "Upsample": (1,)}
"""Inputs (by index) that are float32 whatever the type of the data."""


@dataclass(frozen=True)
class HalfPrecision:
    """Which nodes stay in float32.

    Attributes:
        keep: operators, or shell patterns of node names.
        to: float16, or bfloat16, which has float32's range and three of its digits.
    """

    keep: tuple[str, ...] = IN_FLOAT32
    to: DType = DType.FLOAT16

    def __str__(self) -> str:
        return f"{self.to.onnx_name} but for {', '.join(self.keep) or 'nothing'}"

    def keeps(self, node: Node) -> bool:
        names = (node.op_type, node.name, *node.origin)
        return any(fnmatchcase(name, pattern) for pattern in self.keep for name in names if name)

    def convert(self, graph: Graph) -> Graph:
        """An equal graph but for rounding; its inputs and outputs keep their names and types."""
        return _Conversion(infer(graph, registry(), strict=False).graph, self).run()


@dataclass
class _Conversion:
    graph: Graph
    half: HalfPrecision
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    halves: dict[str, str] = field(default_factory=dict)  # value -> its float16 twin
    singles: set[str] = field(default_factory=set)  # values that exist in float32

    def run(self) -> Graph:
        graph = self.graph
        self.constants = dict(graph.constants)
        self.singles = {*graph.input_names(), *graph.constants}
        for node in graph.nodes:
            if self._converts(node):
                self._convert(node)
            else:
                for name in sorted(node.used_names()):
                    self._single(name)
                self.nodes.append(node.copy(traced=None))
                self.singles.update(node.outputs)
        for name in graph.output_names():
            self._single(name)
        read = {n for node in self.nodes for n in node.used_names()} | set(graph.output_names())
        out = graph.clone()
        out.nodes, out.types = self.nodes, {}
        out.constants = {name: c for name, c in self.constants.items() if name in read}
        return infer(out, registry(), strict=False).graph

    def _is_float(self, name: str) -> bool:
        kind = self.graph.type_of(name) if name else None
        return isinstance(kind, TensorType) and kind.dtype is DType.FLOAT

    def _converts(self, node: Node) -> bool:
        if node.has_subgraphs or node.domain or self.half.keeps(node):
            return False
        left = _OF_OTHER_TYPE.get(node.op_type, ())
        data = [n for i, n in enumerate(node.inputs) if i not in left and self._is_float(n)]
        if not data or not all(self._fits(n) for n in data):
            return False
        return all(self._is_float(n) for n in node.outputs if n) or node.op_type in _OTHER_RESULTS

    def _fits(self, name: str) -> bool:
        """Whether a constant's numbers are numbers of float16: none becomes infinite, and not all the others 0."""
        constant = self.graph.constants.get(name)
        if constant is None or not constant.size or self.half.to is not DType.FLOAT16:
            return True
        magnitudes = np.abs(constant.numpy())
        finite = magnitudes[np.isfinite(magnitudes)]
        return not finite.size or bool(finite.max() <= _LARGEST and not ((finite > 0) & (finite < 6e-8)).any())

    def _convert(self, node: Node) -> None:
        left = _OF_OTHER_TYPE.get(node.op_type, ())
        inputs = []
        for i, name in enumerate(node.inputs):
            if i not in left and self._is_float(name):
                inputs.append(self._half(name))
            else:
                self._single(name)
                inputs.append(name)
        outputs = []
        for name in node.outputs:
            if name and self._is_float(name):
                self.halves[name] = self._fresh(name)
                outputs.append(self.halves[name])
            else:
                self.singles.add(name)
                outputs.append(name)
        attributes = dict(node.attributes)
        if node.op_type == "Cast" and attributes.get("to") == _FLOAT:
            attributes["to"] = int(self.half.to)
        self.nodes.append(node.copy(inputs=inputs, outputs=outputs, attributes=attributes, traced=None))

    def _half(self, name: str) -> str:
        """The value in float16, cast where it is not there."""
        if name not in self.halves:
            self.halves[name] = twin = self._fresh(name)
            constant = self.graph.constants.get(name)
            if constant is not None:
                kind = self.half.to
                self.constants[twin] = Constant(twin, kind, constant.shape, lambda: constant.numpy().astype(kind.numpy))
            else:
                self._cast(name, twin, int(self.half.to))
        return self.halves[name]

    def _single(self, name: str) -> None:
        if name and name not in self.singles and name in self.halves:
            self._cast(self.halves[name], name, _FLOAT)
            self.singles.add(name)

    def _cast(self, source: str, target: str, to: int) -> None:
        self.nodes.append(Node("Cast", [source], [target], {"to": to}, name=f"Cast/{target}", version=13))

    def _fresh(self, name: str) -> str:
        twin = f"{name}/half"
        while self.graph.type_of(twin) is not None or twin in self.constants:
            twin += "_"
        return twin


_OTHER_RESULTS = frozenset(
    "ArgMax ArgMin Equal Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Shape Size TopK MaxPool NonZero".split()
)
"""Operators of floats whose results are of another type."""
