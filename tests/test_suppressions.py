"""What the checkers are told to overlook: counts that may only fall, and ways of writing that are not used."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import intarsia

ROOT = Path(intarsia.__file__).parent
TYPE_IGNORES = 25
"""As many `type: ignore` as there may be. Lower it with what you remove: this number only falls."""
METHODS_TAKEN_APART = {"__self__", "__func__"}  # what is called later is a value (`plan.step.KernelCall`), not a method to open


@cache
def sources() -> tuple[tuple[Path, str], ...]:
    return tuple((path, path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py")))


def ignores(text: str) -> Iterator[int]:
    """Lines with a comment that mypy takes for an order."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and re.match(r"#\s*type:\s*ignore", token.string):
            yield token.start[0]


def test_type_ignores_become_fewer() -> None:
    found = [f"{path.relative_to(ROOT)}:{line}" for path, text in sources() if "ignore" in text for line in ignores(text)]
    listed = "\n".join(found)
    assert len(found) <= TYPE_IGNORES, f"{len(found)} `type: ignore`, {TYPE_IGNORES} at most: type it instead\n{listed}"


def test_comments_that_mypy_takes_for_orders_are_found() -> None:
    text = 'a = 1  # type: ignore[misc] # why\nb = "# type: ignore"\nc = 2  #type:ignore\n# of the type: ignore it\n'
    assert [*ignores(text)] == [1, 3]


def names(text: str) -> Iterator[tuple[int, str]]:
    """Attributes that are read, by name or by `getattr`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"getattr", "hasattr"}:
            yield from ((node.lineno, a.value) for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))


def test_no_bound_method_is_taken_apart() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path, text in sources()
        if any(name in text for name in METHODS_TAKEN_APART)
        for line, name in names(text)
        if name in METHODS_TAKEN_APART
    ]
    assert not found, "\n".join(found)
    assert [*names("f.__self__\ngetattr(f, '__func__', None)")] == [(1, "__self__"), (2, "__func__")]
