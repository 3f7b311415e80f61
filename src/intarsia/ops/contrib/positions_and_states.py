"""com.microsoft: biases by distance, rotations, and the parts of recurrent attention: gates, causal convolutions, states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia.graph.dims import Dim, floordiv, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.operands import dim, widened
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import NodeContext, host_op, op
from intarsia.ops.nn.activation import softplus_of
from intarsia.ops.nn.attention import LinearAttentionAttributes, check_linear_attention, merge_heads, rotate, split_heads
from intarsia.ops.nn.resize import number
from intarsia.primitives import lang as k

DOMAIN = "com.microsoft"
Tensor = k.Tensor
_WIDEST = 1 << 16  # angles of a head, where their number is known only at run time


@op("RelativePositionBias", 1, domain=DOMAIN, values=("query_length", "key_length"))
def relative_position_bias(
    bias_table: Tensor, query_length: Any, key_length: Any, *, is_bidirectional: int = 0, max_distance: int
) -> Tensor:
    """T5's bias [1, heads, queries, keys] by bucket of the distance; the table [buckets, heads] is stored by columns."""
    buckets, heads = bias_table.shape
    if not isinstance(buckets, int):
        raise k.SymbolicValueError(f"the number of buckets must be known, but is {buckets}")
    queries, keys = dim(query_length, "query_length"), dim(key_length, "key_length")
    distance = k.iota((queries, keys), 1) - k.iota((queries, keys), 0)
    first: Tensor | int = 0
    if is_bidirectional:
        buckets //= 2
        first = k.select(distance > 0, k.full(distance.shape, buckets, DType.INT64), 0)
        far = k.absolute(distance)
    else:
        far = -k.minimum(distance, 0)
    exact = buckets // 2
    spread = k.log(k.cast(k.maximum(far, 1), DType.FLOAT) / float(exact)) / math.log(max_distance / exact)
    large = k.minimum(k.cast(spread * float(buckets - exact), DType.INT64) + exact, buckets - 1)
    bucket = k.select(far < exact, far, large) + first
    table = k.reshape(bias_table, (heads, bias_table.shape[0]))
    return k.expand_dims(k.take(table, bucket, 1), [0])


@dataclass(frozen=True)
class GateWeights(ParameterGroup):
    """Matrix and bias of the gates, and a factor for each head."""

    weight: Tensor
    bias: Tensor
    eco_a: Tensor


@op("GatedRelativePositionBias", 1, domain=DOMAIN)
def gated_relative_position_bias(
    query_layer: Tensor, query_bias: Tensor, rel_pos: Tensor, gates: GateWeights, token_offset: Tensor | None = None, *,
    num_heads: int,
) -> Tensor:  # fmt: skip
    """rel_pos times a gate per head and query: u (r eco_a - 1) + 2 for sigmoids u and r of the query's projection."""
    x = widened(query_layer) + widened(query_bias)
    if token_offset is not None:  # tokens without padding
        batch, steps = token_offset.shape
        tokens, width = x.shape
        offsets = k.strided_slice(k.reshape(token_offset, (batch * steps,)), (0,), (1,), (tokens,))
        where = [k.reshape(k.cast(offsets, DType.INT64), (tokens, 1)), k.iota((1, width), 1)]
        blank = k.broadcast(k.reshape(widened(query_bias), (1, width)), (batch * steps, width))
        x = k.reshape(k.scatter(blank, where, x), (batch, steps, width))
    batch, steps, width = x.shape
    size = floordiv(width, num_heads)
    heads = k.transpose(k.reshape(x, (batch, steps, num_heads, size)), (0, 2, 1, 3))
    inner = gates.weight.shape[1]
    projected = k.dot(heads, widened(gates.weight)) + widened(gates.bias)
    halves = k.reduce_sum(k.reshape(projected, (batch, num_heads, steps, 2, floordiv(inner, 2))), [4])
    opened = k.sigmoid(halves)
    u, r = (k.strided_slice(opened, (0, 0, 0, at), (1,) * 4, (batch, num_heads, steps, 1)) for at in (0, 1))
    gate = u * (r * k.reshape(widened(gates.eco_a), (1, num_heads, 1, 1)) - 1.0) + 2.0
    return k.cast(gate * widened(rel_pos), query_layer.dtype)


