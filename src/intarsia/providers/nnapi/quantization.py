"""Quantised values of a graph: the scale of each 8-bit tensor, and operators that stand between Dequantize- and QuantizeLinear.

An operand of NNAPI has one scale and zero point, and what only moves elements keeps them. So 8-bit values that are moved into
one another form a class. Where all that says what the elements of a class stand for says the same, its operands have that
scale, else 1 and 0, and the lowerings multiply.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import field

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.lazy_dataclass import dataclass

_MOVED_INPUTS = {
    **dict.fromkeys(
        "Reshape Flatten Squeeze Unsqueeze Transpose Split Slice Gather Expand Tile MaxPool GlobalMaxPool Identity "
        "DepthToSpace SpaceToDepth".split(),
        (0,),
    ),
    "Where": (1, 2),
}
_BYTES = (DType.UINT8, DType.INT8)
_PLAIN = (1.0, 0)


@dataclass(frozen=True)
class Scale:
    """What an 8-bit tensor's elements q stand for: scale * (q - zero_point), of one or of each index of `axis`."""

    scale: np.ndarray
    zero_point: np.ndarray
    axis: int = 0

    @property
    def pair(self) -> tuple[float, int] | None:
        """Of the whole tensor; None where each channel has its own."""
        return (float(self.scale.reshape(())), int(self.zero_point.reshape(()))) if self.scale.size == 1 else None


def scale_of(node: Node, graph: Graph) -> Scale | None:
    """Of a QuantizeLinear or DequantizeLinear, where these are constants, and no blocks."""
    if node.domain or node.op_type not in ("QuantizeLinear", "DequantizeLinear") or node.attributes.get("block_size", 0):
        return None
    constant = graph.constants.get(node.inputs[1])
    if constant is None:
        return None
    scale = constant.numpy()
    if scale.size > 1 and scale.ndim > 1:
        return None
    if len(node.inputs) > 2 and node.inputs[2]:
        zero = graph.constants.get(node.inputs[2])
        if zero is None:
            return None
        zeros = zero.numpy().astype(np.int64)
    else:
        zeros = np.zeros(scale.shape, np.int64)
    if not (np.isfinite(scale) & (scale > 0)).all() or zeros.size != scale.size:
        return None
    return Scale(scale.astype(np.float32).reshape(-1), zeros.reshape(-1), int(node.attributes.get("axis", 1)))


def is_byte(graph: Graph, name: str) -> bool:
    kind = graph.type_of(name) if name else None
    return isinstance(kind, TensorType) and kind.dtype in _BYTES


def operand_scales(graph: Graph) -> dict[str, tuple[float, int]]:
    """The scale and zero point of the operand of each 8-bit value that is no constant."""
    classes = _Classes()
    said: dict[str, set[tuple[float, int]]] = defaultdict(set)
    for node in graph.nodes:
        if node.domain:
            continue
        if node.op_type == "Concat":
            moved = tuple(range(len(node.inputs)))
        else:
            moved = _MOVED_INPUTS.get(node.op_type, ())
        names = [node.inputs[i] for i in moved if i < len(node.inputs)] + [n for n in node.outputs if n]
        together = [n for n in names if is_byte(graph, n)]
        if moved and together:
            for name in together[1:]:
                classes.join(together[0], name)
    for name, pair in _statements(graph):
        said[classes.root(name)].add(pair)
    found: dict[str, tuple[float, int]] = {}
    for name in classes.parents | dict.fromkeys(n for n, _ in _statements(graph)):
        pairs = said.get(classes.root(name), set())
        found[name] = next(iter(pairs)) if len(pairs) == 1 else _PLAIN
    return found


def _statements(graph: Graph) -> Iterator[tuple[str, tuple[float, int]]]:
    for node in graph.nodes:
        if node.domain or node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        name = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
        if not is_byte(graph, name) or name in graph.constants:
            continue
        found = scale_of(node, graph)
        pair = found.pair if found is not None else None
        yield name, pair if pair is not None else _PLAIN


@dataclass
class _Classes:
    """Values that are one class, by a chain of parents."""

    parents: dict[str, str] = field(default_factory=dict)

    def root(self, name: str) -> str:
        while self.parents.setdefault(name, name) != name:
            name = self.parents[name]
        return name

    def join(self, a: str, b: str) -> None:
        self.parents[self.root(a)] = self.root(b)
