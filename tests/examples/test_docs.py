"""The documents: links lead somewhere, the README's Python runs, its commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "examples", "benchmarks", "changelog.d")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(f for folder in FOLDERS for f in (ROOT / folder).rglob("*.md"))])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda f: f.relative_to(ROOT).as_posix())
def test_relative_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert not missing


def test_the_readme_program_runs() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1\n")
    assert "CPUExecutionProvider" in done.stdout


def test_the_readme_commands_exist() -> None:
    from intarsia.cli.app import app

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    names = {command.name for command in app.registered_commands}
    assert set(re.findall(r"^intarsia (\w+)", readme, re.MULTILINE)) <= names
    for script in re.findall(r"^\./(\w+)", readme, re.MULTILINE):
        assert (ROOT / script).stat().st_mode & 0o100


def test_documents_fit_the_command_line() -> None:
    from intarsia.cli.dump import STAGES

    shown = set(re.findall(r"-s (\w+)", (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")))
    assert shown <= set(STAGES)


LISTINGS = {
    "custom-operators.md": 7,
    "choosing-providers.md": 5,
    "cli.md": 1,
    "compiled-models.md": 2,
    "caching.md": 4,
    "debugging.md": 12,
    "pages.md": 1,
    "devices.md": 2,
    "dynamic-shapes.md": 5,
    "language-models.md": 2,
    "performance-in-practice.md": 2,
    "quantising-a-model.md": 5,
    "quantization.md": 3,
    "quickstart.md": 5,
    "io-binding.md": 3,
    "threads.md": 4,
    "migration.md": 3,
    "model-packages.md": 2,
    "security.md": 2,
    "serving.md": 3,
    "stateful.md": 5,
    "values.md": 3,
}


# test_custom_provider runs these on a model of theirs, tests of plugins where their packages are.
ELSEWHERE = {"custom-providers.md", "providers.md", "plugins.md", "onnxruntime-plugin.md"}


def test_every_document_with_listings_is_run() -> None:
    counts = {f.relative_to(ROOT / "docs").as_posix(): f.read_text(encoding="utf-8").count("```python\n") for f in DOCUMENTS
              if f.is_relative_to(ROOT / "docs")}  # fmt: skip
    assert {name for name, count in counts.items() if count} == LISTINGS.keys() | ELSEWHERE
    assert {name: counts[name] for name in LISTINGS} == LISTINGS, "a listing that is not marked as Python is not run"


@pytest.mark.parametrize(("document", "count"), LISTINGS.items())
def test_the_listings_of_a_document_run_one_after_the_other(document: str, count: int) -> None:
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    listings = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(listings) >= count
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(listings)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