@op("GemmaRotaryEmbedding", 1, domain=DOMAIN)
def gemma_rotary_embedding(emb: Tensor, q: Tensor, q_rot: Tensor, k_: Tensor, k_rot: Tensor) -> tuple[Tensor, Tensor]:
    """q cos + q_rot sin and k cos + k_rot sin, where sines and cosines of `emb` are rounded to q's type first."""
    sin, cos = (k.expand_dims(k.cast(k.unary(f, emb), q.dtype), [1]) for f in ("sin", "cos"))
    return q * cos + q_rot * sin, k_ * cos + k_rot * sin


@dataclass(frozen=True)
class MRotaryAttributes(ParameterGroup):
    """How a rotation reads its input, and which angles turn by which position. `is_packed_batching` counts for nothing, as in
    onnxruntime's kernels."""

    mrope_section: Sequence[int]
    interleaved: int = 0
    is_packed_batching: int = 0
    mrope_layout: int = 0
    num_heads: int = 0
    rotary_embedding_dim: int = 0
    scale: float = 1.0


@op("MRotaryEmbedding", 1, domain=DOMAIN)
def m_rotary_embedding(
    input: Tensor, position_ids: Tensor, cos_cache: Tensor, sin_cache: Tensor, *, attributes: MRotaryAttributes
) -> Tensor:
    """RotaryEmbedding by positions in time, height and width [3, batch, sequence], each for its sections of the angles, times
    `scale`."""
    half, mrope_layout, scale = cos_cache.shape[1], attributes.mrope_layout, attributes.scale
    sections = [int(n) for n in attributes.mrope_section]
    if len(sections) != 3 or min(sections) < 0 or (sum(sections) != half if isinstance(half, int) else sum(sections) > _WIDEST):
        raise k.DefinitionError(f"mrope_section is {sections}; expected three sizes that add up to {half}")
    if mrope_layout not in (0, 1):
        raise k.DefinitionError(f"mrope_layout is {mrope_layout}; expected 0 or 1")
    stream = k.constant(np.array(_streams(sections, mrope_layout), np.int64))
    _, batch, steps = position_ids.shape
    where = k.index(
        k.cast(position_ids, DType.INT64),
        [k.reshape(stream, (1, 1, sum(sections))), k.iota((batch, 1, 1), 0), k.iota((1, steps, 1), 1)],
    )
    column = k.iota((1, 1, sum(sections)), 2)
    cos, sin = (k.expand_dims(k.index(cache, [where, column]), [1]) for cache in (cos_cache, sin_cache))
    if scale != 1.0:
        cos, sin = (widened(t) * scale for t in (cos, sin))
    x = input
    if input.rank == 3:
        x = split_heads(input, attributes.num_heads or floordiv(input.shape[2], half * 2))
    out = rotate(x, cos, sin, bool(attributes.interleaved), attributes.rotary_embedding_dim)
    return merge_heads(out) if input.rank == 3 else out


def _streams(sections: Sequence[int], layout: int) -> list[int]:
    """For every angle, which of time (0), height (1) and width (2) it turns by."""
    if layout == 0:
        return [stream for stream, count in enumerate(sections) for _ in range(count)]
    chosen = [0] * sum(sections)
    for stream in (1, 2):
        for at in range(stream, min(sections[stream] * 3, len(chosen)), 3):
            chosen[at] = stream
    return chosen


