"""Which products a vendor's library computes, and how much of what comes behind them it computes along.

`Cut` calls this when it is about to print a product's kernel. A library is worth its call where multiplications bound the work;
there, operands that no strides lead to are stored first, and what of the expression behind the product the library cannot
do is a kernel of its own. Everything else stays one kernel of ours, gathers and element-wise primitives included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from intarsia.codegen.clike.vendor_libraries.calls import Call, Choice, Convolution, MatrixProduct, called
from intarsia.codegen.clike.vendor_libraries.strided_views import View, unwidened, view_of
from intarsia.codegen.loops.element_values import stripped
from intarsia.graph.dims import numbers_of
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.nn.activation import gelu_of, gelu_tanh_of
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor, walk
from intarsia.primitives.substitute import replaced

if TYPE_CHECKING:
    from intarsia.codegen.clike.split_into_kernels import Cut

LEAST_FLOP = 1 << 23
"""Below, a call's start takes longer than its work."""
LEAST_INTENSITY = 8.0
"""Operations per byte of operands and result: below, memory bounds the work, and a kernel that stores less wins."""
_FLOATS = (DType.FLOAT, DType.DOUBLE, DType.FLOAT16, DType.BFLOAT16)
_IMMA = 4  # what sizes and leading dimensions of int8 matrices are multiples of

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: k.maximum(x, 0), "gelu_tanh": gelu_tanh_of, "gelu": gelu_of, "tanh": k.tanh,
}  # fmt: skip
_OF_PRODUCTS = ("relu", "gelu_tanh")


def launch(cut: Cut, root: Tensor, dot: Tensor, name: str, turned: bool) -> Tensor | None:
    """Store `root` (settled, with one open product) as value `name` through a library.

    Returns:
        what reads it: the memory, or with `turned` perhaps a view of it. None where a kernel of ours is to store it.
    """
    assert cut.libraries is not None
    candidate = _Candidate(cut, root, dot)
    library = (Convolution if candidate.window is not None else MatrixProduct).library
    towers = candidate.towers()
    node = next((cut.owners[id(t.top)] for t in towers if id(t.top) in cut.owners), cut.node)
    if why := candidate.not_worth_it():  # before the library is loaded
        cut.choice = Choice(library, "library-cost", why, node=node)
        return None
    if (gone := cut.libraries.missing(library)) is not None:
        cut.choice = replace(gone, node=node)
        return None
    why = "no strides lead to its operands" if candidate.window is None else "its windows or types are none of a convolution's"
    code = "library-shape"
    for tower in reversed(towers):
        call = candidate.call(tower)
        if call is None:
            continue
        if declined := cut.libraries.declined(call):
            why, code = declined, "library-declined"
            continue
        return candidate.store(call, tower, name, node, turned)
    cut.choice = Choice(library, code, why, node=node)
    return None


def computes(cut: Cut, dot: Tensor) -> bool:
    """Whether a library takes a product by itself."""
    assert cut.libraries is not None
    candidate = _Candidate(cut, dot, dot)
    if candidate.not_worth_it():
        return False
    call = candidate.call(_Tower(dot))
    return call is not None and cut.libraries.missing(call.library) is None and not cut.libraries.declined(call)


@dataclass(frozen=True)
class _Tower:
    """A product with some of what stands behind it: `top` is what the call's result is.

    Attributes:
        alpha: factor of the product.
        bias, addend: what is added, as it stands in the expression.
    """

    top: Tensor
    alpha: float = 1.0
    bias: Tensor | None = None
    addend: Tensor | None = None
    activation: str = ""
    ceiling: float | None = None


@dataclass(frozen=True)
class Window:
    """What of a product makes it a convolution: x [n, c, *spatial], w [m, c/group, *kernel], the result's shape `image`,
    and where windows lie."""

    x: Tensor
    w: Tensor
    image: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]


