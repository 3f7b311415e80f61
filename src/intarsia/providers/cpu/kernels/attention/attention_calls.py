"""The calls of attention's kernels as values over symbolic sizes: buffers, sizes and the functions that are called.

Steps that are read from the cache name this module: without what chooses kernels and writes them, which a session that only
meets other sizes does not need.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from intarsia.codegen.llvm.target import Target, streamed_nbytes
from intarsia.errors import NodeFailed
from intarsia.graph.dims import Dim, Shape
from intarsia.graph.dtypes import MOST_BYTES
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import CLAIMS, SCRATCH, Address, Argument, Code, KernelCall, Ref, ScratchCall, Serial, Sizes, Work
from intarsia.providers.cpu.kernels.attention import attention_arguments
from intarsia.providers.cpu.kernels.attention.attention_arguments import (
    AttentionShape,
    AttentionSpec,
    CacheShape,
    Heads,
    KeysAndValues,
    Operands,
    Resources,
    Scoring,
)
from intarsia.providers.cpu.kernels.matmul.matmul_steps import SHARE_PRODUCTS

_SERIAL_PRODUCTS = 40_000  # multiplications that are not worth waking other threads for
_ITEMSIZE = 4  # of float32


@dataclass(frozen=True)
class View:
    """[batch, heads, rows, size] in a buffer, its last axis dense: the first element, and the others' strides in elements."""

    shape: tuple[Dim, Dim, Dim, Dim]
    offset: Dim
    strides: tuple[Dim, Dim, Dim]


@dataclass(frozen=True)
class AttentionOperands:
    """Queries, keys and values of a node.

    Attributes:
        node: how messages call it.
        reads: buffers of Q, K, V, the mask, the numbers of keys, past keys and values ("" where there are none).
        views: Q, K and V as the node has them.
        appended: where past keys, and values, with the node's own behind them lie ("": there is no such buffer).
        before: how many past keys there are.
        mask: its shape, if there is one; `mask_itemsize`: bytes of an element.
        output: the shape of the result, [batch, heads, queries, size] or [batch, queries, heads * size].
    """

    node: str
    reads: tuple[str, ...]
    views: tuple[View, ...]
    appended: tuple[str, str]
    before: Dim
    mask: Shape | None
    mask_itemsize: int
    output: Shape

    @property
    def form(self) -> object:
        """All but names (`plan.step.form_of`)."""
        given = tuple(map(bool, self.reads)), tuple(map(bool, self.appended))
        return (*given, self.views, self.before, self.mask, self.mask_itemsize, self.output)

    @property
    def others(self) -> tuple[str, ...]:
        """The buffers of the mask and of the numbers of keys."""
        return tuple(n for n in self.reads[3:5] if n)

    def sources(self, first: int = 0) -> tuple[str, ...]:
        """The buffers of Q, all keys and all values, or those from `first` on."""
        return tuple(dict.fromkeys((self.reads[0], *(self.appended[i - 1] or self.reads[i] for i in (1, 2)))[first:]))

    @cached_property
    def dims(self) -> tuple[Dim, ...]:
        """`AttentionShape` as long as sizes are not known."""
        (_, heads, queries, width), (_, kv_heads, keys, _) = self.views[0].shape, self.views[1].shape
        return self.output[0], heads, kv_heads, queries, keys + self.before, width, self.views[2].shape[3], self.before

    def shape(self, size: Sizes) -> AttentionShape:
        return AttentionShape(*map(size, self.dims))

    def at(self, size: Sizes, stored: KeysAndValues, out: str) -> Operands:
        """Where they lie, the result in the buffer `out`."""
        shape = self.shape(size)
        return Operands(self.heads(0, size), stored, self._out(out, shape), self._mask(shape, size))

    def stored(self, size: Sizes) -> KeysAndValues:
        """All keys and values."""
        return KeysAndValues(self._attended(1, size), self._attended(2, size), self.lengths)

    @property
    def lengths(self) -> Address:
        """The numbers of keys."""
        return Ref(self.reads[4]) if self.reads[4] else 0

    def heads(self, which: int, size: Sizes) -> Heads:
        """Q, K or V as the node has them."""
        view = self.views[which]
        address = Ref(self.reads[which], _ITEMSIZE * size(view.offset))
        batch, head, row = (_ITEMSIZE * size(s) for s in view.strides)
        return Heads(address, batch if size(view.shape[0]) > 1 else 0, head, row)

    def _attended(self, which: int, size: Sizes) -> Heads:
        """All keys or values."""
        name = self.appended[which - 1]
        if not name:
            return self.heads(which, size)
        _, heads, rows, width = (size(d) for d in self.views[which].shape)
        row, head = _ITEMSIZE * width, _ITEMSIZE * width * (rows + size(self.before))
        return Heads(Ref(name), head * heads, head, row)

    def _out(self, out: str, shape: AttentionShape) -> Heads:
        heads, queries, vsize = shape.heads, shape.queries, shape.vsize
        head, row = (vsize, heads * vsize) if len(self.output) == 3 else (queries * vsize, vsize)
        return Heads(Ref(out), _ITEMSIZE * heads * queries * vsize, _ITEMSIZE * head, _ITEMSIZE * row)

    def _mask(self, shape: AttentionShape, size: Sizes) -> Heads:
        """Strides of the mask, 0 along axes that it broadcasts.

        Raises:
            NodeFailed: it does not broadcast to the scores.
        """
        if self.mask is None:
            return Heads(0)
        dims = [1] * (4 - len(self.mask)) + [size(d) for d in self.mask]
        wanted = (shape.batch, shape.heads, shape.queries, shape.keys)
        for have, want in zip(dims, wanted, strict=True):
            if have not in (1, want):
                raise NodeFailed(
                    f"{self.node}: the mask has shape {dims[4 - len(self.mask) :]}, which does "
                    f"not broadcast to [batch, heads, queries, keys] = {list(wanted)}; give 1 or the full size along each axis"
                )
        strides = [self.mask_itemsize * math.prod(dims[axis + 1 :]) if dims[axis] > 1 else 0 for axis in range(3)]
        return Heads(Ref(self.reads[3]), *strides)


