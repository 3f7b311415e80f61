"""Contributed operators (com.microsoft) that exported and optimised models contain, over drawn sizes, against float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from drawn_nodes import FLOATS, Drawn, array, broadcastable, check, drawn, seeds, shapes, structures, wide
from hypothesis import given
from hypothesis import strategies as st
from test_elementwise import _erf, _sigmoid
from test_movement import constants

DOMAIN = "com.microsoft"
SIZES = st.sampled_from([0, 1, 2, 3, 5, 8, 17])
HALF = (np.float32, np.float16)


def contrib(op: str, inputs: list[Any], attributes: dict[str, Any] | None = None, **more: Any) -> Drawn:
    return Drawn(op, inputs, attributes or {}, domain=DOMAIN, opset=1, **more)


def tanh_gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


@drawn
@given(
    st.sampled_from(["Gelu", "FastGelu", "QuickGelu", "BiasGelu", "BiasSplitGelu", "BiasAdd"]),
    st.sampled_from(FLOATS),
    shapes(0, 2),
    seeds,
    st.booleans(),
)
def test_activations(op: str, dtype: Any, outer: tuple[int, ...], seed: int, biased: bool) -> None:
    width = (2, 8, 3, 16)[seed % 4] * (2 if op == "BiasSplitGelu" else 1)
    shape = (2, *outer[:1], width) if op in ("BiasSplitGelu", "BiasAdd") else (*outer, width)
    if op in ("BiasSplitGelu", "BiasAdd"):
        shape = (2, (outer[0] if outer else 3), width)
    x, bias = array(seed, shape, dtype), array(seed + 1, (width,), dtype)
    v, b = wide(x), wide(bias)
    if op == "Gelu":
        node, expected = contrib(op, [x]), v * (1 + _erf(v / math.sqrt(2))) / 2
    elif op == "FastGelu":
        node, expected = contrib(op, [x, bias if biased else None]), tanh_gelu(v + b if biased else v)
    elif op == "QuickGelu":
        node, expected = contrib(op, [x], {"alpha": 1.5}), v * _sigmoid(1.5 * v)
    elif op == "BiasGelu":
        node, expected = contrib(op, [x, bias]), (v + b) * (1 + _erf((v + b) / math.sqrt(2))) / 2
    elif op == "BiasSplitGelu":
        left, right = np.split(v + b, 2, -1)
        node, expected = contrib(op, [x, bias]), left * right * (1 + _erf(right / math.sqrt(2))) / 2
    else:
        skip = array(seed + 2, shape, dtype)
        node, expected = contrib(op, [x, bias, skip]), v + b + wide(skip)
    check(node, expected, 12, scale=np.abs(v).max(initial=1) * 4)


@drawn
@given(st.sampled_from(HALF), SIZES, SIZES, SIZES, st.sampled_from([(), (2,), (2, 3)]), seeds, st.data())
def test_fused_matmul(dtype: Any, m: int, n: int, k: int, batch: tuple[int, ...], seed: int, data: st.DataObject) -> None:
    left, right = data.draw(st.booleans()), data.draw(st.booleans())
    alpha = data.draw(st.sampled_from([1.0, 0.5, -2.0]))
    a = array(seed, (*batch, k, m) if left else (*batch, m, k), dtype)
    b = array(seed + 1, (n, k) if right else (k, n), dtype)
    if data.draw(st.booleans()):
        b = np.array(np.broadcast_to(b, (*batch, *b.shape)))
    x, y = (wide(a).swapaxes(-1, -2) if left else wide(a)), (wide(b).swapaxes(-1, -2) if right else wide(b))
    attributes = {"transA": int(left), "transB": int(right), "alpha": alpha}
    node = contrib("FusedMatMul", [a, b], attributes, constant=constants(data, 1), static=data.draw(st.booleans()))
    check(node, alpha * (x @ y), 4 + k if dtype is np.float32 else 4, scale=abs(alpha) * (np.abs(x) @ np.abs(y)))


@drawn
@given(structures, SIZES, st.integers(1, 3), seeds)
def test_skip_norms(structure: int, length: int, batch: int, seed: int) -> None:
    rng = np.random.default_rng(structure)
    simple, dtype, width = bool(rng.integers(2)), FLOATS[rng.choice(3)], int(rng.choice([1, 4, 8, 17]))
    some = rng.integers(0, 2, 2)
    x, skip = array(seed, (batch, length, width), dtype), array(seed + 1, (batch, length, width), dtype)
    if rng.integers(3) == 0:
        skip = skip[:1] if rng.integers(2) else skip[0]
    gamma, beta, bias = (array(seed + i, (width,), dtype) for i in (2, 3, 4))
    total = wide(x) + wide(skip) + (wide(bias) if some[1] else 0)
    v = total if simple else total - total.mean(-1, keepdims=True)
    expected = v / np.sqrt((v * v).mean(-1, keepdims=True) + 2.0**-10) * wide(gamma)
    if simple:
        inputs = [x, skip, gamma, bias if some[1] else None]
    else:
        expected = expected + (wide(beta) if some[0] else 0)
        inputs = [x, skip, gamma, beta if some[0] else None, bias if some[1] else None]
    name = "SkipSimplifiedLayerNormalization" if simple else "SkipLayerNormalization"
    node = contrib(name, inputs, {"epsilon": 2.0**-10}, outputs=1 if simple else 4)
    check(node, [expected, None, None, total][: node.outputs], 60 if dtype in FLOATS[:2] else 12, scale=8)


def attended(q: np.ndarray, key: np.ndarray, value: np.ndarray, allowed: np.ndarray, bias: Any = 0.0) -> np.ndarray:
    """Of [batch, heads, tokens, size]; rows without an allowed key are whatever they are."""
    scores = q @ key.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + bias
    scores = np.where(allowed, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value


def split_heads(x: np.ndarray, heads: int) -> np.ndarray:
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


@drawn
@given(structures, st.integers(1, 2), st.sampled_from([1, 2, 5, 16]), st.sampled_from([1, 3, 8, 17]), seeds)
def test_multi_head_attention(structure: int, batch: int, queries: int, keys: int, seed: int) -> None:
    rng = np.random.default_rng(structure)
    heads, size, dtype = int(rng.choice([1, 2, 4])), int(rng.choice([1, 4, 8])), HALF[rng.choice(2, p=(0.8, 0.2))]
    biased, masked, added, past, causal = (bool(v) for v in rng.integers(0, 2, 5))
    causal = causal and not masked
    width = heads * size
    q, key, value = (array(seed + i, (batch, n, width), dtype, low=-1, high=1) for i, n in enumerate((queries, keys, keys)))
    bias = array(seed + 3, (3 * width,), dtype, low=-1, high=1) if biased else None
    before = 3 if past else 0
    pk, pv = (array(seed + i, (batch, heads, before, size), dtype, low=-1, high=1) for i in (4, 5))
    total = keys + before
    mask = (np.random.default_rng(seed + 6).random((batch, total)) < 0.7).astype(np.int32)
    mask[:, 0] = 1
    extra = array(seed + 7, (batch if rng.integers(2) else 1, heads if rng.integers(2) else 1, queries, total), dtype)
    parts = np.split(np.zeros(3 * width) if bias is None else wide(bias), 3)
    hq, hk, hv = (split_heads(wide(x) + p, heads) for x, p in zip((q, key, value), parts, strict=True))
    hk, hv = np.concatenate([wide(pk), hk], 2), np.concatenate([wide(pv), hv], 2)
    allowed = np.ones((batch, 1, queries, total), bool)
    if masked:
        allowed &= mask[:, None, None, :] > 0
    if causal:
        allowed &= np.arange(total)[None, :] <= np.arange(queries)[:, None] + before
    out = attended(hq, hk, hv, allowed, wide(extra) if added else 0.0).swapaxes(1, 2).reshape(batch, queries, width)
    inputs = [
        q,
        key,
        value,
        bias,
        mask if masked else None,
        extra if added else None,
        pk if past else None,
        pv if past else None,
    ]
    node = contrib("MultiHeadAttention", inputs, {"num_heads": heads, "unidirectional": int(causal)}, outputs=3 if past else 1)
    check(node, [out, hk, hv] if past else out, 80 if dtype is np.float32 else 16, scale=1)


@drawn
@given(structures, st.integers(1, 2), st.sampled_from([1, 2, 7]), st.sampled_from([0, 1, 5]), seeds)
def test_group_query_attention(structure: int, batch: int, tokens: int, past: int, seed: int) -> None:
    """Prompts and steps, lengths of their own for each sequence of a batch, rotated, within a window."""
    rng = np.random.default_rng(structure)
    kv, group, size = int(rng.choice([1, 2])), int(rng.choice([1, 2, 3])), int(rng.choice([8, 16]))
    rotated, interleaved, window = bool(rng.integers(2)), bool(rng.integers(2)), int(rng.choice([-1, -1, 3]))
    capped = float(rng.choice([0.0, 0.0, 2.0]))
    heads = kv * group
    q = array(seed, (batch, tokens, heads * size), np.float32, low=-1, high=1)
    key, value = (array(seed + i, (batch, tokens, kv * size), np.float32, low=-1, high=1) for i in (1, 2))
    pk, pv = (array(seed + i, (batch, kv, past, size), np.float32, low=-1, high=1) for i in (3, 4))
    total = past + tokens
    angles = np.outer(np.arange(total + 2), 1 / 10 ** (np.arange(size // 2) / 4))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    hq, hk, hv = split_heads(wide(q), heads), split_heads(wide(key), kv), split_heads(wide(value), kv)
    if rotated:
        at = np.arange(past, total)
        hq, hk = (turned(x, wide(cos)[at], wide(sin)[at], interleaved) for x in (hq, hk))
    allk, allv = np.concatenate([wide(pk), hk], 2), np.concatenate([wide(pv), hv], 2)
    allowed = np.arange(total)[None, :] <= np.arange(tokens)[:, None] + past
    if window > 0:
        allowed &= np.arange(total)[None, :] > np.arange(tokens)[:, None] + past - window
    scores = hq @ np.repeat(allk, group, 1).swapaxes(-1, -2) / np.sqrt(size)
    scores = capped * np.tanh(scores / capped) if capped else scores
    scores = np.where(allowed, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    out = weights / weights.sum(-1, keepdims=True) @ np.repeat(allv, group, 1)
    out = out.swapaxes(1, 2).reshape(batch, tokens, heads * size)
    lengths = np.full(batch, total - 1, np.int32)
    inputs = [q, key, value, pk if past else None, pv if past else None, lengths, np.array(total, np.int32)]
    inputs += [cos, sin] if rotated else []
    attributes = {
        "num_heads": heads, "kv_num_heads": kv, "do_rotary": int(rotated), "rotary_interleaved": int(interleaved),
        "local_window_size": window, "softcap": capped,
    }  # fmt: skip
    check(contrib("GroupQueryAttention", inputs, attributes, outputs=3), [out, allk, allv], 100, scale=1)


def turned(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
    """Rotary embedding of [..., tokens, size] by [tokens, size / 2]."""
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else np.split(x, 2, -1)
    left, right = a * cos - b * sin, a * sin + b * cos
    return np.stack([left, right], -1).reshape(x.shape) if interleaved else np.concatenate([left, right], -1)


@drawn
@given(structures, st.sampled_from(["", DOMAIN]), st.integers(1, 2), st.sampled_from([0, 1, 3, 6]), seeds)
def test_rotary_embedding(structure: int, domain: str, batch: int, tokens: int, seed: int) -> None:
    rng = np.random.default_rng(structure)
    heads, size, interleaved = int(rng.choice([1, 2, 3])), int(rng.choice([4, 8])), bool(rng.integers(2))
    partial = int(rng.choice([0, 0, 4]))
    turning = partial or size
    x = array(seed, (batch, heads, tokens, size), np.float32)
    cos, sin = (array(seed + i, (tokens + 3, turning // 2), np.float32) for i in (1, 2))
    at = np.random.default_rng(seed + 3).integers(0, tokens + 3, (batch, tokens))
    c, s = wide(cos)[at][:, None], wide(sin)[at][:, None]
    v = wide(x)
    expected = np.concatenate([turned(v[..., :turning], c, s, interleaved), v[..., turning:]], -1)
    attributes = {"interleaved": int(interleaved), "rotary_embedding_dim": partial}
    if domain:
        attributes |= {"num_heads": heads} if partial else {}
        check(contrib("RotaryEmbedding", [x, at, cos, sin], attributes), expected, 8, scale=16)
    else:
        check(Drawn("RotaryEmbedding", [x, cos, sin, at], attributes, opset=23), expected, 8, scale=16)


def quantised(x: np.ndarray, scale: np.float32, zero: Any) -> np.ndarray | None:
    """`x` in steps; None where a tie is within float32's rounding."""
    ratio = x / float(scale)
    if (np.abs(ratio - np.floor(ratio) - 0.5) < 1e-3).any():
        return None
    info = np.iinfo(zero.dtype)
    return np.clip(np.rint(ratio) + int(zero), info.min, info.max).astype(zero.dtype)


