"""TfIdfVectorizer by its kernel, against counting by hand, the definition and onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
pytest.importorskip("onnx", reason="the models are built with onnx.helper")

from onnx import TensorProto, helper

import intarsia

NAMES = np.array([f"w{i}" for i in range(40)], object)


def model_of(kind: str, shape: tuple[int | str, ...], **attributes: object) -> bytes:
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], name="node", **attributes)
    given = helper.make_tensor_value_info("x", getattr(TensorProto, kind), shape)
    graph = helper.make_graph([node], "g", [given], [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    serialized: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return serialized


def pool_of(rng: np.random.Generator, largest: int, each: int) -> tuple[list[tuple[int, ...]], list[int], list[int]]:
    """Distinct n-grams of 1 to `largest` numbers below 12, as a pool and where each length begins."""
    grams: list[tuple[int, ...]] = []
    starts, flat = [], list[int]()
    for n in range(1, largest + 1):
        starts.append(len(flat))
        found = sorted({tuple(int(x) for x in rng.integers(0, 12, n)) for _ in range(each)})
        grams += found
        flat += [x for gram in found for x in gram]
    return grams, starts, flat


def counted(
    x: np.ndarray, grams: Sequence[tuple[int, ...]], indexes: Sequence[int], weights: Sequence[float], mode: str,
    lengths: range, skips: int,
) -> np.ndarray:  # fmt: skip
    out = np.zeros((len(x), max(indexes) + 1))
    for row, target in zip(x, out, strict=True):
        for gram, at, weight in zip(grams, indexes, weights, strict=True):
            n = len(gram)
            paces = range(1, skips + 2) if n > 1 else (1,)
            places = [row[i : i + (n - 1) * s + 1 : s] for s in paces for i in range(len(row) - (n - 1) * s)]
            count = sum(tuple(p) == gram for p in places) if n in lengths else 0
            target[at] += {"TF": count, "IDF": weight * (count > 0), "TFIDF": weight * count}[mode]
    return out


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(("shortest", "longest", "skips"), [(1, 1, 0), (1, 3, 0), (2, 3, 2), (3, 3, 5), (1, 2, 1)])
@pytest.mark.parametrize("kind", ["INT32", "INT64", "STRING"])
def test_counts(mode: str, shortest: int, longest: int, skips: int, kind: str) -> None:
    rng = np.random.default_rng(longest * 10 + skips)
    grams, starts, flat = pool_of(rng, 3, 25)
    indexes = [int(i) for i in rng.permutation(len(grams) + 3)[: len(grams)]]
    weights = [float(w) for w in rng.random(len(grams)).astype(np.float32)]
    pool = {"pool_strings": [NAMES[i] for i in flat]} if kind == "STRING" else {"pool_int64s": flat}
    model = model_of(
        kind, ("b", "n"), mode=mode, min_gram_length=shortest, max_gram_length=longest, max_skip_count=skips, weights=weights,
        ngram_counts=starts, ngram_indexes=indexes, **pool,
    )  # fmt: skip
    sessions = [intarsia.InferenceSession(model, providers=[f"{p}ExecutionProvider"]) for p in ("CPU", "Reference")]
    how = "host" if kind == "STRING" else "compiled"  # words are looked up in Python before
    assert {n.name: n.kind for n in sessions[0].explain().nodes}["node"] == how
    for shape in ((1, 1), (3, 40), (300, 17), (2, 0), (0, 5)):
        x = rng.integers(0, 14, shape)
        expected = counted(x, grams, indexes, weights, mode, range(shortest, longest + 1), skips)
        given = NAMES[x] if kind == "STRING" else x.astype(np.int32 if kind == "INT32" else np.int64)
        for session in sessions:
            (y,) = session.run(None, {"x": given})
            np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_one_row_without_a_batch_axis() -> None:
    model = model_of(
        "INT64", (6,), mode="TF", min_gram_length=1, max_gram_length=2, max_skip_count=0, ngram_counts=[0, 2],
        ngram_indexes=[0, 1, 2], pool_int64s=[5, -(1 << 62), 5, 7],
    )  # fmt: skip
    session = intarsia.InferenceSession(model, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.array([5, 7, 5, -(1 << 62), 5, 7])})
    np.testing.assert_array_equal(y, [3, 1, 2])


def test_as_onnxruntime() -> None:
    peer = pytest.importorskip("onnxruntime", reason="a peer with the operator")
    rng = np.random.default_rng(1)
    grams, starts, flat = pool_of(rng, 3, 60)
    model = model_of(
        "INT64", ("b", "n"), mode="TFIDF", min_gram_length=1, max_gram_length=3, max_skip_count=2,
        weights=[float(w) for w in rng.random(len(grams))], ngram_counts=starts, ngram_indexes=list(range(len(grams))),
        pool_int64s=flat,
    )  # fmt: skip
    x = rng.integers(0, 12, (50, 30))
    found, wanted = (
        m.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0] for m in (intarsia, peer)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("sizes", [("N", "M"), (1, 6)])
def test_lengths_beyond_all_rows(provider: str, sizes: tuple[int | str, ...]) -> None:
    common = {"ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2], "pool_int64s": [1, 2, 1, 2], "mode": "TF"}
    x = {"x": np.array([[1, 2, 1, 1, 2, 2]])}
    lengths = [(1, 2, 6), (1, 2**63 - 1, 6), (1, 2, 2**63 - 1), (1, 2**40, 2**62)]
    found = [
        intarsia.InferenceSession(
            model_of("INT64", sizes, min_gram_length=a, max_gram_length=b, max_skip_count=c, **common), providers=[provider]
        ).run(None, x)[0].tolist()
        for a, b, c in lengths
    ]  # fmt: skip
    assert found == [found[0]] * len(lengths)
    for a, b, c in ((0, 2, 0), (-1, 2, 0), (2, 1, 0), (1, -(2**63), 0), (1, 2, -1), (1, 2, -(2**63))):
        model = model_of("INT64", sizes, min_gram_length=a, max_gram_length=b, max_skip_count=c, **common)
        told = f"max_skip_count is {c}" if c else f"min_gram_length is {a}, max_gram_length {b}"
        with pytest.raises(intarsia.InvalidGraph, match=f"{told}; expected"):
            intarsia.InferenceSession(model, providers=[provider])
