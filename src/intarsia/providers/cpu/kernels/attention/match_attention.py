"""Which nodes the attention kernels take: ONNX's Attention, com.microsoft's MultiHeadAttention where it is the same, and what
GroupQueryAttention is decomposed into.

Operands are read where they lie: heads are found by strides, in [batch, sequence, heads * size] as well as in [batch,
heads, sequence, size], and so are a Split or Slice of columns and a Transpose of heads before the node, which then need
no kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.cpu.kernels.attention.attention import Attention
from intarsia.providers.cpu.kernels.attention.attention_arguments import UNBOUNDED, AttentionSpec, Scoring
from intarsia.providers.cpu.kernels.attention.attention_calls import View
from intarsia.providers.cpu.kernels.common.template import Template
from intarsia.providers.cpu.kernels.common.tensor_spec import TensorSpec, operand_specs, result_spec, spec_of

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference

_HEADS_TO_FRONT = [0, 2, 1, 3]
_LEAST_FACTOR = 2.0**-60  # of scores


@dataclass(frozen=True)
class _Inputs:
    """Which inputs of the node are what (Q, K and V are the first three), and how many heads those have where they are 3-D
    (`mixed`: Q may be 3-D where K and V are 4-D)."""

    heads: tuple[int | None, int | None, int | None]
    mask: int
    past: tuple[int, int]
    lengths: int | None = None
    mixed: bool = False

    def __iter__(self) -> Iterator[int | None]:
        """In the order of `Attention.reads`."""
        return iter((0, 1, 2, self.mask, self.lengths, *self.past))


def attention(node: Node, inference: Inference) -> Template | None:
    """Attention (since 23) of float32 whose mask covers all keys, and whose scores are no output."""
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
    scoring = Scoring(a.get("scale"), a.get("softcap", 0.0), _window(left), _window(right))
    return _matched(node, inference, spec, _Inputs(heads, 3, (4, 5), 6), scoring)


def multi_head_attention(node: Node, inference: Inference) -> Template | None:
    """MultiHeadAttention of separate 3-D operands without bias and padding mask."""
    a = node.attributes
    given = {i for i, name in enumerate(node.inputs) if name}
    if not {0, 1, 2} <= given <= {0, 1, 2, 5, 6, 7}:
        return None
    if any(t is None or t.rank != 3 for t in operand_specs(node, inference)[:3]):
        return None
    causal, heads = bool(a.get("unidirectional", 0)), a.get("num_heads")
    scoring = Scoring(a.get("scale", 0.0) or None, right=0 if causal else UNBOUNDED)
    return _matched(node, inference, AttentionSpec(bounded=causal), _Inputs((heads, heads, heads), 5, (6, 7)), scoring)


def grouped_attention(node: Node, inference: Inference) -> Template | None:
    """Operands of GroupQueryAttention: 3-D queries, 4-D caches."""
    a = node.attributes
    left, causal = a["left"], bool(a["causal"])
    spec = AttentionSpec(bounded=causal or left >= 0, softcap=a["softcap"] > 0, lengths=DType.INT64, trailing=True)
    scoring = Scoring(a["scale"] or None, a["softcap"], _window(left), 0 if causal else UNBOUNDED)
    return _matched(node, inference, spec, _Inputs((a["num_heads"], None, None), 4, (5, 6), 3, mixed=True), scoring)


def _window(size: int) -> int:
    """A window's size in ONNX, where -1 hides nothing."""
    return min(size, UNBOUNDED) if size >= 0 else UNBOUNDED


def _matched(
    node: Node, inference: Inference, spec: AttentionSpec, inputs: _Inputs, scoring: Scoring
) -> Template | None:  # fmt: skip
    if not all(_is_moderate(x) for x in (scoring.scale or 1.0, scoring.softcap if spec.softcap else 1.0)):
        return None
    given = operand_specs(node, inference)
    types = tuple(given[i] if i is not None and i < len(given) else None for i in inputs)
    names = [node.inputs[i] if i is not None and i < len(node.inputs) else "" for i in inputs]
    out = result_spec(node, inference)
    ranks = {t.rank if t else None for t in types[:3]}
    if out is None or not out.shape or any(node.outputs[3:]) or (len(ranks) > 1 and not inputs.mixed):
        return None
    found = [_view(names[i], types[i], inputs.heads[i], inference) for i in range(3)]
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
        appended=_appended(node, bool(names[5])), before=before, mask=mask.shape if mask else None, spec=spec, scoring=scoring,
    )  # fmt: skip
    return made if made.fits() else None


def _is_moderate(factor: float) -> bool:
    """Whether the kernels may multiply by it, and divide, where it suits them: queries or keys, times log2(e), not the scores.

    Beyond that, products of numbers of any usual size are infinite or 0 on one way and not on another; the definition is
    compiled as it stands then.
    """
    return _LEAST_FACTOR <= abs(factor) <= 1 / _LEAST_FACTOR


def _rows(past: Sequence[TensorSpec | None]) -> Dim | None:
    """How many keys past operands [batch, heads, rows, size] have (0: there are none), None if they do not fit."""
    if any(t is not None and (t.dtype is not DType.FLOAT or len(t.shape) != 4) for t in past):
        return None
    return past[0].shape[2] if past[0] is not None else 0


def _appended(node: Node, past: bool) -> tuple[str, str]:
    names = (*node.outputs, "", "")[1:3]
    if not past:
        return names[0], names[1]
    return names[0] or f"{node.outputs[0]}%keys", names[1] or f"{node.outputs[0]}%values"


def _view(name: str, kind: TensorSpec | None, heads: int | None, inference: Inference) -> tuple[str, View] | None:
    """The buffer that holds an operand, and where its heads lie in it."""
    if kind is None or kind.dtype is not DType.FLOAT:
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
    source, part = spec_of(inference.types.get(producer.inputs[0])), spec_of(inference.types.get(name))
    if source is None or part is None:
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
