"""Einsum over equations that are drawn: repeated, missing and broadcast labels, ellipses, implicit outputs, scalars, spaces."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from drawn_nodes import Drawn, array, check, drawn, reference, seeds, session_of, structures, wide
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from intarsia.errors import IntarsiaError

TYPES = (np.float32, np.float32, np.float64, np.float16, np.int32, np.int64, np.uint8)
LETTERS = "abijKZ"
KEPT_AND_SUMMED = (  # labels that all operands have, some of which are kept and others summed
    "ab,ab->b", "ab,ab->a", "abc,abc->c", "abc,abc->ac", "bij,bij->ij", "nhd,nhd->hd", "abc,bac->c", "ab,ab,ab->b",
    "abc,ac->c", "aab,aab->b", "...ab,ab->...b", "ab,ab", "AB,AB->B",
)  # fmt: skip


class Equation:
    """An equation and the shapes that fit it, made from one number."""

    def __init__(self, number: int) -> None:
        self.rng = random.Random(number)
        self.sizes = {letter: self.rng.choice((0, 1, 2, 2, 3, 3, 4, 5)) for letter in LETTERS}
        self.hidden = [self.rng.choice((1, 2, 3)) for _ in range(self.rng.choice((0, 1, 2)))]
        self.dots = self.rng.random() < 0.3
        drawn_terms = [self.term() for _ in range(self.rng.choice((1, 2, 2, 2, 3, 4)))]
        terms, self.shapes = [term for term, _ in drawn_terms], [shape for _, shape in drawn_terms]
        self.text = self.spaced(",".join(terms) + self.output(terms))

    def term(self) -> tuple[str, tuple[int, ...]]:
        """Labels of an operand, and its sizes: 1 in place of a label's size here and there, where it is not repeated."""
        labels = [self.rng.choice(LETTERS[: self.rng.choice((2, 3, 6))]) for _ in range(self.rng.choice((0, 1, 2, 2, 3, 3, 4)))]
        broadcast = self.rng.random() < 0.15
        shape = [1 if broadcast and labels.count(x) == 1 and self.rng.random() < 0.5 else self.sizes[x] for x in labels]
        if self.dots and self.rng.random() < 0.7:
            at, count = self.rng.randint(0, len(labels)), self.rng.randint(0, len(self.hidden))
            seen = self.hidden[len(self.hidden) - count :]
            shape[at:at] = [1 if self.rng.random() < 0.2 else d for d in seen]
            labels.insert(at, "...")
        return "".join(labels), tuple(shape)

    def output(self, terms: list[str]) -> str:
        """Nothing, or an arrow with some of the labels in any order; the ellipsis too where an operand has one."""
        if self.rng.random() < 0.2:
            return ""
        known = sorted({x for term in terms for x in term if x != "."})
        kept = self.rng.sample(known, self.rng.randint(0, len(known)))
        if any("..." in term for term in terms):
            kept.insert(self.rng.randint(0, len(kept)), "...")
        return "->" + "".join(kept)

    def spaced(self, text: str) -> str:
        if self.rng.random() < 0.8:
            return text
        return text.replace(",", " , ").replace("->", " -> ").replace("ab", "a b")


def expected(equation: str, xs: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The result in float64 (integers: modulo the type's range), and the same of magnitudes."""
    whole = xs[0].dtype.kind in "iu"
    operands = [x.astype(np.int64) if whole else wide(x) for x in xs]
    plain = equation.replace(" ", "")
    found = np.asarray(np.einsum(plain, *operands))
    return found.astype(xs[0].dtype) if whole else found, np.asarray(np.einsum(plain, *map(np.abs, operands)))


def units(dtype: Any) -> float:
    return 60 if np.dtype(dtype).itemsize > 2 else 4


@drawn
@given(st.integers(0, 2**32 - 1), st.sampled_from(TYPES), seeds)
def test_definition(number: int, dtype: Any, seed: int) -> None:
    """By the interpreter, which compiles nothing: as many equations as examples."""
    made = Equation(number)
    xs = [array(seed + i, s, dtype) for i, s in enumerate(made.shapes)]
    want, scale = expected(made.text, xs)
    (got,) = reference(Drawn("Einsum", xs, {"equation": made.text}))
    assert got.shape == want.shape, made.text
    if np.dtype(dtype).kind in "iu":
        np.testing.assert_array_equal(got, want, err_msg=made.text)
    else:
        eps = float(np.finfo(dtype).eps)
        np.testing.assert_array_less(
            np.abs(got - want), units(dtype) * eps * np.maximum(scale, 1e-3) + 1e-30, err_msg=made.text
        )


@drawn
@given(structures, st.sampled_from((np.float32, np.int32)), seeds, st.booleans())
def test_compiled(number: int, dtype: Any, seed: int, static: bool) -> None:
    made = Equation(number)
    xs = [array(seed + i, s, dtype) for i, s in enumerate(made.shapes)]
    want, scale = expected(made.text, xs)
    check(Drawn("Einsum", xs, {"equation": made.text}, static=static), want, units(dtype), scale)


@pytest.mark.parametrize("equation", KEPT_AND_SUMMED)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize("static", [False, True])
def test_all_operands_share_their_labels(equation: str, dtype: Any, static: bool) -> None:
    """Sums along an outer axis of what all operands have went round in circles."""
    sizes = {letter: i + 2 for i, letter in enumerate("abcijnhdAB")}
    shapes = [
        tuple(2 if x == "." else sizes[x] for x in term.replace("...", ".")) for term in equation.partition("->")[0].split(",")
    ]
    xs = [array(i, s, dtype) for i, s in enumerate(shapes)]
    want, scale = expected(equation, xs)
    check(Drawn("Einsum", xs, {"equation": equation}, static=static), want, units(dtype), scale)


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("symbols", ["one symbol", "several"])
def test_symbols_shared_between_operands(provider: str, symbols: str) -> None:
    """Sizes that the model gives one name, or several: the result is the same."""
    names = ("n", "h", "d") if symbols == "one symbol" else (None, None, None)
    graph = helper.make_graph(
        [helper.make_node("Einsum", ["x", "y"], ["z"], equation="nhd,nhd->hd")],
        "shared",
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, names) for x in "xy"],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = session_of(model.SerializeToString(), provider)
    for shape in ((3, 4, 5), (1, 2, 7), (0, 2, 3)):
        x, y = (np.random.default_rng(i).standard_normal(shape).astype(np.float32) for i in range(2))
        (z,) = session.run(None, {"x": x, "y": y})
        np.testing.assert_allclose(z, np.einsum("nhd,nhd->hd", x.astype(float), y.astype(float)), atol=1e-5)


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (1, 3), (3, 1)])
@pytest.mark.parametrize("equation", ["ii->i", "ii"])
def test_a_label_of_two_sizes(equation: str, shape: tuple[int, int], provider: str) -> None:
    """Which only a run knows: not a part of the diagonal."""
    graph = helper.make_graph(
        [helper.make_node("Einsum", ["x"], ["y"], equation=equation)],
        "diagonal",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", "n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = session_of(model.SerializeToString(), provider)
    square = np.arange(9, dtype=np.float32).reshape(3, 3)
    np.testing.assert_array_equal(session.run(None, {"x": square})[0], np.einsum(equation, square))
    with pytest.raises(IntarsiaError, match=r"label 'i' of the equation 'ii.*', twice in one input"):
        session.run(None, {"x": np.zeros(shape, np.float32)})
