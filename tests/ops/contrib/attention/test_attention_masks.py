"""Masks, biases and shared caches of com.microsoft's attention whose sizes have names of their own, against float64 NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper as oh

import intarsia
from intarsia.errors import IntarsiaError

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
RNG = np.random.default_rng(23)
BATCH, STEPS, EARLIER, HEADS, SIZE = 3, 4, 2, 2, 4
WIDTH = HEADS * SIZE
HIDDEN = -10000.0


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def model(
    op_type: str, inputs: dict[str, np.ndarray | None], outputs: int, named: tuple[str, ...] = (), **attributes: Any
) -> bytes:
    """One node; `named`: inputs whose sizes are symbols, every one of its own ("*": all)."""
    names = [name if x is not None else "" for name, x in inputs.items()]
    while not names[-1]:
        names.pop()
    kinds = [
        oh.make_tensor_value_info(
            n,
            oh.np_dtype_to_tensor_dtype(x.dtype),
            [f"{n}_{axis}" for axis in range(x.ndim)] if n in named or "*" in named else x.shape,
        )
        for n, x in inputs.items()
        if x is not None
    ]
    node = oh.make_node(op_type, names, [f"y{i}" for i in range(outputs)], "node", domain="com.microsoft", **attributes)
    found = [oh.make_tensor_value_info(f"y{i}", onnx.TensorProto.FLOAT, None) for i in range(outputs)]
    imports = [oh.make_opsetid("", 17), oh.make_opsetid("com.microsoft", 1)]
    return oh.make_model(oh.make_graph([node], "g", kinds, found), opset_imports=imports, ir_version=8).SerializeToString()


def run(provider: str, proto: bytes, inputs: dict[str, np.ndarray | None]) -> list[Any]:
    session = intarsia.InferenceSession(proto, providers=[provider])
    return list(session.run(None, {n: x for n, x in inputs.items() if x is not None}))


def heads(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64).reshape(*x.shape[:2], HEADS, SIZE).transpose(0, 2, 1, 3)


def attended(q: np.ndarray, key: np.ndarray, value: np.ndarray, bias: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """The result [batch, steps, width], and the scores with the bias."""
    scores = q @ key.transpose(0, 1, 3, 2) / np.sqrt(SIZE) + bias
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    out = powers / powers.sum(-1, keepdims=True) @ value
    return out.transpose(0, 2, 1, 3).reshape(len(q), -1, WIDTH), scores


def close(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def flagged(*shape: int) -> np.ndarray:
    """0 and 1, where the first key always counts: sums with -10,000 alone have few digits in float32."""
    flags = RNG.integers(0, 2, shape).astype(np.int32)
    flags[..., 0] = 1
    return flags


def mask_forms(keys: int, earlier: int) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Name, mask, and which keys count [batch, 1, 1 or steps, keys]."""
    ends, starts = np.array([keys, keys - 1, 2], np.int32), np.array([0, 1, 1], np.int32)
    place = np.arange(keys)
    before_end = (place < ends[:, None])[:, None, None]
    flags, by_query, most = flagged(BATCH, keys), flagged(BATCH, STEPS, keys), flagged(BATCH, 1, keys + 3, keys + 3)
    rows = np.arange(BATCH + 1, dtype=np.int32)
    return [
        ("ends", ends, before_end),
        ("ends and starts", np.concatenate([ends, starts]), before_end & (starts[:, None] <= place)[:, None, None]),
        ("ends and where rows begin", np.concatenate([ends, rows * STEPS, rows * keys]), before_end),
        ("flags", flags, (flags > 0)[:, None, None]),
        ("one flag for all keys", np.ones((BATCH, 1), np.int32), np.ones((BATCH, 1, 1, 1), bool)),
        ("flags by query", by_query, (by_query > 0)[:, None]),
        ("flags of all tokens", most, most[:, :, earlier : earlier + STEPS, :keys] > 0),
    ]


