"""Pages: whole, self-contained, and safe with hostile names."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import onnx
import pytest

import intarsia as ort
from intarsia.reports.page import layout_library

REFERENCE = "ReferenceExecutionProvider"
TEXT = """g (float[3] x) => (float[3] y) <float[3] v = {2, 2, 2}> { a = Mul(x, v)  b = Neg(a)  y = Add(a, b) }"""
VOID = {"meta", "br", "input"}


class Page(HTMLParser):
    """Collects tags and texts; `open` is what was not closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()


def scripts(text: str) -> list[str]:
    return re.findall(r"<script>(.*?)</script>", text, re.DOTALL)


def test_nothing_is_loaded_and_only_its_own_script_runs(make_session) -> None:
    text = make_session(TEXT).explain().to_html()
    page = Page(text)
    assert not page.open
    assert not [a for _, a in page.tags if {"src", "href", "action", "onclick", "onload"} & a.keys()]
    assert not re.findall(r"https?://", text), "no address, not in a comment either"
    (script,) = scripts(text)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = (a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_hostile_names_are_text(tmp_path: Path, data_of) -> None:
    evil = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&amp;</td>\u202e"
    nodes = [
        onnx.helper.make_node("Neg", ["x"], [f"v{evil}"], name=f"n{evil}"),
        onnx.helper.make_node("Abs", [f"v{evil}"], ["y"], name="</script><!--"),
    ]
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(nodes, "g", [tensor("x", 1, [2])], [tensor("y", 1, [2])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=[REFERENCE])
    session.explain().save_html(tmp_path / "page.html", title=evil)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not page.open
    assert sum(tag == "script" for tag, _ in page.tags) == 2, "the data and the script"
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert not [a for _, a in page.tags if any(name.startswith("on") for name in a)]
    names = data_of(text)["strings"]
    assert f"n{evil}".replace("\u202e", "\\u202e") in names
    assert "\u202e" not in text


def test_the_library_comes_from_the_package_or_not_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("netron", reason="the layout library comes with the package netron (extra 'test')")
    layout_library.script.cache_clear()
    found = layout_library.script()
    assert "dagre.layout" in found and "Copyright (c) 2012-2014 Chris Pettitt" in found
    data = layout_library.installed()
    assert data is not None
    monkeypatch.setattr(layout_library, "_SHA256", "0")
    layout_library.script.cache_clear()
    assert layout_library.script() == "const dagreLayout = null;\n", "a file that is not as it is known is not used"
    monkeypatch.setattr(layout_library, "PACKAGED", tmp_path / "dagre.js")
    (tmp_path / "dagre.js").write_bytes(data)
    layout_library.script.cache_clear()
    assert layout_library.script() == found, "a wheel brings it"
    layout_library.script.cache_clear()
