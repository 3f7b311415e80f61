"""How much of a step's work its threads claim in pieces (`work_stealing`)."""

from __future__ import annotations

from intarsia.graph import trace

MOST_PARTS = 16
_PIECE_PRODUCTS = 1_200_000  # multiply-adds of a piece: some 20 microseconds
_LEAST_PRODUCTS = 300_000
_PIECES = 6  # for each thread: so many are enough, if they are smaller than that
_MOST_PIECES = 12  # for each thread: the tail is not cut where a long step is computed in slices
_LEAST_UNITS = 4  # tiles of a panel: fewer would wait for its lines
_SMALL_ROW = 16  # units that are not parted: a panel's lines come from memory for every piece of it
_MOST_PRODUCTS = 1 << 40  # of a step: in slices it would be called so often that claims do not fit 16 bits


def tail(units: int, products: int, threads: int, rows: tuple[int, ...] = (), least: int = _LEAST_UNITS) -> tuple[int, int]:
    """How many units are claimed in pieces, and the units of a piece.

    Args:
        products: multiply-adds of a unit.
        rows: numbers of units that belong together, ascending: pieces are whole ones of the largest that is not too large.
        least: units of a piece.
    """
    claimed = units * 3 // 8
    if threads == 1 or not claimed or units * products > _MOST_PRODUCTS:
        return 0, 1
    wanted = trace.least(_PIECE_PRODUCTS / trace.most(1, products), claimed / (_PIECES * threads))
    piece = trace.most(least, round(wanted), -(-_LEAST_PRODUCTS // trace.most(1, products)))
    for row in rows:
        if row <= trace.most(2 * piece, _SMALL_ROW):
            piece = row * trace.most(1, round(piece / row))
    count = trace.least(_MOST_PIECES, claimed // (threads * piece))
    return (count * threads * piece, piece) if count > 1 else (0, 1)
