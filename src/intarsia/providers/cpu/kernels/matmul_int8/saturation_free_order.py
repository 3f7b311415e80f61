"""Products of bytes by VPMADDUBSW that cannot saturate: the order in which constant weights are summed proves it.

VPMADDUBSW adds two products of an unsigned and a signed byte in 16 bits. These hold 255 times 128 of either sign, so sums are
exact where the positive weights that meet in 16 bits add up to 128 at most, and the negative ones to -128 at least. So for each
panel of B its rows, groups of four numbers of k, are sorted:

- two rows whose sums fit in 16 bits together are neighbours: five instructions instead of six, and of eight by 16-bit words;
- a row that fits by itself is alone;
- a row that does not fit becomes two, of its even and of its odd numbers, which always fit, and may have neighbours.

Where A's numbers of a row lie is read from a table. A panel begins with a cache line: int32, where its rows begin, zeros, and
16 ones of 16 bits, which widen sums and have no register. For each tap follow int32 (rows with neighbours, rows, each row's
place in A), filled up to a cache line; then the rows, int8 [columns][4]. A last group that is shorter is read with numbers
before it, which meet zeros.
"""

from __future__ import annotations

import numpy as np

from intarsia.codegen.builder.kernel_body import Body, Value
from intarsia.codegen.elementwise.element_types import I8, I16, I32
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.cached_kernel_text import cached_text
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.cpu.kernels.common.microkernel import Micro, dispatched
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.matmul.vnni_layout import LINE_NBYTES
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import GROUP, SUMS
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import FLIP

_ONES, _TABLE = 32, LINE_NBYTES  # where they are in a panel
_MOST = 128  # what weights of one sign add up to in 16 bits
_BLOCK = 64  # rows among which a neighbour is looked for
_NEIGHBOUR, _ALONE = 0.64, 0.8  # of the time that a row takes by words, measured on a Zen 3
_WORTH = 0.95  # of the time by words
_SAMPLE = 8  # panels by which is estimated


@dataclass(frozen=True)
class Ordered:
    """Rows of weights, those of one tap of one panel side by side; `counts` and `neighbours` are int [panels, taps].

    Attributes:
        counts: how many rows there are.
        neighbours: how many of them, from the first on, have a neighbour.
        places: where each row's numbers are along k.
        rows: int8 [rows, 4, columns of a panel].
    """

    counts: np.ndarray
    neighbours: np.ndarray
    places: np.ndarray
    rows: np.ndarray


