"""Attention of com.microsoft that onnxruntime's CPU provider does not run, against float64 NumPy or forms that are tested."""

from __future__ import annotations

import math

import numpy as np
import pytest
from contributed_cases import run

from intarsia.errors import InvalidGraph

RNG = np.random.default_rng(31)
HEADS, SIZE = 2, 4
WIDTH = HEADS * SIZE


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


LENGTHS = np.array([1, 2, 4])
OFFSETS = np.array([[0, 4, 5, 8], [9, 10, 11, 1], [2, 3, 6, 7]], np.int32)
CUMULATIVE = np.array([0, 1, 3, 7], np.int32)


def test_padding() -> None:
    x = normal(3, 4, 5)
    tokens, offsets, cumulative, longest = run("RemovePadding", [x, LENGTHS.astype(np.int32)], outputs=4)
    np.testing.assert_array_equal(tokens, np.concatenate([x[i, :n] for i, n in enumerate(LENGTHS)]))
    np.testing.assert_array_equal(offsets, OFFSETS)
    np.testing.assert_array_equal(cumulative, CUMULATIVE)
    assert longest.tolist() == [4]
    restored = run("RestorePadding", [tokens, offsets])[0]
    np.testing.assert_array_equal(restored, x * (np.arange(4) < LENGTHS[:, None])[..., None])
    with pytest.raises(InvalidGraph, match="expected 3 numbers from 0 to 4"):
        run("RemovePadding", [x, np.array([5, 0, 0], np.int32)], outputs=4)


@pytest.mark.parametrize("biased", [False, True])
def test_packed_attention(biased: bool) -> None:
    x, weight, bias = normal(7, 6), normal(6, 3 * WIDTH), normal(3 * WIDTH)
    extra = normal(1, HEADS, 4, 4) if biased else None
    found = run("PackedAttention", [x, weight, bias, OFFSETS, CUMULATIVE, extra], num_heads=HEADS)[0]
    for i, n in enumerate(LENGTHS):
        rows = slice(CUMULATIVE[i], CUMULATIVE[i + 1])
        part = None if extra is None else np.ascontiguousarray(extra[:, :, :n, :n])
        alone = run("Attention", [x[None, rows], weight, bias, None, None, part], num_heads=HEADS)[0]
        close(found[rows], alone[0])


def test_packed_multi_head_attention() -> None:
    q, key, value, bias = normal(7, WIDTH), normal(7, WIDTH), normal(7, WIDTH), normal(3 * WIDTH)
    found = run("PackedMultiHeadAttention", [q, key, value, bias, OFFSETS, CUMULATIVE], num_heads=HEADS, scale=0.4)[0]
    for i in range(3):
        rows = slice(CUMULATIVE[i], CUMULATIVE[i + 1])
        alone = run("MultiHeadAttention", [x[None, rows] for x in (q, key, value)] + [bias], num_heads=HEADS, scale=0.4)[0]
        close(found[rows], alone[0])
    together = np.stack([x.reshape(7, HEADS, SIZE) for x in (q, key, value)], 2)
    again = run("PackedMultiHeadAttention", [together, None, None, bias, OFFSETS, CUMULATIVE], num_heads=HEADS, scale=0.4)[0]
    close(again, found)
    with pytest.raises(InvalidGraph, match="needs key and value"):
        run("PackedMultiHeadAttention", [q, None, None, None, OFFSETS, CUMULATIVE], num_heads=HEADS)
    with pytest.raises(InvalidGraph, match="required input 'token_offset' is missing"):
        run("PackedMultiHeadAttention", [q, key, value], num_heads=HEADS)


