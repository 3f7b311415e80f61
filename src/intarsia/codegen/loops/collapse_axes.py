"""Merge neighbouring axes that every tensor of a kernel treats alike, so that loops are few and inner loops long.

Axes are given labels that operators carry along (an element-wise operator identifies its operands' axes, a reduction
drops some). Axis `a` merges with the next one `b` when in every tensor each `a` is directly followed by `b` and each `b`
directly preceded by `a`, and no primitive addresses them one by one. Where inputs alone are put together, cut or padded
along an axis, the axes behind it are elements of that one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from intarsia.graph.dims import Dim, product
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives.lang import Tensor, walk

_PER_AXIS = frozenset("windows index row scan dot scatter argreduce iota sort argsort".split())


def collapse(roots: Sequence[Tensor]) -> list[Tensor]:
    """The same computation on tensors with merged axes; results differ from `roots` by a reshape only."""
    labels = _Labels()
    order = walk(roots)
    for t in order:
        labels.visit(t)
    groups = labels.groups(order)
    rebuilt: dict[int, Tensor] = {}
    for t in order:
        rebuilt[id(t)] = _rebuild(t, [rebuilt[id(a)] for a in t.args], groups)
    return [_with_inner_axes(rebuilt[id(r)]) for r in roots]


@dataclass
class _Labels:
    """Label of every axis of every tensor; None for an axis of size 1."""

    of: dict[int, list[int | None]] = field(default_factory=dict)
    parent: list[int] = field(default_factory=list)
    fixed: set[int] = field(default_factory=set)  # labels that must stay axes of their own

    def fresh(self, fixed: bool = False) -> int:
        label = len(self.parent)
        self.parent.append(label)
        if fixed:
            self.fixed.add(label)
        return label

    def find(self, label: int) -> int:
        while self.parent[label] != label:
            self.parent[label] = label = self.parent[self.parent[label]]
        return label

    def union(self, a: int | None, b: int | None) -> None:
        if a is None or b is None:
            for label in (a, b):  # 1 against a size that may turn out to be 1: keep separate
                if label is not None:
                    self.fix([label])
            return
        a, b = self.find(a), self.find(b)
        if a != b:
            self.parent[b] = a
            if b in self.fixed:
                self.fixed.add(a)

    def fix(self, labels: Sequence[int | None]) -> None:
        self.fixed.update(self.find(label) for label in labels if label is not None)

    def visit(self, t: Tensor) -> None:
        args = [self.of[id(a)] for a in t.args]
        rule: Callable[[Tensor, list[list[int | None]]], list[int | None]] | None = getattr(self, "_" + t.prim, None)
        if rule is not None:
            self.of[id(t)] = rule(t, args)
        elif t.prim in _PER_AXIS:
            for a in args:
                self.fix(a)
            self.of[id(t)] = [None if d == 1 else self.fresh(fixed=True) for d in t.shape]
        elif not t.args:
            self.of[id(t)] = [None if d == 1 else self.fresh() for d in t.shape]
        else:
            first = args[0]
            for other in args[1:]:
                for mine, its in zip(first, other, strict=True):
                    if mine is not None or its is not None:
                        self.union(mine, its)
            self.of[id(t)] = list(first)

    def _table(self, t: Tensor, args: list[list[int | None]]) -> list[int | None]:
        return [None if d == 1 else self.fresh(fixed=True) for d in t.shape]

    def _broadcast(self, t: Tensor, args: list[list[int | None]]) -> list[int | None]:
        source, shape = args[0], t.args[0].shape
        out: list[int | None] = []
        shift = len(t.shape) - len(shape)
        for i, d in enumerate(t.shape):
            if i < shift or shape[i - shift] == 1:
                out.append(None if d == 1 else self.fresh())
            elif shape[i - shift] == d:
                out.append(source[i - shift])
            else:  # equal or 1: known only at run time
                self.fix([source[i - shift]])
                out.append(self.fresh(fixed=True))
        return out

    def _reshape(self, t: Tensor, args: list[list[int | None]]) -> list[int | None]:
        longer = [(d, x) for d, x in zip(t.args[0].shape, args[0], strict=True) if d != 1]
        if [d for d, _ in longer] == [d for d in t.shape if d != 1]:
            carried = iter(x for _, x in longer)
            return [None if d == 1 else next(carried) for d in t.shape]
        self.fix(args[0])
        return [None if d == 1 else self.fresh(fixed=True) for d in t.shape]

    def _transpose(self, t: Tensor, args: list[list[int | None]]) -> list[int | None]:
        return [args[0][p] for p in t.attrs]

    def _reduce(self, t: Tensor, args: list[list[int | None]]) -> list[int | None]:
        return [x for i, x in enumerate(args[0]) if i not in t.attrs[1]]

    def _slice(self, t: Tensor, args: list[list[int | None]]) -> list[int | None]:
        changed = _changed(t)
        return self._unchanged(t, args[0], [i not in changed for i in range(t.rank)])

    _pad = _slice

    def _concat(self, t: Tensor, args: list[list[int | None]]) -> list[int | None]:
        axis, first = t.attrs[0], args[0]
        for other in args:
            self.fix([other[axis]])
            for i, (mine, its) in enumerate(zip(first, other, strict=True)):
                if i != axis and (mine is not None or its is not None):
                    self.union(mine, its)
        return self._unchanged(t, first, [i != axis for i in range(t.rank)])

    def _take(self, t: Tensor, args: list[list[int | None]]) -> list[int | None]:
        (axis,), (x, indices) = t.attrs, args
        self.fix([x[axis]])
        return [*x[:axis], *indices, *x[axis + 1 :]]

    def _unchanged(self, t: Tensor, source: list[int | None], whole: Sequence[bool]) -> list[int | None]:
        """Labels of a result that has the source's axes, but new ones where they are not `whole`."""
        self.fix([x for x, same in zip(source, whole, strict=True) if not same])
        return [
            x if same else None if d == 1 else self.fresh(fixed=True) for x, same, d in zip(source, whole, t.shape, strict=True)
        ]

    def groups(self, order: Sequence[Tensor]) -> Callable[[Tensor], list[list[int]]]:
        """For each tensor, its axes in groups to be merged."""
        after: dict[int, int | None] = {}
        before: dict[int, int | None] = {}
        for t in order:
            row = [None if x is None else self.find(x) for x in self.of[id(t)]]
            for i, x in enumerate(row):
                if x is None:
                    continue
                following = row[i + 1] if i + 1 < len(row) else None
                preceding = row[i - 1] if i else None
                after[x] = following if after.get(x, following) == following else None
                before[x] = preceding if before.get(x, preceding) == preceding else None
        fixed = {self.find(x) for x in self.fixed}
        joined = {a for a, b in after.items() if b is not None and before.get(b) == a and a != b and not {a, b} & fixed}

        def of(t: Tensor) -> list[list[int]]:
            row = [None if x is None else self.find(x) for x in self.of[id(t)]]
            out: list[list[int]] = []
            for i, x in enumerate(row):
                ahead = row[i - 1] if i else None
                if ahead is not None and ahead in joined and after.get(ahead) == x:
                    out[-1].append(i)
                else:
                    out.append([i])
            return out

        return of


