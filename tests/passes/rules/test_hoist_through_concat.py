"""What stands behind a concatenation of convolutions goes in front of it."""

import numpy as np
import pytest
from pass_models import ALL, BASIC, build, counts, optimized

RNG = np.random.default_rng(5)


def _array(*shape):
    return RNG.normal(size=shape).astype(np.float32)


WEIGHTS = {"v": _array(4, 6, 3, 3), "w": _array(3, 6, 1, 1), "b": _array(3)}
PAIR = [("Conv", "x v", "p", {"pads": [1, 1, 1, 1]}), ("Conv", "x w b", "q"), ("Concat", "p q", "c", {"axis": 1})]
NORM = {"gamma": _array(7), "beta": _array(7), "mean": _array(7), "var": np.abs(_array(7)) + 0.1}
INPUT = {"x": [2, 6, 5, 5]}


def test_norm_behind_concat_of_convolutions():
    model = build([*PAIR, ("BatchNormalization", "c gamma beta mean var", "y")], INPUT, ["y"], {**WEIGHTS, **NORM})
    assert counts(optimized(model, BASIC).graph) == {"Conv": 2, "Concat": 1}


@pytest.mark.parametrize("shape", [(7, 1, 1), (1, 7, 1, 1), (1,), ()])
@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div"])
def test_constants_for_each_channel(op_type, shape):
    model = build([*PAIR, (op_type, "c k", "y")], INPUT, ["y"], {**WEIGHTS, "k": _array(*shape) + 3})
    assert counts(optimized(model, BASIC).graph) == {"Conv": 2, "Concat": 1}


@pytest.mark.parametrize("shape", [(1, 1, 1, 1, 1), (2, 1, 7, 1, 1), (5,), (2, 1, 1, 1)])
def test_operands_of_other_shapes_stay_behind(shape):
    model = build([*PAIR, ("Mul", "c k", "y")], INPUT, ["y"], {**WEIGHTS, "k": _array(*shape)})
    assert counts(optimized(model, BASIC).graph) == {"Conv": 2, "Concat": 1, "Mul": 1}


@pytest.mark.parametrize(("nodes", "op_type"), [
    ([("Relu", "c", "y")], "Relu"),
    ([("Clip", "c low high", "y")], "Clip"),
    ([("PRelu", "c slope", "y")], "PRelu"),
    ([("LeakyRelu", "c", "y", {"alpha": 0.2})], "LeakyRelu"),
    ([("Sigmoid", "c", "s"), ("Mul", "c s", "y")], "Swish"),
])  # fmt: skip
def test_activations(nodes, op_type):
    numbers = {"low": np.float32(-0.5), "high": np.float32(0.5), "slope": _array(7, 1, 1)}
    read = {k: v for k, v in numbers.items() if any(k in n[1] for n in nodes)}
    result = optimized(build([*PAIR, *nodes], INPUT, ["y"], {**WEIGHTS, **read}), ALL)
    assert counts(result.graph) == {"Conv": 2, op_type: 2, "Concat": 1}


def test_norm_then_activation():
    nodes = [*PAIR, ("BatchNormalization", "c gamma beta mean var", "n"), ("Relu", "n", "y")]
    result = optimized(build(nodes, INPUT, ["y"], {**WEIGHTS, **NORM}), ALL)
    assert counts(result.graph) == {"Conv": 2, "Relu": 2, "Concat": 1}


@pytest.mark.parametrize(("nodes", "outputs", "why"), [
    ([*PAIR, ("Relu", "c", "y")], ["y", "c"], "the concatenation is an output"),
    ([*PAIR, ("Relu", "c", "y")], ["y", "p"], "a part is an output"),
    ([*PAIR[:2], ("Concat", "p q p", "c", {"axis": 1}), ("Relu", "c", "y")], ["y"], "a part is there twice"),
    ([*PAIR[:1], ("Concat", "p x", "c", {"axis": 1}), ("Relu", "c", "y")], ["y"], "a part is no convolution"),
    ([*PAIR[:1], ("Conv", "x u", "q", {"pads": [1, 1, 1, 1]}), ("Concat", "p q", "c", {"axis": 2}), ("Relu", "c", "y")], ["y"],
     "not along the channels"),
])  # fmt: skip
def test_stays_behind(nodes, outputs, why):
    constants = {k: v for k, v in {**WEIGHTS, "u": _array(4, 6, 3, 3)}.items() if any(k in n[1].split() for n in nodes)}
    result = optimized(build(nodes, INPUT, outputs, constants), ALL)
    assert counts(result.graph)["Relu"] == 1, why
