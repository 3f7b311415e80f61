"""Attention as calls of the fused kernel: ONNX's Attention, and com.microsoft's MultiHeadAttention where it is the same.

Operands are read where they lie: heads are found by strides, in [batch, sequence, heads * size] as well as in [batch,
heads, sequence, size], and so are a Split or Slice of columns and a Transpose of heads before the node, which then need
no kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.codegen.llvm.target import Target, streamed_nbytes
from intarsia.errors import NodeFailed
from intarsia.graph.dims import Dim, Shape
from intarsia.graph.dtypes import MOST_BYTES, DType
from intarsia.graph.model import Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import CLAIMS, SCRATCH, Argument, Code, Ref, Sizes, Step
from intarsia.providers.cpu.kernels.attention import (
    append_kv_kernel,
    attention_arguments,
    many_queries_kernel,
    pack_keys_values,
)
from intarsia.providers.cpu.kernels.attention import few_queries_kernel as template
from intarsia.providers.cpu.kernels.attention.attention_arguments import UNBOUNDED, AttentionShape, AttentionSpec, Heads
from intarsia.providers.cpu.kernels.attention.many_queries_microkernel import lane_micro_text
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.microkernel import micro_text
from intarsia.providers.cpu.kernels.common.precision import asked, described_unit, pair_unit
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace, tensor_types
from intarsia.providers.cpu.kernels.common.units import VECTORS
from intarsia.providers.cpu.kernels.matmul.matmul_steps import SHARE_PRODUCTS
from intarsia.providers.cpu.kernels.matmul.vnni_kernel import tiled_pairs_text

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference

_HEADS_TO_FRONT = [0, 2, 1, 3]
_SERIAL_PRODUCTS = 40_000  # multiplications that are not worth waking other threads for
_LEAST_FACTOR = 2.0**-60  # of scores


@dataclass(frozen=True)
class View:
    """[batch, heads, rows, size] in a buffer, its last axis dense: the first element, and the others' strides in elements."""

    shape: tuple[Dim, Dim, Dim, Dim]
    offset: Dim
    strides: tuple[Dim, Dim, Dim]


