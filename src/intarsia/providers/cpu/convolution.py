"""Channels-last convolution and pooling as calls of the hand-scheduled kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.codegen import blocked, conv, copied, depthwise, few_filters, gemm, pooling, winograd
from intarsia.codegen.byte_kernel import BYTES
from intarsia.codegen.epilogue import Epilogue
from intarsia.codegen.microkernel import Tile, micro_text, tile_of
from intarsia.codegen.pack import pack_matrix
from intarsia.codegen.stepped import blocked_tile, stepped_micro_text
from intarsia.codegen.tables import Table
from intarsia.codegen.target import Target
from intarsia.codegen.window import WindowSpec, window_operand
from intarsia.graph.dims import Dim, Expr, Shape, is_static, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.graph.trace import most
from intarsia.kernel import lang as k
from intarsia.kernel.lang import Tensor
from intarsia.plan.step import CLAIMS, SCRATCH, Argument, Code, Ref, Sizes, Step
from intarsia.providers.cpu.arithmetic import in_halves, pair_unit
from intarsia.providers.cpu.half_product import half_steps
from intarsia.providers.cpu.template import FusedOperand, Schedules, Template, Workspace, tensor_types
from intarsia.providers.cpu.word_product import pair_steps, window_steps
from intarsia.records import dataclass

if TYPE_CHECKING:
    from intarsia.ops.infer import Inference

_DTYPES = (DType.FLOAT, DType.DOUBLE)
_WIDEST_WINDOW = 64  # of pooling: a line of the window is written out
_FEW_PIXELS = 24  # fewer: weights, read once, are what limits
_WINOGRAD = {"direct": None, "winograd2": 2, "winograd4": 4}  # schedules of 3x3 convolutions, as outputs of a Winograd tile
_HALF_FILTERS = 128  # fewer are not worth rounding the input of a pointwise convolution to float16
_UNIT_FILTERS = 64  # the same for units of bfloat16, windows included
_USUAL_PIXELS = 224  # along an image whose size is not known
_SHARE_PRODUCTS = 100_000  # multiplications that are just worth another thread


def convolution(node: Node, inference: Inference) -> Template | None:
    """Convolution; the border must be known as numbers."""
    if node.inputs[1] in inference.graph.constants:
        return _windowed(node, inference, Convolution)
    from intarsia.providers.cpu.computed_filters import ComputedConvolution, suits

    return _windowed(node, inference, ComputedConvolution) if suits(node, inference) else None


def pool(node: Node, inference: Inference) -> Template | None:
    """MaxPool and AveragePool."""
    made = _windowed(node, inference, Pool)
    if made is None or len([o for o in node.outputs if o]) != 1 or _kernel(node, made.types)[-1] > _WIDEST_WINDOW:
        return None
    # ceil_mode adds windows; the kernel counts like ONNX from opset 19 on, which is what older models mean too
    return made


def global_pool(node: Node, inference: Inference) -> Template | None:
    types = tensor_types(node, inference)
    out = inference.types.get(node.outputs[0])
    x = types[0]
    if x is None or x.shape is None or x.dtype not in _DTYPES or not isinstance(out, TensorType):
        return None
    return GlobalPool(node, (node.inputs[0],), types, out)


def _windowed(node: Node, inference: Inference, kind: type[Windowed]) -> Windowed | None:
    types = tensor_types(node, inference)
    out = inference.types.get(node.outputs[0])
    x = types[0]
    if x is None or x.shape is None or not isinstance(out, TensorType) or out.shape is None:
        return None
    if x.dtype not in _DTYPES and not (kind is Pool and node.op_type == "MaxPool" and x.dtype in BYTES):
        return None
    pads = explicit_pads(node, x.shape, out.shape, types)
    if pads is None:
        return None
    reads = (node.inputs[0], node.inputs[1]) if issubclass(kind, Convolution) else (node.inputs[0],)
    return kind(node, reads, types, out, pads=pads)


def _kernel(node: Node, types: Sequence[TensorType | None]) -> tuple[int, ...]:
    given: Any = node.attributes.get("kernel_shape")
    if given is None:
        weights = types[1]
        assert weights is not None and weights.shape is not None
        given = weights.shape[2:]
    return tuple(int(n) for n in given)


def strides_and_dilations(node: Node, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Strides and dilations."""
    ones = (1,) * rank
    return tuple(node.attributes.get("strides") or ones), tuple(node.attributes.get("dilations") or ones)


