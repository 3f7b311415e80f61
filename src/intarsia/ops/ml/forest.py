"""The trees of an ensemble as arrays, and the descent of a batch through all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.primitives import lang as k

Ints = Sequence[int]
Floats = Sequence[float]
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
LEAF = len(MODES)
_COMPARE = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
_BATCH = 1 << 18  # (row, tree) pairs that descend together


@dataclass(frozen=True)
class Members:
    """The sets that BRANCH_MEMBER nodes test.

    Attributes:
        values: all members of all sets, ascending.
        pairs: node * len(values) + place of the member, ascending.
    """

    values: np.ndarray
    pairs: np.ndarray

    def contain(self, nodes: np.ndarray, x: np.ndarray) -> np.ndarray:
        if not len(self.values):
            return np.zeros(len(x), np.bool_)
        place = np.minimum(np.searchsorted(self.values, x), len(self.values) - 1)
        pair = nodes * len(self.values) + place
        at = np.minimum(np.searchsorted(self.pairs, pair), len(self.pairs) - 1)
        found: np.ndarray = (self.values[place] == x) & (self.pairs[at] == pair)
        return found


@dataclass(frozen=True)
class Forest:
    """Nodes of all trees, leaves among them.

    Attributes:
        roots: node of each tree's root.
        mode: comparison per node (index in MODES, or LEAF).
        feature, threshold: what a node compares; `no`, `yes`: where it leads.
        missing: whether NaN leads to `yes`.
        first, count: per node, its votes lie in `target` and `weight` from `first` on.
        targets: number of scores.
    """

    roots: np.ndarray
    mode: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    missing: np.ndarray
    first: np.ndarray
    count: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    targets: int
    members: Members | None = None

    def __post_init__(self) -> None:
        inner = self.mode != LEAF
        for what, places, size in (("child", self.yes[inner], len(self.mode)), ("child", self.no[inner], len(self.mode)),
                                   ("target", self.target, self.targets)):  # fmt: skip
            if len(places) and not (places.min() >= 0 and places.max() < size):
                raise k.DefinitionError(f"a {what} id is out of range; expected 0 to {size - 1}")
        if len(self.feature) and self.feature.min() < 0:
            raise k.DefinitionError(f"a feature id is {self.feature.min()}; expected 0 or more")
        roots = self.roots
        if len(roots) and not (roots.min() >= 0 and roots.max() < len(self.mode)):
            raise k.DefinitionError(f"a root is out of range; expected 0 to {len(self.mode) - 1}")

    @cached_property
    def highest_feature(self) -> int:
        return int(self.feature.max(initial=0))

    @cached_property
    def inner(self) -> np.ndarray:
        return np.asarray(self.mode != LEAF)

    @cached_property
    def children(self) -> np.ndarray:
        """Where a node leads: at 2 * node if its comparison fails, behind it if it holds."""
        return np.stack([self.no, self.yes], 1).reshape(-1)

    @cached_property
    def any_missing(self) -> bool:
        return bool(self.missing.any())

    @cached_property
    def only_mode(self) -> int | None:
        """The mode of all inner nodes, where they have one in common."""
        found = np.unique(self.mode[self.mode != LEAF])
        return int(found[0]) if len(found) == 1 else None

    def leaves(self, x: np.ndarray) -> np.ndarray:
        """The leaf that each row of `x` [N, features] reaches in each tree: node numbers [N, trees]."""
        if self.highest_feature >= x.shape[1]:
            raise k.DefinitionError(f"X has {x.shape[1]} features, but a node compares feature {self.highest_feature}")
        at = np.tile(self.roots, len(x))
        flat = np.ascontiguousarray(x).reshape(-1)
        live = np.flatnonzero(self.inner.take(at))
        nodes, rows = at.take(live), live // max(len(self.roots), 1) * x.shape[1]
        for _ in range(len(self.mode)):
            if not len(live):
                return at.reshape(len(x), len(self.roots))
            values = flat.take(rows + self.feature.take(nodes))
            taken = self._compare(nodes, values)
            if self.any_missing:
                taken |= self.missing[nodes] & np.isnan(values)
            nodes = self.children.take(2 * nodes + taken)
            going = self.inner.take(nodes)
            if not going.all():
                at[live] = nodes
                live, nodes, rows = live[going], nodes[going], rows[going]
        raise k.DefinitionError("the nodes of a tree lead round in a circle; expected a tree")

    def _compare(self, nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
        if self.only_mode is not None and self.only_mode < len(_COMPARE):
            same: np.ndarray = _COMPARE[self.only_mode](values, self.threshold.take(nodes))
            return same
        taken = np.zeros(len(nodes), np.bool_)
        modes = self.mode[nodes]
        for mode in np.unique(modes):
            here = np.flatnonzero(modes == mode)
            if mode < len(_COMPARE):
                taken[here] = _COMPARE[mode](values[here], self.threshold[nodes[here]])
            elif self.members is not None:
                taken[here] = self.members.contain(nodes[here], values[here])
        return taken

    def scores(self, x: np.ndarray, aggregate: str) -> np.ndarray:
        """[N, targets] double: votes of the leaves reached, added up (SUM, AVERAGE), or their MIN or MAX, infinite without any.

        Raises:
            DefinitionError: `x` has too few features.
        """
        step = max(1, _BATCH // max(len(self.roots), 1))
        parts = [self._scores(x[i : i + step], aggregate) for i in range(0, max(len(x), 1), step)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _scores(self, x: np.ndarray, aggregate: str) -> np.ndarray:
        leaves = self.leaves(x).reshape(-1)
        counts = self.count[leaves]
        row = np.repeat(np.arange(len(leaves)) // max(len(self.roots), 1), counts)
        vote = np.repeat(self.first[leaves] - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
        cell = row * self.targets + self.target[vote]
        size = len(x) * self.targets
        if aggregate in ("SUM", "AVERAGE"):
            out: np.ndarray = np.bincount(cell, self.weight[vote], size).astype(np.float64, copy=False)  # integers without rows
        else:
            least = aggregate == "MIN"
            out = np.full(size, np.inf if least else -np.inf)
            (np.minimum if least else np.maximum).at(out, cell, self.weight[vote])
        return out.reshape(len(x), self.targets)


def _equal_lengths(**arrays: Sequence[object] | np.ndarray | None) -> None:
    lengths = {name: len(a) for name, a in arrays.items() if a is not None}
    if len(set(lengths.values())) > 1:
        raise k.DefinitionError("attributes differ in length: " + ", ".join(f"{n} {c}" for n, c in lengths.items()))


def _flags(given: Sequence[int] | None, count: int) -> np.ndarray:
    return np.array(given, np.bool_) if given is not None and len(given) else np.zeros(count, np.bool_)


def either(plain: Any, tensor: Any) -> Any:
    """A list of floats, or the tensor that stands for it in double precision; None where neither is given."""
    given = tensor if tensor is not None and len(tensor) else plain
    return given if given is not None and len(given) else None


@dataclass(frozen=True)
class TreeNodes(ParameterGroup):
    """Attributes that list the nodes of all trees, of TreeEnsembleRegressor and -Classifier; hit rates change nothing."""

    nodes_falsenodeids: Ints = ()
    nodes_featureids: Ints = ()
    nodes_hitrates: Floats | None = None
    nodes_hitrates_as_tensor: np.ndarray | None = None
    nodes_missing_value_tracks_true: Ints | None = None
    nodes_modes: Sequence[str] = ()
    nodes_nodeids: Ints = ()
    nodes_treeids: Ints = ()
    nodes_truenodeids: Ints = ()
    nodes_values: Floats | None = None
    nodes_values_as_tensor: np.ndarray | None = None

    def check_lengths(self) -> None:
        """Raise DefinitionError where the lists differ in length."""
        _equal_lengths(
            nodes_treeids=self.nodes_treeids, nodes_nodeids=self.nodes_nodeids, nodes_featureids=self.nodes_featureids,
            nodes_modes=self.nodes_modes, nodes_values=self.values, nodes_truenodeids=self.nodes_truenodeids,
            nodes_falsenodeids=self.nodes_falsenodeids,
            nodes_missing_value_tracks_true=self.nodes_missing_value_tracks_true or None,
        )  # fmt: skip

    @property
    def values(self) -> Floats | np.ndarray | None:
        """What the nodes compare with."""
        found: Floats | np.ndarray | None = either(self.nodes_values, self.nodes_values_as_tensor)
        return found


@dataclass(frozen=True)
class LeafVotes:
    """Votes by the ids of a leaf's tree and its own: for which target, and with which weight."""

    trees: Ints
    nodes: Ints
    targets: Ints
    weights: Floats | np.ndarray | None


