"""Normalisations: statistics are formed in float32 at least, as mean and centred variance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from intarsia.graph.dims import Dim, dim_max, dim_min, floordiv, format_shape
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.operands import aligned, element_type, normal_axes, normal_axis, widened
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import NodeContext, op
from intarsia.primitives import lang as k

Tensor = k.Tensor

MICROSOFT = "com.microsoft"
_FEW = 1024  # channels whose neighbourhoods are looked at as they are


def _wide(x: Tensor) -> DType:
    return DType.DOUBLE if x.dtype is DType.DOUBLE else DType.FLOAT


def standardized(x: Tensor, axes: Sequence[int], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """(x - mean) / sqrt(variance + epsilon), the mean and 1 / sqrt(variance + epsilon), the last two with axes of size 1."""
    mean = k.reduce_mean(x, axes, keepdims=True)
    centred = x - mean
    variance = k.reduce_mean(centred * centred, axes, keepdims=True)
    inverse = 1.0 / k.sqrt(variance + epsilon)
    return centred * inverse, mean, inverse


def root_mean_square(x: Tensor, axes: Sequence[int], epsilon: float) -> tuple[Tensor, Tensor]:
    """x / sqrt(mean(x^2) + epsilon), and the factor."""
    inverse = 1.0 / k.sqrt(k.reduce_mean(x * x, axes, keepdims=True) + epsilon)
    return x * inverse, inverse


# --- statistics of the batch ---------------------------------------------------------------------------------------


def _batch_axes(x: Tensor, spatial: int) -> list[int]:
    return [0, *range(2, x.rank)] if spatial else [0]


def _batch_inference(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, epsilon: float, spatial: int) -> Tensor:
    """(x - mean) * (scale / sqrt(var + epsilon)) + bias per channel (spatial = 0: per channel and position)."""
    wide = _wide(x)
    factor = k.cast(scale, wide) / k.sqrt(k.cast(var, wide) + epsilon)
    mean, factor, bias = (_by_channel(k.cast(p, wide), x.rank, spatial) for p in (mean, factor, bias))
    return k.cast((k.cast(x, wide) - mean) * factor + bias, x.dtype)


def _by_channel(p: Tensor, rank: int, spatial: int) -> Tensor:
    return aligned(p, rank, 1) if spatial and rank > 1 else p


@dataclass(frozen=True)
class BatchNormAttributes(ParameterGroup):
    """What is added to the variance, and how much of the running statistics stays."""

    epsilon: float = 1e-5
    momentum: float = 0.9


@dataclass(frozen=True)
class SpatialAttributes(BatchNormAttributes):
    """Those of the versions before 9: with `spatial` 0 statistics are per channel and position."""

    spatial: int = 1


@dataclass(frozen=True)
class TestedAttributes(SpatialAttributes):
    """Those of the versions before 7, which say what is inference."""

    is_test: int = 0


def _batch_training(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, attributes: BatchNormAttributes, spatial: int = 1
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Y, the running mean and variance, and the batch's own mean and (population) variance."""
    wide, epsilon, momentum = _wide(x), attributes.epsilon, attributes.momentum
    axes = _batch_axes(x, spatial)
    x_wide = k.cast(x, wide)
    batch_mean = k.reduce_mean(x_wide, axes, keepdims=True)
    centred = x_wide - batch_mean
    batch_var = k.reduce_mean(centred * centred, axes, keepdims=True)
    found_mean, found_var = (k.reshape(s, mean.shape) for s in (batch_mean, batch_var))
    factor = k.cast(scale, wide) / k.sqrt(found_var + epsilon)
    y = centred * _by_channel(factor, x.rank, spatial) + _by_channel(k.cast(bias, wide), x.rank, spatial)
    running = [
        k.cast(k.cast(old, wide) * momentum + new * (1.0 - momentum), old.dtype)
        for old, new in ((mean, found_mean), (var, found_var))
    ]
    return k.cast(y, x.dtype), running[0], running[1], k.cast(found_mean, mean.dtype), k.cast(found_var, var.dtype)


@op("BatchNormalization", (1, 6))
def batch_normalization_is_test(
    X: Tensor, scale: Tensor, B: Tensor, mean: Tensor, var: Tensor, *, attributes: TestedAttributes, node: NodeContext
) -> Tensor | tuple[Tensor, ...]:
    if node.outputs > 1 and not attributes.is_test:
        return _batch_training(X, scale, B, mean, var, attributes, attributes.spatial)
    return _batch_inference(X, scale, B, mean, var, attributes.epsilon, attributes.spatial)


@op("BatchNormalization", (7, 9))
def batch_normalization_by_outputs(
    X: Tensor, scale: Tensor, B: Tensor, mean: Tensor, var: Tensor, *, attributes: SpatialAttributes, node: NodeContext
) -> Tensor | tuple[Tensor, ...]:
    """Training where more than one output is wanted."""
    if node.outputs > 1:
        return _batch_training(X, scale, B, mean, var, attributes, attributes.spatial)
    return _batch_inference(X, scale, B, mean, var, attributes.epsilon, attributes.spatial)


