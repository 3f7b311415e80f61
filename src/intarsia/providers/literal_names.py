"""Names of providers that a package's source gives as texts, read without running it."""

from __future__ import annotations

import ast
from typing import Any


def literal_names(source: str) -> tuple[str, ...]:
    """What the function `get_ep_names` of a package's source gives, or `get_ep_name`, where that stands there as texts.

    Names of the module's constants and of its functions without arguments are followed; () where it is anything else.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    found = _Literals(tree).call("get_ep_names") or _Literals(tree).call("get_ep_name")
    names = [found] if isinstance(found, str) else found
    return tuple(names) if isinstance(names, list) and all(isinstance(n, str) for n in names) else ()


class _Literals:
    """Values that expressions of a module have, without running it."""

    def __init__(self, tree: ast.Module) -> None:
        self._values: dict[str, ast.expr] = {}
        self._functions: dict[str, ast.expr] = {}
        for node in tree.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self._values[node.targets[0].id] = node.value
            elif isinstance(node, ast.FunctionDef):
                body = [n for n in node.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
                if len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None:
                    self._functions[node.name] = body[0].value

    def call(self, function: str, depth: int = 0) -> Any:
        """What a function gives; None where that is not known."""
        return self._value(self._functions.get(function), depth)

    def _value(self, node: ast.expr | None, depth: int) -> Any:
        if depth > 8:
            return None
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._value(element, depth + 1) for element in node.elts]
        if isinstance(node, ast.Name):
            return self._value(self._values.get(node.id), depth + 1)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args and not node.keywords:
            return self.call(node.func.id, depth + 1)
        return None
