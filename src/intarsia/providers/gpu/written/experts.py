"""Mixtures of experts: the matrices of the chosen experts are gathered where that reads less than all experts' do.

A few tokens (a decoder's) multiply by matrices that are gathered, and unpacked, where the product reads them; many tokens go
through every expert, and what they did not choose is weighted with 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intarsia.graph.dims import Dim, product
from intarsia.graph.dtypes import DType
from intarsia.kernel import lang as k
from intarsia.kernel.lang import Tensor
from intarsia.ops.activation import gelu_tanh_of
from intarsia.ops.contrib import unpack
from intarsia.providers.gpu.written.registry import device_op
from intarsia.records import dataclass


@dataclass(frozen=True)
class Layer:
    """A matrix of every expert, [experts, out, in], or [experts, out, in * bits / 8] bytes with scales; bias [experts, out]."""

    values: Tensor
    bias: Tensor | None
    bits: int = 0
    scales: Tensor | None = None
    zeros: Tensor | None = None

    def of(self, chosen: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Matrices [.., in, out] and biases [.., 1, out], float32, of the experts `chosen` [tokens, count], or of all."""

        def picked(x: Tensor) -> Tensor:
            return x if chosen is None else k.take(x, chosen, 0)

        weights = picked(self.values)
        if self.scales is not None:
            zeros = None if self.zeros is None else picked(self.zeros)
            weights = self._numbers(weights, picked(self.scales), zeros)
        perm = (*range(weights.rank - 2), weights.rank - 1, weights.rank - 2)
        matrices = k.transpose(k.cast(weights, DType.FLOAT), perm)
        bias = None if self.bias is None else k.expand_dims(k.cast(picked(self.bias), DType.FLOAT), [matrices.rank - 2])
        return matrices, bias

    def _numbers(self, packed: Tensor, scales: Tensor, zeros: Tensor | None) -> Tensor:
        """(number - zero point) * scale, [.., out, in]; scales [.., out] or [.., out, blocks], zero points packed alike."""
        numbers = k.cast(unpack(packed, self.bits), DType.FLOAT)
        lead, depth = packed.shape[:-1], numbers.shape[-1]
        blocks = 1 if scales.rank == len(lead) else scales.shape[-1]
        if not isinstance(blocks, int) or not isinstance(depth, int) or depth % blocks:
            raise k.DefinitionError(f"{depth} numbers in a row do not have {blocks} scales")
        parts = k.reshape(numbers, (*lead, blocks, depth // blocks))
        factors = k.reshape(k.cast(scales, DType.FLOAT), (*lead, blocks, 1))
        if zeros is None:
            return k.reshape((parts - float(1 << (self.bits - 1))) * factors, numbers.shape)
        points = k.cast(unpack(zeros, self.bits), DType.FLOAT)
        wanted = lead if zeros.rank == len(lead) else (*lead, blocks)
        points = k.strided_slice(points, [0] * points.rank, [1] * points.rank, wanted)
        return k.reshape((parts - k.reshape(points, (*lead, blocks, 1))) * factors, numbers.shape)

    def through(self, x: Tensor, chosen: Tensor | None) -> Tensor:
        """x [.., rows, in] times the matrices, and the biases."""
        matrices, bias = self.of(chosen)
        y = k.dot(x, matrices)
        return y if bias is None else y + bias


@dataclass(frozen=True)
class Activation:
    """As `ops.contrib_experts.Activation`, of tensors."""

    kind: str
    fusion: int
    alpha: float
    beta: float
    limit: float | None
    after: bool

    def apply(self, first: Tensor, third: Tensor | None) -> Tensor:
        if self.kind not in ("swiglu", "geglu"):
            active = _ACTIVATIONS[self.kind](first)
            return active if third is None else active * third
        gate, line = first, third
        if self.fusion == 1:
            gate, line = (_part(first, start, 2) for start in range(2))
        elif self.fusion == 2:
            gate, line = (_part(first, start, 1) for start in range(2))
        if line is None:
            raise k.DefinitionError(f"{self.kind} with swiglu_fusion 0 needs fc3_experts_weights")
        if self.kind == "geglu":
            return gelu_tanh_of(gate) * line
        if self.limit is None:
            return gate * k.sigmoid(gate * self.alpha) * (line + self.beta)
        if not self.after:
            gate = k.minimum(gate, self.limit)
        active = gate * k.sigmoid(gate * self.alpha)
        if self.after:
            active = k.minimum(active, self.limit)
        return active * (k.maximum(k.minimum(line, self.limit), -self.limit) + self.beta)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: k.maximum(x, 0.0), "gelu": gelu_tanh_of, "silu": lambda x: x * k.sigmoid(x), "identity": lambda x: x,
    "relu2": lambda x: k.maximum(x, 0.0) * k.maximum(x, 0.0),
}  # fmt: skip


def _part(x: Tensor, which: int, step: int) -> Tensor:
    """Every second element along the last axis (`step` 2), or a half of them."""
    half = _number(x.shape[-1]) // 2
    starts = [0] * (x.rank - 1) + [which if step == 2 else which * half]
    return k.strided_slice(x, starts, [1] * (x.rank - 1) + [step], (*x.shape[:-1], half))


def _number(d: Dim) -> int:
    if not isinstance(d, int):
        raise k.SymbolicValueError("how many tokens or experts there are is known only at run time")
    return d


def _routed(logits: Tensor, mixing: Tensor | None, count: int, normalize: bool) -> tuple[Tensor, Tensor]:
    """Experts int64 [tokens, count] by descending logit, and their weights: softmax of the logits, or entries of `mixing`."""
    tokens, experts = logits.shape
    if not 1 <= count <= _number(experts):
        raise k.DefinitionError(f"k is {count}; expected 1 to {experts}, the number of experts")
    values, places = k.sort(k.cast(logits, DType.FLOAT), 1, True)
    best = (tokens, count)
    chosen = k.strided_slice(places, [0, 0], [1, 1], best)
    if mixing is None:
        powers = k.exp(values - k.strided_slice(values, [0, 0], [1, 1], (tokens, 1)))
        weights = k.strided_slice(powers / k.reduce_sum(powers, [1], True), [0, 0], [1, 1], best)
    else:
        weights = k.index(k.cast(mixing, DType.FLOAT), [k.iota(best, 0), chosen])
    return chosen, weights / k.reduce_sum(weights, [1], True) if normalize else weights


def _mixture(x: Tensor, routed: tuple[Tensor, Tensor], layers: Sequence[Layer | None], activation: Activation) -> Tensor:
    """The weighted sum of what the chosen experts make of x [.., width]."""
    (chosen, weights), (first, second, third) = routed, layers
    assert first is not None and second is not None
    tokens, count, experts = _number(chosen.shape[0]), _number(chosen.shape[1]), _number(first.values.shape[0])
    width = x.shape[-1]
    if product(x.shape[:-1]) != tokens:
        raise k.DefinitionError(f"router_probs has {tokens} rows; expected {product(x.shape[:-1])}, one for each token")
    gathers = tokens * count <= experts
    which = chosen if gathers else None
    rows = k.reshape(k.cast(x, DType.FLOAT), (tokens, 1, 1, width) if gathers else (1, tokens, width))
    hidden = activation.apply(first.through(rows, which), None if third is None else third.through(rows, which))
    made = second.through(hidden, which)
    if gathers:
        total = k.reduce_sum(made * k.expand_dims(weights, [2, 3]), [1])
    else:
        mine = k.equal(k.expand_dims(chosen, [0]), k.iota((experts, tokens, count), 0))
        shares = k.reduce_sum(k.select(mine, k.expand_dims(weights, [0]), 0.0), [2])
        total = k.reduce_sum(made * k.expand_dims(shares, [2]), [0])
    return k.cast(k.reshape(total, x.shape), x.dtype)


@device_op("MoE")
def moe(
    input: Tensor, router_probs: Tensor, fc1_experts_weights: Tensor, fc1_experts_bias: Tensor | None = None,
    fc2_experts_weights: Tensor | None = None, fc2_experts_bias: Tensor | None = None,
    fc3_experts_weights: Tensor | None = None, fc3_experts_bias: Tensor | None = None, *, activation_alpha: float = 1.0,
    activation_beta: float = 0.0, activation_type: str = "relu", k: int = 1, normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0, swiglu_limit: float | None = None, swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: int = 0,
) -> Tensor:  # fmt: skip
    """com.microsoft's MoE without sparse mixer."""
    assert fc2_experts_weights is not None
    third = None if fc3_experts_weights is None else Layer(fc3_experts_weights, fc3_experts_bias)
    layers = (Layer(fc1_experts_weights, fc1_experts_bias), Layer(fc2_experts_weights, fc2_experts_bias), third)
    activation = Activation(
        activation_type, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit, bool(swiglu_limit_after_activation)
    )
    return _mixture(input, _routed(router_probs, None, k, bool(normalize_routing_weights)), layers, activation)


@device_op("QMoE")
def qmoe(
    input: Tensor, router_probs: Tensor, fc1_experts_weights: Tensor, fc1_scales: Tensor | None = None,
    fc1_experts_bias: Tensor | None = None, fc2_experts_weights: Tensor | None = None, fc2_scales: Tensor | None = None,
    fc2_experts_bias: Tensor | None = None, fc3_experts_weights: Tensor | None = None, fc3_scales: Tensor | None = None,
    fc3_experts_bias: Tensor | None = None, fc1_zero_points: Tensor | None = None, fc2_zero_points: Tensor | None = None,
    fc3_zero_points: Tensor | None = None, router_weights: Tensor | None = None, *, accuracy_level: int = 0,
    activation_alpha: float = 1.0, activation_beta: float = 0.0, activation_type: str = "relu", block_size: int | None = None,
    expert_weight_bits: int = 4, fc1_expert_weight_bits: int | None = None, fc2_expert_weight_bits: int | None = None,
    fc3_expert_weight_bits: int | None = None, k: int = 1, normalize_routing_weights: int = 0, quant_type: str = "int",
    swiglu_fusion: int = 0, swiglu_limit: float | None = None, swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: int = 0, weights_prepacked: int = -1,
) -> Tensor:  # fmt: skip
    """com.microsoft's QMoE of integers, without sparse mixer."""
    bits = [b or expert_weight_bits for b in (fc1_expert_weight_bits, fc2_expert_weight_bits, fc3_expert_weight_bits)]
    assert fc2_experts_weights is not None
    third = None
    if fc3_experts_weights is not None:
        third = Layer(fc3_experts_weights, fc3_experts_bias, bits[2], fc3_scales, fc3_zero_points)
    layers = (
        Layer(fc1_experts_weights, fc1_experts_bias, bits[0], fc1_scales, fc1_zero_points),
        Layer(fc2_experts_weights, fc2_experts_bias, bits[1], fc2_scales, fc2_zero_points), third,
    )  # fmt: skip
    activation = Activation(
        activation_type, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit, bool(swiglu_limit_after_activation)
    )
    return _mixture(input, _routed(router_probs, router_weights, k, bool(normalize_routing_weights)), layers, activation)
