"""The schedules of convolutions of bytes as sums of products of windows, which are read where they lie, widened, or packed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from intarsia.ep.capability import Support
from intarsia.graph.dims import product
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.precision import byte_unit
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv
from intarsia.providers.cpu.kernels.common.units import WORDS_IN_TIME
from intarsia.providers.cpu.kernels.conv import implicit_gemm, window_products
from intarsia.providers.cpu.kernels.conv.conv_cost import estimated
from intarsia.providers.cpu.kernels.conv.int8.conv_int8_arguments import WidenCall
from intarsia.providers.cpu.kernels.conv.int8.conv_int8_steps import (
    YES,
    ByteConvSchedule,
    Filters,
    byte_filters,
    corrected,
    finished,
    fits_bytes,
    has_long_rows,
    lift_of,
    sums_step,
    sums_tile,
)
from intarsia.providers.cpu.kernels.conv.window_geometry import strides_and_dilations
from intarsia.providers.cpu.kernels.matmul.matmul_steps import ConstantFactor
from intarsia.providers.cpu.kernels.matmul.vnni import packed_windows_pay, window_steps
from intarsia.providers.cpu.kernels.matmul_int8 import saturation_free_order, widened_int16
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import SUMS
from intarsia.providers.cpu.kernels.matmul_int8.byte_rates import BY_WORDS, IN_ORDER, rate_of
from intarsia.providers.cpu.kernels.matmul_int8.byte_weights import LIFT, add_sums, ordered_weights
from intarsia.providers.cpu.kernels.matmul_int8.constant_bytes import NO_UNIT, NOT_AVX2
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import byte_tile
from intarsia.providers.cpu.kernels.matmul_int8.zero_point_correction import Correction

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.conv.int8.conv_int8 import ByteConvolution

_MANY_FILTERS = 32  # of which the sums of windows are a small part
_GROUPS = Support.no("its channels are several groups")


def _estimated(node: ByteConvolution, env: LoweringEnv, rate: float, copied: float) -> float:
    """Seconds on one core of sums of windows; neighbouring groups that share a vector multiply zeros for each other."""
    lanes, merged = byte_tile(env.target).lanes, 1
    if node.group > 1:
        merged = window_products.merged_groups(node.filter_shape[0], node.group, byte_tile(env.target))
    columns = lanes if node.group == 1 else 1
    return estimated(node, env, columns=columns, rate=rate / merged, copied=copied)


@dataclass(frozen=True)
class MatrixUnitWindows(ByteConvSchedule):
    """Products of a matrix unit (AMX), which takes signed bytes as they are; windows are packed by a step of its own."""

    def applies(self, node: ByteConvolution, env: LoweringEnv) -> Support:
        if node.group > 1:
            return _GROUPS
        filters, channels = node.filter_shape[:2]
        if not packed_windows_pay(node.geometry(node.kernel), node.data.dtype, filters, channels):
            return Support.no("it has too few pixels, filters or terms to be worth packing windows, or these are of three axes")
        return fits_bytes(node, env) if byte_unit(env.options, env.target) else NO_UNIT

    def cost(self, node: ByteConvolution, env: LoweringEnv) -> float:
        return estimated(node, env, rate=WORDS_IN_TIME[byte_unit(env.options, env.target)], copied=1.0)

    def steps(self, node: ByteConvolution, request: KernelRequest) -> list[Step]:
        target, workspace, kernel = request.target, request.workspace, node.kernel
        weights, view = node.weights(workspace), node.weights_view(workspace)
        made = corrected(node, request, weights, 0)
        steps = window_steps(
            made, unit=byte_unit(workspace.options, target), dtype=node.data.dtype, geometry=node.geometry(kernel),
            bordered=partial(node.bordered, target, workspace, made.out, kernel),
            weights=ConstantFactor(node.reads[1], weights.astype(np.int8), view),
        )  # fmt: skip
        assert steps is not None, self.name
        return steps


@dataclass(frozen=True)
class SaturationFreeWindows(ByteConvSchedule):
    """VPMADDUBSW's products of bytes as they are, by filters in an order that keeps their sums within 16 bits."""

    def applies(self, node: ByteConvolution, env: LoweringEnv) -> Support:
        if not widened_int16.takes(env.target):
            return NOT_AVX2
        return fits_bytes(node, env) if node.group == 1 else _GROUPS

    def pays(self, node: ByteConvolution, env: LoweringEnv) -> Support:
        if not saturation_free_order.pays(self._matrix(node, node.weights(env.constants)), byte_tile(env.target)):
            return Support.no("few of its weights are so small that sums of their products stay within 16 bits")
        return YES

    def cost(self, node: ByteConvolution, env: LoweringEnv) -> float:
        return _estimated(node, env, IN_ORDER, 1.0 * any(node.pads))

    def steps(self, node: ByteConvolution, request: KernelRequest) -> list[Step]:
        target, workspace, dtype = request.target, request.workspace, node.data.dtype
        weights, view = node.weights(workspace), node.weights_view(workspace)
        view = *view, self._has_long_rows(node)
        ordered = ordered_weights(workspace, node.reads[1], view, self._matrix(node, weights), byte_tile(target))
        border, source = node.bordered(target, workspace, request.out, node.kernel)
        made = corrected(node, request, weights, lift_of(node))
        tile = sums_tile(node, len(weights), 1, request)
        micro = saturation_free_order.ordered_micro_text(dtype, target, tile)
        filters = Filters(
            len(weights), 1, node.kernel, ordered.packed, tile, micro, panel_nbytes=ordered.panel_nbytes
        )  # fmt: skip
        return [*border, sums_step(node, made, source, filters)]

    def _matrix(self, node: ByteConvolution, weights: np.ndarray) -> np.ndarray:
        return implicit_gemm.byte_matrix(weights.astype(np.int8), self._has_long_rows(node))

    @staticmethod
    def _has_long_rows(node: ByteConvolution) -> bool:
        """Whether neighbouring pixels of a window lie together."""
        _, dilations = strides_and_dilations(node.node, len(node.kernel))
        return dilations[-1] == 1


