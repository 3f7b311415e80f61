"""MatMul and Gemm as calls of the packed GEMM kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, evaluate, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import CLAIMS, SCRATCH, Argument, Below, Code, Ref, Sizes, Step
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.providers.cpu.kernels.common.choose_schedule import Candidates, LoweringEnv
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.epilogue_code import itemsize
from intarsia.providers.cpu.kernels.common.microkernel import Tile, met_of, micro_text, product_tile, tile_of, tiled_micro_text
from intarsia.providers.cpu.kernels.common.pack_b import in_fewer_bits, pack_matrix
from intarsia.providers.cpu.kernels.common.precision import (
    asked,
    described,
    in_halves,
    may_try_pairs,
    pair_unit,
    stored_type,
)
from intarsia.providers.cpu.kernels.common.schedule import FusedOperand, Template, Workspace, forms_of, tensor_types
from intarsia.providers.cpu.kernels.common.units import VECTORS
from intarsia.providers.cpu.kernels.conv.winograd.cost_model import rates
from intarsia.providers.cpu.kernels.matmul import gemm_kernel as template
from intarsia.providers.cpu.kernels.matmul import packed_a_kernel as tiled
from intarsia.providers.cpu.kernels.matmul.bfloat16_rows import pays_in_rows, row_steps
from intarsia.providers.cpu.kernels.matmul.float16 import half_steps
from intarsia.providers.cpu.kernels.matmul.matmul_steps import SERIAL_PRODUCTS, fused_operand, shares
from intarsia.providers.cpu.kernels.matmul.pack_a import pack_tiles_args, pack_tiles_text
from intarsia.providers.cpu.kernels.matmul.strassen import may_pay, strassen_step
from intarsia.providers.cpu.kernels.matmul.vnni import pair_steps
from intarsia.providers.cpu.kernels.matmul_nbits.block_quant_kernel import BlockFormat

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference

_DTYPES = (DType.FLOAT, DType.DOUBLE)
_WIDENED_ROWS = 64  # for which weights that a model has in fewer bits are kept in float32, where widening them takes time
_ROWS = "rows"  # the schedule without packed A
_PAIRS = "pairs"  # that by products of pairs of bfloat16
_SEVEN = "strassen"  # that without packed A, by seven products in the place of eight
_TILES = {
    "14x2": Tile(14, 2, 16, 4),
    "8x3": Tile(8, 3, 16, 4),
    _ROWS: None,
    _SEVEN: None,
    "": None,
}  # schedules that may be timed


def matmul(node: Node, inference: Inference) -> Template | None:
    """MatMul of float or double matrices with at most two batch axes once leading axes are merged."""
    types = tensor_types(node, inference)
    a, b = types[0], types[1]
    out = inference.types.get(node.outputs[0])
    if a is None or b is None or not isinstance(out, TensorType) or a.dtype not in _DTYPES or out.shape is None:
        return None
    if a.shape is None or b.shape is None or len(a.shape) < 2 or len(b.shape) < 2:
        return None
    made = MatMul(node, (node.inputs[0], node.inputs[1]), types, out)
    return made if made.batches() is not None else None


def gemm(node: Node, inference: Inference) -> Template | None:
    """Gemm with an untransposed A: a MatMul, with alpha, beta and C in the epilogue."""
    types = tensor_types(node, inference)
    a, b = types[0], types[1]
    out = inference.types.get(node.outputs[0])
    if a is None or b is None or not isinstance(out, TensorType) or a.dtype not in _DTYPES or node.attributes.get("transA", 0):
        return None
    if a.shape is None or b.shape is None or len(a.shape) != 2 or len(b.shape) != 2:
        return None
    return Gemm(node, (node.inputs[0], node.inputs[1]), types, out)


@dataclass(frozen=True)
class MatMul(Template):
    """[..., M, K] x [..., K, N]; a constant second operand is packed into panels once."""

    alone: ClassVar[str] = "MatMul"

    @property
    def transposed(self) -> bool:
        """Whether the second operand is given as [N, K]."""
        return False

    def equal_sizes(self) -> list[tuple[Dim, Dim]]:
        a, b = self.types[0], self.types[1]
        assert a is not None and b is not None and a.shape is not None and b.shape is not None
        return [(a.shape[-1], b.shape[-1 if self.transposed else -2])]

    def broadcast_sizes(self) -> list[tuple[Dim, Dim]]:
        a, b, out = self.types[0], self.types[1], self.output.shape
        assert a is not None and b is not None and a.shape is not None and b.shape is not None and out is not None
        return [p for x in (a.shape, b.shape) for p in zip(x[-3::-1], out[-3::-1], strict=False)]

    def batches(self) -> Batches | None:
        """The batch axes merged into two at most, or None if they do not fit."""
        a, b = self.types[0], self.types[1]
        assert a is not None and b is not None and a.shape is not None and b.shape is not None
        if all(d == 1 for d in b.shape[:-2]):
            return Batches((1, 1), (0, 0), (0, 0), (0, 0), product(a.shape[:-1]))
        return merged_batches(a.shape[:-2], b.shape[:-2], a.shape[-2])

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        a, b = self.types[0], self.types[1]
        found = self.batches()
        assert a is not None and b is not None and a.shape is not None and b.shape is not None and found is not None
        batch = found.sizes
        tile, single = tile_of(a.dtype, target), batch == (1, 1)
        if single and a.dtype in (DType.FLOAT, DType.BFLOAT16):
            steps = self._in_16_bits(target, workspace, epilogue, operands, out, found.rows)
            if steps is not None:
                return steps
        tiled_pays, lies = single and self._tiled(target, workspace), single and self._lies(target, workspace)
        if tiled_pays and (self._choice(target, workspace) or _ROWS * lies) not in (_ROWS, _SEVEN):
            return self._tiled_steps(target, workspace, epilogue, operands, out, found)
        n = b.shape[-2 if self.transposed else -1]
        if lies:
            assert isinstance(n, int)
            tile = product_tile(n, a.dtype, target)
        right, layout, blocks, stored = self._right(workspace, single, tile, target)
        zero = workspace.add("", "taps", lambda: np.zeros(1, np.int64))
        spec = template.GemmSpec(a.dtype, layout, epilogue, blocks, stored=stored, tile=tile if lies else None)
        if lies and (seven := self._seven(spec, target, workspace, operands, out, right, found.rows)) is not None:
            return [seven]
        kinds = (stored, None) if template.widens_panels(spec, target) else (stored,)
        met = met_of(spec.tile or tile, found.rows, n)
        micros = tuple(micro_text(a.dtype, target, spec.tile, kind, met) for kind in kinds)
        product = _Product(
            spec, target, tuple(text.symbol for text in micros), self.reads[0], right, out, zero, found.rows, a.shape[-1], n,
            found, tuple(operands), lies,
        )  # fmt: skip
        products = product.m * product.n * product.k * batch[0] * batch[1]
        return [
            Step(
                template.kernel_text(spec, target), (self.reads[0], right, zero, *(o.name for o in operands)), (out,),
                product.arguments, scratch_nbytes=product.scratch_nbytes, serial=Below(products, SERIAL_PRODUCTS),
                label=f"gemm {product.m}x{product.n}x{product.k}", calls=micros, arithmetic=described(stored),
                work=partial(shares, products) if lies else None, ahead=lies and tiled_pays,
            )
        ]  # fmt: skip

    def _seven(
        self, spec: template.GemmSpec, target: Target, workspace: Workspace, operands: Sequence[FusedOperand], out: str,
        packed: str, rows: Dim,
    ) -> Step | None:  # fmt: skip
        """The product by seven in the place of eight, where that is chosen or likely to be faster."""
        known, chosen = self._matrix(workspace), self._choice(target, workspace)
        if spec.dtype is not DType.FLOAT or known is None or chosen not in ("", _SEVEN):
            return None
        (k, n), tile = known[0].shape, spec.tile
        assert tile is not None
        if not chosen and not may_pay(rows, n, k, target, workspace.options, tile):
            return None
        return strassen_step(
            spec, target, workspace, operands, out, source=self.reads[0], packed=packed,
            weights=(self.reads[1], known[1], lambda: known[0]), sizes=(rows, n, k), always=bool(chosen),
        )  # fmt: skip

    def _in_16_bits(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        rows: Dim,
    ) -> list[Step] | None:  # fmt: skip
        """Products in float16 or bfloat16, where they are asked for and faster than float32's."""
        options, a = asked(workspace.options, self.node), self.types[0]
        assert a is not None
        unit = VECTORS if self._choice(target, workspace) == _PAIRS else pair_unit(options, target)
        known = self._matrix(workspace) if unit or in_halves(options, target) else None
        if known is None:
            return None
        matrix, key = known
        if pays_in_rows(options, target, rows, matrix.shape[1], matrix.shape[0]):
            return row_steps(
                target, workspace, epilogue, operands, out, source=self.reads[0], dtype=a.dtype, m=rows,
                weights=self.reads[1], matrix=matrix, key=key,
            )  # fmt: skip
        if unit:
            return pair_steps(
                target, workspace, epilogue, operands, out, unit=unit, source=self.reads[0], m=rows, weights=self.reads[1],
                matrix=matrix, key=key,
            )  # fmt: skip
        return half_steps(
            target, workspace, epilogue, operands, out, source=self.reads[0], m=rows, weights=self.reads[1], matrix=matrix,
            key=key,
        )  # fmt: skip

    def rounds(self, target: Target, workspace: Workspace) -> tuple[str, ...]:
        a, found = self.types[0], self.batches()
        if a is None or a.dtype is not DType.FLOAT or found is None or found.sizes != (1, 1):
            return ()
        known = self._matrix(workspace)
        if known is None:
            return ()
        k, n = known[0].shape
        return self.reads[:1] if pays_in_rows(asked(workspace.options, self.node), target, found.rows, n, k) else ()

    def schedule_key(self, env: LoweringEnv) -> str | None:
        found = self.candidates(env)
        return found.key if found is not None else None

    def candidates(self, env: LoweringEnv) -> Candidates | None:
        """Register tiles for packed A, or A as it lies, of a product by a constant of known sizes."""
        target, options = env.target, env.options
        a, b, found = self.types[0], self.types[1], self.batches()
        assert a is not None and a.shape is not None and b is not None and b.shape is not None
        k, n, rows = a.shape[-1], b.shape[-2 if self.transposed else -1], product(a.shape[:-1])
        if not (isinstance(k, int) and isinstance(n, int) and isinstance(rows, int)) or found is None or found.sizes != (1, 1):
            return None
        default, spec = product_tile(n, a.dtype, target), template.GemmSpec(a.dtype)
        if (
            a.dtype is not DType.FLOAT
            or default not in _TILES.values()
            or in_halves(options, target)
            or pair_unit(asked(options, self.node), target)
        ):
            return None
        if not tiled.packs(rows, default) or not tiled.tiles_pay(n, k, spec, target):
            return None
        names = sorted(_TILES.keys() - {_SEVEN}, key=lambda x: (x != _ROWS if target.reads_rows else _TILES[x] != default, x))
        if may_pay(rows, n, k, target, options, default):
            names.insert(0, _SEVEN)
        names += [_PAIRS] * may_try_pairs(options, target)
        seconds = 2 * rows * n * k / rates(target.l2_nbytes).flops
        return Candidates(f"gemm {rows}x{n}x{k} {options.arithmetic}", tuple(x for x in names if x), seconds)

    def _choice(self, target: Target, workspace: Workspace) -> str:
        """The schedule that was chosen by timing, or ""."""
        return LoweringEnv(target, workspace.options, workspace, workspace.choices).timed(self)

    def _lies(self, target: Target, workspace: Workspace) -> bool:
        """Whether a constant second operand meets rows as they lie, however many there are: where loads cost nothing beside
        multiply-adds, packing does, and sums that wait in memory."""
        b = self.types[1]
        assert b is not None and b.shape is not None
        known = workspace.array(self.reads[1]) is not None and isinstance(b.shape[-2 if self.transposed else -1], int)
        return target.reads_rows and known

    def _tiled(self, target: Target, workspace: Workspace) -> bool:
        """Whether A is packed where it has many rows: the second operand is a large enough constant."""
        a, b = self.types[0], self.types[1]
        assert a is not None and a.shape is not None and b is not None and b.shape is not None
        k, n, rows = a.shape[-1], b.shape[-2 if self.transposed else -1], product(a.shape[:-1])
        if workspace.array(self.reads[1]) is None or not isinstance(k, int) or not isinstance(n, int):
            return False
        spec = template.GemmSpec(a.dtype)
        few = isinstance(rows, int) and not tiled.packs(rows, product_tile(n, a.dtype, target))
        return not few and tiled.tiles_pay(n, k, spec, target)

    def _tiled_steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str,
        found: Batches,
    ) -> list[Step]:  # fmt: skip
        """A packed by tiles, then a step for each part of K."""
        a, b = self.types[0], self.types[1]
        assert a is not None and a.shape is not None and b is not None and b.shape is not None
        dtype, k, n, m = a.dtype, a.shape[-1], b.shape[-2 if self.transposed else -1], found.rows
        assert isinstance(k, int) and isinstance(n, int)
        tile = _TILES.get(self._choice(target, workspace)) or product_tile(n, dtype, target)
        right, layout, _, stored = self._right(workspace, True, tile, target)
        assert layout == "packed", layout
        spec = template.GemmSpec(dtype, "packed", epilogue, tile=tile, stored=stored)
        zero = workspace.add("", "taps", lambda: np.zeros(1, np.int64))
        packed = workspace.temporary(f"{self.reads[0]}%tiles{tile.rows}", dtype, (m, k))
        parts, sums = tiled.parts(k, tile), ""
        if len(parts) > 1:
            sums = workspace.temporary(f"{out}%sums", dtype, (tiled.partial_elements(m, n, tile),))
        few_rows = micro_text(dtype, target, tile, stored, met_of(tile, None, n))
        micros = few_rows, tiled_micro_text(dtype, target, tile)
        few = Below(m, 4 * tile.rows)
        made = _TiledProduct(
            spec, target, (micros[0].symbol, micros[1].symbol), (self.reads[0], packed), right, out, zero, sums, m, k, n,
            tuple(operands),
        )  # fmt: skip
        steps = [
            Step(
                pack_tiles_text(dtype, tile, target), (self.reads[0],), (packed,), made.packing, serial=few,
                label=f"pack {m}x{k}", shared=True,
            )
        ]  # fmt: skip
        between = (sums,) if sums else ()
        for number, part in enumerate(parts):
            reads = (self.reads[0], packed, right, zero, *(o.name for o in operands), *between)
            steps.append(
                Step(
                    tiled.tiled_text(spec, target), reads, (out, *between), partial(made.arguments, part),
                    scratch_nbytes=made.scratch_nbytes, label=f"gemm {m}x{n}x{part[1]}" + (f" of {k}" if sums else ""),
                    serial=few if number else Below(m * n * k, SERIAL_PRODUCTS), calls=micros, arithmetic=described(stored),
                    work=partial(shares, m * n * part[1]), ahead=True,
                )
            )  # fmt: skip
        return steps

    def _matrix(self, workspace: Workspace) -> tuple[np.ndarray, str] | None:
        """The second operand as [K, N], and what tells this view of it from others, where it is a constant."""
        b, weights = self.types[1], workspace.array(self.reads[1])
        assert b is not None and b.shape is not None
        if weights is None:
            return None
        rows, columns = (evaluate(d, {}) for d in b.shape[-2:])  # a definition may read the constant under another shape
        matrix = weights.reshape(rows, columns)
        form = "t" * self.transposed + (f"as{rows}x{columns}" if weights.shape[-2:] != (rows, columns) else "")
        return matrix.T if self.transposed else matrix, form

    def _right(
        self, workspace: Workspace, single: bool, tile: Tile, target: Target
    ) -> tuple[str, str, BlockFormat | None, DType | None]:
        """The second operand's buffer, layout, and the type it is stored in where that is not its own; packed if it is a
        constant matrix (`single`: no batch axes)."""
        a, name = self.types[0], self.reads[1]
        assert a is not None and a.shape is not None
        known = self._matrix(workspace) if single else None
        if known is None:
            return name, "columns" if self.transposed else "rows", None, None
        matrix, form = known
        key, rows = f"panels{tile.width}{form}{tile.itemsize}", math.prod(d for d in a.shape[:-1] if isinstance(d, int))
        own = workspace.original_type(name) if target.halves_vectors or rows < _WIDENED_ROWS else None
        stored = stored_type(workspace.options, target, own) if a.dtype is DType.FLOAT else None
        narrow = in_fewer_bits(matrix, stored) if stored is not None else None
        if narrow is not None:
            assert stored is not None
            return workspace.add(name, f"{key}{stored.name}", lambda: pack_matrix(narrow, tile)), "packed", None, stored
        packed = workspace.add(name, key, lambda: pack_matrix(matrix.astype(a.dtype.numpy, copy=False), tile))
        return packed, "packed", None, None


