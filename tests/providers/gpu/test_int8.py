"""Products of bytes less zero points on devices: bytes are multiplied, and the numbers are those of the CPU provider."""

from __future__ import annotations

import itertools

import cuda_emulation
import numpy as np
import onnx
import onnxruntime
import pytest
from device_graphs import DEVICES, opened, planned, values_of, why_not
from onnx import TensorProto, helper, numpy_helper

import intarsia
from intarsia.codegen.clike import Cuda
from intarsia.device.gpu import Gpu
from intarsia.graph.dtypes import DType
from intarsia.ops.arithmetic.matmul import matmul_integer
from intarsia.ops.framework.parameter_groups import flat
from intarsia.ops.nn.conv import conv_integer
from intarsia.primitives import lang as k

RNG = np.random.default_rng(0)
PROVIDERS = {"webgpu": "WebGpuExecutionProvider", "opencl": "OpenCLExecutionProvider"}
emulated = pytest.mark.skipif(bool(cuda_emulation.missing()), reason=f"kernels cannot be emulated: {cuda_emulation.missing()}")


@pytest.fixture(params=DEVICES)
def gpu(request: pytest.FixtureRequest) -> Gpu:
    if why := why_not(request.param):
        pytest.skip(f"no {request.param} device: {why}")
    return opened(request.param)


