"""A forest packed for native code: nodes as intervals of integer keys, children side by side, trees one after another.

`descent` says what a node means; this module translates comparisons into intervals and lays the nodes out.
"""

from __future__ import annotations

import numpy as np

from intarsia.lazy_dataclass import dataclass
from intarsia.ops.ml import descent
from intarsia.ops.ml.forest import LEAF, MODES, Forest
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import Operands

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(len(MODES))
LANES = 8  # rows whose keys of one feature lie side by side
NODE_BYTES = {4: 16, 8: 24}  # by the size of a key
_NEAR = 2  # a tree whose leaves' depths differ by no more is descended to the deepest without looking
_DENSE_WASTE = 4  # votes may be padded with zeros to so many times their number


@dataclass(frozen=True)
class Packed:
    """What the kernel reads; see `providers/cpu/kernels/ml/trees_kernel.py`.

    Attributes:
        nodes: int32 [nodes, 4] for float32 data, int64 [nodes, 3] for double.
        trees: int64 [trees, 4]: offset of the root, steps before arrival is checked, whether it is, target of its votes.
        columns: features that nodes compare, ascending.
        votes: "node", "dense" or "sparse".
        weights: votes [leaves, targets] (dense) or [votes] (sparse), float32 where that is exact; empty for "node".
        first: per leaf the place of its votes, and their end (sparse); `targets`: theirs.
        steps: nodes that a row passes at most.
    """

    nodes: np.ndarray
    trees: np.ndarray
    columns: np.ndarray
    votes: str
    weights: np.ndarray
    first: np.ndarray
    targets: np.ndarray
    steps: int


def keys(x: np.ndarray) -> np.ndarray:
    """`descent.keys` of an array, as signed integers."""
    given = Operands()
    (found,) = given.values(descent.keys(given.leaf(x)))
    return found.view(f"i{x.itemsize}")


def pack(forest: Forest, dtype: np.dtype, aggregate: str) -> Packed:
    """`forest` for data of `dtype` (float32 or float64).

    Raises:
        DefinitionError: nodes lead round in a circle.
    """
    nodes = intervals(forest, np.dtype(dtype))
    order, level, tree = _walk(nodes)
    _check_acyclic(nodes, order)
    return _Layout(forest, nodes, order, level, tree, np.dtype(dtype), aggregate).packed()


# --- comparisons as intervals --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Intervals:
    """Nodes that ask whether a key lies in [low, low + span), as unsigned integers of the keys' size that wrap around."""

    roots: np.ndarray
    leaf: np.ndarray
    feature: np.ndarray
    low: np.ndarray
    span: np.ndarray
    no: np.ndarray
    yes: np.ndarray


def intervals(forest: Forest, dtype: np.dtype) -> Intervals:
    """The nodes of `forest`, by their numbers, for data of `dtype` (float32 or float64); behind them those of sets."""
    leaf, mode, missing = forest.mode == LEAF, forest.mode.copy(), forest.missing.astype(np.bool_) & (forest.mode != LEAF)
    threshold, inexact = _rounded_down(forest.threshold, dtype)
    mode[(mode == LT) & inexact] = LEQ
    mode[(mode == GTE) & inexact] = GT
    never = (np.isnan(threshold) & ~leaf) | (inexact & ((mode == EQ) | (mode == NEQ)))
    key = keys(threshold).astype(np.int64)
    size = 8 * dtype.itemsize
    least, nan = -(1 << (size - 1)), (1 << (size - 1)) - 1
    unsigned = np.dtype(f"u{dtype.itemsize}")
    first, end = np.full(len(mode), least), key.copy()  # [first, end] of keys
    above = (mode == GTE) | (mode == GT)
    first[above] = key[above] + (mode[above] == GT)
    end[above] = nan - 1
    end[mode == LT] -= 1
    equal = (mode == EQ) | (mode == NEQ)
    first[equal] = key[equal]
    end[above & missing] = nan
    below = ((mode == LEQ) | (mode == LT)) & missing
    first[below] = nan  # from NaN on, around to the smallest key
    low = first.astype(np.uint64).astype(unsigned)
    span = (end.astype(np.uint64) - first.astype(np.uint64) + np.uint64(1)).astype(unsigned)
    span[never | leaf] = 0
    only_missing = never & missing & (mode != NEQ)
    low[only_missing], span[only_missing] = nan, 1
    other = mode == NEQ
    no, yes = np.where(other, forest.yes, forest.no), np.where(other, forest.no, forest.yes)
    nodes = Intervals(forest.roots, leaf, np.where(leaf, 0, forest.feature), low, span, no, yes)
    split = (mode == MEMBER) | ((mode == EQ) & missing & ~never)
    return _expanded(forest, nodes, np.flatnonzero(split), missing, dtype) if split.any() else nodes


