"""com.microsoft: MoE and QMoE: every token goes through the networks of the k experts that its router picks.

Tokens of one expert are multiplied together by its matrices, so that each matrix that is used is read once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from intarsia.graph.dims import product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.kernel import lang as k
from intarsia.ops.operands import OMITTED
from intarsia.ops.recurrent import sigmoid
from intarsia.ops.registry import host_op
from intarsia.records import dataclass

DOMAIN = "com.microsoft"
Array = np.ndarray
_REASON = "which experts' weights are read depends on data"
_JITTER = 0.01  # of the sparse mixer, as the models that use it were trained with


def _same_type(input: TensorType, *others: TensorType | None) -> TensorType:
    return input


# --- routing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Routing:
    """How tokens choose: number of experts, whether their weights are scaled to sum 1, Phi-3.5's sparse mixer."""

    count: int
    normalize: bool
    sparse_mixer: bool

    def choose(self, logits: Array, mixing: Array | None) -> tuple[Array, Array]:
        """Experts [tokens, count] by descending logit, and their weights: softmax of the logits, or entries of `mixing`."""
        if not 1 <= self.count <= logits.shape[1]:
            raise k.DefinitionError(f"k is {self.count}; expected 1 to {logits.shape[1]}, the number of experts")
        wide = logits.astype(np.float32)
        if self.sparse_mixer:
            return self._mix(wide)
        chosen = np.argsort(-wide, axis=1, kind="stable")[:, : self.count]
        weights = np.take_along_axis(softmax(wide) if mixing is None else mixing.astype(np.float32), chosen, 1)
        return chosen, weights / weights.sum(1, keepdims=True) if self.normalize else weights

    def _mix(self, logits: Array) -> tuple[Array, Array]:
        """The best expert and the best of the others, each weighted by a softmax over those close enough to it."""
        if self.count != 2:
            raise k.DefinitionError(f"k is {self.count}; use_sparse_mixer chooses 2 experts")
        left = logits.copy()
        chosen, weights = [], []
        for _ in range(2):
            best = left.argmax(1)[:, None]
            highest = np.take_along_axis(left, best, 1)
            with np.errstate(invalid="ignore", divide="ignore"):
                far = (highest - logits) / np.maximum(np.abs(logits), highest) > 2 * _JITTER
            weights.append(np.take_along_axis(softmax(np.where(far, -np.inf, left)), best, 1))
            chosen.append(best)
            np.put_along_axis(left, best, -np.inf, 1)
        return np.concatenate(chosen, 1), np.concatenate(weights, 1)


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


# --- experts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Activation:
    """What stands between an expert's two products; the two halves of SwiGLU and GeGLU may lie in one matrix (`fusion` 1:
    interleaved). SwiGLU's `limit` is for the gate before it is activated, or `after` that."""

    kind: str
    fusion: int = 0
    alpha: float = 1.0
    beta: float = 0.0
    limit: float | None = None
    after: bool = False

    def __post_init__(self) -> None:
        if self.kind not in (*_ACTIVATIONS, *_GATED):
            raise k.DefinitionError(f"activation_type is {self.kind!r}; expected {', '.join((*_ACTIVATIONS, *_GATED))}")
        if self.after and self.kind != "swiglu":
            raise k.DefinitionError(f"swiglu_limit_after_activation is for activation_type swiglu, not {self.kind}")
        if self.fusion not in (0, 1, 2):
            raise k.DefinitionError(f"swiglu_fusion is {self.fusion}; expected 0, 1 or 2")

    def apply(self, first: Array, third: Array | None) -> Array:
        """`first` [.., width] (twice as wide where it holds both halves) activated, times the third matrix' product."""
        if self.kind not in _GATED:
            active = _ACTIVATIONS[self.kind](first)
            return active if third is None else active * third
        if self.fusion == 0:
            gate, line = first, third
        elif self.fusion == 1:
            gate, line = first[..., 0::2], first[..., 1::2]
        else:
            gate, line = np.split(first, 2, axis=-1)
        if line is None:
            raise k.DefinitionError(f"{self.kind} with swiglu_fusion 0 needs fc3_experts_weights")
        if self.kind == "geglu":
            return np.asarray(_gelu_tanh(gate) * line)
        limit = np.inf if self.limit is None else self.limit
        if not self.after:
            gate = np.minimum(gate, limit)
        gate = gate * sigmoid(gate * np.float32(self.alpha))
        if self.after:
            gate = np.minimum(gate, limit)
        return np.asarray(gate * (line.clip(-limit, limit) + np.float32(self.beta)))


