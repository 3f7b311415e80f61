"""MatMul and Gemm by constant matrices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.plan.argument_tables import Spread, Table
from intarsia.plan.array_address import address_of
from intarsia.providers.cpu.first_tier import kernel_specs
from intarsia.providers.cpu.first_tier.kernel_calls import Fast, KernelCalls, aligned, claims, is_float32, new
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import Operand, matrix_args, scratch_nbytes

_FLOAT = DType.FLOAT


def matmul(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    b = constants.get(node.inputs[1])
    if b is None or not is_float32(b) or b.ndim != 2:
        return None
    product = Product(calls, b, None, transposed=False)

    def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
        a = operands[0]
        if not is_float32(a) or a.ndim < 2 or a.shape[-1] != product.k:
            return None
        rows = np.ascontiguousarray(a)
        return [product(rows, math.prod(a.shape[:-1])).reshape(*a.shape[:-1], product.n)]

    return run


def gemm(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    found = node.attributes
    b = constants.get(node.inputs[1])
    plain = found.get("alpha", 1.0) == 1.0 and found.get("beta", 1.0) == 1.0 and not found.get("transA", 0)
    if b is None or not is_float32(b) or b.ndim != 2 or not plain:
        return None
    transposed = bool(found.get("transB", 0))
    n = b.shape[0] if transposed else b.shape[1]
    bias = None
    if len(node.inputs) > 2 and node.inputs[2]:
        c = constants.get(node.inputs[2])
        if c is None or not is_float32(c) or c.shape not in ((n,), (1, n)):
            return None
        bias = np.ascontiguousarray(c).reshape(n)
    product = Product(calls, b, bias, transposed)

    def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
        a = operands[0]
        if not is_float32(a) or a.ndim != 2 or a.shape[1] != product.k:
            return None
        return [product(np.ascontiguousarray(a), a.shape[0])]

    return run


class Product:
    """Products by a constant B where it lies, and what is added to each of their rows: its panels are packed as they are met,
    so that no second copy of a model's weights is made."""

    def __init__(self, calls: KernelCalls, b: np.ndarray, bias: np.ndarray | None, transposed: bool) -> None:
        self.calls, self.bias = calls, bias
        if not transposed and b.T.flags.c_contiguous:
            b, transposed = b.T, True
        self.b = np.ascontiguousarray(b)
        self.n, self.k = b.shape if transposed else b.shape[::-1]
        self.layout = "columns" if transposed else "rows"
        self.spec = kernel_specs.gemm_spec(self.layout, bias is not None)
        self.scratch_nbytes = calls.threads * scratch_nbytes(self.spec, calls.target, self.k)

    def __call__(self, a: np.ndarray, m: int) -> np.ndarray:
        """A [m, k] B [k, n]."""
        calls, bias = self.calls, self.bias
        y = new((m, self.n))
        shared, scratch = claims(), aligned(self.scratch_nbytes)
        arguments = matrix_args(
            self.spec, calls.target, micro=calls.addresses["micro"], a=address_of(a), b=address_of(self.b), c=address_of(y),
            m=m, n=self.n, k=self.k, taps=Table((Spread(0, ()),)), claims=address_of(shared), threads=calls.threads,
            operands=[Operand(address_of(bias))] if bias is not None else (), scratch=address_of(scratch),
        )  # fmt: skip
        calls(f"gemm {self.layout} {bias is not None}", arguments)
        return y
