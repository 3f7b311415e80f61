"""Quantised values stay bytes where they are only moved, and are dequantised by each of their readers.

What moves elements, picks them or takes the largest (for a quantiser is monotonic) commutes with what is done to each element:
a DequantizeLinear in front of Split, Slice or MaxPool goes behind, a QuantizeLinear behind Concat in front, where they often
undo each other exactly, and else are a function of a byte. A DequantizeLinear that several nodes read is repeated for each,
so that what is stored are the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference
from intarsia.ops.internal.integers import DOMAIN
from intarsia.providers.cpu.legalize.lowering_pass import LegalizeEnv
from intarsia.providers.cpu.value_names import derived_name

OPERATORS = frozenset(("DequantizeLinear",))
_DOMAINS = ("", "com.microsoft")
# operator -> how many of its first inputs are data; -1: all
_WHOLE = {
    "Concat": -1, "Split": 1, "Reshape": 1, "Transpose": 1, "Flatten": 1, "Squeeze": 1, "Unsqueeze": 1, "Identity": 1,
    "MaxPool": 1, "DepthToSpace": 1, "SpaceToDepth": 1, "Expand": 1, "Tile": 1,
}  # fmt: skip
_PICKS = {"Slice": 1, "Gather": 1}
_BYTES_SINCE = {"MaxPool": 12}
_LEAST, _MOST = 1e-30, 1e30  # scales between which float32 loses nothing of a whole number of steps
_TEMPLATES = frozenset(
    "MatMul Gemm Conv ConvTranspose GlobalAveragePool AveragePool GlobalMaxPool Softmax LayerNormalization Resize".split()
)  # which read floats from memory


@dataclass(frozen=True)
class _Steps:
    """A scale and a zero point for all elements."""

    scale: float
    zero: int
    dtype: DType

    def undone_by(self, other: _Steps) -> bool:
        """Whether quantising by `other` gives back the bytes that this dequantises."""
        same = self.zero == other.zero and self.dtype is other.dtype
        return same and abs(self.scale / other.scale - 1) < 1e-6


def sink_dequantize(inference: Inference, env: LegalizeEnv) -> Graph | None:
    """The graph with quantisers in front of what only moves elements; None if nothing changes."""
    if env.keeps_qdq:
        return None
    rewrite = _Rewrite(inference)
    graph = rewrite.run()
    return graph if rewrite.changed else None


class _Rewrite:
    def __init__(self, inference: Inference) -> None:
        self.types, self.graph, self.changed = inference.types, inference.graph.clone(), False
        self.serial = 0

    def run(self) -> Graph:
        while self._backward() or self._forward():
            self.changed = True
        self._undo()
        self._repeat()
        self.graph.types = {}
        return self.graph

    def _name(self, name: str) -> str:
        self.serial += 1
        return derived_name(name, f"b{self.serial}")

    # --- what is known ---

    def _index(self) -> None:
        self.producers = {o: n for n in self.graph.nodes for o in n.outputs if o}
        self.consumers: dict[str, list[Node]] = {}
        for node in self.graph.nodes:
            for name in node.used_names():
                self.consumers.setdefault(name, []).append(node)
        self.results = set(self.graph.output_names())

    def _number(self, name: str) -> np.ndarray | None:
        constant = self.graph.constants.get(name)
        return constant.numpy().reshape(()) if constant is not None and constant.size == 1 else None

    def _steps(self, scale: np.ndarray | None, zero: np.ndarray | None) -> _Steps | None:
        if scale is None or zero is None or scale.dtype != np.float32 or zero.dtype not in (np.uint8, np.int8):
            return None
        if not _LEAST < float(scale) < _MOST:
            return None
        return _Steps(float(scale), int(zero), DType.UINT8 if zero.dtype == np.uint8 else DType.INT8)

    def _quantised(self, node: Node) -> _Steps | None:
        """How a node quantises floats; None if it is no such node."""
        if node.domain == DOMAIN and node.op_type == "Requantize" and len(node.inputs) == 3:
            factor = self._number(node.inputs[2])
            if factor is None or factor <= 0:
                return None
            return self._steps(np.asarray(np.float32(1) / factor), self._number(node.inputs[1]))
        if node.op_type == "QuantizeLinear" and node.domain in _DOMAINS and len(node.inputs) == 3:
            kind = self.types.get(node.inputs[0])
            if isinstance(kind, TensorType) and kind.dtype is DType.FLOAT:
                return self._steps(self._number(node.inputs[1]), self._number(node.inputs[2]))
        return None

    def _dequantised(self, name: str) -> _Steps | None:
        """How a value was dequantised from bytes that are not constant."""
        node = self.producers.get(name)
        if node is None or node.op_type != "DequantizeLinear" or node.domain not in _DOMAINS or len(node.inputs) < 3:
            return None
        if node.inputs[0] in self.graph.constants or node.attributes.get("output_dtype", 0) not in (0, DType.FLOAT.value):
            return None
        return self._steps(self._number(node.inputs[1]), self._number(node.inputs[2]))

    def _data(self, node: Node) -> list[str]:
        """The inputs that a node moves; none where it does something else."""
        if node.domain or (node.op_type not in _WHOLE and node.op_type not in _PICKS):
            return []
        count = (_WHOLE | _PICKS)[node.op_type]
        data = node.inputs if count < 0 else node.inputs[:count]
        return [] if any(n in self.graph.constants for n in data) else data

    # --- DequantizeLinear behind moves ---

    def _backward(self) -> bool:
        """Take DequantizeLinear one node back, where what is moved is quantised again; whether there were any."""
        self._index()
        made: list[Node] = []
        found = False
        for node in self.graph.nodes:
            data = self._data(node)
            steps = [self._dequantised(n) for n in data]
            readers = [user for name in node.outputs if name for user in self.consumers.get(name, ())]
            single = node.op_type != "MaxPool" or len([n for n in node.outputs if n]) == 1
            if (
                not data or steps[0] is None or any(s != steps[0] for s in steps) or not single
                or self.results & set(node.outputs) or all(self._quantised(user) is None for user in readers)
            ):  # fmt: skip
                made.append(node)
                continue
            found = True
            sources = {n: self.producers[n].inputs[0] for n in data}
            outputs = [self._name(n) if n else "" for n in node.outputs]
            inputs = [sources.get(n, n) for n in node.inputs]
            version = max(node.version, _BYTES_SINCE.get(node.op_type, 0))
            made.append(node.copy(inputs=inputs, outputs=outputs, version=version, traced=None))
            like = self.producers[data[0]]
            for moved, name in zip(outputs, node.outputs, strict=True):
                if name:
                    made.append(like.copy(inputs=[moved, *like.inputs[1:]], outputs=[name], traced=None))
        self.graph.nodes = made
        return found

    # --- quantisers in front of moves ---

    def _forward(self) -> bool:
        """Take quantisers one node forward; whether there were any."""
        self._index()
        made: list[Node] = []
        dropped: set[int] = set()
        for node in reversed(self.graph.nodes):
            if id(node) in dropped:
                continue
            quantisers = self._behind(node)
            if not quantisers:
                made.append(node)
                continue
            first, data = quantisers[0], self._data(node)
            bytes_ = {name: self._name(name) for name in data}
            outputs = [next((q.outputs[0] for q in quantisers if q.inputs[0] == o), "") for o in node.outputs]
            inputs = [bytes_.get(name, name) for name in node.inputs]
            version = max(node.version, _BYTES_SINCE.get(node.op_type, 0))
            made.append(node.copy(inputs=inputs, outputs=outputs, version=version, traced=None))
            for name, quantised in bytes_.items():
                inputs = [name, *first.inputs[1:]]
                made.append(first.copy(inputs=inputs, outputs=[quantised], traced=None, origin=node.origin))
            dropped.update(map(id, quantisers))
        found = bool(dropped)
        self.graph.nodes = [n for n in reversed(made) if id(n) not in dropped]
        return found

    def _behind(self, node: Node) -> list[Node]:
        """The quantisers behind a node that moves elements, if they read all it gives and are the same; else none."""
        data = self._data(node)
        if not data:
            return []
        found: list[Node] = []
        for name in node.outputs:
            users = self.consumers.get(name, []) if name else []
            if name in self.results or len(users) > 1 or (name and node.op_type == "MaxPool" and name != node.outputs[0]):
                return []
            if any(user.inputs[0] != name or self._quantised(user) is None for user in users):
                return []
            found += users
        steps = [self._quantised(q) for q in found]
        if not steps or any(s != steps[0] for s in steps) or any(q.inputs[1:] != found[0].inputs[1:] for q in found[1:]):
            return []
        first = steps[0]
        assert first is not None
        given = [self._dequantised(n) for n in data]
        if node.op_type in (*_PICKS, "Expand", "Tile"):  # they may need few of the elements, or repeat few
            return found if given[0] is not None and given[0].undone_by(first) else []
        return found if any(s is not None for s in given) else []

    # --- pairs that do nothing ---

    def _undo(self) -> None:
        """Bytes that are dequantised and quantised alike are the bytes."""
        self._index()
        same: dict[str, str] = {}
        nodes: list[Node] = []
        for node in self.graph.nodes:
            steps = self._quantised(node)
            given = self._dequantised(node.inputs[0]) if steps is not None else None
            if steps is not None and given is not None and given.undone_by(steps) and node.outputs[0] not in self.results:
                source = self.producers[node.inputs[0]].inputs[0]
                same[node.outputs[0]] = same.get(source, source)
            else:
                nodes.append(node)
        if not same:
            return
        self.changed = True
        used = self.results | {same.get(n, n) for node in nodes for n in node.used_names()}
        self.graph.nodes = []
        for node in nodes:
            if node.op_type == "DequantizeLinear" and node.outputs[0] not in used:
                continue
            self.graph.nodes.append(node)
            node.inputs = [same.get(n, n) for n in node.inputs]

    # --- one DequantizeLinear for each reader ---

    def _repeat(self) -> None:
        self._index()
        made: list[Node] = []
        for node in self.graph.nodes:
            for name in self._shared(node):
                copy = self.producers[name].copy(outputs=[self._name(name)])
                made.append(copy)
                node.inputs = [copy.outputs[0] if n == name else n for n in node.inputs]
                self.changed = True
            made.append(node)
        used = self.results | {n for node in made for n in node.used_names()}
        self.graph.nodes = [n for n in made if n.op_type != "DequantizeLinear" or n.outputs[0] in used]

    def _shared(self, node: Node) -> Iterator[str]:
        """Dequantised bytes that a node reads, and others too."""
        if (node.op_type in _TEMPLATES and not node.domain) or node.has_subgraphs:
            return
        for name in dict.fromkeys(node.inputs):
            if len(self.consumers.get(name, ())) > 1 and name not in self.results and self._dequantised(name) is not None:
                yield name
