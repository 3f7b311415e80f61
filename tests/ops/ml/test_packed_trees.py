"""Forests packed for native code, against the walk through the same trees node by node; hostile ones are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intarsia.ops.framework.parameter_groups import flat
from intarsia.ops.ml.forest import MODES, Forest, LeafVotes, TreeNodes, TreeSplits, forest_of_nodes, forest_of_splits
from intarsia.ops.ml.native import tree_sums
from intarsia.ops.ml.packed import keys, pack
from intarsia.primitives.lang import DefinitionError

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 3.4e38, -3.4e38]


def sums(forest: Forest, x: np.ndarray, aggregate: str = "SUM") -> np.ndarray:
    p = pack(forest, x.dtype, aggregate)
    return flat(tree_sums)(  # type: ignore[no-any-return]
        x, p.nodes, p.trees, p.columns, p.weights, p.first, p.targets, votes=p.votes, aggregate=aggregate,
        scores=forest.targets, features=x.shape[1], steps=p.steps,
    )  # fmt: skip


def splits(rng: np.random.Generator, trees: int, inner: int, targets: int, **changes: Any) -> Forest:
    """Random trees of `inner` splits each, whose modes, thresholds, sets and NaN flags are random too."""
    grid = np.array([-2, -1, -0.5, -0.0, 0.0, 0.5, 1, 2, np.inf, -np.inf, 1e-45], np.float32)
    true, false, leaf, roots = ([], []), ([], []), 0, []
    for tree in range(trees):
        roots.append(tree * inner)
        free: list[tuple[int, int]] = []
        for i in range(inner):
            at = tree * inner + i
            for side in (true, false):
                side[0].append(-1)
                side[1].append(1)
            if i:
                parent, which = free.pop(int(rng.integers(len(free))))
                side = (true, false)[which]
                side[0][parent], side[1][parent] = at, 0
            free += [(at, 0), (at, 1)]
        for parent, which in free:
            (true, false)[which][0][parent] = leaf
            leaf += 1
    count = trees * inner
    modes = rng.integers(0, len(MODES), count).astype(np.uint8)
    members = [v for _ in range(int((modes == 6).sum())) for v in (*rng.choice(grid, int(rng.integers(0, 6))), np.nan)]
    given: dict[str, Any] = {
        "tree_roots": roots, "nodes_featureids": rng.integers(0, 5, count).tolist(), "nodes_modes": modes,
        "nodes_splits": rng.choice(grid, count), "nodes_truenodeids": true[0], "nodes_trueleafs": true[1],
        "nodes_falsenodeids": false[0], "nodes_falseleafs": false[1],
        "nodes_missing_value_tracks_true": rng.integers(0, 2, count).tolist(),
        "membership_values": np.array(members, np.float32), "leaf_targetids": rng.integers(0, targets, leaf).tolist(),
        "leaf_weights": rng.standard_normal(leaf).astype(np.float32),
    }  # fmt: skip
    return forest_of_splits(TreeSplits(**(given | changes)), targets)


def one_split(mode: int, members: np.ndarray | None, targets: list[int], weights: np.ndarray) -> Forest:
    """A tree of two leaves, which a node that compares feature 0 with 0 leads to."""
    made = TreeSplits(
        leaf_targetids=targets, leaf_weights=weights, membership_values=members, nodes_modes=np.uint8([mode]),
        nodes_featureids=[0], nodes_splits=np.float32([0]), nodes_truenodeids=[0], nodes_trueleafs=[1], nodes_falsenodeids=[1],
        nodes_falseleafs=[1], tree_roots=[0],
    )  # fmt: skip
    return forest_of_splits(made, max(targets) + 1)


def data(rng: np.random.Generator, dtype: type, rows: int = 60) -> np.ndarray:
    grid = np.array([-2, -1, -0.5, 0, 0.5, 1, 2, 0.25, 7, *SPECIAL])
    with np.errstate(over="ignore"):
        return rng.choice(grid, (rows, 5)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("aggregate", ["SUM", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_every_mode(targets: int, aggregate: str, dtype: type) -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        forest, x = splits(rng, 4, 1 + 3 * seed, targets), data(rng, dtype)
        np.testing.assert_allclose(sums(forest, x, aggregate), forest.scores(x, aggregate), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_thresholds_between_floats(dtype: type) -> None:
    """Doubles that float32 cannot hold, and numbers beyond its range, compare with float32 data as they are."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        between = rng.choice([0.1, 1 + 1e-12, 1 - 1e-12, -1e300, 1e300, np.nan, 0.5], 20)
        sets = np.array([v for _ in range(20) for v in (0.1, 0.5, np.float32(0.1), np.nan)])
        modes = np.arange(20, dtype=np.uint8) % 7
        sets = sets[: 4 * int((modes == 6).sum())]
        forest = splits(rng, 2, 10, 1, nodes_splits=between, nodes_modes=modes, membership_values=sets)
        x = rng.choice(np.array([0.1, 0.5, 1, np.inf, -np.inf, np.nan, 0], np.float32), (60, 5)).astype(dtype)
        np.testing.assert_allclose(sums(forest, x), forest.scores(x, "SUM"), rtol=1e-12, atol=1e-12)


