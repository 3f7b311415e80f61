"""The IR of one CPU kernel of each family, as golden text (`pytest --update-golden` writes it anew).

A change of what a generator writes is seen in a diff of these files. Of long kernels they have the functions that show what the
family does, of micro-kernels the variant for one vector. Targets are named, so that the texts are the same on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

pytest.importorskip("llvmlite", reason="texts are kept by the version of llvmlite")

from intarsia.codegen.llvm.jit import KernelText, with_parts
from intarsia.codegen.llvm.target import Target
from intarsia.codegen.loops.loop_nest import lower
from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.providers.cpu.kernels.attention.many_queries_microkernel import lane_micro_text
from intarsia.providers.cpu.kernels.common.microkernel import micro_text
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import stepped_micro_text
from intarsia.providers.cpu.kernels.conv.grouped.depthwise_kernel import kernel_text as depthwise_text
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import WindowSpec
from intarsia.providers.cpu.kernels.conv.winograd.int8 import micro_text as winograd_bytes_text
from intarsia.providers.cpu.kernels.fourier.fft_kernel import Form as FourierForm
from intarsia.providers.cpu.kernels.fourier.fft_kernel import kernel_text as fourier_text
from intarsia.providers.cpu.kernels.linalg.determinant_kernel import kernel_text as determinant_text
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec
from intarsia.providers.cpu.kernels.matmul.packed_a_kernel import tiled_text
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import byte_micro_text
from intarsia.providers.cpu.kernels.matmul_nbits.block_quant_kernel import BlockFormat, unpack_text
from intarsia.providers.cpu.kernels.ml.trees_kernel import combine_text
from intarsia.providers.cpu.kernels.moe.expert_kernels import products_text
from intarsia.providers.cpu.kernels.movement.transpose_kernel import kernel_text as transpose_text
from intarsia.providers.cpu.kernels.pooling.pooling_arguments import GlobalPoolSpec
from intarsia.providers.cpu.kernels.pooling.pooling_kernel import global_pool_text
from intarsia.providers.cpu.kernels.quantize.dynamic_quantize_kernel import range_text
from intarsia.providers.cpu.kernels.recurrent.rnn_arguments import RecurrentSpec
from intarsia.providers.cpu.kernels.recurrent.rnn_kernel import kernel_text as recurrent_text
from intarsia.providers.cpu.kernels.rng.multinomial_kernel import kernel_text as multinomial_text
from intarsia.providers.cpu.kernels.selection.compress_kernel import kernel_text as compress_text
from intarsia.providers.cpu.kernels.text.ngrams_kernel import kernel_text as ngrams_text

SSE2 = Target.create("x86_64-unknown-linux-gnu", "x86-64", "+sse2")
AVX2 = Target.create("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx,+avx2,+bmi,+bmi2,+f16c,+fma")
F = DType.FLOAT
FOURS, EIGHTS = Tile(1, 1, 4, 4), Tile(1, 1, 8, 4)  # one vector of float32


def elementwise() -> KernelText:
    """max(x + bias, 0), a bias for each column."""
    x, bias = k.input(0, F, (symbol("n"), symbol("m"))), k.input(1, F, (symbol("m"),))
    return lower([k.maximum(x + bias, 0.0)], AVX2, prefix="elementwise").text


def loop_nest() -> KernelText:
    """The largest of every window of 2 x 3 elements: windows and the loops inside them are read through index expressions."""
    x = k.input(0, F, (symbol("n"), 8, 9))
    return lower([k.reduce_max(k.windows(x, (1, 2), (2, 3), (2, 3), (1, 1)), [3, 4])], AVX2, prefix="loop_nest").text


# File -> the kernel, and the functions of it that are shown; () for all.
KERNELS: dict[str, tuple[Callable[[], KernelText], Sequence[str]]] = {
    "elementwise": (elementwise, ()),
    "loop_nest": (loop_nest, ()),
    "common_microkernel": (lambda: micro_text(F, AVX2, EIGHTS), ()),
    "matmul": (lambda: tiled_text(GemmSpec(), AVX2), ()),
    "matmul_int8": (lambda: byte_micro_text(DType.UINT8, AVX2, EIGHTS), ()),
    "matmul_nbits": (lambda: unpack_text(BlockFormat(4, 16, zeros=True), EIGHTS, AVX2), ()),
    "moe": (lambda: products_text(GemmSpec(), AVX2), ()),
    "conv": (lambda: stepped_micro_text(F, SSE2, FOURS), ()),
    "conv_grouped": (lambda: depthwise_text(WindowSpec("multiply", (3,), (1,), (1,), pixels=1), AVX2), ()),
    "conv_winograd": (lambda: winograd_bytes_text(AVX2, EIGHTS), ()),
    "pooling": (lambda: global_pool_text(GlobalPoolSpec("average"), AVX2), ()),
    "attention": (lambda: lane_micro_text(EIGHTS, AVX2), ()),
    "recurrent": (lambda: recurrent_text(RecurrentSpec("RNN", (("Relu", 0.0, 0.0),)), AVX2), ("walk",)),
    "fourier": (lambda: fourier_text(FourierForm(F, "complex", "complex"), AVX2), ("radix2", "products")),
    "movement": (lambda: transpose_text(8, SSE2), ()),
    "selection": (lambda: compress_text(4, AVX2), ()),
    "linalg": (lambda: determinant_text(F, AVX2), ()),
    "quantize": (lambda: range_text(AVX2), ()),
    "rng": (lambda: multinomial_text(F, DType.INT32, AVX2), ()),
    "text": (lambda: ngrams_text(DType.INT64, AVX2), ()),
    "ml": (lambda: combine_text("SUM", AVX2), ()),
}


def functions(ir: str) -> dict[str, str]:
    """The functions that a text defines, by name without the hash of the kernel's symbol."""
    found = re.findall(r'^define [^\n]*?@"?(\w+?)(?:_[0-9a-f]{32})?"?\(.*?^}$', ir, re.MULTILINE | re.DOTALL)
    texts = re.findall(r"^define .*?^}$", ir, re.MULTILINE | re.DOTALL)
    return dict(zip(found, texts, strict=True))


def shown(kernel: KernelText, names: Sequence[str]) -> str:
    """The kernel, behind the parts that it calls; or these functions of it."""
    if not names:
        return "\n".join(f"; --- {part.symbol}, effort {part.effort}\n{part.ir}" for part in with_parts((kernel,)).values())
    every = functions(kernel.ir)
    hidden = ", ".join(name for name in every if name not in names)
    return "\n".join([f"; --- {kernel.symbol}, effort {kernel.effort}; not shown: {hidden}", *(every[name] for name in names)])


@pytest.mark.parametrize("family", KERNELS)
def test_text(family: str, check_golden: Callable[[str, str], None]) -> None:
    write, names = KERNELS[family]
    check_golden(f"{family}.ll", shown(write(), names))
