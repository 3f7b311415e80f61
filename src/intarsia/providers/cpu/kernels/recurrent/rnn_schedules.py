"""The schedules of recurrent layers: when the products of all inputs by W are computed, and by which kernel."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from intarsia.ep.capability import Support
from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Below, Step
from intarsia.primitives import lang as k
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.microkernel import micro_text
from intarsia.providers.cpu.kernels.common.packing import ZERO_TAP
from intarsia.providers.cpu.kernels.common.pieces import MOST_PARTS
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv, Schedule
from intarsia.providers.cpu.kernels.common.template import FusedOperand
from intarsia.providers.cpu.kernels.common.tiles import Tile, product_tile, tile_of
from intarsia.providers.cpu.kernels.conv.winograd.cost_model import rates
from intarsia.providers.cpu.kernels.matmul import gemm_arguments, gemm_kernel
from intarsia.providers.cpu.kernels.matmul.strassen import (
    NOT_FASTER,
    SEVEN_EIGHTHS,
    SevenWeights,
    is_allowed,
    may_pay,
    strassen_step,
)
from intarsia.providers.cpu.kernels.recurrent import rnn_arguments
from intarsia.providers.cpu.kernels.recurrent.rnn_arguments import COMPUTED_SHARE, GATES, STATES, TILE_ROWS
from intarsia.providers.cpu.kernels.recurrent.rnn_kernel import kernel_text
from intarsia.providers.cpu.kernels.recurrent.rnn_layer import (
    InputProductCall,
    InputProducts,
    Layer,
    LayerWork,
    Skipped,
    WalkCall,
)

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.recurrent.rnn import Recurrent

    _Schedule = Schedule[Recurrent]
else:
    _Schedule = Schedule

_SERIAL_PRODUCTS = 20_000
_USUAL_STEPS = 128  # where their number is not known
_BYTES_PER_SECOND = 20e9  # of input products, which mostly come from memory
_L2_BYTES_PER_SECOND = 64e9  # of an R that stays in a core's second-level cache
_YES = Support.yes()
_OF_BYTES = Support.no("its weights are stored as bytes")
_NO_REGISTERS = Support.no("registers have no room for input products beside the steps")


@dataclass(frozen=True)
class RecurrentSchedule(_Schedule):
    """A kernel that walks the sequence, and a step that computes its input products where that does not."""

    def steps(self, node: Recurrent, request: KernelRequest) -> list[Step]:
        assert request.epilogue is None and not request.operands
        layer, x = node.layer(request.target, self.when), node.operand(0).shape
        if layer.inputs is InputProducts.BESIDE:
            return [_walk(node, layer, request, "")]
        shape = (*x[:2], node.columns(request.target))
        products = request.workspace.temporary(f"{request.out}%products", node.spec.dtype, shape)
        return [*self.input_steps(node, layer, request, products), _walk(node, layer, request, products)]

    @property
    @abstractmethod
    def when(self) -> InputProducts:
        """When input products are computed."""

    @abstractmethod
    def input_steps(self, node: Recurrent, layer: Layer, request: KernelRequest, products: str) -> list[Step]:
        """The steps that write X W^T + bias of all steps and directions to `products`."""


@dataclass(frozen=True)
class InputsBeside(RecurrentSchedule):
    """One kernel: a step of one row waits for R, so that multiply-adds are idle for input products."""

    @property
    def when(self) -> InputProducts:
        return InputProducts.BESIDE

    def applies(self, node: Recurrent, env: LoweringEnv) -> Support:
        found = _may_be_beside(node, env)
        if found and node.extents[1] != 1:
            return Support.no(f"a batch of {node.extents[1]} is not one row")
        return found

    def pays(self, node: Recurrent, env: LoweringEnv) -> Support:
        layer, (seq, _) = node.layer(env.target, self.when), node.extents
        found = _worth_beside(layer)
        if not found:
            return found
        if not isinstance(seq, int):
            return Support.no("how many steps there are is known only in a run")
        if seq <= TILE_ROWS:
            return Support.no(f"{seq} steps have no later ones beside which inputs could be multiplied {TILE_ROWS} at a time")
        shape = layer.shape(_usual)
        if not all(rnn_arguments.computes_inputs(node.spec, env.target, shape, n) for n in range(1, MOST_PARTS + 1)):
            return Support.no("of some numbers of threads, all together compute input products faster before")
        return _YES

    def cost(self, node: Recurrent, env: LoweringEnv) -> float:
        return _beside_seconds(node, env)

    def input_steps(self, node: Recurrent, layer: Layer, request: KernelRequest, products: str) -> list[Step]:
        return []


@dataclass(frozen=True)
class InputsBefore(RecurrentSchedule):
    """One matrix product for all inputs, then the kernel that walks the sequence.

    Attributes:
        dynamic: whether the latter computes them where sizes and the number of threads make that faster.
        strassen: whether the product is by seven multiplications of blocks instead of eight.
    """

    dynamic: bool = False
    strassen: bool = False

    @property
    def when(self) -> InputProducts:
        return InputProducts.DYNAMIC if self.dynamic else InputProducts.BEFORE

    def applies(self, node: Recurrent, env: LoweringEnv) -> Support:
        found = _may_be_beside(node, env) if self.dynamic else _of_floats(node)
        if not found or not self.strassen:
            return found
        if node.spec.dtype is not DType.FLOAT:
            return Support.no(f"it is of {node.spec.dtype.name.lower()}, not float32")
        return is_allowed(env.options, env.target)

    def pays(self, node: Recurrent, env: LoweringEnv) -> Support:
        found = _worth_beside(node.layer(env.target, self.when)) if self.dynamic else _YES
        if not found or not self.strassen:
            return found
        (seq, batch), columns = node.extents, node.columns(env.target)
        tile = self._tile(node, env)
        return _YES if may_pay(seq * batch, columns, node.depth, env.target, env.options, tile) else NOT_FASTER

    def cost(self, node: Recurrent, env: LoweringEnv) -> float:
        if node.layer(env.target, self.when).computes(_usual, 1):
            return _beside_seconds(node, env)
        return _walk_seconds(node, env) + _input_seconds(node, env, SEVEN_EIGHTHS if self.strassen else 1.0) + _moved(node, env)

    def input_steps(self, node: Recurrent, layer: Layer, request: KernelRequest, products: str) -> list[Step]:
        made = _strassen_step if self.strassen else _gemm_step
        return [made(node, layer, request, products, self._tile(node, request.env))]

    def _tile(self, node: Recurrent, env: LoweringEnv) -> Tile:
        """The tile whose panels W is packed in; where the walk may read them, those that R has."""
        if self.dynamic or not self.strassen:
            return tile_of(node.spec.dtype, env.target)
        return product_tile(node.columns(env.target), node.spec.dtype, env.target)


def _of_floats(node: Recurrent) -> Support:
    return _OF_BYTES if node.spec.stored else _YES


def _may_be_beside(node: Recurrent, env: LoweringEnv) -> Support:
    """Whether its kernel can compute input products."""
    found = _of_floats(node)
    if found and not rnn_arguments.has_registers(node.spec, tile_of(node.spec.dtype, env.target)):
        return _NO_REGISTERS
    return found


def _worth_beside(layer: Layer) -> Support:
    return rnn_arguments.may_compute_inputs(layer.spec, layer.target, layer.hidden, layer.depth, layer.directions)


# --- steps --------------------------------------------------------------------------------------------------------


def _strassen_step(node: Recurrent, layer: Layer, request: KernelRequest, products: str, tile: Tile) -> Step:
    """A product whose blocks may be multiplied by seven multiplications instead of eight."""
    target, workspace, (seq, batch) = request.target, request.workspace, node.extents
    own = tile_of(node.spec.dtype, target)
    workspace.add("", ZERO_TAP, lambda: np.zeros(1, np.int64))  # no kernel here reads it; programs have always had it
    bias = node.bias(workspace, own)
    epilogue, operands = _biased(node, bias), (FusedOperand(bias, "column", node.spec.dtype),) if bias else ()
    packed, matrix = node.input_panels(workspace, own, tile), partial(node.input_matrix, workspace, own)
    return strassen_step(
        gemm_arguments.GemmSpec(node.spec.dtype, "packed", epilogue, tile=tile),
        KernelRequest(target, workspace, epilogue, operands, products), source=node.reads[0], always=False,
        weights=SevenWeights(node.weights[0], node.arranged(own), matrix, packed),
        sizes=(seq * batch, node.columns(target), layer.depth),
        skipped=Skipped(layer) if layer.inputs is InputProducts.DYNAMIC else None,
    )  # fmt: skip


def _gemm_step(node: Recurrent, layer: Layer, request: KernelRequest, products: str, tile: Tile) -> Step:
    target, workspace, (seq, batch) = request.target, request.workspace, node.extents
    zero, bias = workspace.add("", ZERO_TAP, lambda: np.zeros(1, np.int64)), node.bias(workspace, tile)
    spec = gemm_arguments.GemmSpec(node.spec.dtype, "packed", _biased(node, bias))
    panels, micro = node.input_panels(workspace, tile), micro_text(node.spec.dtype, target)
    depth, columns = node.operand(0).shape[2], node.columns(target)
    mnk = (seq * batch, columns, depth)
    call = InputProductCall(spec, layer, micro.symbol, node.reads[0], panels, products, zero, bias, mnk)
    return Step(
        gemm_kernel.kernel_text(spec, target), (node.reads[0], panels, zero, *([bias] if bias else [])), (products,), call,
        serial=Below(seq * batch * depth * columns, _SERIAL_PRODUCTS), label=f"{node.spec.cell} inputs {depth}x{columns}",
        calls=(micro,),
    )  # fmt: skip


def _biased(node: Recurrent, bias: str) -> Epilogue | None:
    """Adds the bias, where there is one."""
    if not bias:
        return None
    acc, added = (k.input(i, node.spec.dtype, ()) for i in range(2))
    return Epilogue(acc + added, ("column",), (node.spec.dtype,))


def _walk(node: Recurrent, layer: Layer, request: KernelRequest, products: str) -> Step:
    """The step that walks the sequence; `products` is "" where it computes those of the inputs."""
    spec, target, workspace = node.spec, request.target, request.workspace
    tile = tile_of(spec.dtype, target)
    packed = node.recurrent_panels(workspace, tile)
    zero, extra = workspace.add("", ZERO_TAP, lambda: np.zeros(1, np.int64)), node.gate_terms(workspace, tile)
    y, *finals = (*node.node.outputs, "", "", "")[: 1 + STATES[spec.cell]]
    x, lengths, *initial = node.reads
    inputs: tuple[str, ...] = ()
    if layer.inputs is not InputProducts.BEFORE:
        bias = node.bias(workspace, tile) or node.no_bias(workspace, target)
        inputs = (x, node.input_panels(workspace, tile), bias)
    micro = micro_text(spec.dtype, target)
    call = WalkCall(
        layer, micro.symbol, products, packed, zero, extra, lengths, y, tuple(initial), tuple(finals), inputs
    )  # fmt: skip
    reads = (packed, zero, *(n for n in (products, extra, lengths, *initial, *inputs) if n))
    return Step(
        kernel_text(spec, target), reads, node.outputs, call, label=f"{spec.cell} {layer.hidden}", calls=(micro,),
        work=LayerWork(layer), pieces=rnn_arguments.PIECES, checked=bool(lengths),
    )  # fmt: skip


# --- estimates ----------------------------------------------------------------------------------------------------


def _usual(size: Dim) -> int:
    return size if isinstance(size, int) else max(1, size.evaluate(dict.fromkeys(size.symbols, _USUAL_STEPS)))


def _flops(node: Recurrent, env: LoweringEnv) -> float:
    """Of one core, in a second."""
    return rates(env.target.l2_nbytes).flops * env.target.vector_bytes / 64 * 32 / node.spec.dtype.bits


def _input_seconds(node: Recurrent, env: LoweringEnv, rate: float = 1.0) -> float:
    """Of X W^T; `rate`: multiply-adds in the time of one of the layer's type."""
    rows = _usual(node.extents[0]) * _usual(node.extents[1])
    return 2 * rows * node.depth * node.columns(env.target) / (_flops(node, env) * rate)


