"""Products and convolutions by constants of pairs of bfloat16 that lie in rows, one pair after the other along channels.

To VDPBF16PS two neighbouring bfloat16 are what one float32 is to a multiply-add. So a tensor of bfloat16 with an even number of
channels goes through the kernels of float32 as one of half as many, with another micro-kernel: nothing is packed, and sums stay
in registers. That is for CPUs on which loads cost nothing beside multiply-adds (`Target.halves_vectors`); see `vnni`
for the others, and for tiles.

A step rounds the input, once for all that read it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import CLAIMS, SCRATCH, Argument, Below, Code, KernelCall, Ref, Sizes, Step
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.lowering_options import LoweringOptions
from intarsia.providers.cpu.kernels.common.pack_b import in_16_bits
from intarsia.providers.cpu.kernels.common.packing import ZERO_TAP, Layout, Packing
from intarsia.providers.cpu.kernels.common.precision import described_unit, pair_unit
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Workspace, forms_of
from intarsia.providers.cpu.kernels.common.tiles import Tile, product_tile, tile_of
from intarsia.providers.cpu.kernels.common.units import VECTORS
from intarsia.providers.cpu.kernels.conv import implicit_gemm, window_products
from intarsia.providers.cpu.kernels.conv.pad_bfloat16 import pair_border_args, pair_border_text
from intarsia.providers.cpu.kernels.conv.window_geometry import SHARE_PRODUCTS, ConvWork, Geometry
from intarsia.providers.cpu.kernels.matmul import gemm_arguments, gemm_kernel, vnni_layout
from intarsia.providers.cpu.kernels.matmul.matmul_steps import SERIAL_PRODUCTS, ConstantFactor, fused_operand, shares
from intarsia.providers.cpu.kernels.matmul.vnni import pays
from intarsia.providers.cpu.kernels.matmul.vnni_kernel import pair_rows_text
from intarsia.providers.cpu.kernels.matmul.vnni_layout import LINE_WORDS, Rows

PAIRED = (DType.FLOAT, DType.BFLOAT16)  # types of what is multiplied in pairs
SAID = described_unit(VECTORS, DType.FLOAT)
_LARGEST = np.float32(3.3895314e38)  # of bfloat16
_ROUNDED_AT_ONCE = 1024  # words
_SERIAL_NUMBERS = 8192  # rounding fewer is not worth waking other threads for


def reads_rows(options: LoweringOptions, target: Target) -> bool:
    """Whether products in bfloat16 are requested, and read their rows where they lie."""
    return target.halves_vectors and pair_unit(options, target) == VECTORS


def pays_in_rows(options: LoweringOptions, target: Target, m: Dim, n: int, depth: int) -> bool:
    """Whether a product goes this way; `depth`: neighbouring numbers of A."""
    return reads_rows(options, target) and depth % 2 == 0 and pays(m, n, depth)


def windows_pay(options: LoweringOptions, target: Target, m: Dim, filters: Sequence[int], group: int) -> bool:
    """Whether a convolution's windows go this way; `filters`: [M, C / group, *kernel].

    Of one channel they would be as many words as floats. A group has whole words, and filters for a vector.
    """
    n, channels, *kernel = filters
    if channels == 1 or group > 1 and (channels % 2 or n // group < LINE_WORDS):
        return False
    return reads_rows(options, target) and pays(m, n, -(-channels // 2) * 2 * math.prod(kernel))


def row_steps(request: KernelRequest, *, source: str, dtype: DType, m: Dim, weights: ConstantFactor) -> list[Step]:
    """C[m, N] = epilogue(A[m, K] B), where that `pays_in_rows`.

    Args:
        source: the buffer of A, rows of K numbers of `dtype`, FLOAT or BFLOAT16.
        weights: what B is made from, float32 [K, N].
    """
    target, workspace, epilogue, out = request.target, request.workspace, request.epilogue, request.out
    operands, matrix = request.operands, weights.values
    k, n = matrix.shape
    before, a = rounded(target, workspace, source, dtype, m * k)
    tile, zero = product_tile(n, DType.FLOAT, target), zero_tap(workspace)
    packing = Packing(Layout.PAIRS, tile.width, view=weights.view)
    b = workspace.add(weights.name, packing, lambda: vnni_layout.pack_words(in_pairs(matrix)[None], tile, False))
    spec, micro = gemm_arguments.GemmSpec(DType.FLOAT, "packed", epilogue, tile=tile), pair_rows_text(tile, target)
    made = PairProduct(spec, target, micro.symbol, a, b, out, zero, m, n, k // 2, operands)
    step = Step(
        gemm_kernel.kernel_text(spec, target), (a, b, zero, *(o.name for o in operands)), (out,), made,
        serial=Below(m * n * k, SERIAL_PRODUCTS), label=f"gemm {m}x{n}x{k}", calls=(micro,),
        work=shares(m * n * (k // 2)), arithmetic=SAID, ahead=True,
    )  # fmt: skip
    return [*before, step]


@dataclass(frozen=True)
class PairProduct(KernelCall):
    """The arguments of a product by panels of B, once its sizes are known; `k` counts words."""

    spec: gemm_arguments.GemmSpec
    target: Target
    micro: str
    a: str
    b: str
    c: str
    taps: str
    m: Dim
    n: int
    k: int
    operands: tuple[FusedOperand, ...]

    @property
    def form(self) -> object:
        return (self.spec, self.micro, self.m, self.n, self.k, forms_of(self.operands))

    @property
    def has_scratch(self) -> bool:
        """Where panels are unpacked."""
        return self._thread_nbytes > 0

    @property
    def _thread_nbytes(self) -> int:
        return gemm_arguments.scratch_nbytes(self.spec, self.target, self.k)

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        out_item = itemsize(self.spec.epilogue.dtype) if self.spec.epilogue else 4
        return gemm_arguments.matrix_args(
            self.spec, self.target, micro=Code(self.micro), a=Ref(self.a), b=Ref(self.b), c=Ref(self.c),
            m=size(self.m), n=self.n, k=self.k, taps=Ref(self.taps), claims=Ref(CLAIMS), threads=threads,
            scratch=Ref(SCRATCH) if self.has_scratch else 0,
            operands=[fused_operand(o, self.n, itemsize(o.dtype), out_item, (0, 0)) for o in self.operands],
        )  # fmt: skip

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * self._thread_nbytes


def convolution_steps(
    request: KernelRequest, *, source: str, dtype: DType, geometry: Geometry, weights: ConstantFactor, group: int
) -> list[Step]:
    """A convolution whose `windows_pay`. An odd number of channels becomes even.

    Args:
        source: the buffer of the input, [N, spatial..., C] of `dtype`, FLOAT or BFLOAT16.
        weights: the filters, float32 [filters, C, *kernel].
    """
    target, workspace, epilogue, out = request.target, request.workspace, request.epilogue, request.out
    operands, filters = request.operands, weights.values
    is_odd = filters.shape[1] % 2
    if is_odd:
        filters = np.pad(filters, ((0, 0), (0, 1), *[(0, 0)] * len(geometry.kernel)))
        before, a = _evened(target, workspace, source, dtype, geometry, out)
    else:
        before, a = rounded(target, workspace, source, dtype, product(geometry.x))
    if any(geometry.pads) and not is_odd:
        whole = _bordered(workspace, geometry, out)
        text = implicit_gemm.border_text(implicit_gemm.BorderSpec(DType.FLOAT), target)
        before.append(Step(text, (a,), (whole,), _BorderCall(geometry, a, whole), label="border", arithmetic="bfloat16"))
        a = whole
    tile, spec = tile_of(DType.FLOAT, target), gemm_arguments.GemmSpec(DType.FLOAT, "packed", epilogue)
    packing = Packing(Layout.PAIRED_WINDOWS, tile.width, view=(filters.shape, group))
    b = workspace.add(weights.name, packing, lambda: _packed_windows(filters, group, tile))
    micro = pair_rows_text(tile, target)
    made = _Windows(spec, target, micro.symbol, geometry, a, b, out, operands)
    label = f"conv {'x'.join(map(str, geometry.kernel))} {TensorType(DType.FLOAT, geometry.y)}"
    step = Step(
        gemm_kernel.kernel_text(spec, target), (a, b, *(o.name for o in operands)), (out,), made, label=label,
        calls=(micro,), work=ConvWork(geometry, 2 * SHARE_PRODUCTS), arithmetic=SAID,
    )  # fmt: skip
    return [*before, step]


def _packed_windows(filters: np.ndarray, group: int, tile: Tile) -> np.ndarray:
    """Filters [M, C / group, *kernel] as panels of words, [group, numbers of one]."""
    each = np.moveaxis(filters.reshape(group, -1, *filters.shape[1:]), (1, 2), (-1, -2))
    right = in_pairs(each.reshape(group, 1, -1, each.shape[-1]))
    return np.stack([vnni_layout.pack_words(part, tile, False) for part in right])


def _bordered(workspace: Workspace, geometry: Geometry, out: str) -> str:
    """The buffer of the input with its border, and with an even number of channels."""
    x, pads = geometry.x, geometry.pads
    padded = [d + pads[i] + pads[len(geometry.kernel) + i] for i, d in enumerate(x[1:-1])]
    return workspace.temporary(f"{out}%border", DType.BFLOAT16, (x[0], *padded, (x[-1] + 1) // 2 * 2))


def _evened(
    target: Target, workspace: Workspace, source: str, dtype: DType, geometry: Geometry, out: str
) -> tuple[list[Step], str]:  # fmt: skip
    """The step that rounds the input, surrounds it, and gives it a channel of zeros more."""
    whole = _bordered(workspace, geometry, out)
    text, call = pair_border_text(dtype, target), _EvenCall(geometry, source, whole)
    return [Step(text, (source,), (whole,), call, label="round, border", arithmetic="bfloat16")], whole


@dataclass(frozen=True)
class _EvenCall(KernelCall):
    geometry: Geometry
    x: str
    y: str

    @property
    def form(self) -> object:
        return self.geometry

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return pair_border_args(self.geometry.at(size), Ref(self.x), Ref(self.y))


@dataclass(frozen=True)
class _BorderCall(_EvenCall):
    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return implicit_gemm.border_args(_in_words(self.geometry, size), Ref(self.x), Ref(self.y))


def _in_words(geometry: Geometry, size: Sizes) -> window_products.ConvShape:
    shape = geometry.at(size)
    return replace(shape, channels=(shape.channels + 1) // 2)


@dataclass(frozen=True)
class _Windows(KernelCall):
    """The arguments of a convolution, once its sizes are known."""

    spec: gemm_arguments.GemmSpec
    target: Target
    micro: str
    geometry: Geometry
    x: str
    weights: str
    y: str
    operands: tuple[FusedOperand, ...]

    @property
    def form(self) -> object:
        return (self.spec, self.micro, self.geometry, forms_of(self.operands))

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape = _in_words(self.geometry, size)
        data = window_products.WindowOperands(
            Ref(self.x), Ref(self.y), Ref(self.weights),
            [window_products.conv_operand(o.kind, o.dtype, Ref(o.name), shape, self.target) for o in self.operands],
            micro=Code(self.micro), taps=window_products.displacements(shape, DType.FLOAT, self.target),
        )  # fmt: skip
        return window_products.conv_args(self.spec, self.target, shape, data, gemm_arguments.Threads(threads, Ref(CLAIMS)))


def rounded(target: Target, workspace: Workspace, source: str, dtype: DType, count: Dim) -> tuple[list[Step], str]:
    """The step that rounds `count` numbers of FLOAT, and the buffer of what it writes; BFLOAT16 is there already."""
    if dtype is DType.BFLOAT16:
        return [], source
    pairs = workspace.temporary(f"{source}%pairs", DType.BFLOAT16, (count + vnni_layout.LINE_WORDS * 2,))
    zero = zero_tap(workspace)
    step = Step(
        vnni_layout.pack_strips_text(DType.FLOAT, 1, target), (source, zero), (pairs,), _RoundCall(source, zero, pairs, count),
        serial=Below(count, _SERIAL_NUMBERS), label=f"round {count}", shared=True, arithmetic="bfloat16",
    )  # fmt: skip
    return [step], pairs


@dataclass(frozen=True)
class _RoundCall(KernelCall):
    """One row, of which each block is a share of work."""

    source: str
    zero: str
    pairs: str
    count: Dim

    @property
    def form(self) -> object:
        return self.count

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        rows = Rows(size(self.count), 0)
        return vnni_layout.pack_strips_args(Ref(self.source), Ref(self.pairs), 1, rows, Ref(self.zero), _ROUNDED_AT_ONCE)


def in_pairs(weights: np.ndarray) -> np.ndarray:
    """Float32 numbers as bfloat16's bits; finite ones stay finite."""
    found = in_16_bits(weights, DType.BFLOAT16)
    if found is None:
        found = in_16_bits(np.where(np.isinf(weights), weights, np.clip(weights, -_LARGEST, _LARGEST)), DType.BFLOAT16)
    assert found is not None
    return found


def zero_tap(workspace: Workspace) -> str:
    """The buffer of one int64 0, the only displacement of a plain product."""
    return workspace.add("", ZERO_TAP, lambda: np.zeros(1, np.int64))