@dataclass(frozen=True)
class _Product:
    """The arguments of one call of the GEMM kernel, once its sizes are known."""

    spec: template.GemmSpec
    target: Target
    micros: tuple[str, ...]  # that of few rows, and where panels of 16 bits are widened that of many
    a: str
    b: str
    c: str
    taps: str
    m: Dim
    k: Dim
    n: Dim
    batches: Batches
    operands: tuple[FusedOperand, ...]
    claimed: bool = False  # its end, in pieces

    @property
    def form(self) -> object:
        """All but the buffers' names (`plan.step.form_of`)."""
        operands = forms_of(self.operands)
        return (self.spec, self.micros, self.m, self.k, self.n, self.batches, operands, self.claimed)

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        m, k, n, batches = size(self.m), size(self.k), size(self.n), self.batches
        item, tile = itemsize(self.spec.dtype), self.spec.tile or tile_of(self.spec.dtype, self.target)
        micro = self.micros[-1] if template.many_rows(m, tile) else self.micros[0]
        out_item = itemsize(self.spec.epilogue.dtype) if self.spec.epilogue else item
        of_a, of_b, of_c = m * k * item, k * n * item, m * n * out_item
        c_batch = (size(batches.c[0]) * of_c, size(batches.c[1]) * of_c)
        return template.matrix_args(
            self.spec, self.target, micro=Code(micro), a=Ref(self.a), b=Ref(self.b), c=Ref(self.c),
            m=m, n=n, k=k, batch=(size(batches.sizes[0]), size(batches.sizes[1])),
            a_batch=(size(batches.a[0]) * of_a, size(batches.a[1]) * of_a),
            b_batch=(size(batches.b[0]) * of_b, size(batches.b[1]) * of_b), c_batch=c_batch,
            operands=[fused_operand(o, n, itemsize(o.dtype), out_item, c_batch) for o in self.operands],
            scratch=Ref(SCRATCH), taps=Ref(self.taps), claims=Ref(CLAIMS) if self.claimed else 0,
            threads=threads if self.claimed else 1,
        )  # fmt: skip

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * template.scratch_nbytes(self.spec, self.target, size(self.k))


