"""What the kernels of the first tier are called with: their specs, and the arguments of those that are loops.

Without `kernel_set`, which writes them: a first session needs no more than this.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from intarsia.graph.dims import Dim, Expr, evaluate, symbol
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import WindowSpec
    from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec
    from intarsia.providers.cpu.kernels.recurrent.rnn_arguments import RecurrentSpec

_FLOAT = DType.FLOAT
_CHUNK = 4096  # elements that a loop of `loop_nest` goes over at once

# Windows of depthwise convolutions and of pools: what models have; others are the reference's.
WINDOWS = tuple(((k, k), (s, s)) for k in (3, 5, 7) for s in (1, 2))
POOLS = (
    ((2, 2), (2, 2)), ((3, 3), (2, 2)), ((3, 3), (1, 1)), ((5, 5), (1, 1)),
    *((window, (1, 1)) for k in (5, 9, 13) for window in ((k, 1), (1, k))),  # wide ones are decomposed by a rule
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
    from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec

    return GemmSpec(_FLOAT, layout, biased() if bias else None)


def depthwise_spec(kernel: tuple[int, ...], strides: tuple[int, ...]) -> WindowSpec:
    from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import WindowSpec

    return WindowSpec("multiply", kernel, strides, (1,) * len(kernel), _FLOAT, biased())


def pool_spec(operation: str, kernel: tuple[int, ...], strides: tuple[int, ...]) -> WindowSpec:
    from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import WindowSpec

    return WindowSpec(operation, kernel, strides, (1,) * len(kernel), _FLOAT)


# Recurrent layers: a GRU's reset gate is applied to the recurrent product (True), or to its operand.
RECURRENT: Mapping[str, tuple[str, bool]] = {"LSTM": ("LSTM", False), "GRU False": ("GRU", False), "GRU True": ("GRU", True)}
_RECURRENT_ACTIVATIONS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh")}


def recurrent_name(cell: str, linear_before_reset: bool) -> str:
    """The name of a layer's kernel."""
    return f"{cell} {linear_before_reset}" if cell == "GRU" else cell


def recurrent_activations(cell: str) -> tuple[str, ...]:
    """Those of one direction."""
    return _RECURRENT_ACTIVATIONS[cell]


@functools.cache
def recurrent_spec(name: str) -> RecurrentSpec:
    from intarsia.providers.cpu.kernels.recurrent.rnn_arguments import RecurrentSpec

    cell, inner = RECURRENT[name]
    return RecurrentSpec(cell, tuple((f, 0.0, 0.0) for f in recurrent_activations(cell)), _FLOAT, linear_before_reset=inner)


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
    return LoopArguments(name, (0,), ((n + (_CHUNK - 1)) // _CHUNK, n))


@functools.cache
def normalisation_sizes(name: str) -> LoopArguments:
    operands = (0, 1, 2, 3) if name == "layer_norm" else (0, 1, 3)
    return LoopArguments(name, operands, (symbol("m"), symbol("n")))