def some(dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def leaves(*arrays: np.ndarray) -> list[k.Tensor]:
    return [k.input(i, DType.of(a.dtype), a.shape) for i, a in enumerate(arrays)]


def less(x: np.ndarray, zero: np.ndarray) -> np.ndarray:
    return x.astype(np.int64) - zero.astype(np.int64)


# --- MatMulInteger ----------------------------------------------------------------------------------------------------

SIGNS = list(itertools.product(("int8", "uint8"), repeat=2))
SHAPES = [(40, 72, 48), (65, 45, 51), (3, 128, 132), (1, 1024, 64)]


def product_of(shape: tuple[int, int, int], types: tuple[str, str], zeros: str) -> tuple[list[np.ndarray], np.ndarray]:
    m, depth, n = shape
    a, b = some(types[0], m, depth), some(types[1], depth, n)
    p, q = (some(t, *([count] if zeros == "vectors" else [])) for t, count in zip(types, (m, n), strict=True))
    wanted = less(a, p[:, None] if p.ndim else p) @ less(b, q)
    return [a, b, p, q], wanted


ONE_OF_EACH = [
    *((SHAPES[0], types, "numbers") for types in SIGNS), *((SHAPES[1], types, "vectors") for types in SIGNS[1:3]),
    (SHAPES[2], SIGNS[2], "vectors"), (SHAPES[3], SIGNS[2], "numbers"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "types", "zeros"), ONE_OF_EACH)
def test_matmul_integer(gpu: Gpu, shape: tuple[int, int, int], types: tuple[str, str], zeros: str) -> None:
    operands, wanted = product_of(shape, types, zeros)
    plan = planned(gpu, [matmul_integer(*leaves(*operands))], operands)
    np.testing.assert_array_equal(values_of(plan, operands)[0], wanted)
    assert "byte product" in [job.schedule for job in plan.jobs]


@emulated
@pytest.mark.parametrize("units", [(), (DType.INT8,)], ids=["dp4a", "tensor cores"])
@pytest.mark.parametrize("types", SIGNS)
def test_matmul_integer_in_cuda(types: tuple[str, str], units: tuple[DType, ...]) -> None:
    """The text of the kernels on a processor; instructions of a warp by the PTX ISA."""
    for shape, zeros in ((SHAPES[1], "vectors"), (SHAPES[0], "numbers")):
        operands, wanted = product_of(shape, types, zeros)
        named = dict(zip("abpq", operands, strict=True))
        root = matmul_integer(*(k.input(n, DType.of(a.dtype), a.shape) for n, a in named.items()))
        found, schedules = cuda_emulation.computed(Cuda(matrix_units=units), root, named)
        np.testing.assert_array_equal(found, wanted)
        assert schedules[-1] == ("tensor product" if units and shape[0] >= 16 else "byte product")


@pytest.mark.parametrize(
    ("shape", "turned"), [((64, 64, 64), (False, True)), ((64, 64, 64), (True, False)), ((33, 45, 51), (True, True))]
)
def test_operands_that_lie_the_other_way(gpu: Gpu, shape: tuple[int, int, int], turned: tuple[bool, bool]) -> None:
    (a, b, p, q), wanted = product_of(shape, ("uint8", "int8"), "numbers")
    operands = [np.ascontiguousarray(x.T) if way else x for x, way in zip((a, b), turned, strict=True)] + [p, q]
    x, y, *zeros = leaves(*operands)
    root = matmul_integer(*(k.transpose(t, (1, 0)) if way else t for t, way in zip((x, y), turned, strict=True)), *zeros)
    np.testing.assert_array_equal(values_of(planned(gpu, [root], operands), operands)[0], wanted)


def test_batches(gpu: Gpu) -> None:
    a, b, p, q = some("uint8", 3, 20, 48), some("int8", 48, 33), some("uint8"), some("int8", 33)
    operands = [a, b, p, q]
    found = values_of(planned(gpu, [matmul_integer(*leaves(*operands))], operands), operands)[0]
    np.testing.assert_array_equal(found, less(a, p) @ less(b, q))


# --- ConvInteger ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("group", "pads", "kernel"), [(1, 1, 3), (2, 0, 3), (1, 0, 1), (2, 2, 5)])
@pytest.mark.parametrize("types", [("uint8", "int8"), ("uint8", "uint8")])
def test_conv_integer(gpu: Gpu, types: tuple[str, str], group: int, pads: int, kernel: int) -> None:
    """What is outside is the zero point, so that it counts for nothing."""
    x, w = some(types[0], 1, 16, 14, 14), some(types[1], 24, 16 // group, kernel, kernel)
    zero, own = some(types[0]), some(types[1], 24)
    operands = [x, w, zero, own]
    root = flat(conv_integer)(*leaves(*operands), group=group, pads=[pads] * 4)
    plan = planned(gpu, [root], operands)
    assert "byte product" in [job.schedule for job in plan.jobs]
    import torch

    wide = torch.nn.functional.conv2d(
        torch.from_numpy(less(x, zero)).double(), torch.from_numpy(less(w, own[:, None, None, None])).double(),
        padding=pads, groups=group,
    )  # fmt: skip
    np.testing.assert_array_equal(values_of(plan, operands)[0], wide.numpy())


# --- models -----------------------------------------------------------------------------------------------------------


def model(nodes: list[onnx.NodeProto], inputs: dict[str, np.ndarray], constants: dict[str, np.ndarray], out: int) -> bytes:
    graph = helper.make_graph(
        nodes, "bytes",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()],
        [helper.make_tensor_value_info("y", out, None)], [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def qdq_network() -> tuple[bytes, dict[str, np.ndarray]]:
    """Two convolutions, one by one and padded, whose first result goes on in two ways, a pooling and a Gemm."""
    node, constants = helper.make_node, {}

    def weights(name: str, *shape: int) -> None:
        constants[f"{name}_q"] = some("int8", *shape)
        constants[f"{name}_s"] = (RNG.random(shape[0]) * 0.01 + 0.001).astype(np.float32)
        constants[f"{name}_z"] = np.zeros(shape[0], np.int8)

    def lowered(name: str, scale: float, zero: int) -> list[onnx.NodeProto]:
        constants[f"{name}_s"], constants[f"{name}_z"] = np.float32(scale), np.uint8(zero)
        ends = [f"{name}_s", f"{name}_z"]
        return [
            node("QuantizeLinear", [name, *ends], [f"{name}_b"]), node("DequantizeLinear", [f"{name}_b", *ends], [f"{name}_d"])
        ]  # fmt: skip

    weights("u", 32, 16, 1, 1)
    weights("v", 32, 32, 3, 3)
    weights("w", 20, 32)
    constants["w_bias"] = RNG.standard_normal(20).astype(np.float32)
    dequantized = [
        node("DequantizeLinear", [f"{n}_q", f"{n}_s", f"{n}_z"], [f"{n}_d"], axis=0) for n in "uvw"
    ]  # fmt: skip
    nodes = [
        *dequantized, *lowered("x", 0.02, 120), node("Conv", ["x_d", "u_d"], ["c1"]), node("Relu", ["c1"], ["r1"]),
        *lowered("r1", 0.05, 3), node("Conv", ["r1_d", "v_d"], ["c2"], pads=[1, 1, 1, 1]), *lowered("c2", 0.3, 130),
        node("Add", ["c2_d", "r1_d"], ["a"]), node("GlobalAveragePool", ["a"], ["g"]), node("Flatten", ["g"], ["f"]),
        *lowered("f", 0.1, 128), node("Gemm", ["f_d", "w_d", "w_bias"], ["y"], transB=1),
    ]  # fmt: skip
    x = RNG.standard_normal((2, 16, 12, 12)).astype(np.float32)
    return model(nodes, {"x": x}, constants, TensorProto.FLOAT), {"x": x}


def qlinear_network() -> tuple[bytes, dict[str, np.ndarray]]:
    """Its weights have 7 bits: without VNNI onnxruntime's sums of two products saturate at 16 bits."""
    constants = {
        "xs": np.float32(0.02), "xz": np.uint8(7), "w": some("int8", 24, 16, 3, 3) // 2, "wz": np.zeros(24, np.int8),
        "ws": (RNG.random(24) * 0.01 + 0.001).astype(np.float32), "ys": np.float32(0.5), "yz": np.uint8(100),
        "b": RNG.integers(-999, 999, 24).astype(np.int32), "shape": np.array([24, 144]), "m": some("int8", 144, 40) // 2,
        "ms": np.float32(0.01), "mz": np.int8(3), "zs": np.float32(0.9), "zz": np.uint8(128),
    }  # fmt: skip
    conv = helper.make_node(
        "QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["c"], pads=[1, 1, 1, 1]
    )  # fmt: skip
    nodes = [
        conv, helper.make_node("Reshape", ["c", "shape"], ["r"]),
        helper.make_node("QLinearMatMul", ["r", "ys", "yz", "m", "ms", "mz", "zs", "zz"], ["y"]),
    ]  # fmt: skip
    x = some("uint8", 1, 16, 12, 12)
    return model(nodes, {"x": x}, constants, TensorProto.UINT8), {"x": x}


def dynamic_network() -> tuple[bytes, dict[str, np.ndarray]]:
    constants = {"w": some("uint8", 96, 80), "wz": np.uint8(131), "ws": np.float32(0.01)}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z", "wz"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT), helper.make_node("Mul", ["s", "ws"], ["t"]),
        helper.make_node("Mul", ["f", "t"], ["y"]),
    ]  # fmt: skip
    x = RNG.standard_normal((30, 96)).astype(np.float32)
    return model(nodes, {"x": x}, constants, TensorProto.FLOAT), {"x": x}


MODELS = {"qdq": (qdq_network, 2), "qlinear": (qlinear_network, 2), "dynamic": (dynamic_network, 1)}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("device", DEVICES)
def test_models(device: str, name: str) -> None:
    if why := why_not(device):
        pytest.skip(f"no {device} device: {why}")
    make, products = MODELS[name]
    data, feed = make()
    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = intarsia.InferenceSession(data, options, providers=[PROVIDERS[device]])
    (found,) = session.run(None, feed)
    (program,) = session._model.programs
    processor = name == "qdq" and not opened(device).dialect.bytes_for_floats
    assert program.describe("plan").count(". byte product ") == (0 if processor else products)
    for other in (intarsia, onnxruntime):
        (wanted,) = other.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feed)
        assert found.dtype == wanted.dtype
        step = 1 if found.dtype == np.uint8 else 5e-3 * np.abs(wanted).max()  # where a sum lies between two of QuantizeLinear's
        assert np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max() <= step