FORMS = [name for name, _, _ in mask_forms(STEPS, 0)]
NAMED: list[tuple[str, ...]] = [(), ("mask",), ("x",), ("*",)]
IDS = ["numbers", "the mask's own", "numbers beside a batch of a name", "all own"]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("named", NAMED, ids=IDS)
@pytest.mark.parametrize("form", range(len(FORMS)), ids=FORMS)
def test_masks_of_attention(form: int, named: tuple[str, ...], provider: str) -> None:
    _, mask, counts = mask_forms(STEPS + EARLIER, EARLIER)[form]
    x, w, bias, past = (
        normal(BATCH, STEPS, WIDTH),
        normal(WIDTH, 3 * WIDTH),
        normal(3 * WIDTH),
        normal(2, BATCH, HEADS, EARLIER, SIZE),
    )
    inputs: dict[str, Any] = {"x": x, "w": w, "b": bias, "mask": mask, "past": past}
    found = run(provider, model("Attention", inputs, 2, named, num_heads=HEADS), inputs)
    q, key, value = (heads(part) for part in np.split(x.astype(np.float64) @ w + bias, 3, -1))
    key, value = np.concatenate([past[0], key], 2), np.concatenate([past[1], value], 2)
    close(found[0], attended(q, key, value, np.where(counts, 0, HIDDEN))[0])
    close(found[1], np.stack([key, value]))


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("named", NAMED[1:], ids=IDS[1:])
@pytest.mark.parametrize("form", range(len(FORMS)), ids=FORMS)
def test_masks_of_multi_head_attention(form: int, named: tuple[str, ...], provider: str) -> None:
    _, mask, counts = mask_forms(STEPS, 0)[form]
    q, key, value = (normal(BATCH, STEPS, WIDTH) for _ in range(3))
    extra = normal(1, HEADS, STEPS, STEPS)
    inputs: dict[str, Any] = {"x": q, "k": key, "v": value, "b": None, "mask": mask, "extra": extra}
    found = run(provider, model("MultiHeadAttention", inputs, 1, named, num_heads=HEADS), inputs)
    expected, _ = attended(heads(q), heads(key), heads(value), np.where(counts, 0, HIDDEN) + extra)
    close(found[0], expected)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_one_session_takes_every_form_of_a_vector(provider: str) -> None:
    """The same names of sizes, other forms: which it is is decided in each run."""
    x = normal(BATCH, STEPS, WIDTH)
    forms = [f for f in mask_forms(STEPS, 0) if f[1].ndim == 1]
    inputs: dict[str, Any] = {"x": x, "k": x, "v": x, "b": None, "mask": forms[0][1]}
    session = intarsia.InferenceSession(model("MultiHeadAttention", inputs, 1, ("*",), num_heads=HEADS), providers=[provider])
    for _ in range(3):
        for _, mask, counts in forms:
            found = session.run(None, {"x": x, "k": x, "v": x, "mask": mask})[0]
            close(found, attended(heads(x), heads(x), heads(x), np.where(counts, 0, HIDDEN))[0])
        with pytest.raises(IntarsiaError):
            session.run(None, {"x": x, "k": x, "v": x, "mask": np.ones(BATCH + 1, np.int32)})
    one = session.run(None, {"x": x[:1], "k": x[:1], "v": x[:1], "mask": np.array([2], np.int32)})[0]
    close(one, attended(heads(x[:1]), heads(x[:1]), heads(x[:1]), np.where(np.arange(STEPS) < 2, 0, HIDDEN))[0])


@pytest.mark.parametrize(
    ("mask", "named", "message"),
    [
        (np.ones(4, np.int32), ("mask",), "a size is 4; expected one of 3, 6, 11"),
        (np.ones(4, np.int32), (), r"the mask is .*\[4\].*; expected \[batch\], \[2 \* batch\].* = \[3, 4, 4\]"),
        (np.ones((3, 5), np.int32), (), r"the mask is .*\[3, 5\].*; expected"),
        (np.ones((3, 5), np.int32), ("mask",), "mask_1"),
        (np.ones((3, 1, 2, 2), np.int32), (), r"the mask is .*\[3, 1, 2, 2\].*; expected"),
        (np.ones((3, 1, 2, 2), np.int32), ("mask",), "the tokens that the mask has rows for: got 2, expected at least 4"),
    ],
)
def test_masks_that_do_not_fit(mask: np.ndarray, named: tuple[str, ...], message: str) -> None:
    x = normal(BATCH, STEPS, WIDTH)
    inputs: dict[str, Any] = {"x": x, "k": x, "v": x, "b": None, "mask": mask}
    with pytest.raises(IntarsiaError, match=message):
        run(PROVIDERS[0], model("MultiHeadAttention", inputs, 1, named, num_heads=HEADS), inputs)


# --- caches ---------------------------------------------------------------------------------------------------------