def _moved(node: Recurrent, env: LoweringEnv) -> float:
    """Of input products that are written and read again."""
    rows = _usual(node.extents[0]) * _usual(node.extents[1])
    return 2 * rows * node.columns(env.target) * node.spec.dtype.bits / 8 / _BYTES_PER_SECOND


def _walk_seconds(node: Recurrent, env: LoweringEnv) -> float:
    """Of the recurrent products: R streams once for each step and as many rows as a register tile has."""
    layer, tile = node.layer(env.target, InputProducts.BEFORE), tile_of(node.spec.dtype, env.target)
    seq, batch = map(_usual, node.extents)
    each = layer.weights_nbytes / (4 if node.spec.stored else 1)
    streamed = each * -(-batch // tile.rows)
    rate = _L2_BYTES_PER_SECOND if each <= env.target.l2_nbytes else rates(env.target.l2_nbytes).weight_bytes
    multiplied = 2 * batch * GATES[node.spec.cell] * layer.hidden**2 / _flops(node, env)
    return seq * layer.directions * max(streamed / rate, multiplied)


def _beside_seconds(node: Recurrent, env: LoweringEnv) -> float:
    return _walk_seconds(node, env) + COMPUTED_SHARE * _input_seconds(node, env)


def bytes_seconds(node: Recurrent, env: LoweringEnv, rate: float) -> float:
    """Of a layer whose inputs are multiplied as bytes before, `rate` of them in the time of one float's."""
    return _walk_seconds(node, env) + _input_seconds(node, env, rate) + _moved(node, env)
