"""MoE and QMoE decomposed: routing by standard operators, rows sorted by expert, and products by kernels (`expert_matmul`).

Nodes whose operands do not fit together stay as they are: their own definitions say what is wrong. So do weights that are
computed at run time or stored as floats of 8 bits, and the sparse mixer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intarsia.graph.dims import product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.ops.contrib.moe import DOMAIN
from intarsia.ops.framework.infer import Inference
from intarsia.ops.internal.moe_steps import DOMAIN as PARTS
from intarsia.providers.cpu.kernels.moe.storage import block_size
from intarsia.providers.cpu.legalize.graph_rewriter import NodeParts
from intarsia.providers.cpu.legalize.lowering_pass import LegalizeEnv

_PLAIN = ("relu", "gelu", "silu", "identity")
_SLOTS = {  # of a layer's weights, bias, scales, zero points and scale of the whole among the inputs
    "MoE": ((2, 3), (4, 5), (6, 7)),
    "QMoE": ((2, 4, 3, 11, 15), (5, 7, 6, 12, 16), (8, 10, 9, 13, 15)),
}
OPERATORS = frozenset(_SLOTS)
_MIXING = 14
_BLOCKS = {"int": 0, "fp4": 32, "wfp4afp8": 32, "nvfp4": 16}  # numbers that share a scale, where the type says so
_ACTIVATION: dict[str, Any] = {"activation_alpha": 1.0, "activation_beta": 0.0, "swiglu_limit": None}


def decompose_moe(inference: Inference, _: LegalizeEnv) -> Graph | None:
    """The graph with mixtures of experts in parts; None if it has none that can be decomposed."""
    out = inference.graph.clone()
    changed, nodes = False, []
    for node in out.nodes:
        parts = _Mixture(out, node, inference).parts() if _is_mixture(node) else None
        changed |= parts is not None
        nodes += [node] if parts is None else parts
    out.nodes = nodes
    out.types = {}
    return out if changed else None


def _is_mixture(node: Node) -> bool:
    return node.domain == DOMAIN and node.op_type in _SLOTS and len(node.inputs) > 4


class _Layer:
    """A matrix of every expert, stored as float32 or in few bits."""

    def __init__(self, mixture: _Mixture, slots: tuple[int, ...], bits: int, block: int) -> None:
        self.names = [*(mixture.given(s) for s in slots), "", "", ""][:5]
        self.bits, self.block = bits, block
        constants = mixture.graph.constants
        self.constant = all(not n or n in constants for n in self.names)
        self.weights, self.bias, self.scales, self.zeros, self.whole = (constants.get(n) for n in self.names)

    def fits(self, experts: int, depth: Any) -> bool:
        """Whether all are constants for so many experts, and the matrices have the given depth."""
        weights, bias, scales = self.weights, self.bias, self.scales
        if not self.constant or weights is None or len(weights.shape) != 3 or weights.shape[0] != experts or 0 in weights.shape:
            return False
        if self.depth != depth or (bias is not None and bias.shape != (experts, self.columns)):
            return False
        if not self.bits:
            return weights.dtype in (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16)
        if weights.dtype is not DType.UINT8 or self.bits not in (2, 4, 8) or scales is None:
            return False
        if self.block:
            expected = (experts, self.columns, -(-self.depth // self.block))
            return scales.shape == expected and self.whole is not None and self.whole.shape == (experts,)
        if scales.shape[:2] != weights.shape[:2] or len(scales.shape) > 3 or 0 in scales.shape:
            return False
        blocks = scales.shape[2] if len(scales.shape) == 3 else 1
        return block_size(self.depth, blocks, self.bits) is not None and self._zeros_fit(experts, blocks)

    def _zeros_fit(self, experts: int, blocks: int) -> bool:
        if self.zeros is None:
            return True
        count = self.columns if len(self.zeros.shape) == 2 else blocks
        lead = (experts,) if len(self.zeros.shape) == 2 else (experts, self.columns)
        width = -(-count * self.bits // 8)
        flat = len(self.zeros.shape) == 2
        return self.zeros.dtype is DType.UINT8 and self.zeros.shape == (*lead, width) and (not flat or blocks == 1)

    @property
    def columns(self) -> int:
        assert self.weights is not None
        return self.weights.shape[1]

    @property
    def depth(self) -> int:
        assert self.weights is not None
        return self.weights.shape[2] * 8 // self.bits if self.bits else self.weights.shape[2]


class _Mixture(NodeParts):
    def __init__(self, graph: Graph, node: Node, inference: Inference) -> None:
        super().__init__(graph, node)
        self.inference = inference
        self.attributes: dict[str, Any] = node.attributes
        self.kind = self.attributes.get("activation_type", "relu")
        self.fusion = int(self.attributes.get("swiglu_fusion", 0)) if self.kind == "swiglu" else 0

    def given(self, slot: int) -> str:
        return self.node.inputs[slot] if slot < len(self.node.inputs) else ""

    def parts(self) -> list[Node] | None:
        x, logits = (self.inference.types.get(n) for n in self.node.inputs[:2])
        count = int(self.attributes.get("k", 1))
        if not isinstance(x, TensorType) or not isinstance(logits, TensorType) or x.shape is None or logits.shape is None:
            return None
        experts = logits.shape[-1]
        if x.dtype is not DType.FLOAT or logits.dtype is not DType.FLOAT or len(x.shape) < 2 or len(logits.shape) != 2:
            return None
        if not isinstance(experts, int) or not 1 <= count <= experts or not self._supported():
            return None
        tokens = product(x.shape[:-1])
        if isinstance(tokens, int) and isinstance(logits.shape[0], int) and tokens != logits.shape[0]:
            return None
        layers = self._layers(experts, x.shape[-1])
        return None if layers is None else self._nodes(experts, count, layers)

    def _supported(self) -> bool:
        given = self.attributes
        fusions = {self.fusion, int(given.get("swiglu_fusion", 0))}
        if given.get("use_sparse_mixer", 0) or given.get("swiglu_limit_after_activation", 0):
            return False
        if self.kind not in (*_PLAIN, "swiglu") or not fusions <= {0, 1, 2}:
            return False
        if self.node.op_type == "MoE":
            return True
        if given.get("quant_type", "int") not in _BLOCKS or given.get("weights_prepacked", -1) == 1:
            return False
        if not self.given(_MIXING):
            return True
        logits, mixing = (self.inference.types.get(n) for n in (self.node.inputs[1], self.given(_MIXING)))
        if not isinstance(mixing, TensorType) or not isinstance(logits, TensorType):
            return False
        return mixing.dtype is DType.FLOAT and mixing.shape == logits.shape

    def _layers(self, experts: int, width: Any) -> list[_Layer] | None:
        quantised = self.node.op_type == "QMoE"
        bits = int(self.attributes.get("expert_weight_bits", 4)) if quantised else 0
        block = _BLOCKS[self.attributes.get("quant_type", "int")] if quantised else 0
        own = [
            int(self.attributes.get(f"fc{i}_expert_weight_bits") or bits) if bits and not block else bits and 4
            for i in (1, 2, 3)
        ]
        first, second, third = (
            _Layer(self, slots, b, block) for slots, b in zip(_SLOTS[self.node.op_type], own, strict=True)
        )  # fmt: skip
        if not first.fits(experts, width):
            return None
        inner, rest = divmod(first.columns, 2 if self.fusion else 1)
        if rest or not second.fits(experts, inner) or second.columns != width:
            return None
        if not third.names[0]:
            return None if self.kind == "swiglu" and not self.fusion else [first, second]
        if not third.fits(experts, width) or third.columns != inner or self.fusion:
            return None
        return [first, second, third]

    def _nodes(self, experts: int, count: int, layers: list[_Layer]) -> list[Node]:
        x, logits = self.node.inputs[:2]
        amount = self.constant_part("k", np.array([count]))
        _, chosen = self._add("TopK", [logits, amount], ["values", "chosen"], domain="", version=11, axis=-1)
        mixing = self.given(_MIXING) if self.node.op_type == "QMoE" else ""
        scores = mixing or self._add("Softmax", [logits], ["scores"], domain="", version=13, axis=-1)[0]
        normalize = int(bool(self.attributes.get("normalize_routing_weights", 0)))
        (weights,) = self._add("ExpertWeights", [scores, chosen], ["weights"], normalize=normalize)
        starts, tokens, places = self._add("ExpertOrder", [chosen], ["starts", "tokens", "places"], experts=experts)
        (rows,) = self._add("ExpertRows", [x, tokens], ["rows"])
        products = [self._product(rows, starts, layers[0], "fc1")]
        if len(layers) > 2:
            products.append(self._product(rows, starts, layers[2], "fc3"))
        (hidden,) = self._add("ExpertActivation", products, ["hidden"], **self._activation())
        out = self._product(hidden, starts, layers[1], "fc2")
        self._add("ExpertSum", [out, places, weights, x], None)
        return self.made

    def _activation(self) -> dict[str, Any]:
        given = self.attributes
        alpha, beta, limit = (given.get(n, d) for n, d in _ACTIVATION.items())
        found = {"kind": self.kind, "fusion": self.fusion, "alpha": float(alpha), "beta": float(beta)}
        return found if limit is None else found | {"limit": float(limit)}

    def _product(self, rows: str, starts: str, layer: _Layer, name: str) -> str:
        inputs = [rows, starts, *layer.names]
        if layer.block:
            inputs[5] = ""  # no zero points
        return self._add("ExpertProducts", inputs, [name], columns=layer.columns, bits=layer.bits, block=layer.block)[0]

    def _add(
        self, op_type: str, inputs: list[str], outputs: list[str] | None, domain: str = PARTS, version: int = 1, **given: Any
    ) -> list[str]:
        """A node; `outputs` None is the mixture's own output."""
        names = self.node.outputs[:1] if outputs is None else [self.part(n) for n in outputs]
        return self.append(op_type, inputs, names, given, domain, version)
