"""com.microsoft: operators over sequences of tokens of different lengths, one behind the other: gated delta networks and causal
convolutions, each with what a later call has to know of this one."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from intarsia.graph.dims import Dim, floordiv
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.operands import OMITTED
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import host_op
from intarsia.ops.nn.recurrent import sigmoid
from intarsia.primitives import lang as k

DOMAIN = "com.microsoft"
Array = np.ndarray
_REASON = "where a sequence of the pack begins is data"
_MOST_CAPTURED = 8


def spans_of(bounds: Array, tokens: int) -> list[slice]:
    """The rows of every sequence, by the sums of the lengths before them."""
    ends = bounds.reshape(-1).tolist()
    if not ends or ends[0] != 0 or ends[-1] != tokens or any(a > b for a, b in pairwise(ends)):
        raise k.DefinitionError(
            f"sequences begin at {ends}; expected numbers that rise from 0 to {tokens}, the number of tokens"
        )
    return [slice(a, b) for a, b in pairwise(ends)]


@dataclass(frozen=True)
class Capture:
    """How many of a sequence's first steps are requested."""

    capacity: int
    counts: Array | None

    def __post_init__(self) -> None:
        if not 0 <= self.capacity <= _MOST_CAPTURED:
            raise k.DefinitionError(f"state_update_capacity is {self.capacity}; expected 0 to {_MOST_CAPTURED}")
        if bool(self.capacity) != (self.counts is not None):
            raise k.DefinitionError("capture_count and a state_update_capacity above 0 are given together")

    def of(self, sequence: int, steps: int) -> int:
        return 0 if self.counts is None else max(0, min(int(self.counts[sequence]), self.capacity, steps))


# --- gated delta networks -------------------------------------------------------------------------------------------


def _heads(
    query: tuple[Any, ...], key: tuple[Any, ...] | None, value: tuple[Any, ...] | None, state: tuple[Any, ...] | None
) -> tuple[Any, Any, Any, Any]:
    """Heads of queries, and of values, and their sizes."""
    if key is not None and value is not None:
        return query[-2], value[-2], query[-1], value[-1]
    if key is not None or value is not None or state is None:
        raise k.DefinitionError("GatedDeltaNet takes key and value together, or neither and initial_state")
    _, heads, size, depth = state
    return floordiv(query[-1] - heads * size, 2 * depth), heads, depth, size


@dataclass(frozen=True)
class DeltaOperands(ParameterGroup):
    """Inputs of a gated delta network, or their types: a query alone may hold all three, and decay and rate may be missing."""

    query: Any
    key: Any = None
    value: Any = None
    cu_seqlens: Any = None
    decay: Any = None
    beta: Any = None
    initial_state: Any = None


@dataclass(frozen=True)
class GateOperands(ParameterGroup):
    """What an activation of the gates needs, for each head."""

    a_log: Array | None = None
    dt_bias: Array | None = None


@dataclass(frozen=True)
class CaptureOperands(ParameterGroup):
    """How many first steps of each sequence are requested, and whether any are."""

    capture_count: Array | None = None
    state_update_active: Array | None = None


@dataclass(frozen=True)
class DeltaAttributes(ParameterGroup):
    """How the state follows, and what queries, keys, gates and rates go through before."""

    beta_activation: str = "none"
    chunk_size: int = 64
    gate_activation: str = "none"
    gate_lower_bound: float = -5.0
    qk_l2_norm: int = 0
    scale: float = 0.0
    state_update_capacity: int = 0
    update_rule: str = "gated_delta"


def _gated_types(
    operands: DeltaOperands, *rest: object, state_update_capacity: int = 0, **_: object
) -> tuple[TensorType, TensorType, TensorType]:
    query, key, value, initial_state = operands.query, operands.key, operands.value, operands.initial_state
    cu_seqlens, decay = operands.cu_seqlens, operands.decay
    shapes = [None if t is None else t.shape for t in (query, key, value, initial_state)]
    state = TensorType(DType.FLOAT, shapes[3])
    if shapes[0] is None or any(t is not None and t.shape is None for t in (key, value, initial_state)):
        return TensorType(query.dtype), state, TensorType(DType.FLOAT)
    of_queries, heads, depth, size = _heads(shapes[0], *shapes[1:])
    lead = shapes[0][:-1] if key is None else shapes[0][:-2]
    if state.shape is None and cu_seqlens is not None and cu_seqlens.shape is not None:
        state = TensorType(DType.FLOAT, (cu_seqlens.shape[0] - 1, heads, size, depth))
    if state.shape is None:
        return TensorType(query.dtype, (*lead, heads, size)), state, TensorType(DType.FLOAT)
    shared = decay is None or decay.shape is None or len(decay.shape) == len(lead) + 1
    each = (heads if shared else heads * depth) + of_queries * depth + heads * size
    update: tuple[Dim, ...] = (state.shape[0], state_update_capacity * each)
    return TensorType(query.dtype, (*lead, heads, size)), state, TensorType(DType.FLOAT, update)


