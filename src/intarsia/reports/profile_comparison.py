"""Two profiles beside each other: what became faster, and what slower, by provider, operator, layer and kernel."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from intarsia.graph.formats.atomic_write import replace_text
from intarsia.lazy_dataclass import dataclass
from intarsia.partition.text_table import format_table

if TYPE_CHECKING:
    from intarsia.reports.profile_report import ProfileReport, Row


@dataclass(frozen=True)
class ComparedRow:
    """One line of a table: milliseconds of a mean run, before and after (None: there was nothing of that name)."""

    name: str
    before: float | None
    after: float | None

    @property
    def change(self) -> float:
        """Milliseconds that it takes more."""
        return (self.after or 0.0) - (self.before or 0.0)

    @property
    def ratio(self) -> float | None:
        """Time after by time before; None where one of them has none."""
        return self.after / self.before if self.before and self.after is not None else None


@dataclass(frozen=True)
class ProfileComparison:
    """Prints itself as tables; `to_dict` gives the same as data, `to_html` a page.

    Attributes:
        before, after: the two profiles. What has the same name in both is compared: kernels say their sizes in it.
    """

    before: ProfileReport
    after: ProfileReport

    @property
    def headline(self) -> str:
        """Both times of a run, in a line."""
        a, b = self.before.milliseconds, self.after.milliseconds
        return f"before {a:.3f} ms, after {b:.3f} ms a run: {b - a:+.3f} ms, {_ratio(b / a if a else None)}"

    def tables(self, depth: int = 0) -> dict[str, list[ComparedRow]]:
        """By what they divide time: the largest change first. `depth`: as `ProfileReport.by_layer`."""
        before, after = self.before.tables(depth), self.after.tables(depth)
        found = {title: _compared(before[title], after[title]) for title in before}
        return {title: rows for title, rows in found.items() if rows}

    def text_tables(self, depth: int = 0) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
        """Title, header and rows of each table, as texts."""
        header = ("name", "before ms", "after ms", "change ms", "ratio")
        return [
            (title, header, [
                (row.name, _ms(row.before), _ms(row.after), f"{row.change:+.4f}", _ratio(row.ratio)) for row in rows
            ])
            for title, rows in self.tables(depth).items()
        ]  # fmt: skip

    def format(self, top: int = 15, depth: int = 0, width: int = 0) -> str:
        """The tables as text; arguments as `ProfileReport.format`."""
        lines = [self.headline]
        for title, header, rows in self.text_tables(depth):
            shown = rows[:top] if top else rows
            more = f"the largest {len(shown)} of {len(rows)} changes:\n" if len(shown) < len(rows) else ""
            lines += ["", more + format_table((title, *header[1:]), shown, width)]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.format()

    def to_dict(self) -> dict[str, Any]:
        """All of it in dicts, lists, strings and numbers."""
        tables = {
            title.replace(" ", "_"): [{**asdict(row), "change": row.change, "ratio": row.ratio} for row in rows]
            for title, rows in self.tables().items()
        }
        return {"before_milliseconds": self.before.milliseconds, "after_milliseconds": self.after.milliseconds, **tables}

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent)

    def to_html(self, *, title: str = "") -> str:
        """One HTML page that needs nothing else: kernels of both profiles in a table that sorts, groups and totals.

        `Explanation.to_html` with both profiles shows the graph beside it.
        """
        from intarsia.reports.explain import Explanation
        from intarsia.reports.page.document import document
        from intarsia.reports.page.page_data import comparison_data

        return document(comparison_data(Explanation((), (), ()), self.before, self.after, title))

    def save_html(self, path: str | os.PathLike[str], *, title: str = "") -> None:
        """Write `to_html` to a file. Raises NotWritten where that cannot be."""
        replace_text(path, self.to_html(title=title))

    def _repr_html_(self) -> str:
        """For notebooks: the tables, each in a box that opens."""
        from intarsia.reports.page.notebook import comparison_html

        return comparison_html(self)


def _compared(before: Sequence[Row], after: Sequence[Row]) -> list[ComparedRow]:
    a, b = _times(before), _times(after)
    rows = [ComparedRow(name, a.get(name), b.get(name)) for name in dict.fromkeys([*a, *b])]
    return sorted(rows, key=lambda row: -abs(row.change))


def _times(rows: Sequence[Row]) -> Mapping[str, float]:
    return {row.name: row.milliseconds for row in rows}


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"x{value:.2f}"
