"""Pages in a browser: what is drawn, and what happens when somebody drags, clicks, types and sorts. Nothing is loaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import intarsia as ort
from intarsia.reports.page import layout_library

from .conftest import feed, flat, layers, session_of

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
REFERENCE = "ReferenceExecutionProvider"
playwright = pytest.importorskip("playwright.sync_api", reason="drives a browser (extra 'browser')")
if BROWSER is None:
    pytest.skip("no Chromium is installed", allow_module_level=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as library:
        arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        found = library.chromium.launch(executable_path=BROWSER, args=arguments)
        yield found
        found.close()


Show = Callable[[str], Any]


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Show]:
    """Opens a page; fails the test for an error of its script, or for a request of any kind."""
    context = browser.new_context(viewport={"width": 1440, "height": 860}, reduced_motion="reduce")
    wrong: list[str] = []

    def opened(text: str) -> Any:
        file = tmp_path / "page.html"
        file.write_text(text, encoding="utf-8")
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: None if request.url == file.as_uri() else wrong.append(request.url))
        page.goto(file.as_uri())
        return page

    yield opened
    context.close()
    assert not wrong


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Three layers with a profile; the same beside an earlier profile; the two profiles alone."""
    session = session_of(layers(3))
    first, second = session.profile(feed(), 3), session.profile(feed(), 3)
    explanation = session.explain()
    return {
        "profile": explanation.to_html(first, title="three layers"), "both": explanation.to_html(second, before=first),
        "alone": second.compare(first).to_html(title="three layers"), "plain": explanation.to_html(),
    }  # fmt: skip


def transform(page: Any) -> tuple[float, float, float]:
    """x, y and scale of the picture."""
    return tuple(page.evaluate("[page.picture.x, page.picture.y, page.picture.scale]"))


def names(page: Any, column: int = 0) -> list[str]:
    return page.locator(f"#table tr.row td:nth-child({column + 1})").evaluate_all("cells => cells.map(cell => cell.title)")


def item(page: Any, name: str) -> Any:
    return page.locator(f'#picture g.item[aria-label^="{name} "]').first


def until(page: Any, condition: str) -> None:
    """Waits for what a page does later; the page's policy forbids playwright's own function for that."""
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never true: {condition}")


def test_the_picture_opens_and_closes_layers(show: Show, pages: dict[str, str]) -> None:
    page = show(pages["plain"])
    assert page.title() == "Placement of a model"
    page.click("#close-all")
    assert page.locator("#picture g.item").count() == 3, "the model, its last node and the output"
    item(page, "model").click()
    assert page.locator("#picture g.closed").count() == 3
    assert "layers.1" in page.locator("#picture g.closed").nth(1).text_content()
    item(page, "layers.1").click()
    assert item(page, "attention").count() == 1
    assert "13 nodes" in item(page, "layers.1").get_attribute("aria-label")
    assert "layers.1" in page.locator("#details").text_content()
    page.click("#open-all")
    assert page.locator("#picture g.node").count() == 40
    assert page.locator("#picture g.closed").count() == 0


def test_nothing_overlaps(show: Show, pages: dict[str, str]) -> None:
    page = show(pages["profile"])
    page.click("#open-all")
    overlapping = page.evaluate("""(() => {
        const found = [];
        const visit = group => {
            for (const a of group.items) {
                if (a.x < 0 || a.y < 0 || a.x + a.w > group.w + 0.5 || a.y + a.h > group.h + 0.5) found.push([a.id, "outside"]);
                for (const b of group.items) {
                    if (a === b) continue;
                    if (a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h) found.push([a.id, b.id]);
                }
                if (a.kind === "group") visit(a);
            }
        };
        visit(page.tree.root);
        return found;
    })()""")
    assert overlapping == []
    longer = page.locator("#picture g.node").evaluate_all(
        "nodes => nodes.filter(node => [...node.querySelectorAll('text')].some(text =>"
        " text.getBBox().x + text.getBBox().width > Number(node.querySelector('rect').getAttribute('x'))"
        " + Number(node.querySelector('rect').getAttribute('width')))).map(node => node.textContent)"
    )
    assert longer == [], "texts that leave their boxes"


def test_drag_and_wheel(show: Show, pages: dict[str, str]) -> None:
    page = show(pages["plain"])
    box = page.locator("#picture").bounding_box()
    x, y, scale = transform(page)
    page.mouse.move(box["x"] + 20, box["y"] + box["height"] - 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 80, box["y"] + box["height"] - 50, steps=3)
    page.mouse.up()
    assert transform(page) == pytest.approx((x + 60, y - 30, scale))
    page.mouse.wheel(0, -240)
    until(page, f"page.picture.scale > {scale}")
    left, _, larger = transform(page)
    assert left + larger * (80 - (x + 60)) / scale == pytest.approx(80, abs=1), "what is under the pointer stays there"
    page.click("#fit")
    box = page.evaluate("[page.tree.root.w * page.picture.scale, page.tree.root.h * page.picture.scale]")
    view = page.locator("#picture").bounding_box()
    assert box[0] <= view["width"] and box[1] <= view["height"]


