"""ConvInteger in channels-last layout as calls of the hand-scheduled kernels; see `matmul_int8` for the zero points.

Weights less their zero point that need nine bits are moved by a number for each filter, times which the sums of windows are
subtracted; those of few filters or in groups are the sum of two or three parts of eight bits. Where bytes are not multiplied by
fours, weights are put in order, or the input is widened (`saturation_free_order`, `widened_int16`). Depthwise convolutions are
computed by `kernels.conv.grouped.depthwise_int8_kernel`, or in float32, in which their sums are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference
from intarsia.plan.step import CLAIMS, SCRATCH, Argument, Code, KernelCall, Ref, ScratchCall, Sizes, Step
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.precision import byte_unit
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace, tensor_types
from intarsia.providers.cpu.kernels.conv import implicit_gemm, pointwise_kernel
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import blocked_tile
from intarsia.providers.cpu.kernels.conv.conv_arguments import FilterCall
from intarsia.providers.cpu.kernels.conv.grouped import depthwise_int8_kernel, depthwise_kernel, small_groups_int8_kernel
from intarsia.providers.cpu.kernels.conv.grouped.sliding_window import WindowSpec
from intarsia.providers.cpu.kernels.conv.window_geometry import (
    ConvWork,
    Filtered,
    Geometry,
    explicit_pads,
    strides_and_dilations,
    with_fewer_axes,
)
from intarsia.providers.cpu.kernels.conv.winograd import int8 as winograd_int8
from intarsia.providers.cpu.kernels.conv.winograd import spec as winograd_plan
from intarsia.providers.cpu.kernels.matmul import gemm_kernel
from intarsia.providers.cpu.kernels.matmul.vnni import window_steps
from intarsia.providers.cpu.kernels.matmul_int8 import saturation_free_order, widened_int16
from intarsia.providers.cpu.kernels.matmul_int8.byte_weights import LIFT, Ordered, add_sums, digest, ordered_weights
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import BYTES, SUMS, byte_micro_text, byte_tile
from intarsia.providers.cpu.kernels.matmul_int8.zero_point_correction import Correction

_EXACT = 1 << 24  # whole numbers up to here are float32
_LARGEST = 255 * 255
_MANY_FILTERS = 32  # of which the sums of windows are a small part


def is_byte_convolution(node: Node, inference: Inference) -> bool:
    """Whether the weights and their zero point are constant, and the input has one zero point."""
    types = tensor_types(node, inference)
    if any(t is None or t.shape is None or t.dtype not in BYTES for t in types[:2]):
        return False
    x_zero = types[2] if len(types) > 2 else None
    if x_zero is not None and (x_zero.shape is None or any(d != 1 for d in x_zero.shape)):
        return False
    constants = (node.inputs[1], *(node.inputs[3:4]))
    return all(not name or name in inference.graph.constants for name in constants)


def convolution(node: Node, inference: Inference) -> Template | None:
    """Convolution of uint8 or int8."""
    out = inference.types.get(node.outputs[0])
    if not is_byte_convolution(node, inference) or not isinstance(out, TensorType) or out.shape is None:
        return None
    types = tensor_types(node, inference)
    x = types[0]
    assert x is not None and x.shape is not None
    if types[1] is not None and 0 in (types[1].shape or ()):
        return None
    pads = explicit_pads(node, x.shape, types)
    return with_fewer_axes(ByteConvolution(node, tuple(node.inputs), types, out, pads=pads))


@dataclass(frozen=True)
class ByteConvolution(Filtered):
    """`reads` are the node's inputs: x, w, and their zero points."""

    integers: bool = True

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        array = self.filters(workspace)
        assert array is not None
        zero = workspace.array(self.reads[3]) if len(self.reads) > 3 and self.reads[3] else None
        weights = array.astype(np.int16)
        if zero is not None:
            weights = weights - zero.reshape(-1, *(1,) * (weights.ndim - 1)).astype(np.int16)
        group = int(self.node.attributes.get("group", 1))
        key = digest(np.zeros(1) if zero is None else zero)
        if group == len(weights) and weights.shape[1] == 1 and weights[0].size * _LARGEST < _EXACT:
            return [self._depthwise(target, workspace, epilogue, operands, out, weights, key)]
        if small_groups_int8_kernel.takes(weights.shape, group, self.data.dtype, target) and _is_signed_byte(weights):
            return [self._groups(target, workspace, epilogue, operands, out, weights, key)]
        return self._product(target, workspace, epilogue, operands, out, weights, group, key)

    # --- the zero point of the input ---

    def _correct(
        self, workspace: Workspace, correction: Correction, weights: np.ndarray, lift: int
    ) -> tuple[Epilogue | None, list[FusedOperand]]:
        """Subtract zero point times sum of weights; `lift`: what the kernel adds to the input."""
        sums = weights.reshape(len(weights), -1).sum(1, dtype=np.int64)
        name = f"{self.reads[1]}%columns"
        zero = self._known_zero(workspace)
        if zero is not None:
            values = sums * (zero + lift)
            if values.any():
                label = add_sums(workspace, name, f"colsums_{digest(values)}", lambda: values)
                correction.subtract(correction.operand(label, "column", SUMS))
        elif sums.any():
            x_zero = self.types[2]
            assert x_zero is not None
            label = add_sums(workspace, name, f"colsums_{digest(sums)}", lambda: sums)
            factor = correction.operand(self.reads[2], "scalar", x_zero.dtype) + lift
            correction.subtract(correction.operand(label, "column", SUMS) * factor)
        return correction.finish()

    def _known_zero(self, workspace: Workspace) -> int | None:
        """The input's zero point, or None if only a run knows it."""
        if len(self.reads) < 3 or not self.reads[2]:
            return 0
        found = workspace.array(self.reads[2])
        return None if found is None else int(found.reshape(-1)[0])

    def border_number(self, workspace: Workspace) -> str:
        """The buffer of the input's zero point, with which its border is filled."""
        if len(self.reads) > 2 and self.reads[2]:
            return self.reads[2]
        return workspace.add("", "byte0", lambda: np.zeros(1, np.uint8))

    # --- kernels ---

    def _depthwise(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        weights: np.ndarray, key: str,
    ) -> Step:  # fmt: skip
        kernel, y = tuple(weights.shape[2:]), self.output.shape
        assert y is not None
        steps = strides_and_dilations(self.node, len(kernel))
        plain = WindowSpec("multiply", kernel, *steps, SUMS, None, self.data.dtype)
        by_fours = _is_signed_byte(weights) and depthwise_int8_kernel.takes(plain, target)
        width = y[-2] if isinstance(y[-2], int) else None
        if by_fours:
            lift = LIFT if self.data.dtype is DType.INT8 else 0
            epilogue, operands = self._correct(workspace, Correction(epilogue, operands), weights, lift)
            spec = depthwise_int8_kernel.scheduled(replace(plain, epilogue=epilogue), width, target)
            packed = workspace.add(
                self.reads[1], f"byte_lines_{key}", lambda: depthwise_int8_kernel.pack_lines(weights.astype(np.int8), target)
            )
        else:
            epilogue, operands = Correction(epilogue, operands, DType.FLOAT).finish()
            floats = replace(plain, dtype=DType.FLOAT, epilogue=epilogue)
            spec = depthwise_kernel.scheduled(floats, weights.shape[0], width, target)
            packed = workspace.add(
                self.reads[1],
                f"byte_depthwise_{key}",
                lambda: depthwise_kernel.pack_weights(weights.astype(np.float32), target),
            )
        text = (depthwise_int8_kernel if by_fours else depthwise_kernel).kernel_text(spec, target)
        return self._window(target, workspace, "depthwise", spec, text, packed, operands, out)

    def _groups(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        weights: np.ndarray, key: str,
    ) -> Step:  # fmt: skip
        """Small groups of channels."""
        kernel, y = tuple(weights.shape[2:]), self.output.shape
        assert y is not None
        lift = LIFT if self.data.dtype is DType.INT8 else 0
        epilogue, operands = self._correct(workspace, Correction(epilogue, operands), weights, lift)
        plain = WindowSpec("multiply", kernel, *strides_and_dilations(self.node, len(kernel)), SUMS, epilogue, self.data.dtype)
        spec = small_groups_int8_kernel.scheduled(plain, weights.shape[1], y[-2] if isinstance(y[-2], int) else None, target)
        packed = workspace.add(
            self.reads[1], f"byte_groups_{key}", lambda: small_groups_int8_kernel.pack_groups(weights.astype(np.int8), target)
        )
        text = small_groups_int8_kernel.kernel_text(spec, target)
        return self._window(target, workspace, "grouped", spec, text, packed, operands, out)

    def _window(
        self, target: Target, workspace: Workspace, kind: str, spec: WindowSpec, text: KernelText, packed: str,
        operands: Sequence[FusedOperand], out: str,
    ) -> Step:  # fmt: skip
        zero = self.border_number(workspace)
        call = _ByteWindowCall(self.geometry(spec.kernel), spec, target, self.reads[0], packed, out, tuple(operands), zero=zero)
        reads = (self.reads[0], packed, zero, *(o.name for o in operands))
        label = f"byte {kind} {'x'.join(map(str, spec.kernel))} {self.output}"
        return Step(text, reads, (out,), call, label=label, work=ConvWork(call.geometry))

    def _product(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        weights: np.ndarray, group: int, key: str,
    ) -> list[Step]:  # fmt: skip
        kernel = tuple(weights.shape[2:])
        if unit := byte_unit(workspace.options, target) if group == 1 else "":
            found = self._tiles(target, workspace, epilogue, operands, out, weights, key, unit)
            if found is not None:
                return found
        if self._takes_winograd(target, workspace, weights, kernel):
            return [self._winograd(target, workspace, epilogue, operands, out, weights, key)]
        parts, ordered = _parts(weights), None
        if widened_int16.takes(target) and len(parts) == 1 and group == 1:
            ordered = self._in_order(workspace, parts[0], key, target)
        if widened_int16.takes(target) and len(parts) == 1 and ordered is None:
            steps, source = self._widened(target, workspace, kernel)
            epilogue, operands = Correction(epilogue, operands).finish()
            return [*steps, self._sums(target, workspace, epilogue, operands, source, out, parts, group, key, in_words=True)]
        lift = LIFT if self.data.dtype is DType.INT8 else 0
        correction = Correction(epilogue, operands)
        steps, source = self.bordered(target, workspace, out, kernel)
        if len(parts) > 1 and group == 1 and len(weights) >= _MANY_FILTERS:
            moved, by = _moved(weights)
            parts, key = moved[None], f"moved_{key}"
            steps.append(self._window_sums(target, workspace, source, weights.shape[1:], out))
            column = add_sums(workspace, f"{self.reads[1]}%columns", f"moved_{digest(by)}", lambda: by)
            sums = correction.operand(steps[-1].writes[0], "row", SUMS)
            correction.subtract(correction.operand(column, "column", SUMS) * sums)
        epilogue, operands = self._correct(workspace, correction, weights, lift)
        return [*steps, self._sums(target, workspace, epilogue, operands, source, out, parts, group, key, ordered=ordered)]

    def _sums(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], source: str,
        out: str, parts: np.ndarray, group: int, key: str, in_words: bool = False, ordered: Ordered | None = None,
    ) -> Step:  # fmt: skip
        """Sums of products by weights [parts, M, C / group, *kernel], whose parts are added; `in_words`: of an input that was
        widened; `ordered`: weights that are packed already."""
        y, filters, kernel = self.output.shape, parts.shape[1], tuple(parts.shape[3:])
        assert y is not None
        each = filters // group * implicit_gemm.merged_groups(filters, group, byte_tile(target))
        strides, dilations = strides_and_dilations(self.node, len(kernel))
        pointwise = math.prod(kernel) == math.prod(strides) == 1
        line = y[-2] if isinstance(y[-2], int) and not pointwise else None
        tile = widened_int16.word_tile(target) if in_words else blocked_tile(each, line, SUMS, target)
        spec = gemm_kernel.GemmSpec(SUMS, "packed", epilogue, tile=tile, stored=DType.INT8 if in_words else None)
        long_rows = group == implicit_gemm.merged_groups(filters, group, tile) and dilations[-1] == 1
        packed = ordered.packed if ordered is not None else workspace.add(
            self.reads[1], f"{'pairs' if in_words else 'bytes'}{tile.width}_{key}",
            lambda: implicit_gemm.pack_byte_weights(parts, group, tile, long_rows, in_words),
        )  # fmt: skip
        few: KernelText | None = None
        if ordered is not None:
            micro = saturation_free_order.ordered_micro_text(self.data.dtype, target, tile)
        elif in_words:
            micro, few = (widened_int16.word_micro_text(target, tile, many) for many in (True, False))
        else:
            micro = byte_micro_text(self.data.dtype, target, tile)
        geometry = replace(self.geometry(kernel), y=(*y[:-1], filters))
        call = _ByteProductCall(
            geometry, spec, target, source, packed, out, tuple(operands), micro.symbol, parts=len(parts),
            panel_nbytes=0 if ordered is None else ordered.panel_nbytes, few=few.symbol if few else "",
        )  # fmt: skip
        label = f"byte conv {'x'.join(map(str, kernel))} {TensorType(SUMS, geometry.y)}"
        return Step(
            gemm_kernel.kernel_text(spec, target), (source, packed, *(o.name for o in operands)), (out,), call,
            label=label, calls=(micro, few) if few else (micro,), work=ConvWork(call.geometry),
        )  # fmt: skip

    def _in_order(self, workspace: Workspace, weights: np.ndarray, key: str, target: Target) -> Ordered | None:
        """The weights in an order in which bytes can be multiplied as they are, where that is faster."""
        _, dilations = strides_and_dilations(self.node, weights.ndim - 2)
        matrix, tile = implicit_gemm.byte_matrix(weights, dilations[-1] == 1), byte_tile(target)
        if not saturation_free_order.pays(matrix, tile):
            return None
        return ordered_weights(workspace, self.reads[1], key, matrix, tile)

    def _widened(self, target: Target, workspace: Workspace, kernel: tuple[int, ...]) -> tuple[list[Step], str]:
        """The step that writes the input less its zero point, and zeros around it, in 16 bits; and what it writes."""
        x, rank, (data, *_) = self.data.shape, len(kernel), self.reads
        assert x is not None
        number = self.border_number(workspace)
        padded = [d + self.pads[i] + self.pads[rank + i] for i, d in enumerate(x[1:-1])]
        around = "".join(f"_{n}" for n in self.pads) if any(self.pads) else ""
        words = workspace.temporary(f"{data}%words{around}_{number}", DType.INT16, (product((x[0], *padded, x[-1])) + 1,))
        step = Step(
            widened_int16.widen_text(self.data.dtype, target), (data, number), (words,),
            _WidenCall(self.geometry(kernel), data, words, number), label="widen bytes", shared=True,
        )  # fmt: skip
        return [step], words

    def _window_sums(self, target: Target, workspace: Workspace, source: str, window: tuple[int, ...], out: str) -> Step:
        """The sum of every window, which all filters see: a filter of ones."""
        y = self.output.shape
        assert y is not None
        name, ones = workspace.temporary(f"{out}%rowsums", SUMS, y[:-1]), np.ones((1, 1, *window), np.int8)
        return self._sums(target, workspace, None, (), source, name, ones, 1, "ones")

    def _takes_winograd(self, target: Target, workspace: Workspace, weights: np.ndarray, kernel: tuple[int, ...]) -> bool:
        if kernel != (3, 3) or not workspace.options.winograd:
            return False
        dtype, zero = self.data.dtype, self._known_zero(workspace)
        return winograd_int8.takes(self.geometry(kernel).usual(), dtype, target) and winograd_int8.is_exact(
            weights, dtype, zero
        )

    def _winograd(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        weights: np.ndarray, key: str,
    ) -> Step:  # fmt: skip
        """Fewer multiplications, of 16-bit integers: the sums are the same."""
        tile, zero = winograd_int8.register_tile(len(weights), target), self.border_number(workspace)
        spec = winograd_plan.WinogradSpec(winograd_int8.OUTPUTS, epilogue, SUMS, tile, self.data.dtype)
        packed = workspace.add(
            self.reads[1], f"byte_winograd{tile.width}_{key}", lambda: winograd_int8.pack_weights(weights, tile)
        )
        taps = workspace.add("", f"row_taps{tile.itemsize}", lambda: pointwise_kernel.row_taps(SUMS, target))
        micro = winograd_int8.micro_text(target, tile)
        call = _ByteWinogradCall(
            self.geometry((3, 3)), spec, target, self.reads[0], packed, out, tuple(operands), micro.symbol, taps, zero
        )
        return Step(
            winograd_int8.kernel_text(spec, target), (self.reads[0], packed, taps, zero, *(o.name for o in operands)), (out,),
            call, label=f"byte winograd{spec.outputs} {self.output}",
            calls=(micro,), work=ConvWork(call.geometry),
        )  # fmt: skip

    def _tiles(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        weights: np.ndarray, key: str, unit: str,
    ) -> list[Step] | None:  # fmt: skip
        """As a product of tiles, which take signed bytes as they are; None where weights need more than eight bits, or it does
        not pay."""
        kernel, parts = tuple(weights.shape[2:]), _parts(weights)
        if len(parts) > 1:
            return None
        epilogue, operands = self._correct(workspace, Correction(epilogue, operands), weights, 0)
        return window_steps(
            target, workspace, epilogue, operands, out, unit=unit, dtype=self.data.dtype, geometry=self.geometry(kernel),
            bordered=partial(self.bordered, target, workspace, out, kernel), weights=self.reads[1], filters=parts[0], key=key,
        )  # fmt: skip


