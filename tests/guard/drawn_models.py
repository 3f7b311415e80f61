"""Models of one node of any operator, drawn around the examples of `tests/ops/typed_nodes.py`, and feeds for them.

Drawn are: the version, the type of each variable of the schema (or one operand of another type than its variable), which
operands are initializers, attributes, whether sizes are numbers, symbols or not known at all, and then for each run: sizes
around the widths of vectors and tiles, ranks, values. What is drawn need not fit together: both providers must then say so.
A model is determined by the operator, a seed and its number.
"""

from __future__ import annotations

import functools
import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper
from typed_nodes import BY_NAME, attributes_of, examples, formal_type, older, qualified, script, tensor_of, typed

from intarsia.graph.dtypes import DType
from intarsia.ops import builtin
from intarsia.ops.framework.schema_check import EVERY

LARGER = Path(__file__).with_name("larger_examples.txt")
SIZES = (0, 1, 1, 1, 2, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 127, 128, 129, 255, 257)
SMALL = tuple(n for n in SIZES if n <= 33)
MOST_ELEMENTS = 1 << 14  # of an operand
INTERNAL = "intarsia."  # domains of nodes that passes make
WITHOUT_CASES = {  # operators that no model of one node on tensors, sequences and maps reaches
    "ai.onnx.preview.training::Gradient": "differentiates the graph around it: see tests/ops/internal/test_gradient.py",
    "com.microsoft::SparseToDenseMatMul": "A is a sparse tensor: see tests/compatibility/test_as_onnxruntime.py",
}
ENDLESS = re.compile("Search|Sampling|Loop")  # would go on for as many steps as any number says
ELEMENT_TYPES = ("to", "dtype", "output_dtype", "output_datatype", "stash_type")
MODES = {  # by attribute, what else it may be
    "auto_pad": ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"],
    "direction": ["forward", "reverse", "bidirectional", "RIGHT", "LEFT"],
    "mode": ["constant", "edge", "reflect", "wrap", "linear", "nearest", "cubic", "DCR", "CRD", "bilinear", "bicubic",
             "circular", "standard", "nesterov", "avg", "max", "TF", "IDF", "TFIDF"],
    "reduction": ["none", "add", "mul", "min", "max", "sum", "mean"], "padding_mode": ["zeros", "border", "reflection"],
    "approximate": ["none", "tanh"], "coordinate_transformation_mode": ["half_pixel", "half_pixel_symmetric", "asymmetric",
             "align_corners", "pytorch_half_pixel", "output_half_pixel"],
    "nearest_mode": ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"],
    "keep_aspect_ratio_policy": ["stretch", "not_larger", "not_smaller"], "norm": ["MAX", "L1", "L2"],
    "post_transform": ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"],
    "aggregate_function": ["SUM", "AVERAGE", "MIN", "MAX"], "kernel_type": ["LINEAR", "POLY", "RBF", "SIGMOID"],
    "activation": ["Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid"],
    "update_rule": ["linear", "gated", "delta", "gated_delta"], "layout": ["TNH", "BNSH"],
}  # fmt: skip


def operators() -> list[str]:
    """All of the registry that a model can name."""
    return sorted(qualified(d, n) for d, n in builtin().records if not d.startswith(INTERNAL))


@functools.cache
def schemas() -> dict[str, list[Any]]:
    """By operator, its versions as ONNX and, where it is installed, onnxruntime describe them, the newest first."""
    found: dict[str, list[Any]] = {}
    for schema in [*onnx.defs.get_all_schemas_with_history(), *_contributed()]:
        if not schema.deprecated and builtin().find(schema.domain, schema.name, schema.since_version):
            found.setdefault(qualified(schema.domain, schema.name), []).append(schema)
    return {name: sorted(known, key=lambda s: -s.since_version) for name, known in found.items()}


def _contributed() -> list[Any]:
    try:
        from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema
    except ImportError:
        return []
    return [s for s in get_all_operator_schema() if s.domain == "com.microsoft"]


@functools.cache
def larger() -> dict[str, list[Any]]:
    """Examples of this folder, by operator."""
    found: dict[str, list[Any]] = {}
    for line in LARGER.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, example = script().Example.parse(line)
            found.setdefault(name, []).append(example)
    return found


