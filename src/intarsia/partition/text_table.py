"""Plain text tables."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.printable import visible


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns, two spaces apart, with a rule under the header; names in them are `visible`."""
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = [max(len(row[c]) for row in [header, *rows]) for c in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [header, *rows]]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
