"""DFT, STFT, Rfft and Irfft by their kernel, against NumPy's transforms in float64: lengths, axes, kinds, types, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
pytest.importorskip("onnx", reason="the models are built with onnx.parser")

from cpu_models import CPU, REFERENCE, Feeds, kinds, normal, session_of

import intarsia
from intarsia.errors import InvalidArgument, InvalidGraph

HEADER = '<ir_version: 8, opset_import: ["" : 20, "com.microsoft": 1]>'
LENGTHS = (1, 2, 3, 5, 8, 30, 49, 61, 64, 67, 122, 127, 400, 1000)


def compiled(text: str, feeds: Feeds, expected: np.ndarray, rtol: float = 2e-6) -> intarsia.InferenceSession:
    """The node is compiled, and gives what is expected; so does the reference provider."""
    session = session_of(text, header=HEADER)
    assert "host" not in kinds(session).values()
    for each in (session, session_of(text, header=HEADER, provider=REFERENCE)):
        (found,) = each.run(None, dict(feeds))
        assert found.shape == expected.shape
        scale = np.abs(expected).max(initial=0)
        np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0, atol=rtol * scale)
    return session


def parts(z: np.ndarray) -> np.ndarray:
    return np.stack([z.real, z.imag], -1)


def numbers(x: np.ndarray) -> np.ndarray:
    """The last axis of an operand as real or complex numbers of float64."""
    wide = x.astype(np.float64)
    return wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("inverse", [0, 1])
def test_lengths(width: int, inverse: int) -> None:
    session = session_of(
        f"g (float[b, n, {width}] x) => (float[b, n, 2] y) {{ y = DFT<inverse = {inverse}>(x) }}", header=HEADER
    )
    assert set(kinds(session).values()) == {"compiled"}
    for n, lines in itertools.product(LENGTHS, (1, 19)):
        x = normal(lines, n, width)
        (y,) = session.run(None, {"x": x})
        expected = parts((np.fft.ifft if inverse else np.fft.fft)(numbers(x), axis=1))
        np.testing.assert_allclose(y, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("axis", [0, 1, 2, -2, -3, -4])
@pytest.mark.parametrize(("width", "inverse", "onesided"), [(1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 1, 0), (2, 1, 1), (1, 1, 0)])
def test_axes(axis: int, width: int, inverse: int, onesided: int) -> None:
    x = normal(5, 20, 33, width)
    z, at = numbers(x), axis + 4 if axis < 0 else axis
    function = [[np.fft.fft, np.fft.rfft], [np.fft.ifft, np.fft.irfft]][inverse][onesided]
    expected = function(z, axis=at)
    expected = expected[..., None] if inverse and onesided else parts(expected)
    if axis > -4:
        node = f"a = Constant<value_int = {axis}>() y = DFT<inverse = {inverse}, onesided = {onesided}>(x, , a)"
        compiled(f"g (float[5, 20, 33, {width}] x) => (float[p, q, r, s] y) {{ {node} }}", {"x": x}, expected)
    older = HEADER.replace(": 20", ": 17")
    node = f"y = DFT<axis = {axis}, inverse = {inverse}, onesided = {onesided}>(x)"
    session = session_of(f"g (float[5, 20, 33, {width}] x) => (float[p, q, r, s] y) {{ {node} }}", header=older)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("length", [0, 1, 3, 8, 9, 20])
def test_signals_are_cut_or_padded(length: int) -> None:
    x = normal(3, 8, 2)
    given = f"n = Constant<value_int = {length}>()"
    expected = np.fft.fft(numbers(x), length, axis=1) if length else np.zeros((3, 0))
    compiled(f"g (float[3, 8, 2] x) => (float[b, m, 2] y) {{ {given} y = DFT(x, n) }}", {"x": x}, parts(expected))
    real = np.fft.irfft(numbers(x), length, axis=1) if length else np.zeros((3, 0))
    node = "y = DFT<inverse = 1, onesided = 1>(x, n)"
    compiled(f"g (float[3, 8, 2] x) => (float[b, m, 1] y) {{ {given} {node} }}", {"x": x}, real[..., None])


def test_a_transform_of_nothing() -> None:
    x = np.zeros((3, 0, 1), np.float32)
    compiled("g (float[b, n, 1] x) => (float[b, n, 2] y) { y = DFT(x) }", {"x": x}, np.zeros((3, 0, 2)))
    half = "g (float[b, n, 1] x) => (float[b, m, 2] y) { y = DFT<onesided = 1>(x) }"
    compiled(half, {"x": x}, np.zeros((3, 1, 2)))
    compiled("g (float[b, 8, 1] x) => (float[b, 8, 2] y) { y = DFT(x) }", {"x": normal(0, 8, 1)}, np.zeros((0, 8, 2)))


@pytest.mark.parametrize(("kind", "rtol"), [("double", 1e-14), ("float16", 1e-3), ("bfloat16", 8e-3)])
def test_types(kind: str, rtol: float) -> None:
    import ml_dtypes

    dtype = {"double": np.dtype(np.float64), "float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}[kind]
    x = normal(5, 60, 2).astype(dtype)
    text = f"g ({kind}[5, 60, 2] x) => ({kind}[b, n, 2] y) {{ y = DFT(x) }}"
    compiled(text, {"x": x}, parts(np.fft.fft(numbers(x), axis=1)), rtol)


@pytest.mark.parametrize("n", [512, 525, 674, 1009, 3000, 4098, 10007, 20014, 2**15])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_long_lines_go_in_several_passes(n: int, kind: str) -> None:
    forms = ((1, 1, 0, 0), (1, 1, 0, 1), (3, 1, 0, 1), (1, 1, 1, 0), (1, 2, 1, 0), (3, 2, 0, 0), (2, 2, 1, 1), (40, 2, 0, 0))
    dtype, rtol = (np.float32, 2e-6) if kind == "float" else (np.float64, 1e-14)
    for lines, width, inverse, onesided in forms if n < 5000 else forms[:-1]:
        x = normal(lines, n // 2 + 1 if inverse and onesided else n, width).astype(dtype)
        function = [[np.fft.fft, np.fft.rfft], [np.fft.ifft, np.fft.irfft]][inverse][onesided]
        given = {"n": n} if inverse and onesided else {}
        expected = function(numbers(x), axis=1, **given)
        expected = expected[..., None] if inverse and onesided else parts(expected)
        shape = ", ".join(map(str, x.shape))
        node = f"m = Constant<value_int = {n}>() y = DFT<inverse = {inverse}, onesided = {onesided}>(x, m)"
        session = session_of(f"g ({kind}[{shape}] x) => ({kind}[a, b, c] y) {{ {node} }}", header=HEADER)
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, expected, rtol=0, atol=rtol * np.abs(expected).max())


@pytest.mark.parametrize("have", [500, 700])
def test_long_lines_that_are_cut_or_padded(have: int) -> None:
    for n in (640, 641, 1338):
        given = f"n = Constant<value_int = {n}>()"
        for width, inverse, onesided in ((1, 0, 1), (1, 0, 0), (2, 1, 0), (2, 1, 1)):
            x = normal(2, have, width)
            function = [[np.fft.fft, np.fft.rfft], [np.fft.ifft, np.fft.irfft]][inverse][onesided]
            expected = function(numbers(x), n, axis=1)
            expected = expected[..., None] if inverse and onesided else parts(expected)
            node = f"y = DFT<inverse = {inverse}, onesided = {onesided}>(x, n)"
            compiled(f"g (float[2, {have}, {width}] x) => (float[a, b, c] y) {{ {given} {node} }}", {"x": x}, expected)


@pytest.mark.parametrize(
    ("signal", "frame", "step"), [(128, 16, 8), (1000, 400, 160), (64, 64, 1), (30, 7, 3), (8, 9, 2), (9, 1, 4)]
)
def test_stft(signal: int, frame: int, step: int) -> None:
    x, window = normal(2, signal, 1), np.hanning(frame + 2)[1:-1].astype(np.float32)
    count = (signal - frame) // step + 1
    frames = np.zeros((2, count, frame))
    for i in range(count):
        frames[:, i] = x[:, i * step : i * step + frame, 0]
    for onesided, windowed in itertools.product((0, 1), (0, 1)):
        expected = (np.fft.rfft if onesided else np.fft.fft)(frames * (window if windowed else 1), axis=-1)
        given = f"s = Constant<value_int = {step}>() n = Constant<value_int = {frame}>()"
        node = f"y = STFT<onesided = {onesided}>(x, s, {'w' if windowed else ''}, n)"
        text = f"g (float[b, t, 1] x, float[{frame}] w) => (float[b, f, k, 2] y) {{ {given} {node} }}"
        compiled(text, {"x": x, "w": window}, parts(expected))


def test_stft_of_complex_numbers() -> None:
    x = normal(2, 50, 2)
    frames = np.stack([numbers(x)[:, i : i + 12] for i in range(0, 39, 6)], 1)
    given = "s = Constant<value_int = 6>() n = Constant<value_int = 12>()"
    text = f"g (float[2, 50, 2] x) => (float[b, f, 12, 2] y) {{ {given} y = STFT<onesided = 0>(x, s, , n) }}"
    compiled(text, {"x": x}, parts(np.fft.fft(frames, axis=-1)))


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_contributed_transforms(axes: int) -> None:
    x = normal(3, 6, 5, 8)
    over = tuple(range(4 - axes, 4))
    spectrum = parts(np.fft.rfftn(x.astype(np.float64), axes=over))
    node = f"<signal_ndim = {axes}, onesided = 1, normalized = 0>(x)"
    forward = f"g (float[a, 6, 5, 8] x) => (float[a, b, c, d, 2] y) {{ y = com.microsoft.Rfft{node} }}"
    compiled(forward, {"x": x}, spectrum)
    back = f"g (float[a, 6, 5, 5, 2] x) => (float[a, b, c, d] y) {{ y = com.microsoft.Irfft{node} }}"
    compiled(back, {"x": spectrum.astype(np.float32)}, x.astype(np.float64))


def test_an_axis_that_only_a_run_knows_is_left_to_the_host() -> None:
    text = "g (float[2, 3, 4, 1] x, int64 a) => (float[p, q, r, 2] y) { y = DFT(x, , a) }"
    session = session_of(text, header=HEADER)
    assert set(kinds(session).values()) == {"host"}
    x = normal(2, 3, 4, 1)
    (y,) = session.run(None, {"x": x, "a": np.array(2)})
    np.testing.assert_allclose(y, parts(np.fft.fft(numbers(x), axis=2)), atol=1e-5)


def test_errors() -> None:
    def node(inputs: str, output: str, body: str, provider: str = CPU) -> intarsia.InferenceSession:
        text = f"g ({inputs}) => (float[{output}] y) {{ s = Constant<value_int = 4>() n = Constant<value_int = 16>() {body} }}"
        return session_of(text, header=HEADER, provider=provider)

    with pytest.raises(InvalidGraph, match="onesided needs a real input"):
        node("float[3, 8, 2] x", "b, n, 2", "y = DFT<onesided = 1>(x)").run(None, {"x": normal(3, 8, 2)})
    negative = node("float[3, 8, 2] x", "b, n, 2", "m = Constant<value_int = -4>() y = DFT(x, m)")
    with pytest.raises(InvalidArgument, match="a size is negative"):
        negative.run(None, {"x": normal(3, 8, 2)})
    window = node("float[1, 64, 1] x, float[w] v", "b, f, k, 2", "y = STFT(x, s, v, n)")
    with pytest.raises(InvalidArgument, match="must equal"):
        window.run(None, {"x": normal(1, 64, 1), "v": normal(15)})
    with pytest.raises(InvalidGraph, match="frame_step is 0"):
        node("float[1, 64, 1] x", "b, f, k, 2", "z = Constant<value_int = 0>() y = STFT(x, z, , n)")
    short = "float[1, n, 1] x", "b, f, k, 2", "y = STFT(x, s, , n)"
    with pytest.raises(InvalidArgument, match="a size is negative"):
        node(*short).run(None, {"x": normal(1, 8, 1)})
    with pytest.raises(InvalidGraph, match="do not fit a signal of 8"):
        node(*short, REFERENCE).run(None, {"x": normal(1, 8, 1)})
