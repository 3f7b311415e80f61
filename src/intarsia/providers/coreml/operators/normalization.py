"""Normalisations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.providers.coreml.node_builder import CARRIERS, FLOATS, Handler, NodeBuilder, Var, carrier_of


def _per_channel(b: NodeBuilder, index: int) -> Var:
    """An input of one number for each channel, as broadcast to the data."""
    x = b.x(index)
    wide = (1, b.shape(index)[0], *(1,) * (b.rank - 2))
    return b.reshape(x, wide)


def _batch_normalization(b: NodeBuilder) -> Var:
    """(x - mean) / sqrt(var + epsilon) * scale + bias, of statistics that are given."""
    dtype = b.only(*FLOATS)
    if b.attribute("training_mode", 0) or any(b.node.outputs[1:]):
        raise b.refuse("BatchNormalization of training computes statistics of its own")
    if not b.attribute("spatial", 1):
        raise b.refuse("BatchNormalization of version 7 with spatial=0 has statistics for each element")
    epsilon = b.attribute("epsilon", 1e-5)
    mb = b.mb
    if any(b.dtype(i) is not dtype for i in (1, 2, 3, 4)):
        raise b.refuse("Core ML's batch_norm has one element type", "type")
    if 3 <= b.rank <= 5 and all(b.constant(i) is not None for i in (1, 2, 3, 4)):
        return mb.batch_norm(
            x=b.x(), gamma=b.x(1), beta=b.x(2), mean=b.x(3), variance=b.x(4), epsilon=CARRIERS[dtype](epsilon)
        )
    scale, bias, mean, variance = (_per_channel(b, i) for i in (1, 2, 3, 4))
    spread = mb.sqrt(x=mb.add(x=variance, y=b.number(epsilon)))
    return mb.add(x=mb.mul(x=mb.real_div(x=mb.sub(x=b.x(), y=mean), y=spread), y=scale), y=bias)


def standardized(b: NodeBuilder, x: Var, axes: Sequence[int], epsilon: Any) -> tuple[Var, Var, Var]:
    """(x - mean) / sqrt(variance + epsilon), the mean, and 1 / sqrt(variance + epsilon)."""
    mb = b.mb
    mean = mb.reduce_mean(x=x, axes=list(axes), keep_dims=True)
    centred = mb.sub(x=x, y=mean)
    variance = mb.reduce_mean(x=mb.square(x=centred), axes=list(axes), keep_dims=True)
    root = mb.sqrt(x=mb.add(x=variance, y=epsilon))
    return mb.real_div(x=centred, y=root), mean, mb.real_div(x=carrier_of(x)(1), y=root)


def _instance_normalization(b: NodeBuilder) -> Var:
    b.only(*FLOATS)
    normal, _, _ = standardized(b, b.x(), range(2, b.rank), b.number(b.attribute("epsilon", 1e-5)))
    return b.mb.add(x=b.mb.mul(x=normal, y=_per_channel(b, 1)), y=_per_channel(b, 2))


def _layer_normalization(b: NodeBuilder) -> list[Var]:
    """Core ML's layer_norm where scale and bias are known and as large as the normalised axes, else written out."""
    dtype = b.only(*FLOATS)
    axis, mb = b.axis(-1), b.mb
    axes = list(range(axis, b.rank))
    epsilon = b.attribute("epsilon", 1e-5)
    whole = b.dims()[axis:]
    others = [i for i in (1, 2) if b.has(i)]
    plain = all(b.constant(i) is not None and b.dims(i) == whole and b.dtype(i) is dtype for i in others)
    if plain and not any(b.node.outputs[1:]):
        given = {name: b.x(i) for i, name in ((1, "gamma"), (2, "beta")) if b.has(i)}
        return [mb.layer_norm(x=b.x(), axes=axes, epsilon=b.number(epsilon), **given)]
    x = b.cast(b.x(), np.float32)
    normal, mean, inverse = standardized(b, x, axes, np.float32(epsilon))
    y = mb.mul(x=normal, y=b.cast(b.x(1), np.float32))
    if b.has(2):
        y = mb.add(x=y, y=b.cast(b.x(2), np.float32))
    found = [b.cast(y, CARRIERS[dtype])]
    for i, extra in ((1, mean), (2, inverse)):
        if len(b.node.outputs) > i:
            found.append(b.cast(extra, CARRIERS[b.out_dtype(i)]) if b.node.outputs[i] else extra)
    return found


