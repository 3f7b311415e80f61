"""Mixtures of experts by kernels: the order of rows, and the products of each expert's rows with its packed matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, numbers_of
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.expert_mixture import FLOAT4
from intarsia.ops.framework.infer import Inference
from intarsia.plan.step import ALWAYS, Step
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros, pack_matrix
from intarsia.providers.cpu.kernels.common.schedule import Constants, KernelRequest, Schedule, choose
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import operand_specs, result_spec
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.matmul_nbits.block_quant_kernel import BlockFormat, are_finite, pack_blocks
from intarsia.providers.cpu.kernels.moe import expert_kernels as template
from intarsia.providers.cpu.kernels.moe.expert_arguments import OrderCall
from intarsia.providers.cpu.kernels.moe.expert_schedules import ExpertBlocks, ExpertPanels
from intarsia.providers.cpu.kernels.moe.storage import block_size, stored_bits

_ROWS, _STARTS, _WEIGHTS, _BIAS, _SCALES, _ZEROS, _WHOLE = range(7)
SCHEDULES: tuple[Schedule[ExpertProducts], ...] = (ExpertPanels("float-panels"), ExpertBlocks("block-panels"))


def expert_order(node: Node, inference: Inference) -> Template | None:
    """ExpertOrder of which all outputs are wanted."""
    types = operand_specs(node, inference)
    out = result_spec(node, inference)
    if types[0] is None or out is None or not all(node.outputs):
        return None
    return ExpertOrder(node, (node.inputs[0],), types, out, takes_epilogue=False)


@dataclass(frozen=True)
class ExpertOrder(Template):
    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self.node.outputs)

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        chosen = self.operand(0)
        tokens, count = chosen.shape
        call = OrderCall((*self.reads, *self.outputs), (tokens, count), int(self.node.attributes["experts"]))
        kernel = template.order_text(target)
        return [Step(kernel, self.reads, self.outputs, call, serial=ALWAYS, label="sort rows by expert")]


def expert_products(node: Node, inference: Inference) -> Template | None:
    """ExpertProducts by constant matrices."""
    types = operand_specs(node, inference)
    rows, out = types[0], result_spec(node, inference)
    if rows is None or not isinstance(rows.shape[1], int) or out is None:
        return None
    if any(n and n not in inference.graph.constants for n in node.inputs[_WEIGHTS:]):
        return None
    factors = [inference.graph.constants[n] for i, n in enumerate(node.inputs) if n and i in (_SCALES, _WHOLE)]
    if not all(map(are_finite, factors)):
        return None
    return ExpertProducts(node, (*node.inputs[:2],), types, out, takes_epilogue=False, names=tuple(node.inputs))


@dataclass(frozen=True)
class ExpertProducts(Template):
    """The products of each expert's rows with its constant matrix."""

    names: tuple[str, ...] = field(kw_only=True)  # of all inputs, constants included

    def schedule_table(self) -> tuple[Schedule[ExpertProducts], ...]:
        return SCHEDULES

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        request = KernelRequest(target, workspace, epilogue, tuple(operands), out)
        return choose(self, request.env).steps(self, request)

    @property
    def rows_shape(self) -> tuple[Dim, Dim]:
        """The rows of all experts, and K."""
        rows = self.operand(_ROWS)
        count, depth = rows.shape
        return count, depth

    def _name(self, index: int) -> str:
        return self.names[index] if index < len(self.names) else ""

    def _shape(self, index: int) -> tuple[int, ...]:
        kind = self.operand(index)
        return numbers_of(kind.shape)

    @property
    def experts(self) -> int:
        return self._shape(_WEIGHTS)[0]

    @property
    def columns(self) -> int:
        return self._shape(_WEIGHTS)[1]

    @property
    def bits(self) -> int:
        """Of a number of the matrices; 0: they are of floats."""
        return int(self.node.attributes.get("bits", 0))

    @property
    def _block(self) -> int:
        return int(self.node.attributes.get("block", 0))

    def block_format(self) -> BlockFormat:
        """How matrices of few bits are stored."""
        if self._block:
            return BlockFormat(8, self._block, False)
        depth, scales = self._shape(_WEIGHTS)[2] * 8 // self.bits, self._shape(_SCALES)
        size = block_size(depth, scales[2] if len(scales) == 3 else 1, self.bits)
        assert size is not None
        return BlockFormat(stored_bits(self.bits), size, bool(self._name(_ZEROS)) or self.bits == 2)

    def bias(self, workspace: Workspace) -> str:
        """The buffer of the experts' bias, "" if there is none."""
        name = self._name(_BIAS)
        return name and workspace.add(name, Packing(Layout.EXPERT_BIAS), lambda: self._bias(workspace))

    def _bias(self, constants: Constants) -> np.ndarray:
        given = constants.array(self._name(_BIAS))
        assert given is not None
        return np.ascontiguousarray(given, np.float32)

    def float_panels(self, workspace: Workspace, tile: Tile) -> str:
        """The buffer of the packed matrices of floats."""
        packing = Packing(Layout.EXPERT_PANELS, tile.width)
        return workspace.add(self._name(_WEIGHTS), packing, lambda: self._panels(workspace, tile))

    def block_panels(self, workspace: Workspace, form: BlockFormat, tile: Tile) -> str:
        """The buffer of the packed matrices of few bits."""
        packing = Packing(Layout.EXPERT_BLOCKS, tile.width, view=(self.bits, form))
        return workspace.add(self._name(_WEIGHTS), packing, lambda: self._blocks(workspace, form, tile))

    def _panels(self, constants: Constants, tile: Tile) -> np.ndarray:
        given = constants.array(self._name(_WEIGHTS))
        assert given is not None
        return pack_matrix(given.astype(np.float32, copy=False).transpose(0, 2, 1), tile)

    def _blocks(self, constants: Constants, form: BlockFormat, tile: Tile) -> np.ndarray:
        values, scales = (constants.array(self._name(i)) for i in (_WEIGHTS, _SCALES))
        whole = constants.array(self._name(_WHOLE)) if self._block else None
        zeros = constants.array(self._name(_ZEROS)) if self._name(_ZEROS) else None
        assert values is not None and scales is not None
        packed = []
        for e in range(len(values)):
            scale = scales[e].astype(np.float32).reshape(len(values[e]), -1)
            depth = values.shape[2] * 8 // self.bits
            if whole is not None:
                scale *= np.float32(whole[e]) / 2
                words = _doubled_words(values[e], form, scale.shape[1])
            else:
                words = _words(values[e], self.bits, form, scale.shape[1])
            zero = _zeros(zeros[e] if zeros is not None else None, self.bits, scale.shape) if form.zeros else None
            packed.append(pack_blocks(words, scale, zero, depth, form, tile))
        out = aligned_zeros((len(packed), packed[0].size), packed[0].dtype)
        np.stack(packed, out=out)
        return out