def explicit_pads(
    node: Node, x: tuple[Dim, ...], out: tuple[Dim, ...], types: Sequence[TensorType | None]
) -> tuple[int, ...] | None:
    """The border as ONNX's `pads` (begins, then ends); None where it depends on sizes that are not known."""
    rank = len(x) - 2
    mode = node.attributes.get("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        return tuple(int(p) for p in node.attributes.get("pads") or (0,) * (2 * rank))
    if mode == "VALID":
        return (0,) * (2 * rank)
    kernel = _kernel(node, types)
    strides, dilations = strides_and_dilations(node, rank)
    begins, ends = [], []
    for i in range(rank):
        size, count = x[1 + i], out[1 + i]
        if not isinstance(size, int) or not isinstance(count, int):
            return None
        total = max(0, (count - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - size)
        small, large = total // 2, total - total // 2
        begins.append(small if mode == "SAME_UPPER" else large)
        ends.append(large if mode == "SAME_UPPER" else small)
    return (*begins, *ends)


@dataclass(frozen=True)
class Geometry:
    """The sizes of a convolution or pooling; `x` and `y` are [N, spatial..., C]."""

    x: Shape
    y: Shape
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    group: Dim

    def at(self, size: Sizes) -> conv.ConvShape:
        x = tuple(size(d) for d in self.x)
        return conv.ConvShape(
            x[0], x[1:-1], x[-1], size(self.y[-1]), self.kernel, self.strides, self.dilations, self.pads, size(self.group)
        )

    def shares(self, size: Sizes) -> float:
        """The work of a convolution, in times what is worth sharing."""
        shape = self.at(size)
        depth = math.prod(self.kernel) * shape.channels / most(1, shape.group)
        found: float = shape.batch * math.prod(shape.output) * shape.filters * depth / _SHARE_PRODUCTS
        return found


@dataclass(frozen=True)
class Windowed(Template):
    """What convolution and pooling share. The data input and the output are [N, spatial..., C]."""

    pads: tuple[int, ...] = field(default=())

    @property
    def data(self) -> TensorType:
        x = self.types[0]
        assert x is not None
        return x

    def geometry(self, kernel: tuple[int, ...]) -> Geometry:
        x, out = self.data.shape, self.output.shape
        assert x is not None and out is not None
        group = int(self.node.attributes.get("group", 1)) if self.node.op_type in ("Conv", "ConvInteger") else x[-1]
        return Geometry(x, out, kernel, *strides_and_dilations(self.node, len(x) - 2), self.pads, group)

    def bordered(self, target: Target, workspace: Workspace, out: str, kernel: tuple[int, ...]) -> tuple[list[Step], str]:
        """The step that surrounds the input, and what it writes; the input itself if it has no border."""
        x, dtype, rank = self.data.shape, self.data.dtype, len(kernel)
        if not any(self.pads):
            return [], self.reads[0]
        assert x is not None
        padded = [d + self.pads[i] + self.pads[rank + i] for i, d in enumerate(x[1:-1])]
        source, number = workspace.temporary(f"{out}%border", dtype, (x[0], *padded, x[-1])), self.border_number(workspace)
        step = Step(
            conv.border_text(conv.BorderSpec(dtype), target), tuple(filter(None, (self.reads[0], number))), (source,),
            partial(_border, self.geometry(kernel), self.reads[0], source, number), label="border",
        )  # fmt: skip
        return [step], source

    def border_number(self, workspace: Workspace) -> str:
        """What the input is surrounded by: the name of a number, "" for zeros."""
        return ""


def _border(geometry: Geometry, x: str, y: str, number: str, size: Sizes, threads: int) -> Sequence[Argument]:
    return conv.border_args(geometry.at(size), Ref(x), Ref(y), *([Ref(number)] if number else []))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Convolution(Windowed):
    def equal_sizes(self) -> Sequence[tuple[Dim, Dim]]:
        weights = self.types[1]
        assert self.data.shape is not None and weights is not None and weights.shape is not None
        return [(self.data.shape[-1], weights.shape[1] * int(self.node.attributes.get("group", 1)))]

    def result(self, acc: Tensor) -> Tensor:
        if len(self.types) < 3 or self.types[2] is None:
            return acc
        return acc + k.input(self.node.inputs[2], acc.dtype, self.types[2].shape or ())  # type: ignore[arg-type]

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        weights = workspace.array(self.reads[1])
        assert weights is not None
        kernel = tuple(weights.shape[2:])
        group = int(self.node.attributes.get("group", 1))
        small = depthwise.takes_groups(weights.shape, group, target.vector_bytes * 8 // self.data.dtype.bits)
        if group > 1 and (small or weights.shape[1] == 1 and weights.shape[0] == group):
            return self._depthwise(target, workspace, epilogue, operands, out, weights.shape)
        if few_filters.takes(weights.shape, group, target.vector_bytes * 8 // self.data.dtype.bits):
            return [self._few_filters(target, workspace, epilogue, operands, out, weights, kernel)]
        steps = self._in_16_bits(target, workspace, epilogue, operands, out, weights, kernel, group)
        if steps is not None:
            return steps
        outputs = self._chosen_outputs(kernel, target, workspace)
        if outputs is not None:
            tile = blocked_tile(weights.shape[0], None, self.data.dtype, target)
            chosen = winograd.WinogradSpec(outputs, epilogue, tile=tile)
            return [self._winograd(target, workspace, epilogue, operands, out, weights, chosen)]
        return self._product(target, workspace, epilogue, operands, out, weights, kernel, group)

    def schedules(self, target: Target, config: Mapping[str, str]) -> Schedules | None:
        """Direct sums or one of Winograd's variants, of a 3x3 convolution of stride 1 that any of them can compute."""
        x, out, weights = self.data.shape, self.output.shape, self.types[1]
        assert x is not None and out is not None and weights is not None and weights.shape is not None
        kernel = tuple(weights.shape[2:])
        if config.get("session.disable_winograd") == "1" or self.data.dtype is not DType.FLOAT or kernel != (3, 3):
            return None
        if not is_static((*x, *out)):
            return None
        shape = self.geometry((3, 3)).at(int)  # type: ignore[arg-type]
        if not winograd.is_applicable(shape):
            return None
        default = winograd.prefers_winograd(shape, target.vector_bytes // 4, target.l2_nbytes)
        names = sorted(_WINOGRAD, key=lambda name: _WINOGRAD[name] != default)
        products = shape.batch * math.prod(shape.output) * shape.filters * shape.channels * 9
        return Schedules(f"conv {shape}", tuple(names), products)

    def _chosen_outputs(self, kernel: tuple[int, ...], target: Target, workspace: Workspace) -> int | None:
        """The Winograd variant to take; None for direct convolution."""
        chosen_by_time = self.schedules(target, workspace.config) if workspace.choices else None
        if chosen_by_time is not None and chosen_by_time.key in workspace.choices:
            return _WINOGRAD[workspace.choices[chosen_by_time.key]]
        return None if workspace.config.get("session.disable_winograd") == "1" else self._winograd_outputs(kernel, target)

    def _winograd_outputs(self, kernel: tuple[int, ...], target: Target) -> int | None:
        """Which Winograd variant is the fastest, for sizes that are not known as for one image; None for direct convolution."""
        x = self.data.shape
        assert x is not None
        if self.data.dtype is not DType.FLOAT or len(kernel) < 2 or kernel[-2:] != (3, 3):
            return None
        many = x[0].symbols if isinstance(x[0], Expr) else frozenset()

        def usual(size: Dim) -> int:
            if isinstance(size, int):
                return size
            try:
                return size.evaluate({name: 1 if name in many else _USUAL_PIXELS for name in size.symbols})
            except (ValueError, ZeroDivisionError):  # these do not fit together
                return _USUAL_PIXELS

        return winograd.prefers_winograd(self.geometry(kernel).at(usual), target.vector_bytes // 4, target.l2_nbytes)

    def _winograd(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        weights: np.ndarray, spec: winograd.WinogradSpec,
    ) -> Step:  # fmt: skip
        dtype, tile = self.data.dtype, winograd.winograd_tile(spec, target)
        label = f"winograd{spec.outputs}"
        packed = workspace.add(self.reads[1], f"{label}_{tile.width}", lambda: winograd.pack_weights(weights, spec, tile))
        taps = workspace.add("", f"row_taps{tile.itemsize}", lambda: blocked.row_taps(dtype))

        micro = stepped_micro_text(dtype, target, tile)
        call = ConvolutionCall(
            self.geometry(weights.shape[2:]), spec, target, self.reads[0], packed, out, tuple(operands), micro.symbol, taps
        )
        reads = (self.reads[0], packed, taps, *(o.name for o in operands))
        return Step(
            winograd.kernel_text(spec, target), reads, (out,), call.winograd, scratch_nbytes=call.winograd_scratch,
            label=f"{label} {self.output}", calls=(micro,), work=call.geometry.shares,
        )  # fmt: skip

    def _packed(self, workspace: Workspace, form: str, tile: Tile | None, target: Target) -> tuple[str, list[Step]]:
        """The buffer of the packed filters ("panels" of pointwise ones, of "windows", or "depthwise"), and what packs them."""
        weights, group = workspace.array(self.reads[1]), int(self.node.attributes.get("group", 1))
        assert weights is not None
        if tile is None:
            return workspace.add(self.reads[1], form, lambda: depthwise.pack_weights(weights, target)), []
        if form == "panels":
            matrix = weights.reshape(weights.shape[:2]).T
            return workspace.add(self.reads[1], f"{form}{tile.width}", lambda: pack_matrix(matrix, tile)), []
        return workspace.add(self.reads[1], f"{form}{tile.width}", lambda: copied.pack_windows(weights, tile, group)), []

    def _depthwise(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        filters: tuple[int, ...],
    ) -> list[Step]:  # fmt: skip
        kernel = filters[2:]
        strides, each = strides_and_dilations(self.node, len(kernel)), filters[1]
        plain, y = WindowSpec("multiply", kernel, *strides, self.data.dtype, epilogue, each=each), self.output.shape
        assert y is not None
        spec = depthwise.scheduled(plain, filters[0], y[-2] if isinstance(y[-2], int) else None, target)
        packed, packing = self._packed(workspace, "depthwise", None, target)

        call = ConvolutionCall(self.geometry(kernel), spec, target, self.reads[0], packed, out, tuple(operands))
        kind = "grouped" if each > 1 else "depthwise"
        step = Step(
            depthwise.kernel_text(spec, target), (self.reads[0], packed, *(o.name for o in operands)), (out,), call.depthwise,
            label=f"{kind} {'x'.join(map(str, kernel))} {self.output}", work=call.geometry.shares,
        )  # fmt: skip
        return [*packing, step]

    def _few_filters(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        weights: np.ndarray, kernel: tuple[int, ...],
    ) -> Step:  # fmt: skip
        strides = strides_and_dilations(self.node, len(kernel))
        spec = WindowSpec("multiply", kernel, *strides, self.data.dtype, epilogue, filters=weights.shape[0])
        packed = workspace.add(self.reads[1], "few", lambda: few_filters.pack_weights(weights, target))

        call = ConvolutionCall(self.geometry(kernel), spec, target, self.reads[0], packed, out, tuple(operands))
        return Step(
            few_filters.kernel_text(spec, target), (self.reads[0], packed, *(o.name for o in operands)), (out,),
            call.few_filters, label=f"few filters {'x'.join(map(str, kernel))} {self.output}", work=call.geometry.shares,
        )  # fmt: skip

    def _product(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        weights: np.ndarray, kernel: tuple[int, ...], group: int,
    ) -> list[Step]:  # fmt: skip
        dtype = self.data.dtype
        found = self._blocked(target, workspace, epilogue, operands, out, weights.shape, group)
        if found is not None:
            return found
        spec = gemm.GemmSpec(dtype, "packed", epilogue)
        tile = tile_of(dtype, target)
        packed = workspace.add(self.reads[1], f"filters{tile.width}", lambda: conv.pack_weights(weights, group, tile))
        border, source = self.bordered(target, workspace, out, kernel)
        micro = micro_text(dtype, target)
        call = ConvolutionCall(self.geometry(kernel), spec, target, source, packed, out, tuple(operands), micro.symbol)
        label = f"conv {'x'.join(map(str, kernel))} {self.output}"
        reads = (source, packed, *(o.name for o in operands))
        text = gemm.kernel_text(spec, target)
        return [*border, Step(text, reads, (out,), call.product, label=label, calls=(micro,), work=call.geometry.shares)]

    def _in_16_bits(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        weights: np.ndarray, kernel: tuple[int, ...], group: int,
    ) -> list[Step] | None:  # fmt: skip
        """Products in float16 or bfloat16, where they are asked for and there are filters enough to be worth rounding the
        input."""
        filters, x, config, source = weights.shape[0], self.data.shape, workspace.config, self.reads[0]
        unit = pair_unit(config, target)
        halves, least = in_halves(config, target), _UNIT_FILTERS if unit else _HALF_FILTERS
        if self.data.dtype is not DType.FLOAT or filters < least or group != 1 or not (unit or halves):
            return None
        assert x is not None
        plain = not any(self.pads) and math.prod(kernel) == math.prod(strides_and_dilations(self.node, len(kernel))[0]) == 1
        if not plain:
            if not unit or unit not in gemm.TILE_UNITS and self._chosen_outputs(kernel, target, workspace) is not None:
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
        strides, _ = strides_and_dilations(self.node, len(kernel))
        geometry = self.geometry(kernel)
        tile = blocked_tile(filters // group, line if isinstance(line, int) else None, dtype, target)
        if math.prod(kernel) == group == 1 and not any(self.pads) and all(s == 1 for s in strides):
            tile = blocked_tile(filters, pixels if isinstance(pixels, int) else None, dtype, target)
            spec = gemm.GemmSpec(dtype, "packed", epilogue, tile=tile)
            packed, packing = self._packed(workspace, "panels", tile, target)
            text, method, scratch = blocked.rows_text(spec, target), ConvolutionCall.rows, None
        elif copied.takes_windows(channels, filters, group, tile):
            spec = gemm.GemmSpec(dtype, "packed", epilogue, tile=tile)
            packed, packing = self._packed(workspace, "windows", tile, target)
            text, method, scratch = copied.window_text(spec, target), ConvolutionCall.windows, ConvolutionCall.windows_scratch
        else:
            return None
        micro = stepped_micro_text(dtype, target, tile)
        call = ConvolutionCall(geometry, spec, target, self.reads[0], packed, out, tuple(operands), micro.symbol)
        step = Step(
            text, (self.reads[0], packed, *(o.name for o in operands)), (out,), MethodType(method, call),
            scratch_nbytes=MethodType(scratch, call) if scratch else None,
            label=f"conv {'x'.join(map(str, kernel))} {self.output}", calls=(micro,), work=geometry.shares,
        )  # fmt: skip
        return [*packing, step]


@dataclass(frozen=True)
class ConvolutionCall:
    """The arguments of one call of a convolution's kernel, once its sizes are known."""

    geometry: Geometry
    spec: Any
    target: Target
    x: str
    weights: str
    y: str
    operands: tuple[FusedOperand, ...]
    micro: str = ""
    taps: str = ""

    def product(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape = self.geometry.at(size)
        taps = conv.displacements(shape, self.spec.dtype, self.target)
        return self.placed(shape, taps, Ref(self.x), Ref(self.y), Ref(CLAIMS), threads)

    def placed(
        self, shape: conv.ConvShape, taps: Table, x: Ref, y: Ref | int, claims: Ref | int = 0, threads: int = 1
    ) -> Sequence[Argument]:
        """The product's arguments for some of its lines, which lie at `x` and `y`."""
        return conv.conv_args(
            self.spec, self.target, shape, micro=Code(self.micro), x=x, weights=Ref(self.weights), y=y,  # type: ignore[arg-type]
            taps=taps, operands=self._given(shape, self.spec.dtype), claims=claims, threads=threads,  # type: ignore[arg-type]
        )  # fmt: skip

    def rows(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return self.placed_rows(self.geometry.at(size), Ref(self.x), Ref(self.y), Ref(CLAIMS), threads)

    def placed_rows(
        self, shape: conv.ConvShape, x: Ref, y: Ref | int, claims: Ref | int = 0, threads: int = 1
    ) -> Sequence[Argument]:
        """The arguments of a pointwise product for some of its pixels, which lie at `x` and `y`."""
        return blocked.rows_args(
            self.spec, micro=Code(self.micro), a=x, b=Ref(self.weights), c=y, m=shape.batch * math.prod(shape.output),  # type: ignore[arg-type]
            n=shape.filters, k=shape.channels, taps=blocked.row_taps(self.spec.dtype),  # type: ignore[arg-type]
            claims=claims, operands=self._given(shape, self.spec.dtype), threads=threads,  # type: ignore[arg-type]
        )  # fmt: skip

    def windows(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape = self.geometry.at(size)
        given = [
            copied.window_operand(self.spec, o.kind, o.dtype, Ref(o.name), shape, threads)  # type: ignore[arg-type]
            for o in self.operands
        ]
        return copied.window_args(
            self.spec, shape, micro=Code(self.micro), x=Ref(self.x), weights=Ref(self.weights), y=Ref(self.y),  # type: ignore[arg-type]
            tables=copied.window_tables(self.spec, shape, threads), scratch=Ref(SCRATCH), claims=Ref(CLAIMS), operands=given,  # type: ignore[arg-type]
            threads=threads,
        )  # fmt: skip

    def windows_scratch(self, size: Sizes, threads: int) -> int:
        return threads * copied.window_scratch_nbytes(self.spec, self.geometry.at(size), threads)

    def winograd(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape = self.geometry.at(size)
        return winograd.winograd_args(
            self.spec, self.target, shape, micro=Code(self.micro), x=Ref(self.x), weights=Ref(self.weights), y=Ref(self.y),  # type: ignore[arg-type]
            taps=Ref(self.taps), scratch=Ref(SCRATCH), nthreads=threads, claims=Ref(CLAIMS),  # type: ignore[arg-type]
            operands=self._given(shape, DType.FLOAT),
        )  # fmt: skip

    def winograd_scratch(self, size: Sizes, threads: int) -> int:
        return threads * winograd.scratch_nbytes(self.spec, self.target, self.geometry.at(size), threads)

    def depthwise(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape = self.geometry.at(size)
        given = [window_operand(o.kind, o.dtype, Ref(o.name), shape.channels, shape.output) for o in self.operands]  # type: ignore[arg-type]
        return depthwise.depthwise_args(
            self.spec, self.target, shape, x=Ref(self.x), weights=Ref(self.weights), y=Ref(self.y), operands=given  # type: ignore[arg-type]
        )  # fmt: skip

    def few_filters(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape = self.geometry.at(size)
        given = [window_operand(o.kind, o.dtype, Ref(o.name), shape.filters, shape.output) for o in self.operands]  # type: ignore[arg-type]
        return few_filters.few_filters_args(
            self.spec, self.target, shape, x=Ref(self.x), weights=Ref(self.weights), y=Ref(self.y), operands=given  # type: ignore[arg-type]
        )  # fmt: skip

    def _given(self, shape: conv.ConvShape, dtype: DType) -> list[gemm.Operand]:
        return [conv.conv_operand(o.kind, o.dtype, Ref(o.name), shape, self.target, dtype) for o in self.operands]  # type: ignore[arg-type]


@dataclass(frozen=True)
class Pool(Windowed):
    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        kernel = _kernel(self.node, self.types)
        operation = "max" if self.node.op_type == "MaxPool" else "average"
        spec = WindowSpec(operation, kernel, *strides_and_dilations(self.node, len(kernel)), self.data.dtype, epilogue)
        counted = bool(self.node.attributes.get("count_include_pad", 0))
        reads = (self.reads[0], *(o.name for o in operands))
        arguments = partial(_pool, self.geometry(kernel), spec, target, counted, self.reads[0], out, tuple(operands))
        label = f"{operation} pool {'x'.join(map(str, kernel))}"
        return [Step(pooling.kernel_text(spec, target), reads, (out,), arguments, label=label)]


def _pool(
    geometry: Geometry, spec: WindowSpec, target: Target, counted: bool, x: str, y: str, operands: tuple[FusedOperand, ...],
    size: Sizes, threads: int,
) -> Sequence[Argument]:  # fmt: skip
    shape, output = geometry.at(size), tuple(size(d) for d in geometry.y[1:-1])
    given = [window_operand(o.kind, o.dtype, Ref(o.name), shape.channels, output) for o in operands]  # type: ignore[arg-type]
    return pooling.pool_args(
        spec, target, shape, x=Ref(x), y=Ref(y), output=output, count_include_pad=counted, operands=given  # type: ignore[arg-type]
    )  # fmt: skip


@dataclass(frozen=True)
class GlobalPool(Template):
    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        x = self.types[0]
        assert x is not None and x.shape is not None
        operation = "max" if self.node.op_type == "GlobalMaxPool" else "average"
        spec = pooling.GlobalPoolSpec(operation, x.dtype, epilogue)
        reads = (self.reads[0], *(o.name for o in operands))
        arguments = partial(_global_pool, spec, x.shape, (self.reads[0], out), reads[1:])
        return [Step(pooling.global_pool_text(spec, target), reads, (out,), arguments, label=f"global {operation} pool")]


def _global_pool(
    spec: pooling.GlobalPoolSpec, shape: Shape, names: tuple[str, str], operands: tuple[str, ...], size: Sizes, threads: int
) -> Sequence[Argument]:
    x, y = names
    return pooling.global_pool_args(
        spec, x=Ref(x), y=Ref(y), batch=size(shape[0]), pixels=math.prod(size(d) for d in shape[1:-1]),  # type: ignore[arg-type]
        channels=size(shape[-1]), operands=[Ref(o) for o in operands],  # type: ignore[misc]
    )  # fmt: skip