@dataclass(frozen=True)
class WidenedWindows(ByteConvSchedule):
    """Products of 16 bits: the input is widened by a step of its own, which also subtracts its zero point."""

    def applies(self, node: ByteConvolution, env: LoweringEnv) -> Support:
        return fits_bytes(node, env) if widened_int16.takes(env.target) else NOT_AVX2

    def cost(self, node: ByteConvolution, env: LoweringEnv) -> float:
        return _estimated(node, env, BY_WORDS, 1.0)

    def steps(self, node: ByteConvolution, request: KernelRequest) -> list[Step]:
        target, workspace, group = request.target, request.workspace, node.group
        weights, view, tile = node.weights(workspace), node.weights_view(workspace), widened_int16.word_tile(request.target)
        step = self._widen(node, request)
        made = finished(request, Correction(request.epilogue, request.operands))
        long_rows = has_long_rows(node, len(weights), group, tile)
        packed = workspace.add(
            node.reads[1], Packing(Layout.INT8_PAIRS, tile.width, view=(view, long_rows)),
            lambda: implicit_gemm.pack_byte_weights(weights.astype(np.int8)[None], group, tile, long_rows, True),
        )  # fmt: skip
        many, few = (widened_int16.word_micro_text(target, tile, many) for many in (True, False))
        filters = Filters(len(weights), group, node.kernel, packed, tile, many, few, DType.INT8)
        return [step, sums_step(node, made, step.writes[0], filters)]

    @staticmethod
    def _widen(node: ByteConvolution, request: KernelRequest) -> Step:
        """The step that writes the input less its zero point, and zeros around it, in 16 bits."""
        x, rank, data = node.data.shape, len(node.kernel), node.reads[0]
        number = node.border_number(request.workspace)
        padded = [d + node.pads[i] + node.pads[rank + i] for i, d in enumerate(x[1:-1])]
        around = "".join(f"_{n}" for n in node.pads) if any(node.pads) else ""
        name, size = f"{data}%words{around}_{number}", product((x[0], *padded, x[-1])) + 1
        words = request.workspace.temporary(name, DType.INT16, (size,))
        return Step(
            widened_int16.widen_text(node.data.dtype, request.target), (data, number), (words,),
            WidenCall(node.geometry(node.kernel), data, words, number), label="widen bytes", shared=True,
        )  # fmt: skip