@dataclass(frozen=True)
class EngramNorms(ParameterGroup):
    """Factors of the norms of keys, of queries, and of what goes on to a convolution."""

    key_norm_scale: Tensor
    query_norm_scale: Tensor
    conv_norm_scale: Tensor | None = None


@op("EngramGate", 1, domain=DOMAIN)
def engram_gate(
    key: Tensor, query: Tensor, value: Tensor, norms: EngramNorms, *, epsilon: float = 1e-5, node: NodeContext
) -> tuple[Tensor, Tensor | None]:
    """value times sigmoid(sign(d) sqrt(max(|d|, 1e-6))), d being the scaled product of normalised keys and queries."""
    if key.rank != 4 or value.rank != 3:
        raise k.DefinitionError(
            f"key is {key!r} and value {value!r}; expected [batch, steps, copies, width] and [batch, steps, width]"
        )
    width = k.cast(number(key.shape[3]), DType.FLOAT)
    left, right = (_normalised(x, s, epsilon) for x, s in ((key, norms.key_norm_scale), (query, norms.query_norm_scale)))
    product_ = k.reduce_sum(left * right, [3], keepdims=True) / k.sqrt(width)
    gate = k.sigmoid(k.unary("sign", product_) * k.sqrt(k.maximum(k.absolute(product_), 1e-6)))
    gated = gate * k.expand_dims(widened(value), [2])
    if node.outputs < 2 or not node.wanted[1]:
        return k.cast(gated, key.dtype), None
    if norms.conv_norm_scale is None:
        raise k.DefinitionError("the output gated_value_normed needs the input conv_norm_scale")
    return k.cast(gated, key.dtype), k.cast(_normalised(gated, norms.conv_norm_scale, epsilon), key.dtype)


def _normalised(x: Tensor, scale: Tensor, epsilon: float) -> Tensor:
    wide = widened(x)
    return wide / k.sqrt(k.reduce_mean(wide * wide, [x.rank - 1], keepdims=True) + epsilon) * widened(scale)


# --- hyper-connections ----------------------------------------------------------------------------------------------


def _streams_of(x: Tensor, branches: int) -> Tensor:
    """[.., C, H] of streams that may lie side by side in the last axis, in float32."""
    if not branches:
        return widened(x)
    return widened(k.reshape(x, (*x.shape[:-1], branches, floordiv(x.shape[-1], branches))))


def _gates(gates: Tensor, streams: Tensor) -> Tensor:
    """Gates [.., C], [.., C, 1], [.., C, H] or [.., C * H] as they broadcast to the streams."""
    wide = widened(gates)
    if gates.rank == streams.rank:
        return wide
    branches = streams.shape[-2]
    k.require_least(branches, 1, "the number of streams")
    if gates.shape[-1] == branches:
        return k.expand_dims(wide, [-1])
    each = floordiv(gates.shape[-1], branches)  # 1 or H, which only a run may know
    return k.broadcast(k.reshape(wide, (*gates.shape[:-1], branches, each)), (*gates.shape[:-1], *streams.shape[-2:]))


@op("HyperConnectionPreMix", 1, domain=DOMAIN)
def hyper_connection_pre_mix(
    streams: Tensor, pre_mix: Tensor, *, num_branches: int = 0, reduction_scale: float = 1.0
) -> Tensor:
    """The sum of the streams [.., C, H] by their gates, [.., H]."""
    x = _streams_of(streams, num_branches)
    total = k.reduce_sum(x * _gates(pre_mix, x), [x.rank - 2])
    return k.cast(total if reduction_scale == 1.0 else total * reduction_scale, streams.dtype)