def _rebuild(t: Tensor, args: list[Tensor], groups: Callable[[Tensor], list[list[int]]]) -> Tensor:
    merged = groups(t)
    shape = tuple(product(t.shape[i] for i in g) for g in merged)
    attrs = t.attrs
    if t.prim == "broadcast":
        return Tensor("expand", (args[0],), _expand_map(t, groups(t.args[0]), merged), t.dtype, shape)
    if t.prim == "transpose":
        position = {g[0]: i for i, g in enumerate(groups(t.args[0]))}
        attrs = tuple(position[t.attrs[g[0]]] for g in merged)
    elif t.prim == "reduce":
        attrs = (t.attrs[0], tuple(i for i, g in enumerate(groups(t.args[0])) if g[0] in t.attrs[1]))
    elif t.prim in ("slice", "pad"):
        attrs = tuple(tuple(row[g[0]] for g in merged) for row in t.attrs)
    elif t.prim in ("concat", "take"):
        of = merged if t.prim == "concat" else groups(t.args[0])
        attrs = (next(i for i, g in enumerate(of) if t.attrs[0] in g),)
    elif t.prim in _PER_AXIS or t.prim in ("input", "scalar", "size", "table"):
        pass  # their axes are single, so that attributes stay; a merged input is the same dense buffer
    return Tensor(t.prim, tuple(args), attrs, t.dtype, shape)


def _changed(t: Tensor) -> list[int]:
    """The axes that a slice or a pad does not leave as they are."""
    rows = zip(t.shape, t.args[0].shape, *t.attrs, strict=True)
    return [i for i, (d, e, start, step) in enumerate(rows) if d != e or start != 0 or step != (t.prim == "slice")]


def _with_inner_axes(root: Tensor) -> Tensor:
    """A root of inputs alone, whose last axis that is cut, padded or put together takes in those behind it."""
    parts = [a for a in root.args if a.rank]
    if root.prim not in ("slice", "pad", "concat") or any(a.prim != "input" for a in parts):
        return root
    axis = root.attrs[0] if root.prim == "concat" else max(_changed(root), default=root.rank)
    inner = product(root.shape[axis + 1 :])
    if axis + 1 >= root.rank or (root.prim == "slice" and root.attrs[1][axis] != 1):
        return root

    def shape(t: Tensor) -> tuple[Dim, ...]:
        return (*t.shape[:axis], t.shape[axis] * inner)

    attrs = root.attrs
    if root.prim == "slice":
        attrs = ((*attrs[0][:axis], attrs[0][axis] * inner), attrs[1][: axis + 1])
    elif root.prim == "pad":
        attrs = tuple((*row[:axis], row[axis] * inner) for row in attrs)
    args = tuple(Tensor(a.prim, (), a.attrs, a.dtype, shape(a)) if a.rank else a for a in root.args)
    return Tensor(root.prim, args, attrs, root.dtype, shape(root))


def _expand_map(t: Tensor, source: list[list[int]], target: list[list[int]]) -> tuple[int, ...]:
    """For each axis of the source the target's axis that it follows, or -1 for an axis of size 1."""
    shift = len(t.shape) - len(t.args[0].shape)
    position = {i: p for p, g in enumerate(target) for i in g}
    out: list[int] = []
    for group in source:
        size: Dim = t.args[0].shape[group[0]]
        out.append(-1 if size == 1 and len(group) == 1 else position[group[0] + shift])
    return tuple(out)
