"""The schedules of products by constant bytes, which are packed once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from intarsia.ep.capability import Support
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Below, Step
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.precision import byte_unit
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv
from intarsia.providers.cpu.kernels.common.units import WORDS_IN_TIME
from intarsia.providers.cpu.kernels.matmul.matmul_schedule_base import estimated
from intarsia.providers.cpu.kernels.matmul.matmul_steps import ConstantFactor
from intarsia.providers.cpu.kernels.matmul.vnni import Left, pays, word_steps
from intarsia.providers.cpu.kernels.matmul_int8 import saturation_free_order, widened_int16
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import GROUP
from intarsia.providers.cpu.kernels.matmul_int8.byte_product_arguments import WidenCall
from intarsia.providers.cpu.kernels.matmul_int8.byte_product_steps import (
    SERIAL_PRODUCTS,
    ByteSchedule,
    Factors,
    ProductSteps,
    constant_weights,
    has_constant_weights,
    plain_factors,
)
from intarsia.providers.cpu.kernels.matmul_int8.byte_rates import BY_WORDS, IN_ORDER, rate_of
from intarsia.providers.cpu.kernels.matmul_int8.byte_weights import LIFT, is_signed_byte, ordered_weights
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import byte_tile
from intarsia.providers.cpu.kernels.matmul_int8.pack_int8 import pack_byte_pairs, pack_bytes

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.matmul_int8.matmul_int8 import ByteMatMul

_FEW_ROWS = 4
_YES = Support.yes()
NO_UNIT = Support.no("the CPU has no matrix unit for bytes, or session.matrix_unit names another")
NOT_AVX2 = Support.no("the CPU multiplies bytes by fours, or its registers are not AVX2's")
NINE_BITS = Support.no("weights less their zero point need nine bits")


def _fits_bytes(node: ByteMatMul, env: LoweringEnv) -> Support:
    """Whether the zero point can be subtracted from the weights."""
    zero = node.zero_values(node.b_zero, env.constants)
    assert zero is not None
    return _YES if is_signed_byte(node.weights(env.constants), zero) else NINE_BITS


def _lift(node: ByteMatMul) -> int:
    """The number added to A by kernels, which read it as unsigned."""
    return LIFT if node.dtype is DType.INT8 else 0


@dataclass(frozen=True)
class MatrixUnit(ByteSchedule):
    """Products of a matrix unit (AMX), which takes signed bytes as they are; A is packed by a step of its own."""

    def applies(self, node: ByteMatMul, env: LoweringEnv) -> Support:
        found = has_constant_weights(node, env)
        if not found:
            return found
        if node.a_zero.kind == "row":  # times which sums of columns would be subtracted that are not lifted
            return Support.no("rows of its first operand have zero points of their own")
        if not pays(node.rows_and_batches.rows, *node.matrix_shape[::-1]):
            return Support.no("it has too few rows, columns or terms to be worth packing rows")
        return _fits_bytes(node, env) if byte_unit(env.options, env.target) else NO_UNIT

    def cost(self, node: ByteMatMul, env: LoweringEnv) -> float:
        return estimated(node, env, rate=WORDS_IN_TIME[byte_unit(env.options, env.target)], copied=1.0)

    def steps(self, node: ByteMatMul, request: KernelRequest) -> list[Step]:
        weights, made = constant_weights(node, request.workspace), ProductSteps(node, request)
        made.subtract_constant(weights, 0)
        epilogue, operands = made.correction.finish()
        left = Left(node.reads[0], node.dtype, node.rows_and_batches.rows, len(weights.values))
        return word_steps(
            replace(request, epilogue=epilogue, operands=tuple(operands)),
            unit=byte_unit(request.workspace.options, request.target), left=left,
            weights=ConstantFactor(node.reads[1], weights.values[None], weights.view),
        )  # fmt: skip


@dataclass(frozen=True)
class SaturationFree(ByteSchedule):
    """VPMADDUBSW's products of bytes as they are, by weights in an order that keeps their sums within 16 bits."""

    def applies(self, node: ByteMatMul, env: LoweringEnv) -> Support:
        found = has_constant_weights(node, env)
        if found and not widened_int16.takes(env.target):
            return NOT_AVX2
        if found and node.matrix_shape[0] < GROUP:
            return Support.no(f"{node.matrix_shape[0]} terms, fewer than {GROUP}, are no row of weights")
        return found

    def pays(self, node: ByteMatMul, env: LoweringEnv) -> Support:
        weights = constant_weights(node, env.constants)
        if not saturation_free_order.pays(weights.values[None], byte_tile(env.target)):
            return Support.no("few of its weights are so small that sums of their products stay within 16 bits")
        return _YES

    def cost(self, node: ByteMatMul, env: LoweringEnv) -> float:
        return estimated(node, env, rate=IN_ORDER)

    def steps(self, node: ByteMatMul, request: KernelRequest) -> list[Step]:
        target, weights = request.target, constant_weights(node, request.workspace)
        tile, made = byte_tile(target), ProductSteps(node, request)
        ordered = ordered_weights(request.workspace, node.reads[1], weights.view, weights.values[None], tile)
        made.subtract_constant(weights, _lift(node))
        micro = saturation_free_order.ordered_micro_text(node.dtype, target, tile)
        return made.product(Factors(node.reads[0], ordered.packed, tile, micro, panel_nbytes=ordered.panel_nbytes))