@dataclass(frozen=True)
class Attention(Template):
    """One node. `reads`: buffers of Q, K, V, the mask, the numbers of keys, past keys and values, as far as they are there.

    Attributes:
        views: Q, K and V as the node has them.
        joined: where keys, and values, with those of earlier calls before them go ("": there are none, nor are they asked for).
        before: how many keys of earlier calls there are.
    """

    views: tuple[View, ...] = ()
    joined: tuple[str, ...] = ("", "")
    before: Dim = 0
    mask: Shape | None = None
    spec: AttentionSpec = field(default_factory=AttentionSpec)
    scale: float | None = None
    softcap: float = 0.0
    left: int = UNBOUNDED
    right: int = UNBOUNDED

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(n for n in self.node.outputs[:3] if n)

    @property
    def form(self) -> object:
        """All but names (`plan.step.form_of`)."""
        given = (tuple(map(bool, self.reads)), tuple(map(bool, self.joined)), self.types, self.output)
        return (*given, self.views, self.before, self.mask, self.spec, self.scale, self.softcap, self.left, self.right)

    def equal_sizes(self) -> Sequence[tuple[Dim, Dim]]:
        q, k, v = (view.shape for view in self.views)
        pairs = [(q[0], k[0]), *zip(k[:3], v[:3], strict=True), (q[3], k[3])]
        for view, past in zip((k, v), self.types[5:7], strict=True):
            if past is not None and past.shape is not None:
                pairs += zip(past.shape, (view[0], view[1], self.before, view[3]), strict=True)
        return pairs

    def fits(self) -> bool:
        """Whether sizes that are numbers are equal where they must be, and groups of heads even."""
        if any(a != b and isinstance(a, int) and isinstance(b, int) for a, b in self.equal_sizes()):
            return False
        heads, kv_heads = self.views[0].shape[1], self.views[1].shape[1]
        if isinstance(heads, int) and isinstance(kv_heads, int):
            return kv_heads > 0 and heads % kv_heads == 0
        return heads == kv_heads

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        assert epilogue is None and not operands
        joins = [self._join(target, workspace, which) for which in (1, 2) if self.joined[which - 1]]
        queries = self.views[0].shape[2]
        least = attention_arguments.least_in_lanes(target)
        many = self._lane_steps(target, workspace, out) if not isinstance(queries, int) or queries >= least else []
        few = [self._row_step(target, workspace, out)] if not isinstance(queries, int) or queries < least else []
        return [*joins, *many, *few]

    def _row_step(self, target: Target, workspace: Workspace, out: str) -> Step:
        """Few queries: a row of scores for each. Does nothing where there are many."""
        calls = (micro_text(DType.FLOAT, target), template.pack_text(target))
        micro, pack = (Code(text.symbol) for text in calls)
        table = self._taps(target, workspace)
        return Step(
            template.kernel_text(self.spec, target), (*self._sources(), *self._others(), table), (out,),
            partial(self._arguments, target, micro, pack, table, out), scratch_nbytes=partial(self._scratch_nbytes, target),
            serial=self._is_small, work=partial(self._row_shares, target), label=self._label, calls=calls,
        )  # fmt: skip

    def _lane_steps(self, target: Target, workspace: Workspace, out: str) -> list[Step]:
        """Many queries: one in each lane of a vector. Both steps do nothing where there are few."""
        spec, tile = self._lane_spec(target, workspace), attention_arguments.lane_tile(target)
        micro = tiled_pairs_text(tile, target) if spec.pairs else lane_micro_text(tile, target)
        table, arithmetic = self._taps(target, workspace), described_unit(VECTORS, DType.FLOAT) if spec.pairs else ""
        (batch, heads, rows, width), vwidth = self.views[1].shape, self.views[2].shape[3]
        rows, group, name = rows + self.before, attention_arguments.packed_group(target), self.node.outputs[0]
        keys = workspace.temporary(f"{name}%packed keys", DType.FLOAT, (batch, heads, width * (rows + group)))
        values = workspace.temporary(f"{name}%packed values", DType.FLOAT, (batch, heads, rows * (vwidth + group)))
        lengths = (self.reads[4],) if self.spec.lengths is not None else ()
        read = tuple(dict.fromkeys(n for n in (self.reads[0], *self._others()) if n))
        return [
            Step(
                pack_keys_values.pack_text(spec.lengths, target, spec.pairs), (*self._sources(1), *lengths), (keys, values),
                partial(self._packing, target, keys, values), serial=self._is_small, label=f"pack {self._label}",
                arithmetic="bfloat16" if spec.pairs else "",
            ),
            Step(
                many_queries_kernel.kernel_text(spec, target), (*read, keys, values, table), (out,),
                partial(self._lane_arguments, target, Code(micro.symbol), keys, values, table, out),
                scratch_nbytes=partial(self._lane_scratch_nbytes, target), serial=self._is_small,
                work=partial(self._lane_shares, target), label=self._label, calls=(micro,), arithmetic=arithmetic,
            ),
        ]  # fmt: skip

    def _lane_spec(self, target: Target, workspace: Workspace) -> AttentionSpec:
        """By pairs of bfloat16 where these are asked for, vectors multiply them, and heads are wide enough."""
        width = self.views[0].shape[3]
        wide = isinstance(width, int) and width % 2 == 0 and width >= attention_arguments.lane_tile(target).lanes
        return replace(self.spec, pairs=wide and pair_unit(asked(workspace.options, self.node), target) == VECTORS)

    @property
    def _label(self) -> str:
        return f"attention {self.views[0].shape[1]}x{self.views[0].shape[2]}x{self.views[1].shape[2]}"

    def _taps(self, target: Target, workspace: Workspace) -> str:
        return workspace.add("", "attention_taps", lambda: np.array(attention_arguments.taps(target), np.int64))

    def _sources(self, first: int = 0) -> tuple[str, ...]:
        """The buffers of Q, all keys and all values, or those from `first` on."""
        return tuple(dict.fromkeys((self.reads[0], *(self.joined[i - 1] or self.reads[i] for i in (1, 2)))[first:]))

    def _others(self) -> tuple[str, ...]:
        """Those of the mask and of the numbers of keys."""
        return tuple(n for n in self.reads[3:5] if n)

    def _arguments(
        self, target: Target, micro: Code, pack: Code, table: str, out: str, size: Sizes, threads: int
    ) -> Sequence[Argument]:
        shape = self._row_shape(target, size)
        q, k, v = (self._attended(i, size) for i in range(3))
        return attention_arguments.attention_args(
            self.spec, target, shape, threads, micro=micro, pack=pack, q=q, k=k, v=v, taps=Ref(table),
            scale=self._scale(shape), **self._common(out, size),
        )  # fmt: skip

    def _lane_arguments(
        self, target: Target, micro: Code, keys: str, values: str, table: str, out: str, size: Sizes, threads: int
    ) -> Sequence[Argument]:
        k, v = Ref(keys), Ref(values)
        return attention_arguments.lane_args(
            self.spec, target, self._lane_shape(target, size), micro=micro, q=self._attended(0, size), k=k, v=v,
            taps=Ref(table), claims=Ref(CLAIMS), **self._common(out, size),
        )  # fmt: skip

    def _common(self, out: str, size: Sizes) -> dict[str, Any]:
        """The arguments that both kernels have."""
        shape = self._shape(size)
        return {
            "out": self._out(out, shape), "mask": self._mask(shape, size), "softcap": self.softcap,
            "lengths": Ref(self.reads[4]) if self.spec.lengths is not None else 0, "offset": size(self.before),
            "left": self.left, "right": self.right, "scratch": Ref(SCRATCH),
        }  # fmt: skip

    def _scale(self, shape: AttentionShape) -> float:
        return self.scale if self.scale is not None else 1.0 / math.sqrt(max(1, shape.size))

    def _packing(self, target: Target, keys: str, values: str, size: Sizes, threads: int) -> Sequence[Argument]:
        k, v = (self._attended(i, size) for i in (1, 2))
        shape = self._lane_shape(target, size)
        return attention_arguments.lane_pack_args(
            self.spec, target, shape, k=k, v=v, k_out=Ref(keys), v_out=Ref(values), scale=self._scale(shape),
            lengths=Ref(self.reads[4]) if self.spec.lengths is not None else 0,
        )  # fmt: skip

    def _scratch_nbytes(self, target: Target, size: Sizes, threads: int) -> int:
        shape = self._row_shape(target, size)
        return attention_arguments.scratch_nbytes(shape, target, threads) if shape.batch else 0

    def _lane_scratch_nbytes(self, target: Target, size: Sizes, threads: int) -> int:
        shape = self._lane_shape(target, size)
        return attention_arguments.lane_scratch_nbytes(shape, target, threads) if shape.batch else 0

    def _is_small(self, size: Sizes) -> bool:
        return _products(self._shape(size)) < _SERIAL_PRODUCTS

    def _row_shares(self, target: Target, size: Sizes) -> float:
        return _products(self._row_shape(target, size)) / SHARE_PRODUCTS

    def _lane_shares(self, target: Target, size: Sizes) -> float:
        return _products(self._lane_shape(target, size)) / SHARE_PRODUCTS

    def _row_shape(self, target: Target, size: Sizes) -> AttentionShape:
        """What the kernel for few queries computes: nothing where there are many."""
        shape = self._shape(size)
        return shape if shape.queries < attention_arguments.least_in_lanes(target) else replace(shape, batch=0)

    def _lane_shape(self, target: Target, size: Sizes) -> AttentionShape:
        shape = self._shape(size)
        return shape if shape.queries >= attention_arguments.least_in_lanes(target) else replace(shape, batch=0)

    @cached_property
    def _dims(self) -> tuple[Dim, ...]:
        """`AttentionShape` before sizes are known."""
        (_, heads, queries, width), (_, kv_heads, keys, _) = self.views[0].shape, self.views[1].shape
        assert self.output.shape is not None
        return self.output.shape[0], heads, kv_heads, queries, keys + self.before, width, self.views[2].shape[3]

    def _shape(self, size: Sizes) -> AttentionShape:
        return AttentionShape(*map(size, self._dims))

    def _join(self, target: Target, workspace: Workspace, which: int) -> Step:
        """Past keys (or values) and those of this call, one behind the other for each head."""
        batch, heads, rows, width = self.views[which].shape
        past, out = self.reads[4 + which], self.joined[which - 1]
        if out not in self.outputs:
            workspace.temporary(out, DType.FLOAT, (batch, heads, self.before + rows, width))
        reads = tuple(dict.fromkeys(n for n in (past, self.reads[which]) if n))
        label = f"append {('keys', 'values')[which - 1]}"
        return Step(append_kv_kernel.kernel_text(target), reads, (out,), partial(self._append, which), label=label)

    def _append(self, which: int, size: Sizes, threads: int) -> Sequence[Argument]:
        batch, heads, rows, width = (size(d) for d in self.views[which].shape)
        past, out = self.reads[4 + which], self.joined[which - 1]
        return append_kv_kernel.append_args(
            Ref(past) if past else 0, self._heads(which, size), Ref(out), batch=batch, heads=heads,
            past_rows=size(self.before), rows=rows, size=width,
            streamed=streamed_nbytes() if out in self.outputs else MOST_BYTES,
        )  # fmt: skip

    def _attended(self, which: int, size: Sizes) -> Heads:
        """Q, or all keys or values."""
        name = self.joined[which - 1] if which else ""
        if not name:
            return self._heads(which, size)
        _, heads, rows, width = (size(d) for d in self.views[which].shape)
        row, head = 4 * width, 4 * width * (rows + size(self.before))
        return Heads(Ref(name), head * heads, head, row)

    def _heads(self, which: int, size: Sizes) -> Heads:
        view = self.views[which]
        address = Ref(self.reads[which], 4 * size(view.offset))
        batch, head, row = (4 * size(s) for s in view.strides)
        return Heads(address, batch if size(view.shape[0]) > 1 else 0, head, row)

    def _out(self, out: str, shape: AttentionShape) -> Heads:
        _, heads, _, queries, _, _, vsize = vars(shape).values()
        head, row = (vsize, heads * vsize) if len(self.output.shape or ()) == 3 else (queries * vsize, vsize)
        return Heads(Ref(out), 4 * heads * queries * vsize, 4 * head, 4 * row)

    def _mask(self, shape: AttentionShape, size: Sizes) -> Heads | None:
        """Strides of the mask, 0 along axes that it broadcasts."""
        if self.mask is None:
            return None
        dims = [1] * (4 - len(self.mask)) + [size(d) for d in self.mask]
        wanted = (shape.batch, shape.heads, shape.queries, shape.keys)
        for have, want in zip(dims, wanted, strict=True):
            if have not in (1, want):
                raise NodeFailed(
                    f"node {self.node.name!r} ({self.node.qualified_op}): the mask has shape"
                    f" {dims[4 - len(self.mask) :]}, which does "
                    f"not broadcast to [batch, heads, queries, keys] = {list(wanted)}; give 1 or the full size along each axis"
                )
        itemsize = 4 if self.spec.mask == "float" else 1
        strides = [itemsize * math.prod(dims[axis + 1 :]) if dims[axis] > 1 else 0 for axis in range(3)]
        return Heads(Ref(self.reads[3]), *strides)