def _gelu_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(np.float32(0.7978845608028654) * (x + np.float32(0.044715) * x * x * x))))


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0), "gelu": _gelu_tanh, "silu": lambda x: x * sigmoid(x), "identity": lambda x: x,
    "relu2": lambda x: np.maximum(x, 0) ** 2,
}  # fmt: skip
_GATED = ("swiglu", "geglu")


@dataclass(frozen=True)
class Layer:
    """A matrix of every expert: `weight(e)` is the e-th, [out, in] float32; bias [experts, out] or None."""

    weight: Callable[[int], Array]
    bias: Array | None

    def through(self, x: Array, expert: int) -> Array:
        y = x @ self.weight(expert).T
        return np.asarray(y if self.bias is None else y + self.bias[expert].astype(np.float32))


def mixture(
    x: Array, chosen: Array, weights: Array, layers: tuple[Layer, Layer, Layer | None], activation: Activation
) -> Array:
    """The weighted sum of what the chosen experts make of x [.., width]."""
    rows = x.reshape(-1, x.shape[-1]).astype(np.float32)
    if len(chosen) != len(rows):
        raise k.DefinitionError(f"router_probs has {len(chosen)} rows; expected {len(rows)}, one for each token")
    first, second, third = layers
    out = np.zeros_like(rows)
    for expert in np.unique(chosen):
        tokens, place = np.nonzero(chosen == expert)
        mine = rows[tokens]
        hidden = activation.apply(first.through(mine, expert), None if third is None else third.through(mine, expert))
        out[tokens] += second.through(hidden, expert) * weights[tokens, place][:, None]
    return out.reshape(x.shape).astype(x.dtype)


def _plain(weight: Array, bias: Array | None) -> Layer:
    return Layer(lambda e: weight[e].astype(np.float32, copy=False), bias)


@host_op("MoE", 1, domain=DOMAIN, infer=_same_type, reason=_REASON)
def moe(
    input: Array, router_probs: Array, fc1_experts_weights: Array, fc1_experts_bias: Array | None = None,
    fc2_experts_weights: Array = OMITTED, fc2_experts_bias: Array | None = None, fc3_experts_weights: Array | None = None,
    fc3_experts_bias: Array | None = None, *, activation_alpha: float = 1.0, activation_beta: float = 0.0,
    activation_type: str = "relu", k: int = 1, normalize_routing_weights: int = 0, swiglu_fusion: int = 0,
    swiglu_limit: float | None = None, swiglu_limit_after_activation: int = 0, use_sparse_mixer: int = 0,
) -> Array:  # fmt: skip
    """input [tokens, width] or [batch, sequence, width]; experts' matrices are [experts, out, in]."""
    _needed(fc2_experts_weights=fc2_experts_weights)
    activation = Activation(
        activation_type, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit, bool(swiglu_limit_after_activation)
    )
    chosen, weights = Routing(k, bool(normalize_routing_weights), bool(use_sparse_mixer)).choose(router_probs, None)
    third = None if fc3_experts_weights is None else _plain(fc3_experts_weights, fc3_experts_bias)
    layers = (_plain(fc1_experts_weights, fc1_experts_bias), _plain(fc2_experts_weights, fc2_experts_bias), third)
    return mixture(input, chosen, weights, layers, activation)


def _needed(**inputs: Array | None) -> None:
    for name, x in inputs.items():
        if x is None:
            raise k.DefinitionError(f"required input {name!r} is missing")


