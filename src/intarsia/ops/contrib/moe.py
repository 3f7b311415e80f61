"""com.microsoft: MoE and QMoE: every token goes through the networks of the k experts that its router picks
(`expert_mixture`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.expert_mixture import Activation, Layer, Mixture, Routing, Storage
from intarsia.ops.framework.operands import OMITTED
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import host_op
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor

DOMAIN = "com.microsoft"
Array = np.ndarray
_REASON = "which experts' weights are read depends on data"


def _same_type(input: TensorType, *others: TensorType | None) -> TensorType:
    return input


def _register(define: Callable[..., Mixture]) -> None:
    """A host operator, and its definition in primitives for whom that is none."""

    @functools.wraps(define)
    def by_expert(*operands: Any, **attributes: Any) -> Array:
        return define(*operands, **attributes).by_expert()

    @functools.wraps(define)
    def in_primitives(*operands: Any, **attributes: Any) -> Tensor:
        return define(*operands, **attributes).in_primitives()

    name = {"moe": "MoE", "qmoe": "QMoE"}[define.__name__]
    host_op(name, 1, domain=DOMAIN, infer=_same_type, reason=_REASON, primitives=in_primitives)(by_expert)


@dataclass(frozen=True)
class ExpertLayers(ParameterGroup):
    """Matrices [experts, out, in] and biases [experts, out] of the experts' layers."""

    fc1_experts_weights: Any
    fc1_experts_bias: Any = None
    fc2_experts_weights: Any = OMITTED
    fc2_experts_bias: Any = None
    fc3_experts_weights: Any = None
    fc3_experts_bias: Any = None


@dataclass(frozen=True)
class MixtureAttributes(ParameterGroup):
    """Which experts a token goes to, and what is between their layers."""

    activation_alpha: float = 1.0
    activation_beta: float = 0.0
    activation_type: str = "relu"
    k: int = 1
    normalize_routing_weights: int = 0
    swiglu_fusion: int = 0
    swiglu_limit: float | None = None
    swiglu_limit_after_activation: int = 0
    use_sparse_mixer: int = 0

    @property
    def activation(self) -> Activation:
        return Activation(
            self.activation_type, self.swiglu_fusion, self.activation_alpha, self.activation_beta, self.swiglu_limit,
            bool(self.swiglu_limit_after_activation),
        )  # fmt: skip

    @property
    def routing(self) -> Routing:
        return Routing(self.k, bool(self.normalize_routing_weights), bool(self.use_sparse_mixer))


def moe(input: Any, router_probs: Any, experts: ExpertLayers, *, attributes: MixtureAttributes) -> Mixture:
    """input [tokens, width] or [batch, sequence, width]."""
    _needed(fc2_experts_weights=experts.fc2_experts_weights)
    third = None
    if experts.fc3_experts_weights is not None:
        third = Layer(experts.fc3_experts_weights, experts.fc3_experts_bias)
    first = Layer(experts.fc1_experts_weights, experts.fc1_experts_bias)
    second = Layer(experts.fc2_experts_weights, experts.fc2_experts_bias)
    return Mixture(input, router_probs, None, attributes.routing, (first, second, third), attributes.activation)


def _needed(**inputs: Any) -> None:
    for name, x in inputs.items():
        if x is None:
            raise k.DefinitionError(f"required input {name!r} is missing")


@dataclass(frozen=True)
class QuantizedExpertLayers(ParameterGroup):
    """Those of `ExpertLayers` in few bits, with a scale and a zero point for each block of a row."""

    fc1_experts_weights: Any
    fc1_scales: Any = None
    fc1_experts_bias: Any = None
    fc2_experts_weights: Any = OMITTED
    fc2_scales: Any = None
    fc2_experts_bias: Any = None
    fc3_experts_weights: Any = None
    fc3_scales: Any = None
    fc3_experts_bias: Any = None
    fc1_zero_points: Any = None
    fc2_zero_points: Any = None
    fc3_zero_points: Any = None


@dataclass(frozen=True)
class WholeScales(ParameterGroup):
    """Scales of whole matrices, and of activations, which keep their digits, so that theirs play no part."""

    fc1_global_scale: Any = None
    fc2_global_scale: Any = None
    fc1_act_scale: Any = None
    fc2_act_scale: Any = None
    fc1_act_block_scale: Any = None
    fc2_act_block_scale: Any = None


@dataclass(frozen=True)
class QuantizedMixtureAttributes(MixtureAttributes):
    """Those of a mixture, and how its weights are stored."""

    accuracy_level: int = 0
    block_size: int | None = None
    expert_weight_bits: int = 4
    fc1_expert_weight_bits: int | None = None
    fc2_expert_weight_bits: int | None = None
    fc3_expert_weight_bits: int | None = None
    quant_type: str = "int"
    weights_prepacked: int = -1

    def storage(self, bits: int | None) -> Storage:
        """How a layer is stored, `bits` given for it alone or None."""
        return Storage(self.quant_type, bits or self.expert_weight_bits, self.block_size or 0)


def qmoe(
    input: Any, router_probs: Any, experts: QuantizedExpertLayers, router_weights: Any | None, whole: WholeScales, *,
    attributes: QuantizedMixtureAttributes,
) -> Mixture:  # fmt: skip
    """MoE with quantised weights."""
    a, e = attributes, experts
    _needed(fc2_experts_weights=e.fc2_experts_weights)
    _check_storage(a.quant_type, a.weights_prepacked, a.fc1_expert_weight_bits or a.expert_weight_bits)
    storage = [a.storage(bits) for bits in (a.fc1_expert_weight_bits, a.fc2_expert_weight_bits, a.fc3_expert_weight_bits)]
    third = None
    if e.fc3_experts_weights is not None:
        third = Layer(
            e.fc3_experts_weights, e.fc3_experts_bias, storage[2], e.fc3_scales, e.fc3_zero_points, whole.fc1_global_scale
        )
    layers = (
        Layer(e.fc1_experts_weights, e.fc1_experts_bias, storage[0], e.fc1_scales, e.fc1_zero_points, whole.fc1_global_scale),
        Layer(e.fc2_experts_weights, e.fc2_experts_bias, storage[1], e.fc2_scales, e.fc2_zero_points, whole.fc2_global_scale),
        third,
    )
    return Mixture(input, router_probs, router_weights, a.routing, layers, a.activation)


def _check_storage(kind: str, prepacked: int, bits: int) -> None:
    if kind not in ("int", "fp4", "nvfp4", "fp8", "wfp4afp8"):
        raise k.DefinitionError(f"quant_type is {kind!r}; expected int, fp4, nvfp4, fp8 or wfp4afp8")
    if prepacked == 1:
        raise k.DefinitionError("weights_prepacked is 1: a layout of another runtime cannot be read")
    if bits not in (2, 3, 4, 8):
        raise k.DefinitionError(f"weights have {bits} bits; expected 2, 3, 4 or 8")


_register(moe)
_register(qmoe)
