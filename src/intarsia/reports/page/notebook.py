"""What notebooks show of a session and its reports: short HTML without a script, all of its texts escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape as escape_markup
from typing import TYPE_CHECKING

from intarsia.printable import visible

if TYPE_CHECKING:
    from intarsia.reports.explain import Explanation
    from intarsia.reports.profile_comparison import ProfileComparison
    from intarsia.reports.profile_report import ProfileReport
    from intarsia.session.inference_session import InferenceSession

MOST_ROWS = 200
_BOX = "max-height:24em;overflow:auto"
_CELL = "text-align:left;vertical-align:top"


def escape(text: str) -> str:
    """A model's text as HTML."""
    return escape_markup(visible(text))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In a box that scrolls; the first `MOST_ROWS` rows."""
    head = "".join(f'<th style="{_CELL}">{escape(cell)}</th>' for cell in header)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{escape(cell)}</td>' for cell in row) + "</tr>" for row in rows[:MOST_ROWS]
    )
    more = f"<p>the first {MOST_ROWS} of {len(rows)} rows</p>" if len(rows) > MOST_ROWS else ""
    return f'<div style="{_BOX}"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}</div>'


def details(title: str, content: str, *, is_open: bool = False) -> str:
    """A part that opens where it is clicked."""
    return f"<details{' open' if is_open else ''}><summary>{escape(title)}</summary>{content}</details>"


def explanation_html(found: Explanation) -> str:
    """Nodes by provider, and a row for each node."""
    counts = ", ".join(f"{name}: {count}" for name, count in found.counts.items())
    moved = f"; {found.copies} copies between memories, {found.copied_nbytes:,} bytes a run" if found.copies else ""
    rows = [
        (node.name, node.op, node.provider or "-", node.kind, node.kernel, "; ".join(
            [node.note] * bool(node.note) + [f"{name}: {no.reason}" for name, no in node.refusals.items() if no.code != "taken"]
        ))
        for node in found.nodes
    ]  # fmt: skip
    shown = table(("node", "operator", "provider", "kind", "kernel", "why not another provider"), rows)
    return f"<p>Nodes by provider: {escape(counts + moved)}</p>{details(f'{len(rows)} nodes', shown)}"


def profile_html(report: ProfileReport) -> str:
    """A run's time, and a table for each way to divide it."""
    times = report.run_milliseconds
    lines = [f"{len(times)} runs: {report.milliseconds:.3f} ms, the fastest {min(times):.3f} ms"]
    lines += [report.overhead] if report.overhead else []
    parts = [
        details(title, table(header, rows), is_open=title == "by operator")
        for title, header, rows in report.text_tables() if rows
    ]  # fmt: skip
    return "".join(f"<p>{escape(line)}</p>" for line in (*lines, *report.remarks)) + "".join(parts)


def comparison_html(found: ProfileComparison) -> str:
    """Both times, and a table for each way to divide them."""
    parts = [details(title, table(header, rows), is_open=title == "by operator") for title, header, rows in found.text_tables()]
    return f"<p>{escape(found.headline)}</p>" + "".join(parts)


def session_html(session: InferenceSession) -> str:
    """Inputs, outputs and providers; nothing is compiled for it."""
    rows = [
        (which, info.name, info.type, "x".join("?" if size is None else str(size) for size in info.shape or ()) or "scalar")
        for which, found in (("input", session.get_inputs()), ("output", session.get_outputs())) for info in found
    ]  # fmt: skip
    providers = ", ".join(session.get_providers())
    return f"<p><b>InferenceSession</b> on {escape(providers)}</p>{table(('', 'name', 'type', 'shape'), rows)}"
