"""com.microsoft: products, convolutions and pools with what onnxruntime fuses behind them, and channels-last forms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from intarsia.graph.dims import Dim, floordiv, product
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.arithmetic.matmul import GemmAttributes, MatMulAttributes, fused_matmul, gemm, matrix_product
from intarsia.ops.framework.operands import HALF, element_type, integers, normal_axis, widened
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import NodeContext, op
from intarsia.ops.internal.channels_last import to_channels_first, to_channels_last
from intarsia.ops.nn.activation import gelu_of, gelu_tanh_of, softplus_of
from intarsia.ops.nn.conv import conv, conv_transpose
from intarsia.ops.nn.pooling import max_pool
from intarsia.ops.nn.sliding_windows import DilatedPoolAttributes, WindowAttributes, cut_to, place_windows, slide
from intarsia.primitives import lang as k

DOMAIN = "com.microsoft"
Tensor = k.Tensor
Ints = Sequence[int]


# --- activations ----------------------------------------------------------------------------------------------------


def activated(x: Tensor, name: str | None, parameters: Sequence[float | None] = (), axis: int = -1) -> Tensor:
    """The activation that a fused node names, with its parameters in ONNX's order of attributes (alpha, beta or min, max).

    Raises:
        DefinitionError: the name is not one that onnxruntime fuses.
    """
    if not name or name in ("NONE", "Identity"):
        return x
    a, b = (*parameters, None, None)[:2]
    wide = widened(x)
    if name == "Softmax":
        at = [normal_axis(axis, x.rank)]
        powers = k.exp(wide - k.reduce_max(wide, at, keepdims=True))
        return k.cast(powers / k.reduce_sum(powers, at, keepdims=True), x.dtype)
    if name == "Clip":
        wide = wide if a is None else k.maximum(wide, a)
        return k.cast(wide if b is None else k.minimum(wide, b), x.dtype)
    functions = {
        "Relu": lambda: k.maximum(wide, 0),
        "Sigmoid": lambda: k.sigmoid(wide),
        "Tanh": lambda: k.tanh(wide),
        "LeakyRelu": lambda: k.select(wide < 0, wide * _given(a, 0.01), wide),
        "ThresholdedRelu": lambda: k.select(wide > _given(a, 1.0), wide, 0),
        "HardSigmoid": lambda: k.maximum(k.minimum(wide * _given(a, 0.2) + _given(b, 0.5), 1.0), 0.0),
        "Elu": lambda: k.select(wide < 0, (k.exp(wide) - 1.0) * _given(a, 1.0), wide),
        "Selu": lambda: (
            k.select(wide > 0, wide, (k.exp(wide) - 1.0) * _given(a, 1.6732631921768188)) * _given(b, 1.0507010221481323)
        ),
        "Softplus": lambda: softplus_of(wide),
        "Softsign": lambda: wide / (k.absolute(wide) + 1.0),
        "ScaledTanh": lambda: k.tanh(wide * _given(b, 1.0)) * _given(a, 1.0),
        "HardSwish": lambda: wide * k.maximum(k.minimum(wide * (1 / 6) + 0.5, 1.0), 0.0),
        "Gelu": lambda: gelu_of(wide),
        "GELU": lambda: gelu_of(wide),
        "RELU": lambda: k.maximum(wide, 0),
    }  # fmt: skip
    if name not in functions:
        raise k.DefinitionError(
            f"activation {name!r} is not known; expected one of {', '.join(sorted(functions))}, Clip, Softmax"
        )
    return k.cast(functions[name](), x.dtype)


def _given(value: float | None, default: float) -> float:
    return default if value is None else value


@op("BiasAdd", 1, domain=DOMAIN)
def bias_add(X: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    return k.cast(widened(X) + widened(bias) + widened(skip), X.dtype)


@op("BiasSplitGelu", 1, domain=DOMAIN)
def bias_split_gelu(X: Tensor, bias: Tensor) -> Tensor:
    """[.., 2 D]: the left half times Gelu of the right half, both with their bias."""
    total = widened(X) + widened(bias)
    width = X.shape[-1]
    k.require_multiple(width, 2, f"X is {X!r}; expected an even last axis")
    half = floordiv(width, 2)
    shape = (*X.shape[:-1], half)
    left, right = (k.strided_slice(total, (*(0,) * (X.rank - 1), at), (1,) * X.rank, shape) for at in (0, half))
    return k.cast(left * gelu_of(right), X.dtype)


@op("BiasSoftmax", 1, domain=DOMAIN)
def bias_softmax(data: Tensor, bias: Tensor, *, axis: int = 1, is_inner_broadcast: int) -> Tensor:
    """softmax of data + bias over the axes from `axis` on.

    The bias has size 1 (or no axis) where it repeats: along the axes just before `axis` (inner) or along the first ones.
    """
    first = normal_axis(axis, data.rank)
    if is_inner_broadcast and bias.rank < data.rank:
        outer = bias.rank - (data.rank - first)
        bias = k.expand_dims(bias, range(max(outer, 0), max(outer, 0) + data.rank - bias.rank))
    total = widened(data) + widened(bias)
    axes = list(range(first, data.rank))
    powers = k.exp(total - k.reduce_max(total, axes, keepdims=True))
    return k.cast(powers / k.reduce_sum(powers, axes, keepdims=True), data.dtype)


@op("BiasDropout", 1, domain=DOMAIN, values=("training_mode",))
def bias_dropout(
    data: Tensor, bias: Tensor, residual: Tensor | None = None, ratio: Tensor | None = None,
    training_mode: np.ndarray | None = None, *, seed: int | None = None, node: NodeContext,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """data + bias + residual: dropout does nothing but in training."""
    if training_mode is not None and integers(training_mode, "training_mode") != [0]:
        raise k.DefinitionError("BiasDropout is for inference here: training_mode must be false")
    total = widened(data) + widened(bias)
    if residual is not None:
        total = total + widened(residual)
    return k.cast(total, data.dtype), k.full(data.shape, True, DType.BOOL) if node.outputs > 1 else None


@op("ScaledSiLU", 1, domain=DOMAIN)
def scaled_silu(X: Tensor, scale: Tensor | None = None, *, alpha: float = 1.0) -> Tensor:
    """z sigmoid(z) for z = scale x, each step rounded to X's type."""
    factor = k.scalar(alpha, DType.FLOAT) if scale is None else k.cast(k.reshape(scale, ()), DType.FLOAT)
    z = k.cast(k.cast(X, DType.FLOAT) * factor, X.dtype)
    gate = k.cast(k.sigmoid(k.cast(z, DType.FLOAT)), X.dtype)
    return k.cast(k.cast(z, DType.FLOAT) * k.cast(gate, DType.FLOAT), X.dtype)


