"""One-node models of every operator, made wrong: its example with operands, attributes and names changed at random.

Run as a program it reads a line `OPERATOR SEED` for each case, runs the case on both providers, and writes a line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import sys
import traceback
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper
from onnx import TensorProto as T

import intarsia as ort
from intarsia.errors import IntarsiaError
from intarsia.graph.dtypes import DType
from intarsia.ops import registry
from intarsia.ops.framework.missing_operators import KNOWN_OPSETS

EXAMPLES = Path(__file__).parents[2] / "scripts" / "operator_examples.txt"
PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
EXTREME = (0, -1, 1, 2, 3, 7, -5, 100, 2**31 - 1, 2**31, 2**33, 2**40, 2**60, 2**62, 2**63 - 1, -(2**31), -(2**40), -(2**63))
SIZES = (0, 1, 2, 3, 5, 17)
FLOATS = (0.0, -0.0, -1.0, 0.5, 1.0, 1e30, -1e30, 1e-30, float("inf"), float("-inf"), float("nan"))
WORDS = ("", "NOPE", "none", "SAME_UPPER", "linear", "CIRCULAR", "ij->ji", "a" * 300, "\x00", "Relu", "float16")
UNCLEAR = (AttributeError, AssertionError, KeyError, NameError, UnboundLocalError)  # causes that say nothing to a user
DTYPES = (
    np.float32, np.float64, np.float16, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
    np.bool_, np.complex64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, ml_dtypes.uint4, np.object_,
)  # fmt: skip
ELEMENTS: dict[str, dict[int, list[int]]] = {  # of inputs that random numbers do not fit
    "RoiAlign": {2: [0, 0, 0]}, "com.microsoft::CropAndResize": {2: [0, 0], 3: [3, 3]},
}  # fmt: skip
_BY_NAME = {d.onnx_name: d for d in DType}


@dataclass
class Operand:
    """An input: an array, or a list of them, or a mapping; `shape` is the declared one (None: no shape, "dynamic" symbols)."""

    value: Any
    constant: bool
    kind: str = "tensor"
    declared: str = "static"


@dataclass
class Case:
    """A model and what it is fed; `told` says what was changed."""

    model: bytes
    feeds: dict[str, Any]
    told: str
    timeout: float | None = None


# --- examples ---


@cache
def examples() -> dict[str, str]:
    """The first example of each operator, as in the file; plain floats for those without one."""
    found: dict[str, str] = {}
    for line in EXAMPLES.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            found.setdefault(line.partition("|")[0].strip(), line)
    for domain, name in registry().records:
        if not domain.startswith("intarsia."):
            label = f"{domain}::{name}" if domain else name
            found.setdefault(label, f"{label} | float[2,3]; float[2,3]")
    return found


def operators() -> list[str]:
    return sorted(examples())


def _array(text: str, seed: int) -> Any:
    """`float[2,3]`, `int64{3, 2}` or `float 0.5`."""
    rng = np.random.default_rng(seed)
    if "{" in text:
        word, _, listed = text.rstrip("}").partition("{")
        return np.array([float(v) for v in listed.split(",")]).astype(_BY_NAME[word].numpy)
    if "[" not in text:
        word, listed = text.split()
        return np.array(listed == "True" if listed in ("True", "False") else float(listed)).astype(_BY_NAME[word].numpy)
    word, _, sizes = text.rstrip("]").partition("[")
    shape = [int(s) for s in sizes.split(",") if s]
    dtype = _BY_NAME[word]
    if dtype is DType.STRING:
        return rng.integers(0, 5, shape).astype(str).astype(object).reshape(shape)
    values = rng.integers(0, 2, shape) if not dtype.is_floating else rng.standard_normal(shape)
    return np.asarray(values).astype(dtype.numpy)


def read_operand(text: str, seed: int) -> Operand | None:
    if text == "-":
        return None
    if text.startswith("="):
        return Operand(_array(text[1:], seed), True)
    inner = re.fullmatch(r"(seq|optional|map)\((.*)\)", text)
    if inner is None:
        return Operand(_array(text, seed), False)
    if inner[1] == "map":
        key, value = inner[2].split(",", 1)
        return Operand({("a" if key == "string" else 1): 0.5}, False, f"map {key} {value}")
    element = _array(inner[2], seed)
    return Operand([element, element], False, "seq") if inner[1] == "seq" else Operand(element, False, "optional")


def read_attributes(text: str) -> dict[str, Any]:
    def array(word: str, values: Any) -> onnx.TensorProto:
        return numpy_helper.from_array(np.array(values).astype(_BY_NAME[word].numpy))

    made: dict[str, Any] = eval(f"dict({text})", {"array": array, "body": onnx.parser.parse_graph, "dict": dict})
    return made


# --- changes ---


def _changed_array(x: np.ndarray, rng: random.Random) -> tuple[np.ndarray, str]:
    how = rng.choice(("rank", "size", "type", "values", "values", "values"))
    if how == "rank":
        changes = [((1, *x.shape), "one more axis"), ((-1,), "flat"), ((*x.shape, *[1] * 9), "nine more axes")]
        shape, told = rng.choice([*changes, ((), "a scalar")] if x.size else changes[:1])
        return (x.reshape(shape) if shape else x.reshape(-1)[0:1].reshape(())), told
    if how == "size" and x.ndim:
        axis, size = rng.randrange(x.ndim), rng.choice(SIZES)
        if not x.shape[axis]:
            return x, "unchanged"
        return np.take(x, np.arange(size) % x.shape[axis], axis), f"size {size} of axis {axis}"
    if how == "type":
        dtype = np.dtype(rng.choice(DTYPES))
        if dtype.hasobject:
            return (x if x.dtype == object else _plain(x)).astype(str).astype(object), "strings"
        with np.errstate(all="ignore"):
            return _plain(x).astype(dtype), f"as {dtype}"
    if x.dtype == object or not x.size or x.dtype.kind == "b":
        return x, "unchanged"
    out = x.copy()
    flat, picked = out.reshape(-1), rng.randrange(out.size)
    whole = DType.of(x.dtype).is_integer
    value = rng.choice(EXTREME) if whole else rng.choice(FLOATS)
    if whole:
        info = ml_dtypes.iinfo(x.dtype)
        value = max(int(info.min), min(int(info.max), value))
    with np.errstate(all="ignore"):
        flat[slice(None) if rng.random() < 0.3 else picked] = np.array(value).astype(x.dtype)
    return out, f"an element {value}"


def _plain(x: np.ndarray) -> np.ndarray:
    """The elements in a type that converts to every other."""
    if x.dtype == object:
        return np.arange(x.size, dtype=np.float32).reshape(x.shape)
    return x.astype(np.float32) if x.dtype.kind not in "biufc" else x


def _changed_operand(operands: list[Operand | None], rng: random.Random) -> str:
    if not operands:
        operands.append(Operand(np.ones(3, np.float32), False))
        return "an input where there is none"
    at = rng.randrange(len(operands))
    found = operands[at]
    how = rng.random()
    if found is None or how < 0.06:
        operands[at] = None if found is not None else Operand(np.ones((2, 2), np.float32), False)
        return f"input {at} {'left out' if found is not None else 'given'}"
    if how < 0.1:
        operands.append(Operand(np.ones((2, 2), np.float32), False))
        return "one more input"
    if how < 0.13:
        operands.pop()
        return "one input less"
    if how < 0.2:
        found.constant = not found.constant and found.kind == "tensor"
        return f"input {at} {'constant' if found.constant else 'of the run'}"
    if isinstance(found.value, np.ndarray):
        found.value, told = _changed_array(found.value, rng)
        return f"input {at}: {told}"
    if isinstance(found.value, list) and found.value:
        which = rng.randrange(len(found.value))
        if rng.random() < 0.3:
            found.value = []
            return f"input {at}: empty"
        kept = found.value[0].dtype
        found.value[which], told = _changed_array(found.value[which], rng)
        found.value[which] = _plain(found.value[which]).astype(kept)
        return f"input {at}[{which}]: {told}"
    return "unchanged"


def _changed_value(value: Any, rng: random.Random) -> Any:
    if isinstance(value, (bool, int)):
        return rng.choice(EXTREME)
    if isinstance(value, float):
        return rng.choice(FLOATS)
    if isinstance(value, str):
        return rng.choice(WORDS)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.from_array(_changed_array(numpy_helper.to_array(value), rng)[0])
    if isinstance(value, list) and value:
        how = rng.random()
        if how < 0.2:
            return value[:-1]
        if how < 0.4:
            return [*value, value[0]]
        out = list(value)
        out[rng.randrange(len(out))] = _changed_value(value[0], rng)
        return out
    return value


def _changed_attribute(attributes: dict[str, Any], names: list[str], rng: random.Random) -> str:
    free = [n for n in names if n not in attributes]
    if free and (not attributes or rng.random() < 0.4):
        name = rng.choice(free)
        attributes[name] = rng.choice(
            (rng.choice(EXTREME), rng.choice(FLOATS), rng.choice(WORDS), [rng.choice(EXTREME)], [1, -1])
        )
        return f"attribute {name}={attributes[name]!r}"
    if not attributes:
        attributes["nonsense"] = 1
        return "an attribute that does not exist"
    name = rng.choice(sorted(attributes))
    how = rng.random()
    if how < 0.08:
        del attributes[name]
        return f"without {name}"
    if how < 0.16:
        attributes[name] = rng.choice((1, 1.5, "word", [1, 2], [1.5], ["a"], numpy_helper.from_array(np.ones(2, np.float32))))
        return f"attribute {name} of another type"
    attributes[name] = _changed_value(attributes[name], rng)
    shown = attributes[name] if isinstance(attributes[name], (int, float, str, list)) else type(attributes[name]).__name__
    return f"attribute {name}={shown!r}"


def _attribute_names(domain: str, name: str) -> list[str]:
    record = registry().records[domain, name][-1]
    code = record.function.__code__ if hasattr(record.function, "__code__") else None
    if code is None:
        return []
    first = code.co_argcount
    return [n for n in code.co_varnames[first : first + code.co_kwonlyargcount] if n not in ("node", "run_graph")]


# --- models ---


def example_of(operator: str) -> tuple[str, str, list[Operand | None], int, dict[str, Any], int]:
    """Of an operator's example: domain, name, operands, how many of these are inputs (others are captured), attributes, and
    the number of outputs."""
    line = [*(part.strip() for part in examples()[operator].split("|")), "", "", ""]
    domain, _, name = operator.rpartition("::")
    texts = [t.strip() for t in line[1].split(";") if t.strip()]
    captured = int(line[3].removeprefix("captures ")) if line[3].startswith("captures ") else 0
    operands = [read_operand(t, i) for i, t in enumerate(texts)]
    for i, value in ELEMENTS.get(operator, {}).items():
        operands[i] = Operand(np.array(value, operands[i].value.dtype), False)  # type: ignore[union-attr]
    outputs = int(line[3]) if line[3].isdecimal() else 1
    return domain, name, operands, len(operands) - captured, read_attributes(line[2]), outputs


def case_of(operator: str, seed: int) -> Case:
    """The operator's example with one change or more; with none for seed 0."""
    rng = random.Random(zlib.crc32(f"{operator} {seed}".encode()))
    domain, name, operands, count, attributes, outputs = example_of(operator)
    given, outer = operands[:count], operands[count:]
    declared = rng.choice(("static", "static", "dynamic", "none")) if seed else "static"
    told = [declared]
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3)) if seed else 0):
        if rng.random() < 0.05:
            outputs = rng.choice((1, 2, 3, 5))
            told.append(f"{outputs} outputs")
        elif rng.random() < 0.55:
            told.append(_changed_operand(given, rng))
        else:
            told.append(_changed_attribute(attributes, _attribute_names(domain, name), rng))
    return built_case(domain, name, [*given, *outer], len(given), attributes, outputs, declared, "; ".join(told))