def _rms_normalization(b: NodeBuilder) -> Var:
    """x / sqrt(mean(x^2) + epsilon) * scale, in float32: squares leave float16."""
    b.only(*FLOATS)
    axes, mb = list(range(b.axis(-1), b.rank)), b.mb
    x = b.cast(b.x(), np.float32)
    mean = mb.reduce_mean(x=mb.square(x=x), axes=axes, keep_dims=True)
    root = mb.sqrt(x=mb.add(x=mean, y=np.float32(b.attribute("epsilon", 1e-5))))
    return b.cast(mb.mul(x=mb.real_div(x=x, y=root), y=b.cast(b.x(1), np.float32)), CARRIERS[b.out_dtype()])


def _group_normalization(b: NodeBuilder) -> Var:
    """Statistics of each group; scale and bias of each group (version 18) or channel (from 21 on)."""
    dtype = b.only(*FLOATS)
    groups, shape, mb = int(b.attribute("num_groups")), b.shape(), b.mb
    n, channels = shape[:2]
    x = b.reshape(b.cast(b.x(), np.float32), (n, groups, -1 if n == 0 else int(np.prod(shape[1:])) // groups))
    normal, _, _ = standardized(b, x, [2], np.float32(b.attribute("epsilon", 1e-5)))

    def spread(index: int) -> Var:
        given = b.cast(b.x(index), np.float32)
        if b.shape(index)[0] == channels:
            return _wide(b, given, (1, channels, *(1,) * (len(shape) - 2)))
        return _wide(b, given, (1, groups, 1))

    if b.shape(1)[0] != channels:
        normal = mb.add(x=mb.mul(x=normal, y=spread(1)), y=spread(2))
        return b.cast(b.reshape(normal, shape), CARRIERS[dtype])
    y = mb.add(x=mb.mul(x=b.reshape(normal, shape), y=spread(1)), y=spread(2))
    return b.cast(y, CARRIERS[dtype])


def _wide(b: NodeBuilder, x: Var, shape: Sequence[int]) -> Var:
    return b.reshape(x, shape)


def _mean_variance_normalization(b: NodeBuilder) -> Var:
    b.only(*FLOATS)
    axes = [int(a) % b.rank for a in b.attribute("axes") or (0, 2, 3)]
    mb = b.mb
    mean = mb.reduce_mean(x=b.x(), axes=axes, keep_dims=True)
    centred = mb.sub(x=b.x(), y=mean)
    variance = mb.reduce_mean(x=mb.square(x=centred), axes=axes, keep_dims=True)
    return mb.real_div(x=centred, y=mb.add(x=mb.sqrt(x=variance), y=b.number(1e-9)))


def _local_response(b: NodeBuilder) -> Var:
    """x / (bias + alpha / size * sum of squares of the channels around)^beta, by a pool along the channels."""
    b.only(*FLOATS)
    size, mb = int(b.attribute("size")), b.mb
    alpha, beta, bias = (float(b.attribute(*pair)) for pair in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    n, channels, *rest = b.shape()
    squares = b.reshape(mb.square(x=b.x()), (n, 1, channels, int(np.prod(rest))))
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    mean = mb.avg_pool(
        x=squares, kernel_sizes=[size, 1], strides=[1, 1], pad_type="custom", pad=[before, after, 0, 0],
        exclude_padding_from_average=False,
    )  # fmt: skip
    base = mb.add(x=mb.mul(x=b.reshape(mean, b.shape()), y=b.number(alpha)), y=b.number(bias))
    return mb.real_div(x=b.x(), y=mb.pow(x=base, y=b.number(beta)))


HANDLERS: Mapping[str, Handler] = {
    "BatchNormalization": _batch_normalization, "GroupNormalization": _group_normalization,
    "InstanceNormalization": _instance_normalization, "LRN": _local_response, "LayerNormalization": _layer_normalization,
    "MeanVarianceNormalization": _mean_variance_normalization, "RMSNormalization": _rms_normalization,
}  # fmt: skip
