"""Models that mean harm, for untrusted sessions: changed ones of `mutations.py` and `damaged.py`, and some that ask for too
much memory, time or depth, reach for files, or want to be read as something else.

Run as a program it reads a line `KIND SEED` for each case, runs it on both providers within the limits of `LIMITS`, and writes
a line of JSON: what was wrong, who gave results, seconds, and by how many MiB the process grew.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import resource
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import damaged
import mutations
import numpy as np
import onnx
from mutations import PROVIDERS, UNCLEAR, Case, told_of
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort
from intarsia.errors import IntarsiaError

LIMITS = {"seconds": 2, "memory_mib": 256, "output_mib": 64, "model_mib": 16, "nodes": 5000, "nesting": 8}
SLACK_SECONDS = 60.0  # of two sessions and runs: what no limit reaches in the middle, on machines that do other things
SLACK_MIB = 1024.0
HUGE = (2**24, 2**31 - 1, 2**31, 2**32 + 1, 2**40, 2**62, 2**63 - 1, -1, -(2**63))
FLOAT = TensorProto.FLOAT
# Their results are drawn, or are places in memory that nobody has written.
DRAWN = ("Random", "Multinomial", "Bernoulli", "Dropout", "Sampling", "Gradient", "TopK", "Unique")

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
KINDS = (*WRITTEN, "external", "initializer", "bytes", "node", "model")


def _written(kind: str, rng: random.Random) -> Case:
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


def _stored(kind: str, rng: random.Random) -> Case:
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


def case_of(kind: str, seed: int) -> Case:
    """The case of this kind and number; the same every time."""
    rng = random.Random(zlib.crc32(f"hostile {kind} {seed}".encode()))
    if kind in WRITTEN:
        return _written(kind, rng)
    if kind in ("external", "initializer"):
        return _stored(kind, rng)
    if kind == "node":
        return mutations.case_of(rng.choice(mutations.operators()), rng.randrange(1, 2**31))
    name = rng.choice(sorted(damaged.TEXTS))
    if kind == "model":
        return damaged.case_of(name, rng.randrange(1, 2**31))
    data = bytearray(damaged.model_of(name))
    for _ in range(rng.choice((1, 3, 30))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)) :]
    if rng.random() < 0.1:
        data[:8] = b"\x18\0\0\0ORTM"
    return Case(bytes(data), damaged.feeds_of(name), "bytes")


# --- running ---


def untrusted() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.untrusted = True
    options.intra_op_num_threads = 2
    for name, value in LIMITS.items():
        options.add_session_config_entry(f"untrusted.{name}", str(value))
    return options


def run(case: Case, ran: list[str]) -> Iterator[str]:
    """What was wrong; `ran`: who gave results."""
    results = []
    for provider in PROVIDERS:
        try:
            session = ort.InferenceSession(case.model, untrusted(), providers=[provider])
            results.append(session.run(None, case.feeds))
            ran.append(provider)
        except IntarsiaError as error:
            if type(error.__cause__) in UNCLEAR:
                yield f"{provider}: {type(error).__name__} by {told_of(error.__cause__)}"
        except BaseException as error:  # noqa: BLE001 (that is what is looked for)
            yield f"{provider}: {told_of(error)}"
    if len(results) == len(PROVIDERS) and not any(word.encode() in case.model for word in DRAWN):
        largest = max((float(np.abs(x[np.isfinite(x)]).max(initial=1.0)) for x in _floats(case)), default=1.0)
        for i, (a, b) in enumerate(zip(*results, strict=True)):
            if (what := _differs(a, b, largest)) is not None:
                yield f"output {i}: {what}"


def _floats(case: Case) -> Iterator[np.ndarray]:
    """Floating-point operands and constants: what sums may round by depends on the largest."""
    given = [x for value in case.feeds.values() for x in (value if isinstance(value, list) else [value])]
    model = onnx.ModelProto.FromString(case.model) if case.told != "bytes" else onnx.ModelProto()
    with contextlib.suppress(ValueError, TypeError, KeyError, MemoryError, OverflowError):
        given += [numpy_helper.to_array(t) for t in model.graph.initializer]
        given += [np.array([a.f, *a.floats]) for n in model.graph.node for a in n.attribute]
    for x in given:
        if isinstance(x, np.ndarray) and x.dtype.kind == "f":
            yield x.astype(np.float64)


def _differs(a: Any, b: Any, largest: float) -> str | None:
    """How a result is another than the reference's, where rounding does not explain it."""
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return None if type(a) is type(b) else f"a {type(a).__name__}, of the reference a {type(b).__name__}"
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return f"{a.dtype}{list(a.shape)}, of the reference {b.dtype}{list(b.shape)}"
    if a.dtype.kind not in "biuf":
        return None
    x, y = a.astype(np.float64), b.astype(np.float64)
    both = np.isfinite(x) & np.isfinite(y)
    scale = max(largest, float(np.abs(y[both]).max(initial=1.0)))
    worst = float(np.abs(x[both] - y[both]).max(initial=0.0))
    allowed = 0.02 * scale if a.dtype.kind == "f" else max(1.0, 0.02 * scale)  # integers of rounded floats
    return f"{worst:.3g} from the reference, where numbers are up to {scale:.3g}" if worst > allowed else None


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
    ort.set_default_logger_severity(4)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        kind, seed = line.split()
        case = case_of(kind, int(seed))
        ran: list[str] = []
        before, start = peak_mib(), time.monotonic()
        found = list(run(case, ran))
        seconds, grown = time.monotonic() - start, peak_mib() - before
        if seconds > 4 * LIMITS["seconds"] + SLACK_SECONDS:
            found.append(f"{seconds:.0f} s, where {LIMITS['seconds']} are allowed")
        if grown > LIMITS["memory_mib"] + SLACK_MIB:
            found.append(f"{grown:.0f} MiB more, where {LIMITS['memory_mib']} are allowed")
        told = {"told": case.told, "found": found, "ran": ran, "seconds": seconds, "grown": grown}
        answers.write(json.dumps(told) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
