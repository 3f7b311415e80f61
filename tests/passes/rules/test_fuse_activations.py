import math
from itertools import product

import numpy as np
import pytest
from pass_models import BASIC, build, counts, fired, optimized

ROOT_2 = math.sqrt(2)
SHAPE = {"x": ["n", 8]}
SIZES = {"n": 3}


def _gelu(order, divide=True, root=ROOT_2, half=0.5, extra=(), outputs=()):
    """x * 0.5 * (1 + erf(x / sqrt 2)) with the product associated as `order` says."""
    nodes = [
        ("Div", "x r", "a") if divide else ("Mul", "r x", "a"),
        ("Erf", "a", "b"),
        ("Add", "one b", "c"),
    ]
    nodes += {
        "(xh)c": [("Mul", "x h", "d"), ("Mul", "d c", "y")],
        "(xc)h": [("Mul", "c x", "d"), ("Mul", "h d", "y")],
        "x(hc)": [("Mul", "h c", "d"), ("Mul", "x d", "y")],
    }[order]
    return build(
        [*nodes, *extra],
        SHAPE,
        ["y", *outputs, *(e[2] for e in extra)],
        {"r": root if divide else 1 / root, "one": 1.0, "h": half},
    )


@pytest.mark.parametrize(("order", "divide"), list(product(["(xh)c", "(xc)h", "x(hc)"], [True, False])))
def test_gelu_in_every_order(order, divide):
    result = optimized(_gelu(order, divide), sizes=SIZES, atol=1e-4)
    assert counts(result.graph) == {"Gelu": 1}
    assert result.graph.nodes[0].attributes["approximate"] == "none"
    assert set(result.graph.nodes[0].origin) >= {"Erf_1", "Add_2"}


def test_gelu_is_not_fused_at_basic_level():
    assert "Gelu" not in counts(optimized(_gelu("(xh)c"), BASIC, sizes=SIZES).graph)


@pytest.mark.parametrize(
    "change", [{"root": 1.5}, {"half": 0.6}, {"extra": (("Neg", "b", "z"),)}, {"extra": (("Identity", "c", "z"),)}]
)
def test_gelu_needs_its_constants_and_private_inner_values(change):
    assert "Gelu" not in counts(optimized(_gelu("(xh)c", **change), sizes=SIZES).graph)


def test_gelu_is_not_fused_over_an_inner_graph_output():
    assert "Gelu" not in counts(optimized(_gelu("(xh)c", outputs=["b"]), sizes=SIZES).graph)


def test_gelu_of_a_broadcast_constant_keeps_its_shape():
    model = build(
        [("Div", "x r", "a"), ("Erf", "a", "b"), ("Add", "b one", "c"), ("Mul", "x h", "d"), ("Mul", "d c", "y")],
        {"x": [4]},
        ["y"],
        {"r": np.full((1, 1), ROOT_2, np.float32), "one": 1.0, "h": 0.5},
    )
    assert "Gelu" not in counts(optimized(model).graph)


@pytest.mark.parametrize("cube", ["pow", "mul", "square"])
def test_gelu_by_tanh(cube):
    cubes = {
        "pow": [("Pow", "x three", "c")],
        "mul": [("Mul", "x x", "c0"), ("Mul", "x c0", "c")],
        "square": [("Pow", "x two", "c0"), ("Mul", "c0 x", "c")],
    }
    model = build(
        [
            *cubes[cube],
            ("Mul", "c k", "d"),
            ("Add", "x d", "e"),
            ("Mul", "e s", "f"),
            ("Tanh", "f", "g"),
            ("Add", "g one", "h"),
            ("Mul", "x half", "i"),
            ("Mul", "i h", "y"),
        ],
        SHAPE,
        ["y"],
        {"three": 3.0, "two": 2.0, "k": 0.044715, "s": math.sqrt(2 / math.pi), "one": 1.0, "half": 0.5},
    )
    result = optimized(model, sizes=SIZES)
    assert counts(result.graph) == {"Gelu": 1}
    assert result.graph.nodes[0].attributes["approximate"] == "tanh"


def test_gelu_by_distribution_function():
    model = build(
        [("Mul", "x r", "a"), ("Erf", "a", "b"), ("Mul", "b half", "c"), ("Add", "c half", "d"), ("Mul", "x d", "y")],
        SHAPE,
        ["y"],
        {"r": 1 / ROOT_2, "half": 0.5},
    )
    assert counts(optimized(model, sizes=SIZES, atol=1e-4).graph) == {"Gelu": 1}


