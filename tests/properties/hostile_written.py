"""Models of strangers, written by hand: too much memory, time or depth, and names and files that are none of theirs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from mutations import Case
from onnx import TensorProto, helper, numpy_helper

HUGE = (2**24, 2**31 - 1, 2**31, 2**32 + 1, 2**40, 2**62, 2**63 - 1, -1, -(2**63))
FLOAT = TensorProto.FLOAT
Made = tuple[list[onnx.NodeProto], dict[str, Any], dict[str, Any]]  # nodes, constants, feeds; the result is "y"


def _sized(op: str, rng: random.Random) -> Made:
    """An operator that takes the size of its result from a small operand."""
    first, second = rng.choice(HUGE), rng.choice((1, 2, *HUGE))
    sizes, one = np.array([first, second]), np.ones((2, 2), np.float32)
    node = helper.make_node
    made: dict[str, tuple[list[str], dict[str, Any], dict[str, Any]]] = {
        "Expand": (["x", "s"], {"s": sizes}, {}), "Tile": (["x", "s"], {"s": sizes}, {}),
        "ConstantOfShape": (["s"], {"s": sizes}, {}), "Reshape": (["x", "s"], {"s": sizes}, {}),
        "Pad": (["x", "s"], {"s": np.array([0, 0, first, second])}, {}),
        "Range": (["a", "b", "d"], {"a": np.int64(0), "b": np.int64(first), "d": np.int64(1)}, {}),
        "OneHot": (["i", "b", "v"], {"i": np.int64([1, 2]), "b": np.int64(first), "v": np.float32([0, 1])}, {}),
        "EyeLike": (["c"], {"c": np.ones((1, 1), np.float32)}, {}),
        "Resize": (["x", "", "", "s"], {"s": sizes}, {"mode": rng.choice(("nearest", "linear", "cubic"))}),
        "Upsample": (["x", "f"], {"f": np.float32([first, second])}, {}),
        "TopK": (["x", "k"], {"k": np.array([first])}, {}), "HannWindow": (["b"], {"b": np.int64(first)}, {}),
        "Split": (["x", "s"], {"s": np.array([first, second])}, {"axis": 0}),
        "Slice": (["x", "a", "e", "a", "t"], {"a": np.array([0]), "e": np.array([first]), "t": np.array([second])}, {}),
    }  # fmt: skip
    inputs, constants, attributes = made[op]
    outputs = {"TopK": ["y", "i"], "Split": ["y", "z"]}.get(op, ["y"])
    feeds: dict[str, Any] = {"x": one} if "x" in inputs else {}
    if rng.random() < 0.5:  # known only to the run
        feeds |= constants
        constants = {}
    return [node(op, inputs, outputs, **attributes)], constants, feeds


def _doubled(rng: random.Random) -> Made:
    """A chain in which every value is twice as large as the one before."""
    op, count = rng.choice(("Concat", "Tile", "SequenceInsert", "StringConcat")), rng.choice((12, 24, 31, 40, 64))
    nodes = []
    for i in range(count):
        if op == "Tile":
            nodes.append(helper.make_node("Tile", [f"v{i}", "two"], [f"v{i + 1}"]))
        elif op == "StringConcat":
            nodes.append(helper.make_node("StringConcat", [f"v{i}", f"v{i}"], [f"v{i + 1}"]))
        elif op == "SequenceInsert":
            made = [helper.make_node("SequenceConstruct", [f"v{i}", f"v{i}"], [f"q{i}"])]
            nodes += [*made, helper.make_node("ConcatFromSequence", [f"q{i}"], [f"v{i + 1}"], axis=0)]
        else:
            nodes.append(helper.make_node("Concat", [f"v{i}", f"v{i}"], [f"v{i + 1}"], axis=0))
    nodes.append(helper.make_node("Shape", [f"v{count}"], ["y"]))
    if op == "StringConcat":
        nodes[-1] = helper.make_node("Identity", [f"v{count}"], ["y"])
    first: Any = np.array(["ab"], object) if op == "StringConcat" else np.ones(4, np.float32)
    constants: dict[str, Any] = {"two": np.array([2])} if op == "Tile" else {}
    if rng.random() < 0.5 and op != "StringConcat":
        return nodes, {**constants, "v0": first}, {}
    return nodes, constants, {"v0": first}


def _looped(rng: random.Random) -> Made:
    """A loop that has no end, or makes something longer in each trip."""
    kind = rng.choice(("endless", "longer", "stacked", "sequence"))
    state = helper.make_tensor_value_info("s", FLOAT, None)
    kinds = {"i": TensorProto.INT64, "go": TensorProto.BOOL, "on": TensorProto.BOOL}
    count, go, on = (helper.make_tensor_value_info(name, kind, []) for name, kind in kinds.items())
    nodes = [helper.make_node("Identity", ["go"], ["on"])]
    outputs = [on, helper.make_tensor_value_info("t", FLOAT, None)]
    if kind == "longer":
        nodes.append(helper.make_node("Concat", ["s", "s"], ["t"], axis=0))
    else:
        nodes.append(helper.make_node(rng.choice(("Sin", "Identity", "NonZero", "Softplus")), ["s"], ["t"]))
    if kind == "stacked":
        nodes.append(helper.make_node("Abs", ["s"], ["row"]))
        outputs.append(helper.make_tensor_value_info("row", FLOAT, None))
    body = helper.make_graph(nodes, "body", [count, go, state], outputs)
    trips = "" if kind == "endless" else "m"
    found = ["y", "rows"] if kind == "stacked" else ["y"]
    loop = helper.make_node("Loop", [trips, "", "x"], found, body=body)
    feeds = {"x": np.ones(rng.choice((1, 1000)), np.float32)}
    if trips:
        feeds["m"] = np.array(rng.choice((10**6, 2**31, 2**63 - 1)))
    return [loop], {}, feeds


def _nested(rng: random.Random) -> Made:
    """If in If in If."""
    value = helper.make_tensor_value_info("y", FLOAT, ["n"])
    inner = [helper.make_node("Abs", ["x"], ["y"])]
    for _ in range(rng.choice((4, 8, 9, 20))):
        branch = helper.make_graph(inner, "b", [], [value])
        other = branch if rng.random() < 0.1 else _plain()
        inner = [helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=other)]
    return inner, {}, {"x": np.ones(3, np.float32), "c": np.array(True)}


def _plain() -> onnx.GraphProto:
    value = helper.make_tensor_value_info("y", FLOAT, ["n"])
    return helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "p", [], [value])


def _pattern(rng: random.Random) -> Made:
    """An expression that takes an engine which backtracks for ever."""
    many = ("(" * 400 + ")" * 400, "[" * 9, r"a{1000}{1000}", r"(a{1000}b{1000}){1}")
    patterns = (r"(a*)*b", r"(a|aa)+$b", r"(\w+\s?)*:", r"(?:a?){40}a{40}b", *many)
    node = helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=rng.choice(patterns))
    return [node], {}, {"x": np.array(["a" * rng.choice((30, 5000))], object)}


def _many(rng: random.Random) -> Made:
    """Many operands, nodes or outputs."""
    count = rng.choice((300, 2000, 6000))
    kind = rng.choice(("Sum", "Max", "Concat", "chain"))
    feeds: dict[str, Any] = {"x": np.float32([1, 2])}
    if kind == "chain":
        names = ["x", *(f"v{i}" for i in range(1, count + 1))]
        nodes = [helper.make_node(rng.choice(("Abs", "Neg", "Relu")), [a], [b]) for a, b in itertools.pairwise(names)]
        return [*nodes, helper.make_node("Identity", [f"v{count}"], ["y"])], {}, feeds
    attributes = {"axis": 0} if kind == "Concat" else {}
    return [helper.make_node(kind, ["x"] * count, ["y"], **attributes)], {}, feeds


def _named(rng: random.Random) -> Made:
    """Names that are none."""
    name = rng.choice(("\x1b]0;title\x07", "a" * 100_000, "../../etc/passwd", "\u202e", "x", "[red]", "\ud7ff", "%s%n", "{0}"))
    nodes = [helper.make_node("Abs", ["x"], [name + "1"], name=name), helper.make_node("Neg", [name + "1"], ["y"], name=name)]
    return nodes, {}, {"x": np.float32([1, 2])}


SIZED = (
    "Expand", "Tile", "ConstantOfShape", "Reshape", "Pad", "Range", "OneHot", "EyeLike", "Resize", "Upsample", "TopK",
    "HannWindow", "Split", "Slice",
)  # fmt: skip
WRITTEN: dict[str, Callable[[random.Random], Made]] = {
    **{f"sized-{op}": lambda rng, op=op: _sized(op, rng) for op in SIZED},  # type: ignore[misc]
    "doubled": _doubled, "looped": _looped, "nested": _nested, "pattern": _pattern, "many": _many, "named": _named,
}  # fmt: skip


def written(kind: str, rng: random.Random) -> Case:
    nodes, constants, feeds = WRITTEN[kind](rng)
    for name, value in constants.items():
        constants[name] = numpy_helper.from_array(np.asarray(value), name)
    inputs = [
        helper.make_tensor_value_info(
            n, TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype),
            [f"{n}{i}" for i in range(x.ndim)] if rng.random() < 0.7 else list(x.shape),
        )
        for n, x in ((n, np.asarray(x)) for n, x in feeds.items())
    ]  # fmt: skip
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="y")], list(constants.values()))
    opset = 9 if kind == "sized-Upsample" else 21
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return Case(model.SerializeToString(), feeds, kind)


def stored(kind: str, rng: random.Random) -> Case:
    """An initializer whose header promises what is not there."""
    tensor = TensorProto(name="w", data_type=rng.choice((1, 1, 7, 8, 9, 16, 21, 99)))
    tensor.dims.extend(rng.choice(([2**40], [2**32, 2**32], [0, 2**62], [-4], [3], [2**63 - 1, 2], [1] * 65)))
    if kind == "external":
        tensor.data_location = TensorProto.EXTERNAL
        place = rng.choice(("/etc/hostname", "../x", "w.bin", "/dev/zero", "", "a\0b", "//server/share"))
        entries = {"location": place, "offset": str(rng.choice((0, -1, 2**63))), "length": str(rng.choice((12, 2**62)))}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
    else:
        tensor.raw_data = bytes(rng.choice((0, 4, 12, 4096)))
    graph = onnx.parser.parse_graph("g (float[n] x) => (float[n] y) { y = Add(x, w) }")
    graph.initializer.append(tensor)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return Case(model.SerializeToString(), {"x": np.ones(3, np.float32)}, f"{kind} {list(tensor.dims)}")
