"""3 x 3 convolutions by minimal filtering on the devices that run here, beside float64's direct sums."""

from __future__ import annotations

import copy
import gc
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
import onnx.parser
import pytest
from device_graphs import DEVICES, opened, planned, values_of, why_not

import intarsia
from intarsia.codegen.clike import GPU, PROCESSOR, Cut, Dialect, OpenCl, Tuning
from intarsia.codegen.clike.dialects.dialect import Rates
from intarsia.codegen.clike.products import winograd
from intarsia.codegen.clike.vendor_libraries.select_calls import window_of
from intarsia.device.gpu import Gpu
from intarsia.graph.dtypes import DType
from intarsia.ops.nn.conv import convolve
from intarsia.ops.nn.sliding_windows import Windows
from intarsia.primitives import lang as k

RNG = np.random.default_rng(0)
ALWAYS = Rates(gather=0, element=0, launch=-1e12)  # launches that give time back
FAILS = {2: 4e-6, 4: 3e-5}
"""The largest difference from float64's sums, relative to the largest sum, that is taken for rounding: direct sums of as many
terms in float32 reach 1e-6."""
SHAPES = {  # n, channels, height, width, filters, (low, high) padding of lines and columns
    "whole tiles": (1, 8, 16, 16, 12, ((1, 1), (1, 1))), "batch, odd sizes": (3, 5, 9, 11, 7, ((1, 1), (1, 1))),
    "no padding": (2, 4, 7, 10, 8, ((0, 0), (0, 0))), "one side": (1, 3, 6, 9, 4, ((2, 0), (0, 1))),
    "one tile": (1, 4, 3, 3, 4, ((0, 0), (0, 0))), "wide padding": (1, 2, 5, 4, 3, ((3, 4), (5, 2))),
}  # fmt: skip


@pytest.fixture(params=DEVICES)
def gpu(request: pytest.FixtureRequest) -> Gpu:
    if why := why_not(request.param):
        pytest.skip(f"no {request.param} device: {why}")
    return opened(request.param)


def tuned(gpu: Gpu, tuning: Tuning, rates: Rates | None = ALWAYS) -> Dialect:
    dialect = copy.copy(gpu.dialect)
    dialect.tuning = replace(tuning, filtering=rates)
    return dialect


def convolution(x: k.Tensor, w: k.Tensor, pads: Sequence[tuple[int, int]]) -> k.Tensor:
    low, high = zip(*pads, strict=True)
    out = tuple(int(d) + a + b - 2 for d, (a, b) in zip(x.shape[2:], pads, strict=True))  # type: ignore[arg-type]
    return convolve(x, w, 1, Windows((3, 3), (1, 1), (1, 1), low, high, out))


def exact(x: np.ndarray, w: np.ndarray, pads: Sequence[tuple[int, int]]) -> np.ndarray:
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *pads))
    view = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.einsum("nchwij,mcij->nmhw", view, w.astype(np.float64))


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def leaves(*operands: np.ndarray) -> list[k.Tensor]:
    return [k.input(i, DType.of(a.dtype), a.shape) for i, a in enumerate(operands)]


@pytest.mark.parametrize("outputs", [2, 4])
@pytest.mark.parametrize("tuning", [GPU, PROCESSOR], ids=["gpu", "processor"])
@pytest.mark.parametrize("name", SHAPES)
def test_convolutions(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, name: str, tuning: Tuning, outputs: int) -> None:
    """With a bias, a residual sum and an activation behind them, in the same launch."""
    monkeypatch.setattr(winograd, "OUTPUTS", (outputs,))
    n, channels, height, width, filters, pads = SHAPES[name]
    x, w = random(n, channels, height, width), random(filters, channels, 3, 3)
    wanted = exact(x, w, pads)
    bias, added = random(filters), random(*wanted.shape)
    a, b, c, d = leaves(x, w, bias, added)
    root = k.maximum(convolution(a, b, pads) + k.expand_dims(c, [1, 2]) + d, 0.0)
    plan = planned(gpu, [root], (x, w, bias, added), tuned(gpu, tuning), weights=[1])
    assert [job.schedule for job in plan.jobs] == [f"winograd{outputs} input", "product", f"winograd{outputs}"]
    (made,) = values_of(plan, (x, w, bias, added))
    difference = np.abs(made - np.maximum(wanted + bias[:, None, None] + added, 0)).max()
    assert difference <= FAILS[outputs] * np.abs(wanted).max()


def test_many_channels_stay_within_the_bound(gpu: Gpu) -> None:
    x, w = random(1, 512, 8, 8), random(16, 512, 3, 3)
    a, b = leaves(x, w)
    plan = planned(gpu, [convolution(a, b, ((1, 1), (1, 1)))], (x, w), tuned(gpu, PROCESSOR), weights=[1])
    (made,) = values_of(plan, (x, w))
    wanted = exact(x, w, ((1, 1), (1, 1)))
    assert plan.jobs[-1].schedule.startswith("winograd")
    assert np.abs(made - wanted).max() <= FAILS[4] * np.abs(wanted).max()


