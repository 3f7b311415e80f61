"""Rules that recognise scaled dot-product attention, bring it into the form without head transposes, and share KV heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia.graph.dims import Shape
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.passes.analysis.mask_patterns import is_causal_bias, is_causal_mask, unexpanded
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch, Rewriter
from intarsia.passes.rule import Const, Match, Pattern, Rule, RuleSet, Var, op
from intarsia.passes.rules.simplify_shapes import reshape_target

_LOW = -1e8  # adding this or less to a score in float32 leaves nothing of the score, so Where(m, s, low) = s + Where(m, 0, low)
_HALF_LOW = -6e4  # the same in float16
_CAUSAL_LOW = -9e3  # a causal row always has a key that is not hidden, and exp(low - its score) is 0
_HEADS_TO_FRONT = [0, 2, 1, 3]
_MATRIX_TRANSPOSED = [0, 1, 3, 2]


def _unscaled(rewriter: Rewriter, name: str) -> tuple[str, float]:
    """The value before multiplications and divisions by constants, and the factor that they apply."""
    factor = 1.0
    while (node := rewriter.producer_of(name, "Mul", "Div")) is not None:
        a, b = node.inputs
        c = rewriter.scalar(b)
        if node.op_type == "Mul" and c is None:
            a, c = b, rewriter.scalar(a)
        if c is None or not c or not math.isfinite(c) or rewriter.shape(a) != rewriter.shape(name):
            break
        factor = factor * c if node.op_type == "Mul" else factor / c
        name = a
    return name, factor


def _key(m: Match) -> tuple[str, float, Node] | None:
    """The keys before they were transposed (their name), the scale on them, and the Transpose."""
    rewriter = m.rewriter
    name, outer = _unscaled(rewriter, m["k"])
    node = rewriter.producer_of(name, "Transpose")
    if node is None or rewriter.rank(name) != 4:
        return None
    return name, outer, node


def _fuse(m: Match) -> Patch | None:
    rewriter = m.rewriter
    if any(rewriter.rank(m[n]) != 4 for n in "qkv") or not _softmax_over_keys(rewriter, m.node("softmax")):
        return None
    found = _key(m)
    if found is None:
        return None
    turned, scale, turn = found
    q, q_scale = _unscaled(rewriter, m["q"])
    dtype = rewriter.dtype(q)
    shapes = [rewriter.shape(n) for n in (q, turned, m["v"])]
    if len({s[1] for s in shapes if s is not None}) != 1 or dtype not in (
        DType.FLOAT,
        DType.FLOAT16,
        DType.BFLOAT16,
        DType.DOUBLE,
    ):
        return None
    patch = m.patch()
    # Where the turn mixed in other axes, the new Transpose merges with it (rule merge_transposes).
    key = (
        turn.inputs[0]
        if turn.attributes.get("perm") == _MATRIX_TRANSPOSED
        else patch.op("Transpose", [turned], perm=_MATRIX_TRANSPOSED)
    )
    key, k_scale = _unscaled(rewriter, key) if key in rewriter.types else (key, 1.0)
    total = scale * q_scale * k_scale * _score_scale(m)
    attributes: dict[str, Any] = {"scale": total}
    if "wide" in m.captured:
        attributes["softmax_precision"] = int(DType.FLOAT)
    mask = _mask(m, patch, dtype, attributes)
    if mask is None:
        return None
    return patch.result(patch.op("Attention", [q, key, m["v"], mask], **attributes), m.root.outputs[0])


def _softmax_over_keys(rewriter: Rewriter, softmax: Node) -> bool:
    axis = softmax.attributes.get("axis", -1 if softmax.version >= 13 or not softmax.version else 1)
    return axis in (-1, 3)


def _score_scale(m: Match) -> float:
    if "scale" not in m:
        return 1.0
    c = m.scalar("scale") or 1.0
    return 1.0 / c if "divided" in m.captured else c


def _mask(m: Match, patch: Patch, dtype: DType, attributes: dict[str, Any]) -> str | None:
    """The attn_mask operand ("" for none); sets `is_causal` where the mask is proven to be the causal one."""
    rewriter = m.rewriter
    if "bias" in m:
        bias = unexpanded(rewriter, m["bias"])
        if is_causal_bias(rewriter, bias):
            attributes["is_causal"] = 1
            return ""
        if rewriter.dtype(bias) != dtype or not _broadcasts(rewriter, m["bias"], m):
            return None
        return bias
    if "condition" not in m:
        return ""
    condition, low = unexpanded(rewriter, m["condition"]), m.scalar("low")
    hidden = "hides" in m.captured
    if low is None or not _broadcasts(rewriter, m["condition"], m):
        return None
    if not hidden and low <= _CAUSAL_LOW and is_causal_mask(rewriter, condition):
        attributes["is_causal"] = 1
        return ""
    if low > (_HALF_LOW if dtype is DType.FLOAT16 else _LOW):
        return None
    if math.isinf(low) and not hidden:
        return condition
    zero = patch.constant(np.zeros((), dtype.numpy), "zero")
    choices = [m["low"], zero] if hidden else [zero, m["low"]]
    return patch.op("Where", [condition, *choices])


def _broadcasts(rewriter: Rewriter, mask: str, m: Match) -> bool:
    """Whether the mask leaves the scores' shape as it is."""
    rank = rewriter.rank(mask)
    scores = m.node("scores").outputs[0]
    last = m.node("softmax").inputs[0]
    return rank is not None and 2 <= rank <= 4 and rewriter.shape(scores) == rewriter.shape(last)


