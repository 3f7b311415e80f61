"""One small node for every operator, version, type variable and element type that a schema allows.

The nodes are the examples of scripts/operator_examples.txt (the newest form of each operator) and of `older_examples.txt`
beside this file (forms of older versions, and of variables that the first file's examples do not reach). A variable's type is
changed where the schema says: in the inputs that have it, or in the attribute that chooses an output's type.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.defs
from onnx import TensorProto, helper, numpy_helper

from intarsia.graph.dtypes import DType

ROOT = Path(__file__).parents[2]
OLDER = Path(__file__).with_name("older_examples.txt")
BY_NAME = {d.onnx_name: d for d in DType}
CHOSEN_BY = {  # operator -> attribute that chooses the element type of its output
    "Cast": "to", "BitCast": "to", "EyeLike": "dtype", "RandomNormal": "dtype", "RandomUniform": "dtype",
    "RandomNormalLike": "dtype", "RandomUniformLike": "dtype", "Multinomial": "dtype", "Bernoulli": "dtype",
    "BlackmanWindow": "output_datatype", "HannWindow": "output_datatype", "HammingWindow": "output_datatype",
    "MelWeightMatrix": "output_datatype", "SequenceEmpty": "dtype", "ConstantOfShape": "value", "Constant": "value",
    "QuantizeLinear": "output_dtype", "DequantizeLinear": "output_dtype",
}  # fmt: skip
RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
LARGER = {"Div", "Mod", "Acosh", "Reciprocal", "ReduceLogSum"}  # of numbers from 1, since 0 is an error, or no number


@functools.cache
def script() -> Any:
    """scripts/operator_table.py as a module."""
    if "operator_table" not in sys.modules:
        spec = importlib.util.spec_from_file_location("operator_table", ROOT / "scripts" / "operator_table.py")
        assert spec is not None and spec.loader is not None
        sys.modules["operator_table"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["operator_table"]


@functools.cache
def older() -> dict[str, list[tuple[int, Any]]]:
    """By operator: (newest version that has this form, example)."""
    found: dict[str, list[tuple[int, Any]]] = {}
    for line in OLDER.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, example = script().Example.parse(line)
            name, _, version = name.partition("@")
            found.setdefault(name, []).append((int(version or 1000), example))
    return found


def qualified(domain: str, name: str) -> str:
    return f"{domain}::{name}" if domain else name


def examples(schema: Any) -> list[Any]:
    """The forms that a version of an operator has."""
    name = qualified(schema.domain, schema.name)
    limits = [v for v, _ in older().get(name, ()) if v >= schema.since_version]
    extra = [e for v, e in older().get(name, ()) if v == min(limits, default=None)]
    if limits and min(limits) < 1000:
        return extra
    return [*script().examples().get(name, []), *extra] or [script().Example(("float[2,3]",))]


@dataclass(frozen=True)
class Typed:
    """A node: the type of its variable `variable` is `kind`, as ONNX writes it."""

    schema: Any
    example: Any
    variable: str
    kind: str

    def __str__(self) -> str:
        return f"{qualified(self.schema.domain, self.schema.name)}-{self.schema.since_version} {self.variable}={self.kind}"


def typed_nodes(schema: Any) -> Iterator[Typed]:
    """One node for each variable and type of a schema that an example of it reaches."""
    for constraint in schema.type_constraints:
        variable = constraint.type_param_str
        for kind in sorted(constraint.allowed_type_strs):
            for example in sorted(examples(schema), key=lambda e: not _has_types(schema, e, variable, kind)):
                if (found := typed(schema, example, variable, kind)) is not None:
                    yield found
                    break
    for example in examples(schema):
        if not re.search(r"TENSOR|Gradient", example.attributes + schema.name):
            yield Typed(schema, example, "", "as it is written")


def _formal(schema: Any, i: int) -> str:
    formal = schema.inputs[min(i, len(schema.inputs) - 1)] if schema.inputs else None
    return "" if formal is None else str(getattr(formal, "type_str", None) or formal.typeStr)


def _split(text: str) -> tuple[str, str, str]:
    """An example's input: what is before its element type, the type, what is after."""
    matched = re.fullmatch(r"(=?)(\w+)(.*)", text, re.DOTALL)
    assert matched is not None, text
    return matched[1], matched[2], matched[3]


