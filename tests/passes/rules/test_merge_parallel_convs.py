"""Sums of convolutions of one tensor are one convolution."""

import numpy as np
import pytest
from pass_models import build, counts, optimized

RNG = np.random.default_rng(3)


def _weights(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("biases", [0, 1, 2])
@pytest.mark.parametrize("group", [1, 6])
def test_branches_are_one(group, biases):
    how = {"pads": [1, 1, 1, 1], "group": group}
    nodes = [("Conv", f"x w{i}" + (f" b{i}" if i < biases else ""), f"c{i}", how) for i in range(3)]
    nodes += [("Relu", "x", "r"), ("Add", "r c0", "s0"), ("Add", "s0 c1", "s1"), ("Add", "c2 s1", "y")]
    constants = {f"w{i}": _weights(6, 6 // group, 3, 3) for i in range(3)} | {f"b{i}": _weights(6) for i in range(biases)}
    found = counts(optimized(build(nodes, {"x": ["n", 6, 5, 7]}, ["y"], constants), sizes={"n": 2}, rtol=1e-4, atol=1e-5).graph)
    assert (found["Conv"], found["Add"]) == (1, 1)


@pytest.mark.parametrize("other", [{"pads": [0, 0, 0, 0]}, {"pads": [1, 1, 1, 1], "group": 3}])
def test_other_windows_stay_apart(other):
    wide = other.get("group", 1) == 1
    weights = {"u": _weights(6, 6, 3, 3), "v": _weights(6, 6, 1, 1) if wide else _weights(6, 2, 3, 3)}
    nodes = [("Conv", "x u", "a", {"pads": [1, 1, 1, 1]}), ("Conv", "x v", "b", other), ("Add", "a b", "y")]
    found = counts(optimized(build(nodes, {"x": [1, 6, 5, 5]}, ["y"], weights), rtol=1e-4, atol=1e-5).graph)
    assert found["Conv"] == 2


def test_branches_that_are_read_twice_stay():
    weights = {"u": _weights(4, 4, 1, 1), "v": _weights(4, 4, 1, 1)}
    nodes = [("Conv", "x u", "a"), ("Conv", "x v", "b"), ("Add", "a b", "y"), ("Relu", "a", "z")]
    assert counts(optimized(build(nodes, {"x": [1, 4, 5, 5]}, ["y", "z"], weights), rtol=1e-4, atol=1e-5).graph)["Conv"] == 2
