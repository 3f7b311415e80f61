"""Operators and inputs of com.microsoft that onnxruntime has no CPU kernel for, against float64 NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx.parser
import pytest
from contributed_cases import gelu, gelu_tanh, run

import intarsia
from intarsia.errors import Fail, IntarsiaError, InvalidGraph

RNG = np.random.default_rng(8)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def softmax(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(axes, keepdims=True))
    return e / e.sum(axes, keepdims=True)


def close(found: np.ndarray, wanted: np.ndarray, tolerance: float = 1e-5) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=tolerance, atol=tolerance)


X, IMAGE = normal(2, 3, 8), normal(2, 4, 6, 5)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_bias_add_and_split_gelu(dtype: Any) -> None:
    x, bias, skip = (v.astype(dtype) for v in (X, normal(8), normal(2, 3, 8)))
    tolerance = 1e-5 if dtype is np.float32 else 2e-3
    wide = [v.astype(np.float64) for v in (x, bias, skip)]
    found = run("BiasAdd", [x, bias, skip])[0]
    assert found.dtype == dtype
    close(found, wide[0] + wide[1] + wide[2], tolerance)
    total = wide[0] + wide[1]
    close(run("BiasSplitGelu", [x, bias])[0], total[..., :4] * gelu(total[..., 4:]), tolerance)


def test_bias_split_gelu_of_odd_width() -> None:
    with pytest.raises(InvalidGraph, match="expected an even last axis"):
        run("BiasSplitGelu", [normal(2, 3, 5), normal(5)])


def test_bias_softmax() -> None:
    """The inner form repeats the bias along the axes before `axis`, the outer one along the first."""
    data = normal(2, 3, 4, 5)
    inner = normal(2, 1, 4, 5)
    close(run("BiasSoftmax", [data, inner], axis=2, is_inner_broadcast=1)[0], softmax(data + inner, (2, 3)))
    outer = normal(1, 3, 4, 5)
    close(run("BiasSoftmax", [data, outer], axis=3, is_inner_broadcast=0)[0], softmax(data + outer, (3,)))
    close(run("BiasSoftmax", [data, normal(5) * 0], axis=-1, is_inner_broadcast=0)[0], softmax(data, (3,)))
    short = normal(2, 5)
    close(run("BiasSoftmax", [data, short], axis=3, is_inner_broadcast=1)[0], softmax(data + short[:, None, None], (3,)))


def test_bias_dropout() -> None:
    bias, skip = normal(8), normal(2, 3, 8)
    y, mask = run("BiasDropout", [X, bias, skip, np.float32(0.5), np.bool_(False)], outputs=2)
    close(y, X + bias + skip)
    assert mask.all() and mask.dtype == np.bool_
    close(run("BiasDropout", [X, bias])[0], X + bias)
    with pytest.raises(InvalidGraph, match="training_mode must be false"):
        run("BiasDropout", [X, bias, None, None, np.bool_(True)])


def test_products_with_activations() -> None:
    a, b, bias = normal(2, 3, 4), normal(4, 5), normal(5)
    close(run("GemmFastGelu", [a, b, bias])[0], gelu_tanh(a @ b + bias))
    close(run("GemmFastGelu", [a, b])[0], gelu_tanh(a @ b))
    y = 0.5 * a @ b
    found = run("FusedMatMulActivation", [a, b], alpha=0.5, activation="LeakyRelu", activation_alpha=0.3)[0]
    close(found, np.where(y < 0, 0.3 * y, y))
    close(run("FusedMatMulActivation", [a, b], alpha=0.5, activation="Softmax", activation_axis=1)[0], softmax(y, (1,)))
    close(run("FusedMatMulActivation", [a, b], activation="HardSwish")[0], a @ b * np.clip(a @ b / 6 + 0.5, 0, 1))
    with pytest.raises(InvalidGraph, match="activation 'Swoosh' is not known; expected one of Elu, GELU"):
        run("FusedMatMulActivation", [a, b], activation="Swoosh")


def test_float8_product() -> None:
    a = normal(3, 4).astype(ml_dtypes.float8_e4m3fn)
    b = normal(5, 4).astype(ml_dtypes.float8_e4m3fn)
    one = [np.full(1, v, np.float32) for v in (0.5, 2.0, 3.0)]
    found = run("GemmFloat8", [a, b, normal(3, 5) * 0, *one], transB=1, dtype=10, alpha=2.0)[0]
    assert found.dtype == np.float16
    close(found, 6.0 * a.astype(np.float64) @ b.astype(np.float64).T, 2e-3)
    c = normal(3, 5)
    close(run("GemmFloat8", [normal(3, 4) * 0, normal(4, 5), c], beta=1.0, activation="RELU")[0], np.maximum(c, 0))


def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A 3 x 3 convolution without padding, [N, C, H, W]."""
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (2, 3))
    return np.einsum("nchwij,mcij->nmhw", windows, w.astype(np.float64))


