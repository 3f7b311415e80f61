"""A rewrite rule: pattern, check, rewrite. And the pattern language: operator trees with captures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

from intarsia.graph.dims import Shape
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch, Rewriter

COMMUTATIVE = frozenset(("Add", "Mul", "And", "Or", "Max", "Min", "Equal"))
_RELATIVE_TOLERANCE = 2e-3  # a constant written in float16 or with few digits still counts as the one it stands for


@dataclass
class Match:
    """A pattern laid over the graph: captured values and nodes by name, and all nodes that it covers (root last).

    Never changed: what a pattern adds is in a match of its own. (A frozen class would make objects four times as slowly.)
    """

    rewriter: Rewriter
    root: Node
    values: dict[str, str] = field(default_factory=dict)
    captured: dict[str, Node] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()

    def __getitem__(self, name: str) -> str:
        return self.values[name]

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def node(self, name: str) -> Node:
        return self.captured[name]

    def shape(self, name: str) -> Shape | None:
        return self.rewriter.shape(self.values[name])

    def scalar(self, name: str) -> float | None:
        return self.rewriter.scalar(self.values[name])

    def bind(self, name: str, value: str) -> Match:
        return Match(self.rewriter, self.root, {**self.values, name: value}, self.captured, self.nodes)

    def cover(self, node: Node, name: str) -> Match:
        captured = {**self.captured, name: node} if name else self.captured
        nodes = self.nodes if any(n is node for n in self.nodes) else (*self.nodes, node)
        return Match(self.rewriter, self.root, self.values, captured, nodes)

    def patch(self) -> Patch:
        return self.rewriter.patch(self.root, self.nodes)

    def replace(self, op_type: str, inputs: list[str], **attributes: Any) -> Patch:
        """A patch of one node instead of the root."""
        patch = self.patch()
        return patch.result(patch.op(op_type, inputs, **attributes), self.root.outputs[0])

    def keep(self, name: str) -> Patch:
        """A patch that replaces the root's first output by a captured value."""
        return self.patch().result(self.values[name], self.root.outputs[0])


class Pattern:
    """Matches a value; yields every way to do so."""

    def over(self, m: Match, value: str) -> Iterator[Match]:
        raise NotImplementedError

    def __or__(self, other: Pattern) -> Pattern:
        return Either((self, other))


@dataclass(frozen=True)
class Var(Pattern):
    """Any value; the same name twice means the same value."""

    name: str

    def over(self, m: Match, value: str) -> Iterator[Match]:
        bound = m.values.get(self.name)
        if bound is None:
            if value:
                yield m.bind(self.name, value)
        elif bound == value or m.rewriter.value_key(bound) == m.rewriter.value_key(value):
            yield m


@dataclass(frozen=True)
class Const(Pattern):
    """A constant: a one-element tensor of the given value, any one-element tensor (`scalar`), or any constant at all."""

    value: float | None = None
    name: str = ""
    scalar: bool = True

    def over(self, m: Match, value: str) -> Iterator[Match]:
        if self.scalar:
            found = m.rewriter.scalar(value)
            if found is None or self.value is not None and not close(found, self.value):
                return
        elif m.rewriter.constant(value) is None:
            return
        yield m.bind(self.name, value) if self.name else m


@dataclass(frozen=True)
class Either(Pattern):
    options: tuple[Pattern, ...]

    def over(self, m: Match, value: str) -> Iterator[Match]:
        for option in self.options:
            yield from option.over(m, value)


@dataclass(frozen=True)
class Op(Pattern):
    """An operator over input patterns. Without inputs given, any will do; `attributes` must have these values."""

    op_types: tuple[str, ...]
    inputs: tuple[Pattern, ...] | None = None
    name: str = ""
    attributes: tuple[tuple[str, Any], ...] = ()
    output: int = 0
    domain: str = ""

    def over(self, m: Match, value: str) -> Iterator[Match]:
        node = m.rewriter.producer.get(value)
        if node is None or node.op_type not in self.op_types or node.outputs[self.output : self.output + 1] != [value]:
            return
        if self.reads(m.rewriter.heads(node), node.op_type) and self.fits(node):
            yield from self.at(m, node)

    @cached_property
    def _heads(self) -> tuple[frozenset[str] | None, ...]:
        """Per input, what it must be of what `Rewriter.heads` says (None: any value)."""
        return tuple(_head(p) for p in self.inputs or ())

    def reads(self, heads: Sequence[str], op_type: str) -> bool:
        """Whether a node of `op_type` may match by what its inputs are (`Rewriter.heads`); False is certain."""
        if self.inputs is None:
            return True
        if len(heads) < len(self.inputs):
            return False
        return _produced_by(heads, self._heads) or op_type in COMMUTATIVE and _produced_by(heads[::-1], self._heads)

    def fits(self, node: Node) -> bool:
        """Whether the operator of a node and its attributes are the pattern's."""
        if node.op_type not in self.op_types or node.domain != self.domain:
            return False
        return all(node.attributes.get(key) == wanted for key, wanted in self.attributes)

    def at(self, m: Match, node: Node) -> Iterator[Match]:
        """Every way to lay the pattern over a node that it `reads` and `fits`."""
        here = m.cover(node, self.name)
        if self.inputs is None:
            yield here
            return
        given = [n for n in node.inputs if n]
        if len(given) < len(self.inputs) or len(given) > len(self.inputs) and node.op_type not in _OPTIONAL_TAIL:
            return
        yield from self._inputs(here, node.inputs)
        if node.op_type in COMMUTATIVE and len(self.inputs) == 2:
            yield from self._inputs(here, node.inputs[::-1])

    def _inputs(self, m: Match, names: list[str], at: int = 0) -> Iterator[Match]:
        assert self.inputs is not None
        if at == len(self.inputs):
            yield m
            return
        for found in self.inputs[at].over(m, names[at]):
            yield from self._inputs(found, names, at + 1)