def _products(shape: AttentionShape) -> int:
    return shape.batch * shape.heads * shape.queries * shape.keys * (shape.size + shape.vsize)


# --- which nodes --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Positions:
    """Which inputs of the node are what (Q, K and V are the first three)."""

    mask: int
    past: tuple[int, int]
    lengths: int | None = None

    def __iter__(self) -> Iterator[int | None]:
        """In the order of `Attention.reads`."""
        return iter((0, 1, 2, self.mask, self.lengths, *self.past))


def attention(node: Node, inference: Inference) -> Template | None:
    """Attention (since 23) of float32 whose mask covers all keys, and whose scores are not asked for."""
    a = node.attributes
    if a.get("softmax_precision") == DType.DOUBLE:
        return None
    left, right = a.get("left_window_size", -1), 0 if a.get("is_causal", 0) else a.get("right_window_size", -1)
    lengths, past = (len(node.inputs) > i and bool(node.inputs[i]) for i in (6, 4))
    spec = AttentionSpec(
        bounded=left >= 0 or right >= 0, softcap=a.get("softcap", 0.0) > 0, lengths=DType.INT64 if lengths else None,
        trailing=lengths and not past,
    )  # fmt: skip
    heads = (a.get("q_num_heads"), a.get("kv_num_heads"), a.get("kv_num_heads"))
    return _matched(
        node, inference, heads, spec, _Positions(3, (4, 5), 6), scale=a.get("scale"), softcap=a.get("softcap", 0.0),
        left=min(left, UNBOUNDED) if left >= 0 else UNBOUNDED, right=min(right, UNBOUNDED) if right >= 0 else UNBOUNDED,
    )  # fmt: skip