def _split_heads(rewriter: Rewriter, name: str) -> tuple[str, Shape, Node | None] | None:
    """The value [B, S, H*D] (or a view of it) and [B, S, H, D] of which `name` [B, H, S, D] is a transpose.

    The third is a RotaryEmbedding between the two.
    """
    rotary = rewriter.producer_of(name, "RotaryEmbedding")
    if rotary is not None:
        name = rotary.inputs[0]
    turn = rewriter.producer_of(name, "Transpose")
    if turn is None or turn.attributes.get("perm") != _HEADS_TO_FRONT:
        return None
    view = rewriter.producer_of(turn.inputs[0], "Reshape", "Unsqueeze", "Squeeze")
    shape = rewriter.shape(turn.inputs[0])
    if view is None or shape is None or len(shape) != 4 or not isinstance(shape[2], int) or not isinstance(shape[3], int):
        return None
    return view.inputs[0], shape, rotary


def _join_heads(m: Match) -> Patch | None:
    """Attention over [B, S, H*D] operands: the heads are split and joined inside."""
    rewriter, node = m.rewriter, m.node("attention")
    if (
        m.node("turn").attributes.get("perm") != _HEADS_TO_FRONT
        or len([o for o in node.outputs if o]) != 1
        or len(node.inputs) > 4
    ):
        return None
    split = [_split_heads(rewriter, n) for n in node.inputs[:3]]
    if any(s is None for s in split) or "q_num_heads" in node.attributes:
        return None
    patch, operands = m.patch(), []
    for name, shape, rotary in (s for s in split if s is not None):
        whole = (*shape[:2], shape[2] * shape[3])
        before = rewriter.shape(name)
        if before is None:
            return None
        if before != whole:
            target = reshape_target(before, whole)
            if target is None:
                return None
            name = patch.op("Reshape", [name, patch.ints(*target)])
        if rotary is not None:
            name = patch.op("RotaryEmbedding", [name, *rotary.inputs[1:]], **{**rotary.attributes, "num_heads": shape[2]})
        operands.append(name)
    (_, q, _), (_, k, _) = (s for s in split[:2] if s is not None)
    attributes = {**node.attributes, "q_num_heads": q[2], "kv_num_heads": k[2]}
    if isinstance(q[3], int):
        attributes.setdefault("scale", 1 / math.sqrt(q[3]))
    joined = patch.op("Attention", [*operands, *node.inputs[3:]], **attributes)
    v = split[2]
    assert v is not None
    whole = (*q[:2], q[2] * v[1][3])
    if rewriter.shape(m.root.outputs[0]) != whole:
        joined = patch.op("Reshape", [joined, m.root.inputs[1]]) if _rows_only(rewriter, m.root, whole) else ""
    return patch.result(joined, m.root.outputs[0]) if joined else None


