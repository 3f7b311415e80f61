"""Mixtures of experts by kernels: the order of rows, and the products of each expert's rows with its packed matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, numbers_of, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.moe import FLOAT4
from intarsia.ops.framework.infer import Inference
from intarsia.plan.step import SCRATCH, Argument, Below, Code, Ref, Sizes, Step
from intarsia.primitives import lang as k
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.microkernel import Tile, micro_text, tile_of
from intarsia.providers.cpu.kernels.common.pack_b import aligned_zeros, pack_matrix
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace, tensor_types
from intarsia.providers.cpu.kernels.matmul import gemm_kernel
from intarsia.providers.cpu.kernels.matmul_nbits.block_quant_kernel import BlockFormat, are_finite, pack_blocks
from intarsia.providers.cpu.kernels.moe import expert_kernels as template
from intarsia.providers.cpu.kernels.moe.storage import block_size, stored_bits

_SERIAL_PRODUCTS = 100_000  # as for other products
_ROWS, _STARTS, _WEIGHTS, _BIAS, _SCALES, _ZEROS, _WHOLE = range(7)


def expert_order(node: Node, inference: Inference) -> Template | None:
    """ExpertOrder of which all outputs are wanted."""
    types = tensor_types(node, inference)
    out = inference.types.get(node.outputs[0])
    if types[0] is None or types[0].shape is None or not isinstance(out, TensorType) or not all(node.outputs):
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
        kernel = template.order_text(target)
        return [Step(kernel, self.reads, self.outputs, self._arguments, serial=_always, label="sort rows by expert")]

    def _arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        chosen = self.types[0]
        assert chosen is not None and chosen.shape is not None
        tokens, count = (size(d) for d in chosen.shape)
        return [*(Ref(n) for n in (*self.reads, *self.outputs)), tokens, count, int(self.node.attributes["experts"])]


def _always(size: Sizes) -> bool:
    return True


def expert_products(node: Node, inference: Inference) -> Template | None:
    """ExpertProducts by constant matrices."""
    types = tensor_types(node, inference)
    rows, out = types[0], inference.types.get(node.outputs[0])
    if rows is None or rows.shape is None or not isinstance(rows.shape[1], int) or not isinstance(out, TensorType):
        return None
    if any(n and n not in inference.graph.constants for n in node.inputs[_WEIGHTS:]):
        return None
    factors = [inference.graph.constants[n] for i, n in enumerate(node.inputs) if n and i in (_SCALES, _WHOLE)]
    if not all(map(are_finite, factors)):
        return None
    return ExpertProducts(node, (*node.inputs[:2],), types, out, takes_epilogue=False, names=tuple(node.inputs))


@dataclass(frozen=True)
class ExpertProducts(Template):
    names: tuple[str, ...] = field(kw_only=True)  # of all inputs, constants included

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        rows = self.types[_ROWS]
        assert rows is not None and rows.shape is not None
        tile = tile_of(DType.FLOAT, target)
        blocks = self._format()
        weights = self._weights(workspace, blocks, tile)
        zero = workspace.add("", "taps", lambda: np.zeros(1, np.int64))
        bias = self._name(_BIAS) and workspace.add(self._name(_BIAS), "experts' bias", lambda: self._bias(workspace))
        spec = gemm_kernel.GemmSpec(DType.FLOAT, "packed" if blocks is None else "blocks", _BIASED if bias else None, blocks)
        micro, kernel = micro_text(DType.FLOAT, target), gemm_kernel.kernel_text(spec, target)
        call = _Call(
            spec, target, micro.symbol, kernel.symbol, self.reads[_ROWS], self.reads[_STARTS], weights, bias, zero, out,
            self._experts(), rows.shape[1], self._columns(),
        )  # fmt: skip
        work = product((*rows.shape, self._columns()))
        reads = (*self.reads, weights, zero, *([bias] if bias else []))
        return [
            Step(
                template.products_text(spec, target), reads, (out,), call.arguments, scratch_nbytes=call.scratch_nbytes,
                serial=Below(work, _SERIAL_PRODUCTS), label="products of experts", calls=(micro, kernel), chosen=(weights,),
            )
        ]  # fmt: skip

    def _name(self, index: int) -> str:
        return self.names[index] if index < len(self.names) else ""

    def _shape(self, index: int) -> tuple[int, ...]:
        kind = self.types[index]
        assert kind is not None and kind.shape is not None
        return numbers_of(kind.shape)

    def _experts(self) -> int:
        return self._shape(_WEIGHTS)[0]

    def _columns(self) -> int:
        return self._shape(_WEIGHTS)[1]

    @property
    def _bits(self) -> int:
        return int(self.node.attributes.get("bits", 0))

    @property
    def _block(self) -> int:
        return int(self.node.attributes.get("block", 0))

    def _format(self) -> BlockFormat | None:
        if not self._bits:
            return None
        if self._block:
            return BlockFormat(8, self._block, False)
        depth, scales = self._shape(_WEIGHTS)[2] * 8 // self._bits, self._shape(_SCALES)
        size = block_size(depth, scales[2] if len(scales) == 3 else 1, self._bits)
        assert size is not None
        return BlockFormat(stored_bits(self._bits), size, bool(self._name(_ZEROS)) or self._bits == 2)

    def _bias(self, workspace: Workspace) -> np.ndarray:
        given = workspace.array(self._name(_BIAS))
        assert given is not None
        return np.ascontiguousarray(given, np.float32)

    def _weights(self, workspace: Workspace, form: BlockFormat | None, tile: Tile) -> str:
        name = self._name(_WEIGHTS)
        if form is None:
            return workspace.add(name, f"experts{tile.width}", lambda: self._panels(workspace, tile))
        key = f"experts{tile.width}_{self._bits}_{form.size}"
        return workspace.add(name, key, lambda: self._blocks(workspace, form, tile))

    def _panels(self, workspace: Workspace, tile: Tile) -> np.ndarray:
        given = workspace.array(self._name(_WEIGHTS))
        assert given is not None
        return pack_matrix(given.astype(np.float32, copy=False).transpose(0, 2, 1), tile)

    def _blocks(self, workspace: Workspace, form: BlockFormat, tile: Tile) -> np.ndarray:
        values, scales = (workspace.array(self._name(i)) for i in (_WEIGHTS, _SCALES))
        whole = workspace.array(self._name(_WHOLE)) if self._block else None
        zeros = workspace.array(self._name(_ZEROS)) if self._name(_ZEROS) else None
        assert values is not None and scales is not None
        packed = []
        for e in range(len(values)):
            scale = scales[e].astype(np.float32).reshape(len(values[e]), -1)
            depth = values.shape[2] * 8 // self._bits
            if whole is not None:
                scale *= np.float32(whole[e]) / 2
                words = _doubled_words(values[e], form, scale.shape[1])
            else:
                words = _words(values[e], self._bits, form, scale.shape[1])
            zero = _zeros(zeros[e] if zeros is not None else None, self._bits, scale.shape) if form.zeros else None
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


def _biased() -> Epilogue:
    acc, bias = (k.input(i, DType.FLOAT, (1, 1)) for i in range(2))
    return Epilogue(acc + bias, ("column",), (DType.FLOAT,))


_BIASED = _biased()


@dataclass(frozen=True)
class _Call:
    """The arguments of the step of products, once its sizes are known."""

    spec: gemm_kernel.GemmSpec
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

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        n, depth = self.columns, size(self.depth)
        tile = tile_of(self.spec.dtype, self.target)
        blocks = self.spec.blocks
        padded = -(-n // tile.lanes) * tile.lanes * tile.itemsize
        operands = [gemm_kernel.Operand(Ref(self.bias))] if self.bias else []
        args = gemm_kernel.matrix_args(
            self.spec, self.target, micro=Code(self.micro), a=Ref(self.rows), b=Ref(self.weights), c=Ref(self.out),
            m=1, n=n, k=depth, operands=operands, scratch=Ref(SCRATCH), taps=Ref(self.taps),
        )  # fmt: skip
        weights_nbytes = (depth if blocks is None else blocks.rows(depth)) * padded
        return [Code(self.kernel), Ref(self.starts), self.experts, weights_nbytes, n * 4, *args]

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * gemm_kernel.scratch_nbytes(self.spec, self.target, size(self.depth))
