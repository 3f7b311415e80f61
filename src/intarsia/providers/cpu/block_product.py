"""MatMulNBits: products by weights of 4 or 8 bits that stay packed in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from intarsia.codegen.block_kernel import BlockFormat, pack_blocks
from intarsia.codegen.microkernel import Tile
from intarsia.codegen.target import Target
from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.kernel import lang as k
from intarsia.kernel.lang import Tensor
from intarsia.ops.infer import Inference
from intarsia.providers.cpu.contraction import MatMul
from intarsia.providers.cpu.template import Template, Workspace, tensor_types

_B, _SCALES, _ZEROS, _GROUPS, _BIAS = 1, 2, 3, 4, 5


def matmul_n_bits(node: Node, inference: Inference) -> Template | None:
    """Float32 rows by constant weights of 4 or 8 bits with constant scales and zero points."""
    types = tensor_types(node, inference)
    inputs = [*node.inputs, *[""] * (6 - len(node.inputs))]
    attributes = node.attributes
    a, out = types[0], inference.types.get(node.outputs[0])
    bits, size, columns = (int(attributes.get(name, 0)) for name in ("bits", "block_size", "N"))
    if a is None or a.shape is None or a.dtype is not DType.FLOAT or len(a.shape) < 2 or not isinstance(out, TensorType):
        return None
    if (bits or 4) not in (4, 8) or inputs[_GROUPS] or attributes.get("weight_prepacked", 0) or size % 8:
        return None
    if any(n and n not in inference.graph.constants for n in (inputs[_B], inputs[_SCALES], inputs[_ZEROS])):
        return None
    depth = int(attributes["K"])
    weights = TensorType(DType.FLOAT, (depth, columns))
    bias = types[_BIAS] if len(types) > _BIAS else None
    form = BlockFormat(bits or 4, size, bool(inputs[_ZEROS]))
    reads = tuple(inputs[: 4 if inputs[_ZEROS] else 3])
    return BlockMatMul(node, reads, (a, weights, bias), out, form=form)


@dataclass(frozen=True)
class BlockMatMul(MatMul):
    """[..., M, K] by [K, N] in blocks. `types` are those of A, of what B stands for, and of the bias."""

    form: BlockFormat = field(default=BlockFormat(4, 32, False))

    def equal_sizes(self) -> list[tuple[Dim, Dim]]:
        a, b = self.types[0], self.types[1]
        assert a is not None and b is not None and a.shape is not None and b.shape is not None
        return [(a.shape[-1], b.shape[0])]

    def result(self, acc: Tensor) -> Tensor:
        bias = self.types[2]
        if bias is None:
            return acc
        return acc + k.cast(k.input(self.node.inputs[_BIAS], bias.dtype, bias.shape or ()), acc.dtype)  # type: ignore[arg-type]

    def schedules(self, target: Target, config: Mapping[str, str]) -> None:
        return None

    def _tiled(self, target: Target, workspace: Workspace) -> bool:
        return False  # B stays in blocks

    def _right(
        self, workspace: Workspace, single: bool, tile: Tile, target: Target
    ) -> tuple[str, str, BlockFormat | None, DType | None]:
        b, form = self.types[1], self.form
        assert b is not None and b.shape is not None
        depth, columns = (int(d) for d in b.shape)  # type: ignore[arg-type]
        key = f"blocks{tile.width}_{form.bits}_{form.size}"
        packed = workspace.add(self.reads[_B], key, lambda: self._packed(workspace, depth, columns, tile))
        return packed, "blocks", form, None

    def _packed(self, workspace: Workspace, depth: int, columns: int, tile: Tile) -> np.ndarray:
        form = self.form
        blocks = -(-depth // form.size)
        data, scales = workspace.array(self.reads[_B]), workspace.array(self.reads[_SCALES])
        assert data is not None and scales is not None
        words = np.ascontiguousarray(data).view("<u4").reshape(columns, blocks, form.size // form.each)
        zeros = None
        if form.zeros:
            given = workspace.array(self.reads[_ZEROS])
            assert given is not None
            zeros = zero_points(given, columns, blocks, form.bits)
        return pack_blocks(words, scales.reshape(columns, blocks).astype(np.float32), zeros, depth, form, tile)


def zero_points(given: np.ndarray, columns: int, blocks: int, bits: int) -> np.ndarray:
    """[N, blocks] numbers, from bytes in which a row begins at a byte, or from floats."""
    if given.dtype != np.uint8:
        return given.reshape(columns, blocks).astype(np.float32)
    rows = given.reshape(columns, -1)
    if bits == 4:
        rows = np.stack([rows & 15, rows >> 4], 2).reshape(columns, -1)
    return rows[:, :blocks].astype(np.float32)
