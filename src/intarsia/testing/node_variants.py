"""Nodes made from the rows of `node_table`: one for each version, types, attributes, inputs, form and kind of numbers.

The order is the same in every process and on every machine, and takes operators in turn: the first N nodes hold some of every
operator, and are among the first N + 1. Needs the package onnx.
"""

from __future__ import annotations

import functools
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.testing.node_row import TYPES, Row
from intarsia.testing.node_table import ROWS

FORMS = ("inputs", "weights", "symbols")
"""Tensors are inputs of the model and listed elements are constants; all but the first input are constants; all are inputs, of
sizes that the model does not know."""

NUMBERS = ("plain", "nan", "infinite", "hard")
"""Ordinary numbers; among them NaN; among them infinities; among them (of dense rows: all of these) denormals, zeros with
signs, ties, large and equal ones. Integers are ordinary, or in "hard" the extremes of their type too."""

_INPUT = re.compile(r"(?P<type>\w+)(?:\{(?P<elements>[^}]*)\})?(?:\[(?P<shape>[\d,]*)\])?(?: (?P<scalar>\S+))?")
_BY_NAME = {d.onnx_name: d for d in DType}
_NAN, _INFINITE = (math.nan,), (math.inf, -math.inf)
_HARD = (0.0, -0.0, 1e-40, -1e-40, 1.2e-38, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 1.0, -1.0, 1.0, 300.0, -300.0, 17.0)
_DENSE = (
    *_NAN, *_INFINITE, *_HARD, 1e30, -1e30, 3.3e38, -3.3e38, 88.0, 88.9, -88.9, 104.5, -104.5, 0.999999, -0.999999, 1.000001,
    2.0, 3.0, -3.0, 5.0, -7.0, 0.1, 1e-5, -1e-5, 10.0, -10.0, 255.0, 256.5, 16777217.0, 0.25,
)  # fmt: skip
_TYPE = 2  # where `_axes` has the element type
_PERIODIC = frozenset(("Sin", "Cos", "Tan"))  # of more than a few thousand, few processors' functions are good
_WHOLE_NUMBERS = frozenset(("Div", "Mod", "Pow", "BitShift"))  # of integers: no zeros, powers that fit


@dataclass(frozen=True)
class NodeCase:
    """One node and its inputs.

    Attributes:
        version: of the operator, which is the model's opset too (of its domain).
        inputs: arrays; None where the input is omitted.
        constants: which inputs are initializers.
        symbolic: whether the sizes of the others are unknown to the model.
        dense: as in `Row`.
    """

    operator: str
    domain: str
    version: int
    attributes: tuple[tuple[str, Any], ...]
    inputs: tuple[np.ndarray | None, ...]
    constants: frozenset[int]
    symbolic: bool
    outputs: int
    dense: bool
    numbers: str

    def __str__(self) -> str:
        kinds = [
            "-" if x is None else f"{'=' * (i in self.constants)}{DType.of(x.dtype).onnx_name}{list(x.shape)}"
            for i, x in enumerate(self.inputs)
        ]
        attributes = "".join(f", {k}={v}" for k, v in self.attributes)
        symbols = ", symbolic" if self.symbolic else ""
        return f"{self.operator}-{self.version}({'; '.join(kinds)}{attributes}{symbols}) of {self.numbers} numbers"


def cases(part: str = "") -> Iterator[NodeCase]:
    """Every node, or those whose operator's name has `part` (equals it, where an operator is called so)."""
    spaces = _spaces()
    names = [n for n in spaces if n[1] == part] or [n for n in spaces if part in n[1]]
    waiting = [_of_operator(spaces[name], name) for name in names]
    while waiting:
        for source in list(waiting):
            found = next(source, None)
            if found is None:
                waiting.remove(source)
            else:
                yield found


@functools.cache
def _spaces() -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in ROWS:
        for name in row.operators.split():
            found.setdefault((row.domain, name), []).append(row)
    return found


