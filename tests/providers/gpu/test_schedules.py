"""Schedules on the devices that run here (a software Vulkan driver, OpenCL on the processor), beside NumPy's interpretation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from device_graphs import DEVICES, opened, planned, values_of, why_not

from intarsia.codegen.clike import GPU, PROCESSOR, Cut, Dialect, OpenCl, Tuning
from intarsia.codegen.clike.loop_steps import Write
from intarsia.device.gpu import Gpu
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret

RNG = np.random.default_rng(0)


@pytest.fixture(params=DEVICES)
def gpu(request: pytest.FixtureRequest) -> Gpu:
    if why := why_not(request.param):
        pytest.skip(f"no {request.param} device: {why}")
    return opened(request.param)


def tuned(gpu: Gpu, tuning: Tuning | None) -> Dialect:
    dialect = copy.copy(gpu.dialect)
    dialect.tuning = tuning or dialect.tuning
    return dialect


def check(
    gpu: Gpu, roots: Sequence[k.Tensor], *operands: np.ndarray, tolerance: float = 0.0, tuning: Tuning | None = None
) -> list[str]:
    """Compare with the interpreter; the schedules of the launches. `tuning`: another one than the device's."""
    plan = planned(gpu, roots, operands, tuned(gpu, tuning))
    for found, wanted in zip(values_of(plan, operands), interpret(roots, operands), strict=True):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)
    return [job.schedule for job in plan.jobs]


# --- sorting ----------------------------------------------------------------------------------------------------------

LINES = {
    "one run": ((5, 30), 1, np.float32), "many runs": ((3, 1000), 1, np.float32), "first axis": ((700, 3), 0, np.int32),
    "bytes": ((2, 257), 1, np.int8), "middle": ((2, 700, 2), 1, np.float16), "long": ((20000,), 0, np.int64),
    "booleans": ((2, 300), 1, np.bool_),
}  # fmt: skip


@pytest.mark.parametrize("descending", [False, True], ids=["up", "down"])
@pytest.mark.parametrize("name", LINES)
def test_sorting(gpu: Gpu, name: str, descending: bool) -> None:
    """Equal elements keep their order, NaN is behind all numbers (before them where it goes down)."""
    shape, axis, dtype = LINES[name]
    x = RNG.integers(0, 2, shape) if dtype is np.bool_ else RNG.integers(-50, 50, shape)
    x = x.astype(dtype)
    if x.dtype.kind == "f":
        x.reshape(-1)[::37] = np.nan
        x.reshape(-1)[5::41] = -0.0
    check(gpu, k.sort(k.input(0, DType.of(x.dtype), shape), axis, descending), x)


def test_values_and_places_are_made_by_one_sort() -> None:
    cut = Cut(OpenCl())
    values, places = (cut.settle(t) for t in k.sort(k.input("x", DType.FLOAT, (3, 1000)), 1))
    assert [job.schedule for job in cut.jobs] == ["sort"] * 5  # runs of 64, then 128, 256, 512 and all
    assert (values.attrs[0], places.attrs[0]) == cut.jobs[-1].writes


def test_what_was_written_since_is_sorted_again() -> None:
    cut = Cut(OpenCl())
    cut.stored["x"] = (DType.FLOAT, (8,))
    x = k.input("x", DType.FLOAT, (8,))
    first = cut.settle(k.sort(x, 0)[0])
    cut.launch_step([Write(x + 1.0, 8, in_place="x")], ["x"])  # type: ignore[arg-type]
    assert cut.settle(k.sort(x, 0)[0]).attrs != first.attrs


# --- products and attention -------------------------------------------------------------------------------------------


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def inputs(*operands: np.ndarray) -> list[k.Tensor]:
    return [k.input(i, DType.of(a.dtype), a.shape) for i, a in enumerate(operands)]


def softmax(x: k.Tensor) -> k.Tensor:
    powers = k.exp(x - k.reduce_max(x, [x.rank - 1], True))
    return powers / k.reduce_sum(powers, [x.rank - 1], True)


