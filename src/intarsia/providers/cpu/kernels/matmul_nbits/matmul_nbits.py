"""MatMulNBits and MatMulBnb4: products by weights of 4 or 8 bits that stay packed in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.qoperator import BNB4_NUMBERS
from intarsia.ops.framework.infer import Inference
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.schedule import Constants, LoweringEnv, Schedule
from intarsia.providers.cpu.kernels.common.template import Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import TensorSpec, operand_specs, result_spec
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.matmul.gemm import ConstantRows, Gemm
from intarsia.providers.cpu.kernels.matmul.matmul import MatMul
from intarsia.providers.cpu.kernels.matmul_nbits import block_quant_int8
from intarsia.providers.cpu.kernels.matmul_nbits.block_quant_kernel import BlockFormat, are_finite, pack_blocks
from intarsia.providers.cpu.kernels.matmul_nbits.matmul_nbits_bfloat16 import Bfloat16ManyRows
from intarsia.providers.cpu.kernels.matmul_nbits.matmul_nbits_float32 import UnpackedBlocks
from intarsia.providers.cpu.kernels.matmul_nbits.matmul_nbits_int8 import Int8Rows

_B, _SCALES, _ZEROS, _GROUPS, _BIAS = 1, 2, 3, 4, 5
_CONSTANT_ROWS, _GEMM = ConstantRows("constant-rows"), Gemm("gemm")
SCHEDULES: tuple[Schedule[Any], ...] = (
    Int8Rows("int8-rows"),
    Bfloat16ManyRows("bfloat16+constant-rows", _CONSTANT_ROWS),
    UnpackedBlocks("in-place+constant-rows", _CONSTANT_ROWS, in_place=True),
    UnpackedBlocks("packed-a+constant-rows", _CONSTANT_ROWS, in_place=False),
    UnpackedBlocks("packed-a+gemm", _GEMM, in_place=False),
    _CONSTANT_ROWS,
    _GEMM,
)  # in the order of preference; behind a plus what multiplies few rows; the last takes every product


def matmul_n_bits(node: Node, inference: Inference) -> Template | None:
    """Float32 rows by constant weights of 4 or 8 bits with constant scales and zero points."""
    types = operand_specs(node, inference)
    inputs = [*node.inputs, *[""] * (6 - len(node.inputs))]
    attributes = node.attributes
    a, out = types[0], result_spec(node, inference)
    bits, size, columns = (int(attributes.get(name, 0)) for name in ("bits", "block_size", "N"))
    if a is None or a.dtype is not DType.FLOAT or not a.shape or out is None:
        return None
    if (bits or 4) not in (4, 8) or inputs[_GROUPS] or attributes.get("weight_prepacked", 0) or size % 8:
        return None
    if any(n and n not in inference.graph.constants for n in (inputs[_B], inputs[_SCALES], inputs[_ZEROS])):
        return None
    if not are_finite(inference.graph.constants[inputs[_SCALES]]):
        return None
    depth = int(attributes["K"])
    weights = TensorSpec(DType.FLOAT, (depth, columns))
    a = _as_rows(a)
    bias = types[_BIAS] if len(types) > _BIAS else None
    form = BlockFormat(bits or 4, size, bool(inputs[_ZEROS]))
    reads = tuple(inputs[: 4 if inputs[_ZEROS] else 3])
    return BlockMatMul(node, reads, (a, weights, bias), out, form=form)


def _as_rows(a: TensorSpec) -> TensorSpec:
    """A vector as a matrix of one row; products write that row where the result has one axis, too."""
    return a if len(a.shape) > 1 else TensorSpec(a.dtype, (1, *a.shape))


@dataclass(frozen=True)
class BlockMatMul(MatMul):
    """[..., M, K] by [K, N] in blocks. `types` are those of A, of what B stands for, and of the bias."""

    alone: ClassVar[str] = ""
    form: BlockFormat = field(default=BlockFormat(4, 32, False))

    def equal_sizes(self) -> list[tuple[Dim, Dim]]:
        return [(self.operand(0).shape[-1], self.operand(1).shape[0])]

    def result(self, acc: Tensor) -> Tensor:
        bias = self.types[2]
        if bias is None:
            return acc
        return acc + k.cast(k.input(self.node.inputs[_BIAS], bias.dtype, bias.shape), acc.dtype)

    @property
    def accuracy_level(self) -> int:
        """The type that A may be rounded to."""
        return int(self.node.attributes.get("accuracy_level", 0))

    @property
    def weight_bits(self) -> float:
        return self.form.bits + 32 * self.form.head / self.form.size

    def schedule_table(self) -> tuple[Schedule[Any], ...]:
        return SCHEDULES

    def schedule_key(self, env: LoweringEnv) -> None:
        """None: nothing times it."""

    def right(
        self, workspace: Workspace, single: bool, tile: Tile, target: Target
    ) -> tuple[str, str, BlockFormat | None, DType | None]:
        form = self.form
        packing = Packing(Layout.BLOCKS, tile.width, view=form)
        packed = workspace.add(self.reads[_B], packing, lambda: self.packed(workspace, tile))
        return packed, "blocks", form, None

    def packed(self, constants: Constants, tile: Tile) -> np.ndarray:
        """B for the kernels of floats."""
        return pack_blocks(*self._numbers(constants), self.matrix_shape[0], self.form, tile)

    def packed_for_bytes(self, constants: Constants, target: Target) -> np.ndarray:
        """B for a CPU's products of bytes."""
        return block_quant_int8.pack_byte_blocks(*self._numbers(constants), self.form, target)

    def _numbers(self, constants: Constants) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Words [N, blocks, words of a block], scales and, where blocks have such, zero points [N, blocks]."""
        form, (depth, columns) = self.form, self.matrix_shape
        blocks = -(-depth // form.size)
        data, scales = constants.array(self.reads[_B]), constants.array(self.reads[_SCALES])
        assert data is not None and scales is not None
        words = np.ascontiguousarray(data).view("<u4").reshape(columns, blocks, form.size // form.each)
        zeros = None
        if form.zeros:
            given = constants.array(self.reads[_ZEROS])
            assert given is not None
            zeros = zero_points(given, columns, blocks, form.bits)
        return words, scales.reshape(columns, blocks).astype(np.float32), zeros


def whole_blocks(attributes: Mapping[str, Any]) -> bool:
    """Whether the blocks of MatMulBnb4's weights lie along K and fill it."""
    depth, size = int(attributes["K"]), int(attributes["block_size"])
    return bool(attributes.get("transB", 1)) and size > 0 and size % 8 == 0 and depth % size == 0


