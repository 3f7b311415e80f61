"""Native code that puts what a tape computed into the memory of a state: see `SETTLE_FIELDS` of `codegen.binder`.

A state's words that are the same for all sizes are there from its beginning; so only those are written that follow from sizes,
lie in the arena, or are the addresses of other words.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from intarsia.codegen import ir
from intarsia.codegen.binder import SETTLE_FIELDS
from intarsia.codegen.body import Body, Value

_POINTERS = "words tables registers places serial table template restored stores arena offsets added leased bases".split()
_ROW_NBYTES, _SERIAL_NBYTES = 32, 16  # of the executor's table: bytes of a row, and where it says that one thread runs the step


def write_settle(body: Body) -> None:
    _Settling(body).write()


def index(body: Body, pointer: Value, number: int) -> Value:
    """Element of a list of indices."""
    return body.b.sext(body.b.load(body.at(pointer, 4 * number), typ=ir.IntType(32), align=4), ir.IntType(64))


class _Settling:
    def __init__(self, body: Body) -> None:
        self.body = body
        self.v = {name: body.load_i64(body.args[0], i) for i, name in enumerate(SETTLE_FIELDS)}
        self.v |= {name: body.pointer(self.v[name]) for name in _POINTERS}

    def write(self) -> None:
        body, v = self.body, self.v
        with self._rows("restored", 1) as (entry, _):
            place = index(body, entry, 0)
            self._store(self._element("template", place), place)
        with self._rows("stores", 2) as (entry, _):
            self._store(self._element("registers", index(body, entry, 1)), index(body, entry, 0))
        with self._rows("arena", 2) as (entry, i):
            offset = self._element("offsets", i)
            self._store(body.add(self._element("places", index(body, entry, 1)), offset), index(body, entry, 0))
        with self._rows("added", 2) as (entry, _):
            self._add(index(body, entry, 0), self._element("registers", index(body, entry, 1)))
        with self._rows("leased", 2) as (entry, _):
            self._add(index(body, entry, 0), self._element("bases", index(body, entry, 1)))
        tables = body.at(v["words"], body.mul(v["count"], 8))
        body.copy(v["tables"], tables, body.mul(body.sub(v["used"], v["count"]), 8))
        with body.loop(0, v["nsteps"]) as i:
            row = body.at(v["table"], body.mul(i, _ROW_NBYTES), _SERIAL_NBYTES)
            body.b.store(self._element("serial", i), row)
        body.b.ret_void()

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