class _Candidate:
    """A product, and the call that it may become."""

    def __init__(self, cut: Cut, root: Tensor, dot: Tensor) -> None:
        self.cut, self.root, self.dot = cut, root, dot
        self.window = window_of(dot, root)
        self._users: dict[int, list[Tensor]] = {}
        for t in walk([root]):
            for a in {id(a): a for a in t.args}.values():
                self._users.setdefault(id(a), []).append(t)
        self._operands: dict[str, Tensor] = {}

    # --- what it costs ---

    def not_worth_it(self) -> str:
        """Why kernels of ours serve as well or better; "" where they do not."""
        left, right = (unwidened(a) for a in self.dot.args)
        flop = 2 * math.prod(sizes_of(self.dot)) * sizes_of(left)[-1]
        read = (self.window.x, self.window.w) if self.window is not None else (left, right)
        nbytes = sum(math.prod(sizes_of(t)) * t.dtype.numpy.itemsize for t in (*read, self.dot))
        rows = sizes_of(self.dot)[-2]
        if self.window is not None and rows <= 2:
            return f"groups of {rows} rows leave a matrix unit empty"
        if flop < LEAST_FLOP:
            return f"{flop:,} operations are less than a call's start is worth ({LEAST_FLOP:,})"
        if flop / nbytes < LEAST_INTENSITY:
            return f"memory bounds it: {flop / nbytes:.1f} operations a byte, fewer than {LEAST_INTENSITY:.0f}"
        return ""

    # --- what comes behind ---

    def towers(self) -> list[_Tower]:
        """The product alone, then with more and more of what is computed from it."""
        found = [_Tower(self.dot)]
        while True:
            grown = next(self._grown(found[-1]), None)
            if grown is None:
                return found
            found.append(grown)

    def _grown(self, tower: _Tower) -> Iterator[_Tower]:
        top = tower.top
        users = self._users.get(id(top), [])
        if len(users) == 1 and not tower.activation:
            (user,) = users
            yield from self._step(tower, user)
        elif len(users) == 1:
            (user,) = users
            if user.prim == "cast" and user.dtype in _FLOATS:
                yield replace(tower, top=user)
            if tower.activation == "relu" and tower.ceiling is None and user.prim == "min":
                if (limit := number_of(next((a for a in user.args if a is not top), top))) is not None:
                    yield replace(tower, top=user, ceiling=limit)
        if not tower.activation and top.dtype in _FLOATS:
            for activation, function in ACTIVATIONS.items():
                pattern = function(k.input(0, top.dtype, top.shape))
                above = next((t for t in walk([self.root]) if t.prim == pattern.prim and _same(pattern, t, top)), None)
                if above is not None and self._is_only_way(top, above):
                    yield replace(tower, top=above, activation=activation)

    def _step(self, tower: _Tower, user: Tensor) -> Iterator[_Tower]:
        top = tower.top
        if user.prim == "reshape":
            if user.shape == self.window.image if self.window is not None else user.shape[-1] == self.dot.shape[-1]:
                yield replace(tower, top=user)
            return
        if self.window is not None and top.shape != self.window.image:
            return
        if user.prim == "cast" and {user.dtype, top.dtype} <= set(_FLOATS):
            yield replace(tower, top=user)
            return
        other = next((a for a in user.args if a is not top), None)
        if other is None or user.shape != top.shape:
            return
        number = number_of(other)
        plain = tower.bias is None and tower.addend is None
        if plain and number is not None and (user.prim == "mul" or user.prim == "div" and user.args[0] is top):
            yield replace(tower, top=user, alpha=tower.alpha * (number if user.prim == "mul" else 1.0 / number))
        elif user.prim == "add" and number is None:
            if tower.bias is None and self._is_bias(other):
                yield replace(tower, top=user, bias=other)
            elif tower.addend is None:
                yield replace(tower, top=user, addend=other)

    def _is_only_way(self, low: Tensor, high: Tensor) -> bool:
        """Whether `root` depends on `low` through `high` only."""
        (without,) = replaced([self.root], {id(high): Tensor("input", (), ("",), high.dtype, high.shape)})
        return all(t is not low for t in walk([without]))

    def _is_bias(self, t: Tensor) -> bool:
        """Whether every row (of a convolution: every place) has the same added to it."""
        axis = 1 if self.window is not None else t.rank - 1
        found = view_of(t)
        if found is None:
            return False
        strides = found[1].strides
        return (
            t.shape[axis] == (self.dot.shape[-1] if self.window is None else self.window.image[1])
            and all(s == 0 or n == 1 for i, (s, n) in enumerate(zip(strides, t.shape, strict=True)) if i != axis)
            and (strides[axis] == 1 or t.shape[axis] == 1)
        )

    # --- the call ---

    def call(self, tower: _Tower) -> Call | None:
        """As data; None where the library's interface has no words for it. `_operands` has then what the views are of."""
        self._operands = {}
        dtype = tower.top.dtype
        a, b = (unwidened(x).dtype for x in self.dot.args)
        sums = DType.INT32 if a is DType.INT8 else DType.FLOAT if a in _FLOATS[2:] else a
        if a is not b or a not in (*_FLOATS, DType.INT8) or self.dot.dtype not in (a, sums) or dtype not in (a, sums):
            return None
        if self.window is not None:
            return self._convolution(self.window, tower) if a is not DType.DOUBLE and a is not DType.INT8 else None
        return self._product(tower)

    def _view(self, name: str, t: Tensor, needs: Callable[[View], bool] | None = None) -> View:
        """The operand as it lies in memory, or as it will once it has been stored."""
        found = view_of(t)
        if found is None or needs is not None and not needs(found[1]):
            t = unwidened(t)
            self._operands[name] = t
            return View.packed(t.dtype, sizes_of(t))
        self._operands[name] = found[0]
        return found[1]

    def _product(self, tower: _Tower) -> MatrixProduct | None:
        shape = sizes_of(self.dot)
        batch, (m, n), depth = shape[:-2], shape[-2:], sizes_of(self.dot.args[0])[-1]
        left, right = self.dot.args
        first, second = (self._view(name, t, _is_matrix) for name, t in (("left", left), ("right", right)))
        x = _spread(first, batch)
        y = _spread(second, batch)
        if all(s == 0 or d == 1 for s, d in zip(y.strides[:-2], batch, strict=True)):  # rows of one matrix
            rows = x.reshaped((1, math.prod(batch) * m, depth))
            if rows is not None and _is_matrix(rows):
                x, y, batch, m = (
                    rows,
                    replace(y, shape=(1, *y.shape[-2:]), strides=(0, *y.strides[-2:])),
                    (1,),
                    math.prod(batch) * m,
                )
        whole = math.prod(batch)
        views = [v.reshaped((whole, *v.shape[-2:])) for v in (x, y)]
        if views[0] is None or views[1] is None:
            return None
        result = View.packed(tower.top.dtype, (whole, m, n))
        extra = self._extra(tower, result.shape, (n,))
        if extra is None or tower.activation and tower.activation not in _OF_PRODUCTS or tower.ceiling is not None:
            return None
        made = MatrixProduct(views[0], views[1], result, extra[1], extra[0], tower.alpha, tower.activation)
        return made if made.left.dtype is not DType.INT8 else self._of_bytes(made)

    def _of_bytes(self, call: MatrixProduct) -> MatrixProduct | None:
        """int8 as its matrix units take it: sums of int32, terms as neighbours in both operands, sizes in fours."""
        n = call.result.shape[2]
        if call.result.dtype is not DType.INT32 or call.alpha != 1.0 or call.bias or call.addend or call.activation:
            return None
        if n % _IMMA or call.left.shape[2] % _IMMA:
            return None
        for name, axis in (("left", 2), ("right", 1)):
            view: View = getattr(call, name)
            if view.strides[axis] == 1 and all(s % _IMMA == 0 for s in (view.offset, *view.strides) if s != 1):
                continue
            t = unwidened(self.dot.args[name == "right"])
            if math.prod(view.shape) != math.prod(sizes_of(t)):
                return None
            swapped = k.transpose(t, (*range(t.rank - 2), t.rank - 1, t.rank - 2)) if name == "right" else t
            self._operands[name] = swapped
            packed = View.packed(DType.INT8, view.shape, axis)
            call = replace(call, left=packed) if name == "left" else replace(call, right=packed)
        return call

    @property
    def last(self) -> bool:
        """Whether channels are to be neighbours in memory."""
        return self.cut.libraries is not None and self.cut.libraries.channels_last

    def _image(self, name: str, t: Tensor) -> View:
        """An operand of a convolution as it lies, or as it will once it has been stored."""
        axis = 1 if self.last else -1
        found = view_of(t)
        if found is not None and _is_image(found[1]):
            if not self.last or _lies_as(found[1], View.packed(found[1].dtype, found[1].shape, axis)):
                self._operands[name] = found[0]
                return found[1]
        t = unwidened(t)
        self._operands[name] = k.transpose(t, (0, *range(2, t.rank), 1)) if self.last else t
        return View.packed(t.dtype, sizes_of(t), axis)

    def _convolution(self, window: Window, tower: _Tower) -> Convolution | None:
        if tower.alpha != 1.0:
            return None
        x, w = self._image("x", window.x), self._image("w", window.w)
        shape, axis = window.image, 1 if self.last else -1
        extra = self._extra(tower, shape, (1, shape[1], *(1,) * len(window.low)), axis)
        if extra is None:
            return None
        return Convolution(
            x, w, View.packed(tower.top.dtype, shape, axis), window.low, window.high, window.strides, window.dilations, *extra,
            tower.activation, tower.ceiling,
        )  # fmt: skip

    def _extra(
        self, tower: _Tower, shape: Sequence[int], bias: Sequence[int], axis: int = -1
    ) -> tuple[View | None, View | None] | None:
        """Views of bias and addend, `axis` last in memory; None where a type or memory does not fit."""
        found: list[View | None] = [None, None]
        for i, (name, t) in enumerate((("bias", tower.bias), ("addend", tower.addend))):
            if t is None:
                continue
            source = _stripped_of_casts(t)
            if source.dtype is not tower.top.dtype:
                return None
            if name == "bias":
                view = view_of(source)
                if view is None:
                    return None
                self._operands[name] = view[0]
                found[i] = View(view[1].dtype, tuple(bias), View.packed(view[1].dtype, bias, axis).strides, view[1].offset)
            else:
                if source.shape != t.shape:
                    return None
                there = view_of(source)
                moved = there[1].reshaped(shape) if there is not None else None
                packed = View.packed(source.dtype, shape, axis)
                if there is None or moved is None or not _lies_as(moved, packed):
                    return None
                self._operands[name] = there[0]
                found[i] = replace(packed, offset=moved.offset)
        return found[0], found[1]

    # --- storing ---

    def store(self, call: Call, tower: _Tower, name: str, node: str, turned: bool) -> Tensor:
        """The call as a job, operands that are computed before it, and what is left of the expression behind it."""
        cut, top = self.cut, tower.top
        leaves = {operand: stripped(cut.store(cut.settle(t))).attrs[0] for operand, t in self._operands.items()}
        last = isinstance(call, Convolution) and self.last
        whole = _only_reshaped(self.root, top) and (turned or not last)
        value = name if whole else f"%{len(cut.stored)}"
        image = call.result.shape
        memory = (image[0], *image[2:], image[1]) if last else sizes_of(top)
        if last or not whole:
            cut.stored[value] = (top.dtype, memory)
        before, cut.node = cut.node, node
        cut.choice = Choice(call.library, "library", f"{call.flop:,} operations, bound by multiplications")
        cut._add(called(call, leaves), (value,), call.kind)
        cut.node = before
        leaf = Tensor("input", (), (value,), top.dtype, memory)
        if last:
            leaf = k.reshape(k.transpose(leaf, (0, len(memory) - 1, *range(1, len(memory) - 1))), top.shape)
        if whole:
            return k.reshape(leaf, self.root.shape)
        (rest,) = replaced([self.root], {id(top): leaf})
        cut.copy(rest, name)
        return Tensor("input", (), (name,), self.root.dtype, self.root.shape)