@dataclass(frozen=True)
class Operand:
    """An input of the node.

    Attributes:
        elements: what it must be (shapes, axes, a scale); None: anything.
        other: the text of a sequence, an optional or a map, or "-" where it is omitted.
    """

    dtype: DType = DType.FLOAT
    shape: tuple[int, ...] = ()
    elements: tuple[float, ...] | None = None
    constant: bool = False
    other: str = ""

    @classmethod
    def read(cls, text: str) -> Operand:
        """As scripts/operator_examples.txt writes it."""
        constant, text = text.startswith("="), text.removeprefix("=")
        word = re.match(r"\w*", text)[0]  # type: ignore[index]
        if text == "-" or word in ("seq", "optional", "map"):
            return cls(other=text)
        dtype = BY_NAME[word]
        if "[" in text:
            return cls(dtype, tuple(int(s) for s in text.partition("[")[2].strip("]").split(",") if s), None, constant)
        value = script().read_constant("x", text).numpy()
        return cls(dtype, value.shape, tuple(float(v) for v in value.reshape(-1)), constant)


@dataclass(frozen=True)
class Model:
    """A node, as what it was drawn from.

    Attributes:
        operands: with the sizes of the model's declaration; `captured` of them are only read by subgraphs.
        sizes: "numbers", "symbols" (one for each axis), "names" (one for each number in the example) or "unknown".
        right: the operands have types that the schema allows.
    """

    operator: str
    version: int
    operands: tuple[Operand, ...]
    attributes: str
    changed: tuple[tuple[str, Any], ...]
    outputs: int
    captured: int
    sizes: str
    right: bool

    def __str__(self) -> str:
        def shown(o: Operand) -> str:
            if o.other:
                return o.other
            values = "" if o.elements is None else str(list(o.elements[:8]))
            return f"{'=' if o.constant else ''}{o.dtype.onnx_name}{list(o.shape)}{values}"

        attributes = ", ".join([self.attributes, *(f"{k}={v!r}" for k, v in self.changed)])
        return (
            f"{self.operator}-{self.version}({'; '.join(map(shown, self.operands))}) {attributes} -> {self.outputs}, "
            f"sizes {self.sizes}{'' if self.right else ', wrong types'}"
        )

    @property
    def key(self) -> tuple[str, str]:
        domain, _, name = self.operator.rpartition("::")
        return domain, name

    def proto(self, constants: dict[int, Any]) -> onnx.ModelProto:
        """`constants`: the values of operands that are initializers."""
        domain, name = self.key
        names = ["" if o.other == "-" else f"x{i}" for i, o in enumerate(self.operands)]
        given = names[: len(names) - self.captured]
        node = helper.make_node(name, given, [f"y{i}" for i in range(self.outputs)], "node", domain=domain)
        for key, value in {**attributes_of(self.attributes), **dict(self.changed)}.items():
            empty = isinstance(value, list) and not value
            node.attribute.append(helper.make_attribute(key, value, attr_type=onnx.AttributeProto.INTS if empty else None))
        taken = [
            helper.make_value_info(f"x{i}", self._type(i, o))
            for i, o in enumerate(self.operands)
            if not o.constant and o.other != "-"
        ]
        results = [onnx.ValueInfoProto(name=f"y{i}") for i in range(self.outputs)]
        held = [tensor_of(x, f"x{i}") for i, x in constants.items()]
        graph = helper.make_graph([node], "guarded", taken, results, held)
        opsets = [helper.make_opsetid(domain, self.version)] + ([helper.make_opsetid("", 21)] if domain else [])
        return helper.make_model(graph, opset_imports=opsets, ir_version=13)

    def _type(self, i: int, o: Operand) -> Any:
        if o.other:
            return _declared(o.other)
        shape: list[Any] | None = list(o.shape)
        if self.sizes == "unknown":
            shape = None
        elif self.sizes != "numbers":
            shape = [f"d{i}_{axis}" if self.sizes == "symbols" else f"s{n}" for axis, n in enumerate(o.shape)]
        return helper.make_tensor_type_proto(int(o.dtype), shape)


def _declared(text: str) -> Any:
    word, _, rest = text.partition("(")
    if not rest:
        o = Operand.read(text)
        return helper.make_tensor_type_proto(int(o.dtype), list(o.shape))
    inner = rest[:-1]
    if word == "map":
        key, value = inner.split(",")
        return helper.make_map_type_proto(int(BY_NAME[key]), helper.make_tensor_type_proto(int(BY_NAME[value]), []))
    made = helper.make_sequence_type_proto if word == "seq" else helper.make_optional_type_proto
    return made(_declared(inner))


# --- drawing a model ---------------------------------------------------------------------------------------------------


