"""Products by tensor cores without any: the printed text runs on a processor, instructions of a warp by the PTX ISA's layouts.

What that does not prove: that the hardware agrees with those layouts, and how fast it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import cuda_emulation
import numpy as np
import pytest
from offline_kernels import compile_all, skip_where_missing

from intarsia.codegen.clike import Cuda, Cut
from intarsia.codegen.clike.products import tensor_cores
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret

emulated = pytest.mark.skipif(bool(cuda_emulation.missing()), reason=f"kernels cannot be emulated: {cuda_emulation.missing()}")
UNITS = Cuda(matrix_units=(DType.INT8, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT))
HALVES = (DType.FLOAT16, DType.BFLOAT16)
RNG = np.random.default_rng(0)


def plain(a: k.Tensor, b: k.Tensor) -> k.Tensor:
    return k.dot(a, b, DType.FLOAT)


def right_turned(a: k.Tensor, b: k.Tensor) -> k.Tensor:
    return k.dot(a, k.transpose(b, (1, 0)), DType.FLOAT)


def left_turned(a: k.Tensor, b: k.Tensor) -> k.Tensor:
    return k.dot(k.transpose(a, (1, 0)), b, DType.FLOAT)


def batched(a: k.Tensor, b: k.Tensor) -> k.Tensor:
    """The second operand serves all products; the result is stored in another order."""
    return k.transpose(k.maximum(k.dot(a, b, DType.FLOAT) * 0.5 - 1.0, 0.0), (1, 0, 2))


def convolution(x: k.Tensor, w: k.Tensor) -> k.Tensor:
    view = k.windows(k.pad(x, (0, 0, 1, 1), (0, 0, 1, 1), 0.0), (2, 3), (3, 3), (1, 1), (1, 1))
    columns = k.reshape(k.transpose(view, (0, 1, 4, 5, 2, 3)), (1, 27, 64))
    return k.dot(w, columns, DType.FLOAT)


CASES: dict[str, tuple[Callable[..., k.Tensor], tuple[int, ...], tuple[int, ...]]] = {
    "one tile": (plain, (64, 64), (64, 64)),
    "edges": (plain, (40, 72), (72, 48)),
    "four tiles": (plain, (130, 104), (104, 200)),
    "odd sizes": (plain, (33, 45), (45, 51)),
    "right one turned": (right_turned, (50, 40), (72, 40)),
    "left one turned": (left_turned, (40, 56), (40, 72)),
    "batch": (batched, (2, 40, 48), (48, 24)),
    "convolution": (convolution, (1, 3, 8, 8), (24, 27)),
}  # fmt: skip


def tree(name: str, dtype: DType) -> tuple[k.Tensor, dict[str, np.ndarray]]:
    function, *shapes = CASES[name]
    operands = {n: RNG.standard_normal(s).astype(dtype.numpy) for n, s in zip("ab", shapes, strict=True)}
    return function(*(k.input(n, dtype, a.shape) for n, a in operands.items())), operands


def exact(name: str, operands: dict[str, np.ndarray]) -> np.ndarray:
    """In float32, from the operands as they are."""
    wide = [a.astype(np.float32) for a in operands.values()]
    (found,) = interpret([CASES[name][0](*(k.input(i, DType.FLOAT, a.shape) for i, a in enumerate(wide)))], wide)
    return np.asarray(found)


@emulated
@pytest.mark.parametrize(
    ("name", "dtype"), [*((n, t) for n in CASES for t in (DType.FLOAT16, DType.FLOAT)), ("edges", DType.BFLOAT16)],
    ids=lambda x: x if isinstance(x, str) else x.onnx_name,
)  # fmt: skip
def test_products(name: str, dtype: DType) -> None:
    root, operands = tree(name, dtype)
    tolerance = 1e-3 if dtype is not DType.FLOAT else 2e-2  # factors of TF32 have 11 bits
    wanted = exact(name, operands)
    found, schedules = cuda_emulation.computed(UNITS, root, operands)
    assert schedules == ["tensor product"]
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@emulated
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.FLOAT], ids=lambda d: d.onnx_name)
def test_the_order_of_threads_does_not_matter(dtype: DType) -> None:
    root, operands = tree("four tiles", dtype)
    first, *others = (
        cuda_emulation.computed(UNITS, root, operands, backwards, eager)[0]
        for backwards, eager in itertools.product((False, True), repeat=2)
    )
    for other in others:
        np.testing.assert_array_equal(first, other)


@emulated
@pytest.mark.parametrize("stages", [2, 4])
def test_what_is_missing_shows_in_the_emulation(stages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait or the barrier that is taken out of the text changes the result, or one buffer less than are used: the emulation
    sees what a GPU would."""
    monkeypatch.setattr(tensor_cores, "stages_for", lambda dialect, nbytes, steps: stages)
    operands = {n: RNG.standard_normal(s).astype(np.float16) for n, s in (("a", (66, 232)), ("b", (232, 70)))}
    root = plain(*(k.input(n, DType.FLOAT16, a.shape) for n, a in operands.items()))
    wanted = operands["a"].astype(np.float32) @ operands["b"].astype(np.float32)
    cut = Cut(UNITS)
    cut.store(cut.settle(root), "y")
    (job,) = cut.jobs
    values = [cuda_emulation.aligned(a) for a in operands.values()]
    source = job.kernel.source
    broken = {
        "nothing": source,
        "wait": source.replace(f"copies_wait_but_{stages - 2}();", ""),
        "barrier": source.replace("__syncthreads();", ""),
        "buffers": source.replace(f"% {stages};", f"% {stages - 1};"),
    }
    for what, text in broken.items():
        assert what == "nothing" or text != source
        right = []
        for backwards, eager in itertools.product((False, True), repeat=2):
            out = cuda_emulation.aligned(np.zeros(wanted.shape, np.float32))
            cuda_emulation.launch(replace(job.kernel, source=text), [*values, out], backwards, eager)
            right.append(np.allclose(out, wanted, rtol=1e-3, atol=1e-2))
        assert all(right) == (what == "nothing"), what


