"""One-node models for `operators.py` from language models and pipelines: attention with caches and masks, mixtures of experts,
quantised operators, sequences and strings; and the most usual operators on a few elements, and on more than caches hold."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cases.operator_case import Case, Weight, between, booleans, integers, ints, normal, number

MS = "com.microsoft"


def few() -> Iterator[Case]:
    """What a run costs: one element and sixteen."""
    for n in (1, 16):
        for op in ("Add", "Sub", "Mul", "Div", "Max", "Min"):
            yield Case(op, f"float32 of {n}", (normal(n), between(1, 2, n)))
        for op in ("Add", "Sub", "Mul"):
            yield Case(op, f"int64 of {n}", (integers(0, 9, n), integers(1, 9, n)))
        for op in "Abs Relu Sigmoid Tanh Exp Log Sqrt Erf Gelu Identity Reciprocal".split():
            yield Case(op, f"float32 of {n}", (between(0.1, 2, n),))
        for op in ("Equal", "Greater", "Less"):
            yield Case(op, f"float32 of {n}", (normal(n), normal(n)))
        yield Case("Cast", f"float32 to int64 of {n}", (normal(n),), {"to": 7})
        yield Case("Cast", f"int64 to float32 of {n}", (integers(0, 9, n),), {"to": 1})
        yield Case("Where", f"float32 of {n}", (booleans(n), normal(n), normal(n)))
        yield Case("Pow", f"float32 of {n} squared", (normal(n), number(2.0)))
        yield Case("Clip", f"float32 of {n}", (normal(n), number(-1.0), number(1.0)))
        yield Case("Concat", f"float32 of {n} twice", (normal(n), normal(n)), {"axis": 0})
        yield Case("Gather", f"float32 of {n} one", (normal(n), np.array([0])))
        yield Case("Slice", f"float32 of {n} all but none", (normal(n), ints(0), ints(n), ints(0)))
        yield Case("Reshape", f"float32 of {n}", (normal(n), ints(1, n)))
        yield Case("Unsqueeze", f"float32 of {n}", (normal(n), ints(0)))
        yield Case("Transpose", f"float32 of {n}x2", (normal(n, 2),), {"perm": [1, 0]})
        yield Case("Expand", f"float32 of {n} to 2", (normal(n), ints(2, n)))
        for op in ("ReduceSum", "ReduceMean", "ReduceMax"):
            yield Case(op, f"float32 of 1x{n}", (normal(1, n), ints(-1)))
        yield Case("Softmax", f"float32 of 1x{n}", (normal(1, n),), {"axis": -1})
        yield Case("MatMul", f"float32 of 1x{n}x{n}", (normal(1, n), Weight(normal(n, n))))
        yield Case("Gemm", f"float32 of 1x{n}x{n}", (normal(1, n), Weight(normal(n, n)), Weight(normal(n))))
        yield Case("ArgMax", f"float32 of 1x{n}", (normal(1, n),), {"axis": -1})
        yield Case("Shape", f"float32 of {n}", (normal(n),))


def large() -> Iterator[Case]:
    """32 MB and more: what memory gives."""
    shape = (4096, 2048)
    for op in ("Relu", "Sigmoid", "Exp", "Neg", "Sqrt"):
        yield Case(op, "float32 4096x2048", (between(0.1, 2, *shape),))
    for op in ("Add", "Mul", "Sub", "Max"):
        yield Case(op, "float32 4096x2048", (normal(*shape), normal(*shape)))
    yield Case("Add", "float32 4096x2048 by row", (normal(*shape), Weight(normal(shape[1]))))
    yield Case("Cast", "float32 to float16 4096x2048", (normal(*shape),), {"to": 10})
    yield Case("Concat", "float32 4096x1024 two, axis 1", (normal(4096, 1024), normal(4096, 1024)), {"axis": 1})
    yield Case("Transpose", "float32 4096x2048", (normal(*shape),), {"perm": [1, 0]})
    yield Case("Slice", "float32 4096x2048 half the columns", (normal(*shape), ints(0), ints(1024), ints(1)))
    for op in ("ReduceSum", "ReduceMax"):
        yield Case(op, "float32 4096x2048 rows", (normal(*shape), ints(-1)))
        yield Case(op, "float32 4096x2048 columns", (normal(*shape), ints(0)))
    yield Case("Softmax", "float32 4096x2048", (normal(*shape),), {"axis": -1})
    weights = (Weight(normal(2048)), Weight(normal(2048)))
    yield Case("LayerNormalization", "float32 4096x2048", (normal(*shape), *weights), {"axis": -1})
    yield Case("Gather", "float32 4096x2048 2048 rows", (normal(*shape), integers(0, 4096, 2048)))
    yield Case("QuantizeLinear", "uint8 4096x2048", (normal(*shape), number(0.05), number(128, np.uint8)))


def decoding() -> Iterator[Case]:
    """Attention of one or a few new tokens over caches, with masks, turned by their places."""
    for heads, groups, size, past in ((12, 12, 64, 127), (32, 8, 128, 1023)):
        rows = f"1 of {heads}x{size} after {past}"
        q, new, old = normal(1, heads, 1, size), normal(1, groups, 1, size), normal(1, groups, past, size)
        if heads == groups:  # onnxruntime's takes groups only from opset 24 on
            yield Case("Attention", f"float32 {rows}", (q, new, new, None, old, old), {}, 3, opset=23)
            mask = np.zeros((1, 1, 1, past + 1), np.float32)
            yield Case("Attention", f"float32 {rows}, mask", (q, new, new, mask, old, old), {}, 3, opset=23)
            flat = normal(1, 1, heads * size)
            given = (flat, flat, flat, None, None, None, old, old)
            yield Case("MultiHeadAttention", f"float32 {rows}", given, {"num_heads": heads}, 3, MS)
            given = (flat, flat, flat, None, None, normal(1, heads, 1, past + 1), old, old)
            yield Case("MultiHeadAttention", f"float32 {rows}, bias", given, {"num_heads": heads}, 3, MS)
        places = (np.array([past], np.int32), np.array(past + 1, np.int32))
        cache = normal(1, groups, past + 1, size)
        tables = tuple(Weight(normal(past + 16, size // 2)) for _ in range(2))
        given = (normal(1, 1, heads * size), normal(1, 1, groups * size), normal(1, 1, groups * size), cache, cache, *places)
        how = {"num_heads": heads, "kv_num_heads": groups, "do_rotary": 1}
        yield Case("GroupQueryAttention", f"float32 {rows}, turned", (*given, *tables), how, 3, MS)
        packed = (normal(1, 1, (heads + 2 * groups) * size), None, None, *given[3:], *tables)
        yield Case("GroupQueryAttention", f"float32 {rows}, packed", packed, {**how, "local_window_size": 64}, 3, MS)
    x = normal(2, 64, 768)
    mask = np.array([64, 40], np.int32)
    packed = (x, Weight(normal(768, 2304) * 0.02), Weight(normal(2304)), mask)
    yield Case("Attention", "float32 2x64x768 packed, lengths", packed, {"num_heads": 12}, domain=MS)
    packed = (x[:1], *packed[1:3], None, None, normal(1, 1, 64, 64))
    yield Case("Attention", "float32 1x64x768 packed, bias", packed, {"num_heads": 12}, domain=MS)
    tall = tuple(normal(1, 64, 768) for _ in range(3))
    yield Case("MultiHeadAttention", "float32 1x64x768 lengths", (*tall, None, np.array([40], np.int32)), {"num_heads": 12},
               domain=MS)  # fmt: skip
    yield Case("Attention", "float32 1x12x128x64 causal", tuple(normal(1, 12, 128, 64) for _ in range(3)), {"is_causal": 1},
               opset=23)  # fmt: skip
    one = (normal(1, 1, 32 * 128), np.array([[5]]), Weight(normal(64, 64)), Weight(normal(64, 64)))
    yield Case("RotaryEmbedding", "float32 1 of 32x128", one, {"num_heads": 32}, domain=MS)
    given = (integers(0, 255, 1, 128, 768, dtype=np.uint8), Weight(integers(-127, 127, 768, 2304, dtype=np.int8)),
             Weight(normal(2304)), number(0.02), number(0.001), np.array([128], np.int32), number(128, np.uint8),
             number(0, np.int8))  # fmt: skip
    yield Case("QAttention", "uint8 1x128x768", given, {"num_heads": 12}, domain=MS)


def experts() -> Iterator[Case]:
    for tokens in (1, 64):
        x, logits = normal(tokens, 256), normal(tokens, 8)
        how = {"k": 2, "activation_type": "relu", "normalize_routing_weights": 1}
        given = (x, logits, Weight(normal(8, 512, 256) * 0.1), Weight(normal(8, 512)), Weight(normal(8, 256, 512) * 0.1),
                 Weight(normal(8, 256)))  # fmt: skip
        yield Case("MoE", f"float32 {tokens} of 256, 2 of 8 experts", given, how, domain=MS)
        given = (x, logits, Weight(integers(0, 255, 8, 512, 128, dtype=np.uint8)), Weight(between(0.01, 0.02, 8, 512)),
                 Weight(normal(8, 512)), Weight(integers(0, 255, 8, 256, 256, dtype=np.uint8)),
                 Weight(between(0.01, 0.02, 8, 256)), Weight(normal(8, 256)))  # fmt: skip
        yield Case("QMoE", f"float32 {tokens} of 256, 2 of 8 experts", given, {**how, "expert_weight_bits": 4}, domain=MS)


def more_quantized() -> Iterator[Case]:
    scale, zero, near = number(0.05), number(128, np.uint8), number(0.04)
    image, row = integers(0, 255, 1, 64, 56, 56, dtype=np.uint8), integers(0, 255, 64, 1, 1, dtype=np.uint8)
    for op in ("QLinearAdd", "QLinearMul"):
        yield Case(op, "uint8 1x64x56x56", (image, scale, zero, image, near, zero, scale, zero), domain=MS)
        yield Case(op, "uint8 1x64x56x56 by channel", (image, scale, zero, Weight(row), near, zero, scale, zero), domain=MS)
        yield Case(op, "uint8 1x64x56x56 by scalar", (image, scale, zero, number(9, np.uint8), near, zero, scale, zero),
                   domain=MS)  # fmt: skip
    wide = normal(128, 3072)
    yield Case("QuantizeLinear", "int8 128x3072 by column", (wide, Weight(between(0.01, 0.1, 3072)),
               Weight(np.zeros(3072, np.int8))), {"axis": 1})  # fmt: skip
    yield Case("QuantizeLinear", "uint16 128x3072", (wide, number(0.001), number(32768, np.uint16)), domain=MS)
    yield Case("DequantizeLinear", "int32 128x3072", (integers(-999, 999, 128, 3072, dtype=np.int32), number(0.001)))
    yield Case("DynamicQuantizeLinear", "uint8 128x768", (normal(128, 768),), {}, 3)
    given = (scale, zero, image, scale, zero, image, near, zero)
    yield Case("QLinearConcat", "uint8 1x64x56x56 two scales", given, {"axis": 1}, domain=MS)


def pipelines() -> Iterator[Case]:
    """Sequences and strings."""
    parts = [normal(4, 64) for _ in range(8)]
    yield Case("SequenceConstruct", "float32 4x64 three", tuple(parts[:3]))
    yield Case("SequenceAt", "float32 4x64 of 8", (parts, np.array(3)))
    yield Case("SequenceLength", "float32 4x64 of 8", (parts,))
    yield Case("SequenceInsert", "float32 4x64 into 8", (parts, normal(4, 64)))
    yield Case("SequenceErase", "float32 4x64 of 8", (parts, np.array(3)))
    yield Case("SequenceEmpty", "float32", (), {"dtype": 1})
    yield Case("ConcatFromSequence", "float32 4x64 of 8", (parts,), {"axis": 0})
    yield Case("ConcatFromSequence", "float32 4x64 of 8, stacked", (parts,), {"axis": 0, "new_axis": 1})
    yield Case("SplitToSequence", "float32 32x64 in 8", (normal(32, 64), number(4, np.int64)), {"axis": 0})
    for n in (1, 1000):
        words = np.array([f"word {i % 37} of many" for i in range(n)], object)
        other = np.array([f"-{i % 5}" for i in range(n)], object)
        yield Case("StringConcat", f"string {n}", (words, other), opset=20)
        yield Case("StringSplit", f"string {n}", (words,), {"delimiter": " "}, 2, opset=20)
        yield Case("RegexFullMatch", f"string {n}", (words,), {"pattern": r"word \d+ .*"}, opset=20)
        yield Case("StringNormalizer", f"string {n}", (words,), {"case_change_action": "UPPER", "locale": "C"})
        yield Case("Equal", f"string {n}", (words, words), opset=19)
        yield Case("Identity", f"string {n}", (words,))
        keys = {"keys_strings": [f"word {i} of many" for i in range(30)], "values_int64s": list(range(30)), "default_int64": -1}
        yield Case("LabelEncoder", f"string {n}", (words,), keys, domain="ai.onnx.ml")
        cast = np.array([str(i / 7) for i in range(n)], object)
        yield Case("Cast", f"string to float32 {n}", (cast,), {"to": 1})
        yield Case("Cast", f"int64 to string {n}", (integers(0, 9999, n),), {"to": 8})