def window_of(dot: Tensor, root: Tensor) -> Window | None:
    """The convolution that a product is (`ops.nn.conv.convolve`); None for other products."""
    rows, columns = dot.args
    if rows.rank != 3 or columns.rank != 4 or dot.rank != 4:
        return None
    after = next((t for t in walk([root]) if t.prim == "reshape" and t.args[0] is dot), None)
    w = rows.args[0] if rows.prim == "reshape" else None
    if w is None or w.rank < 3 or after is not None and after.rank != w.rank:
        return None
    spatial = w.rank - 2
    ones = (1,) * spatial
    batch, features, places = sizes_of(columns)[0], sizes_of(w)[0], sizes_of(columns)[3]
    out = sizes_of(after)[2:] if after is not None else (places, *ones[1:])
    group, _, depth = sizes_of(rows)
    if after is not None and sizes_of(after)[:2] != (batch, features) or math.prod(sizes_of(w)[1:]) != depth:
        return None
    turned, view = _turned(columns)
    if view.prim != "windows":  # windows of one element
        if math.prod(sizes_of(w)[2:]) != 1:
            return None
        x = k.reshape(columns.args[0] if columns.prim == "reshape" else columns, (batch, group * sizes_of(w)[1], *out))
        return Window(x, w, (batch, features, *out), (0,) * spatial, (0,) * spatial, ones, ones)
    perm = (0, 1, 2, *range(3 + spatial, 3 + 2 * spatial), *range(3, 3 + spatial))
    split = (batch, group, sizes_of(w)[1], *sizes_of(view)[2:])
    moved = [p for p in perm if split[p] != 1]
    if tuple(view.attrs[0]) != tuple(range(2, 2 + spatial)) or (turned is None) != (moved == sorted(moved)):
        return None
    if turned is not None and (tuple(turned.attrs) != perm or sizes_of(turned.args[0]) != split):
        return None
    out = sizes_of(view)[2 : 2 + spatial]
    if after is not None and sizes_of(after)[2:] != out:
        return None
    _, sizes, strides, dilations = view.attrs
    x, low, high = view.args[0], (0,) * spatial, (0,) * spatial
    if x.prim == "pad" and number_of(x.args[1]) == 0.0 and min((*x.attrs[0], *x.attrs[1])) >= 0:
        if not any((*x.attrs[0][:2], *x.attrs[1][:2])):
            low, high, x = tuple(x.attrs[0][2:]), tuple(x.attrs[1][2:]), x.args[0]
    if tuple(sizes) != sizes_of(w)[2:]:
        return None
    return Window(x, w, (batch, features, *out), low, high, tuple(strides), tuple(dilations))