def test_keys_are_ordered_as_numbers() -> None:
    for dtype in (np.float32, np.float64):
        x = np.sort(np.array([v for v in SPECIAL if not np.isnan(v)] + [0.5, 2e-45, 7], dtype))
        found = keys(x)
        assert (np.sign(np.diff(found)) == np.sign(np.diff(x))).all()
        assert keys(np.array([np.nan, -np.nan], dtype)).tolist() == [np.iinfo(found.dtype).max] * 2


def test_large_sets_are_searched_in_few_steps() -> None:
    values = np.arange(0, 2000, 2, dtype=np.float32)
    forest = one_split(6, np.append(values, np.float32(np.nan)), [0, 0], np.float32([1, 2]))
    x = np.arange(-3, 2003, dtype=np.float32)[:, None] / 2
    np.testing.assert_array_equal(sums(forest, x), forest.scores(x, "SUM"))
    assert pack(forest, x.dtype, "SUM").steps <= 12


@pytest.mark.parametrize(("targets", "weights", "kind"), [
    ([0, 0], [1.0, 2.0], "node"), ([1, 1], [1.0, 2.0], "node"), ([0, 1], [1.0, 2.0], "dense"), ([0, 0], [0.1, 2.0], "dense"),
    ([0, 899], [1.0, 2.0], "sparse"),
])  # fmt: skip
@pytest.mark.parametrize("aggregate", ["SUM", "MIN", "MAX"])
def test_votes_are_kept_as_they_fit(aggregate: str, targets: list[int], weights: list[float], kind: str) -> None:
    """0.1 as a double is no float32: it does not fit a node of float32 data."""
    forest = one_split(0, None, targets, np.array(weights))
    x = np.float32([[1], [-1]])
    assert pack(forest, x.dtype, aggregate).votes == kind
    np.testing.assert_array_equal(sums(forest, x, aggregate), forest.scores(x, aggregate))
    wide = x.astype(np.float64)
    np.testing.assert_array_equal(sums(forest, wide, aggregate), forest.scores(wide, aggregate))


def test_shared_nodes() -> None:
    """Two parents of one child are no tree, but lead somewhere: nodes 1 and 2 both to 3, which is also the second root."""
    forest = Forest(
        np.array([0, 3]), np.array([0, 0, 0, 0, 7, 7]), np.array([0, 1, 2, 3, 0, 0]), np.zeros(6, np.float32),
        np.array([1, 3, 3, 4, 0, 0]), np.array([2, 4, 5, 5, 0, 0]), np.zeros(6, np.bool_), np.array([0, 0, 0, 0, 0, 1]),
        np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0]), np.array([1.0, 16.0]), 1,
    )  # fmt: skip
    x = np.array(np.meshgrid(*[[-1, 1]] * 4), np.float32).reshape(4, -1).T
    np.testing.assert_array_equal(sums(forest, np.ascontiguousarray(x)), forest.scores(x, "SUM"))


