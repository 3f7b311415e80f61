"""How many parameters functions have: what belongs together is one value with a name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import intarsia

ROOT = Path(intarsia.__file__).parent
PARAMETERS = 7  # of a function, the object that it is a method of not counted
LONG_LISTS = 41  # functions that have more, commands among them, whose parameters are options: this number only falls


def lengths(tree: ast.AST) -> Iterator[tuple[str, int, int]]:
    """Name, line and number of parameters of each function."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            given = node.args
            names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            names += [a.arg for a in (given.vararg, given.kwarg) if a is not None]
            own = names[:1] in (["self"], ["cls"])
            yield getattr(node, "name", "lambda"), node.lineno, len(names) - own


def test_few_functions_have_many_parameters() -> None:
    """Inputs and attributes of an operator's definition are grouped by `ops.framework.parameter_groups`."""
    found = [
        f"{file.relative_to(ROOT)}:{line} {name}: {count}"
        for file in sorted(ROOT.rglob("*.py"))
        for name, line, count in lengths(ast.parse(file.read_text(encoding="utf-8")))
        if count > PARAMETERS
    ]
    assert len(found) <= LONG_LISTS, (
        f"{len(found)} functions have more than {PARAMETERS} parameters, {LONG_LISTS} had: group what belongs together in a "
        "dataclass with a meaning\n" + "\n".join(found)
    )


def test_every_kind_of_parameter_counts() -> None:
    text = "class A:\n  def f(self, a, /, b, *c, d, **e): ...\n  g = lambda x, y: 0\nasync def h(): ..."
    assert sorted(lengths(ast.parse(text))) == [("f", 2, 5), ("h", 4, 0), ("lambda", 3, 2)]