def built_case(
    domain: str, name: str, operands: list[Operand | None], given: int, attributes: dict[str, Any], outputs: int,
    declared: str, told: str,
) -> Case:  # fmt: skip
    names = ["" if o is None else f"x{i}" for i, o in enumerate(operands)]
    node = helper.make_node(name, names[:given], [f"y{i}" for i in range(outputs)], "N", domain=domain)
    for key, value in attributes.items():
        node.attribute.append(_attribute(key, value))
    graph = helper.make_graph([node], "g", [], [onnx.ValueInfoProto(name=f"y{i}") for i in range(outputs)])
    feeds: dict[str, Any] = {}
    for label, operand in zip(names, operands, strict=True):
        if operand is None:
            continue
        if operand.constant:
            graph.initializer.append(_tensor(operand.value, label))
        else:
            feeds[label] = operand.value
            graph.input.append(onnx.ValueInfoProto(name=label, type=_type(operand, label, declared)))
    record = registry().records[domain, name][-1]
    last = record.until - 1 if record.until else KNOWN_OPSETS[""]  # that has the operator
    opsets = [helper.make_opsetid(d, v) for d, v in {**KNOWN_OPSETS, domain: record.since if domain else last}.items()]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=12).SerializeToString()
    return Case(model, feeds, told, 10.0 if name == "Loop" else None)  # which may well have no end


