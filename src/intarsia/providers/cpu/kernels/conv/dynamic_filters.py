"""Convolutions by dynamic filters: a step of the run packs them, then the kernels are those of constant filters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import is_static, numbers_of, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Argument, KernelCall, Ref, Sizes, Step
from intarsia.providers.cpu.kernels.common.packing import Layout
from intarsia.providers.cpu.kernels.common.schedule import LoweringEnv, Schedule
from intarsia.providers.cpu.kernels.common.template import Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import operand_specs, result_spec
from intarsia.providers.cpu.kernels.common.tiles import Tile, tile_of
from intarsia.providers.cpu.kernels.conv import pack_dynamic_filters
from intarsia.providers.cpu.kernels.conv.conv import Convolution
from intarsia.providers.cpu.kernels.conv.direct import LineBuffer
from intarsia.providers.cpu.kernels.conv.grouped.depthwise import Depthwise
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import LINE
from intarsia.providers.cpu.kernels.conv.pointwise import Pointwise

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference

_PIXELS_FOR_FILTER = 4  # of a group: for fewer, packing takes too much of the time
_LEAST_PIXELS = 24  # a product in blocks has as many
_LEAST_FILTERS = 8  # of each of several groups
_SCHEDULES: tuple[Schedule[Convolution], ...] = (
    Depthwise("depthwise"),
    Pointwise("pointwise"),
    LineBuffer("line-buffer"),
)  # in the order of preference; `suits` leaves no convolution that none of them takes


def suits(node: Node, inference: Inference) -> bool:
    """Whether a convolution (of the model, or channels-last) by filters that another node computes is one of these."""
    (x, w, *_), y = operand_specs(node, inference), result_spec(node, inference)
    if x is None or w is None or y is None or x.dtype is not DType.FLOAT or not is_static(w.shape):
        return False
    if not 3 <= len(x.shape) <= 5 or node.attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return False
    filters, channels = numbers_of(w.shape[:2])
    group = int(node.attributes.get("group", 1))
    pixels = product(y.shape[1:-1] if node.domain else y.shape[2:])
    if _is_depthwise(filters, channels, group):
        least = _PIXELS_FOR_FILTER
    elif channels * DType.FLOAT.bits // 8 >= LINE // 2 and (group == 1 or filters // group >= _LEAST_FILTERS):
        least = max(_LEAST_PIXELS, _PIXELS_FOR_FILTER * filters // group)
    else:
        return False
    return not isinstance(pixels, int) or pixels >= least


def _is_depthwise(filters: int, channels: int, group: int) -> bool:
    return channels == 1 and filters == group > 1


@dataclass(frozen=True)
class ComputedConvolution(Convolution):
    """Of the schedules those that packing in the run is worth; none is timed."""

    alone: ClassVar[str] = ""
    packed_ahead: ClassVar[bool] = False

    def schedule_table(self) -> tuple[Schedule[Convolution], ...]:
        return _SCHEDULES

    def schedule_key(self, env: LoweringEnv) -> None:
        return None

    def packed(self, workspace: Workspace, layout: Layout, tile: Tile | None, target: Target) -> tuple[str, list[Step]]:
        filters, channels, *kernel = self.filter_shape
        groups, taps = int(self.node.attributes.get("group", 1)), math.prod(kernel)
        steps = pack_dynamic_filters.window_steps(channels, tuple(kernel)) if layout is Layout.WINDOWS else channels * taps
        if tile is None:
            tile = tile_of(DType.FLOAT, target)
            made = PackFiltersCall(self.reads[1], "", layout, channels, taps, steps, filters, 1, tile.lanes, tile)
            each = LINE // tile.itemsize
            room = -(-filters // each) * each * steps
        else:
            each = filters // groups
            made = PackFiltersCall(self.reads[1], "", layout, channels, taps, steps, each, groups, tile.width, tile)
            room = pack_dynamic_filters.packed_elements(steps, each, groups, tile)
        name = workspace.temporary(f"{self.node.outputs[0]}%{layout}", DType.FLOAT, (room,))
        text = pack_dynamic_filters.pack_filters_text(DType.FLOAT, target)
        call = replace(made, packed=name)
        return name, [Step(text, (self.reads[1],), (name,), call, label=f"pack {filters}x{channels * taps}")]


@dataclass(frozen=True)
class PackFiltersCall(KernelCall):
    """The arguments of the packing step; `layout`: see `Convolution.packed`."""

    source: str
    packed: str
    layout: Layout
    channels: int
    taps: int
    steps: int
    filters: int
    groups: int
    width: int
    tile: Tile

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        if self.layout is Layout.WINDOWS:
            places = pack_dynamic_filters.window_places(self.channels, self.taps, self.tile.itemsize)
        else:
            places = pack_dynamic_filters.same_places(self.channels * self.taps)
        return pack_dynamic_filters.pack_filters_args(
            source=Ref(self.source), packed=Ref(self.packed), places=places, steps=self.steps, filters=self.filters,
            groups=self.groups, width=self.width, tile=self.tile,
        )  # fmt: skip