def _of_operator(rows: Sequence[Row], name: tuple[str, str]) -> Iterator[NodeCase]:
    """The operator's nodes in an order that is as good as random; of four, three are of float32, where they can be."""
    spaces = [(row, _axes(row, name)) for row in rows]
    starts = np.cumsum([0, *(math.prod(map(len, axes)) for _, axes in spaces)])
    order = np.random.default_rng(zlib.crc32(name[1].encode())).permutation(int(starts[-1]))

    def drawn(*, common: bool) -> Iterator[NodeCase]:
        for index in order:
            at = int(np.searchsorted(starts, index, "right")) - 1
            row, axes = spaces[at]
            places = np.unravel_index(index - starts[at], [len(axis) for axis in axes])
            chosen = [axis[i] for axis, i in zip(axes, places, strict=True)]
            if (chosen[_TYPE] in ("", "float")) is common and (case := _case(row, name, chosen, int(index))) is not None:
                yield case

    sources = [drawn(common=True)] * 3 + [drawn(common=False)]
    while sources:
        for source in list(sources):
            found = next(source, None)
            if found is not None:
                yield found
            elif source in sources:
                sources = [s for s in sources if s is not source]


def _axes(row: Row, name: tuple[str, str]) -> list[Sequence[Any]]:
    """What is chosen for a node of the row: schema, inputs, type, form, numbers, and a value of each attribute."""
    types = TYPES if any(t.strip().startswith("T") for text in row.inputs for t in text.split(";")) else ("",)
    numbers = row.numbers or (("plain", "hard") if row.dense else NUMBERS)
    return [schemas(*name), row.inputs, types, FORMS, numbers, *row.attributes.values()]


@functools.cache
def schemas(domain: str, name: str) -> tuple[Any, ...]:
    """Of every version that is not deprecated; for another domain than ONNX's, (None,): nothing is checked."""
    import onnx.defs

    if domain:
        return (None,)
    found = [s for s in _all_schemas() if (s.domain, s.name) == (domain, name) and not s.deprecated]
    return tuple(sorted(found, key=lambda s: int(s.since_version))) or (onnx.defs.get_schema(name, domain),)


@functools.cache
def _all_schemas() -> tuple[Any, ...]:
    import onnx.defs

    return tuple(onnx.defs.get_all_schemas_with_history())


def _case(row: Row, name: tuple[str, str], chosen: Sequence[Any], seed: int) -> NodeCase | None:
    """The node; None where its schema does not have it."""
    schema, text, kind, form, numbers, *values = chosen
    attributes = {k: v for k, v in zip(row.attributes, values, strict=True) if v is not None}
    if attributes.get("auto_pad") and "pads" in attributes:  # "cannot be used simultaneously"
        return None
    parts = [p.strip() for p in text.split(";")]
    if kind not in ("", "float") and not any(p.startswith("T") for p in parts):
        return None
    elements = [_element(p, kind) for p in parts]
    if schema is not None and not _allowed(schema, attributes, elements, row.outputs):
        return None
    rng = np.random.default_rng(seed)
    # NaN in weights would tell how zeros are multiplied that an operator inserts, which ONNX leaves open.
    inputs = [_array(p, e, i, name[1], numbers if i == 0 or row.dense else "plain", row.dense, rng)
              for i, (p, e) in enumerate(zip(parts, elements, strict=True))]  # fmt: skip
    listed = {i for i, p in enumerate(parts) if "{" in p or " " in p}
    constants = {"inputs": listed - {0}, "weights": set(range(1, len(parts))), "symbols": set()}[form]
    version = 1 if schema is None else int(schema.since_version)
    return NodeCase(
        name[1], name[0], version, tuple(attributes.items()), tuple(inputs),
        frozenset(i for i in constants if inputs[i] is not None), form == "symbols", row.outputs, row.dense, numbers,
    )  # fmt: skip


def _element(text: str, kind: str) -> str:
    """The name of an input's element type; "" where it is omitted."""
    word = re.match(r"\w*", text)
    assert word is not None
    return kind or "float" if word[0] == "T" else word[0]


