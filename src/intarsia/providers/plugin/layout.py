"""Data with their channels last, where a plugin of kernels prefers them: OrtEp's GetPreferredDataLayout and
ShouldConvertDataLayoutForOp.

Nodes that the plugin has such kernels for are of the domain "com.ms.internal.nhwc" then: first input and output have their
channels last, and weights stay as they are. Nodes between them that go element by element follow; a Transpose stands only where
a value is wanted in the order that it is not in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from intarsia.graph.model import Constant, Graph, Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.plugin.interface.graph_view import CHANNELS_LAST

Converts = Callable[[Node], bool]
"""Whether a node of ONNX's order is to be one of the other."""

_ALONE = frozenset((
    "Abs", "Celu", "Clip", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Mish", "Neg",
    "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Swish", "Tanh", "ThresholdedRelu",
))  # fmt: skip
"""Operators whose first input alone has the sizes of the result."""
_TOGETHER = frozenset(("Add", "Div", "Max", "Min", "Mul", "Pow", "PRelu", "Sub"))
"""Operators whose inputs are broadcast to each other."""


@dataclass(frozen=True)
class LaidOut:
    """A graph in a plugin's order. `sources`: output of a node there -> the same output of the node that it stands for."""

    graph: Graph
    sources: Mapping[str, str]


def channels_last(graph: Graph, converts: Converts, transpose_version: int) -> LaidOut:
    """A graph whose nodes that `converts` names have their channels last. Its inputs and outputs stay in ONNX's order.

    Args:
        graph: with types inferred.
        transpose_version: of Transpose, as nodes that are added have it.
    """
    return _Layout(graph, converts, transpose_version).run()


def _to_last(rank: int) -> list[int]:
    return [0, *range(2, rank), 1]


def _to_first(rank: int) -> list[int]:
    return [0, rank - 1, *range(1, rank - 1)]


class _Layout:
    def __init__(self, graph: Graph, converts: Converts, transpose_version: int) -> None:
        self._graph, self._converts, self._version = graph, converts, transpose_version
        self._made = graph.clone()
        self._made.nodes = []
        self._twins: dict[str, str] = {}  # value -> the same with its channels last, where that is there
        self._plain = {*graph.input_names(), *graph.constants}  # values that are there in ONNX's order
        self._sources: dict[str, str] = {}
        self._taken = graph.defined_names()

    def run(self) -> LaidOut:
        for node in self._graph.nodes:
            if self._has_rank(node) and self._converts(node):
                self._convert(node)
            elif not self._follow(node):
                for name in sorted(node.used_names()):
                    self._want_plain(name)
                self._emit(node, node.outputs)
                self._plain.update(name for name in node.outputs if name)
        for name in self._graph.output_names():
            self._want_plain(name)
        return LaidOut(self._made, self._sources)

    def _emit(self, node: Node, outputs: Sequence[str]) -> None:
        self._made.nodes.append(node)
        self._sources.update((name, source) for name, source in zip(node.outputs, outputs, strict=True) if name)

    def _rank(self, name: str) -> int:
        kind = self._graph.type_of(name)
        return kind.rank or 0 if isinstance(kind, TensorType) else 0

    def _has_rank(self, node: Node) -> bool:
        ranks = [self._rank(name) for name in (*node.inputs[:1], *node.outputs[:1])]
        return len(ranks) == 2 and min(ranks) > 2 and not any(node.outputs[1:])

    def _convert(self, node: Node) -> None:
        twin = self._new_twin(node.outputs[0])
        inputs = [self._twin(node.inputs[0]), *node.inputs[1:]]
        for name in node.inputs[1:]:
            self._want_plain(name)
        self._emit(node.copy(inputs=inputs, outputs=[twin, *node.outputs[1:]], domain=CHANNELS_LAST), node.outputs)

    def _follow(self, node: Node) -> bool:
        """Have a node that goes element by element work on twins, if all that it reads are there so."""
        if node.domain or len(node.outputs) != 1:
            return False
        rank = self._rank(node.outputs[0])
        shared = node.inputs if node.op_type in _TOGETHER else node.inputs[:1] if node.op_type in _ALONE else []
        if rank < 3 or not any(name in self._twins for name in shared):
            return False
        if not all(self._can_follow(name, rank) for name in shared):
            return False
        inputs = [self._operand(name, rank) if i < len(shared) else name for i, name in enumerate(node.inputs)]
        for name in node.inputs[len(shared) :]:
            self._want_plain(name)
        self._emit(node.copy(inputs=inputs, outputs=[self._new_twin(node.outputs[0])]), node.outputs)
        return True

    def _can_follow(self, name: str, rank: int) -> bool:
        """Whether a value is there with its channels last, can be put so, or is one element that goes with any order."""
        if name in self._twins:
            return self._rank(name) == rank
        if name in self._graph.constants:
            return name not in self._graph.overridable
        kind = self._graph.type_of(name)
        shape = kind.shape if isinstance(kind, TensorType) else None
        return shape is not None and len(shape) < 2 and all(d == 1 for d in shape)

    def _operand(self, name: str, rank: int) -> str:
        """What a following node reads in place of a value."""
        if name in self._twins:
            return self._twins[name]
        constant = self._graph.constants.get(name)
        if constant is None or constant.size == 1 and len(constant.shape) < 2:
            self._want_plain(name)
            return name
        array = constant.numpy()
        wide = array.reshape((1,) * (rank - array.ndim) + array.shape)
        turned = self._fresh(f"{name}.channels_last")
        self._made.constants[turned] = Constant.of(turned, np.ascontiguousarray(wide.transpose(_to_last(rank))))
        return turned

    def _new_twin(self, name: str) -> str:
        """The name of a value with its channels last, which a node is about to compute."""
        twin = self._twins[name] = self._fresh(f"{name}.channels_last")
        kind = self._graph.type_of(name)
        assert isinstance(kind, TensorType) and kind.shape is not None
        self._made.types[twin] = TensorType(kind.dtype, tuple(kind.shape[i] for i in _to_last(len(kind.shape))))
        return twin

    def _twin(self, name: str) -> str:
        """A value with its channels last, transposed where it is not there yet."""
        if name not in self._twins:
            self._want_plain(name)
            twin = self._new_twin(name)
            self._transpose(name, twin, _to_last(self._rank(name)))
        return self._twins[name]

    def _want_plain(self, name: str) -> None:
        """Have a value in ONNX's order, transposed where it is not there yet."""
        if name and name not in self._plain and name in self._twins:
            self._transpose(self._twins[name], name, _to_first(self._rank(name)))
            self._plain.add(name)

    def _transpose(self, source: str, target: str, order: list[int]) -> None:
        self._made.nodes.append(
            Node("Transpose", [source], [target], {"perm": order}, name=f"{target}/Transpose", version=self._version)
        )

    def _fresh(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name