@op("GatedAdd", 1, domain=DOMAIN)
def gated_add(X: Tensor, Y: Tensor, gate: Tensor, gate_weight: Tensor | None = None) -> Tensor:
    """X + Y gate, the product rounded to their type first.

    With `gate_weight` [K, 1] the gate is sigmoid(gate [.., K] . gate_weight); projection and sigmoid are rounded, too.
    """
    if gate_weight is not None:
        wide, dtype = k.cast(gate, DType.FLOAT), X.dtype
        projected = k.reduce_sum(wide * k.reshape(k.cast(gate_weight, DType.FLOAT), (gate.shape[-1],)), [-1], True)
        gate = k.cast(k.sigmoid(k.cast(k.cast(projected, dtype), DType.FLOAT)), dtype)
    return X + Y * gate


@op("SwiGLU", 1, domain=DOMAIN)
def swiglu(
    gate: Tensor, up: Tensor | None = None, *, activation_alpha: float = 1.0, activation_beta: float = 0.0, limit: float = 0.0,
    round_activation: int = 0,
) -> Tensor:  # fmt: skip
    """gate sigmoid(alpha gate) (up + beta), of halves of `gate` [.., 2 * width] without `up`; computed in float32."""
    if up is None:
        half = floordiv(gate.shape[-1], 2)
        starts, steps, shape = ([0] * (gate.rank - 1), [1] * gate.rank, (*gate.shape[:-1], half))
        gate, up = (k.strided_slice(gate, [*starts, start], steps, shape) for start in (0, half))
    dtype, g, line = gate.dtype, k.cast(gate, DType.FLOAT), k.cast(up, DType.FLOAT)
    if limit > 0:
        g, line = k.minimum(g, limit), k.minimum(k.maximum(line, -limit), limit)
    active = g * k.sigmoid(g * activation_alpha)
    if round_activation:
        active = k.cast(k.cast(active, dtype), DType.FLOAT)
    return k.cast(active * (line + activation_beta if activation_beta else line), dtype)