def _unpacked(x: np.ndarray, bits: int) -> np.ndarray:
    """Bytes -> 8 / bits numbers each, low bits first, along the last axis."""
    if bits == 8:
        return x
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((x[..., None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(*x.shape[:-1], -1)


def _words(values: np.ndarray, bits: int, form: BlockFormat, blocks: int) -> np.ndarray:
    """Bytes [N, depth * bits / 8] -> uint32 [N, blocks, words of a block]."""
    numbers = values
    if bits != form.bits or values.shape[1] * 8 // bits != blocks * form.size:
        numbers = _unpacked(values, bits)
        padded = np.zeros((len(numbers), blocks * form.size), np.uint8)
        padded[:, : numbers.shape[1]] = numbers
        numbers = padded if form.bits == 8 else padded[:, ::2] | padded[:, 1::2] << 4
    return np.ascontiguousarray(numbers).view("<u4").reshape(len(values), blocks, -1)


def _doubled_words(values: np.ndarray, form: BlockFormat, blocks: int) -> np.ndarray:
    """Numbers of float4e2m1, [N, depth / 2] bytes, times 2, which are integers of 8 bits around 128."""
    numbers = (FLOAT4 * 2 + 128).astype(np.uint8)[_unpacked(values, 4)]
    padded = np.full((len(numbers), blocks * form.size), 128, np.uint8)
    padded[:, : numbers.shape[1]] = numbers
    return padded.view("<u4").reshape(len(values), blocks, -1)


def _zeros(given: np.ndarray | None, bits: int, shape: tuple[int, ...]) -> np.ndarray:
    """float32 [N, blocks]."""
    if given is None:
        return np.full(shape, 1 << (bits - 1), np.float32)
    numbers = _unpacked(given, bits).astype(np.float32)
    return numbers[: shape[0], None] if given.ndim == 1 else numbers[:, : shape[1]]