def _rows_only(rewriter: Rewriter, reshape: Node, whole: Shape) -> bool:
    """Whether the Reshape's target means the same when it is given [B, S, H*D]: it copies none but the first two axes."""
    target = rewriter.ints(reshape.inputs[1]) if reshape.op_type == "Reshape" and len(reshape.inputs) > 1 else None
    return target is not None and all(t != 0 for t in target[2:])


def _repeated(rewriter: Rewriter, name: str) -> str | None:
    """k [B, G, S, D] where `name` is reshape(expand(k as [B, G, 1, S, D], [B, G, n, S, D]), [B, G*n, S, D])."""
    view = rewriter.producer_of(name, "Reshape")
    expand = rewriter.producer_of(view.inputs[0], "Expand") if view is not None else None
    inner = rewriter.producer_of(expand.inputs[0], "Unsqueeze", "Reshape") if expand is not None else None
    if expand is None or inner is None:
        return None
    k, wide, narrow, out = (rewriter.shape(n) for n in (inner.inputs[0], expand.outputs[0], expand.inputs[0], name))
    if k is None or wide is None or narrow is None or out is None or len(k) != 4 or len(wide) != 5:
        return None
    b, g, s, d = k
    if narrow != (b, g, 1, s, d) or wide[:2] != (b, g) or wide[3:] != (s, d) or out != (b, g * wide[2], s, d):
        return None
    return inner.inputs[0]


def _share_heads(m: Match) -> Patch | None:
    rewriter, node = m.rewriter, m.root
    if "q_num_heads" in node.attributes or len(node.inputs) > 4 or len(node.outputs) > 1:
        return None
    key, value = (_repeated(rewriter, n) for n in node.inputs[1:3])
    if key is None or value is None:
        return None
    return m.replace("Attention", [node.inputs[0], key, value, *node.inputs[3:]], **node.attributes)


def _packed_heads(m: Match) -> Patch | None:
    """One of the parts of x [B, S, P*H*D] seen as [B, S, P, H, D] and turned to [P, B, H, S, D]."""
    rewriter = m.rewriter
    before, split = m.shape("x"), rewriter.shape(m.node("turn").inputs[0])
    if m.node("turn").attributes.get("perm") != [2, 0, 3, 1, 4]:
        return None
    if before is None or split is None or len(before) != 3 or len(split) != 5 or before[:2] != split[:2]:
        return None
    index = _part_index(m)
    if index is None:
        return None
    sizes = [d for d in split[2:] if isinstance(d, int)]
    if len(sizes) != 3:
        return None
    parts, heads, size = sizes
    width, i = heads * size, index % parts
    patch = m.patch()
    part = patch.op("Slice", [m["x"], patch.ints(i * width), patch.ints((i + 1) * width), patch.ints(2)])
    view = patch.op("Reshape", [part, patch.ints(0, 0, heads, size)])
    return patch.result(patch.op("Transpose", [view], perm=_HEADS_TO_FRONT), m.root.outputs[0])


def _part_index(m: Match) -> int | None:
    """Which row the root takes, by Gather, or by Slice and Squeeze of the first axis; None for what is not one row."""
    rewriter, root = m.rewriter, m.root
    if root.op_type == "Gather":
        index = m.scalar("index")
        return None if index is None or rewriter.rank(m["index"]) != 0 or root.attributes.get("axis", 0) != 0 else int(index)
    axes = root.attributes.get("axes") or (rewriter.ints(root.inputs[1]) if len(root.inputs) > 1 else None)
    starts, ends, along, steps = ([rewriter.ints(n) if n else None for n in m.node("part").inputs[1:]] + [None] * 4)[:4]
    if axes is None or list(axes) != [0] or starts is None or ends is None or len(starts) != 1:
        return None
    if along not in (None, [0]) or steps not in (None, [1]) or starts[0] < 0 or ends[0] != starts[0] + 1:
        return None
    return starts[0]


