"""Attention as calls of the fused kernel: ONNX's Attention, and com.microsoft's MultiHeadAttention where it is the same.

Operands are read where they lie: heads are found by strides, in [batch, sequence, heads * size] as well as in [batch,
heads, sequence, size], and so are a Split or Slice of columns and a Transpose of heads before the node, which then need
no kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from intarsia.codegen import attention as template
from intarsia.codegen.attention import UNBOUNDED, AttentionShape, AttentionSpec, Heads
from intarsia.codegen.epilogue import Epilogue
from intarsia.codegen.microkernel import micro_address
from intarsia.codegen.target import Target
from intarsia.errors import InvalidArgument
from intarsia.graph.dims import Dim, Shape
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.ops.infer import Inference
from intarsia.plan.step import SCRATCH, Ref, Sizes, Step
from intarsia.providers.cpu.template import FusedOperand, Template, Workspace, tensor_types

_HEADS_TO_FRONT = [0, 2, 1, 3]
_SERIAL_PRODUCTS = 40_000  # multiplications that are not worth waking other threads for


@dataclass(frozen=True)
class View:
    """[batch, heads, rows, size] in a buffer, its last axis dense: the first element, and the others' strides in elements."""

    shape: tuple[Dim, Dim, Dim, Dim]
    offset: Dim
    strides: tuple[Dim, Dim, Dim]


@dataclass(frozen=True)
class Attention(Template):
    """One node. `reads`: buffers of Q, K, V, the mask and the numbers of keys, as far as they are there."""

    views: tuple[View, ...] = ()
    mask: Shape | None = None
    spec: AttentionSpec = field(default_factory=AttentionSpec)
    scale: float | None = None
    softcap: float = 0.0
    offset: Dim = 0
    left: int = UNBOUNDED
    right: int = UNBOUNDED

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        assert epilogue is None and not operands
        table = workspace.add("", "attention_taps", lambda: np.array(template.taps(target), np.int64))
        micro, turn = micro_address(DType.FLOAT, target), template.turn_address(target)
        names = [n for n in self.reads if n]

        def arguments(size: Sizes, threads: int) -> Sequence[Ref | int]:
            shape = self._shape(size)
            q, k, v = (self._heads(i, size) for i in range(3))
            scale = self.scale if self.scale is not None else 1.0 / math.sqrt(max(1, shape.size))
            lengths: int | Ref = Ref(self.reads[4]) if self.spec.lengths is not None else 0
            return template.attention_args(
                self.spec, target, shape, threads, micro=micro, turn=turn, q=q, k=k, v=v, out=self._out(out, shape),
                mask=self._mask(shape, size), lengths=lengths, scale=scale, softcap=self.softcap,  # type: ignore[arg-type]
                offset=size(self.offset), left=self.left, right=self.right,
                scratch=Ref(SCRATCH), taps=Ref(table),  # type: ignore[arg-type]
            )  # fmt: skip

        return [
            Step(
                template.kernel_text(self.spec, target), (*dict.fromkeys(names), table), (out,), arguments,
                scratch_nbytes=lambda size, threads: template.scratch_nbytes(self._shape(size), target, threads),
                serial=lambda size: _products(self._shape(size)) < _SERIAL_PRODUCTS,
                label=f"attention {self.views[0].shape[1]}x{self.views[0].shape[2]}x{self.views[1].shape[2]}",
            )
        ]  # fmt: skip

    def _shape(self, size: Sizes) -> AttentionShape:
        (_, heads, queries, width), (_, kv_heads, keys, _) = self.views[0].shape, self.views[1].shape
        assert self.output.shape is not None
        batch, vsize = self.output.shape[0], self.views[2].shape[3]
        return AttentionShape(*(size(d) for d in (batch, heads, kv_heads, queries, keys, width, vsize)))

    def _heads(self, which: int, size: Sizes) -> Heads:
        view = self.views[which]
        address = Ref(self.reads[which], 4 * size(view.offset))
        batch, head, row = (4 * size(s) for s in view.strides)
        return Heads(address, batch if size(view.shape[0]) > 1 else 0, head, row)  # type: ignore[arg-type]

    def _out(self, out: str, shape: AttentionShape) -> Heads:
        _, heads, _, queries, _, _, vsize = vars(shape).values()
        head, row = (vsize, heads * vsize) if len(self.output.shape or ()) == 3 else (queries * vsize, vsize)
        return Heads(Ref(out), 4 * heads * queries * vsize, 4 * head, 4 * row)  # type: ignore[arg-type]

    def _mask(self, shape: AttentionShape, size: Sizes) -> Heads | None:
        """Strides of the mask, 0 along axes that it broadcasts."""
        if self.mask is None:
            return None
        dims = [1] * (4 - len(self.mask)) + [size(d) for d in self.mask]
        wanted = (shape.batch, shape.heads, shape.queries, shape.keys)
        for have, want in zip(dims, wanted, strict=True):
            if have not in (1, want):
                raise InvalidArgument(
                    f"node {self.node.name!r} ({self.node.qualified_op}): the mask has shape"
                    f" {dims[4 - len(self.mask) :]}, which does "
                    f"not broadcast to [batch, heads, queries, keys] = {list(wanted)}; give 1 or the full size along each axis"
                )
        itemsize = 4 if self.spec.mask == "float" else 1
        strides = [itemsize * math.prod(dims[axis + 1 :]) if dims[axis] > 1 else 0 for axis in range(3)]
        return Heads(Ref(self.reads[3]), *strides)  # type: ignore[arg-type]