def _turned(t: Tensor) -> tuple[Tensor | None, Tensor]:
    """What a chain of reshapes with at most one transposition begins with, and that transposition."""
    turned = None
    while t.prim == "reshape" or t.prim == "transpose" and turned is None:
        turned, t = t if t.prim == "transpose" else turned, t.args[0]
    return turned, t


# --- expressions ------------------------------------------------------------------------------------------------------


def _same(pattern: Tensor, t: Tensor, hole: Tensor) -> bool:
    """Whether `t` is the pattern with `hole` instead of its input."""
    if pattern.prim == "input":
        return t is hole
    if (pattern.prim, pattern.attrs, pattern.dtype, pattern.shape) != (t.prim, t.attrs, t.dtype, t.shape):
        return False
    return len(pattern.args) == len(t.args) and all(_same(p, a, hole) for p, a in zip(pattern.args, t.args, strict=True))


def number_of(t: Tensor) -> float | None:
    """The number that all elements are."""
    while t.prim in ("broadcast", "reshape", "cast"):
        t = t.args[0]
    return float(t.attrs[0]) if t.prim == "scalar" else None


def _stripped_of_casts(t: Tensor) -> Tensor:
    """An addend before it was widened, through views of it."""
    chain: list[Tensor] = []
    while t.prim in ("broadcast", "reshape", "transpose"):
        chain.append(t)
        t = t.args[0]
    t = unwidened(t)
    for above in reversed(chain):
        t = Tensor(above.prim, (t,), above.attrs, t.dtype, above.shape)
    return t