def test_swish_and_quick_gelu():
    result = optimized(build([("Sigmoid", "x", "s"), ("Mul", "s x", "y")], SHAPE, ["y"]), sizes=SIZES)
    assert [(n.op_type, n.attributes["alpha"]) for n in result.graph.nodes] == [("Swish", 1.0)]
    quick = build([("Mul", "x a", "t"), ("Sigmoid", "t", "s"), ("Mul", "x s", "y")], SHAPE, ["y"], {"a": 1.702})
    (node,) = optimized(quick, sizes=SIZES).graph.nodes
    assert node.op_type == "Swish"
    assert node.attributes["alpha"] == pytest.approx(1.702)


def test_a_gate_on_another_value_is_no_swish():
    model = build([("Sigmoid", "x", "s"), ("Mul", "s z", "y")], {"x": [4], "z": [4]}, ["y"])
    assert counts(optimized(model).graph) == {"Sigmoid": 1, "Mul": 1}


def test_softplus_and_mish():
    nodes = [("Exp", "x", "e"), ("Add", "e one", "a"), ("Log", "a", "s")]
    assert counts(optimized(build(nodes, SHAPE, ["s"], {"one": 1.0}), sizes=SIZES).graph) == {"Softplus": 1}
    mish = build([*nodes, ("Tanh", "s", "t"), ("Mul", "x t", "y")], SHAPE, ["y"], {"one": 1.0})
    assert counts(optimized(mish, sizes=SIZES).graph) == {"Mish": 1}


@pytest.mark.parametrize("form", ["div last", "div gate", "sixth"])
def test_hardswish(form):
    gate = [("Add", "x three", "a"), ("Clip", "a zero six", "c")]
    rest = {
        "div last": [("Mul", "x c", "m"), ("Div", "m six", "y")],
        "div gate": [("Div", "c six", "m"), ("Mul", "m x", "y")],
        "sixth": [("Mul", "x c", "m"), ("Mul", "m sixth", "y")],
    }
    model = build([*gate, *rest[form]], SHAPE, ["y"], {"three": 3.0, "zero": 0.0, "six": 6.0, "sixth": 1 / 6})
    assert counts(optimized(model, sizes=SIZES).graph) == {"HardSwish": 1}


def test_hardswish_needs_a_clip_at_six():
    model = build(
        [("Add", "x three", "a"), ("Clip", "a zero five", "c"), ("Mul", "x c", "m"), ("Div", "m six", "y")],
        SHAPE,
        ["y"],
        {"three": 3.0, "zero": 0.0, "five": 5.0, "six": 6.0},
    )
    assert "HardSwish" not in counts(optimized(model, sizes=SIZES).graph)


def test_hardswish_by_hardsigmoid():
    gate = ("HardSigmoid", "x", "g", {"alpha": 1 / 6, "beta": 0.5})
    assert counts(optimized(build([gate, ("Mul", "x g", "y")], SHAPE, ["y"]), sizes=SIZES).graph) == {"HardSwish": 1}
    other = ("HardSigmoid", "x", "g", {"alpha": 0.2, "beta": 0.5})
    assert "HardSwish" not in counts(optimized(build([other, ("Mul", "x g", "y")], SHAPE, ["y"]), sizes=SIZES).graph)


@pytest.mark.parametrize(("low", "high", "fused"), [(-1.0, 1.0, True), (1.0, -1.0, False)])
def test_min_of_max_is_a_clip(low, high, fused):
    model = build([("Max", "x low", "a"), ("Min", "high a", "y")], SHAPE, ["y"], {"low": low, "high": high})
    assert ("Clip" in counts(optimized(model, sizes=SIZES).graph)) is fused


@pytest.mark.parametrize(
    "nodes", [[("Relu", "x", "a"), ("Clip", "a low high", "y")], [("Clip", "x low high", "a"), ("Relu", "a", "y")]]
)
@pytest.mark.parametrize(("low", "high"), [(-1.0, 0.5), (0.1, 6.0), (-3.0, -1.0)])
def test_relu_beside_clip(nodes, low, high):
    result = optimized(build(nodes, SHAPE, ["y"], {"low": low, "high": high}), sizes=SIZES)
    assert counts(result.graph) == {"Clip": 1}
    assert fired(result) == {"merge_relu_into_clip": 1}
