"""Matrix products of bytes without matrix units: four terms in a word of 32 bits, multiplied and added up by one instruction.

A group's tiles lie in the memory that it shares as words of four terms. Where an operand's memory runs along the terms, words
are copied; where it runs the other way, four words are turned into four; all else is gathered byte by byte. What lies outside
is zero in both operands. Sums are int32, modulo 2^32.

`Dialect.dot4` writes the instruction: dp4a on NVIDIA's devices, dot4I8Packed and dot4U8Packed in WGSL, AMD's sdot4 and udot4,
OpenCL's integer dot products, or arithmetic where a device has none.
"""

from __future__ import annotations

from intarsia.codegen.clike.dialects.dialect import Dialect, Tile
from intarsia.codegen.clike.products.int8_factors import BYTES, flipped
from intarsia.codegen.clike.products.matmul import Operand, _Product, operand, product_kernel
from intarsia.codegen.clike.schedules import Kernel, _extent
from intarsia.codegen.clike.storage_types import Kind
from intarsia.codegen.clike.vec4 import Fours
from intarsia.codegen.clike.writer import Block
from intarsia.codegen.loops.index_expr import Index
from intarsia.graph.dtypes import DType
from intarsia.primitives.lang import Tensor

_FOUR = 4
_FLIP = "0x80808080u"


def is_of_bytes(t: Tensor) -> bool:
    """Whether a product's factors are bytes."""
    return t.dtype is DType.INT32 and all(a.dtype in BYTES for a in t.args)


def byte_kernel(dialect: Dialect, root: Tensor, product_: Tensor) -> Kernel:
    """`root` with a product of bytes in it (see `sum_places.sum_indices`)."""
    return product_kernel(dialect, root, product_, ByteProduct)


