"""GroupQueryAttention decomposed: caches and turned queries by their definitions, attention over them by its kernel.

Nodes whose scores get a bias, a sink or a smooth softmax, or are requested, stay as they are, and so do those with padded
chunks, sliding caches, or of other types than float32.
"""

from __future__ import annotations

from typing import Any

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.ops.contrib.attention.grouped_query_attention import DOMAIN
from intarsia.ops.framework.infer import Inference
from intarsia.ops.internal.gqa_steps import DOMAIN as PARTS
from intarsia.providers.cpu.legalize.graph_rewriter import NodeParts
from intarsia.providers.cpu.legalize.lowering_pass import LegalizeEnv

OPERATORS = frozenset(("GroupQueryAttention",))
_INPUTS = (
    "query key value past_key past_value seqlens_k total_sequence_length cos_cache sin_cache position_ids attention_bias "
    "head_sink k_scale v_scale q_norm_weight k_norm_weight query_seqlens"
).split()
_REFUSED = ("attention_bias", "head_sink", "k_scale", "v_scale", "query_seqlens")
_PLAIN: dict[str, Any] = {
    "k_quant_type": "NONE", "v_quant_type": "NONE", "kv_cache_bit_width": 0, "sliding_window_cache": 0, "qk_output": 0,
}  # fmt: skip


def decompose_gqa(inference: Inference, _: LegalizeEnv) -> Graph | None:
    """The graph with GroupQueryAttention in parts; None if it has none that can be decomposed."""
    out = inference.graph.clone()
    changed, nodes = False, []
    for node in out.nodes:
        parts = _parts(out, node, inference) if _is_grouped(node) else None
        changed |= parts is not None
        nodes += [node] if parts is None else parts
    out.nodes = nodes
    out.types = {}
    return out if changed else None


def _is_grouped(node: Node) -> bool:
    return node.domain == DOMAIN and node.op_type in OPERATORS


def _parts(graph: Graph, node: Node, inference: Inference) -> list[Node] | None:
    given = dict(zip(_INPUTS, node.inputs, strict=False))
    a = node.attributes
    heads, groups = int(a.get("num_heads", 0)), int(a.get("kv_num_heads", 0))
    if any(given.get(n) for n in _REFUSED) or any(a.get(n, plain) != plain for n, plain in _PLAIN.items()):
        return None
    if a.get("smooth_softmax", -1) == 1 or groups < 1 or heads % groups or any(node.outputs[3:]):
        return None
    if bool(given.get("past_key")) != bool(given.get("past_value")) or bool(given.get("key")) != bool(given.get("value")):
        return None
    if not given.get("seqlens_k") or not given.get("total_sequence_length") or not node.outputs[0]:
        return None
    types = [inference.types.get(given.get(n, "")) for n in ("query", "key", "value", "past_key", "past_value")]
    if any(t is not None and (not isinstance(t, TensorType) or t.dtype is not DType.FLOAT or t.shape is None) for t in types):
        return None
    query = types[0]
    if not isinstance(query, TensorType) or query.shape is None or len(query.shape) != 3:
        return None
    return _Decomposed(graph, node, given, heads, groups).nodes()


class _Decomposed(NodeParts):
    def __init__(self, graph: Graph, node: Node, given: dict[str, str], heads: int, groups: int) -> None:
        super().__init__(graph, node)
        self.given, self.heads, self.groups = given, heads, groups

    def nodes(self) -> list[Node]:
        a, first = self.node.attributes, self.node.outputs[0]
        present = [*self.node.outputs[1:3], "", ""][:2]
        normal = self._name("q_norm_weight") and self._name("k_norm_weight")
        operands = [self._name(n) for n in ("query", "key", "value", "seqlens_k", "total_sequence_length")]
        tables = [self._name(n) for n in ("cos_cache", "sin_cache", "position_ids")]
        how: dict[str, Any] = {
            "num_heads": self.heads, "kv_num_heads": self.groups, "do_rotary": int(a.get("do_rotary", 0)),
            "rotary_interleaved": int(a.get("rotary_interleaved", 0)),
        }  # fmt: skip
        both = float(a.get("qk_norm_epsilon", 1e-6))
        of_query, of_cache = (how | {"norm_epsilon": a.get(f"{x}_norm_epsilon", both)} for x in "qk")
        query = operands[0]
        if normal or how["do_rotary"] or not operands[1]:
            query = self.part("query")
            self._add("GroupedQuery", [*operands, *tables, self._name("q_norm_weight") if normal else ""], query, of_query)
        lengths, caches = self.part("lengths"), []
        self._add("GroupedLengths", [operands[0], *operands[3:]], lengths, {})
        for which, name in ((1, "past_key"), (2, "past_value")):
            cache, past = present[which - 1] or self.part(name), self._name(name)
            rows = f"{cache}%rows" if past else cache
            weight = self._name("k_norm_weight") if normal and which == 1 else ""
            self._add("GroupedRows", [*operands, *tables, weight], rows, of_cache | {"which": which})
            if past:
                self._add("GroupedCache", [rows, past, lengths, operands[4]], cache, {})
            caches.append(cache)
        window = int(a.get("local_window_size", -1))
        self._add(
            "GroupedAttention", [query, *caches, lengths], first,
            {
                "num_heads": self.heads, "causal": int(a.get("causal", 1)), "left": window - 1 if window > 0 else -1,
                "scale": float(a.get("scale", 0.0)), "softcap": float(a.get("softcap", 0.0)),
            },
        )  # fmt: skip
        return self.made

    def _name(self, name: str) -> str:
        return self.given.get(name, "")

    def _add(self, op_type: str, inputs: list[str], output: str, attributes: dict[str, Any]) -> None:
        self.append(op_type, inputs, [output], attributes, PARTS, 1)
