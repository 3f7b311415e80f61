"""A row of `node_table`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from intarsia.lazy_dataclass import dataclass

TYPES = ("float", "float16", "bfloat16", "double", "int8", "uint8", "int32", "int64", "uint32", "bool")
"""What a T stands for. tests/ops/test_every_type.py has all types that schemas allow, one example each."""


@dataclass(frozen=True)
class Row:
    """Nodes of one form.

    Attributes:
        operators: names, separated by blanks.
        inputs: lists of inputs, each separated by semicolons.
        attributes: name -> values to try.
        outputs: how many outputs the node has.
        dense: all elements of a tensor may be hard numbers at once (element-wise operators); else a few among ordinary ones.
        domain: the operators' domain.
        numbers: kinds of numbers (`node_variants.NUMBERS`); (): all.
    """

    operators: str
    inputs: Sequence[str]
    attributes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    outputs: int = 1
    dense: bool = False
    domain: str = ""
    numbers: Sequence[str] = ()
