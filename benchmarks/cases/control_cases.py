"""Cases of `operators.py` with bodies: If, Loop, Scan and SequenceMap, with what bodies typically do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import onnx.parser

from cases.operator_case import Case, Weight, normal

TRUE = Weight(np.array(True))


def body(text: str) -> onnx.GraphProto:
    """A graph by ONNX's text format; operands of the node around it are x0, x1, ..."""
    return onnx.parser.parse_graph(text)


def control_flow() -> Iterator[Case]:
    """If of one size and of different sizes; loops of one size, that grow, and that a condition ends."""
    yield from branches()
    yield from loops()
    x = normal(64, 1, 256)
    cell = body("""cell (float[1, 256] h, float[1, 256] x) => (float[1, 256] h2, float[1, 256] y)
        { s = Add(h, x)  h2 = Tanh(s)  y = Identity(h2) }""")
    yield Case(
        "Scan", "64 steps, elementwise", (normal(1, 256), x), {"body": cell, "num_scan_inputs": 1}, outputs=2, quick=True
    )
    back = {"scan_input_directions": [1], "scan_output_directions": [1]}
    yield Case("Scan", "64 steps backwards", (normal(1, 256), x), {"body": cell, "num_scan_inputs": 1, **back}, outputs=2)
    columns = body("cell (float[64] h, float[64] x) => (float[64] h2, float[64] y) { h2 = Add(h, x)  y = Exp(h2) }")
    axes = {"scan_input_axes": [1], "scan_output_axes": [1]}
    yield Case("Scan", "256 columns", (normal(64), normal(64, 256)), {"body": columns, "num_scan_inputs": 1, **axes}, outputs=2)
    each = body("each (float[64, 64] x) => (float[64, 64] y) { a = Exp(x)  y = Neg(a) }")
    yield Case("SequenceMap", "32 of 64x64", ([normal(64, 64) for _ in range(32)],), {"body": each}, quick=True)
    sizes = [normal(n, 16) for n in range(1, 33)]
    each = body("""each (float[n, 16] x) => (float[16] y)
        { a = Tanh(x)  axes = Constant<value = int64[1] {0}>()  y = ReduceSum<keepdims = 0>(a, axes) }""")
    yield Case("SequenceMap", "32 of different lengths", (sizes,), {"body": each})


def branches() -> Iterator[Case]:
    for size in (64, 1 << 16):
        x = normal(size)
        then = body(f"t () => (float[{size}] y) {{ y = Neg(x1) }}")
        otherwise = body(f"e () => (float[{size}] y) {{ y = Exp(x1) }}")
        graphs = {"then_branch": then, "else_branch": otherwise}
        yield Case("If", f"{size} elements", (np.array(True), x), graphs, quick=True, taken=1)
    half = body("""e () => (float[32] y) { a = Constant<value = int64[1] {0}>()  b = Constant<value = int64[1] {32}>()
        y = Slice(x1, a, b) }""")
    whole = body("t () => (float[64] y) { y = Neg(x1) }")
    yield Case("If", "different sizes", (np.array(False), normal(64)), {"then_branch": whole, "else_branch": half}, taken=1)


def loops() -> Iterator[Case]:
    count = np.array(128)
    step = body("b (int64 i, bool c, float[256] a) => (bool d, float[256] b) { d = Identity(c)  e = Tanh(a)  b = Add(e, a) }")
    yield Case("Loop", "128 trips, elementwise", (count, TRUE, normal(256)), {"body": step}, quick=True)
    product = body("""b (int64 i, bool c, float[8, 64] a) => (bool d, float[8, 64] b, float[8, 64] row)
        { d = Identity(c)  p = MatMul(a, x3)  b = Softmax(p)  row = Relu(b) }""")
    operands = (count, TRUE, normal(8, 64), normal(64, 64))
    yield Case("Loop", "128 trips, MatMul, rows", operands, {"body": product}, outputs=2, taken=3)
    until = body("""b (int64 i, bool c, float[256] a) => (bool d, float[256] b, float[256] row)
        { b = Abs(a)  row = Neg(b)  limit = Constant<value = int64 {100}>()  d = Less(i, limit) }""")
    yield Case("Loop", "until a condition, rows", (None, TRUE, normal(256)), {"body": until}, outputs=2)
    cache = body("""b (int64 i, bool c, float[n, 64] k, float[1, 64] q) => (bool d, float[m, 64] k2, float[1, 64] q2)
        { d = Identity(c)  k2 = Concat<axis = 0>(k, q)  t = Transpose<perm = [1, 0]>(k2)  s = MatMul(q, t)  p = Softmax(s)
          o = MatMul(p, k2)  q2 = Tanh(o) }""")
    operands = (count, TRUE, normal(16, 64), normal(1, 64))
    yield Case("Loop", "128 trips, growing cache", operands, {"body": cache}, outputs=2, quick=True)
    inside = body("""b (int64 i, bool c, float[n, 64] k, float[1, 64] q) => (bool d, float[m, 64] k2, float[1, 64] q2)
        { d = Identity(c)  eight = Constant<value = int64 {8}>()
          k2, q2 = Loop(eight, c, k, q) <body = inner (int64 j, bool e, float[o, 64] a, float[1, 64] t)
              => (bool f, float[p, 64] a2, float[1, 64] t2)
          { f = Identity(e)  a2 = Concat<axis = 0>(a, t)  u = Transpose<perm = [1, 0]>(a2)  s = MatMul(t, u)  p = Softmax(s)
            o2 = MatMul(p, a2)  t2 = Tanh(o2) }> }""")
    operands = (np.array(32), TRUE, normal(16, 64), normal(1, 64))
    yield Case("Loop", "32 trips of 8 trips, growing cache", operands, {"body": inside}, outputs=2)
    doubled = body("b (int64 i, bool c, float[n] a) => (bool d, float[m] b) { d = Identity(c)  b = Concat<axis = 0>(a, a) }")
    yield Case("Loop", "12 trips, doubling", (np.array(12), TRUE, normal(16)), {"body": doubled})
    nested = body("""b (int64 i, bool c, float[64] a) => (bool d, float[64] b) { d = Identity(c)
        n = Constant<value = int64 {8}>()
        b = Loop(n, c, a) <body = inner (int64 j, bool e, float[64] g) => (bool f, float[64] h)
            { f = Identity(e)  h = Tanh(g) }> }""")
    yield Case("Loop", "32 trips of 8 trips", (np.array(32), TRUE, normal(64)), {"body": nested})