@pytest.mark.parametrize("shape", [(3, 1030, 5), (20, 4096, 40)], ids=str)
def test_products_of_few_elements_are_made_in_parts(gpu: Gpu, shape: tuple[int, int, int]) -> None:
    m, terms, n = shape
    a, b, c = random(m, terms), random(2, terms, n), random(n)
    x, y, z = inputs(a, b, c)
    found = check(gpu, [k.maximum(k.dot(x, y) + z, 0.0)], a, b, c, tolerance=1e-3, tuning=GPU)
    assert found == ["product", "map"]
    plain = replace(GPU, fill=0)
    assert check(gpu, [k.maximum(k.dot(x, y) + z, 0.0)], a, b, c, tolerance=1e-3, tuning=plain) == ["product"]


def test_parts_of_half_precision_are_summed_in_single(gpu: Gpu) -> None:
    a, b = random(4, 2048).astype(np.float16), random(2048, 8).astype(np.float16)
    x, y = inputs(a, b)
    plan = planned(gpu, [k.dot(x, y)], (a, b), tuned(gpu, GPU))
    assert len(plan.jobs) > 1
    (made,) = values_of(plan, (a, b))
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(made.astype(np.float64), wanted, rtol=1e-3, atol=2e-2)


ATTENTION = {
    "heads of 256": (1, 1, 20, 40, 256, 256, True),
    "no mask": (1, 2, 70, 90, 8, 8, False),
    "mask": (2, 3, 130, 33, 16, 32, True), "no vectors": (1, 2, 3, 40, 6, 8, True),
}  # fmt: skip


@pytest.mark.parametrize("tuning", [GPU, PROCESSOR], ids=["gpu", "processor"])
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_without_scores_in_memory(gpu: Gpu, name: str, tuning: Tuning) -> None:
    batch, heads, rows, keys, depth, size, masked = ATTENTION[name]
    operands = [random(batch, heads, rows, depth), random(batch, heads, keys, depth), random(batch, heads, keys, size)]
    if masked:
        operands.append(np.where(RNG.random((batch, 1, rows, keys)) < 0.3, -np.inf, 0).astype(np.float32))
    q, key, value, *mask = inputs(*operands)
    x = k.dot(q, k.transpose(key, (0, 1, 3, 2))) * 0.25
    root = k.dot(softmax(x + mask[0] if masked else x), value)
    found = check(gpu, [root], *operands, tolerance=1e-4, tuning=replace(tuning, scores_nbytes=0))
    assert found[0] == "attend"


def test_attention_of_projections(gpu: Gpu) -> None:
    """Queries, keys and values that are products themselves, as a model has them."""
    x, weights = random(1, 40, 16), [random(16, 16) / 4 for _ in range(3)]
    leaf, *given = inputs(x, *weights)

    def heads(w: k.Tensor) -> k.Tensor:
        return k.transpose(k.reshape(k.dot(leaf, w), (1, 40, 2, 8)), (0, 2, 1, 3))

    q, key, value = map(heads, given)
    root = k.dot(softmax(k.dot(q, k.transpose(key, (0, 1, 3, 2)))), value)
    found = check(gpu, [root], x, *weights, tolerance=1e-4, tuning=replace(PROCESSOR, scores_nbytes=0))
    assert found[:4] == ["product", "product", "product", "attend"]  # and a copy to where the result belongs


def test_several_matrices_times_one_are_one_product(gpu: Gpu) -> None:
    """As MatMul on channels-last images has them: weights are read for all rows together."""
    x, w, b = random(2, 7, 5, 24), random(24, 40), random(40)
    a, c, d = inputs(x, w, b)
    root = k.transpose(k.maximum(k.dot(a, c) + d, 0.0), (0, 3, 1, 2))
    plan = planned(gpu, [root], (x, w, b), tuned(gpu, PROCESSOR))
    (job,) = plan.jobs
    assert job.kernel.groups[2] == 1
    (found,) = values_of(plan, (x, w, b))
    np.testing.assert_allclose(found, np.maximum(x @ w + b, 0).transpose(0, 3, 1, 2), rtol=1e-4, atol=1e-4)


def test_a_sum_of_two_products_is_computed_with_the_second(gpu: Gpu) -> None:
    x, y, v, w = random(30, 24), random(24, 20), random(30, 28), random(28, 20)
    a, b, c, d = inputs(x, y, v, w)
    root = k.maximum(k.dot(a, b) + k.dot(c, d), 0.0)
    assert check(gpu, [root], x, y, v, w, tolerance=1e-4, tuning=PROCESSOR) == ["product", "product"]


