import numpy as np
import pytest
from pass_models import BASIC, build, counts, optimized

from intarsia.graph.load import load
from intarsia.passes import optimize

RNG = np.random.default_rng(3)


def _array(*shape):
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("pads", "value", "merged"),
    [
        ([0, 0, 1, 2, 0, 0, 3, 0], 0.0, True),
        ([0, 1, 1, 1, 0, 0, 1, 1], 0.0, False),
        ([0, 0, 1, 1, 0, 0, 1, 1], 1.0, False),
    ],
)
def test_pad_before_conv(pads, value, merged):
    channels = 3 + pads[1]
    model = build(
        [("Pad", "x p v", "a"), ("Conv", "a w", "y", {"pads": [1, 1, 1, 1]})],
        {"x": [1, 3, 6, 6]},
        ["y"],
        {"p": np.array(pads), "v": value, "w": _array(2, channels, 3, 3)},
    )
    assert ("Pad" not in counts(optimized(model, BASIC).graph)) is merged


def test_a_pad_that_crops_stays():
    constants = {"p": np.array([0, 0, -1, 0, 0, 0, 1, 1]), "w": _array(2, 3, 3, 3)}
    model = build([("Pad", "x p", "a"), ("Conv", "a w", "y")], {"x": [1, 3, 6, 6]}, ["y"], constants)
    assert counts(optimize(load(model), BASIC).graph) == {"Pad": 1, "Conv": 1}


@pytest.mark.parametrize(("pads", "merged"), [([0, 0, 1, 0, 0, 2, 1, 0], True), ([0, 0, 1, 1, 0, 0, 1, 0], False)])
def test_pad_and_transpose_before_conv(pads, merged):
    """A border of channels-last images: only the axes that become the convolution's height and width have one."""
    nodes = [("Pad", "x p", "a"), ("Transpose", "a", "t", {"perm": [0, 3, 1, 2]}), ("Conv", "t w", "y")]
    weights = _array(2, 3 + pads[3], 3, 3)
    model = build(nodes, {"x": [1, 6, 7, 3]}, ["y"], {"p": np.array(pads), "w": weights})
    graph = optimized(model, BASIC).graph
    assert ("Pad" not in counts(graph)) is merged
    if merged:
        assert graph.nodes[-1].attributes["pads"] == [0, 1, 2, 1]


@pytest.mark.parametrize(
    ("attributes", "sizes", "pads"),
    [
        ({"auto_pad": "SAME_UPPER", "strides": [2, 3]}, [2, 3, "h", "w"], [1, 0, 2, 0]),
        ({"auto_pad": "SAME_LOWER", "strides": [2, 3]}, [2, 3, "h", "w"], [2, 0, 1, 0]),
        ({"auto_pad": "SAME_UPPER", "strides": [1, 1], "dilations": [1, 2]}, [2, 3, "h", "w"], [2, 2, 2, 2]),
        ({"auto_pad": "VALID", "strides": [2, 2]}, [2, 3, "h", "w"], [0, 0, 0, 0]),
    ],
)
def test_borders_of_transposed_convolutions(attributes, sizes, pads):

    model = build([("ConvTranspose", "x w", "y", attributes)], {"x": sizes}, ["y"], {"w": _array(3, 4, 5, 3)})
    (node,) = optimized(model, BASIC, sizes={"h": 5, "w": 6}).graph.nodes
    assert node.attributes["pads"] == pads
    assert not {"auto_pad", "output_shape"} & node.attributes.keys()


@pytest.mark.parametrize(
    ("attributes", "pads"),
    [
        ({"output_shape": [11, 15]}, [1, 2, 1, 1]),
        ({"output_shape": [2, 4, 12, 17], "auto_pad": "SAME_UPPER"}, [0, 0, 1, 1]),
    ],
)
def test_borders_of_a_wanted_shape(attributes, pads):
    """ONNX's reference evaluator cannot run these; the providers' tests do."""
    listed = {**attributes, "strides": [2, 3]}
    model = build([("ConvTranspose", "x w", "y", listed)], {"x": [2, 3, 5, 6]}, ["y"], {"w": _array(3, 4, 5, 3)})
    (node,) = optimize(load(model), BASIC).graph.nodes
    assert node.attributes["pads"] == pads


@pytest.mark.parametrize(
    ("attributes", "sizes"),
    [
        ({"auto_pad": "SAME_UPPER", "strides": [3, 3]}, [2, 3, "h", "w"]),  # gaps between windows: more than is computed
        ({"output_shape": [20, 20], "strides": [2, 2]}, [2, 3, "h", "w"]),  # depends on sizes
    ],
)
def test_borders_of_transposed_convolutions_that_stay(attributes, sizes):
    model = build([("ConvTranspose", "x w", "y", attributes)], {"x": sizes}, ["y"], {"w": _array(3, 4, 2, 2)})
    (node,) = optimize(load(model), BASIC).graph.nodes
    assert node.attributes == attributes
