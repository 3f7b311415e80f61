"""Convolution by its definition, in float64."""

from __future__ import annotations

import numpy as np

from intarsia.providers.cpu.kernels.conv.window_products import ConvShape


def reference(x: np.ndarray, w: np.ndarray, s: ConvShape) -> np.ndarray:
    """Channels-last convolution in float64, window position by window position; w is ONNX's [M, C / group, *kernel]."""
    rank = len(s.spatial)
    border = [(0, 0), *((s.pads[i], s.pads[rank + i]) for i in range(rank)), (0, 0)]
    padded = np.pad(x.astype(np.float64), border)
    y = np.zeros((s.batch, *s.output, s.filters))
    depth, each = s.channels // s.group, s.filters // s.group
    for position in np.ndindex(*s.kernel):
        window = tuple(
            slice(p * d, p * d + (o - 1) * st + 1, st)
            for p, d, o, st in zip(position, s.dilations, s.output, s.strides, strict=True)
        )
        part = padded[(slice(None), *window)]
        for g in range(s.group):
            weights = w[(slice(g * each, (g + 1) * each), slice(None), *position)].astype(np.float64)
            y[..., g * each : (g + 1) * each] += part[..., g * depth : (g + 1) * depth] @ weights.T
    return y