@op("GatedRMSNorm", 1, domain=DOMAIN)
def gated_rms_norm(X: Tensor, scale: Tensor, gate: Tensor, *, activation: str = "silu", epsilon: float = 1e-5) -> Tensor:
    """RMS normalisation of each run of C elements, times `scale` [C] and the activated gate."""
    if activation not in ("silu", "swish", "sigmoid"):
        raise k.DefinitionError(f"activation is {activation!r}; expected silu, swish or sigmoid")
    z = widened(gate)
    opened = k.sigmoid(z) if activation == "sigmoid" else z * k.sigmoid(z)
    return k.cast(_rms_in_runs(X, scale, scale.shape[0], epsilon) * opened, X.dtype)


def _rms_in_runs(x: Tensor, scale: Tensor | None, run: Dim, epsilon: float) -> Tensor:
    """x / sqrt(mean of squares over runs of `run` elements of the last axis + epsilon), in float32, of x's shape. `scale`: for
    each element of a run, or of all."""
    width = x.shape[-1]
    if run == 0 or isinstance(width, int) and isinstance(run, int) and width % run:
        raise k.DefinitionError(f"the last axis of {x!r} is not a multiple of {run}")
    rows = k.reshape(widened(x), (*x.shape[:-1], floordiv(width, run), run))
    normal = rows / k.sqrt(k.reduce_mean(rows * rows, [x.rank], keepdims=True) + epsilon)
    if scale is not None:
        normal = normal * k.broadcast(_by_run(widened(scale), run), normal.shape[-2:])
    return k.reshape(normal, x.shape)


def _by_run(scale: Tensor, run: Dim) -> Tensor:
    """A scale as [1 or runs, run]."""
    count = product(scale.shape)
    return k.reshape(scale, (1 if count == run else floordiv(count, run), run))


@op("BranchwiseRMSNorm", 1, domain=DOMAIN)
def branchwise_rms_norm(X: Tensor, scale: Tensor | None = None, *, epsilon: float = 1e-5, num_branches: int = 0) -> Tensor:
    """X [.., branches, H] or flattened [.., branches * H] where `num_branches` is given; scale [H], [C, H] or [C * H]."""
    flat: Tensor = X
    branches: Dim = num_branches
    if not num_branches:
        if X.rank < 2:
            raise k.DefinitionError(f"X is {X!r}; expected [.., branches, H], or num_branches")
        flat, branches = k.reshape(X, (*X.shape[:-2], X.shape[-2] * X.shape[-1])), X.shape[-2]
    width = flat.shape[-1]
    what = f"the last axis of {flat!r} does not fall into {branches} branches"
    k.require_least(branches, 1, what)
    if num_branches:
        k.require_multiple(width, num_branches, what)
    run = floordiv(width, branches) if num_branches else X.shape[-1]
    return k.reshape(k.cast(_rms_in_runs(flat, scale, run, epsilon), X.dtype), X.shape)


# --- products -------------------------------------------------------------------------------------------------------


@op("TransposeMatMul", 1, domain=DOMAIN)
def transpose_matmul(A: Tensor, B: Tensor, *, alpha: float = 1.0, transA: int = 0, transB: int = 0) -> Tensor:
    return fused_matmul(A, B, attributes=MatMulAttributes(alpha, transA, transB))


@dataclass(frozen=True)
class ProductActivation(ParameterGroup):
    """What a fused product's result goes through, with the activation's parameters."""

    activation: str | None = None
    activation_alpha: float | None = None
    activation_beta: float | None = None
    activation_gamma: float | None = None

    @property
    def pair(self) -> tuple[float | None, float | None]:
        """The parameters that count: Selu has alpha and gamma, the others alpha and beta."""
        return self.activation_alpha, self.activation_gamma if self.activation == "Selu" else self.activation_beta


@dataclass(frozen=True)
class ActivationAlongAxis(ProductActivation):
    """An activation that there always is, Softmax among them."""

    activation: str = field()
    activation_axis: int | None = None


@op("FusedMatMulActivation", 1, domain=DOMAIN)
def fused_matmul_activation(A: Tensor, B: Tensor, *, fused: ActivationAlongAxis, product: MatMulAttributes) -> Tensor:
    y = fused_matmul(A, B, attributes=product)
    axis = -1 if fused.activation_axis is None else fused.activation_axis
    return activated(y, fused.activation, fused.pair, axis)


@op("FusedGemm", 1, domain=DOMAIN)
def fused_gemm(A: Tensor, B: Tensor, C: Tensor | None = None, *, fused: ProductActivation, product: GemmAttributes) -> Tensor:
    return activated(gemm(A, B, C, attributes=product), fused.activation, fused.pair)


