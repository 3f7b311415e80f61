"""Optimiser steps (domain ai.onnx.preview.training): Adagrad, Adam, Momentum.

`inputs` are the tensors to optimise, then as many gradients, then as many of each further state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.operands import as_scalar
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import op
from intarsia.primitives import lang as k

Tensor = k.Tensor

DOMAIN = "ai.onnx.preview.training"


def _each(inputs: Sequence[Tensor], states: int, step: Callable[..., tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """`step` for every optimised tensor with its gradient and states; results in the order of the operator's outputs."""
    groups = 2 + states
    if not inputs or len(inputs) % groups:
        raise k.DefinitionError(f"{len(inputs)} tensors are given; expected {groups} for each optimised tensor")
    count = len(inputs) // groups
    results = [step(*inputs[i::count]) for i in range(count)]
    return tuple(r[part] for part in range(1 + states) for r in results)


def _scalars(R: Tensor, T: Tensor, dtype: DType) -> tuple[Tensor, Tensor]:
    """Learning rate and number of updates, in the type of the optimised tensor."""
    return k.cast(as_scalar(R, "R"), dtype), k.cast(as_scalar(T, "T"), dtype)


@op("Adagrad", 1, domain=DOMAIN)
def adagrad(
    R: Tensor, T: Tensor, *inputs: Tensor, decay_factor: float = 0.0, epsilon: float = 1e-6, norm_coefficient: float = 0.0
) -> tuple[Tensor, ...]:
    def step(x: Tensor, gradient: Tensor, squares: Tensor) -> tuple[Tensor, ...]:
        rate, updates = _scalars(R, T, x.dtype)
        g = x * norm_coefficient + gradient
        total = squares + g * g
        return x - rate / (updates * decay_factor + 1.0) * g / (k.sqrt(total) + epsilon), total

    return _each(inputs, 1, step)


@dataclass(frozen=True)
class AdamAttributes(ParameterGroup):
    """How much of the mean gradient and of the mean square stays, and the weights' decay before and after the step."""

    alpha: float = 0.9
    beta: float = 0.999
    epsilon: float = 1e-6
    norm_coefficient: float = 0.0
    norm_coefficient_post: float = 0.0


@op("Adam", 1, domain=DOMAIN)
def adam(R: Tensor, T: Tensor, *inputs: Tensor, attributes: AdamAttributes) -> tuple[Tensor, ...]:
    alpha, beta = attributes.alpha, attributes.beta

    def step(x: Tensor, gradient: Tensor, mean: Tensor, squares: Tensor) -> tuple[Tensor, ...]:
        rate, updates = _scalars(R, T, x.dtype)
        g = x * attributes.norm_coefficient + gradient
        v = mean * alpha + g * (1.0 - alpha)
        h = squares * beta + g * g * (1.0 - beta)
        unbiased = rate * k.sqrt(1.0 - k.power(beta, updates)) / (1.0 - k.power(alpha, updates))
        moved = x - k.select(updates > 0.0, unbiased, rate) * v / (k.sqrt(h) + attributes.epsilon)
        return moved * (1.0 - attributes.norm_coefficient_post), v, h

    return _each(inputs, 2, step)


@op("Momentum", 1, domain=DOMAIN)
def momentum(
    R: Tensor, T: Tensor, *inputs: Tensor, alpha: float, beta: float, mode: str, norm_coefficient: float
) -> tuple[Tensor, ...]:
    if mode not in ("standard", "nesterov"):
        raise k.DefinitionError(f"mode is {mode!r}; expected standard or nesterov")

    def step(x: Tensor, gradient: Tensor, velocity: Tensor) -> tuple[Tensor, ...]:
        rate, updates = _scalars(R, T, x.dtype)
        g = x * norm_coefficient + gradient
        v = velocity * alpha + k.select(updates > 0.0, k.scalar(beta, x.dtype), 1.0) * g
        return x - rate * (g + v * alpha if mode == "nesterov" else v), v

    return _each(inputs, 1, step)