def generator(operator: str, seed: int, *number: int) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(operator.encode()), *number])


def _pick(rng: np.random.Generator, values: Sequence[Any]) -> Any:
    return values[int(rng.integers(len(values)))]


def draw_model(operator: str, number: int, rng: np.random.Generator) -> Model:
    """The first is an example as it is written, with symbols as sizes; of later ones each has the next types of a schema."""
    known = schemas().get(operator, ())
    if known:
        schema = known[0] if rng.random() < 0.7 or not number else _pick(rng, known)
        listed = [*larger().get(operator, ()), *examples(schema)]
        example, version = listed[number % len(listed)], schema.since_version
        example = _typed(schema, example, number, rng) if number else example
    else:  # onnxruntime is not installed
        domain, _, name = operator.rpartition("::")
        schema, version = None, builtin().records[domain, name][-1].since
        listed = [e for v, e in older().get(operator, ()) if v >= 1000]
        listed = [*larger().get(operator, ()), *script().examples().get(operator, ()), *listed]
        example = listed[number % len(listed)]
    example = _without_marks(example, rng)
    operands = [Operand.read(text) for text in example.inputs]
    if not number:
        written = (example.attributes, (), example.outputs, example.captured)
        return Model(operator, version, tuple(operands), *written, "symbols", True)
    plain = len(operands) - example.captured
    right = rng.random() > 0.15 or not _make_wrong(operands, rng)
    for i, o in enumerate(operands):
        if not o.other and i < plain and rng.random() < 0.2:
            operands[i] = replace(o, constant=not o.constant)
    operands = _shortened(operands, example.captured, schema, rng)
    right = right if schema is None else _fits(known, schema, operands[: len(operands) - example.captured])
    changed = _changed_attributes(schema, example.attributes, rng)
    sizes = str(rng.choice(["numbers", "symbols", "names", "unknown"], p=[0.3, 0.45, 0.15, 0.1]))
    made = Model(
        operator, version, tuple(operands), example.attributes, tuple(changed.items()), example.outputs, example.captured,
        sizes, right,
    )  # fmt: skip
    if rng.random() < 0.4:
        grown = resized(list(made.operands), rng)
        made = replace(made, operands=tuple(grown))
    return made


def _typed(schema: Any, example: Any, number: int, rng: np.random.Generator) -> Any:
    """The example with other types that the schema allows, most often the next ones from one number to the next."""
    for i, constraint in enumerate(schema.type_constraints):
        if rng.random() < 0.8:
            kinds = sorted(constraint.allowed_type_strs)
            kind = kinds[number % len(kinds)] if not i or rng.random() < 0.5 else _pick(rng, kinds)
            found = typed(schema, example, constraint.type_param_str, kind)
            example = example if found is None else found.example
    return example


def _without_marks(example: Any, rng: np.random.Generator) -> Any:
    """The example with an element type where it says TENSOR, in inputs and bodies."""
    word = _pick(rng, ("float", "int64", "bool", "double", "float16", "uint8"))
    inputs = tuple(text.replace("TENSOR", word) for text in example.inputs)
    return replace(example, inputs=inputs, attributes=example.attributes.replace("TENSOR", word))


_EVERY = {f"tensor({name})" for name in EVERY}


def _fits(known: Sequence[Any], schema: Any, operands: Sequence[Operand]) -> bool:
    """Whether the operands have types that the schema allows in any version, the same ones wherever one variable stands."""
    allowed: dict[str, set[str]] = {}
    for constraint in (c for version in known for c in version.type_constraints):
        allowed.setdefault(constraint.type_param_str, set()).update(constraint.allowed_type_strs)
    chosen: dict[str, str] = {}
    for i, o in enumerate(operands):
        if o.other or not schema.inputs:
            continue
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        variable, kind = formal_type(formal), f"tensor({o.dtype.onnx_name})"
        if kind not in (kinds := allowed.get(variable, {variable})) and not kinds >= _EVERY:
            return False
        if getattr(formal, "is_homogeneous", True) and chosen.setdefault(variable, kind) != kind:
            return False
    return True


def _make_wrong(operands: list[Operand], rng: np.random.Generator) -> bool:
    """Give one operand another type; False where there is none."""
    places = [i for i, o in enumerate(operands) if not o.other and o.dtype is not DType.STRING]
    if not places:
        return False
    i = _pick(rng, places)
    kinds = [d for d in BY_NAME.values() if d not in (DType.UNDEFINED, DType.STRING, operands[i].dtype)]
    operands[i] = replace(operands[i], dtype=_pick(rng, kinds))
    return True


