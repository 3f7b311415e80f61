"""Parts of a definition that are kernels of their own: above all matrix products, which become calls of the GEMM kernel.

An operator whose primitives contain `dot` (Einsum, unfused attention, convolution by run-time weights, products of 16-bit
floats, ...) is cut there: operands that are not buffers already are computed into one, the product goes to the template, and
what is left of the definition reads its result. So are running sums and scatters, whose loops nothing else fits in, and
sums whose results are taken more than once: an image is resampled along one axis, then along the other. Rows of places and
weights that open sizes decide are tables, made once for each combination of sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.codegen.loops.element_values import HELD, stripped
from intarsia.codegen.loops.index_expr import ELEMENTWISE
from intarsia.codegen.loops.loop_nest import WHOLE
from intarsia.graph.dims import Dim, Expr, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, TensorType, ValueType
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor, walk
from intarsia.primitives.substitute import simplified
from intarsia.providers.cpu.kernels.common.tensor_spec import TensorSpec
from intarsia.providers.cpu.kernels.matmul.matmul import MatMul, TransposedMatMul
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import SUMS
from intarsia.providers.cpu.kernels.matmul_int8.matmul_int8 import ByteMatMul, Zero, byte_factor, zero_of

_HALF = (DType.FLOAT16, DType.BFLOAT16)
_FAST = (DType.FLOAT, DType.DOUBLE)
_MOST_DEPTH, _MOST_JOINED = 96, 64  # of a kernel's primitives, one in the other; operands of one concatenation
_MANY_TERMS, _ROW, _FEW_RESULTS = 128, 8, 4096  # terms of a sum, of its first part, and results of a reduction in parts


@dataclass(frozen=True)
class Piece:
    """A part of a definition: the value it computes, and its primitives or the product that computes it."""

    name: str
    root: Tensor
    product: MatMul | None = None


def split_definition(name: str, root: Tensor, node: Node, graph: Graph, types: dict[str, ValueType]) -> list[Piece]:
    """`root` in pieces, in order of execution; the last one computes `name`. Types of new values are added to `types`."""
    last = stripped(root)
    order = walk([root])
    again = {id(t.args[0]) for t in order if _takes_again(t)} | _tables(order)
    wide = _wide(order)
    outlined = (t.prim == "dot" or (t.prim in WHOLE and t is not last) or _goes_by_axis(t) for t in order)
    if not wide and not again and not any(outlined):
        return [Piece(name, root)]
    splitter = _Splitter(name, node, graph, types)
    made: dict[int, Tensor] = {}
    depths: dict[int, int] = {}
    for t in order:
        args = tuple(made[id(a)] for a in t.args)
        if wide and t.prim == "concat" and len(args) > _MOST_JOINED:
            args = splitter.joined(args, t.attrs[0])
        same = all(a is b for a, b in zip(args, t.args, strict=True))
        rebuilt = t if same else simplified(Tensor(t.prim, args, t.attrs, t.dtype, t.shape))
        if t.prim == "dot":
            rebuilt = splitter.product(rebuilt)
        elif id(t) in again or (t.prim in WHOLE and t is not last):
            rebuilt = splitter.whole(rebuilt)
        elif _goes_by_axis(rebuilt):
            rebuilt = splitter.by_axis(rebuilt)
        if wide:
            depth = depths[id(t)] = 0 if rebuilt.prim == "input" else 1 + max((depths[id(a)] for a in t.args), default=0)
            if depth > _MOST_DEPTH and t.prim in ELEMENTWISE and t is not last:
                rebuilt, depths[id(t)] = splitter.whole(rebuilt), 0
        made[id(t)] = rebuilt
    return [*splitter.pieces, Piece(name, made[id(root)])]


class _Splitter:
    def __init__(self, name: str, node: Node, graph: Graph, types: dict[str, ValueType]) -> None:
        self.name, self.node, self.graph, self.types = name, node, graph, types
        self.pieces: list[Piece] = []

    def product(self, t: Tensor) -> Tensor:
        """What takes the place of a `dot`: its result's buffer, or itself where the template does not take it."""
        if t.dtype is SUMS:
            return self._byte_product(t)
        dtype = DType.FLOAT if t.dtype in _HALF else t.dtype
        if dtype not in _FAST or any(a.dtype not in (dtype, *_HALF) for a in t.args):
            return t
        begun = len(self.pieces)
        made = self._product(t, dtype)
        if made is None:  # axes that may broadcast, or do not merge into two: a copy without either
            del self.pieces[begun:]
            full = [k.broadcast(a, (*t.shape[:-2], *a.shape[-2:])) for a in t.args]
            made = self._product(Tensor("dot", tuple(full), t.attrs, t.dtype, t.shape), dtype)
        if made is None:
            del self.pieces[begun:]
            return t
        out = self._value(dtype, t.shape)
        self.pieces.append(Piece(out.attrs[0], out, made))
        return k.cast(out, t.dtype)

    def _product(self, t: Tensor, dtype: DType) -> MatMul | None:
        left = self._operand(t.args[0], dtype)
        right, transposed = self._right(t.args[1], dtype)
        kind = TransposedMatMul if transposed else MatMul
        made = kind(
            self.node, (left.attrs[0], right.attrs[0]), (_type(left, dtype), _type(right, dtype)), TensorSpec(dtype, t.shape)
        )
        return made if made.batches() is not None else None

    def whole(self, t: Tensor) -> Tensor:
        """What takes the place of a primitive that has a kernel of its own."""
        value = self._value(t.dtype, t.shape)
        self.pieces.append(Piece(value.attrs[0], t))
        return value

    def joined(self, args: tuple[Tensor, ...], axis: int) -> tuple[Tensor, ...]:
        """The operands of a concatenation in fewer parts, each of which is a buffer of its own."""
        while len(args) > _MOST_JOINED:
            parts = (args[i : i + _MOST_JOINED] for i in range(0, len(args), _MOST_JOINED))
            args = tuple([self.whole(k.concat(part, axis)) if len(part) > 1 else part[0] for part in parts])
        return args

    def by_axis(self, t: Tensor) -> Tensor:
        """A reduction over several axes, one after the other from the last one on."""
        op, axes = t.attrs
        while _goes_by_axis(t):
            t = k.reduce(self.whole(k.reduce(t.args[0], op, axes[-1:])), op, axes := axes[:-1])
        return t

    def _byte_product(self, t: Tensor) -> Tensor:
        """8-bit integers less zero points, summed in int32."""
        left, right = (byte_factor(a) for a in t.args)
        if left is None or right is None:
            return t
        a_zero = zero_of(left.zero, -2, 2)
        b_zero = None if a_zero is None else zero_of(right.zero, -1, 2 + (a_zero[1] is not None))
        if a_zero is None or b_zero is None or (a_zero[0].kind == "row" and any(d != 1 for d in t.shape[:-2])):
            return t
        begun = len(self.pieces)
        a, b = (self._bytes(x.values) for x in (left, right))
        zeros = self._for_each(*a_zero, t.shape[-2]), self._for_each(*b_zero, t.shape[-1])
        reads = (a.attrs[0], b.attrs[0], *(name for name in zeros if name is not None))
        types = (TensorSpec(a.dtype, a.shape), TensorSpec(b.dtype, b.shape))
        made = ByteMatMul(self.node, reads, types, TensorSpec(SUMS, t.shape), a_zero=a_zero[0], b_zero=b_zero[0])
        if made.batches() is None:
            del self.pieces[begun:]
            return t
        out = self._value(SUMS, t.shape)
        self.pieces.append(Piece(out.attrs[0], out, made))
        return out

    def _for_each(self, zero: Zero, name: str | None, count: Dim) -> str | None:
        """The buffer of zero points, one for each of `count` rows or columns: repeated where a run may give one for all."""
        kind = self.types[name] if name is not None and zero.kind != "scalar" else None
        if name is None or not isinstance(kind, TensorType) or kind.shape is None or product(kind.shape) == count:
            return name
        given = Tensor("input", (), (name,), kind.dtype, (product(kind.shape),))
        return str(self.whole(k.broadcast(given, (count,))).attrs[0])

    def _bytes(self, t: Tensor) -> Tensor:
        """Bytes as a buffer."""
        found = _buffer(t)
        if found is not None:
            return Tensor("input", (), found.attrs, t.dtype, t.shape)
        value = self._value(t.dtype, t.shape)
        self.pieces.append(Piece(value.attrs[0], t))
        return value

    def _right(self, t: Tensor, dtype: DType) -> tuple[Tensor, bool]:
        """The second operand, given transposed where that saves a copy."""
        swapped = (*range(t.rank - 2), t.rank - 1, t.rank - 2)
        if t.prim == "transpose" and t.attrs == swapped and _buffer(t.args[0]) is not None:
            return self._operand(t.args[0], dtype, packed=all(d == 1 for d in t.shape[:-2])), True
        return self._operand(t, dtype, packed=all(d == 1 for d in t.shape[:-2])), False

    def _operand(self, t: Tensor, dtype: DType, packed: bool = False) -> Tensor:
        """A tensor as a buffer of `dtype`: the one that it is, or a new one. Constants that are `packed` are converted then."""
        found = _buffer(t)
        if found is not None and t.dtype is dtype:
            return Tensor("input", (), found.attrs, t.dtype, t.shape)
        if found is not None and found.attrs[0] in self.graph.constants:
            if packed:
                return Tensor("input", (), found.attrs, t.dtype, t.shape)
            return Tensor("input", (), (self._widened(found.attrs[0], dtype),), dtype, t.shape)
        value = self._value(dtype, t.shape)
        self.pieces.append(Piece(value.attrs[0], k.cast(t, dtype)))
        return value

    def _widened(self, name: str, dtype: DType) -> str:
        """The name of a constant's elements as `dtype`."""
        constant, label = self.graph.constants[name], f"{name}%{dtype.onnx_name}"
        if label not in self.graph.constants:
            wide = Constant(label, dtype, constant.shape, lambda: constant.numpy().astype(dtype.numpy))
            self.graph.constants[label], self.types[label] = wide, wide.type
        return label

    def _value(self, dtype: DType, shape: tuple[Dim, ...]) -> Tensor:
        name = f"{self.name}%{len(self.pieces)}"
        self.types[name] = TensorType(dtype, shape)
        return Tensor("input", (), (name,), dtype, shape)