def test_keys(show: Show, pages: dict[str, str]) -> None:
    page = show(pages["plain"])
    page.click("#close-all")
    item(page, "model").focus()
    page.keyboard.press("Enter")
    assert page.locator("#picture g.closed").count() == 3
    _, y, scale = transform(page)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("+")
    assert transform(page)[1] != y and transform(page)[2] == pytest.approx(1.25 * scale)


def test_the_table_and_the_picture_choose_the_same(show: Show, pages: dict[str, str]) -> None:
    page = show(pages["profile"])
    page.click("#close-all")
    page.fill("form [name=text]", "layers.2 mlp/act")
    page.locator("#table tr.row").first.click()
    assert page.locator("#picture g.selected").get_attribute("aria-label").startswith("Relu ")
    details = page.locator("#details").text_content()
    assert "/model/layers.2/mlp/act/Relu" in details and "float[3, 8]" in details and "model / layers.2 / mlp" in details
    page.click("form [type=reset]")
    page.evaluate("page.picture.reveal(page.tree.leaves[0])")
    page.locator("#picture g.node").first.click()
    chosen = page.locator("#picture g.selected").get_attribute("data-id")
    number = page.evaluate("id => page.picture.elements.get(id).item.node", chosen)
    assert page.locator("#table tr.selected").get_attribute("data-node") == str(number)


def test_filters_and_totals(show: Show, pages: dict[str, str]) -> None:
    page = show(pages["profile"])
    page.select_option("form [name=op]", "MatMul")
    assert set(names(page, 1)) == {"MatMul"}
    totals = page.locator("#totals").text_content()
    assert totals.startswith("18 of ") and "% of a run" in totals
    by_weights, by_heads = 2 * 3 * 8 * 8, 2 * 3 * 3 * 8
    sum_of = "page.table.shown.reduce((sum, node) => sum + page.data.nodes[node][11], 0)"
    assert page.evaluate(sum_of) == 3 * (4 * by_weights + 2 * by_heads)
    page.fill("form [name=text]", "layers.1")
    assert page.locator("#totals").text_content().startswith("6 of ")
    assert page.locator("#picture g.node.found").count() + page.locator("#picture g.closed.found").count() > 0
    page.click("form [type=reset]")
    until(page, "page.table.shown.length === page.all.length")
    assert page.locator("#picture g.found").count() == 0


def test_sorting(show: Show, pages: dict[str, str]) -> None:
    page = show(pages["profile"])
    executed = names(page)
    operations = page.locator("#table th", has_text="operations")
    operations.click()
    sizes = "page.table.rows.map(row => page.data.nodes[row.node][11])"
    found = page.evaluate(sizes)
    assert found == sorted(found, reverse=True)
    assert operations.get_attribute("aria-sort") == "descending"
    operations.click()
    assert page.evaluate(sizes) == sorted(found)
    operations.click()
    assert names(page) == executed, "as they run"
    page.locator("#table th", has_text="operator").click()
    assert names(page, 1) == sorted(names(page, 1), key=str.lower)


def test_groups_with_totals(show: Show, pages: dict[str, str]) -> None:
    page = show(pages["profile"])
    for group in ("layer", "operator", "kernel", "provider"):
        page.select_option("form [name=group]", group)
        rows = page.locator("#table tr.group")
        counts = rows.locator("td:nth-child(2)").all_text_contents()
        assert sum(int(text.split()[0]) for text in counts) == page.evaluate("page.all.length")
    page.select_option("form [name=group]", "operator")
    softmax = page.locator("#table tr.group[data-group=Softmax]")
    assert softmax.locator("td:nth-child(2)").text_content() == "3 nodes"
    softmax.click()
    assert page.locator("#table tr.row:not(.group)").count() == 3
    page.locator("#table tr.group[data-group=Softmax]").click()
    assert page.locator("#table tr.row:not(.group)").count() == 0


def test_reasons_in_full(show: Show, make_session: Callable[..., Any], example_plugin: str) -> None:
    text = "g (float[3] x) => (float[3] y) <float[3] v = {2, 2, 2}> { a = Mul(x, v)  b = Neg(a)  y = Add(a, b) }"
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = [(example_plugin, {"stride": 2}), "CPUExecutionProvider", REFERENCE]
    found = make_session(text, options, providers=providers).explain()
    page = show(found.to_html())
    page.click("[data-tab=reasons]")
    shown = page.locator("#reasons").text_content()
    refused = {no.reason for node in found.nodes for no in node.refusals.values() if no.code != "taken"}
    later = {no.reason for node in found.nodes for no in node.refusals.values() if no.code == "taken"}
    assert refused and later
    assert all(reason in shown for reason in refused)
    assert page.locator("#reasons .reason").count() == len(
        {(name, no.reason) for node in found.nodes for name, no in node.refusals.items() if no.code != "taken"}
    )
    assert "Not asked" in shown and not any(reason in page.locator(".reason").all_text_contents() for reason in later)
    page.locator("#reasons .link").first.click()
    assert page.locator("#totals").text_content().endswith("of one reason")
    page.locator("#table tr.row").first.click()
    assert "Why not another provider" in page.locator("#details").text_content()


