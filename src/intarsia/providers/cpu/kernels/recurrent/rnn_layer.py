"""The calls of a recurrent layer's kernels, and when input products are computed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.executor_abi import SHARE_NBYTES
from intarsia.plan.step import (
    CLAIMS,
    SCRATCH,
    STATUS,
    Address,
    Argument,
    Code,
    KernelCall,
    Ref,
    ScratchCall,
    Sizes,
    Work,
)
from intarsia.providers.cpu.kernels.common.tiles import tile_of
from intarsia.providers.cpu.kernels.matmul import gemm_arguments
from intarsia.providers.cpu.kernels.recurrent import rnn_arguments
from intarsia.providers.cpu.kernels.recurrent.rnn_arguments import GATES, RecurrentShape, RecurrentSpec


class InputProducts(Enum):
    """When X W^T is computed.

    Attributes:
        BEFORE: by a step of its own, for the whole sequence.
        BESIDE: by the kernel that walks the sequence, beside its steps.
        DYNAMIC: either, by what sizes and the number of threads make faster.
    """

    BEFORE = "before"
    BESIDE = "beside"
    DYNAMIC = "dynamic"


@dataclass(frozen=True)
class Layer:
    """Sizes and options by which a layer's work is divided.

    Attributes:
        extents: steps of the sequence, and rows of the batch.
        depth: columns of X.
        hidden: hidden units of a direction.
    """

    spec: RecurrentSpec
    target: Target
    extents: tuple[Dim, Dim]
    depth: int
    hidden: int
    directions: int
    reverse: bool
    batch_first: bool
    inputs: InputProducts = InputProducts.BEFORE

    def shape(self, size: Sizes) -> RecurrentShape:
        """The sizes of a call."""
        seq, batch = self.extents
        return RecurrentShape(size(seq), size(batch), self.hidden, self.directions, self.reverse, self.batch_first)

    def computes(self, size: Sizes, threads: int) -> bool:
        """Whether input products are computed beside the steps, not before."""
        if self.inputs is InputProducts.DYNAMIC:
            return rnn_arguments.computes_inputs(self.spec, self.target, self.shape(size), threads)
        return self.inputs is InputProducts.BESIDE

    @property
    def weights_nbytes(self) -> int:
        """Bytes of one direction's R in the layer's type."""
        return GATES[self.spec.cell] * self.hidden**2 * tile_of(self.spec.dtype, self.target).itemsize


@dataclass(frozen=True)
class LayerWork(Work):
    """Each step reads R once for as many rows as a register tile has."""

    layer: Layer

    def __call__(self, size: Sizes) -> float:
        layer, (seq, batch) = self.layer, self.layer.extents
        tile = tile_of(layer.spec.dtype, layer.target)
        return size(seq) * layer.directions * -(-size(batch) // tile.rows) * layer.weights_nbytes / SHARE_NBYTES


@dataclass(frozen=True)
class Skipped:
    """Whether a step of input products has nothing to do, since they are computed beside the steps."""

    layer: Layer

    def __call__(self, size: Sizes, threads: int) -> bool:
        return self.layer.computes(size, threads)


@dataclass(frozen=True)
class InputProductCall(KernelCall):
    """X W^T + bias of all steps and directions: a product of M x K by K x N.

    Attributes:
        mnk: M, N, K.
        bias: "" where there is none.
    """

    spec: gemm_arguments.GemmSpec
    layer: Layer
    micro: str
    a: str
    b: str
    c: str
    taps: str
    bias: str
    mnk: tuple[Dim, int, Dim]

    @property
    def form(self) -> object:
        return self.spec, self.layer, self.micro, bool(self.bias), self.mnk

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        m, n, k = self.mnk
        return gemm_arguments.matrix_args(
            self.spec, self.layer.target, micro=Code(self.micro), a=Ref(self.a), b=Ref(self.b), c=Ref(self.c),
            m=0 if self.layer.computes(size, threads) else size(m), n=n, k=size(k), taps=Ref(self.taps),
            operands=[gemm_arguments.Operand(Ref(self.bias))] if self.bias else [],
        )  # fmt: skip


@dataclass(frozen=True)
class WalkCall(ScratchCall):
    """The arguments of the kernel that walks the sequence; "" stands for what is left out.

    Attributes:
        products: those of the inputs, where a step before has computed them.
        inputs: X, W in panels and biases, where they may be computed beside the steps.
    """

    layer: Layer
    micro: str
    products: str
    weights: str
    taps: str
    extra: str
    lengths: str
    y: str
    initial: tuple[str, ...]
    finals: tuple[str, ...]
    inputs: tuple[str, ...]

    @property
    def form(self) -> object:
        names = (self.products, self.extra, self.lengths, self.y, *self.initial, "", *self.finals)
        return self.layer, self.micro, len(self.initial), tuple(map(bool, names))

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        layer, shape = self.layer, self.layer.shape(size)
        inputs = None
        if layer.computes(size, threads):
            x, weights, bias = map(Ref, self.inputs)
            inputs = rnn_arguments.Inputs(x, weights, bias, layer.depth)
        return rnn_arguments.recurrent_args(
            layer.spec, layer.target, shape, threads, micro=Code(self.micro), x=_place(self.products),
            weights=Ref(self.weights), taps=Ref(self.taps), scratch=Ref(SCRATCH), claims=Ref(CLAIMS), extra=_place(self.extra),
            lengths=_place(self.lengths), status=Ref(STATUS) if self.lengths else 0,
            initial=[_place(n) for n in self.initial], y=_place(self.y), finals=[_place(n) for n in self.finals],
            inputs=inputs,
        )  # fmt: skip

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        layer, computes = self.layer, self.layer.computes(size, threads)
        each = rnn_arguments.scratch_nbytes(layer.spec, layer.target, layer.shape(size), threads, computes=computes)
        return threads * each


def _place(name: str) -> Address:
    return Ref(name) if name else 0