@dataclass(frozen=True)
class _ByteWinogradCall(FilterCall, ScratchCall):
    zero: str = ""

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape = self.geometry.at(size)
        return winograd_plan.winograd_args(
            self.spec, self.target, shape, micro=Code(self.micro), x=Ref(self.x), weights=Ref(self.weights), y=Ref(self.y),
            taps=Ref(self.taps), scratch=Ref(SCRATCH), nthreads=threads, claims=Ref(CLAIMS), number=Ref(self.zero),
            operands=self._given(shape, SUMS),
        )  # fmt: skip

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * winograd_plan.scratch_nbytes(self.spec, self.target, self.geometry.at(size), threads)


@dataclass(frozen=True)
class _ByteProductCall(FilterCall):
    """`few`: the micro-kernel for few pixels, where that is another."""

    parts: int = 1
    panel_nbytes: int = 0
    few: str = ""

    @property
    def form(self) -> object:
        return super().form, self.parts, self.panel_nbytes, self.few

    @property
    def has_scratch(self) -> bool:
        """Where panels are widened."""
        return bool(self.spec.in_words)

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape = self.geometry.at(size)
        taps = implicit_gemm.displacements(shape, SUMS, self.target, parts=self.parts, in_words=self.spec.in_words)
        micro = Code(
            self.few if self.few and not gemm_kernel.many_rows(implicit_gemm.rows(shape), self.spec.tile) else self.micro
        )
        return implicit_gemm.conv_args(
            self.spec, self.target, shape, micro=micro, x=Ref(self.x), weights=Ref(self.weights), y=Ref(self.y),
            taps=taps, operands=self._given(shape, SUMS), parts=self.parts, claims=Ref(CLAIMS), threads=threads,
            scratch=Ref(SCRATCH) if self.spec.in_words else 0, panel_nbytes=self.panel_nbytes,
        )  # fmt: skip

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * implicit_gemm.panel_nbytes(self.spec, self.target, self.geometry.at(size), self.parts)