def test_the_roofline(show: Show, pages: dict[str, str]) -> None:
    page = show(pages["profile"])
    page.click("[data-tab=roofline]")
    dots = page.locator("#roofline circle")
    assert dots.count() == page.evaluate("page.data.profile.kernels.filter(k => k[3] > 0).length") > 0
    assert "GFLOP/s" in page.locator("#roofline svg").text_content()
    dots.last.click(force=True)
    assert page.locator("#details h2").count() >= 1
    plain = show(pages["plain"])
    assert plain.locator("[data-tab=roofline]").count() == 0


def test_two_profiles(show: Show, pages: dict[str, str]) -> None:
    page = show(pages["both"])
    assert page.locator("#table th", has_text="change").count() == 1
    assert "before:" in page.locator("#summary").text_content()
    alone = show(pages["alone"])
    assert alone.locator("#graph").is_hidden()
    alone.select_option("form [name=group]", "layer")
    layer = alone.locator("#table tr.group[data-group='model / layers.1 / attention / q_proj']")
    assert layer.locator("td:nth-child(2)").text_content() == "1 kernel"


def test_dark_and_light_differ(browser: Any, pages: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(pages["plain"], encoding="utf-8")
    grounds = []
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        page.goto((tmp_path / "page.html").as_uri())
        grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        context.close()
    assert grounds == ["rgb(255, 255, 255)", "rgb(20, 24, 28)"]


def test_hostile_names_are_shown_as_text(show: Show) -> None:
    evil = "\"'><script>window.taken = 1</script><img src=x onerror='window.taken = 2'>&amp;"
    node = onnx.helper.make_node("Neg", ["x"], [evil], name=f"/{evil}/layer.0/{evil}")
    last = onnx.helper.make_node("Abs", [evil], ["y"], name="</script><!--")
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([node, last], "g", [tensor("x", 1, [2])], [tensor("y", 1, [2])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    page = show(session_of(model, [REFERENCE]).explain().to_html(title=evil))
    for row in (0, 1):
        page.locator("#table tr.row").nth(row).click()
    page.select_option("form [name=group]", "layer")
    page.click("#open-all")
    assert page.evaluate("window.taken") is None
    assert page.locator("h1").text_content() == f"Placement of {evil}"
    assert evil in page.locator("#details").text_content()
    assert page.locator("#picture img, #table img, #details img, main script").count() == 0


def test_a_model_without_nodes(show: Show) -> None:
    value = onnx.numpy_helper.from_array(np.ones(2, np.float32), "y")
    graph = onnx.helper.make_graph([], "g", [], [onnx.helper.make_tensor_value_info("y", 1, [2])], [value])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    page = show(session_of(model, [REFERENCE]).explain().to_html())
    assert page.locator("#totals").text_content().startswith("0 of 0 rows")
    assert page.locator("#picture g.end").count() == 1


def test_bodies_are_boxes(show: Show, make_session: Callable[..., Any]) -> None:
    text = """g (bool c, float[3] x) => (float[3] y) {
        [choice] y = If(c) <
            then_branch = t () => (float[3] p) { q = Neg(x) p = Exp(q) },
            else_branch = e () => (float[3] p) { q = Sqrt(x) p = Abs(q) }
        >
    }"""
    page = show(make_session(text, providers=["CPUExecutionProvider"]).explain().to_html())
    page.click("#open-all")
    assert page.locator("#picture g.body").count() == 2
    assert "choice.then_branch" in page.locator("#picture").text_content()
    assert "in bodies: 4" in page.locator("#summary").text_content()


@pytest.mark.parametrize("model", [layers(420), flat(10_000)], ids=["layers", "flat"])
def test_thousands_of_nodes(show: Show, model: Any) -> None:
    page = show(session_of(model, [REFERENCE]).explain().to_html())
    count = page.evaluate("page.all.length")
    assert count == len(model.graph.node)
    assert page.locator("#picture g.item").count() <= 120
    assert page.locator("#table tr.row").count() <= 100, "rows out of sight are not in the document"
    page.locator("#table").evaluate("table => { table.scrollTop = table.scrollHeight; }")
    until(page, f"[...document.querySelectorAll('#table tr.row')].some(row => row.dataset.node === '{count - 1}')")
    page.locator(f"#table tr.row[data-node='{count - 1}']").click()
    assert page.locator("#picture g.selected").count() == 1
    assert page.evaluate("page.tree.root.count") == count


def test_without_the_library(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_library, "script", lambda: "const dagreLayout = null;\n")
    page = show(session_of(layers(2), [REFERENCE]).explain().to_html())
    page.click("#open-all")
    assert page.locator("#picture g.node").count() == 27
    ranks = page.evaluate("""(() => { const level = page.tree.root.items.find(item => item.kind === "group").items
        .filter(item => item.kind === "group"); return level.map(item => item.y); })()""")
    assert ranks[0] < ranks[1], "what reads stands below what it reads"