@dataclass(frozen=True)
class WidenedRows(ByteSchedule):
    """Products of 16 bits: A is widened by a step of its own, which also subtracts its zero point."""

    def applies(self, node: ByteMatMul, env: LoweringEnv) -> Support:
        found, zero = has_constant_weights(node, env), node.a_zero
        if not found:
            return found
        if not widened_int16.takes(env.target):
            return NOT_AVX2
        if not zero.known and (zero.kind != "scalar" or zero.dtype is not node.dtype):
            return Support.no("rows of its first operand have zero points of their own, or these are not of its type")
        return _fits_bytes(node, env)

    def pays(self, node: ByteMatMul, env: LoweringEnv) -> Support:
        rows = node.rows_and_batches.rows
        if isinstance(rows, int) and rows <= _FEW_ROWS:
            return Support.no(f"{rows} rows wait for the weights, whatever multiplies them")
        return _YES

    def cost(self, node: ByteMatMul, env: LoweringEnv) -> float:
        return estimated(node, env, rate=BY_WORDS, copied=1.0)

    def steps(self, node: ByteMatMul, request: KernelRequest) -> list[Step]:
        target, workspace, weights = request.target, request.workspace, constant_weights(node, request.workspace)
        tile, made = widened_int16.word_tile(target), ProductSteps(node, request)
        packing = Packing(Layout.INT8_PAIRS, tile.width, view=weights.view)
        packed = workspace.add(node.reads[1], packing, lambda: pack_byte_pairs(weights.values[None], tile))
        step = _widening_step(node, request)
        made.before.append(step)
        many, few = (widened_int16.word_micro_text(target, tile, many) for many in (True, False))
        return made.product(Factors(step.writes[0], packed, tile, many, few, widened=True))


def _widening_step(node: ByteMatMul, request: KernelRequest) -> Step:
    """The step that writes A less its zero point as int16."""
    workspace, a, zero = request.workspace, node.reads[0], node.a_zero
    rows, depth = node.rows_and_batches.rows, node.depth
    number = node.reads[zero.read] if not zero.known else workspace.add(
        "", Packing(Layout.BYTE, view=zero.value & 255), lambda: np.array([zero.value & 255], np.uint8)
    )  # fmt: skip
    words = workspace.temporary(f"{a}%words_{number}", DType.INT16, (rows * depth + 1,))
    return Step(
        widened_int16.widen_text(node.dtype, request.target), (a, number), (words,),
        WidenCall(a, words, number, rows, depth), label="widen bytes", shared=True,
        serial=Below(rows * depth, SERIAL_PRODUCTS // 8),
    )  # fmt: skip


@dataclass(frozen=True)
class PackedOnce(ByteSchedule):
    """Bytes where they lie, by constant weights in panels of four terms."""

    def applies(self, node: ByteMatMul, env: LoweringEnv) -> Support:
        return has_constant_weights(node, env)

    def cost(self, node: ByteMatMul, env: LoweringEnv) -> float:
        return estimated(node, env, rate=rate_of(env.target))

    def steps(self, node: ByteMatMul, request: KernelRequest) -> list[Step]:
        weights, made = constant_weights(node, request.workspace), ProductSteps(node, request)
        tile = byte_tile(request.target)
        packing = Packing(Layout.INT8_PANELS, tile.width, view=weights.view)
        packed = request.workspace.add(node.reads[1], packing, lambda: pack_bytes(weights.values[None], tile))
        made.subtract_constant(weights, _lift(node))
        return made.product(plain_factors(node, request, packed))
