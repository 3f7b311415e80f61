"""Sequences, optional values, text, Fourier transforms, quantisation and losses: what ONNX's own cases leave out."""

from __future__ import annotations

import builtins
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import intarsia as ort
from intarsia.errors import InvalidGraph
from intarsia.graph.dims import Expr, symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, OptionalType, SequenceType, TensorType
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node
from intarsia.ops.framework.infer import trace
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret

RNG = np.random.default_rng(8)
FLOAT = TensorType(DType.FLOAT, (2, 3))


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def evaluate(op: str, inputs: list[Any], outputs: int = 1, version: int = 0, domain: str = "", **attributes: Any) -> list[Any]:
    names = ["" if x is None else f"i{i}" for i, x in enumerate(inputs)]
    node = Node(op, names, [f"o{i}" for i in range(outputs)], attributes, domain, version=version)
    return evaluate_node(node, inputs, registry())


def types(op: str, *inputs: Any, version: int = 100, **attributes: Any) -> Any:
    record = registry().find("", op, version)
    assert record is not None
    assert record.infer is not None
    return record.infer(*inputs, **attributes)


# --- sequences -------------------------------------------------------------------------------------------------------


def test_sequence_positions_count_from_either_end() -> None:
    items = [np.array(i) for i in range(3)]
    (found,) = evaluate("SequenceInsert", [items, np.array(9), np.array(-1)])
    assert [int(x) for x in found] == [0, 1, 9, 2]
    (found,) = evaluate("SequenceErase", [items, np.array(-3)])
    assert [int(x) for x in found] == [1, 2]
    assert evaluate("SequenceAt", [items, np.array(-1)])[0] == 2
    with pytest.raises(InvalidGraph, match="position 3 is out of range for a sequence of 3 elements"):
        evaluate("SequenceAt", [items, np.array(3)])


def test_sequences_of_parts_and_parts_of_sequences() -> None:
    x = floats(4, 6)
    for axis in (0, 1, -1):
        for split, whole in ((np.array(4), None), (np.array([1, 3] if axis == 0 else [2, 0, 4]), None), (None, 1), (None, 0)):
            attributes = {"axis": axis} if whole is None else {"axis": axis, "keepdims": whole}
            (found,) = evaluate("SplitToSequence", [x, split], **attributes)
            extent = x.shape[axis]
            ends = (
                np.arange(1, extent) if split is None else np.arange(4, extent, 4) if not split.ndim else np.cumsum(split)[:-1]
            )
            for part, expected in zip(found, np.split(x, ends, axis), strict=True):
                np.testing.assert_array_equal(part, expected if whole != 0 else expected.squeeze(axis))
    parts = [floats(2, 3) for _ in range(3)]
    for axis in (0, 1, 2, -1, -3):
        (joined,) = evaluate("ConcatFromSequence", [parts], axis=axis, new_axis=1)
        np.testing.assert_array_equal(joined, np.stack(parts, axis))
    (joined,) = evaluate("ConcatFromSequence", [[np.float32(3) * np.ones(()), np.ones(())]], axis=0, new_axis=1)
    assert joined.tolist() == [3, 1]
    with pytest.raises(InvalidGraph, match="axis 3 is out of range for rank 3"):
        evaluate("ConcatFromSequence", [parts], axis=3, new_axis=1)


def test_sequence_types() -> None:
    sequence = types("SequenceConstruct", FLOAT, TensorType(DType.FLOAT, (2, 4)))
    assert isinstance(sequence, SequenceType)
    assert sequence.element.shape[0] == 2
    assert isinstance(sequence.element.shape[1], Expr)
    assert types("SequenceEmpty", dtype=7) == SequenceType(TensorType(DType.INT64))
    assert types("SequenceAt", SequenceType(FLOAT), TensorType(DType.INT64, ())) == FLOAT
    joined = types("ConcatFromSequence", SequenceType(FLOAT), axis=-1, new_axis=1)
    assert joined.shape[:2] == (2, 3)
    assert len(joined.shape) == 3
    assert types("SplitToSequence", FLOAT, axis=1, keepdims=0) == SequenceType(TensorType(DType.FLOAT, (2,)))
    assert types("OptionalGetElement", OptionalType(FLOAT)) == FLOAT
    assert types("Optional", FLOAT) == OptionalType(FLOAT)