def forest_of_nodes(nodes: TreeNodes, votes: LeafVotes, targets: int) -> Forest:
    """From TreeEnsembleRegressor's and -Classifier's attributes: nodes and votes are named by tree and node id.

    Of a leaf's several votes for the only target the first counts: ONNX's text is open, onnxruntime does so, and skl2onnx
    writes a leaf's number once for each class. Several votes for one of several targets are added up.
    """
    values, weights = nodes.values, votes.weights
    if values is None or weights is None:
        raise k.DefinitionError("the nodes' values or the leaves' weights are missing")
    nodes.check_lengths()
    _equal_lengths(treeids=votes.trees, nodeids=votes.nodes, ids=votes.targets, weights=weights)
    place = _Places(nodes.nodes_treeids, nodes.nodes_nodeids)
    mode = _modes(nodes.nodes_modes)
    leaf = mode == LEAF
    yes, no = (np.where(leaf, 0, place.of(place.trees, ids)) for ids in (nodes.nodes_truenodeids, nodes.nodes_falsenodeids))
    voting = place.of(votes.trees, votes.nodes)
    if len(voting) and voting.min() < 0:
        at = int(np.argmin(voting))
        raise k.DefinitionError(f"a vote is for node {votes.nodes[at]} of tree {votes.trees[at]}, which does not exist")
    order = np.argsort(voting, kind="stable")
    count = np.bincount(voting, minlength=len(mode))
    first = np.cumsum(count) - count
    count = np.minimum(count, 1) if targets == 1 else count
    return Forest(
        _roots(nodes.nodes_treeids, yes[~leaf], no[~leaf]), mode,
        np.where(leaf, 0, np.array(nodes.nodes_featureids, np.int64)), _numbers(values), yes, no,
        _flags(nodes.nodes_missing_value_tracks_true, len(mode)), first, count, np.array(votes.targets, np.int64)[order],
        np.array(weights, np.float64)[order], targets,
    )  # fmt: skip


