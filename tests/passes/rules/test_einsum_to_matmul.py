"""Einsum of two operands becomes a product; what it cannot become stays."""

import numpy as np
import pytest
from pass_models import BASIC, build, counts, optimized

import intarsia

RNG = np.random.default_rng(5)
SIZES = {"i": 5, "j": 7, "b": 2, "n": 4, "d": 8, "h": 16, "k": 3, "w": 5, "c": 6}
EQUATIONS = (
    "ibh,hnd->ibnd", "ibnd,hnd->ibh", "ibnd,jbnd->bnij", "bnij,jbnd->ibnd", "bihc,ikc->bihk", "bhic,ikc->bhik",
    "ibk,kc->cib", "ki,kj->ji", "hnd,ibh->bndi",
)  # fmt: skip


def _array(labels, sizes=SIZES):
    return RNG.standard_normal([sizes[x] for x in labels]).astype(np.float32)


def _model(equation, named, constant):
    a, b = equation.split("->")[0].split(",")
    named = "".join(x for x in named if not constant or x not in b)  # constants have no sizes with names
    shape = [f"{x}_" if x in named else SIZES[x] for x in a]
    inputs = {"x": shape} if constant else {"x": shape, "w": [f"{x}_" if x in named else SIZES[x] for x in b]}
    return build(
        [("Einsum", "x w", "y", {"equation": equation})], inputs, ["y"], {"w": _array(b)} if constant else {}, opset=17
    )


@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.parametrize(("constant", "named"), [(False, ""), (True, ""), (False, "ib"), (True, "ib")])
def test_products(equation, constant, named):
    result = optimized(_model(equation, named, constant), BASIC, sizes={f"{x}_": n for x, n in SIZES.items()})
    found = counts(result.graph)
    assert found["MatMul"] == 1
    assert found["Einsum"] == 0
    if constant:  # weights are turned once
        assert found["Transpose"] <= 2


@pytest.mark.parametrize("equation", ["ij,ij->i", "ij,jk->j", "i,j->ij", "ii,ij->j", "ij,jk", "...ij,jk->...ik"])
def test_what_is_no_product_of_matrices_stays(equation):
    a, b = equation.split("->")[0].replace("...", "").split(",")
    sizes = {"i": 4, "j": 4, "k": 3}
    model = build(
        [("Einsum", "x w", "y", {"equation": equation})],
        {"x": [sizes[x] for x in a], "w": [sizes[x] for x in b]},
        ["y"],
        opset=17,
    )
    assert counts(optimized(model, BASIC).graph) == {"Einsum": 1}


@pytest.mark.parametrize("sizes", [(1, 2), (2, 1), (2, 2)])
@pytest.mark.parametrize("operator", [("Einsum", {"equation": "bnij,bnjd->bnid"}), ("MatMul", {})])
def test_batches_that_may_broadcast(sizes, operator):
    first, second = ({"p": n, "q": m} for n, m in (sizes, sizes[::-1]))
    model = build([(operator[0], "x w", "y", operator[1])], {"x": ["p", 3, 4, "j"], "w": ["q", 3, "j", 6]}, ["y"], opset=17)
    session = intarsia.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for n in (first, second):
        x = RNG.standard_normal((n["p"], 3, 4, 7)).astype(np.float32)
        w = RNG.standard_normal((n["q"], 3, 7, 6)).astype(np.float32)
        expected = np.matmul(x.astype(np.float64), w)
        np.testing.assert_allclose(session.run(None, {"x": x, "w": w})[0], expected, rtol=1e-5, atol=1e-5)


def test_batches_that_do_not_merge_into_two():
    model = build([("MatMul", "x w", "y")], {"x": ["p", 1, 3, 4, 5], "w": [1, "q", 3, 5, 6]}, ["y"], opset=17)
    session = intarsia.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = RNG.standard_normal((2, 1, 3, 4, 5)).astype(np.float32)
    w = RNG.standard_normal((1, 3, 3, 5, 6)).astype(np.float32)
    found = session.run(None, {"x": x, "w": w})[0]
    np.testing.assert_allclose(found, np.matmul(x.astype(np.float64), w), rtol=1e-5, atol=1e-5)


def test_an_open_size_is_the_rows():
    """Neither operand is in the result's order: kernels go along columns, so that those are the axis of known size."""
    model = build(
        [("Einsum", "w x", "y", {"equation": "dts,bsd->btd"})], {"w": [4, 7, 5], "x": ["b_", 5, 4]}, ["y"], {}, opset=17
    )
    result = optimized(model, BASIC, sizes={"b_": 3})
    (node,) = [n for n in result.graph.nodes if n.op_type == "MatMul"]
    assert result.graph.types[node.outputs[0]].shape[-1] == 7