def test_split_to_sequence_refuses() -> None:
    with pytest.raises(InvalidGraph, match=r"split \[1, 1\] adds up to 2; expected sizes from 0 whose sum is the 3"):
        evaluate("SplitToSequence", [floats(3), np.array([1, 1])])
    with pytest.raises(InvalidGraph, match=r"split \[4, -1\] adds up to 3; expected sizes from 0"):
        evaluate("SplitToSequence", [floats(3), np.array([4, -1])])
    with pytest.raises(InvalidGraph, match="split is 0; expected a positive number"):
        evaluate("SplitToSequence", [floats(3), np.array(0)])
    with pytest.raises(InvalidGraph, match="an empty sequence cannot be concatenated"):
        evaluate("ConcatFromSequence", [[]], axis=0)


def test_optional_values() -> None:
    assert not evaluate("OptionalHasElement", [None])[0]
    assert evaluate("OptionalHasElement", [[]])[0]
    (value,) = evaluate("OptionalGetElement", [evaluate("Optional", [np.ones(2)])[0]])
    np.testing.assert_array_equal(value, [1, 1])


# --- text ------------------------------------------------------------------------------------------------------------


def test_string_operators_refuse() -> None:
    words = np.array(["a", "b"], object)
    with pytest.raises(InvalidGraph, match="pattern '\\(' is not a regular expression"):
        evaluate("RegexFullMatch", [words], pattern="(")
    with pytest.raises(InvalidGraph, match="case_change_action is 'TITLE'; expected NONE, LOWER or UPPER"):
        evaluate("StringNormalizer", [words], case_change_action="TITLE")
    with pytest.raises(InvalidGraph, match=r"X has shape \[2, 1\]; expected \[C\] or \[1, C\]"):
        evaluate("StringNormalizer", [words.reshape(2, 1)])


def test_tf_idf_weights() -> None:
    words = np.array([["a", "b", "a"], ["c", "c", "c"]], object)
    common = {
        "max_gram_length": 2,
        "min_gram_length": 1,
        "max_skip_count": 1,
        "ngram_counts": [0, 2],
        "ngram_indexes": [2, 0, 1],
    }
    pool = {"pool_strings": ["a", "b", "a", "a"], "weights": [0.5, 2.0, 3.0]}
    counts = {"TF": [1, 1, 2], "IDF": [2, 3, 0.5], "TFIDF": [2, 3, 1]}
    for mode, row in counts.items():
        (y,) = evaluate("TfIdfVectorizer", [words], mode=mode, **common, **pool)
        np.testing.assert_allclose(y, [row, [0, 0, 0]])


def test_string_split_of_an_empty_tensor() -> None:
    pieces, counts = evaluate("StringSplit", [np.array([], object)], 2, delimiter=",")
    assert pieces.shape == (0, 0)
    assert counts.shape == (0,)


@pytest.mark.parametrize("different", [3, 40])
def test_words_that_occur_many_times(different: int) -> None:
    words = np.array([" ".join("xyz"[: i % different % 4]) + f" w{i % different}" for i in range(40)], object).reshape(5, 8)
    pieces, counts = evaluate("StringSplit", [words], 2)
    for word, row, count in zip(words.flat, pieces.reshape(-1, pieces.shape[-1]).tolist(), counts.flat, strict=True):
        assert row == word.split() + [""] * (len(row) - count)
        assert count == len(word.split())
    (matched,) = evaluate("RegexFullMatch", [words], pattern=r"[xyz ]* w[0-4]")
    assert matched.tolist() == [[s[-1] in "01234" and s[-2] == "w" for s in row] for row in words.tolist()]


