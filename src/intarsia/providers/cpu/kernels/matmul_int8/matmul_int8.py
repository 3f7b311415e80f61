"""Products of 8-bit matrices, with zero points, as calls of the packed GEMM kernel on bytes.

The kernel sums a'b' where a' is unsigned and b' signed: a' = a or a + 128, b' = b, b - 128 or, where the weights are
constant and it fits, b - zb. With the zero points za', zb' shifted likewise,

    sum (a - za)(b - zb) = sum a'b' - za' (sum b' - K zb') - zb' sum a'

whose last two terms become part of the epilogue: sums of B's columns are packed with B, sums of A's rows are a product
by ones where zb' is not 0. All of it is exact modulo 2^32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, product
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import SCRATCH, Argument, Below, Code, Ref, Sizes, Step
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.epilogue_code import itemsize
from intarsia.providers.cpu.kernels.common.microkernel import Tile
from intarsia.providers.cpu.kernels.common.precision import byte_unit
from intarsia.providers.cpu.kernels.common.schedule import LoweringEnv
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Workspace
from intarsia.providers.cpu.kernels.conv.implicit_gemm import ConvShape
from intarsia.providers.cpu.kernels.matmul import gemm_kernel as template
from intarsia.providers.cpu.kernels.matmul.matmul import MatMul
from intarsia.providers.cpu.kernels.matmul.matmul_arguments import Batches
from intarsia.providers.cpu.kernels.matmul.matmul_steps import fused_operand
from intarsia.providers.cpu.kernels.matmul.vnni import Left, pays, word_steps
from intarsia.providers.cpu.kernels.matmul_int8 import saturation_free_order, widened_int16
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import SUMS, byte_micro_text, byte_tile, last_group
from intarsia.providers.cpu.kernels.matmul_int8.pack_int8 import (
    BytePackSpec,
    byte_pack_args,
    byte_pack_text,
    byte_packed_nbytes,
    pack_byte_pairs,
    pack_bytes,
)
from intarsia.providers.cpu.kernels.matmul_int8.zero_point_correction import Correction

_FEW_ROWS = 4
_SERIAL_PRODUCTS = 400_000  # below this a second thread costs more than it saves
_DEPTH = "%depth"  # stands for an operand that holds K
LIFT = 128  # between int8 and uint8


@dataclass(frozen=True)
class Zero:
    """A zero point: a number, or the template's operand `read`, indexed like an epilogue operand of `kind`."""

    value: int = 0
    read: int = -1
    kind: str = "scalar"
    dtype: DType = DType.INT8

    @property
    def known(self) -> bool:
        return self.read < 0


@dataclass(frozen=True)
class Weights:
    """Constant weights as they are packed.

    Attributes:
        packed: name of the panels; "": tiles of AMX pack them otherwise.
        sums: sum b' - K zb' of every column.
        zero: what is left of the zero point, one per column; None if nothing is.
        values: b' itself, int8 [K, N]; `key` tells it from others made of the same constant.
    """

    packed: str
    sums: np.ndarray
    zero: np.ndarray | None
    values: np.ndarray
    key: str


