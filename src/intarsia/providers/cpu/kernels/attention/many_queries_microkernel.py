"""The micro-kernel of attention of many queries: tiles of keys, or of columns of V, by vectors of queries in lanes.

It takes the arguments of `microkernel.PARAMETERS` for a packed A of whole tiles and one tap, but for the last one: queries are
counted in halves of vectors. An odd number ends in half a vector, where the target takes vectors in two halves anyway; what is
stored beside its sums is 0.
"""

from __future__ import annotations

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm.cached_kernel_text import cached_text
from intarsia.codegen.llvm.compile_ir import Effort
from intarsia.codegen.llvm.jit import SYMBOL_PLACEHOLDER, KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.broadcast_a import Numbers
from intarsia.providers.cpu.kernels.common.microkernel import PARAMETERS, TiledMicro, switched
from intarsia.providers.cpu.kernels.common.tiles import Tile

_F32 = DType.FLOAT


@cached_text
def lane_micro_text(tile: Tile, target: Target) -> KernelText:
    """All variants as one function."""
    module = Module(target)
    step = 1 if target.halves_vectors else 2
    variants = {}
    for halves in range(step, 2 * tile.vectors + 1, step):
        body = module.function(f"tile_{halves}", PARAMETERS[:-2])
        _LaneMicro(body, tile, halves).emit()
        variants[halves] = body.function
    entry = module.function(SYMBOL_PLACEHOLDER, PARAMETERS, internal=False)
    switched(entry, entry.args[-1], variants, entry.args[:-2])
    entry.b.ret_void()
    return module.text("micro_lanes", Effort.CODE)


class _LaneMicro(TiledMicro):
    """One variant: whole tiles of rows by so many halves of vectors."""

    ends_by_rows = True

    def __init__(self, body: Body, tile: Tile, halves: int) -> None:
        super().__init__(body, _F32, tile.lanes, tile.rows, -(-halves // 2))
        self.widths = [tile.lanes] * (halves // 2) + [tile.lanes // 2] * (halves % 2)

    def _zeros(self) -> list[Value]:
        return [self.body.zero(_F32, width) for width in self.widths] * self.rows

    def _columns(self, pb: Value) -> list[Value]:
        body = self.body
        return [body.load(body.at(pb, j * self.column_nbytes), _F32, width) for j, width in enumerate(self.widths)]

    def _numbers(self, count: int) -> Numbers:
        """Numbers of A; beside half a vector by the lanes that they fill. Each width has loads of its own then: LLVM would
        broadcast a number in a register again, which takes a unit that multiplies, where loads are to be had."""
        if self.widths[-1] == self.lanes:
            return super()._numbers(count)
        body = self.body

        def broadcast(place: Value) -> dict[int, Value]:
            places = {self.widths[0]: place} | ({self.widths[-1]: body.opaque(place)} if len(self.widths) > 1 else {})
            return {width: body.broadcast(at, _F32, width) for width, at in places.items()}

        return Numbers(body, self.lanes, count, lambda place: place, broadcast)

    def _multiplied(self, scalar: Value, column: Value, sums: Value) -> Value:
        width = column.type.count
        return self.body.fma(scalar[width] if isinstance(scalar, dict) else scalar, column, sums, _F32, width)

    def _store_row(self, i: int, sums: list[Value], tile: Value, accumulate: Value) -> None:
        body = self.body
        places = [self._tile(tile, i * self.vectors + j) for j in range(self.vectors)]
        with body.carry(0, accumulate, 1, sums):
            before = [body.load(place, _F32, width) for place, width in zip(places, self.widths, strict=True)]
            sums[:] = [self._sum(*two) for two in zip(before, sums, strict=True)]
        for place, x, width in zip(places, sums, self.widths, strict=True):
            rest = body.zero(_F32, width)
            body.store(x if width == self.lanes else body.shuffle(x, rest, range(self.lanes)), place, _F32)