@op("GemmFastGelu", 1, domain=DOMAIN)
def gemm_fast_gelu(X: Tensor, W: Tensor, bias: Tensor | None = None) -> Tensor:
    y = matrix_product(X, W, DType.FLOAT if X.dtype in HALF else None)
    return k.cast(gelu_tanh_of(y if bias is None else y + k.cast(bias, y.dtype)), X.dtype)


@dataclass(frozen=True)
class GemmFloat8Attributes(GemmAttributes):
    """Those of Gemm, the activation behind it, and the result's element type."""

    beta: float = 0.0
    activation: str | None = None
    dtype: int = 1


@op("GemmFloat8", 1, domain=DOMAIN)
def gemm_float8(
    A: Tensor, B: Tensor, C: Tensor | None = None, scaleA: Tensor | None = None, scaleB: Tensor | None = None,
    scaleY: Tensor | None = None, *, attributes: GemmFloat8Attributes,
) -> Tensor:  # fmt: skip
    """alpha scaleA scaleB A B + beta C in float32, times scaleY, in the type `dtype`."""
    a, b = (k.cast(x, DType.FLOAT) if s is None else k.cast(x, DType.FLOAT) * s for x, s in ((A, scaleA), (B, scaleB)))
    c = None if C is None else k.cast(C, DType.FLOAT)
    y = activated(gemm(a, b, c, attributes=attributes), attributes.activation)
    return k.cast(y if scaleY is None else y * scaleY, element_type(attributes.dtype))


# --- convolutions and pools -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FusedActivation(ParameterGroup):
    """What a fused convolution's result goes through."""

    activation: str | None = None
    activation_params: Sequence[float] | None = None

    def of(self, y: Tensor) -> Tensor:
        """`y` through the activation. Raises DefinitionError as `activated`."""
        return activated(y, self.activation, tuple(self.activation_params or ()))


@op("FusedConv", 1, domain=DOMAIN)
def fused_conv(
    X: Tensor, W: Tensor, B: Tensor | None = None, Z: Tensor | None = None, *, fused: FusedActivation, group: int = 1,
    attributes: WindowAttributes,
) -> Tensor:  # fmt: skip
    """The convolution, plus Z, through the activation."""
    y = conv(X, W, B, group=group, attributes=attributes)
    return fused.of(y if Z is None else y + Z)


@op("NhwcConv", 1, domain=DOMAIN)
def nhwc_conv(X: Tensor, W: Tensor, B: Tensor | None = None, *, group: int = 1, attributes: WindowAttributes) -> Tensor:
    """X and Y are channels-last; W is [M, C / group, ...] as in Conv."""
    return to_channels_last(conv(to_channels_first(X), W, B, group=group, attributes=attributes))


@op("NhwcFusedConv", 1, domain=DOMAIN)
def nhwc_fused_conv(
    X: Tensor, W: Tensor, B: Tensor | None = None, Z: Tensor | None = None, *, fused: FusedActivation, group: int = 1,
    attributes: WindowAttributes,
) -> Tensor:  # fmt: skip
    y = nhwc_conv(X, W, B, group=group, attributes=attributes)
    return fused.of(y if Z is None else y + Z)


@op("NhwcMaxPool", 1, domain=DOMAIN)
def nhwc_max_pool(x: Tensor, *, attributes: DilatedPoolAttributes) -> Tensor:
    y, _ = max_pool(to_channels_first(x), attributes=attributes, node=NodeContext())
    return to_channels_last(y)


@op("MaxpoolWithMask", 1, domain=DOMAIN)
def maxpool_with_mask(
    X: Tensor, M: Tensor, *, auto_pad: str = "NOTSET", kernel_shape: Ints | None = None, pads: Ints | None = None,
    storage_order: int = 0, strides: Ints | None = None,
) -> Tensor:  # fmt: skip
    """The largest element of each window, every row of which ends before its first element whose mask is 0.

    The first element of an image counts whatever its mask is. The mask repeats over leading axes of size 1.
    """
    sizes = tuple(kernel_shape) if kernel_shape else X.shape[2:]
    given = WindowAttributes(auto_pad=auto_pad, pads=pads, strides=strides)
    windows = cut_to(place_windows(X.shape[2:], sizes, given, clipped=True), X.shape[2:])
    first: Tensor | None = None
    for axis in range(2, X.rank):
        edge = k.equal(k.iota([d if i == axis else 1 for i, d in enumerate(X.shape)], axis), 0)
        first = edge if first is None else first & edge
    assert first is not None
    ends = k.cast(k.equal(M, 0) & ~first, DType.INT32)
    last = 2 * X.rank - 3
    open_ = k.equal(k.scan(slide(k.broadcast(ends, X.shape), windows, 0), "sum", last), 0)
    lowest = -3.4028234663852886e38
    return k.reduce_max(k.select(open_, slide(X, windows, lowest), lowest), range(X.rank, last + 1))


