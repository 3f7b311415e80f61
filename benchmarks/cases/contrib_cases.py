"""More one-node models for `operators.py`: tensors of a few elements and of narrow types, and com.microsoft's operators.

The first kind is what surrounds the arithmetic of exported models (shapes computed by Gather, Concat, Slice; one token, one
image): there a run costs what calling the session costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cases.operator_case import Case, Weight, between, booleans, integers, ints, normal, number

MS = "com.microsoft"


def tiny() -> Iterator[Case]:
    """What an exported model computes of shapes, indices and single rows."""
    shape = np.array([2, 3, 4, 5], np.int64)
    yield Case("Gather", "int64 4 one element", (shape, Weight(np.array(1))))
    yield Case("Slice", "int64 4 first two", (shape, ints(0), ints(2), ints(0)))
    yield Case("Concat", "int64 three of 1", tuple(np.array([i], np.int64) for i in (1, 2, 3)), {"axis": 0})
    yield Case("Unsqueeze", "int64 scalar", (np.array(3), ints(0)))
    yield Case("Squeeze", "int64 1", (np.array([3]), ints(0)))
    yield Case("Reshape", "int64 4 to 2x2", (shape, ints(2, 2)))
    yield Case("Transpose", "float32 2x3", (normal(2, 3),), {"perm": [1, 0]})
    yield Case("Split", "int64 4 in halves", (shape,), {"axis": 0, "num_outputs": 2}, 2)
    yield Case("Expand", "float32 1 to 2x3", (normal(1), ints(2, 3)))
    yield Case("Tile", "int64 4 twice", (shape, ints(2)))
    yield Case("Pad", "float32 4 by 1", (normal(4), ints(1, 1)))
    yield Case("ConstantOfShape", "int64 2x3", (np.array([2, 3], np.int64),))
    yield Case("Range", "int64 5", tuple(np.array(v, np.int64) for v in (0, 5, 1)))
    yield Case("Cast", "int64 scalar to float32", (np.array(3),), {"to": 1})
    for op in ("Add", "Mul", "Div"):
        yield Case(op, "int64 scalars", (np.array(7), np.array(2)))
        yield Case(op, "float32 10", (normal(10), between(1, 2, 10)))
    for op in ("Equal", "Less"):
        yield Case(op, "int64 scalars", (np.array(7), np.array(2)))
    yield Case("Where", "int64 4", (booleans(4), shape, shape))
    yield Case("And", "bool 4", (booleans(4), booleans(4)))
    yield Case("Not", "bool scalar", (np.array(True),))
    for op in ("Relu", "Sigmoid", "Exp", "Sqrt", "Neg", "Floor"):
        yield Case(op, "float32 10", (between(0.1, 2, 10),))
    yield Case("Clip", "float32 10", (normal(10), number(-1.0), number(1.0)))
    for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceProd"):
        yield Case(op, "float32 1x10", (normal(1, 10), ints(-1)))
    yield Case("ReduceProd", "int64 4", (shape, ints(0)))
    for op in ("ArgMax", "ArgMin"):
        yield Case(op, "float32 1x1000", (normal(1, 1000),), {"axis": -1})
    yield Case("CumSum", "int64 1x16", (integers(0, 2, 1, 16), number(1, np.int64)))
    yield Case("Softmax", "float32 1x10", (normal(1, 10),), {"axis": -1})
    yield Case("LayerNormalization", "float32 1x768", (normal(1, 768), Weight(normal(768)), Weight(normal(768))))
    yield Case("RMSNormalization", "float32 1x768", (normal(1, 768), Weight(normal(768))), opset=23)
    yield Case("MatMul", "float32 1x64x64 weights", (normal(1, 64), Weight(normal(64, 64))))
    yield Case("MatMul", "float32 8x1x64x128 one query", (normal(8, 1, 64), normal(8, 64, 128)))
    yield Case("Gemm", "float32 1x128x10 transB", (normal(1, 128), Weight(normal(10, 128)), Weight(normal(10))), {"transB": 1})
    yield Case("Conv", "float32 1x1x28x28 5x5 6", (normal(1, 1, 28, 28), Weight(normal(6, 1, 5, 5)), Weight(normal(6))))
    yield Case("GlobalAveragePool", "float32 1x1280x7x7", (normal(1, 1280, 7, 7),))
    yield Case("TopK", "float32 1x1000 5", (normal(1, 1000), ints(5)), {"axis": -1}, 2)
    yield Case("NonZero", "int64 10", (integers(0, 2, 10),))
    yield Case("Gather", "float32 1000x64 one row", (Weight(normal(1000, 64)), integers(0, 1000, 1, 1)))
    yield Case("ScatterND", "float32 10 one element", (normal(10), np.array([[3]]), normal(1)))
    yield Case("OneHot", "int64 4 to 10", (integers(0, 10, 4), number(10, np.int64), Weight(np.array([0, 1], np.float32))))
    yield Case("LSTM", "float32 1 step of 32", _lstm(1, 32), {"hidden_size": 32}, 3)


def _lstm(steps: int, size: int) -> tuple[Any, ...]:
    weights = [Weight(normal(1, 4 * size, size) * 0.1) for _ in range(2)]
    return (normal(steps, 1, size), *weights, Weight(normal(1, 8 * size)))


def narrow() -> Iterator[Case]:
    """Types of 8 and 16 bits, and int64, where they are typical."""
    image = integers(0, 255, 1, 3, 224, 224, dtype=np.uint8)
    yield Case("Transpose", "uint8 1x224x224x3 to NCHW", (image.reshape(1, 224, 224, 3),), {"perm": [0, 3, 1, 2]})
    yield Case("Transpose", "float16 1024x1024", (normal(1024, 1024, dtype=np.float16),), {"perm": [1, 0]})
    yield Case("Cast", "uint8 1x3x224x224 to float32", (image,), {"to": 1})
    yield Case("MaxPool", "uint8 1x64x56x56 3x3/2", (integers(0, 255, 1, 64, 56, 56, dtype=np.uint8),), _POOL)
    yield Case("Concat", "uint8 1024x1024 two, axis 1", (integers(0, 9, 1024, 1024, dtype=np.uint8),) * 2, {"axis": 1})
    yield Case("Concat", "int64 1024x16 two, axis 1", (integers(0, 9, 1024, 16), integers(0, 9, 1024, 16)), {"axis": 1})
    half = normal(128, 768, dtype=np.float16)
    weights = (Weight(normal(768, dtype=np.float16)), Weight(normal(768, dtype=np.float16)))
    yield Case("LayerNormalization", "float16 128x768", (half, *weights))
    yield Case("MatMul", "float16 128x768x768 weights", (half, Weight(normal(768, 768, dtype=np.float16))))
    yield Case("Softmax", "float16 12x128x128", (normal(12, 128, 128, dtype=np.float16),), {"axis": -1})
    yield Case("Gather", "float16 30522x768 128 rows", (Weight(normal(3000, 768, dtype=np.float16)), integers(0, 3000, 1, 128)))
    yield Case("ReduceSum", "int64 1024x1024 columns", (integers(0, 9, 1024, 1024), ints(0)))
    yield Case("ReduceMax", "int32 1024x1024 rows", (integers(0, 9, 1024, 1024, dtype=np.int32), ints(-1)))
    yield Case("Slice", "uint8 1x3x224x224 centre", (image, ints(16, 16), ints(208, 208), ints(2, 3)))
    yield Case("Where", "float16 1024x1024", (booleans(1024, 1024), *(normal(1024, 1024, dtype=np.float16) for _ in range(2))))
    scatter = (integers(0, 9, 256, 64), integers(0, 256, 64, 64), integers(0, 9, 64, 64))
    yield Case("ScatterElements", "int64 256x64 quarter", scatter, {"axis": 0})
    yield Case("Scatter", "float32 256x64 quarter", (normal(256, 64), integers(0, 256, 64, 64), normal(64, 64)), opset=10)
    scales = Weight(np.array([1, 1, 2, 2], np.float32))
    yield Case("Upsample", "float32 1x64x28x28 nearest", (normal(1, 64, 28, 28), scales), {"mode": "nearest"}, opset=9)
    yield Case("CastLike", "float32 1024x1024 to int32", (normal(1024, 1024), Weight(np.zeros(1, np.int32))))


_POOL = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}


def fused() -> Iterator[Case]:
    """com.microsoft: what onnxruntime's and its exporters' optimisers put into models."""
    x, w, bias = normal(128, 768), Weight(normal(768, 768)), Weight(normal(768))
    yield Case("FusedGemm", "float32 128x768x768 Relu", (x, w, bias), {"activation": "Relu"}, domain=MS)
    yield Case("TransposeMatMul", "float32 128x768x768", (x, w), {"transB": 1}, domain=MS)
    image, filters = normal(1, 64, 28, 28), Weight(normal(64, 64, 3, 3))
    pads = {"pads": [1, 1, 1, 1]}
    yield Case("FusedConv", "float32 1x64x28x28 3x3 Relu", (image, filters, Weight(normal(64))), {**pads, "activation": "Relu"},
               domain=MS)  # fmt: skip
    yield Case("CDist", "float32 256x64 by 256", (normal(256, 64), normal(256, 64)), {"metric": "sqeuclidean"}, domain=MS)
    ids, segments, mask = integers(0, 3000, 1, 128), integers(0, 2, 1, 128), np.ones((1, 128), np.int32)
    tables = [Weight(normal(n, 768)) for n in (3000, 512, 2)]
    given = (ids.astype(np.int32), segments.astype(np.int32), *tables, bias, bias, mask)
    yield Case("EmbedLayerNormalization", "float32 1x128x768", given, {"epsilon": 1e-12}, 2, domain=MS)
    qkv = (normal(1, 128, 768), Weight(normal(768, 2304) * 0.02), Weight(normal(2304)))
    yield Case("Attention", "float32 1x128x768 packed", qkv, {"num_heads": 12}, domain=MS)
    for rows, past in ((1, 255), (128, 0)):
        cache = tuple(normal(1, 4, past, 64) for _ in range(2))
        lengths = (np.array([past + rows - 1], np.int32), np.array(past + rows, np.int32))
        given = (normal(1, rows, 768), normal(1, rows, 256), normal(1, rows, 256), *cache, *lengths)
        heads = {"num_heads": 12, "kv_num_heads": 4}
        yield Case("GroupQueryAttention", f"float32 {rows} rows after {past}", given, heads, 3, domain=MS)
    yield Case("NGramRepeatBlock", "8x100 of 1000", (integers(0, 50, 8, 100), normal(8, 1000)), {"ngram_size": 3}, domain=MS)
    yield Case("MurmurHash3", "int32 1000", (integers(0, 9999, 1000, dtype=np.int32),), {"seed": 0, "positive": 1}, domain=MS)
    boxes = np.concatenate([between(0, 0.4, 16, 2), between(0.5, 1, 16, 2)], 1)
    crops = (normal(1, 16, 64, 64), boxes, np.zeros(16, np.int32), Weight(np.array([14, 14], np.int32)))
    yield Case("CropAndResize", "float32 16 boxes of 14x14", crops, {"mode": "bilinear"}, domain=MS)


def weights_of_few_bits() -> Iterator[Case]:
    for rows in (1, 128):
        packed = Weight(integers(0, 255, 768, 24, 16, dtype=np.uint8))
        given = (normal(rows, 768), packed, Weight(between(0.01, 0.02, 768 * 24)))
        sizes: dict[str, Any] = {"K": 768, "N": 768, "bits": 4, "block_size": 32}
        yield Case("MatMulNBits", f"float32 {rows}x768x768 4 bits", given, sizes, domain=MS)
        x, w = normal(rows, 768), Weight(integers(-127, 127, 768, 768, dtype=np.int8))
        yield Case("DynamicQuantizeMatMul", f"float32 {rows}x768x768", (x, w, number(0.02)), domain=MS)
        bytes_ = integers(0, 255, rows, 768, dtype=np.uint8)
        scales = (number(0.02), number(0.02), number(128, np.uint8), number(0, np.int8))
        yield Case("MatMulIntegerToFloat", f"uint8 {rows}x768x768", (bytes_, w, *scales), domain=MS)
    given = (integers(0, 255, 128, 768, dtype=np.uint8), number(0.05), number(128, np.uint8),
             Weight(integers(-127, 127, 768, 768, dtype=np.int8)), number(0.02), number(0, np.int8),
             Weight(integers(-99, 99, 768, dtype=np.int32)), number(0.1), number(128, np.uint8))  # fmt: skip
    yield Case("QGemm", "uint8 128x768x768", given, domain=MS)
    scale, zero = number(0.05), number(128, np.uint8)
    image = integers(0, 255, 1, 64, 56, 56, dtype=np.uint8)
    yield Case("QLinearGlobalAveragePool", "uint8 1x64x56x56", (image, scale, zero, scale, zero), domain=MS)
    yield Case("QLinearAveragePool", "uint8 1x64x56x56 3x3/2", (image, scale, zero, scale, zero), _POOL, domain=MS)
    yield Case("QLinearConcat", "uint8 1x64x56x56 two", (scale, zero, image, scale, zero, image, scale, zero), {"axis": 1},
               domain=MS)  # fmt: skip
    rows_of = integers(0, 255, 12, 128, 128, dtype=np.uint8)
    yield Case("QLinearSoftmax", "uint8 12x128x128", (rows_of, scale, zero, number(1 / 256), number(0, np.uint8)),
               {"axis": -1, "opset": 13}, domain=MS)  # fmt: skip
    wide = integers(0, 255, 1024, 1024, dtype=np.uint8)
    yield Case("QLinearWhere", "uint8 1024x1024", (booleans(1024, 1024), wide, scale, zero, wide, scale, zero, scale, zero),
               domain=MS)  # fmt: skip
    table = Weight(integers(0, 255, 3000, 384, dtype=np.uint8))
    gathered = (table, integers(0, 3000, 1, 128), Weight(between(0.01, 0.02, 3000, 12)))
    yield Case("GatherBlockQuantized", "uint8 3000x768 4 bits", gathered, {"bits": 4, "block_size": 64}, domain=MS)
