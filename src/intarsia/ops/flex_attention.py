"""FlexAttention (domain ai.onnx.preview): attention whose scores and probabilities subgraphs may change."""

from __future__ import annotations

import math

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, TensorType
from intarsia.kernel import lang as k
from intarsia.ops.operands import element_type
from intarsia.ops.registry import NodeContext, host_op


def _flex_type(
    Q: TensorType, K: TensorType, V: TensorType, *, score_mod: Graph | None = None, prob_mod: Graph | None = None
) -> TensorType:
    for name, kind in (("Q", Q), ("K", K), ("V", V)):
        if kind.shape is not None and len(kind.shape) != 4:
            raise k.DefinitionError(f"{name} has rank {len(kind.shape)}; expected [batch, heads, sequence, size]")
    if Q.shape is None or V.shape is None:
        return TensorType(Q.dtype)
    return TensorType(Q.dtype, (*Q.shape[:3], V.shape[3]))


@host_op(
    "FlexAttention", 1, domain="ai.onnx.preview", infer=_flex_type, reason="runs subgraphs on its scores and probabilities"
)  # fmt: skip
def flex_attention(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, *, node: NodeContext, score_mod: Graph | None = None,
    prob_mod: Graph | None = None, scale: float | None = None, softmax_precision: int | None = None,
) -> np.ndarray:  # fmt: skip
    """prob_mod(softmax(score_mod(Q K' * scale))) V; each key head serves a run of consecutive query heads.

    Scores and probabilities have the element type `softmax_precision` (default: double for doubles, else float).
    """
    default = DType.DOUBLE if DType.of(Q.dtype) is DType.DOUBLE else DType.FLOAT
    dtype = default if softmax_precision is None else element_type(softmax_precision)
    compute = (DType.DOUBLE if DType.DOUBLE in (dtype, default) else DType.FLOAT).numpy
    batch, heads, queries, size = Q.shape
    kv_heads = K.shape[1]
    if not kv_heads or heads % kv_heads:
        raise k.DefinitionError(f"Q has {heads} heads, K {kv_heads}; expected a multiple")
    q = Q.astype(compute).reshape(batch, kv_heads, -1, size)  # heads that share a key head lie together
    scores = q @ K.astype(compute).swapaxes(2, 3) * compute.type(1 / math.sqrt(size) if scale is None else scale)
    scores = scores.reshape(batch, heads, queries, -1).astype(dtype.numpy)
    scores = _modified(scores, score_mod, "score_mod", node).astype(compute)
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
        probabilities = (powers / powers.sum(axis=-1, keepdims=True)).astype(dtype.numpy)
    probabilities = _modified(probabilities, prob_mod, "prob_mod", node).astype(compute)
    out = probabilities.reshape(batch, kv_heads, -1, K.shape[2]) @ V.astype(compute)
    return np.asarray(out.reshape(batch, heads, queries, -1).astype(Q.dtype))


def _modified(x: np.ndarray, body: Graph | None, what: str, node: NodeContext) -> np.ndarray:
    if body is None:
        return x
    if node.run_graph is None:
        raise k.DefinitionError("a subgraph cannot be run here: no runner was given")
    out = np.asarray(node.run_graph(body, [x])[0])
    if out.shape != x.shape:
        raise k.DefinitionError(f"{what} turned shape {list(x.shape)} into {list(out.shape)}; expected the same shape")
    return out
