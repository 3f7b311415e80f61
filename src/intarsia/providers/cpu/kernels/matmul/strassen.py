"""Products of float32 rows, or pixels, by constant weights with seven multiplications instead of eight
(`kernels.matmul.strassen_kernel`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import field, replace
from typing import NamedTuple

import numpy as np

from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.ep.capability import Support
from intarsia.graph.dims import Dim, product
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import CLAIMS, Argument, Below, Code, KernelCall, Ref, Sizes, Step
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.lowering_options import DISABLE_STRASSEN, LoweringOptions
from intarsia.providers.cpu.kernels.common.microkernel import met_of, micro_text, tiled_rows
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.precision import described
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Workspace, forms_of
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.conv.conv_arguments import ConvolutionCall
from intarsia.providers.cpu.kernels.conv.window_geometry import ConvWork, Geometry
from intarsia.providers.cpu.kernels.matmul import gemm_arguments, gemm_kernel, strassen_kernel
from intarsia.providers.cpu.kernels.matmul.matmul_steps import SERIAL_PRODUCTS, fused_operand, shares
from intarsia.providers.cpu.kernels.matmul.strassen_pieces import alike_panels, summing_micro_text

SEVEN_EIGHTHS = 8 / 7  # as many products in the time
NOT_FASTER = Support.no("adding blocks is expected to take as long as the products that it saves")
_LEAST_SAVED = 0.03  # of a product's time, by estimate
_MOST_THREADS = 4  # for which there is memory for sums: each makes those of A for itself, so with more it seldom pays
_MANY_ROWS = 1 << 20


def is_allowed(options: LoweringOptions, target: Target) -> Support:
    """Whether products may be computed so, and the CPU gains by it."""
    if not options.strassen:
        return Support.no(f"{DISABLE_STRASSEN} is 1")
    if not target.halves_vectors or target.ordered:
        return Support.no("the CPU is no faster so, or sums have to be in one order (use_deterministic_compute)")
    return Support.yes()


def may_pay(rows: Dim, n: int, k: int, target: Target, options: LoweringOptions, tile: Tile) -> bool:
    """Whether so many rows, or many if that is not known, are likely to be multiplied faster."""
    if not is_allowed(options, target):
        return False
    return strassen_kernel.saved(rows if isinstance(rows, int) else _MANY_ROWS, n, k, 1, tile) > _LEAST_SAVED


@dataclass(frozen=True)
class Seven:
    """Further arguments of the kernel of a product: symbols of the kernels that it calls, and buffers.

    Attributes:
        micro, summing, summed, plain: see `strassen.matrix_args`.
        table, alike, sums: the buffers of the table, of which panels are alike, and of sums.
        always: whether it is not for the estimate to decide, once rows and threads are known.
    """

    micro: str
    summing: str
    summed: str
    plain: str
    table: str
    alike: str
    sums: str
    always: bool = False

    @property
    def form(self) -> object:
        return self.micro, self.summing, self.summed, self.plain, self.always

    def arguments(
        self, spec: gemm_arguments.GemmSpec, target: Target, size: tuple[int, int, int], threads: int, a: Ref, b: Ref,
        c: Ref | int,
        strides: tuple[int | None, int | None], operands: Sequence[gemm_arguments.Operand],
    ) -> Sequence[Argument]:  # fmt: skip
        """Those of the kernel; `size`: M, N, K; `strides`: bytes between rows of A and C where these are not dense."""
        (m, n, k), count = size, _MOST_THREADS * self._takes(spec, size, threads)
        return strassen_kernel.matrix_args(
            spec, target, micro=Code(self.micro), summing=Code(self.summing), summed=Code(self.summed),
            plain=Code(self.plain), seven=count,
            a=a, b=b, c=c, m=m, n=n, k=k, lda=strides[0], ldc=strides[1], table=Ref(self.table), alike=Ref(self.alike),
            scratch=Ref(self.sums), claims=Ref(CLAIMS), threads=threads, operands=operands,
        )  # fmt: skip

    def _takes(self, spec: gemm_arguments.GemmSpec, size: tuple[int, int, int], threads: int) -> bool:
        (m, n, k), tile = size, spec.tile
        assert tile is not None
        if not strassen_kernel.takes(m, tile) or threads > _MOST_THREADS:
            return False
        if strassen_kernel.scratch_nbytes(m, n, k, threads, tile) > strassen_kernel.THREAD_NBYTES:
            return False
        return self.always or strassen_kernel.saved(m, n, k, threads, tile) > _LEAST_SAVED


class SevenWeights(NamedTuple):
    """B: its name, what tells this view of it from others, what gives it as [K, N], and the buffer where it is packed."""

    name: str
    view: Hashable
    matrix: Callable[[], np.ndarray]
    packed: str


def seven_of(
    spec: gemm_arguments.GemmSpec, target: Target, workspace: Workspace, weights: SevenWeights, sizes: tuple[Dim, int],
    always: bool = False,
) -> tuple[Seven, tuple[KernelText, ...]]:  # fmt: skip
    """The further arguments of a product of this spec, and the kernels that it calls.

    Args:
        sizes: M and N.
        always: see `Seven`.
    """
    tile = spec.tile
    assert tile is not None
    table = workspace.add("", Packing(Layout.STRASSEN), lambda: strassen_kernel.TABLE)
    # Memory of its own, the same for all products: what lies elsewhere at other times would be in another core's cache.
    sums = workspace.temporary("strassen%sums", spec.dtype, (_MOST_THREADS * strassen_kernel.THREAD_NBYTES // tile.itemsize,))
    packing = Packing(Layout.ALIKE, tile.width, view=weights.view)
    alike = workspace.add(weights.name, packing, lambda: alike_panels(weights.matrix(), tile))
    met, least = met_of(tile, *sizes), tiled_rows(tile)
    high = bool(met.heights) and met.heights[0] >= least  # tiles of halves are no lower
    met = replace(met, heights=tuple(range(least, tile.rows + 1)) if high else ())
    micro, summed = (micro_text(spec.dtype, target, tile, stored, met) for stored in (spec.stored, None))
    summing, plain = summing_micro_text(target, tile, spec.stored), gemm_kernel.kernel_text(spec, target)
    calls = (micro, summing, plain) if spec.stored is None else (micro, summing, summed, plain)
    return Seven(micro.symbol, summing.symbol, summed.symbol, plain.symbol, table, alike, sums, always), calls


def strassen_step(
    spec: gemm_arguments.GemmSpec, request: KernelRequest, *, source: str, weights: SevenWeights, sizes: tuple[Dim, int, int],
    always: bool, skipped: Callable[[Sizes, int], bool] | None = None,
) -> Step:  # fmt: skip
    """The step of a product of M x K by K x N.

    Args:
        spec: with the request's epilogue.
        source: the buffer of A.
        always: see `Seven`.
        sizes: M, N, K.
        skipped: of sizes and threads, whether there is nothing to do.
    """
    (m, n, k), target, operands, out = sizes, request.target, request.operands, request.out
    seven, calls = seven_of(spec, target, request.workspace, weights, (m, n), always)
    made, packed = _Product(spec, target, seven, source, weights.packed, out, m, n, k, operands, skipped), weights.packed
    return Step(
        strassen_kernel.kernel_text(spec, target), (source, packed, seven.table, seven.alike, *(o.name for o in operands)),
        (out, seven.sums), made, serial=Below(m * n * k, SERIAL_PRODUCTS), calls=calls,
        label=f"gemm {m}x{n}x{k} (Strassen{'' if isinstance(m, int) else ' where rows are many'})",
        arithmetic=described(spec.stored), work=shares(m * n * k), ahead=True,
    )  # fmt: skip


@dataclass(frozen=True)
class _Product(KernelCall):
    """The step's arguments, once sizes are known."""

    spec: gemm_arguments.GemmSpec
    target: Target
    seven: Seven
    a: str
    b: str
    c: str
    m: Dim
    n: int
    k: int
    operands: tuple[FusedOperand, ...]
    skipped: Callable[[Sizes, int], bool] | None

    @property
    def form(self) -> object:
        return (self.spec, self.seven.form, self.m, self.n, self.k, forms_of(self.operands), self.skipped)

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        out_item = itemsize(self.spec.epilogue.dtype if self.spec.epilogue else self.spec.dtype)
        operands = [fused_operand(o, self.n, itemsize(o.dtype), out_item, (0, 0)) for o in self.operands]
        m = 0 if self.skipped is not None and self.skipped(size, threads) else size(self.m)
        sizes, places = (m, self.n, self.k), (Ref(self.a), Ref(self.b), Ref(self.c))
        return self.seven.arguments(self.spec, self.target, sizes, threads, *places, (None, None), operands)


