"""Products by weights of few bits on devices: unpacked where they are multiplied, beside float64 in NumPy."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from device_graphs import DEVICES, opened, planned, values_of, why_not

from intarsia.codegen.clike import GPU, PROCESSOR, Cuda, Cut, Tuning, Wgsl
from intarsia.codegen.clike.products import nbits_matmul
from intarsia.device.gpu import Gpu
from intarsia.graph.dtypes import DType
from intarsia.ops.contrib.embedding_and_blocks import gather_block_quantized, matmul_n_bits
from intarsia.ops.framework.parameter_groups import flat
from intarsia.ops.tensor.quantize import dequantize_linear
from intarsia.primitives import lang as k
from intarsia.providers.gpu.plan import Plan

RNG = np.random.default_rng(0)
TUNINGS = {"gpu": GPU, "processor": PROCESSOR}


@pytest.fixture(params=DEVICES)
def gpu(request: pytest.FixtureRequest) -> Gpu:
    if why := why_not(request.param):
        pytest.skip(f"no {request.param} device: {why}")
    return opened(request.param)


def bytes_of(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def unpacked(x: np.ndarray, bits: int) -> np.ndarray:
    shifts = np.arange(0, 8, bits)
    return ((x[..., None].astype(np.int64) >> shifts) & ((1 << bits) - 1)).reshape(*x.shape[:-1], -1)


def run(gpu: Gpu, root: k.Tensor, operands: list[np.ndarray], tuning: Tuning) -> tuple[np.ndarray, Plan]:
    dialect = copy.copy(gpu.dialect)
    dialect.tuning = tuning
    plan = planned(gpu, [root], operands, dialect)
    return values_of(plan, operands)[0], plan


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def has_no_copy(plan: Plan, weights: int) -> None:
    """So many weights do not lie in memory as floats."""
    assert plan.unshared_nbytes < weights


# --- MatMulNBits ------------------------------------------------------------------------------------------------------

NBITS = {
    "4": (4, 32, 128, 40, "bytes", False), "4, no zero points": (4, 16, 96, 37, "", False),
    "4, a last block that is not whole": (4, 32, 72, 33, "bytes", False), "4, groups": (4, 16, 80, 40, "bytes", True),
    "4, zero points of floats": (4, 32, 96, 20, "floats", False), "2": (2, 32, 96, 40, "bytes", False),
    "8": (8, 32, 96, 40, "bytes", False), "8, rows that begin nowhere": (8, 16, 76, 21, "", False),
}  # fmt: skip


HOW = [(2, "gpu"), (2, "processor"), (17, "gpu")]
CASES = [("webgpu", name, *how) for name in NBITS for how in HOW] + [("opencl", "2", *how) for how in HOW]


@pytest.mark.parametrize(("gpu", "name", "rows", "tuning"), CASES, indirect=["gpu"])
def test_matmul_n_bits(gpu: Gpu, name: str, rows: int, tuning: str) -> None:
    bits, block, depth, columns, zeros, grouped = NBITS[name]
    blocks = -(-depth // block)
    a, b, scales = floats(rows, depth), bytes_of(columns, blocks, block * bits // 8), floats(columns, blocks)
    points = {"": None, "bytes": bytes_of(columns, -(-blocks * bits // 8)), "floats": floats(columns, blocks)}[zeros]
    groups = RNG.permutation(np.arange(depth) // block).astype(np.int32) if grouped else None
    bias = floats(columns) if name == "4" else None
    given = [a, b, scales, points, groups, bias]
    operands = [x for x in given if x is not None]
    places = iter(range(len(operands)))
    leaves = [None if x is None else k.input(next(places), DType.of(x.dtype), x.shape) for x in given]
    root = flat(matmul_n_bits)(*leaves, K=depth, N=columns, bits=bits, block_size=block)  # type: ignore[arg-type]

    numbers = unpacked(b, bits).reshape(columns, -1)[:, :depth].astype(np.float64)
    of = np.arange(depth) // block if groups is None else groups
    middle = np.full((columns, blocks), 1 << (bits - 1)) if points is None else points
    middle = unpacked(middle, bits)[:, :blocks] if zeros == "bytes" else middle
    wanted = a @ ((numbers - middle[:, of]) * scales[:, of]).T + (0 if bias is None else bias)
    found, plan = run(gpu, root, operands, TUNINGS[tuning])
    close(found, wanted)
    has_no_copy(plan, depth * columns)
    assert plan.jobs[0].schedule == ("few bits" if rows <= nbits_matmul.MOST_ROWS else "product")


def test_what_stands_behind_is_computed_along(gpu: Gpu) -> None:
    a, b, scales, addend = floats(4, 64), bytes_of(48, 2, 16), floats(48, 2), floats(4, 48)
    leaves = [k.input(i, DType.of(x.dtype), x.shape) for i, x in enumerate((a, b, scales, addend))]
    root = k.maximum(flat(matmul_n_bits)(*leaves[:3], K=64, N=48, block_size=32) + leaves[3], 0.0)
    found, plan = run(gpu, root, [a, b, scales, addend], gpu.dialect.tuning)
    weights = (unpacked(b, 4).reshape(48, 64) - 8) * np.repeat(scales, 32, 1)
    close(found, np.maximum(a @ weights.T + addend, 0))
    assert len(plan.jobs) == 1


def test_half_precision(gpu: Gpu) -> None:
    a, b, scales = floats(3, 64).astype(np.float16), bytes_of(24, 2, 16), floats(24, 2).astype(np.float16)
    leaves = [k.input(i, DType.of(x.dtype), x.shape) for i, x in enumerate((a, b, scales))]
    found, _ = run(gpu, flat(matmul_n_bits)(*leaves, K=64, N=24, block_size=32), [a, b, scales], GPU)
    weights = (unpacked(b, 4).reshape(24, 64) - 8) * np.repeat(scales.astype(np.float64), 32, 1)
    np.testing.assert_allclose(found.astype(np.float64), a @ weights.T, rtol=2e-3, atol=2e-2)


# --- others -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "tuning"), [(1, "gpu"), (1, "processor"), (17, "gpu")])
@pytest.mark.parametrize("axis", [0, 1])
def test_dequantize_linear_in_blocks(gpu: Gpu, axis: int, rows: int, tuning: str) -> None:
    """Blocks down the columns of the weights, and along their rows."""
    a, b, zeros = floats(rows, 96), RNG.integers(-128, 128, (96, 64)).astype(np.int8), 32
    shape = (3, 64) if axis == 0 else (96, 2)
    scales, points = floats(*shape), RNG.integers(-128, 128, shape).astype(np.int8)
    x, w, s, z = (k.input(i, DType.of(x.dtype), x.shape) for i, x in enumerate((a, b, scales, points)))
    root = k.dot(x, dequantize_linear(w, s, z, axis=axis, block_size=zeros))
    wide = b.astype(np.float64) - np.repeat(points.astype(np.float64), zeros, axis)
    found, plan = run(gpu, root, [a, b, scales, points], TUNINGS[tuning])
    close(found, a @ (wide * np.repeat(scales, zeros, axis)))
    has_no_copy(plan, 96 * 64)


def test_weights_on_the_left(gpu: Gpu) -> None:
    """As a convolution of one point has them."""
    w, scales, x = RNG.integers(-128, 128, (20, 64)).astype(np.int8), floats(20), floats(2, 64, 50)
    leaves = [k.input(i, DType.of(v.dtype), v.shape) for i, v in enumerate((w, scales, x))]
    root = k.dot(dequantize_linear(leaves[0], leaves[1], axis=0), leaves[2])
    found, plan = run(gpu, root, [w, scales, x], GPU)
    close(found, (w * scales[:, None].astype(np.float64)) @ x)
    has_no_copy(plan, 20 * 64)


def test_a_table_is_unpacked_row_by_row(gpu: Gpu) -> None:
    data, indices, scales = bytes_of(200, 32), np.array([3, 199, 0]), floats(200, 2)
    leaves = [k.input(i, DType.of(x.dtype), x.shape) for i, x in enumerate((data, indices, scales))]
    found, plan = run(gpu, flat(gather_block_quantized)(*leaves, block_size=32), [data, indices, scales], gpu.dialect.tuning)
    wide = (unpacked(data, 4) - 8) * np.repeat(scales.astype(np.float64), 32, 1)
    close(found, wide[indices])
    has_no_copy(plan, 200 * 64)


def test_what_is_taken_for_weights_of_few_bits() -> None:
    numbers, scale = k.input("w", DType.INT8, (64, 32)), k.input("s", DType.FLOAT, (32,))
    assert nbits_matmul.is_unpacked(k.cast(numbers, DType.FLOAT) * scale)
    assert not nbits_matmul.is_unpacked(k.cast(numbers, DType.FLOAT) * k.input("x", DType.FLOAT, (64, 32)))  # as many floats
    assert not nbits_matmul.is_unpacked(k.input("x", DType.FLOAT, (64, 32)) * scale)
    assert not nbits_matmul.is_unpacked(k.cast(k.input("b", DType.BOOL, (64, 32)), DType.FLOAT))


def test_a_device_with_few_bindings_stores_what_it_must() -> None:
    """Five operands, a result, sizes and the status of indices are as many as WebGPU promises."""
    dialect = Wgsl()
    leaves = [
        k.input(n, t, s) for n, t, s in (
            ("a", DType.FLOAT, (1, 64)), ("b", DType.UINT8, (32, 2, 16)), ("s", DType.FLOAT, (32, 2)),
            ("z", DType.UINT8, (32, 1)), ("g", DType.INT32, (64,)), ("bias", DType.FLOAT, (32,)),
        )
    ]  # fmt: skip
    cut = Cut(dialect)
    cut.store(cut.settle(flat(matmul_n_bits)(*leaves, K=64, N=32, block_size=32)), "y")
    assert all(len(job.reads) + len(job.writes) + 2 <= dialect.limits.buffers for job in cut.jobs)


@pytest.mark.parametrize("rows", [1, 64])
def test_no_library_is_asked(rows: int) -> None:
    """Which would need the weights in memory."""

    class Asked:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"asked for {name}")

    cut = Cut(Cuda(), libraries=Asked())  # type: ignore[arg-type]
    a, s = k.input("a", DType.FLOAT, (rows, 4096)), k.input("s", DType.FLOAT, (4096, 128))
    b = k.input("b", DType.UINT8, (4096, 128, 16))
    cut.store(cut.settle(flat(matmul_n_bits)(a, b, s, K=4096, N=4096, block_size=32)), "y")
    (job,) = [j for j in cut.jobs if j.choice is not None]
    assert (job.choice.code, job.choice.reason) == ("library-shape", nbits_matmul.NO_LIBRARY)
    assert sum(np.prod(shape) for name, (_, shape) in cut.stored.items()) < 1 << 21