def _products(shape: AttentionShape) -> int:
    return shape.batch * shape.heads * shape.queries * shape.keys * (shape.size + shape.vsize)


# --- which nodes --------------------------------------------------------------------------------------------------


def attention(node: Node, inference: Inference) -> Template | None:
    """Attention (since 23) of float32 with one output and no past, whose mask covers all keys."""
    attributes = node.attributes
    types = tensor_types(node, inference)
    if any(node.outputs[1:]) or any(node.inputs[4:6]) or attributes.get("softmax_precision") == DType.DOUBLE:
        return None
    heads = (attributes.get("q_num_heads"), *[attributes.get("kv_num_heads")] * 2)
    lengths = types[6] if len(types) > 6 else None
    left, right = attributes.get("left_window_size", -1), attributes.get("right_window_size", -1)
    if attributes.get("is_causal", 0):
        right = 0
    spec = AttentionSpec(
        bounded=left >= 0 or right >= 0, softcap=attributes.get("softcap", 0.0) > 0, lengths=lengths.dtype if lengths else None,
        trailing=lengths is not None,
    )  # fmt: skip
    return _matched(
        node, inference, heads, spec, mask=3, lengths=6, scale=attributes.get("scale"), softcap=attributes.get("softcap", 0.0),
        left=left if left >= 0 else UNBOUNDED, right=right if right >= 0 else UNBOUNDED,
    )  # fmt: skip


def multi_head_attention(node: Node, inference: Inference) -> Template | None:
    """MultiHeadAttention of separate 3-D operands without bias, padding mask and past."""
    attributes = node.attributes
    given = [i for i, name in enumerate(node.inputs) if name]
    if given not in ([0, 1, 2], [0, 1, 2, 5]) or any(node.outputs[1:]):
        return None
    if any(t is None or t.shape is None or len(t.shape) != 3 for t in tensor_types(node, inference)[:3]):
        return None
    causal = bool(attributes.get("unidirectional", 0))
    heads = (attributes.get("num_heads"),) * 3
    return _matched(
        node, inference, heads, AttentionSpec(bounded=causal), mask=5, scale=attributes.get("scale", 0.0) or None,
        right=0 if causal else UNBOUNDED,
    )  # fmt: skip


def _matched(
    node: Node, inference: Inference, heads: Sequence[int | None], spec: AttentionSpec, *, mask: int, lengths: int = -1,
    scale: float | None = None, softcap: float = 0.0, left: int = UNBOUNDED, right: int = UNBOUNDED,
) -> Template | None:  # fmt: skip
    types = tensor_types(node, inference)
    out = inference.types.get(node.outputs[0])
    ranks = {t.rank if t else None for t in types[:3]}
    if len(types) < 3 or not isinstance(out, TensorType) or not out.shape or len(ranks) > 1:
        return None
    found = [_view(node.inputs[i], types[i], heads[i], inference) for i in range(3)]
    sources, views = [f[0] for f in found if f], tuple(f[1] for f in found if f)
    if len(views) < 3 or not _fit(*(v.shape for v in views)):
        return None
    hidden = types[mask] if len(types) > mask else None
    reads = [*sources, "", ""]
    if hidden is not None:
        if hidden.dtype not in (DType.FLOAT, DType.BOOL) or not hidden.shape or len(hidden.shape) > 4:
            return None
        if hidden.shape[-1] != views[1].shape[2]:
            return None
        reads[3] = node.inputs[mask]
        kind = "float" if hidden.dtype is DType.FLOAT else "bool"
        spec = AttentionSpec(kind, spec.bounded, spec.softcap, spec.lengths, spec.trailing)
    if spec.lengths is not None:
        reads[4] = node.inputs[lengths]
    return Attention(
        node, tuple(reads), types, out, takes_epilogue=False, views=views, mask=hidden.shape if hidden else None, spec=spec,
        scale=scale, softcap=softcap, left=left, right=right,
    )  # fmt: skip


def _fit(q: tuple[Dim, ...], k: tuple[Dim, ...], v: tuple[Dim, ...]) -> bool:
    """Whether sizes are known to fit, and groups of heads to be even."""
    if q[0] != k[0] or k[:3] != v[:3] or q[3] != k[3]:
        return False
    return q[1] == k[1] or (isinstance(q[1], int) and isinstance(k[1], int) and k[1] > 0 and q[1] % k[1] == 0)


def _view(name: str, kind: TensorType | None, heads: int | None, inference: Inference) -> tuple[str, View] | None:
    """The buffer that holds an operand, and where its heads lie in it."""
    if kind is None or kind.dtype is not DType.FLOAT or kind.shape is None:
        return None
    producer = inference.graph.producers().get(name)
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
