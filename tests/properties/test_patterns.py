"""Regular expressions at random: whole matches and tokens as onnxruntime's RE2 has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from drawn_nodes import drawn
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import intarsia
from intarsia.ops.text.re2_match import compiled

peer = pytest.importorskip("onnxruntime", reason="its RE2 is what is compared with")

SINGLES = ("a", "b", ".", "[ab]", "[^a]", r"\b", r"\B", "^", "$", "(?i:A)", "\u00e9", r"\w", r"\s", r"\z", r"[[:alpha:]\d]")
COUNTS = ("*", "+", "?", "{2}", "{0,2}", "{1,3}", "*?", "??", "{2,}")
patterns = st.recursive(
    st.sampled_from(SINGLES),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(st.one_of(inner, st.just("")), min_size=2, max_size=3).map(lambda items: f"(?:{'|'.join(items)})"),
        inner.map(lambda text: f"(?m:{text})"),
        st.tuples(inner, st.sampled_from(COUNTS)).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    ),
    max_leaves=8,
)
texts = st.lists(st.text("ab \nA\u00e9", max_size=12), min_size=4, max_size=12)


def model(op: str, domain: str, kind: int, **attributes: Any) -> bytes:
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], domain=domain, **attributes)], "g",
        [helper.make_tensor_value_info("x", TensorProto.STRING, [None])], [helper.make_tensor_value_info("y", kind, None)],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    data: bytes = onnx.ModelProto.SerializeToString(helper.make_model(graph, opset_imports=opsets, ir_version=9))
    return data


@drawn
@given(patterns, texts)
def test_full_match(pattern: str, given: list[str]) -> None:
    data, x = model("RegexFullMatch", "", TensorProto.BOOL, pattern=pattern), np.array(given, object)
    (wanted,) = peer.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    (found,) = intarsia.InferenceSession(data).run(None, {"x": x})
    assert found.tolist() == wanted.tolist()
    automaton = compiled(pattern)._automaton  # whichever of the two serves it
    assert [automaton.fullmatch(text) for text in given] == wanted.tolist()


@drawn
@given(patterns, texts, st.booleans(), st.integers(1, 2))
def test_tokens(pattern: str, given: list[str], separates: bool, shortest: int) -> None:
    expressions: dict[str, Any] = {"separators": [pattern]} if separates else {"tokenexp": pattern}
    if pattern == ".":  # which stands for single characters
        shortest = 1
    data = model("Tokenizer", "com.microsoft", TensorProto.STRING, mark=0, mincharnum=shortest, pad_value="#", **expressions)
    x = np.array([text or "a" for text in given], object)
    (wanted,) = peer.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    (found,) = intarsia.InferenceSession(data).run(None, {"x": x})
    assert found.tolist() == wanted.tolist()
