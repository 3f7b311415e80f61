"""The schedules of convolutions that are multiplied in bfloat16 or float16, where that is requested."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from intarsia.ep.capability import Support
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.pack_b import fits_16_bits
from intarsia.providers.cpu.kernels.common.precision import in_halves, pair_unit
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv
from intarsia.providers.cpu.kernels.common.units import TILE_UNITS
from intarsia.providers.cpu.kernels.conv.conv_cost import UNIT_FILTERS, ConvSchedule, estimated
from intarsia.providers.cpu.kernels.conv.winograd.winograd import preferred
from intarsia.providers.cpu.kernels.matmul.bfloat16_rows import (
    PAIRED,
    convolution_steps,
    pays_in_rows,
    reads_rows,
    row_steps,
    windows_pay,
)
from intarsia.providers.cpu.kernels.matmul.float16 import half_steps, halves_pay
from intarsia.providers.cpu.kernels.matmul.matmul_steps import ConstantFactor
from intarsia.providers.cpu.kernels.matmul.vnni import packed_windows_pay, pair_steps, window_steps
from intarsia.providers.cpu.kernels.matmul.vnni import pays as packing_pays

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.conv.conv import Convolution

_HALF_FILTERS = 128  # fewer are not worth rounding the input of a pointwise convolution to float16
_YES = Support.yes()
_NOT_POINTWISE = Support.no("it is not pointwise, of one group")
_POINTWISE = Support.no("it is pointwise")
_WINOGRAD = Support.no("Winograd's products of float32 are expected to be as fast")
_SMALL = Support.no("it has too few pixels, filters or channels, or they do not fill pairs and vectors")


def _many_filters(node: Convolution, least: int) -> Support:
    """Whether there are filters enough to be worth rounding the input."""
    filters = node.filter_shape[0]
    return _YES if filters >= least else Support.no(f"{filters} filters, fewer than {least}, are not worth rounding its input")


def _in_pairs(node: Convolution, env: LoweringEnv) -> Support:
    """Whether pairs of bfloat16 may be multiplied where they lie."""
    if node.data.dtype not in PAIRED:
        return Support.no(f"it is of {node.data.dtype.name.lower()}")
    if not reads_rows(env.options_of(node), env.target):
        return Support.no("products of pairs of bfloat16 are not requested, or the CPU is no faster with them")
    return _YES


@dataclass(frozen=True)
class _Pairs(ConvSchedule):
    """Pairs of bfloat16, multiplied where they lie: nothing is packed."""

    def cost(self, node: Convolution, env: LoweringEnv) -> float:
        return estimated(node, env, columns=env.target.vector_bytes // 4, rate=2.0, moved=0.5)

    def rounds(self, node: Convolution, env: LoweringEnv) -> bool:
        return True


@dataclass(frozen=True)
class Bfloat16Rows(_Pairs):
    """A pointwise convolution as a product of rows."""

    def applies(self, node: Convolution, env: LoweringEnv) -> Support:
        found = _in_pairs(node, env)
        if found and not (node.is_pointwise and node.group == 1):
            return _NOT_POINTWISE
        if found and node.filter_shape[1] % 2:
            return Support.no(f"{node.filter_shape[1]} channels are no pairs")
        return found

    def pays(self, node: Convolution, env: LoweringEnv) -> Support:
        filters, channels = node.filter_shape[:2]
        if not pays_in_rows(env.options_of(node), env.target, node.pixels, filters, channels):
            return _SMALL
        return _many_filters(node, UNIT_FILTERS)

    def steps(self, node: Convolution, request: KernelRequest) -> list[Step]:
        weights = node.constant_filters(request.workspace)
        return row_steps(
            request, source=node.reads[0], dtype=node.data.dtype, m=node.pixels,
            weights=ConstantFactor(node.reads[1], weights.reshape(weights.shape[:2]).T, node.view),
        )  # fmt: skip


@dataclass(frozen=True)
class Bfloat16Windows(_Pairs):
    """Any other convolution, as a product of windows."""

    def applies(self, node: Convolution, env: LoweringEnv) -> Support:
        found = _in_pairs(node, env)
        if found and node.is_pointwise and node.group == 1:
            return _POINTWISE
        if found and not windows_pay(env.options_of(node), env.target, node.pixels, node.filter_shape, node.group):
            return _SMALL
        return found

    def pays(self, node: Convolution, env: LoweringEnv) -> Support:
        if node.data.dtype is DType.FLOAT and node.group == 1 and preferred(node, env) is not None:
            return _WINOGRAD
        return _many_filters(node, UNIT_FILTERS)

    def steps(self, node: Convolution, request: KernelRequest) -> list[Step]:
        return convolution_steps(
            request, source=node.reads[0], dtype=node.data.dtype, geometry=node.geometry(node.kernel),
            weights=ConstantFactor(node.reads[1], node.constant_filters(request.workspace)), group=node.group,
        )  # fmt: skip


def _fits_bfloat16(node: Convolution, env: LoweringEnv) -> Support:
    fits = fits_16_bits(_filters(node, env), DType.BFLOAT16)
    return _YES if fits else Support.no("a weight is too large for bfloat16")


@dataclass(frozen=True)
class _Packed(ConvSchedule):
    """Windows or pixels are packed as rows of pairs of bfloat16, for a matrix unit or vectors."""

    def cost(self, node: Convolution, env: LoweringEnv) -> float:
        unit = pair_unit(env.options_of(node), env.target)
        return estimated(node, env, columns=16, rate=8.0 if unit in TILE_UNITS else 2.0, copied=1.0)

    def _may_pack(self, node: Convolution, env: LoweringEnv) -> Support:
        if node.data.dtype is not DType.FLOAT:
            return Support.no(f"it is of {node.data.dtype.name.lower()}, not float32")
        if node.group > 1:
            return Support.no(f"its channels are {node.group} groups")
        if not pair_unit(env.options_of(node), env.target):
            return Support.no("products of pairs of bfloat16 are not requested, or the CPU is no faster with them")
        return _YES


@dataclass(frozen=True)
class Bfloat16PackedRows(_Packed):
    """A pointwise convolution."""

    def applies(self, node: Convolution, env: LoweringEnv) -> Support:
        if not node.is_pointwise:
            return _NOT_POINTWISE
        found, (filters, channels) = self._may_pack(node, env), node.filter_shape[:2]
        if found and not packing_pays(node.pixels, filters, channels):
            return _SMALL
        return found and _fits_bfloat16(node, env)

    def pays(self, node: Convolution, env: LoweringEnv) -> Support:
        return _many_filters(node, UNIT_FILTERS)

    def steps(self, node: Convolution, request: KernelRequest) -> list[Step]:
        env = request.env
        steps = pair_steps(
            request, unit=pair_unit(env.options_of(node), env.target), source=node.reads[0], m=node.pixels,
            weights=ConstantFactor(node.reads[1], _matrix(node, env), node.view),
        )  # fmt: skip
        assert steps is not None, self.name
        return steps


@dataclass(frozen=True)
class Bfloat16PackedWindows(_Packed):
    """Any other convolution of one group."""

    def applies(self, node: Convolution, env: LoweringEnv) -> Support:
        if node.is_pointwise:
            return _POINTWISE
        found, (filters, channels) = self._may_pack(node, env), node.filter_shape[:2]
        if found and not packed_windows_pay(node.geometry(node.kernel), DType.FLOAT, filters, channels):
            return _SMALL
        return found and _fits_bfloat16(node, env)

    def pays(self, node: Convolution, env: LoweringEnv) -> Support:
        if pair_unit(env.options_of(node), env.target) not in TILE_UNITS and preferred(node, env) is not None:
            return _WINOGRAD
        return _many_filters(node, UNIT_FILTERS)

    def steps(self, node: Convolution, request: KernelRequest) -> list[Step]:
        env, kernel = request.env, node.kernel
        steps = window_steps(
            request, unit=pair_unit(env.options_of(node), env.target), dtype=DType.FLOAT, geometry=node.geometry(kernel),
            bordered=partial(node.bordered, request.target, request.workspace, request.out, kernel),
            weights=ConstantFactor(node.reads[1], _filters(node, env), node.view),
        )  # fmt: skip
        assert steps is not None, self.name
        return steps


@dataclass(frozen=True)
class Float16Rows(ConvSchedule):
    """A pointwise convolution whose products are of float16."""

    def applies(self, node: Convolution, env: LoweringEnv) -> Support:
        if not in_halves(env.options, env.target):
            return Support.no("products of float16 are not requested, or the CPU has none")
        if node.data.dtype is not DType.FLOAT:
            return Support.no(f"it is of {node.data.dtype.name.lower()}, not float32")
        if not (node.is_pointwise and node.group == 1):
            return _NOT_POINTWISE
        filters, channels = node.filter_shape[:2]
        if not halves_pay(env.options, env.target, node.pixels, filters, channels):
            return _SMALL
        weights = _filters(node, env)
        if weights.size and not (np.isfinite(weights.max()) and np.isfinite(weights.min())):
            return Support.no("a weight is infinite, or no number")
        return _YES

    def pays(self, node: Convolution, env: LoweringEnv) -> Support:
        return _many_filters(node, _HALF_FILTERS)

    def cost(self, node: Convolution, env: LoweringEnv) -> float:
        return estimated(node, env, columns=env.target.vector_bytes // 2, rate=2.0, copied=1.0)

    def steps(self, node: Convolution, request: KernelRequest) -> list[Step]:
        steps = half_steps(
            request, source=node.reads[0], m=node.pixels,
            weights=ConstantFactor(node.reads[1], _matrix(node, request.env), node.view),
        )  # fmt: skip
        assert steps is not None, self.name
        return steps


def _filters(node: Convolution, env: LoweringEnv) -> np.ndarray:
    return node.constant_filters(env.constants)


def _matrix(node: Convolution, env: LoweringEnv) -> np.ndarray:
    """The filters of a pointwise convolution as [channels, filters]."""
    weights = _filters(node, env)
    return weights.reshape(weights.shape[0], -1).T