def _shortened(operands: list[Operand], captured: int, schema: Any, rng: np.random.Generator) -> list[Operand]:
    """Sometimes without an optional operand."""
    if schema is None or captured or rng.random() > 0.1:
        return operands
    least = getattr(schema, "min_input", len(operands))
    i = int(rng.integers(least, len(operands) + 1)) if least <= len(operands) else len(operands)
    if i == len(operands):
        return operands
    return operands[:i] if rng.random() < 0.5 else [*operands[:i], Operand(other="-"), *operands[i + 1 :]]


def _changed_attributes(schema: Any, text: str, rng: np.random.Generator) -> dict[str, Any]:
    """Other values of some attributes, and some that the example does not have."""
    found: dict[str, Any] = {}
    if rng.random() < 0.4 or re.search(r"body\(|Gradient", text):
        return found
    given = attributes_of(text)
    for key, value in given.items():
        if rng.random() < 0.25:
            other = _other_value(key, value, rng)
            if other is not None:
                found[key] = other
    for key, attribute in (schema.attributes if schema is not None else {}).items():
        if key not in given and not getattr(attribute, "required", False) and rng.random() < 0.15:
            kind = str(attribute.type).rpartition(".")[2]
            start = {"INT": 1, "FLOAT": 1.0, "STRING": "", "INTS": [1, 1], "FLOATS": [0.5, 2.0]}.get(kind)
            other = None if start is None else _other_value(key, start, rng)
            if other is not None:
                found[key] = other
    return found


def _other_value(key: str, value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, str):
        return _pick(rng, MODES[key]) if key in MODES else None
    if isinstance(value, float):
        return float(_pick(rng, [0.0, 0.5, 1.0, -1.0, 2.0, value * 2]))
    if key in ELEMENT_TYPES:
        return int(_pick(rng, [*DType, 29, -1, 1000]))
    if isinstance(value, int):
        return int(_pick(rng, [0, 1, 1, 2, 3, -1, -2, value + 1, value * 2, 7, 16]))
    if isinstance(value, list) and value and isinstance(value[0], (int, float)):
        made = list(value)
        for _ in range(int(rng.integers(1, 3))):
            made[int(rng.integers(len(made)))] = _other_value(key, value[0], rng)
        return made
    return None


# --- drawing runs ------------------------------------------------------------------------------------------------------


