"""Operators that are written out for devices, whole on WebGPU: what data choose, random numbers, transforms, regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import intarsia
from intarsia.device.webgpu import missing, open_device
from intarsia.ops import philox

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no WebGPU device: {missing()}")
Feeds = Mapping[str, np.ndarray]


def session(
    nodes: Sequence[Any], feeds: Feeds, outputs: Sequence[str], constants: Feeds, provider: str
) -> intarsia.InferenceSession:
    from onnx import helper, numpy_helper

    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), [f"{n}{i}" for i in range(a.ndim)])
        for n, a in feeds.items()
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(
        list(nodes), "g", inputs, results, [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    options = intarsia.SessionOptions()
    if provider != "CPUExecutionProvider":
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return intarsia.InferenceSession(model.SerializeToString(), options, [provider], enable_fallback=False)


def check(
    nodes: Sequence[Any], feeds: Feeds, outputs: Sequence[str], tolerance: float = 1e-5, **constants: Any
) -> list[np.ndarray]:
    """Compare with the CPU provider; the device's results."""
    wanted = session(nodes, feeds, outputs, constants, "CPUExecutionProvider").run(None, dict(feeds))
    made = session(nodes, feeds, outputs, constants, "WebGpuExecutionProvider")
    found = made.run(None, dict(feeds))
    for a, b in zip(wanted, found, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        limit = tolerance * max(1.0, float(np.abs(a.astype(np.float64)).max())) if a.size else 0.0
        np.testing.assert_allclose(b.astype(np.float64), a.astype(np.float64), rtol=tolerance, atol=limit)
    return found


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    from onnx import helper

    return helper.make_node(op, [n if n != "_" else "" for n in inputs.split()], outputs.split(), **attributes)


RNG = np.random.default_rng(0)


def test_sizes_that_data_say_are_read_between_two_plans() -> None:
    """What follows is planned for the sizes of a run; the host reads the counts, nothing else."""
    nodes = [
        node("Relu", "x", "r"), node("Greater", "r half", "m"), node("NonZero", "m", "i"), node("Transpose", "i", "at"),
        node("GatherND", "r at", "v"), node("Exp", "v", "y"), node("Shape", "v", "size"),
        node("Compress", "x c", "z", axis=1), node("ReduceMax", "idx", "most", keepdims=1),
        node("Slice", "x zeros most ones", "cut"), node("Reshape", "z flat", "line"), node("Range", "zero top step", "range"),
    ]  # fmt: skip
    outputs = ["y", "size", "z", "cut", "line", "range"]
    constants = {"half": np.float32(0.5), "zeros": [0], "ones": [1], "flat": [-1], "zero": np.float32(0), "step": np.float32(2)}
    feeds = {"x": np.zeros((1, 1), np.float32), "c": np.zeros(1, bool), "idx": np.zeros(1, np.int64), "top": np.float32(7)}
    made = session(nodes, feeds, outputs, {n: np.asarray(a) for n, a in constants.items()}, "WebGpuExecutionProvider")
    assert made.explain().counts == {"WebGpuExecutionProvider": 12}
    assert "in 2 stages" in made._model.programs[0].describe()  # type: ignore[union-attr]
    for rows, columns in ((3, 4), (50, 30), (1, 1), (3, 4)):
        x = RNG.standard_normal((rows, columns)).astype(np.float32)
        chosen, ends = RNG.random(columns) > 0.5, np.array([0, 1, min(2, columns)])
        before = open_device().counters.copies_out
        y, size, z, cut, line, counted = made.run(None, {"x": x, "c": chosen, "idx": ends, "top": np.float32(7)})
        relu = np.maximum(x, 0)
        np.testing.assert_allclose(y, np.exp(relu[relu > 0.5]), rtol=1e-5)
        assert size.tolist() == [len(y)]
        for found, wanted in ((z, x[:, chosen]), (cut, x[:, : ends.max()]), (line, x[:, chosen].ravel())):
            np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(counted, [0, 2, 4, 6])
        assert open_device().counters.copies_out - before <= len(outputs) + 3 + 2  # outputs, numbers, states of the checks


@pytest.mark.parametrize(("shape", "axis", "sort"), [((7,), None, 0), ((0,), None, 0), ((6, 3), 0, 1), ((3, 6), 1, 0)])
def test_distinct_slices(shape: tuple[int, ...], axis: int | None, sort: int) -> None:
    how = {} if axis is None else {"axis": axis}
    x = RNG.integers(0, 3, shape).astype(np.float32)
    check([node("Unique", "x", "y first which count", sorted=sort, **how)], {"x": x}, ["y", "first", "which", "count"])


def test_places_of_none_of_one_and_of_many_elements() -> None:
    nodes = [node("NonZero", n, f"{n}y") for n in "abc"]
    many = (RNG.random((70, 60)) > 0.3).astype(np.float32)
    check(nodes, {"a": np.zeros((0, 3), np.float32), "b": np.float32(3), "c": many}, ["ay", "by", "cy"])


def test_long_sums() -> None:
    x = {"x": RNG.integers(-9, 9, 5003).astype(np.int32), "y": RNG.standard_normal((2, 3000, 2)).astype(np.float32)}
    nodes = [node("CumSum", f"{n} {axis}", f"{n}{i}{j}", exclusive=i, reverse=j)
             for n, axis in (("x", "zero"), ("y", "one")) for i in (0, 1) for j in (0, 1)]  # fmt: skip
    outputs = [f"{n}{i}{j}" for n in "xy" for i in (0, 1) for j in (0, 1)]
    check(nodes, x, outputs, 1e-4, zero=np.array(0), one=np.array(1))


def test_boxes() -> None:
    corner, size = RNG.random((2, 80, 2)), RNG.random((2, 80, 2)) * 0.3
    scores = RNG.random((2, 3, 80)).astype(np.float32)
    scores[0, 0, :3] = np.nan, -np.inf, scores[0, 0, 5]
    feeds = {"boxes": np.concatenate([corner, corner + size], 2).astype(np.float32), "scores": scores}
    for most, least in ((70, 0.1), (3, 0.1), (1000, 2.0), (0, 0.1)):
        check([node("NonMaxSuppression", "boxes scores most overlap least", "y")], feeds, ["y"],
              most=np.array([most]), overlap=np.float32([0.3]), least=np.float32([least]))  # fmt: skip


@pytest.mark.parametrize("count", [130, 521])
def test_transforms(count: int) -> None:
    """A product, one for each factor, and a convolution for a large prime number."""
    nodes = [node("DFT", "x _ one", "y"), node("DFT", "y _ one", "z", inverse=1), node("DFT", "x _ one", "half", onesided=1),
             node("DFT", "half count one", "back", inverse=1, onesided=1)]  # fmt: skip
    feeds = {"x": RNG.standard_normal((2, count, 1)).astype(np.float32)}
    found = check(nodes, feeds, ["y", "z", "half", "back"], one=np.array(1), count=np.array(count))
    np.testing.assert_allclose(found[3], feeds["x"], atol=1e-5)


@pytest.mark.parametrize("kind", [1, 11])
def test_random_numbers_are_those_of_the_cpu(kind: int) -> None:
    from onnx import helper

    nodes = [
        helper.make_node("RandomUniform", [], ["a"], shape=[3, 130], dtype=kind),
        helper.make_node("RandomNormal", [], ["b"], shape=[3, 130], dtype=kind, seed=3.0, mean=1.0, scale=2.0),
        helper.make_node("RandomUniform", [], ["c"], shape=[5], dtype=kind, low=-2.0, high=5.0, seed=1.0),
        helper.make_node("RandomNormalLike", ["a"], ["d"]),
        helper.make_node("Bernoulli", ["a"], ["e"]),
    ]
    drawn = []
    for provider in ("CPUExecutionProvider", "WebGpuExecutionProvider"):
        philox.set_seed(7)
        made = session(nodes, {}, list("abcde"), {}, provider)
        drawn.append([made.run(None, {}) for _ in range(2)])
    for first, second in zip(*drawn, strict=True):
        for a, b in zip(first, second, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert not np.array_equal(drawn[1][0][0], drawn[1][1][0])


def test_dropout_in_training() -> None:
    feeds = {"x": RNG.standard_normal((40, 50)).astype(np.float32), "train": np.array(True)}
    nodes = [node("Dropout", "x ratio train", "y m", seed=5), node("Dropout", "x ratio train", "z n")]
    made = session(nodes, feeds, ["y", "m", "z", "n"], {"ratio": np.float32(0.25)}, "WebGpuExecutionProvider")
    y, m, z, n = made.run(None, feeds)
    wanted = np.random.RandomState(5).uniform(0.0, 1.0, (40, 50)) >= 0.25
    np.testing.assert_array_equal(m, wanted)
    for values, mask in ((y, m), (z, n)):
        np.testing.assert_allclose(values, np.where(mask, feeds["x"] / 0.75, 0), rtol=1e-6)
    assert 0.7 < n.mean() < 0.8
    y, m, *_ = made.run(None, {**feeds, "train": np.array(False)})
    np.testing.assert_array_equal(y, feeds["x"])
    assert m.all()


def test_regions() -> None:
    regions = np.array([[0, 0, 60, 40], [-10, -5, 30, 70], [5, 5, 5.5, 5.6]], np.float32)
    image = RNG.standard_normal((2, 3, 30, 40)).astype(np.float32)
    feeds = {"x": image, "r": regions, "b": np.array([0, 1, 1])}
    check([node("RoiAlign", "x r b", "y", output_height=3, output_width=2, spatial_scale=0.5)], feeds, ["y"])
    regions = np.array([[0, 0, 0, 30, 20], [1, -10, -5, 30, 70], [1, 50, 50, 60, 60]], np.float32)
    check([node("MaxRoiPool", "x r", "y", pooled_shape=[3, 2])], {"x": image, "r": regions}, ["y"])


def test_an_image_that_is_not_there() -> None:
    feeds = {"x": np.ones((1, 1, 4, 4), np.float32), "r": np.zeros((1, 4), np.float32), "b": np.array([3])}
    made = session([node("RoiAlign", "x r b", "y", sampling_ratio=1)], feeds, ["y"], {}, "WebGpuExecutionProvider")
    with pytest.raises(intarsia.InvalidArgument, match=r"\(RoiAlign\): an index is out of range"):
        made.run(None, feeds)


def test_determinants() -> None:
    matrices = np.stack([np.zeros((3, 3)), np.eye(3)[::-1], np.ones((3, 3)), *RNG.standard_normal((4, 3, 3))])
    check([node("Det", "x", "y")], {"x": matrices.astype(np.float32)}, ["y"])


def test_n_grams() -> None:
    how = {
        "max_gram_length": 2, "min_gram_length": 1, "max_skip_count": 2, "ngram_counts": [0, 4],
        "ngram_indexes": [0, 1, 2, 3, 4, 5, 6], "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
        "weights": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
    }  # fmt: skip
    nodes = [node("TfIdfVectorizer", "x", mode.lower(), mode=mode, **how) for mode in ("TF", "IDF", "TFIDF")]
    check(nodes, {"x": RNG.integers(0, 9, (3, 25))}, ["tf", "idf", "tfidf"])


def test_a_count_in_a_body_is_refused() -> None:
    from onnx import helper

    inner = [node("Compress", "x c", "y"), node("Shape", "y", "s"), node("Identity", "going", "on")]
    body = helper.make_graph(
        inner, "b", [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("going", 9, [])],
        [helper.make_tensor_value_info("on", 9, []), helper.make_tensor_value_info("s", 7, [1])],
    )  # fmt: skip
    feeds = {"x": np.ones(4, np.float32), "d": np.array([True, False, True, True])}
    loop = helper.make_node("Loop", ["n", ""], ["sizes"], body=body)
    with pytest.raises(intarsia.NotImplemented, match="the size of its output depends on the data"):
        session([node("Not", "d", "c"), loop], feeds, ["sizes"], {"n": np.array(2)}, "WebGpuExecutionProvider")