@dataclass(frozen=True)
class SevenCall(ConvolutionCall):
    """The arguments of a pointwise convolution, which is a product of pixels by filters."""

    seven: Seven = field(kw_only=True)

    @property
    def form(self) -> object:
        return super().form, self.seven.form

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape = self.geometry.at(size)
        return self.seven.arguments(
            self.spec, self.target, (shape.batch * math.prod(shape.output), shape.filters, shape.channels), threads, self._x(),
            Ref(self.weights), self._y(), (self.x_place.pixel_nbytes or None, self.y_place.pixel_nbytes or None),
            self._given(shape, self.spec.dtype),
        )  # fmt: skip


def pointwise_step(
    spec: gemm_arguments.GemmSpec, request: KernelRequest, *, source: str, weights: SevenWeights, geometry: Geometry,
    label: str, always: bool,
) -> Step:  # fmt: skip
    """The step of a pointwise convolution, channels-last; `always`: see `Seven`."""
    target, operands, out, packed = request.target, request.operands, request.out, weights.packed
    sizes = (product(geometry.y[:-1]), weights.matrix().shape[1])
    seven, calls = seven_of(spec, target, request.workspace, weights, sizes, always)
    call = SevenCall(geometry, spec, target, source, packed, out, operands, seven.micro, seven=seven)
    return Step(
        strassen_kernel.kernel_text(spec, target), (source, packed, seven.table, seven.alike, *(o.name for o in operands)),
        (out, seven.sums), call, calls=calls, label=f"{label} (Strassen)", work=ConvWork(geometry),
    )  # fmt: skip
