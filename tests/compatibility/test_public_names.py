"""The stub of the public module (`intarsia/__init__.pyi`): it is as it would be written, and names what there is."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import intarsia

ROOT = Path(__file__).parents[2]
STUB = Path(intarsia.__file__).with_suffix(".pyi")


def test_the_stub_is_up_to_date() -> None:
    subprocess.run([sys.executable, ROOT / "scripts" / "public_names.py", "--check"], check=True)


def test_the_stub_names_what_there_is() -> None:
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    names = [(node.module, alias.name) for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert {name for _, name in names} >= set(intarsia.__all__)
    for module, name in names:
        where = importlib.import_module(f"intarsia.{name}" if module == "intarsia" else str(module))
        assert getattr(intarsia, name) is (where if module == "intarsia" else getattr(where, name))
    assert intarsia.SessionIOBinding is intarsia.IOBinding


def test_a_type_checker_knows_the_names(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(
        "import intarsia as ort\n"
        'session: ort.InferenceSession = ort.InferenceSession("model.onnx", ort.SessionOptions())\n'
        "ort.SessionOptoins\n",
        encoding="utf-8",
    )  # fmt: skip
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--no-error-summary", "--cache-dir", tmp_path, program]
    environment = {**os.environ, "MYPYPATH": str(STUB.parents[1])}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.splitlines() == [
        'program.py:3: error: Module has no attribute "SessionOptoins"; maybe "SessionOptions"?  [attr-defined]'
    ]



def test_there_is_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert intarsia.__version__ == project["version"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {project['version']} (" in changes, "the newest section of the changelog is this version's"


def test_the_changelog_can_be_built() -> None:
    pytest.importorskip("towncrier")
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9.9"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "## 9.9.9 (" in done.stdout
