"""Operators that are written out for devices, whole on WebGPU: what data choose, random numbers, transforms, regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import intarsia
from intarsia.device.webgpu import missing, open_device
from intarsia.ops.tensor import philox

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
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(d, v) for d, v in (("", 22), ("com.microsoft", 1), ("ai.onnx.ml", 4))],
        ir_version=10,
    )
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


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 5, 33])
def test_labels_of_numbers(count: int) -> None:
    """Keys in any order, one of them twice, and elements that are none of them."""
    keys = RNG.permutation(3 * count)[:count]
    given = {
        "keys_int64s": [*keys.tolist(), int(keys[0])],
        "values_floats": RNG.random(count + 1).tolist(),
        "default_float": -5.0,
    }
    check([node("LabelEncoder", "x", "y", domain="ai.onnx.ml", **given)], {"x": RNG.integers(-2, 3 * count, (7, 9))}, ["y"])


def test_labels_of_floats_with_nan() -> None:
    given = {"keys_floats": [0.5, float("nan"), -1.5, float("inf")], "values_int64s": [10, 20, 30, 40], "default_int64": -7}
    x = np.array([[0.5, np.nan, 3.0], [-np.inf, np.inf, -1.5]], np.float32)
    (found,) = check([node("LabelEncoder", "x", "y", domain="ai.onnx.ml", **given)], {"x": x}, ["y"])
    assert found.tolist() == [[10, 20, -7], [-7, 40, 30]]


def test_labels_in_tensors() -> None:
    from onnx import numpy_helper

    tables = {"keys_tensor": np.array([3, 1, 2], np.int32), "values_tensor": np.array([0.5, 1.5, 2.5])}
    given = {n: numpy_helper.from_array(a) for n, a in tables.items()}
    check([node("LabelEncoder", "x", "y", domain="ai.onnx.ml", **given)], {"x": np.arange(5, dtype=np.int32)}, ["y"])


def test_one_hot_of_numbers() -> None:
    x = np.array([[1.9, 3.0], [-2.0, 7.5]], np.float32)
    check([node("OneHotEncoder", "x", "y", domain="ai.onnx.ml", cats_int64s=[3, 1, 7, 1])], {"x": x}, ["y"])


@pytest.mark.parametrize("given", [{"cats_strings": ["a", "b"]}, {"cats_int64s": [1, 2], "zeros": 0}], ids=str)
def test_tables_with_strings_or_errors_are_refused(given: dict[str, Any]) -> None:
    x = np.zeros(3, np.int64) if "zeros" in given else np.array(["a"], object)
    with pytest.raises(intarsia.NotImplemented, match="WebGpuExecutionProvider: "):
        session([node("OneHotEncoder", "x", "y", domain="ai.onnx.ml", **given)], {"x": x}, ["y"], {}, "WebGpuExecutionProvider")


# --- matrices, optional values, drawn classes ---------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (2, 3, 3), (4, 17, 17)], ids=str)
def test_inverses(shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape).astype(np.float32) + 0.1 * np.eye(shape[-1], dtype=np.float32)
    x[..., 0, 0] = 0.0 if shape[-1] > 1 else 2.0  # a pivot has to be looked for
    check([node("Inverse", "x", "y", domain="com.microsoft")], {"x": x}, ["y"], tolerance=2e-4)


def test_a_tensor_is_an_optional_value_that_is_there() -> None:
    nodes = [node("OptionalHasElement", "x", "a"), node("OptionalHasElement", "", "b"), node("OptionalGetElement", "x", "c")]
    found = check(nodes, {"x": np.arange(3, dtype=np.float32)}, ["a", "b", "c"])
    assert found[0] and not found[1]


@pytest.mark.parametrize("dtype", [6, 7])
def test_drawn_classes_are_those_of_the_processor(dtype: int) -> None:
    x = RNG.standard_normal((5, 40)).astype(np.float32) * 3
    check([node("Multinomial", "x", "y", sample_size=70, seed=4.0, dtype=dtype)], {"x": x}, ["y"])


def test_every_run_draws_other_classes() -> None:
    made = session([node("Multinomial", "x", "y", sample_size=50)], {"x": np.zeros((2, 9), np.float32)}, ["y"], {},
                   "WebGpuExecutionProvider")  # fmt: skip
    first, second = (made.run(None, {"x": np.zeros((2, 9), np.float32)})[0] for _ in range(2))
    assert first.min() >= 0 and first.max() < 9 and (first != second).any()


# --- mixtures of experts ------------------------------------------------------------------------------------------------


def packed(rows: int, columns: int, bits: int, experts: int = 4) -> np.ndarray:
    return RNG.integers(0, 256, (experts, rows, columns * bits // 8), np.uint8)


@pytest.mark.parametrize("tokens", [1, 6], ids=["gathered", "all experts"])
@pytest.mark.parametrize(
    "given",
    [
        {}, {"k": 3, "normalize_routing_weights": 1, "activation_type": "silu"}, {"k": 2, "activation_type": "gelu"},
        {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0,
         "swiglu_limit": 0.7},
        {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 2}, {"k": 2, "activation_type": "relu2"},
        {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 2, "swiglu_limit": 0.7, "swiglu_limit_after_activation": 1},
        {"k": 2, "activation_type": "geglu", "swiglu_fusion": 1},
    ],
    ids=str,
)  # fmt: skip
def test_mixtures(given: dict[str, Any], tokens: int) -> None:
    inner = 24 if "swiglu_fusion" in given else 12
    x = RNG.standard_normal((1, tokens, 8)).astype(np.float32)
    logits = RNG.standard_normal((tokens, 4)).astype(np.float32)
    weights = {
        "a": RNG.standard_normal((4, inner, 8)), "b": RNG.standard_normal((4, inner)), "c": RNG.standard_normal((4, 8, 12)),
        "d": RNG.standard_normal((4, 8)),
    }  # fmt: skip
    constants = {n: a.astype(np.float32) for n, a in weights.items()}
    check([node("MoE", "x r a b c d", "y", domain="com.microsoft", **given)], {"x": x, "r": logits}, ["y"], **constants)


@pytest.mark.parametrize("tokens", [1, 6], ids=["gathered", "all experts"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_mixtures_of_packed_weights(bits: int, tokens: int) -> None:
    """A third matrix, zero points, and scales of blocks in the second one."""
    x = RNG.standard_normal((tokens, 32)).astype(np.float32)
    logits = RNG.standard_normal((tokens, 4)).astype(np.float32)
    constants = {
        "a": packed(16, 32, bits), "as": RNG.random((4, 16)) / 64, "b": packed(32, 16, bits),
        "bs": RNG.random((4, 32, 1)) / 64, "c": packed(16, 32, bits), "cs": RNG.random((4, 16, 2)) / 64,
        "cz": packed(16, 8 // bits * 2, bits),
    }  # fmt: skip
    constants = {n: a if a.dtype == np.uint8 else a.astype(np.float32) for n, a in constants.items()}
    made = node("QMoE", "x r a as _ b bs _ c cs _ _ _ cz", "y", domain="com.microsoft", k=2, activation_type="silu",
                expert_weight_bits=bits)  # fmt: skip
    check([made], {"x": x, "r": logits}, ["y"], **constants)