def _attribute(key: str, value: Any) -> AttributeProto:
    if isinstance(value, list) and not value:
        return AttributeProto(name=key, type=AttributeProto.INTS)
    if isinstance(value, list) and len({type(v) for v in value}) > 1:
        value = [float(v) if not isinstance(v, str) else 0.0 for v in value]
    return helper.make_attribute(key, value)


def _tensor(x: np.ndarray, name: str) -> onnx.TensorProto:
    if x.dtype == object:
        return helper.make_tensor(name, T.STRING, x.shape, [str(v).encode() for v in x.reshape(-1)])
    return numpy_helper.from_array(x, name)


def _type(operand: Operand, label: str, declared: str) -> onnx.TypeProto:
    if operand.kind.startswith("map"):
        _, key, value = operand.kind.split()
        return helper.make_map_type_proto(int(_BY_NAME[key]), helper.make_tensor_type_proto(int(_BY_NAME[value]), []))
    sample = operand.value if isinstance(operand.value, np.ndarray) else (operand.value or [np.ones(2, np.float32)])[0]
    shape = {"static": list(sample.shape), "dynamic": [f"{label}_{i}" for i in range(sample.ndim)], "none": None}[declared]
    element = helper.make_tensor_type_proto(int(DType.of(sample.dtype)), shape)
    if operand.kind == "seq":
        return helper.make_sequence_type_proto(element)
    return helper.make_optional_type_proto(element) if operand.kind == "optional" else element


