"""Attention without its scores in memory: softmax(x) V row by row, where x is a product with element-wise primitives on it.

A thread per row of queries goes through the keys once, with the largest score so far, the sum of powers and the sum of
values in registers; both sums are scaled down where a larger score appears (online softmax). `found` recognises the
primitives of `ops.attention.attend`; the primitive `attend` (x, V; attribute: whether a row without any allowed key gives
zeros) is what `Cut` puts in their place where scores would take more memory than `Tuning.scores_nbytes`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from intarsia.codegen.clike.dialect import Dialect
from intarsia.codegen.clike.kinds import Kind
from intarsia.codegen.clike.product import WIDTH, Operand, operand, sum_indices
from intarsia.codegen.clike.schedules import THREADS, Kernel, _extent, _finished, _grid
from intarsia.codegen.clike.values import Values
from intarsia.codegen.clike.writer import Block
from intarsia.codegen.loop_index import Index, regroup
from intarsia.graph.dtypes import DType
from intarsia.kernel.lang import Tensor, walk

MOST_SIZE = 128  # of a head: so many sums are a thread's own


def found(dot: Tensor, nbytes: int) -> Tensor | None:
    """The primitive `attend` for a product whose left operand is a softmax over more than so many bytes; None for others."""
    left, values = dot.args
    if dot.dtype is not DType.FLOAT or not all(isinstance(d, int) for t in (dot, left) for d in t.shape):
        return None
    if 4 * _extent(*left.shape) <= nbytes or _extent(dot.shape[-1]) % WIDTH or _extent(dot.shape[-1]) > MOST_SIZE:
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
    if masked != shifted or sum(t.prim == "dot" for t in walk([x])) != 1:
        return None
    batch = x.shape[:-2]
    if _extent(*batch) != _extent(*dot.shape[:-2]) or values.rank > dot.rank:
        return None
    return Tensor("attend", (x, values), (masked,), dot.dtype, dot.shape)


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
    if _extent(product.args[0].shape[-1]) > MOST_SIZE:
        return False
    places = sum_indices(x, product)
    between = [t for t in walk([x]) if places is not None and id(t) in places[1]]
    return bool(between) and all(t.prim != "transpose" and t.shape[-2:] == x.shape[-2:] for t in between)


def _scores_at(x: Tensor) -> list[Index]:
    batch = regroup([("v", "z")], [_extent(*x.shape[:-2])], x.shape[:-2])
    return [*batch, ("v", "gm"), ("v", "gn")]


def attend_kernel(dialect: Dialect, root: Tensor) -> Kernel:
    """`root` is `attend` on settled operands."""
    x, values = root.args
    v, d = Values(dialect), dialect
    e = v.elements
    out = v.output(root.dtype, root.shape)
    rows, size = _extent(root.shape[-2]), _extent(root.shape[-1])
    keys, batch = _extent(x.shape[-1]), _extent(*root.shape[:-2])
    products = [t for t in walk([x]) if t.prim == "dot"]
    top = v.top
    top.names |= {"z", "gm"}
    total = rows * batch
    group = f"({d.group[1]} * {d.groups_across} + {d.group[0]})"
    top.write(d.let("line", Kind.I32, f"{group} * {THREADS} + {d.local}"))
    last = v.number(total - 1)
    top.write(d.let("i", Kind.I32, d.select(f"(line < {v.number(total)})", "line", last)))
    top.write(d.let("z", Kind.I32, f"i / {v.number(rows)}"), d.let("gm", Kind.I32, f"i % {v.number(rows)}"))
    highest = e.variable(top, e.literal(-math.inf, Kind.F32), Kind.F32, "highest")
    powers = e.variable(top, e.literal(0.0, Kind.F32), Kind.F32, "powers")
    zero = d.vector([e.literal(0.0, Kind.F32)] * WIDTH)
    sums = [f"sum{c}" for c in range(size // WIDTH)]
    for name in sums:
        top.write(d.variable_vector(name, zero))
    loop = Block(top, ("gn",))
    theirs = _values(root, values)
    factors = [operand(products[0], i) for i in range(2)] if products else []
    for given, along in zip([theirs, *factors], ("gc", "gk", "gk"), strict=False):
        if given.leaf is not None and given.vector == along:
            v.vector_leaves.add(given.leaf.attrs[0])
    if products:
        score = _score(v, products[0], factors, loop)
        v.pinned = {id(products[0]): score}
        found_at = sum_indices(x, products[0])
        assert found_at is not None
        v.over_pin = found_at[1]
        loop.names.add("pin")
    value = v.value(x, _scores_at(x), loop)
    allowed = Block(loop)
    larger = Block(allowed)
    exp = d.functions["exp", Kind.F32]
    larger.write(d.let("less", Kind.F32, f"{exp}({highest} - {value})"))
    larger.write(f"{powers} = {powers} * less;", *(d.scale_vector(name, "less") for name in sums), f"{highest} = {value};")
    allowed.nest(f"if ({value} > {highest}) {{", larger)
    allowed.write(d.let("power", Kind.F32, f"{exp}({value} - {highest})"))
    allowed.write(f"{powers} = {powers} + power;")
    _add_values(v, root, theirs, sums, allowed)
    nothing = e.literal(-math.inf, Kind.F32)
    loop.nest(f"if (!({value} == {nothing})) {{", allowed)
    top.nest(d.loop("gn", "0", v.number(keys)), loop)
    if root.attrs[0]:
        one, none = e.literal(1.0, Kind.F32), e.literal(0.0, Kind.F32)
        powers = e.let(top, d.select(f"({powers} == {none})", one, powers), Kind.F32)
    store = Block(top)
    base = v.index(("*", ("v", "i"), size), store)
    for c in range(size):
        v.store(out, root.dtype, f"{base} + {c}", f"{sums[c // WIDTH]}.{'xyzw'[c % WIDTH]} / {powers}", store)
    top.nest(f"if (line < {v.number(total)}) {{", store)
    return _finished(v, _grid(dialect, -(-total // THREADS)), THREADS)


def _score(v: Values, product: Tensor, factors: Sequence[Operand], loop: Block) -> str:
    """The product's element for this row and key: the row is kept in registers where it is read by vectors."""
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


def _values(root: Tensor, values: Tensor) -> Operand:
    return operand(_product_of_values(root, values), 1, "gc")


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