@dataclass(frozen=True)
class _TiledProduct:
    """The arguments of the steps of one product with packed A, once its sizes are known."""

    spec: template.GemmSpec
    target: Target
    micros: tuple[str, str]  # for A in rows, and for packed A
    a: tuple[str, str]  # A, and where it is packed
    b: str
    c: str
    taps: str
    partial: str
    m: Dim
    k: int
    n: int
    operands: tuple[FusedOperand, ...]

    @property
    def tile(self) -> Tile:
        assert self.spec.tile is not None
        return self.spec.tile

    @property
    def form(self) -> object:
        """All but the buffers' names (`plan.step.form_of`)."""
        operands = forms_of(self.operands)
        return (self.spec, self.micros, bool(self.partial), self.m, self.k, self.n, operands)

    def packing(self, size: Sizes, threads: int) -> Sequence[Argument]:
        m = size(self.m)
        rows = m if tiled.packs(m, self.tile) else 0
        return pack_tiles_args(Ref(self.a[0]), self.k * self.tile.itemsize, Ref(self.a[1]), rows, self.k, self.tile)

    def arguments(self, part: tuple[int, int], size: Sizes, threads: int) -> Sequence[Argument]:
        out_item = itemsize(self.spec.epilogue.dtype) if self.spec.epilogue else self.tile.itemsize
        few, many = map(Code, self.micros)
        plain, packed = map(Ref, self.a)
        return tiled.tiled_args(
            self.spec, self.target, micro=(few, many), a=(plain, packed), b=Ref(self.b), c=Ref(self.c),
            m=size(self.m), n=self.n, k=self.k, taps=Ref(self.taps), scratch=Ref(SCRATCH), part=part,
            partial=Ref(self.partial) if self.partial else 0, claims=Ref(CLAIMS), threads=threads,
            operands=[fused_operand(o, self.n, itemsize(o.dtype), out_item, (0, 0)) for o in self.operands],
        )  # fmt: skip

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * tiled.tiled_scratch_nbytes(self.spec, self.target, size(self.m), self.k)