def _only_reshaped(root: Tensor, t: Tensor) -> bool:
    while root is not t and root.prim == "reshape":
        root = root.args[0]
    return root is t


# --- memory -----------------------------------------------------------------------------------------------------------


def sizes_of(t: Tensor) -> tuple[int, ...]:
    return numbers_of(t.shape)


def _spread(view: View, batch: Sequence[int]) -> View:
    """A view with its leading axes broadcast to `batch`."""
    lead = len(batch) + 2 - len(view.shape)
    strides = (*(0,) * lead, *view.strides)
    shape = (*(1,) * lead, *view.shape)
    strided = [s if n == m else 0 for s, n, m in zip(strides, shape, (*batch, *view.shape[-2:]), strict=True)]
    return View(view.dtype, (*batch, *view.shape[-2:]), tuple(strided), view.offset)


def _is_matrix(view: View) -> bool:
    """Whether the last two axes are a matrix with a leading dimension, no two of its elements are one, and matrices follow one
    another at one distance."""
    (m, n), (down, along) = view.shape[-2:], view.strides[-2:]
    by_rows = (along == 1 or n == 1) and (down >= n or m == 1)
    by_columns = (down == 1 or m == 1) and (along >= m or n == 1)
    return (by_rows or by_columns) and view.reshaped((math.prod(view.shape[:-2]), m, n)) is not None


def _is_image(view: View) -> bool:
    """Whether every element has a place of its own."""
    return all(s > 0 or n == 1 for s, n in zip(view.strides, view.shape, strict=True))


def _lies_as(view: View, packed: View) -> bool:
    return all(a == b or n == 1 for a, b, n in zip(view.strides, packed.strides, packed.shape, strict=True))
