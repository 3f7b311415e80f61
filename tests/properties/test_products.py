"""Matrix products, Einsum, convolutions, attention and recurrence over drawn sizes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from drawn_nodes import FLOATS, Drawn, array, check, drawn, seeds, wide
from hypothesis import given
from hypothesis import strategies as st
from test_movement import constants

SIZES = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 65])
SOME = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 65])
KINDS = st.sampled_from(FLOATS)


def _units(dtype: Any, terms: int) -> float:
    return 4 + terms if np.dtype(dtype) in (np.dtype(np.float32), np.dtype(np.float64)) else 3


@drawn
@given(
    KINDS,
    SIZES,
    SIZES,
    SIZES,
    st.sampled_from(["", "a", "b", "ab", "1b", "a1", "vector a", "vector b", "both"]),
    seeds,
    st.data(),
)
def test_matmul(dtype: Any, m: int, n: int, k: int, batch: str, seed: int, data: st.DataObject) -> None:
    left = {"a": (3,), "ab": (2, 3), "1b": (1, 3), "a1": (2, 3)}.get(batch, ())
    right = {"b": (3,), "ab": (2, 3), "1b": (2, 1), "a1": (1,)}.get(batch, ())
    shapes = [(*left, m, k), (*right, k, n)]
    if batch in ("vector a", "both"):
        shapes[0] = (k,)
    if batch in ("vector b", "both"):
        shapes[1] = (k,)
    a, b = (array(seed + i, s, dtype) for i, s in enumerate(shapes))
    scale = np.matmul(np.abs(wide(a)), np.abs(wide(b)))
    check(
        Drawn("MatMul", [a, b], static=data.draw(st.booleans()), constant=constants(data, 1)),
        np.matmul(wide(a), wide(b)),
        _units(dtype, k),
        scale,
    )


@drawn
@given(
    KINDS,
    SIZES,
    SIZES,
    SIZES,
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, "mn", "1n", "n", "m1", "1", ""]),
    seeds,
    st.data(),
)
def test_gemm(
    dtype: Any, m: int, n: int, k: int, left: bool, right: bool, bias: str | None, seed: int, data: st.DataObject
) -> None:
    a, b = array(seed, (k, m) if left else (m, k), dtype), array(seed + 1, (n, k) if right else (k, n), dtype)
    c = None if bias is None else array(seed + 2, tuple({"m": m, "n": n, "1": 1}[d] for d in bias), dtype)
    alpha, beta = data.draw(st.sampled_from([1.0, 0.5, 0.0, -2.0])), data.draw(st.sampled_from([1.0, 0.25, 0.0]))
    x, y = (wide(a).T if left else wide(a)), (wide(b).T if right else wide(b))
    expected = alpha * (x @ y) + (0 if c is None else beta * wide(c))
    scale = abs(alpha) * (np.abs(x) @ np.abs(y)) + 4
    node = Drawn(
        "Gemm",
        [a, b, c],
        {"alpha": alpha, "beta": beta, "transA": int(left), "transB": int(right)},
        constant=constants(data, 1, 2),
    )
    check(node, expected, _units(dtype, k), scale)


@drawn
@given(
    st.sampled_from(["MatMulInteger", "QLinearMatMul"]),
    SIZES,
    SIZES,
    SIZES,
    st.sampled_from([np.int8, np.uint8]),
    st.sampled_from([np.int8, np.uint8]),
    seeds,
    st.data(),
)
def test_integer_products(op: str, m: int, n: int, k: int, left: Any, right: Any, seed: int, data: st.DataObject) -> None:
    a, b = array(seed, (m, k), left, special=True), array(seed + 1, (k, n), right, special=True)
    za, zb = array(seed + 2, (), left), array(seed + 3, (n,) if data.draw(st.booleans()) else (), right)
    product = (a.astype(np.int64) - za.astype(np.int64)) @ (b.astype(np.int64) - zb.astype(np.int64))
    if op == "MatMulInteger":
        check(Drawn(op, [a, b, za, zb], constant=constants(data, 1, 2, 3)), product.astype(np.int32))
    else:
        sa, sb, sy = np.float32(0.02), np.full(zb.shape, 0.03, np.float32), np.float32(0.25)
        zy = array(seed + 4, (), left)
        info = np.iinfo(left)
        exact = product * (float(sa) * np.float64(np.float32(0.03)) / float(sy))
        if (np.abs(exact - np.floor(exact) - 0.5) < 1e-3).any():
            return  # a tie within float32's rounding
        expected = np.clip(np.rint(exact) + int(zy), info.min, info.max).astype(left)
        check(
            Drawn(op, [a, np.array(sa), za, b, sb, zb, np.array(sy), zy], constant=constants(data, 1, 2, 3, 4, 5, 6, 7)),
            expected,
        )


EQUATIONS = (
    "ij,jk->ik",
    "bij,bjk->bik",
    "bhid,bhjd->bhij",
    "ij->ji",
    "ii->i",
    "ii",
    "ij->",
    "ij->i",
    "i,j->ij",
    "ij,ij->ij",
    "ij,ij->",
    "...ij,...jk->...ik",
    "bij,kj->bik",
    "ijk,jil->kl",
    "i,i",
    "abc,cd,de->abe",
    "b...i,...i->b...",
    "iij->j",
    "ij,kj,lk->il",
    "ij , jk -> ki",
    "->",
    "i->i",
)


@drawn
@given(st.sampled_from(EQUATIONS), st.sampled_from((np.float32, np.float64)), seeds, st.data())
def test_einsum(equation: str, dtype: Any, seed: int, data: st.DataObject) -> None:
    sizes = {
        c: data.draw(st.integers(1 if "." in equation else 0, 5), label=c) for c in sorted({c for c in equation if c.isalpha()})
    }
    terms = equation.replace(" ", "").split("->")[0].split(",")
    extra = data.draw(st.sampled_from([(), (2,), (3, 2)]))
    shapes = [tuple(sizes[c] for c in t.replace("...", "", 1).replace(".", "")) for t in terms]
    for i, t in enumerate(terms):
        if "..." in t:
            at = t.index(".")
            shapes[i] = (*shapes[i][:at], *extra, *shapes[i][at:])
    xs = [array(seed + i, s, dtype) for i, s in enumerate(shapes)]
    expected = np.einsum(equation.replace(" ", ""), *map(wide, xs))
    check(
        Drawn("Einsum", xs, {"equation": equation}, static=data.draw(st.booleans())),
        expected,
        60,
        scale=np.einsum(equation.replace(" ", ""), *(np.abs(wide(x)) for x in xs)),
    )


def windows(x: np.ndarray, kernel: tuple[int, ...], strides: list[int], dilations: list[int]) -> np.ndarray:
    """[n, c, *out, *kernel] of a padded x."""
    n = len(kernel)
    out = [(d - (w - 1) * e - 1) // s + 1 for d, w, s, e in zip(x.shape[2:], kernel, strides, dilations, strict=True)]
    y = np.empty((*x.shape[:2], *out, *kernel), x.dtype)
    for at in np.ndindex(*out):
        where = tuple(
            slice(o * s, o * s + (w - 1) * e + 1, e) for o, s, w, e in zip(at, strides, kernel, dilations, strict=True)
        )
        y[(slice(None), slice(None), *at)] = x[(slice(None), slice(None), *where)]
    assert y.ndim == 2 + 2 * n
    return y


@drawn
@given(
    st.sampled_from((np.float32, np.float64, np.float16)),
    st.integers(1, 3),
    st.sampled_from(["Conv", "ConvInteger"]),
    seeds,
    st.data(),
)
def test_conv(dtype: Any, rank: int, op: str, seed: int, data: st.DataObject) -> None:
    groups, per_in, per_out = data.draw(
        st.sampled_from([(1, 1, 1), (1, 3, 4), (1, 16, 17), (1, 8, 8), (2, 2, 3), (4, 1, 1), (3, 1, 2), (8, 1, 1), (1, 5, 33)])
    )
    batch = data.draw(st.sampled_from([0, 1, 2, 3]))
    kernel = tuple(data.draw(st.sampled_from([1, 2, 3, 3, 5])) for _ in range(rank))
    strides = [data.draw(st.sampled_from([1, 1, 2, 3])) for _ in range(rank)]
    dilations = [data.draw(st.sampled_from([1, 1, 2])) for _ in range(rank)]
    pads = [data.draw(st.integers(0, 2)) for _ in range(2 * rank)]
    least = [max(1, (w - 1) * e + 1 - pads[i] - pads[i + rank]) for i, (w, e) in enumerate(zip(kernel, dilations, strict=True))]
    space = [n + data.draw(st.sampled_from([0, 1, 2, 5, 9] if rank < 3 else [0, 1, 3])) for n in least]
    amounts = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    attributes = {"group": groups, "strides": strides, "dilations": dilations, "pads": pads, "kernel_shape": list(kernel)}
    letters = "xyz"[:rank], "uvw"[:rank]
    if op == "ConvInteger":
        x, w = (
            array(seed, (batch, groups * per_in, *space), np.uint8, special=True),
            array(seed + 1, (groups * per_out, per_in, *kernel), np.int8),
        )
        zx, zw = array(seed + 2, (), np.uint8), array(seed + 3, (), np.int8)
        fx, fw = x.astype(np.float64) - float(zx), w.astype(np.float64) - float(zw)
    else:
        x, w = array(seed, (batch, groups * per_in, *space), dtype), array(seed + 1, (groups * per_out, per_in, *kernel), dtype)
        fx, fw = wide(x), wide(w)
    t = windows(np.pad(fx, amounts), kernel, strides, dilations)
    t = t.reshape(batch, groups, per_in, *t.shape[2:])
    f = fw.reshape(groups, per_out, per_in, *kernel)
    equation = f"bgi{letters[0]}{letters[1]},goi{letters[1]}->bgo{letters[0]}"
    expected = np.einsum(equation, t, f).reshape(batch, groups * per_out, *t.shape[3 : 3 + rank])
    scale = np.einsum(equation, np.abs(t), np.abs(f)).reshape(expected.shape) + 4
    if op == "ConvInteger":
        check(Drawn(op, [x, w, zx, zw], attributes, constant=constants(data, 1, 2, 3)), expected.astype(np.int32))
        return
    bias = array(seed + 2, (groups * per_out,), dtype) if data.draw(st.booleans()) else None
    if bias is not None:
        expected = expected + wide(bias).reshape(-1, *[1] * rank)
    node = Drawn(op, [x, w, bias], attributes, static=data.draw(st.booleans()), constant=constants(data, 1, 2))
    check(node, expected, 16 if dtype is np.float16 else 60 + per_in, scale)


@drawn
@given(st.sampled_from((np.float32, np.float64)), st.integers(1, 2), seeds, st.data())
def test_conv_transpose(dtype: Any, rank: int, seed: int, data: st.DataObject) -> None:
    groups, per_in, per_out = data.draw(st.sampled_from([(1, 1, 1), (1, 3, 4), (2, 2, 3), (4, 1, 1), (1, 8, 8)]))
    batch = data.draw(st.sampled_from([0, 1, 2]))
    kernel = [data.draw(st.sampled_from([1, 2, 3, 4])) for _ in range(rank)]
    strides = [data.draw(st.sampled_from([1, 2, 3])) for _ in range(rank)]
    dilations = [data.draw(st.sampled_from([1, 1, 2])) for _ in range(rank)]
    extra = [data.draw(st.integers(0, max(s, d) - 1)) for s, d in zip(strides, dilations, strict=True)]
    space = [data.draw(st.sampled_from([1, 2, 3, 5])) for _ in range(rank)]
    whole = [(n - 1) * s + (w - 1) * e + 1 + o for n, s, w, e, o in zip(space, strides, kernel, dilations, extra, strict=True)]
    pads = [data.draw(st.integers(0, min(2, (n - 1) // 2))) for n in whole] * 2
    x = array(seed, (batch, groups * per_in, *space), dtype)
    w = array(seed + 1, (groups * per_in, per_out, *kernel), dtype)
    bias = array(seed + 2, (groups * per_out,), dtype) if data.draw(st.booleans()) else None
    full = np.zeros((batch, groups, per_out, *whole))
    t, f = wide(x).reshape(batch, groups, per_in, *space), wide(w).reshape(groups, per_in, per_out, *kernel)
    for at, q in itertools.product(np.ndindex(*space), np.ndindex(*kernel)):
        where = tuple(a * s + b * e for a, s, b, e in zip(at, strides, q, dilations, strict=True))
        full[(..., *where)] += np.einsum("bgi,gio->bgo", t[(..., *at)], f[(..., *q)])
    full = full.reshape(batch, groups * per_out, *whole)
    expected = full[(..., *(slice(a, n - b) for a, b, n in zip(pads[:rank], pads[rank:], whole, strict=True)))]
    expected = expected + (0 if bias is None else wide(bias).reshape(-1, *[1] * rank))
    attributes = {"group": groups, "strides": strides, "dilations": dilations, "pads": pads, "output_padding": extra}
    node = Drawn("ConvTranspose", [x, w, bias], attributes, static=data.draw(st.booleans()), constant=constants(data, 1, 2))
    check(node, expected, 60, scale=16 * per_in)


@drawn
@given(
    st.sampled_from((np.float32, np.float16)),
    st.sampled_from([(1, 1), (2, 2), (4, 2), (4, 1)]),
    SOME,
    SIZES,
    st.sampled_from([1, 4, 8, 16, 24]),
    seeds,
    st.data(),
)
def test_attention(
    dtype: Any, heads: tuple[int, int], queries: int, keys: int, size: int, seed: int, data: st.DataObject
) -> None:
    batch = data.draw(st.integers(1, 2))
    q_heads, kv_heads = heads
    past = data.draw(st.sampled_from([0, 0, 3]))
    value_size = data.draw(st.sampled_from([size, 8]))
    causal, capped = data.draw(st.booleans()), data.draw(st.sampled_from([0.0, 0.0, 2.0]))
    q = array(seed, (batch, q_heads, queries, size), dtype, low=-1, high=1)
    k, v = (
        array(seed + 1, (batch, kv_heads, keys, size), dtype, low=-1, high=1),
        array(seed + 2, (batch, kv_heads, keys, value_size), dtype, low=-1, high=1),
    )
    pk = array(seed + 3, (batch, kv_heads, past, size), dtype, low=-1, high=1) if past else None
    pv = array(seed + 4, (batch, kv_heads, past, value_size), dtype, low=-1, high=1) if past else None
    allk = wide(k) if pk is None else np.concatenate([wide(pk), wide(k)], 2)
    allv = wide(v) if pv is None else np.concatenate([wide(pv), wide(v)], 2)
    kind = data.draw(st.sampled_from([None, "float", "bool"]))
    shape = data.draw(
        st.sampled_from([(queries, past + keys), (batch, 1, queries, past + keys), (1, q_heads, queries, past + keys)])
    )
    mask = None if kind is None else array(seed + 5, shape, bool if kind == "bool" else dtype)
    if kind == "bool":
        mask[..., :1] = True
    if kind is not None and causal:
        mask[..., :1] = True if kind == "bool" else 0
    scale = 1 / np.sqrt(size)
    scores = np.matmul(wide(q), np.repeat(allk, q_heads // kv_heads, 1).swapaxes(-1, -2)) * scale
    if capped:
        scores = capped * np.tanh(scores / capped)
    if kind == "float":
        scores = scores + wide(mask)
    elif kind == "bool":
        scores = np.where(mask, scores, -np.inf)
    if causal:
        scores = np.where(np.arange(past + keys)[None, :] <= np.arange(queries)[:, None] + past, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-1e30))
    weights /= weights.sum(-1, keepdims=True)
    expected = weights @ np.repeat(allv, q_heads // kv_heads, 1)
    node = Drawn(
        "Attention", [q, k, v, mask, pk, pv], {"is_causal": int(causal), "softcap": capped}, outputs=3 if past else 1, opset=24
    )
    check(node, [expected, allk, allv] if past else expected, 12 if dtype is np.float16 else 60, scale=1)
