"""The texts of the first tier's kernels, by name: each takes every size as an argument."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from functools import partial

from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.codegen.loops.loop_nest import LoopKernel, lower
from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang
from intarsia.providers.cpu.first_tier import pack_kernel
from intarsia.providers.cpu.first_tier.kernel_specs import (
    POOLS,
    RECURRENT,
    UNARY,
    WINDOWS,
    depthwise_spec,
    gemm_spec,
    pool_spec,
    recurrent_spec,
)
from intarsia.providers.cpu.kernels.attention import softmax_kernel
from intarsia.providers.cpu.kernels.common.microkernel import micro_text
from intarsia.providers.cpu.kernels.conv.grouped import depthwise_kernel
from intarsia.providers.cpu.kernels.matmul import gemm_arguments, gemm_kernel
from intarsia.providers.cpu.kernels.pooling import pooling_kernel
from intarsia.providers.cpu.kernels.pooling.pooling_arguments import GlobalPoolSpec
from intarsia.providers.cpu.kernels.recurrent import rnn_kernel

_FLOAT = DType.FLOAT
Make = Callable[[Target], KernelText]


@functools.cache
def unary_loop(name: str, target: Target) -> LoopKernel:
    """y[n] = op(x[n]): the loops of an operator's definition."""
    from intarsia.ops import registry

    op = name.removesuffix("Tanh") or name
    record = registry().find("", op, 24)
    assert record is not None, name
    root = record.function(lang.input(0, _FLOAT, (symbol("n"),)), **UNARY[name])
    return lower([root], target, name.lower())


@functools.cache
def normalisation_loop(name: str, target: Target) -> LoopKernel:
    """Rows [m, n] with mean 0 and variance 1 ("layer_norm"), or with mean square 1 ("rms_norm"), times a scale [n], and plus a
    bias [n]; operands: x, scale, bias, epsilon [1]."""
    m, n = symbol("m"), symbol("n")
    x, epsilon = lang.input(0, _FLOAT, (m, n)), lang.input(3, _FLOAT, (1,))
    scale, bias = (lang.input(i, _FLOAT, (n,)) for i in (1, 2))
    if name == "layer_norm":
        x = x - lang.reduce_mean(x, (1,), keepdims=True)
    variance = lang.reduce_mean(x * x, (1,), keepdims=True) + lang.reshape(epsilon, (1, 1))
    root = x * (1.0 / lang.sqrt(variance)) * scale
    return lower([root + bias if name == "layer_norm" else root], target, name)


def kernels() -> Iterator[tuple[str, Make]]:
    """Names and who writes each."""
    yield "micro", partial(micro_text, _FLOAT)
    for layout in gemm_arguments.B_LAYOUTS:
        for bias in (False, True):
            yield f"gemm {layout} {bias}", partial(gemm_kernel.kernel_text, gemm_spec(layout, bias))
    yield "pack", pack_kernel.kernel_text
    for kernel, strides in WINDOWS:
        yield f"depthwise {kernel} {strides}", partial(depthwise_kernel.kernel_text, depthwise_spec(kernel, strides))
    for operation in ("max", "average"):
        for kernel, strides in POOLS:
            yield f"{operation} {kernel} {strides}", partial(pooling_kernel.kernel_text, pool_spec(operation, kernel, strides))
        yield f"global {operation}", partial(pooling_kernel.global_pool_text, GlobalPoolSpec(operation))
    for log in (False, True):
        yield f"softmax {log}", partial(softmax_kernel.kernel_text, log)
    for name in UNARY:
        yield name, partial(_text_of, unary_loop, name)
    for name in ("layer_norm", "rms_norm"):
        yield name, partial(_text_of, normalisation_loop, name)
    for name in RECURRENT:
        yield name, partial(rnn_kernel.kernel_text, recurrent_spec(name))


def _text_of(loop: Callable[[str, Target], LoopKernel], name: str, target: Target) -> KernelText:
    return loop(name, target).text
