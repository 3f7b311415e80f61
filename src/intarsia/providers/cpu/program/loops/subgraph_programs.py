"""Bodies of control flow, compiled as programs of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.graph.dims import fresh_symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, SequenceType, TensorType, Value, ValueType
from intarsia.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from intarsia.providers.cpu.program.cpu_program import CpuProgram


def body_program(
    owner: CpuProgram, graph: Graph, given: Sequence[Any], captured: Mapping[str, Any]
) -> tuple[CpuProgram, list[str]]:
    """The program for `graph` on values of these types and ranks, and the names of the captured values it takes.

    Captured constants are constants of the program.
    """
    recent = owner._recent.get(id(graph))
    if recent is not None and recent.graph is graph and recent.takes(given, captured):
        return recent.program, recent.names
    program, names = _found(owner, graph, given, captured)
    kinds = [_kind(v) for v in (*given, *(captured[n] for n in names))]
    owner._recent[id(graph)] = Recent(graph, kinds, program, names)
    return program, names


@dataclass(frozen=True)
class Recent:
    """The program that a body had last, and the kinds of values that it takes."""

    graph: Graph
    kinds: list[object]
    program: CpuProgram
    names: list[str]

    def takes(self, given: Sequence[Any], captured: Mapping[str, Any]) -> bool:
        kinds = iter(self.kinds)
        return all(_kind(v) == k for v, k in zip(given, kinds, strict=False)) and all(
            _kind(captured[n]) == k for n, k in zip(self.names, kinds, strict=True)
        )


def _found(owner: CpuProgram, graph: Graph, given: Sequence[Any], captured: Mapping[str, Any]) -> tuple[CpuProgram, list[str]]:
    assert owner.lowered is not None  # a program with subgraphs is not cached
    around = owner.lowered.graph
    constants = around.constants
    known, names = owner._captured.get(id(graph), (None, []))
    if known is not graph:  # the graph is retained, so that its id stays its own
        names = sorted(n for n in graph.captured_names() if n not in constants)
        owner._captured[id(graph)] = (graph, names)
    values = [*given, *(captured[n] for n in names)]
    key = (id(graph), tuple(_kind(v) for v in values))
    graph_of, program = owner._bodies.get(key, (None, None))
    if program is None or graph_of is not graph:
        inner = graph.clone()
        inner.opset_imports = graph.opset_imports or around.opset_imports
        inner.functions = graph.functions or around.functions
        inner.constants.update((n, constants[n]) for n in graph.captured_names() if n in constants)
        named = [*(v.name for v in graph.inputs), *names]
        inner.inputs = [Value(n, _type_of(n, v)) for n, v in zip(named, values, strict=True)]
        program = owner.compile_body(inner)
        owner._bodies[key] = (graph, program)  # the graph is retained, so that its id stays its own
    return program, names


def _kind(value: Any) -> object:
    return (value.dtype, value.ndim) if isinstance(value, np.ndarray) else type(value).__name__


def _type_of(name: str, value: Any) -> ValueType | None:
    if isinstance(value, np.ndarray):
        return TensorType(DType.of(value.dtype), tuple(fresh_symbol(f"{name}_d{i}") for i in range(value.ndim)))
    if isinstance(value, list):
        return SequenceType(_type_of(name, value[0]) if value else None)
    return None