@host_op("GatedDeltaNet", 1, domain=DOMAIN, infer=_gated_types, reason=_REASON)
@np.errstate(over="ignore", under="ignore")
def gated_delta_net(
    operands: DeltaOperands, gating: GateOperands, captured: CaptureOperands, *, attributes: DeltaAttributes
) -> tuple[Array, Array, Array]:
    """S = exp(g) S + k (beta (v - S' k))', y = scale S' q for every head of the values, in float32.

    query and key [tokens, heads, size], value [tokens, groups * heads, size], or all in one; states [batch, heads, size of
    values, size of keys].
    """
    query, key, value, initial_state = operands.query, operands.key, operands.value, operands.initial_state
    cu_seqlens, decay, beta = operands.cu_seqlens, operands.decay, operands.beta
    update_rule, beta_activation = attributes.update_rule, attributes.beta_activation
    if update_rule not in ("linear", "gated", "delta", "gated_delta"):
        raise k.DefinitionError(f"update_rule is {update_rule!r}; expected linear, gated, delta or gated_delta")
    shapes = [None if x is None else x.shape for x in (query, key, value, initial_state)]
    of_queries, heads, depth, size = _heads(query.shape, *shapes[1:])
    lead = query.shape[:-1] if key is None else query.shape[:-2]
    if of_queries < 1 or heads % of_queries:
        raise k.DefinitionError(f"there are {heads} heads of values and {of_queries} of queries; expected a multiple")
    if key is None or value is None:
        at = of_queries * depth
        query, key, value = query[..., :at], query[..., at : 2 * at], query[..., 2 * at :]
    q, keys = (x.astype(np.float32).reshape(-1, of_queries, depth) for x in (query, key))
    values, tokens = value.astype(np.float32).reshape(-1, heads, size), math.prod(lead)
    if attributes.qk_l2_norm:
        q, keys = (x / np.sqrt((x * x).sum(-1, keepdims=True) + np.float32(1e-6)) for x in (q, keys))
    if cu_seqlens is None:
        if initial_state is None:
            raise k.DefinitionError("GatedDeltaNet needs cu_seqlens or initial_state to know how many sequences there are")
        batch = len(initial_state)
        spans = spans_of(np.arange(batch + 1) * (tokens // max(batch, 1)), tokens)
    else:
        spans = spans_of(cu_seqlens, tokens)
    gated, delta = update_rule.startswith("gated"), update_rule.endswith("delta")
    if gated and decay is None or delta and beta is None:
        raise k.DefinitionError(f"update_rule {update_rule} needs decay: {gated}, beta: {delta}; the inputs given do not fit")
    gates = _gates(decay, (tokens, heads), gating, attributes) if gated else None
    rates: Array | None = None if beta is None or not delta else beta.astype(np.float32).reshape(tokens, heads, 1)
    if rates is not None and beta_activation == "sigmoid":
        rates = np.asarray(sigmoid(rates), np.float32)
    elif beta_activation not in ("none", "sigmoid"):
        raise k.DefinitionError(f"beta_activation is {beta_activation!r}; expected none or sigmoid")
    flag, capacity = captured.state_update_active, attributes.state_update_capacity
    active = flag is None or bool(flag.reshape(-1)[0])
    capture = Capture(capacity, captured.capture_count)
    out = np.empty((tokens, heads, size), np.float32)
    states = np.zeros((len(spans), heads, size, depth), np.float32) if initial_state is None else initial_state.astype("f4")
    width = 1 if gates is None else gates.shape[2]
    sizes = (heads * width, keys[:1].size, values[:1].size)
    parts = [np.zeros((len(spans), capacity, n), np.float32) for n in sizes]
    factor, group = np.float32(attributes.scale or 1.0 / math.sqrt(depth)), heads // of_queries
    for b, span in enumerate(spans):
        state, wanted = states[b], capture.of(b, span.stop - span.start) if active else 0
        for i, t in enumerate(range(span.start, span.stop)):
            fresh, mine = values[t], np.repeat(keys[t], group, 0)
            if gates is not None:
                state = state * gates[t][:, None, :]
            if rates is not None:
                fresh = rates[t] * (fresh - (state @ mine[:, :, None])[:, :, 0])
            state = state + fresh[:, :, None] * mine[:, None, :]
            out[t] = (state @ np.repeat(q[t], group, 0)[:, :, None])[:, :, 0] * factor
            if i < wanted:
                decays = np.ones(heads * width, np.float32) if gates is None else gates[t]
                for part, x in zip(parts, (decays, keys[t], fresh), strict=True):
                    part[b, i] = x.reshape(-1)
        states[b] = state
    update = np.concatenate([p.reshape(len(spans), -1) for p in parts], 1)
    return out.reshape(*lead, heads, size).astype(query.dtype), states, update


def _gates(decay: Array | None, rows: tuple[int, int], gating: GateOperands, attributes: DeltaAttributes) -> Array:
    """What a state is multiplied by, [tokens, heads, 1 or size of keys]."""
    assert decay is not None
    kind, bound, a_log, bias = attributes.gate_activation, attributes.gate_lower_bound, gating.a_log, gating.dt_bias
    g: Array = decay.astype(np.float32).reshape(*rows, -1)
    if kind in ("softplus", "qwen", "sigmoid", "kda"):
        if a_log is None or bias is None:
            raise k.DefinitionError(f"gate_activation {kind!r} needs the inputs a_log and dt_bias")
        rate, raw = np.exp(a_log.astype(np.float32))[:, None], g + bias.astype(np.float32).reshape(rows[1], -1)
        g = -rate * np.logaddexp(raw, np.float32(0)) if kind in ("softplus", "qwen") else bound * sigmoid(rate * raw)
    elif kind != "none":
        raise k.DefinitionError(f"gate_activation is {kind!r}; expected none, softplus, sigmoid or kda")
    return np.exp(g.astype(np.float32))


# --- causal convolutions --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PackedConvOperands(ParameterGroup):
    """Inputs of a causal convolution over sequences, or their types."""

    input: Any
    weight: Any
    cumulative_sequence_length: Any
    bias: Any = None
    initial_state: Any = OMITTED


@dataclass(frozen=True)
class PackedConvAttributes(ParameterGroup):
    """What the convolution does, and how many first steps it hands on; two are for `kernel_delta` only."""

    activation: str = "none"
    delta_offset: int = 0
    dilation: int = 1
    group_size: int = 1
    state_update_capacity: int = 0


def _convolved_types(
    operands: PackedConvOperands, *rest: object, state_update_capacity: int = 0, **_: object
) -> tuple[TensorType, TensorType, TensorType]:
    input, state = operands.input, operands.initial_state
    state = state if isinstance(state, TensorType) else TensorType(input.dtype)
    shape = None if state.shape is None else (state.shape[0], state_update_capacity, state.shape[1])
    return input, state, TensorType(input.dtype, shape)


@host_op("VarlenCausalConvWithState", 1, domain=DOMAIN, infer=_convolved_types, reason=_REASON)
def varlen_causal_conv_with_state(
    operands: PackedConvOperands, capture_count: Array | None = None, kernel_delta: Array | None = None,
    previous_mask: Array | None = None, *, attributes: PackedConvAttributes,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """CausalConvWithState of every sequence in input [tokens, channels]; states [batch, channels, (taps - 1) * dilation]."""
    input, weight, bias, initial_state = operands.input, operands.weight, operands.bias, operands.initial_state
    activation, dilation, capacity = attributes.activation, attributes.dilation, attributes.state_update_capacity
    if initial_state is None:
        raise k.DefinitionError("required input 'initial_state' is missing")
    if kernel_delta is not None or previous_mask is not None:
        raise k.DefinitionError("VarlenCausalConvWithState takes no kernel_delta and previous_mask here")
    if activation not in ("none", "silu", "swish"):
        raise k.DefinitionError(f"activation is {activation!r}; expected none, silu or swish")
    taps, capture = weight.shape[-1], Capture(capacity, capture_count)
    held = (taps - 1) * dilation
    spans = spans_of(operands.cumulative_sequence_length, len(input))
    if initial_state.shape != (len(spans), input.shape[1], held):
        raise k.DefinitionError(f"initial_state is {list(initial_state.shape)}; expected {[len(spans), input.shape[1], held]}")
    wide, out, state = weight[:, 0].astype(np.float32), np.empty_like(input), np.empty_like(initial_state)
    update = np.zeros((len(spans), capacity, input.shape[1]), input.dtype)
    for b, span in enumerate(spans):
        whole, steps = np.concatenate([initial_state[b].T, input[span]]), span.stop - span.start
        y: Array = (
            np.zeros((steps, input.shape[1]), np.float32) if bias is None else np.tile(bias.astype(np.float32), (steps, 1))
        )
        for tap in range(taps):
            y += wide[:, tap] * whole[tap * dilation : tap * dilation + steps].astype(np.float32)
        out[span] = y if activation == "none" else y * sigmoid(y)
        state[b] = whole[steps:].T
        count = capture.of(b, steps)
        update[b, :count] = input[span][:count]
    return out, state, update
