"""Sequences, optionals and strings: drawn programs and texts against Python's lists and strings."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
from drawn_nodes import Drawn, array, check, drawn, seeds, session_of, shapes
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from intarsia.graph.dtypes import DType

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
TYPES = st.sampled_from((np.float32, np.int64, np.float16, bool, object))


def run_both(nodes: list[Any], taken: dict[str, Any], given_types: list[Any], outputs: list[str]) -> list[list[Any]]:
    graph = helper.make_graph(nodes, "g", given_types, [onnx.ValueInfoProto(name=o) for o in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    return [session_of(model, p).run(None, taken) for p in PROVIDERS]


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert isinstance(found, list)
        assert len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            same(f, e)
        return
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)


@drawn
@given(TYPES, st.lists(st.sampled_from(["insert", "insert at", "erase", "erase at"]), max_size=5), seeds, st.data())
def test_programs(dtype: Any, steps: list[str], seed: int, data: st.DataObject) -> None:
    """A sequence is made, changed step by step, read, and joined."""
    kind = int(DType.of(np.dtype(dtype)))
    empty = data.draw(st.booleans())
    shape = data.draw(shapes(1, 3, (0, 1, 2, 3)))
    tensors = [array(seed + i, shape, dtype) for i in range(len(steps) + 2)]
    taken: dict[str, Any] = {f"x{i}": x for i, x in enumerate(tensors)}
    first = (
        helper.make_node("SequenceEmpty", [], ["s0"], dtype=kind)
        if empty
        else helper.make_node("SequenceConstruct", ["x0", "x1"], ["s0"])
    )
    nodes, held = [first], [] if empty else tensors[:2]
    for i, step in enumerate(steps):
        before, after = f"s{i}", f"s{i + 1}"
        if step.startswith("erase") and not held:
            step = "insert"
        place = (
            data.draw(st.integers(-len(held), len(held) - (0 if step.startswith("insert") else 1))) if "at" in step else None
        )
        operands = [before, f"x{i + 2}"] if step.startswith("insert") else [before]
        if place is not None:
            taken[f"p{i}"] = np.array(place, data.draw(st.sampled_from((np.int32, np.int64))))
            operands.append(f"p{i}")
        nodes.append(helper.make_node("SequenceInsert" if step.startswith("insert") else "SequenceErase", operands, [after]))
        held = list(held)
        if step.startswith("insert"):
            held.insert(len(held) if place is None else place + len(held) * (place < 0), tensors[i + 2])
        else:
            del held[-1 if place is None else place]
    last = f"s{len(steps)}"
    nodes.append(helper.make_node("SequenceLength", [last], ["n"]))
    outputs, expected = [last, "n"], [held, np.array(len(held), np.int64)]
    if held:
        at, axis, new = (
            data.draw(st.integers(-len(held), len(held) - 1)),
            data.draw(st.integers(-len(shape), len(shape) - 1)),
            data.draw(st.booleans()),
        )
        taken["at"] = np.array(at)
        axis = data.draw(st.integers(-len(shape) - 1, len(shape))) if new else axis
        nodes += [
            helper.make_node("SequenceAt", [last, "at"], ["e"]),
            helper.make_node("ConcatFromSequence", [last], ["c"], axis=axis, new_axis=int(new)),
        ]
        outputs += ["e", "c"]
        expected += [held[at], np.stack(held, axis) if new else np.concatenate(held, axis)]
    names = {name for node in nodes for name in node.input}
    given_types = [
        helper.make_tensor_value_info(n, int(DType.of(x.dtype)), [None] * x.ndim) for n, x in taken.items() if n in names
    ]
    taken = {n: x for n, x in taken.items() if n in names}
    for found in run_both(nodes, taken, given_types, outputs):
        for f, e in zip(found, expected, strict=True):
            same(f, e)


@drawn
@given(TYPES, shapes(1, 3, (0, 1, 2, 3, 5, 6)), st.sampled_from(["ones", "size", "sizes"]), st.booleans(), seeds, st.data())
def test_split_to_sequence(dtype: Any, shape: tuple[int, ...], how: str, keep: bool, seed: int, data: st.DataObject) -> None:
    x = array(seed, shape, dtype)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    extent = shape[axis]
    size = data.draw(st.integers(1, 4))
    cuts = sorted(data.draw(st.lists(st.integers(0, extent), max_size=3)))
    if how == "sizes":
        counts = np.diff([0, *cuts, extent])
        expected, split = np.split(x, cuts, axis), counts
    else:
        step = 1 if how == "ones" else size
        expected = [np.take(x, range(i, min(i + step, extent)), axis) for i in range(0, extent, step)]
        split = None if how == "ones" else np.array(size)
        if how == "ones" and not keep:
            expected = [e.squeeze(axis) for e in expected]
    taken: dict[str, Any] = {"x": x} | ({} if split is None else {"split": split.astype(np.int64)})
    node = helper.make_node("SplitToSequence", list(taken), ["s"], axis=axis, keepdims=int(keep))
    given_types = [helper.make_tensor_value_info(n, int(DType.of(v.dtype)), [None] * v.ndim) for n, v in taken.items()]
    for found in run_both([node], taken, given_types, ["s"]):
        same(found[0], expected)


@drawn
@given(st.lists(shapes(0, 2, (0, 1, 3)), max_size=3), st.booleans(), seeds)
def test_map_over_a_sequence(sizes: list[tuple[int, ...]], tensor_too: bool, seed: int) -> None:
    """A body over each element, of any shape, with another tensor for all of them."""
    xs = [array(seed + i, s, np.float32) for i, s in enumerate(sizes)]
    kinds = [helper.make_tensor_value_info(n, 1, None) for n in (["v", "w"] if tensor_too else ["v"])]
    body = helper.make_graph(
        [helper.make_node("Add", ["v", "w" if tensor_too else "v"], ["r"])],
        "b",
        kinds,
        [helper.make_tensor_value_info("r", 1, None)],
    )
    taken: dict[str, Any] = {"s": xs} | ({"t": np.float32(2)} if tensor_too else {})
    node = helper.make_node("SequenceMap", list(taken), ["y"], body=body)
    given_types = [helper.make_tensor_sequence_value_info("s", 1, None)]
    if tensor_too:
        given_types.append(helper.make_tensor_value_info("t", 1, []))
    for found in run_both([node], taken, given_types, ["y"]):
        same(found[0], [x + (np.float32(2) if tensor_too else x) for x in xs])


@drawn
@given(st.sampled_from(["tensor", "sequence", "none"]), shapes(0, 3, (0, 1, 2)), seeds)
def test_optionals(what: str, shape: tuple[int, ...], seed: int) -> None:
    x = array(seed, shape, np.float32)
    inner = helper.make_tensor_type_proto(1, None)
    kind = helper.make_sequence_type_proto(inner) if what == "sequence" else inner
    value: Any = None if what == "none" else [x, x] if what == "sequence" else x
    taken = [helper.make_value_info("o", helper.make_optional_type_proto(kind))]
    nodes = [helper.make_node("OptionalHasElement", ["o"], ["h"])]
    outputs = ["h"]
    if value is not None:
        nodes.append(helper.make_node("OptionalGetElement", ["o"], ["v"]))
        outputs.append("v")
    for found in run_both(nodes, {"o": value}, taken, outputs):
        assert found[0].dtype == bool
        assert found[0].item() is (value is not None)
        if value is not None:
            same(found[1], value)


WORDS = st.text("aAbB .ß1é\u0130", max_size=6)


@st.composite
def texts(draw: Any, least: int = 0, most: int = 3) -> np.ndarray:
    shape = draw(shapes(least, most, (0, 1, 2, 3)))
    out = np.empty(shape, object)
    for i in np.ndindex(*shape):
        out[i] = draw(WORDS)
    return out


@drawn
@given(texts(), texts())
def test_string_concat(a: np.ndarray, b: np.ndarray) -> None:
    if a.ndim and b.ndim:  # broadcast: one axis of size 1
        b = (
            np.resize(b, [1 if i % 2 else d for i, d in enumerate(a.shape)]).astype(object)
            if b.size
            else np.full((1,), "z", object)
        )
    expected = np.frompyfunc(lambda x, y: x + y, 2, 1)(a, b)
    check(Drawn("StringConcat", [a, b], opset=20), np.asarray(expected, object))


@drawn
@given(texts(), st.sampled_from(["a.*", "[aA]+", "", "(ab)*", r"\w*1", "."]))
def test_regex(x: np.ndarray, pattern: str) -> None:
    expected = np.frompyfunc(lambda s: re.fullmatch(pattern, s, re.ASCII) is not None, 1, 1)(x)
    check(Drawn("RegexFullMatch", [x], {"pattern": pattern}, opset=20), np.asarray(expected).astype(bool).reshape(x.shape))


@drawn
@given(texts(0, 2), st.sampled_from([None, "", "a", ". "]), st.one_of(st.none(), st.integers(0, 2)))
def test_string_split(x: np.ndarray, delimiter: str | None, most: int | None) -> None:
    parts = [s.split(delimiter or None, -1 if most is None else most) for s in x.reshape(-1)]
    width = max(map(len, parts), default=0)
    table = np.array([p + [""] * (width - len(p)) for p in parts], object).reshape(*x.shape, width)
    counts = np.array([len(p) for p in parts], np.int64).reshape(x.shape)
    attributes: dict[str, Any] = {} if delimiter is None else {"delimiter": delimiter}
    check(
        Drawn("StringSplit", [x], attributes | ({} if most is None else {"maxsplit": most}), outputs=2, opset=20),
        [table, counts],
    )


@drawn
@given(
    st.lists(WORDS, min_size=1, max_size=5),
    st.sampled_from(["NONE", "LOWER", "UPPER"]),
    st.booleans(),
    st.lists(WORDS, max_size=3),
    st.booleans(),
)
def test_string_normalizer(words: list[str], case: str, sensitive: bool, stop: list[str], matrix: bool) -> None:
    change = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}[case]
    stop = [w for w in stop if w]
    if sensitive:
        kept = [w for w in words if w not in stop]
    else:
        kept = [w for w in words if w.lower() not in {s.lower() for s in stop}]
    expected = np.array([change(w) for w in kept] or [""], object)
    x = np.array(words, object)
    x, expected = (x[None], expected[None]) if matrix else (x, expected)
    attributes: dict[str, Any] = {"case_change_action": case, "is_case_sensitive": int(sensitive)}
    attributes |= {"stopwords": stop} if stop else {}
    check(Drawn("StringNormalizer", [x], attributes, opset=10), expected)