def test_channels_last_convolutions() -> None:
    weight, bias = normal(7, 4, 3, 3), normal(7)
    last = np.ascontiguousarray(IMAGE.transpose(0, 2, 3, 1))
    wanted = (convolved(IMAGE, weight) + bias[:, None, None]).transpose(0, 2, 3, 1)
    close(run("NhwcConv", [last, weight, bias])[0], wanted)
    z = normal(*wanted.shape)
    close(run("NhwcFusedConv", [last, weight, bias, z], activation="Relu")[0], np.maximum(wanted + z, 0))
    close(run("NhwcFusedConv", [last, weight, bias], activation="Clip", activation_params=[0.0, 6.0])[0], wanted.clip(0, 6))


def group_norm(x: np.ndarray, groups: int, gamma: np.ndarray, beta: np.ndarray, silu: int) -> np.ndarray:
    """Of [N, C, H, W]."""
    rows = x.astype(np.float64).reshape(len(x), groups, -1)
    normal_rows = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    y = normal_rows.reshape(x.shape) * gamma[:, None, None] + beta[:, None, None]
    return y * sigmoid(y) if silu else y


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("silu", [0, 1])
def test_group_norms(last: int, silu: int) -> None:
    gamma, beta, bias, skip = normal(4), normal(4), normal(4), normal(2, 4, 6, 5)

    def laid(x: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if last else x

    attributes = {"groups": 2, "activation": silu, "channels_last": last}
    close(run("GroupNorm", [laid(IMAGE), gamma, beta], **attributes)[0], laid(group_norm(IMAGE, 2, gamma, beta, silu)))
    total = IMAGE + skip + bias[:, None, None]
    y, summed = run("SkipGroupNorm", [laid(IMAGE), gamma, beta, laid(skip), bias], outputs=2, **attributes)
    close(summed, laid(total))
    close(y, laid(group_norm(total, 2, gamma, beta, silu)))
    small = normal(2, 4)
    y = run("SkipGroupNorm", [laid(IMAGE), gamma, beta, small], **attributes)[0]
    close(y, laid(group_norm(IMAGE + small[:, :, None, None], 2, gamma, beta, silu)))


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_group_norm_of_channels_that_a_run_gives(provider: str) -> None:
    """Its groups are equal parts of however many channels there are; a run with others is refused."""
    text = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
        g (float[n, c, h, w] x, float[d] gamma, float[e] beta) => (float[n, c, h, w] y) {
            y = com.microsoft.GroupNorm<groups = 2, activation = 0, channels_last = 0>(x, gamma, beta)
        }"""
    session = intarsia.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), providers=[provider])
    for channels in (4, 6):
        x, gamma, beta = normal(2, channels, 3, 5), normal(channels), normal(channels)
        found = session.run(None, {"x": x, "gamma": gamma, "beta": beta})[0]
        close(found, group_norm(x, 2, gamma, beta, 0))
    with pytest.raises(IntarsiaError):
        session.run(None, {"x": normal(2, 5, 3, 5), "gamma": normal(5), "beta": normal(5)})


def test_group_norm_checks() -> None:
    with pytest.raises(InvalidGraph, match="4 channels do not fall into 3 equal groups"):
        run("GroupNorm", [IMAGE, normal(4), normal(4)], groups=3, activation=0, channels_last=0)
    with pytest.raises(InvalidGraph, match="activation is 2; expected 0 for none or 1 for SiLU"):
        run("GroupNorm", [IMAGE, normal(4), normal(4)], groups=2, activation=2, channels_last=0)


def test_complex_products() -> None:
    a, b = normal(3, 4, 2), normal(4, 2)
    left, right = a[..., 0] + 1j * a[..., 1], b[..., 0] + 1j * b[..., 1]
    for op, product in (("ComplexMul", left * right), ("ComplexMulConj", left * right.conj())):
        close(run(op, [a, b])[0], np.stack([product.real, product.imag], -1))
    with pytest.raises(InvalidGraph, match="no last axis of real and imaginary parts"):
        run("ComplexMul", [normal(3, 4), normal(3, 4)])


@pytest.mark.parametrize("axes", [1, 2])
def test_fourier_transforms(axes: int) -> None:
    x = normal(2, 4, 6)
    spectrum = np.fft.rfftn(x, axes=range(3 - axes, 3))
    found = run("Rfft", [x], signal_ndim=axes)[0]
    close(found, np.stack([spectrum.real, spectrum.imag], -1))
    close(run("Irfft", [found], signal_ndim=axes)[0], x)
    with pytest.raises(InvalidGraph, match="onesided must be 1 and normalized 0"):
        run("Rfft", [x], normalized=1)
    with pytest.raises(InvalidGraph, match="signal_ndim is 4"):
        run("Rfft", [x], signal_ndim=4)


def test_is_all_finite() -> None:
    finite, infinite, nan = np.ones(3, np.float32), np.array([1, np.inf], np.float32), np.array([np.nan], np.float32)
    assert run("IsAllFinite", [finite, finite])[0]
    assert not run("IsAllFinite", [finite, infinite])[0]
    assert not run("IsAllFinite", [finite, nan])[0]
    assert run("IsAllFinite", [infinite], isnan_only=1)[0] and run("IsAllFinite", [nan], isinf_only=1)[0]
    with pytest.raises(InvalidGraph, match="exclude each other"):
        run("IsAllFinite", [finite], isinf_only=1, isnan_only=1)


def test_embedding_and_integers() -> None:
    table = normal(5, 3)
    np.testing.assert_array_equal(run("TorchEmbedding", [table, np.array([[4, 0], [1, 1]])])[0], table[[[4, 0], [1, 1]]])
    a, b = RNG.integers(0, 256, (3, 4)).astype(np.uint8), RNG.integers(0, 256, (4,)).astype(np.uint8)
    found = run("MulInteger", [a, np.uint8(7), b, np.uint8(100)])[0]
    np.testing.assert_array_equal(found, (a.astype(np.int32) - 7) * (b.astype(np.int32) - 100))
    np.testing.assert_array_equal(run("MulInteger", [a, None, b])[0], a.astype(np.int32) * b)
    found = run("ReduceSumInteger", [a], axes=[1], keepdims=0)[0]
    assert found.dtype == np.uint32
    np.testing.assert_array_equal(found, a.sum(1))
    with pytest.raises(InvalidGraph, match="required input 'B' is missing"):
        run("MulInteger", [a, np.uint8(1), None, np.uint8(1)])


def test_quantised_mean() -> None:
    data = RNG.integers(0, 256, (3, 4)).astype(np.uint8)
    inputs = [data, np.float32(0.1), np.uint8(100), np.float32(0.2), np.uint8(50)]
    wanted = np.round(((data.astype(np.float64) - 100) * 0.1).mean(1, keepdims=True) / 0.2 + 50).clip(0, 255)
    found = run("QLinearReduceMean", inputs, axes=[1], keepdims=1)[0]
    assert np.abs(found - wanted).max() <= 1


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_omitted_zero_points_are_zero(op: str) -> None:
    a, b = (RNG.integers(0, 256, (3, 4)).astype(np.uint8) for _ in range(2))
    scales = [np.float32(s) for s in (0.1, 0.2, 0.3)]
    zero = np.uint8(0)
    whole = run(op, [a, scales[0], zero, b, scales[1], zero, scales[2], zero])
    np.testing.assert_array_equal(run(op, [a, scales[0], None, b, scales[1], None, scales[2]])[0], whole[0])
    np.testing.assert_array_equal(
        run("QLinearSigmoid", [a, scales[0], None, scales[1]])[0],
        run("QLinearSigmoid", [a, scales[0], zero, scales[1], zero])[0],
    )


def test_words_without_characters() -> None:
    inputs = [np.zeros((2, 4), np.int32), normal(5, 1, 2, 3), normal(5), normal(6, 3)]
    np.testing.assert_array_equal(run("WordConvEmbedding", inputs)[0], np.zeros((2, 5)))
    with pytest.raises(InvalidGraph, match="conv_window_size is 3; the weights have 2"):
        run("WordConvEmbedding", inputs, conv_window_size=3)


@pytest.mark.parametrize("metric", ["cityblock", "chebyshev", "cosine", "correlation", "braycurtis", "canberra", "hamming"])
def test_distances(metric: str) -> None:
    a, b = normal(4, 3).astype(np.float64), normal(5, 3).astype(np.float64)
    a[0, 0] = b[0, 0] = 0.0
    x, y = a[:, None], b[None]
    if metric == "correlation":
        x, y = x - x.mean(2, keepdims=True), y - y.mean(2, keepdims=True)
    with np.errstate(invalid="ignore"):
        wanted = {
            "cityblock": np.abs(x - y).sum(2),
            "chebyshev": np.abs(x - y).max(2),
            "cosine": 1 - (x * y).sum(2) / np.sqrt((x * x).sum(2) * (y * y).sum(2)),
            "correlation": 1 - (x * y).sum(2) / np.sqrt((x * x).sum(2) * (y * y).sum(2)),
            "braycurtis": np.abs(x - y).sum(2) / np.abs(x + y).sum(2),
            "canberra": np.nan_to_num(np.abs(x - y) / (np.abs(x) + np.abs(y))).sum(2),
            "hamming": (x != y).mean(2),
        }[metric]
    close(run("CDist", [a, b], metric=metric)[0], wanted)


def test_refused_attributes_and_values() -> None:
    with pytest.raises(InvalidGraph, match="metric is 'taxi'; expected one of braycurtis"):
        run("CDist", [normal(2, 3), normal(2, 3)], metric="taxi")
    with pytest.raises(InvalidGraph, match="exactly one of separators and tokenexp"):
        run("Tokenizer", [np.array(["a"], object)], mark=0, mincharnum=1, pad_value="")
    with pytest.raises(InvalidGraph, match=r"'\[' is not a regular expression"):
        run("Tokenizer", [np.array(["a"], object)], mark=0, mincharnum=1, pad_value="", tokenexp="[")
    with pytest.raises(InvalidGraph, match="tokens of single characters are never as long"):
        run("Tokenizer", [np.array(["a"], object)], mark=0, mincharnum=2, pad_value="", tokenexp=".")
    with pytest.raises(InvalidGraph, match="mincharnum is 0; expected at least 1"):
        run("Tokenizer", [np.array(["a"], object)], mark=0, mincharnum=0, pad_value="", tokenexp="x")
    with pytest.raises(InvalidGraph, match="a matrix of X cannot be inverted"):
        run("Inverse", [np.zeros((2, 2), np.float32)])
    with pytest.raises(InvalidGraph, match="expected square matrices"):
        run("Inverse", [normal(2, 3)])
    with pytest.raises(InvalidGraph, match="mode is 'cubic'; expected bilinear or nearest"):
        run("CropAndResize", [IMAGE, normal(1, 4), np.zeros(1, np.int32), np.array([2, 2], np.int32)], mode="cubic")
    with pytest.raises(InvalidGraph, match="quant_type is 2; expected 0 for FP4 or 1 for NF4"):
        run("MatMulBnb4", [normal(1, 2), np.zeros(2, np.uint8), normal(1)], K=2, N=2, block_size=16, quant_type=2)
    with pytest.raises(InvalidGraph, match="ngram_size is 0; expected at least 1"):
        run("NGramRepeatBlock", [np.zeros((1, 2), np.int64), normal(1, 3)], ngram_size=0)
    with pytest.raises(InvalidGraph, match="pred_tokens has 1 tokens; expected 3"):
        run("BifurcationDetector", [np.arange(2), np.arange(1), np.int64(0), np.arange(1)], outputs=2)
    with pytest.raises((Fail, InvalidGraph)):
        run("NGramRepeatBlock", [np.array([[9, 9, 9]]), normal(1, 3)], ngram_size=1)


def test_tokenizer_of_nothing() -> None:
    found = run("Tokenizer", [np.empty((2, 0), object)], mark=1, mincharnum=1, pad_value="", separators=[" "])[0]
    assert found.shape == (2, 0)
    found = run("Tokenizer", [np.array([" ", ""], object)], mark=1, mincharnum=1, pad_value="", separators=[" "])[0]
    assert found.shape == (2, 0)