@drawn
@given(
    st.sampled_from(
        [f"QLinear{name}"
        for name in ("Add", "Mul", "Sigmoid", "LeakyRelu", "Concat", "Where", "GlobalAveragePool", "ReduceMean")]
    ),
    st.sampled_from((np.int8, np.uint8)), broadcastable(2), seeds, st.data(),
)  # fmt: skip
def test_quantised_elements(op: str, dtype: Any, sizes: list[tuple[int, ...]], seed: int, data: st.DataObject) -> None:
    if op in ("QLinearSigmoid", "QLinearLeakyRelu"):
        sizes = [sizes[0], sizes[0]]
    elif op == "QLinearConcat":
        sizes = [(2, 3), (2, seed % 4)]
    elif op in ("QLinearGlobalAveragePool", "QLinearReduceMean"):
        sizes = [(seed % 3, 3, 1 + seed % 5, 4)] * 2
    xs = [array(seed + i, s, dtype, special=True) for i, s in enumerate(sizes)]
    scales = [np.float32(v) for v in np.random.default_rng(seed).choice([0.01, 0.1, 0.37], 3)]
    zeros = [array(seed + i, (), dtype) for i in (2, 3, 4)]
    a, b = ((x.astype(np.float64) - int(z)) * float(s) for x, s, z in zip(xs, scales, zeros, strict=False))
    one, two, three = ([np.array(s), np.array(z)] for s, z in zip(scales, zeros, strict=True))
    attributes: dict[str, Any] = {}
    if op in ("QLinearAdd", "QLinearMul"):
        inputs, exact = [xs[0], *one, xs[1], *two, *three], a + b if op == "QLinearAdd" else a * b
    elif op == "QLinearSigmoid":
        inputs, exact = [xs[0], *one, *three], _sigmoid(a)
    elif op == "QLinearLeakyRelu":
        inputs, exact, attributes = [xs[0], *one, *three], np.where(a < 0, a * 0.25, a), {"alpha": 0.25}
    elif op == "QLinearConcat":
        inputs, exact, attributes = [*three, xs[0], *one, xs[1], *two], np.concatenate([a, b], 1), {"axis": 1}
    elif op == "QLinearWhere":
        condition = array(seed + 9, np.broadcast_shapes(*sizes), bool)
        inputs, exact = [condition, xs[0], *one, xs[1], *two, *three], np.where(condition, a, b)
    elif op == "QLinearGlobalAveragePool":
        inputs, exact = [xs[0], *one, *three], a.mean((2, 3), keepdims=True)
    else:
        axes = [-1, 2]
        inputs, exact, attributes = [xs[0], *one, *three], a.mean((2, 3)), {"axes": axes, "keepdims": 0}
    expected = quantised(exact, scales[2], zeros[2])
    if expected is None:
        return
    fixed = tuple(i for i, x in enumerate(inputs) if not any(x is y for y in xs) and x.dtype != bool)
    check(contrib(op, inputs, attributes, constant=fixed if data.draw(st.booleans()) else ()), expected)


