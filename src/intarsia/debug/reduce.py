"""A smaller model that fails as a large one does.

The model's intermediate values are recorded once, on the reference provider. A run of consecutive nodes, fed with what was
recorded, is a model of its own; the shortest run that still fails is found by halving from both ends, then single
nodes are left out as long as it still fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.debug.compare import difference, session_on
from intarsia.errors import IntarsiaError, InvalidArgument
from intarsia.graph.dtypes import DType
from intarsia.graph.formats.atomic_write import replace_files
from intarsia.graph.model import Graph, TensorType, Value
from intarsia.graph.save import to_model_bytes
from intarsia.lazy_dataclass import dataclass
from intarsia.options.session_options import SessionOptions
from intarsia.reports.taps import tappable
from intarsia.session.inference_session import InferenceSession

Feed = Mapping[str, np.ndarray]
Fails = Callable[[bytes, Feed], bool]
_AT_ONCE = 64


@dataclass(frozen=True)
class Reduced:
    """The smaller model, its inputs, and how many nodes are left of how many."""

    model: bytes
    feed: dict[str, np.ndarray]
    nodes: int
    of: int

    def save(self, path: str | Path) -> None:
        """Write the model, and its inputs beside it as `in_NAME` of an .npz file."""
        path = Path(path)
        arrays: dict[str, Any] = {f"in_{name}": array for name, array in self.feed.items()}
        inputs = path.with_suffix(".npz")
        replace_files([(path, lambda file: file.write(self.model)), (inputs, lambda file: np.savez(file, **arrays))])

    def __str__(self) -> str:
        inputs = ", ".join(f"{name} {array.dtype.name}{list(array.shape)}" for name, array in self.feed.items())
        return f"{self.nodes} of {self.of} nodes; inputs: {inputs or 'none'}"


def providers_differ(
    providers: Sequence[Any], *, rtol: float = 1e-4, atol: float = 1e-6, sess_options: SessionOptions | None = None
) -> Fails:
    """A test for `reduce_model`: whether two providers part on a model, or the first cannot run what the second can."""

    def fails(model: bytes, feed: Feed) -> bool:
        try:
            right = session_on(providers[1], model, sess_options).run(None, feed)
        except IntarsiaError:
            return False
        try:
            left = session_on(providers[0], model, sess_options).run(None, feed)
        except IntarsiaError:
            return True
        return any(difference("", a, b, rtol, atol) is not None for a, b in zip(left, right, strict=True))

    return fails


def reduce_model(model: Any, feed: Feed, fails: Fails, *, reference: Any = "ReferenceExecutionProvider") -> Reduced:
    """The smallest part of `model` found for which `fails(model bytes, feed)` holds.

    Args:
        model: as `InferenceSession` takes it.
        feed: its inputs.
        fails: the test, such as `providers_differ([A, B])`; it gets a model and its inputs.
        reference: the provider whose intermediate values are taken for right.

    Raises:
        InvalidArgument: the whole model does not fail.
    """
    session = session_on(reference, model)
    reducer = _Reducer(session._engine.graph(), _recorded(session, feed), fails)
    everything = list(range(len(reducer.graph.nodes)))
    if not reducer.fails(everything):
        raise InvalidArgument(
            "reduce_model: the test does not fail for the whole model with these inputs (as where two providers agree), "
            "so there is nothing to reduce; give other inputs or smaller tolerances"
        )
    return reducer.result(reducer.reduced(everything))


def _recorded(session: InferenceSession, feed: Feed) -> dict[str, Any]:
    values: dict[str, Any] = {name: np.asarray(value) for name, value in feed.items()}
    names, inspection = list(tappable(session._engine.graph())), session._engine.inspection()
    for start in range(0, len(names), _AT_ONCE):
        values |= inspection.tapped(feed, names[start : start + _AT_ONCE]).taps
    return values


class _Reducer:
    def __init__(self, graph: Graph, values: Mapping[str, Any], test: Fails) -> None:
        self.graph, self.values, self.test = graph, values, test
        self.tried: dict[tuple[int, ...], bool] = {}

    def fails(self, indices: Sequence[int]) -> bool:
        key = tuple(indices)
        if key not in self.tried:
            part = self._part(indices)
            self.tried[key] = part is not None and self.test(*part)
        return self.tried[key]

    def reduced(self, indices: list[int]) -> list[int]:
        for side in (1, 0):  # the end first: what comes after the failure matters least
            step = len(indices) // 2
            while step:
                shorter = indices[:-step] if side else indices[step:]
                if shorter and self.fails(shorter):
                    indices = shorter
                    step = min(step, len(indices) // 2)
                else:
                    step //= 2
        for i in list(indices):
            without = [j for j in indices if j != i]
            if without and self.fails(without):
                indices = without
        return indices

    def result(self, indices: list[int]) -> Reduced:
        part = self._part(indices)
        assert part is not None
        return Reduced(part[0], dict(part[1]), len(indices), len(self.graph.nodes))

    def _part(self, indices: Sequence[int]) -> tuple[bytes, Feed] | None:
        """The chosen nodes as a model, and its inputs; None where a value at its border is no tensor."""
        nodes = [self.graph.nodes[i].copy() for i in indices]
        made = {name for node in nodes for name in node.outputs if name}
        read = [name for node in nodes for name in sorted(node.used_names())]
        inputs = [n for n in dict.fromkeys(read) if n not in made and n not in self.graph.constants]
        used_outside = {n for i, node in enumerate(self.graph.nodes) if i not in set(indices) for n in node.used_names()}
        wanted = used_outside | set(self.graph.output_names()) | (made - set(read))
        outputs = [n for n in dict.fromkeys(n for node in nodes for n in node.outputs) if n in made and n in wanted]
        border = {n: v for n in (*inputs, *outputs) if isinstance(v := self.values.get(n), np.ndarray)}
        if not outputs or len(border) < len(inputs) + len(outputs):
            return None
        part = self.graph.clone()
        part.nodes, part.overridable = nodes, []
        part.inputs = [_value(n, border[n], fixed=True) for n in inputs]
        part.outputs = [_value(n, border[n], fixed=False) for n in outputs]
        part.constants = {n: c for n, c in self.graph.constants.items() if n in set(read)}
        part.types = {}
        return to_model_bytes(part), {n: border[n] for n in inputs}


def _value(name: str, array: Any, *, fixed: bool) -> Value:
    return Value(name, TensorType(DType.of(array.dtype), array.shape if fixed else None))
