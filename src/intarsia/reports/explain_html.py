"""An explanation as one HTML page: a row per node, with the values between nodes drawn beside them.

The page loads nothing, and its content security policy allows only its own script (by hash) and styles. Every text that
comes from a model is escaped.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape as escape_markup
from typing import TYPE_CHECKING

from intarsia.printable import visible, visible_lines

if TYPE_CHECKING:
    from intarsia.reports.explain import Explanation, NodeExplanation
    from intarsia.reports.profile_report import ProfileReport

_COLOURS = ("#2f6fb0", "#d1762a", "#3d8f4f", "#8b5bb0", "#b8473f", "#2b9a99", "#94802a", "#c25d94")
_FOLDED = "#9a9a9a"
_LANES = 14  # values drawn beside each other; further ones are left to the names in the row
_LANE_WIDTH, _ROW_HEIGHT = 9, 26

_STYLE = """
body{font:14px/1.4 system-ui,sans-serif;margin:1.5em;color:#222;background:#fff}
h1{font-size:1.3em}table{border-collapse:collapse;width:100%}
th{text-align:left;position:sticky;top:0;background:#fff;border-bottom:2px solid #999;padding:4px 8px}
td{padding:0 8px;border-bottom:1px solid #eee;vertical-align:top}td.n{text-align:right;white-space:nowrap}
td.g{padding:0;border:0;line-height:0}svg{display:block}
code{font:12px/1.4 ui-monospace,monospace;overflow-wrap:anywhere}
.p{display:inline-block;border-radius:3px;color:#fff;padding:0 6px;font-size:12px;white-space:nowrap}
.bar{display:block;height:3px;background:#c9832f}details{font-size:13px}summary{cursor:pointer;color:#555}
form{margin:1em 0;display:flex;gap:1em;flex-wrap:wrap}.hidden{display:none}.dim{color:#777}
@media(prefers-color-scheme:dark){body,th{background:#181818;color:#ddd}td{border-color:#333}.dim,summary{color:#999}}
"""

_SCRIPT = """
const form=document.querySelector('form'),count=document.getElementById('count');
const rows=[...document.querySelectorAll('tbody.nodes>tr')];
function matches(row,text,p,k,r){const d=row.dataset;
return (!text||row.textContent.toLowerCase().includes(text))&&(!p||d.provider===p)&&(!k||d.kind===k)&&
(!r||d.codes.split(' ').includes(r));}
function apply(){const text=form.text.value.toLowerCase();let shown=0;
for(const row of rows){const ok=matches(row,text,form.provider.value,form.kind.value,form.refused.value);
row.classList.toggle('hidden',!ok);shown+=ok;}
count.textContent=shown+' of '+rows.length+' nodes';}
form.addEventListener('input',apply);form.addEventListener('submit',e=>e.preventDefault());apply();
"""


def escape(text: str) -> str:
    """A model's text in the page."""
    return escape_markup(visible(text))


def page(found: Explanation, profile: ProfileReport | None, title: str) -> str:
    """The page; `profile` adds a column of times."""
    heading = escape(f"Placement of {title}" if title else "Placement of a model")
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    colours = _colours(found)
    columns = [
        "",
        "node",
        "operator",
        "provider",
        "kind",
        "kernel",
        "operations",
        "bytes",
        *(["time"] if profile else []),
        "why",
    ]
    head = "".join(f"<th>{name}</th>" for name in columns)
    body = "\n".join(_rows(found, profile, colours))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width"><title>{heading}</title><style>{_STYLE}</style></head><body>\n'
        f"<h1>{heading}</h1>\n{_summary(found, colours)}\n{_filters(found)}\n"
        f'<table><thead><tr>{head}</tr></thead><tbody class="nodes">\n{body}\n</tbody></table>\n{_steps(found)}\n'
        f"<script>{_SCRIPT}</script></body></html>\n"
    )


def _colours(found: Explanation) -> dict[str, str]:
    names = dict.fromkeys([*found.providers, *(node.provider for node in found.nodes)])
    return {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(n for n in names if n)} | {"": _FOLDED}


def _badge(name: str, colours: Mapping[str, str]) -> str:
    return f'<span class="p" style="background:{colours.get(name, _FOLDED)}">{escape(name or "none")}</span>'


def _summary(found: Explanation, colours: Mapping[str, str]) -> str:
    counts = " ".join(f"{_badge(n if n in colours else '', colours)} {escape(n)}: {c} nodes" for n, c in found.counts.items())
    moved = f"{found.copies} copies between memories, {found.copied_nbytes:,} bytes in a run"
    return f"<p>{counts}</p><p>{moved if found.copies else 'No copies between memories.'}</p>"


def _filters(found: Explanation) -> str:
    codes = sorted({refusal.code for node in found.nodes for refusal in node.refusals.values()})
    choices = [
        ("provider", sorted({node.provider for node in found.nodes if node.provider})),
        ("kind", sorted({node.kind for node in found.nodes})), ("refused", codes),
    ]  # fmt: skip
    selects = []
    for name, values in choices:
        options = "".join(f'<option value="{escape(v)}">{escape(v)}</option>' for v in values)
        selects.append(f'<label>{name} <select name="{name}"><option value="">any</option>{options}</select></label>')
    return f'<form><label>text <input name="text" type="search"></label>{"".join(selects)}<span id="count"></span></form>'


def _rows(found: Explanation, profile: ProfileReport | None, colours: Mapping[str, str]) -> list[str]:
    times = profile.node_times() if profile else {}
    nodes = [_of_the_runs(node, profile) for node in found.nodes]
    most = max((node.flop for node in nodes), default=0) or 1
    rows = []
    for node, drawing in zip(nodes, _drawings(nodes, colours), strict=True):
        codes = " ".join(dict.fromkeys(refusal.code for refusal in node.refusals.values()))
        sign = "~" if node.estimated else ""
        flop = f'{sign}{node.flop:,}<span class="bar" style="width:{100 * node.flop / most:.1f}%"></span>' if node.flop else ""
        cells = [
            f'<td class="g">{drawing}</td>', f"<td>{_name(node)}</td>", f"<td><code>{escape(node.op)}</code></td>",
            f"<td>{_badge(node.provider, colours)}</td>", f"<td>{escape(node.kind)}</td>",
            f"<td><code>{escape(node.kernel)}</code></td>", f'<td class="n">{flop}</td>',
            f'<td class="n">{f"{sign}{node.nbytes:,}" if node.nbytes else ""}</td>',
        ]  # fmt: skip
        if profile:
            cells.append(f'<td class="n">{_time(node, times)}</td>')
        cells.append(f"<td>{_reasons(node)}</td>")
        data = f'data-provider="{escape(node.provider)}" data-kind="{escape(node.kind)}" data-codes="{escape(codes)}"'
        rows.append(f"<tr {data}>{''.join(cells)}</tr>")
    return rows


def _of_the_runs(node: NodeExplanation, profile: ProfileReport | None) -> NodeExplanation:
    """With operations and bytes of the sizes that were profiled, beside which the times stand."""
    found = profile.costs.get(node.outputs[0]) if profile is not None and node.outputs else None
    if found is None:
        return node
    return replace(node, flop=found.flop, nbytes=found.nbytes, estimated=found.estimated)


def _name(node: NodeExplanation) -> str:
    name = f"<code>{escape(node.name)}</code>"
    if node.origin in ((), (node.name,)):
        return name
    return f'{name} <span class="dim">from <code>{escape(", ".join(node.origin))}</code></span>'


def _time(node: NodeExplanation, times: Mapping[str, tuple[float, str]]) -> str:
    """The time of the node's kernel, at the first of its nodes."""
    for output in node.outputs:
        if output in times:
            milliseconds, first = times[output]
            return f"{milliseconds:.4f} ms" if first == output else '<span class="dim">in the same kernel</span>'
    return ""


def _reasons(node: NodeExplanation) -> str:
    parts = [escape(node.note)] if node.note else []
    if node.refusals:
        items = [
            f"<li><b>{escape(name)}</b> <code>{escape(no.code)}</code>: {escape(no.reason)}"
            + (f'<br><span class="dim">{escape(no.suggestion)}</span>' if no.suggestion else "")
            + "</li>"
            for name, no in node.refusals.items()
        ]
        codes = ", ".join(dict.fromkeys(no.code for no in node.refusals.values()))
        parts.append(f"<details><summary>{len(items)} refused: {escape(codes)}</summary><ul>{''.join(items)}</ul></details>")
    if node.inputs or node.outputs:
        names = f"{', '.join(node.inputs)} → {', '.join(node.outputs)}"
        parts.append(f"<details><summary>values</summary><code>{escape(names)}</code></details>")
    return "".join(parts)


def _steps(found: Explanation) -> str:
    items = "".join(f"<li><code>{escape(step)}</code></li>" for step in found.steps)
    said = "".join(f"<p>{escape(line)}</p>" for line in found.remarks)
    choice = escape_markup(visible_lines(found.choice))
    chosen = f"<h2>providers=&quot;auto&quot;</h2><pre>{choice}</pre>" if choice else ""
    return f"<h2>Steps of a run</h2><ol>{items}</ol>{said}{chosen}"


def _drawings(nodes: Sequence[NodeExplanation], colours: Mapping[str, str]) -> list[str]:
    """For each row a drawing: a dot for the node, lanes for values that were made above and are read here or below."""
    last: dict[str, int] = {}
    for i, node in enumerate(nodes):
        last.update(dict.fromkeys(node.inputs, i))
    lanes: list[str | None] = [None] * _LANES
    colour: dict[str, str] = {}
    width = _LANE_WIDTH * (_LANES + 2)
    pictures = []
    for i, node in enumerate(nodes):
        lines = []
        for lane, value in enumerate(lanes):
            if value is None:
                continue
            end = _ROW_HEIGHT // 2 if last[value] == i else _ROW_HEIGHT
            lines.append(_line(lane, 0, end, colour[value]))
            if value in node.inputs:
                lines.append(_branch(lane, colour[value]))
            if last[value] == i:
                lanes[lane] = None
        own = colours.get(node.provider, _FOLDED)
        for value in node.outputs:
            if last.get(value, -1) > i and None in lanes:
                lane = lanes.index(None)
                lanes[lane], colour[value] = value, own
                lines += [_branch(lane, own), _line(lane, _ROW_HEIGHT // 2, _ROW_HEIGHT, own)]
        dot = f'<circle cx="{_LANE_WIDTH}" cy="{_ROW_HEIGHT // 2}" r="4" fill="{own}"/>'
        pictures.append(f'<svg width="{width}" height="{_ROW_HEIGHT}">{"".join(lines)}{dot}</svg>')
    return pictures


def _line(lane: int, top: int, bottom: int, colour: str) -> str:
    x = _LANE_WIDTH * (lane + 2)
    return f'<line x1="{x}" y1="{top}" x2="{x}" y2="{bottom}" stroke="{colour}" stroke-width="1.5"/>'


def _branch(lane: int, colour: str) -> str:
    x, y = _LANE_WIDTH * (lane + 2), _ROW_HEIGHT // 2
    return f'<line x1="{_LANE_WIDTH}" y1="{y}" x2="{x}" y2="{y}" stroke="{colour}" stroke-width="1.5"/>'
