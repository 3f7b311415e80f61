"""Products by constants in units that multiply pairs of bfloat16 or groups of bytes (`kernels.matmul.vnni_kernel`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, product
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.argument_tables import Spread, Table
from intarsia.plan.step import CLAIMS, SCRATCH, Argument, Below, Code, Ref, Shares, Sizes, Step
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.pack_b import in_16_bits
from intarsia.providers.cpu.kernels.common.packing import ZERO_TAP, Layout, Packing
from intarsia.providers.cpu.kernels.common.precision import UNIT_NAMES, described_unit
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest
from intarsia.providers.cpu.kernels.common.template import FusedOperand, forms_of
from intarsia.providers.cpu.kernels.common.units import WORDS_IN_TIME
from intarsia.providers.cpu.kernels.matmul import packed_a_kernel as tiled
from intarsia.providers.cpu.kernels.matmul import vnni_layout
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec
from intarsia.providers.cpu.kernels.matmul.matmul_arguments import PackCall, PackedProduct, PartCall
from intarsia.providers.cpu.kernels.matmul.matmul_steps import SERIAL_PRODUCTS, SHARE_PRODUCTS, ConstantFactor, fused_operand
from intarsia.providers.cpu.kernels.matmul.vnni_kernel import strip_rows, word_micro_text, word_text, word_tile
from intarsia.providers.cpu.kernels.matmul.vnni_layout import Rows

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.conv.window_geometry import Geometry

_LEAST_ROWS = 8  # fewer wait for the weights, whatever multiplies them
_LEAST_COLUMNS, _LEAST_DEPTH = 64, 32  # rounding and packing a row costs what some 16 columns cost


@dataclass(frozen=True)
class Left:
    """A: its buffer, of FLOAT (rounded to bfloat16), UINT8 or INT8; its rows, and how they lie once sizes are known.

    `runs` and `length`: as of `kernels.matmul.vnni_layout`. `windows`: the convolution whose windows the rows are;
    None: rows lie one behind the other.
    """

    source: str
    dtype: DType
    m: Dim
    length: int
    runs: int = 1
    windows: Geometry | None = None

    def at(self, size: Sizes) -> Rows:
        if self.windows is not None:
            return _window_rows(self.windows, self.dtype, size)
        return Rows(self.length, self.length * itemsize(self.dtype))

    @property
    def words(self) -> int:
        return vnni_layout.words(self.length, self.runs, self.dtype)


def pays(m: Dim, n: int, depth: int) -> bool:
    """Whether a product has rows, columns and terms enough to be worth packing."""
    return n >= _LEAST_COLUMNS and depth >= _LEAST_DEPTH and not (isinstance(m, int) and m < _LEAST_ROWS)


def pair_steps(request: KernelRequest, *, unit: str, source: str, m: Dim, weights: ConstantFactor) -> list[Step] | None:
    """C[m, N] = epilogue(A[m, K] B) with A and B rounded to bfloat16; None where that does not pay or a weight does not fit.

    Args:
        source: the buffer of A, float32 rows of K numbers.
        weights: what B is made from, float32 [K, N].
    """
    k, n = weights.values.shape
    if not pays(m, n, k):
        return None
    halves = in_16_bits(weights.values, DType.BFLOAT16)
    if halves is None:
        return None
    left = Left(source, DType.FLOAT, m, k)
    return word_steps(request, unit=unit, left=left, weights=weights._replace(values=halves[None]))


def packed_windows_pay(geometry: Geometry, dtype: DType, filters: int, channels: int) -> bool:
    """Whether a convolution has one axis or two, and pixels, filters and terms enough to be worth packing; runs of neighbouring
    numbers fill the most of the lines they are packed in."""
    runs, length = _window_runs(geometry, channels)
    full = vnni_layout.words(length, 1, dtype) * vnni_layout.per_line(dtype) // vnni_layout.LINE_WORDS
    short = len(geometry.kernel) > 2 or 2 * full > 3 * length
    return not short and pays(product(geometry.y[:-1]), filters, runs * length)


def _window_runs(geometry: Geometry, channels: int) -> tuple[int, int]:
    """How many runs of neighbouring numbers a window has, and how long they are."""
    if geometry.dilations[-1] == 1:  # neighbouring pixels of a window lie together
        return math.prod(geometry.kernel[:-1]), geometry.kernel[-1] * channels
    return math.prod(geometry.kernel), channels


def window_steps(
    request: KernelRequest, *, unit: str, dtype: DType, geometry: Geometry, bordered: Callable[[], tuple[list[Step], str]],
    weights: ConstantFactor,
) -> list[Step] | None:  # fmt: skip
    """A convolution of one group over one or two axes, whose windows are packed as rows of A; None where that does not pay.

    Args:
        bordered: makes a border around the input ([N, spatial..., C] of `dtype`: FLOAT, UINT8 or INT8) where it needs one;
            gives steps and the buffer's name.
        weights: what B is made from, [filters, channels, *kernel], float32 or int8.
    """
    n, channels = weights.values.shape[:2]
    runs, length = _window_runs(geometry, channels)
    m = product(geometry.y[:-1])
    if not packed_windows_pay(geometry, dtype, n, channels):
        return None
    right = np.ascontiguousarray(np.moveaxis(weights.values, (0, 1), (-1, -2))).reshape(runs, length, n)
    if dtype is DType.FLOAT:
        halves = in_16_bits(right, DType.BFLOAT16)
        if halves is None:
            return None
        right = halves
    before, source = bordered()
    left = Left(source, dtype, m, length, runs, geometry)
    steps = word_steps(request, unit=unit, left=left, weights=ConstantFactor(weights.name, right, ("windows", weights.view)))
    return [*before, *steps]


def _window_rows(geometry: Geometry, dtype: DType, size: Sizes) -> Rows:
    s = geometry.at(size).as_3d()
    _, height, width = s.padded
    _, lines, columns = s.output
    (_, down, along), (_, kh, kw), (_, dh, dw) = s.strides, s.kernel, s.dilations
    pixel = s.channels * itemsize(dtype)
    line = width * pixel
    taps = tuple(y * dh * line + (0 if dw == 1 else x * dw * pixel) for y in range(kh) for x in range(1 if dw == 1 else kw))
    length = s.channels * (kw if dw == 1 else 1)
    return Rows(length, along * pixel, taps, columns, down * line, lines, height * line)


def word_steps(request: KernelRequest, *, unit: str, left: Left, weights: ConstantFactor) -> list[Step]:
    """C[m, N] = epilogue(A B): packing of A, then a step for each range of K blocks.

    Args:
        weights: what B is made from, [runs, length, N]: bfloat16's bits (uint16) or int8.
    """
    target, workspace, epilogue, out = request.target, request.workspace, request.epilogue, request.out
    right, operands = weights.values, request.operands
    n, k, m = right.shape[-1], left.words, left.m
    tile = word_tile(n, unit, target)
    strip, floats = strip_rows(tile, unit), left.dtype is DType.FLOAT
    sums_dtype = DType.FLOAT if floats else DType.INT32
    spec = GemmSpec(sums_dtype, "packed", epilogue, tile=tile, unit=unit)
    packing = Packing(Layout.WORDS, tile.width, view=(right.shape, weights.view))
    b = workspace.add(weights.name, packing, lambda: vnni_layout.pack_words(right, tile))
    rows = "" if left.windows is None else f"{out}%"
    packed = workspace.temporary(f"{left.source}%{rows}strips{strip}{unit}", DType.INT32, (m + strip - 1, k))
    parts, sums = tiled.parts(k, tile, unit), ""
    if len(parts) > 1:
        sums = workspace.temporary(f"{out}%sums", sums_dtype, (tiled.partial_elements(m, n, tile),))
    micro = word_micro_text(left.dtype, tile, unit, target)
    zero = workspace.add("", ZERO_TAP, lambda: np.zeros(1, np.int64)) if left.windows is None else ""
    made = _WordProduct(spec, target, micro.symbol, left, packed, b, out, sums, n, operands, zero)
    little, rate = Below(m, 4 * tile.rows), WORDS_IN_TIME[unit]
    between, arithmetic = (sums,) if sums else (), described_unit(unit, left.dtype)
    depth = left.length * left.runs
    label = f"{'' if floats else 'byte '}gemm {m}x{n}x"
    by = "" if floats else f" by {UNIT_NAMES[unit]}"
    steps = [
        Step(
            vnni_layout.pack_strips_text(left.dtype, strip, target), (left.source, *([zero] if zero else [])), (packed,),
            PackCall(made), serial=little, label=f"pack {m}x{depth}{by}", shared=left.windows is None,
            arithmetic="bfloat16" if floats else "",
        )
    ]  # fmt: skip
    for number, part in enumerate(parts):
        numbers = depth * part[1] // k
        steps.append(
            Step(
                word_text(spec, target), (packed, b, *(o.name for o in operands), *between), (out, *between),
                PartCall(made, part),
                label=f"{label}{numbers}" + (f" of {depth}" if sums else "") + by,
                serial=little if number else Below(m * n * k, SERIAL_PRODUCTS * rate), calls=(micro,),
                work=Shares(m * n * part[1], SHARE_PRODUCTS * rate), arithmetic=arithmetic, ahead=True,
            )
        )  # fmt: skip
    return steps


@dataclass(frozen=True)
class _WordProduct(PackedProduct):
    """The arguments of the steps of one product, once its sizes are known."""

    spec: GemmSpec
    target: Target
    micro: str
    left: Left
    packed: str
    b: str
    c: str
    partial: str
    n: int
    operands: tuple[FusedOperand, ...]
    displacements: str  # one 0; "": they follow from sizes

    @property
    def form(self) -> object:
        left, operands = self.left, forms_of(self.operands)
        shape = (left.dtype, left.m, left.length, left.runs, left.windows)
        return (self.spec, self.micro, bool(self.partial), shape, self.n, operands)

    def packing(self, size: Sizes) -> Sequence[Argument]:
        tile = self.spec.tile
        assert tile is not None
        rows, k, unit = self.left.at(size), self.left.words, self.spec.unit
        each = tuple(Spread(place, ()) for place in rows.displacements)
        table = Ref(self.displacements) if self.displacements else Table(each)
        return vnni_layout.pack_strips_args(
            Ref(self.left.source), Ref(self.packed), size(self.left.m), rows, table,
            tiled.block_steps(k, tile, unit),
        )  # fmt: skip

    def part_arguments(self, part: tuple[int, int], size: Sizes, threads: int) -> Sequence[Argument]:
        out_item = itemsize(self.spec.epilogue.dtype) if self.spec.epilogue else 4
        micro, a = Code(self.micro), Ref(self.packed)
        return tiled.tiled_args(
            self.spec, self.target, micro=(micro, micro), a=(a, a), b=Ref(self.b), c=Ref(self.c),
            m=size(self.left.m), n=self.n, k=self.left.words, taps=0, scratch=Ref(SCRATCH), part=part,
            partial=Ref(self.partial) if self.partial else 0, claims=Ref(CLAIMS), threads=threads,
            operands=[fused_operand(o, self.n, itemsize(o.dtype), out_item, (0, 0)) for o in self.operands],
        )  # fmt: skip

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * tiled.tiled_scratch_nbytes(self.spec, self.target, size(self.left.m), self.left.words)
