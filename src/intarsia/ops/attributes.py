"""Kinds of attributes: what a node was given against what its definition is annotated with."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.graph.model import Graph, Node
from intarsia.kernel import lang as k
from intarsia.ops.registry import REQUIRED, OpRecord

# By annotation: the type of the attribute (of its elements where the second is true), and its name in messages.
_KINDS: Mapping[str, tuple[tuple[type, ...], bool, str]] = {
    "int": ((numbers.Integral,), False, "an integer"),
    "int | str": ((numbers.Integral, str, bytes), False, "an integer"),
    "float": ((numbers.Real,), False, "a number"),
    "str": ((str, bytes), False, "a string"),
    "Graph": ((Graph,), False, "a graph"),
    "Ints": ((numbers.Integral,), True, "a list of integers"),
    "Sequence[int]": ((numbers.Integral,), True, "a list of integers"),
    "list[int]": ((numbers.Integral,), True, "a list of integers"),
    "Floats": ((numbers.Real,), True, "a list of numbers"),
    "Sequence[float]": ((numbers.Real,), True, "a list of numbers"),
    "Sequence[str]": ((str, bytes), True, "a list of strings"),
}


def check_attributes(record: OpRecord, node: Node) -> None:
    """Raise DefinitionError where a required attribute is missing, or one is not of the kind that the definition takes.

    Operators that are not Intarsia's own have a schema that checks more (`intarsia.operators`).
    """
    if not getattr(record.function, "__module__", "").startswith("intarsia.ops."):
        return
    for name, default in record.attributes.items():
        if default is REQUIRED and name not in node.attributes:
            raise k.DefinitionError(f"required attribute {name!r} is missing")
    for name, value in node.attributes.items():
        kind = _KINDS.get(record.annotations.get(name, ""))
        if kind is None or value is None:
            continue
        types, several, expected = kind
        if several:
            good = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes))
            good = good and all(isinstance(v, types) for v in value)
        else:
            good = isinstance(value, types)
        if not good:
            raise k.DefinitionError(f"attribute {name!r} is {_shown(value)}; expected {expected}")


def _shown(value: Any) -> str:
    if isinstance(value, (numbers.Number, str, bytes)):
        return repr(value)
    if isinstance(value, Sequence) and len(value) <= 8 and all(isinstance(v, (numbers.Number, str, bytes)) for v in value):
        return repr(list(value))
    return f"a {type(value).__name__}"