def test_images_that_cannot_be_decoded_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL", reason="ImageDecoder decodes with Pillow")
    (image,) = evaluate("ImageDecoder", [np.arange(10, dtype=np.uint8)])
    assert image.shape == (0, 0, 3)
    with pytest.raises(InvalidGraph, match="pixel_format is 'CMYK'; expected RGB, BGR or Grayscale"):
        evaluate("ImageDecoder", [np.zeros(1, np.uint8)], pixel_format="CMYK")
    real = builtins.__import__

    def without_pillow(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "PIL":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pillow)
    with pytest.raises(InvalidGraph, match="ImageDecoder needs Pillow: pip install pillow"):
        evaluate("ImageDecoder", [np.zeros(1, np.uint8)])


# --- signal ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dft_and_its_inverse(dtype: type) -> None:
    x = floats(2, 12, 2).astype(dtype)
    (y,) = evaluate("DFT", [x], version=17, axis=1)
    wide = x.astype(np.float64)
    want = np.fft.fft(wide[..., 0] + 1j * wide[..., 1], axis=1)
    assert y.dtype == dtype
    np.testing.assert_allclose(y[..., 0] + 1j * y[..., 1], want, rtol=1e-2 if dtype is np.float16 else 1e-4, atol=2e-2)
    (back,) = evaluate("DFT", [y, None, np.array(-2)], version=20, inverse=1)
    np.testing.assert_allclose(back.astype(np.float64), wide, atol=2e-2 if dtype is np.float16 else 1e-5)


