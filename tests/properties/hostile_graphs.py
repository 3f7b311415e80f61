"""What damaged models of `damaged.py` do not have: sparse and training data, annotations, optionals, overridable initializers,
functions in a circle or of many calls, odd names, and odd feeds to a right model."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import damaged
import numpy as np
import onnx
from mutations import Case
from onnx import helper, numpy_helper

HEAD = '<ir_version: 10, opset_import: ["" : 21, "own" : 1]>\n'
TEXTS: dict[str, tuple[str, dict[str, Any]]] = {
    "optional": (
        """g (optional(float[n]) x, float[3] z) => (float[n] y) {
        h = OptionalHasElement(x)
        y = If<then_branch = t () => (float[n] a) { a = OptionalGetElement(x) },
            else_branch = e () => (float[n] a) { a = Neg(z) }>(h) }""",
        {"x": np.float32([1, 2]), "z": np.ones(3, np.float32)},
    ),
    "overridable": (
        "g (float[n,4] x, float[4,2] w, float[2] b) => (float[n,2] y) <float[4,2] w, float[2] b> { y = Gemm(x, w, b) }",
        {"x": np.ones((2, 4), np.float32)},
    ),
    "sparse": ("g (float[n,4] x) => (float[n,3] y) { y = MatMul(x, w) }", {"x": np.ones((2, 4), np.float32)}),
    "circle": (
        "g (float[n] x) => (float[n] y) { y = own.f(x) }", {"x": np.ones(3, np.float32)},
    ),
    "shadows": (
        """g (float[n] x, bool c) => (float[n] y) { t = Abs(x)
        y = If<then_branch = a () => (float[n] u) { t = Neg(x) u = Add(t, x) },
            else_branch = b () => (float[n] u) { u = Identity(t) }>(c) }""",
        {"x": np.ones(3, np.float32), "c": np.bool_(True)},
    ),
    "branches": (
        """g (float[n] x, bool c) => (float y) {
        y = If<then_branch = a () => (float[n,1] u) { one = Constant<value_ints=[1]>() u = Unsqueeze(x, one) },
            else_branch = b () => (int64[k] u) { u = Shape(x) }>(c) }""",
        {"x": np.ones(3, np.float32), "c": np.bool_(True)},
    ),
    "scan": (
        """g (float[2] h, float[B,T,2] x) => (float[2] y, float[T,2] z) {
        y, z = Scan<num_scan_inputs=1, scan_input_axes=[1], body = b (float[2] a, float[B,2] v) => (float[2] o, float[2] r)
            { s = ReduceSum<keepdims=0>(v) o = Add(a, s) r = Mul(o, s) }>(h, x) }""",
        {"h": np.ones(2, np.float32), "x": np.ones((2, 3, 2), np.float32)},
    ),
    "carried": (
        """g (float[n] x, int64 m) => (float[k] y) <bool go = {1}> {
        y = Loop<body = b (int64 i, bool c, float[k] s) => (bool d, float[k] t)
            { d = Identity(c) p = Concat<axis=0>(s, x) e = Shape(p) f = Cast<to=1>(e) t = Expand(f, e) }>(m, go, x) }""",
        {"x": np.ones(2, np.float32), "m": np.int64(3)},
    ),
    "strings": (
        """g (string[n] s) => (string[k] y, int64[n] z) <string[1] sep = {","}, int64[1] axis = {0}> {
        a, z = StringSplit<delimiter=",">(s)
        b = Unsqueeze(s, axis) c = StringConcat(b, s) d = Reshape(c, flat) y, i = Unique(d) }""",
        {"s": np.array(["a,b", "c", "\0"], object)},
    ),
    "sequences": (
        """g (seq(float[k]) q, int64 i) => (float[m] y, int64 n) { e = SequenceErase(q, i) a = SequenceAt(q, i)
        f = SequenceInsert(e, a, i) y = ConcatFromSequence<axis=0>(f) n = SequenceLength(f) }""",
        {"q": [np.ones(2, np.float32), np.ones(3, np.float32)], "i": np.int64(0)},
    ),
    "indices": (
        """g (float[n,m] x, int64[k,2] i, float[k] u) => (float[n,m] y, float[k] z, float[k,m] t) <int64[1] first = {0}> {
        y = ScatterND<reduction="add">(x, i, u) z = GatherND(x, i) r = Slice(i, first, one, last) s = Squeeze(r, last)
        t = Gather<axis=0>(x, s) }""",
        {"x": np.ones((3, 4), np.float32), "i": np.int64([[0, 1], [2, 3]]), "u": np.float32([1, 2])},
    ),
}  # fmt: skip
CONSTANTS = {
    "flat": np.int64([-1]), "one": np.int64([1]), "last": np.int64([1]), "w": np.ones((4, 2), np.float32),
    "b": np.ones(2, np.float32),
}  # fmt: skip


@cache
def _model(name: str) -> bytes:
    text, _ = TEXTS[name]
    functions = ""
    if name == "circle":
        calls = " ".join(f"t{i + 1} = own.h(t{i})" for i in range(20))
        functions = f"""
            <opset_import: ["" : 21, "own" : 1], domain: "own"> f (t0) => (o) {{ {calls} o = Neg(t20) }}
            <opset_import: ["" : 21, "own" : 1], domain: "own"> h (i) => (o) {{ a = own.k(i) o = own.k(a) }}
            <opset_import: ["" : 21, "own" : 1], domain: "own"> k (i) => (o) {{ a = Abs(i) o = Neg(a) }}"""
    model = onnx.parser.parse_model(HEAD + text + functions)
    del model.graph.value_info[:]
    known = {t.name for t in model.graph.initializer}
    used = {n for node in model.graph.node for n in node.input}
    if name == "sparse":
        values, places = numpy_helper.from_array(np.float32([1, 2]), "w"), numpy_helper.from_array(np.int64([[0, 1], [3, 2]]))
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4, 3]))
    else:
        model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in CONSTANTS.items() if n in used - known)
    note = model.graph.quantization_annotation.add(tensor_name="x")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w")
    training = model.training_info.add()
    training.algorithm.CopyFrom(onnx.parser.parse_graph("a (float[n] p) => (float[n] q) { q = Neg(p) }"))
    training.update_binding.add(key="w", value="q")
    model.metadata_props.add(key="ort_config", value='{"session_options": {"intra_op_num_threads": 1000000}}')
    for prop in ("denotation", "doc"):
        model.metadata_props.add(key=prop, value=prop * 10)
    data: bytes = model.SerializeToString()
    return data


def case_of(rng: random.Random) -> Case:
    """One of the models with some fields changed; sometimes fed oddly instead."""
    name = rng.choice(sorted(TEXTS))
    feeds = dict(TEXTS[name][1])
    if rng.random() < 0.15:
        given = rng.choice(sorted(feeds))
        told, feeds[given] = odd_feed(feeds[given], rng)
        return Case(_model(name), feeds, f"{name}: {given} {told}")
    model = onnx.ModelProto.FromString(_model(name))
    told = [damaged.change(model, rng) for _ in range(rng.choice((1, 1, 2, 3)))]
    return Case(model.SerializeToString(), feeds, "; ".join([name, *told]))


ODD: dict[str, Callable[[Any], Any]] = {
    "None": lambda x: None, "a text": lambda x: "text", "a number": lambda x: 1.5, "a dict": lambda x: {1: x},
    "itself in lists": lambda x: [[x]], "bytes": lambda x: b"\0" * 8, "objects": lambda x: np.array([None, 1], object),
    "of another type": lambda x: np.ones(3, np.int8), "of many axes": lambda x: np.ones((1,) * 30, np.float32),
    "empty": lambda x: np.zeros((0, 0), np.float32),
    "one element repeated": lambda x: np.broadcast_to(np.float32(1), (2**20, 2**20)),
    "backwards": lambda x: np.asarray(x, np.float32)[..., ::-1], "big-endian": lambda x: np.asarray(x, ">f4"),
    "unaligned": lambda x: np.frombuffer(b"\0" * 13, np.float32, 3, 1),
    "records": lambda x: np.zeros(3, [("a", "f4"), ("b", "i8")]), "dates": lambda x: np.zeros(3, "M8[s]"),
    "array of texts": lambda x: np.array(["a"]), "long doubles": lambda x: np.ones(3, np.longdouble),
    "masked": lambda x: np.ma.masked_array(np.ones(3, np.float32), [1, 0, 1]),
    "a sequence of several types": lambda x: [np.ones(2, np.float32), np.ones(2, np.int64)],
    "a sequence of nothing": lambda x: [],
}  # fmt: skip


def odd_feed(value: Any, rng: random.Random) -> tuple[str, Any]:
    """What is given in a value's place, in words and itself."""
    told = rng.choice(sorted(ODD))
    try:
        return told, ODD[told](value)
    except (ValueError, TypeError, IndexError):  # a value that it makes no sense for
        return "nothing", None


