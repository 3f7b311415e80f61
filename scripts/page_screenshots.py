"""Write the screenshots of docs/pages.md: pages of 53, 1,002 and 5,006 nodes in Chromium.

    python scripts/page_screenshots.py [FOLDER]

Needs Chromium, the extras `test` and `browser`. FOLDER is docs/pictures by default. Look at the pictures: no test does.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "reports" / "page")]
COLOURS = 128  # of a picture, so that files are small
WIDTH = 256
PAGES: dict[str, tuple[int, str, str]] = {  # name -> layers, what to do in the page, the colours' scheme
    "page-53-nodes": (4, "page.choose(11, true)", "light"),
    "page-1002-nodes": (77, "page.form.group.value = 'operator'; page.filter()", "dark"),
    "page-5006-nodes": (385, "page.form.text.value = 'layers.100'; page.filter(); page.choose(1310, true)", "light"),
    "page-roofline": (4, "page.showTab('roofline')", "light"),
}


def write(folder: Path) -> None:
    """All pictures."""
    from playwright.sync_api import sync_playwright

    from conftest import feed, layers, session_of

    with sync_playwright() as library, tempfile.TemporaryDirectory() as temporary:
        browser = library.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (count, script, scheme) in PAGES.items():
            session = session_of(layers(count, WIDTH))
            page = Path(temporary) / "page.html"
            session.explain().save_html(page, session.profile(feed(128, WIDTH), 5), title=f"{count} layers")
            shoot(browser, page, folder / f"{name}.png", (script, scheme))
        browser.close()


def shoot(browser: Any, page: Path, target: Path, how: tuple[str, str]) -> None:
    """One picture, in few colours."""
    script, scheme = how
    shown = browser.new_page(viewport={"width": 1280, "height": 760}, color_scheme=scheme)
    shown.goto(page.as_uri())
    shown.evaluate(script)
    shown.wait_for_timeout(200)
    shown.screenshot(path=target)
    shown.close()
    with Image.open(target) as picture:
        picture.convert("RGB").quantize(COLOURS).save(target, optimize=True)
    print(target, target.stat().st_size)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures")