@dataclass(frozen=True)
class MovedFilters(ByteConvSchedule):
    """Filters of nine bits are moved to eight by a number for each, times which the sums of windows are subtracted."""

    def applies(self, node: ByteConvolution, env: LoweringEnv) -> Support:
        if node.group > 1:
            return _GROUPS
        return Support.no("filters less their zero points are int8") if node.is_signed_byte(env.constants) else YES

    def pays(self, node: ByteConvolution, env: LoweringEnv) -> Support:
        filters = node.filter_shape[0]
        if filters < _MANY_FILTERS:
            return Support.no(
                f"{filters} filters, fewer than {_MANY_FILTERS}, are multiplied twice in the time of sums of windows"
            )
        return YES

    def cost(self, node: ByteConvolution, env: LoweringEnv) -> float:
        rate, more = rate_of(env.target), 1 + byte_tile(env.target).lanes / node.filter_shape[0]
        return _estimated(node, env, rate / more, 1.0 * any(node.pads))

    def steps(self, node: ByteConvolution, request: KernelRequest) -> list[Step]:
        workspace, weights = request.workspace, node.weights(request.workspace)
        border, source = node.bordered(request.target, workspace, request.out, node.kernel)
        moved, by = _moved(weights)
        of_windows = self._window_sums(node, request, source)
        column = add_sums(workspace, node.reads[1], by)
        correction = Correction(request.epilogue, request.operands)
        sums = correction.operand(of_windows.writes[0], "row", SUMS)
        correction.subtract(correction.operand(column, "column", SUMS) * sums)
        made = corrected(node, request, weights, lift_of(node), correction)
        filters = byte_filters(node, request, moved[None], ("moved", *node.weights_view(workspace)))
        return [*border, of_windows, sums_step(node, made, source, filters)]

    @staticmethod
    def _window_sums(node: ByteConvolution, request: KernelRequest, source: str) -> Step:
        """The sum of every window, which all filters see: a filter of ones."""
        y = node.output.shape
        name = request.workspace.temporary(f"{request.out}%rowsums", SUMS, y[:-1])
        ones = byte_filters(node, request, np.ones((1, 1, *node.filter_shape[1:]), np.int8), ("ones", *node.view))
        return sums_step(node, replace(request, epilogue=None, operands=(), out=name), source, ones)


def _moved(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights of nine bits as int8 [M, ...] and the int32 number that was added to all of a filter."""
    flat = weights.reshape(len(weights), -1).astype(np.int32)
    by = np.clip(0, -LIFT - flat.min(1), LIFT - 1 - flat.max(1)).astype(np.int32)
    return (flat + by[:, None]).astype(np.int8).reshape(weights.shape), by


@dataclass(frozen=True)
class AddedParts(ByteConvSchedule):
    """Filters as sums of int8 parts, of which there is one where they fit, multiplied by bytes as they lie."""

    def applies(self, node: ByteConvolution, env: LoweringEnv) -> Support:
        return YES

    def cost(self, node: ByteConvolution, env: LoweringEnv) -> float:
        parts = 1 if node.is_signed_byte(env.constants) else 2
        return _estimated(node, env, rate_of(env.target) / parts, 1.0 * any(node.pads))

    def steps(self, node: ByteConvolution, request: KernelRequest) -> list[Step]:
        workspace, weights = request.workspace, node.weights(request.workspace)
        border, source = node.bordered(request.target, workspace, request.out, node.kernel)
        made = corrected(node, request, weights, lift_of(node))
        filters = byte_filters(node, request, _parts(weights), node.weights_view(workspace))
        return [*border, sums_step(node, made, source, filters)]


def _parts(weights: np.ndarray) -> np.ndarray:
    """Whole numbers as sums of int8 ones, [parts, *shape]."""
    parts: list[np.ndarray] = []
    rest = weights
    while not parts or rest.any():
        part = np.clip(rest, -LIFT, LIFT - 1)
        parts.append(part.astype(np.int8))
        rest = rest - part
    return np.stack(parts)