@op("HyperConnectionPostMix", 1, domain=DOMAIN)
def hyper_connection_post_mix(
    streams: Tensor, block_output: Tensor, post_mix: Tensor, stream_mix: Tensor | None = None, *, num_branches: int = 0
) -> Tensor:
    """Streams mixed among themselves by `stream_mix` [.., C, C], plus a block's output [.., H] by gates."""
    x = _streams_of(streams, num_branches)
    held = x
    if stream_mix is not None:
        mix = widened(stream_mix)
        held = k.dot(k.transpose(mix, (*range(mix.rank - 2), mix.rank - 1, mix.rank - 2)), x)
    added = _gates(post_mix, x) * k.expand_dims(widened(block_output), [-2])
    return k.cast(k.reshape(held + added, streams.shape), streams.dtype)


@op("LinearAttentionGate", 1, domain=DOMAIN)
def linear_attention_gate(
    a: Tensor, dt_bias: Tensor, decay_scale: Tensor, b: Tensor | None = None, *, node: NodeContext
) -> tuple[Tensor, Tensor | None]:
    """decay_scale softplus(a + dt_bias), and sigmoid(b), in float32."""
    decay = k.cast(decay_scale, DType.FLOAT) * softplus_of(k.cast(a, DType.FLOAT) + k.cast(dt_bias, DType.FLOAT))
    wants_beta = node.outputs > 1 and node.wanted[1]
    if wants_beta and b is None:
        raise k.DefinitionError("the output beta needs the input b")
    beta = k.cast(k.sigmoid(k.cast(b, DType.FLOAT)), a.dtype) if wants_beta and b is not None else None
    return k.cast(decay, a.dtype), beta


@dataclass(frozen=True)
class CausalConvAttributes(ParameterGroup):
    """What the convolution does, which channels it reads, and how its state is laid out."""

    activation: str = "none"
    channels_last: int = 0
    dilation: int = 1
    input_channel_offset: int = 0
    input_channels: int = 0
    ndim: int = 1
    state_channels_last: int = -1
    state_length: int = 0
    state_update_capacity: int = 0
    state_window: int = 0

    @property
    def is_extended(self) -> bool:
        """Whether it has what goes with channels-last inputs of rank 3 alone."""
        channels = self.input_channel_offset or self.input_channels
        return bool(channels or self.state_length or self.state_update_capacity or self.state_channels_last >= 0)


