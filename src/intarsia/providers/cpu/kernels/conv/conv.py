"""Channels-last convolution as calls of the hand-scheduled kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import MethodType

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, is_static, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Argument, Ref, Sizes, Step
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.lowering_options import LoweringOptions
from intarsia.providers.cpu.kernels.common.microkernel import Tile, met_of, micro_text, tile_of
from intarsia.providers.cpu.kernels.common.pack_b import pack_matrix
from intarsia.providers.cpu.kernels.common.precision import asked, in_halves, pair_unit
from intarsia.providers.cpu.kernels.common.schedule import FusedOperand, Schedules, Workspace
from intarsia.providers.cpu.kernels.common.units import TILE_UNITS
from intarsia.providers.cpu.kernels.conv import few_output_channels_kernel, implicit_gemm, line_buffer_kernel, pointwise_kernel
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import blocked_tile, stepped_micro_text
from intarsia.providers.cpu.kernels.conv.conv_arguments import ConvolutionCall
from intarsia.providers.cpu.kernels.conv.grouped import depthwise_kernel, small_groups_kernel
from intarsia.providers.cpu.kernels.conv.grouped.sliding_window import WindowSpec
from intarsia.providers.cpu.kernels.conv.window_geometry import Filtered, Geometry, strides_and_dilations
from intarsia.providers.cpu.kernels.conv.winograd import (
    bfloat16 as winograd_bfloat16,
)
from intarsia.providers.cpu.kernels.conv.winograd import (
    cost_model as winograd_cost,
)
from intarsia.providers.cpu.kernels.conv.winograd import (
    kernel as winograd_kernel,
)
from intarsia.providers.cpu.kernels.conv.winograd import (
    plan as winograd_plan,
)
from intarsia.providers.cpu.kernels.matmul import gemm_kernel
from intarsia.providers.cpu.kernels.matmul.bfloat16_rows import (
    SAID,
    convolution_steps,
    in_pairs,
    pays_in_rows,
    reads_rows,
    rounded,
    row_steps,
    windows_pay,
)
from intarsia.providers.cpu.kernels.matmul.float16 import half_steps
from intarsia.providers.cpu.kernels.matmul.strassen import may_pay, pointwise_step
from intarsia.providers.cpu.kernels.matmul.vnni import pair_steps, window_steps

_FEW_PIXELS = 24  # fewer: weights, read once, are what limits
_WINOGRAD = {"direct": None, "winograd2": 2, "winograd4": 4}  # schedules of 3x3 convolutions, as outputs of a Winograd tile
_HALF_FILTERS = 128  # fewer are not worth rounding the input of a pointwise convolution to float16
_IN_PAIRS = (DType.FLOAT, DType.BFLOAT16)
_UNIT_FILTERS = 64  # the same for units of bfloat16, windows included
_LEAST_TERMS = 16  # of a sum in a small group
_PICKING_FILTERS = 64  # of a pointwise convolution with strides: fewer are not worth a copy of the pixels it sees


@dataclass(frozen=True)
class Convolution(Filtered):
    def result(self, acc: Tensor) -> Tensor:
        if len(self.types) < 3 or self.types[2] is None:
            return acc
        return acc + k.input(self.node.inputs[2], acc.dtype, self.types[2].shape or ())  # type: ignore[arg-type]

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        weights = self.filters(workspace)
        assert weights is not None
        kernel = tuple(weights.shape[2:])
        group = int(self.node.attributes.get("group", 1))
        if self._in_small_groups(target, weights.shape):
            return self._grouped(target, workspace, epilogue, operands, out, weights)
        if depthwise_kernel.takes(weights.shape, group, target.vector_bytes * 8 // self.data.dtype.bits):
            return self._depthwise(target, workspace, epilogue, operands, out, weights.shape)
        if few_output_channels_kernel.takes(weights.shape, group, target.vector_bytes * 8 // self.data.dtype.bits):
            return [self._few_filters(target, workspace, epilogue, operands, out, weights, kernel)]
        if self._winograd_of_pairs(target, workspace, weights.shape):
            tile = blocked_tile(weights.shape[0], None, self.data.dtype, target)
            chosen = winograd_plan.WinogradSpec(winograd_bfloat16.OUTPUTS, epilogue, tile=tile, pairs=True)
            return [self._winograd(target, workspace, epilogue, operands, out, weights, chosen)]
        if self._goes_by_pairs(target, workspace, weights.shape):
            return self._by_pairs(target, workspace, epilogue, operands, out, weights)
        steps = self._in_16_bits(target, workspace, epilogue, operands, out, weights, kernel, group)
        if steps is not None:
            return steps
        outputs = self._chosen_outputs(kernel, target, workspace)
        if outputs is not None:
            tile = blocked_tile(weights.shape[0] // group, None, self.data.dtype, target)
            chosen = winograd_plan.WinogradSpec(outputs, epilogue, tile=tile)
            return [self._winograd(target, workspace, epilogue, operands, out, weights, chosen)]
        return self._product(target, workspace, epilogue, operands, out, weights, kernel, group)

    def schedules(self, target: Target, options: LoweringOptions) -> Schedules | None:
        """Direct sums or one of Winograd's variants, of a 3x3 convolution of stride 1 that any of them can compute."""
        x, out, weights = self.data.shape, self.output.shape, self.types[1]
        assert x is not None and out is not None and weights is not None and weights.shape is not None
        kernel = tuple(weights.shape[2:])
        if not options.winograd or self.data.dtype is not DType.FLOAT or kernel != (3, 3):
            return None
        if not is_static((*x, *out)):
            return None
        shape = self.geometry((3, 3)).at(int)  # type: ignore[arg-type]
        if not winograd_cost.is_applicable(shape):
            return None
        default = winograd_cost.prefers_winograd(shape, target.vector_bytes // 4, target.l2_nbytes)
        names = sorted(_WINOGRAD, key=lambda name: _WINOGRAD[name] != default)
        products = shape.batch * math.prod(shape.output) * shape.filters * shape.channels * 9
        return Schedules(f"conv {shape}", tuple(names), products)

    def _chosen_outputs(self, kernel: tuple[int, ...], target: Target, workspace: Workspace) -> int | None:
        """The Winograd variant to take; None for direct convolution."""
        chosen_by_time = self.schedules(target, workspace.options) if workspace.choices else None
        if chosen_by_time is not None and chosen_by_time.key in workspace.choices:
            return _WINOGRAD[workspace.choices[chosen_by_time.key]]
        return self._winograd_outputs(kernel, target) if workspace.options.winograd else None

    def _winograd_outputs(self, kernel: tuple[int, ...], target: Target) -> int | None:
        """Which Winograd variant is the fastest, for sizes that are not known as for one image; None for direct convolution."""
        if self.data.dtype is not DType.FLOAT or len(kernel) < 2 or kernel[-2:] != (3, 3):
            return None
        return winograd_cost.prefers_winograd(self.geometry(kernel).usual(), target.vector_bytes // 4, target.l2_nbytes)

    def _winograd(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        weights: np.ndarray, spec: winograd_plan.WinogradSpec,
    ) -> Step:  # fmt: skip
        dtype, tile, group = (
            self.data.dtype,
            winograd_plan.winograd_tile(spec, target),
            int(self.node.attributes.get("group", 1)),
        )
        label = f"winograd{spec.outputs}"
        if spec.pairs:
            form, pack = "pairs", partial(winograd_bfloat16.pack_weights, weights, tile, in_pairs)
            text = winograd_bfloat16.kernel_text(spec, target)
            micro = winograd_bfloat16.micro_text(target, tile, met_of(tile, None, len(weights)))
        else:
            form, pack = "", partial(winograd_plan.pack_weights, weights, spec, tile, group)
            text = winograd_kernel.kernel_text(spec, target)
            micro = stepped_micro_text(dtype, target, tile, met_of(tile, None, len(weights) // group))
        packed = workspace.add(self.reads[1], f"{label}_{tile.width}{form}", pack)
        taps = workspace.add("", f"row_taps{tile.itemsize}", lambda: pointwise_kernel.row_taps(dtype, target))

        # Blocks have sizes that follow from the number of threads.
        call = ConvolutionCall(
            self.geometry(weights.shape[2:]), spec, target, self.reads[0], packed, out, tuple(operands), micro.symbol, taps
        )
        reads = (self.reads[0], packed, taps, *(o.name for o in operands))
        return Step(
            text, reads, (out,), call.winograd, scratch_nbytes=call.winograd_scratch,
            label=f"{label} {self.output}", calls=(micro,), work=call.geometry.shares, arithmetic=SAID if spec.pairs else "",
        )  # fmt: skip

    def _packed(self, workspace: Workspace, form: str, tile: Tile | None, target: Target) -> tuple[str, list[Step]]:
        """The buffer of the packed filters ("panels" of pointwise ones, of "windows", or "depthwise"), and what packs them."""
        weights, group = self.filters(workspace), int(self.node.attributes.get("group", 1))
        assert weights is not None
        if tile is None:
            return workspace.add(self.reads[1], form, lambda: depthwise_kernel.pack_weights(weights, target)), []
        if form == "panels":
            matrix = weights.reshape(weights.shape[:2]).T
            return workspace.add(self.reads[1], f"{form}{tile.width}", lambda: pack_matrix(matrix, tile)), []
        return workspace.add(
            self.reads[1], f"{form}{tile.width}", lambda: line_buffer_kernel.pack_windows(weights, tile, group)
        ), []

    def _depthwise(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        filters: tuple[int, ...],
    ) -> list[Step]:  # fmt: skip
        kernel = filters[2:]
        strides = strides_and_dilations(self.node, len(kernel))
        y, channels = self.output.shape, int(self.node.attributes.get("group", 1))
        assert y is not None
        plain = WindowSpec("multiply", kernel, *strides, self.data.dtype, epilogue, multiplier=filters[0] // channels)
        spec = depthwise_kernel.scheduled(plain, filters[0], y[-2] if isinstance(y[-2], int) else None, target)
        packed, packing = self._packed(workspace, "depthwise", None, target)

        call = ConvolutionCall(self.geometry(kernel), spec, target, self.reads[0], packed, out, tuple(operands))
        step = Step(
            depthwise_kernel.kernel_text(spec, target), (self.reads[0], packed, *(o.name for o in operands)), (out,),
            call.depthwise,
            label=f"depthwise {'x'.join(map(str, kernel))} {self.output}", work=call.geometry.shares,
        )  # fmt: skip
        return [*packing, step]

    def _in_small_groups(self, target: Target, filters: tuple[int, ...]) -> bool:
        group, dtype = int(self.node.attributes.get("group", 1)), self._sums_dtype
        return group > 1 and small_groups_kernel.takes(filters, group, target.vector_bytes * 8 // dtype.bits)

    @property
    def _sums_dtype(self) -> DType:
        return DType.FLOAT if self.data.dtype is DType.BFLOAT16 else self.data.dtype

    def _groups_by_pairs(self, target: Target, workspace: Workspace, filters: tuple[int, ...]) -> bool:
        """Whether a convolution `_in_small_groups` multiplies pairs of bfloat16."""
        many = filters[0] >= _UNIT_FILTERS and math.prod(filters[1:]) >= _LEAST_TERMS
        return self.data.dtype in _IN_PAIRS and many and reads_rows(asked(workspace.options, self.node), target)

    def _grouped(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        weights: np.ndarray,
    ) -> list[Step]:  # fmt: skip
        kernel, x, y = weights.shape[2:], self.data.shape, self.output.shape
        assert x is not None and y is not None
        steps, each = strides_and_dilations(self.node, len(kernel)), weights.shape[1]
        plain = WindowSpec("multiply", kernel, *steps, self._sums_dtype, epilogue, each=each)
        spec = small_groups_kernel.scheduled(plain, y[-2] if isinstance(y[-2], int) else None, target)
        pairs = self._groups_by_pairs(target, workspace, weights.shape)
        before: list[Step] = []
        source = self.reads[0]
        if pairs:
            spec = replace(spec, x_dtype=DType.BFLOAT16)
            before, source = rounded(target, workspace, source, self.data.dtype, product(x))
        form, pack = ("pair groups", in_pairs) if pairs else ("groups", None)
        packed = workspace.add(self.reads[1], form, lambda: small_groups_kernel.pack_weights(weights, target, pack))

        call = ConvolutionCall(self.geometry(kernel), spec, target, source, packed, out, tuple(operands))
        step = Step(
            small_groups_kernel.kernel_text(spec, target), (source, packed, *(o.name for o in operands)), (out,),
            call.depthwise,
            label=f"grouped {'x'.join(map(str, kernel))} {TensorType(self._sums_dtype, y)}", work=call.geometry.shares,
            arithmetic=SAID if pairs else "",
        )  # fmt: skip
        return [*before, step]

    def _few_filters(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        weights: np.ndarray, kernel: tuple[int, ...],
    ) -> Step:  # fmt: skip
        strides = strides_and_dilations(self.node, len(kernel))
        spec = WindowSpec("multiply", kernel, *strides, self.data.dtype, epilogue, filters=weights.shape[0])
        packed = workspace.add(self.reads[1], "few", lambda: few_output_channels_kernel.pack_weights(weights, target))

        call = ConvolutionCall(self.geometry(kernel), spec, target, self.reads[0], packed, out, tuple(operands))
        return Step(
            few_output_channels_kernel.kernel_text(spec, target), (self.reads[0], packed, *(o.name for o in operands)), (out,),
            call.few_filters, label=f"few filters {'x'.join(map(str, kernel))} {self.output}", work=call.geometry.shares,
        )  # fmt: skip

    def _product(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        weights: np.ndarray, kernel: tuple[int, ...], group: int,
    ) -> list[Step]:  # fmt: skip
        dtype = self.data.dtype
        if self._picks(target, weights.shape):
            return self._picked(target, workspace, epilogue, operands, out, weights)
        found = self._blocked(target, workspace, epilogue, operands, out, weights.shape, group)
        if found is not None:
            return found
        spec = gemm_kernel.GemmSpec(dtype, "packed", epilogue)
        tile = tile_of(dtype, target)
        packed = workspace.add(self.reads[1], f"filters{tile.width}", lambda: implicit_gemm.pack_weights(weights, group, tile))
        border, source = self.bordered(target, workspace, out, kernel)
        assert self.output.shape is not None
        micro = micro_text(dtype, target, met=met_of(tile, self.output.shape[-2], weights.shape[0] // group))
        call = ConvolutionCall(self.geometry(kernel), spec, target, source, packed, out, tuple(operands), micro.symbol)
        label = f"conv {'x'.join(map(str, kernel))} {self.output}"
        reads = (source, packed, *(o.name for o in operands))
        text = gemm_kernel.kernel_text(spec, target)
        return [*border, Step(text, reads, (out,), call.product, label=label, calls=(micro,), work=call.geometry.shares)]

    def _picks(self, target: Target, shape: tuple[int, ...]) -> bool:
        """Whether a pointwise product with strides is that of a copy of the pixels it sees: where products of rows are faster
        than those of windows by more than that."""
        pixels = product(self.output.shape[:-1])  # type: ignore[index]
        strided = math.prod(strides_and_dilations(self.node, len(shape) - 2)[0]) > 1
        pointwise = math.prod(shape[2:]) == 1 and not any(self.pads) and int(self.node.attributes.get("group", 1)) == 1
        few = isinstance(pixels, int) and pixels < _FEW_PIXELS
        return strided and pointwise and not few and shape[0] >= _PICKING_FILTERS and pointwise_kernel.has_long_blocks(target)

    def _picked(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        weights: np.ndarray,
    ) -> list[Step]:  # fmt: skip
        x, y, rank = self.data.shape, self.output.shape, weights.ndim - 2
        assert x is not None and y is not None
        picked = replace(self.data, shape=(*y[:-1], x[-1]))
        source = workspace.temporary(f"{out}%picked", picked.dtype, picked.shape)  # type: ignore[arg-type]
        geometry = self.geometry(weights.shape[2:])
        arguments = partial(_picking, geometry, picked.dtype, self.reads[0], source)
        step = Step(
            implicit_gemm.picking_text(target), self.reads[:1], (source,), arguments, label="pick", work=geometry.shares
        )  # fmt: skip
        node = self.node.copy(attributes={**self.node.attributes, "strides": [1] * rank})
        plain = replace(self, node=node, types=(picked, *self.types[1:]), reads=(source, *self.reads[1:]))
        return [step, *plain._product(target, workspace, epilogue, operands, out, weights, weights.shape[2:], 1)]

    def rounds(self, target: Target, workspace: Workspace) -> tuple[str, ...]:
        weights = self.filters(workspace)
        if weights is None:
            return ()
        small = self._in_small_groups(target, weights.shape)
        by_pairs = self._groups_by_pairs if small else self._goes_by_pairs
        return self.reads[:1] if by_pairs(target, workspace, weights.shape) else ()

    @property
    def sums_rounded(self) -> bool:
        return True

    def _is_pointwise(self, kernel: tuple[int, ...]) -> bool:
        """Whether it is a plain matrix product: every pixel by itself."""
        return not any(self.pads) and math.prod(kernel) == math.prod(strides_and_dilations(self.node, len(kernel))[0]) == 1

    def _goes_by_pairs(self, target: Target, workspace: Workspace, shape: tuple[int, ...]) -> bool:
        """Whether pairs of bfloat16 are multiplied where they lie; 3x3 ones may be faster by Winograd's float32."""
        (filters, channels), y = shape[:2], self.output.shape
        assert y is not None
        pixels, options, group = product(y[:-1]), asked(workspace.options, self.node), int(self.node.attributes.get("group", 1))
        if self.data.dtype not in _IN_PAIRS or filters < _UNIT_FILTERS:
            return False
        if self._is_pointwise(shape[2:]) and group == 1:
            return pays_in_rows(options, target, pixels, filters, channels)
        if not windows_pay(options, target, pixels, shape, group):
            return False
        if self._winograd_of_pairs(target, workspace, shape):
            return False
        return self.data.dtype is DType.BFLOAT16 or group > 1 or self._chosen_outputs(shape[2:], target, workspace) is None

    def _winograd_of_pairs(self, target: Target, workspace: Workspace, shape: tuple[int, ...]) -> bool:
        """Whether Winograd's products are of bfloat16."""
        options = workspace.options
        if self.data.dtype is not DType.FLOAT or not options.winograd or workspace.choices:
            return False
        if shape[0] < _UNIT_FILTERS or shape[2:] != (3, 3) or not reads_rows(options, target):
            return False
        return winograd_cost.prefers_pairs(self.geometry((3, 3)).usual(), target.vector_bytes // 4, target.l2_nbytes)

    def _by_pairs(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        weights: np.ndarray,
    ) -> list[Step]:  # fmt: skip
        (source, name), dtype, kernel = self.reads[:2], self.data.dtype, weights.shape[2:]
        group = int(self.node.attributes.get("group", 1))
        if group > 1 or not self._is_pointwise(kernel):
            return convolution_steps(
                target, workspace, epilogue, operands, out, source=source, dtype=dtype, geometry=self.geometry(kernel),
                weights=name, filters=weights, group=group,
            )  # fmt: skip
        assert self.output.shape is not None
        return row_steps(
            target, workspace, epilogue, operands, out, source=source, dtype=dtype, m=product(self.output.shape[:-1]),
            weights=name, matrix=weights.reshape(weights.shape[:2]).T, key="t",
        )  # fmt: skip

    def _in_16_bits(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        weights: np.ndarray, kernel: tuple[int, ...], group: int,
    ) -> list[Step] | None:  # fmt: skip
        """Products in float16 or bfloat16, where they are asked for and there are filters enough to be worth rounding the
        input."""
        filters, x, source = weights.shape[0], self.data.shape, self.reads[0]
        options = asked(workspace.options, self.node)
        unit = pair_unit(options, target)
        halves, least = in_halves(options, target), _UNIT_FILTERS if unit else _HALF_FILTERS
        if self.data.dtype is not DType.FLOAT or filters < least or group != 1 or not (unit or halves):
            return None
        assert x is not None
        if not self._is_pointwise(kernel):
            if not unit or unit not in TILE_UNITS and self._chosen_outputs(kernel, target, workspace) is not None:
                return None  # Winograd's float32 is as fast as pairs in vectors
            return window_steps(
                target, workspace, epilogue, operands, out, unit=unit, dtype=DType.FLOAT, geometry=self.geometry(kernel),
                bordered=partial(self.bordered, target, workspace, out, kernel), weights=self.reads[1], filters=weights,
            )  # fmt: skip
        matrix, m = weights.reshape(filters, -1).T, product(x[:-1])
        if unit:
            return pair_steps(
                target, workspace, epilogue, operands, out, unit=unit, source=source, m=m, weights=self.reads[1], matrix=matrix,
                key="t",
            )  # fmt: skip
        return half_steps(
            target, workspace, epilogue, operands, out, source=source, m=m, weights=self.reads[1], matrix=matrix, key="t"
        )

    def _blocked(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        shape: tuple[int, ...], group: int,
    ) -> list[Step] | None:  # fmt: skip
        """The product in blocks of its sums; None where there are too few rows, or channels."""
        dtype, (filters, channels), kernel = self.data.dtype, shape[:2], shape[2:]
        y = self.output.shape
        assert y is not None
        pixels, line = product(y[:-1]), y[-2]
        if isinstance(pixels, int) and pixels < _FEW_PIXELS:
            return None
        geometry, known = self.geometry(kernel), workspace.array(self.reads[1]) is not None  # a run packs whole vectors
        rows: Dim | None = pixels
        label = f"conv {'x'.join(map(str, kernel))} {self.output}"
        if self._is_pointwise(kernel) and group == 1:
            tile = blocked_tile(filters, pixels if isinstance(pixels, int) else None, dtype, target, halves=known)
            matrix = self._seven(target, workspace, tile, pixels)
            spec = gemm_kernel.GemmSpec(dtype, "packed", epilogue, tile=tile, ends=matrix is None)
            packed, packing = self._packed(workspace, "panels", tile, target)
            if matrix is not None:
                step = pointwise_step(
                    spec, target, workspace, operands, out, source=self.reads[0], packed=packed,
                    weights=(self.reads[1], matrix), geometry=geometry, label=label,
                )  # fmt: skip
                return [step]
            text, method, scratch = pointwise_kernel.rows_text(spec, target), ConvolutionCall.rows, None
        else:
            tile = blocked_tile(filters // group, line if isinstance(line, int) else None, dtype, target, halves=known)
            if not line_buffer_kernel.takes_windows(channels, filters, group, tile):
                return None
            spec = gemm_kernel.GemmSpec(dtype, "packed", epilogue, tile=tile)
            packed, packing = self._packed(workspace, "windows", tile, target)
            text, method, scratch = (
                line_buffer_kernel.window_text(spec, target),
                ConvolutionCall.windows,
                ConvolutionCall.windows_scratch,
            )
            rows = line if len(kernel) > 1 else None  # a long line alone is cut, and its last piece may be short
        micro = stepped_micro_text(dtype, target, tile, met_of(tile, rows, filters // group))
        call = ConvolutionCall(geometry, spec, target, self.reads[0], packed, out, tuple(operands), micro.symbol)
        step = Step(
            text, (self.reads[0], packed, *(o.name for o in operands)), (out,), MethodType(method, call),
            scratch_nbytes=MethodType(scratch, call) if scratch else None, label=label, calls=(micro,), work=geometry.shares,
        )  # fmt: skip
        return [*packing, step]

    def _seven(self, target: Target, workspace: Workspace, tile: Tile, pixels: Dim) -> np.ndarray | None:
        """The filters of a pointwise convolution as [channels, filters], where seven products in the place of eight are likely
        to be faster."""
        weights = workspace.array(self.reads[1])
        if weights is None or self.data.dtype is not DType.FLOAT or tile.lanes * tile.itemsize != target.vector_bytes:
            return None
        filters, channels = weights.shape[:2]
        if not may_pay(pixels, filters, channels, target, workspace.options, tile):
            return None
        return weights.reshape(filters, channels).T


def _picking(geometry: Geometry, dtype: DType, x: str, y: str, size: Sizes, threads: int) -> Sequence[Argument]:
    return implicit_gemm.picking_args(geometry.at(size), dtype, Ref(x), Ref(y))