def _rounded_down(threshold: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Thresholds as the largest numbers of `dtype` that are not above them, and which of them are not equal."""
    with np.errstate(over="ignore"):
        narrow = np.asarray(threshold).astype(dtype)
        wide = np.asarray(threshold, np.float64)
        high = narrow.astype(np.float64) > wide
        narrow[high] = np.nextafter(narrow[high], dtype.type(-np.inf))
    return narrow, (narrow.astype(np.float64) != wide) & ~np.isnan(wide)


def _expanded(forest: Forest, nodes: Intervals, split: np.ndarray, missing: np.ndarray, dtype: np.dtype) -> Intervals:
    """Sets of keys that are no interval become several nodes: a search tree over them, behind a test for NaN if it counts."""
    nan = int(np.iinfo(np.dtype(f"i{dtype.itemsize}")).max)
    mask, least = int(np.iinfo(nodes.low.dtype).max), nan + 1
    rows: dict[int, tuple[int, int, int, int]] = {}  # node -> low, span, no, yes
    extra: list[int] = []  # features of the nodes that are new
    count = len(nodes.leaf)

    def new(feature: int) -> int:
        extra.append(feature)
        return count + len(extra) - 1

    def search(at: int, members: list[int], feature: int, no: int, yes: int) -> None:
        if len(members) <= 1:
            rows[at] = (members[0] & mask, 1, no, yes) if members else (0, 0, no, yes)
            return
        half = len(members) // 2
        left, right = new(feature), new(feature)
        rows[at] = (least, (members[half] + least) & mask, right, left)  # keys below members[half]
        search(left, members[:half], feature, no, yes)
        search(right, members[half:], feature, no, yes)

    for node in split.tolist():
        feature, no, yes = int(nodes.feature[node]), int(nodes.no[node]), int(nodes.yes[node])
        members = _members(forest, node, dtype)
        at = node
        if missing[node]:
            at = new(feature)
            rows[node] = (nan, 1, at, yes)
        search(at, members, feature, no, yes)
    added = np.zeros(len(extra), np.int64)

    def longer(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array, added.astype(array.dtype)])

    grown = Intervals(
        nodes.roots, longer(nodes.leaf), np.concatenate([nodes.feature, np.array(extra, np.int64)]), longer(nodes.low),
        longer(nodes.span), longer(nodes.no), longer(nodes.yes),
    )  # fmt: skip
    places = np.array(list(rows), np.int64)
    for column, array in enumerate((grown.low, grown.span, grown.no, grown.yes)):
        array[places] = np.array([row[column] for row in rows.values()], array.dtype)
    return grown


def _members(forest: Forest, node: int, dtype: np.dtype) -> list[int]:
    """Keys of the numbers that a BRANCH_MEMBER or BRANCH_EQ node tests for, ascending."""
    if forest.mode[node] == EQ:
        values = np.asarray(forest.threshold[node : node + 1], np.float64)
    elif forest.members is None:
        return []
    else:
        size = len(forest.members.values)
        begin, end = np.searchsorted(forest.members.pairs, (node * size, (node + 1) * size))
        values = forest.members.values[forest.members.pairs[begin:end] - node * size]
    with np.errstate(over="ignore"):
        narrow = values.astype(dtype)
    found: list[int] = np.unique(keys(narrow[narrow.astype(np.float64) == values])).tolist()
    return found


# --- order ---------------------------------------------------------------------------------------------------------


def _walk(nodes: Intervals) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes that can be reached, level by level: their numbers, their shortest distances from a root, and their trees."""
    seen = np.zeros(len(nodes.leaf), np.bool_)
    front, trees = np.unique(nodes.roots, return_index=True)
    found: list[tuple[np.ndarray, np.ndarray]] = []
    while len(front):
        seen[front] = True
        found.append((front, trees))
        inner = ~nodes.leaf[front]
        parents, owners = front[inner], trees[inner]
        children = np.stack([nodes.no[parents], nodes.yes[parents]], 1).reshape(-1)
        owners = np.repeat(owners, 2)
        fresh = ~seen[children]
        front, trees = children[fresh], owners[fresh]
        unique, at = np.unique(front, return_index=True)
        if len(unique) < len(front):
            at.sort()
            front, trees = front[at], trees[at]
    level = np.repeat(np.arange(len(found)), [len(f) for f, _ in found])
    order = np.concatenate([f for f, _ in found]) if found else np.zeros(0, np.int64)
    return order, level, np.concatenate([t for _, t in found]) if found else order


def _check_acyclic(nodes: Intervals, reached: np.ndarray) -> None:
    """Nodes are taken away once nothing leads to them any more; in a circle something always does."""
    inner = reached[~nodes.leaf[reached]]
    edges = np.concatenate([nodes.no[inner], nodes.yes[inner]])
    arriving = np.bincount(edges, minlength=len(nodes.leaf))
    if arriving.max(initial=0) <= 1 and not arriving[nodes.roots].any():
        return
    left, front = len(reached), reached[arriving[reached] == 0]
    while len(front):
        left -= len(front)
        parents = front[~nodes.leaf[front]]
        children = np.concatenate([nodes.no[parents], nodes.yes[parents]])
        np.subtract.at(arriving, children, 1)
        children = np.unique(children)
        front = children[arriving[children] == 0]
    if left:
        raise k.DefinitionError("the nodes of a tree lead round in a circle; expected a tree")


class _Layout:
    """Roots first, then each tree's pairs of children, level by level."""

    def __init__(
        self, forest: Forest, nodes: Intervals, order: np.ndarray, level: np.ndarray, tree: np.ndarray, dtype: np.dtype,
        aggregate: str,
    ) -> None:  # fmt: skip
        self.forest, self.nodes, self.dtype, self.aggregate = forest, nodes, dtype, aggregate
        self.order, self.level, self.tree = order, level, tree
        self.is_leaf = nodes.leaf[order]
        self.leaves = order[self.is_leaf]  # in the order of their numbers
        self.columns = _distinct(nodes.feature[order[~self.is_leaf]])
        self.whole = len(_distinct(tree)) == len(forest.roots)  # every tree has nodes of its own

    def packed(self) -> Packed:
        forest = self.forest
        votes, weights, first, targets, shown, tree_targets = self._votes()
        placed = np.argsort(self.tree[~self.is_leaf], kind="stable")
        inner = self.order[~self.is_leaf][placed]
        roots = len(forest.roots)
        begin = roots + roots % 2
        pair = np.zeros(len(self.nodes.leaf), np.int64)
        pair[inner] = begin + 2 * np.arange(len(inner))
        content = np.full(begin + 2 * len(inner), forest.roots[0] if roots else 0, np.int64)
        content[:roots] = forest.roots
        content[begin::2], content[begin + 1 :: 2] = self.nodes.no[inner], self.nodes.yes[inner]
        least, most = self._depths()
        near = (most - least <= _NEAR) & (self.whole and not self._shared())
        node_bytes = NODE_BYTES[self.dtype.itemsize]
        trees = np.stack([np.arange(roots) * node_bytes, np.where(near, most, least), ~near, tree_targets], 1).astype(np.int64)
        return Packed(
            self._records(content, pair, shown), trees, self.columns, votes, weights, first, targets, int(most.sum())
        )  # fmt: skip

    def _depths(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each tree the depths of the least and the most distant leaf (where nodes are shared: by the shortest ways)."""
        roots = len(self.forest.roots)
        least, most = np.full(roots, len(self.order)), np.zeros(roots, np.int64)
        np.minimum.at(least, self.tree[self.is_leaf], self.level[self.is_leaf])
        np.maximum.at(most, self.tree[self.is_leaf], self.level[self.is_leaf])
        return np.minimum(least, most), most

    def _shared(self) -> bool:
        inner = self.order[~self.is_leaf]
        return bool(np.bincount(np.concatenate([self.nodes.no[inner], self.nodes.yes[inner]]), minlength=1).max() > 1)

    def _records(self, content: np.ndarray, pair: np.ndarray, shown: np.ndarray) -> np.ndarray:
        nodes, node_bytes = self.nodes, NODE_BYTES[self.dtype.itemsize]
        leaf = nodes.leaf[content]
        child = np.where(leaf, np.arange(len(content)), pair[content]) * node_bytes
        feature = np.searchsorted(self.columns, nodes.feature[content]) * (LANES * self.dtype.itemsize)
        feature[leaf] = 0
        if len(content) * node_bytes >= 1 << 32 or feature.max(initial=0) >= 1 << 32:
            raise k.DefinitionError(f"a forest of {len(content)} nodes over {len(self.columns)} features is too large")
        low = np.where(leaf, shown[content], nodes.low[content])
        if self.dtype.itemsize == 4:
            return np.stack([low, nodes.span[content], feature, child], 1).astype(np.uint32).view(np.int32)
        both = feature.astype(np.uint64) | child.astype(np.uint64) << np.uint64(32)
        return np.stack([low, nodes.span[content], both], 1).view(np.int64)

    # --- votes ---

    def _votes(self) -> tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """How votes are stored, weights, first, targets, what leaves (by node) have in `low`, and the trees' targets."""
        forest = self.forest
        counts = forest.count[self.leaves]
        none, empty = np.zeros(len(forest.roots), np.int64), np.zeros(0, np.int64)
        shown = np.zeros(len(self.nodes.leaf), self.nodes.low.dtype)
        votes = np.repeat(forest.first[self.leaves] - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
        weights, targets = forest.weight[votes], forest.target[votes]
        narrow = _exact_float32(weights)
        tree_targets = self._tree_targets(counts, targets)
        if tree_targets is not None and (narrow is not None or self.dtype.itemsize == 8):
            stored = weights if self.dtype.itemsize == 8 else narrow
            assert stored is not None
            shown[self.leaves] = stored.view(shown.dtype)
            return "node", np.zeros(0, np.float32), empty, empty, shown, tree_targets
        shown[self.leaves] = np.arange(len(self.leaves))
        stored = weights if narrow is None else narrow
        cell = np.repeat(np.arange(len(self.leaves)), counts) * forest.targets + targets
        cells = len(self.leaves) * forest.targets
        if cells <= _DENSE_WASTE * len(votes) + 64 and np.bincount(cell, minlength=1).max() <= 1:
            dense = np.full(cells, {"MIN": np.inf, "MAX": -np.inf}.get(self.aggregate, 0.0), stored.dtype)
            dense[cell] = stored
            return "dense", dense, empty, empty, shown, none
        return "sparse", stored, np.concatenate([[0], np.cumsum(counts)]), targets, shown, none

    def _tree_targets(self, counts: np.ndarray, targets: np.ndarray) -> np.ndarray | None:
        """The target that all leaves of a tree vote for, each once; None where that is not so."""
        if (counts != 1).any() or not self.whole:
            return None
        found = np.zeros(len(self.forest.roots), np.int64)
        found[self.tree[self.is_leaf]] = targets
        return found if (found[self.tree[self.is_leaf]] == targets).all() else None


def _distinct(values: np.ndarray) -> np.ndarray:
    """Ascending; NumPy's own way by hashes is slower."""
    ordered = np.sort(values)
    found: np.ndarray = ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]
    return found


def _exact_float32(values: np.ndarray) -> np.ndarray | None:
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    return narrow if np.array_equal(narrow.astype(np.float64), values, equal_nan=True) else None
