"""MatMulNBits and MatMulBnb4: products by weights of 4 or 8 bits that stay packed in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, numbers_of
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.qoperator import BNB4_NUMBERS
from intarsia.ops.framework.infer import Inference
from intarsia.plan.step import CLAIMS, SCRATCH, Argument, Arguments, Below, Code, Ref, Sizes, Step, form_of
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.epilogue_code import itemsize
from intarsia.providers.cpu.kernels.common.microkernel import Tile, met_of, micro_text, product_tile, tile_of, tiled_micro_text
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv, Schedule, first_of
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace, forms_of, tensor_types
from intarsia.providers.cpu.kernels.matmul import packed_a_kernel as tiled
from intarsia.providers.cpu.kernels.matmul.bfloat16_rows import pays_in_rows
from intarsia.providers.cpu.kernels.matmul.gemm import ConstantRows, Gemm
from intarsia.providers.cpu.kernels.matmul.gemm_kernel import ARGUMENTS, GemmSpec
from intarsia.providers.cpu.kernels.matmul.matmul import MatMul
from intarsia.providers.cpu.kernels.matmul.matmul_steps import SERIAL_PRODUCTS, fused_operand, shares
from intarsia.providers.cpu.kernels.matmul.pack_a import pack_tiles_args, pack_tiles_text
from intarsia.providers.cpu.kernels.matmul_nbits import block_quant_int8, block_quant_packed_a, matmul_nbits_bfloat16
from intarsia.providers.cpu.kernels.matmul_nbits.block_quant_kernel import BlockFormat, are_finite, pack_blocks

_B, _SCALES, _ZEROS, _GROUPS, _BIAS = 1, 2, 3, 4, 5
_PAIRS_OF_A = 3  # the accuracy_level that lets A be rounded to bfloat16
_BYTES_OF_A = 4  # the accuracy_level that lets A be rounded to bytes, in blocks of its own
_SERIAL_ELEMENTS = 16384  # of A: fewer are quantised by one thread
_IN_FLOATS: tuple[Schedule[MatMul], ...] = (ConstantRows("constant-rows"), Gemm("gemm"))
_IN_TIME = 4  # multiply-adds of bytes in the time of one of float32


def matmul_n_bits(node: Node, inference: Inference) -> Template | None:
    """Float32 rows by constant weights of 4 or 8 bits with constant scales and zero points."""
    types = tensor_types(node, inference)
    inputs = [*node.inputs, *[""] * (6 - len(node.inputs))]
    attributes = node.attributes
    a, out = types[0], inference.types.get(node.outputs[0])
    bits, size, columns = (int(attributes.get(name, 0)) for name in ("bits", "block_size", "N"))
    if a is None or a.shape is None or a.dtype is not DType.FLOAT or not a.shape or not isinstance(out, TensorType):
        return None
    if (bits or 4) not in (4, 8) or inputs[_GROUPS] or attributes.get("weight_prepacked", 0) or size % 8:
        return None
    if any(n and n not in inference.graph.constants for n in (inputs[_B], inputs[_SCALES], inputs[_ZEROS])):
        return None
    if not are_finite(inference.graph.constants[inputs[_SCALES]]):
        return None
    depth = int(attributes["K"])
    weights = TensorType(DType.FLOAT, (depth, columns))
    a = _as_rows(a)
    bias = types[_BIAS] if len(types) > _BIAS else None
    form = BlockFormat(bits or 4, size, bool(inputs[_ZEROS]))
    reads = tuple(inputs[: 4 if inputs[_ZEROS] else 3])
    return BlockMatMul(node, reads, (a, weights, bias), out, form=form)


def _as_rows(a: TensorType) -> TensorType:
    """A vector as a matrix of one row; products write that row where the result has one axis, too."""
    return a if a.shape is None or len(a.shape) > 1 else TensorType(a.dtype, (1, *a.shape))


@dataclass(frozen=True)
class BlockMatMul(MatMul):
    """[..., M, K] by [K, N] in blocks. `types` are those of A, of what B stands for, and of the bias."""

    alone: ClassVar[str] = ""
    form: BlockFormat = field(default=BlockFormat(4, 32, False))

    def equal_sizes(self) -> list[tuple[Dim, Dim]]:
        a, b = self.types[0], self.types[1]
        assert a is not None and b is not None and a.shape is not None and b.shape is not None
        return [(a.shape[-1], b.shape[0])]

    def result(self, acc: Tensor) -> Tensor:
        bias = self.types[2]
        if bias is None:
            return acc
        return acc + k.cast(k.input(self.node.inputs[_BIAS], bias.dtype, bias.shape or ()), acc.dtype)

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        level = int(self.node.attributes.get("accuracy_level", 0))
        if level == _BYTES_OF_A and block_quant_int8.takes(self.form, target):
            return self._by_bytes(target, workspace, epilogue, operands, out)
        found, (depth, columns) = self.batches(), self._sizes
        assert found is not None
        if self._by_pairs(target, workspace):
            return self._pair_steps(target, workspace, epilogue, operands, out)
        # Where rows may be few or many, both kinds of steps read the same panels.
        tile = product_tile(columns, DType.FLOAT, target) if isinstance(found.rows, int) else tile_of(DType.FLOAT, target)
        tiles = block_quant_packed_a.fits(self.form, depth, tile, target) and tiled.tiles_pay(
            columns, depth, GemmSpec(), target
        )
        if not tiles or isinstance(found.rows, int) and not block_quant_packed_a.takes(found.rows, tile, target):
            return self._in_floats(target, workspace, epilogue, operands, out)
        many = self._by_tiles(target, workspace, epilogue, operands, out, tile)
        if isinstance(found.rows, int):
            return many
        few = self._in_floats(target, workspace, epilogue, operands, out)
        return [*(replace(step, arguments=_FewRows(step.arguments, found.rows, tile, target).given) for step in few), *many]

    def _by_pairs(self, target: Target, workspace: Workspace) -> bool:
        """Whether rows may be rounded to bfloat16, and such products are faster where they are many."""
        options, found, (depth, columns) = workspace.options, self.batches(), self._sizes
        assert found is not None
        if int(self.node.attributes.get("accuracy_level", 0)) == _PAIRS_OF_A:
            options = replace(options, arithmetic="bfloat16")
        few = isinstance(found.rows, int) and found.rows < matmul_nbits_bfloat16.LEAST_ROWS
        return not few and pays_in_rows(options, target, found.rows, columns, depth)

    def _pair_steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        """Few rows in float32, many by pairs."""
        found, (depth, columns) = self.batches(), self._sizes
        assert found is not None
        tile = product_tile(columns, DType.FLOAT, target)
        right, *_ = self.right(workspace, True, tile, target)
        many = matmul_nbits_bfloat16.block_pair_steps(
            target, workspace, epilogue, operands, out, source=self.reads[0], right=right, form=self.form, tile=tile,
            m=found.rows, k=depth, n=columns,
        )  # fmt: skip
        if isinstance(found.rows, int):
            return many
        few = self._in_floats(target, workspace, epilogue, operands, out)
        return [
            *(replace(step, arguments=matmul_nbits_bfloat16.OfRows(step.arguments, found.rows, False)) for step in few),
            *many,
        ]

    def _by_tiles(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        tile: Tile,
    ) -> list[Step]:  # fmt: skip
        """A packed by tiles unless it lies, then a step for each part of K. Nothing where there are few rows."""
        found, (k, n), source = self.batches(), self._sizes, self.reads[0]
        assert found is not None
        m, spec = found.rows, GemmSpec(DType.FLOAT, "packed", epilogue, tile=tile)
        right, *_ = self.right(workspace, True, tile, target)
        zero = workspace.add("", "taps", lambda: np.zeros(1, np.int64))
        lies = block_quant_packed_a.lie(target)
        packed = source if lies else workspace.temporary(f"{source}%tiles{tile.rows}", DType.FLOAT, (m, k))
        parts, sums = block_quant_packed_a.parts(k, tile, target), ""
        if len(parts) > 1:
            sums = workspace.temporary(f"{out}%sums", DType.FLOAT, (tiled.partial_elements(m, n, tile),))
        rows_micro = micro_text(DType.FLOAT, target, tile, met=met_of(tile, m, n))
        micro = rows_micro if lies else tiled_micro_text(DType.FLOAT, target, tile)
        made = _TiledBlocks(
            spec, self.form, target, micro.symbol, source, packed, right, out, zero, sums, m, k, n, tuple(operands)
        )
        steps = [] if lies else [
            Step(
                pack_tiles_text(DType.FLOAT, tile, target), (source,), (packed,), made.packing, serial=Below(m, 4 * tile.rows),
                label=f"pack {m}x{k}", shared=True,
            )
        ]  # fmt: skip
        between = (sums,) if sums else ()
        steps += [
            Step(
                block_quant_packed_a.block_tiled_text(spec, self.form, target),
                (packed, right, zero, *(o.name for o in operands), *between), (out, *between), partial(made.arguments, part),
                scratch_nbytes=made.scratch_nbytes, label=f"gemm {m}x{n}x{part[1]}" + (f" of {k}" if sums else ""),
                serial=Below(m * n * k, SERIAL_PRODUCTS) if lies else Below(m, 4 * tile.rows), calls=(micro,),
                work=partial(shares, m * n * part[1]), ahead=True,
            )
            for part in parts
        ]  # fmt: skip
        return steps

    def _by_bytes(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        """A step that makes bytes of A's rows, and one that multiplies them."""
        form, found, (depth, columns) = self.form, self.batches(), self._sizes
        assert found is not None
        rows, source = found.rows, self.reads[0]
        tile, blocks = block_quant_int8.block_tile(target), -(-depth // form.size)
        spec = GemmSpec(DType.FLOAT, epilogue=epilogue, tile=tile)
        dtype = block_quant_int8.row_dtype(form, target)
        key = f"bytes{tile.width}_{form.bits}_{form.size}_{dtype.bits}"
        right = workspace.add(self.reads[_B], key, lambda: self._packed(workspace, tile, target))
        middle = "" if form.zeros else str(form.bits)
        numbers = workspace.temporary(f"{source}%bytes{form.size}_{dtype.bits}", dtype, (rows, blocks * form.size))
        scales = workspace.temporary(f"{source}%scales{form.size}_{middle}", DType.FLOAT, (rows, 2 * blocks))
        micro = block_quant_int8.block_micro_text(form, target)
        made = _ByteBlocks(
            spec, form, target, micro.symbol, source, numbers, scales, right, out, rows, depth, columns, tuple(operands)
        )
        products = rows * columns * depth
        return [
            Step(
                block_quant_int8.quantize_rows_text(form, target), (source,), (numbers, scales), made.quantizing,
                serial=Below(rows * depth, _SERIAL_ELEMENTS), label=f"quantize {rows}x{depth}", shared=True, arithmetic="int8",
            ),
            Step(
                block_quant_int8.block_text(spec, target), (numbers, scales, right, *(o.name for o in operands)), (out,),
                made.arguments, serial=Below(products, SERIAL_PRODUCTS * _IN_TIME),
                label=f"gemm {rows}x{columns}x{depth}", calls=(micro,), work=partial(_shares, products), arithmetic="int8",
                ahead=True,
            ),
        ]  # fmt: skip

    @property
    def _sizes(self) -> tuple[int, int]:
        """K and N."""
        b = self.types[1]
        assert b is not None and b.shape is not None
        depth, columns = numbers_of(b.shape)
        return depth, columns

    def schedule_table(self) -> tuple[()]:
        return ()

    def candidates(self, env: LoweringEnv) -> None:
        return None

    def _in_floats(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        """Products of float32 by the numbers that B's blocks stand for."""
        request = KernelRequest(target, workspace, epilogue, tuple(operands), out)
        return first_of(_IN_FLOATS, self, request.env).steps(self, request)

    def right(
        self, workspace: Workspace, single: bool, tile: Tile, target: Target
    ) -> tuple[str, str, BlockFormat | None, DType | None]:
        form = self.form
        key = f"blocks{tile.width}_{form.bits}_{form.size}"
        packed = workspace.add(self.reads[_B], key, lambda: self._packed(workspace, tile))
        return packed, "blocks", form, None

    def _packed(self, workspace: Workspace, tile: Tile, of_bytes: Target | None = None) -> np.ndarray:
        """`of_bytes`: for which machine's products of bytes, if for these."""
        form, (depth, columns) = self.form, self._sizes
        blocks = -(-depth // form.size)
        data, scales = workspace.array(self.reads[_B]), workspace.array(self.reads[_SCALES])
        assert data is not None and scales is not None
        words = np.ascontiguousarray(data).view("<u4").reshape(columns, blocks, form.size // form.each)
        zeros = None
        if form.zeros:
            given = workspace.array(self.reads[_ZEROS])
            assert given is not None
            zeros = zero_points(given, columns, blocks, form.bits)
        factors = scales.reshape(columns, blocks).astype(np.float32)
        if of_bytes is not None:
            return block_quant_int8.pack_byte_blocks(words, factors, zeros, form, of_bytes)
        return pack_blocks(words, factors, zeros, depth, form, tile)


def whole_blocks(attributes: Mapping[str, Any]) -> bool:
    """Whether the blocks of MatMulBnb4's weights lie along K and fill it."""
    depth, size = int(attributes["K"]), int(attributes["block_size"])
    return bool(attributes.get("transB", 1)) and size > 0 and size % 8 == 0 and depth % size == 0


def matmul_bnb4(node: Node, inference: Inference) -> Template | None:
    """Float32 rows by constant codes of 4 bits, in blocks that lie along K."""
    (a, *_), out, attributes = tensor_types(node, inference), inference.types.get(node.outputs[0]), node.attributes
    if a is None or a.shape is None or a.dtype is not DType.FLOAT or not a.shape or not isinstance(out, TensorType):
        return None
    codes, scales = (inference.graph.constants.get(name) for name in node.inputs[1:3])
    if codes is None or scales is None or not whole_blocks(attributes) or not are_finite(scales):
        return None
    weights = TensorType(DType.FLOAT, (int(attributes["K"]), int(attributes["N"])))
    form = BlockFormat(4, int(attributes["block_size"]), False, BNB4_NUMBERS[int(attributes["quant_type"])])
    return CodedMatMul(node, tuple(node.inputs), (_as_rows(a), weights, None), out, form=form)


@dataclass(frozen=True)
class CodedMatMul(BlockMatMul):
    """[..., M, K] by codes [N, K] in blocks, the first of a byte in the higher bits."""

    def _packed(self, workspace: Workspace, tile: Tile, of_bytes: Target | None = None) -> np.ndarray:
        form, (depth, columns) = self.form, self._sizes
        codes, largest = workspace.array(self.reads[_B]), workspace.array(self.reads[_SCALES])
        assert codes is not None and largest is not None
        blocks = depth // form.size
        swapped = np.ascontiguousarray(codes.reshape(-1) >> 4 | codes.reshape(-1) << 4)
        words = swapped.view("<u4").reshape(columns, blocks, form.size // form.each)
        return pack_blocks(words, largest.reshape(columns, blocks), None, depth, form, tile)


@dataclass(frozen=True)
class _FewRows:
    """The arguments of `MatMul`'s step where other steps do the work of many rows: it then has no tiles."""

    arguments: Arguments
    rows: Dim
    tile: Tile
    target: Target

    @property
    def form(self) -> object:
        """All but the buffers' names (`plan.step.form_of`)."""
        return (form_of(self.arguments), self.rows, self.tile)

    def given(self, size: Sizes, threads: int) -> Sequence[Argument]:
        found = list(self.arguments(size, threads))
        if block_quant_packed_a.takes(size(self.rows), self.tile, self.target):
            found[ARGUMENTS["tiles"]] = 0
        return found


@dataclass(frozen=True)
class _TiledBlocks:
    """The arguments of the steps of one product of many rows, once its sizes are known."""

    spec: GemmSpec
    blocks: BlockFormat
    target: Target
    micro: str
    source: str
    packed: str
    b: str
    c: str
    taps: str
    partial: str
    m: Dim
    k: int
    n: int
    operands: tuple[FusedOperand, ...]

    @property
    def form(self) -> object:
        """All but the buffers' names (`plan.step.form_of`)."""
        operands = forms_of(self.operands)
        return (self.spec, self.blocks, self.micro, bool(self.partial), self.m, self.k, self.n, operands)

    def _rows(self, size: Sizes) -> int:
        assert self.spec.tile is not None
        m = size(self.m)
        return m if block_quant_packed_a.takes(m, self.spec.tile, self.target) else 0

    def packing(self, size: Sizes, threads: int) -> Sequence[Argument]:
        tile = self.spec.tile
        assert tile is not None
        return pack_tiles_args(Ref(self.source), 4 * self.k, Ref(self.packed), self._rows(size), self.k, tile)

    def arguments(self, part: tuple[int, int], size: Sizes, threads: int) -> Sequence[Argument]:
        out_item = itemsize(self.spec.epilogue.dtype) if self.spec.epilogue else 4
        return block_quant_packed_a.block_tiled_args(
            self.spec, self.blocks, self.target, micro=Code(self.micro), a=Ref(self.packed), b=Ref(self.b), c=Ref(self.c),
            m=self._rows(size), n=self.n, k=self.k, taps=Ref(self.taps), scratch=Ref(SCRATCH), part=part,
            partial=Ref(self.partial) if self.partial else 0, claims=Ref(CLAIMS), threads=threads,
            operands=[fused_operand(o, self.n, itemsize(o.dtype), out_item, (0, 0)) for o in self.operands],
        )  # fmt: skip

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * block_quant_packed_a.scratch_nbytes(self.spec, self.blocks, self.target, self._rows(size), self.k)


def _shares(products: Dim, size: Sizes) -> float:
    return shares(products, size) / _IN_TIME


@dataclass(frozen=True)
class _ByteBlocks:
    """The arguments of the steps of one product of bytes, once its sizes are known."""

    spec: GemmSpec
    blocks: BlockFormat
    target: Target
    micro: str
    source: str
    numbers: str
    scales: str
    b: str
    c: str
    m: Dim
    k: int
    n: int
    operands: tuple[FusedOperand, ...]

    @property
    def form(self) -> object:
        """All but the buffers' names (`plan.step.form_of`)."""
        operands = forms_of(self.operands)
        return (self.spec, self.blocks, self.micro, self.m, self.k, self.n, operands)

    def quantizing(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return [Ref(self.source), Ref(self.numbers), Ref(self.scales), size(self.m), self.k]

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        out_item = itemsize(self.spec.epilogue.dtype) if self.spec.epilogue else 4
        return block_quant_int8.block_args(
            self.blocks, self.target, micro=Code(self.micro), a=Ref(self.numbers), scales=Ref(self.scales),
            b=Ref(self.b), c=Ref(self.c), ldc=self.n * out_item, m=size(self.m), n=self.n, k=self.k,
            claims=Ref(CLAIMS), threads=threads,
            operands=[fused_operand(o, self.n, itemsize(o.dtype), out_item, (0, 0)) for o in self.operands],
        )  # fmt: skip


def zero_points(given: np.ndarray, columns: int, blocks: int, bits: int) -> np.ndarray:
    """[N, blocks] numbers, from bytes in which a row begins at a byte, or from floats."""
    if given.dtype != np.uint8:
        return given.reshape(columns, blocks).astype(np.float32)
    rows = given.reshape(columns, -1)
    if bits == 4:
        rows = np.stack([rows & 15, rows >> 4], 2).reshape(columns, -1)
    return rows[:, :blocks].astype(np.float32)
