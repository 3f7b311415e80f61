"""Counting n-grams of integers: a walk down a tree of them from every place of a row, its edges in one hash table.

A slot of the table is (node, value, child, gram): from `node`, 0 at the root, the next number `value` leads to `child`, where
n-gram number `gram` ends, or none (-1). Free slots have node -1; collisions go to the next slot.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType

SOURCES = (DType.INT32, DType.INT64)
FIELDS = ("x", "y", "slots", "places", "weights", "rows", "length", "width", "mask", "shortest", "longest", "skips", "once")
_POINTERS = ("x", "y", "slots", "places", "weights")
_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
_SLOT = 4
_WORD = 1 << 64


def slots_of(grams: Mapping[tuple[int, ...], int]) -> np.ndarray:
    """int64 [slots, 4], a power of two of them, at most half in use."""
    edges: dict[tuple[int, int], list[int]] = {}
    for gram, number in grams.items():
        node = 0
        for i, value in enumerate(gram):
            edge = edges.setdefault((node, value), [len(edges) + 1, -1])
            if i + 1 == len(gram):
                edge[1] = number
            node = edge[0]
    size = 1 << max(2, (2 * len(edges)).bit_length())
    slots = np.full((size, _SLOT), -1, np.int64)
    for (node, value), (child, number) in edges.items():
        at = _hash(node, value) & (size - 1)
        while slots[at, 0] >= 0:
            at = (at + 1) & (size - 1)
        slots[at] = node, value, child, number
    return slots


def _hash(node: int, value: int) -> int:
    mixed = (node * _FACTORS[0] + value * _FACTORS[1]) % _WORD
    return mixed ^ mixed >> 32


@functools.cache
def kernel_text(source: DType, target: Target) -> KernelText:
    """Arguments are FIELDS: x [rows, length], y float[rows, width]; per n-gram its place in a row of y and what it counts.

    n-grams of `shortest` to `longest` numbers that are 1 to `skips` + 1 apart; `once`: y has the weight of each that occurs.
    """
    return _Counting(source, target).text()


class _Counting:
    def __init__(self, source: DType, target: Target) -> None:
        self.source, self.module = source, Module(target)
        self.find = self._find()
        self.body: Body = self.module.kernel()

    def _find(self) -> Value:
        """(ptr slots, i64 mask, i64 node, i64 value, ptr slot): the address of an edge's slot, or 0, to `slot`."""
        body = self.module.function("find", ("p", "i", "i", "i", "p"))
        slots, mask, node, value, result = body.args
        b = body.b
        mixed = body.add(body.mul(node, body.i(_signed(_FACTORS[0]))), body.mul(value, body.i(_signed(_FACTORS[1]))))
        at, found = body.cell(b.and_(b.xor(mixed, b.lshr(mixed, body.i(32))), mask)), body.cell(0)
        going = body.cell(1)
        with body.repeat_while(lambda: body.equal(going.get(), 1)):
            slot = body.at(slots, body.mul(at.get(), 8 * _SLOT))
            owner = body.load_i64(slot)
            same = b.and_(body.equal(owner, node), body.equal(body.load_i64(slot, 1), value))
            found.set(body.select(same, b.ptrtoint(slot, mask.type), 0))
            going.set(body.select(b.or_(same, body.less(owner, 0)), 0, 1))
            at.set(b.and_(body.add(at.get(), 1), mask))
        body.store(found.get(), result, DType.INT64)
        b.ret_void()
        return body.function

    def text(self) -> KernelText:
        body = self.body
        args, tid, nthreads = body.args
        v = self.v = {n: (body.load_pointer if n in _POINTERS else body.load_i64)(args, i) for i, n in enumerate(FIELDS)}
        self.result = body.alloca(8)
        first, last = body.share(v["rows"], tid, nthreads)
        with body.loop(first, last) as row:
            self.x = body.at(v["x"], body.mul(body.mul(row, v["length"]), self.source.bits // 8))
            self.y = body.at(v["y"], body.mul(body.mul(row, v["width"]), 4))
            body.fill(self.y, body.mul(v["width"], 4))
            with body.loop(0, v["length"]) as i:
                self._from(i)
        body.b.ret_void()
        return self.module.text("ngrams")

    def _edge(self, node: Value, place: Value) -> Value:
        """The slot of the edge that the number at `place` is."""
        body = self.body
        number = body.load(body.at(self.x, body.mul(place, self.source.bits // 8)), self.source, 1)
        wide = number if self.source is DType.INT64 else body.b.sext(number, node.type)
        body.b.call(self.find, [self.v["slots"], self.v["mask"], node, wide, self.result])
        return body.load_i64(self.result)

    def _from(self, start: Value) -> None:
        """All n-grams that begin at a place."""
        body, v = self.body, self.v
        edge = self._edge(body.i(0), start)
        with body.when(body.b.icmp_unsigned("!=", edge, body.i(0))):
            slot = body.pointer(edge)
            with body.when(body.less(v["shortest"], 2)):
                self._count(body.load_i64(slot, 3))
            child = body.load_i64(slot, 2)
            skips = body.select(body.less(v["length"], v["skips"]), v["length"], v["skips"])  # more leave every row
            several = body.select(body.less(1, v["longest"]), body.add(skips, 1), 0)
            with body.loop(0, several) as skip:
                self._walk(start, child, body.add(skip, 1))

    def _walk(self, start: Value, node: Value, pace: Value) -> None:
        body, v = self.body, self.v
        at, n, here = body.cell(body.add(start, pace)), body.cell(2), body.cell(node)

        def goes_on() -> Value:
            inside = body.b.and_(body.less(at.get(), v["length"]), body.less(-1, here.get()))
            return body.b.and_(inside, body.less(n.get(), body.add(v["longest"], 1)))

        with body.repeat_while(goes_on):
            edge = self._edge(here.get(), at.get())
            here.set(-1)
            with body.when(body.b.icmp_unsigned("!=", edge, body.i(0))):
                slot = body.pointer(edge)
                here.set(body.load_i64(slot, 2))
                with body.when(body.less(v["shortest"], body.add(n.get(), 1))):
                    self._count(body.load_i64(slot, 3))
            at.add(pace)
            n.add(1)

    def _count(self, gram: Value) -> None:
        body, v = self.body, self.v
        with body.when(body.less(-1, gram)):
            place = body.at(self.y, body.mul(body.load_i64(v["places"], gram), 4))
            weight = body.load(body.at(v["weights"], body.mul(gram, 4)), DType.FLOAT, 1)
            more = body.b.fadd(body.load(place, DType.FLOAT, 1), weight)
            body.store(body.b.select(body.equal(v["once"], 1), weight, more), place, DType.FLOAT)


def _signed(value: int) -> int:
    return value - _WORD if value >> 63 else value