def typed(schema: Any, example: Any, variable: str, kind: str) -> Typed | None:
    """The example with another type, None where it does not have the variable or not in this form."""
    plain = len(example.inputs) - example.captured
    given = [i for i in range(plain) if example.inputs[i] != "-" and _formal(schema, i) == variable]
    word = re.fullmatch(r"(?:seq\()?tensor\((\w+)\)+", kind)
    attribute = CHOSEN_BY.get(schema.name)
    chosen = attribute is not None and attribute in schema.attributes and _is_result(schema, variable)
    if not given and chosen and word and schema.name != "BitCast":
        return Typed(schema, _choose(example, attribute, BY_NAME[word[1]]), variable, kind)
    if schema.name == "BitCast":
        return _reinterpreted(schema, example, variable, kind)
    bodies = [*re.findall(r"body\('(.*?)'\)", example.attributes)]
    if bodies:
        return _typed_bodies(schema, example, variable, kind, given)
    own = {_nested(example.inputs[i]) for i in given}
    if not given or len(own) != 1 or own != {re.sub(r"tensor\((\w+)\)", "T", kind)}:
        return Typed(schema, example, variable, kind) if _has_types(schema, example, variable, kind) else None
    element = re.search(r"(?<=tensor\()\w+", kind)
    if element is None:
        return Typed(schema, example, variable, kind) if all(_formal_kind(example.inputs[i]) == kind for i in given) else None
    alike = given if schema.name != "SequenceInsert" else [0, 1]  # what goes into a sequence is of its elements' type
    inputs = [_with_element(t, element[0]) if i in alike else t for i, t in enumerate(example.inputs)]
    if None in inputs:
        return None
    return Typed(schema, replace(example, inputs=tuple(inputs)), variable, kind)


def _reinterpreted(schema: Any, example: Any, variable: str, kind: str) -> Typed:
    """BitCast between the type and one of the same size."""
    dtype = BY_NAME[kind[len("tensor(") : -1]]
    same = {2: DType.INT2, 4: DType.INT4, 8: DType.INT8, 16: DType.INT16, 32: DType.INT32, 64: DType.INT64}.get(
        dtype.bits, dtype
    )
    source, target = (dtype, same) if variable == "T1" else (same, dtype)
    return Typed(schema, replace(example, inputs=(f"{source.onnx_name}[4]",), attributes=f"to={int(target)}"), variable, kind)


def _is_result(schema: Any, variable: str) -> bool:
    return any(str(getattr(o, "type_str", None) or o.typeStr) == variable for o in schema.outputs)


def _choose(example: Any, attribute: str, dtype: DType) -> Any:
    text = ", ".join(
        p for p in re.split(r", (?=\w+=)", example.attributes) if p and not re.match(rf"({attribute}|value\w*)=", p)
    )
    element = "'a'" if dtype is DType.STRING else "1"
    value = f"array({dtype.onnx_name!r}, [{element}])" if attribute == "value" else str(int(dtype))
    return replace(example, attributes=f"{text + ', ' if text else ''}{attribute}={value}")


def _nested(text: str) -> str:
    """How an example's input is nested: T, seq(T), optional(T), optional(seq(T)), or a map as it is."""
    _, word, rest = _split(text)
    if word in ("seq", "optional"):
        return f"{word}({_nested(rest[1:-1])})"
    return f"map{rest}" if word == "map" else "T"


def _formal_kind(text: str) -> str:
    _, word, rest = _split(text)
    if word == "map":
        return f"map({rest[1:-1].replace(',', ', ')})"
    if word in ("seq", "optional"):
        return f"{word}({_formal_kind(rest[1:-1])})"
    return f"tensor({word})"


def _with_element(text: str, element: str) -> str | None:
    prefix, word, rest = _split(text)
    if word in ("seq", "optional"):
        inner = _with_element(rest[1:-1], element)
        return None if inner is None else f"{prefix}{word}({inner})"
    if element == "string" and prefix and "[" not in text:
        return "=string[]"
    return f"{prefix}{element}{rest}"


def _has_types(schema: Any, example: Any, variable: str, kind: str) -> bool:
    """Whether an output of the unchanged example has the type already; only seen where it is written down."""
    given = [t for i, t in enumerate(example.inputs) if t != "-" and _formal(schema, i) == variable]
    return any(_formal_kind(t) == kind for t in given) or f"is {variable}={kind}" in example.attributes


def _typed_bodies(schema: Any, example: Any, variable: str, kind: str, given: list[int]) -> Typed | None:
    """Bodies whose values have the type too: those of the examples are written in T and TENSOR."""
    marked = "TENSOR" in example.attributes
    element = re.search(r"(?<=tensor\()\w+", kind)
    nested = re.sub(r"tensor\((\w+)\)", "T", kind)
    inside = {_nested(t) for t in example.inputs if "TENSOR" in t}
    if element is None or not marked or inside != {nested}:
        return Typed(schema, example, variable, kind) if _has_types(schema, example, variable, kind) else None
    inputs = tuple(t.replace("TENSOR", element[0]) for t in example.inputs)
    return Typed(
        schema, replace(example, inputs=inputs, attributes=example.attributes.replace("TENSOR", element[0])), variable, kind
    )