@dataclass(frozen=True)
class ConvTransposeAttributes(ParameterGroup):
    """A transposed convolution's attributes where an input has the pads."""

    auto_pad: str = "NOTSET"
    dilations: Ints | None = None
    group: int = 1
    kernel_shape: Ints | None = None
    output_padding: Ints | None = None
    strides: Ints | None = None

    def padded(self, pads: Ints | None) -> WindowAttributes:
        """Those that say where the windows lie, with these pads."""
        return WindowAttributes(self.auto_pad, self.dilations, self.kernel_shape, pads, self.strides)


@op("ConvTransposeWithDynamicPads", 1, domain=DOMAIN, values=("Pads",))
def conv_transpose_with_dynamic_pads(
    X: Tensor, W: Tensor, Pads: np.ndarray | None = None, B: Tensor | None = None, *, attributes: ConvTransposeAttributes
) -> Tensor:
    pads = None if Pads is None else integers(Pads, "Pads")
    return conv_transpose(
        X, W, B, group=attributes.group, output_padding=attributes.output_padding, attributes=attributes.padded(pads)
    )


# --- normalisation --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupNormAttributes(ParameterGroup):
    """How channels are normalised in groups, and whether SiLU (`activation` 1) follows."""

    activation: int
    groups: int
    channels_last: int = 1
    epsilon: float = 1e-5


@op("GroupNorm", 1, domain=DOMAIN)
def group_norm(X: Tensor, gamma: Tensor, beta: Tensor, *, attributes: GroupNormAttributes) -> Tensor:
    return k.cast(_group_norm(widened(X), gamma, beta, attributes), X.dtype)


def _group_norm(x: Tensor, gamma: Tensor, beta: Tensor, attributes: GroupNormAttributes) -> Tensor:
    activation, channels_last, groups = attributes.activation, attributes.channels_last, attributes.groups
    if activation not in (0, 1):
        raise k.DefinitionError(f"activation is {activation}; expected 0 for none or 1 for SiLU")
    if x.rank < 3:
        raise k.DefinitionError(f"X is {x!r}; expected [N, ..., C] or [N, C, ...]")
    channels, at = x.shape[-1 if channels_last else 1], x.rank - 1 if channels_last else 1
    if groups < 1 or isinstance(channels, int) and channels % groups:
        raise k.DefinitionError(f"{channels} channels do not fall into {groups} equal groups")
    rows = k.reshape(x, (*x.shape[:at], groups, floordiv(channels, groups), *x.shape[at + 1 :]))
    axes = [i for i in range(1, rows.rank) if i != at]
    centred = rows - k.reduce_mean(rows, axes, keepdims=True)
    inverse = 1.0 / k.sqrt(k.reduce_mean(centred * centred, axes, keepdims=True) + attributes.epsilon)
    normal = k.reshape(centred * inverse, x.shape)
    scale, bias = (k.reshape(k.cast(p, x.dtype), [channels if i == at else 1 for i in range(x.rank)]) for p in (gamma, beta))
    y = normal * scale + bias
    return y * k.sigmoid(y) if activation else y


@op("SkipGroupNorm", 1, domain=DOMAIN)
def skip_group_norm(
    X: Tensor, gamma: Tensor, beta: Tensor, skip: Tensor, bias: Tensor | None = None, *, attributes: GroupNormAttributes,
    node: NodeContext,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """GroupNorm of X + skip + bias, and that sum; a skip [N, C] repeats over the image."""
    at = X.rank - 1 if attributes.channels_last else 1
    added = widened(skip)
    if skip.rank == 2:
        added = k.reshape(added, [skip.shape[0] if i == 0 else skip.shape[1] if i == at else 1 for i in range(X.rank)])
    total = widened(X) + added
    if bias is not None:
        total = total + k.reshape(widened(bias), [bias.shape[0] if i == at else 1 for i in range(X.rank)])
    y = _group_norm(total, gamma, beta, attributes)
    return k.cast(y, X.dtype), k.cast(total, X.dtype) if node.outputs > 1 else None