@pytest.mark.parametrize("together", [False, True])
def test_one_token_after_others(together: bool) -> None:
    """Without a shared cache it is MultiHeadAttention of one query."""
    q, key, value = (normal(2, 1, WIDTH) for _ in range(3))
    past_key, past_value, bias = normal(2, HEADS, 3, SIZE), normal(2, HEADS, 3, SIZE), normal(3 * WIDTH)
    wanted = run("MultiHeadAttention", [q, key, value, bias, None, None, past_key, past_value], outputs=3, num_heads=HEADS)
    first = [np.concatenate([q, key, value], 2), None, None] if together else [q, key, value]
    inputs = [*first, None, None, past_key, past_value, None, None, None, bias]
    found = run("DecoderMaskedMultiHeadAttention", inputs, outputs=3, num_heads=HEADS)
    for a, b in zip(found, wanted, strict=True):
        close(a, b)
    with pytest.raises(InvalidGraph, match="past_present_share_buffer needs past_sequence_length"):
        run("DecoderMaskedMultiHeadAttention", inputs, outputs=3, num_heads=HEADS, past_present_share_buffer=1)


def test_windows_and_global_tokens() -> None:
    steps, window = 8, 2
    x, mask = normal(2, steps, 6), np.where(np.arange(steps) < 7, 0, -10000.0).astype(np.float32)[None].repeat(2, 0)
    weights = [normal(6, 3 * WIDTH), normal(3 * WIDTH), normal(6, 3 * WIDTH), normal(3 * WIDTH)]
    flags = np.zeros((2, steps), np.int32)
    flags[0, 0] = flags[1, 3] = 1
    found = run("LongformerAttention", [x, *weights[:2], mask, *weights[2:], flags], num_heads=HEADS, window=window)[0]
    wanted = np.zeros((2, steps, WIDTH))
    for b in range(2):
        kinds = [np.split(x[b].astype(np.float64) @ w + c, 3, axis=1) for w, c in (weights[:2], weights[2:])]
        for t in range(steps):
            q, key, value = kinds[flags[b, t]]
            for h in range(HEADS):
                part = slice(h * SIZE, (h + 1) * SIZE)
                scores = key[:, part] @ q[t, part] / math.sqrt(SIZE) + mask[b]
                if not flags[b, t]:
                    hidden = (np.abs(np.arange(steps) - t) > window) & (flags[b] == 0)
                    scores = np.where(hidden, -np.inf, scores)
                e = np.exp(scores - scores.max())
                wanted[b, t, part] = e / e.sum() @ value[:, part]
    close(found, wanted)


def bucket(distance: int, buckets: int, furthest: int, both: bool) -> int:
    """T5's bucket of key position - query position."""
    first = 0
    if both:
        buckets //= 2
        first, distance = buckets * (distance > 0), abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    far = exact + int(math.log(distance / exact) / math.log(furthest / exact) * (buckets - exact))
    return first + min(far, buckets - 1)


@pytest.mark.parametrize("both", [0, 1])
def test_relative_position_bias(both: int) -> None:
    table = normal(HEADS, 8)
    lengths = [np.array([n], np.int64) for n in (20, 20)]
    found = run("RelativePositionBias", [table.reshape(8, HEADS), *lengths], max_distance=17, is_bidirectional=both)[0]
    where = np.array([[bucket(j - i, 8, 17, bool(both)) for j in range(20)] for i in range(20)])
    np.testing.assert_array_equal(found, table[:, where][None])


