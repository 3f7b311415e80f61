"""Data and script as one HTML document, which loads nothing.

Its content security policy allows its own script (by hash) and styles. Texts of a model are in JSON that no markup can end, and
the script puts them into the document as text alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from intarsia.reports.page import layout_library

SCRIPTS = ("groups", "layout", "picture", "table", "chart", "details", "page")
_HERE = Path(__file__).parent


def document(data: Mapping[str, Any]) -> str:
    """The page of `PageData.data`, or of `comparison_data`."""
    parts = [layout_library.script(), *((_HERE / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)]
    script = '"use strict";\n' + "\n".join(parts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    body = (_HERE / "page.html").read_text(encoding="utf-8")
    title = escape(str(data["title"]))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width"><title>{title}</title>\n<style>\n{style}</style></head>\n'
        f'<body>\n{body.replace("TITLE", title)}<script type="application/json" id="data">{embedded(data)}</script>\n'
        f"<script>{script}</script></body></html>\n"
    )


def embedded(data: Mapping[str, Any]) -> str:
    """JSON that may stand in a script element: no "<" of it can begin markup."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\x7f", "\\u007f")