@dataclass(frozen=True)
class Gemm(MatMul):
    """alpha A B + beta C."""

    alone: ClassVar[str] = "Gemm"

    @property
    def transposed(self) -> bool:
        return bool(self.node.attributes.get("transB", 0))

    def result(self, acc: Tensor) -> Tensor:
        alpha, beta = self.node.attributes.get("alpha", 1.0), self.node.attributes.get("beta", 1.0)
        out = acc if alpha == 1 else acc * alpha
        if len(self.types) < 3 or self.types[2] is None or beta == 0:
            return out
        c = k.input(self.node.inputs[2], self.types[2].dtype, self.types[2].shape or ())
        return out + (c if beta == 1 else c * beta)


@dataclass(frozen=True)
class TransposedMatMul(MatMul):
    """[..., M, K] x [..., N, K]."""

    alone: ClassVar[str] = ""

    @property
    def transposed(self) -> bool:
        return True


@dataclass(frozen=True)
class Batches:
    """Two batch axes: their sizes, and the distance of neighbours in A, B and C, in matrices (0: the same one again)."""

    sizes: tuple[Dim, Dim]
    a: tuple[Dim, Dim]
    b: tuple[Dim, Dim]
    c: tuple[Dim, Dim]
    rows: Dim


def merged_batches(lead_a: tuple[Dim, ...], lead_b: tuple[Dim, ...], rows: Dim) -> Batches | None:
    """Leading axes that broadcast against each other, merged where neighbours belong to the same operands."""
    rank = max(len(lead_a), len(lead_b))
    lead_a, lead_b = (1,) * (rank - len(lead_a)) + lead_a, (1,) * (rank - len(lead_b)) + lead_b
    merged: list[tuple[tuple[bool, bool], Dim]] = []
    for x, y in zip(lead_a, lead_b, strict=True):
        if x != y and x != 1 and y != 1:
            return None
        if x == y == 1:
            continue
        owners, size = (x != 1, y != 1), x if x != 1 else y
        if merged and merged[-1][0] == owners:
            merged[-1] = (owners, merged[-1][1] * size)
        else:
            merged.append((owners, size))
    if len(merged) > 2:
        return None
    axes = [((False, False), 1)] * (2 - len(merged)) + merged
    (outer, n0), (inner, n1) = axes

    def distances(owner: int) -> tuple[Dim, Dim]:
        within: Dim = n1 if inner[owner] else 1
        return (within if outer[owner] else 0, 1 if inner[owner] else 0)

    return Batches((n0, n1), distances(0), distances(1), (n1, 1), rows)