def one_tree(**changes: Any) -> Forest:
    given: dict[str, Any] = {
        "treeids": [0] * 5, "nodeids": [0, 1, 2, 3, 4], "featureids": [0] * 5, "modes": ["BRANCH_LEQ"] * 2 + ["LEAF"] * 3,
        "values": [0.0] * 5, "truenodeids": [1, 3, 0, 0, 0], "falsenodeids": [2, 4, 0, 0, 0], "missing": None,
        "vote_trees": [0] * 3, "vote_nodes": [2, 3, 4], "vote_targets": [0] * 3, "vote_weights": [1.0, 2.0, 4.0], "targets": 1,
    }  # fmt: skip
    given |= changes
    votes = LeafVotes(*(given.pop(f"vote_{what}") for what in ("trees", "nodes", "targets", "weights")))
    targets, missing = given.pop("targets"), given.pop("missing")
    nodes = TreeNodes(nodes_missing_value_tracks_true=missing, **{f"nodes_{name}": value for name, value in given.items()})
    return forest_of_nodes(nodes, votes, targets)


@pytest.mark.parametrize(("changes", "message"), [
    ({"truenodeids": [1, 1, 0, 0, 0]}, "lead round in a circle"),
    ({"truenodeids": [1, 0, 0, 0, 0], "falsenodeids": [3, 2, 0, 0, 0], "modes": ["BRANCH_LEQ"] * 2 + ["LEAF"] * 3,
      "treeids": [0, 0, 0, 0, 1], "vote_trees": [0, 0, 1]}, "lead round in a circle; expected a tree, whose root"),
    ({"truenodeids": [1, 2**62, 0, 0, 0]}, "a child id is out of range; expected 0 to 4"),
    ({"truenodeids": [1, -5, 0, 0, 0]}, "a child id is out of range; expected 0 to 4"),
    ({"vote_targets": [0, -1, 0]}, "a target id is out of range; expected 0 to 0"),
    ({"featureids": [0, -3, 0, 0, 0]}, "a feature id is -3; expected 0 or more"),
])  # fmt: skip
def test_hostile_trees(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        pack(one_tree(**changes), np.dtype(np.float32), "SUM")


def test_a_circle_that_no_root_leads_to() -> None:
    """In tree 0, nodes 3 and 4 lead to each other, but nothing leads to them."""
    forest = one_tree(
        modes=["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_LEQ", "BRANCH_LEQ"], truenodeids=[1, 0, 0, 4, 3],
        falsenodeids=[2, 0, 0, 4, 3], vote_trees=[0, 0], vote_nodes=[1, 2], vote_targets=[0, 0], vote_weights=[1.0, 2.0],
    )  # fmt: skip
    x = np.float32([[-1], [1]])
    assert sums(forest, x).tolist() == [[1], [2]]


def test_ids_in_any_order() -> None:
    """Nodes of several trees mixed, with ids that are neither dense nor ascending."""
    order = [3, 0, 4, 2, 1]
    ids = [900, -7, 12, 40, 3]
    forest = one_tree(
        nodeids=[ids[i] for i in order], modes=[["BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF"][i] for i in order],
        truenodeids=[[ids[1], ids[3], 0, 0, 0][i] for i in order], falsenodeids=[[ids[2], ids[4], 0, 0, 0][i] for i in order],
        featureids=[[0, 1, 0, 0, 0][i] for i in order], vote_nodes=[ids[2], ids[3], ids[4]],
    )  # fmt: skip
    x = np.float32([[1, 0], [-1, -1], [-1, 1]])
    assert sums(forest, x).tolist() == forest.scores(x, "SUM").tolist() == [[1], [2], [4]]


def test_no_trees() -> None:
    forest = splits(np.random.default_rng(0), 0, 0, 2)
    assert sums(forest, np.zeros((3, 5), np.float32)).tolist() == [[0, 0]] * 3