def test_dft_types() -> None:
    n = symbol("n")
    signal = TensorType(DType.FLOAT, (2, n, 1))
    assert types("DFT", signal, version=17, onesided=1).shape == (2, n // 2 + 1, 2)
    assert types("DFT", signal, np.array(16, object), np.array(1, object)).shape == (2, 16, 2)
    unknown_axis = types("DFT", signal, None, TensorType(DType.INT64, ()))
    assert unknown_axis.shape is None
    frames = types("STFT", TensorType(DType.FLOAT, (2, 64, 1)), np.array(8, object), None, np.array(16, object))
    assert frames.shape == (2, 7, 9, 2)
    assert isinstance(types("STFT", signal, TensorType(DType.INT64, ())).shape[1], Expr)


def test_stft_and_dft_refuse() -> None:
    with pytest.raises(InvalidGraph, match="window has 8 elements; frame_length is 16"):
        evaluate("STFT", [floats(1, 32, 1), np.array(4), floats(8), np.array(16)])
    with pytest.raises(InvalidGraph, match="onesided needs a real signal"):
        evaluate("STFT", [floats(1, 32, 2), np.array(4), floats(8)])
    with pytest.raises(InvalidGraph, match="onesided needs a real input"):
        evaluate("DFT", [floats(1, 32, 2)], onesided=1)
    with pytest.raises(InvalidGraph, match="axis 2 is the axis of real and imaginary parts"):
        evaluate("DFT", [floats(1, 32, 2)], version=17, axis=2)


def test_windows_have_a_symbolic_length() -> None:
    record = registry().find("", "HannWindow", 17)
    assert record is not None
    operand = k.input(0, DType.INT64, ())
    (root,) = trace(record, Node("HannWindow", ["n"], ["w"]), [operand], {0: np.array(symbol("n"), object)})
    assert root is not None
    assert root.shape == (symbol("n"),)
    (window,) = interpret([root], [None], {"n": 6})
    np.testing.assert_allclose(window, np.hanning(7)[:6], atol=1e-6)


# --- quantisation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, ml_dtypes.int4, ml_dtypes.uint4])
def test_quantise_and_back_within_half_a_step(dtype: Any) -> None:
    info = ml_dtypes.iinfo(dtype)
    x, scale = floats(4, 6), np.array([0.5, 0.25, 0.5, 1.0, 0.25, 0.5], np.float32)
    zero = np.full(6, (int(info.max) + int(info.min) + 1) // 2).astype(dtype)
    (y,) = evaluate("QuantizeLinear", [x, scale, zero], axis=-1)
    assert y.dtype == dtype
    (back,) = evaluate("DequantizeLinear", [y, scale, zero], axis=1)
    low, high = ((float(v) - zero.astype(np.float32)) * scale for v in (info.min, info.max))
    assert (np.abs(back - np.clip(x, low, high)) <= scale / 2 + 1e-6).all()


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_float8_saturates_where_asked(dtype: Any) -> None:
    x = np.array([1e6, -1e6, 0.5], np.float32)
    inputs = [x, np.float32(1), np.zeros((), dtype)]
    (kept,) = evaluate("QuantizeLinear", inputs, saturate=1)
    largest = float(ml_dtypes.finfo(dtype).max)
    np.testing.assert_array_equal(kept.astype(np.float32), [largest, -largest, 0.5])
    (lost,) = evaluate("QuantizeLinear", inputs, saturate=0)
    assert not np.isfinite(lost.astype(np.float32)[:2]).any()


def test_blocks_of_a_symbolic_extent() -> None:
    n = symbol("n")
    record = registry().find("", "DequantizeLinear", 21)
    assert record is not None
    operands = [k.input(0, DType.INT8, (n, 5)), k.input(1, DType.FLOAT, (n, 3))]
    node = Node("DequantizeLinear", ["x", "s"], ["y"], {"axis": 1, "block_size": 2})
    (root,) = trace(record, node, operands, {})
    assert root is not None
    assert root.shape == (n, 5)
    x, scale = RNG.integers(-9, 9, (2, 5), np.int8), floats(2, 3)
    (y,) = interpret([root], [x, scale], {"n": 2})
    np.testing.assert_allclose(y, x * np.repeat(scale, 2, 1)[:, :5])


def test_dynamic_quantisation_of_zeros() -> None:
    y, scale, zero = evaluate("DynamicQuantizeLinear", [np.zeros(3, np.float32)], 3)
    assert (y.max(), float(scale), int(zero)) == (0, 0.0, 0)


def test_scales_that_do_not_fit() -> None:
    x = np.zeros((2, 3), np.int8)
    with pytest.raises(InvalidGraph, match="the scale has 2 entries; x has 3 on axis 1"):
        evaluate("DequantizeLinear", [x, floats(2)])
    with pytest.raises(InvalidGraph, match="expected rank 0 or 1, or block_size"):
        evaluate("DequantizeLinear", [x, floats(2, 3)])
    with pytest.raises(InvalidGraph, match="needs a scale of x's rank 2"):
        evaluate("DequantizeLinear", [x, floats(2), None], block_size=2)


# --- losses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_cross_entropy_as_torch(reduction: str) -> None:
    torch = pytest.importorskip("torch", reason="the reference of losses")
    scores, labels, weights = floats(4, 5, 2), RNG.integers(0, 5, (4, 2)), np.abs(floats(5))
    want = torch.nn.functional.cross_entropy(
        torch.from_numpy(scores), torch.from_numpy(labels), torch.from_numpy(weights), reduction=reduction, ignore_index=2
    )
    loss, logs = evaluate("SoftmaxCrossEntropyLoss", [scores, labels, weights], 2, reduction=reduction, ignore_index=2)
    np.testing.assert_allclose(loss, want.numpy(), rtol=1e-5, atol=1e-6)
    (again,) = evaluate("NegativeLogLikelihoodLoss", [logs, labels, weights], reduction=reduction, ignore_index=2)
    np.testing.assert_allclose(again, loss, rtol=1e-6)
    with pytest.raises(InvalidGraph, match="reduction is 'max'; expected none, sum or mean"):
        evaluate("SoftmaxCrossEntropyLoss", [scores, labels], reduction="max")


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_identity_of_an_empty_optional(provider: str) -> None:
    optional = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("OptionalHasElement", ["y"], ["z"])]
    taken, told = helper.make_value_info("x", optional), helper.make_tensor_value_info("z", TensorProto.BOOL, [])
    graph = helper.make_graph(nodes, "g", [taken], [told])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=[provider])
    assert not session.run(None, {"x": None})[0]
    assert session.run(None, {"x": np.zeros(2, np.float32)})[0]