@drawn
@given(structures, st.sampled_from([0, 1, 2, 5, 17]), seeds)
def test_weights_of_few_bits(structure: int, rows: int, seed: int) -> None:
    """MatMulNBits: blocks of 4 or 8 bits with scales and zero points."""
    rng = np.random.default_rng(structure)
    bits, block = int(rng.choice([4, 4, 8])), int(rng.choice([16, 32, 64]))
    n, k, pointed, biased = int(rng.choice([1, 3, 8, 17])), int(rng.choice([16, 33, 64, 100])), rng.integers(2), rng.integers(2)
    blocks = -(-k // block)
    weights = np.random.default_rng(seed).integers(0, 1 << bits, (n, blocks, block), dtype=np.uint8)
    points = np.random.default_rng(seed + 1).integers(0, 1 << bits, (n, blocks), dtype=np.uint8)
    packed, stored = weights, points
    if bits == 4:
        packed = weights[..., ::2] | weights[..., 1::2] << 4
        even = np.pad(points, [(0, 0), (0, blocks % 2)])
        stored = even[:, ::2] | even[:, 1::2] << 4
    scales = array(seed + 2, (n, blocks), np.float32, low=0.01, high=0.1)
    x, bias = array(seed + 3, (2, rows, k), np.float32), array(seed + 4, (n,), np.float32)
    groups = np.random.default_rng(seed + 5).integers(0, blocks, k, dtype=np.int32) if rng.integers(3) == 0 else None
    own = np.arange(k) // block if groups is None else groups
    middle = points.astype(np.float64) if pointed else np.full((n, blocks), 1 << bits - 1)
    table = (weights.reshape(n, -1)[:, :k] - middle[:, own]) * wide(scales)[:, own]
    expected = wide(x) @ table.T + (wide(bias) if biased else 0)
    inputs = [x, packed, scales, stored if pointed else None, groups, bias if biased else None]
    while inputs[-1] is None:
        inputs.pop()
    fixed = tuple(i for i in range(1, len(inputs)) if inputs[i] is not None)
    node = contrib("MatMulNBits", inputs, {"K": k, "N": n, "bits": bits, "block_size": block}, constant=fixed)
    check(node, expected, 60, scale=np.abs(wide(x)) @ np.abs(table.T) + 1)
