"""Native code that puts what a tape computed into the memory of a state: see `SETTLE_FIELDS` of `plan.native.abi`.

A state's words that are the same for all sizes are there from its beginning; so only those are written that follow from sizes,
lie in the arena, or are the addresses of other words. From one size to the next few registers change, and the arena's layout
hardly ever does: then only the words are touched that are registers' values which are others now.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from intarsia.codegen.builder.kernel_body import Body, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.plan.native.abi import DISJOINT, PLACES, SERIAL, SETTLE_FIELDS, USED

_POINTERS = "block before words table bases template restored groups grouped arena offsets added leased".split()
_ROW_NBYTES, _SERIAL_NBYTES = 32, 16  # of the executor's table: bytes of a row, and where it says that one thread runs the step


def write_settle(body: Body) -> None:
    _Settling(body).write()


def index(body: Body, pointer: Value, number: int) -> Value:
    """Element of a list of indices."""
    return body.b.sext(body.b.load(body.at(pointer, 4 * number), typ=ir_builder.IntType(32), align=4), ir_builder.IntType(64))


class _Settling:
    def __init__(self, body: Body) -> None:
        self.body = body
        self.v = {name: body.load_i64(body.args[0], i) for i, name in enumerate(SETTLE_FIELDS)}
        self.first = body.equal(self.v["before"], 0)  # whether the words are the template's
        self.v |= {name: body.pointer(self.v[name]) for name in _POINTERS}
        # Where there was no block before, it is its own: nothing is read behind a null pointer.
        self.v["before"] = body.select(self.first, self.v["block"], self.v["before"])
        for name, block in (("new", self.v["block"]), ("old", self.v["before"])):
            self.v[f"{name} serial"] = body.at(block, 8 * SERIAL)
            self.v[name] = body.at(self.v[f"{name} serial"], body.mul(self.v["nsteps"], 8))  # registers
        self.v["places"] = body.load_pointer(self.v["block"], PLACES)

    def write(self) -> None:
        body, b, v = self.body, self.body.b, self.v
        moved = b.icmp_signed("!=", body.load_i64(v["block"], PLACES), body.load_i64(v["before"], PLACES))
        everything = b.or_(b.or_(self.first, moved), body.equal(v["mixed"], 1))
        with body.when(everything), self._rows("restored", 1) as (entry, _):
            place = index(body, entry, 0)
            self._store(self._element("template", place), place)
        with self._rows("groups", 3) as (entry, _):
            register = index(body, entry, 0)
            other = b.icmp_signed("!=", self._element("new", register), self._element("old", register))
            with body.when(b.or_(everything, other)):
                self._fill(entry)
        with body.when(everything):
            self._addresses()
        tables = body.at(v["new"], body.mul(v["nregisters"], 8))
        extent = body.sub(body.load_i64(v["block"], USED), v["count"])
        body.copy(tables, body.at(v["words"], body.mul(v["count"], 8)), body.mul(extent, 8))
        with body.when(body.equal(body.load_i64(v["block"], DISJOINT), 0)), body.loop(0, v["nsteps"]) as i:
            self._say_serial(i)
        b.store(b.ptrtoint(v["block"], ir_builder.IntType(64)), body.at(body.args[0], 8 * SETTLE_FIELDS.index("before")))
        b.ret_void()

    def _say_serial(self, step: Value) -> None:
        body, b = self.body, self.body.b
        new, old = self._element("new serial", step), self._element("old serial", step)
        with body.when(b.or_(self.first, b.icmp_signed("!=", new, old))):
            b.store(new, body.at(self.v["table"], body.mul(step, _ROW_NBYTES), _SERIAL_NBYTES))

    def _fill(self, entry: Value) -> None:
        """A register into the words that are its value."""
        body = self.body
        value = self._element("new", index(body, entry, 0))
        with body.loop(index(body, entry, 1), index(body, entry, 2)) as i:
            self._store(value, index(body, body.at(self.v["grouped"], body.mul(i, 4)), 0))

    def _addresses(self) -> None:
        body = self.body
        with self._rows("arena", 2) as (entry, i):
            offset = self._element("offsets", i)
            self._store(body.add(self._element("places", index(body, entry, 1)), offset), index(body, entry, 0))
        with self._rows("added", 2) as (entry, _):
            self._add(index(body, entry, 0), self._element("new", index(body, entry, 1)))
        with self._rows("leased", 2) as (entry, _):
            self._add(index(body, entry, 0), self._element("bases", index(body, entry, 1)))

    @contextmanager
    def _rows(self, name: str, width: int) -> Iterator[tuple[Value, Value]]:
        with self.body.loop(0, self.v[f"n{name}"]) as i:
            yield self.body.at(self.v[name], self.body.mul(i, 4 * width)), i

    def _element(self, name: str, number: Value) -> Value:
        return self.body.load_i64(self.body.at(self.v[name], self.body.mul(number, 8)))

    def _store(self, value: Value, place: Value) -> None:
        self.body.b.store(value, self.body.at(self.v["words"], self.body.mul(place, 8)))

    def _add(self, place: Value, number: Value) -> None:
        word = self.body.at(self.v["words"], self.body.mul(place, 8))
        self.body.b.store(self.body.add(self.body.load_i64(word), number), word)