def multi_head_attention(node: Node, inference: Inference) -> Template | None:
    """MultiHeadAttention of separate 3-D operands without bias and padding mask."""
    a = node.attributes
    given = {i for i, name in enumerate(node.inputs) if name}
    if not {0, 1, 2} <= given <= {0, 1, 2, 5, 6, 7}:
        return None
    if any(t is None or t.rank != 3 for t in tensor_types(node, inference)[:3]):
        return None
    causal = bool(a.get("unidirectional", 0))
    return _matched(
        node, inference, (a.get("num_heads"),) * 3, AttentionSpec(bounded=causal), _Positions(5, (6, 7)),
        scale=a.get("scale", 0.0) or None, right=0 if causal else UNBOUNDED,
    )  # fmt: skip


def grouped_attention(node: Node, inference: Inference) -> Template | None:
    """What GroupQueryAttention attends with: 3-D queries, 4-D caches."""
    a = node.attributes
    left, causal = a["left"], bool(a["causal"])
    spec = AttentionSpec(bounded=causal or left >= 0, softcap=a["softcap"] > 0, lengths=DType.INT64, trailing=True)
    return _matched(
        node, inference, (a["num_heads"], None, None), spec, _Positions(4, (5, 6), 3), mixed=True, scale=a["scale"] or None,
        softcap=a["softcap"], left=min(left, UNBOUNDED) if left >= 0 else UNBOUNDED, right=0 if causal else UNBOUNDED,
    )  # fmt: skip