def _routed_types(
    logits: TensorType, expert_bias: TensorType, *rest: TensorType | None, **_: object
) -> tuple[TensorType, TensorType, TensorType]:
    shape = (product(logits.shape[:-1]), expert_bias.shape[0]) if logits.shape and expert_bias.shape else None
    wide = TensorType(DType.FLOAT, shape)
    return TensorType(logits.dtype, shape), wide, wide


@host_op("MoEGroupRouter", 1, domain=DOMAIN, infer=_routed_types, reason="which experts are chosen depends on data")
def moe_group_router(
    logits: Array, expert_bias: Array, projection_weight: Array | None = None, *, group_topk: int = 2, n_group: int = 1,
    router_sentinel: float = -10000.0, top_k: int, topk_group: int = 1,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """log(sigmoid(logits)) [tokens, experts] of the `top_k` experts with the best sigmoid + bias, `router_sentinel` elsewhere.

    They are chosen from the `topk_group` groups with the highest sums of their best `group_topk`. The other outputs are all
    scores, with the bias and without.
    """
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
    out = np.full(rows.shape, router_sentinel, np.float32)
    np.put_along_axis(out, chosen, np.log(np.maximum(np.take_along_axis(plain, chosen, 1), np.float32(1e-20))), 1)
    return out.astype(logits.dtype), scores, plain


# --- quantised weights ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quantised:
    """Weights of all experts in few bits.

    `kind` int: [experts, out, in * bits / 8] low bits first, scales [experts, out] or [experts, out, blocks], zero points
    packed alike. fp8: [experts, out, in] with scales of square blocks, or one `whole` scale per expert. fp4, wfp4afp8, nvfp4:
    numbers of type float4e2m1, two to a byte, with a scale per block of 32 (nvfp4: 16) and one `whole` per expert.
    """

    kind: str
    bits: int
    block: int
    values: Array
    scales: Array | None
    zeros: Array | None
    whole: Array | None

    def expert(self, e: int) -> Array:
        """The expert's matrix, [out, in] float32."""
        if self.kind == "int":
            return self._integers(e)
        if self.kind == "fp8":
            return self._float8(e)
        codes = unpacked(self.values[e], 4)
        block = 16 if self.kind == "nvfp4" else 32
        scales = np.repeat(_present(self.scales, "scales")[e].astype(np.float32), block, axis=1)[:, : codes.shape[1]]
        return np.asarray(FLOAT4[codes] * scales * self._whole(e))

    def _integers(self, e: int) -> Array:
        numbers = unpacked(self.values[e], self.bits).astype(np.float32)
        scales = _present(self.scales, "scales")[e].astype(np.float32)
        blocks = 1 if scales.ndim == 1 else scales.shape[1]
        zeros: Any = np.float32(1 << (self.bits - 1))
        if self.zeros is not None:
            zeros = unpacked(self.zeros[e], self.bits).astype(np.float32)
            zeros = zeros[: len(numbers), None] if self.zeros.ndim == 2 else zeros[:, :blocks, None]
            zeros = zeros.reshape(len(numbers), blocks, 1)
        parts = numbers.reshape(len(numbers), blocks, -1)
        return np.asarray(((parts - zeros) * scales.reshape(len(numbers), blocks, 1)).reshape(numbers.shape))

    def _float8(self, e: int) -> Array:
        values = self.values[e].astype(np.float32)
        if self.block <= 0:
            return np.asarray(values * self._whole(e))
        scales = _present(self.scales, "scales")[e].astype(np.float32)
        wide = np.repeat(np.repeat(scales, self.block, 0), self.block, 1)
        return np.asarray(values * wide[: values.shape[0], : values.shape[1]])

    def _whole(self, e: int) -> np.float32:
        return np.float32(_present(self.whole, "global_scale")[e])


def _present(x: Array | None, what: str) -> Array:
    if x is None:
        raise k.DefinitionError(f"QMoE of this quant_type needs the inputs fc*_{what}")
    return x


FLOAT4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def unpacked(x: Array, bits: int) -> Array:
    """Bytes -> numbers of so many bits, low bits first, along the last axis; bits that are left over at its end are dropped."""
    if bits == 8:
        return x
    if bits == 3:
        each = np.unpackbits(x, axis=-1, count=x.shape[-1] * 8 // 3 * 3, bitorder="little").reshape(*x.shape[:-1], -1, 3)
        return each @ np.array([1, 2, 4], np.uint8)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((x[..., None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(*x.shape[:-1], -1)


@host_op("QMoE", 1, domain=DOMAIN, infer=_same_type, reason=_REASON)
def qmoe(
    input: Array, router_probs: Array, fc1_experts_weights: Array, fc1_scales: Array | None = None,
    fc1_experts_bias: Array | None = None, fc2_experts_weights: Array = OMITTED, fc2_scales: Array | None = None,
    fc2_experts_bias: Array | None = None, fc3_experts_weights: Array | None = None, fc3_scales: Array | None = None,
    fc3_experts_bias: Array | None = None, fc1_zero_points: Array | None = None, fc2_zero_points: Array | None = None,
    fc3_zero_points: Array | None = None, router_weights: Array | None = None, fc1_global_scale: Array | None = None,
    fc2_global_scale: Array | None = None, fc1_act_scale: Array | None = None, fc2_act_scale: Array | None = None,
    fc1_act_block_scale: Array | None = None, fc2_act_block_scale: Array | None = None, *, accuracy_level: int = 0,
    activation_alpha: float = 1.0, activation_beta: float = 0.0, activation_type: str = "relu", block_size: int | None = None,
    expert_weight_bits: int = 4, fc1_expert_weight_bits: int | None = None, fc2_expert_weight_bits: int | None = None,
    fc3_expert_weight_bits: int | None = None, k: int = 1, normalize_routing_weights: int = 0, quant_type: str = "int",
    swiglu_fusion: int = 0, swiglu_limit: float | None = None, swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: int = 0, weights_prepacked: int = -1,
) -> Array:  # fmt: skip
    """MoE with quantised weights; activations keep their digits, so that scales of activations play no part."""
    _needed(fc2_experts_weights=fc2_experts_weights)
    _check_storage(quant_type, weights_prepacked, fc1_expert_weight_bits or expert_weight_bits)
    activation = Activation(
        activation_type, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit, bool(swiglu_limit_after_activation)
    )
    routing = Routing(k, bool(normalize_routing_weights), bool(use_sparse_mixer))
    chosen, weights = routing.choose(router_probs, router_weights)

    def layer(values: Array, scales: Any, bias: Any, zeros: Any, whole: Any, bits: int | None) -> Layer:
        stored = Quantised(quant_type, bits or expert_weight_bits, block_size or 0, values, scales, zeros, whole)
        return Layer(stored.expert, bias)

    third = None
    if fc3_experts_weights is not None:
        third = layer(
            fc3_experts_weights, fc3_scales, fc3_experts_bias, fc3_zero_points, fc1_global_scale, fc3_expert_weight_bits
        )
    layers = (
        layer(fc1_experts_weights, fc1_scales, fc1_experts_bias, fc1_zero_points, fc1_global_scale, fc1_expert_weight_bits),
        layer(fc2_experts_weights, fc2_scales, fc2_experts_bias, fc2_zero_points, fc2_global_scale, fc2_expert_weight_bits),
        third,
    )
    return mixture(input, chosen, weights, layers, activation)


def _check_storage(kind: str, prepacked: int, bits: int) -> None:
    if kind not in ("int", "fp4", "nvfp4", "fp8", "wfp4afp8"):
        raise k.DefinitionError(f"quant_type is {kind!r}; expected int, fp4, nvfp4, fp8 or wfp4afp8")
    if prepacked == 1:
        raise k.DefinitionError("weights_prepacked is 1: a layout of another runtime cannot be read")
    if bits not in (2, 3, 4, 8):
        raise k.DefinitionError(f"weights have {bits} bits; expected 2, 3, 4 or 8")
