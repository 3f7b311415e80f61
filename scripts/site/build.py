"""Build the documentation site: python scripts/site/build.py [FOLDER]

The documents in docs/ are plain Markdown, as a forge shows it. `docs/README.md` lists them in groups, and is the site's front
page and its navigation. What is generated joins them: the reference of the Python API and of the command line, and the
documents at the root of the repository. Sphinx reads the whole from FOLDER/source and writes FOLDER/html; every warning is an
error, such as a link that leads nowhere or a document that `docs/README.md` does not list.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
DOCS = ROOT / "docs"
MOST_NBYTES = 40 << 20  # of the site, so that it stays something to download

# Documents outside of docs/ -> their pages.
OUTSIDE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/README.md": "examples.md",
    "findings/README.md": "findings.md",
    "tests/conformance/scoreboard/README.md": "scoreboard.md",
}
# Pages that are made from the code -> what the front page says of them, below the heading REFERENCE.
GENERATED = {
    "reference/python-api.md": "[The Python API](reference/python-api.md): every public name.",
    "reference/command-line.md": "[Every command](reference/command-line.md) of the command line, with its options.",
    "reference/options.md": "[Every option](reference/options.md) of sessions and runs, with its default.",
    "reference/primitives.md": "[Primitives](reference/primitives.md) for operators of your own.",
}
# Files of the source -> the generated pages that say what they do.
DESCRIBED = {
    "src/intarsia/__init__.py": "reference/python-api.md",
    "src/intarsia/cli/app.py": "reference/command-line.md",
    "src/intarsia/options/config_keys.py": "reference/options.md",
    "src/intarsia/primitives/lang.py": "reference/primitives.md",
}
REFERENCE = "## Reference\n\n"

_FENCE = re.compile(r"^ *(```|~~~)")
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")

_LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["'](?:https?:)?//"""
    r"""|<link\b[^>]*rel=["'](?:stylesheet|preload)["'][^>]*href=["'](?:https?:)?//"""
)


class Group(NamedTuple):
    """A heading of `docs/README.md`, and the pages that its list links to, as paths from docs/ without ".md"."""

    title: str
    pages: tuple[str, ...]


def groups(index: str) -> list[Group]:
    """The navigation: each second-level heading with the first link of each item below it."""
    found: list[tuple[str, list[str]]] = []
    for line in index.splitlines():
        if line.startswith("## "):
            found.append((line[3:].strip(), []))
        elif found and (item := re.match(r"- \[[^\]]+\]\(([^)#]+)\)", line)):
            found[-1][1].append(item[1])
    return [Group(title, tuple(_page(link) for link in links)) for title, links in found if links]


def _page(link: str) -> str:
    outside = OUTSIDE.get(os.path.normpath(f"docs/{link}"))
    return (outside or link).removesuffix(".md")


def front_page(index: str) -> str:
    """The index, with the pages that are generated, and the navigation of all."""
    if REFERENCE not in index:
        raise ValueError(f"docs/README.md has no heading {REFERENCE.strip()!r}")
    index = index.replace(REFERENCE, REFERENCE + "".join(f"- {item}\n" for item in GENERATED.values()))
    trees = [
        "\n".join(["```{toctree}", ":hidden:", f":caption: {group.title}", "", *group.pages, "```"]) for group in groups(index)
    ]
    return "\n\n".join([index, *trees, ""])