def matmul_bnb4(node: Node, inference: Inference) -> Template | None:
    """Float32 rows by constant codes of 4 bits, in blocks that lie along K."""
    (a, *_), out, attributes = operand_specs(node, inference), result_spec(node, inference), node.attributes
    if a is None or a.dtype is not DType.FLOAT or not a.shape or out is None:
        return None
    codes, scales = (inference.graph.constants.get(name) for name in node.inputs[1:3])
    if codes is None or scales is None or not whole_blocks(attributes) or not are_finite(scales):
        return None
    weights = TensorSpec(DType.FLOAT, (int(attributes["K"]), int(attributes["N"])))
    form = BlockFormat(4, int(attributes["block_size"]), False, BNB4_NUMBERS[int(attributes["quant_type"])])
    return CodedMatMul(node, tuple(node.inputs), (_as_rows(a), weights, None), out, form=form)


@dataclass(frozen=True)
class CodedMatMul(BlockMatMul):
    """[..., M, K] by codes [N, K] in blocks, the first of a byte in the higher bits."""

    def packed(self, constants: Constants, tile: Tile) -> np.ndarray:
        form, (depth, columns) = self.form, self.matrix_shape
        codes, largest = constants.array(self.reads[_B]), constants.array(self.reads[_SCALES])
        assert codes is not None and largest is not None
        blocks = depth // form.size
        swapped = np.ascontiguousarray(codes.reshape(-1) >> 4 | codes.reshape(-1) << 4)
        words = swapped.view("<u4").reshape(columns, blocks, form.size // form.each)
        return pack_blocks(words, largest.reshape(columns, blocks), None, depth, form, tile)


def zero_points(given: np.ndarray, columns: int, blocks: int, bits: int) -> np.ndarray:
    """[N, blocks] numbers, from bytes in which a row begins at a byte, or from floats."""
    if given.dtype != np.uint8:
        return given.reshape(columns, blocks).astype(np.float32)
    rows = given.reshape(columns, -1)
    if bits == 4:
        rows = np.stack([rows & 15, rows >> 4], 2).reshape(columns, -1)
    return rows[:, :blocks].astype(np.float32)
