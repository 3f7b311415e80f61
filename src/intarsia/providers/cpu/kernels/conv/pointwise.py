"""The schedules of pointwise convolutions, which are products of pixels by a matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from intarsia.ep.capability import Support
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Argument, KernelCall, Ref, Sizes, Step
from intarsia.providers.cpu.kernels.common.microkernel import met_of
from intarsia.providers.cpu.kernels.common.packing import Layout
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv, Schedule
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.conv import implicit_gemm, pointwise_kernel
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import blocked_tile, stepped_micro_text
from intarsia.providers.cpu.kernels.conv.conv_arguments import PointwiseCall
from intarsia.providers.cpu.kernels.conv.conv_cost import FEW_PIXELS, ConvSchedule, estimated, has_few_pixels, reads_floats
from intarsia.providers.cpu.kernels.conv.window_geometry import ConvWork, Geometry, strides_and_dilations
from intarsia.providers.cpu.kernels.matmul import gemm_arguments
from intarsia.providers.cpu.kernels.matmul.strassen import (
    NOT_FASTER,
    SEVEN_EIGHTHS,
    SevenWeights,
    is_allowed,
    may_pay,
    pointwise_step,
)

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.conv.conv import Convolution

_PICKING_FILTERS = 64  # of a pointwise convolution with strides: fewer are not worth a copy of the pixels it sees
_YES = Support.yes()
_FEW = Support.no(f"it has fewer than {FEW_PIXELS} pixels, for which reading the filters is what takes the time")


def _tile(node: Convolution, env: LoweringEnv) -> Tile:
    pixels = node.pixels
    rows = pixels if isinstance(pixels, int) else None
    return blocked_tile(node.filter_shape[0], rows, node.data.dtype, env.target, halves=node.packed_ahead)


def _is_product(node: Convolution) -> Support:
    """Whether it is a plain matrix product."""
    if not node.is_pointwise:
        return Support.no("its windows are of several pixels, or have strides or a border")
    return reads_floats(node) if node.group == 1 else Support.no(f"its channels are {node.group} groups")


@dataclass(frozen=True)
class Pointwise(ConvSchedule):
    """The product of all pixels by the filters, in blocks of its sums."""

    def applies(self, node: Convolution, env: LoweringEnv) -> Support:
        return _is_product(node)

    def pays(self, node: Convolution, env: LoweringEnv) -> Support:
        return _FEW if has_few_pixels(node.pixels) else _YES

    def cost(self, node: Convolution, env: LoweringEnv) -> float:
        return estimated(node, env, columns=_tile(node, env).lanes)

    def steps(self, node: Convolution, request: KernelRequest) -> list[Step]:
        target, pixels, filters = request.target, node.pixels, node.filter_shape[0]
        tile = _tile(node, request.env)
        spec = gemm_arguments.GemmSpec(node.data.dtype, "packed", request.epilogue, tile=tile, ends=True)
        packed, packing = node.packed(request.workspace, Layout.PANELS, tile, target)
        micro = stepped_micro_text(node.data.dtype, target, tile, met_of(tile, pixels, filters))
        call = PointwiseCall(
            node.geometry(node.kernel), spec, target, node.reads[0], packed, request.out, request.operands, micro.symbol
        )
        step = Step(
            pointwise_kernel.rows_text(spec, target), (node.reads[0], packed, *request.operand_names), (request.out,),
            call, label=_label(node), calls=(micro,), work=ConvWork(call.geometry),
        )  # fmt: skip
        return [*packing, step]


@dataclass(frozen=True)
class PointwiseStrassen(ConvSchedule):
    """The same by seven multiplications of blocks instead of eight."""

    def applies(self, node: Convolution, env: LoweringEnv) -> Support:
        found = _is_product(node)
        if not found:
            return found
        if not node.packed_ahead:
            return Support.no("its filters are computed in the run")
        tile = _tile(node, env)
        if node.data.dtype is not DType.FLOAT or tile.lanes * tile.itemsize != env.target.vector_bytes:
            return Support.no("its filters are not of whole vectors of float32")
        return is_allowed(env.options, env.target)

    def pays(self, node: Convolution, env: LoweringEnv) -> Support:
        if has_few_pixels(node.pixels):
            return _FEW
        filters, channels = node.filter_shape[:2]
        if not may_pay(node.pixels, filters, channels, env.target, env.options, _tile(node, env)):
            return NOT_FASTER
        return _YES

    def cost(self, node: Convolution, env: LoweringEnv) -> float:
        return estimated(node, env, columns=_tile(node, env).lanes, rate=SEVEN_EIGHTHS, copied=0.5)

    def steps(self, node: Convolution, request: KernelRequest) -> list[Step]:
        return self.products(node, request, always=request.env.timed(node) == self.name)

    @staticmethod
    def products(node: Convolution, request: KernelRequest, *, always: bool) -> list[Step]:
        """The steps; `always`: whether it is not for the estimate to decide, once pixels and threads are known."""
        target, tile = request.target, _tile(node, request.env)
        spec = gemm_arguments.GemmSpec(node.data.dtype, "packed", request.epilogue, tile=tile)
        packed, _ = node.packed(request.workspace, Layout.PANELS, tile, target)
        step = pointwise_step(
            spec, request, source=node.reads[0], geometry=node.geometry(node.kernel), label=_label(node),
            weights=SevenWeights(node.reads[1], (*node.filter_shape[:2], True), partial(_matrix, node, request), packed),
            always=always,
        )  # fmt: skip
        return [step]


@dataclass(frozen=True)
class PickedPixels(ConvSchedule):
    """One with strides, as a product of a copy of the pixels that it sees, by the schedule `product`."""

    product: Schedule[Convolution]

    def applies(self, node: Convolution, env: LoweringEnv) -> Support:
        if math.prod(node.kernel) > 1 or any(node.pads) or node.group > 1:
            return Support.no("its windows are of several pixels, or it has a border or groups")
        if math.prod(strides_and_dilations(node.node, len(node.kernel))[0]) == 1:
            return Support.no("it has no strides")
        return self.product.applies(self._plain(node, ""), env)

    def pays(self, node: Convolution, env: LoweringEnv) -> Support:
        if has_few_pixels(node.pixels):
            return _FEW
        filters = node.filter_shape[0]
        if filters < _PICKING_FILTERS:
            return Support.no(f"{filters} filters, fewer than {_PICKING_FILTERS}, are not worth the copy")
        if not pointwise_kernel.has_long_blocks(env.target):
            return Support.no("products of windows are as fast on this CPU as those of rows")
        return self.product.pays(self._plain(node, ""), env)

    def cost(self, node: Convolution, env: LoweringEnv) -> float:
        plain, strides = self._plain(node, ""), strides_and_dilations(node.node, len(node.kernel))[0]
        rate = SEVEN_EIGHTHS if isinstance(self.product, PointwiseStrassen) else 1.0
        return estimated(node, env, columns=_tile(plain, env).lanes, rate=rate, copied=1 / math.prod(strides))

    def steps(self, node: Convolution, request: KernelRequest) -> list[Step]:
        plain = self._plain(node, f"{request.out}%picked")
        source = request.workspace.temporary(plain.reads[0], plain.data.dtype, plain.data.shape)
        geometry = node.geometry(node.kernel)
        call = PickCall(geometry, plain.data.dtype, node.reads[0], source)
        step = Step(
            implicit_gemm.picking_text(request.target), node.reads[:1], (source,), call, label="pick", work=ConvWork(geometry)
        )  # fmt: skip
        if isinstance(self.product, PointwiseStrassen):
            return [step, *self.product.products(plain, request, always=request.env.timed(node) == self.name)]
        return [step, *self.product.steps(plain, request)]

    @staticmethod
    def _plain(node: Convolution, source: str) -> Convolution:
        """The convolution of the copy, called `source`."""
        x, y, rank = node.data.shape, node.output.shape, len(node.kernel)
        picked = replace(node.data, shape=(*y[:-1], x[-1]))
        inner = node.node.copy(attributes={**node.node.attributes, "strides": [1] * rank})
        return replace(node, node=inner, types=(picked, *node.types[1:]), reads=(source, *node.reads[1:]))


def _label(node: Convolution) -> str:
    return f"conv {'x'.join(map(str, node.kernel))} {node.output}"


def _matrix(node: Convolution, request: KernelRequest) -> np.ndarray:
    """The filters as [channels, filters]."""
    weights = node.constant_filters(request.workspace)
    return weights.reshape(weights.shape[:2]).T


@dataclass(frozen=True)
class PickCall(KernelCall):
    """Copies the pixels that a convolution with strides sees."""

    geometry: Geometry
    dtype: DType
    x: str
    y: str

    @property
    def form(self) -> object:
        return self.geometry, self.dtype

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return implicit_gemm.picking_args(self.geometry.at(size), self.dtype, Ref(self.x), Ref(self.y))