@op("BatchNormalization", (14, 15))
def batch_normalization(
    X: Tensor, scale: Tensor, B: Tensor, input_mean: Tensor, input_var: Tensor, *, attributes: BatchNormAttributes,
    training_mode: int = 0,
) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
    if training_mode:
        return _batch_training(X, scale, B, input_mean, input_var, attributes)[:3]
    return _batch_inference(X, scale, B, input_mean, input_var, attributes.epsilon, spatial=1)


# --- statistics of one sample --------------------------------------------------------------------------------------


@op("InstanceNormalization", (1, 6, 22))
def instance_normalization(input: Tensor, scale: Tensor, B: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    x = widened(input)
    y, _, _ = standardized(x, range(2, x.rank), epsilon)
    scale, bias = (aligned(k.cast(p, x.dtype), x.rank, 1) for p in (scale, B))
    return k.cast(y * scale + bias, input.dtype)


def _in_groups(x: Tensor, groups: int, epsilon: float) -> Tensor:
    """The standardised input in float32 or float64, shaped [N, groups, C / groups, ...]."""
    if x.rank < 2:
        raise k.DefinitionError(f"GroupNormalization needs axes N and C, got shape {format_shape(x.shape)}")
    channels = x.shape[1]
    what = f"{channels} channels do not fall into num_groups = {groups} equal groups"
    if groups < 1:
        raise k.DefinitionError(what)
    k.require_multiple(channels, groups, what)
    grouped = k.reshape(widened(x), (x.shape[0], groups, floordiv(channels, groups), *x.shape[2:]))
    return standardized(grouped, range(2, grouped.rank), epsilon)[0]


@op("GroupNormalization", 18)
def group_normalization_by_group(X: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5) -> Tensor:
    """One scale and bias per group."""
    y = _in_groups(X, num_groups, epsilon)
    scale, bias = (aligned(k.cast(p, y.dtype), y.rank, 1) for p in (scale, bias))
    return k.reshape(k.cast(y * scale + bias, X.dtype), X.shape)


@op("GroupNormalization", 21)
def group_normalization(
    X: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    """One scale and bias per channel."""
    y = _in_groups(X, num_groups, epsilon)
    each = (*y.shape[1:3], *[1] * (y.rank - 3))  # groups stay axes, so that loops find each group's mean once
    scale, bias = (k.reshape(k.cast(p, y.dtype), each) for p in (scale, bias))
    return k.reshape(k.cast(y * scale + bias, X.dtype), X.shape)


@dataclass(frozen=True)
class LayerNormAttributes(ParameterGroup):
    """From which axis on, what is added to the variance, and the type of the statistics that are handed on."""

    axis: int = -1
    epsilon: float = 1e-5
    stash_type: int = 1


@op("LayerNormalization", 1)
def layer_normalization_1(
    X: Tensor, Scale: Tensor, B: Tensor | None = None, *, attributes: LayerNormAttributes, node: NodeContext, **unknown: Any
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Written by onnxruntime's older fusions in the default domain; as there, attributes that it does not know are nothing."""
    return layer_normalization(X, Scale, B, attributes=attributes, node=node)


@op("LayerNormalization", 17)
def layer_normalization(
    X: Tensor, Scale: Tensor, B: Tensor | None = None, *, attributes: LayerNormAttributes, node: NodeContext
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Y, and in the type `stash_type` the mean and 1 / sqrt(variance + epsilon), over the axes from `axis` on."""
    wide = _wide(X)
    axes = range(normal_axis(attributes.axis, X.rank), X.rank)
    y, mean, inverse = standardized(k.cast(X, wide), axes, attributes.epsilon)
    y = y * k.cast(Scale, wide)
    if B is not None:
        y = y + k.cast(B, wide)
    stash = element_type(attributes.stash_type)
    return k.cast(y, X.dtype), _stashed(mean, stash, node, 1), _stashed(inverse, stash, node, 2)


def _stashed(x: Tensor, dtype: DType, node: NodeContext, output: int) -> Tensor | None:
    return k.cast(x, dtype) if node.outputs > output and node.wanted[output] else None


@op("RMSNormalization", 23)
def rms_normalization(X: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Tensor:
    wide = _wide(X)
    y, _ = root_mean_square(k.cast(X, wide), range(normal_axis(axis, X.rank), X.rank), epsilon)
    return k.cast(y * k.cast(scale, wide), scale.dtype)


@op("SimplifiedLayerNormalization", 1)
@op("SimplifiedLayerNormalization", 1, domain=MICROSOFT)
def simplified_layer_normalization(
    X: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, node: NodeContext
) -> tuple[Tensor, Tensor | None]:
    wide = _wide(X)
    y, inverse = root_mean_square(k.cast(X, wide), range(normal_axis(axis, X.rank), X.rank), epsilon)
    return k.cast(y * k.cast(scale, wide), scale.dtype), _stashed(inverse, element_type(stash_type), node, 1)


def _with_skip(input: Tensor, skip: Tensor, bias: Tensor | None) -> Tensor:
    wide = _wide(input)
    total = k.cast(input, wide) + k.cast(skip, wide)
    return total if bias is None else total + k.cast(bias, wide)


@op("SkipLayerNormalization", 1, domain=MICROSOFT)
def skip_layer_normalization(
    input: Tensor, skip: Tensor, gamma: Tensor, beta: Tensor | None = None, bias: Tensor | None = None, *,
    epsilon: float = 1e-12, node: NodeContext,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """LayerNormalization of input + skip + bias over the last axis; the fourth output is that sum."""
    total = _with_skip(input, skip, bias)
    y, mean, inverse = standardized(total, [total.rank - 1], epsilon)
    y = y * k.cast(gamma, y.dtype)
    if beta is not None:
        y = y + k.cast(beta, y.dtype)
    stats = _stashed(mean, DType.FLOAT, node, 1), _stashed(inverse, DType.FLOAT, node, 2)
    return k.cast(y, input.dtype), *stats, _stashed(total, input.dtype, node, 3)


@op("SkipSimplifiedLayerNormalization", 1, domain=MICROSOFT)
def skip_simplified_layer_normalization(
    input: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None, *, epsilon: float = 1e-12, node: NodeContext
) -> tuple[Tensor | None, ...]:
    """RMSNormalization of input + skip + bias over the last axis; the fourth output is that sum, the second zeros."""
    total = _with_skip(input, skip, bias)
    y, inverse = root_mean_square(total, [total.rank - 1], epsilon)
    y = k.cast(y * k.cast(gamma, y.dtype), input.dtype)
    mean = k.full((*total.shape[:-1], 1), 0.0, DType.FLOAT)
    stats = _stashed(mean, DType.FLOAT, node, 1), _stashed(inverse, DType.FLOAT, node, 2)
    return y, *stats, _stashed(total, input.dtype, node, 3)


# --- others --------------------------------------------------------------------------------------------------------


@op("LpNormalization", (1, 22))
def lp_normalization(input: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """x / ||x||_p along `axis`; zeros stay zeros."""
    if p not in (1, 2):
        raise k.DefinitionError(f"p must be 1 or 2, got {p}")
    x = widened(input)
    at = [normal_axis(axis, x.rank)]
    norm = k.reduce_sum(k.absolute(x), at, keepdims=True) if p == 1 else k.sqrt(k.reduce_sum(x * x, at, keepdims=True))
    return k.cast(x / k.select(k.equal(norm, 0.0), 1.0, norm), input.dtype)


@op("MeanVarianceNormalization", (9, 13))
def mean_variance_normalization(X: Tensor, *, axes: Sequence[int] = (0, 2, 3)) -> Tensor:
    x = widened(X)
    at = normal_axes(axes, x.rank)
    centred = x - k.reduce_mean(x, at, keepdims=True)
    deviation = k.sqrt(k.reduce_mean(centred * centred, at, keepdims=True))
    return k.cast(centred / (deviation + 1e-9), X.dtype)


@op("MeanVarianceNormalization", 1)
def mean_variance_normalization_of_channels(X: Tensor, *, across_channels: int = 0, normalize_variance: int = 1) -> Tensor:
    """Over the batch and the image, and over the channels, too, if so wanted; X without its mean alone where the variance is
    to stay."""
    axes = [axis for axis in range(min(X.rank, 4)) if axis != 1 or across_channels]
    if normalize_variance:
        return mean_variance_normalization(X, axes=axes)
    x = widened(X)
    return k.cast(x - k.reduce_mean(x, axes, keepdims=True), X.dtype)


@op("LRN", (1, 13))
def lrn(X: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    """x / (bias + alpha / size * s)^beta, s being the sum of squares over `size` neighbouring channels."""
    if size < 1:
        raise k.DefinitionError(f"size is {size}; expected at least 1 channel")
    x = widened(X)
    before: Dim = (size - 1) // 2
    after: Dim = size - 1 - (size - 1) // 2
    if size > _FEW:  # beyond all channels there is nothing to add
        before, after = (dim_min(amount, dim_max(x.shape[1] - 1, 0)) for amount in (before, after))
    low, high = ([amount if axis == 1 else 0 for axis in range(x.rank)] for amount in (before, after))
    near = k.windows(k.pad(x * x, low, high, 0.0), [1], [before + after + 1], [1], [1])
    total = k.reduce_sum(near, [x.rank])
    return k.cast(x / k.power(total * (alpha / size) + bias, beta), X.dtype)
