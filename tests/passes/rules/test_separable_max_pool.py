"""Large maxima are taken along one axis after the other."""

from itertools import product

import numpy as np
import pytest
from pass_models import build, counts

import intarsia
from intarsia.errors import IntarsiaError
from intarsia.graph.load import load
from intarsia.passes.optimizer import optimize


def optimized(model):
    return optimize(load(model)).graph


def largest(x, how):
    """By a loop over the elements of a window, of two spatial axes; ONNX's reference leaves out windows and NaN."""
    kernel, pads = how["kernel_shape"], how.get("pads", [0, 0, 0, 0])
    strides, dilations = how.get("strides", [1, 1]), how.get("dilations", [1, 1])
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    free = [x.shape[2 + n] + pads[n] + pads[2 + n] - spans[n] for n in range(2)]
    sizes = [(-(-f // s) if how.get("ceil_mode") else f // s) + 1 for f, s in zip(free, strides, strict=True)]
    wide = np.pad(x, [(0, 0), (0, 0), *((pads[n], pads[2 + n] + strides[n]) for n in range(2))], constant_values=-np.inf)
    out = np.full((*x.shape[:2], *sizes), -np.inf, x.dtype)
    for i, j in product(*map(range, kernel)):
        top, left = i * dilations[0], j * dilations[1]
        part = wide[:, :, top : top + sizes[0] * strides[0] : strides[0], left : left + sizes[1] * strides[1] : strides[1]]
        out = np.maximum(out, part[:, :, : sizes[0], : sizes[1]])
    return out


@pytest.mark.parametrize(
    "how",
    [
        {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2]},
        {"kernel_shape": [7, 6], "strides": [1, 2], "pads": [3, 0, 1, 5], "ceil_mode": 1},
        {"kernel_shape": [13, 13], "pads": [6, 6, 6, 6], "dilations": [1, 1]},
        {"kernel_shape": [6, 5], "dilations": [2, 3], "pads": [1, 4, 4, 2]},
    ],
)
@pytest.mark.parametrize("shape", [["n", 3, 31, 37], ["n", 3, "h", "w"]])
def test_large_windows(how, shape):
    model = build([("MaxPool", "x", "y", how)], {"x": shape}, ["y"])
    graph = optimized(model)
    assert counts(graph)["MaxPool"] == 2
    assert all(min(node.attributes["kernel_shape"]) == 1 for node in graph.nodes)
    x = np.random.default_rng(5).standard_normal((2, 3, 31, 37)).astype(np.float32)
    (got,) = intarsia.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(got, largest(x, how))


@pytest.mark.parametrize("kernel", [[-2, 0], [-2, -3], [0, 5]])
@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_windows_of_no_elements(kernel, provider):
    """Taken apart again and again, since a product of negative sizes is never worth it."""
    how = {"kernel_shape": kernel, "pads": [2, 2, 2, 2]}
    model = build([("MaxPool", "x", "y", how)], {"x": None}, ["y"])
    assert counts(optimized(model))["MaxPool"] == 1
    session = intarsia.InferenceSession(model.SerializeToString(), providers=[provider])
    with pytest.raises(IntarsiaError, match="kernel_shape must be at least 1"):
        session.run(None, {"x": np.ones((1, 1, 5, 5), np.float32)})


def test_windows_of_three_axes():
    how = {"kernel_shape": [3, 4, 3], "pads": [1, 0, 2, 1, 1, 2]}
    model = build([("MaxPool", "x", "y", how)], {"x": [1, 2, 9, 8, 7]}, ["y"])
    assert counts(optimized(model))["MaxPool"] == 3
    x = np.random.default_rng(6).standard_normal((1, 2, 9, 8, 7)).astype(np.float32)
    (got,) = intarsia.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 1), (2, 2)), constant_values=-np.inf)
    np.testing.assert_array_equal(got, np.lib.stride_tricks.sliding_window_view(wide, (3, 4, 3), (2, 3, 4)).max((5, 6, 7)))


@pytest.mark.parametrize(
    "how",
    [{"kernel_shape": [3, 3]}, {"kernel_shape": [2, 2], "strides": [2, 2]}, {"kernel_shape": [25]}, {"kernel_shape": [9, 1]}],
)
def test_small_windows_stay(how):
    shape = [1, 3, 30, 30][: 2 + len(how["kernel_shape"])]
    assert counts(optimized(build([("MaxPool", "x", "y", how)], {"x": shape}, ["y"])))["MaxPool"] == 1


def test_places_are_of_the_whole_window():
    model = build([("MaxPool", "x", "y places", {"kernel_shape": [6, 6]})], {"x": [1, 2, 9, 9]}, ["y", "places"])
    assert counts(optimized(model))["MaxPool"] == 1


def test_a_missing_number_is_in_every_window_around_it():
    x = np.random.default_rng(2).standard_normal((1, 1, 12, 12)).astype(np.float32)
    x[0, 0, 4, 7] = np.nan
    model = build([("MaxPool", "x", "y", {"kernel_shape": [5, 5]})], {"x": [1, 1, 12, 12]}, ["y"])
    (got,) = intarsia.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(got, largest(x, {"kernel_shape": [5, 5]}))


def test_a_window_without_axes_is_the_models_error():
    model = build([("MaxPool", "x", "y", {"kernel_shape": [2, 2]})], {"x": None}, ["y"])
    del model.graph.node[0].attribute[0].ints[:]
    session = intarsia.InferenceSession(model.SerializeToString())
    with pytest.raises(IntarsiaError, match="kernel_shape has 0 sizes; the input has 2 spatial axes"):
        session.run(None, {"x": np.ones((1, 1, 4, 4), np.float32)})
