"""Schedules as CUDA C has them, run on a processor (cuda_emulation): what warps exchange, guarded reads, columns."""

from __future__ import annotations

import cuda_emulation
import numpy as np
import pytest

from intarsia.codegen.clike import Cuda, Cut, Wgsl
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret

F = DType.FLOAT
pytestmark = pytest.mark.skipif(
    bool(cuda_emulation.missing()), reason=f"kernels cannot be emulated: {cuda_emulation.missing()}"
)


def softmax(shape: tuple[int, ...]) -> k.Tensor:
    x = k.input("x", F, shape)
    powers = k.exp(x - k.reduce_max(x, [1], True))
    return powers / k.reduce_sum(powers, [1], True)


def largest_of_windows(shape: tuple[int, ...]) -> k.Tensor:
    padded = k.pad(k.input("x", F, shape), (0, 0, 1, 1), (0, 0, 1, 1), float("-inf"))
    return k.reduce_max(k.windows(padded, (2, 3), (3, 3), (2, 2), (1, 1)), [4, 5])


CASES: dict[str, tuple[k.Tensor, tuple[str, ...]]] = {
    "a warp for each of many rows": (softmax((1030, 100)), ("rows",)),
    "a group for each row": (softmax((3, 700)), ("rows",)),
    "any": (k.reduce(k.input("x", F, (1025, 40)) > 1.5, "any", [1]), ("rows",)),
    "integers of 64 bits": (k.reduce_sum(k.cast(k.input("x", F, (4, 300)) * 9.0, DType.INT64), [1]), ("rows",)),
    "windows with edges": (largest_of_windows((2, 16, 34, 46)), ("lanes",)),
    "padded": (k.pad(k.input("x", F, (5, 6)), (1, 2), (0, 3), 7.0), ("map",)),
    "few columns": (k.reduce_sum(k.input("x", F, (8192, 40)), [0]) * 2.0, ("map", "map")),
    "few columns of images": (k.reduce_max(k.input("x", F, (3, 2048, 36)), [1]), ("map", "map")),
    "many columns": (k.reduce_sum(k.input("x", F, (33, 4100)), [0], True), ("map",)),
    "columns of rows and planes": (k.reduce_sum(k.input("x", F, (4096, 4, 33)), [0, 1]), ("map", "map")),
    "too few columns": (k.reduce_sum(k.input("x", F, (64, 36)), [0]), ("rows",)),
    "neighbours": (k.reduce_sum(k.input("x", F, (40, 2048)), [1]), ("rows",)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_schedules(name: str) -> None:
    root, schedules = CASES[name]
    shape = next(tuple(map(int, t.shape)) for t in k.walk([root]) if t.prim == "input")
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    found, used = cuda_emulation.computed(Cuda(), root, {"x": x})
    wide = substituted(root)
    (expected,) = interpret([wide], [x])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-4)
    assert tuple(used) == schedules


def substituted(root: k.Tensor) -> k.Tensor:
    from intarsia.primitives.substitute import substitute

    (found,) = substitute([root], lambda t: k.Tensor("input", (), (0,), t.dtype, t.shape))
    return found


def test_nan_is_the_largest_and_the_smallest() -> None:
    x = np.array([[1.0, np.nan, 3.0, -1.0], [1.0, 2.0, 3.0, -1.0]] * 600, np.float32)
    leaf = k.input("x", F, x.shape)
    for root in (k.reduce_max(leaf, [1]), k.minimum(leaf, 0.0)):
        found, _ = cuda_emulation.computed(Cuda(), root, {"x": x})
        (expected,) = interpret([substituted(root)], [x])
        np.testing.assert_array_equal(found, expected)


def test_a_gpu_without_the_instruction_compares() -> None:
    """Compute capability 7.5 knows no max.NaN."""
    cut = Cut(Cuda(capability=75))
    cut.store(cut.settle(k.maximum(k.input("x", F, (4, 8)), 0.0)), "y")
    (job,) = cut.jobs
    assert "max.NaN" not in job.kernel.source and "__float_as_uint" in job.kernel.source


def test_languages_whose_choices_evaluate_both_read_in_range() -> None:
    cut = Cut(Wgsl())
    cut.store(cut.settle(k.pad(k.input("x", F, (5, 6)), (1, 2), (0, 3), 7.0)), "y")
    (job,) = cut.jobs
    assert ">= 0 &&" in job.kernel.source
