"""Products, convolutions and attention through cuBLASLt's and cuDNN's interfaces: imitations compute what they are told.

The imitations take the same C types as the real libraries, check every descriptor, and compute on memory: a wrong leading
dimension, transposition, stride, epilogue or pointer gives a wrong number, or is refused. Compared with float64 NumPy.
"""

from __future__ import annotations

import dataclasses
import math

import ml_dtypes
import numpy as np
import pytest
from fake_cublaslt import FakeCublasLt
from fake_cudnn import FakeEngine, convolved
from hypothesis import given, settings
from hypothesis import strategies as st
from library_cuts import Offered, close, computed, drawn

from intarsia.codegen.clike import Cut
from intarsia.codegen.clike.vendor_libraries import select_calls
from intarsia.codegen.clike.vendor_libraries.strided_views import View, view_of
from intarsia.graph.dtypes import DType
from intarsia.ops.arithmetic import matmul
from intarsia.ops.framework.parameter_groups import flat
from intarsia.ops.nn import activation
from intarsia.ops.nn.conv import conv
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret

gemm, fused_matmul, conv_of = flat(matmul.gemm), flat(matmul.fused_matmul), flat(conv)  # with attributes by name
F, H, B, D, I8 = DType.FLOAT, DType.FLOAT16, DType.BFLOAT16, DType.DOUBLE, DType.INT8
ACTIVATIONS = {
    "": lambda x: x, "relu": lambda x: np.maximum(x, 0), "tanh": np.tanh,
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}  # fmt: skip
DEFINITIONS = {
    "": lambda x: x, "relu": activation.relu, "tanh": k.tanh, "gelu": activation.gelu,
    "gelu_tanh": lambda x: activation.gelu(x, approximate="tanh"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest product goes to a library, if it can."""
    monkeypatch.setattr(select_calls, "LEAST_FLOP", 0)
    monkeypatch.setattr(select_calls, "LEAST_INTENSITY", 0.0)


# --- views ------------------------------------------------------------------------------------------------------------


@st.composite
def viewed(draw: st.DrawFn) -> k.Tensor:
    t: k.Tensor = k.input(0, F, tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4))))
    for _ in range(draw(st.integers(0, 4))):
        sizes = [int(d) for d in t.shape]
        kind = draw(st.sampled_from(["reshape", "transpose", "slice", "broadcast"]))
        if kind == "reshape":
            rest, shape = math.prod(sizes), []
            while rest > 1 and len(shape) < 5:
                shape.append(draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0])))
                rest //= shape[-1]
            t = k.reshape(t, (*shape, rest))
        elif kind == "transpose":
            t = k.transpose(t, draw(st.permutations(range(t.rank))))
        elif kind == "slice":
            starts = [draw(st.integers(0, d - 1)) for d in sizes]
            steps = [draw(st.integers(1, 2)) for _ in sizes]
            t = k.strided_slice(t, starts, steps, [-(-(d - s) // p) for d, s, p in zip(sizes, starts, steps, strict=True)])
        elif t.rank < 5:
            t = k.broadcast(t, (draw(st.integers(1, 2)), *(d if d > 1 else draw(st.integers(1, 3)) for d in sizes)))
    return t


@given(viewed())
@settings(max_examples=200, deadline=None)
def test_strides_lead_to_the_elements_of_a_view(t: k.Tensor) -> None:
    found = view_of(t)
    if found is None:
        return
    leaf, view = found
    x = np.arange(math.prod(int(d) for d in leaf.shape), dtype=np.float32)
    (expected,) = interpret([t], [x.reshape(leaf.shape)])
    steps = tuple(4 * s for s in view.strides)
    np.testing.assert_array_equal(np.lib.stride_tricks.as_strided(x[view.offset :], view.shape, steps), expected)


def test_what_is_no_view() -> None:
    x = k.input("x", F, (4, 6))
    assert view_of(k.reshape(k.transpose(x, (1, 0)), (24,))) is None
    assert view_of(x * 2.0) is None
    assert view_of(k.cast(x, DType.INT32)) is None
    assert view_of(k.strided_slice(x, (3, 0), (-1, 1), (4, 6))) is None
    found = view_of(k.cast(k.input("h", H, (4, 6)), F))
    assert found is not None and found[1].dtype is H


@pytest.mark.parametrize(("offset", "expected"), [(0, 256), (64, 256), (8, 32), (1, 4)])
def test_alignment(offset: int, expected: int) -> None:
    assert View(F, (4,), (1,), offset).alignment == expected


# --- products ---------------------------------------------------------------------------------------------------------


@given(
    st.sampled_from([F, H, B, D]), st.lists(st.integers(1, 3), max_size=2), st.tuples(*[st.integers(1, 9)] * 3),
    st.sampled_from(["plain", "shared", "one"]), st.tuples(st.booleans(), st.booleans()), st.sampled_from([1.0, 0.5]),
    st.tuples(st.booleans(), st.booleans()), st.sampled_from(["", "relu", "gelu", "gelu_tanh"]), st.integers(0, 1 << 16),
)  # fmt: skip
@settings(max_examples=120, deadline=None)
def test_products(
    dtype: DType, batch: list[int], sizes: tuple[int, int, int], weights: str, turned: tuple[bool, bool], alpha: float,
    added: tuple[bool, bool], active: str, seed: int,
) -> None:  # fmt: skip
    m, n, depth = sizes
    shared = {"plain": batch, "shared": [], "one": [1] * len(batch)}[weights]
    x = drawn((*batch, depth, m) if turned[0] else (*batch, m, depth), dtype, seed)
    w = drawn((*shared, n, depth) if turned[1] else (*shared, depth, n), dtype, seed + 1)
    bias, addend = drawn((n,), dtype, seed + 2), drawn((*batch, m, n), dtype, seed + 3)
    arrays = {"x": x, "w": w, "bias": bias, "addend": addend}
    leaves = {name: k.input(name, dtype, a.shape) for name, a in arrays.items()}
    swap = [*range(len(batch)), len(batch) + 1, len(batch)]
    left = k.transpose(leaves["x"], swap) if turned[0] else leaves["x"]
    right = k.transpose(leaves["w"], [*range(w.ndim - 2), w.ndim - 1, w.ndim - 2]) if turned[1] else leaves["w"]
    root = matmul.matmul(left, right)
    wide = [a.astype(np.float64) for a in arrays.values()]
    expected = (wide[0].swapaxes(-1, -2) if turned[0] else wide[0]) @ (wide[1].swapaxes(-1, -2) if turned[1] else wide[1])
    if alpha != 1.0:
        root, expected = root * alpha, expected * alpha
    if added[0]:
        root, expected = root + k.broadcast(leaves["bias"], root.shape), expected + wide[2]
    if added[1]:
        root, expected = root + leaves["addend"], expected + wide[3]
    root, expected = DEFINITIONS[active](root), ACTIVATIONS[active](expected)
    found, jobs = computed(root, arrays, Offered())
    assert sum(job.kernel.call is not None for job in jobs) == 1
    close(found, expected, dtype, depth)


def test_an_epilogue_that_is_one_call() -> None:
    x, w, b, z = (k.input(n, H, s) for n, s in (("x", (6, 8)), ("w", (5, 8)), ("b", (5,)), ("z", (6, 5))))
    for root, activated in (
        (activation.relu(gemm(x, w, b, transB=1)), "relu"),
        (activation.fast_gelu(gemm(x, w, b, transB=1)), "gelu_tanh"),
        (gemm(x, w, z, transB=1), ""), (fused_matmul(x, w, transB=1, alpha=0.25), ""),
    ):  # fmt: skip
        arrays = {n: drawn(s, H, 1) for n, s in (("x", (6, 8)), ("w", (5, 8)), ("b", (5,)), ("z", (6, 5)))}
        _, (job,) = computed(root, arrays, Offered())
        assert job.kernel.call.activation == activated
        assert job.schedule == "product"


def test_heads_of_attention_are_products_of_a_batch() -> None:
    """Scores and values of several heads, with heads as neighbours of their elements: operands are stored where one stride
    does not lead from matrix to matrix."""
    batch, heads, length, size = 2, 3, 4, 5
    x, y = (drawn((batch, length, heads * size), F, seed) for seed in (1, 2))
    q, key = (k.transpose(k.reshape(k.input(n, F, x.shape), (batch, length, heads, size)), (0, 2, 1, 3)) for n in ("x", "y"))
    found, jobs = computed(k.dot(q, k.transpose(key, (0, 1, 3, 2))) / 4.0, {"x": x, "y": y}, Offered())
    a, b = (v.astype(np.float64).reshape(batch, length, heads, size).transpose(0, 2, 1, 3) for v in (x, y))
    close(found, a @ b.swapaxes(2, 3) / 4, F, size)
    assert [job.schedule for job in jobs] == ["map", "map", "product"]
    one = k.transpose(k.reshape(k.input("x", F, (1, length, heads * size)), (1, length, heads, size)), (0, 2, 1, 3))
    _, jobs = computed(k.dot(one, k.transpose(one, (0, 1, 3, 2))), {"x": x[:1]}, Offered())
    assert [job.schedule for job in jobs] == ["product"]


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5), st.booleans(), st.integers(0, 1 << 16))
@settings(max_examples=60, deadline=None)
def test_products_of_bytes(m: int, n: int, depth: int, turned: bool, seed: int) -> None:
    n, depth = 4 * n, 4 * depth
    draw = np.random.default_rng(seed)
    x = draw.integers(-128, 128, (m, depth)).astype(np.int8)
    w = draw.integers(-128, 128, (n, depth) if turned else (depth, n)).astype(np.int8)
    right = k.input("w", I8, w.shape)
    root = matmul.matmul_integer(k.input("x", I8, x.shape), k.transpose(right, (1, 0)) if turned else right)
    found, jobs = computed(root, {"x": x, "w": w}, Offered())
    np.testing.assert_array_equal(found, x.astype(np.int64) @ (w.T if turned else w).astype(np.int64))
    assert [job.schedule for job in jobs] == (["product"] if turned else ["map", "product"])


def test_bytes_that_matrix_units_do_not_take() -> None:
    x, w = np.ones((3, 6), np.int8), np.ones((6, 4), np.int8)
    root = matmul.matmul_integer(k.input("x", I8, x.shape), k.input("w", I8, w.shape))
    _, (job,) = computed(root, {"x": x, "w": w}, Offered())
    assert (job.schedule, job.choice.code) == ("product", "library-shape")


def test_tf32_is_used_where_it_is_allowed() -> None:
    x, w = drawn((8, 64), F, 1), drawn((64, 8), F, 2)
    root = k.dot(k.input("x", F, x.shape), k.input("w", F, w.shape))
    expected = x.astype(np.float64) @ w.astype(np.float64)
    errors = [np.abs(computed(root, {"x": x, "w": w}, Offered(tf32=t))[0] - expected).max() for t in (False, True)]
    assert errors[0] < 1e-5 < errors[1] < 1e-2


def test_what_the_library_declines_is_a_kernel_of_ours_behind_it() -> None:
    offered = Offered()
    offered.blas.refused = {6, 4}
    x, w, b = (drawn(s, F, 3) for s in ((5, 8), (8, 6), (6,)))
    root = activation.relu(matmul.matmul(k.input("x", F, x.shape), k.input("w", F, w.shape)) + k.input("b", F, b.shape))
    found, jobs = computed(root, {"x": x, "w": w, "b": b}, offered)
    close(found, np.maximum(x.astype(np.float64) @ w + b, 0), F, 8)
    assert [(j.schedule, j.kernel.call is not None) for j in jobs] == [("product", True), ("map", False)]
    offered.blas.refused = {1, 2, 4, 6}
    _, (job,) = computed(root, {"x": x, "w": w, "b": b}, offered)
    assert job.kernel.call is None
    assert (job.choice.library, job.choice.code) == ("cuBLASLt", "library-declined")
    assert "cuBLASLt has no algorithm for it: CUBLAS_STATUS_NOT_SUPPORTED" in job.choice.reason


def test_an_algorithm_that_the_workspace_allows() -> None:
    fake = FakeCublasLt()
    fake.workspace_nbytes = 64 << 20
    x, w = drawn((5, 8), F, 3), drawn((8, 6), F, 4)
    found, _ = computed(k.dot(k.input("x", F, x.shape), k.input("w", F, w.shape)), {"x": x, "w": w}, Offered(fake))
    close(found, x.astype(np.float64) @ w, F, 8)


# --- convolutions -----------------------------------------------------------------------------------------------------


@given(
    st.sampled_from([F, H, B]), st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.tuples(*[st.integers(1, 3)] * 2),
    st.integers(1, 2), st.integers(1, 2), st.tuples(*[st.integers(0, 2)] * 2), st.tuples(st.booleans(), st.booleans()),
    st.sampled_from(list(ACTIVATIONS)), st.booleans(), st.integers(0, 1 << 16),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_convolutions(
    dtype: DType, rank: int, batch: int, groups: int, channels: tuple[int, int], step: int, spread: int, pads: tuple[int, int],
    added: tuple[bool, bool], active: str, last: bool, seed: int,
) -> None:  # fmt: skip
    draw = np.random.default_rng(seed)
    sizes, kernel = draw.integers(5, 8, rank).tolist(), draw.integers(1, 4, rank).tolist()
    outputs = channels[1] + 2  # of a group: with two rows and less a kernel of ours is better
    x = drawn((batch, groups * channels[0], *sizes), dtype, seed)
    w = drawn((groups * outputs, channels[0], *kernel), dtype, seed + 1)
    low, high = [pads[0]] * rank, [pads[1]] * rank
    spans = [(n - 1) * spread + 1 for n in kernel]
    if any(n + sum(pads) < span for n, span in zip(sizes, spans, strict=True)):
        return
    bias = drawn((groups * outputs,), dtype, seed + 2)
    expected = convolved(x.astype(np.float64), w.astype(np.float64), [pads] * rank, [step] * rank, [spread] * rank)
    addend = drawn(expected.shape, dtype, seed + 3)
    arrays = {"x": x, "w": w, "bias": bias, "addend": addend}
    leaves = {name: k.input(name, dtype, a.shape) for name, a in arrays.items()}
    root = conv_of(
        leaves["x"], leaves["w"], leaves["bias"] if added[0] else None, group=groups, pads=low + high,
        strides=[step] * rank, dilations=[spread] * rank,
    )  # fmt: skip
    if added[0]:
        expected = expected + bias.astype(np.float64).reshape(-1, *[1] * rank)
    if added[1]:
        root, expected = root + leaves["addend"], expected + addend.astype(np.float64)
    root, expected = DEFINITIONS[active](root), ACTIVATIONS[active](expected)
    found, jobs = computed(root, arrays, Offered(last=last))
    schedules = [job.schedule for job in jobs]
    assert (
        schedules == ["convolution"]
        or last
        and schedules.count("convolution") == 1
        and set(schedules) <= {"map", "convolution"}
    )
    close(found, expected, dtype, channels[0] * math.prod(kernel))


def test_channels_stay_last_from_convolution_to_convolution() -> None:
    """With `prefer_nhwc`, only the first operand, weights and the last result are turned."""
    x, v, w = drawn((2, 4, 6, 6), H, 1), drawn((8, 4, 3, 3), H, 2), drawn((8, 8, 1, 1), H, 3)

    def block(cut: Cut) -> k.Tensor:
        made = activation.relu(conv_of(k.input("x", H, x.shape), k.input("v", H, v.shape), pads=[1, 1, 1, 1]))
        first = cut.store(cut.settle(made), turned=True)  # as every value is that is read twice
        return conv_of(first, k.input("w", H, w.shape)) + first

    found, jobs = computed(block, {"x": x, "v": v, "w": w}, Offered(last=True))
    wide = [a.astype(np.float64) for a in (x, v, w)]
    middle = np.maximum(convolved(wide[0], wide[1], [(1, 1)] * 2, [1, 1], [1, 1]), 0).astype(np.float16).astype(np.float64)
    close(found, convolved(middle, wide[2], [(0, 0)] * 2, [1, 1], [1, 1]) + middle, H, 36)
    schedules = [(job.schedule, job.kernel.call.addend is not None if job.kernel.call else None) for job in jobs]
    assert schedules.count(("map", None)) == 3  # x, the weights of nine places, the result
    assert [s for s in schedules if s[0] == "convolution"] == [("convolution", False), ("convolution", True)]


def test_a_bottleneck_is_a_call_for_each_convolution() -> None:
    """What the second one reads is stored as the operand of a product: a convolution by one element all the same."""
    x, v, w, b = drawn((1, 8, 6, 6), F, 1), drawn((4, 8, 3, 3), F, 2), drawn((8, 4, 1, 1), F, 3), drawn((8,), F, 4)
    first = activation.relu(conv_of(k.input("x", F, x.shape), k.input("v", F, v.shape), pads=[1, 1, 1, 1]))
    second = conv_of(first, k.input("w", F, w.shape), k.input("b", F, b.shape)) + k.input("x", F, x.shape)
    found, jobs = computed(activation.relu(second), {"x": x, "v": v, "w": w, "b": b}, Offered())
    assert [job.schedule for job in jobs] == ["convolution", "convolution"]
    middle = np.maximum(convolved(x.astype(np.float64), v.astype(np.float64), [(1, 1)] * 2, [1, 1], [1, 1]), 0)
    expected = convolved(middle, w.astype(np.float64), [(0, 0)] * 2, [1, 1], [1, 1]) + b.reshape(-1, 1, 1) + x
    close(found, np.maximum(expected, 0), F, 72)


def test_a_product_of_few_elements_and_many_terms_is_one_call() -> None:
    """Kernels of ours sum it in parts."""
    x, w = drawn((16, 4096), F, 1), drawn((4096, 16), F, 2)
    root = k.dot(k.input("x", F, x.shape), k.input("w", F, w.shape))
    found, jobs = computed(root, {"x": x, "w": w}, Offered())
    close(found, x.astype(np.float64) @ w, F, 4096)
    assert [job.kernel.call is not None for job in jobs] == [True]
    _, jobs = computed(root, {"x": x, "w": w}, Offered(absent=frozenset({"cuBLASLt"})))
    assert len(jobs) > 1
    assert {job.choice.code for job in jobs if job.choice} == {"library-missing"}


def test_a_ceiling() -> None:
    x, w = drawn((1, 4, 6, 6), F, 1) * 40, drawn((8, 4, 3, 3), F, 2)
    conv = conv_of(k.input("x", F, x.shape), k.input("w", F, w.shape))
    root = k.minimum(activation.relu(conv), 6.0)
    found, (job,) = computed(root, {"x": x, "w": w}, Offered())
    assert job.kernel.call.ceiling == 6.0
    expected = convolved(x.astype(np.float64), w.astype(np.float64), [(0, 0)] * 2, [1, 1], [1, 1])
    close(found, np.clip(expected, 0, 6), F, 36)


def test_a_graph_that_cudnn_does_not_know_loses_its_last_operations() -> None:
    offered = Offered()
    offered.dnn.knows = {"convolve", "convolve add"}
    x, w, b = drawn((1, 4, 6, 6), F, 1), drawn((8, 4, 3, 3), F, 2), drawn((8,), F, 3)
    root = activation.gelu(conv_of(*(k.input(n, F, a.shape) for n, a in (("x", x), ("w", w), ("b", b)))))
    found, jobs = computed(root, {"x": x, "w": w, "b": b}, offered)
    assert [job.schedule for job in jobs] == ["convolution", "map"]
    expected = convolved(x.astype(np.float64), w.astype(np.float64), [(0, 0)] * 2, [1, 1], [1, 1]) + b.reshape(-1, 1, 1)
    close(found, ACTIVATIONS["gelu"](expected), F, 36)
    offered.dnn.knows = set()
    _, (job,) = computed(root, {"x": x, "w": w, "b": b}, offered)
    assert (job.choice.library, job.choice.code, job.kernel.call) == ("cuDNN", "library-declined", None)


def test_engines_of_less_precision_are_left_out() -> None:
    offered = Offered()
    offered.dnn.engines = [FakeEngine(frozenset({0})), FakeEngine(frozenset({1}))]
    x, w = drawn((1, 4, 6, 6), F, 1), drawn((8, 4, 3, 3), F, 2)
    root = conv_of(k.input("x", F, x.shape), k.input("w", F, w.shape))
    _, (job,) = computed(root, {"x": x, "w": w}, offered)
    assert job.kernel.call is None
    assert "compute with less precision than is requested" in job.choice.reason


# --- the decision -----------------------------------------------------------------------------------------------------


def test_costs_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select_calls, "LEAST_FLOP", 1 << 23)
    monkeypatch.setattr(select_calls, "LEAST_INTENSITY", 8.0)

    def chosen(m: int, n: int, depth: int, **offered: object) -> object:
        from intarsia.codegen.clike import Cuda

        cut = Cut(Cuda(), libraries=Offered(**offered))  # type: ignore[arg-type]
        cut.store(k.dot(k.input("x", F, (m, depth)), k.input("w", F, (depth, n))), "y")
        (job,) = cut.jobs
        return job.choice

    assert dataclasses.astuple(chosen(512, 512, 512))[:2] == ("cuBLASLt", "library")
    assert "operations are less than a call's start is worth" in chosen(16, 16, 16).reason
    assert "memory bounds it: 0.5 operations a byte, fewer than 8" in chosen(1, 4096, 4096).reason
    gone = chosen(512, 512, 512, absent=frozenset({"cuBLASLt"}))
    assert gone.code == "library-missing"


def test_bfloat16_is_what_numpy_has() -> None:
    assert B.numpy == np.dtype(ml_dtypes.bfloat16)
