"""MatMulNBits of many rows by pairs of bfloat16 (VDPBF16PS), where its `accuracy_level` or the session lets rows be rounded so.

Panels of B are unpacked to float32 in a thread's scratch and rounded to pairs, once for all tiles of a chunk of A.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Argument, Arguments, Below, Sizes, Step, form_of
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.microkernel import Tile
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Workspace
from intarsia.providers.cpu.kernels.common.units import VECTORS
from intarsia.providers.cpu.kernels.matmul import gemm_kernel
from intarsia.providers.cpu.kernels.matmul.bfloat16_rows import SAID, PairProduct, rounded, zero_tap
from intarsia.providers.cpu.kernels.matmul.matmul_steps import SERIAL_PRODUCTS, shares
from intarsia.providers.cpu.kernels.matmul.vnni_kernel import pair_rows_text
from intarsia.providers.cpu.kernels.matmul_nbits.block_quant_kernel import BlockFormat

LEAST_ROWS = 16  # fewer are multiplied by numbers in registers, or float32 panels
_NO_ROWS = gemm_kernel.ARGUMENTS["tiles"]


def block_pair_steps(
    target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str, *,
    source: str, right: str, form: BlockFormat, tile: Tile, m: Dim, k: int, n: int,
) -> list[Step]:  # fmt: skip
    """C[m, N] = epilogue(A[m, K] B) for an even K; nothing where there are few rows.

    Args:
        source: the buffer of A, float32; `right` that of B's panels of blocks for `tile`.
    """
    before, a = rounded(target, workspace, source, DType.FLOAT, m * k)
    spec = gemm_kernel.GemmSpec(DType.FLOAT, "blocks", epilogue, form, tile=tile, unit=VECTORS)
    micro, zero = pair_rows_text(tile, target), zero_tap(workspace)
    made = PairProduct(spec, target, micro.symbol, a, right, out, zero, m, n, k // 2, tuple(operands))
    step = Step(
        gemm_kernel.kernel_text(spec, target), (a, right, zero, *(o.name for o in operands)), (out,), OfRows(made.arguments, m,
        True),
        scratch_nbytes=made.scratch_nbytes, serial=Below(m * n * k, SERIAL_PRODUCTS), label=f"gemm {m}x{n}x{k}", calls=(micro,),
        work=partial(shares, m * n * (k // 2)), arithmetic=SAID, ahead=True,
    )  # fmt: skip
    return [*before, step]


@dataclass(frozen=True)
class OfRows:
    """The arguments of a product's step that does nothing unless there are `many` rows, or few."""

    arguments: Arguments
    rows: Dim
    many: bool

    @property
    def form(self) -> object:
        """All but the buffers' names (`plan.step.form_of`)."""
        return (form_of(self.arguments), self.rows, self.many)

    def __call__(self, size: Sizes, threads: int) -> Sequence[Argument]:
        found = list(self.arguments(size, threads))
        if (size(self.rows) >= LEAST_ROWS) != self.many:
            found[_NO_ROWS] = 0
        return found
