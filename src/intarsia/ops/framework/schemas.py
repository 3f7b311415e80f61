"""What ONNX and onnxruntime say that an operator takes: its parameters, type variables and attributes, version by version.

The table `schemas.txt` is written by scripts/schema_table.py from their schemas, so that neither is needed here. It begins
with sets of types (`@0 double float float16`); a line for each version of an operator follows, in five fields:

    Conv 22|X:T W:T B?:T|Y:T|auto_pad:STRING dilations:INTS ...|T=@3

that is name and version; inputs; outputs; attributes (`!` behind those that are required); type variables. A parameter is
NAME:VARIABLE, or NAME:=TYPE where its type is fixed; `?` marks an optional one, `*1` one of which there are any number from 1
on, `**1` one whose types may differ from each other. An element type alone (`float`) is a tensor of it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from intarsia.lazy_dataclass import dataclass

_AS = {  # operators that have no schema of their own, but another's
    ("com.microsoft", "QLinearMatMul", 1): ("", "QLinearMatMul", 21),
    ("com.microsoft", "SimplifiedLayerNormalization", 1): ("", "SimplifiedLayerNormalization", 1),
    ("com.microsoft", "DynamicQuantizeLinear", 1): ("", "DynamicQuantizeLinear", 11),
    ("ai.onnx.ml", "TreeEnsembleClassifier", 5): ("ai.onnx.ml", "TreeEnsembleClassifier", 3),  # deprecated there
    ("ai.onnx.ml", "TreeEnsembleRegressor", 5): ("ai.onnx.ml", "TreeEnsembleRegressor", 3),
}


@dataclass(frozen=True)
class Parameter:
    """An input or output of an operator.

    Attributes:
        variable: the type variable, "" where the type is fixed.
        types: types that it may have, as the table writes them.
        optional: whether it may be left out.
        least: how many there are at least where it is variadic, else None.
        alike: whether all of a variadic parameter are of one type.
    """

    name: str
    variable: str
    types: frozenset[str]
    optional: bool = False
    least: int | None = None
    alike: bool = True


@dataclass(frozen=True, eq=False)
class OperatorSchema:
    """One version of an operator. `attributes`: name -> (ONNX's word for its type, whether it is required).

    `fitting` are the combinations of operand types that were found to fit.
    """

    domain: str
    name: str
    since: int
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: Mapping[str, tuple[str, bool]]
    fitting: set[Any] = field(default_factory=set)

    def input(self, i: int) -> Parameter | None:
        """The parameter that a node's input `i` belongs to; None where there are not that many."""
        return _parameter(self.inputs, i)

    @functools.cached_property
    def most_outputs(self) -> int | None:
        """None: any number."""
        return None if self.outputs and self.outputs[-1].least is not None else len(self.outputs)

    def allowed(self, i: int) -> frozenset[str]:
        """Types that any version of the operator takes as its input `i`."""
        found: frozenset[str] = frozenset()
        for since in _table().versions[self.domain, self.name]:
            version = schema_of(self.domain, self.name, since)
            parameter = version.input(i) if version is not None else None
            found |= parameter.types if parameter is not None else frozenset()
        return found


def _parameter(parameters: tuple[Parameter, ...], i: int) -> Parameter | None:
    if i < len(parameters):
        return parameters[i]
    return parameters[-1] if parameters and parameters[-1].least is not None else None


@dataclass(frozen=True)
class _Table:
    sets: Mapping[str, str]
    lines: Mapping[str, str]  # "Conv 22" -> the rest of its line
    versions: Mapping[tuple[str, str], list[int]]


@functools.cache
def _table() -> _Table:
    sets, lines, versions = {}, {}, dict[tuple[str, str], list[int]]()
    from pathlib import Path

    for line in Path(__file__).with_name("schemas.txt").read_text(encoding="utf-8").splitlines():
        if line[0] == "@":
            number, _, words = line.partition(" ")
            sets[number] = words
        elif line[0] != "#":
            head, _, rest = line.partition("|")
            lines[head] = rest
            name, _, since = head.rpartition(" ")
            domain, _, operator = name.rpartition("::")
            versions.setdefault((domain, operator), []).append(int(since))
    return _Table(sets, lines, versions)


@functools.cache
def _set(number: str) -> frozenset[str]:
    return frozenset(_table().sets[number].split(" "))


@functools.cache
def schema_of(domain: str, name: str, since: int) -> OperatorSchema | None:
    """The schema of version `since` of an operator, None where the table has none."""
    key = _AS.get((domain, name, since), (domain, name, since))
    line = _table().lines.get(f"{key[0]}::{key[1]} {key[2]}" if key[0] else f"{key[1]} {key[2]}")
    if line is None:
        return None
    inputs, outputs, attributes, variables = line.split("|")
    types = {v: _set(number) for v, _, number in (word.partition("=") for word in variables.split())}
    named = (word.partition(":") for word in attributes.split())
    known = {a: (kind.removesuffix("!"), kind[-1] == "!") for a, _, kind in named}
    taken, given = (tuple([_read(word, types) for word in text.split()]) for text in (inputs, outputs))
    return OperatorSchema(*key, taken, given, known)


def _read(word: str, types: Mapping[str, frozenset[str]]) -> Parameter:
    name, _, kind = word.partition(":")
    name, star, least = name.partition("*")
    fixed = kind[0] == "="
    return Parameter(
        name.removesuffix("?"), "" if fixed else kind, frozenset({kind[1:]}) if fixed else types[kind], name[-1] == "?",
        int(least.removeprefix("*")) if star else None, least[:1] != "*",
    )  # fmt: skip
