"""Attention without its scores in memory: softmax(x) V row by row, where x is a product with element-wise primitives on it.

A thread per row of queries goes through the keys once, with the largest score so far, the sum of powers and the sum of
values in registers; both sums are scaled down where a larger score appears (online softmax). A group has rows of one head;
it brings some keys and values at a time into memory that its threads share, where each is read as often as there are rows.

`found` recognises the primitives of `ops.nn.attention.attend`; the primitive `attend` (x, V; attribute: whether a row without
any allowed key gives zeros) is what `Cut` puts in their place where scores would take more memory than `Tuning.scores_nbytes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from intarsia.codegen.clike.dialects.dialect import Dialect
from intarsia.codegen.clike.products.matmul import Operand, operand
from intarsia.codegen.clike.products.sum_places import sum_indices
from intarsia.codegen.clike.schedules import THREADS, Kernel, _extent, _finished, _grid
from intarsia.codegen.clike.storage_types import Kind
from intarsia.codegen.clike.values import Values
from intarsia.codegen.clike.vec4 import LANES as WIDTH
from intarsia.codegen.clike.writer import Block
from intarsia.codegen.loops.index_expr import Index, add, regroup
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor, walk

MOST_SIZE = 128  # of a head: so many sums are a thread's own
MOST_DEPTH = 256  # of keys: more would not be in registers at all
_LARGE_HEADS = 16  # times as many bytes of scores as else: registers spill, which is better than memory that is not there


def found(dot: Tensor, nbytes: int) -> Tensor | None:
    """The primitive `attend` for a product whose left operand is a softmax over more than so many bytes; None for others."""
    left, values = dot.args
    if dot.dtype is not DType.FLOAT or not all(isinstance(d, int) for t in (dot, left) for d in t.shape):
        return None
    size = _extent(dot.shape[-1])
    if 4 * _extent(*left.shape) <= nbytes * (1 if size <= MOST_SIZE else _LARGE_HEADS) or size % WIDTH:
        return None
    quotient = left
    while quotient.prim == "reshape" and quotient.shape[-2:] == quotient.args[0].shape[-2:]:
        quotient = quotient.args[0]
    if quotient.prim != "div" or quotient.shape[-2:] != left.shape[-2:]:
        return None
    powers, total = quotient.args
    masked, total = _without_select(_unspread(total))
    if powers.prim != "exp" or total.prim != "reduce" or total.args[0] is not powers or powers.args[0].prim != "sub":
        return None
    x, highest = powers.args[0].args
    shifted, highest = _without_select(_unspread(highest))
    last = (x.rank - 1,)
    if highest.prim != "reduce" or highest.args[0] is not x or highest.attrs != ("max", last) or total.attrs != ("sum", last):
        return None
    if masked != shifted or len(_products_of(x)) != 1:
        return None
    batch = x.shape[:-2]
    if _extent(*batch) != _extent(*dot.shape[:-2]) or values.rank > dot.rank:
        return None
    return _in_parts(x, values, masked, dot)


def _in_parts(x: Tensor, values: Tensor, masked: bool, dot: Tensor) -> Tensor:
    """The primitive, one for each part of the values' columns that a thread has room for."""
    size = _extent(dot.shape[-1])
    step = -(-size // (-(-size // MOST_SIZE) * WIDTH)) * WIDTH
    made = []
    for start in range(0, size, step):
        width = min(step, size - start)
        place = (*(0 for _ in values.shape[:-1]), start)
        part = k.strided_slice(values, place, (1,) * values.rank, (*values.shape[:-1], width))
        made.append(Tensor("attend", (x, part), (masked,), dot.dtype, (*dot.shape[:-1], width)))
    return k.concat(made, dot.rank - 1)


def _products_of(x: Tensor) -> dict[int, Tensor]:
    """Products that `x` is made of, without those that are behind an operand of one."""
    found: dict[int, Tensor] = {}
    seen: set[int] = set()
    waiting = [x]
    while waiting:
        t = waiting.pop()
        if id(t) in seen:
            continue
        seen.add(id(t))
        if t.prim == "dot":
            found[id(t)] = t
        else:
            waiting += t.args
    return found


def _unspread(t: Tensor) -> Tensor:
    while t.prim in ("broadcast", "reshape"):
        t = t.args[0]
    return t


def _without_select(t: Tensor) -> tuple[bool, Tensor]:
    """What a choice between a number and a value has as its value, and whether there is a choice."""
    return (True, _unspread(t.args[2])) if t.prim == "select" else (False, t)


def fits(x: Tensor) -> bool:
    """Whether a kernel computes scores `x` (settled) as it goes."""
    products = [t for t in walk([x]) if t.prim == "dot"]
    if not products:
        return True
    (product,) = products
    if _extent(product.args[0].shape[-1]) > MOST_DEPTH:
        return False
    places = sum_indices(x, product)
    between = [t for t in walk([x]) if places is not None and id(t) in places[1]]
    return bool(between) and all(t.prim != "transpose" and t.shape[-2:] == x.shape[-2:] for t in between)


def _scores_at(x: Tensor) -> list[Index]:
    batch = regroup([("v", "z")], [_extent(*x.shape[:-2])], x.shape[:-2])
    return [*batch, ("v", "gm"), ("v", "gn")]


def keys_at_once(dialect: Dialect, depth: int, size: int) -> int:
    """How many keys and values of so many elements a group has in shared memory; 0: none."""
    if depth % WIDTH:
        return 0
    most = dialect.limits.shared_nbytes // (4 * (depth + size))
    return next((n for n in (32, 16, 8, 4) if n <= most), 0)


def attend_kernel(dialect: Dialect, root: Tensor) -> Kernel:
    """`root` is `attend` on settled operands."""
    x, values = root.args
    products = [t for t in walk([x]) if t.prim == "dot"]
    writer = _Attend(dialect, root, products[0] if products else None)
    keys = keys_at_once(dialect, _extent(products[0].args[0].shape[-1]), _extent(values.shape[-1])) if products else 0
    return writer.by_tiles(keys) if keys else writer.by_threads()


class _Attend:
    """The text of a thread's row."""

    def __init__(self, dialect: Dialect, root: Tensor, product: Tensor | None) -> None:
        self.root, self.product, self.d = root, product, dialect
        self.x, self.values = root.args
        self.v = v = Values(dialect)
        self.out = v.output(root.dtype, root.shape)
        self.rows, self.size = _extent(root.shape[-2]), _extent(root.shape[-1])
        self.keys, self.batch = _extent(self.x.shape[-1]), _extent(*root.shape[:-2])
        self.sums = [f"sum{c}" for c in range(self.size // WIDTH)]
        self.theirs = operand(_product_of_values(root, self.values), 1, "gc")
        self.factors = [operand(product, i) for i in range(2)] if product is not None else []
        for given, along in zip([self.theirs, *self.factors], ("gc", "gk", "gk"), strict=False):
            if given.leaf is not None and given.vector == along:
                v.vector_leaves.add(given.leaf.attrs[0])

    def _numbers(self, block: Block) -> None:
        """What goes along with the keys."""
        e, d = self.v.elements, self.d
        self.highest = e.variable(block, e.literal(-math.inf, Kind.F32), Kind.F32, "highest")
        self.powers = e.variable(block, e.literal(0.0, Kind.F32), Kind.F32, "powers")
        zero = d.vector([e.literal(0.0, Kind.F32)] * WIDTH)
        block.write(*(d.variable_vector(name, zero) for name in self.sums))

    # --- straight from memory ---

    def by_threads(self) -> Kernel:
        """Rows of all heads, one behind the other."""
        v, d, top = self.v, self.d, self.v.top
        top.names |= {"z", "gm"}
        total = self.rows * self.batch
        group = f"({d.group[1]} * {d.groups_across} + {d.group[0]})"
        top.write(d.let("line", Kind.I32, f"{group} * {THREADS} + {d.local}"))
        last = v.number(total - 1)
        top.write(d.let("i", Kind.I32, d.select(f"(line < {v.number(total)})", "line", last)))
        top.write(d.let("z", Kind.I32, f"i / {v.number(self.rows)}"), d.let("gm", Kind.I32, f"i % {v.number(self.rows)}"))
        self._numbers(top)
        loop = Block(top, ("gn",))
        score = _score(v, self.product, self.factors, loop) if self.product is not None else ""
        self._key(loop, score, lambda block: _add_values(v, self.root, self.theirs, self.sums, block))
        top.nest(d.loop("gn", "0", v.number(self.keys)), loop)
        self._give(top, "i", f"line < {v.number(total)}")
        return _finished(v, _grid(d, -(-total // THREADS)), THREADS)

    # --- by shared memory ---

    def by_tiles(self, count: int) -> Kernel:
        """`count` keys at a time; a group has THREADS rows of one head."""
        v, d = self.v, self.d
        assert self.product is not None
        blocks = -(-self.rows // THREADS)
        v.top.write(d.let("group_", Kind.I32, f"({d.group[1]} * {d.groups_across} + {d.group[0]})"))
        body = Block(v.top, ("z", "gm"))
        body.write(
            d.let("z", Kind.I32, f"group_ / {v.number(blocks)}"),
            d.let("line", Kind.I32, f"(group_ % {v.number(blocks)}) * {THREADS} + {d.local}"),
            d.let("gm", Kind.I32, d.select(f"(line < {v.number(self.rows)})", "line", v.number(self.rows - 1))),
        )
        self._numbers(body)
        deep, wide = (n // WIDTH for n in (_extent(self.product.args[0].shape[-1]), self.size))
        query = [self._query(body, c) for c in range(deep)]
        shared = v.share(Kind.F32, count * deep, WIDTH), v.share(Kind.F32, count * wide, WIDTH)
        steps = Block(body, ("k0",))
        self._bring(steps, shared[0], deep, count, self._key_vector)
        self._bring(steps, shared[1], wide, count, self._value_vector)
        rest = v.elements.let(steps, f"({v.number(self.keys)} - k0)", Kind.I32)
        steps.write(d.let("some", Kind.I32, d.select(f"({rest} < {count})", rest, str(count))), d.barrier)
        loop = Block(steps, ("j", "gn"))
        loop.write(d.let("gn", Kind.I32, "k0 + j"))
        total = v.elements.variable(loop, v.elements.literal(0.0, Kind.F32), Kind.F32)
        for c, mine in enumerate(query):
            key = v.elements.fresh("w")
            loop.write(d.let_vector(key, f"{shared[0]}[j * {deep} + {c}]"))
            loop.write(f"{total} = {total} + ({' + '.join(f'{mine}.{p} * {key}.{p}' for p in 'xyzw')});")

        def add_values(block: Block) -> None:
            for c, name in enumerate(self.sums):
                value = v.elements.fresh("w")
                block.write(d.let_vector(value, f"{shared[1]}[j * {wide} + {c}]"), d.add_scaled(name, "power", value))

        self._key(loop, total, add_values)
        steps.nest(d.loop("j", "0", "some"), loop)
        steps.write(d.barrier)
        body.nest(d.loop("k0", "0", v.number(self.keys), str(count)), steps)
        body.write(d.let("i", Kind.I32, f"z * {v.number(self.rows)} + line"))
        body.names.add("i")
        self._give(body, "i", f"line < {v.number(self.rows)}")
        v.top.nest(f"if (group_ < {v.number(blocks * self.batch)}) {{", body)
        return _finished(v, _grid(d, blocks * self.batch), THREADS)

    def _query(self, body: Block, c: int) -> str:
        """Vector number `c` of this thread's row, in a register."""
        left = self.factors[0]
        if left.vector == "gk":
            return left.vector_at(self.v, {"gk": ("c", c * WIDTH)}, body)
        assert self.product is not None
        name = self.v.elements.fresh("w")
        parts = [self._factor(self.product, 0, [("v", "gm"), ("c", c * WIDTH + n)], body) for n in range(WIDTH)]
        body.write(self.d.let_vector(name, self.d.vector(parts)))
        return name

    def _bring(self, steps: Block, shared: str, each: int, count: int, vector: Callable[[Block], str]) -> None:
        """Vectors of `count` keys, or of their values, by all threads; behind the last key, that one again."""
        v, d = self.v, self.d
        fill = Block(steps, ("s", "gn", "place"))
        last = v.number(self.keys - 1)
        fill.write(d.let("key", Kind.I32, f"k0 + s / {each}"))
        fill.write(d.let("gn", Kind.I32, d.select(f"(key < {last})", "key", last)))
        fill.write(d.let("place", Kind.I32, f"(s % {each}) * {WIDTH}"))
        fill.write(f"{shared}[s] = {vector(fill)};")
        steps.nest(d.loop("s", d.local, str(count * each), str(THREADS)), fill)

    def _key_vector(self, fill: Block) -> str:
        right = self.factors[1]
        if right.vector == "gk":
            return right.vector_at(self.v, {"gk": ("v", "place")}, fill)
        assert self.product is not None
        return self.d.vector([self._factor(self.product, 1, [at, ("v", "gn")], fill) for at in _neighbours("place")])

    def _value_vector(self, fill: Block) -> str:
        if self.theirs.vector == "gc":
            return self.theirs.vector_at(self.v, {"gk": ("v", "gn"), "gc": ("v", "place")}, fill)
        stand_in = _product_of_values(self.root, self.values)
        return self.d.vector([self._factor(stand_in, 1, [("v", "gn"), at], fill) for at in _neighbours("place")])

    def _factor(self, product: Tensor, which: int, last: list[Index], block: Block) -> str:
        batch = regroup([("v", "z")], [_extent(*product.shape[:-2])], product.shape[:-2])
        return self.v.factor(product, product.args[which], batch, last, block)

    # --- a key, and the end ---

    def _key(self, loop: Block, score: str, add_values: Callable[[Block], None]) -> None:
        """Take a key into account. `score`: the product's element, where there is a product."""
        v, d, e = self.v, self.d, self.v.elements
        if self.product is not None:
            v.pinned = {id(self.product): score}
            found_at = sum_indices(self.x, self.product)
            assert found_at is not None
            v.over_pin = found_at[1]
            loop.names.add("pin")
        value = v.value(self.x, _scores_at(self.x), loop)
        allowed = Block(loop)
        larger = Block(allowed)
        exp, highest = d.functions["exp", Kind.F32], self.highest
        larger.write(d.let("less", Kind.F32, f"{exp}({highest} - {value})"), f"{self.powers} = {self.powers} * less;")
        larger.write(*(d.scale_vector(name, "less") for name in self.sums), f"{highest} = {value};")
        allowed.nest(f"if ({value} > {highest}) {{", larger)
        allowed.write(d.let("power", Kind.F32, f"{exp}({value} - {highest})"))
        allowed.write(f"{self.powers} = {self.powers} + power;")
        add_values(allowed)
        nothing = e.literal(-math.inf, Kind.F32)
        loop.nest(f"if (!({value} == {nothing})) {{", allowed)

    def _give(self, block: Block, row: str, condition: str) -> None:
        """Write the row number `row`."""
        v, d, e, powers = self.v, self.d, self.v.elements, self.powers
        if self.root.attrs[0]:
            one, none = e.literal(1.0, Kind.F32), e.literal(0.0, Kind.F32)
            powers = e.let(block, d.select(f"({powers} == {none})", one, powers), Kind.F32)
        store = Block(block)
        share = e.let(store, f"({e.literal(1.0, Kind.F32)} / {powers})", Kind.F32)
        base = v.index(("*", ("v", row), self.size), store)
        for c in range(self.size):
            text = f"{self.sums[c // WIDTH]}.{'xyzw'[c % WIDTH]} * {share}"
            v.store(self.out, self.root.dtype, f"{base} + {c}", text, store)
        block.nest(f"if ({condition}) {{", store)


def _neighbours(name: str) -> list[Index]:
    return [add(("v", name), ("c", n)) for n in range(WIDTH)]


def _score(v: Values, product: Tensor, factors: Sequence[Operand], loop: Block) -> str:
    """The product's element for this row and key: the row is held in registers where it is read by vectors."""
    d, e = v.dialect, v.elements
    depth = _extent(product.args[0].shape[-1])
    left, right = factors
    total = e.variable(loop, e.literal(0.0, Kind.F32), Kind.F32)
    if depth % WIDTH or left.vector != "gk" or right.vector != "gk":
        inner = Block(loop, ("gk",))
        batch = regroup([("v", "z")], [_extent(*product.shape[:-2])], product.shape[:-2])
        a = v.factor(product, product.args[0], batch, [("v", "gm"), ("v", "gk")], inner)
        b = v.factor(product, product.args[1], batch, [("v", "gk"), ("v", "gn")], inner)
        inner.write(f"{total} = {total} + {a} * {b};")
        loop.nest(d.loop("gk", "0", v.number(depth)), inner)
        return total
    for c in range(0, depth, WIDTH):
        row = left.vector_at(v, {"gk": ("c", c)}, v.top)
        key = right.vector_at(v, {"gk": ("c", c)}, loop)
        loop.write(f"{total} = {total} + ({' + '.join(f'{row}.{p} * {key}.{p}' for p in 'xyzw')});")
    return total


def _product_of_values(root: Tensor, values: Tensor) -> Tensor:
    """The product that `attend` stands for, with nothing as its left operand."""
    left = Tensor("input", (), ("",), root.dtype, (*root.shape[:-1], values.shape[-2]))
    return Tensor("dot", (left, values), (), root.dtype, root.shape)


def _add_values(v: Values, root: Tensor, given: Operand, sums: list[str], block: Block) -> None:
    """To each sum the key's values, as much as its power says."""
    d, stand_in = v.dialect, _product_of_values(root, root.args[1])
    batch = regroup([("v", "z")], [_extent(*root.shape[:-2])], root.shape[:-2])
    for c, name in enumerate(sums):
        if given.vector == "gc":
            vector = given.vector_at(v, {"gk": ("v", "gn"), "gc": ("c", c * WIDTH)}, block)
        else:
            places: list[list[Index]] = [[("v", "gn"), ("c", c * WIDTH + j)] for j in range(WIDTH)]
            parts = [v.factor(stand_in, root.args[1], batch, at, block) for at in places]
            vector = v.elements.fresh("w")
            block.write(d.let_vector(vector, d.vector(parts)))
        block.write(d.add_scaled(name, "power", vector))
