"""One-node models for `operators.py`: operators with the inputs, attributes and sizes that they typically meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cases.axis_cases import each_axis, products_of_letters, repeated, scattered, types_of_integers
from cases.contrib_cases import fused, narrow, tiny, weights_of_few_bits
from cases.control_cases import control_flow
from cases.model_cases import decoding, experts, few, large, more_quantized, pipelines
from cases.operator_case import LARGE, SMALL, Case, Weight, between, booleans, draw, integers, ints, normal, number
from cases.shape_cases import axis_orders, axis_sets, large_windows, many_axes, thumbnails

__all__ = ["Case", "cases"]

_EVERY = np.random.default_rng(7)  # of all cases, and of those of a second call after them


def cases(wanted: Callable[[Case], bool] | None = None, *, numbers: bool = True) -> Iterator[Case]:
    """Every case, or those that are `wanted`, family by family.

    The numbers of all cases come from one generator. Where some are wanted, they are drawn only for families that have one of
    them, and do not depend on what else is wanted.

    Args:
        numbers: whether the cases are to run; those that are only to be named have zeros instead of numbers.
    """
    if wanted is None:
        draw(_EVERY if numbers else None)
    for seed, family in enumerate((
        elementwise, doubles, comparisons, types, reductions, normalizations, contractions, convolutions, pools, layouts,
        gathers, scatters, selections, images, sequences, quantized, makers, attention, classical, tiny, narrow, fused,
        weights_of_few_bits, control_flow, few, large, decoding, experts, more_quantized, pipelines,
        axis_sets, axis_orders, thumbnails, many_axes, large_windows,
        products_of_letters, each_axis, scattered, types_of_integers, repeated,
    )):  # fmt: skip
        if wanted is not None:
            draw(None)
            if numbers:
                if not any(map(wanted, family())):
                    continue
                draw(np.random.default_rng(seed))
        yield from filter(wanted or (lambda case: True), family())


def both(op: str, make: Callable[..., np.ndarray], dtype: Any = np.float32, **attributes: Any) -> Iterator[Case]:
    """A unary operator at both sizes."""
    opset = attributes.pop("opset", 21)
    domain = attributes.pop("domain", "")
    name = np.dtype(dtype).name
    for shape in (SMALL, LARGE):
        label = f"{name} {'x'.join(map(str, shape))}"
        yield Case(op, label, (make(*shape, dtype=dtype),), attributes, opset=opset, domain=domain, quick=name == "float32")


def elementwise() -> Iterator[Case]:
    for op in (
        "Abs Ceil Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Mish Neg Relu Round Selu Sigmoid Sign Sin "
        "Softplus Softsign Tan Tanh ThresholdedRelu Celu Shrink Identity Sinh Cosh Asinh Atan IsNaN IsInf"
    ).split():
        yield from both(op, normal)
    for op in ("Log", "Sqrt", "Reciprocal"):
        yield from both(op, lambda *s, dtype: between(0.1, 4, *s, dtype=dtype))
    for op in ("Acos", "Asin", "Atanh"):
        yield from both(op, lambda *s, dtype: between(-0.9, 0.9, *s, dtype=dtype))
    yield from both("Acosh", lambda *s, dtype: between(1.1, 5, *s, dtype=dtype))
    yield from both("Swish", normal, opset=24)
    yield from both("QuickGelu", normal, domain="com.microsoft")
    yield from both("Gelu", normal, approximate="tanh")
    for op in ("Abs", "Neg", "Sign"):
        yield from both(op, lambda *s, dtype: integers(-9, 9, *s, dtype=dtype), np.int64)
    for op in ("Relu", "Sigmoid", "Tanh"):
        yield from both(op, normal, np.float16)
    for shape in (SMALL, LARGE):
        size = "x".join(map(str, shape))
        for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum", "PRelu"):
            yield Case(op, f"float32 {size}", (normal(*shape), normal(*shape)), quick=True)
        for op in ("Add", "Mul"):
            yield Case(op, f"float32 {size} by row", (normal(*shape), Weight(normal(shape[1]))), quick=True)
            yield Case(op, f"float32 {size} by column", (normal(*shape), normal(shape[0], 1)))
            yield Case(op, f"float32 {size} by scalar", (normal(*shape), number(0.5)))
            yield Case(op, f"float16 {size}", (normal(*shape, dtype=np.float16), normal(*shape, dtype=np.float16)))
        for op in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"):
            yield Case(op, f"int64 {size}", (integers(-99, 99, *shape), integers(1, 99, *shape)))
        yield Case("Add", f"int32 {size}", (integers(0, 9, *shape, dtype=np.int32), integers(0, 9, *shape, dtype=np.int32)))
        yield Case("Mod", f"float32 {size} fmod", (normal(*shape), between(0.5, 2, *shape)), {"fmod": 1})
        yield Case("Pow", f"float32 {size} squared", (normal(*shape), number(2.0)), quick=True)
        yield Case("Pow", f"float32 {size}", (between(0.1, 3, *shape), normal(*shape)), quick=True)
        yield Case("Clip", f"float32 {size}", (normal(*shape), number(-1.0), number(1.0)), quick=True)
        yield Case("Where", f"float32 {size}", (booleans(*shape), normal(*shape), normal(*shape)), quick=True)
        yield Case("Where", f"float32 {size} by scalar", (booleans(*shape), normal(*shape), number(0.0)))
        yield Case("Where", f"int64 {size}", (booleans(*shape), integers(0, 9, *shape), integers(0, 9, *shape)))
        yield Case("BiasGelu", f"float32 {size}", (normal(*shape), Weight(normal(shape[1]))), domain="com.microsoft")
        yield Case("FastGelu", f"float32 {size}", (normal(*shape), Weight(normal(shape[1]))), domain="com.microsoft")


def doubles() -> Iterator[Case]:
    for op in ("Exp", "Log", "Tanh", "Sigmoid", "Sqrt", "Sin"):
        yield Case(op, "float64 512x512", (between(0.1, 3, 512, 512, dtype=np.float64),))


def comparisons() -> Iterator[Case]:
    for shape in (SMALL, LARGE):
        size = "x".join(map(str, shape))
        for op in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
            yield Case(op, f"float32 {size}", (normal(*shape), normal(*shape)), quick=True)
            yield Case(op, f"int64 {size} by scalar", (integers(0, 9, *shape), number(4, np.int64)))
        for op in ("And", "Or", "Xor"):
            yield Case(op, f"bool {size}", (booleans(*shape), booleans(*shape)), quick=True)
        yield Case("Not", f"bool {size}", (booleans(*shape),), quick=True)
        for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
            yield Case(op, f"int32 {size}", (integers(0, 99, *shape, dtype=np.int32), integers(0, 99, *shape, dtype=np.int32)))
        yield Case("BitwiseNot", f"int32 {size}", (integers(0, 99, *shape, dtype=np.int32),))
        shift = (integers(0, 99, *shape, dtype=np.uint32), integers(0, 9, *shape, dtype=np.uint32))
        yield Case("BitShift", f"uint32 {size}", shift, {"direction": "LEFT"})


def types() -> Iterator[Case]:
    pairs = (
        ("float32", "float16"), ("float16", "float32"), ("float32", "int64"), ("int64", "float32"), ("int32", "int64"),
        ("int64", "int32"), ("bool", "float32"), ("float32", "bool"), ("uint8", "float32"), ("float32", "uint8"),
        ("float64", "float32"), ("float32", "float64"),
    )  # fmt: skip
    from onnx import helper

    for source, target in pairs:
        for shape in (SMALL, LARGE):
            x = booleans(*shape) if source == "bool" else between(0, 99, *shape, dtype=source)
            label = f"{source} to {target} {'x'.join(map(str, shape))}"
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(target))
            yield Case("Cast", label, (x,), {"to": kind}, quick=source == "float32")


def reductions() -> Iterator[Case]:
    for op in "Sum Mean Max Min Prod SumSquare L1 L2 LogSum LogSumExp".split():
        for shape in (SMALL, LARGE):
            size = "x".join(map(str, shape))
            for axis, what in ((-1, "rows"), (0, "columns")):
                x = between(0.1, 1.5, *shape) if op != "Prod" else between(0.99, 1.01, *shape)
                yield Case(f"Reduce{op}", f"float32 {size} {what}", (x, ints(axis)), quick=op in ("Sum", "Mean", "Max"))
            if op in ("Sum", "Max", "Mean"):
                yield Case(f"Reduce{op}", f"float32 {size} all", (normal(*shape),))
        if op in ("Sum", "Mean", "Max"):
            yield Case(f"Reduce{op}", "float32 8x64x56x56 spatial", (normal(8, 64, 56, 56), ints(2, 3)))
            yield Case(f"Reduce{op}", "float32 8x64x56x56 channels", (normal(8, 64, 56, 56), ints(1)))
            yield Case(f"Reduce{op}", "int64 1024x1024 rows", (integers(0, 9, *LARGE), ints(-1)))
    for op in ("ArgMax", "ArgMin"):
        for shape in (SMALL, LARGE):
            for axis in (-1, 0):
                label = f"float32 {'x'.join(map(str, shape))} axis {axis}"
                yield Case(op, label, (normal(*shape),), {"axis": axis}, quick=True)
    yield Case("ArgMax", "float32 1x50257", (normal(1, 50257),), {"axis": -1}, quick=True)
    for op in ("CumSum", "CumProd"):
        for shape in (SMALL, LARGE):
            for axis in (1, 0):
                label = f"float32 {'x'.join(map(str, shape))} axis {axis}"
                x = normal(*shape) if op == "CumSum" else between(0.99, 1.01, *shape)
                yield Case(op, label, (x, number(axis, np.int64)), opset=26 if op == "CumProd" else 21, quick=op == "CumSum")
    yield Case("CumSum", "int64 1024x1024 axis 1", (integers(0, 9, *LARGE), number(1, np.int64)))


def normalizations() -> Iterator[Case]:
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        for shape in ((32, 32), (1, 1000), (1024, 1024), (12, 128, 128), (1, 50257)):
            label = f"float32 {'x'.join(map(str, shape))}"
            yield Case(op, label, (normal(*shape),), {"axis": -1}, quick=True)
        yield Case(op, "float32 8x21x64x64 axis 1", (normal(8, 21, 64, 64),), {"axis": 1})
    yield Case("Softmax", "float16 1024x1024", (normal(1024, 1024, dtype=np.float16),), {"axis": -1})
    for rows, width in ((4, 256), (128, 768), (1024, 1024)):
        x, scale, bias = normal(rows, width), Weight(normal(width)), Weight(normal(width))
        label = f"float32 {rows}x{width}"
        yield Case("LayerNormalization", label, (x, scale, bias), {"axis": -1}, quick=True)
        yield Case("RMSNormalization", label, (x, scale), {"axis": -1}, opset=23, quick=True)
        yield Case("SimplifiedLayerNormalization", label, (x, scale), {"axis": -1})
        skip = (x[None], normal(1, rows, width), scale, bias)
        yield Case("SkipLayerNormalization", label, skip, domain="com.microsoft")
        yield Case("SkipSimplifiedLayerNormalization", label, skip[:3], domain="com.microsoft")
        yield Case("LpNormalization", label, (x,), {"axis": -1})
    for shape in ((1, 16, 8, 8), (1, 64, 56, 56), (8, 64, 56, 56)):
        x, c = normal(*shape), shape[1]
        weights = [Weight(normal(c)), Weight(normal(c)), Weight(normal(c)), Weight(between(0.5, 2, c))]
        label = f"float32 {'x'.join(map(str, shape))}"
        yield Case("BatchNormalization", label, (x, *weights), quick=True)
        yield Case("InstanceNormalization", label, (x, *weights[:2]), quick=True)
        yield Case("GroupNormalization", label, (x, *weights[:2]), {"num_groups": 8}, quick=True)
        yield Case("LRN", label, (x,), {"size": 5})
        yield Case("MeanVarianceNormalization", label, (x,), {"axes": [2, 3]})


def contractions() -> Iterator[Case]:
    for m, k, n in ((1, 768, 768), (16, 64, 32), (128, 768, 768), (128, 768, 3072), (512, 512, 512)):
        yield Case("MatMul", f"float32 {m}x{k}x{n} weights", (normal(m, k), Weight(normal(k, n))), quick=True)
        yield Case("Gemm", f"float32 {m}x{k}x{n} weights", (normal(m, k), Weight(normal(k, n)), Weight(normal(n))), quick=True)
        transposed = (normal(m, k), Weight(normal(n, k)), Weight(normal(n)))
        yield Case("Gemm", f"float32 {m}x{k}x{n} transB", transposed, {"transB": 1})
    yield Case("MatMul", "float32 12x128x64x128 batched", (normal(12, 128, 64), normal(12, 64, 128)), quick=True)
    yield Case("MatMul", "float32 256x256x256 both given", (normal(256, 256), normal(256, 256)))
    yield Case(
        "MatMul", "float64 128x256x256", (normal(128, 256, dtype=np.float64), Weight(normal(256, 256, dtype=np.float64)))
    )
    yield Case("MatMul", "int32 64x64x64", (integers(0, 9, 64, 64, dtype=np.int32), integers(0, 9, 64, 64, dtype=np.int32)))
    fused = {"transB": 1, "alpha": 0.125}
    yield Case(
        "FusedMatMul", "float32 12x128x64x128", (normal(12, 128, 64), normal(12, 128, 64)), fused, domain="com.microsoft"
    )
    for equation, shapes in (
        ("bij,bjk->bik", ((12, 128, 64), (12, 64, 128))), ("bhqd,bhkd->bhqk", ((1, 12, 128, 64), (1, 12, 128, 64))),
        ("ij,ij->i", ((512, 512), (512, 512))), ("i,j->ij", ((1024,), (1024,))), ("bij->bji", ((8, 256, 256),)),
    ):  # fmt: skip
        label = f"float32 {equation}"
        yield Case("Einsum", label, tuple(normal(*s) for s in shapes), {"equation": equation}, quick=True)
    for n in (4, 64):
        yield Case("Det", f"float32 16x{n}x{n}", (normal(16, n, n),))
        yield Case("Inverse", f"float32 16x{n}x{n}", (normal(16, n, n),), domain="com.microsoft")


def convolutions() -> Iterator[Case]:
    for label, x, w, attributes in (
        ("1x3x224x224 7x7/2 64", (1, 3, 224, 224), (64, 3, 7, 7), {"strides": [2, 2], "pads": [3, 3, 3, 3]}),
        ("1x64x56x56 3x3 64", (1, 64, 56, 56), (64, 64, 3, 3), {"pads": [1, 1, 1, 1]}),
        ("1x256x14x14 1x1 1024", (1, 256, 14, 14), (1024, 256, 1, 1), {}),
        ("1x144x56x56 3x3 depthwise", (1, 144, 56, 56), (144, 1, 3, 3), {"pads": [1, 1, 1, 1], "group": 144}),
        ("1x64x28x28 3x3 4 groups", (1, 64, 28, 28), (64, 16, 3, 3), {"pads": [1, 1, 1, 1], "group": 4}),
        ("1x8x16x16 3x3 8", (1, 8, 16, 16), (8, 8, 3, 3), {"pads": [1, 1, 1, 1]}),
        ("1x80x3000 3 384 (1-d)", (1, 80, 3000), (384, 80, 3), {"pads": [1, 1]}),
        ("1x16x16x28x28 3x3x3 16 (3-d)", (1, 16, 16, 28, 28), (16, 16, 3, 3, 3), {"pads": [1] * 6}),
    ):
        yield Case("Conv", f"float32 {label}", (normal(*x), Weight(normal(*w)), Weight(normal(w[0]))), attributes, quick=True)
    up = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
    for c, side in ((8, 8), (64, 28)):
        given = (normal(1, c, side, side), Weight(normal(c, c, 4, 4)))
        yield Case("ConvTranspose", f"float32 1x{c}x{side}x{side} 4x4/2 {c}", given, up, quick=True)
    deform = (normal(1, 16, 28, 28), Weight(normal(16, 16, 3, 3)), normal(1, 18, 28, 28))
    yield Case("DeformConv", "float32 1x16x28x28 3x3 16", deform, {"pads": [1, 1, 1, 1]}, opset=22)
    yield Case("Col2Im", "float32 1x144x784 to 28x28", (normal(1, 144, 784), ints(28, 28), ints(3, 3)), {"pads": [1, 1, 1, 1]})


def pools() -> Iterator[Case]:
    for shape in ((1, 16, 16, 16), (1, 64, 112, 112)):
        label = f"float32 {'x'.join(map(str, shape))}"
        window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
        for op in ("MaxPool", "AveragePool", "LpPool"):
            yield Case(op, f"{label} 3x3/2", (normal(*shape),), window, opset=18, quick=True)
        yield Case("MaxPool", f"{label} 2x2/2", (normal(*shape),), {"kernel_shape": [2, 2], "strides": [2, 2]})
        yield Case("MaxPool", f"{label} 2x2/2 indices", (normal(*shape),), {"kernel_shape": [2, 2], "strides": [2, 2]}, 2)
        for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
            yield Case(op, label, (normal(*shape),), quick=True)
        pooled = (shape[0], shape[1], shape[2] // 2, shape[3] // 2)
        places = np.arange(0, int(np.prod(pooled)) * 4, 4).reshape(pooled)
        window = {"kernel_shape": [2, 2], "strides": [2, 2]}
        yield Case("MaxUnpool", label, (normal(*pooled), places.astype(np.int64)), window)
    boxes = np.concatenate([np.zeros((32, 1)), between(0, 30, 32, 2), between(31, 60, 32, 2)], 1).astype(np.float32)
    yield Case("MaxRoiPool", "float32 1x64x64x64 32 boxes", (normal(1, 64, 64, 64), boxes), {"pooled_shape": [7, 7]})


def layouts() -> Iterator[Case]:
    for label, shape, perm in (
        ("32x32", (32, 32), (1, 0)), ("1024x1024", (1024, 1024), (1, 0)), ("1x128x12x64 heads", (1, 128, 12, 64), (0, 2, 1, 3)),
        ("1x64x112x112 to NHWC", (1, 64, 112, 112), (0, 2, 3, 1)), ("1x112x112x64 to NCHW", (1, 112, 112, 64), (0, 3, 1, 2)),
        ("8x12x128x64 last two", (8, 12, 128, 64), (0, 1, 3, 2)),
    ):  # fmt: skip
        yield Case("Transpose", f"float32 {label}", (normal(*shape),), {"perm": list(perm)}, quick=True)
    yield Case("Transpose", "int64 1024x1024", (integers(0, 9, *LARGE),), {"perm": [1, 0]})
    for shape in (SMALL, LARGE):
        size = "x".join(map(str, shape))
        for axis in (0, 1):
            parts = (normal(*shape), normal(*shape))
            yield Case("Concat", f"float32 {size} two, axis {axis}", parts, {"axis": axis}, quick=True)
            yield Case("Split", f"float32 {size} two, axis {axis}", (normal(*shape),), {"axis": axis, "num_outputs": 2}, 2)
        half = shape[1] // 2
        yield Case("Slice", f"float32 {size} half the columns", (normal(*shape), ints(0), ints(half), ints(1)), quick=True)
        yield Case("Slice", f"float32 {size} half the rows", (normal(*shape), ints(0), ints(half), ints(0)))
        yield Case("Slice", f"float32 {size} every other", (normal(*shape), ints(0), ints(shape[1]), ints(1), ints(2)))
        yield Case("Slice", f"float32 {size} reversed", (normal(*shape), ints(-1), ints(-shape[1] - 1), ints(1), ints(-1)))
        for mode in ("constant", "reflect", "edge", "wrap"):
            yield Case("Pad", f"float32 {size} {mode}", (normal(*shape), ints(1, 1, 1, 1)), {"mode": mode}, quick=True)
        yield Case("Tile", f"float32 {size} 2x2", (normal(*shape), ints(2, 2)), quick=True)
        yield Case("Expand", f"float32 1x{shape[1]} to {size}", (normal(1, shape[1]), ints(*shape)), quick=True)
        yield Case("Expand", f"float32 {shape[0]}x1 to {size}", (normal(shape[0], 1), ints(*shape)))
        yield Case("Reshape", f"float32 {size}", (normal(*shape), ints(-1)), quick=True)
        yield Case("Flatten", f"float32 {size}", (normal(*shape),), {"axis": 0})
        yield Case("Squeeze", f"float32 1x{size}", (normal(1, *shape), ints(0)))
        yield Case("Unsqueeze", f"float32 {size}", (normal(*shape), ints(0)))
        yield Case("Trilu", f"float32 {size}", (normal(*shape),), {"upper": 0}, quick=True)
    yield Case("Pad", "float32 1x64x56x56 by 1", (normal(1, 64, 56, 56), ints(0, 0, 1, 1, 0, 0, 1, 1)), quick=True)
    many = tuple(normal(1, 32, 28, 28) for _ in range(8))
    yield Case("Concat", "float32 8 of 1x32x28x28, axis 1", many, {"axis": 1}, quick=True)
    yield Case("Concat", "float32 past and present keys", (normal(1, 12, 255, 64), normal(1, 12, 1, 64)), {"axis": 2})
    yield Case("Split", "float32 128x2304 in three", (normal(128, 2304),), {"axis": 1, "num_outputs": 3}, 3, quick=True)
    for shape in ((1, 16, 8, 8), (1, 64, 128, 128)):
        size = "x".join(map(str, shape))
        for mode in ("DCR", "CRD"):
            yield Case("DepthToSpace", f"float32 {size} {mode}", (normal(*shape),), {"blocksize": 2, "mode": mode})
        yield Case("SpaceToDepth", f"float32 {size}", (normal(*shape),), {"blocksize": 2})
    yield Case("CenterCropPad", "float32 3x256x256 to 224", (normal(3, 256, 256), ints(3, 224, 224)))
    lengths = integers(1, 128, 16)
    yield Case("ReverseSequence", "float32 128x16x64", (normal(128, 16, 64), lengths), {"time_axis": 0, "batch_axis": 1})
    yield Case("Shape", "float32 1024x1024", (normal(*LARGE),))
    yield Case("Size", "float32 1024x1024", (normal(*LARGE),))


def gathers() -> Iterator[Case]:
    yield Case("Gather", "float32 30522x768 128 rows", (Weight(normal(30522, 768)), integers(0, 30522, 1, 128)), quick=True)
    yield Case("Gather", "float32 32x32 one row", (normal(32, 32), Weight(np.array(3))), quick=True)
    yield Case("Gather", "float32 1024x1024 512 columns", (normal(*LARGE), integers(0, 1024, 512)), {"axis": 1}, quick=True)
    yield Case("Gather", "int64 1024 of 1024", (integers(0, 9, 1024), integers(0, 1024, 1024)))
    for shape in (SMALL, LARGE):
        size = "x".join(map(str, shape))
        for axis in (0, 1):
            given = (normal(*shape), integers(0, shape[axis], *shape))
            yield Case("GatherElements", f"float32 {size} axis {axis}", given, {"axis": axis}, quick=True)
        pairs = integers(0, shape[0], shape[0] * shape[1] // 4, 2)
        yield Case("GatherND", f"float32 {size} elements", (normal(*shape), pairs), quick=True)
        yield Case("GatherND", f"float32 {size} rows", (normal(*shape), integers(0, shape[0], shape[0] // 2, 1)))
    for n in (32, 1000):
        given = (integers(0, n, 1024), number(n, np.int64), Weight(np.array([0, 1], np.float32)))
        yield Case("OneHot", f"float32 1024 to {n}", given, quick=True)


def scatters() -> Iterator[Case]:
    for shape in (SMALL, LARGE):
        size = "x".join(map(str, shape))
        few = (shape[0] // 4, shape[1])
        for reduction in ("none", "add", "mul", "max"):
            given = (normal(*shape), integers(0, shape[0], *few), normal(*few))
            label = f"float32 {size} quarter, {reduction}"
            yield Case("ScatterElements", label, given, {"axis": 0, "reduction": reduction}, opset=18, quick=True)
            rows = (normal(*shape), integers(0, shape[0], shape[0] // 4, 1), normal(*few))
            yield Case("ScatterND", f"float32 {size} rows, {reduction}", rows, {"reduction": reduction}, opset=18, quick=True)
        single = shape[0] * shape[1] // 4
        points = (normal(*shape), integers(0, shape[0], single, 2), normal(single))
        yield Case("ScatterND", f"float32 {size} elements", points, opset=18)
    cache = (normal(1, 8, 256, 64), normal(1, 8, 1, 64), integers(0, 255, 1))
    yield Case("TensorScatter", "float32 1x8x256x64", cache, opset=24)


def selections() -> Iterator[Case]:
    for n, count in ((1024, 10), (100_000, 10), (100_000, 1000), (8192, 8192)):
        yield Case("TopK", f"float32 1x{n} {count}", (normal(1, n), ints(count)), {"axis": -1}, 2, quick=True)
    yield Case("TopK", "float32 1024x1024 5", (normal(*LARGE), ints(5)), {"axis": -1}, 2)
    yield Case("TopK", "float32 64x1024 1024", (normal(64, 1024), ints(1024)), {"axis": -1}, 2)
    for dtype in ("uint8", "float16"):
        yield Case("TopK", f"{dtype} 256x1000 10", (between(0, 200, 256, 1000, dtype=dtype), ints(10)), {"axis": -1}, 2)
    yield Case("TopK", "int64 1x100000 100", (integers(0, 1 << 40, 1, 100_000), ints(100)), {"axis": -1}, 2)
    for shape in (SMALL, LARGE):
        size = "x".join(map(str, shape))
        yield Case("NonZero", f"bool {size} half", (booleans(*shape),), quick=True)
        yield Case(
            "NonZero", f"float32 {size} few", (np.where(between(0, 1, *shape) < 0.01, 1, 0).astype(np.float32),), quick=True
        )
        yield Case("NonZero", f"int64 {size}", (integers(0, 3, *shape),))
        flat = shape[0] * shape[1]
        yield Case("Compress", f"float32 {size} rows", (normal(*shape), booleans(shape[0])), {"axis": 0}, quick=True)
        yield Case("Compress", f"float32 {size} columns", (normal(*shape), booleans(shape[1])), {"axis": 1})
        yield Case("Compress", f"float32 {flat} flat", (normal(flat), booleans(flat)), quick=True)
    for n, kinds in ((1024, 100), (100_000, 1000), (100_000, 10**9)):
        yield Case("Unique", f"int64 {n} of {kinds}", (integers(0, kinds, n),), {"sorted": 1}, 4, quick=True)
        yield Case("Unique", f"float32 {n} of {kinds}", (integers(0, kinds, n).astype(np.float32),), {"sorted": 1}, 1)
    yield Case("Unique", "int64 10000 unsorted", (integers(0, 1000, 10000),), {"sorted": 0}, 4)
    yield Case("Unique", "int64 1000x4 rows", (integers(0, 4, 1000, 4),), {"axis": 0}, 4)
    for n in (100, 4000):
        corners = between(0, 100, 1, n, 2)
        boxes = np.concatenate([corners, corners + between(1, 20, 1, n, 2)], 2)
        limits = (ints(100), Weight(np.array([0.5], np.float32)), Weight(np.array([0.3], np.float32)))
        yield Case("NonMaxSuppression", f"{n} boxes", (boxes, between(0, 1, 1, 2, n), *limits), quick=True)


def images() -> Iterator[Case]:
    for mode, attributes in (
        ("nearest", {}), ("nearest", {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}), ("linear", {}),
        ("linear", {"coordinate_transformation_mode": "align_corners"}), ("cubic", {}),
        ("linear", {"antialias": 1}), ("cubic", {"antialias": 1}),
    ):  # fmt: skip
        for shape in ((1, 3, 16, 16), (1, 64, 56, 56), (1, 3, 224, 224)):
            down = "antialias" in attributes
            scales = Weight(np.array([1, 1, 0.5, 0.5] if down else [1, 1, 2, 2], np.float32))
            extra = " ".join(str(v) for v in attributes.values()) if not down else "antialias, half"
            label = f"float32 {'x'.join(map(str, shape))} {mode} {extra}".rstrip()
            yield Case("Resize", label, (normal(*shape), None, scales), {"mode": mode, **attributes}, quick=not attributes)
    for mode in ("linear", "nearest", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            for shape in ((1, 3, 16, 16), (1, 16, 64, 64)):
                given = (normal(*shape), between(-1.1, 1.1, 1, shape[2], shape[3], 2))
                label = f"float32 {'x'.join(map(str, shape))} {mode} {padding}"
                attributes = {"mode": mode, "padding_mode": padding}
                yield Case("GridSample", label, given, attributes, opset=20, quick=padding == "zeros")
    for mode in ("avg", "max"):
        for boxes, c in ((4, 8), (100, 64)):
            rois = np.concatenate([between(0, 100, boxes, 2), between(101, 200, boxes, 2)], 1)
            given = (normal(1, c, 50, 50), rois, np.zeros(boxes, np.int64))
            attributes = {"mode": mode, "output_height": 7, "output_width": 7, "sampling_ratio": 2, "spatial_scale": 0.25}
            yield Case("RoiAlign", f"float32 1x{c}x50x50 {boxes} boxes {mode}", given, attributes, quick=True)
    adaptive = {"mode": "avg", "output_height": 7, "output_width": 7, "spatial_scale": 0.25}
    rois = np.concatenate([between(0, 100, 100, 2), between(101, 200, 100, 2)], 1)
    given = (normal(1, 64, 50, 50), rois, np.zeros(100, np.int64))
    yield Case("RoiAlign", "float32 1x64x50x50 100 boxes adaptive", given, adaptive)
    for side in (16, 224):
        yield Case("AffineGrid", f"float32 1x3x{side}x{side}", (normal(1, 2, 3), ints(1, 3, side, side)), opset=20)


MICROSOFT = "com.microsoft"
_PLAIN = {"onesided": 1, "normalized": 0}


def sequences() -> Iterator[Case]:
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for steps, size in ((10, 32), (50, 256)):
            weights = [Weight(normal(1, gates * size, size) * 0.1) for _ in range(2)]
            given = (normal(steps, 1, size), *weights, Weight(normal(1, 2 * gates * size)))
            outputs = 3 if op == "LSTM" else 2
            yield Case(op, f"float32 {steps} steps of {size}", given, {"hidden_size": size}, outputs, quick=True)
    for steps, size, batch in ((10, 32, 1), (50, 256, 1), (20, 512, 1), (50, 256, 8)):
        stored = [Weight(integers(-127, 127, 1, size, 4 * size).astype(np.int8)) for _ in range(2)]
        scale, zero = Weight(np.full(1, 0.001, np.float32)), Weight(np.zeros(1, np.int8))
        given = (normal(steps, batch, size), *stored, Weight(normal(1, 8 * size)), *(None,) * 4, scale, zero, scale, zero)
        name = f"int8 {steps} steps of {size}" + (f", {batch} rows" if batch > 1 else "")
        yield Case("DynamicQuantizeLSTM", name, given, {"hidden_size": size}, 3, MICROSOFT)
    for n, batch in ((256, 4), (1000, 8), (4096, 8)):
        yield Case("DFT", f"float32 {batch}x{n} real", (normal(batch, n, 1), None, number(1, np.int64)), opset=20, quick=True)
        given = (normal(batch, n, 2), None, number(1, np.int64))
        yield Case("DFT", f"float32 {batch}x{n} inverse", given, {"inverse": 1}, opset=20)
    yield Case("DFT", "float32 4x256 onesided", (normal(4, 256, 1), None, number(1, np.int64)), {"onesided": 1}, opset=20)
    window = Weight(np.hanning(400).astype(np.float32))
    stft = (normal(1, 16000, 1), number(160, np.int64), window)
    yield Case("STFT", "float32 1x16000 frames of 400", stft, {"onesided": 1}, quick=True)
    window = Weight(np.hanning(512).astype(np.float32))
    stft = (normal(1, 16000, 1), number(128, np.int64), window)
    yield Case("STFT", "float32 1x16000 frames of 512", stft, {"onesided": 1}, quick=True)
    for batch, n in ((1, 16000), (1, 65536), (64, 1009)):
        given = (normal(batch, n, 1), None, number(1, np.int64))
        yield Case("DFT", f"float32 {batch}x{n} onesided", given, {"onesided": 1}, opset=20)
    for n in (512, 4000):
        yield Case("Rfft", f"float32 32x{n}", (normal(32, n),), {"signal_ndim": 1, **_PLAIN}, domain=MICROSOFT)
        yield Case("Irfft", f"float32 32x{n}", (normal(32, n // 2 + 1, 2),), {"signal_ndim": 1, **_PLAIN}, domain=MICROSOFT)
    mel = (number(80, np.int64), number(400, np.int64), number(16000, np.int64), number(0.0), number(8000.0))
    yield Case("MelWeightMatrix", "float32 80 of 400", tuple(m.array for m in mel))


def quantized() -> Iterator[Case]:
    scale, zero = number(0.05), number(128, np.uint8)
    for shape in (SMALL, LARGE):
        size = "x".join(map(str, shape))
        yield Case("QuantizeLinear", f"uint8 {size}", (normal(*shape), scale, zero), quick=True)
        yield Case("DequantizeLinear", f"uint8 {size}", (integers(0, 255, *shape, dtype=np.uint8), scale, zero), quick=True)
        scales, zeros = Weight(between(0.01, 0.1, shape[0])), Weight(np.zeros(shape[0], np.int8))
        given = (integers(-99, 99, *shape, dtype=np.int8), scales, zeros)
        yield Case("DequantizeLinear", f"int8 {size} by row", given, {"axis": 0})
        yield Case("DynamicQuantizeLinear", f"uint8 {size}", (normal(*shape),), {}, 3, quick=True)
        other = integers(0, 255, *shape, dtype=np.uint8)
        for op in ("QLinearAdd", "QLinearMul"):
            given = (integers(0, 255, *shape, dtype=np.uint8), scale, zero, other, scale, zero, scale, zero)
            yield Case(op, f"uint8 {size}", given, domain="com.microsoft")
        given = (integers(0, 255, *shape, dtype=np.uint8), scale, zero, scale, zero)
        yield Case("QLinearSigmoid", f"uint8 {size}", given, domain="com.microsoft")
        yield Case("QLinearLeakyRelu", f"uint8 {size}", given, {"alpha": 0.1}, domain="com.microsoft")
    for m, k, n in ((1, 768, 768), (128, 768, 768)):
        a, b = integers(0, 255, m, k, dtype=np.uint8), Weight(integers(-127, 127, k, n, dtype=np.int8))
        yield Case("MatMulInteger", f"uint8 {m}x{k}x{n}", (a, b, zero, number(0, np.int8)), quick=True)
        given = (a, scale, zero, b, scale, number(0, np.int8), scale, zero)
        yield Case("QLinearMatMul", f"uint8 {m}x{k}x{n}", given, quick=True)
    x, w = integers(0, 255, 1, 64, 28, 28, dtype=np.uint8), Weight(integers(-127, 127, 64, 64, 3, 3, dtype=np.int8))
    given = (x, scale, zero, w, scale, number(0, np.int8), scale, zero)
    yield Case("QLinearConv", "uint8 1x64x28x28 3x3 64", given, {"pads": [1, 1, 1, 1]}, quick=True)
    yield Case("ConvInteger", "uint8 1x64x28x28 3x3 64", (x, Weight(w.array.view(np.uint8)), zero), {"pads": [1, 1, 1, 1]})


def makers() -> Iterator[Case]:
    yield Case("Range", "int64 1024", tuple(np.array(v, np.int64) for v in (0, 1024, 1)), quick=True)
    yield Case("Range", "float32 1000000", tuple(np.array(v, np.float32) for v in (0, 1e6, 1)), quick=True)
    for shape in (SMALL, LARGE):
        size = "x".join(map(str, shape))
        yield Case("ConstantOfShape", f"float32 {size}", (np.array(shape, np.int64),), quick=True)
        yield Case("EyeLike", f"float32 {size}", (normal(*shape),), quick=True)
        for op in ("RandomNormal", "RandomUniform"):
            yield Case(op, f"float32 {size}", (), {"shape": list(shape), "seed": 1.0}, quick=True)
            yield Case(f"{op}Like", f"float32 {size}", (normal(*shape),), {"seed": 1.0})
        yield Case("Bernoulli", f"float32 {size}", (between(0, 1, *shape),), {"seed": 1.0})
        yield Case("Dropout", f"float32 {size} inference", (normal(*shape),), {}, 1)
        train = (normal(*shape), number(0.5), number(True, np.bool_))
        yield Case("Dropout", f"float32 {size} training", train)
    yield Case("Multinomial", "float32 16x1000 32 samples", (normal(16, 1000),), {"sample_size": 32, "seed": 1.0})
    for op in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        yield Case(op, "400", (np.array(400, np.int64),))


def attention() -> Iterator[Case]:
    for steps in (1, 128):
        given = (*(normal(1, steps, 1024) * 0.3 for _ in range(3)), normal(1, 8, 128, 128))
        given += (-between(0, 1, 1, steps, 1024), between(0, 1, 1, steps, 8))
        heads = {"q_num_heads": 8, "kv_num_heads": 8, "update_rule": "gated_delta"}
        yield Case("LinearAttention", f"float32 {steps} steps of 8x128", given, heads, 2, MICROSOFT)
    for batch, heads, rows, size in ((1, 12, 128, 64), (1, 12, 512, 64)):
        shape = (batch, heads, rows, size)
        label = f"float32 {'x'.join(map(str, shape))}"
        yield Case("Attention", label, tuple(normal(*shape) for _ in range(3)), opset=23, quick=True)
        packed = tuple(normal(batch, rows, heads * size) for _ in range(3))
        yield Case("MultiHeadAttention", label, packed, {"num_heads": heads}, domain="com.microsoft")
    x = normal(1, 12, 128, 64)
    table = (Weight(normal(128, 32)), Weight(normal(128, 32)))
    places = np.arange(128, dtype=np.int64)[None]
    yield Case("RotaryEmbedding", "float32 1x12x128x64", (x, *table, places), opset=23, quick=True)
    yield Case("RotaryEmbedding", "float32 1x12x128x64", (x, places, *table), domain="com.microsoft")
    loss = (normal(128, 1000), integers(0, 1000, 128))
    yield Case("SoftmaxCrossEntropyLoss", "float32 128x1000", loss)
    yield Case("NegativeLogLikelihoodLoss", "float32 128x1000", loss)


def classical() -> Iterator[Case]:
    ml = "ai.onnx.ml"
    for rows in (1, 10000):
        x = normal(rows, 16)
        yield Case("Scaler", f"float32 {rows}x16", (x,), {"offset": [0.5] * 16, "scale": [2.0] * 16}, domain=ml, quick=True)
        yield Case("Normalizer", f"float32 {rows}x16", (x,), {"norm": "L2"}, domain=ml)
        yield Case("Binarizer", f"float32 {rows}x16", (x,), {"threshold": 0.0}, domain=ml)
        yield Case(
            "Imputer", f"float32 {rows}x16", (x,), {"imputed_value_floats": [0.5], "replaced_value_float": 0.0}, domain=ml
        )
        linear = {"coefficients": [0.1] * 48, "intercepts": [0.1] * 3}
        yield Case("LinearRegressor", f"float32 {rows}x16 to 3", (x,), {**linear, "targets": 3}, domain=ml, quick=True)
        labels = {**linear, "classlabels_ints": [0, 1, 2], "post_transform": "SOFTMAX"}
        yield Case("LinearClassifier", f"float32 {rows}x16 to 3", (x,), labels, 2, domain=ml, quick=True)
        keys = {"keys_int64s": list(range(50)), "values_int64s": list(range(50, 100)), "default_int64": -1}
        yield Case("LabelEncoder", f"int64 {rows}", (integers(0, 60, rows),), keys, domain=ml)
        yield Case(
            "OneHotEncoder", f"int64 {rows} to 50", (integers(0, 50, rows),), {"cats_int64s": list(range(50))}, domain=ml
        )
        yield Case("ArrayFeatureExtractor", f"float32 {rows}x16", (x, ints(1, 3, 5)), domain=ml)
        yield Case("FeatureVectorizer", f"float32 {rows}x16 two", (x, x), {"inputdimensions": [16, 16]}, domain=ml)
