"""com.microsoft: MoEGroupRouter, which chooses experts from the best groups of them."""

from __future__ import annotations

import numpy as np

from intarsia.graph.dims import product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import host_op
from intarsia.ops.nn.recurrent import sigmoid
from intarsia.primitives import lang as k

DOMAIN = "com.microsoft"
Array = np.ndarray


def _routed_types(
    logits: TensorType, expert_bias: TensorType, *rest: TensorType | None, **_: object
) -> tuple[TensorType, TensorType, TensorType]:
    shape = (product(logits.shape[:-1]), expert_bias.shape[0]) if logits.shape and expert_bias.shape else None
    wide = TensorType(DType.FLOAT, shape)
    return TensorType(logits.dtype, shape), wide, wide


@dataclass(frozen=True)
class GroupRouterAttributes(ParameterGroup):
    """How many groups there are, how many of them and of their experts are chosen, and the score of the others."""

    top_k: int
    group_topk: int = 2
    n_group: int = 1
    router_sentinel: float = -10000.0
    topk_group: int = 1


@host_op("MoEGroupRouter", 1, domain=DOMAIN, infer=_routed_types, reason="which experts are chosen depends on data")
def moe_group_router(
    logits: Array, expert_bias: Array, projection_weight: Array | None = None, *, attributes: GroupRouterAttributes
) -> tuple[Array, Array, Array]:
    """log(sigmoid(logits)) [tokens, experts] of the `top_k` experts with the best sigmoid + bias, `router_sentinel` elsewhere.

    They are chosen from the `topk_group` groups with the highest sums of their best `group_topk`. The other outputs are all
    scores, with the bias and without.
    """
    n_group, topk_group = attributes.n_group, attributes.topk_group
    group_topk, top_k = attributes.group_topk, attributes.top_k
    rows = logits.reshape(-1, logits.shape[-1]).astype(np.float32)
    if projection_weight is not None:
        rows = rows @ projection_weight.astype(np.float32).T
    (tokens, experts), bias = rows.shape, expert_bias.astype(np.float32)
    if min(n_group, topk_group, group_topk, top_k) < 1 or experts % n_group or topk_group > n_group:
        raise k.DefinitionError(
            f"{experts} experts do not go in {n_group} groups of which {topk_group} are chosen by {group_topk} experts each"
        )
    available = experts // n_group * topk_group
    if top_k > available:
        raise k.DefinitionError(f"top_k is {top_k}; expected at most {available}, the experts of the chosen groups")
    plain = np.asarray(sigmoid(rows))
    scores = plain + bias
    grouped = scores.reshape(tokens, n_group, -1)
    sums = -np.sort(-grouped, axis=-1)[..., :group_topk].sum(-1)
    best = np.argsort(-sums, axis=1, kind="stable")[:, :topk_group]
    open_ = np.zeros((tokens, n_group), bool)
    np.put_along_axis(open_, best, True, 1)
    among = np.where(open_[..., None], grouped, -np.inf).reshape(tokens, experts)
    chosen = np.argsort(-among, axis=1, kind="stable")[:, :top_k]
    out = np.full(rows.shape, attributes.router_sentinel, np.float32)
    np.put_along_axis(out, chosen, np.log(np.maximum(np.take_along_axis(plain, chosen, 1), np.float32(1e-20))), 1)
    return out.astype(logits.dtype), scores, plain
