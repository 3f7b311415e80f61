"""The schedules of products by a constant that are multiplied in bfloat16 or float16, where that is requested."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from intarsia.ep.capability import Support
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.pack_b import fits_16_bits
from intarsia.providers.cpu.kernels.common.precision import in_halves, may_try_pairs, pair_unit
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv
from intarsia.providers.cpu.kernels.common.units import TILE_UNITS, VECTORS
from intarsia.providers.cpu.kernels.matmul.bfloat16_rows import PAIRED, pays_in_rows, reads_rows, row_steps
from intarsia.providers.cpu.kernels.matmul.float16 import half_steps, halves_pay
from intarsia.providers.cpu.kernels.matmul.matmul_schedule_base import MatMulSchedule, estimated
from intarsia.providers.cpu.kernels.matmul.matmul_steps import ConstantFactor
from intarsia.providers.cpu.kernels.matmul.vnni import pair_steps
from intarsia.providers.cpu.kernels.matmul.vnni import pays as packing_pays

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.matmul.matmul import MatMul

_YES = Support.yes()
_NOT_REQUESTED = Support.no("products of pairs of bfloat16 are not requested, or the CPU is no faster with them")
_SMALL = Support.no("it has too few rows, columns or terms, or they do not fill pairs and vectors")


def _by_constant(node: MatMul, env: LoweringEnv) -> Support:
    """Whether it is a product by a constant matrix."""
    if not node.is_single or not env.constants.is_constant(node.reads[1]):
        return Support.no("its second operand is no constant matrix")
    return _YES


@dataclass(frozen=True)
class Bfloat16MatMulRows(MatMulSchedule):
    """Pairs of bfloat16, multiplied where they lie: nothing is packed."""

    def applies(self, node: MatMul, env: LoweringEnv) -> Support:
        if node.dtype not in PAIRED:
            return Support.no(f"it is of {node.dtype.name.lower()}")
        found, options = _by_constant(node, env), env.options_of(node)
        if not found:
            return found
        if not reads_rows(options, env.target):
            return _NOT_REQUESTED
        return _YES if pays_in_rows(options, env.target, node.rows_and_batches.rows, *reversed(node.matrix_shape)) else _SMALL

    def cost(self, node: MatMul, env: LoweringEnv) -> float:
        return estimated(node, env, rate=2.0, moved=0.5)

    def rounds(self, node: MatMul, env: LoweringEnv) -> bool:
        return True

    def steps(self, node: MatMul, request: KernelRequest) -> list[Step]:
        matrix, view = node.matrix(request.workspace)
        return row_steps(
            request, source=node.reads[0], dtype=node.dtype, m=node.rows_and_batches.rows,
            weights=ConstantFactor(node.reads[1], matrix, view),
        )  # fmt: skip


@dataclass(frozen=True)
class Bfloat16MatMulPacked(MatMulSchedule):
    """Rows are packed as pairs of bfloat16, for a matrix unit or vectors."""

    def applies(self, node: MatMul, env: LoweringEnv) -> Support:
        if node.dtype is not DType.FLOAT:
            return Support.no(f"it is of {node.dtype.name.lower()}, not float32")
        found = _by_constant(node, env)
        if not found:
            return found
        if not self._unit(node, env):
            return _NOT_REQUESTED
        depth, columns = node.matrix_shape
        if not packing_pays(node.rows_and_batches.rows, columns, depth):
            return _SMALL
        fits = fits_16_bits(node.matrix(env.constants)[0], DType.BFLOAT16)
        return _YES if fits else Support.no("a weight is too large for bfloat16")

    def pays(self, node: MatMul, env: LoweringEnv) -> Support:
        known = pair_unit(env.options_of(node), env.target)
        return _YES if known else Support.no("this CPU's products of pairs are not known to be faster; timing decides")

    def cost(self, node: MatMul, env: LoweringEnv) -> float:
        return estimated(node, env, rate=8.0 if self._unit(node, env) in TILE_UNITS else 2.0, copied=1.0)

    def steps(self, node: MatMul, request: KernelRequest) -> list[Step]:
        matrix, view = node.matrix(request.workspace)
        steps = pair_steps(
            request, unit=self._unit(node, request.env), source=node.reads[0], m=node.rows_and_batches.rows,
            weights=ConstantFactor(node.reads[1], matrix, view),
        )  # fmt: skip
        assert steps is not None, self.name
        return steps

    @staticmethod
    def _unit(node: MatMul, env: LoweringEnv) -> str:
        return pair_unit(env.options_of(node), env.target) or VECTORS * may_try_pairs(env.options, env.target)


@dataclass(frozen=True)
class Float16MatMul(MatMulSchedule):
    """Products of float16."""

    def applies(self, node: MatMul, env: LoweringEnv) -> Support:
        if not in_halves(env.options, env.target):
            return Support.no("products of float16 are not requested, or the CPU has none")
        if node.dtype is not DType.FLOAT:
            return Support.no(f"it is of {node.dtype.name.lower()}, not float32")
        found = _by_constant(node, env)
        if not found:
            return found
        depth, columns = node.matrix_shape
        if not halves_pay(env.options, env.target, node.rows_and_batches.rows, columns, depth):
            return _SMALL
        weights = node.matrix(env.constants)[0]
        if weights.size and not (np.isfinite(weights.max()) and np.isfinite(weights.min())):
            return Support.no("a weight is infinite, or no number")
        return _YES

    def cost(self, node: MatMul, env: LoweringEnv) -> float:
        return estimated(node, env, rate=2.0, copied=1.0)

    def steps(self, node: MatMul, request: KernelRequest) -> list[Step]:
        matrix, view = node.matrix(request.workspace)
        steps = half_steps(
            request, source=node.reads[0], m=node.rows_and_batches.rows,
            weights=ConstantFactor(node.reads[1], matrix, view),
        )  # fmt: skip
        assert steps is not None, self.name
        return steps
