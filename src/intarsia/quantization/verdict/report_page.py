"""A verdict as one HTML page: a chart of error by layer, and a table of layers with histograms, sorted by any column.

The page loads nothing, and its content security policy allows only its own script (by hash) and styles. Every text that comes
from a model is escaped. The charts are SVG in the page.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Sequence
from html import escape as escape_markup

from intarsia.printable import visible
from intarsia.quantization.verdict.report import Bins, LayerReport, Verdict

_STYLE = """
body{font:14px/1.4 system-ui,sans-serif;margin:1.5em;color:#222;background:#fff}
h1{font-size:1.3em}h2{font-size:1.1em;margin-top:1.5em}
table{border-collapse:collapse;width:100%}td,th{padding:3px 8px;border-bottom:1px solid #ddd;text-align:left}
th{position:sticky;top:0;background:#fff}th button{font:inherit;font-weight:600;border:0;background:none;color:inherit;
cursor:pointer;padding:0;text-align:left}th[aria-sort=ascending] button::after{content:" \\25B2"}
th[aria-sort=descending] button::after{content:" \\25BC"}td.n{text-align:right;white-space:nowrap}
code{font:12px/1.4 ui-monospace,monospace;overflow-wrap:anywhere}.w{color:#a05a00;font-weight:600}.dim{color:#777}
svg{display:block}svg text{font:11px system-ui,sans-serif;fill:currentColor}.axis{stroke:#9995;stroke-width:1}
.q{fill:#2f6fb0}.f{fill:#9a9a9a}.b{fill:#c0504d}.e{fill:#d1762a}.r{stroke:#3d8f4f;stroke-width:1.5}
tr:target{background:#ffe9a8}
@media(prefers-color-scheme:dark){body,th{background:#181818;color:#ddd}td,th{border-color:#333}.w{color:#e6a23c}
tr:target{background:#4a4020}}
"""

_SCRIPT = """
const body=document.querySelector('tbody'),heads=[...document.querySelectorAll('th')];
function key(row,i){const cell=row.cells[i],given=cell.dataset.v;return given===undefined?cell.textContent:+given;}
function sort(i){const head=heads[i],down=head.getAttribute('aria-sort')==='ascending';
heads.forEach(h=>h.removeAttribute('aria-sort'));head.setAttribute('aria-sort',down?'descending':'ascending');
const rows=[...body.rows].map((row,at)=>[key(row,i),at,row]);
rows.sort((a,b)=>{const c=typeof a[0]==='number'?a[0]-b[0]:a[0].localeCompare(b[0]);return (down?-c:c)||a[1]-b[1];});
body.append(...rows.map(row=>row[2]));}
heads.forEach((head,i)=>head.querySelector('button').addEventListener('click',()=>sort(i)));
"""

_WIDTH, _HEIGHT, _LEFT, _TOP = 1000, 220, 60, 10
_FLOOR = 1e-5  # a relative error that is drawn as none
_SMALL = (120, 28)  # a histogram in the table


def page(verdict: Verdict) -> str:
    """The page, in UTF-8."""
    heading = _escape(f"Quantised: {verdict.model}")
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width"><title>{heading}</title><style>{_STYLE}</style></head><body>\n'
        f"<h1>{heading}</h1>\n{_summary(verdict)}\n{_chart(verdict.layers)}\n{_table(verdict.layers)}\n"
        f"<script>{_SCRIPT}</script></body></html>\n"
    )


def _escape(text: str) -> str:
    return escape_markup(visible(text))


def _summary(verdict: Verdict) -> str:
    items = "".join(
        f"<li{' class=w' if line.startswith('warning') else ''}>{_escape(line)}</li>" for line in verdict.lines()
    )
    warning = "" if verdict.within_bound else '<p class="w">The loss is above the requested bound.</p>'
    return f"<p>{_escape(verdict.kind)}: <code>{_escape(verdict.output)}</code></p>{warning}<ul>{items}</ul>"


def _relative(layer: LayerReport) -> float | None:
    """The error as a share of the signal."""
    return None if layer.signal_to_noise_db is None else 10 ** (-layer.signal_to_noise_db / 20)


# The chart


def _chart(layers: Sequence[LayerReport]) -> str:
    """Bars in the order of the model, on a logarithmic scale: higher is worse."""
    errors = [_relative(layer) for layer in layers]
    known = [error for error in errors if error is not None]
    if not known:
        return "<h2>Error by layer</h2><p>No layer could be compared: there is no data, or no value has a counterpart.</p>"
    top = math.ceil(math.log10(max(*known, 10 * _FLOOR)))
    bottom = math.log10(_FLOOR)
    inner = _HEIGHT - 2 * _TOP - 10

    def place(error: float) -> float:
        share = (math.log10(max(error, _FLOOR)) - bottom) / (top - bottom)
        return _TOP + inner * (1 - share)

    lines = []
    for power in range(round(bottom), top + 1):
        y = place(10.0**power)
        lines.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{100 * 10.0**power:g} %</text>')
    step = (_WIDTH - _LEFT) / len(layers)
    for i, (layer, error) in enumerate(zip(layers, errors, strict=True)):
        if error is None:
            continue
        y, x = place(error), _LEFT + i * step
        kind = "f" if not layer.quantized else "b" if error >= 0.1 else "q"
        state = "" if layer.quantized else " (as it was)"
        told = _escape(f"{layer.name}{state}: {100 * error:.3g} %, {layer.signal_to_noise_db:.1f} dB")
        lines.append(
            f'<a href="#layer-{i}"><rect class="{kind}" x="{x:.2f}" y="{y:.1f}" width="{max(step * 0.85, 0.5):.2f}" '
            f'height="{_TOP + inner - y + 1:.1f}"><title>{told}</title></rect></a>'
        )
    return (
        "<h2>Error by layer</h2><p class=dim>The largest relative error of a layer's values, in the order of the model. Blue: "
        "quantised; red: quantised, and off by a tenth or more; grey: as it was, with the error of what it reads.</p>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="100%" role="img" aria-label="error by layer">{"".join(lines)}</svg>'
    )


# The table

_COLUMNS: tuple[tuple[str, Callable[[LayerReport], str]], ...] = (
    ("layer", lambda layer: f"<td><code>{_escape(layer.name)}</code></td>"),
    ("operator", lambda layer: f"<td>{_escape(layer.op_type)}</td>"),
    ("weights", lambda layer: _number(layer.weights, f"{layer.weights:,}")),
    ("error", lambda layer: _optional(_relative(layer), lambda error: f"{100 * error:.3g} %")),
    ("dB", lambda layer: _optional(layer.signal_to_noise_db, lambda level: f"{level:.1f}")),
    ("loss without it", lambda layer: _optional(layer.loss_without, lambda loss: f"{loss:.4g}")),
    ("values", lambda layer: _histogram(layer.values, layer.range, "q")),
    ("differences", lambda layer: _histogram(layer.errors, None, "e")),
    ("", lambda layer: f"<td>{'quantised' if layer.quantized else _escape(layer.reason)}</td>"),
)


def _table(layers: Sequence[LayerReport]) -> str:
    head = "".join(f"<th><button type=button>{name or 'state'}</button></th>" for name, _ in _COLUMNS)
    rows = "\n".join(
        f'<tr id="layer-{i}">{"".join(cell(layer) for _, cell in _COLUMNS)}</tr>' for i, layer in enumerate(layers)
    )
    return (
        "<h2>Layers</h2><p class=dim>Values are those of the layer's last node in floats, with the ends of the range that is "
        "quantised in green; differences are of the quantised values from them. Click a heading to sort.</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"
    )


def _number(value: float, shown: str) -> str:
    return f'<td class="n" data-v="{value!r}">{shown}</td>'


def _optional(value: float | None, show: Callable[[float], str]) -> str:
    return '<td class="n" data-v="Infinity"></td>' if value is None else _number(float(value), show(value))


def _histogram(bins: Bins | None, ends: tuple[float, float] | None, kind: str) -> str:
    """Bars whose heights are roots of counts, so that rare values are seen; sorted by the width of the whole."""
    if bins is None:
        return '<td data-v="Infinity"></td>'
    width, height = _SMALL
    most, step = max(1, *bins.counts), width / len(bins.counts)
    drawn = []
    for i, count in enumerate(bins.counts):
        if count:
            high = max(1.0, height * math.sqrt(count / most))
            drawn.append(f"M{i * step:.1f} {height}v{-high:.1f}h{step:.1f}v{high:.1f}z")
    lines = []
    for end in ends or ():
        x = width * (end - bins.low) / (bins.high - bins.low or 1.0)
        if 0 <= x <= width:
            lines.append(f'<line class="r" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}"/>')
    told = _escape(f"{sum(bins.counts):,} values from {bins.low:.4g} to {bins.high:.4g}")
    return (
        f'<td data-v="{bins.high - bins.low!r}"><svg width="{width}" height="{height}" role="img"><title>{told}</title>'
        f'<path class="{kind}" d="{"".join(drawn)}"/>{"".join(lines)}</svg><span class="dim">{bins.low:.3g} … {bins.high:.3g}'
        "</span></td>"
    )
