"""Plain text tables."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.printable import visible

_NARROWEST = 12  # a column that is wider is made this narrow before lines are left too long
_GAP = "  "


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int = 0) -> str:
    """Left-aligned columns, two spaces apart, with a rule under the header; names in them are `visible`.

    Args:
        header, rows: the cells.
        width: most characters of a line; the cells of the widest columns are shortened inside. 0: any number. A table
            of many narrow columns may be wider.
    """
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = [max(len(row[c]) for row in [header, *rows]) for c in range(len(header))]
    if width:
        widths = _fitted(widths, width - len(_GAP) * (len(header) - 1))
    lines = [
        _GAP.join(_shortened(cell, most).ljust(most) for cell, most in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def _fitted(widths: Sequence[int], total: int) -> list[int]:
    """Widths of columns of which the widest are as narrow as it takes."""
    found = list(widths)
    while sum(found) > total:
        widest = max(found)
        if widest <= _NARROWEST:
            break
        columns = [i for i, w in enumerate(found) if w == widest]
        below = max([w for w in found if w < widest], default=0)
        excess = sum(found) - total
        least = max(_NARROWEST, below, widest - -(-excess // len(columns)))
        for i in columns:
            found[i] = least
    return found


def _shortened(cell: str, most: int) -> str:
    if len(cell) <= most:
        return cell
    front = (most - 1) // 4  # names begin alike: what tells them apart is at their ends
    return f"{cell[:front]}…{cell[len(cell) - (most - 1 - front) :]}"