def test_what_is_read_and_written_by_other_kernels(gpu: Gpu) -> None:
    """Its input is computed where it is read, its output goes to memory in another order, of another type."""
    x, w = random(1, 6, 8, 12), random(5, 6, 3, 3)
    a, b = leaves(x, w)
    root = k.cast(k.transpose(convolution(k.neg(a), b, ((1, 1), (1, 1))), (0, 2, 3, 1)), DType.FLOAT16)
    plan = planned(gpu, [root], (x, w), tuned(gpu, PROCESSOR), weights=[1])
    (made,) = values_of(plan, (x, w))
    assert any(job.schedule.startswith("winograd") for job in plan.jobs)
    wanted = exact(-x, w, ((1, 1), (1, 1))).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(made.astype(np.float64), wanted, rtol=2e-3, atol=2e-2)


# --- which are chosen -------------------------------------------------------------------------------------------------


def schedules(root: k.Tensor, rates: Rates | None = ALWAYS, weights: Sequence[str] = ("w",)) -> list[str]:
    dialect = OpenCl()
    dialect.tuning = replace(dialect.tuning, filtering=rates)
    cut = Cut(dialect, weights=weights)
    cut.store(cut.settle(root), "y")
    return [job.schedule for job in cut.jobs]


def small(stride: int = 1, dilation: int = 1, group: int = 1, dtype: DType = DType.FLOAT, size: int = 3) -> k.Tensor:
    x, w = k.input("x", dtype, (1, 4, 12, 12)), k.input("w", dtype, (4, 4 // group, size, size))
    out = (12 - dilation * (size - 1) - 1) // stride + 1
    return convolve(x, w, group, Windows((size,) * 2, (stride,) * 2, (dilation,) * 2, (0, 0), (0, 0), (out, out)))


@pytest.mark.parametrize(
    "given", [{"stride": 2}, {"dilation": 2}, {"group": 2}, {"dtype": DType.FLOAT16}, {"dtype": DType.DOUBLE}, {"size": 5}],
    ids=str,
)  # fmt: skip
def test_other_convolutions_are_summed_directly(given: dict[str, int]) -> None:
    assert any("winograd" in s for s in schedules(small()))
    assert not any("winograd" in s for s in schedules(small(**given)))  # type: ignore[arg-type]


def test_filters_that_a_run_computes_and_devices_without() -> None:
    assert not any("winograd" in s for s in schedules(small(), weights=()))
    assert not any("winograd" in s for s in schedules(small(), rates=None))


def test_the_estimate_weighs_transforms_against_multiplications() -> None:
    """On a GPU few channels are summed directly; few pixels of many filters go by tiles of 2: less memory for filters."""

    def outputs(channels: int, side: int, batch: int = 1) -> int:
        x, w = k.input("x", DType.FLOAT, (batch, channels, side, side)), k.input("w", DType.FLOAT, (channels, channels, 3, 3))
        cut = Cut(OpenCl(), weights=["w"])
        dot = next(t for t in k.walk([convolution(x, w, ((1, 1), (1, 1)))]) if t.prim == "dot")
        assert window_of(dot, dot) is not None
        found = winograd.chosen(cut, dot)
        return 0 if found is None else found.outputs

    assert outputs(4, 56) == 0
    assert outputs(64, 56) == 4
    assert outputs(512, 7) == 2
    assert outputs(512, 7, batch=32) == 4


# --- in sessions ------------------------------------------------------------------------------------------------------

on_webgpu = pytest.mark.skipif(bool(why_not("webgpu")), reason=f"no webgpu device: {why_not('webgpu')}")


def model(w: np.ndarray) -> bytes:
    made = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 20]>
        g (float[n, 32, 24, 24] x) => (float[n, 32, 24, 24] y) {
            a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w)
            b = Relu (a)
            c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (b, w)
            y = Add (c, x)
        }"""
    )
    made.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    return made.SerializeToString()


def session(data: bytes, forbidden: bool = False) -> intarsia.InferenceSession:
    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_session_config_entry("session.disable_winograd", str(int(forbidden)))
    return intarsia.InferenceSession(data, options, providers=["WebGpuExecutionProvider"])


def plans(made: intarsia.InferenceSession) -> str:
    return "\n".join(p.describe("plan") for p in made._model.programs)  # type: ignore[attr-defined]


@on_webgpu
def test_a_session_prepares_filters_once() -> None:
    """Two convolutions by one weight, several batches, and a second session that finds its plan on disk."""
    w = random(32, 32, 3, 3) / 17
    data, allocated = model(w), []
    gpu = opened("webgpu")
    for _ in range(2):
        made = session(data)
        for batch in (1, 2):
            x = random(batch, 32, 24, 24)
            (found,) = made.run(None, {"x": x})
            inner = np.maximum(exact(x, w, ((1, 1), (1, 1))), 0).astype(np.float32)
            wanted = exact(inner, w, ((1, 1), (1, 1))) + x
            assert np.abs(found - wanted).max() <= FAILS[4] * np.abs(wanted).max()
            allocated.append(gpu.holders().get("weights", 0))
        assert "winograd4" in plans(made)
        del made
        gc.collect()
    assert allocated[0] == allocated[1] and allocated[2] == allocated[3]


@on_webgpu
def test_a_session_without() -> None:
    w, x = random(32, 32, 3, 3) / 17, random(1, 32, 24, 24)
    made = session(model(w), forbidden=True)
    made.run(None, {"x": x})
    assert "winograd" not in plans(made)