class _Places:
    """Where nodes stand in the lists, by the ids of their trees and their own."""

    def __init__(self, treeids: Sequence[int], nodeids: Sequence[int]) -> None:
        self.trees, nodes = np.array(treeids, np.int64), np.array(nodeids, np.int64)
        self.order = np.lexsort((nodes, self.trees))
        self.sorted_trees, self.sorted_nodes = self.trees[self.order], nodes[self.order]
        same = (np.diff(self.sorted_trees) == 0) & (np.diff(self.sorted_nodes) == 0)
        if same.any():
            raise k.DefinitionError("two nodes of one tree have the same id")
        self.distinct, self.first = np.unique(self.sorted_trees, return_index=True)
        self.end = np.append(self.first[1:], len(self.order))

    def of(self, treeids: Sequence[int] | np.ndarray, nodeids: Sequence[int]) -> np.ndarray:
        """Places; -1 where there is no such node."""
        trees, nodes = np.array(treeids, np.int64), np.array(nodeids, np.int64)
        if not len(self.order):
            return np.full(len(trees), -1)
        tree = np.minimum(np.searchsorted(self.distinct, trees), len(self.distinct) - 1)
        low, high = self.first[tree], self.end[tree]
        guess = low + nodes - self.sorted_nodes[low]  # right where a tree's ids are consecutive
        here = (guess >= low) & (guess < high) & (self.distinct[tree] == trees)
        at = np.where(here, guess, low)
        wrong = np.flatnonzero(self.sorted_nodes[at] != nodes)
        if len(wrong):
            at[wrong] = self._search(nodes[wrong], low[wrong], high[wrong])
        found = (self.distinct[tree] == trees) & (self.sorted_nodes[at] == nodes)
        return np.where(found, self.order[at], -1)

    def _search(self, nodes: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """By bisection: the last place in [low, high) whose id is not above the node's, or low."""
        while (high - low > 1).any():
            middle = (low + high) // 2
            above = self.sorted_nodes[middle] > nodes
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return low


def _numbers(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Thresholds; those given as floats compare as float32 with float32 data."""
    return values if isinstance(values, np.ndarray) else np.array(values, np.float32)


def _modes(modes: Sequence[str]) -> np.ndarray:
    numbers = {name: i for i, name in enumerate((*MODES[:6], "LEAF"))} | {"LEAF": LEAF}
    unknown = set(modes) - numbers.keys()
    if unknown:
        raise k.DefinitionError(f"nodes_modes has {min(unknown)!r}; expected one of {', '.join(numbers)}")
    return np.array([numbers[m] for m in modes], np.int64)


def _roots(treeids: Sequence[int], yes: np.ndarray, no: np.ndarray) -> np.ndarray:
    """Of each tree, in the order of their first nodes, the first node that no other leads to."""
    free = np.ones(len(treeids), np.bool_)
    free[yes[yes >= 0]] = False
    free[no[no >= 0]] = False
    found = np.flatnonzero(free)
    trees, first = np.unique(np.array(treeids, np.int64)[found], return_index=True)
    if len(trees) < len(set(treeids)):
        raise k.DefinitionError("the nodes of a tree lead round in a circle; expected a tree, whose root no node leads to")
    return found[np.sort(first)]


@dataclass(frozen=True)
class TreeSplits(ParameterGroup):
    """TreeEnsemble's attributes that list inner nodes and leaves of all trees; hit rates change nothing."""

    leaf_targetids: Ints
    leaf_weights: np.ndarray
    nodes_falseleafs: Ints
    nodes_falsenodeids: Ints
    nodes_featureids: Ints
    nodes_modes: np.ndarray
    nodes_splits: np.ndarray
    nodes_trueleafs: Ints
    nodes_truenodeids: Ints
    tree_roots: Ints
    membership_values: np.ndarray | None = None
    nodes_hitrates: np.ndarray | None = None
    nodes_missing_value_tracks_true: Ints | None = None

    def check_lengths(self) -> None:
        """Raise DefinitionError where the lists differ in length."""
        _equal_lengths(
            nodes_featureids=self.nodes_featureids, nodes_modes=self.nodes_modes, nodes_splits=self.nodes_splits,
            nodes_truenodeids=self.nodes_truenodeids, nodes_trueleafs=self.nodes_trueleafs,
            nodes_falsenodeids=self.nodes_falsenodeids, nodes_falseleafs=self.nodes_falseleafs,
            nodes_missing_value_tracks_true=self.nodes_missing_value_tracks_true or None,
        )  # fmt: skip
        _equal_lengths(leaf_targetids=self.leaf_targetids, leaf_weights=self.leaf_weights)


def forest_of_splits(given: TreeSplits, targets: int) -> Forest:
    """From TreeEnsemble's attributes: inner nodes and leaves are numbered separately; here leaves follow the inner nodes."""
    given.check_lengths()
    splits, inner, leaves = given.nodes_splits, len(given.nodes_featureids), len(given.leaf_targetids)
    numbers = np.asarray(given.nodes_modes, np.int64)
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < len(MODES)):
        raise k.DefinitionError(f"nodes_modes has {int(numbers.max())}; expected 0 to {len(MODES) - 1} ({', '.join(MODES)})")

    def padded(a: np.ndarray, fill: int) -> np.ndarray:
        return np.concatenate([a, np.full(leaves, fill, a.dtype)])

    def child(what: str, ids: Sequence[int], leaf: Sequence[int]) -> np.ndarray:
        numbers, leads = np.array(ids, np.int64), np.array(leaf, np.bool_)
        wrong = np.flatnonzero((numbers < 0) | (numbers >= np.where(leads, leaves, inner)))
        if len(wrong):
            kind, count = ("leaves", leaves) if leads[wrong[0]] else ("nodes", inner)
            raise k.DefinitionError(f"{what} has {numbers[wrong[0]]}; expected the number of one of {count} {kind}")
        return padded(numbers + np.where(leads, inner, 0), 0)

    return Forest(
        np.array(given.tree_roots, np.int64), padded(numbers, LEAF), padded(np.array(given.nodes_featureids, np.int64), 0),
        padded(np.asarray(splits, np.promote_types(splits.dtype, np.float32)), 0),
        child("nodes_truenodeids", given.nodes_truenodeids, given.nodes_trueleafs),
        child("nodes_falsenodeids", given.nodes_falsenodeids, given.nodes_falseleafs),
        padded(_flags(given.nodes_missing_value_tracks_true, inner), 0),
        np.maximum(np.arange(inner + leaves) - inner, 0), padded(np.zeros(inner, np.int64), 1),
        np.array(given.leaf_targetids, np.int64), np.asarray(given.leaf_weights, np.float64), targets,
        _members(given.membership_values, np.flatnonzero(numbers == len(MODES) - 1)),
    )  # fmt: skip


def _members(values: np.ndarray | None, nodes: np.ndarray) -> Members | None:
    """The sets of the given nodes: each ends with a NaN."""
    flat = np.zeros(0) if values is None else np.asarray(values, np.float64)
    ends = np.isnan(flat)
    if int(ends.sum()) != len(nodes):
        raise k.DefinitionError(f"membership_values has {int(ends.sum())} sets; {len(nodes)} nodes are BRANCH_MEMBER")
    if not len(nodes):
        return None
    owner = nodes[np.minimum(np.cumsum(ends) - ends, len(nodes) - 1)][~ends]
    unique, place = np.unique(flat[~ends], return_inverse=True)
    return Members(unique, np.sort(owner * max(len(unique), 1) + place))