def _allowed(schema: Any, attributes: dict[str, Any], elements: Sequence[str], outputs: int) -> bool:
    """Whether a schema has these attributes and as many inputs and outputs, of these types."""
    from onnx.defs import OpSchema

    declared = schema.attributes
    if attributes.keys() - declared.keys() or any(a.required and k not in attributes for k, a in declared.items()):
        return False
    for key, value in attributes.items():
        if not _fits(declared[key], value):
            return False
    if not schema.min_input <= len(elements) <= schema.max_input or outputs > schema.max_output:
        return False
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    bound: dict[str, str] = {}
    for i, element in enumerate(elements):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        variable = str(getattr(formal, "type_str", None) or formal.typeStr)
        if not element:
            if formal.option != OpSchema.FormalParameterOption.Optional:
                return False
            continue
        if f"tensor({element})" not in allowed.get(variable, (variable,)):
            return False
        if formal.option != OpSchema.FormalParameterOption.Variadic or formal.is_homogeneous:
            if bound.setdefault(variable, element) != element:
                return False
    return True


def _fits(declared: Any, value: Any) -> bool:
    """Whether an attribute of a schema takes a value of this type (`to` of Cast-1 is a text)."""
    kind = str(declared.type).rsplit(".", 1)[-1]
    if isinstance(value, list):
        return kind == {int: "INTS", float: "FLOATS", str: "STRINGS"}[type(value[0])]
    return kind == {int: "INT", float: "FLOAT", str: "STRING"}[type(value)]


def _array(text: str, element: str, i: int, operator: str, numbers: str, dense: bool, rng: Any) -> np.ndarray | None:
    if not element:
        return None
    matched = _INPUT.fullmatch(text)
    assert matched is not None, text
    dtype = _BY_NAME[element].numpy
    shape = [int(n) for n in (matched["shape"] or "").split(",") if n]
    if matched["scalar"] is not None or matched["elements"] is not None:
        given = matched["scalar"] if matched["scalar"] is not None else matched["elements"]
        listed = [float(v) if "float" in element or element == "double" else int(float(v)) for v in given.split(",") if v]
        array = np.array(listed).astype(dtype)
        return array.reshape(shape if matched["shape"] is not None else () if matched["scalar"] is not None else (-1,))
    count = math.prod(shape)
    kind = _BY_NAME[element]
    if kind is DType.BOOL:
        return np.asarray(rng.random(count) < 0.5).reshape(shape)
    if kind.is_integer:
        drawn = _integers(count, kind, operator, numbers, rng)
    else:
        drawn = _floats(count, operator, numbers, dense, i, rng)
    if operator == "BatchNormalization" and i == 4:
        drawn = np.abs(drawn) + 0.1
    with np.errstate(over="ignore"):
        return drawn.astype(dtype).reshape(shape)


def _integers(count: int, kind: DType, operator: str, numbers: str, rng: Any) -> np.ndarray:
    small = operator in _WHOLE_NUMBERS
    signed = np.issubdtype(kind.numpy, np.signedinteger)
    found = rng.integers(1, 5, count) if small else rng.integers(-20 if signed else 0, 21, count)
    if numbers == "hard" and not small:
        limits = np.iinfo(kind.numpy)
        extremes = np.array([limits.max, limits.max - 1, limits.min, limits.min + 1, min(limits.max, 2**24 + 1), 0], object)
        some = rng.random(count) < 0.3
        mixed = np.where(some, rng.choice(extremes, count), found.astype(object))
        return np.array(mixed.tolist(), kind.numpy)
    return np.asarray(found)


def _floats(count: int, operator: str, numbers: str, dense: bool, i: int, rng: Any) -> np.ndarray:
    plain = np.asarray(rng.standard_normal(count) * 1.5)
    if numbers == "plain":
        return plain
    if dense:
        listed = np.array(_DENSE) if i == 0 else rng.permutation(_DENSE)
        found = np.resize(listed, count) if count >= len(_DENSE) else rng.choice(listed, count)
        return np.where(np.isfinite(found) & (np.abs(found) > 1e4), 17.0, found) if operator in _PERIODIC else found
    some = rng.random(count) < 0.12
    if count:
        some[rng.integers(count)] = True
    return np.where(some, rng.choice({"nan": _NAN, "infinite": _INFINITE, "hard": _HARD}[numbers], count), plain)
