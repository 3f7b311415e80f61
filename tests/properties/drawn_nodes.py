"""One node with drawn operands: run by the CPU provider and the reference interpreter, compared with an independent result.

A model's inputs have symbolic sizes unless `static` says otherwise, so that examples of one structure share a session.
"""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from guarded_memory import AVAILABLE, guarded
from guarded_programs import guarded_programs
from hypothesis import HealthCheck, Phase, reject, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import intarsia as ort
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node

_COUNT = int(os.environ.get("INTARSIA_PROPERTY_EXAMPLES", "0"))
# Of each property: 100 examples that are always the same, 200 in nightly runs, or as many new ones as the variable says. Only
# the latter are shrunk when one fails, so that the time of the former is bounded. Of the package's lines that 200 examples of
# 15 properties reach, 100 reach 98.5 %; they take two thirds of the time.
_SAME = 200 if os.environ.get("INTARSIA_NIGHTLY") else 100
_PHASES = tuple(Phase) if _COUNT else (Phase.explicit, Phase.generate)
drawn = settings(
    max_examples=_COUNT or _SAME, derandomize=not _COUNT, database=None, deadline=None, phases=_PHASES,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip

# What a kernel is compiled for is drawn by this number: as few kernels as numbers, unless as many examples are asked for.
structures = st.integers(0, 23 if not _COUNT else 2**32 - 1)

OPSET = 25
FLOATS = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
SIGNED = (np.int8, np.int16, np.int32, np.int64)
UNSIGNED = (np.uint8, np.uint16, np.uint32, np.uint64)
INTEGERS = (*SIGNED, *UNSIGNED)
SIDES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33)
ELEMENTS = 4096  # of a drawn tensor, at most
EPS = {np.dtype(t): float(ml_dtypes.finfo(t).eps) for t in FLOATS}


@dataclass
class Drawn:
    """A node: operands (None: omitted), attributes; `constant` says which operands are initializers."""

    op: str
    inputs: Sequence[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    constant: tuple[int, ...] = ()
    static: bool = False
    opset: int = OPSET
    domain: str = ""

    def __repr__(self) -> str:
        shapes = [
            "-" if x is None else f"{x.dtype}{list(x.shape)}{'c' if i in self.constant else ''}"
            for i, x in enumerate(self.inputs)
        ]
        small = {i: x.tolist() for i, x in enumerate(self.inputs) if x is not None and x.size <= 8}
        return f"{self.op}-{self.opset}({', '.join(shapes)}) {self.attributes} {'static ' if self.static else ''}{small}"


def reference(node: Drawn) -> list[Any]:
    """Outputs by the reference interpreter."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(node.inputs)]
    record = registry().find(node.domain, node.op, node.opset)
    assert record is not None, node.op
    made = Node(
        node.op, names, [f"y{i}" for i in range(node.outputs)], dict(node.attributes), node.domain, version=record.since
    )
    return evaluate_node(made, list(node.inputs), registry())


@functools.lru_cache(32)  # what they keep lies in mappings of its own, of which a process may have 65,530
def session_of(data: bytes, provider: str = "CPUExecutionProvider") -> ort.InferenceSession:
    return ort.InferenceSession(data, providers=[provider])


def model_of(node: Drawn, kinds: Sequence[Any]) -> onnx.ModelProto:
    """A model of the node alone; `kinds`: NumPy types of its outputs."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(node.inputs)]
    made = helper.make_node(node.op, names, [f"y{i}" for i in range(len(kinds))], domain=node.domain)
    for key, value in node.attributes.items():
        empty = isinstance(value, list) and not value
        made.attribute.append(helper.make_attribute(key, value, attr_type=onnx.AttributeProto.INTS if empty else None))
    taken, constants = [], []
    for i, x in enumerate(node.inputs):
        if x is None:
            continue
        if i in node.constant:
            constants.append(tensor_of(x, f"x{i}"))
        else:
            shape = list(x.shape) if node.static else [f"d{i}_{axis}" for axis in range(x.ndim)]
            taken.append(helper.make_tensor_value_info(f"x{i}", int(DType.of(x.dtype)), shape))
    given = [helper.make_tensor_value_info(f"y{i}", int(DType.of(kind)), None) for i, kind in enumerate(kinds)]
    graph = helper.make_graph([made], "g", taken, given, constants)
    opsets = [helper.make_opsetid("", node.opset if not node.domain else OPSET)]
    if node.domain:
        opsets.append(helper.make_opsetid(node.domain, node.opset))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def tensor_of(x: np.ndarray, name: str) -> onnx.TensorProto:
    if x.dtype == object:
        return helper.make_tensor(name, onnx.TensorProto.STRING, x.shape, [str(v).encode() for v in x.reshape(-1)])
    return numpy_helper.from_array(x, name)


def compiled(node: Drawn, kinds: Sequence[Any]) -> list[Any]:
    """Outputs by the CPU provider. Where that can be, pages without access follow what it reads and writes: for every second
    model each intermediate tensor too, for the others the arena as a whole, which is then bound as the product does it."""
    data = model_of(node, kinds).SerializeToString()
    with ExitStack() as guards:
        if AVAILABLE:
            guards.enter_context(guarded())
            guards.enter_context(guarded_programs(apart=zlib.crc32(data) % 2 == 0))
        feeds = {f"x{i}": x.copy() for i, x in enumerate(node.inputs) if x is not None and i not in node.constant}
        return session_of(data).run(None, feeds)


def assert_close(found: np.ndarray, expected: Any, units: float, scale: Any, what: str) -> None:
    """Equal integers; floats within `units` units of their type's precision of max(|expected|, scale), or its
    smallest normal number."""
    expected = np.asarray(expected)
    assert found.shape == expected.shape, f"{what}: shape {found.shape}, expected {expected.shape}"
    if found.dtype not in EPS:
        if found.dtype != object and DType.of(found.dtype).is_floating:
            found, expected = found.astype(np.float64), expected.astype(np.float64)
        np.testing.assert_array_equal(found, expected, err_msg=what)
        return
    with np.errstate(all="ignore"):
        f, e = found.astype(np.float64), expected.astype(np.float64)
        limit = float(ml_dtypes.finfo(found.dtype).max)
        tiny = float(ml_dtypes.finfo(found.dtype).smallest_normal)
        bound = units * EPS[found.dtype] * np.maximum(np.maximum(np.abs(e), scale), tiny)
        over = np.abs(e) > limit * (1 - units * EPS[found.dtype])  # may round to infinity
        good = (
            (f == e)
            | (np.isnan(f) & np.isnan(e))
            | (np.abs(f - e) <= np.maximum(bound, tiny))  # of an intermediate value that is not a normal number
            | (over & (np.sign(f) == np.sign(e)) & (np.abs(f) > limit / 2))
        )
    if not good.all():
        at = tuple(int(v) for v in np.argwhere(~good)[0])
        raise AssertionError(f"{what}: {(~good).sum()} of {good.size} wrong; at {at}: {f[at]!r}, expected {e[at]!r}")


def is_of_schema(node: Drawn) -> bool:
    """Whether the operator takes operands of these element types; families are drawn in more types than each of them has."""
    record = registry().find(node.domain, node.op, node.opset)
    if record is None or record.schema is None:
        return True
    words = {i: DType.of(x.dtype).onnx_name for i, x in enumerate(node.inputs) if isinstance(x, np.ndarray)}
    return all(word in record.schema.allowed(i) for i, word in words.items())


def check(node: Drawn, expected: Any = None, units: float = 4, scale: Any = 0.0, skip: Sequence[int] = ()) -> list[Any]:
    """The compiled result, and the interpreter's, are `expected` (an array or one per output; None: the interpreter's)."""
    if not is_of_schema(node):
        reject()
    with np.errstate(all="ignore"):
        wanted = reference(node)
        found = compiled(node, [w.dtype for w in wanted])
    if expected is not None:
        values = list(expected) if isinstance(expected, (list, tuple)) else [expected]
        for i, (w, e) in enumerate(zip(wanted, values, strict=False)):
            if e is not None:
                assert_close(w, e, units, scale, f"{node!r}: interpreted output {i}")
                assert_close(found[i], e, units, scale, f"{node!r}: compiled output {i}")
    for i, (w, f) in enumerate(zip(wanted, found, strict=True)):
        assert f.dtype == w.dtype, f"{node!r}: output {i} is {f.dtype}, interpreted {w.dtype}"
        assert f.shape == w.shape, f"{node!r}: output {i} has shape {f.shape}, interpreted {w.shape}"
        if expected is None:
            assert_close(f, w, units, scale, f"{node!r}: compiled output {i}, not as interpreted")
    return found


# --- strategies ---


def shapes(least: int = 0, most: int = 4, sides: Sequence[int] = SIDES) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.sampled_from(sides), min_size=least, max_size=most).map(tuple).filter(lambda s: np.prod(s) <= ELEMENTS)