@pytest.mark.parametrize("views", ["heads inside", "joined"])
def test_attention_of_views(gpu: Gpu, views: str) -> None:
    """Keys and values that do not lie in memory as vectors of one head, or of one memory, are gathered."""
    q, key, value = random(1, 2, 9, 8), random(1, 30, 2, 8), random(1, 2, 30, 8)
    a, b, c = inputs(q, key, value)
    keys = k.transpose(b, (0, 2, 1, 3))
    if views == "joined":
        parts = [k.strided_slice(t, [0, 0, s, 0], [1] * 4, (1, 2, 15, 8)) for t in (keys, c) for s in (15, 0)]
        keys, c = k.concat(parts[:2], 2), k.concat(parts[2:], 2)
    root = k.dot(softmax(k.dot(a, k.transpose(keys, (0, 1, 3, 2)))), c)
    assert check(gpu, [root], q, key, value, tolerance=1e-4, tuning=replace(GPU, scores_nbytes=0))[0] == "attend"


def test_more_rows_than_one_dimension_of_the_grid_has(gpu: Gpu) -> None:
    x = random(66000, 33)
    found = check(gpu, [k.reduce_sum(inputs(x)[0], [1])], x, tolerance=1e-4)
    assert found == ["rows"]


# --- four neighbours for each thread ----------------------------------------------------------------------------------


def half(*shape: int) -> np.ndarray:
    return random(*shape).astype(np.float16)


def channels(x: k.Tensor, bias: k.Tensor) -> k.Tensor:
    return x + k.expand_dims(bias, [1])


