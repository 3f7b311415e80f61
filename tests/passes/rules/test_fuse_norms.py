import numpy as np
import pytest
from pass_models import build, counts, optimized

SHAPE = {"x": ["n", 3, 8]}
SIZES = {"n": 2}
G = np.linspace(0.5, 1.5, 8, dtype=np.float32)
B = np.linspace(-1, 1, 8, dtype=np.float32)


def _core(square="pow", deviation="div", axes=(-1,), opset=20, keepdims=1):
    """The nodes that turn x into its normalised form `n`."""
    reduce = (
        (lambda x, y: ("ReduceMean", f"{x} axes", y, {"keepdims": keepdims}))
        if opset >= 18
        else (lambda x, y: ("ReduceMean", x, y, {"axes": list(axes), "keepdims": keepdims}))
    )
    squares = {"pow": ("Pow", "d two", "q"), "mul": ("Mul", "d d", "q")}
    deviations = {
        "div": [("Sqrt", "e", "s"), ("Div", "d s", "n")],
        "reciprocal": [("Sqrt", "e", "s"), ("Reciprocal", "s", "r"), ("Mul", "d r", "n")],
        "one over": [("Sqrt", "e", "s"), ("Div", "one s", "r"), ("Mul", "r d", "n")],
        "power": [("Pow", "e minus_half", "r"), ("Mul", "d r", "n")],
    }
    nodes = [
        reduce("x", "m"),
        ("Sub", "x m", "d"),
        squares[square],
        reduce("q", "v"),
        ("Add", "v eps", "e"),
        *deviations[deviation],
    ]
    constants = {"two": 2.0, "eps": 1e-5, "one": 1.0, "minus_half": -0.5, "g": G, "b": B}
    if opset >= 18:
        constants["axes"] = np.array(axes, np.int64)
    return nodes, constants


@pytest.mark.parametrize("deviation", ["div", "reciprocal", "one over", "power"])
@pytest.mark.parametrize("square", ["pow", "mul"])
def test_layer_norm_with_scale_and_bias(square, deviation):
    nodes, constants = _core(square, deviation)
    model = build([*nodes, ("Mul", "g n", "o"), ("Add", "o b", "y")], SHAPE, ["y"], constants)
    (node,) = optimized(model, sizes=SIZES).graph.nodes
    assert node.op_type == "LayerNormalization"
    assert node.attributes == {"axis": -1, "epsilon": pytest.approx(1e-5), "stash_type": 1}
    assert node.inputs[1:] == ["g", "b"]


def test_layer_norm_without_scale_or_bias():
    nodes, constants = _core()
    (node,) = optimized(build(nodes, SHAPE, ["n"], constants), sizes=SIZES).graph.nodes
    assert node.op_type == "LayerNormalization" and len(node.inputs) == 2


def test_layer_norm_over_two_axes_and_of_old_opset():
    nodes, constants = _core(axes=(-2, -1), opset=13)
    result = optimized(build(nodes, SHAPE, ["n"], constants, opset=13), sizes=SIZES)
    assert counts(result.graph) == {"LayerNormalization": 1}
    assert result.graph.nodes[0].attributes["axis"] == -2


@pytest.mark.parametrize("change", [{"axes": (1,)}, {"axes": (0,)}])
def test_layer_norm_needs_the_last_axes(change):
    nodes, constants = _core(**change)
    assert "LayerNormalization" not in counts(optimized(build(nodes, SHAPE, ["n"], constants), sizes=SIZES).graph)


def test_layer_norm_is_not_fused_over_a_value_used_elsewhere():
    nodes, constants = _core()
    assert "LayerNormalization" not in counts(optimized(build(nodes, SHAPE, ["n", "d"], constants), sizes=SIZES).graph)


def test_a_residual_is_no_bias():
    nodes, constants = _core()
    model = build([*nodes, ("Mul", "n g", "o"), ("Add", "o x", "y")], SHAPE, ["y"], constants)
    assert counts(optimized(model, sizes=SIZES).graph) == {"LayerNormalization": 1, "Add": 1}


def test_layer_norm_in_keras_form():
    nodes, constants = _core()
    nodes = [
        *nodes[:5],
        ("Sqrt", "e", "s"),
        ("Reciprocal", "s", "r"),
        ("Mul", "r g", "rg"),
        ("Mul", "x rg", "l"),
        ("Mul", "m rg", "k"),
        ("Sub", "b k", "t"),
        ("Add", "l t", "y"),
    ]
    assert counts(optimized(build(nodes, SHAPE, ["y"], constants), sizes=SIZES).graph) == {"LayerNormalization": 1}