seeds = st.integers(0, 2**32 - 1)


def array(seed: int, shape: Sequence[int], dtype: Any, special: bool = False, low: float = -4, high: float = 4) -> np.ndarray:
    """Numbers of one type; `special`: extremes too, and for floats infinities, NaN, zeros of both signs and tiny ones."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    shape = tuple(shape)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind == "O":
        return np.array(rng.integers(0, 5, shape).astype(str), dtype=object).reshape(shape)
    kind = DType.of(dtype)
    if kind.is_integer:
        info = ml_dtypes.iinfo(dtype)
        small = rng.integers(max(int(info.min), -9), min(int(info.max), 9), shape, endpoint=True)
        if not special:
            return np.asarray(small).astype(dtype)
        edge = np.array([info.min, info.min + 1, info.max - 1, info.max, 0, 1], dtype=object)
        picked = edge[rng.integers(0, len(edge), shape)]
        out = np.where(rng.random(shape) < 0.4, picked, np.asarray(small).astype(object))
        return (
            np.asarray(out).astype(np.int64 if info.min < 0 else np.uint64).astype(dtype)
            if shape
            else np.asarray(int(out)).astype(dtype)
        )
    out = rng.uniform(low, high, shape)
    if special:
        info = ml_dtypes.finfo(dtype)
        edge = np.array(
            [0.0, -0.0, np.inf, -np.inf, np.nan, float(info.max), float(info.min), float(info.smallest_normal),
             float(info.smallest_subnormal), 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 100.25, -100.25]
        )  # fmt: skip
        out = np.where(rng.random(shape) < 0.5, edge[rng.integers(0, len(edge), shape)], out)
    with np.errstate(all="ignore"):
        return np.asarray(out).astype(dtype)


@st.composite
def broadcastable(draw: Callable[..., Any], count: int, most: int = 4) -> list[tuple[int, ...]]:
    """Shapes that broadcast together."""
    full = draw(shapes(0, most))
    out = []
    for _ in range(count):
        rank = draw(st.integers(0, len(full)))
        kept = full[len(full) - rank :]
        out.append(tuple(1 if draw(st.integers(0, 3)) == 0 else d for d in kept))
    out[draw(st.integers(0, count - 1))] = full
    return out


def wide(x: np.ndarray) -> np.ndarray:
    """In float64 (integers as they are)."""
    return x.astype(np.float64) if x.dtype in EPS else x
