"""The schedules of matrix products whose A is read where it lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.ep.capability import Support
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Below, Step
from intarsia.providers.cpu.kernels.common.microkernel import met_of, micro_text
from intarsia.providers.cpu.kernels.common.precision import described
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv
from intarsia.providers.cpu.kernels.common.tiles import product_tile, tile_of
from intarsia.providers.cpu.kernels.matmul import gemm_arguments, gemm_kernel
from intarsia.providers.cpu.kernels.matmul.bfloat16_rows import zero_tap
from intarsia.providers.cpu.kernels.matmul.matmul_arguments import GemmCall
from intarsia.providers.cpu.kernels.matmul.matmul_schedule_base import MatMulSchedule, estimated
from intarsia.providers.cpu.kernels.matmul.matmul_steps import SERIAL_PRODUCTS, shares
from intarsia.providers.cpu.kernels.matmul.packed_a import packing_pays
from intarsia.providers.cpu.kernels.matmul.strassen import (
    NOT_FASTER,
    SEVEN_EIGHTHS,
    SevenWeights,
    is_allowed,
    may_pay,
    strassen_step,
)

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.matmul.matmul import MatMul

_YES = Support.yes()


def _reads_rows(node: MatMul, env: LoweringEnv) -> Support:
    """Whether a constant B meets rows of A where they lie, however many there are: where loads cost nothing beside
    multiply-adds, packing does, and sums that wait in memory."""
    if not env.target.reads_rows:
        return Support.no("loads cost as much as multiply-adds on this CPU, so that packing rows pays")
    if not node.is_single:
        return Support.no("it has batch axes of its own in both operands")
    if not env.constants.is_constant(node.reads[1]) or not isinstance(node.columns, int):
        return Support.no("its second operand is computed in the run")
    return _YES


@dataclass(frozen=True)
class Gemm(MatMulSchedule):
    """Any product; a constant matrix B is packed into panels once."""

    def applies(self, node: MatMul, env: LoweringEnv) -> Support:
        return node.reads_floats()

    def cost(self, node: MatMul, env: LoweringEnv) -> float:
        return estimated(node, env)

    def steps(self, node: MatMul, request: KernelRequest) -> list[Step]:
        return [self._step(node, request, claimed=False)]

    def _step(self, node: MatMul, request: KernelRequest, claimed: bool) -> Step:
        """`claimed`: pieces of the end are dealt out to threads that are ready for more."""
        target, workspace, dtype = request.target, request.workspace, node.dtype
        found, columns = node.rows_and_batches, node.columns
        tile = tile_of(dtype, target)
        if claimed:
            assert isinstance(columns, int)
            tile = product_tile(columns, dtype, target)
        right, layout, blocks, stored = node.right(workspace, node.is_single, tile, target)
        zero = zero_tap(workspace)
        spec = gemm_arguments.GemmSpec(dtype, layout, request.epilogue, blocks, stored=stored, tile=tile if claimed else None)
        kinds = (stored, None) if gemm_arguments.widens_panels(spec, target) else (stored,)
        met = met_of(spec.tile or tile, found.rows, columns)
        micros = tuple(micro_text(dtype, target, spec.tile, kind, met) for kind in kinds)
        call = GemmCall(
            spec, target, tuple(text.symbol for text in micros), node.reads[0], right, request.out, zero, found.rows,
            node.depth, columns, found, request.operands, claimed,
        )  # fmt: skip
        products = call.m * call.n * call.k * found.sizes[0] * found.sizes[1]
        return Step(
            gemm_kernel.kernel_text(spec, target), (node.reads[0], right, zero, *request.operand_names), (request.out,),
            call, serial=Below(products, SERIAL_PRODUCTS),
            label=f"gemm {call.m}x{call.n}x{call.k}", calls=micros, arithmetic=described(stored),
            work=shares(products) if claimed else None,
            ahead=claimed and layout == "packed" and bool(packing_pays(node, request.env)),
        )  # fmt: skip


@dataclass(frozen=True)
class ConstantRows(Gemm):
    """A product by a constant matrix, whose tile suits its columns."""

    def applies(self, node: MatMul, env: LoweringEnv) -> Support:
        return node.reads_floats() and _reads_rows(node, env)

    def steps(self, node: MatMul, request: KernelRequest) -> list[Step]:
        return [self._step(node, request, claimed=True)]


@dataclass(frozen=True)
class Strassen(MatMulSchedule):
    """The same by seven multiplications of blocks instead of eight."""

    def applies(self, node: MatMul, env: LoweringEnv) -> Support:
        found = _reads_rows(node, env)
        if not found:
            return found
        if node.dtype is not DType.FLOAT:
            return Support.no(f"it is of {node.dtype.name.lower()}, not float32")
        return is_allowed(env.options, env.target)

    def pays(self, node: MatMul, env: LoweringEnv) -> Support:
        (depth, columns), target = node.matrix_shape, env.target
        rows = node.rows_and_batches.rows
        if not may_pay(rows, columns, depth, target, env.options, product_tile(columns, node.dtype, target)):
            return NOT_FASTER
        return _YES

    def cost(self, node: MatMul, env: LoweringEnv) -> float:
        return estimated(node, env, rate=SEVEN_EIGHTHS, copied=0.5)

    def steps(self, node: MatMul, request: KernelRequest) -> list[Step]:
        target, workspace, (depth, columns) = request.target, request.workspace, node.matrix_shape
        tile = product_tile(columns, node.dtype, target)
        right, layout, blocks, stored = node.right(workspace, True, tile, target)
        spec = gemm_arguments.GemmSpec(node.dtype, layout, request.epilogue, blocks, stored=stored, tile=tile)
        zero_tap(workspace)  # no kernel here reads it; programs have always had it, and a restructuring leaves them equal
        matrix, view = node.matrix(workspace)
        step = strassen_step(
            spec, request, source=node.reads[0], weights=SevenWeights(node.reads[1], view, lambda: matrix, right),
            sizes=(node.rows_and_batches.rows, columns, depth),
            always=request.env.timed(node) == self.name,
        )  # fmt: skip
        return [step]
