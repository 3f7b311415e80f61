"""Every operator with operands that its schema does not allow: an error that says where, or what the reference provider gives.

Each input of each example gets every other element type, a sequence, an optional, a map, and nothing. By default the newest
version of each operator gets a few of these, always the same; `--every-operand` tries all of them in every version (hours).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest
from test_every_type import CPU, REFERENCE, name_of, schemas
from typed_nodes import RANDOM, Typed, _with_element, difference, examples, model_of, run

from intarsia.errors import IntarsiaError
from intarsia.primitives.lang import DefinitionError

ELEMENTS = (
    "float", "float16", "double", "bfloat16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool",
    "string", "complex64", "float8e4m3fn", "int4", "uint2",
)  # fmt: skip
OTHERS = ("seq", "optional", "map", "nothing")
SAMPLE = 3  # of an operator, by default
WITH_BODIES = {"If", "Loop", "Scan", "SequenceMap"}  # the node that is wrong may be one inside


def variants(schema: Any) -> Iterator[Typed]:
    """Nodes of which one operand is another than in the example."""
    for written in examples(schema):
        inputs = tuple(text.replace("TENSOR", "float") for text in written.inputs)  # bodies for any type
        example = replace(written, inputs=inputs, attributes=written.attributes.replace("TENSOR", "float"))
        for i, text in enumerate(inputs[: len(inputs) - example.captured]):
            for word in () if text == "-" else (*ELEMENTS, *OTHERS):
                other = _other(text, word)
                if other is not None and other != text:
                    changed = (*inputs[:i], other, *inputs[i + 1 :])
                    yield Typed(schema, replace(example, inputs=changed), "", f"{word} as input {i}")


def _other(text: str, word: str) -> str | None:
    """How the example's operand is written when it is something else; None where it cannot be."""
    plain = text.lstrip("=")
    if "[" not in plain or "(" in plain:  # a constant whose elements are written out, a sequence, a map
        plain = "float[2]"
    if word in ("seq", "optional"):
        return f"{word}({plain})"
    if word in ("map", "nothing"):
        return {"map": "map(string,float)", "nothing": "-"}[word]
    if text.startswith(("map", "=string")):
        return None
    return _with_element(text, word)


def chosen(schema: Any, every: bool) -> list[Typed]:
    found = list(variants(schema))
    return found if every else sorted(found, key=lambda node: crc32(str(node).encode()))[:SAMPLE]


def outcome(node: Typed, provider: str) -> Any:
    try:
        return run([node], provider)[0][0]
    except IntarsiaError as error:
        return error


def said(node: Typed, error: Exception) -> str:
    """What is wrong with an error, "" where nothing is."""
    if not isinstance(error.__cause__, (type(None), IntarsiaError, DefinitionError)):
        return f"explained by {type(error.__cause__).__name__}: {error}"
    inside = node.schema.name in WITH_BODIES and re.search(r"node '\w+' \(", str(error))
    named = "'n0'" in str(error) and node.schema.name in str(error)
    return "" if inside or named else f"names neither node nor operator: {error}"


def problem(node: Typed) -> str:
    compiled, interpreted = outcome(node, CPU), outcome(node, REFERENCE)
    if isinstance(compiled, Exception) or isinstance(interpreted, Exception):
        if isinstance(compiled, Exception) and isinstance(interpreted, Exception):
            return said(node, compiled) or said(node, interpreted)
        return f"{compiled!r} on the CPU, {interpreted!r} by the interpreter"
    return "" if node.schema.name in RANDOM else difference(compiled, interpreted)


def _is_buildable(node: Typed) -> bool:
    """Not every constant can be written in every type."""
    try:
        model_of([node])
    except (TypeError, ValueError, OverflowError, KeyError):
        return False
    return True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    every = metafunc.config.getoption("--every-operand")
    newest = {(s.domain, s.name): s for s in reversed(schemas())}
    metafunc.parametrize("schema", schemas() if every else list(newest.values()), ids=name_of)


def test_wrong_operands(schema: Any, request: pytest.FixtureRequest) -> None:
    nodes = chosen(schema, request.config.getoption("--every-operand"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not [f"{node}: {text}" for node in nodes if _is_buildable(node) and (text := problem(node))]