def _drop_expand(m: Match) -> Patch | None:
    node = m.root
    mask = unexpanded(m.rewriter, node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] else ""
    if not mask or mask == node.inputs[3]:
        return None
    patch = m.patch()
    out = m.rewriter.fresh(f"{patch.stem}.attention", patch.types)
    patch.node(
        node.copy(inputs=[*node.inputs[:3], mask, *node.inputs[4:]], outputs=[out, *node.outputs[1:]], origin=patch.origin)
    )
    return patch.result(out, node.outputs[0])


def _drop_zero_mask(m: Match) -> Patch | None:
    node = m.root
    mask = m.rewriter.graph.constants.get(node.inputs[3]) if len(node.inputs) > 3 else None
    if mask is None or not mask.dtype.is_floating or mask.size > _MASK_LIMIT or mask.numpy().any():
        return None
    patch = m.patch()
    out = m.rewriter.fresh(f"{patch.stem}.attention", patch.types)
    inputs = [*node.inputs[:3], "", *node.inputs[4:]]
    while not inputs[-1]:
        inputs.pop()
    patch.node(node.copy(inputs=inputs, outputs=[out, *node.outputs[1:]], origin=patch.origin))
    return patch.result(out, node.outputs[0])


_MASK_LIMIT = 1 << 20  # elements of a mask that are looked at


def _product(scale: Pattern) -> Sequence[Pattern]:
    product = op("MatMul", Var("q"), Var("k"), name="scores")
    return (product, op("Mul", product, scale), op("Div", product, scale, name="divided"))


def _either(options: Sequence[Pattern]) -> Pattern:
    out = options[0]
    for option in options[1:]:
        out = out | option
    return out


_SCORES = _either(_product(Const(name="scale")))
_MASKED = _either(
    (
        _SCORES,
        op("Add", _SCORES, Var("bias")),
        op("Where", Var("condition"), _SCORES, Const(name="low")),
        op("Where", Var("condition"), Const(name="low"), _SCORES, name="hides"),
    )
)
_SOFTMAX = op("Softmax", _MASKED, name="softmax")
_WIDE = op("Cast", op("Softmax", op("Cast", _MASKED, name="wide"), name="softmax"))
_TURNED = op("Transpose", op("Reshape", Var("x")), name="turn")
_GUARDED = op("Where", op("IsNaN", _SOFTMAX), Const(0.0), _SOFTMAX)

RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    (
        # attention(q, k, v) = softmax(scale q k' + bias) v, where rows that are masked throughout give 0
        Rule(
            "fuse_attention",
            (op("MatMul", _SOFTMAX, Var("v")), op("MatMul", _GUARDED, Var("v")), op("MatMul", _WIDE, Var("v"))),
            _fuse,
        ),
        # attention with k and v repeated n times per head = attention with grouped heads
        Rule("attention_shares_heads", op("Attention"), _share_heads, shared=True),
        # masks broadcast inside attention
        Rule("attention_drops_expand", op("Attention"), _drop_expand, shared=True),
        # softmax(x + 0) = softmax(x)
        Rule("attention_drops_zero_mask", op("Attention"), _drop_zero_mask, shared=True),
        # transpose(reshape(x, [b, s, 3, h, d]), [2, 0, 3, 1, 4])[i] = transpose(reshape(x_i, [b, s, h, d]), [0, 2, 1, 3])
        # for x = [x_0, x_1, x_2]
        Rule(
            "unpack_heads",
            (op("Gather", _TURNED, Const(name="index")), op("Squeeze", op("Slice", _TURNED, name="part"))),
            _packed_heads,
            shared=True,
        ),
    ),
)

HEAD_RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    (
        # reshape(transpose(attention(split q, split k, split v))) = attention(q, k, v, num_heads)
        Rule(
            "attention_joins_heads", op("Reshape", op("Transpose", op("Attention", name="attention"), name="turn")), _join_heads
        ),
    ),
)
