"""Loop, Scan and SequenceMap that have nothing to go through: their results have the types that a first trip would give.

ONNX leaves the sizes of no rows open. Where a body says them as numbers, onnxruntime gives the same; it has 0 where the body
leaves one open, and refuses a Scan of length 0. Here they are what the operands make of them, 0 where only data tell.
"""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import intarsia as ort
from intarsia.errors import NodeFailed

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
HEAD = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]>\n'
SCAN_8 = '<ir_version: 4, opset_import: ["" : 8]>\n'
INPUTS = "float[M] h, float[N, K] x, int64 m, bool c, int64[2] t"
PLAIN, ADD, ROW = "(i, g, a) => (g2, a2, d) { g2 = Identity(g)", "a2 = Add(a, a)", "d = Identity(a2)"
BODIES = {  # of a Loop over h, and the shape of no rows
    "as its operand": (f"{PLAIN} {ADD} {ROW} }}", (0, 2)),
    "declared by a name": (
        f"(int64 i, bool g, float[K] a) => (bool g2, float[K] a2, float[K] d) {{ g2 = Identity(g) {ADD} {ROW} }}", (0, 2),
    ),
    "declared": (
        f"(int64 i, bool g, float[2] a) => (bool g2, float[2] a2, float[2] d) {{ g2 = Identity(g) {ADD} {ROW} }}", (0, 2),
    ),
    "of a state that grows": (f"{PLAIN} a2 = Concat <axis=0> (a, a) d = Identity(a2) }}", (0, 4)),
    "the trip's number": (f"{PLAIN} {ADD} d = Cast <to=1> (i) }}", (0,)),
    "of a size that data tell": (
        f"{PLAIN} {ADD} n = NonZero(a) d = Cast <to=1> (n) }}", (0, 1, 0),
    ),
    "declared, of a size that data tell": (
        f"(i, g, a) => (g2, a2, float[1, 5] d) {{ g2 = Identity(g) {ADD} n = NonZero(a) d = Cast <to=1> (n) }}", (0, 1, 5),
    ),
    "of a size that is captured": (f"{PLAIN} {ADD} d = Reshape(a, t) }}", (0, 2, 1)),
    "with a constant around": (f"{PLAIN} {ADD} d = MatMul(w, a) }}", (0, 3)),
    "through texts": (f"{PLAIN} {ADD} s = Cast <to=8> (a2) d = Cast <to=1> (s) }}", (0, 2)),
}  # fmt: skip
FEEDS = {
    "h": np.ones(2, np.float32), "x": np.ones((0, 3), np.float32), "m": np.array(0), "c": np.array(True), "t": np.array([2, 1]),
}  # fmt: skip


def _run(text: str, provider: str, **feeds: object) -> list[np.ndarray]:
    session = ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), providers=[provider])
    names = {v.name for v in session.get_inputs()}
    return session.run(None, {n: x for n, x in {**FEEDS, **feeds}.items() if n in names})


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(("m", "c"), [(0, True), (-3, True), (5, False)])
def test_loop_without_trips(body: str, m: int, c: bool, provider: str) -> None:
    lines, shape = BODIES[body]
    weights = "<float[3, 2] w = {1, 2, 3, 4, 5, 6}>"
    text = f"{HEAD} g ({INPUTS}) => (float f, float y) {weights} {{ f, y = Loop <body = b {lines}> (m, c, h) }}"
    final, rows = _run(text, provider, m=np.array(m), c=np.array(c))
    np.testing.assert_array_equal(final, FEEDS["h"])
    assert (rows.dtype, rows.shape) == (np.float32, shape)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("m", "shape"), [(0, (0, 0, 2)), (4, (0, 4, 2))])
