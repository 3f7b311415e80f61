"""A product of float32 rows by constant weights with seven multiplications in the place of eight (`codegen.strassen`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from intarsia.codegen import gemm, strassen
from intarsia.codegen.finish import itemsize
from intarsia.codegen.microkernel import Tile, micro_text
from intarsia.codegen.strassen_parts import alike_panels, summing_micro_text
from intarsia.codegen.target import Target
from intarsia.graph.dims import Dim
from intarsia.plan.step import CLAIMS, Argument, Below, Code, Ref, Sizes, Step
from intarsia.providers.cpu.product_steps import SERIAL_PRODUCTS, fused_operand, shares
from intarsia.providers.cpu.template import FusedOperand, Workspace, forms_of
from intarsia.records import dataclass

KEY = "session.disable_strassen"
_LEAST_SAVED = 0.03  # of a product's time, by estimate
_MOST_THREADS = 4  # for which there is memory for sums: each makes those of A for itself, so with more it seldom pays
_MANY_ROWS = 1 << 20


def may_pay(rows: Dim, n: int, k: int, target: Target, config: Mapping[str, str], tile: Tile) -> bool:
    """Whether so many rows, or many if that is not known, are likely to be multiplied faster."""
    if config.get(KEY) == "1" or not target.halves_vectors or target.ordered:
        return False
    return strassen.saved(rows if isinstance(rows, int) else _MANY_ROWS, n, k, 1, tile) > _LEAST_SAVED


def strassen_step(
    spec: gemm.GemmSpec, target: Target, workspace: Workspace, operands: Sequence[FusedOperand], out: str, *,
    source: str, packed: str, weights: tuple[str, str, Callable[[], np.ndarray]], sizes: tuple[Dim, int, int], always: bool,
    skipped: Callable[[Sizes, int], bool] | None = None,
) -> Step:  # fmt: skip
    """The step.

    Args:
        source, packed: the buffers of A and of packed B.
        weights: B's name, what tells this view of it from others, and what gives B as [K, N].
        sizes: M, N, K.
        always: whether it is not for the estimate to decide, once rows and threads are known.
        skipped: of sizes and threads, whether there is nothing to do.
    """
    tile, (m, n, k), (name, form, matrix) = spec.tile, sizes, weights
    assert tile is not None
    table = workspace.add("", "strassen", lambda: strassen.TABLE)
    # Memory of its own, the same for all products: what lies elsewhere at other times would be in another core's cache.
    sums = workspace.temporary("strassen%sums", spec.dtype, (_MOST_THREADS * strassen.THREAD_NBYTES // tile.itemsize,))
    alike = workspace.add(name, f"alike{tile.width}{form}", lambda: alike_panels(matrix(), tile))
    calls = (micro_text(spec.dtype, target, tile), summing_micro_text(target, tile), gemm.kernel_text(spec, target))
    made = _Product(
        spec, target, tuple(call.symbol for call in calls), (source, packed, out, table, alike, sums), m, n, k,
        tuple(operands), always, skipped,
    )  # fmt: skip
    return Step(
        strassen.kernel_text(spec, target), (source, packed, table, alike, *(o.name for o in operands)), (out, sums),
        made.arguments, serial=Below(m * n * k, SERIAL_PRODUCTS), calls=calls,
        label=f"gemm {m}x{n}x{k} (Strassen{'' if isinstance(m, int) else ' where rows are many'})",
        work=partial(shares, m * n * k), ahead=True,
    )  # fmt: skip


@dataclass(frozen=True)
class _Product:
    """The step's arguments, once sizes are known."""

    spec: gemm.GemmSpec
    target: Target
    calls: tuple[str, ...]
    buffers: tuple[str, str, str, str, str, str]  # A, packed B, C, the table, which panels are alike, sums
    m: Dim
    n: int
    k: int
    operands: tuple[FusedOperand, ...]
    always: bool
    skipped: Callable[[Sizes, int], bool] | None

    @property
    def form(self) -> object:
        """All but the buffers' names (`plan.step.form_of`)."""
        return (self.spec, self.calls, self.m, self.n, self.k, forms_of(self.operands), self.always, self.skipped)

    def _seven(self, m: int, threads: int) -> bool:
        tile = self.spec.tile
        assert tile is not None
        if (
            m < strassen.LEAST_ROWS
            or threads > _MOST_THREADS
            or strassen.scratch_nbytes(m, self.k, tile) > strassen.THREAD_NBYTES
        ):
            return False
        return self.always or strassen.saved(m, self.n, self.k, threads, tile) > _LEAST_SAVED

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        m = 0 if self.skipped is not None and self.skipped(size, threads) else size(self.m)
        out_item = itemsize(self.spec.epilogue.dtype if self.spec.epilogue else self.spec.dtype)
        micro, summing, plain = map(Code, self.calls)
        a, b, c, table, alike, sums = map(Ref, self.buffers)
        return strassen.matrix_args(
            self.spec, self.target, micro=micro, summing=summing, plain=plain, seven=_MOST_THREADS * self._seven(m, threads),  # type: ignore[arg-type]
            a=a, b=b, c=c, m=m, n=self.n, k=self.k, table=table, alike=alike, scratch=sums,  # type: ignore[arg-type]
            claims=Ref(CLAIMS), threads=threads,  # type: ignore[arg-type]
            operands=[fused_operand(o, self.n, itemsize(o.dtype), out_item, (0, 0)) for o in self.operands],
        )  # fmt: skip
