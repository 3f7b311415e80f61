"""Products of bytes by VPMADDUBSW that cannot saturate: the order in which constant weights are summed proves it.

VPMADDUBSW adds two products of an unsigned and a signed byte in 16 bits. These hold 255 times 128 of either sign, so sums are
exact where the positive weights that meet in 16 bits add up to 128 at most, and the negative ones to -128 at least. So for each
panel of B its rows, groups of four numbers of k, are sorted:

- two rows whose sums fit in 16 bits together are neighbours: five instructions instead of six, and of eight by 16-bit words;
- a row that fits by itself is alone;
- a row that does not fit becomes two, of its even and of its odd numbers, which always fit, and may have neighbours.

Where A's numbers of a row lie is read from a table. A panel begins with a cache line: int32, where its rows begin, zeros, and 16
ones of 16 bits, which widen sums and have no register. For each tap follow int32 (rows with neighbours, rows, each row's place in
A), filled up to a cache line; then the rows, int8 [columns][4]. A last group that is shorter is read with numbers before it, which
meet zeros.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from intarsia.codegen import ir
from intarsia.codegen.body import Body, Value
from intarsia.codegen.byte_kernel import FLIP, GROUP, SUMS
from intarsia.codegen.byte_words import hidden
from intarsia.codegen.emit import I8, I16, I32
from intarsia.codegen.engine import KernelText
from intarsia.codegen.kept_text import kept
from intarsia.codegen.microkernel import Micro, Tile, dispatched
from intarsia.codegen.pack import aligned_zeros
from intarsia.codegen.strips import LINE_NBYTES
from intarsia.codegen.target import Target
from intarsia.graph.dtypes import DType
from intarsia.records import dataclass

_ONES, _TABLE = 32, LINE_NBYTES  # where they are in a panel
_MOST = 128  # what weights of one sign add up to in 16 bits
_BLOCK = 64  # rows among which a neighbour is looked for
_NEIGHBOUR, _ALONE = 0.64, 0.8  # of the time that a row takes by words, measured on a Zen 3
_WORTH = 0.95  # of the time by words
_SAMPLE = 8  # panels by which is estimated


@dataclass(frozen=True)
class _Tap:
    """The rows of one tap of one panel.

    Attributes:
        places: of each row's numbers, along k.
        neighbours: how many rows, from the first on, come in twos.
        rows: int8 [rows, columns, 4].
    """

    places: np.ndarray
    neighbours: int
    rows: np.ndarray


def pays(values: np.ndarray, tile: Tile) -> bool:
    """Whether int8 weights [taps, K, N] are multiplied faster so than by words, by some of their panels."""
    taps, k, n = values.shape
    if k < GROUP or n < tile.width:
        return False
    starts = range(0, n - tile.width + 1, max(1, n // tile.width // _SAMPLE) * tile.width)
    time = 0.0
    for start in starts:
        for tap in _ordered(values[:, :, start : start + tile.width]):
            time += _NEIGHBOUR * tap.neighbours + _ALONE * (len(tap.rows) - tap.neighbours)
    return time < _WORTH * len(starts) * taps * (k / GROUP)


def pack_ordered(values: np.ndarray, tile: Tile) -> np.ndarray:
    """Pack int8 [taps, K, N]: uint8 [panels, bytes of the longest]."""
    panels = []
    for start in range(0, values.shape[-1], tile.width):
        columns = values[:, :, start : start + tile.width]
        panels.append(_panel(columns, -(-columns.shape[-1] // tile.lanes) * tile.lanes))
    out = aligned_zeros((len(panels), max(map(len, panels))), np.dtype(np.uint8))
    for row, panel in zip(out, panels, strict=True):
        row[: len(panel)] = panel
    return out


def _panel(values: np.ndarray, width: int) -> np.ndarray:
    taps = list(_ordered(values))
    table = [np.array([tap.neighbours, len(tap.rows), *tap.places], np.int32) for tap in taps]
    count = sum(map(len, table))
    nbytes = _TABLE + -(-4 * count // LINE_NBYTES) * LINE_NBYTES
    head = np.zeros(nbytes // 4, np.int32)
    head[0] = nbytes
    head[_ONES // 4 : _TABLE // 4] = 0x00010001
    head[_TABLE // 4 : _TABLE // 4 + count] = np.concatenate(table)
    rows = np.concatenate([tap.rows for tap in taps])
    filled = np.zeros((len(rows), width, GROUP), np.int8)
    filled[:, : rows.shape[1]] = rows
    length = -(-filled.nbytes // LINE_NBYTES) * LINE_NBYTES
    body = np.zeros(length, np.uint8)
    body[: filled.nbytes] = filled.reshape(-1).view(np.uint8)
    return np.concatenate([head.view(np.uint8), body])


def _ordered(values: np.ndarray) -> Iterator[_Tap]:
    """The rows of weights [taps, K, columns of one panel]."""
    _, k, columns = values.shape
    places = np.minimum(np.arange(0, k, GROUP), k - GROUP)
    for tap in values:
        rows = np.empty((len(places), GROUP, columns), np.int8)
        for i in range(GROUP):
            rows[:, i] = tap[places + i]
        rows[-1, : -k % GROUP] = 0
        whole = _fit(rows)
        even, odd = rows[~whole], rows[~whole]
        even[:, 1::2], odd[:, ::2] = 0, 0
        rows = np.concatenate([rows[whole], even, odd])
        where = np.concatenate([places[whole], places[~whole], places[~whole]])
        order, neighbours = _paired(rows)
        yield _Tap(where[order], neighbours, np.ascontiguousarray(np.moveaxis(rows[order], 1, 2)))


def _sums(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What positive and negative weights add up to where a row's products are summed: [rows, sums]."""
    wide = rows.astype(np.int16)
    return tuple((side[:, ::2] + side[:, 1::2]).reshape(len(rows), -1) for side in (np.maximum(wide, 0), np.maximum(-wide, 0)))  # type: ignore[return-value]