def pays(values: np.ndarray, tile: Tile) -> bool:
    """Whether int8 weights [taps, K, N] are multiplied faster so than by words, by some of their panels."""
    taps, k, n = values.shape
    if k < GROUP or n < tile.width:
        return False
    step = max(1, n // tile.width // _SAMPLE) * tile.width
    starts = np.arange(0, n - tile.width + 1, step)
    found = ordered(values[:, :, (starts[:, None] + np.arange(tile.width)).reshape(-1)], tile.width)
    twos = int(found.neighbours.sum())
    time = _NEIGHBOUR * twos + _ALONE * (len(found.rows) - twos)
    return bool(time < _WORTH * len(starts) * taps * (k / GROUP))


def pack_ordered(values: np.ndarray, tile: Tile) -> np.ndarray:
    """Pack int8 [taps, K, N]: uint8 [panels, bytes of the longest]."""
    found, n = ordered(values, tile.width), values.shape[-1]
    panels, first = [], 0
    for panel, (counts, neighbours) in enumerate(zip(found.counts, found.neighbours, strict=True)):
        last = first + counts.sum()
        columns = min(tile.width, -(-(n - panel * tile.width) // tile.lanes) * tile.lanes)
        panels.append(_panel(counts, neighbours, found.places[first:last], found.rows[first:last, :, :columns]))
        first = last
    out = aligned_zeros((len(panels), max(map(len, panels))), np.dtype(np.uint8))
    for row, made in zip(out, panels, strict=True):
        row[: len(made)] = made
    return out


def _panel(counts: np.ndarray, neighbours: np.ndarray, places: np.ndarray, rows: np.ndarray) -> np.ndarray:
    table: list[np.ndarray] = []
    for each, count, where in zip(neighbours, counts, np.split(places, np.cumsum(counts)[:-1]), strict=True):
        table += [np.array([each, count]), where]
    length = sum(map(len, table))
    nbytes = _TABLE + -(-4 * length // LINE_NBYTES) * LINE_NBYTES
    head = np.zeros(nbytes // 4, np.int32)
    head[0] = nbytes
    head[_ONES // 4 : _TABLE // 4] = 0x00010001
    head[_TABLE // 4 : _TABLE // 4 + length] = np.concatenate(table)
    body = np.zeros(-(-rows.size // LINE_NBYTES) * LINE_NBYTES, np.uint8)
    body[: rows.size] = np.moveaxis(rows, 1, 2).reshape(-1).view(np.uint8)
    return np.concatenate([head.view(np.uint8), body])


def ordered(values: np.ndarray, width: int) -> Ordered:
    """The rows of weights [taps, K, N] in panels of so many columns."""
    taps, k, n = values.shape
    panels, places = -(-n // width), np.minimum(np.arange(0, k, GROUP), k - GROUP)
    filled = np.zeros((taps, k, panels * width), np.int8)
    filled[..., :n] = values
    grouped = filled[:, places[:, None] + np.arange(GROUP)]
    grouped[:, -1, : -k % GROUP] = 0
    rows = grouped.reshape(taps, len(places), GROUP, panels, width).transpose(3, 0, 1, 2, 4).reshape(-1, GROUP, width)
    owner, where = np.repeat(np.arange(panels * taps), len(places)), np.tile(places, panels * taps)
    whole = _fit(rows)
    even, odd = rows[~whole], rows[~whole]
    even[:, 1::2], odd[:, ::2] = 0, 0
    rows = np.concatenate([rows[whole], even, odd])
    owner, where = (np.concatenate([x[whole], x[~whole], x[~whole]]) for x in (owner, where))
    order = np.argsort(owner, kind="stable")
    rows, owner, where = rows[order], owner[order], where[order]
    counts = np.bincount(owner, minlength=panels * taps)
    partner = _partners(rows, owner, counts)
    alone, index = partner < 0, np.arange(len(rows))
    leader = np.where(alone, index, np.minimum(partner, index))
    order = np.lexsort((index, leader, alone, owner))
    neighbours = np.bincount(owner[~alone], minlength=panels * taps)
    return Ordered(counts.reshape(panels, taps), neighbours.reshape(panels, taps), where[order], rows[order])


def _sums(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums of the positive and of the negative weights that meet in one 16-bit sum: [rows, sums]."""
    wide = rows.astype(np.int16)
    above, below = (side[:, ::2] + side[:, 1::2] for side in (np.maximum(wide, 0), np.maximum(-wide, 0)))
    return above.reshape(len(rows), -1), below.reshape(len(rows), -1)


def _fit(rows: np.ndarray) -> np.ndarray:
    """Which rows [rows, 4, columns] are exact by themselves."""
    above, below = _sums(rows)
    return np.asarray((above <= _MOST).all(1) & (below <= _MOST).all(1))


def _partners(rows: np.ndarray, owner: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The index of the row of the same owner that each is exact together with, or -1; owners' rows are side by side."""
    above, below = _sums(rows)
    start = (np.cumsum(counts) - counts)[owner]
    place, count = np.arange(len(rows)) - start, counts[owner]
    partner = np.full(len(rows), -1)
    for distance in range(1, _BLOCK):
        first = np.flatnonzero(partner < 0)
        other = place[first] ^ distance
        first = first[(place[first] < other) & (other < count[first])]
        second = start[first] + (place[first] ^ distance)
        first, second = first[partner[second] < 0], second[partner[second] < 0]
        fits = (above[first] + above[second] <= _MOST).all(1) & (below[first] + below[second] <= _MOST).all(1)
        partner[first[fits]], partner[second[fits]] = second[fits], first[fits]
    return partner


# --- the micro-kernel ---------------------------------------------------------------------------------------------


@cached_text
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
        self.bytes, self.halves = ir_builder.VectorType(I8, 4 * lanes), ir_builder.VectorType(I16, 2 * lanes)
        self.words = ir_builder.VectorType(I32, lanes)

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
        return self.body.b.sext(self.body.b.load(place, typ=I32, align=4), ir_builder.IntType(64))

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
        kind = ir_builder.FunctionType(self.words, [self.halves, self.ones.type])
        return body.opaque(b.add(sums, b.asm(kind, "vpmaddwd ($2), $1, $0", "=x,x,r", [halves, self.ones])))
