"""The documentation site, as far as it can be checked without Sphinx: `scripts/docs` builds it, and `.ci/run` calls that."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEX = (DOCS / "README.md").read_text(encoding="utf-8")


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"site_{name}", ROOT / "scripts" / "site" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


build, conf = script("build"), script("conf")


def test_every_document_is_in_one_group_of_the_index() -> None:
    listed = Counter(page for group in build.groups(INDEX) for page in group.pages)
    documents = {f.relative_to(DOCS).as_posix().removesuffix(".md") for f in DOCS.rglob("*.md")}
    decisions = {page for page in documents if re.match(r"design/decisions/\d", page)}  # which their own index lists
    expected = documents - decisions - {"README"} | {page.removesuffix(".md") for page in build.OUTSIDE.values()}
    assert listed == Counter(expected)


def test_the_front_page_lists_what_is_generated() -> None:
    page = build.front_page(INDEX)
    for name in build.GENERATED:
        assert f"]({name})" in page
        assert re.search(rf"^{name.removesuffix('.md')}$", page, re.MULTILINE), "and its navigation has it"
    with pytest.raises(ValueError, match="no heading '## Reference'"):
        build.front_page("# Documents\n")


@pytest.mark.parametrize(
    ("text", "document", "expected"),
    [
        ("[a](caching.md#the-code)", "docs/threads.md", "[a](caching.md#the-code)"),
        ("[a](../threads.md)", "docs/performance/starts.md", "[a](../threads.md)"),
        ("[a](README.md)", "docs/threads.md", "[a](index.md)"),
        ("[a](../SECURITY.md)", "docs/security.md", "[a](reporting.md)"),
        ("[a](../../CONTRIBUTING.md#set-up)", "docs/design/roadmap.md", "[a](../contributing.md#set-up)"),
        ("[a](docs/pipeline.md)", "CONTRIBUTING.md", "[a](pipeline.md)"),
        ("[a](../src/intarsia/primitives/lang.py)", "docs/custom-operators.md", "[a](reference/primitives.md)"),
        ("[a](#below), [b](https://example.org/x.md)", "docs/cli.md", "[a](#below), [b](https://example.org/x.md)"),
        ("```\n[a](../src/x.py)\n```\n", "docs/cli.md", "```\n[a](../src/x.py)\n```\n"),
    ],
)
def test_links_between_documents_lead_to_their_pages(text: str, document: str, expected: str) -> None:
    assert build.linked(text, document, None) == expected


def test_links_to_files_of_the_repository_need_its_address() -> None:
    text = "[`jit.py`](../src/intarsia/codegen/llvm/jit.py) and\n[two\nlines](../tests/)"
    assert build.linked(text, "docs/pipeline.md", None) == "`jit.py` and\ntwo\nlines"
    found = build.linked(text, "docs/pipeline.md", "https://example.org/blob/main")
    assert found.startswith("[`jit.py`](https://example.org/blob/main/src/intarsia/codegen/llvm/jit.py) and")
    assert found.endswith("[two\nlines](https://example.org/blob/main/tests)")


def test_every_public_name_has_a_subject() -> None:
    import intarsia

    text = script("python_api").text()
    for name in {*intarsia.__all__, "get_version_string"} - {"__version__"}:
        assert len(re.findall(rf":: intarsia\.{name}$", text, re.MULTILINE)) == 1, name
    with pytest.raises(ValueError, match="not public, or twice: InferenceSession"):
        script("python_api").subjects({*intarsia.__all__, "get_version_string"} - {"InferenceSession"})


def test_primitives_exist() -> None:
    from intarsia.custom_ops import primitives as k

    page = script("primitives")
    names = [name for names in page.SUBJECTS.values() for name in names.split()]
    assert len(names) == len(set(names))
    assert all(callable(getattr(k, name)) for name in names)
    assert ".. autofunction:: select\n" in page.text()


def test_every_command_has_its_options() -> None:
    pytest.importorskip("typer")
    from intarsia.cli.app import app

    text = script("command_line").text()
    for command in app.registered_commands:
        assert f"\n## intarsia {command.name}\n" in text or f"\n## intarsia {command.name} " in text
    assert "\n## intarsia cache warm\n" in text
    assert "| `--wide` | Do not shorten names to the terminal's width. |" in text, "a flag takes no value"
    assert "`--provider`, `--providers`, `-p` `NAME`" in text


def test_every_configuration_entry_is_in_the_options() -> None:
    from intarsia.options.config_keys import RUN_KEYS, SESSION_KEYS

    text = script("options").text()
    for name in {*SESSION_KEYS, *RUN_KEYS}:
        assert f"\n| `{name}` |" in text


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        (["`OrtValue`s of `*args`, *args"], ["`OrtValue`\\ s of `*args`, \\*args"]),
        (["over `a", "    line`"], ["over `a line`"]),
        (["As here:", "", "    run()", "", "More."], ["As here:", "", "::", "", "    run()", "", "More."]),
        (["Args:", "    name: a", "        longer text"], ["Args:", "    name: a", "        longer text"]),
    ],
)
def test_docstrings_become_restructured_text(docstring: list[str], expected: list[str]) -> None:
    lines = list(docstring)
    conf._restructured(None, "function", "f", None, None, lines)
    assert lines == expected