def linked(text: str, document: str, source: str | None) -> str:
    """`text` of the document at that path of the repository, with links as they are on the site.

    Links to documents outside of docs/ lead to their pages. Links to other files of the repository lead to `source`, the
    address of its files, or are their texts alone where it has none.
    """
    here = Path(document).parent.as_posix()
    page = OUTSIDE.get(document, document.removeprefix("docs/"))
    away = os.path.relpath(".", Path(page).parent.as_posix() or ".")

    def on_site(link: re.Match[str]) -> str:
        words, target = link[1], link[2]
        path, hash_sign, anchor = target.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return link[0]
        path = os.path.normpath(f"{here}/{path}")
        other = OUTSIDE.get(path) or DESCRIBED.get(path)
        if other:
            return f"[{words}]({os.path.normpath(f'{away}/{other}')}{hash_sign}{anchor})"
        if path.startswith("docs/") and (ROOT / path).suffix in (".md", ".svg", ".png"):
            path = path.removeprefix("docs/")
            path = "index.md" if path == "README.md" else path
            return f"[{words}]({os.path.normpath(f'{away}/{path}')}{hash_sign}{anchor})"
        return f"[{words}]({source}/{path})" if source else words

    lines, fenced = [], False
    for block in _blocks(text):
        fenced = bool(_FENCE.match(block))
        lines.append(block if fenced else _LINK.sub(on_site, block))
    return "".join(lines)


def _blocks(text: str) -> Iterator[str]:
    """Listings, and what is between them (so that a link may go over a line's end)."""
    block, fence = "", ""
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if mark and not fence:
            yield block
            block, fence = line, mark[1]
        elif mark and mark[1] == fence:
            yield block + line
            block, fence = "", ""
        else:
            block += line
    yield block


def source_address() -> str | None:
    """Where the repository's files can be read, by `project.urls.Source` of pyproject.toml; None: it says nothing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    urls: dict[str, str] = project.get("urls", {})
    return f"{urls['Source'].rstrip('/')}/blob/main" if "Source" in urls else None


def stage(folder: Path) -> None:
    """Write all that Sphinx reads."""
    sys.path[:0] = [str(HERE), str(ROOT / "src")]
    import command_line
    import python_api

    import options
    import primitives

    shutil.rmtree(folder, ignore_errors=True)
    source = source_address()
    documents = [*DOCS.rglob("*.md"), *map(ROOT.joinpath, OUTSIDE)]
    texts = {f.relative_to(ROOT).as_posix(): f.read_text(encoding="utf-8") for f in documents}
    pages = {OUTSIDE.get(name, name.removeprefix("docs/")): linked(text, name, source) for name, text in texts.items()}
    pages["index.md"] = front_page(pages.pop("README.md"))
    decisions = sorted(name.removesuffix(".md") for name in pages if re.match(r"design/decisions/\d", name))
    pages["design/decisions/README.md"] += "\n".join(
        ["", "```{toctree}", ":hidden:", "", *(f"/{name}" for name in decisions), "```", ""]
    )
    generated = (python_api.text(), command_line.text(), options.text(), primitives.text())
    pages |= dict(zip(GENERATED, generated, strict=True))
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for picture in (f for f in DOCS.rglob("*") if f.suffix in (".svg", ".png")):
        (folder / picture.relative_to(DOCS)).parent.mkdir(exist_ok=True)
        shutil.copy(picture, folder / picture.relative_to(DOCS))
    for name in ("conf.py", "search_scorer.js"):
        shutil.copy(HERE / name, folder)


def check_size(html: Path) -> None:
    nbytes = sum(f.stat().st_size for f in html.rglob("*") if f.is_file())
    pages = len(list(html.rglob("*.html")))
    print(f"{pages} pages, {nbytes / 1e6:.1f} MB: {html / 'index.html'}")
    if nbytes > MOST_NBYTES:
        raise SystemExit(f"the site has {nbytes:,} bytes, more than {MOST_NBYTES:,}")


def check_offline(html: Path) -> None:
    """What a browser loads by itself must be on the site."""
    pages = {page.relative_to(html).as_posix(): page.read_text(encoding="utf-8") for page in html.rglob("*.html")}
    away = [name for name, text in pages.items() if _LOADED.search(text)]
    if away:
        raise SystemExit(f"pages that load something from elsewhere: {', '.join(away)}")


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0] if arguments else ROOT / "build" / "docs").resolve()
    stage(folder / "source")
    html = folder / "html"
    shutil.rmtree(html, ignore_errors=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-j", "auto", folder / "source", html]
    done = subprocess.run(command, env=environment, check=False)
    if done.returncode == 0:
        check_offline(html)
        check_size(html)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