# --- running ---


def run(case: Case, ran: list[str]) -> Iterator[tuple[str, str]]:
    """(provider, what was wrong) for what is neither a result nor an error of Intarsia's own; `ran`: who gave results."""
    results = []
    for provider in PROVIDERS:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 2
        try:
            session = ort.InferenceSession(case.model, options, providers=[provider])
            results.append(session.run(None, case.feeds, timeout=case.timeout))
            ran.append(provider)
        except IntarsiaError as error:
            if type(error.__cause__) in UNCLEAR:
                yield provider, f"{type(error).__name__} by {told_of(error.__cause__)}"
            continue
        except BaseException as error:  # noqa: BLE001 (that is what is looked for)
            yield provider, told_of(error)
    if len(results) == len(PROVIDERS):
        for i, (a, b) in enumerate(zip(*results, strict=True)):
            if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and (a.dtype, a.shape) != (b.dtype, b.shape):
                yield "both", f"output {i} is {a.dtype}{list(a.shape)}, of the reference {b.dtype}{list(b.shape)}"


def told_of(error: BaseException) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error)[:200]} at {Path(place.filename).name}:{place.lineno}"


def answer_cases(made: Callable[[str, int], Case]) -> None:
    """Reads a line `NAME SEED` for each case, runs it, and writes a line of JSON."""
    with contextlib.suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (5 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
    ort.set_default_logger_severity(4)
    answers: Callable[[str], Any] = os.fdopen(os.dup(1), "w").write
    os.dup2(2, 1)
    for line in sys.stdin:
        name, seed = line.split()
        case = made(name, int(seed))
        ran: list[str] = []
        found = [f"{provider}: {what}" for provider, what in run(case, ran)]
        answers(json.dumps({"told": case.told, "found": found, "ran": ran}) + "\n")
        answers.__self__.flush()  # type: ignore[attr-defined]


if __name__ == "__main__":
    answer_cases(case_of)