PLAIN: dict[str, tuple[Callable[..., k.Tensor], list[tuple[int, ...]]]] = {
    "two operands": (lambda a, b: a + b, [(64, 128), (64, 128)]),
    "a row": (lambda a, b: k.maximum(a + b, 0.0), [(64, 128), (128,)]),
    "a number for each row": (lambda a, b: a * k.expand_dims(b, [1]), [(4, 16, 128), (16,)]),
    "integers": (lambda a: k.cast(a * 10.0, DType.INT32) + 1, [(64, 128)]),
    "booleans": (lambda a, b: a < b, [(64, 128), (128,)]),
    "bytes": (lambda a: k.cast(a * 10.0, DType.UINT8), [(64, 128)]),
    "a part": (lambda a: k.strided_slice(a, [3, 4], [1, 1], (64, 128)) * 2.0, [(70, 136)]),
    "a part between vectors": (lambda a: k.strided_slice(a, [3, 3], [1, 1], (64, 128)) * 2.0, [(70, 136)]),
    "backwards": (lambda a: k.strided_slice(a, [0, 127], [1, -1], (64, 128)) * 2.0, [(64, 128)]),
    "counted": (lambda a: a + k.iota(a.shape, 1, DType.FLOAT), [(64, 128)]),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_vectors(gpu: Gpu, name: str) -> None:
    """Types that a device packs into words keep their schedule."""
    function, shapes = PLAIN[name]
    operands = [np.abs(random(*s)) for s in shapes]
    root = function(*inputs(*operands))
    packed = gpu.dialect.packed(root.dtype) > 1
    assert check(gpu, [root], *operands, tolerance=1e-6) == ["map" if packed else "lanes"]


def test_vectors_of_half_precision(gpu: Gpu) -> None:
    x = half(64, 128)
    x[0, :4] = [np.nan, np.inf, -np.inf, -0.0]
    check(gpu, [inputs(x)[0] * 0.5], x)


@pytest.mark.parametrize("name", ["transposed", "few", "odd"])
def test_no_vectors(gpu: Gpu, name: str) -> None:
    """Where each element would be read by itself, or the last axis has no vectors."""
    x = random(*{"few": (4, 8), "odd": (70, 127)}.get(name, (64, 128)))
    (t,) = inputs(x)
    root = (k.transpose(t, (1, 0)) if name == "transposed" else t) + 1.0
    assert check(gpu, [root], x, tolerance=1e-6) == ["map"]


def windows(x: k.Tensor, size: int, stride: int, pad: int, dilation: int) -> k.Tensor:
    """[n, c, h, w] as [n, c, out h, out w, size, size]."""
    padded = k.pad(x, (0, 0, pad, pad), (0, 0, pad, pad), 0.0)
    return k.windows(padded, (2, 3), (size, size), (stride, stride), (dilation, dilation))


WINDOWS = {
    "3": ((1, 8, 28, 28), 3, 1, 1, 1), "3 by 2": ((2, 8, 56, 56), 3, 2, 1, 1), "rows of 7": ((1, 128, 7, 7), 3, 1, 1, 1),
    "5, rows of 14": ((1, 32, 14, 14), 5, 1, 2, 1),
    "no padding": ((1, 8, 30, 31), 3, 1, 0, 1), "dilated": ((1, 8, 30, 30), 3, 1, 2, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
def test_depthwise_convolutions(gpu: Gpu, name: str) -> None:
    shape, size, stride, pad, dilation = WINDOWS[name]
    x, w, b = random(*shape), random(shape[1], 1, size * size), random(shape[1])
    tx, tw, tb = inputs(x, w, b)
    view = windows(tx, size, stride, pad, dilation)
    n, c, height, width = view.shape[:4]
    columns = k.reshape(k.transpose(view, (0, 1, 4, 5, 2, 3)), (n, c, size * size, height * width))
    sums = k.reshape(k.dot(tw, columns), (n, c, height, width))
    root = k.maximum(sums + k.reshape(tb, (c, 1, 1)), 0.0)
    assert check(gpu, [root], x, w, b, tolerance=1e-4) == ["lanes"]


def test_depthwise_convolutions_of_models(gpu: Gpu) -> None:
    """As the operator defines them: a multiplier, groups and a bias."""
    from onnx import helper

    import intarsia

    x, w, b = random(1, 16, 30, 30), random(32, 1, 3, 3), random(32)
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], group=16, pads=[1, 1, 1, 1])
    feeds = {"x": x, "w": w, "b": b}
    values = [helper.make_tensor_value_info(n, 1, a.shape) for n, a in feeds.items()]
    graph = helper.make_graph([node], "g", values, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    provider = {"webgpu": "WebGpuExecutionProvider", "opencl": "OpenCLExecutionProvider"}[gpu.device.kind]
    found, wanted = (
        intarsia.InferenceSession(model, providers=[p]).run(None, feeds)[0] for p in (provider, "CPUExecutionProvider")
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [2, 3])
def test_pooling(gpu: Gpu, size: int) -> None:
    x = random(1, 16, 33, 33)
    view = windows(inputs(x)[0], size, 2, 0, 1)
    found = check(gpu, [k.reduce_max(view, [4, 5]), k.reduce_sum(view, [4, 5]) * 0.25], x, tolerance=1e-5)
    assert found == ["lanes", "lanes"]


# --- rows -------------------------------------------------------------------------------------------------------------

ROWS: dict[str, tuple[tuple[int, ...], int]] = {
    "last axis": ((70, 100), 1), "middle axis": ((3, 40, 5), 1), "too long to be kept": ((3, 5000), 1),
    "first axis": ((70, 9), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_softmax_computes_powers_once(gpu: Gpu, name: str) -> None:
    shape, axis = ROWS[name]
    x = random(*shape)
    (t,) = inputs(x)
    powers = k.exp(t - k.reduce_max(t, [axis], True))
    plan = planned(gpu, [powers / k.reduce_sum(powers, [axis], True)], (x,))
    assert [job.schedule for job in plan.jobs] == ["rows"]
    assert plan.jobs[0].kernel.source.count("exp(") == (2 if name == "too long to be kept" else 1)
    wanted = np.exp(x - x.max(axis, keepdims=True))
    np.testing.assert_allclose(values_of(plan, (x,))[0], wanted / wanted.sum(axis, keepdims=True), rtol=1e-4, atol=1e-6)


def test_rows_whose_parts_depend_on_each_other(gpu: Gpu) -> None:
    x = random(33, 96)
    (t,) = inputs(x)
    powers = k.exp(t - k.reduce_max(t, [1], True))
    shifted = powers - k.reduce_mean(powers, [1], True)
    root = shifted / k.sqrt(k.reduce_mean(shifted * shifted, [1], True) + 1e-5) + k.log(k.reduce_sum(powers, [1], True))
    assert check(gpu, [root], x, tolerance=1e-4) == ["rows"]