def centred(weights: np.ndarray, zero: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """8-bit `weights` as int8, and what is left of `zero` (int, broadcast against them): None if it could be subtracted."""
    moved = weights.astype(np.int16) - zero.astype(np.int16)
    if not moved.size or (moved.min() >= -LIFT and moved.max() < LIFT):
        return moved.astype(np.int8), None
    lift = LIFT if weights.dtype == np.uint8 else 0
    return (weights.astype(np.int16) - lift).astype(np.int8), zero.astype(np.int32) - lift


@dataclass(frozen=True)
class Ordered:
    """Weights that `saturation_free_order` packed: their name, and the bytes of a panel."""

    packed: str
    panel_nbytes: int


def ordered_weights(workspace: Workspace, weights: str, key: str, matrix: np.ndarray, tile: Tile) -> Ordered | None:
    """int8 [taps, K, N], made of the constant `weights`, in an order in which bytes can be multiplied as they are, where that
    is faster than by words."""
    if not saturation_free_order.pays(matrix, tile):
        return None
    panels = saturation_free_order.pack_ordered(matrix, tile)
    return Ordered(workspace.add(weights, f"ordered{tile.width}_{key}", lambda: panels), panels.shape[1])


def keep_sums(workspace: Workspace, name: str, key: str, make: Callable[[], np.ndarray]) -> str:
    return workspace.add(name, key, lambda: np.ascontiguousarray(make().astype(np.int64).astype(np.int32)))


@dataclass(frozen=True)
class ByteMatMul(MatMul):
    """[..., M, K] x [..., K, N] of uint8 or int8, less their zero points, summed in int32.

    `reads` are A, B and those zero points that are known at run time only.
    """

    alone: ClassVar[str] = ""
    a_zero: Zero = field(default=Zero())
    b_zero: Zero = field(default=Zero())
    integers: bool = True

    def schedule_table(self) -> tuple[()]:
        return ()

    def candidates(self, env: LoweringEnv) -> None:
        return None

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        return _Builder(self, target, workspace, epilogue, operands, out).steps()


class _Builder:
    """The steps of one product."""

    def __init__(
        self, made: ByteMatMul, target: Target, workspace: Workspace, epilogue: Epilogue | None,
        operands: Sequence[FusedOperand], out: str,
    ) -> None:  # fmt: skip
        a, b = made.types[0], made.types[1]
        found = made.batches()
        assert a is not None and b is not None and a.shape is not None and b.shape is not None and found is not None
        self.made, self.target, self.workspace, self.out = made, target, workspace, out
        self.a_dtype, self.b_dtype, self.found = a.dtype, b.dtype, found
        self.m, self.depth, self.n = found.rows, a.shape[-1], b.shape[-1]
        self.tile: Tile = byte_tile(target)
        self.correction = Correction(epilogue, operands)
        self.before: list[Step] = []
        self.unit = ""  # what multiplies bytes, where it is no vector instruction
        self.in_words = False
        self.ordered: Ordered | None = None

    def steps(self) -> list[Step]:
        weights = self._weights()
        right = weights.packed if weights is not None else self._pack()
        self._correct(weights)
        epilogue, operands = self.correction.finish()
        if self.unit:
            assert weights is not None and isinstance(self.depth, int)
            left = Left(self.made.reads[0], self.a_dtype, self.m, self.depth)
            return word_steps(
                self.target, self.workspace, epilogue, operands, self.out, unit=self.unit, left=left,
                weights=self.made.reads[1], right=weights.values[None], key=weights.key,
            )  # fmt: skip
        made = self._product(right, epilogue, operands, self.n, self.out)
        return [*self.before, made]

    # --- the second operand ---

    def _weights(self) -> Weights | None:
        """B packed at compile time, where it is constant and so is its zero point."""
        made, workspace = self.made, self.workspace
        array = workspace.array(made.reads[1]) if self.found.sizes == (1, 1) else None
        if array is None:
            return None
        zero = self._known_zero(made.b_zero)
        if zero is None:
            return None
        matrix = array.reshape(-1, 1) if array.ndim == 1 else array.reshape(array.shape[-2:])
        values, left = centred(matrix, zero)
        sums = values.sum(0, dtype=np.int64)
        if left is not None:
            left = np.broadcast_to(left, sums.shape)
            sums = sums - len(matrix) * left.astype(np.int64)
        key = digest(zero)
        # Tiles take signed bytes as they are; what is left of a zero point would need sums of rows that are lifted.
        if left is None and made.a_zero.kind != "row" and pays(self.m, *values.shape[::-1]):
            self.unit = byte_unit(workspace.options, self.target)
        packed = ""
        if widened_int16.takes(self.target) and not self.unit:
            self.ordered = ordered_weights(workspace, made.reads[1], key, values[None], self.tile)
        if self.ordered is not None:
            return Weights(self.ordered.packed, sums, left, values, key)
        self.in_words = self._takes_words(left) and not self.unit
        if self.in_words:
            self.tile = widened_int16.word_tile(self.target)
            packed = workspace.add(
                made.reads[1], f"pairs{self.tile.width}_{key}", lambda: pack_byte_pairs(values[None], self.tile)
            )
        elif not self.unit:
            packed = workspace.add(made.reads[1], f"bytes{self.tile.width}_{key}", lambda: pack_bytes(values[None], self.tile))
        return Weights(packed, sums, left, values, key)

    def _takes_words(self, left: np.ndarray | None) -> bool:
        """Whether rows are widened to 16 bits: not few, which wait for weights, nor such as have zero points of their own."""
        zero, many = self.made.a_zero, not (isinstance(self.m, int) and self.m <= _FEW_ROWS)
        plain = zero.known or (zero.kind == "scalar" and zero.dtype is self.a_dtype)
        return many and left is None and plain and widened_int16.takes(self.target)

    def _known_zero(self, zero: Zero) -> np.ndarray | None:
        if zero.known:
            return np.array(zero.value, np.int32)
        found = self.workspace.array(self.made.reads[zero.read])
        return None if found is None else found.reshape(-1).astype(np.int32)

    def _pack(self) -> str:
        """B packed by a step of its own, which also sums its columns."""
        made, found, tile = self.made, self.found, self.tile
        matrices: list[Dim] = [d for d, s in zip(found.sizes, found.b, strict=True) if s != 0]
        count = product(matrices)
        source, packed = made.reads[1], f"{self.out}%packed"
        depth, n = self.depth, self.n
        padded = (depth + 3) * (n + tile.lanes - 1)  # at least what the panels take, and a polynomial
        self.workspace.temporary(packed, DType.INT8, (count, padded))
        self.workspace.temporary(f"{self.out}%sums", SUMS, (count, n))

        text = byte_pack_text(BytePackSpec(self.b_dtype), self.target)
        arguments = partial(_pack, (source, packed, f"{self.out}%sums"), depth, n, count)
        serial = Below(depth * n * count, _SERIAL_PRODUCTS // 8)
        step = Step(text, (source,), (packed, f"{self.out}%sums"), arguments, serial=serial, label="pack bytes")
        self.before.append(step)
        return packed

    # --- zero points ---

    def _correct(self, weights: Weights | None) -> None:
        correction, made = self.correction, self.made
        if self.in_words:  # the zero point is subtracted where rows are widened
            return
        lift = LIFT if self.a_dtype is DType.INT8 and not self.unit else 0
        known = self._known_zero(made.a_zero)
        a_zero: Tensor | int
        if (
            known is not None
            and known.size == 1
            and (weights is not None or made.a_zero.known or int(known.reshape(-1)[0]) == -lift)
        ):
            a_zero = int(known.reshape(-1)[0]) + lift
        else:
            a_zero = correction.operand(made.reads[made.a_zero.read], made.a_zero.kind, made.a_zero.dtype) + lift
        if weights is None:
            self._correct_run_time(a_zero)
            return
        if isinstance(a_zero, Tensor):
            if weights.sums.any():
                correction.subtract(a_zero * self._column("colsums", weights.sums))
        elif a_zero and weights.sums.any():
            correction.subtract(self._column(f"colsums{a_zero}", weights.sums * a_zero))
        if weights.zero is not None and weights.zero.any():
            correction.subtract(self._column("zeros", weights.zero) * self._row_sums())

    def _column(self, key: str, values: np.ndarray) -> Tensor:
        label = f"{key}_{digest(values)}"
        name = keep_sums(self.workspace, f"{self.made.reads[1]}%columns", label, lambda: values)
        return self.correction.operand(name, "column", SUMS)

    def _correct_run_time(self, a_zero: Tensor | int) -> None:
        correction, made = self.correction, self.made
        lift = LIFT if self.b_dtype is DType.UINT8 else 0
        known = self._known_zero(made.b_zero)
        if known is not None and known.size == 1 and (made.b_zero.known or int(known.reshape(-1)[0]) == lift):
            value = int(known.reshape(-1)[0]) - lift
            b_zero = correction.number(value) if value else None
        else:
            b_zero = correction.operand(made.reads[made.b_zero.read], made.b_zero.kind, made.b_zero.dtype) - lift
        if isinstance(a_zero, Tensor) or a_zero:
            sums = correction.operand(f"{self.out}%sums", "column", SUMS)
            if b_zero is not None:
                sums = sums - b_zero * self._depth()
            correction.subtract(sums * (a_zero if isinstance(a_zero, Tensor) else correction.number(a_zero)))
        if b_zero is not None:
            correction.subtract(b_zero * self._row_sums())

    def _depth(self) -> Tensor:
        """K, which is a number or an operand that is made when the plan is bound."""
        if isinstance(self.depth, int):
            return self.correction.number(self.depth)
        return self.correction.operand(_DEPTH, "scalar", SUMS)

    def _row_sums(self) -> Tensor:
        """The sums of A's rows: a product by ones."""
        name = f"{self.out}%rowsums"
        self.workspace.temporary(name, SUMS, (product(self.found.sizes), self.m))
        self.before.append(self._product(None, None, [], 1, name))
        return self.correction.operand(name, "row", SUMS)

    # --- the product ---

    def _product(
        self, right: str | None, epilogue: Epilogue | None, operands: Sequence[FusedOperand], n: Dim, out: str
    ) -> Step:
        """A times `right`, or times a column of ones."""
        target, a = self.target, self.made.reads[0]
        spec, micro = template.GemmSpec(SUMS, "packed", epilogue), byte_micro_text(self.a_dtype, target)
        ordered = self.ordered if right is not None else None
        if ordered is not None:
            micro = saturation_free_order.ordered_micro_text(self.a_dtype, target, self.tile)
        few: KernelText | None = None
        if self.in_words:
            a, micro, few = self._widen(), *(widened_int16.word_micro_text(target, self.tile, many) for many in (True, False))
            spec = replace(spec, tile=self.tile, stored=DType.INT8)
        call = _ByteProduct(
            spec, target, micro.symbol, a, right, out, self.m, self.depth, n, self.found, tuple(operands), self.tile,
            0 if ordered is None else ordered.panel_nbytes, few.symbol if few else "",
        )  # fmt: skip
        reads = (a, *([right] if right else []), *(o.name for o in operands if o.name != _DEPTH))
        work = self.m * n * self.depth * self.found.sizes[0] * self.found.sizes[1]
        return Step(
            template.kernel_text(spec, target), reads, (out,), call.arguments, serial=Below(work, _SERIAL_PRODUCTS),
            label=f"byte gemm {self.m}x{n}x{self.depth}" if right else "row sums", calls=(micro, few) if few else (micro,),
            scratch_nbytes=call.widened_nbytes if self.in_words else None,
        )  # fmt: skip

    def _widen(self) -> str:
        """A step that writes A less its zero point in 16 bits; what it writes."""
        made, (a, *_) = self.made, self.made.reads
        zero = made.a_zero
        number = made.reads[zero.read] if not zero.known else self.workspace.add(
            "", f"byte{zero.value}", lambda: np.array([zero.value & 255], np.uint8)
        )  # fmt: skip
        words = self.workspace.temporary(f"{a}%words_{number}", DType.INT16, (self.m * self.depth + 1,))
        step = Step(
            widened_int16.widen_text(self.a_dtype, self.target), (a, number), (words,),
            partial(_widen, a, words, number, self.m, self.depth), label="widen bytes", shared=True,
            serial=Below(self.m * self.depth, _SERIAL_PRODUCTS // 8),
        )  # fmt: skip
        self.before.append(step)
        return words


@dataclass(frozen=True)
class _ByteProduct:
    """The arguments of one call of the kernel, once its sizes are known. No `b`: a column of ones."""

    spec: template.GemmSpec
    target: Target
    micro: str
    a: str
    b: str | None
    c: str
    m: Dim
    k: Dim
    n: Dim
    batches: Batches
    operands: tuple[FusedOperand, ...]
    tile: Tile
    panel_nbytes: int = 0
    few: str = ""  # the micro-kernel for few rows, where that is another

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        m, k, n, batches = size(self.m), size(self.k), size(self.n), self.batches
        out_item = itemsize(self.spec.epilogue.dtype if self.spec.epilogue else SUMS)
        of_a, of_b, of_c = m * k, byte_packed_nbytes(k, n, self.tile), m * n * out_item
        c_batch = (size(batches.c[0]) * of_c, size(batches.c[1]) * of_c)
        b_batch = (size(batches.b[0]), size(batches.b[1])) if self.b is not None else (0, 0)
        b = Ref(self.b) if self.b else pack_bytes(np.ones((1, k, 1), np.int8), self.tile)
        micro = Code(self.few if self.few and not template.many_rows(m, self.tile) else self.micro)
        return template.matrix_args(
            self.spec, self.target, micro=micro, a=Ref(self.a), b=b, c=Ref(self.c),
            m=m, n=n, k=k, batch=(size(batches.sizes[0]), size(batches.sizes[1])),
            a_batch=(size(batches.a[0]) * of_a, size(batches.a[1]) * of_a), b_batch=(b_batch[0] * of_b, b_batch[1] * of_b),
            c_batch=c_batch, operands=[_operand(o, n, k, out_item, c_batch, b_batch) for o in self.operands],
            taps=np.array([0, last_group(k)], np.int64), scratch=Ref(SCRATCH) if self.spec.in_words else 0,
            panel_nbytes=self.panel_nbytes,
        )  # fmt: skip

    def widened_nbytes(self, size: Sizes, threads: int) -> int:
        """Of the widened panels of all threads."""
        return threads * template.scratch_nbytes(self.spec, self.target, self.spec.steps(size(self.k)))


def _widen(a: str, words: str, number: str, m: Dim, depth: Dim, size: Sizes, threads: int) -> Sequence[Argument]:
    shape = ConvShape(1, (size(m), 1), size(depth), 1, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0))
    return widened_int16.widen_args(shape, Ref(a), Ref(words), Ref(number))


def _pack(names: tuple[str, str, str], k: Dim, n: Dim, count: Dim, size: Sizes, threads: int) -> Sequence[Argument]:
    source, packed, sums = (Ref(name) for name in names)
    depth, columns = size(k), size(n)
    return byte_pack_args(source, columns, packed, sums, depth, columns, size(count), depth * columns)


def _operand(
    o: FusedOperand, n: int, depth: int, out_item: int, c_batch: tuple[int, int], b_batch: tuple[int, int]
) -> template.Operand:
    if o.name == _DEPTH:
        return template.Operand(np.array([depth], np.int32))
    address: Any = Ref(o.name)
    if o.name.endswith("%sums"):  # one per column and matrix of B
        return template.Operand(address, batch0=b_batch[0] * n * 4, batch1=b_batch[1] * n * 4)
    if o.kind == "row":
        many = o.name.endswith("%rowsums")
        scale = [c // max(1, n * out_item) * itemsize(o.dtype) if many else 0 for c in c_batch]
        return template.Operand(address, row=itemsize(o.dtype), batch0=scale[0], batch1=scale[1])
    return fused_operand(o, n, itemsize(o.dtype), out_item, c_batch)


def digest(values: np.ndarray) -> str:
    """A short name of an array's contents."""
    import hashlib

    return hashlib.blake2b(np.ascontiguousarray(values).tobytes(), digest_size=8).hexdigest()


# --- where a definition holds such a product ----------------------------------------------------------------------


@dataclass(frozen=True)
class Factor:
    """A factor of a product of bytes: what is cast to int32, and its zero point as a tensor of its own (None: 0)."""

    values: Tensor
    zero: Tensor | None


def byte_factor(t: Tensor) -> Factor | None:
    """`t` as 8-bit numbers less a zero point, if it is that; reshapes around the whole are passed on."""
    shapes = []
    while t.prim == "reshape":
        shapes.append(t.shape)
        t = t.args[0]
    zero = None
    if t.prim == "sub":
        t, zero = t.args
        if shapes and any(d != 1 for d in _unspread(zero).shape):
            return None
    if t.prim != "cast" or t.dtype is not SUMS or t.args[0].dtype not in (DType.UINT8, DType.INT8):
        return None
    values = t.args[0]
    for shape in reversed(shapes):
        values = k.reshape(values, shape)
    return Factor(values, zero)


def zero_of(zero: Tensor | None, axis: int, read: int) -> tuple[Zero, str | None] | None:
    """The zero point as `Zero`, and the buffer that it reads; None if it is of a kind that no epilogue has.

    `axis`: along which there may be many, -2 (A) or -1 (B). `read`: the index that the buffer will have in `reads`.
    """
    if zero is None:
        return Zero(), None
    zero = _unspread(zero)
    if zero.prim == "cast":
        zero = zero.args[0]
    zero = _unspread(zero)
    if zero.prim == "scalar":
        return Zero(int(zero.attrs[0])), None
    source, shape = zero, zero.shape
    while source.prim == "reshape":
        source = source.args[0]
    if source.prim != "input" or source.dtype not in (DType.UINT8, DType.INT8, SUMS):
        return None
    if all(d == 1 for d in shape):
        return Zero(0, read, "scalar", source.dtype), source.attrs[0]
    if len(shape) < -axis or any(d != 1 for i, d in enumerate(shape) if i != len(shape) + axis):
        return None
    return Zero(0, read, "row" if axis == -2 else "column", source.dtype), source.attrs[0]


def _unspread(t: Tensor) -> Tensor:
    while t.prim == "broadcast" or (t.prim == "cast" and t.dtype is SUMS and t.args[0].prim == "broadcast"):
        t = t.args[0]
    return t