def _head(pattern: Pattern) -> frozenset[str] | None:
    if isinstance(pattern, Op):
        return frozenset(pattern.op_types)
    if isinstance(pattern, Const):
        return _CONSTANT
    if isinstance(pattern, Either):
        heads = [_head(p) for p in pattern.options]
        return None if None in heads else frozenset().union(*(h for h in heads if h is not None))
    return None


_CONSTANT = frozenset(("Constant",))


def _produced_by(found: Sequence[str], heads: tuple[frozenset[str] | None, ...]) -> bool:
    for one, head in zip(found, heads, strict=False):  # noqa: SIM110 # as `Rewriter.alive`
        if head is not None and one not in head:
            return False
    return True


# Operators whose trailing inputs (axes, sizes) are looked at by a rule's check.
_OPTIONAL_TAIL = frozenset(
    (
        "ReduceMean",
        "ReduceSum",
        "ReduceMax",
        "Squeeze",
        "Unsqueeze",
        "Clip",
        "Slice",
        "Pad",
        "Split",
        "Reshape",
        "Expand",
        "Dropout",
    )
)


def op(op_types: str, *inputs: Pattern, name: str = "", output: int = 0, domain: str = "", **attributes: Any) -> Op:
    """`op("Mul", Var("x"), Const(0.5))`; `op("Reshape|Squeeze")` matches one of several with any inputs."""
    return Op(tuple(op_types.split("|")), inputs or None, name, tuple(attributes.items()), output, domain)


def close(found: float, wanted: float) -> bool:
    return math.isclose(found, wanted, rel_tol=_RELATIVE_TOLERANCE, abs_tol=0.0) or found == wanted


Rewrite = Callable[[Match], Patch | None]


@dataclass(frozen=True)
class Rule:
    """Where `pattern` matches, nothing outside reads its inner values, and `check` holds, `rewrite` gives a patch (or None).

    `shared` rules leave inner nodes in place, so it does not matter who else reads them. `quick` is a cheap test made first.
    `retypes`: behind what it makes types are inferred anew, since more of them are known.
    """

    name: str
    pattern: Op | tuple[Op, ...]
    rewrite: Rewrite
    check: Callable[[Match], bool] = lambda m: True
    shared: bool = False
    quick: Callable[[Rewriter, Node], bool] | None = None
    retypes: bool = False

    @cached_property
    def roots(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(f"{p.domain}::{t}" if p.domain else t for p in self.patterns for t in p.op_types))

    @cached_property
    def patterns(self) -> tuple[Op, ...]:
        return self.pattern if isinstance(self.pattern, tuple) else (self.pattern,)

    def reads(self, heads: Sequence[str], op_type: str) -> bool:
        """Whether any of the patterns may match a node of `op_type` with such inputs (`Rewriter.heads`); False is certain."""
        return any(pattern.op_types == ANY_OP or pattern.reads(heads, op_type) for pattern in self.patterns)

    def apply(self, rewriter: Rewriter, node: Node) -> Patch | None:
        if self.quick is not None and not self.quick(rewriter, node):
            return None
        for pattern in self.patterns:
            start = Match(rewriter, node)
            if pattern.op_types == ANY_OP:
                found: Iterable[Match] = (start.cover(node, ""),)
            elif pattern.fits(node) and pattern.reads(rewriter.heads(node), node.op_type):
                found = pattern.at(start, node)
            else:
                continue
            for m in found:
                if (self.shared or _enclosed(m)) and self.check(m):
                    patch = self.rewrite(m)
                    if patch is not None:
                        return patch
        return None


ANY_OP = ("*",)


def _enclosed(m: Match) -> bool:
    """Whether inner values are read only inside the match and are not graph outputs."""
    if len(m.nodes) == 1:
        return True
    inside = {id(n) for n in m.nodes}
    rewriter = m.rewriter
    for node in m.nodes:
        if node is m.root:
            continue
        for name in node.outputs:
            if name in rewriter.outputs or any(reader not in inside for reader in rewriter.readers.get(name, ())):
                return False
    return True


@dataclass(frozen=True)
class RuleSet:
    """Rules in the order in which they are tried, and the level from which on they run."""

    level: GraphOptimizationLevel
    rules: tuple[Rule, ...]

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)