@pytest.mark.parametrize("packed", [False, True])
def test_gated_relative_position_bias(packed: bool) -> None:
    steps, inner = 4, 6
    query, bias, position = normal(3, steps, WIDTH), normal(WIDTH), normal(1, HEADS, steps, steps)
    weight, offset, eco = normal(SIZE, inner), normal(inner), normal(1, HEADS, 1, 1)
    given = [query, bias, position, weight, offset, eco]
    if packed:
        query = query * (np.arange(steps) < LENGTHS[:, None])[..., None]
        given[0] = np.concatenate([query[i, :n] for i, n in enumerate(LENGTHS)])
        given.append(OFFSETS)
    found = run("GatedRelativePositionBias", given, num_heads=HEADS)[0]
    heads = (query + bias).reshape(3, steps, HEADS, SIZE).transpose(0, 2, 1, 3).astype(np.float64)
    gates = sigmoid((heads @ weight + offset).reshape(3, HEADS, steps, 2, inner // 2).sum(-1))
    close(found, (gates[..., :1] * (gates[..., 1:] * eco - 1) + 2) * position)


def test_gemma_rotation() -> None:
    angles = normal(2, 3, SIZE)
    q, q_turned, key, key_turned = (normal(2, HEADS, 3, SIZE).astype(np.float16) for _ in range(4))
    found = run("GemmaRotaryEmbedding", [angles, q, q_turned, key, key_turned], outputs=2)
    sin, cos = (f(angles)[:, None].astype(np.float16) for f in (np.sin, np.cos))
    for a, (x, turned) in zip(found, ((q, q_turned), (key, key_turned)), strict=True):
        assert a.dtype == np.float16
        np.testing.assert_allclose(a.astype(float), x.astype(float) * cos + turned.astype(float) * sin, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("window", [2, 7])
def test_windows_of_recurrent_states(window: int) -> None:
    """Slot j is the state after step T - window + j, as found by running that many steps; zeros before them."""
    steps, heads, dk, dv = 4, 2, 3, 5
    x = [normal(1, steps, heads * d) for d in (dk, dk, dv)]
    past, decay, beta = normal(window, 1, heads, dk, dv), -np.abs(normal(1, steps, heads)), sigmoid(normal(1, steps, heads))
    attributes = {"q_num_heads": heads, "kv_num_heads": heads}
    out, present = run("LinearAttention", [*x, past, decay, beta], outputs=2, state_window=window, **attributes)
    assert present.shape == past.shape
    for slot in range(window):
        done = steps - window + slot + 1
        wanted = np.zeros_like(past[-1])
        if done > 0:
            parts = [np.ascontiguousarray(v[:, :done]) for v in (*x, decay, beta)]
            y, wanted = run("LinearAttention", [*parts[:3], past[-1], *parts[3:]], outputs=2, **attributes)
            close(out[:, :done], y)
        close(present[slot], wanted)
    with pytest.raises(InvalidGraph, match="update_rule is 'other'"):
        run("LinearAttention", x, outputs=2, update_rule="other", **attributes)
    with pytest.raises(InvalidGraph, match="needs decay: True, beta: True"):
        run("LinearAttention", x, outputs=2, **attributes)


@pytest.mark.parametrize("window", [2, 7])
def test_windows_of_convolution_states(window: int) -> None:
    x, weight, past = normal(1, 3, 4), normal(3, 1, 3), normal(window, 1, 3, 2)
    out, present = run("CausalConvWithState", [x, weight, None, past], outputs=2, state_window=window)
    whole = np.concatenate([past[-1], x], 2)
    taps = np.lib.stride_tricks.sliding_window_view(whole, 3, 2)
    close(out, (taps * weight[:, 0][:, None]).sum(-1))
    for slot in range(window):
        done = x.shape[2] - window + slot + 1
        close(present[slot], whole[:, :, done : done + 2] if done > 0 else np.zeros_like(past[-1]))


def test_convolution_of_some_channels_with_a_longer_state() -> None:
    batch, steps, width, offset, channels, taps, length = 2, 5, 9, 2, 4, 3, 6
    x, weight, past = normal(batch, steps, width), normal(channels, 1, taps), normal(batch, channels, length)
    chosen = {"channels_last": 1, "input_channel_offset": offset, "input_channels": channels, "dilation": 2}
    for last in (0, 1):
        given = np.ascontiguousarray(past.transpose(0, 2, 1)) if last else past
        out, present, update = run(
            "CausalConvWithState", [x, weight, None, given], outputs=3, state_length=length, state_channels_last=last,
            state_update_capacity=8, **chosen,
        )  # fmt: skip
        mine = x[..., offset : offset + channels]
        whole = np.concatenate([past, mine.transpose(0, 2, 1)], 2)
        wanted = sum(weight[:, 0, j, None] * whole[:, :, length - 4 + 2 * j : length - 4 + 2 * j + steps] for j in range(taps))
        close(out, wanted.transpose(0, 2, 1))
        close(present, whole[:, :, -length:].transpose(0, 2, 1) if last else whole[:, :, -length:])
        close(update, np.concatenate([mine, np.zeros((batch, 3, channels), np.float32)], 1))
    update = run("CausalConvWithState", [x, weight], outputs=3, state_update_capacity=2, **chosen)[2]
    close(update, x[:, :2, offset : offset + channels])
    with pytest.raises(InvalidGraph, match="state_length is 3; expected 0, or 4 and more"):
        run("CausalConvWithState", [x, weight], state_length=3, **chosen)
    with pytest.raises(InvalidGraph, match="needs channels_last 1, an input of rank 3 and state_window 0, got 0, 3 and 0"):
        run("CausalConvWithState", [normal(1, 2, 3), normal(2, 1, 2)], state_length=3)


def test_a_gate_that_is_projected() -> None:
    x, y, activation, weight = normal(2, 3, 4), normal(2, 3, 4), normal(2, 3, 8), normal(8, 1)
    close(run("GatedAdd", [x, y, activation, weight])[0], x + y * sigmoid(activation @ weight))


def test_refusals() -> None:
    with pytest.raises(InvalidGraph, match="the output beta needs the input b"):
        run("LinearAttentionGate", [normal(1, 2, 3), normal(3), normal(3)], outputs=2)
    with pytest.raises(InvalidGraph, match="takes ndim 1 here, got 2"):
        run("CausalConvWithState", [normal(1, 2, 3, 3), normal(2, 1, 2, 2)], ndim=2)
    with pytest.raises(InvalidGraph, match="activation is 'relu'; expected none, silu or swish"):
        run("CausalConvWithState", [normal(1, 2, 3), normal(2, 1, 2)], activation="relu")
    rows, columns = np.array([[0, 1]], np.int32), np.zeros((1, 1), np.int32)
    tail = [normal(1, 1, 16, 4), normal(1, 1, 16, 4), rows, columns, np.array([1], np.int32), np.array([1], np.int32)]
    kinds = {"num_heads": 1, "kv_num_heads": 1, "sparse_block_size": 16}
    with pytest.raises(InvalidGraph, match="do_rotary needs cos_cache and sin_cache"):
        run("SparseAttention", [normal(1, 1, 4), normal(1, 1, 4), normal(1, 1, 4), *tail], outputs=3, do_rotary=1, **kinds)
    places, cache = np.zeros((3, 1, 2), np.int64), normal(4, 2)
    with pytest.raises(InvalidGraph, match=r"mrope_section is \[1, 1, 1\]; expected three sizes that add up to 2"):
        run("MRotaryEmbedding", [normal(1, 1, 2, 4), places, cache, cache], mrope_section=[1, 1, 1])
    with pytest.raises(InvalidGraph, match="mrope_layout is 2; expected 0 or 1"):
        run("MRotaryEmbedding", [normal(1, 1, 2, 4), places, cache, cache], mrope_section=[1, 1, 0], mrope_layout=2)
    gate = [normal(1, 2, 3, 4), normal(1, 2, 3, 4), normal(1, 2, 4), normal(3, 4), normal(3, 4)]
    with pytest.raises(InvalidGraph, match="gated_value_normed needs the input conv_norm_scale"):
        run("EngramGate", gate, outputs=2)
    with pytest.raises(InvalidGraph, match=r"expected \[batch, steps, copies, width\]"):
        run("EngramGate", [gate[2], *gate[1:]])
