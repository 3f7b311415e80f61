"""Matrix products by matrix units (NVIDIA's tensor cores, from compute capability 8.0 on).

A group of warps has a tile of the result. Its operands come in steps through a ring of buffers in shared memory: while one
step is multiplied, copies of the next ones are under way, and one barrier a step keeps the buffers apart. Each warp has rows
and columns of its own, in pieces of 16 x 8 that `mma.sync` multiplies: float16 and bfloat16 sixteen terms at a time, float32
rounded to TF32 eight at a time, sums in float32; bytes, signed or not, thirty-two at a time, sums in int32. Element-wise
primitives behind the product are computed in the same kernel, as in `product`.

In shared memory an operand lies as it does in memory, its neighbours along the same axis, so that 16 bytes are one copy;
`ldmatrix` turns 16-bit elements where the other axis is wanted. Lines are 16 bytes longer than they need be: eight of them
then lie in different banks. Operands that are no vectors of memory (windows of a convolution, bytes that lie the other way) are
gathered one by one.

How many buffers there are follows from how much shared memory a device gives to a group, and to a multiprocessor.

The functions that are called here (`multiply`, `fragments`, ...) are the dialect's: see `cuda.TENSOR_FUNCTIONS`. Which thread
holds what is PTX ISA 9.0, "Matrix Fragments for mma.m16n8k16 with floating point type", "... mma.m16n8k8" and
"... mma.m16n8k32".
"""

from __future__ import annotations

from intarsia.codegen.clike.dialects.dialect import Dialect
from intarsia.codegen.clike.products.matmul import Operand, operand
from intarsia.codegen.clike.products.sum_places import sum_indices
from intarsia.codegen.clike.schedules import Kernel, _extent, _finished
from intarsia.codegen.clike.storage_types import Kind
from intarsia.codegen.clike.values import Values
from intarsia.codegen.clike.writer import Block
from intarsia.codegen.loops.index_expr import Index, linear, regroup
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives.lang import Tensor

_COPIED = 16  # bytes of one copy, and by which lines are longer
_WARP = 32
_LEAST = 16  # rows, columns and terms: below, tiles would be almost empty
ROWS, COLUMNS = 16, 8  # of what one instruction multiplies
_STEP_NBYTES = 64  # terms of a step
_MOST_STAGES, _FEW_STAGES = 4, 3
_RESERVED = 1024  # bytes of shared memory that the driver takes of each group's
BYTES = (DType.INT8, DType.UINT8)
_FUNCTIONS = {DType.FLOAT16: "f16", DType.BFLOAT16: "bf16", DType.FLOAT: "tf32", DType.INT8: "s8", DType.UINT8: "u8"}


@dataclass(frozen=True)
class TensorTile:
    """Warps of a group and pieces of a warp, along rows and columns."""

    warps: tuple[int, int]
    each: tuple[int, int]

    @property
    def rows(self) -> int:
        return self.warps[0] * self.each[0] * ROWS

    @property
    def columns(self) -> int:
        return self.warps[1] * self.each[1] * COLUMNS

    @property
    def threads(self) -> int:
        return self.warps[0] * self.warps[1] * _WARP


LARGE, SMALL = TensorTile((2, 4), (4, 4)), TensorTile((2, 2), (2, 4))


def factor_type(dialect: Dialect, product: Tensor) -> DType | None:
    """The type in which matrix units multiply the factors of a product (INT8: bytes, signed or not); None where they do not."""
    types = {a.dtype for a in product.args}
    sizes = (*product.shape[-2:], product.args[0].shape[-1])
    if any(_extent(d) < _LEAST for d in sizes):
        return None
    if types <= set(BYTES):
        return DType.INT8 if DType.INT8 in dialect.matrix_units and product.dtype is DType.INT32 else None
    if len(types) != 1 or product.dtype not in (DType.FLOAT, *types):
        return None
    (dtype,) = types
    return dtype if dtype in dialect.matrix_units else None


