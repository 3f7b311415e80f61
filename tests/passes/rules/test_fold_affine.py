import numpy as np
import pytest
from pass_models import BASIC, build, counts, fired, optimized

RNG = np.random.default_rng(3)


def _array(*shape):
    return RNG.normal(size=shape).astype(np.float32)


NORM = {"gamma": _array(4), "beta": _array(4), "mean": _array(4), "var": np.abs(_array(4)) + 0.1}
BN = ("BatchNormalization", "c gamma beta mean var", "y", {"epsilon": 1e-3})


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("groups", [1, 2])
def test_norm_after_conv(bias, groups):
    conv = ("Conv", "x w b" if bias else "x w", "c", {"pads": [1, 1, 1, 1], "group": groups})
    model = build([conv, BN], {"x": [2, 6, 5, 5]}, ["y"], {**NORM, "w": _array(4, 6 // groups, 3, 3), "b": _array(4)})
    result = optimized(model, BASIC)
    assert counts(result.graph) == {"Conv": 1}
    assert result.graph.nodes[0].origin == ("Conv_0", "BatchNormalization_1")


def test_norm_after_transposed_conv():
    model = build(
        [("ConvTranspose", "x w", "c", {"strides": [2, 2]}), BN], {"x": [2, 3, 5, 5]}, ["y"], {**NORM, "w": _array(3, 4, 2, 2)}
    )
    assert counts(optimized(model, BASIC).graph) == {"ConvTranspose": 1}


@pytest.mark.parametrize("transposed", [0, 1])
def test_norm_after_gemm(transposed):
    w = _array(4, 6) if transposed else _array(6, 4)
    model = build(
        [("Gemm", "x w b", "c", {"transB": transposed}), BN], {"x": ["n", 6]}, ["y"], {**NORM, "w": w, "b": _array(4)}
    )
    assert counts(optimized(model, BASIC, sizes={"n": 3}).graph) == {"Gemm": 1}


def test_norm_after_matmul_is_a_gemm():
    model = build([("MatMul", "x w", "c"), BN], {"x": ["n", 6]}, ["y"], {**NORM, "w": _array(6, 4)})
    assert counts(optimized(model, BASIC, sizes={"n": 3}).graph) == {"Gemm": 1}


@pytest.mark.parametrize("outputs", [["y"], ["y", "c"]])
def test_norm_alone_or_after_a_shared_value_scales_and_shifts(outputs):
    nodes = [("Conv", "x w", "c"), BN] if len(outputs) > 1 else [("Relu", "x", "c"), BN]
    model = build(nodes, {"x": [2, 4, 5, 5]}, outputs, {**NORM, "w": _array(4, 4, 1, 1)})
    found = counts(optimized(model, BASIC).graph)
    assert (found["Mul"], found["Add"], found["BatchNormalization"]) == (1, 1, 0)


@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("shape", [(4, 1, 1), (1, 4, 1, 1), (1,), ()])
def test_constants_move_into_conv(op_type, shape):
    constant = np.asarray(_array(*shape) + 3, np.float32)
    model = build(
        [("Conv", "x w b", "c"), (op_type, "c k", "y")],
        {"x": [2, 3, 4, 4]},
        ["y"],
        {"w": _array(4, 3, 1, 1), "b": _array(4), "k": constant},
    )
    assert counts(optimized(model, BASIC).graph) == {"Conv": 1}


@pytest.mark.parametrize(
    ("op_type", "inputs", "shape"), [("Add", "c k", (1, 1, 1, 4)), ("Sub", "k c", (4, 1, 1)), ("Mul", "c k", (2, 4, 1, 1))]
)
def test_other_constants_stay_outside(op_type, inputs, shape):
    model = build(
        [("Conv", "x w", "c"), (op_type, inputs, "y")],
        {"x": [2, 3, 4, 4]},
        ["y"],
        {"w": _array(4, 3, 1, 1), "k": _array(*shape)},
    )
    assert counts(optimized(model, BASIC).graph) == {"Conv": 1, op_type: 1}


def test_gemm_factors_move_into_constants():
    model = build(
        [("Gemm", "x w b", "y", {"alpha": 0.5, "beta": 2.0}), ("Gemm", "a x", "z", {"transA": 1})],
        {"x": [3, 6]},
        ["y", "z"],
        {"w": _array(6, 4), "b": _array(4), "a": _array(3, 2)},
    )
    first, second = optimized(model, BASIC).graph.nodes
    assert (first.attributes["alpha"], first.attributes["beta"], second.attributes["transA"]) == (1.0, 1.0, 0)


def test_gemm_over_rows_is_a_matmul():
    nodes = [("Reshape", "x rows", "r"), ("Gemm", "r w b", "g"), ("Reshape", "g back", "y")]
    constants = {"rows": np.array([-1, 6]), "back": np.array([1, -1, 4]), "w": _array(6, 4), "b": _array(4)}
    result = optimized(build(nodes, {"x": [1, "s", 6]}, ["y"], constants), sizes={"s": 5})
    assert counts(result.graph) == {"MatMul": 1, "Add": 1}
    assert fired(result) == {"gemm_of_rows": 1}
    other = build(nodes, {"x": [2, 2, 6]}, ["y"], constants)
    assert counts(optimized(other).graph)["Gemm"] == 1


@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("shape", [(4,), (1, 1, 4), (1, 1, 1, 4)])
def test_constants_for_each_channel_behind_a_transpose(op_type, shape):
    nodes = [("Conv", "x w", "c"), ("Transpose", "c", "t", {"perm": [0, 2, 3, 1]}), (op_type, "t k", "y")]
    model = build(nodes, {"x": [2, 3, 4, 5]}, ["y"], {"w": _array(4, 3, 1, 1), "k": np.asarray(_array(*shape) + 3)})
    assert counts(optimized(model, BASIC).graph) == {"Conv": 1, "Transpose": 1}


@pytest.mark.parametrize(("operands", "shape"), [("t k", (5, 4)), ("t k", (4, 1)), ("k t", (4,))])
def test_constants_that_stay_behind_a_transpose(operands, shape):
    """They vary along other axes, or are divided by the convolution."""
    nodes = [("Conv", "x w", "c"), ("Transpose", "c", "t", {"perm": [0, 2, 3, 1]}), ("Div", operands, "y")]
    constants = {"w": _array(4, 3, 1, 1), "k": np.asarray(_array(*shape) + 3)}
    model = build(nodes, {"x": [2, 3, 4, 5] if shape[0] == 5 else [2, 3, 5, 4]}, ["y"], constants)
    assert counts(optimized(model, BASIC).graph)["Div"] == 1