@dataclass(frozen=True)
class AppendCall(KernelCall):
    """Past keys (or values), and the node's own behind them, for each head.

    Attributes:
        which: 1: keys, 2: values.
        streams: whether many bytes are written past the caches.
    """

    operands: AttentionOperands
    which: int
    streams: bool

    @property
    def form(self) -> object:
        """All but names (`plan.step.form_of`)."""
        return self.operands.form, self.which, self.streams

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        operands, which = self.operands, self.which
        batch, heads, rows, width = (size(d) for d in operands.views[which].shape)
        past, out = operands.reads[4 + which], operands.appended[which - 1]
        shape = CacheShape(batch, heads, size(operands.before), rows, width)
        streamed = streamed_nbytes() if self.streams else MOST_BYTES
        return attention_arguments.append_args(Ref(past) if past else 0, operands.heads(which, size), Ref(out), shape, streamed)


@dataclass(frozen=True)
class FewProducts(Serial):
    """Too few multiplications to share; `dims`: of `AttentionOperands`."""

    dims: tuple[Dim, ...]

    def __call__(self, size: Sizes) -> bool:
        return _products(AttentionShape(*map(size, self.dims))) < _SERIAL_PRODUCTS


@dataclass(frozen=True)
class AttentionWork(Work):
    """The multiplications of a call; `least` and `below` as of `AttentionCall`."""

    dims: tuple[Dim, ...]
    least: int
    below: int

    def __call__(self, size: Sizes) -> float:
        return _products(_computed(AttentionShape(*map(size, self.dims)), self.least, self.below)) / SHARE_PRODUCTS


@dataclass(frozen=True)
class AttentionCall(KernelCall):
    """Base of the kernels' calls.

    Attributes:
        least, below: of so many queries (`least` to `below` - 1) it does its work; there is nothing to do for others.
    """

    operands: AttentionOperands
    spec: AttentionSpec
    scoring: Scoring
    target: Target
    least: int
    below: int

    @property
    def form(self) -> object:
        return self.operands.form, self.spec, self.scoring, self.target, self.least, self.below

    @property
    def serial(self) -> Serial:
        return FewProducts(self.operands.dims)

    @property
    def work(self) -> Work:
        return AttentionWork(self.operands.dims, self.least, self.below)

    def _shape(self, size: Sizes) -> AttentionShape:
        """The shape that is computed: an empty batch where there is nothing to do."""
        return _computed(self.operands.shape(size), self.least, self.below)


@dataclass(frozen=True)
class FewQueriesCall(AttentionCall, ScratchCall):
    """Of `few_queries_kernel`.

    Attributes:
        taps: the buffer of `attention_arguments.taps`.
        micro, pack: the micro-kernel, and the kernel that packs, which it calls.
    """

    taps: str
    micro: Code
    pack: Code
    out: str

    @property
    def form(self) -> object:
        return super().form, self.micro, self.pack

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        uses = Resources(self.micro, Ref(self.taps), Ref(SCRATCH), self.pack)
        operands = self.operands.at(size, self.operands.stored(size), self.out)
        return attention_arguments.attention_args(
            self.spec, self.target, self._shape(size), threads, operands, self.scoring, uses
        )

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        shape = self._shape(size)
        return attention_arguments.scratch_nbytes(shape, self.target, threads) if shape.batch else 0


@dataclass(frozen=True)
class PackKeysAndValuesCall(AttentionCall):
    """Of `pack_keys_values`, which writes the buffers `keys` and `values` for many queries."""

    keys: str
    values: str

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        given = self.operands.stored(size)
        packed = Ref(self.keys), Ref(self.values)
        return attention_arguments.lane_pack_args(self.spec, self.target, self._shape(size), given, packed, self.scoring)


@dataclass(frozen=True)
class ManyQueriesCall(AttentionCall, ScratchCall):
    """Of `many_queries_kernel`, which reads packed `keys` and `values`; `taps` and `micro` as of `FewQueriesCall`."""

    keys: str
    values: str
    taps: str
    micro: Code
    out: str

    @property
    def form(self) -> object:
        return super().form, self.micro

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        packed = KeysAndValues(Heads(Ref(self.keys)), Heads(Ref(self.values)), self.operands.lengths)
        operands = self.operands.at(size, packed, self.out)
        uses = Resources(self.micro, Ref(self.taps), Ref(SCRATCH), claims=Ref(CLAIMS))
        return attention_arguments.lane_args(self.spec, self.target, self._shape(size), operands, self.scoring, uses)

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        shape = self._shape(size)
        return attention_arguments.lane_scratch_nbytes(shape, self.target, threads) if shape.batch else 0


def _computed(shape: AttentionShape, least: int, below: int) -> AttentionShape:
    """The shape, with an empty batch where it has not `least` to `below` - 1 queries."""
    return shape if least <= shape.queries < below else replace(shape, batch=0)


def _products(shape: AttentionShape) -> int:
    return shape.batch * shape.heads * shape.queries * shape.keys * (shape.size + shape.vsize)