# --- values and models ---


def values(text: str, larger: bool) -> Any:
    """What an example's input is given: small numbers that every type has."""
    prefix, word, rest = _split(text)
    if word == "seq":
        return [values(rest[1:-1], larger), values(rest[1:-1], larger)]
    if word == "optional":
        return values(rest[1:-1], larger)
    if word == "map":
        key, value = rest[1:-1].split(",")
        numpy = BY_NAME[value].numpy.type
        return {
            k: numpy(v) if value != "string" else str(v)
            for k, v in ((("a", 1), ("b", 2)) if key == "string" else ((0, 1), (1, 2)))
        }
    dtype = BY_NAME[word]
    if prefix and "[" not in text:
        return script().read_constant("x", text[1:]).numpy()
    shape = [int(s) for s in rest.strip("[]").split(",") if s]
    count = np.arange(int(np.prod(shape))).reshape(shape)
    if dtype is DType.STRING:
        return np.array([str(n % 3) for n in range(count.size)], object).reshape(shape)
    if dtype is DType.BOOL:
        return count % 2 == 0
    if dtype.is_integer:
        top = 1 if dtype is DType.INT2 else 3
        return (count % top + 1 if larger else count % 2).astype(dtype.numpy)
    if dtype.is_complex:
        return (count % 5 + 1j * (count % 3)).astype(dtype.numpy)
    return (count % 5 / 8 + (1 if larger else 0.125)).astype(dtype.numpy)


def kind_proto(value: Any, text: str) -> Any:
    _, word, rest = _split(text)
    if word == "seq":
        return helper.make_sequence_type_proto(kind_proto(None, rest[1:-1]))
    if word == "optional":
        return helper.make_optional_type_proto(kind_proto(None, rest[1:-1]))
    if word == "map":
        key, inner = rest[1:-1].split(",")
        return helper.make_map_type_proto(int(BY_NAME[key]), helper.make_tensor_type_proto(int(BY_NAME[inner]), []))
    return helper.make_tensor_type_proto(int(BY_NAME[word]), [int(s) for s in rest.strip("[]").split(",") if s])


def attributes_of(text: str) -> dict[str, Any]:
    def array(word: str, values: Any) -> Any:
        dtype = BY_NAME[word]
        if dtype is DType.STRING:
            return helper.make_tensor("", TensorProto.STRING, np.shape(values), [str(v).encode() for v in values])
        return numpy_helper.from_array(np.array(values, np.float64).astype(dtype.numpy))

    def body(source: str) -> Any:
        return onnx.parser.parse_graph(source)

    found: dict[str, Any] = eval(f"dict({text})", {"array": array, "body": body, "dict": dict})  # of our own files
    return found


