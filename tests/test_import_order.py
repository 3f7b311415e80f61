"""Imports point one way: a package may import only packages that stand before it in ORDER, functions' own imports included."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import intarsia

ROOT = Path(intarsia.__file__).parent
ORDER = (
    "visible forks records errors faults machine graph kernel ops passes partition codegen plan "
    "runtime device providers session cli"
).split()
ALLOWED: dict[tuple[str, str], str] = {}  # (file, imported module) -> why this one import may point forward


def stage(module: str) -> str:
    """The entry of ORDER that `intarsia.<...>` belongs to; modules at the package's root make up the session's API."""
    top = [*module.split("."), ""][1]
    return top if top in ORDER else "cli" if top == "__main__" else "session"


def imported(file: Path) -> list[str]:
    package = ["intarsia", *file.relative_to(ROOT).with_suffix("").parts][:-1]
    found: list[str] = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            found += [f"intarsia.{alias.name}" for alias in node.names] if origin == "intarsia" else [origin]
    return [name for name in found if name.split(".")[0] == "intarsia"]


@pytest.mark.parametrize("file", sorted(ROOT.rglob("*.py")), ids=lambda f: f.relative_to(ROOT).as_posix())
def test_imports_point_backwards(file: Path) -> None:
    name = file.relative_to(ROOT).as_posix()
    own = stage("intarsia." + name.removesuffix(".py").replace("/", "."))
    forward = [m for m in imported(file) if ORDER.index(stage(m)) > ORDER.index(own) and (name, m) not in ALLOWED]
    assert not forward, f"{name} ({own}) imports {', '.join(forward)}; order: {' < '.join(ORDER)}"
