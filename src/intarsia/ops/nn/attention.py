"""Attention, RotaryEmbedding, LinearAttention, over 4-D tensors [batch, heads, sequence, head size]."""

from __future__ import annotations

import math

import numpy as np

from intarsia.graph.dims import Dim, Expr, Shape, floordiv, format_shape
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.operands import widened
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import NodeContext, host_op, op
from intarsia.ops.nn.attention_operands import PastKeyValue
from intarsia.ops.nn.resize import number
from intarsia.primitives import lang as k

Tensor = k.Tensor
_FAR = 1 << 40  # a window of more keys hides none; positions and it are added in 64 bits


@dataclass(frozen=True)
class Scores:
    """What softmax is taken of, and how: scale of QK, soft cap, an additive bias, who may attend whom.

    `bias` and every element of `allowed` broadcast to [batch, heads, queries, keys]. `sink` is a logit per head that takes
    part in the denominator only.
    """

    scale: float | Tensor
    softcap: float = 0.0
    bias: Tensor | None = None
    allowed: tuple[Tensor, ...] = ()
    sink: Tensor | None = None
    precision: DType | None = None


def attend(q: Tensor, key: Tensor, value: Tensor, scores: Scores) -> tuple[Tensor, list[Tensor]]:
    """softmax(scale Q K^T + bias) V for heads of q in groups that share a head of key and value.

    Returns:
        the result [batch, query heads, queries, value size] in the precision of the softmax, and the scores after each
        stage: raw, soft-capped, biased, normalised.
    """
    wide = scores.precision or (DType.DOUBLE if q.dtype is DType.DOUBLE else DType.FLOAT)
    q, key, value = (k.cast(t, wide) for t in (q, key, value))
    raw = grouped_dot(q, k.transpose(key, (0, 1, 3, 2))) * scores.scale
    capped = k.tanh(raw / scores.softcap) * scores.softcap if scores.softcap > 0 else raw
    biased = capped if scores.bias is None else capped + k.cast(scores.bias, wide)
    for mask in scores.allowed:
        biased = k.select(mask, biased, -math.inf)
    masked = bool(scores.allowed) or scores.bias is not None
    normal = _softmax(biased, masked, scores.sink)
    return grouped_dot(normal, value), [raw, capped, biased, normal]


def _softmax(x: Tensor, masked: bool, sink: Tensor | None) -> Tensor:
    """Over the last axis; a row whose elements are all -infinity becomes zeros."""
    last = [x.rank - 1]
    highest = k.reduce_max(x, last, keepdims=True)
    if sink is not None:
        highest = k.maximum(highest, sink)
    if masked:
        highest = k.select(k.equal(highest, -math.inf), 0.0, highest)
    powers = k.exp(x - highest)
    total = k.reduce_sum(powers, last, keepdims=True)
    if sink is not None:
        total = total + k.exp(sink - highest)
    if masked:
        total = k.select(k.equal(total, 0.0), 1.0, total)
    return powers / total


def grouped_dot(a: Tensor, b: Tensor) -> Tensor:
    """[batch, heads, m, k] x [batch, groups, k, n]: consecutive heads share a group's right-hand side."""
    heads, groups = a.shape[1], b.shape[1]
    if heads == groups:
        return k.dot(a, b)
    each = floordiv(heads, groups)
    split = k.reshape(a, (a.shape[0], groups, each, *a.shape[2:]))
    out = k.dot(split, k.expand_dims(b, [2]))
    return k.reshape(out, (a.shape[0], heads, a.shape[2], b.shape[3]))


def split_heads(x: Tensor, heads: Dim) -> Tensor:
    """[batch, sequence, heads * size] -> [batch, heads, sequence, size]."""
    return k.transpose(k.reshape(x, (*x.shape[:2], heads, floordiv(x.shape[2], heads))), (0, 2, 1, 3))


def merge_heads(x: Tensor) -> Tensor:
    """[batch, heads, sequence, size] -> [batch, sequence, heads * size]."""
    return k.reshape(k.transpose(x, (0, 2, 1, 3)), (x.shape[0], x.shape[2], x.shape[1] * x.shape[3]))


def default_scale(head_size: Dim, dtype: DType) -> float | Tensor:
    """1 / sqrt(head size)."""
    if isinstance(head_size, Expr):
        return 1.0 / k.sqrt(k.cast(number(head_size), DType.DOUBLE if dtype is DType.DOUBLE else DType.FLOAT))
    return 1.0 / math.sqrt(head_size)