def model_of(nodes: Sequence[Typed]) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A model of nodes of one operator and version, side by side, and its feeds."""
    made, taken, constants, results, feeds = [], [], [], [], {}
    for n, node in enumerate(nodes):
        names = []
        renamed = node.example.attributes
        for i, text in enumerate(node.example.inputs):
            name = "" if text == "-" else f"n{n}x{i}"
            names.append(name)
            if not name:
                continue
            value = values(text, node.schema.name in LARGER)
            if text.startswith("="):
                constants.append(tensor_of(value, name))
            else:
                taken.append(helper.make_value_info(name, kind_proto(value, text)))
                feeds[name] = value
        captured = node.example.captured
        for i in range(len(names) - captured, len(names)):
            renamed = re.sub(rf"\bx{i}\b", names[i], renamed)
        if "xs=" in renamed:  # of Gradient
            renamed = re.sub(r"'([xy]\d)'", rf"'n{n}\1'", renamed)
        outputs = [f"n{n}y{i}" for i in range(node.example.outputs)]
        made.append(
            helper.make_node(
                node.schema.name, names[: len(names) - captured], outputs, f"n{n}", domain=node.schema.domain,
                **attributes_of(renamed),
            )
        )  # fmt: skip
        results += [onnx.ValueInfoProto(name=o) for o in outputs]
    graph = helper.make_graph(made, "types", taken, results, constants)
    opsets = [helper.make_opsetid(nodes[0].schema.domain, nodes[0].schema.since_version)]
    if nodes[0].schema.domain:
        opsets.append(helper.make_opsetid("", 21))
    return helper.make_model(graph, opset_imports=opsets, ir_version=13), feeds


def tensor_of(x: np.ndarray, name: str) -> onnx.TensorProto:
    if x.dtype == object:
        return helper.make_tensor(name, TensorProto.STRING, x.shape, [str(v).encode() for v in x.reshape(-1)])
    return numpy_helper.from_array(x, name)


def difference(found: Any, expected: Any, units: float = 8) -> str:
    """What differs, "" where nothing does: equal but for rounding of floats."""
    if isinstance(expected, (list, tuple)):
        if not isinstance(found, (list, tuple)) or len(found) != len(expected):
            return f"{found!r}, expected {expected!r}"
        return next((d for f, e in zip(found, expected, strict=True) if (d := difference(f, e))), "")
    if expected is None or isinstance(expected, dict):
        return "" if found == expected else f"{found!r}, expected {expected!r}"
    if isinstance(expected, np.ndarray) and (found.dtype != expected.dtype or found.shape != expected.shape):
        return f"{found.dtype}{found.shape}, expected {expected.dtype}{expected.shape}"
    if not isinstance(expected, np.ndarray) or expected.dtype == object or expected.dtype.kind in "iub":
        return "" if np.array_equal(found, expected) else f"{found!r}, expected {expected!r}"
    dtype = DType.of(expected.dtype)
    wide: Any = np.complex128 if dtype.is_complex else np.float64
    eps = (
        1e-6
        if dtype in (DType.COMPLEX64, DType.COMPLEX128)
        else float(ml_dtypes.finfo(expected.dtype).eps)
        if dtype.is_floating
        else 0
    )
    f, e = found.astype(wide), expected.astype(wide)
    good = np.isclose(f, e, rtol=units * eps, atol=units * eps / 4, equal_nan=True)
    return "" if good.all() else f"{found!r}, expected {expected!r}"


# --- running them ---


def formal_type(formal: Any) -> str:
    return str(getattr(formal, "type_str", None) or formal.typeStr)


def run(nodes: Sequence[Typed], provider: str) -> tuple[list[list[Any]], set[tuple[str, str]]]:
    """Results of each node, and which variables of the schema had which types among the outputs."""
    from intarsia import InferenceSession, SessionOptions

    model, feeds = model_of(nodes)
    options = SessionOptions()
    options.log_severity_level = 3
    session = InferenceSession(model.SerializeToString(), options, providers=[provider])
    found: list[list[Any]] = [[] for _ in nodes]
    seen: set[tuple[str, str]] = set()
    schema = nodes[0].schema
    for output, value in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        n, i = map(int, output.name[1:].split("y"))
        found[n].append(value)
        kind = re.sub(r"map\((\w+),tensor\((\w+)\)\)", r"map(\1, \2)", output.type)
        seen.add((formal_type(schema.outputs[min(i, len(schema.outputs) - 1)]), kind))
    return found, seen


def _as_stored(attribute: Any) -> Any:
    """A model's numbers are float32."""
    if isinstance(attribute, list):
        return [_as_stored(v) for v in attribute]
    return float(np.float32(attribute)) if isinstance(attribute, float) else attribute


def wider(node: Typed) -> list[Any] | None:
    """Results of the interpreter for the same numbers in a type with more digits; None where there is no such type."""
    from intarsia.graph.model import Node
    from intarsia.ops import registry
    from intarsia.ops.framework.evaluate import evaluate_node

    element = re.search(r"(?<=tensor\()\w+", node.kind)
    if registry().find(node.schema.domain, node.schema.name, node.schema.since_version) is None:  # a function of ONNX's
        return None
    if not node.variable or element is None or "body(" in node.example.attributes:
        return None
    dtype = BY_NAME[element[0]]
    wide = np.float64 if dtype.is_floating else np.int64 if dtype.is_integer else np.complex128 if dtype.is_complex else None
    if wide is None:
        return None

    def widened(i: int, x: Any) -> Any:
        if formal_type(node.schema.inputs[min(i, len(node.schema.inputs) - 1)]) != node.variable:
            return x
        return [v.astype(wide) for v in x] if isinstance(x, list) else x.astype(wide)

    inputs = [
        None if t == "-" else widened(i, values(t, node.schema.name in LARGER)) for i, t in enumerate(node.example.inputs)
    ]
    if dtype is DType.UINT64 and any(x is not None and (np.asarray(x) < 0).any() for x in inputs if not isinstance(x, list)):
        return None
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    attributes = {name: _as_stored(v) for name, v in script().read_attributes(node.example.attributes).items()}
    made = Node(node.schema.name, names, [f"y{i}" for i in range(node.example.outputs)], attributes, node.schema.domain)
    made.version = node.schema.since_version
    return evaluate_node(made, inputs, registry())
