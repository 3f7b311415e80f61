"""Steps of products: when more threads pay, and where operands of an epilogue lie."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from intarsia.graph.dims import Dim
from intarsia.plan.step import Ref, Shares
from intarsia.providers.cpu.kernels.common.template import FusedOperand
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import Operand

SERIAL_PRODUCTS = 100_000  # below this a second thread costs more than it saves
SHARE_PRODUCTS = 400_000  # of a share of work (`plan.executor_abi`): five microseconds of one core


class ConstantFactor(NamedTuple):
    """The constant that B is made from: its name, its numbers, and the view of it (`Packing`)."""

    name: str
    values: np.ndarray
    view: Hashable = ()


def shares(products: Dim) -> Shares:
    """The work of so many multiplications."""
    return Shares(products, SHARE_PRODUCTS)


def fused_operand(o: FusedOperand, n: int, item: int, out_item: int, c_batch: tuple[int, int]) -> Operand:
    """Where an operand lies beside a C of `n` columns; `c_batch`: bytes between matrices of C, along two batch axes."""
    if o.kind == "full":
        scale = (c_batch[0] // out_item * item, c_batch[1] // out_item * item)
        return Operand(Ref(o.name), row=n * item, batch0=scale[0], batch1=scale[1])
    return Operand(Ref(o.name))
