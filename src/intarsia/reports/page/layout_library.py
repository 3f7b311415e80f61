"""The library that lays graphs out: dagre, as the viewer Netron maintains it (docs/design/decisions/0149).

A wheel brings its file, which the build takes from the package `netron`. In a checkout that package has to be installed (extra
`test`). Without either, pages lay graphs out by a plain method of their own.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

NETRON = "9.3.3"
FILE = "netron/dagre.js"
_SHA256 = "cbd5cd24d786593f01dc138958bbfce44c254bcde7c3724bf85e6bcd7fe2a6e1"
PACKAGED = Path(__file__).with_name(".dagre.js")  # in a wheel; `hatch_build.py` puts it there
LICENCE = """dagre.js of Netron (github.com/lutzroeder/netron), after dagre (github.com/dagrejs/dagre).
MIT License. Copyright (c) Lutz Roeder. Copyright (c) 2012-2014 Chris Pettitt.
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files
(the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify,
merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions: The above copyright notice and this permission notice shall be included
in all copies or substantial portions of the Software. THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS
OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY,
WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER
DEALINGS IN THE SOFTWARE."""


def installed() -> bytes | None:
    """The library's file as the package `netron` has it; None where that is not installed, or of another version."""
    try:
        found = importlib.metadata.distribution("netron")
    except importlib.metadata.PackageNotFoundError:
        return None
    try:
        data = Path(str(found.locate_file(FILE))).read_bytes()
    except OSError:
        return None
    return data if hashlib.sha256(data).hexdigest() == _SHA256 else None


@cache
def script() -> str:
    """JavaScript that declares `dagreLayout(nodes, edges, layout, state)`, or null of that name where there is no library."""
    data = PACKAGED.read_bytes() if PACKAGED.is_file() else installed()
    if data is None:
        return "const dagreLayout = null;\n"
    body = "\n".join(_lines(data.decode("utf-8")))
    return f"/* {LICENCE} */\nconst dagreLayout = (() => {{\n{body}\nreturn dagre.layout;\n}})();\n"


def _lines(text: str) -> Iterator[str]:
    """Without indentation and whole-line comments, and without the export of a module."""
    for line in text.split("\n"):
        code = line.strip()
        if code and not code.startswith(("//", "export ")):
            yield code
