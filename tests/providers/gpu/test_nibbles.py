"""Numbers of four and of two bits on devices: several in a byte of memory, unpacked where they are read."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from device_graphs import DEVICES, opened, planned, values_of, why_not
from onnx import TensorProto, helper

import intarsia
from intarsia.codegen.clike import Cuda, Cut
from intarsia.codegen.clike.storage_types import SEVERAL_IN_A_BYTE
from intarsia.device.gpu import Gpu, GpuTransfer
from intarsia.graph.dtypes import DType
from intarsia.ops.tensor.quantize import Rounding, dequantize_linear, quantize_linear
from intarsia.primitives import lang as k

RNG = np.random.default_rng(0)
PROVIDERS = {"webgpu": "WebGpuExecutionProvider", "opencl": "OpenCLExecutionProvider"}
TYPES = sorted(SEVERAL_IN_A_BYTE, key=lambda d: d.onnx_name)


@pytest.fixture(params=DEVICES)
def gpu(request: pytest.FixtureRequest) -> Gpu:
    if why := why_not(request.param):
        pytest.skip(f"no {request.param} device: {why}")
    return opened(request.param)


def some(dtype: DType, *shape: int) -> np.ndarray:
    """All codes of a type, in any order."""
    values = np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy).astype(np.float32)
    return values[RNG.integers(0, values.size, shape)].astype(dtype.numpy)


def leaf(i: int, x: np.ndarray) -> k.Tensor:
    return k.input(i, DType.of(x.dtype), x.shape)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: d.onnx_name)
def test_there_and_back(gpu: Gpu, dtype: DType) -> None:
    transfer = GpuTransfer(gpu)
    for shape in ((), (1,), (7, 3), (64,), (0, 5)):
        x, before = some(dtype, *shape), gpu.counters.copied_in_nbytes
        there = transfer.copy_in(x, gpu.device)
        assert there.handle.nbytes == -(-x.size * dtype.bits // 8) == gpu.counters.copied_in_nbytes - before
        back = transfer.copy_out(there)
        assert back.dtype == x.dtype and back.shape == x.shape
        np.testing.assert_array_equal(back.astype(np.float32), x.astype(np.float32))


@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: d.onnx_name)
def test_read_and_written(gpu: Gpu, dtype: DType) -> None:
    """Turned, padded and as floats: sizes are no multiples of what a word holds."""
    x = some(dtype, 5, 13)
    turned = k.pad(k.transpose(leaf(0, x), (1, 0)), (1, 0), (0, 2), 1)
    plan = planned(gpu, [turned, k.cast(leaf(0, x), DType.FLOAT) * 2.0], [x])
    moved, floats = values_of(plan, [x])
    wide = x.astype(np.float32)
    np.testing.assert_array_equal(moved.astype(np.float32), np.pad(wide.T, ((1, 0), (0, 2)), constant_values=1))
    np.testing.assert_array_equal(floats, wide * 2)
    assert plan.nbytes_of("y0") == -(-14 * 7 * dtype.bits // 8)


@pytest.mark.parametrize("rows", [2, 20])
def test_weights_of_four_bits(gpu: Gpu, rows: int) -> None:
    """A word has eight of them; nothing else of their size is in memory."""
    x, w, s = (
        RNG.standard_normal((rows, 96)).astype(np.float32),
        some(DType.INT4, 96, 64),
        RNG.random((3, 64)).astype(np.float32),
    )
    root = k.dot(leaf(0, x), dequantize_linear(leaf(1, w), leaf(2, s), axis=0, block_size=32))
    plan = planned(gpu, [root], [x, w, s])
    wanted = x @ (w.astype(np.float64) * np.repeat(s.astype(np.float64), 32, 0))
    np.testing.assert_allclose(values_of(plan, [x, w, s])[0], wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    assert plan.unshared_nbytes < w.size and plan.nbytes_of("x1") == w.size // 2


def test_quantized_to_four_bits(gpu: Gpu) -> None:
    x, s, z = RNG.standard_normal((9, 11)).astype(np.float32) * 4, np.float32(0.5), np.array(2).astype(DType.INT4.numpy)
    root = quantize_linear(leaf(0, x), leaf(1, s), leaf(2, z), rounding=Rounding())
    found = values_of(planned(gpu, [root], [x, s, z]), [x, s, z])[0]
    np.testing.assert_array_equal(found.astype(np.float32), np.clip(np.rint(x / 0.5) + 2, -8, 7))


def test_words_in_c() -> None:
    """As on the other devices: what a kernel in CUDA C reads and writes are words of eight."""
    cut = Cut(Cuda())
    cut.store(cut.settle(k.transpose(k.input("x", DType.UINT4, (64, 128)), (1, 0))), "y")
    (job,) = cut.jobs
    assert "const unsigned int* __restrict__ X0" in job.kernel.source and job.kernel.groups == (16, 1, 1)


@pytest.mark.parametrize("device", DEVICES)
def test_a_model(device: str) -> None:
    """Inputs, outputs, a loop's state and a table of four bits, and what a session keeps of the weights."""
    if why := why_not(device):
        pytest.skip(f"no {device} device: {why}")
    codes = RNG.integers(-8, 8, (100, 30))
    table = helper.make_tensor("table", TensorProto.INT4, codes.shape, codes.reshape(-1).tolist())
    scale = helper.make_tensor("s", TensorProto.FLOAT, (), [0.25])
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["rows"]), helper.make_node("Concat", ["rows", "x"], ["both"], axis=0),
        helper.make_node("DequantizeLinear", ["both", "s"], ["y"]),
    ]  # fmt: skip
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "nibbles", [info("i", TensorProto.INT64, [5]), info("x", TensorProto.INT4, [3, 30])],
        [info("both", TensorProto.INT4, [8, 30]), info("y", TensorProto.FLOAT, [8, 30])], [table, scale],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)
    onnx.checker.check_model(model)
    x, i = some(DType.INT4, 3, 30), np.array([3, 99, 0, 50, 3])
    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = intarsia.InferenceSession(model.SerializeToString(), options, providers=[PROVIDERS[device]])
    both, y = session.run(None, {"i": i, "x": x})
    wanted = np.concatenate([codes[i], x.astype(np.int64)])
    np.testing.assert_array_equal(both.astype(np.int64), wanted)
    np.testing.assert_array_equal(y, wanted * np.float32(0.25))
