"""Base of the schedules of products of bytes: constant weights, the terms of zero points, and the product's step."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from intarsia.codegen.llvm.jit import KernelText
from intarsia.ep.capability import Support
from intarsia.graph.dims import Dim, product
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Below, Step
from intarsia.primitives.lang import Tensor
from intarsia.providers.cpu.kernels.common.schedule import Constants, KernelRequest, LoweringEnv, Schedule
from intarsia.providers.cpu.kernels.common.template import Role
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.matmul import gemm_arguments, gemm_kernel
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import SUMS
from intarsia.providers.cpu.kernels.matmul_int8.byte_product_arguments import ByteProductCall
from intarsia.providers.cpu.kernels.matmul_int8.byte_weights import LIFT, add_sums, centred, digest
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import byte_micro_text, byte_tile
from intarsia.providers.cpu.kernels.matmul_int8.zero_point_correction import Correction

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.matmul_int8.matmul_int8 import ByteMatMul, Zero

    ByteSchedule = Schedule[ByteMatMul]
else:
    ByteSchedule = Schedule

SERIAL_PRODUCTS = 400_000  # below this a second thread costs more than it saves


def has_constant_weights(node: ByteMatMul, env: LoweringEnv) -> Support:
    """Whether B is one constant matrix, less a constant zero point."""
    if not node.is_single:
        return Support.no("it has batch axes of its own in both operands")
    if not env.constants.is_constant(node.reads[1]):
        return Support.no("its second operand is computed in the run")
    if not node.b_zero.known and not env.constants.is_constant(node.reads[node.b_zero.read]):
        return Support.no("the zero point of its second operand is computed in the run")
    return Support.yes()


@dataclass(frozen=True)
class Weights:
    """Constant weights.

    Attributes:
        values: b' itself, int8 [K, N]; `view`: what it follows from besides.
        sums: sum b' - K zb' of every column.
        zero: what is left of the zero point, one per column; None if nothing is.
    """

    values: np.ndarray
    sums: np.ndarray
    zero: np.ndarray | None
    view: Hashable


def constant_weights(node: ByteMatMul, constants: Constants) -> Weights:
    """B less what can be subtracted of its zero point, where the node `has_constant_weights`."""
    matrix, zero = node.weights(constants), node.zero_values(node.b_zero, constants)
    assert zero is not None
    values, left = centred(matrix, zero)
    sums = values.sum(0, dtype=np.int64)
    if left is not None:
        left = np.broadcast_to(left, sums.shape)
        sums = sums - len(matrix) * left.astype(np.int64)
    return Weights(values, sums, left, (matrix.shape, node.transposed, digest(zero)))


@dataclass(frozen=True)
class Factors:
    """Factors of the product's kernel, and its micro-kernels.

    Attributes:
        a, b: buffers of A and of packed B; None for a column of ones.
        tile: by whose width B is packed.
        few: the micro-kernel for few rows, where that is another.
        widened: whether A is 16-bit numbers, and B bytes that become such.
        panel_nbytes: as of `ByteProductCall`.
    """

    a: str
    b: str | None
    tile: Tile
    micro: KernelText
    few: KernelText | None = None
    widened: bool = False
    panel_nbytes: int = 0


class ProductSteps:
    """Collects the steps of one product in the order in which they run, and the terms of zero points between them."""

    def __init__(self, node: ByteMatMul, request: KernelRequest) -> None:
        self.node, self.request = node, request
        self.correction = Correction(request.epilogue, request.operands)
        self.before: list[Step] = []

    def product(self, factors: Factors) -> list[Step]:
        """All that was collected, and the product."""
        epilogue, operands = self.correction.finish()
        request = replace(self.request, epilogue=epilogue, operands=tuple(operands))
        return [*self.before, _product_step(self.node, request, factors, self.node.columns)]

    def subtract_constant(self, weights: Weights, lift: int) -> None:
        """The terms of both zero points by constant weights; `lift`: what the kernel adds to A."""
        correction, zero = self.correction, self.node.a_zero
        value = _one_number(self.node.zero_values(zero, self.request.workspace))
        if value is None:
            factor = self._operand(zero) + lift
            if weights.sums.any():
                correction.subtract(factor * self._column(weights.sums))
        elif value + lift and weights.sums.any():
            correction.subtract(self._column(weights.sums * (value + lift)))
        if weights.zero is not None and weights.zero.any():
            correction.subtract(self._column(weights.zero) * self._row_sums())

    def subtract_computed(self, column_sums: str) -> None:
        """The terms of both zero points by weights that a step packs, which also sums their columns, into `column_sums`."""
        correction, node, of_a, of_b = self.correction, self.node, self.node.a_zero, self.node.b_zero
        lift = LIFT if node.dtype is DType.INT8 else 0
        number = self._number(of_a, lift)
        a_zero = self._operand(of_a) + lift if number is None else correction.number(number) if number else None
        lift = LIFT if node.weight_dtype is DType.UINT8 else 0
        number = self._number(of_b, -lift)
        b_zero = self._operand(of_b) - lift if number is None else correction.number(number) if number else None
        if a_zero is not None:
            sums = correction.operand(column_sums, "column", SUMS, Role.COLUMN_SUMS)
            if b_zero is not None:
                sums = sums - b_zero * self._depth()
            correction.subtract(sums * a_zero)
        if b_zero is not None:
            correction.subtract(b_zero * self._row_sums())

    def _number(self, zero: Zero, lift: int) -> int | None:
        """A zero point and what the kernel adds to its operand, if that is a number of the definition, or nothing."""
        value = _one_number(self.node.zero_values(zero, self.request.workspace))
        return value + lift if value is not None and (zero.known or value == -lift) else None

    def _operand(self, zero: Zero) -> Tensor:
        return self.correction.operand(self.node.reads[zero.read], zero.kind, zero.dtype)

    def _column(self, values: np.ndarray) -> Tensor:
        name = add_sums(self.request.workspace, self.node.reads[1], values)
        return self.correction.operand(name, "column", SUMS)

    def _depth(self) -> Tensor:
        """K, which is a number or an operand that is made when the plan is bound."""
        depth, correction = self.node.depth, self.correction
        return correction.number(depth) if isinstance(depth, int) else correction.operand("", "scalar", SUMS, Role.DEPTH)

    def _row_sums(self) -> Tensor:
        """The sums of A's rows: a product by ones."""
        node, request, found = self.node, self.request, self.node.rows_and_batches
        name = request.workspace.temporary(f"{request.out}%rowsums", SUMS, (product(found.sizes), found.rows))
        ones = plain_factors(node, request, None)
        self.before.append(_product_step(node, replace(request, epilogue=None, operands=(), out=name), ones, 1))
        return self.correction.operand(name, "row", SUMS, Role.ROW_SUMS)


