"""Integer and boolean tensors whose elements follow from where they stand: position ids, causal masks, masks of ones.

Exporters write masks as arithmetic on position ids (Range, CumSum, GatherND, comparisons). Here such a tensor is described as
a linear form of its own indices, offset + sum(coefficient[k] * index[k]), or as a comparison of one with 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intarsia.graph.broadcasting import broadcast_dim
from intarsia.graph.dims import Dim, Expr, Shape, dim_max, dim_min, floordiv, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.passes.rewriter import Rewriter

_CONSTANT_LIMIT = 1 << 16
_DEPTH_LIMIT = 64


@dataclass(frozen=True)
class Linear:
    """offset + sum(coefficients[k] * index[k]); booleans are 0 and 1."""

    coefficients: tuple[int, ...]
    offset: Dim

    @property
    def fill(self) -> int | None:
        """The value, where all elements are the same known one."""
        return self.offset if not any(self.coefficients) and isinstance(self.offset, int) else None


@dataclass(frozen=True)
class Compared:
    """True exactly where `form` <= 0."""

    form: Linear

    @property
    def is_causal(self) -> bool:
        """index[-1] - index[-2] <= 0."""
        c = self.form.coefficients
        return len(c) >= 2 and c[-2:] == (-1, 1) and not any(c[:-2]) and self.form.offset == 0


Positions = Linear | Compared

_SIMPLIFIED: dict[str, Callable[[Dim, Dim], Dim]] = {"max": dim_max, "broadcast": broadcast_dim, "floordiv": floordiv}


def nonempty(d: Dim) -> Dim:
    """`d` simplified under the assumption that every named size is at least 1.

    What is said of the elements of a tensor holds of an empty one anyway.
    """
    if not isinstance(d, Expr) or not any(atom.args for mono in d.terms for atom, _ in mono):
        return d
    total: Dim = 0
    for mono, coeff in d.terms.items():
        factors: list[Dim] = [coeff]
        for atom, power in mono:
            args = [nonempty(a) for a in atom.args]
            one: Dim = Expr({((atom, 1),): 1})
            if atom.name == "min" and len(args) == 2:
                one = _least(*args)
            elif atom.name in _SIMPLIFIED and len(args) == 2:
                one = _SIMPLIFIED[atom.name](*args)
            factors += [one] * power
        total = total + product(factors)
    return total


def _least(a: Dim, b: Dim) -> Dim:
    for small, large in ((a, b), (b, a)):
        difference = large - small
        terms = difference.terms if isinstance(difference, Expr) else {(): int(difference)}
        plain = all(
            c > 0 and all(not atom.args and "[" not in atom.name for atom, _ in mono) for mono, c in terms.items() if mono
        )
        if plain and sum(terms.values()) >= 0:
            return small
    return dim_min(a, b)


def _shape_of(rewriter: Rewriter, name: str) -> Shape | None:
    shape = rewriter.shape(name)
    return None if shape is None else tuple(nonempty(d) for d in shape)


def positions_of(rewriter: Rewriter, name: str, depth: int = 0) -> Positions | None:
    """What is known of the elements of `name` by their indices."""
    key = ("positions", name)
    if key not in rewriter.notes:
        rewriter.notes[key] = None  # while it is looked for
        if depth > _DEPTH_LIMIT:
            return None
        rewriter.notes[key] = _find(rewriter, name, depth)
    found: Positions | None = rewriter.notes[key]
    return found


def linear_of(rewriter: Rewriter, name: str, depth: int = 0) -> Linear | None:
    found = positions_of(rewriter, name, depth)
    return found if isinstance(found, Linear) else None


def _find(rewriter: Rewriter, name: str, depth: int) -> Positions | None:
    dtype, shape = rewriter.dtype(name), _shape_of(rewriter, name)
    if dtype is None or shape is None or not (dtype.is_integer or dtype is DType.BOOL):
        return None
    value = rewriter.values.get(name)
    if value is not None and value.size == 1 and name not in rewriter.fixed:
        element = value.reshape(-1)[0]
        if isinstance(element, (int, Expr, np.integer)):
            return Linear((0,) * len(shape), element if isinstance(element, Expr) else int(element))
        return None
    array = rewriter.array(name, _CONSTANT_LIMIT)
    if array is not None:
        return _of_array(array)
    node = rewriter.producer.get(name)
    rule = _RULES.get(node.op_type) if node is not None and not node.domain else None
    return rule(rewriter, node, shape, depth + 1) if rule is not None and node is not None else None


def _of_array(array: np.ndarray) -> Linear | None:
    if not array.size:
        return None
    numbers = array.astype(np.int64)
    origin = int(numbers[(0,) * array.ndim])
    coefficients = tuple(
        int(numbers[tuple(int(i == k) for i in range(array.ndim))]) - origin if array.shape[k] > 1 else 0
        for k in range(array.ndim)
    )
    grid = np.full((1,) * array.ndim, origin)
    for axis, c in enumerate(coefficients):
        along = [-1 if k == axis else 1 for k in range(array.ndim)]
        grid = grid + c * np.arange(array.shape[axis]).reshape(along)
    return Linear(coefficients, origin) if bool((np.broadcast_to(grid, array.shape) == numbers).all()) else None


def _spread(found: Positions, before: Shape | None, after: Shape) -> Positions | None:
    """The same elements broadcast to a shape."""
    form = found.form if isinstance(found, Compared) else found
    if before is None or len(before) > len(after):
        return None
    lead = len(after) - len(before)
    out = [0] * len(after)
    for k, (c, d) in enumerate(zip(form.coefficients, before, strict=True)):
        if c and d != after[lead + k]:
            return None
        out[lead + k] = c
    spread = Linear(tuple(out), form.offset)
    return Compared(spread) if isinstance(found, Compared) else spread


def _range(rewriter: Rewriter, node: Node, shape: Shape, depth: int) -> Positions | None:
    start, delta = linear_of(rewriter, node.inputs[0], depth), rewriter.scalar(node.inputs[2])
    return None if start is None or delta is None else Linear((int(delta),), start.offset)


def _view(rewriter: Rewriter, node: Node, shape: Shape, depth: int) -> Positions | None:
    found, before = positions_of(rewriter, node.inputs[0], depth), _shape_of(rewriter, node.inputs[0])
    if found is None or before is None or [d for d in before if d != 1] != [d for d in shape if d != 1]:
        return None
    form = found.form if isinstance(found, Compared) else found
    moved = iter([c for c, d in zip(form.coefficients, before, strict=True) if d != 1])
    out = Linear(tuple(0 if d == 1 else next(moved) for d in shape), form.offset)
    return Compared(out) if isinstance(found, Compared) else out


def _expand(rewriter: Rewriter, node: Node, shape: Shape, depth: int) -> Positions | None:
    found = positions_of(rewriter, node.inputs[0], depth)
    return None if found is None else _spread(found, _shape_of(rewriter, node.inputs[0]), shape)


def _pair(rewriter: Rewriter, node: Node, shape: Shape, depth: int) -> tuple[Linear, Linear] | None:
    operands: list[Linear] = []
    for name in node.inputs[:2]:
        found = linear_of(rewriter, name, depth)
        spread = None if found is None else _spread(found, _shape_of(rewriter, name), shape)
        if not isinstance(spread, Linear):
            return None
        operands.append(spread)
    return operands[0], operands[1]


def _combined(a: Linear, b: Linear, sign: int) -> Linear:
    return Linear(tuple(x + sign * y for x, y in zip(a.coefficients, b.coefficients, strict=True)), a.offset + sign * b.offset)


def _sum(sign: int) -> Callable[[Rewriter, Node, Shape, int], Positions | None]:
    def rule(rewriter: Rewriter, node: Node, shape: Shape, depth: int) -> Positions | None:
        pair = _pair(rewriter, node, shape, depth)
        return None if pair is None else _combined(*pair, sign)

    return rule


def _bounds(form: Linear, shape: Shape) -> tuple[int | None, int | None]:
    """The least and greatest value over all indices, where they do not depend on unknown sizes."""
    if not isinstance(form.offset, int):
        return None, None
    low: int | None = form.offset
    high: int | None = form.offset
    for c, d in zip(form.coefficients, shape, strict=True):
        reach = c * (d - 1) if isinstance(d, int) and d > 0 else None
        if c > 0:
            high = None if reach is None or high is None else high + reach
        elif c < 0:
            low = None if reach is None or low is None else low + reach
    return low, high


def _compare(swap: bool, strict: bool) -> Callable[[Rewriter, Node, Shape, int], Positions | None]:
    def rule(rewriter: Rewriter, node: Node, shape: Shape, depth: int) -> Positions | None:
        pair = _pair(rewriter, node, shape, depth)
        if pair is None:
            return None
        a, b = pair[::-1] if swap else pair
        form = _combined(a, b, -1)
        if strict:
            form = Linear(form.coefficients, form.offset + 1)
        low, high = _bounds(form, shape)
        zeros = (0,) * len(shape)
        if high is not None and high <= 0:
            return Linear(zeros, 1)
        if low is not None and low > 0:
            return Linear(zeros, 0)
        return Compared(form)

    return rule


def _equal(rewriter: Rewriter, node: Node, shape: Shape, depth: int) -> Positions | None:
    pair = _pair(rewriter, node, shape, depth)
    if pair is None:
        return None
    form = _combined(*pair, -1)
    return Linear((0,) * len(shape), int(form.fill == 0)) if form.fill is not None else None


def _not(rewriter: Rewriter, node: Node, shape: Shape, depth: int) -> Positions | None:
    found = positions_of(rewriter, node.inputs[0], depth)
    if isinstance(found, Compared):  # not (f <= 0) = -f + 1 <= 0
        return Compared(Linear(tuple(-c for c in found.form.coefficients), found.form.offset * -1 + 1))
    return Linear(found.coefficients, 1 - found.offset) if found is not None and found.fill in (0, 1) else None


def _cast(rewriter: Rewriter, node: Node, shape: Shape, depth: int) -> Positions | None:
    found = positions_of(rewriter, node.inputs[0], depth)
    if (
        rewriter.dtype(node.outputs[0]) is DType.BOOL
        and isinstance(found, Linear)
        and rewriter.dtype(node.inputs[0]) is not DType.BOOL
    ):
        return None if found.fill is None else Linear(found.coefficients, int(found.fill != 0))
    if isinstance(found, Compared) and rewriter.dtype(node.outputs[0]) is not DType.BOOL:
        return None
    return found


def _logical(neutral: int) -> Callable[[Rewriter, Node, Shape, int], Positions | None]:
    """And (neutral 1), Or (neutral 0)."""

    def rule(rewriter: Rewriter, node: Node, shape: Shape, depth: int) -> Positions | None:
        found = [positions_of(rewriter, n, depth) for n in node.inputs]
        for i, one in enumerate(found):
            if not isinstance(one, Linear) or one.fill is None:
                continue
            if one.fill != neutral:
                return Linear((0,) * len(shape), one.fill)
            other = found[1 - i]
            return None if other is None else _spread(other, _shape_of(rewriter, node.inputs[1 - i]), shape)
        return found[0] if found[0] is not None and found[0] == found[1] else None

    return rule


def _concat(rewriter: Rewriter, node: Node, shape: Shape, depth: int) -> Positions | None:
    axis = int(node.attributes["axis"]) % len(shape)
    out: Linear | None = None
    length: Dim = 0
    for name in node.inputs:
        piece, size = linear_of(rewriter, name, depth), _shape_of(rewriter, name)
        if piece is None or size is None:
            return None
        if out is None:
            out, length = piece, size[axis]
            continue
        step = out.coefficients[axis] if length != 1 else piece.coefficients[axis]
        if length == 1 and size[axis] == 1:
            step = piece.offset - out.offset if isinstance(piece.offset, int) and isinstance(out.offset, int) else 0
        along = tuple(step if k == axis else c for k, c in enumerate(out.coefficients))
        if any(a != b for k, (a, b) in enumerate(zip(along, piece.coefficients, strict=True)) if k != axis or size[axis] != 1):
            return None
        if out.offset + length * step != piece.offset:
            return None
        out, length = Linear(along, out.offset), length + size[axis]
    return out


def _slice(rewriter: Rewriter, node: Node, shape: Shape, depth: int) -> Positions | None:
    found, before = linear_of(rewriter, node.inputs[0], depth), _shape_of(rewriter, node.inputs[0])
    starts, axes = rewriter.values.get(node.inputs[1]) if len(node.inputs) > 1 else None, None
    if found is None or before is None or starts is None:
        return None
    axes = rewriter.ints(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] else list(range(starts.size))
    steps = rewriter.ints(node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] else [1] * starts.size
    if axes is None or steps is None:
        return None
    coefficients, offset = list(found.coefficients), found.offset
    for axis, start, step in zip(axes, starts.reshape(-1), steps, strict=True):
        if step != 1 or not isinstance(start, (int, np.integer)) or start < 0 and found.coefficients[axis]:
            return None
        offset = offset + found.coefficients[axis] * int(start)
    return Linear(tuple(coefficients), offset)


def _cumsum(rewriter: Rewriter, node: Node, shape: Shape, depth: int) -> Positions | None:
    found = linear_of(rewriter, node.inputs[0], depth)
    return found if found is not None and found.fill == 0 else None


def _gather_nd(rewriter: Rewriter, node: Node, shape: Shape, depth: int) -> Positions | None:
    """data[i_0, ..., i_k] where both data and the indices are linear forms."""
    data = linear_of(rewriter, node.inputs[0], depth)
    if data is None:
        return None
    if data.fill is not None:
        return Linear((0,) * len(shape), data.fill)
    forms = grid_of(rewriter, node, depth)
    if forms is None or len(forms) != len(data.coefficients):
        return None
    out = Linear((0,) * len(shape), data.offset)
    for c, form in zip(data.coefficients, forms, strict=True):
        if c == 0:
            continue
        if len(form.coefficients) != len(shape):
            return None
        low, _ = _bounds(form, shape)
        if low is None or low < 0:
            return None
        out = _combined(out, Linear(tuple(c * x for x in form.coefficients), form.offset * c), 1)
    return out


def grid_of(rewriter: Rewriter, node: Node, depth: int = 0) -> list[Linear] | None:
    """The index of each data axis of a GatherND or ScatterND, without the trailing axis of the index tensor."""
    concat = rewriter.producer_of(node.inputs[1], "Concat")
    rank, array = rewriter.rank(node.inputs[1]), rewriter.array(node.inputs[1])
    if node.attributes.get("batch_dims", 0):
        return None
    if array is not None and array.ndim:
        found = [_of_array(array[..., i]) for i in range(array.shape[-1])]
        return [form for form in found if form is not None] if None not in found else None
    if concat is None or rank is None or concat.attributes["axis"] not in (-1, rank - 1):
        return None
    forms = []
    for name in concat.inputs:
        shape, form = _shape_of(rewriter, name), linear_of(rewriter, name, depth)
        if shape is None or form is None or shape[-1] != 1:
            return None
        forms.append(Linear(form.coefficients[:-1], form.offset))
    return forms


def _constant_of_shape(rewriter: Rewriter, node: Node, shape: Shape, depth: int) -> Positions | None:
    value = node.attributes.get("value")
    return None if value is None else Linear((0,) * len(shape), int(np.asarray(value).reshape(-1)[0]))


def _where(rewriter: Rewriter, node: Node, shape: Shape, depth: int) -> Positions | None:
    condition = linear_of(rewriter, node.inputs[0], depth)
    if condition is None or condition.fill is None:
        return None
    name = node.inputs[1 if condition.fill else 2]
    found = positions_of(rewriter, name, depth)
    return None if found is None else _spread(found, _shape_of(rewriter, name), shape)


def _trilu(rewriter: Rewriter, node: Node, shape: Shape, depth: int) -> Positions | None:
    found = linear_of(rewriter, node.inputs[0], depth)
    k = rewriter.scalar(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else 0.0
    if found is None or found.fill != 1 or k is None or rewriter.dtype(node.outputs[0]) is not DType.BOOL:
        return None
    c = (0,) * (len(shape) - 2)  # lower: column - row - k <= 0; upper: row - column + k <= 0
    return Compared(Linear((*c, 1, -1), int(k)) if node.attributes.get("upper", 1) else Linear((*c, -1, 1), -int(k)))


def _same(rewriter: Rewriter, node: Node, shape: Shape, depth: int) -> Positions | None:
    return positions_of(rewriter, node.inputs[0], depth)


_RULES: dict[str, Callable[[Rewriter, Node, Shape, int], Positions | None]] = {
    "Range": _range, "Reshape": _view, "Unsqueeze": _view, "Squeeze": _view, "Expand": _expand, "Add": _sum(1), "Sub": _sum(-1),
    "LessOrEqual": _compare(False, False), "Less": _compare(False, True), "GreaterOrEqual": _compare(True, False),
    "Greater": _compare(True, True), "Equal": _equal, "Not": _not, "Cast": _cast, "And": _logical(1), "Or": _logical(0),
    "Concat": _concat, "Slice": _slice, "CumSum": _cumsum, "GatherND": _gather_nd, "ConstantOfShape": _constant_of_shape,
    "Where": _where, "Trilu": _trilu, "Identity": _same,
}  # fmt: skip