def _rms(half=False):
    source = [("Cast", "x", "w", {"to": 1})] if half else []
    x = "w" if half else "x"
    nodes = [
        *source,
        ("Pow", f"{x} two", "q"),
        ("ReduceMean", "q axes", "v"),
        ("Add", "v eps", "e"),
        ("Sqrt", "e", "s"),
        ("Div", f"{x} s", "n"),
    ]
    return nodes, {"two": 2.0, "eps": 1e-6, "axes": np.array([-1], np.int64)}


def test_rms_norm_with_scale():
    nodes, constants = _rms()
    model = build([*nodes, ("Mul", "n g", "y")], SHAPE, ["y"], {**constants, "g": G})
    (node,) = optimized(model, sizes=SIZES).graph.nodes
    assert node.op_type == "RMSNormalization" and node.inputs == ["x", "g"]


def test_rms_norm_of_half_precision_takes_its_casts():
    nodes, constants = _rms(half=True)
    model = build(
        [*nodes, ("Cast", "n", "c", {"to": 10}), ("Mul", "g c", "y")],
        {"x": (np.float16, ["n", 3, 8])},
        ["y"],
        {**constants, "g": G.astype(np.float16)},
    )
    (node,) = optimized(model, sizes=SIZES, rtol=2e-3, atol=2e-3).graph.nodes
    assert node.op_type == "RMSNormalization" and node.attributes["stash_type"] == 1


@pytest.mark.parametrize("rest", [(), ("g",), ("b",), ("g", "b")])
@pytest.mark.parametrize("groups", [1, 2])
def test_group_norm(groups, rest):
    """Scales of ones and biases of zeros, as layers begin with, are no nodes any more."""
    scale, bias = (np.arange(i, i + 6, dtype=np.float32).reshape(6, 1, 1) for i in (1, 0))
    nodes, last = [], "o"
    for name, op_type in (("g", "Mul"), ("b", "Add")):
        if name in rest:
            nodes.append((op_type, f"{last} {name}", f"by_{name}"))
            last = f"by_{name}"
    model = build(
        [
            ("Reshape", "x to3", "r"),
            ("InstanceNormalization", "r ones zeros", "i"),
            ("Shape", "x", "shape"),
            ("Reshape", "i shape", "o"),
            *nodes,
            ("Relu", last, "y"),
        ],
        {"x": ["n", 6, 4, 4]},
        ["y"],
        {
            "to3": np.array([0, groups, -1]),
            "ones": np.ones(groups, np.float32),
            "zeros": np.zeros(groups, np.float32),
            **{name: value for name, value in (("g", scale), ("b", bias)) if name in rest},
        },
        opset=21,
    )
    result = optimized(model, sizes=SIZES)
    assert counts(result.graph) == {"GroupNormalization": 1, "Relu": 1}
    assert result.graph.nodes[0].attributes["num_groups"] == groups


def test_softmax_from_its_pieces():
    nodes = [("Exp", "c", "e"), ("ReduceSum", "e axes", "s"), ("Div", "e s", "y")]
    axes = {"axes": np.array([-1], np.int64)}
    shifted = build([("ReduceMax", "x axes", "m"), ("Sub", "x m", "c"), *nodes], SHAPE, ["y"], axes)
    assert counts(optimized(shifted, sizes=SIZES).graph) == {"Softmax": 1}
    assert counts(optimized(build(nodes, {"c": [2, 5]}, ["y"], axes)).graph) == {"Softmax": 1}
    two = build(nodes, {"c": [2, 5]}, ["y"], {"axes": np.array([0, 1], np.int64)})
    assert "Softmax" not in counts(optimized(two).graph)


@pytest.mark.parametrize("keepdims", [0, 1])
def test_mean_over_space_is_a_pool(keepdims):
    model = build(
        [("ReduceMean", "x axes", "y", {"keepdims": keepdims})], {"x": ["n", 3, 4, 5]}, ["y"], {"axes": np.array([2, 3])}
    )
    assert counts(optimized(model, sizes=SIZES).graph)["GlobalAveragePool"] == 1
    other = build(
        [("ReduceMean", "x axes", "y", {"keepdims": keepdims})], {"x": ["n", 3, 4, 5]}, ["y"], {"axes": np.array([1, 3])}
    )
    assert "GlobalAveragePool" not in counts(optimized(other, sizes=SIZES).graph)
