"""Sizes that vary, for vendors that compile for fixed sizes or for ranges of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from intarsia.errors import InvalidArgument
from intarsia.graph.dims import Dim, Expr, evaluate, symbols_of
from intarsia.graph.model import Graph, TensorType, Value, ValueType
from intarsia.lazy_dataclass import dataclass
from intarsia.passes import GraphOptimizationLevel, optimize

_ENTRY = re.compile(r"([^=;]+)=\s*(?:(\d+)\s*\.\.\s*(\d+)|(\d+(?:\s*,\s*\d+)*))\s*")
PROBED = 8
"""The size that an open size has where a node is tried by itself: all alike, since a node may want them equal."""


@dataclass(frozen=True)
class Sizes:
    """What one size may be: all from `low` to `high`, or one of `choices`."""

    low: int
    high: int
    choices: tuple[int, ...] = ()

    def __contains__(self, size: object) -> bool:
        return size in self.choices if self.choices else isinstance(size, int) and self.low <= size <= self.high

    def __str__(self) -> str:
        return ",".join(map(str, self.choices)) if self.choices else f"{self.low}..{self.high}"


@dataclass(frozen=True)
class ShapeProfile:
    """Symbols of a model with what their sizes may be. Its text: "batch=1..8; tokens=16,32,64"."""

    sizes: Mapping[str, Sizes] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, where: str) -> ShapeProfile:
        """Raises InvalidArgument, whose message `where` begins."""
        found: dict[str, Sizes] = {}
        for entry in filter(str.strip, text.split(";")):
            match = _ENTRY.fullmatch(entry.strip())
            if match is None:
                raise InvalidArgument(f"{where}: expected entries such as 'batch=1..8' or 'tokens=16,32', got {entry!r}")
            if match[4]:
                choices = tuple(sorted({int(n) for n in match[4].split(",")}))
                sizes = Sizes(choices[0], choices[-1], choices)
            else:
                sizes = Sizes(int(match[2]), int(match[3]))
            if not 1 <= sizes.low <= sizes.high:
                raise InvalidArgument(f"{where}: {entry!r}: expected sizes from 1 on, the lower first")
            found[match[1].strip()] = sizes
        return cls(found)

    def __str__(self) -> str:
        return "; ".join(f"{name}={sizes}" for name, sizes in self.sizes.items())

    def __bool__(self) -> bool:
        return bool(self.sizes)

    def covers(self, graph: Graph) -> bool:
        """Whether each open size of the graph's inputs is a symbol that the profile has."""
        return all(isinstance(d, int) or str(d) in self.sizes for shape in input_shapes(graph) for d in shape or ("",))

    def admits(self, env: Mapping[str, int]) -> bool:
        """Whether these sizes of a run are among those of the profile."""
        return all(env[name] in sizes for name, sizes in self.sizes.items() if name in env)


def input_shapes(graph: Graph) -> list[tuple[Dim, ...] | None]:
    """Of each input; None where not even the rank is known."""
    return [tuple(v.type.shape) if isinstance(v.type, TensorType) and v.type.shape is not None else None for v in graph.inputs]


def is_open(graph: Graph) -> bool:
    """Whether sizes of the graph's inputs vary."""
    return any(shape is None or any(isinstance(d, Expr) for d in shape) for shape in input_shapes(graph))


def sizes_of(graph: Graph, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """Symbol -> size, of a run with these input shapes."""
    return {
        str(dim): int(size)
        for declared, given in zip(input_shapes(graph), shapes, strict=True)
        if declared is not None
        for dim, size in zip(declared, given, strict=True)
        if isinstance(dim, Expr) and symbols_of(dim) == {str(dim)}
    }


def bind(graph: Graph, shapes: Sequence[Sequence[int]]) -> Graph:
    """The graph for inputs of exactly these shapes: what follows from sizes alone is folded.

    Raises:
        InvalidGraph: the sizes do not fit each other.
    """
    out = graph.clone()
    out.inputs = [
        Value(v.name, TensorType(v.type.dtype, tuple(shape)) if isinstance(v.type, TensorType) else v.type, v.doc)
        for v, shape in zip(graph.inputs, shapes, strict=True)
    ]
    env = sizes_of(graph, shapes)
    out.outputs = [Value(v.name, _bound(v.type if v.type is not None else graph.type_of(v.name), env)) for v in graph.outputs]
    out.types = {}
    return optimize(out, GraphOptimizationLevel.ORT_ENABLE_BASIC).graph


def probe_shapes(graph: Graph) -> list[list[int]] | None:
    """Shapes of inputs with `PROBED` for every open size; None where a rank is not known."""
    found: list[list[int]] = []
    for shape in input_shapes(graph):
        if shape is None:
            return None
        found.append([d if isinstance(d, int) else evaluate(d, dict.fromkeys(symbols_of(d), PROBED)) for d in shape])
    return found


def _bound(kind: ValueType | None, env: Mapping[str, int]) -> ValueType | None:
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    if all(symbols_of(d) <= env.keys() for d in kind.shape):
        return TensorType(kind.dtype, tuple(evaluate(d, env) for d in kind.shape))
    return TensorType(kind.dtype)