def plain_factors(node: ByteMatMul, request: KernelRequest, right: str | None) -> Factors:
    """A where it lies, by bytes that are packed in the buffer `right`; None: by a column of ones."""
    target = request.target
    return Factors(node.reads[0], right, byte_tile(target), byte_micro_text(node.dtype, target))


def _product_step(node: ByteMatMul, request: KernelRequest, factors: Factors, n: Dim) -> Step:
    """A times `n` columns."""
    target, operands, found, depth = request.target, request.operands, node.rows_and_batches, node.depth
    a, right, few = factors.a, factors.b, factors.few
    spec = gemm_arguments.GemmSpec(SUMS, "packed", request.epilogue)
    if factors.widened:
        spec = replace(spec, tile=factors.tile, stored=DType.INT8)
    call = ByteProductCall(
        spec, target, factors.micro.symbol, a, right, request.out, found.rows, depth, n, found, operands, factors.tile,
        factors.panel_nbytes, few.symbol if few else "",
    )  # fmt: skip
    reads = (a, *([right] if right else []), *(o.name for o in operands if o.name))
    work = found.rows * n * depth * found.sizes[0] * found.sizes[1]
    return Step(
        gemm_kernel.kernel_text(spec, target), reads, (request.out,), call, serial=Below(work, SERIAL_PRODUCTS),
        label=f"byte gemm {found.rows}x{n}x{depth}" if right else "row sums",
        calls=(factors.micro, few) if few else (factors.micro,),
    )  # fmt: skip


def _one_number(values: np.ndarray | None) -> int | None:
    return int(values.reshape(-1)[0]) if values is not None and values.size == 1 else None
