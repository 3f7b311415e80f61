"""Values of tensors at indices, as text: what a schedule requests where it needs an element.

Index expressions are those of `codegen.loops.index_expr`. Sizes are numbers here; those above 4 become parameters of the
kernel, so that kernels which differ in sizes only are one text. A value is written in the outermost block that knows
the variables it depends on, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intarsia.codegen.clike.dialects.dialect import Buffer, Dialect, KernelParts
from intarsia.codegen.clike.element import Elements
from intarsia.codegen.clike.storage_types import KINDS, Kind
from intarsia.codegen.clike.writer import Block
from intarsia.codegen.elementwise.emitter import UnsupportedPrimitive
from intarsia.codegen.loops.element_values import stripped
from intarsia.codegen.loops.index_expr import (
    ELEMENTWISE,
    Index,
    add,
    follow,
    linear,
    may_miss,
    of_dim,
    operand_indices,
    regroup,
)
from intarsia.graph.dims import Dim, number_of, product
from intarsia.graph.dtypes import DType
from intarsia.primitives.divisors import may_divide_by_zero
from intarsia.primitives.interpreter import highest, lowest
from intarsia.primitives.lang import Tensor
from intarsia.run_status import DIVISION_BY_ZERO, INDEX_OUT_OF_RANGE

_LITERAL = 4  # sizes up to this one are written as they are: windows, strides, dilations and the like
Cooperative = Callable[[Tensor, str, list[int], Callable[[list[Index], Block], str], Block], str]


class Values:
    """The text of one kernel, as it grows.

    Attributes:
        top: the kernel's body.
        unfinished: head and block of what comes last in it.
        pinned: tensors (by id) whose value is known whatever the index: the sum of a matrix product, in its epilogue.
        cooperative: writes a reduction that belongs to a whole group of threads; None: each thread reduces by itself.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect, self.elements = dialect, Elements(dialect)
        self.top = Block()
        self.unfinished: tuple[str, Block] | None = None
        self.pinned: dict[int, str] = {}
        self.cooperative: tuple[Block, Cooperative] | None = None
        self.operands: dict[object, Buffer] = {}
        self.outputs: list[Buffer] = []
        self.aliases: dict[object, str] = {}  # leaves that are the former content of an output
        self.vector_leaves: set[object] = set()  # leaves that are read by vectors, known before any of them is read
        self._split: set[str] = set()  # buffers that are bound as several windows
        self._vectors: set[str] = set()  # buffers that have vectors as elements
        self.sizes: list[int] = []
        self.shared: list[tuple[str, Kind, int, int]] = []
        self.partials: dict[Kind, str] = {}  # shared arrays of an element for each thread, by kind
        self.checked = False
        self._names: dict[Index, frozenset[str]] = {}
        self._numbers: dict[int, str] = {}
        self._prologue: list[str] = []

    # --- the kernel around it ---

    def operand(self, name: object, dtype: DType, count: int) -> str:
        """The buffer of a leaf of so many elements."""
        if name in self.aliases:
            return self.aliases[name]
        if name not in self.operands:
            vectors = self.dialect.typed_buffers and name in self.vector_leaves
            self.operands[name] = self._buffer(f"X{len(self.operands)}", dtype, count, vectors)
        return self.operands[name].name

    def output(self, dtype: DType, shape: Sequence[Dim], vectors: bool = False) -> str:
        """The buffer of a result. `vectors`: it has them as its elements, where the dialect says so."""
        self.outputs.append(self._buffer(f"Y{len(self.outputs)}", dtype, number_of(product(shape)), vectors))
        return self.outputs[-1].name

    def _buffer(self, name: str, dtype: DType, count: int, vectors: bool = False) -> Buffer:
        windows = self.dialect.windows(dtype, count)
        if windows > 1:
            self._split.add(name)
        if vectors:
            self._vectors.add(name)
        return Buffer(name, dtype, windows, vectors)

    def share(self, kind: Kind, count: int, width: int = 1) -> str:
        """An array that the threads of a group share; `width` 4: of vectors."""
        self.shared.append((f"shared{len(self.shared)}", kind, count, width))
        return self.shared[-1][0]

    def source(self, threads: int) -> tuple[str, int]:
        """The text, and how many bytes of shared memory a launch says."""
        parts = KernelParts(
            tuple(self.operands.values()), self.outputs, len(self.sizes), self.checked, self.shared, threads,
            (*self._prologue, *self.top.lines()),
        )  # fmt: skip
        return self.dialect.source(parts), parts.dynamic_nbytes(self.dialect.limits)

    # --- indices ---

    def names(self, index: Index) -> frozenset[str]:
        """Variables that an index depends on."""
        found = self._names.get(index)
        if found is None:
            if index[0] == "v":
                found = frozenset((index[1],))
            else:
                parts = index[2] if index[0] == "at" else [i for i in index[1:] if isinstance(i, tuple)]
                found = frozenset[str]().union(*(self.names(i) for i in parts))
            self._names[index] = found
        return found

    def number(self, value: Dim) -> str:
        """A size, or an amount that follows from sizes."""
        assert isinstance(value, int), value
        if abs(value) <= _LITERAL:
            return self.dialect.literal(value, Kind.I32)
        if not -(1 << 31) < value < 1 << 31:
            raise UnsupportedPrimitive("a tensor has more than 2^31 elements")
        name = self._numbers.get(value)
        if name is None:
            name = self._numbers[value] = f"p{len(self.sizes)}"
            if text := self.dialect.parameter(len(self.sizes)):
                self._prologue.append(self.dialect.let(name, Kind.I32, text))
            self.sizes.append(value)
        return name

    def wide_number(self, value: int, kind: Kind) -> str:
        """A size as an integer of `kind`."""
        if kind is Kind.I32:
            return self.number(value)
        if abs(value) <= _LITERAL:
            return self.dialect.literal(value, kind)
        return self.dialect.convert(self.number(value), Kind.I32, kind)

    def index(self, index: Index, block: Block) -> str:
        """The text of an index, an I32."""
        if index[0] == "c":
            return self.number(index[1])
        place = block.place(self.names(index))
        key = ("index", index)
        known = place.memo.get(key)
        if known is None:
            known = place.memo[key] = index[1] if index[0] == "v" else self._index(index, place)
        return known

    def _index(self, index: Index, block: Block) -> str:
        kind, let = index[0], self.elements.let
        if kind == "at":
            value = self.value(index[1], list(index[2]), block)
            return self.elements.cast(value, index[1].dtype, DType.INT32, block)
        if kind == "checked":
            return self._checked(index, block)
        first = self.index(index[1], block)
        if kind == "+":
            return let(block, f"({first} + {self.index(index[2], block)})", Kind.I32)
        if kind == "*":
            return let(block, f"({first} * {self.number(index[2])})", Kind.I32)
        if kind in ("/", "%"):
            return let(block, f"({first} {kind} {self.number(max(int(index[2]), 1))})", Kind.I32)
        assert kind == "clamp", kind  # sizes are numbers: ("1", ...) does not occur
        return self._clamped(first, Kind.I32, int(index[2]), block)

    def _clamped(self, first: str, kind: Kind, size: int, block: Block) -> str:
        e = self.elements
        top, zero = self.number(max(size - 1, 0)), e.literal(0, kind)
        if kind is not Kind.I32:
            top = self.wide_number(max(size - 1, 0), kind)
        low = e.one_of(block, self.dialect.comparison(">", first, top, kind), top, first, kind)
        return e.one_of(block, self.dialect.comparison("<", low, zero, kind), zero, low, kind)

    def _checked(self, index: Index, block: Block) -> str:
        """An element of an index tensor, clamped to its range; the status word is set where it was not."""
        _, tensor, where = index[1]
        if (place := _counted(tensor, where)) is not None:
            return self.index(place, block)
        value = self.value(tensor, list(where), block)
        kind, e, size = KINDS[tensor.dtype], self.elements, int(index[2])
        if not kind.is_signed:
            value, kind = self.elements.let(block, self.dialect.convert(value, kind, Kind.I32), Kind.I32), Kind.I32
        if not (any(may_miss(i) for i in where) and product(tensor.shape) == 0):
            limits = (("<", e.literal(0, kind)), (">=", self.wide_number(size, kind)))
            outside = " || ".join(self.dialect.comparison(op, value, limit, kind) for op, limit in limits)
            self._fault(outside, INDEX_OUT_OF_RANGE, block)
        clamped = self._clamped(value, kind, size, block)
        return clamped if kind is Kind.I32 else e.let(block, self.dialect.convert(clamped, kind, Kind.I32), Kind.I32)

    def _fault(self, condition: str, fault: int, block: Block) -> None:
        """Note in the status word what is wrong with the data."""
        self.checked = True
        block.write(f"if ({condition}) {{ S[0] = {fault}u; }}")

    # --- memory ---

    def read(self, buffer: str, at: str) -> str:
        """The text of what lies at a place of a buffer."""
        if buffer in self._vectors:
            return f"{self._place(buffer, f'({at}) >> 2u')}[({at}) & 3]"
        return self._place(buffer, at)

    def _place(self, buffer: str, at: str) -> str:
        return f"{buffer}_get({at})" if buffer in self._split else f"{buffer}[{at}]"

    def read_vector(self, leaf: object, dtype: DType, count: int, at: str) -> str:
        """Four elements of a leaf of `vector_leaves`, from place `at`, a multiple of 4, on."""
        buffer = self.operand(leaf, dtype, count)
        return self._place(buffer, f"{at} >> 2u") if buffer in self._vectors else self.dialect.read_vector(buffer, at, dtype)

    def read_word(self, leaf: object, dtype: DType, count: int, at: str) -> str:
        """Four bytes of a leaf as a word (U32), from place `at`, a multiple of 4, on."""
        buffer = self.operand(leaf, dtype, count)
        return self._place(buffer, f"{at} >> 2u") if self.dialect.packed(dtype) > 1 else self.dialect.read_word(buffer, at)

    def write_vector(self, buffer: str, dtype: DType, at: str, parts: Sequence[str], block: Block) -> None:
        """Four elements as vector number `at` of an output."""
        if buffer in self._vectors:
            self.write(buffer, at, self.dialect.vector(parts, dtype), block)
        else:
            block.write(self.dialect.write_vector(buffer, at, parts, dtype))

    def write(self, buffer: str, at: str, value: str, block: Block) -> None:
        block.write(f"{buffer}_put({at}, {value});" if buffer in self._split else f"{buffer}[{at}] = {value};")

    def load(self, buffer: str, dtype: DType, at: str, block: Block) -> str:
        """An element of a buffer."""
        e, many = self.elements, self.dialect.packed(dtype)
        if many == 1:
            return self.decoded(self.read(buffer, at), dtype, block)
        width, log = 32 // many, many.bit_length() - 1
        shift = self.dialect.shift(f"({at} & {many - 1}) * {width}", Kind.I32)
        word = e.let(block, f"({self.read(buffer, f'{at} >> {log}u')} >> ({shift}))", Kind.U32)
        return e.from_bits(word, dtype, block)

    def decoded(self, stored: str, dtype: DType, block: Block) -> str:
        """The value of what lies in a buffer that is not packed."""
        e, kind = self.elements, KINDS[dtype]
        if dtype in AS_THEY_ARE:
            return e.let(block, stored, kind)
        raw = self.dialect.convert(stored, kind if kind is Kind.I32 else Kind.U32, Kind.U32)
        return e.from_bits(e.let(block, raw, Kind.U32), dtype, block)

    def store(self, buffer: str, dtype: DType, at: str, value: str, block: Block) -> None:
        """Write an element of a buffer that is not packed."""
        assert self.dialect.packed(dtype) == 1
        if dtype not in AS_THEY_ARE:
            value = f"({self.dialect.element(dtype)})({self.elements.to_bits(value, dtype, block)})"
        self.write(buffer, at, value, block)

    # --- values ---

    def value(self, t: Tensor, at: Sequence[Index], block: Block) -> str:
        """The element of `t` at these indices."""
        if id(t) in self.pinned:
            return self.pinned[id(t)]
        names = frozenset[str]().union(*(self.names(i) for i in at)) | self._pinned_names(t)
        place = block.place(names)
        key = (id(t), tuple(at))
        known = place.memo.get(key)
        if known is None:
            known = self._write(t, list(at), place)
            place.memo[key] = known
        return known

    def _pinned_names(self, t: Tensor) -> frozenset[str]:
        """A value with a pinned tensor in it belongs to the block that the pin is for."""
        if not self.pinned:
            return frozenset()
        return frozenset(("pin",)) if id(t) in self.over_pin else frozenset()

    over_pin: frozenset[int] = frozenset()

    def _write(self, t: Tensor, at: list[Index], block: Block) -> str:
        rule: Callable[[Tensor, list[Index], Block], str] | None = getattr(self, "_write_" + t.prim, None)
        if rule is not None:
            return rule(t, at, block)
        pairs = operand_indices(t, at)
        if t.prim in ELEMENTWISE:
            values = [self.value(a, i, block) for a, i in pairs]
            if t.prim == "cast":
                return self.elements.converted(t, values[0], block)
            dtype = t.args[-1].dtype if t.prim == "select" else t.args[0].dtype
            if t.prim in ("div", "mod", "fmod") and dtype.is_integer and may_divide_by_zero(t):
                zero = self.elements.literal(0, KINDS[dtype])
                self._fault(self.dialect.comparison("==", values[1], zero, KINDS[dtype]), DIVISION_BY_ZERO, block)
            return self.elements.primitive(t.prim, values, dtype, t.dtype, block)
        if not pairs:
            raise UnsupportedPrimitive(f"primitive {t.prim!r} inside a larger expression")
        ((operand, where),) = pairs
        return self.value(operand, where, block)

    def _write_input(self, t: Tensor, at: list[Index], block: Block) -> str:
        offset = linear(at, t.shape)
        if may_miss(offset):
            offset = ("clamp", offset, max(number_of(product(t.shape)), 1))
        buffer = self.operand(t.attrs[0], t.dtype, number_of(product(t.shape)))
        return self.load(buffer, t.dtype, self.index(offset, block), block)

    def _write_reshape(self, t: Tensor, at: list[Index], block: Block) -> str:
        source = stripped(t)
        if source.prim == "input":  # a dense buffer has no shape of its own
            return self._write_input(Tensor("input", (), source.attrs, t.dtype, t.shape), at, block)
        return self.value(t.args[0], regroup(at, t.shape, t.args[0].shape), block)

    def _write_scalar(self, t: Tensor, at: list[Index], block: Block) -> str:
        return self.elements.literal(t.attrs[0], KINDS[t.dtype])

    def _write_iota(self, t: Tensor, at: list[Index], block: Block) -> str:
        return self.elements.cast(self.index(at[t.attrs[0]], block), DType.INT32, t.dtype, block)

    def _write_pad(self, t: Tensor, at: list[Index], block: Block) -> str:
        (x, where), (fill, _) = operand_indices(t, at)
        if self.dialect.guards and (guarded := self._guarded(t, at, block)):
            return guarded
        value, outside = self.value(x, where, block), self.value(fill, [], block)
        return self.elements.one_of(block, self._inside(t, at, block), value, outside, KINDS[t.dtype])

    def _inside(self, t: Tensor, at: list[Index], block: Block) -> str:
        """Whether an element of a padded tensor is one of what is padded."""
        inside = []
        for i, d, low, high in zip(at, t.args[0].shape, *t.attrs, strict=True):
            if low == high == 0:
                continue
            moved = self.index(add(i, of_dim(-low)), block)
            if self.dialect.guards:  # below zero is far above, as a number without a sign
                first, second = (self.dialect.convert(n, Kind.I32, Kind.U32) for n in (moved, self.number(d)))
                inside.append(f"{first} < {second}")
            else:
                inside.append(f"{moved} >= 0 && {moved} < {self.number(d)}")
        return f"({' && '.join(inside)})"

    def _guarded(self, t: Tensor, at: list[Index], block: Block) -> str:
        """An element that is read only where it is inside, at an index that need not be clamped; "" where it is no
        element of memory."""
        x, fill = t.args
        while fill.prim in ("broadcast", "reshape"):
            fill = fill.args[0]
        if x.prim != "input" or fill.prim != "scalar" or self.dialect.packed(t.dtype) > 1 or 0 in x.shape:
            return ""
        number = fill.attrs[0]
        if t.dtype not in AS_THEY_ARE and (t.dtype not in _ZERO_IS_ZERO or number != 0):
            return ""
        moved = [add(i, of_dim(-low)) for i, low in zip(at, t.attrs[0], strict=True)]
        offset = linear(moved, x.shape)
        if may_miss(offset):
            return ""
        buffer = self.operand(x.attrs[0], x.dtype, number_of(product(x.shape)))
        outside = self.elements.literal(number, KINDS[t.dtype]) if t.dtype in AS_THEY_ARE else "0"
        inside = self._inside(t, at, block)
        return self.decoded(self.dialect.select(inside, self.read(buffer, self.index(offset, block)), outside), t.dtype, block)

    def _write_concat(self, t: Tensor, at: list[Index], block: Block) -> str:
        axis, end = t.attrs[0], 0
        parts = []
        for a, where in operand_indices(t, at):
            end += int(a.shape[axis])
            if a.shape[axis] != 0:
                parts.append((self.value(a, where, block), end))
        value = parts[-1][0] if parts else self.value(t.args[0], at, block)
        for part, limit in reversed(parts[:-1]):
            below = f"({self.index(at[axis], block)} < {self.number(limit)})"
            value = self.elements.one_of(block, below, part, value, KINDS[t.dtype])
        return value

    # --- reductions ---

    def _write_dot(self, t: Tensor, at: list[Index], block: Block) -> str:
        depth = number_of(t.args[0].shape[-1])

        def term(ks: list[Index], inner: Block) -> str:
            x, y = self.factors(t, at[:-2], at[-2], at[-1], ks[0], inner)
            return self.elements.primitive("mul", [x, y], t.dtype, t.dtype, inner)

        return self._reduction(t, "sum", [depth], term, at, block)

    def factors(self, t: Tensor, batch: list[Index], m: Index, n: Index, k: Index, block: Block) -> tuple[str, str]:
        """What one term of the sum of a matrix product multiplies."""
        a, b = t.args
        return self.factor(t, a, batch, [m, k], block), self.factor(t, b, batch, [k, n], block)

    def factor(self, t: Tensor, x: Tensor, batch: list[Index], last: list[Index], block: Block) -> str:
        shift = t.rank - x.rank
        where = [follow(d, t.shape[i + shift], batch[i + shift]) for i, d in enumerate(x.shape[:-2])]
        return self.elements.cast(self.value(x, [*where, *last], block), x.dtype, t.dtype, block)

    def _write_reduce(self, t: Tensor, at: list[Index], block: Block) -> str:
        op, axes = t.attrs
        x = t.args[0]

        def element(ks: list[Index], inner: Block) -> str:
            remaining, reduced = iter(at), iter(ks)
            return self.value(x, [next(reduced) if i in axes else next(remaining) for i in range(x.rank)], inner)

        return self._reduction(t, op, [int(x.shape[i]) for i in axes], element, at, block)

    def _reduction(
        self,
        t: Tensor,
        op: str,
        extents: list[int],
        element: Callable[[list[Index], Block], str],
        at: list[Index],
        block: Block,
    ) -> str:
        if self.cooperative is not None and block is self.cooperative[0]:
            return self.cooperative[1](t, op, extents, element, block)
        total = self.elements.variable(block, self.identity(op, t.dtype), KINDS[t.dtype])
        names = [self.elements.fresh("k") for _ in extents]
        blocks = [block]
        for name in names:
            blocks.append(Block(blocks[-1], (name,)))
        inner = blocks[-1]
        value = element([("v", n) for n in names], inner)
        inner.write(f"{total} = {self.combined(op, total, value, t.dtype, inner)};")
        for name, extent, outside, inside in reversed(list(zip(names, extents, blocks, blocks[1:], strict=False))):
            outside.nest(self.dialect.loop(name, "0", self.number(extent)), inside)
        return total

    def identity(self, op: str, dtype: DType) -> str:
        value = {"sum": 0, "prod": 1, "any": False, "all": True}.get(op)
        if value is None:
            value = lowest(dtype) if op == "max" else highest(dtype)
        return self.elements.literal(value, KINDS[dtype])

    def combined(self, op: str, total: str, value: str, dtype: DType, block: Block) -> str:
        """A running result and one more value: rounded to `dtype` only when all is done."""
        wide = DType.FLOAT if KINDS[dtype] is Kind.F32 else dtype
        primitive = {"sum": "add", "prod": "mul", "any": "or", "all": "and"}.get(op, op)
        return self.elements.primitive(primitive, [total, value], wide, wide, block)


def _counted(t: Tensor, at: Sequence[Index]) -> Index | None:
    """The index that an element of an index tensor is, where it counts along an axis."""
    while t.prim in ("broadcast", "cast"):
        ((t, at),) = operand_indices(t, list(at))
    return at[t.attrs[0]] if t.prim == "iota" else None


_ZERO_IS_ZERO = (DType.FLOAT16, DType.BFLOAT16)  # whose 0 is bits of 0
AS_THEY_ARE = frozenset(
    (DType.FLOAT, DType.DOUBLE, DType.INT8, DType.INT16, DType.INT32, DType.INT64, DType.UINT32, DType.UINT64,
     DType.UINT8, DType.UINT16)
)  # fmt: skip
