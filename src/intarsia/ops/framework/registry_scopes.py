"""Operators in force: Intarsia's own, under those that a program registered for its process or for one session.

An operator that replaces one of another origin (a standard one, or a function that the model brings along) is stored under a
domain of its own, and the model's nodes are moved to it before anything looks at them: rewrite rules and kernels that know
the standard operator by its name never see a node that means something else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from intarsia.errors import InvalidArgument, UnknownOption, nearest
from intarsia.graph.model import Graph, Node
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.ops.framework.registry import OpRecord, Registry

Key = tuple[str, str]

STANDARD_DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft")
_OVERRIDE = "intarsia.override"
_session: ContextVar[Registry | None] = ContextVar("intarsia_operators", default=None)


@dataclass(frozen=True)
class OwnRecord(OpRecord):
    """An operator that a program registered. `override`: also in place of an operator of that name that exists already."""

    override: bool = False

    @property
    def key(self) -> Key:
        return self.domain, self.name


class LayeredRegistry(Registry):
    """Own records over a `base`: where both have an operator, the own one counts in the versions that it has."""

    def __init__(self, base: Registry, own: Iterable[OwnRecord]) -> None:
        self.base = base
        self.own = Registry()
        self.overridden = Registry()
        for record in own:
            self.own.add(_moved(record))
            if record.override:
                self.overridden.add(record)

    @property
    def records(self) -> dict[Key, list[OpRecord]]:  # type: ignore[override]
        merged = dict(self.base.records)
        for key, entries in self.own.records.items():
            remaining = [r for r in merged.get(key, ()) if all(r.since != e.since for e in entries)]
            merged[key] = sorted([*remaining, *entries], key=lambda r: r.since)
        return merged

    def add(self, record: OpRecord) -> None:
        self.own.add(record)

    def find(self, domain: str, name: str, version: int) -> OpRecord | None:
        """The record in force at opset `version` of `domain`, or None."""
        return self.own.find(domain, name, version) or self.base.find(domain, name, version)

    def of(self, domain: str, name: str) -> Sequence[OpRecord]:
        own = self.own.of(domain, name)
        remaining = [r for r in self.base.of(domain, name) if all(r.since != e.since for e in own)]
        return sorted([*remaining, *own], key=lambda r: r.since)

    def __repr__(self) -> str:
        return f"LayeredRegistry({len(self.own.records)} own operators over {type(self.base).__name__})"


def _moved(record: OwnRecord) -> OwnRecord:
    return replace(record, domain=override_domain(record.domain)) if record.override else record


def override_domain(domain: str) -> str:
    """The domain that nodes of an overridden operator of `domain` are moved to."""
    return f"{_OVERRIDE}.{domain}" if domain else _OVERRIDE


def redirected(graph: Graph, registry: Registry) -> Graph:
    """A graph whose nodes of overridden operators stand in the domain of their replacements; the same graph without any."""
    overridden = registry.overridden if isinstance(registry, LayeredRegistry) else None
    if overridden is None or not overridden.records:
        return graph
    names = {name for _, name in overridden.records}
    versions = graph.opset_imports

    def moves(node: Node, imports: Mapping[str, int]) -> bool:
        if node.op_type not in names:
            return False
        version = node.version or imports.get(node.domain, versions.get(node.domain, 1)) or 1
        return overridden.find(node.domain, node.op_type, version) is not None

    def domain_of(imports: Mapping[str, int]) -> Callable[[Node], str]:
        return lambda node: override_domain(node.domain) if moves(node, imports) else node.domain

    out = _mapped(graph, domain_of(versions))
    out.opset_imports = _with_override_domains(versions, overridden)
    out.functions = {}
    for key, function in graph.functions.items():
        nodes = [_mapped_node(node.copy(), domain_of(function.opset_imports)) for node in function.nodes]
        imports = _with_override_domains(function.opset_imports, overridden)
        out.functions[key] = replace(function, nodes=nodes, opset_imports=imports)
    return out


def _with_override_domains(imports: Mapping[str, int], overridden: Registry) -> dict[str, int]:
    domains = {domain for domain, _ in overridden.records}
    return {**imports, **{override_domain(d): v for d, v in imports.items() if d in domains}}


def restored(graph: Graph) -> Graph:
    """A graph whose nodes stand in the domains that the model gave them: the reverse of `redirected`."""
    if not any(domain.startswith(_OVERRIDE) for domain in graph.opset_imports):
        return graph
    out = _mapped(graph, lambda node: _original(node.domain))
    out.opset_imports = {d: v for d, v in graph.opset_imports.items() if not d.startswith(_OVERRIDE)}
    return out


def _original(domain: str) -> str:
    return domain.removeprefix(_OVERRIDE).removeprefix(".") if domain.startswith(_OVERRIDE) else domain


def _mapped(graph: Graph, domain_of: Callable[[Node], str]) -> Graph:
    out = graph.clone()
    out.nodes = [_mapped_node(node, domain_of) for node in out.nodes]
    return out


def _mapped_node(node: Node, domain_of: Callable[[Node], str]) -> Node:
    node.domain = domain_of(node)
    node.replace_subgraphs(lambda graph: _mapped(graph, domain_of))
    return node


# --- what is in force -------------------------------------------------------------------------------------------------


class OwnOperators:
    """Operators registered by a program, by domain and name; safe to change from several threads."""

    def __init__(self) -> None:
        self._lock = fork_safety.lock()
        self._records: dict[Key, dict[int, OwnRecord]] = {}
        self._layered: LayeredRegistry | None = None

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[OwnRecord]:
        for versions in list(self._records.values()):
            yield from versions.values()

    def add(self, records: Iterable[OwnRecord]) -> None:
        """Add records of one operator.

        Raises:
            InvalidArgument: a version of it is registered already, by another definition, and `override` was not requested.
        """
        with self._lock:
            for record in records:
                known = self._records.get(record.key, {}).get(record.since)
                if known is not None and not record.override and not _same_place(known, record):
                    raise InvalidArgument(
                        f"operator {label(*record.key)} version {record.since} is registered already, by {place(known)}; "
                        "pass override=True to replace it"
                    )
                self._records.setdefault(record.key, {})[record.since] = record
            self._layered = None

    def remove(self, key: Key) -> None:
        """Forget all versions of an operator.

        Raises:
            UnknownOption: it is not registered.
        """
        with self._lock:
            if key not in self._records:
                known = [label(*k) for k in self._records]
                raise UnknownOption(f"no operator {label(*key)} was registered; {nearest(label(*key), known)}")
            del self._records[key]
            self._layered = None

    def over(self, base: Registry, others: Sequence[OwnOperators] = ()) -> Registry:
        """These operators over `base`, and `others` over these; `base` itself where there are none."""
        if not self._records and not any(others):
            return base
        with self._lock:
            if others:
                merged = dict(self._records)
                for layer in others:
                    merged.update(layer._records)
                return LayeredRegistry(base, [record for versions in merged.values() for record in versions.values()])
            if self._layered is None or self._layered.base is not base:
                self._layered = LayeredRegistry(base, list(self))
            return self._layered


PROCESS = OwnOperators()
"""Operators of every session that is made from now on."""


def label(domain: str, name: str) -> str:
    """An operator as it is written in messages and by `intarsia.op`."""
    return f"{domain or 'ai.onnx'}::{name}"


def place(record: OpRecord) -> str:
    """Where an operator's function stands, for messages."""
    function: Any = record.function
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    name = f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name


def _same_place(a: OpRecord, b: OpRecord) -> bool:
    """Whether both were made by one definition that was executed twice, as in a notebook or a reloaded module."""
    return place(a).partition(" (")[0] == place(b).partition(" (")[0]


def in_force(builtin: Registry) -> Registry:
    """What a session that is being made here uses; elsewhere the process's operators over `builtin`."""
    session = _session.get()
    return session if session is not None else PROCESS.over(builtin)


@contextlib.contextmanager
def using(registry: Registry | None) -> Iterator[None]:
    """Make `registry` what `ops.framework.registry()` answers inside (None: no change)."""
    if registry is None:
        yield
        return
    token = _session.set(registry)
    try:
        yield
    finally:
        _session.reset(token)