def _fit(rows: np.ndarray) -> np.ndarray:
    """Which rows [rows, 4, columns] are exact by themselves."""
    above, below = _sums(rows)
    return (above <= _MOST).all(1) & (below <= _MOST).all(1)


def _paired(rows: np.ndarray) -> tuple[np.ndarray, int]:
    """An order of the rows, and how many of them, from the first on, are neighbours that are exact together."""
    above, below = _sums(rows)
    partner = np.full(len(rows), -1)
    for distance in range(1, _BLOCK):
        first = np.flatnonzero(partner < 0)
        second = first ^ distance
        first, second = first[(first < second) & (second < len(rows))], second[(first < second) & (second < len(rows))]
        first, second = first[partner[second] < 0], second[partner[second] < 0]
        if not len(first):
            continue
        fits = (above[first] + above[second] <= _MOST).all(1) & (below[first] + below[second] <= _MOST).all(1)
        partner[first[fits]], partner[second[fits]] = second[fits], first[fits]
    leading = np.flatnonzero(partner > np.arange(len(rows)))
    twos = np.stack([leading, partner[leading]], 1).reshape(-1)
    return np.concatenate([twos, np.flatnonzero(partner < 0)]), len(twos)


# --- the micro-kernel ---------------------------------------------------------------------------------------------


@kept
def ordered_micro_text(a: DType, target: Target, tile: Tile) -> KernelText:
    """The micro-kernels for rows of type `a` (UINT8, or INT8, which is read as a + 128): as `microkernel.PARAMETERS` says, B a
    panel of `pack_ordered`, which says itself how long it is."""

    def variant(body: Body, tile: Tile, rows: int, vectors: int) -> None:
        _OrderedMicro(body, a, tile.lanes, rows, vectors).emit()

    return dispatched(f"micro_ordered_{a.name.lower()}", tile, target, variant)


class _OrderedMicro(Micro):
    def __init__(self, body: Body, a: DType, lanes: int, rows: int, vectors: int) -> None:
        super().__init__(body, SUMS, lanes, rows, vectors)
        self.flipped, self.sets, self.fetches = a is DType.INT8, 1, False
        self.bytes, self.halves = ir.VectorType(I8, 4 * lanes), ir.VectorType(I16, 2 * lanes)
        self.words = ir.VectorType(I32, lanes)

    def _emit(self) -> None:
        body = self.body
        a, _, b, _, _, taps, ntaps, tile, accumulate, *_ = body.args
        cells = self.rows * self.vectors
        state = [body.zero(SUMS, self.lanes)] * cells + [body.at(b, self._number(b)), body.at(b, _TABLE)]
        self.ones = body.at(b, _ONES)
        with body.carry(0, ntaps, 1, state) as t:
            self.a = body.at(a, body.load_i64(taps, t))
            table = state[-1]
            neighbours, count = self._number(table), self._number(body.at(table, 4))
            state[-1] = body.at(table, 8)
            for first, last, each in ((0, neighbours, 2), (neighbours, count, 1)):
                with body.carry(first, last, each, state):
                    self._rows(state, each)
        sums = state[:cells]
        with body.carry_if(accumulate, sums):
            sums[:] = [body.b.add(body.b.load(self._tile(tile, i), typ=self.words), x) for i, x in enumerate(sums)]
        for index, value in enumerate(sums):
            body.b.store(value, self._tile(tile, index))

    def _number(self, place: Value) -> Value:
        return self.body.b.sext(self.body.b.load(place, typ=I32, align=4), ir.IntType(64))

    def _rows(self, state: list[Value], count: int) -> None:
        """`count` rows of B, whose sums fit in 16 bits together."""
        body, lda = self.body, self.body.args[1]
        pb, table = state[-2:]
        nbytes = self.lanes * self.itemsize
        columns = [
            [body.load(body.at(pb, (u * self.vectors + j) * nbytes), SUMS, self.lanes) for j in range(self.vectors)]
            for u in range(count)
        ]
        places = [body.at(self.a, self._number(body.at(table, 4 * u))) for u in range(count)]
        for i in range(self.rows):
            fours = [self._four(body.at(place, body.mul(lda, i)) if i else place) for place in places]
            for j in range(self.vectors):
                at = i * self.vectors + j
                state[at] = self._added(state[at], [(x, columns[u][j]) for u, x in enumerate(fours)])
        state[-2:] = [body.at(pb, count * self.vectors * nbytes), body.at(table, 4 * count)]

    def _four(self, place: Value) -> Value:
        """Four unsigned bytes of A in all lanes."""
        found = self.body.broadcast(place, SUMS, self.lanes)
        return self.body.b.xor(found, self.body.constant(FLIP, SUMS, self.lanes)) if self.flipped else found

    def _added(self, sums: Value, factors: list[tuple[Value, Value]]) -> Value:
        """Sums to which the products are added, four of a lane for each factor."""
        body, b = self.body, self.body.b
        multiply = body.intrinsic("llvm.x86.avx2.pmadd.ub.sw", self.halves, [self.bytes] * 2)
        found = [b.call(multiply, [b.bitcast(x, self.bytes), b.bitcast(y, self.bytes)]) for x, y in factors]
        halves = found[0] if len(found) == 1 else b.add(*found)
        kind = ir.FunctionType(self.words, [self.halves, self.ones.type])
        return hidden(body, b.add(sums, b.asm(kind, "vpmaddwd ($2), $1, $0", "=x,x,r", [halves, self.ones])))
