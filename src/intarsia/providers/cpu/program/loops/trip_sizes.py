"""Sizes of many trips of a loop: how the symbols of its body go from one trip to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from intarsia.graph.dims import Dim, Expr, evaluate, symbol
from intarsia.graph.many_sizes import evaluate_many
from intarsia.graph.model import TensorType
from intarsia.plan.size_constraints import holds
from intarsia.providers.cpu.executable import Executable, LoopStep


class TripSizes:
    """How the symbols of a loop's body go from one trip to the next."""

    def __init__(self, step: LoopStep, first: int) -> None:
        executable = step.body
        self.constraints = executable.constraints
        self.shapes: list[tuple[Dim, ...]] = []
        self.next: dict[str, Dim | None] = {}
        inputs = executable.inputs
        for number, value in enumerate(inputs):
            for name, axis in executable.learned.get(value.name, ()):
                if axis < 0:
                    same = None if _is_row(number, step, first) else symbol(name)
                    self.next[name] = symbol(name) + 1 if first and number == 0 else same
        for value, carried in zip(inputs[first:], step.carried, strict=False):
            kind = value.type
            assert isinstance(kind, TensorType)
            self.shapes.append(kind.shape or ())
            for before, after in zip(kind.shape or (), carried.shape, strict=True):
                if isinstance(before, Expr) and str(before) in before.symbols:
                    self.next.setdefault(str(before), after)
            self.next.update(carried.elements)
        self.unknown = any(d is None for d in self.next.values())

    def columns(self, env: Mapping[str, int], count: int) -> dict[str, np.ndarray] | None:
        """Each symbol's values before so many trips; None where not all are known."""
        if count > 1 and self.unknown:
            return None
        changed = {n: d for n, d in self.next.items() if d is not None and not (isinstance(d, Expr) and d == symbol(n))}
        steps = {n: d - symbol(n) for n, d in changed.items()}
        found = {n: np.full(count, v, object) for n, v in env.items()}
        numbers = {n: s for n, s in steps.items() if isinstance(s, int)}
        if len(numbers) == len(steps):
            for name, step in numbers.items():
                found[name] = np.array([env[name] + k * step for k in range(count)], object)
            return found
        now = dict(env)
        for k in range(count):
            for name in changed:
                found[name][k] = now[name]
            if k + 1 < count:
                try:
                    now.update({name: evaluate(d, now) for name, d in changed.items()})
                except (ValueError, ZeroDivisionError):
                    return None
        return found

    def agree(self, columns: Mapping[str, np.ndarray], after: Sequence[Sequence[np.ndarray]], count: int) -> bool:
        """Whether each trip begins with the sizes that the one before ended with, and constraints hold."""
        for dims, sizes in zip(self.shapes, after, strict=True):
            before = all_sizes(dims, columns, count)
            if any((b[1:] != a[:-1]).any() for b, a in zip(before, sizes, strict=True)):
                return False
        for c in self.constraints:
            left, right = all_sizes((c.left, c.right), columns, count)
            if not all(holds(c.kind, a, b) for a, b in zip(left, right, strict=True)):
                return False
        return True


def _is_row(number: int, step: LoopStep, first: int) -> bool:
    """Whether an input of the body is a row of a Scan's input, whose elements differ from trip to trip."""
    return not first and len(step.carried) <= number < len(step.node.inputs)


def all_sizes(shape: Sequence[Dim], columns: Mapping[str, np.ndarray], count: int) -> list[np.ndarray]:
    return [d if isinstance(d, np.ndarray) else np.full(count, d, object) for d in evaluate_many(shape, columns)]


def required_sizes(body: Executable) -> list[tuple[int, int, Dim]]:
    """Sizes of what a body takes that are not symbols which are learned there: number of the input, axis, size."""
    found: list[tuple[int, int, Dim]] = []
    seen: set[str] = set()
    for number, value in enumerate(body.inputs):
        kind = value.type
        assert isinstance(kind, TensorType)
        own = {symbol for symbol, axis in body.learned.get(value.name, ()) if axis >= 0}
        for axis, d in enumerate(kind.shape or ()):
            if isinstance(d, Expr) and str(d) in own and str(d) not in seen:
                seen.add(str(d))
            else:
                found.append((number, axis, d))
    return found