class ByteProduct(_Product):
    """The sums of a thread's elements; words of four terms are its terms."""

    def __init__(self, v: Fours, t: Tensor, tile: Tile) -> None:
        super().__init__(v, t, tile)
        self.words = tile.depth if self.depth >= _FOUR * tile.depth else tile.depth // 2
        self.plain = [flipped(a) for a in t.args]
        factors = tuple(a if p is None else p for a, p in zip(t.args, self.plain, strict=True))
        seen = Tensor("dot", factors, (), t.dtype, t.shape)
        self.sides = [operand(seen, i, dtype=a.dtype, width=_FOUR) for i, a in enumerate(factors)]

    def _shared(self, sums: list[list[str]]) -> None:
        v, d, top, tile = self.v, self.d, self.v.top, self.tile
        left, right = (v.share(Kind.U32, self.words * extent) for extent in (tile.rows, tile.columns))
        steps = Block(top, ("k0",))
        self._bring(steps, left, 0)
        self._bring(steps, right, 1)
        steps.write(d.barrier)
        terms = Block(steps, ("k",))
        xs = [v.elements.let(terms, f"{left}[(r0 + {i}) * {self.words} + k]", Kind.U32) for i in range(tile.each[0])]
        ys = [v.elements.let(terms, f"{right}[k * {tile.columns} + c0 + {j}]", Kind.U32) for j in range(tile.each[1])]
        signs = tuple(a.dtype is DType.INT8 for a in self.t.args)
        for line, x in zip(sums, xs, strict=True):
            for total, y in zip(line, ys, strict=True):
                terms.write(d.dot4(total, x, y, signs[0], signs[1]))
        steps.nest(d.loop("k", "0", str(self.words)), terms)
        steps.write(d.barrier)
        top.nest(d.loop("k0", "0", v.number(-(-self.depth // _FOUR)), str(self.words)), steps)

    def _bring(self, steps: Block, shared: str, side: int) -> None:
        """A tile by all threads of the group: the left one as [row][word], the right one as [word][column]."""
        d, tile, x = self.d, self.tile, self.sides[side]
        name, extent = ("gm", "gn")[side], (tile.rows, tile.columns)[side]
        turned = x.leaf is not None and x.vector == name
        lines = extent // _FOUR if turned else extent
        across = turned or side == 1 and x.along != "gk"  # neighbouring threads go along the lines
        first, second = (f"s % {lines}", f"s / {lines}") if across else (f"s / {self.words}", f"s % {self.words}")
        fill = Block(steps, ("s", "gk", name))
        start = ("m0", "n0")[side]
        fill.write(
            d.let("line", Kind.I32, f"({first}) * {_FOUR}" if turned else first), d.let("place", Kind.I32, second),
            d.let("gk0", Kind.I32, f"(k0 + place) * {_FOUR}"), d.let(f"{name}0", Kind.I32, f"{start} + line"),
        )  # fmt: skip
        if turned:
            self._turned(fill, shared, side)
        elif x.leaf is not None and x.vector == "gk":
            inside = f"gk < {self.v.number(self.depth)} && {name} < {self.v.number(self._size(side))}"
            fill.write(d.let("gk", Kind.I32, "gk0"), d.let(name, Kind.I32, f"{name}0"))
            fill.write(f"{self._target(shared, side, 'line')} = 0u;")
            word = Block(fill)
            word.write(f"{self._target(shared, side, 'line')} = {self._word(x, side, word)};")
            fill.nest(f"if ({inside}) {{", word)
        else:
            self._gathered_word(fill, shared, side)
        threads = tile.threads[0] * tile.threads[1]
        steps.nest(d.loop("s", d.local, str(lines * self.words), str(threads)), fill)

    def _size(self, side: int) -> int:
        return (self.m, self.n)[side]

    def _target(self, shared: str, side: int, line: str) -> str:
        at = f"({line}) * {self.words} + place" if side == 0 else f"place * {self.tile.columns} + {line}"
        return f"{shared}[{at}]"

    def _word(self, x: Operand, side: int, block: Block) -> str:
        """The word of four neighbours in memory at gk and the side's other variable."""
        assert x.leaf is not None
        text = self.v.read_word(x.leaf.attrs[0], x.leaf.dtype, _extent(*x.leaf.shape), self.v.index(x.index, block))
        return text if self.plain[side] is None else f"({text} ^ {_FLIP})"

    def _turned(self, fill: Block, shared: str, side: int) -> None:
        """Four lines of four terms from four words, each of four lines' terms."""
        v, d, e, name = self.v, self.d, self.v.elements, ("gm", "gn")[side]
        fill.write(d.let(name, Kind.I32, f"{name}0"))
        words = [e.fresh("word") for _ in range(_FOUR)]
        for q, word in enumerate(words):
            fill.write(d.variable(word, Kind.U32, "0u"))
            one = Block(fill)
            one.write(d.let("gk", Kind.I32, f"gk0 + {q}"))
            inner = Block(one, ("gk",))
            inner.write(f"{word} = {self._word(self.sides[side], side, inner)};")
            one.nest(f"if (gk < {v.number(self.depth)} && {name} < {v.number(self._size(side))}) {{", inner)
            fill.nest("{", one)
        for j in range(_FOUR):
            parts = [f"((({w} >> {8 * j}u) & 255u) << {8 * q}u)" for q, w in enumerate(words)]
            fill.write(f"{self._target(shared, side, f'line + {j}')} = {' | '.join(parts)};")

    def _gathered_word(self, fill: Block, shared: str, side: int) -> None:
        """Four terms one by one."""
        v, d, e, name = self.v, self.d, self.v.elements, ("gm", "gn")[side]
        fill.write(d.let(name, Kind.I32, f"{name}0"))
        word = e.fresh("word")
        fill.write(d.variable(word, Kind.U32, "0u"))
        k: Index = ("clamp", ("v", "gk"), self.depth)
        other: Index = ("clamp", ("v", name), self._size(side))
        for q in range(_FOUR):
            one = Block(fill, ("gk",))
            one.write(d.let("gk", Kind.I32, f"gk0 + {q}"))
            value = v.factor(self.t, self.t.args[side], self.batch, [k, other] if side else [other, k], one)
            inside = f"(gk < {v.number(self.depth)} && {name} < {v.number(self._size(side))})"
            byte = f"(({d.convert(value, Kind.I32, Kind.U32)} & 255u) << {8 * q}u)"
            one.write(f"{word} = {word} | {d.select(inside, byte, '0u')};")
            fill.nest("{", one)
        fill.write(f"{self._target(shared, side, 'line')} = {word};")