def tile_for(dialect: Dialect, batch: int, m: int, n: int) -> TensorTile:
    """Large tiles read less for each multiplication; small ones keep more of the device busy."""
    groups = batch * -(-m // LARGE.rows) * -(-n // LARGE.columns)
    return LARGE if m > SMALL.rows and n > SMALL.columns and groups >= dialect.tuning.fill * 3 // 4 else SMALL


def stages_for(dialect: Dialect, nbytes: int, steps: int) -> int:
    """How many buffers of so many bytes a group has: as many as leave room for another group, if these are not few."""
    within, whole = dialect.limits.group_nbytes, dialect.limits.unit_nbytes
    beside, alone = (whole // 2 - _RESERVED) // nbytes, min(within, whole - _RESERVED) // nbytes
    most = beside if beside >= _FEW_STAGES else alone
    return max(min(most, alone, _MOST_STAGES, steps + 1), 2)


def tensor_kernel(dialect: Dialect, root: Tensor, product: Tensor) -> Kernel:
    """`root` with the matrix product in it (see `sum_places.sum_indices`). `factor_type` gives a type for it."""
    found = sum_indices(root, product)
    dtype = factor_type(dialect, product)
    assert found is not None and dtype is not None
    at, over = found
    shape = [_extent(d) for d in product.shape]
    batch, (m, n) = _extent(*shape[:-2]), shape[-2:]
    tile = tile_for(dialect, batch, m, n)
    v = Values(dialect)
    out = v.output(root.dtype, root.shape)
    writer = _Tensor(v, product, tile, dtype)
    writer.sums()
    v.over_pin = over
    element = Block(writer.elements(), ("gm", "gn", "pin"))
    v.pinned = {id(product): "sums[i][j][2 * h + c]"}
    value = v.value(root, at, element)
    v.store(out, root.dtype, v.index(linear(at, root.shape), element), value, element)
    writer.give(element)
    return _finished(v, (-(-n // tile.columns), -(-m // tile.rows), batch), tile.threads)


class _Tensor:
    """The text of a group's tile."""

    def __init__(self, v: Values, t: Tensor, tile: TensorTile, dtype: DType) -> None:
        self.v, self.t, self.tile, self.dtype, self.d = v, t, tile, dtype, v.dialect
        shape = [_extent(s) for s in t.shape]
        self.terms, (self.m, self.n) = _extent(t.args[0].shape[-1]), shape[-2:]
        self.batch = regroup([("v", "z")], [_extent(*shape[:-2])], shape[:-2])
        self.nbytes = dtype.numpy.itemsize
        self.width = _COPIED // self.nbytes
        self.depth = _STEP_NBYTES // self.nbytes  # terms of a step
        self.element = {1: "unsigned char", 2: "unsigned short", 4: "float"}[self.nbytes]
        self.sides = [_Side(self, i) for i in range(2)]
        self.count = -(-self.terms // self.depth)
        self.stages = stages_for(self.d, sum(side.room for side in self.sides) * self.nbytes, self.count)

    # --- sums ---

    def sums(self) -> None:
        d, top, tile = self.d, self.v.top, self.tile
        top.names.add("z")
        top.write(
            d.let("z", Kind.I32, d.group[2]),
            d.let("m0", Kind.I32, f"{d.group[1]} * {tile.rows}"), d.let("n0", Kind.I32, f"{d.group[0]} * {tile.columns}"),
            d.let("warp", Kind.I32, f"{d.local} / {_WARP}"), d.let("lane", Kind.I32, f"{d.local} % {_WARP}"),
            d.let("warp_m", Kind.I32, f"warp / {tile.warps[1]} * {tile.each[0] * ROWS}"),
            d.let("warp_n", Kind.I32, f"warp % {tile.warps[1]} * {tile.each[1] * COLUMNS}"),
            f"{'int' if self.nbytes == 1 else 'float'} sums[{tile.each[0]}][{tile.each[1]}][4] = {{}};",
        )  # fmt: skip
        for side in self.sides:
            side.declare(top)
        ahead = self.stages - 1
        steps = Block(top, ("step",))
        steps.nest("if (step >= 0) {", self._written(steps, f"copies_wait_but_{ahead - 1}();", d.barrier))
        bring = self._written(
            steps, d.let("k0", Kind.I32, f"(step + {ahead}) * {self.depth}"),
            d.let("buffer", Kind.I32, f"(step + {ahead}) % {self.stages}"),
        )  # fmt: skip
        for side in self.sides:
            side.bring(bring)
        steps.nest(f"if (step + {ahead} < {self.v.number(self.count)}) {{", bring)
        steps.write("copies_begin();")
        use = self._written(steps, d.let("buffer", Kind.I32, f"step % {self.stages}"))
        self._multiply(use)
        steps.nest("if (step >= 0) {", use)
        top.nest(f"for (int step = {-ahead}; step < {self.v.number(self.count)}; step += 1) {{", steps)

    @staticmethod
    def _written(outer: Block, *lines: str) -> Block:
        made = Block(outer)
        made.write(*lines)
        return made

    def _multiply(self, use: Block) -> None:
        """The step in `buffer`."""
        each = self.tile.each
        body = Block(use)
        body.write(f"unsigned int a[{each[0]}][{4}], b[{each[1]}][2];")
        for side in self.sides:
            side.load(body)
        inner, innermost = Block(body), Block(body)
        types = dict.fromkeys(a.dtype for a in self.t.args) if self.nbytes > 1 else [a.dtype for a in self.t.args]
        innermost.write(f"multiply_{''.join(_FUNCTIONS[t] for t in types)}(sums[i][j], a[i], b[j]);")
        _unrolled(inner, "j", each[1], innermost)
        _unrolled(body, "i", each[0], inner)
        use.write("#pragma unroll")
        use.nest(f"for (int k = 0; k < {self.depth}; k += {32 // self.nbytes}) {{", body)

    # --- results ---

    def elements(self) -> Block:
        """Where each of a thread's sums belongs: "gm" and "gn"."""
        self._nest = [Block(self.v.top) for _ in range(4)]
        return self._nest[-1]

    def give(self, element: Block) -> None:
        v, d, (i, j, h, c) = self.v, self.d, self._nest
        h.write(d.let("gm", Kind.I32, f"m0 + warp_m + i * {ROWS} + h * 8 + lane / 4"))
        c.write(d.let("gn", Kind.I32, f"n0 + warp_n + j * {COLUMNS} + lane % 4 * 2 + c"))
        c.nest(f"if (gm < {v.number(self.m)} && gn < {v.number(self.n)}) {{", element)
        _unrolled(h, "c", 2, c)
        _unrolled(j, "h", 2, h)
        _unrolled(i, "j", self.tile.each[1], j)
        _unrolled(v.top, "i", self.tile.each[0], i)


class _Side:
    """One of the factors, in shared memory as [line][place] with neighbours in memory along the line."""

    def __init__(self, of: _Tensor, which: int) -> None:
        self.of, self.which = of, which
        self.name, self.start, self.extent, self.size = (
            ("gm", "m0", of.tile.rows, of.m) if which == 0 else ("gn", "n0", of.tile.columns, of.n)
        )
        self.dtype = of.t.args[which].dtype
        self.operand: Operand = operand(of.t, which, dtype=self.dtype, width=of.width)
        # the line runs along the terms; bytes are not turned on their way to registers
        self.by_terms = self.operand.along != self.name or of.nbytes == 1
        self.lines, self.line = (self.extent, of.depth) if self.by_terms else (of.depth, self.extent)
        self.pitch = self.line + of.width
        self.memory = "left" if which == 0 else "right"
        self.room = self.lines * self.pitch

    def declare(self, top: Block) -> None:
        """The buffers; vectors of 16 bytes, as copies and `ldmatrix` want them."""
        of = self.of
        name = of.v.share(Kind.F32, of.stages * self.room * of.nbytes // _COPIED, 4)
        top.write(f"{of.element}* const {self.memory} = ({of.element}*){name};")

    # --- into shared memory ---

    def bring(self, block: Block) -> None:
        """All threads of the group bring the step at `k0`; what is outside is zero."""
        of, v, d = self.of, self.of.v, self.of.d
        whole = self.operand.leaf is not None and self.operand.vector == ("gk" if self.by_terms else self.name)
        width = of.width if whole else 1
        each = self.line // width
        fill = Block(block, ("s", "gk", self.name))
        fill.write(d.let("line", Kind.I32, f"s / {each}"))
        fill.write(d.let("place", Kind.I32, f"s % {each}{f' * {width}' if width > 1 else ''}"))
        along, across = ("gk", self.name) if self.by_terms else (self.name, "gk")
        first = {"gk": "k0", self.name: self.start}
        fill.write(
            d.let(f"{along}0", Kind.I32, f"{first[along]} + place"), d.let(f"{across}0", Kind.I32, f"{first[across]} + line")
        )
        sizes = {"gk": of.terms, self.name: self.size}
        inside = " && ".join(f"{n}0 < {v.number(sizes[n])}" for n in ("gk", self.name))
        fill.write(d.let("inside", Kind.BOOL, f"({inside})"))
        for n in ("gk", self.name):
            fill.write(d.let(n, Kind.I32, d.select("inside", f"{n}0", "0")))
        target = f"{self.memory}[buffer * {self.room} + line * {self.pitch} + place]"
        if whole:
            assert self.operand.leaf is not None
            leaf = self.operand.leaf
            buffer = v.operand(leaf.attrs[0], leaf.dtype, _extent(*leaf.shape))
            fill.write(f"copy_16(&{target}, {buffer} + {v.index(self.operand.index, fill)}, inside);")
        else:
            self._gather(fill, target)
        block.nest(d.loop("s", d.local, str(self.lines * each), str(of.tile.threads)), fill)

    def _gather(self, fill: Block, target: str) -> None:
        of, v = self.of, self.of.v
        last: list[Index] = [("v", self.name), ("v", "gk")] if self.which == 0 else [("v", "gk"), ("v", self.name)]
        t = Tensor("dot", of.t.args, (), self.dtype, of.t.shape)
        value = v.factor(t, of.t.args[self.which], of.batch, last, fill)
        if of.nbytes == 2:
            value = f"({of.element})({v.elements.to_bits(value, of.dtype, fill)})"
        elif of.nbytes == 1:
            value = f"({of.element})({value})"
        fill.write(f"{target} = {of.d.select('inside', value, f'({of.element})0')};")

    # --- into registers ---

    def load(self, body: Block) -> None:
        """The fragments of a piece of the terms, from `k` on."""
        inner = Block(body)
        by_matrices = self.of.nbytes < 4
        (self._matrices if by_matrices else self._singles)(inner)
        if self.which == 0:
            _unrolled(body, "i", self.of.tile.each[0], inner)
        else:
            _unrolled(body, "j", self.of.tile.each[1], inner, 2 if by_matrices else 1)

    def _place(self, line: str, term: str) -> str:
        line, term = f"({line})", f"({term})"
        first, second = (line, term) if self.by_terms else (term, line)
        return f"{self.memory}[buffer * {self.room} + {first} * {self.pitch} + {second}]"

    def _matrices(self, inner: Block) -> None:
        """Four matrices of 8 lines of 16 bytes by one `ldmatrix`: those of a left piece, or those of two right ones.

        Each thread says where one line of one of them begins; a line runs along the terms, or else the matrices are turned.
        """
        first, second = "lane / 8 % 2", "lane / 16"
        if self.which == 0:  # matrices: upper and lower rows, then the same of the later terms
            base, lines, terms, into = f"warp_m + i * {ROWS}", f"{first} * 8", f"{second} * {self.of.width}", "a[i]"
        else:  # matrices: earlier and later terms, then the same of the next columns
            base, lines, terms, into = f"warp_n + j * {COLUMNS}", f"{second} * 8", f"{first} * {self.of.width}", "b[j]"
        within = "lane % 8"
        line, term = (f"{base} + {lines}", f"k + {terms}")
        if self.by_terms:
            inner.write(f"fragments({into}, &{self._place(f'{line} + {within}', term)});")
        else:
            inner.write(f"fragments_turned({into}, &{self._place(line, f'{term} + {within}')});")

    def _singles(self, inner: Block) -> None:
        """One element after the other, rounded to TF32."""
        if self.which == 0:
            for register in range(4):
                line = f"warp_m + i * {ROWS} + {register % 2 * 8} + lane / 4"
                inner.write(f"a[i][{register}] = to_tf32({self._place(line, f'k + {register // 2 * 4} + lane % 4')});")
            return
        for register in range(2):
            line = f"warp_n + j * {COLUMNS} + lane / 4"
            inner.write(f"b[j][{register}] = to_tf32({self._place(line, f'k + {register * 4} + lane % 4')});")


def _unrolled(block: Block, name: str, count: int, inner: Block, step: int = 1) -> None:
    block.write("#pragma unroll")
    block.nest(f"for (int {name} = 0; {name} < {count}; {name} += {step}) {{", inner)