def resized(operands: list[Operand], rng: np.random.Generator, fixed: bool = False) -> list[Operand]:
    """Operands of other sizes, most of which fit together as before. `fixed`: constants keep theirs."""
    changed = list(operands)
    free = [i for i, o in enumerate(operands) if not o.other and o.elements is None and not (fixed and o.constant)]
    numbers = sorted({n for i in free for n in operands[i].shape})
    if not numbers:
        return changed
    how = rng.random()
    if how < 0.55:  # a size wherever it stands
        new = {n: _size(rng) for n in numbers if rng.random() < 0.5}
        for i in free:
            changed[i] = replace(operands[i], shape=tuple(new.get(n, n) for n in operands[i].shape))
    elif how < 0.7:  # an axis of all that have as many
        axis, size = int(rng.integers(-3, 3)), _size(rng)
        rank = max(len(operands[i].shape) for i in free)
        for i in free:
            shape = list(operands[i].shape)
            if len(shape) == rank and -rank <= axis < rank:
                shape[axis] = size
            changed[i] = replace(operands[i], shape=tuple(shape))
    elif how < 0.8:  # what is a multiple of a size
        n, size = max(2, _pick(rng, numbers)), _size(rng)
        for i in free:
            shape = tuple(s // n * size if s and s % n == 0 else s for s in operands[i].shape)
            changed[i] = replace(operands[i], shape=shape)
    elif how < 0.88:  # ones, to be broadcast
        i = _pick(rng, free)
        shape = tuple(1 if rng.random() < 0.5 else s for s in operands[i].shape)
        changed[i] = replace(operands[i], shape=shape)
    elif how < 0.94:  # one size alone
        i = _pick(rng, free)
        shape = list(operands[i].shape)
        if shape:
            shape[int(rng.integers(len(shape)))] = _size(rng)
        changed[i] = replace(operands[i], shape=tuple(shape))
    else:  # another rank
        i = _pick(rng, free)
        shape = list(operands[i].shape)
        other = shape[1:] if shape and rng.random() < 0.5 else [_pick(rng, (1, 2, 3)), *shape]
        changed[i] = replace(operands[i], shape=tuple(other))
    return [o if math.prod(o.shape) <= MOST_ELEMENTS else operands[i] for i, o in enumerate(changed)]


def _size(rng: np.random.Generator) -> int:
    return int(_pick(rng, SIZES if rng.random() < 0.4 else SMALL))


def value_of(o: Operand, rng: np.random.Generator, wild: bool = False) -> Any:
    """What an operand is given: its elements, or numbers that every type has. `wild`: any numbers, and other elements."""
    if o.other:
        return _nested_value(o.other, rng)
    dtype, shape = o.dtype, o.shape
    if o.elements is not None:
        values = np.array(o.elements, np.float64).reshape(shape)
        if wild and rng.random() < 0.5:
            values = values + rng.integers(-2, 3, shape)
        with np.errstate(all="ignore"):
            return np.asarray(values.astype(dtype.numpy) if dtype is not DType.STRING else np.full(shape, "a", object))
    if dtype is DType.STRING:
        return np.array([str(n) for n in rng.integers(0, 3, math.prod(shape))], object).reshape(shape)
    if dtype is DType.BOOL:
        return rng.random(shape) < 0.5
    if dtype.is_complex:
        return (rng.integers(-4, 5, shape) / 4 + 1j * rng.integers(-4, 5, shape) / 4).astype(dtype.numpy)
    if dtype.is_integer:
        info = ml_dtypes.iinfo(dtype.numpy)
        if not wild:
            return np.asarray(rng.integers(0, 2 if info.max < 2**7 or rng.random() < 0.7 else 4, shape)).astype(dtype.numpy)
        edges = [int(info.min), int(info.max), 0, 1, 2, 3, int(info.max) // 2, *([-1, -2] if info.min < 0 else [])]
        picked = np.array(edges, object)[rng.integers(0, len(edges), shape)]
        wide = np.int64 if info.min < 0 else np.uint64
        return np.asarray(np.asarray(picked).astype(wide)).astype(dtype.numpy)
    values = rng.integers(-8, 17, shape) / 8
    if wild:
        edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-40, 2.5, -2.5, 3e9, 1e19])
        values = np.where(rng.random(shape) < 0.4, edges[rng.integers(0, len(edges), shape)], values)
    with np.errstate(all="ignore"):
        return np.asarray(np.asarray(values).astype(dtype.numpy))


def _nested_value(text: str, rng: np.random.Generator) -> Any:
    word, _, rest = text.partition("(")
    inner = rest[:-1]
    if word == "seq":
        return [_nested_value(inner, rng) for _ in range(int(rng.integers(0, 4)))]
    if word == "optional":
        return None if rng.random() < 0.3 else _nested_value(inner, rng)
    if word == "map":
        key, value = inner.split(",")
        numpy = str if value == "string" else BY_NAME[value].numpy.type
        keys = ("a", "b", "c") if key == "string" else (0, 1, 2)
        return {k: numpy(int(rng.integers(0, 4))) for k in keys if rng.random() < 0.7}
    return value_of(Operand.read(text), rng)


@dataclass(frozen=True)
class Run:
    """Feeds of one run. `exact`: whether results are compared, not only looked at."""

    feeds: dict[str, Any] = field(repr=False)
    exact: bool = True

    def __str__(self) -> str:
        shown = [f"{n} {x.dtype}{list(x.shape)}" if isinstance(x, np.ndarray) else f"{n} {x!r}" for n, x in self.feeds.items()]
        return f"{'; '.join(shown)}{'' if self.exact else ' (any numbers)'}"


def draw_constants(model: Model, rng: np.random.Generator) -> dict[int, Any]:
    return {i: value_of(o, rng) for i, o in enumerate(model.operands) if o.constant}


def draw_run(model: Model, rng: np.random.Generator, first: bool) -> Run:
    """`first`: of the sizes that the model was drawn with."""
    operands = list(model.operands)
    if not first and (model.sizes != "numbers" or rng.random() < 0.1):
        operands = resized(operands, rng, fixed=True)
    wild = not first and rng.random() < 0.15 and not ENDLESS.search(model.operator)
    feeds = {}
    for i, o in enumerate(operands):
        if not o.constant and o.other != "-":
            feeds[f"x{i}"] = value_of(o, rng, wild)
    return Run(feeds, not wild)
