"""Schedules on the devices that run here (a software Vulkan driver, OpenCL on the processor), beside NumPy's interpretation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from device_graphs import DEVICES, opened, planned, values_of, why_not

from intarsia.device.gpu import Gpu
from intarsia.graph.dtypes import DType
from intarsia.kernel import lang as k
from intarsia.kernel.interpret import interpret

RNG = np.random.default_rng(0)


@pytest.fixture(params=DEVICES)
def gpu(request: pytest.FixtureRequest) -> Gpu:
    if why := why_not(request.param):
        pytest.skip(f"no {request.param} device: {why}")
    return opened(request.param)


def check(gpu: Gpu, roots: Sequence[k.Tensor], *operands: np.ndarray, tolerance: float = 0.0) -> list[str]:
    """Compare with the interpreter; the schedules of the launches."""
    plan = planned(gpu, roots, operands)
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
    from intarsia.codegen.clike import Cut, OpenCl

    cut = Cut(OpenCl())
    values, places = (cut.settle(t) for t in k.sort(k.input("x", DType.FLOAT, (3, 1000)), 1))
    assert [job.schedule for job in cut.jobs] == ["sort"] * 5  # runs of 64, then 128, 256, 512 and all
    assert (values.attrs[0], places.attrs[0]) == cut.jobs[-1].writes


def test_what_was_written_since_is_sorted_again() -> None:
    from intarsia.codegen.clike import Cut, OpenCl
    from intarsia.codegen.clike.steps import Write

    cut = Cut(OpenCl())
    cut.stored["x"] = (DType.FLOAT, (8,))
    x = k.input("x", DType.FLOAT, (8,))
    first = cut.settle(k.sort(x, 0)[0])
    cut.launch_step([Write(x + 1.0, 8, in_place="x")], ["x"])  # type: ignore[arg-type]
    assert cut.settle(k.sort(x, 0)[0]).attrs != first.attrs