@emulated
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.FLOAT], ids=lambda d: d.onnx_name)
@pytest.mark.parametrize("turned", [False, True])
def test_large_tiles(dtype: DType, turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four buffers of them are more than a text may declare: the launch says how much shared memory they need."""
    monkeypatch.setattr(tensor_cores, "tile_for", lambda dialect, batch, m, n: tensor_cores.LARGE)
    shapes = {"a": (150, 170), "b": (140, 170) if turned else (170, 140)}
    operands = {n: RNG.standard_normal(s).astype(dtype.numpy) for n, s in shapes.items()}
    root = (right_turned if turned else plain)(*(k.input(n, dtype, a.shape) for n, a in operands.items()))
    cut = Cut(UNITS)
    cut.store(cut.settle(root), "y")
    (job,) = cut.jobs
    assert 49152 < job.kernel.shared_nbytes <= 166912 // 2 and "extern __shared__" in job.kernel.source
    wide = {n: a.astype(np.float64) for n, a in operands.items()}
    found, _ = cuda_emulation.computed(UNITS, root, operands)
    bound = 1e-2 if dtype is not DType.FLOAT else 5e-2
    np.testing.assert_allclose(found, wide["a"] @ (wide["b"].T if turned else wide["b"]), rtol=bound, atol=bound)


@emulated
@pytest.mark.parametrize("types", [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8")])
@pytest.mark.parametrize("shapes", [((40, 96), (96, 48)), ((33, 45), (45, 51)), ((130, 200), (200, 100))])
def test_products_of_bytes(types: tuple[str, str], shapes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    """Sums of int32 are exact, whatever the signs and sizes."""
    operands = {
        n: RNG.integers(np.iinfo(t).min, np.iinfo(t).max + 1, s).astype(t) for n, t, s in zip("ab", types, shapes, strict=True)
    }
    leaves = [k.input(n, DType.of(a.dtype), a.shape) for n, a in operands.items()]
    wanted = operands["a"].astype(np.int64) @ operands["b"].astype(np.int64)
    for turned in (False, True):
        given = {**operands, "b": np.ascontiguousarray(operands["b"].T)} if turned else operands
        right = k.transpose(k.input("b", leaves[1].dtype, given["b"].shape), (1, 0)) if turned else leaves[1]
        found, schedules = cuda_emulation.computed(UNITS, k.dot(leaves[0], right, DType.INT32), given)
        assert schedules == ["tensor product"]
        np.testing.assert_array_equal(found, wanted)


def test_buffers_follow_from_what_a_device_has() -> None:
    """Two groups beside each other where that leaves three buffers or more; else one group with as many as it may have."""

    def stages(capability: int, nbytes: int, steps: int = 100) -> int:
        return tensor_cores.stages_for(Cuda(capability=capability), nbytes, steps)

    large, small = 20480, 10240
    assert [stages(c, large) for c in (80, 86, 90, 120)] == [4, 4, 4, 4]
    assert [stages(c, 2 * large) for c in (80, 86, 90)] == [4, 2, 4]
    assert stages(80, small) == 4 and stages(80, small, 2) == 3 and stages(80, small, 1) == 2
    for capability in (80, 86, 90):
        limits = Cuda(capability=capability).limits
        assert stages(capability, 2 * large) * 2 * large <= limits.group_nbytes


@emulated
def test_half_precision() -> None:
    """All numbers of float16 there and back, and what is rounded; the kernels' sums and stores use the same two functions."""
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    x = k.input("x", DType.FLOAT16, every.shape)
    found, _ = cuda_emulation.computed(UNITS, k.cast(x, DType.FLOAT) * 1.0, {"x": every})
    np.testing.assert_array_equal(found, every.astype(np.float32))
    numbers = np.concatenate([RNG.standard_normal(4000) * 10.0 ** RNG.integers(-9, 6, 4000), [65519.9, 65520, -1e9, np.inf]])
    wide = k.input("x", DType.FLOAT, numbers.shape)
    with np.errstate(over="ignore"):
        wanted = numbers.astype(np.float32).astype(np.float16)
    found, _ = cuda_emulation.computed(UNITS, k.cast(wide, DType.FLOAT16), {"x": numbers.astype(np.float32)})
    np.testing.assert_array_equal(found, wanted)


def test_compile() -> None:
    skip_where_missing("cuda")
    texts: dict[str, None] = {}
    for name in CASES:
        for dtype in (*HALVES, DType.FLOAT):
            cut = Cut(UNITS)
            cut.store(cut.settle(tree(name, dtype)[0]), "y")
            texts |= dict.fromkeys(job.kernel.source for job in cut.jobs)
    assert all("multiply_" in text for text in texts)
    compile_all("cuda", texts, (80, 90, 120))


def test_only_what_is_large_and_asked_for() -> None:
    def schedule(dialect: Cuda, m: int, n: int, terms: int, dtype: DType) -> str:
        cut = Cut(dialect)
        cut.store(cut.settle(k.dot(k.input("a", dtype, (m, terms)), k.input("b", dtype, (terms, n)), DType.FLOAT)), "y")
        return cut.jobs[0].schedule

    exact_only = Cuda(matrix_units=HALVES)
    assert schedule(exact_only, 64, 64, 64, DType.FLOAT16) == "tensor product"
    assert schedule(exact_only, 64, 64, 64, DType.FLOAT) == "product"
    assert schedule(UNITS, 64, 64, 64, DType.FLOAT) == "tensor product"
    assert schedule(UNITS, 8, 64, 64, DType.FLOAT16) == "product"
    assert schedule(Cuda(), 64, 64, 64, DType.FLOAT16) == "product"
