"""The kernels of the first tier, by name: each takes every size as an argument."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.codegen.loops.loop_nest import CHUNK, LoopKernel, lower
from intarsia.graph.dims import Dim, Expr, evaluate, symbol
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang
from intarsia.providers.cpu.first_tier import pack_kernel
from intarsia.providers.cpu.kernels.attention import softmax_kernel
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.microkernel import micro_text
from intarsia.providers.cpu.kernels.conv.grouped import depthwise_kernel
from intarsia.providers.cpu.kernels.conv.grouped.sliding_window import WindowSpec
from intarsia.providers.cpu.kernels.matmul import gemm_kernel
from intarsia.providers.cpu.kernels.matmul.gemm_kernel import GemmSpec
from intarsia.providers.cpu.kernels.pooling import pooling_kernel
from intarsia.providers.cpu.kernels.pooling.pooling_kernel import GlobalPoolSpec

_FLOAT = DType.FLOAT
Make = Callable[[Target], KernelText]

# Windows of depthwise convolutions and of pools: what models have; others are the reference's.
WINDOWS = tuple(((k, k), (s, s)) for k in (3, 5, 7) for s in (1, 2))
POOLS = (
    ((2, 2), (2, 2)), ((3, 3), (2, 2)), ((3, 3), (1, 1)), ((5, 5), (1, 1)),
    *((window, (1, 1)) for k in (5, 9, 13) for window in ((k, 1), (1, k))),  # wide ones are taken apart by a rule
)  # fmt: skip
# Operators of one float32 operand, and the attributes that their nodes have in common where any are given.
UNARY: Mapping[str, Mapping[str, Any]] = {
    "Sigmoid": {}, "Tanh": {}, "Erf": {}, "Exp": {}, "Softplus": {}, "HardSwish": {}, "Mish": {},
    "Swish": {"alpha": 1.0}, "Gelu": {"approximate": "none"}, "GeluTanh": {"approximate": "tanh"},
}  # fmt: skip


@functools.cache
def biased() -> Epilogue:
    """A sum and the number of its column."""
    total, bias = (lang.input(i, _FLOAT, (1, 1)) for i in range(2))
    return Epilogue(total + bias, ("column",), (_FLOAT,))


def gemm_spec(layout: str, bias: bool) -> GemmSpec:
    return GemmSpec(_FLOAT, layout, biased() if bias else None)


def depthwise_spec(kernel: tuple[int, ...], strides: tuple[int, ...]) -> WindowSpec:
    return WindowSpec("multiply", kernel, strides, (1,) * len(kernel), _FLOAT, biased())


def pool_spec(operation: str, kernel: tuple[int, ...], strides: tuple[int, ...]) -> WindowSpec:
    return WindowSpec(operation, kernel, strides, (1,) * len(kernel), _FLOAT)


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


class LoopArguments:
    """What is told to a kernel of loops whose text is not at hand: the order of its operands and the sizes behind them."""

    def __init__(self, name: str, operands: tuple[int, ...], sizes: tuple[Dim, ...]) -> None:
        self.name, self.operands, self.sizes = name, operands, sizes

    def arguments(self, operands: Mapping[int, int], out: int, sizes: Mapping[str, int]) -> list[int]:
        """Addresses of operands and result, and sizes."""
        return [*(operands[i] for i in self.operands), out, *(self._value(d, sizes) for d in self.sizes)]

    @staticmethod
    def _value(d: Dim, sizes: Mapping[str, int]) -> int:
        return int(evaluate(d, sizes)) if isinstance(d, Expr) else int(d)


@functools.cache
def unary_sizes(name: str) -> LoopArguments:
    n = symbol("n")
    return LoopArguments(name, (0,), ((n + (CHUNK - 1)) // CHUNK, n))


@functools.cache
def normalisation_sizes(name: str) -> LoopArguments:
    operands = (0, 1, 2, 3) if name == "layer_norm" else (0, 1, 3)
    return LoopArguments(name, operands, (symbol("m"), symbol("n")))


def kernels() -> Iterator[tuple[str, Make]]:
    """Names and who writes each."""
    yield "micro", partial(micro_text, _FLOAT)
    for layout in gemm_kernel.B_LAYOUTS:
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


def _text_of(loop: Callable[[str, Target], LoopKernel], name: str, target: Target) -> KernelText:
    return loop(name, target).text
