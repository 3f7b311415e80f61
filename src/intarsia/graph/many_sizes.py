"""The values of sizes for many environments at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from intarsia.graph.dims import Atom, Dim, Expr, operation


def evaluate_many(sizes: Iterable[Dim], envs: Mapping[str, np.ndarray]) -> list[np.ndarray | int]:
    """The values of sizes for many environments at once: `envs` has for each symbol an array of Python's integers (dtype
    object); so have the results, of which those without symbols are numbers.

    Raises:
        KeyError: a symbol is not in `envs`.
        ValueError, ZeroDivisionError: a size has no value for some of them.
    """
    known: dict[Atom, Any] = {}

    def of_atom(atom: Atom) -> Any:
        found = known.get(atom)
        if found is None:
            if atom.args:
                found = _elementwise(atom.name, len(atom.args))(*map(of, atom.args))
            else:
                found = envs[atom.name]
            known[atom] = found
        return found

    def of(d: Dim) -> Any:
        if not isinstance(d, Expr):
            return int(d)
        total: Any = 0
        for mono, coeff in d.terms.items():
            term: Any = coeff
            for atom, power in mono:
                term = term * of_atom(atom) ** power
            total = total + term
        return total

    return [of(d) for d in sizes]


@functools.cache
def _elementwise(name: str, count: int) -> Callable[..., Any]:
    made: Callable[..., Any] = np.frompyfunc(operation(name), count, 1)
    return made