@op("CausalConvWithState", 1, domain=DOMAIN)
def causal_conv_with_state(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, past_state: Tensor | None = None, *,
    attributes: CausalConvAttributes, node: NodeContext,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """A convolution of every channel [batch, channels, steps] by itself over this and earlier steps; the last ones are held.

    weight [channels, 1, taps]; state [batch, channels, (taps - 1) * dilation], with a leading axis where `state_window` > 0.
    With [batch, steps, width] as `input` (`channels_last`), its channels may be `input_channels` of the width, from
    `input_channel_offset` on, the state be `state_length` long and lie as `state_channels_last` says, and the third output has
    the first `state_update_capacity` steps of these channels [batch, capacity, channels], zeros behind them.
    """
    activation, channels_last, dilation = attributes.activation, attributes.channels_last, attributes.dilation
    input_channel_offset, input_channels = attributes.input_channel_offset, attributes.input_channels
    state_length, state_window = attributes.state_length, attributes.state_window
    state_update_capacity, state_channels_last = attributes.state_update_capacity, attributes.state_channels_last
    if attributes.is_extended and (not channels_last or input.rank != 3 or state_window):
        raise k.DefinitionError(
            "CausalConvWithState with input_channels, state_length, state_channels_last or state_update_capacity needs "
            f"channels_last 1, an input of rank 3 and state_window 0, got {channels_last}, {input.rank} and {state_window}"
        )
    if attributes.ndim != 1:
        raise k.DefinitionError(f"CausalConvWithState takes ndim 1 here, got {attributes.ndim}")
    if activation not in ("none", "silu", "swish"):
        raise k.DefinitionError(f"activation is {activation!r}; expected none, silu or swish")
    taps = weight.shape[-1]
    if dilation < 1:
        raise k.DefinitionError(f"dilation is {dilation}; expected at least 1")
    held: Dim = (taps - 1) * dilation
    if state_length and not (isinstance(held, int) and state_length >= held):
        raise k.DefinitionError(f"state_length is {state_length}; expected 0, or {held} and more, which the taps reach back")
    reach, held = held, state_length or held
    states_last = channels_last if state_channels_last < 0 else state_channels_last
    if input_channels or input_channel_offset:
        width = input_channels or input.shape[2] - input_channel_offset
        input = k.strided_slice(input, (0, 0, input_channel_offset), (1, 1, 1), (*input.shape[:2], width))
    x = _channels_first(input) if channels_last else input
    batch, channels, steps = x.shape
    if past_state is None:
        past = k.full((batch, channels, held), 0, x.dtype)
    else:
        if state_window:
            newest = k.strided_slice(
                past_state,
                (state_window - 1, *(0,) * (past_state.rank - 1)),
                (1,) * past_state.rank,
                (1, *past_state.shape[1:]),
            )
            past_state = k.reshape(newest, past_state.shape[1:])
        past = _channels_first(past_state) if states_last else past_state
    whole = k.concat([past, x], 2)
    seen = k.strided_slice(whole, (0, 0, held - reach), (1, 1, 1), (batch, channels, reach + steps))
    view = k.windows(widened(seen), [2], [taps], [1], [dilation])
    y = k.reduce_sum(view * k.reshape(widened(weight), (1, channels, 1, taps)), [3])
    if bias is not None:
        y = y + k.reshape(widened(bias), (1, channels, 1))
    out = k.cast(y * k.sigmoid(y) if activation != "none" else y, x.dtype)
    if channels_last:
        out = k.reshape(k.transpose(out, (0, 2, 1)), input.shape)
    update = None
    if node.outputs > 2 and state_update_capacity:
        rows = k.concat([input, k.full((batch, state_update_capacity, channels), 0, input.dtype)], 1)
        update = k.strided_slice(rows, (0, 0, 0), (1, 1, 1), (batch, state_update_capacity, channels))
    if node.outputs < 2:
        return out, None, update
    slots = [_state_after(whole, steps - back, held, input, states_last) for back in range(max(state_window, 1))][::-1]
    return out, k.concat([k.expand_dims(s, [0]) for s in slots], 0) if state_window else slots[0], update


def _channels_first(x: Tensor) -> Tensor:
    """[batch, steps, channels...] -> [batch, channels, steps]."""
    return k.transpose(k.reshape(x, (*x.shape[:2], product(x.shape[2:]))), (0, 2, 1))


def _state_after(whole: Tensor, at: Dim, held: Dim, like: Tensor, channels_last: int) -> Tensor:
    """The `held` steps before step `at` of the input, which begins `held` steps into `whole`; zeros for `at` <= 0."""
    batch, channels = whole.shape[:2]
    place = k.iota((1, 1, held), 2) + k.size(at)
    state = k.index(whole, [k.iota((batch, 1, 1), 0), k.iota((1, channels, 1), 1), k.maximum(place, 0)])
    state = k.select(k.size(at) > 0, state, 0)
    return k.reshape(k.transpose(state, (0, 2, 1)), (batch, held, *like.shape[2:])) if channels_last else state


@dataclass(frozen=True)
class WindowedAttributes(LinearAttentionAttributes):
    """Those of LinearAttention, and how many of the latest states are handed on."""

    state_window: int = 0


def _linear_types(
    query: TensorType, key: TensorType, value: TensorType, past_state: TensorType | None = None, *rest: object,
    attributes: WindowedAttributes,
) -> tuple[TensorType, TensorType]:  # fmt: skip
    kv_num_heads, q_num_heads, state_window = attributes.kv_num_heads, attributes.q_num_heads, attributes.state_window
    kind = past_state.dtype if past_state is not None else query.dtype
    if query.shape is None or key.shape is None or value.shape is None:
        return TensorType(query.dtype), TensorType(kind)
    newest = None if past_state is None or past_state.shape is None else past_state.shape[state_window > 0 :]
    check_linear_attention(query.shape, key.shape, value.shape, newest, q_num_heads, kv_num_heads)
    batch, steps, width = query.shape
    dk, dv = floordiv(width, q_num_heads), floordiv(value.shape[2], kv_num_heads)
    state: tuple[Dim, ...] = (batch, kv_num_heads, dk, dv)
    out = TensorType(query.dtype, (batch, steps, max(q_num_heads, kv_num_heads) * dv))
    return out, TensorType(kind, (state_window, *state) if state_window else state)


@host_op(
    "LinearAttention",
    1,
    domain=DOMAIN,
    infer=_linear_types,
    reason="its numbers of heads, or its types, are not those of the kernel",
)
@np.errstate(all="ignore")
def linear_attention(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, past_state: np.ndarray | None = None,
    decay: np.ndarray | None = None, beta: np.ndarray | None = None, *, attributes: WindowedAttributes,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """ONNX's LinearAttention, with fewer query heads than states where each is read by several, and a window of states.

    Slot j of the window is the state after token T - window + j; zeros where there is no such token.
    """
    kv_num_heads, q_num_heads, state_window = attributes.kv_num_heads, attributes.q_num_heads, attributes.state_window
    update_rule = attributes.update_rule
    if update_rule not in ("linear", "gated", "delta", "gated_delta"):
        raise k.DefinitionError(f"update_rule is {update_rule!r}; expected linear, gated, delta or gated_delta")
    gated, delta = update_rule.startswith("gated"), update_rule.endswith("delta")
    if (gated and decay is None) or (delta and beta is None):
        raise k.DefinitionError(f"update_rule {update_rule} needs decay: {gated}, beta: {delta}; the inputs given do not fit")
    earlier = None if past_state is None else past_state.shape[state_window > 0 :]
    check_linear_attention(query.shape, key.shape, value.shape, earlier, q_num_heads, kv_num_heads)
    heads = max(q_num_heads, kv_num_heads)
    q, keys, values = (_split(x, n) for x, n in ((query, q_num_heads), (key, kv_num_heads), (value, kv_num_heads)))
    batch, steps, _, dk = q.shape
    dv = values.shape[3]
    newest = past_state[-1] if past_state is not None and state_window else past_state
    shape = (batch, kv_num_heads, dk, dv)
    state = np.zeros(shape, np.float32) if newest is None else newest.astype(np.float32)
    gates = np.exp(_split(decay, kv_num_heads)) if gated and decay is not None else None
    rates = _split(beta, beta.shape[2]) if delta and beta is not None else None
    q = np.repeat(q, heads // q_num_heads, 2)
    out = np.empty((batch, steps, heads, dv), np.float32)
    states = [np.zeros_like(state)] * max(state_window, 1)
    for t in range(steps):
        if gates is not None:
            state = state * gates[:, t, :, :, None]
        v_t = values[:, t]
        if rates is not None:
            v_t = rates[:, t] * (v_t - (keys[:, t, :, None] @ state)[:, :, 0])
        state = state + keys[:, t, :, :, None] * v_t[:, :, None]
        states = [*states[1:], state]
        out[:, t] = (q[:, t, :, None] @ np.repeat(state, heads // kv_num_heads, 1))[:, :, 0]
    out *= np.float32(attributes.scale or 1.0 / math.sqrt(dk))
    kind = query.dtype if past_state is None else past_state.dtype
    present = np.stack(states) if state_window else state
    return out.reshape(batch, steps, heads * dv).astype(query.dtype), present.astype(kind)


def _split(x: np.ndarray, heads: int) -> np.ndarray:
    """[batch, steps, heads * size] -> [batch, steps, heads, size] in float32."""
    return x.astype(np.float32).reshape(*x.shape[:2], heads, x.shape[2] // heads)