def _matched(
    node: Node, inference: Inference, heads: Sequence[int | None], spec: AttentionSpec, positions: _Positions,
    mixed: bool = False, scale: float | None = None, softcap: float = 0.0, **more: Any,
) -> Template | None:  # fmt: skip
    if not all(_is_moderate(x) for x in (scale or 1.0, softcap if spec.softcap else 1.0)):
        return None
    given = tensor_types(node, inference)
    types = tuple(given[i] if i is not None and i < len(given) else None for i in positions)
    names = [node.inputs[i] if i is not None and i < len(node.inputs) else "" for i in positions]
    out = inference.types.get(node.outputs[0])
    ranks = {t.rank if t else None for t in types[:3]}
    if not isinstance(out, TensorType) or not out.shape or any(node.outputs[3:]) or (len(ranks) > 1 and not mixed):
        return None
    found = [_view(names[i], types[i], heads[i], inference) for i in range(3)]
    views = tuple(f[1] for f in found if f)
    if len(views) < 3 or bool(names[5]) != bool(names[6]) or any(bool(n) != bool(t) for n, t in zip(names, types, strict=True)):
        return None
    before = _rows(types[5:])
    if before is None:
        return None
    mask = types[3]
    if mask is not None:
        if mask.dtype not in (DType.FLOAT, DType.BOOL) or not mask.shape or len(mask.shape) > 4:
            return None
        if mask.shape[-1] != views[1].shape[2] + before:
            return None
        spec = replace(spec, mask="float" if mask.dtype is DType.FLOAT else "bool")
    made = Attention(
        node, (*(f[0] for f in found if f), *names[3:]), types, out, takes_epilogue=False, views=views,
        joined=_joined(node, bool(names[5])), before=before, mask=mask.shape if mask else None, spec=spec, scale=scale,
        softcap=softcap, **more,
    )  # fmt: skip
    return made if made.fits() else None


