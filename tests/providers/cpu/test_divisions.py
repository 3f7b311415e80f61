"""Integer division by zero: an error that names the node wherever the division ends up, and only where it is computed."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_models import CPU, LEVELS, REFERENCE, Feeds, model_of, session_of

from intarsia.codegen.llvm.target import Target
from intarsia.errors import InvalidArgument
from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.load import load
from intarsia.ops import registry
from intarsia.primitives import lang as k
from intarsia.primitives.divisors import divides, with_known_divisors
from intarsia.providers.cpu.lowering.lower import lower_graph

INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
ZERO = "an element of the integer divisor is 0"
RUNS = [(CPU, LEVELS[0]), (CPU, LEVELS[1]), (REFERENCE, LEVELS[1])]
PAIR = "int64[n] a, int64[m] b"


def ints(*values: int, dtype: type = np.int64) -> np.ndarray:
    return np.array(values, dtype)


def fails(text: str, feeds: Feeds, node: str, constants: Feeds | None = None) -> None:
    """An error of both providers, optimised or not, that names the node."""
    for provider, level in RUNS:
        session = session_of(text, constants, provider, level)
        with pytest.raises(InvalidArgument, match=f"node .*{node}.*: .*{ZERO}"):
            session.run(None, dict(feeds))
        with pytest.raises(InvalidArgument, match=ZERO):  # a run that failed leaves nothing behind
            session.run(None, dict(feeds))


def gives(text: str, feeds: Feeds, *expected: object, constants: Feeds | None = None) -> None:
    for provider, level in RUNS:
        found = session_of(text, constants, provider, level).run(None, dict(feeds))
        assert [f.tolist() for f in found] == list(expected), (provider, level)


def _long_operands(rng: np.random.Generator, count: int) -> np.ndarray:
    """int64 of all magnitudes, many of them next to the edges of float64's and int64's digits."""
    edges = np.array([0, 1, -1, 2**53, 2**62, 2**63 - 1024, 2**63 - 513, 2**63 - 1, -(2**63), -(2**53), 3], np.int64)
    spread = (rng.integers(0, 2**63 - 1, count) >> rng.integers(0, 64, count)) * rng.choice([-1, 1], count)
    with np.errstate(over="ignore"):
        near = rng.choice(edges, count) + rng.integers(-3, 4, count)
    return np.where(rng.integers(0, 3, count) == 0, near, spread)


@pytest.mark.parametrize("node", ["Div (a, b)", "Mod (a, b)", "Mod <fmod = 1> (a, b)"])
def test_long_integers_of_all_magnitudes(node: str) -> None:
    rng = np.random.default_rng(3)
    a, b = _long_operands(rng, 40_000), _long_operands(rng, 40_000)
    b[b == 0] = 7
    with np.errstate(over="ignore"):
        a = np.where(rng.integers(0, 3, len(a)) == 0, b * rng.integers(-50, 50, len(a)) + rng.integers(-1, 2, len(a)), a)
    exact = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        quotient = abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1)
        exact.append(quotient if node.startswith("Div") else x % y if "fmod" not in node else x - quotient * y)
    expected = np.array([(v + 2**63) % 2**64 - 2**63 for v in exact], np.int64)
    (found,) = session_of(f"g ({PAIR}) => (int64[n] y) {{ y = {node} }}").run(None, {"a": a, "b": b})
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("node", ["Div (a, b)", "Mod (a, b)", "Mod <fmod = 1> (a, b)"])
def test_every_type(node: str, dtype: type) -> None:
    kind = DType.of(np.dtype(dtype)).onnx_name.lower()
    text = f"g ({kind}[n] a, {kind}[n] b) => ({kind}[n] y) {{ y = {node} }}"
    info = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(info.min, info.max, 1003, dtype, endpoint=True) for _ in range(2))
    a[::7], a[5], b[::5], b[3::5] = info.min, info.max, 3, info.max if info.min == 0 else -1
    b[b == 0] = 1
    exact = [(abs(int(x)) // abs(int(y))) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(a, b, strict=True)]
    with np.errstate(all="ignore"):
        wanted = np.mod(a, b) if node.startswith("Mod (") else np.fmod(a, b)
    if node.startswith("Div"):
        wanted = np.array([q & ((1 << info.bits) - 1) for q in exact], f"u{info.bits // 8}").view(dtype)  # MIN / -1 is MIN
    for provider, level in RUNS:
        session = session_of(text, provider=provider, level=level)
        np.testing.assert_array_equal(session.run(None, {"a": a, "b": b})[0], wanted)
        for at in (0, 500, 1002):
            zero = b.copy()
            zero[at] = 0
            with pytest.raises(InvalidArgument, match=ZERO):
                session.run(None, {"a": a, "b": zero})


def test_a_chain_names_the_division() -> None:
    text = f"g ({PAIR}) => (int64[n] y) {{ s = Add(a, b)  d = Div(s, b)  m = Mul(d, s)  y = Neg(m) }}"
    fails(text, {"a": ints(5, 6, 7), "b": ints(2, 0, 2)}, "Div")
    fails(
        f"g ({PAIR}) => (int64[n] y) {{ d = Div(a, b)  s = Sub(b, a)  y = Mod(d, s) }}",
        {"a": ints(5, 6), "b": ints(5, 2)},
        "Mod",
    )


def test_a_divisor_of_another_shape() -> None:
    text = "g (int32[n, k] a, int32[n, 1] b) => (int32[n, k] y) { y = Div(a, b) }"
    a = np.arange(12, dtype=np.int32).reshape(3, 4)
    gives(text, {"a": a, "b": ints(1, 2, 3, dtype=np.int32).reshape(3, 1)}, [[0, 1, 2, 3], [2, 2, 3, 3], [2, 3, 3, 3]])
    fails(text, {"a": a, "b": ints(1, 0, 3, dtype=np.int32).reshape(3, 1)}, "Div")
    gives(text, {"a": a[:, :0], "b": ints(1, 0, 3, dtype=np.int32).reshape(3, 1)}, [[], [], []])
    gives("g (int64[n] a, int64 b) => (int64[n] y) { y = Mod(a, b) }", {"a": ints(), "b": np.array(0)}, [])
    fails("g (int64[n] a, int64 b) => (int64[n] y) { y = Mod(a, b) }", {"a": ints(1), "b": np.array(0)}, "Mod")


def test_constants() -> None:
    text = "g (int64[n] a) => (int64[n] y) { d = Div(a, b)  y = Neg(d) }"
    fails(text, {"a": ints(1, 2)}, "Div", {"b": ints(1, 0)})
    fails(text, {"a": ints(1, 2)}, "Div", {"b": np.array(0)})
    folded = "g (int64[n] a) => (int64[n] y) { d = Div(b, c)  y = Add(a, d) }"
    fails(folded, {"a": ints(1, 2)}, "Div", {"b": ints(3, 4), "c": ints(0, 1)})
    large = np.arange(20_000)
    fails("g (int64 a) => (int64[n] y) { d = Div(b, b)  y = Add(a, d) }", {"a": np.array(1)}, "Div", {"b": large})
    gives(text, {"a": ints(7, -7)}, [-3, 3], constants={"b": ints(2, 2)})


def test_a_constant_divisor_costs_nothing() -> None:
    def checked(b: np.ndarray) -> bool:
        model = model_of("g (int64[n] a) => (int64[n] y) { y = Div(a, b) }", {"b": b})
        executable = lower_graph(load(model), registry(), Target.host()).executable
        return any(step.checked for segment in executable.segments() for step in segment.steps)

    assert not checked(np.array(3))
    assert not checked(ints(1, 2, 3))
    assert checked(ints(1, 0, 3))


def test_sizes() -> None:
    text = "g (float[n, k] x, float[m] z) => (int64[1] y) { s = Shape<start = 1>(x)  t = Shape(z)  y = Div(s, t) }"
    x = np.ones((2, 6), np.float32)
    gives(text, {"x": x, "z": np.ones(3, np.float32)}, [2])
    fails(text, {"x": x, "z": np.ones(0, np.float32)}, "Div")
    view = """g (float[n, k] x, float[m] z) => (float[r, c] y) {
        s = Shape<start = 1>(x)  t = Shape(z)  d = Div(s, t)  e = Concat<axis = 0>(d, last)  y = Reshape(x, e) }"""
    for provider, level in RUNS:
        session = session_of(view, {"last": ints(-1)}, provider, level)
        assert session.run(None, {"x": x, "z": np.ones(3, np.float32)})[0].shape == (2, 6)
        with pytest.raises(InvalidArgument, match=f"Div.*{ZERO}"):
            session.run(None, {"x": x, "z": np.ones(0, np.float32)})


def test_means() -> None:
    text = "g (int64[n, k] x) => (int64[n] y) { y = ReduceMean<axes = [1], keepdims = 0>(x) }"
    gives(text, {"x": ints(5, 4, -3, -2).reshape(2, 2)}, [4, -2])
    fails(text, {"x": np.ones((2, 0), np.int64)}, "ReduceMean")
    gives(text, {"x": np.ones((0, 0), np.int64)}, [])


BRANCH = """g (bool c, int64[n] a, int64[n] b) => (int64[n] y) {
    y = If (c) <then_branch = t () => (int64[n] p) { p = Div(a, b) }, else_branch = e () => (int64[n] q) { q = Add(a, b) }> }"""


def test_branches_that_are_not_taken() -> None:
    feeds = {"a": ints(4, 6), "b": ints(2, 0)}
    gives(BRANCH, {"c": np.array(False), **feeds}, [6, 6])
    fails(BRANCH, {"c": np.array(True), **feeds}, "Div|If")
    sizes = """g (bool c, float[n, k] x, float[m] z) => (float[r] y) {
        y = If (c) <then_branch = t () => (float[r] p) { s = Shape(x)  u = Shape(z)  v = Div(s, u)
            w = ReduceMin<keepdims = 1>(v)  p = Expand(one, w) }, else_branch = e () => (float[r] q) { q = Identity(z) }> }"""
    given = {"x": np.ones((2, 4), np.float32), "z": np.ones(0, np.float32)}
    gives(sizes, {"c": np.array(False), **given}, [], constants={"one": np.ones(1, np.float32)})
    gives(
        sizes,
        {"c": np.array(True), **given, "z": np.ones(1, np.float32)},
        [1.0, 1.0],
        constants={"one": np.ones(1, np.float32)},
    )


def loop(body: str) -> str:
    return f"""g (int64 count, bool go, int64[n] a, int64[n] b) => (int64[n] y) {{
        y = Loop (count, go, a) <body = body (int64 i, bool on, int64[n] v) => (bool next, int64[n] w) {{ {body} }}> }}"""


def test_loops() -> None:
    text = loop("next = Identity(on)  w = Div(v, b)")
    feeds = {"count": np.array(3), "go": np.array(True), "a": ints(64, 81), "b": ints(4, 3)}
    gives(text, feeds, [1, 3])
    fails(text, {**feeds, "b": ints(4, 0)}, "Div|Loop")
    gives(text, {**feeds, "b": ints(4, 0), "count": np.array(0)}, [64, 81])
    gives(text, {**feeds, "b": ints(4, 0), "go": np.array(False)}, [64, 81])


def test_a_loop_whose_end_depends_on_the_quotient_ends() -> None:
    text = loop("d = Div(b, v)  s = ReduceSum<keepdims = 0>(d)  next = Less(s, limit)  w = Sub(v, step)")
    feeds = {"count": np.array(2**62), "go": np.array(True), "a": ints(5, 4), "b": ints(10, 10)}
    fails(text, feeds, "Div|Loop", {"limit": np.array(1000), "step": np.array(1)})


def test_scans() -> None:
    text = """g (int64 s, int64[n] a) => (int64 t, int64[n] y) {
        t, y = Scan <num_scan_inputs = 1, body = body (int64 u, int64 x) => (int64 v, int64 w) {
            v = Add(u, x)  w = Mod(v, x) }> (s, a) }"""
    gives(text, {"s": np.array(5), "a": ints(3, 2, 7)}, 17, [2, 0, 3])
    fails(text, {"s": np.array(5), "a": ints(3, 2, 0)}, "Mod|Scan")


def test_behind_an_integer_product() -> None:
    text = "g (uint8[m, k] x, int32[m, n] b) => (int32[m, n] y) { p = MatMulInteger(x, w)  y = Div(p, b) }"
    x, w = np.full((5, 8), 3, np.uint8), np.full((8, 6), 2, np.uint8)
    divisor = np.full((5, 6), 5, np.int32)
    gives(text, {"x": x, "b": divisor}, [[9] * 6] * 5, constants={"w": w})
    divisor[4, 5] = 0
    fails(text, {"x": x, "b": divisor}, "Div", {"w": w})


def test_what_is_known_of_divisors() -> None:
    x = k.input(0, DType.INT32, (symbol("n"),))
    y = k.input(1, DType.INT32, (symbol("n"),))
    n = k.cast(k.size(symbol("n")), DType.INT32)
    never = [
        x / 3, 5 / k.maximum(y, 1), k.cast(x, DType.INT64) / k.size(symbol("n") + 1),
        k.binary("mod", k.input(0, DType.INT32, (2,)), k.constant(ints(1, 2, dtype=np.int32))),
        x / k.select(y < 0, k.scalar(2, DType.INT32), -7), k.cast(x, DType.FLOAT) / k.cast(y, DType.FLOAT),
    ]  # fmt: skip
    may = [x / y, k.binary("fmod", x, y), x / n, x / k.maximum(y, -1), x / k.select(y < 0, 2, y), k.cast(x, DType.INT64) / 0]
    may.append(k.cast(x, DType.INT8) / k.cast(k.maximum(y, 1), DType.INT8))  # 256 becomes 0
    assert [divides([t]) for t in never] == [False] * len(never)
    assert [divides([t]) for t in may] == [True] * len(may)
    nested = k.binary("mod", x / y, k.neg(y))
    assert not divides(with_known_divisors([nested], lambda t: ints(2, 3) if t.attrs == (1,) else None))
    assert divides(with_known_divisors([nested], lambda t: ints(2, 0) if t.attrs == (1,) else None))
