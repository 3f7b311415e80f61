"""LinearAttention by its kernel, against the recurrence in float64: rules, heads, states, windows, types."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
pytest.importorskip("onnx", reason="the models are built with onnx.parser")

from cpu_models import CPU, REFERENCE, kinds, session_of

from intarsia.errors import InvalidArgument

HEADER = '<ir_version: 11, opset_import: ["" : 27, "com.microsoft": 1]>'
RULES = ("linear", "gated", "delta", "gated_delta")
Arrays = dict[str, np.ndarray]


def recurrence(
    feeds: Arrays, queries: int, states: int, rule: str, scale: float = 0.0, window: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Step by step and head by head."""
    q, k, v = (feeds[n].astype(np.float64) for n in ("q", "k", "v"))
    batch, steps = q.shape[:2]
    q, k, v = q.reshape(batch, steps, queries, -1), k.reshape(batch, steps, states, -1), v.reshape(batch, steps, states, -1)
    heads, dk, dv = max(queries, states), q.shape[3], v.shape[3]
    past = feeds.get("s")
    state = np.zeros((batch, states, dk, dv)) if past is None else np.array(past[-1] if window else past, np.float64)
    y, kept = np.zeros((batch, steps, heads, dv)), [np.zeros_like(state)] * window
    for t, b, h in itertools.product(range(steps), range(batch), range(states)):
        s = state[b, h]
        if rule.startswith("gated"):
            s *= np.exp(feeds["d"].astype(np.float64)[b, t].reshape(states, -1)[h])[:, None]
        u = v[b, t, h]
        if rule.endswith("delta"):
            rates = feeds["r"].astype(np.float64)[b, t]
            u = rates[h % len(rates)] * (u - s.T @ k[b, t, h])
        s += np.outer(k[b, t, h], u)
        for head in range(h * heads // states, (h + 1) * heads // states):
            y[b, t, head] = s.T @ q[b, t, head * queries // heads] * (scale or dk**-0.5)
        if (b, h) == (batch - 1, states - 1):
            kept = [*kept[1:], state.copy()]
    return y.reshape(batch, steps, -1), np.stack(kept) if window else state


def arrays(
    batch: int, steps: int, queries: int, states: int, dk: int, dv: int, rule: str, past: tuple[int, ...] | None = None,
    decay: int | None = None, rates: int | None = None,
) -> Arrays:  # fmt: skip
    rng = np.random.default_rng(steps + dk)
    shapes = {"q": queries * dk, "k": states * dk, "v": states * dv}
    found = {name: rng.standard_normal((batch, steps, width)).astype(np.float32) * 0.3 for name, width in shapes.items()}
    if past is not None:
        found["s"] = rng.standard_normal((*past, batch, states, dk, dv)).astype(np.float32)
    if rule.startswith("gated"):
        found["d"] = -rng.random((batch, steps, states * (decay or dk))).astype(np.float32)
    if rule.endswith("delta"):
        found["r"] = rng.random((batch, steps, rates or states)).astype(np.float32)
    return found


def text_of(feeds: Arrays, queries: int, states: int, rule: str, domain: str = "", kind: str = "float", extra: str = "") -> str:
    inputs = ", ".join(f"{kind}[{', '.join(map(str, x.shape))}] {name}" for name, x in feeds.items())
    given = ", ".join(n if n in feeds else "" for n in "qkvsdr").rstrip(", ")
    attributes = f'q_num_heads = {queries}, kv_num_heads = {states}, update_rule = "{rule}"{extra}'
    state = "a, b, c, d" if "state_window" not in extra else "w, a, b, c, d"
    return f"g ({inputs}) => ({kind}[p, t, n] y, {kind}[{state}] z) {{ y, z = {domain}LinearAttention<{attributes}>({given}) }}"


def check(text: str, feeds: Arrays, expected: tuple[np.ndarray, np.ndarray], rtol: float = 2e-5) -> None:
    for provider in (CPU, REFERENCE):
        session = session_of(text, header=HEADER, provider=provider)
        if provider == CPU:
            assert set(kinds(session).values()) == {"compiled"}
        for found, wanted in zip(session.run(None, dict(feeds)), expected, strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=rtol, atol=rtol * np.abs(wanted).max(initial=1))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("past", [None, ()])
@pytest.mark.parametrize(("queries", "states"), [(4, 4), (6, 2)])
def test_rules(rule: str, past: tuple[int, ...] | None, queries: int, states: int) -> None:
    feeds = arrays(2, 7, queries, states, 12, 20, rule, past)
    check(text_of(feeds, queries, states, rule), feeds, recurrence(feeds, queries, states, rule))


@pytest.mark.parametrize(("dk", "dv"), [(1, 1), (16, 16), (33, 64), (64, 130), (8, 17)])
def test_sizes(dk: int, dv: int) -> None:
    for rule, steps in (("gated_delta", 5), ("linear", 1)):
        feeds = arrays(1, steps, 2, 2, dk, dv, rule, ())
        check(text_of(feeds, 2, 2, rule), feeds, recurrence(feeds, 2, 2, rule))


def test_decay_and_rate_for_whole_heads() -> None:
    feeds = arrays(2, 6, 4, 4, 8, 24, "gated_delta", decay=1, rates=1)
    check(text_of(feeds, 4, 4, "gated_delta", extra=", scale = 0.5"), feeds, recurrence(feeds, 4, 4, "gated_delta", 0.5))


@pytest.mark.parametrize("window", [1, 3, 9])
def test_windows_of_states(window: int) -> None:
    for queries, states in ((4, 4), (2, 4)):
        feeds = arrays(2, 5, queries, states, 8, 16, "gated_delta", (window,))
        text = text_of(feeds, queries, states, "gated_delta", "com.microsoft.", extra=f", state_window = {window}")
        check(text, feeds, recurrence(feeds, queries, states, "gated_delta", window=window))


def test_no_steps() -> None:
    feeds = arrays(2, 0, 2, 2, 8, 8, "gated", ())
    check(text_of(feeds, 2, 2, "gated"), feeds, (np.zeros((2, 0, 16)), feeds["s"].astype(np.float64)))


@pytest.mark.parametrize(("kind", "dtype", "rtol"), [("float16", "float16", 4e-3), ("bfloat16", "bfloat16", 3e-2)])
def test_half_types(kind: str, dtype: str, rtol: float) -> None:
    import ml_dtypes

    to = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    feeds = {n: x.astype(to) for n, x in arrays(2, 5, 2, 2, 16, 32, "gated_delta", ()).items()}
    check(text_of(feeds, 2, 2, "gated_delta", kind=kind), feeds, recurrence(feeds, 2, 2, "gated_delta"), rtol)


def test_sizes_that_do_not_fit() -> None:
    feeds = arrays(2, 5, 2, 2, 16, 32, "linear")
    text = text_of(feeds, 2, 2, "linear").replace("float[2, 5, 32] k", "float[2, m, 32] k")
    session = session_of(text, header=HEADER)
    assert set(kinds(session).values()) == {"compiled"}
    with pytest.raises(InvalidArgument, match="the steps of key: got 3, expected 5"):
        session.run(None, {**feeds, "k": feeds["k"][:, :3]})
