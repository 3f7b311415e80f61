"""The text of one kernel per schedule, in each dialect: a change of the printer is seen in a diff of these files.

Write them anew with `INTARSIA_WRITE_GOLDEN=1 pytest tests/codegen/clike`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from intarsia.codegen.clike import Cuda, Cut, Hip, OpenCl, Wgsl
from intarsia.graph.dtypes import DType
from intarsia.ops.arithmetic.matmul import matmul_integer
from intarsia.ops.contrib.embedding_and_blocks import matmul_n_bits
from intarsia.ops.framework.parameter_groups import flat
from intarsia.ops.nn.conv import conv_integer, convolve
from intarsia.ops.nn.sliding_windows import Windows
from intarsia.primitives import lang as k

GOLDEN = Path(__file__).parent / "golden"
F = DType.FLOAT
DIALECTS = {"wgsl": Wgsl(), "cuda": Cuda(), "hip": Hip(), "cl": OpenCl()}
SUFFIXES = {"cuda": "c"}


def softmax() -> k.Tensor:
    x = k.input("x", F, (6, 100))
    e = k.exp(x - k.reduce_max(x, [1], True))
    return e / k.reduce_sum(e, [1], True)


def convolution() -> k.Tensor:
    x, w = k.input("x", F, (1, 3, 8, 8)), k.input("w", F, (5, 27))
    view = k.windows(k.pad(x, (0, 0, 1, 1), (0, 0, 1, 1), 0.0), (2, 3), (3, 3), (1, 1), (1, 1))
    columns = k.reshape(k.transpose(view, (0, 1, 4, 5, 2, 3)), (1, 27, 64))
    return k.maximum(k.dot(w, columns), 0.0)


def filtered() -> k.Tensor:
    """A 3 x 3 convolution by minimal filtering, with what stands behind it."""
    x, w, b = k.input("x", F, (1, 64, 30, 28)), k.input("w", F, (96, 64, 3, 3)), k.input("b", F, (96,))
    windows = Windows((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (30, 28))
    return k.maximum(convolve(x, w, 1, windows) + k.expand_dims(b, [1, 2]), 0.0)


def attention() -> k.Tensor:
    """Its scores would take 38 MB."""
    q, key, value = (k.input(n, F, (1, 8, 1100, 8)) for n in ("q", "k", "v"))
    x = k.dot(q, k.transpose(key, (0, 1, 3, 2))) * 0.25
    e = k.exp(x - k.reduce_max(x, [3], True))
    return k.dot(e / k.reduce_sum(e, [3], True), value)


def depthwise() -> k.Tensor:
    x, w = k.input("x", F, (1, 8, 30, 30)), k.input("w", F, (8, 1, 9))
    view = k.windows(k.pad(x, (0, 0, 1, 1), (0, 0, 1, 1), 0.0), (2, 3), (3, 3), (1, 1), (1, 1))
    columns = k.reshape(k.transpose(view, (0, 1, 4, 5, 2, 3)), (1, 8, 9, 900))
    return k.reshape(k.dot(w, columns), (1, 8, 30, 30))


def few_bits(rows: int) -> k.Tensor:
    """A product by weights of four bits, in blocks of 32 with a zero point."""
    a, b = k.input("a", F, (rows, 128)), k.input("b", DType.UINT8, (72, 4, 16))
    scales, zeros = k.input("s", F, (72, 4)), k.input("z", DType.UINT8, (72, 2))
    return flat(matmul_n_bits)(a, b, scales, zeros, K=128, N=72, block_size=32)


def bytes_times_bytes() -> k.Tensor:
    """With zero points, and what puts them right."""
    a, b = k.input("a", DType.UINT8, (70, 100)), k.input("w", DType.INT8, (100, 92))
    return matmul_integer(a, b, k.input("p", DType.UINT8, ()), k.input("q", DType.INT8, (92,)))


def byte_convolution() -> k.Tensor:
    x, w = k.input("x", DType.UINT8, (1, 16, 14, 14)), k.input("w", DType.INT8, (24, 16, 3, 3))
    return flat(conv_integer)(x, w, k.input("p", DType.UINT8, ()), pads=[1, 1, 1, 1])


def four_bits() -> k.Tensor:
    """Eight numbers in a word, read and written."""
    x = k.input("x", DType.INT4, (64, 96))
    return k.cast(k.transpose(k.cast(x, DType.INT32) + 1, (1, 0)), DType.INT4)


KERNELS = {
    "byte_product": bytes_times_bytes,
    "byte_convolution": byte_convolution,
    "four_bits": four_bits,
    "depthwise": depthwise,
    "vectors": lambda: k.maximum(k.input("x", F, (4, 16, 128)) + k.input("b", F, (16, 1)), 0.0) * k.input("c", F, (128,)),
    "vectors_float16": lambda: k.input("x", DType.FLOAT16, (64, 128)) * 2.0,
    "attention": attention,
    "add_relu": lambda: k.maximum(k.input("x", F, (6, 100)) + k.input("b", F, (100,)), 0.0),
    "float16": lambda: k.cast(k.input("x", F, (6, 100)), DType.FLOAT16),
    "softmax": softmax,
    "convolution": convolution,
    "filtered": filtered,
    "gemm": lambda: k.dot(k.input("a", F, (70, 100)), k.input("b", F, (100, 90))) + k.input("c", F, (90,)),
    "product_in_parts": lambda: k.dot(k.input("a", F, (20, 4096)), k.input("b", F, (4096, 40))) + k.input("c", F, (40,)),
    "few_bits_few_rows": lambda: few_bits(1),
    "few_bits_many_rows": lambda: few_bits(70),
    "reduction": lambda: k.reduce_sum(k.input("x", F, (6, 1000)) * 2.0, [1], False),
    "cumulative_sum": lambda: k.scan(k.input("x", DType.INT32, (5, 30)), "sum", 1),
    "sorted": lambda: k.sort(k.input("x", F, (5, 30)), 1)[0],
    "sorted_long": lambda: k.sort(k.input("x", F, (5, 3000)), 1, True)[1],
    "gather": lambda: k.take(k.input("x", F, (50, 30)), k.input("i", DType.INT64, (7,)), 0),
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", KERNELS)
def test_text(name: str, dialect: str) -> None:
    cut = Cut(DIALECTS[dialect], weights=["w"])
    cut.store(cut.settle(KERNELS[name]()), "y")
    text = "\n".join(job.kernel.source for job in cut.jobs)
    compare(GOLDEN / f"{name}.{SUFFIXES.get(dialect, dialect)}", text)


def compare(file: Path, text: str) -> None:
    if os.environ.get("INTARSIA_WRITE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("dtype", [DType.FLOAT16, F], ids=lambda d: d.onnx_name)
def test_text_for_tensor_cores(dtype: DType) -> None:
    cut = Cut(Cuda(matrix_units=(DType.FLOAT16, F)))
    a, b = k.input("a", dtype, (200, 96)), k.input("b", dtype, (136, 96))
    cut.store(cut.settle(k.dot(a, k.transpose(b, (1, 0)), F) + 1.0), "y")
    compare(GOLDEN / f"tensor_product_{dtype.onnx_name}.c", "\n".join(job.kernel.source for job in cut.jobs))


def test_sizes_are_parameters_of_one_text() -> None:
    texts, sizes = set(), set()
    for rows, columns in ((60, 100), (70, 1000)):
        cut = Cut(DIALECTS["wgsl"])
        cut.store(cut.settle(k.input("x", F, (rows, columns)) + k.input("b", F, (columns,))), "y")
        (job,) = cut.jobs
        texts.add(job.kernel.source)
        sizes.add(job.kernel.sizes)
    assert len(texts) == 1
    assert sizes == {(1500, 25, 100), (17500, 250, 1000)}  # vectors in all, in a row, elements of a row


def test_a_type_that_the_device_lacks_is_refused_with_a_reason() -> None:
    from intarsia.codegen.clike import unsupported

    plain = Wgsl(features=())
    doubles = Wgsl(features=("shader-int64",))
    assert unsupported([k.input("x", DType.DOUBLE, (3,)) + 1.0], doubles) == "double is not a type of WGSL on this device"
    assert not unsupported([k.input("x", DType.DOUBLE, (3,)) + 1.0], plain)
    assert not unsupported([k.input("x", DType.INT64, (3,)) + 1], plain)
    assert not unsupported([k.exp(k.input("x", DType.DOUBLE, (3,)))], Wgsl())
    assert unsupported([k.input("x", DType.COMPLEX64, (3,))], Wgsl()) == "complex64 has no form in WGSL"
