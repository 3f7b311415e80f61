"""Convolution in small groups: float32, float64 and pairs of bfloat16, against float64 NumPy."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from intarsia.providers.cpu.kernels.conv.window_products import WindowOperands

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.graph.dtypes import DType
from intarsia.primitives import lang
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.conv.grouped import depthwise_arguments, small_groups_kernel
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import WindowSpec
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape
from intarsia.providers.cpu.kernels.matmul.bfloat16_rows import in_pairs

SHAPES = [  # channels are times those of a group
    ConvShape(1, (7, 7), 40, 40, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ConvShape(2, (15, 23), 16, 16, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
    ConvShape(1, (12, 11), 3, 3, (3, 2), (1, 2), (2, 3), (2, 0, 1, 4)),
    ConvShape(2, (31,), 20, 20, (4,), (1,), (1,), (3, 0)),
    ConvShape(1, (5, 6, 9), 18, 18, (3, 2, 3), (2, 1, 1), (1, 2, 1), (1, 1, 1, 1, 1, 1)),
    ConvShape(1, (1, 1), 8, 8, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
]
PAIRS = "pairs"
needs_pairs = pytest.mark.skipif(not t.host().has_pairs, reason="this CPU does not multiply pairs of bfloat16 in vectors")


def shape_of(s: ConvShape, each: int) -> ConvShape:
    return replace(s, channels=s.channels * each, filters=s.filters * each, group=s.channels)


def numbers(s: ConvShape, each: int, kind: object) -> tuple[np.ndarray, np.ndarray]:
    """Input and weights; of PAIRS, the input in bfloat16 and weights that are."""
    rng = np.random.default_rng(0)
    dtype = np.float64 if kind is DType.DOUBLE else np.float32
    x, w = t.random(rng, s.batch, *s.spatial, s.channels, dtype=dtype), t.random(rng, s.filters, each, *s.kernel, dtype=dtype)
    if kind != PAIRS:
        return x, w
    return x.astype(ml_dtypes.bfloat16), w.astype(ml_dtypes.bfloat16).astype(np.float32)


def reference(x: np.ndarray, w: np.ndarray, s: ConvShape) -> np.ndarray:
    rank, each = len(s.spatial), w.shape[1]
    padded = np.pad(x.astype(np.float64), [(0, 0), *((s.pads[i], s.pads[rank + i]) for i in range(rank)), (0, 0)])
    y = np.zeros((s.batch, *s.output, s.group, each))
    grouped = w.astype(np.float64).reshape(s.group, each, each, *s.kernel)
    for position in np.ndindex(*s.kernel):
        window = tuple(
            slice(p * d, p * d + (o - 1) * st + 1, st)
            for p, d, o, st in zip(position, s.dilations, s.output, s.strides, strict=True)
        )
        seen = padded[(slice(None), *window)].reshape(*y.shape)
        y += np.einsum("...gi,goi->...go", seen, grouped[(slice(None), slice(None), slice(None), *position)])
    return y.reshape(s.batch, *s.output, s.channels)


def spec_of(s: ConvShape, each: int, kind: object, epilogue: Epilogue | None = None) -> WindowSpec:
    dtype = kind if isinstance(kind, DType) else DType.FLOAT
    return WindowSpec(
        "multiply", s.kernel, s.strides, s.dilations, dtype, epilogue, DType.BFLOAT16 if kind == PAIRS else None, each
    )  # fmt: skip


def convolve(s: ConvShape, x: np.ndarray, w: np.ndarray, spec: WindowSpec, nthreads: int) -> np.ndarray:
    packed = small_groups_kernel.pack_weights(w, t.host(), in_pairs if spec.x_dtype else None)
    y, whole = t.guarded((s.batch, *s.output, s.channels), spec.dtype.numpy.type)
    data = WindowOperands(x.ctypes.data, y.ctypes.data, packed.ctypes.data)
    args = depthwise_arguments.depthwise_args(spec, t.host(), s, data)
    t.run(small_groups_kernel.kernel_text(spec, t.host()), args, nthreads)
    t.check_margin(whole)
    return y


@pytest.mark.parametrize("kind", [DType.FLOAT, DType.DOUBLE, pytest.param(PAIRS, marks=needs_pairs)])
@pytest.mark.parametrize("each", [2, 4, 8])
@pytest.mark.parametrize("s", SHAPES, ids=str)
def test_groups(s: ConvShape, each: int, kind: object) -> None:
    shape = shape_of(s, each)
    spec = spec_of(shape, each, kind)
    if t.host().vector_bytes // (8 if kind is DType.DOUBLE else 4) % each:
        pytest.skip("groups are wider than this machine's vectors")
    x, w = numbers(shape, each, kind)
    for nthreads in t.THREADS:
        np.testing.assert_allclose(convolve(shape, x, w, spec, nthreads), reference(x, w, shape), atol=1e-4)
    np.testing.assert_allclose(convolve(shape, x, w, replace(spec, pixels=8), 2), reference(x, w, shape), atol=1e-4)


@pytest.mark.parametrize("kind", [DType.FLOAT, pytest.param(PAIRS, marks=needs_pairs)])
def test_epilogue(kind: object) -> None:
    shape = shape_of(SHAPES[1], 4)
    x, w = numbers(shape, 4, kind)
    root = lang.maximum(lang.input(0, DType.FLOAT, ()), 0.0)
    spec = spec_of(shape, 4, kind, Epilogue(root, (), ()))
    np.testing.assert_allclose(convolve(shape, x, w, spec, 2), np.maximum(reference(x, w, shape), 0), atol=1e-4)


def test_which_groups() -> None:
    assert small_groups_kernel.takes((32, 4, 3, 3), 8, 16)
    assert not small_groups_kernel.takes((64, 4, 3, 3), 8, 16), "more filters than channels"
    assert not small_groups_kernel.takes((32, 16, 3, 3), 2, 16), "wide groups"
    assert not small_groups_kernel.takes((64, 8, 3, 3), 8, 4), "wider than a vector"
    assert not small_groups_kernel.takes((64, 8, 31), 8, 16), "long windows"
    with pytest.raises(ValueError, match="groups of 2\\^n channels go with multiply of one type; got 3 and multiply"):
        WindowSpec("multiply", (3,), (1,), (1,), each=3)
