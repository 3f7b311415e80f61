"""What an operator takes and gives: inputs, outputs and attributes with their types, read off a function's signature."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from intarsia.errors import InvalidArgument, nearest
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, SequenceType, TensorType, ValueType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.registry import REQUIRED
from intarsia.primitives.lang import DefinitionError

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_ELEMENTS = {d.onnx_name: d for d in DType if d is not DType.UNDEFINED}
_NUMPY_WORDS = {"float32": DType.FLOAT, "float64": DType.DOUBLE, "str": DType.STRING}
_ANY = "any"
UNTYPED = TensorType(DType.UNDEFINED)  # an input whose elements are known integers: its element type is not checked


@dataclass(frozen=True)
class TypeSpec:
    """Element types that an input may have. `variable` names a type that several inputs and outputs share."""

    text: str
    elements: frozenset[DType]
    variable: str = ""
    sequence: bool = False

    def __str__(self) -> str:
        listed = " | ".join(d.onnx_name for d in sorted(self.elements)) if len(self.elements) < len(_ELEMENTS) else "any type"
        return f"seq({listed})" if self.sequence else listed


def parse_spec(text: str, variables: Mapping[str, frozenset[DType]], where: str) -> TypeSpec:
    """`float`, `float | double`, a type variable, `any`, or `seq(...)` of these.

    Raises:
        InvalidArgument: a word is no element type and no declared variable.
    """
    if not isinstance(text, str):
        raise InvalidArgument(f"{where}: expected a type as text, such as 'float' or 'T', got {text!r}")
    inner = text.strip()
    sequence = inner.startswith("seq(") and inner.endswith(")")
    inner = inner[4:-1].strip() if sequence else inner
    if inner in variables:
        return TypeSpec(text, variables[inner], inner, sequence)
    return TypeSpec(text, parse_elements(inner, where, variables), "", sequence)


def parse_elements(text: str | Sequence[str], where: str, variables: Mapping[str, Any] | None = None) -> frozenset[DType]:
    """Element types by ONNX's or NumPy's names, separated by `|` or as a list; `any`: all of them."""
    words = text.replace(",", "|").split("|") if isinstance(text, str) else list(text)
    found: set[DType] = set()
    for word in (w.strip() for w in words):
        if word == _ANY:
            found.update(_ELEMENTS.values())
            continue
        dtype = _ELEMENTS.get(word) or _NUMPY_WORDS.get(word)
        if dtype is None:
            known = [*(variables or ()), *_ELEMENTS, *_NUMPY_WORDS, _ANY]
            raise InvalidArgument(
                f"{where}: {word!r} is neither an element type nor declared in types=; {nearest(word, known)}"
            )
        found.add(dtype)
    return frozenset(found)


@dataclass(frozen=True)
class Schema:
    """An operator's inputs, outputs and attributes. None as a type: not declared, so anything is taken."""

    name: str
    inputs: tuple[tuple[str, TypeSpec | None], ...]
    required: int
    variadic: tuple[str, TypeSpec | None] | None
    outputs: tuple[tuple[str, TypeSpec | None], ...] | None
    attributes: Mapping[str, AttributeSpec] = field(default_factory=dict)
    values: frozenset[int] = frozenset()

    def bind(self, inputs: Sequence[ValueType | None]) -> dict[str, tuple[DType, str]]:
        """Type variables as these inputs set them: variable -> (element type, the input that set it).

        Raises:
            DefinitionError: too few or too many inputs, or one of a type that is not declared.
        """
        given = [*inputs]
        while given and given[-1] is None:
            given.pop()
        if self.variadic is None and len(given) > len(self.inputs):
            raise DefinitionError(f"takes at most {len(self.inputs)} inputs, got {len(given)}")
        for i, (name, _) in enumerate(self.inputs[: self.required]):
            if i >= len(given) or given[i] is None:
                raise DefinitionError(f"required input {name!r} is missing")
        bound: dict[str, tuple[DType, str]] = {}
        for i, kind in enumerate(given):
            named = self.inputs[i] if i < len(self.inputs) else self.variadic
            if kind is not None and named is not None and named[1] is not None:
                label = named[0] if i < len(self.inputs) else f"{named[0]}[{i - len(self.inputs)}]"
                _bind_one(label, named[1], kind, bound)
        return bound

    def element_type(self, i: int, inputs: Sequence[ValueType | None], bound: Mapping[str, tuple[DType, str]]) -> DType | None:
        """The element type of output `i` (None: not declared); undeclared outputs have that of the first input."""
        if self.outputs is None:
            first = next((t for t in inputs if t is not None), None)
            return first.dtype if isinstance(first, TensorType) and first is not UNTYPED else None
        spec = self.outputs[i][1]
        if spec is None:
            return None
        if spec.variable:
            found = bound.get(spec.variable)
            return found[0] if found is not None else None
        return next(iter(spec.elements)) if len(spec.elements) == 1 else None

    def is_sequence(self, i: int) -> bool:
        spec = self.outputs[i][1] if self.outputs is not None else None
        return spec is not None and spec.sequence

    def output_name(self, i: int) -> str:
        return self.outputs[i][0] if self.outputs is not None else "output" if i == 0 else f"output {i}"

    @property
    def output_count(self) -> int:
        return 1 if self.outputs is None else len(self.outputs)

    def read_attributes(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The node's attributes as the function's keywords, each of its declared type.

        Raises:
            DefinitionError: one is unknown, missing or of another type.
        """
        for name in given:
            if name not in self.attributes and not name.startswith("_"):
                raise DefinitionError(f"attribute {name!r} is not known; {nearest(name, self.attributes)}")
        for name, spec in self.attributes.items():
            if spec.default is REQUIRED and name not in given:
                raise DefinitionError(f"required attribute {name!r} is missing")
        return {name: self.attributes[name].read(name, value) for name, value in given.items() if name in self.attributes}


def _bind_one(label: str, spec: TypeSpec, kind: ValueType, bound: dict[str, tuple[DType, str]]) -> None:
    if kind is UNTYPED:
        return
    element = kind.element if isinstance(kind, SequenceType) and spec.sequence else kind
    if spec.sequence != isinstance(kind, SequenceType) or not isinstance(element, (TensorType, type(None))):
        raise DefinitionError(f"input {label!r} is {kind.onnx_name}; expected {spec}")
    if element is None:
        return
    if element.dtype not in spec.elements:
        raise DefinitionError(f"input {label!r} is {kind.onnx_name}; expected {spec}")
    if spec.variable:
        dtype, origin = bound.setdefault(spec.variable, (element.dtype, label))
        if dtype != element.dtype:
            raise DefinitionError(
                f"input {label!r} is {element.dtype.onnx_name}, but {spec.variable} is {dtype.onnx_name} by input {origin!r}"
            )


# --- attributes -------------------------------------------------------------------------------------------------------

_SCALARS = (int, float, str, bool)


@dataclass(frozen=True)
class AttributeSpec:
    """An attribute: what it holds (`kind`: int, float, str, bool, np.ndarray, Graph; None: anything), and its default."""

    kind: type | None
    default: Any
    many: bool = False

    def __str__(self) -> str:
        word = "anything" if self.kind is None else {np.ndarray: "tensor", Graph: "graph"}.get(self.kind, self.kind.__name__)
        return f"list of {word}" if self.many else word

    def read(self, name: str, value: Any) -> Any:
        """The model's value as the function wants it: an integer where a float or a bool is declared is converted."""
        if self.kind is None:
            return value
        if self.many:
            if not isinstance(value, (list, tuple)):
                raise self._error(name, value)
            return [self._element(name, v, value) for v in value]
        return self._element(name, value, value)

    def _element(self, name: str, value: Any, whole: Any) -> Any:
        kind = self.kind
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if kind is bool and isinstance(value, int):
            return bool(value)
        if kind is str and isinstance(value, bytes):
            raise DefinitionError(f"attribute {name!r} is {value[:40]!r}, which is not UTF-8; expected a str")
        if kind is not None and not isinstance(value, kind):
            raise self._error(name, whole)
        return value

    def _error(self, name: str, value: Any) -> DefinitionError:
        shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
        return DefinitionError(f"attribute {name!r} is {shown} ({type(value).__name__}); expected {self}")


def _attribute_spec(annotation: Any, default: Any) -> AttributeSpec:
    kind, many = _kind_of(annotation)
    if kind is None and isinstance(default, _SCALARS):
        kind = type(default)
    elif kind is None and isinstance(default, (list, tuple)) and default and isinstance(default[0], _SCALARS):
        kind, many = type(default[0]), True
    return AttributeSpec(kind, default, many)


def _kind_of(annotation: Any) -> tuple[type | None, bool]:
    """(element type, whether it is a list) of an annotation; (None, False) for one that says nothing useful."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        inner = [a for a in arguments if a is not type(None)]
        return _kind_of(inner[0]) if len(inner) == 1 else (None, False)
    if isinstance(origin, type) and issubclass(origin, Sequence) and arguments:
        return _kind_of(arguments[0])[0], True
    if origin is np.ndarray or annotation is np.ndarray:
        return np.ndarray, False
    return (annotation, False) if annotation in (*_SCALARS, Graph) else (None, False)


# --- signatures -------------------------------------------------------------------------------------------------------


def read_schema(
    name: str,
    function: Callable[..., Any],
    inputs: Mapping[str, str] | None,
    outputs: Mapping[str, str] | Sequence[str] | str | None,
    variables: Mapping[str, str | Sequence[str]] | None,
    values: Sequence[str],
) -> Schema:
    """The schema of `function`: positional parameters are inputs, keyword-only ones attributes.

    Raises:
        InvalidArgument: the function's signature cannot be an operator's, or a declaration names what it does not have.
    """
    where = f"operator {name!r}"
    parameters = _parameters(function, where)
    declared = {v: parse_elements(text, f"{where}: type {v!r}") for v, text in (variables or {}).items()}
    positional = [p for p in parameters if p.kind in POSITIONAL]
    rest = next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), None)
    known = [*(p.name for p in positional), *([rest] if rest else [])]
    for given, what in ((inputs or {}, "inputs"), (values, "values")):
        for n in given:
            if n not in known:
                raise InvalidArgument(f"{where}: {what} names {n!r}, which is no positional parameter; {nearest(n, known)}")
    specs = {n: parse_spec(t, declared, f"{where}: input {n!r}") for n, t in (inputs or {}).items()}
    hints = _hints(function)
    names = [p.name for p in positional]
    return Schema(
        name,
        tuple((n, specs.get(n)) for n in names),
        sum(p.default is inspect.Parameter.empty for p in positional),
        (rest, specs.get(rest)) if rest else None,
        _outputs(outputs, declared, {s.variable for s in specs.values()}, where),
        {
            p.name: _attribute_spec(hints.get(p.name), REQUIRED if p.default is inspect.Parameter.empty else p.default)
            for p in parameters
            if p.kind is inspect.Parameter.KEYWORD_ONLY and p.name != "node"
        },
        frozenset(names.index(v) for v in values if v in names),
    )


def _parameters(function: Callable[..., Any], where: str) -> list[inspect.Parameter]:
    if not callable(function) or isinstance(function, type):
        raise InvalidArgument(f"{where}: expected a function, got {function!r}; classes go into new_ops=[...]")
    parameters = list(inspect.signature(function).parameters.values())
    for p in parameters:
        if p.kind is inspect.Parameter.VAR_KEYWORD:
            raise InvalidArgument(
                f"{where}: {function.__qualname__} takes **{p.name}; name every attribute as a keyword-only parameter, "
                "with its default where it has one: def f(x, *, alpha=0.01)"
            )
        if p.kind in POSITIONAL and p.default not in (inspect.Parameter.empty, None):
            raise InvalidArgument(
                f"{where}: the parameter {p.name!r} of {function.__qualname__} has the default {p.default!r}; inputs are "
                "required, or None where they are omitted, and attributes stand behind a *: "
                f"def {function.__name__}(..., *, {p.name}={p.default!r})"
            )
    return parameters


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):  # annotations that only a type checker can see
        return {}


def _outputs(
    outputs: Mapping[str, str] | Sequence[str] | str | None,
    declared: Mapping[str, frozenset[DType]],
    bound: set[str],
    where: str,
) -> tuple[tuple[str, TypeSpec | None], ...] | None:
    if outputs is None:
        return None
    if isinstance(outputs, str):
        outputs = [outputs]
    named = outputs if isinstance(outputs, Mapping) else {f"output {i}" if i else "output": t for i, t in enumerate(outputs)}
    found = []
    for name, text in named.items():
        spec = parse_spec(text, declared, f"{where}: output {name!r}")
        if spec.variable and spec.variable not in bound:
            raise InvalidArgument(f"{where}: output {name!r} is of type {spec.variable!r}, but no input is declared to have it")
        if not spec.variable and len(spec.elements) != 1:
            raise InvalidArgument(f"{where}: output {name!r} is {text!r}; expected one element type, or a type of an input")
        found.append((name, spec))
    if not found:
        raise InvalidArgument(f"{where}: outputs is empty; expected at least one")
    return tuple(found)
