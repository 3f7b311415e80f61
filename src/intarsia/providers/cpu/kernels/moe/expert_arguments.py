"""The arguments of the kernels of mixtures of experts, once sizes are known."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import SCRATCH, Argument, Code, KernelCall, Ref, ScratchCall, Sizes
from intarsia.providers.cpu.kernels.common.tiles import tile_of
from intarsia.providers.cpu.kernels.matmul import gemm_arguments


@dataclass(frozen=True)
class OrderCall(KernelCall):
    """Of the kernel that sorts the rows of tokens, [tokens, count], by their experts."""

    buffers: tuple[str, ...]
    shape: tuple[Dim, Dim]
    experts: int

    @property
    def form(self) -> object:
        return len(self.buffers), self.shape, self.experts

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        tokens, count = self.shape
        return [*map(Ref, self.buffers), size(tokens), size(count), self.experts]


@dataclass(frozen=True)
class ExpertCall(ScratchCall):
    """Of the kernel that multiplies each expert's rows; `bias`: "" if there is none."""

    spec: gemm_arguments.GemmSpec
    target: Target
    micro: str
    kernel: str
    rows: str
    starts: str
    weights: str
    bias: str
    taps: str
    out: str
    experts: int
    depth: Dim
    columns: int

    @property
    def form(self) -> object:
        return (
            self.spec, self.target, self.micro, self.kernel, bool(self.bias), self.experts, self.depth, self.columns
        )  # fmt: skip

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        n, depth = self.columns, size(self.depth)
        tile = tile_of(self.spec.dtype, self.target)
        blocks = self.spec.blocks
        padded = -(-n // tile.lanes) * tile.lanes * tile.itemsize
        operands = [gemm_arguments.Operand(Ref(self.bias))] if self.bias else []
        args = gemm_arguments.matrix_args(
            self.spec, self.target, micro=Code(self.micro), a=Ref(self.rows), b=Ref(self.weights), c=Ref(self.out),
            m=1, n=n, k=depth, operands=operands, scratch=Ref(SCRATCH), taps=Ref(self.taps),
        )  # fmt: skip
        weights_nbytes = (depth if blocks is None else blocks.rows(depth)) * padded
        return [Code(self.kernel), Ref(self.starts), self.experts, weights_nbytes, n * 4, *args]

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * gemm_arguments.scratch_nbytes(self.spec, self.target, size(self.depth))
