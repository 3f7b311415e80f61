"""Fourier transforms, windows and mel weights over drawn lengths, axes and options, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from drawn_nodes import Drawn, array, check, drawn, seeds, wide
from hypothesis import given
from hypothesis import strategies as st
from test_movement import constants

LENGTHS = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 64])


def pairs(x: np.ndarray) -> np.ndarray:
    return np.stack([x.real, x.imag], -1)


@drawn
@given(st.sampled_from((np.float32, np.float64)), st.integers(1, 3), st.booleans(), st.booleans(), seeds, st.data())
def test_dft(dtype: Any, rank: int, real: bool, inverse: bool, seed: int, data: st.DataObject) -> None:
    """Of real and complex signals along any axis, cut off or filled with zeros to a length, one half or both."""
    shape = [data.draw(st.sampled_from([0, 1, 2, 3])), *(data.draw(st.sampled_from([1, 2, 3])) for _ in range(rank - 1))]
    at = data.draw(st.integers(0, rank - 1)) if rank > 1 else 0
    shape[at] = data.draw(LENGTHS)
    axis = at - rank - 1 if data.draw(st.booleans()) else at  # counted from the end, the last axis is that of parts
    x = array(seed, (*shape, 1 if real else 2), dtype)
    v = wide(x)[..., 0] + (0 if real else 1j * wide(x)[..., 1])
    length = data.draw(st.one_of(st.none(), LENGTHS))
    half = real and not inverse and data.draw(st.booleans())
    found = (np.fft.ifft if inverse else np.fft.fft)(v, length, at)
    if half:
        found = np.take(found, range(found.shape[at] // 2 + 1), at)
    operands = [x, None if length is None else np.array(length), np.array(axis)]
    node = Drawn("DFT", operands, {"inverse": int(inverse), "onesided": int(half)}, constant=(*constants(data, 1), 2), opset=20)
    node.static = data.draw(st.booleans())
    check(node, pairs(found), 60, scale=np.abs(v).sum(at, keepdims=True)[..., None] + 1)


@drawn
@given(st.sampled_from((np.float32, np.float64)), st.booleans(), st.booleans(), seeds, st.data())
def test_stft(dtype: Any, real: bool, windowed: bool, seed: int, data: st.DataObject) -> None:
    frame, step = data.draw(st.sampled_from([1, 2, 3, 5, 8, 16])), data.draw(st.sampled_from([1, 2, 3, 7]))
    length = frame + data.draw(st.sampled_from([0, 1, 5, 12]))
    batch = data.draw(st.sampled_from([0, 1, 2]))
    x = array(seed, (batch, length, 1 if real else 2), dtype)
    window = array(seed + 1, (frame,), dtype) if windowed else None
    half = real and data.draw(st.booleans())
    v = wide(x)[..., 0] + (0 if real else 1j * wide(x)[..., 1])
    count = (length - frame) // step + 1
    frames = np.stack([v[:, i * step : i * step + frame] for i in range(count)], 1)
    found = np.fft.fft(frames * (1 if window is None else wide(window)), axis=-1)
    found = found[..., : frame // 2 + 1] if half else found
    operands = [x, np.array(step), window, np.array(frame)]
    node = Drawn("STFT", operands, {"onesided": int(half)}, constant=(1, 3), static=data.draw(st.booleans()))
    check(node, pairs(found), 60, scale=4 * frame + 1)


@drawn
@given(st.sampled_from(["HannWindow", "HammingWindow", "BlackmanWindow"]), st.integers(1, 40), st.booleans(), st.data())
def test_windows(op: str, size: int, periodic: bool, data: st.DataObject) -> None:
    places = 2 * np.pi * np.arange(size) / (size if periodic else max(size - 1, 1))
    terms = {"HannWindow": (0.5, 0.5, 0), "HammingWindow": (25 / 46, 21 / 46, 0), "BlackmanWindow": (0.42, 0.5, 0.08)}[op]
    expected = terms[0] - terms[1] * np.cos(places) + terms[2] * np.cos(2 * places)
    kind = data.draw(st.sampled_from([1, 11, 10]))
    operand = np.array(size, data.draw(st.sampled_from((np.int32, np.int64))))
    node = Drawn(op, [operand], {"periodic": int(periodic), "output_datatype": kind}, constant=constants(data, 0))
    check(node, expected, 8, scale=1)


@drawn
@given(
    st.integers(1, 20),
    st.sampled_from([8, 16, 64]),
    st.sampled_from([8000, 16000]),
    st.sampled_from([(0.0, 4000.0), (300.0, 3800.0)]),
    st.data(),
)
def test_mel_weights(bins: int, length: int, rate: int, ends: tuple[float, float], data: st.DataObject) -> None:
    """Triangles between points that are evenly spaced on the mel scale, on bins of the spectrum."""
    low, high = (2595 * np.log10(1 + f / 700) for f in ends)
    points = 700 * (10 ** ((low + np.arange(bins + 2) * (high - low) / (bins + 2)) / 2595) - 1)
    exact = (length + 1) * points / rate
    if (np.abs(exact - np.rint(exact)) < 1e-3).any() and ends[0]:
        return  # a bin within float32's rounding
    at = np.floor(exact).astype(int)
    expected = np.zeros((length // 2 + 1, bins))
    for i in range(bins):
        begin, centre, end = at[i : i + 3]
        if centre == begin:
            expected[centre, i] = 1
        for j in range(begin, centre + (centre != begin)):
            expected[j, i] = (j - begin) / (centre - begin)
        for j in range(centre, end):
            expected[j, i] = (end - j) / (end - centre)
    operands = [np.array(bins), np.array(length), np.array(rate), *(np.array(e, np.float32) for e in ends)]
    check(Drawn("MelWeightMatrix", operands, {}, constant=constants(data, 0, 1, 2, 3, 4)), expected, 4, scale=1)