def cached(
    key: np.ndarray, value: np.ndarray, past: tuple[np.ndarray, np.ndarray], length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Whole caches after the call."""
    out = tuple(p.astype(np.float64).copy() for p in past)
    for cache, new in zip(out, (key, value), strict=True):
        cache[:, :, length : length + key.shape[1]] = heads(new)
    return out[0], out[1]


def of_beams(x: np.ndarray, source: np.ndarray, length: int) -> np.ndarray:
    beams = source.shape[1]
    out = x.copy()
    for row in range(len(x)):
        for token in range(length):
            out[row, :, token] = x[row // beams * beams + source[row // beams, row % beams, token], :, token]
    return out


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("named", [(), ("*",)], ids=["numbers", "own"])
@pytest.mark.parametrize(
    ("steps", "length", "beams", "causal"),
    [(1, 3, 0, 0), (1, 3, 2, 0), (1, 3, 4, 1), (1, 0, 2, 0), (1, 7, 2, 0), (2, 3, 0, 1), (3, 5, 0, 0)],
)
def test_multi_head_attention_in_a_shared_cache(
    steps: int, length: int, beams: int, causal: int, named: tuple[str, ...], provider: str
) -> None:
    rows, capacity = 4, 8
    q, key, value = (normal(rows, steps, WIDTH) for _ in range(3))
    past = (normal(rows, HEADS, capacity, SIZE), normal(rows, HEADS, capacity, SIZE))
    source = RNG.integers(0, beams, (rows // beams, beams, capacity)).astype(np.int32) if beams else None
    mask = flagged(rows, length + steps)
    inputs: dict[str, Any] = {
        "x": q, "k": key, "v": value, "b": None, "mask": mask, "extra": None, "pk": past[0], "pv": past[1],
        "length": np.array([length], np.int32), "source": source,
    }  # fmt: skip
    given = {n: x for n, x in inputs.items() if n != "length" or "*" not in named}
    named = tuple(given) if "*" in named else named
    found = run(provider, model("MultiHeadAttention", inputs, 4, named, num_heads=HEADS, unidirectional=causal), inputs)
    keys, values = cached(key, value, past, length)
    close(found[1], keys)
    close(found[2], values)
    keys, values = keys[:, :, : length + steps], values[:, :, : length + steps]
    if source is not None:
        keys, values = (of_beams(t, source, length) for t in (keys, values))
    bias = np.where(mask[:, None, None] > 0, 0, HIDDEN)
    if causal:
        bias = bias + np.where(np.arange(length + steps) <= length + np.arange(steps)[:, None], 0, -1e30)
    out, scores = attended(heads(q), keys, values, bias)
    close(found[0], out)
    if not causal:
        close(found[3], scores)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_more_queries_than_one_do_not_choose_among_beams(provider: str) -> None:
    """As onnxruntime has it: they are a prompt, whose beams are alike."""
    q, key, value = (normal(4, 2, WIDTH) for _ in range(3))
    past = (normal(4, HEADS, 8, SIZE), normal(4, HEADS, 8, SIZE))
    inputs: dict[str, Any] = {
        "x": q, "k": key, "v": value, "b": None, "mask": None, "extra": None, "pk": past[0], "pv": past[1],
        "length": np.array([3], np.int32), "source": np.ones((2, 2, 8), np.int32),
    }  # fmt: skip
    keys, values = (t[:, :, :5] for t in cached(key, value, past, 3))
    for named in ((), ("x",)):
        found = run(provider, model("MultiHeadAttention", inputs, 3, named, num_heads=HEADS), inputs)
        close(found[0], attended(heads(q), keys, values, 0)[0])


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("without", "shared"), [("length", False), ("pk", False), ("", True)])
def test_a_length_counts_with_a_past_only(without: str, shared: bool, provider: str) -> None:
    q, key, value = (normal(4, 1, WIDTH) for _ in range(3))
    past = (normal(4, HEADS, 8, SIZE), normal(4, HEADS, 8, SIZE))
    inputs: dict[str, Any] = {
        "x": q, "k": key, "v": value, "b": None, "mask": None, "extra": None, "pk": past[0], "pv": past[1],
        "length": np.array([3], np.int32), "source": np.ones((2, 2, 8), np.int32) if without == "length" else None,
    }  # fmt: skip
    for name in ("pk", "pv") if without == "pk" else (without,) if without else ():
        inputs[name] = None
    found = run(provider, model("MultiHeadAttention", inputs, 3, num_heads=HEADS), inputs)
    if without == "pk":
        keys, values = heads(key), heads(value)
    elif shared:
        keys, values = (t[:, :, :4] for t in cached(key, value, past, 3))
    else:
        keys, values = np.concatenate([past[0], heads(key)], 2), np.concatenate([past[1], heads(value)], 2)
    close(found[0], attended(heads(q), keys, values, 0)[0])


@pytest.mark.parametrize("op_type", ["MultiHeadAttention", "DecoderMaskedMultiHeadAttention"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("length", [-1, 8, 2**31 - 1])
def test_a_step_beyond_the_cache_is_refused(length: int, provider: str, op_type: str) -> None:
    x, past = normal(4, 1, WIDTH), normal(4, HEADS, 8, SIZE)
    count = np.array([length], np.int32)
    inputs: dict[str, Any]
    if op_type == "MultiHeadAttention":
        inputs = {"x": x, "k": x, "v": x, "b": None, "mask": None, "extra": None, "pk": past, "pv": past, "length": count}
        attributes = {}
    else:
        inputs = {"x": x, "k": x, "v": x, "mask": None, "extra": None, "pk": past, "pv": past, "length": count}
        attributes = {"past_present_share_buffer": 1}
    with pytest.raises(
        IntarsiaError, match=r"past_sequence_length: got -1|the rows of the shared cache: got 8, expected at least"
    ):
        run(provider, model(op_type, inputs, 3, num_heads=HEADS, **attributes), inputs)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("named", [(), ("source",)], ids=["numbers", "own"])
def test_beams_of_another_number_of_rows_are_refused(named: tuple[str, ...], provider: str) -> None:
    x, past = normal(4, 1, WIDTH), normal(4, HEADS, 8, SIZE)
    inputs: dict[str, Any] = {
        "x": x, "k": x, "v": x, "b": None, "mask": None, "extra": None, "pk": past, "pv": past,
        "length": np.array([3], np.int32), "source": np.zeros((1, 2, 8), np.int32),
    }  # fmt: skip
    with pytest.raises(IntarsiaError):
        run(provider, model("MultiHeadAttention", inputs, 3, named, num_heads=HEADS), inputs)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("shared", [0, 1])
@pytest.mark.parametrize("op_type", ["Attention", "DecoderMaskedSelfAttention"])
def test_attention_in_a_cache_of_both(op_type: str, shared: int, provider: str) -> None:
    """[2, batch, heads, rows, size]; the length counts where past and present share memory."""
    rows, capacity, length = 4, 8, 3
    x, w, bias = normal(rows, 1, WIDTH), normal(WIDTH, 3 * WIDTH), normal(3 * WIDTH)
    past = normal(2, rows, HEADS, capacity, SIZE)
    inputs: dict[str, Any] = {
        "x": x, "w": w, "b": bias, "mask": None, "past": past, "extra": None, "length": np.array([length], np.int32)
    }  # fmt: skip
    source = None
    if op_type == "DecoderMaskedSelfAttention":
        source = RNG.integers(0, 2, (2, 2, capacity)).astype(np.int32)
        inputs |= {"width": np.array([2], np.int32), "source": source}
    proto = model(op_type, inputs, 2, num_heads=HEADS, past_present_share_buffer=shared)
    found = run(provider, proto, inputs)
    q, key, value = np.split(x.astype(np.float64) @ w + bias, 3, -1)
    if shared:
        keys, values = cached(key, value, (past[0], past[1]), length)
        close(found[1], np.stack([keys, values]))
        keys, values = keys[:, :, : length + 1], values[:, :, : length + 1]
    else:
        keys, values = (np.concatenate([p, heads(n)], 2) for p, n in zip(past, (key, value), strict=True))
        close(found[1], np.stack([keys, values]))
    if source is not None:
        keys, values = (of_beams(t, source, keys.shape[2] - 1) for t in (keys, values))
    close(found[0], attended(heads(q), keys, values, 0)[0])


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    "attributes", [{"rotary_embedding_dim": 4}, {"rotary_embedding_dim": 32, "do_rotary": 0}, {"past_present_share_buffer": 1}]
)
def test_attributes_that_count_for_nothing_by_themselves(attributes: dict[str, int], provider: str) -> None:
    x, w = normal(BATCH, STEPS, WIDTH), normal(WIDTH, 3 * WIDTH)
    inputs: dict[str, Any] = {"x": x, "w": w}
    found = run(provider, model("Attention", inputs, 1, num_heads=HEADS, **attributes), inputs)
    q, key, value = (heads(part) for part in np.split(x.astype(np.float64) @ w, 3, -1))
    close(found[0], attended(q, key, value, 0)[0])


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("wants", [0, 1])
def test_the_scores_of_one_token_have_its_mask_and_bias(wants: int, provider: str) -> None:
    rows, length = 4, 3
    x, past = normal(rows, 1, WIDTH), normal(rows, HEADS, 8, SIZE)
    mask, extra = np.array([[1, 1, 0, 1]] * rows, np.int32), normal(rows, HEADS, 1, length + 1)
    inputs: dict[str, Any] = {
        "x": x, "k": x, "v": x, "mask": mask, "extra": extra, "pk": past, "pv": past, "length": np.array([length], np.int32)
    }  # fmt: skip
    given = {"past_present_share_buffer": 1, "output_qk": wants}
    found = run(provider, model("DecoderMaskedMultiHeadAttention", inputs, 4 if wants else 3, num_heads=HEADS, **given), inputs)
    keys, values = (t[:, :, : length + 1] for t in cached(x, x, (past, past), length))
    out, scores = attended(heads(x), keys, values, np.where(mask[:, None, None] > 0, 0, HIDDEN) + extra)
    close(found[0], out)
    if wants:
        close(found[3], scores)