def _is_moderate(factor: float) -> bool:
    """Whether the kernels may multiply by it, and divide, where it suits them: queries or keys, times log2(e), not the scores.

    Beyond that, products of numbers of any usual size are infinite or 0 on one way and not on another; the definition is
    compiled as it stands then.
    """
    return _LEAST_FACTOR <= abs(factor) <= 1 / _LEAST_FACTOR


def _rows(past: Sequence[TensorType | None]) -> Dim | None:
    """How many keys past operands [batch, heads, rows, size] have (0: there are none), None if they do not fit."""
    if any(t is not None and (t.dtype is not DType.FLOAT or t.shape is None or len(t.shape) != 4) for t in past):
        return None
    return past[0].shape[2] if past[0] is not None and past[0].shape is not None else 0


def _joined(node: Node, past: bool) -> tuple[str, str]:
    names = (*node.outputs, "", "")[1:3]
    if not past:
        return names[0], names[1]
    return names[0] or f"{node.outputs[0]}%keys", names[1] or f"{node.outputs[0]}%values"


def _view(name: str, kind: TensorType | None, heads: int | None, inference: Inference) -> tuple[str, View] | None:
    """The buffer that holds an operand, and where its heads lie in it."""
    if kind is None or kind.dtype is not DType.FLOAT or kind.shape is None:
        return None
    producer = inference.producer(name)
    if len(kind.shape) == 4:
        batch, count, rows, size = kind.shape
        shape = (batch, count, rows, size)
        if producer is not None and producer.op_type == "Transpose" and producer.attributes.get("perm") == _HEADS_TO_FRONT:
            return producer.inputs[0], View(shape, 0, (rows * count * size, size, count * size))
        return name, View(shape, 0, (count * rows * size, rows * size, size))
    if len(kind.shape) != 3 or not heads or not isinstance(kind.shape[2], int) or kind.shape[2] % heads:
        return None
    batch, rows, width = kind.shape
    source, start, whole = _columns(name, producer, inference) or (name, 0, width)
    size = width // heads
    return source, View((batch, heads, rows, size), start, (rows * whole, size, whole))


def _columns(name: str, producer: Node | None, inference: Inference) -> tuple[str, int, int] | None:
    """(source, first column, columns of the source), where `name` is some neighbouring columns of a 3-D source."""
    if producer is None or producer.op_type not in ("Split", "Slice"):
        return None
    source, part = inference.types.get(producer.inputs[0]), inference.types.get(name)
    if not isinstance(source, TensorType) or not isinstance(part, TensorType) or source.shape is None or part.shape is None:
        return None
    whole = source.shape[-1]
    if not isinstance(whole, int) or len(source.shape) != 3 or source.shape[:2] != part.shape[:2]:
        return None
    start = _split_start(name, producer, inference) if producer.op_type == "Split" else _slice_start(producer, whole, inference)
    return None if start is None else (producer.inputs[0], start, whole)


def _split_start(name: str, split: Node, inference: Inference) -> int | None:
    if split.attributes.get("axis", 0) not in (-1, 2):
        return None
    start = 0
    for output in split.outputs:
        if output == name:
            return start
        kind = inference.types.get(output)
        width = kind.shape[-1] if isinstance(kind, TensorType) and kind.shape else None
        if not isinstance(width, int):
            return None
        start += width
    return None


def _slice_start(node: Node, whole: int, inference: Inference) -> int | None:
    constants = inference.graph.constants
    operands = [constants.get(n) for n in node.inputs[1:]]
    if len(operands) < 3 or any(c is None or c.size != 1 for c in operands):
        return None
    start, _, axis, *step = (int(c.numpy().reshape(-1)[0]) for c in operands if c is not None)
    if axis not in (-1, 2) or step not in ([], [1]):
        return None
    return min(max(start + whole if start < 0 else start, 0), whole)
