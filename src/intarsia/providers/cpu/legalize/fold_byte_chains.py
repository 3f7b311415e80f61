"""Chains of nodes that are a function of one 8-bit tensor, element by element, as tables of 256 entries.

What lies between two quantised tensors is often such a chain: DequantizeLinear, Sigmoid, QuantizeLinear, DequantizeLinear, Mul
and QuantizeLinear are one function of a byte. The table is what the operators' definitions give for every byte.
"""

from __future__ import annotations

import math

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.model import Constant, Graph, Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.evaluate import evaluate_node
from intarsia.ops.framework.infer import Inference
from intarsia.ops.framework.registry import Registry
from intarsia.ops.internal.integers import DOMAIN
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import BYTES
from intarsia.providers.cpu.legalize.lowering_pass import LegalizeEnv
from intarsia.providers.cpu.value_names import derived_name

_DOMAINS = ("", "com.microsoft")
_FEW_ELEMENTS = 8192  # of which a kernel of its own costs more than it saves
_SLOW = frozenset(
    "Sigmoid Tanh Erf Exp Gelu Softplus Mish Elu Selu Celu Div Sqrt Log Pow Reciprocal Sin Cos Swish QuickGelu Softsign".split()
)
_LONG = frozenset(("HardSwish", "HardSigmoid"))  # worth a table where registers hold it
_SHORT = frozenset("Add Sub Mul Relu LeakyRelu Clip Neg Abs Min Max PRelu Identity Ceil Floor Round ThresholdedRelu".split())
_STEPS = frozenset(("QuantizeLinear", "DequantizeLinear"))


@dataclass(frozen=True)
class _Known:
    """What a value is computed from: the bytes `source`, and whether by something slow."""

    source: str
    slow: bool


def fold_byte_chains(inference: Inference, env: LegalizeEnv) -> Graph | None:
    """The graph with tables instead of such chains; None if there are none."""
    return None if env.keeps_qdq else _Rewrite(inference, env.registry, env.target).run()


class _Rewrite:
    def __init__(self, inference: Inference, registry: Registry, target: Target) -> None:
        self.inference, self.registry = inference, registry
        self.graph = inference.graph
        self.slow = _SLOW | (_LONG if target.has("avx512vbmi") else set())
        self.known: dict[str, _Known] = {}
        self.producers: dict[str, Node] = {}

    def run(self) -> Graph | None:
        tables: dict[str, str] = {}
        for node in self.graph.nodes:
            found = self._follow(node)
            if found is not None:
                self.known[node.outputs[0]] = found
                self.producers[node.outputs[0]] = node
                if found.slow and self._is_byte(node.outputs[0]) and not self._is_small(node.outputs[0]):
                    tables[node.outputs[0]] = found.source
        return self._replaced(tables) if tables else None

    def _is_byte(self, name: str) -> bool:
        kind = self.inference.types.get(name)
        return isinstance(kind, TensorType) and kind.dtype in BYTES

    def _is_small(self, name: str) -> bool:
        kind = self.inference.types[name]
        assert isinstance(kind, TensorType)
        sizes = [d for d in kind.shape or () if isinstance(d, int)]
        return kind.shape is None or (len(sizes) == len(kind.shape) and math.prod(sizes) < _FEW_ELEMENTS)

    def _follow(self, node: Node) -> _Known | None:
        """What a node's result is a function of, if of one byte in the same place."""
        if len(node.outputs) != 1 or not self._is_elementwise(node):
            return None
        found: _Known | None = None
        for name in node.inputs:
            constant = self.graph.constants.get(name)
            if not name or (constant is not None and constant.size == 1):
                continue
            own = self.known.get(name) or (_Known(name, False) if self._is_byte(name) and constant is None else None)
            if own is None or (found is not None and own.source != found.source):
                return None
            found = _Known(own.source, own.slow or (found is not None and found.slow))
        if found is None or not self._same_shape(found.source, node.outputs[0]):
            return None
        return _Known(found.source, found.slow or node.op_type in self.slow)

    def _is_elementwise(self, node: Node) -> bool:
        if node.domain == DOMAIN:
            return node.op_type == "Requantize"
        known = _SLOW | _LONG | _SHORT | _STEPS
        return node.domain in _DOMAINS and node.op_type in known and not node.attributes.get("block_size", 0)

    def _same_shape(self, source: str, result: str) -> bool:
        x, y = self.inference.types.get(source), self.inference.types.get(result)
        if not isinstance(x, TensorType) or not isinstance(y, TensorType):
            return False
        return x.shape is not None and x.shape == y.shape

    # --- the new graph ---

    def _replaced(self, tables: dict[str, str]) -> Graph:
        graph = self.graph.clone()
        nodes: list[Node] = []
        for node in graph.nodes:
            out = node.outputs[0] if node.outputs else ""
            if out not in tables:
                nodes.append(node)
                continue
            label = derived_name(out, "table")
            graph.constants[label] = Constant.of(label, self._table(tables[out], out))
            inputs = [tables[out], label]
            nodes.append(Node("Lookup", inputs, [out], {}, DOMAIN, node.name, 1, origin=node.origin))
        used = set(graph.output_names())
        needed: list[Node] = []
        for node in reversed(nodes):
            if not used.isdisjoint(node.outputs) or not node.outputs or node.outputs[0] not in self.known:
                needed.append(node)
                used |= node.used_names()
        graph.nodes = needed[::-1]
        graph.types = {}
        return graph

    def _table(self, source: str, result: str) -> np.ndarray:
        """[256] results, by the bytes' unsigned values."""
        kind = self.inference.types[source]
        assert isinstance(kind, TensorType)
        values: dict[str, np.ndarray] = {source: np.arange(256, dtype=np.uint8).view(kind.dtype.numpy)}

        def value(name: str) -> np.ndarray | None:
            if not name:
                return None
            if name not in values:
                constant = self.graph.constants.get(name)
                if constant is not None:
                    values[name] = constant.numpy().reshape(())
                else:
                    node = self.producers[name]
                    inputs = [value(i) for i in node.inputs]
                    values[name] = np.asarray(evaluate_node(node.copy(traced=None), inputs, self.registry)[0])
            return values[name]

        found = value(result)
        assert found is not None
        return np.ascontiguousarray(np.broadcast_to(found, (256,)))
