"""One record per operator: domain, name, versions, and a definition in tensor primitives or on the host.

A definition is a function whose positional parameters are the operator's inputs (None where an optional one is omitted;
`*xs` takes all) and whose keyword-only parameters are its attributes with their defaults. One keyword-only name is
special: `node` receives a `NodeContext`. What belongs together is one parameter, a `ParameterGroup`.

    @op("LeakyRelu", since=(6, 16))
    def leaky_relu(x, *, alpha=0.01):
        return k.select(x < 0, x * alpha, x)

`values` names inputs that the definition needs as integers (a target shape, axes, ...): it receives a NumPy object array
whose elements are `Dim`s (ints, or symbolic until the model is bound to shapes). An operator that cannot be written in
primitives (strings, sequences, data-dependent output) is a `host_op`: a function over NumPy arrays, with an `infer` rule.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, TypeVar

from intarsia.graph.model import Graph
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.operands import OMITTED
from intarsia.ops.framework.parameter_groups import flat
from intarsia.ops.framework.schemas import OperatorSchema, schema_of

F = TypeVar("F", bound=Callable[..., Any])

_ANNOTATED: Mapping[str, str] = {  # how a definition's parameter is annotated: ONNX's word for the attribute's type
    "int": "INT", "float": "FLOAT", "str": "STRING", "Graph": "GRAPH", "Ints": "INTS", "Sequence[int]": "INTS",
    "list[int]": "INTS", "Floats": "FLOATS", "Sequence[float]": "FLOATS", "Sequence[str]": "STRINGS",
}  # fmt: skip


@dataclass(frozen=True)
class NodeContext:
    """What a definition may ask about the node it stands for."""

    outputs: int = 1  # how many outputs are wanted (named ones up to the last that is used)
    wanted: tuple[bool, ...] = (True,)  # which of them
    version: int = 0
    name: str = ""
    operands: tuple[Any, ...] = ()  # the operands as tensors, those included that the definition receives as integers
    run_graph: Callable[[Graph, Sequence[Any]], list[Any]] | None = None  # host ops: runs a subgraph body
    body_types: Callable[[Graph, Sequence[Any]], list[Any]] | None = None  # host ops: types of what a subgraph would give
    infer_graph: Callable[[Graph, Sequence[Any]], list[Any]] | None = None  # infer rules: types of a subgraph's outputs
    elements: Callable[[int], Any] | None = None  # infer rules: the elements of an integer input, named if a run gives them


@dataclass(frozen=True)
class OpRecord:
    """An operator in one span of versions."""

    domain: str
    name: str
    since: int
    function: Callable[..., Any]
    host: bool = False
    infer: Callable[..., Any] | None = None
    values: tuple[str, ...] = ()
    reason: str = ""  # why it is a host operator
    deterministic: bool = True
    fallback: Callable[..., Any] | None = None  # NumPy function for nodes whose definition raises SymbolicValueError
    bind: Callable[..., Callable[..., Any]] | None = None  # host ops: from the attributes to a function of the inputs alone
    primitives: Callable[..., Any] | None = None  # host ops: what runs where there is no host to call, for known sizes
    until: int | None = None  # the first version of the operator set that has the operator no longer

    @cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.function).parameters.values())

    @cached_property
    def own(self) -> bool:
        """Whether the operator is Intarsia's, not a program's."""
        return getattr(self.function, "__module__", "").startswith("intarsia.ops.")

    @cached_property
    def schema(self) -> OperatorSchema | None:
        """What ONNX or onnxruntime says of the operator; None where it is neither's, or a program's in its place."""
        return schema_of(self.domain, self.name, self.since) if self.own else None

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return tuple(p.name for p in self._parameters if p.kind in positional)

    @cached_property
    def variadic(self) -> bool:
        return any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in self._parameters)

    @cached_property
    def required_inputs(self) -> tuple[int, ...]:
        """Places of the inputs without a default, or with `OMITTED`."""
        return tuple(
            [i for i, name in enumerate(self.input_names) if self._defaults[name] in (inspect.Parameter.empty, OMITTED)]
        )

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        return {p.name: p.default for p in self._parameters}

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Attribute name -> default (`REQUIRED` where there is none)."""
        return {
            p.name: REQUIRED if p.default is inspect.Parameter.empty else p.default
            for p in self._parameters
            if p.kind is inspect.Parameter.KEYWORD_ONLY and p.name != "node"
        }

    @cached_property
    def annotations(self) -> dict[str, str]:
        """Attribute name -> how the function is annotated, without `| None`."""
        return {p.name: str(p.annotation).removesuffix(" | None") for p in self._parameters if p.name in self.attributes}

    @cached_property
    def attribute_types(self) -> dict[str, str]:
        """Attribute name -> ONNX's word for its type, where the schema or the function says it."""
        annotated = {name: _ANNOTATED[a] for name, a in self.annotations.items() if a in _ANNOTATED}
        schema = {} if self.schema is None else {name: kind for name, (kind, _) in self.schema.attributes.items()}
        return {**annotated, **schema}

    @cached_property
    def takes_any_attribute(self) -> bool:
        """Whether the function checks its attributes itself (`**attributes`)."""
        return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in self._parameters)

    @cached_property
    def wants_context(self) -> bool:
        return any(p.name == "node" for p in self._parameters)

    @cached_property
    def value_indices(self) -> frozenset[int]:
        return frozenset(self.input_names.index(v) for v in self.values)


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