@dataclass(frozen=True)
class _ByteWindowCall(FilterCall):
    """Of depthwise convolutions, and of those of small groups."""

    zero: str = ""

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape = self.geometry.at(size)
        return depthwise_kernel.depthwise_args(
            self.spec, self.target, shape, x=Ref(self.x), weights=Ref(self.weights), y=Ref(self.y),
            operands=self._windows(shape.channels, shape.output), number=Ref(self.zero),
        )  # fmt: skip


@dataclass(frozen=True)
class _WidenCall(KernelCall):
    """Writes an input less its zero point, with its border, in 16 bits."""

    geometry: Geometry
    x: str
    words: str
    number: str

    @property
    def form(self) -> object:
        return self.geometry

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return widened_int16.widen_args(self.geometry.at(size), Ref(self.x), Ref(self.words), Ref(self.number))


def _is_signed_byte(weights: np.ndarray) -> bool:
    return bool(weights.min(initial=0) >= -LIFT and weights.max(initial=0) < LIFT)


def _moved(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights of nine bits as int8 [M, ...] and the int32 number that was added to all of a filter."""
    flat = weights.reshape(len(weights), -1).astype(np.int32)
    by = np.clip(0, -LIFT - flat.min(1), LIFT - 1 - flat.max(1)).astype(np.int32)
    return (flat + by[:, None]).astype(np.int8).reshape(weights.shape), by


def _parts(weights: np.ndarray) -> np.ndarray:
    """Whole numbers as sums of int8 ones, [parts, *shape]."""
    parts: list[np.ndarray] = []
    rest = weights
    while not parts or rest.any():
        part = np.clip(rest, -LIFT, LIFT - 1)
        parts.append(part.astype(np.int8))
        rest = rest - part
    return np.stack(parts)
