"""Products by constants in float16 arithmetic, where `session.arithmetic` requests it."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import CLAIMS, SCRATCH, Argument, Below, Code, Ref, Sizes, Step
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.lowering_options import LoweringOptions
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.precision import in_halves
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest
from intarsia.providers.cpu.kernels.common.template import FusedOperand, forms_of
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.matmul import float16_kernel as halves
from intarsia.providers.cpu.kernels.matmul import packed_a_kernel as tiled
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec
from intarsia.providers.cpu.kernels.matmul.matmul_arguments import PackCall, PackedProduct, PartCall
from intarsia.providers.cpu.kernels.matmul.matmul_steps import SERIAL_PRODUCTS, ConstantFactor, fused_operand, shares

_LEAST_ROWS = 8  # fewer wait for the weights, which float32 sums of float16 weights read as fast


def halves_pay(options: LoweringOptions, target: Target, m: Dim, n: int, k: int) -> bool:
    """Whether products in float16 are requested, and this one has rows, columns and terms enough."""
    few = isinstance(m, int) and m < _LEAST_ROWS
    return in_halves(options, target) and not few and min(n, k) >= 2 * halves.half_tile(n, target).lanes


def half_steps(request: KernelRequest, *, source: str, m: Dim, weights: ConstantFactor) -> list[Step] | None:
    """C[m, N] = epilogue(A[m, K] B): packing of A, then a step for each range of K blocks.

    None where float32 is faster, or where weights are infinite or NaN.

    Args:
        source: the buffer of A, float32 rows of K numbers.
        weights: what B is made from, float32 [K, N].
    """
    target, workspace, epilogue, out = request.target, request.workspace, request.epilogue, request.out
    operands, matrix = request.operands, weights.values
    k, n = matrix.shape
    tile = halves.half_tile(n, target)
    if not halves_pay(workspace.options, target, m, n, k):
        return None
    panels = halves.pack_half_weights(matrix, tile)
    if panels is None:
        return None
    b = workspace.add(weights.name, Packing(Layout.FLOAT16, tile.width, view=weights.view), lambda: panels)
    spec = GemmSpec(DType.FLOAT, "packed", epilogue, tile=halves.sums_tile(tile), halves=True)
    packed = workspace.temporary(f"{source}%halves{tile.rows}", DType.FLOAT16, (m, halves.packed_columns(k, tile)))
    parts, sums = tiled.parts(k, halves.sums_tile(tile)), ""
    if len(parts) > 1:
        elements = tiled.partial_elements(m, n, halves.sums_tile(tile))
        sums = workspace.temporary(f"{out}%sums", DType.FLOAT, (elements,))
    micro = halves.half_micro_text(tile, target)
    made = _HalfProduct(spec, tile, target, micro.symbol, source, packed, b, out, sums, m, k, n, operands)
    little = Below(m, 4 * tile.rows)
    steps = [
        Step(
            halves.pack_halves_text(tile, target), (source,), (packed,), PackCall(made), serial=little, label=f"pack {m}x{k}",
            shared=True, arithmetic="float16",
        )
    ]  # fmt: skip
    between = (sums,) if sums else ()
    for number, part in enumerate(parts):
        steps.append(
            Step(
                halves.half_text(spec, target), (packed, b, *(o.name for o in operands), *between), (out, *between),
                PartCall(made, part),
                label=f"gemm {m}x{n}x{part[1]}" + (f" of {k}" if sums else ""),
                serial=little if number else Below(m * n * k, SERIAL_PRODUCTS), calls=(micro,),
                work=shares(m * n * part[1]), arithmetic="float16", ahead=True,
            )
        )  # fmt: skip
    return steps


@dataclass(frozen=True)
class _HalfProduct(PackedProduct):
    """The arguments of the steps of one product, once its sizes are known."""

    spec: GemmSpec
    tile: Tile
    target: Target
    micro: str
    source: str
    packed: str
    b: str
    c: str
    partial: str
    m: Dim
    k: int
    n: int
    operands: tuple[FusedOperand, ...]

    @property
    def form(self) -> object:
        operands = forms_of(self.operands)
        return (self.spec, self.micro, bool(self.partial), self.m, self.k, self.n, operands)

    def packing(self, size: Sizes) -> Sequence[Argument]:
        return halves.pack_halves_args(Ref(self.source), 4 * self.k, Ref(self.packed), size(self.m), self.k, self.tile)

    def part_arguments(self, part: tuple[int, int], size: Sizes, threads: int) -> Sequence[Argument]:
        out_item = itemsize(self.spec.epilogue.dtype) if self.spec.epilogue else 4
        micro, a = Code(self.micro), Ref(self.packed)
        return tiled.tiled_args(
            self.spec, self.target, micro=(micro, micro), a=(a, a), b=Ref(self.b), c=Ref(self.c),
            m=size(self.m), n=self.n, k=self.k, taps=0, scratch=Ref(SCRATCH), part=part,
            partial=Ref(self.partial) if self.partial else 0, claims=Ref(CLAIMS), threads=threads,
            operands=[fused_operand(o, self.n, itemsize(o.dtype), out_item, (0, 0)) for o in self.operands],
        )  # fmt: skip

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * tiled.tiled_scratch_nbytes(self.spec, self.target, size(self.m), self.k)