def _wide(order: Sequence[Tensor]) -> bool:
    """Whether a definition is so deep, or joins so many operands, that one kernel for all of it would take long to compile: a
    sum of 50,000 operands is computed by kernels of some, one after the other, so that its terms are added in their order."""
    if len(order) <= min(_MOST_DEPTH, _MOST_JOINED):
        return False
    depths: dict[int, int] = {}
    for t in order:
        depths[id(t)] = 1 + max((depths[id(a)] for a in t.args), default=0)
    return max(depths.values()) > _MOST_DEPTH or any(t.prim == "concat" and len(t.args) > _MOST_JOINED for t in order)


def _takes_again(t: Tensor) -> bool:
    """Whether elements of a reduction, or of a sum of what was taken before, are taken, each more than once: their terms
    would be summed as often.
    """
    if t.prim != "take" or not _is_sum(t.args[0]):
        return False
    taken, made = product(t.shape), product(t.args[0].shape)
    return not isinstance(taken, int) or not isinstance(made, int) or taken > made


def _goes_by_axis(t: Tensor) -> bool:
    """Whether a reduction of columns takes so many terms for so few results that all threads share it, and sum in parts, only
    if it goes axis by axis: the mean of each channel of an image whose channels are the last axis."""
    if t.prim != "reduce" or t.dtype in HELD or len(t.attrs[1]) < 2 or t.args[0].rank - 1 in t.attrs[1]:
        return False
    terms, results = (product(sizes) for sizes in ([t.args[0].shape[a] for a in t.attrs[1]], t.shape))
    along = t.args[0].shape[t.attrs[1][-1]]
    many = not isinstance(terms, int) or terms >= _MANY_TERMS
    return many and (not isinstance(along, int) or along >= _ROW) and isinstance(results, int) and 1 < results <= _FEW_RESULTS


def _is_sum(t: Tensor) -> bool:
    return t.prim == "reduce" or (t.prim == "add" and any(part.prim == "take" for part in walk([t])))


def _tables(order: Sequence[Tensor]) -> set[int]:
    """The rows, made of sizes alone and of divisions by them, that others of the tensors in `order` read element by element:
    a loop over several axes would divide anew in each.
    """
    open_, divided = set[int](), set[int]()
    for t in order:
        if t.prim == "input" or t.rank > 1 or any(id(a) not in open_ and a.prim != "constant" for a in t.args):
            continue
        open_.add(id(t))
        if t.prim == "div" or any(id(a) in divided for a in t.args):
            divided.add(id(t))
    rows = (a for t in order if t.prim != "concat" and id(t) not in divided for a in t.args)
    return {id(a) for a in rows if a.rank == 1 and id(a) in divided and isinstance(a.shape[0], Expr)}


def _buffer(t: Tensor) -> Tensor | None:
    """The input that `t` is under another shape, or None."""
    while t.prim == "reshape":
        t = t.args[0]
    return t if t.prim == "input" else None


def _type(t: Tensor, dtype: DType) -> TensorSpec:
    return TensorSpec(dtype, t.shape)