def test_nested_loops(m: int, shape: tuple[int, ...], provider: str) -> None:
    inner = "(j, k, p) => (k2, p2, q) { k2 = Identity(k) p2 = Add(p, p) q = Identity(p2) }"
    body = f"(i, g, a) => (g2, a2, d) {{ g2 = Identity(g) a2, d = Loop <body = inner {inner}> (m, g, a) }}"
    text = f"{HEAD} g ({INPUTS}) => (float f, float y) {{ f, y = Loop <body = b {body}> (m, c, h) }}"
    _, rows = _run(text, provider, m=np.array(m), c=np.array(False))
    assert rows.shape == shape


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("inside", ["graph", "function", "branch"])
@pytest.mark.parametrize(("axis", "shape"), [(0, (0, 5)), (1, (5, 0)), (-1, (5, 0))])
def test_scan_of_length_0(axis: int, shape: tuple[int, ...], inside: str, provider: str) -> None:
    body = "(a, b) => (a2, d) { a2 = Add(a, a) d = Concat <axis=0> (a, b) }"
    scan = f"f, y = Scan <num_scan_inputs=1, scan_output_axes=[{axis}], body = b {body}> (h, x)"
    text = f"{HEAD} g ({INPUTS}) => (float f, float y) {{ {scan} }}"
    if inside == "function":
        text = f"{HEAD} g ({INPUTS}) => (float f, float y) {{ f, y = local.F(h, x) }}\n"
        text += f'<domain: "local", opset_import: ["" : 21]> F (h, x) => (f, y) {{ {scan} }}'
    elif inside == "branch":
        other = "f2 = Identity(h) y2 = Identity(x)"
        then = scan.replace("f, y =", "f1, y1 =")
        branches = f"then_branch = t () => (f1, y1) {{ {then} }}, else_branch = e () => (f2, y2) {{ {other} }}"
        text = f"{HEAD} g ({INPUTS}) => (float f, float y) {{ f, y = If <{branches}> (c) }}"
    final, rows = _run(text, provider)
    np.testing.assert_array_equal(final, FEEDS["h"])
    assert (rows.dtype, rows.shape) == (np.float32, shape)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("element", ["bool", "uint8", "float16", "int64", "double", "string"])
def test_element_types(element: str, provider: str) -> None:
    body = "(i, g, a) => (g2, a2, d) { g2 = Identity(g) a2 = Identity(a) d = Concat <axis=0> (a, h) }"
    text = f"{HEAD} g ({element}[M] h, int64 m) => ({element} f, {element} y) {{ f, y = Loop <body = b {body}> (m, , h) }}"
    h = np.array(["a", "b"], object) if element == "string" else np.ones(2, element)
    _, rows = _run(text, provider, h=h)
    assert (rows.dtype, rows.shape) == (h.dtype, (0, 4))


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("batch", "steps"), [(0, 0), (0, 4), (2, 0)])
def test_first_scan(batch: int, steps: int, provider: str) -> None:
    body = "(a, b) => (a2, d) { a2 = Identity(a) d = Concat <axis=0> (a, b) }"
    scan = f"f, y = Scan <num_scan_inputs=1, body = b {body}> (, h, x)"
    text = f"{SCAN_8} g (float[B, M] h, float[B, N, K] x) => (float f, float y) {{ {scan} }}"
    final, rows = _run(text, provider, h=np.ones((batch, 2), np.float32), x=np.ones((batch, steps, 3), np.float32))
    assert (final.shape, rows.shape) == ((batch, 2), (batch, steps, 5))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_sequence_map_of_nothing(provider: str) -> None:
    text = f"{HEAD} g (seq(float[K]) s) => (seq(float) y) {{ y = SequenceMap <body = b (a) => (d) {{ d = Add(a, a) }}> (s) }}"
    assert _run(text, provider, s=[]) == [[]]


def test_a_body_that_does_not_fit_its_operands() -> None:
    """The CPU compares sizes before it begins; the reference runs no body, and leaves open what it would give."""
    body = "(a, b) => (a2, d) { a2 = Concat <axis=0> (a, a) d = MatMul(a, b) }"
    scan = f"f, y = Scan <num_scan_inputs=1, body = b {body}> (h, x)"
    text = f"{HEAD} g (float[M] h, float[N, K] x) => (float f, float y) {{ {scan} }}"
    with pytest.raises(NodeFailed, match="the inner dimensions of a matrix product: got 2, expected 3"):
        _run(text, "CPUExecutionProvider")
    final, _ = _run(text, "ReferenceExecutionProvider")
    np.testing.assert_array_equal(final, FEEDS["h"])
