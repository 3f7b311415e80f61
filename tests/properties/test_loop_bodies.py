"""Loop, Scan and If: carried values that grow, shrink, change places or are handed on, rows, conditions, nesting."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
from drawn_nodes import assert_close, drawn, seeds, session_of
from hypothesis import given, settings
from hypothesis import strategies as st
from walked import walked

HEADER = '<ir_version: 9, opset_import: ["" : 20]>'
PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")

fewer = settings(drawn, max_examples=drawn.max_examples // 4)  # of bodies that differ little

# What a trip makes of its carried values `p` [sizes differ], `q` [3], `k` (int64 [1], a position): texts that give the next
# p, q and k, named P, Q and K. `x` [4] and `w` [3] are captured, `i` is the trip's number.
NEXT_P = {
    "grow": "P = Concat<axis=0>(p, x)",
    "grow in front": "e = Exp(w)  P = Concat<axis=0>(e, p)",
    "double": "d = Neg(p)  P = Concat<axis=0>(p, d)",
    "shrink": "P = Slice(p, one, many)",
    "same": "P = Identity(p)",
    "captured": "P = Identity(x)",
    "change": "P = Neg(p)",
    "by trip": "i1 = Reshape(i, one)  e1 = Add(i1, one)  s1 = Slice(x, zero, e1)  P = Concat<axis=0>(s1, p)",
    "by position": "s2 = Slice(x, zero, k)  P = Concat<axis=0>(p, s2)",
    "of the other": "P = Concat<axis=0>(q, p)",
    "branch": """even = Mod(i, two)  odd = Cast<to=9>(even)
        P = If(odd) <then_branch = t1 () => (float[A] u) { u = Concat<axis=0>(p, x) },
                     else_branch = f1 () => (float[B] v) { v = Identity(p) }>""",
}
NEXT_Q = {
    "same": "Q = Identity(q)",
    "change": "Q = Add(q, w)",
    "captured": "Q = Identity(w)",
    "relu": "o = Neg(q)  Q = Relu(o)",
}
NEXT_K = {"count": "K = Add(k, one)", "trip": "K = Reshape(i, one)", "same": "K = Identity(k)", "clip": "K = Min(k, one)"}
ROWS = {
    "sum": ("float[R0]", "r = ReduceSum<keepdims=0>(p)"),
    "carried": ("float[R0, 3]", "r = Identity(q)"),
    "made": ("float[R0, 3]", "r = Identity(Q)"),
    "captured": ("float[R0, 4]", "r = Identity(x)"),
    "trip": ("int64[R0]", "r = Identity(i)"),
    "position": ("int64[R0, 1]", "r = Identity(K)"),
    "condition": ("bool[R0]", "r = Identity(ci)"),
    "matrix": ("float[R0, 2, 2]", "r = Reshape(x, square)"),
    "length": ("int64[R0, 1]", "r = Shape(p)"),
}
CONDITIONS = {
    "given": "co = Identity(ci)",
    "count": "co = Less(i, three)",
    "data": "m = ReduceSum<keepdims=0>(Q)  a = Abs(m)  co = Less(a, limit)",
}
CONSTANTS = """zero = Constant<value = int64[1] {0}>()  one = Constant<value = int64[1] {1}>()
    two = Constant<value = int64 {2}>()  three = Constant<value = int64 {3}>()  many = Constant<value = int64[1] {1000}>()
    square = Constant<value = int64[2] {2, 2}>()  limit = Constant<value = float {20}>()
    k0 = Constant<value = int64[1] {1}>()"""


def check(text: str, *feeds: dict[str, Any]) -> None:
    """Equal to the walk, on both providers; rows that no trip gives have 0 of them. Results share no memory."""
    model = onnx.parser.parse_model(text)
    for provider in PROVIDERS:
        made = session_of(model.SerializeToString(), provider)
        for feed in feeds:
            kept = {name: np.array(x) for name, x in feed.items()}
            got = made.run(None, feed)
            for value, a, e in zip(model.graph.output, got, walked(model, feed), strict=True):
                if e is None:
                    assert (a.shape[0], a.ndim) == (0, len(value.type.tensor_type.shape.dim))
                else:
                    assert_close(a, np.asarray(e), 64, 1.0, value.name)
            for name, x in kept.items():
                np.testing.assert_array_equal(feed[name], x)
            arrays = [*got, *feed.values()]
            assert not any(np.shares_memory(a, b) for a in got for b in arrays if b is not a)


@drawn
@given(
    st.sampled_from(sorted(NEXT_P)), st.sampled_from(sorted(NEXT_Q)), st.sampled_from(sorted(NEXT_K)),
    st.lists(st.sampled_from(sorted(ROWS)), max_size=2), st.sampled_from(sorted(CONDITIONS)),
    st.sampled_from(["both", "both", "count only", "condition only"]), st.booleans(),
    st.lists(st.sampled_from([0, 1, 2, 3, 5, 18, -1, -(2**63)]), min_size=1, max_size=3), seeds,
)  # fmt: skip
def test_loops(
    p: str, q: str, k: str, rows: list[str], condition: str, given_: str, begins: bool, trips: list[int], seed: int
) -> None:
    if p == "double":
        trips = [min(n, 5) for n in trips]
    if given_ == "condition only" and condition != "count":
        given_ = "both"
    rng = np.random.default_rng(seed)
    outputs = [f"r{n}" for n in range(len(rows))]
    made = "  ".join(_row(ROWS[name][1], n) for n, name in enumerate(rows))
    kinds = [ROWS[name][0].replace("R0", f"R{n}") for n, name in enumerate(rows)]
    inner = [k_.replace(f"[R{n}, ", "[").replace(f"[R{n}]", "") for n, k_ in enumerate(kinds)]
    body = f"""b (int64 i, bool ci, float[S] p, float[3] q, int64[1] k)
        => (bool co, float[T] P, float[3] Q, int64[1] K{_declared(inner, outputs)})
        {{ {NEXT_K[k]}  {NEXT_P[p]}  {NEXT_Q[q]}  {made}  {CONDITIONS[condition]} }}"""
    operands = ["" if given_ == "condition only" else "n", "" if given_ == "count only" else "c"]
    quoted = ", ".join(o or '""' for o in operands)
    results = ", ".join(["y", "z", "at", *outputs])
    text = f"""{HEADER} g (float[4] x, float[3] w, float[L] p0, int64 n, bool c)
        => (float[Y] y, float[3] z, int64[1] at{_declared(kinds, outputs)})
        {{ {CONSTANTS}  {results} = Loop({quoted}, p0, w, k0) <body = {body}> }}"""
    check(text, *(
        {
            "x": rng.standard_normal(4).astype(np.float32), "w": rng.standard_normal(3).astype(np.float32),
            "p0": rng.standard_normal(int(rng.integers(0, 5))).astype(np.float32), "n": np.array(n), "c": np.array(begins),
        }
        for n in trips
    ))  # fmt: skip


def _declared(kinds: list[str], names: list[str]) -> str:
    return "".join(f", {kind} {name}" for kind, name in zip(kinds, names, strict=True))


def _row(text: str, number: int) -> str:
    return text.replace("r = ", f"r{number} = ")


@fewer
@given(
    st.tuples(st.integers(-2, 1), st.integers(-2, 1)), st.tuples(st.integers(-2, 1), st.integers(-2, 1)),
    st.tuples(st.booleans(), st.booleans()), st.tuples(st.booleans(), st.booleans()), st.booleans(),
    st.sampled_from([1, 2, 3, 17]), st.integers(0, 3), seeds,
)  # fmt: skip
def test_scans(
    axes: tuple[int, int], out_axes: tuple[int, int], backward: tuple[bool, bool], out_backward: tuple[bool, bool],
    grows: bool, length: int, width: int, seed: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    step = "a2 = Concat<axis=0>(a, r)" if grows else "a2 = Neg(a)"
    text = f"""{HEADER} g (float[N] s, float[T, U] x, float[V, W] f) => (float[M] s2, float[P, Q] y, float[P2, Q2] z) {{
        s2, y, z = Scan<num_scan_inputs = 2, scan_input_axes = [{axes[0]}, {axes[1]}],
            scan_output_axes = [{out_axes[0]}, {out_axes[1]}],
            scan_input_directions = [{backward[0]:d}, {backward[1]:d}],
            scan_output_directions = [{out_backward[0]:d}, {out_backward[1]:d}],
            body = b (float[S] a, float[C] r, float[D] e) => (float[S2] a2, float[C] o, float[D] e2)
            {{ {step}  h = ReduceSum<keepdims=0>(a)  o = Add(r, h)  e2 = Identity(e) }}>(s, x, f) }}"""

    def source(axis: int) -> np.ndarray:
        return np.moveaxis(rng.standard_normal((length, width)).astype(np.float32), 0, axis).copy()

    check(text, {"s": rng.standard_normal(2).astype(np.float32), "x": source(axes[0]), "f": source(axes[1])})


@fewer
@given(st.integers(0, 4), st.integers(0, 3), st.booleans(), st.booleans(), seeds)
def test_nested(outer: int, inner: int, grows: bool, branch: bool, seed: int) -> None:
    """A loop in a loop (in a branch) that captures names of every graph around it."""
    rng = np.random.default_rng(seed)
    last = "P2 = Concat<axis=0>(p2, e, x)" if grows else "d = ReduceSum(e)  P2 = Mul(p2, d)"
    loop = f"""Loop(m, ci, p) <body = b2 (int64 j, bool cj, float[A] p2) => (bool cq, float[B] P2)
        {{ cq = Identity(cj)  {last} }}>"""
    step = f"P = {loop}"
    if branch:
        step = f"""odd = Cast<to=9>(i)
            P = If(odd) <then_branch = t () => (float[C] u) {{ u = {loop} }},
                         else_branch = f () => (float[D] v) {{ v = Neg(p) }}>"""
    text = f"""{HEADER} g (float[4] x, int64 n, int64 m) => (float[Y] y) {{ c = Constant<value = bool {{1}}>()
        y = Loop(n, c, x) <body = b (int64 i, bool ci, float[E] p) => (bool co, float[F] P)
        {{ co = Identity(ci)  e = Exp(x)  {step} }}> }}"""
    x = rng.standard_normal(4).astype(np.float32)
    check(text, {"x": x, "n": np.array(outer), "m": np.array(inner)}, {"x": x, "n": np.array(inner), "m": np.array(outer)})