@dataclass(frozen=True)
class QKV(ParameterGroup):
    """Queries, keys and values, [batch, heads, steps, size] or, side by side, [batch, steps, heads * size]."""

    Q: Tensor
    K: Tensor
    V: Tensor

    def heads(self, queries: int | None, keys: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """The three with an axis of heads, of which there are so many where they lie side by side.

        Raises:
            DefinitionError: they do, and a number is missing.
        """
        if self.Q.rank != 3:
            return self.Q, self.K, self.V
        if not queries or not keys:
            raise k.DefinitionError("Attention of 3-D inputs needs q_num_heads and kv_num_heads")
        return split_heads(self.Q, queries), split_heads(self.K, keys), split_heads(self.V, keys)


@dataclass(frozen=True)
class ScaledDotProductAttributes(ParameterGroup):
    """Attributes of Attention."""

    is_causal: int = 0
    kv_num_heads: int | None = None
    left_window_size: int = -1
    q_num_heads: int | None = None
    qk_matmul_output_mode: int = 0
    right_window_size: int = -1
    scale: float | None = None
    softcap: float = 0.0
    softmax_precision: int | None = None


@op("Attention", since=(23, 24, 25))
def attention(
    qkv: QKV, attn_mask: Tensor | None, past: PastKeyValue, nonpad_kv_seqlen: Tensor | None = None, *,
    attributes: ScaledDotProductAttributes, node: NodeContext,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    q, key, value = qkv.heads(attributes.q_num_heads, attributes.kv_num_heads)
    packed, dtype = qkv.Q.rank == 3, qkv.Q.dtype
    if (past.past_key is None) != (past.past_value is None):
        raise k.DefinitionError("past_key and past_value are given together or not at all")
    past_key, past_value = past.pair
    if past_key is not None and past_value is not None:
        key, value = k.concat([past_key, key], 2), k.concat([past_value, value], 2)
    queries, keys = q.shape[2], key.shape[2]
    offset: Tensor = k.size(past_key.shape[2]) if past_key is not None else k.scalar(0, DType.INT64)
    allowed: list[Tensor] = []
    if nonpad_kv_seqlen is not None:
        valid = k.reshape(k.cast(nonpad_kv_seqlen, DType.INT64), (nonpad_kv_seqlen.shape[0], 1, 1, 1))
        allowed.append(k.iota((1, 1, 1, keys), 3) < valid)
        if past_key is None:
            offset = valid - k.size(queries)
    left, right = attributes.left_window_size, attributes.right_window_size
    allowed += frontier(queries, keys, offset, bool(attributes.is_causal), left, right)
    bias = None
    if attn_mask is not None:
        mask = _lengthen(attn_mask, keys)
        if mask.dtype is DType.BOOL:
            allowed.append(mask)
        else:
            bias = mask
    precision = DType.DOUBLE if attributes.softmax_precision == DType.DOUBLE else None
    scale, mode = attributes.scale, attributes.qk_matmul_output_mode
    factor = scale if scale is not None else default_scale(q.shape[3], precision or q.dtype)
    out, stages = attend(q, key, value, Scores(factor, attributes.softcap, bias, tuple(allowed), None, precision))
    out = k.cast(out, dtype)
    present_key, present_value = (key, value) if node.outputs > 1 else (None, None)
    if not 0 <= mode <= 3:
        raise k.DefinitionError(f"qk_matmul_output_mode is {mode}; expected 0, 1, 2 or 3")
    stage = k.cast(stages[mode], dtype) if node.outputs > 3 else None
    return merge_heads(out) if packed else out, present_key, present_value, stage


def frontier(queries: Dim, keys: Dim, offset: Tensor, causal: bool, left: int, right: int) -> list[Tensor]:
    """Masks that bound the keys by the query's position `offset` + row, [.., queries, keys]."""
    shape = (1, 1, queries, keys)
    position = k.iota(shape, 2) + offset
    place = k.iota(shape, 3)
    found = []
    if causal:
        found.append(place <= position)
    if left >= 0:
        found.append(position - min(left, _FAR) <= place)
    if right >= 0:
        found.append(place <= position + min(right, _FAR))
    return found


def _lengthen(mask: Tensor, keys: Dim) -> Tensor:
    """A mask that covers all keys: those beyond its end may not be attended."""
    last = mask.shape[-1]
    if last == keys or last == 1 or not (isinstance(last, int) and isinstance(keys, int)):
        return mask
    high = [0] * (mask.rank - 1) + [keys - last]
    return k.pad(mask, [0] * mask.rank, high, False if mask.dtype is DType.BOOL else -math.inf)


@op("RotaryEmbedding", since=23)
def rotary_embedding(
    X: Tensor, cos_cache: Tensor, sin_cache: Tensor, position_ids: Tensor | None = None, *, interleaved: int = 0,
    num_heads: int | None = None, rotary_embedding_dim: int = 0,
) -> Tensor:  # fmt: skip
    if X.rank == 3 and not num_heads:
        raise k.DefinitionError("RotaryEmbedding of a 3-D input needs num_heads")
    x = split_heads(X, num_heads) if X.rank == 3 and num_heads else X
    cos, sin = cos_cache, sin_cache
    if position_ids is not None:
        where = k.wrap_indices(position_ids, cos_cache.shape[0])
        cos, sin = k.take(cos_cache, where, 0), k.take(sin_cache, where, 0)
    out = rotate(x, k.expand_dims(cos, [1]), k.expand_dims(sin, [1]), bool(interleaved), rotary_embedding_dim)
    return merge_heads(out) if X.rank == 3 else out


def rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, width: int = 0) -> Tensor:
    """Turn pairs of x's last axis by angles given as cos and sin [.., sequence, width / 2]; the rest beyond `width` stays."""
    size = x.shape[-1]
    turned: Dim = width or size
    half = floordiv(turned, 2)
    front = _columns(x, 0, turned)
    wide, cos, sin = widened(front), widened(cos), widened(sin)
    if interleaved:
        pairs = k.reshape(wide, (*x.shape[:-1], half, 2))
        a = k.reshape(_columns(pairs, 0, 1), (*x.shape[:-1], half))
        b = k.reshape(_columns(pairs, 1, 1), (*x.shape[:-1], half))
        parts = [k.expand_dims(t, [-1]) for t in (a * cos - b * sin, a * sin + b * cos)]
        out = k.reshape(k.concat(parts, -1), front.shape)
    else:
        a, b = _columns(wide, 0, half), _columns(wide, half, half)
        out = k.concat([a * cos - b * sin, a * sin + b * cos], -1)
    out = k.cast(out, x.dtype)
    return out if turned == size else k.concat([out, _columns(x, turned, size - turned)], -1)


def _columns(x: Tensor, start: Dim, count: Dim) -> Tensor:
    starts = (*(0 for _ in x.shape[:-1]), start)
    return k.strided_slice(x, starts, (1,) * x.rank, (*x.shape[:-1], count))


def _linear_attention_types(
    query: TensorType, key: TensorType, value: TensorType, past_state: TensorType | None = None, *rest: object,
    kv_num_heads: int, q_num_heads: int,
) -> tuple[TensorType, TensorType]:  # fmt: skip
    kind = past_state.dtype if past_state is not None else query.dtype
    if query.shape is None or key.shape is None or value.shape is None:
        return TensorType(query.dtype), TensorType(kind)
    state = None if past_state is None else past_state.shape
    check_linear_attention(query.shape, key.shape, value.shape, state, q_num_heads, kv_num_heads)
    batch, steps, width = query.shape
    dk, dv = floordiv(width, q_num_heads), floordiv(value.shape[2], kv_num_heads)
    return TensorType(query.dtype, (batch, steps, q_num_heads * dv)), TensorType(kind, (batch, kv_num_heads, dk, dv))


def check_linear_attention(
    query: Shape, key: Shape, value: Shape, state: Shape | None, q_num_heads: int, kv_num_heads: int
) -> None:
    """What must hold of shapes [batch, steps, heads * size], and of the state's [batch, heads, dk, dv]; of the numbers of
    heads one is a multiple of the other."""
    heads = q_num_heads, kv_num_heads
    if min(heads) < 1 or max(heads) % min(heads):
        raise k.DefinitionError(f"q_num_heads is {q_num_heads}, kv_num_heads {kv_num_heads}; expected a multiple of the other")
    if any(len(shape) != 3 for shape in (query, key, value)):
        shapes = ", ".join(format_shape(shape) for shape in (query, key, value))
        raise k.DefinitionError(f"query, key and value are {shapes}; expected [batch, steps, heads * size]")
    for name, shape, count in (("query", query, q_num_heads), ("key", key, kv_num_heads), ("value", value, kv_num_heads)):
        k.require_equal(shape[0], query[0], f"the batch of {name}")
        k.require_equal(shape[1], query[1], f"the steps of {name}")
        k.require_multiple(shape[2], count, f"the last axis of {name}, which has {count} heads")
    dk, dv = floordiv(query[2], q_num_heads), floordiv(value[2], kv_num_heads)
    k.require_equal(floordiv(key[2], kv_num_heads), dk, "the size of a head of key")
    if state is not None:
        if len(state) != 4:
            raise k.DefinitionError(f"past_state is {format_shape(state)}; expected [batch, heads, dk, dv]")
        for axis, (have, want) in enumerate(zip(state, (query[0], kv_num_heads, dk, dv), strict=True)):
            k.require_equal(have, want, f"axis {axis} of past_state [batch, heads, dk, dv]")


@dataclass(frozen=True)
class LinearAttentionAttributes(ParameterGroup):
    """Heads, the scale (0: 1 / sqrt(dk)), and how the state follows; `chunk_size` changes no result."""

    kv_num_heads: int
    q_num_heads: int
    chunk_size: int = 64
    scale: float = 0.0
    update_rule: str = "gated_delta"


@host_op(
    "LinearAttention",
    since=27,
    infer=_linear_attention_types,
    reason="its numbers of heads, or its types, are not those of the kernel",
)
@np.errstate(all="ignore")
def linear_attention(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, past_state: np.ndarray | None = None,
    decay: np.ndarray | None = None, beta: np.ndarray | None = None, *, attributes: LinearAttentionAttributes,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """S [batch, kv heads, dk, dv] = exp(g) S + k (x) u, where u is v, or beta (v - S^T k) by a delta rule; o = scale q^T S."""
    update_rule, q_num_heads, kv_num_heads = attributes.update_rule, attributes.q_num_heads, attributes.kv_num_heads
    if update_rule not in ("linear", "gated", "delta", "gated_delta"):
        raise k.DefinitionError(f"update_rule is {update_rule!r}; expected linear, gated, delta or gated_delta")
    shapes = (query.shape, key.shape, value.shape, None if past_state is None else past_state.shape)
    check_linear_attention(*shapes, q_num_heads, kv_num_heads)
    gated, delta = update_rule.startswith("gated"), update_rule.endswith("delta")
    if gated != (decay is not None) or delta != (beta is not None):
        raise k.DefinitionError(f"update_rule {update_rule} takes decay: {gated}, beta: {delta}; the inputs given do not fit")
    q, key4, value4 = (_heads_first(x, n) for x, n in ((query, q_num_heads), (key, kv_num_heads), (value, kv_num_heads)))
    batch, _, steps, dk = q.shape
    each, dv = q_num_heads // kv_num_heads, value4.shape[3]
    gate = None if decay is None else np.exp(_heads_first(decay, kv_num_heads))  # [batch, heads, steps, 1 or dk]
    rate = None if beta is None else _heads_first(beta, beta.shape[2])
    state = np.zeros((batch, kv_num_heads, dk, dv), np.float32) if past_state is None else past_state.astype(np.float32)
    factor = attributes.scale or 1.0 / math.sqrt(dk)
    out = np.empty((batch, kv_num_heads, each, steps, dv), np.float32)
    groups = q.reshape(batch, kv_num_heads, each, steps, dk)
    for t in range(steps):
        if gate is not None:
            state = state * gate[:, :, t, :, None]
        k_t, v_t = key4[:, :, t], value4[:, :, t]
        if rate is not None:
            v_t = rate[:, :, t] * (v_t - (k_t[:, :, None] @ state)[:, :, 0])
        state = state + k_t[..., None] * v_t[:, :, None]
        out[:, :, :, t] = groups[:, :, :, t] @ state * np.float32(factor)
    flat = out.reshape(batch, q_num_heads, steps, dv).transpose(0, 2, 1, 3).reshape(batch, steps, q_num_heads * dv)
    return flat.astype(query.dtype), state.astype(query.dtype if past_state is None else past_state.dtype)


def _heads_first(x: np.ndarray, heads: int) -> np.ndarray:
    return x.astype(np.float32).reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)