@dataclass
class Registry:
    """Operators by (domain, name), each with its records in ascending order of `since`."""

    records: dict[tuple[str, str], list[OpRecord]] = field(default_factory=dict)

    def add(self, record: OpRecord) -> None:
        _add(self.records, record)

    def find(self, domain: str, name: str, version: int) -> OpRecord | None:
        """The record in force at opset `version` of `domain`, or None."""
        best = None
        for record in self.of(domain, name):
            if record.since <= version:
                best = record
        return best if best is None or best.until is None or version < best.until else None

    def of(self, domain: str, name: str) -> Sequence[OpRecord]:
        """An operator's records in ascending order of `since`; none where there is no such operator."""
        return self.records.get((domain, name), ())

    def __iter__(self) -> Iterator[OpRecord]:
        for entries in self.records.values():
            yield from entries


_MOST_KNOWN = 1 << 12  # answers: models may ask for operators of any name


class IndexedRegistry(Registry):
    """Operators whose modules are imported when one of them is looked for; who requests all imports all.

    A first session would import a hundred modules for the ten operators of its model.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], list[OpRecord]] = {}
        self._modules: dict[tuple[str, str], tuple[str, ...]] = {}  # that define an operator
        self._absent: dict[str, None] = {}  # modules that were not imported yet, in their order
        self._in_force: dict[tuple[str, str, int], OpRecord | None] = {}  # what `find` found

    def index(self, families: Mapping[str, Iterable[tuple[str, str]]]) -> None:
        """Say which operators (domain, name) each module defines."""
        self._absent = dict.fromkeys(families)
        for module, operators in families.items():
            for key in operators:
                self._modules[key] = (*self._modules.get(key, ()), module)

    @property
    def records(self) -> dict[tuple[str, str], list[OpRecord]]:  # type: ignore[override]
        """Those of all operators, in the order of the index."""
        if self._absent:
            self._import(tuple(self._absent))
            order = {key: place for place, key in enumerate(self._modules)}
            self._found = dict(sorted(self._found.items(), key=lambda item: order.get(item[0], len(order))))
        return self._found

    def of(self, domain: str, name: str) -> Sequence[OpRecord]:
        if self._absent:
            self._import(self._modules.get((domain, name), ()))
        return self._found.get((domain, name), ())

    def find(self, domain: str, name: str, version: int) -> OpRecord | None:
        key = (domain, name, version)
        found = self._in_force.get(key)
        if found is None and key not in self._in_force:
            found = super().find(domain, name, version)
            if len(self._in_force) < _MOST_KNOWN:
                self._in_force[key] = found
        return found

    def _import(self, modules: Sequence[str]) -> None:
        for module in modules:
            if module in self._absent:
                importlib.import_module(module)  # which waits for another thread that does
                self._absent.pop(module, None)

    def add(self, record: OpRecord) -> None:
        _add(self._found, record)
        self._in_force.clear()


def _add(records: dict[tuple[str, str], list[OpRecord]], record: OpRecord) -> None:
    entries = records.setdefault((record.domain, record.name), [])
    if any(e.since == record.since for e in entries):
        raise ValueError(f"operator {record.domain or 'ai.onnx'}::{record.name} version {record.since} is defined twice")
    entries.append(record)
    entries.sort(key=lambda r: r.since)


REGISTRY = IndexedRegistry()


def op(
    name: str,
    since: int | tuple[int, ...],
    *,
    domain: str = "",
    values: tuple[str, ...] = (),
    deterministic: bool = True,
    fallback: Callable[..., Any] | None = None,
    until: int | None = None,
) -> Callable[[F], F]:
    """Register a definition in tensor primitives for every version in `since`.

    Args:
        until: the first version of the operator set that has the operator no longer.
        fallback: NumPy function with the definition's parameters. A definition raises `SymbolicValueError` for a case that
            primitives cannot express (random numbers, strings); the node then runs on the host by this function.
    """

    def register(function: F) -> F:
        definition, otherwise = flat(function), fallback and flat(fallback)
        for version in (since,) if isinstance(since, int) else since:
            record = OpRecord(
                domain, name, version, definition, values=values, deterministic=deterministic, fallback=otherwise, until=until
            )
            REGISTRY.add(record)
        return function

    return register


def host_op(
    name: str,
    since: int | tuple[int, ...],
    *,
    infer: Callable[..., Any],
    reason: str,
    domain: str = "",
    values: tuple[str, ...] = (),
    deterministic: bool = True,
    bind: Callable[..., Callable[..., Any]] | None = None,
    primitives: Callable[..., Any] | None = None,
) -> Callable[[F], F]:
    """Register an operator that runs as a NumPy function on the host.

    Args:
        infer: same parameters as the function, but inputs are `ValueType`s (None: omitted); returns the output types. Sizes
            that depend on data are `fresh_symbol`s.
        reason: why it is not written in primitives; shown by `explain` and the operator table.
        bind: takes the attributes and gives a function of the inputs that computes what the operator's function does: for
            tables that are made of attributes, once and not at every run. It raises DefinitionError where that would.
        primitives: a function of the same parameters, over tensors, for providers whose kernels cannot call the host: it asks
            for sizes that are numbers, or reads more than the host does.
    """

    def register(function: F) -> F:
        definition, types = flat(function), flat(infer)
        makes, traced = bind and flat(bind), primitives and flat(primitives)
        for version in (since,) if isinstance(since, int) else since:
            record = OpRecord(domain, name, version, definition, True, types, values, reason, deterministic)
            REGISTRY.add(replace(record, bind=makes, primitives=traced))
        return function

    return register
