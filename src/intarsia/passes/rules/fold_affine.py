"""Rules that move constant scales and shifts into the weights of the linear operator before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Node
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.opset_versions import emitted_version
from intarsia.passes.rewriter import Patch, Rewriter
from intarsia.passes.rule import Const, Match, Rule, RuleSet, Var, op
from intarsia.passes.rules.simplify_shapes import perm_of

_FLOATS = (DType.FLOAT, DType.FLOAT16, DType.DOUBLE, DType.BFLOAT16)
Arrays = tuple[np.ndarray, np.ndarray]  # scale and shift, one element per channel, in float64


def _batch_norm_affine(rewriter: Rewriter, node: Node) -> Callable[[], Arrays] | None:
    """scale / sqrt(var + epsilon) and bias - mean * that, where the node is in inference mode with constant statistics."""
    if node.attributes.get("training_mode", 0) or node.attributes.get("spatial", 1) != 1:
        return None
    if any(rewriter.reader_count(o) for o in node.outputs[1:] if o):
        return None
    constants = [rewriter.constant(n) for n in node.inputs[1:5]]
    if len(constants) < 4 or any(c is None for c in constants):
        return None
    epsilon = float(node.attributes.get("epsilon", 1e-5))

    def compute() -> Arrays:
        scale, bias, mean, var = (c.numpy().astype(np.float64) for c in constants if c is not None)
        factor = scale / np.sqrt(var + epsilon)
        return factor, bias - mean * factor

    return compute


def _channel_affine(m: Match, channels: int, rank: int) -> Callable[[], Arrays] | None:
    """The scale and shift of an Add, Sub, Mul or Div by a constant of one element, or one per channel (axis 1)."""
    rewriter, kind = m.rewriter, m.root.op_type
    constant = rewriter.constant(m["c"])
    if constant is None or constant.dtype not in _FLOATS or len(constant.shape) > rank:
        return None
    padded = (1,) * (rank - len(constant.shape)) + constant.shape
    if padded not in ((1,) * rank, (1, channels) + (1,) * (rank - 2)):
        return None
    if kind in ("Sub", "Div") and m.root.inputs[1] != m["c"]:
        return None

    def compute() -> Arrays:
        c = np.broadcast_to(constant.numpy().astype(np.float64).reshape(-1), (channels,))
        one, zero = np.ones(channels), np.zeros(channels)
        if kind in ("Add", "Sub"):
            return one, c if kind == "Add" else -c
        return c if kind == "Mul" else 1 / c, zero

    return compute


def _scaled(
    patch: Patch, node: Node, affine: Callable[[], Arrays], channels: int, axis: Sequence[int], *, weights: bool
) -> Patch | None:
    """`node` with its weights multiplied per channel along `axis` (of the weights split by groups) and its bias adjusted."""
    rewriter = patch.rewriter
    weight = rewriter.constant(node.inputs[1])
    bias = rewriter.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    if weight is None or weight.dtype not in _FLOATS or len(node.inputs) > 2 and node.inputs[2] and bias is None:
        return None
    if bias is not None and bias.size not in (1, channels):
        return None
    cache: list[Arrays] = []

    def known() -> Arrays:
        if not cache:
            cache.append(affine())
        return cache[0]

    inputs = list(node.inputs[:2])
    if weights:
        inputs[1] = patch.lazy_constant(weight.dtype, weight.shape, lambda: _times(weight, known()[0], axis), "weight")
    inputs.append(patch.lazy_constant(weight.dtype, (channels,), lambda: _shifted(weight, bias, known(), channels), "bias"))
    made = node.copy(
        inputs=inputs, outputs=[patch.rewriter.fresh(f"{patch.stem}.{node.op_type.lower()}", patch.types)], origin=patch.origin
    )
    if made.op_type == "Gemm":
        made.attributes["beta"] = 1.0
    patch.node(made)
    return patch.result(made.outputs[0], next(iter(patch.results), patch.stem))


def _times(weight: Constant, factor: np.ndarray, view: Sequence[int]) -> np.ndarray:
    array = weight.numpy()
    scaled: np.ndarray = (array.astype(np.float64) * factor.reshape(view)).reshape(array.shape).astype(array.dtype)
    return scaled


def _shifted(weight: Constant, bias: Constant | None, affine: Arrays, channels: int) -> np.ndarray:
    factor, shift = affine
    old = np.zeros(channels) if bias is None else np.broadcast_to(bias.numpy().astype(np.float64).reshape(-1), (channels,))
    out: np.ndarray = (old * factor + shift).astype(weight.dtype.numpy)
    return out


def _channels_view(node: Node, weight: Constant) -> tuple[int, list[int]] | None:
    """Output channels, and the shape in which per-channel factors multiply the weights."""
    if node.op_type == "Conv":
        return weight.shape[0], [-1] + [1] * (len(weight.shape) - 1)
    if node.op_type == "Gemm":
        transposed = bool(node.attributes.get("transB", 0))
        return (weight.shape[0], [-1, 1]) if transposed else (weight.shape[1], [1, -1])
    if node.attributes.get("group", 1) != 1:
        return None
    return weight.shape[1], [1, -1] + [1] * (len(weight.shape) - 2)


def _into_linear(m: Match) -> Patch | None:
    rewriter, node = m.rewriter, m.node("linear")
    weight = rewriter.constant(node.inputs[1])
    if weight is None:
        return None
    if node.op_type == "Gemm" and (node.attributes.get("alpha", 1.0) != 1.0 or node.attributes.get("beta", 1.0) != 1.0):
        return None
    found = _channels_view(node, weight)
    if found is None:
        return None
    channels, view = found
    norm = m.root.op_type == "BatchNormalization"
    affine = _batch_norm_affine(rewriter, m.root) if norm else _channel_affine(m, channels, len(weight.shape))
    if affine is None:
        return None
    return _scaled(m.patch(), node, affine, channels, view, weights=norm or m.root.op_type in ("Mul", "Div"))


def _norm_into_matmul(m: Match) -> Patch | None:
    rewriter, node = m.rewriter, m.node("linear")
    weight, affine = rewriter.constant(node.inputs[1]), _batch_norm_affine(rewriter, m.root)
    if weight is None or affine is None or len(weight.shape) != 2 or rewriter.rank(node.outputs[0]) != 2:
        return None
    gemm = Node("Gemm", list(node.inputs), node.outputs, {}, version=emitted_version("Gemm"))
    return _scaled(m.patch(), gemm, affine, weight.shape[1], [1, -1], weights=True)


def _norm_alone(m: Match) -> Patch | None:
    rewriter, node = m.rewriter, m.root
    affine, rank, dtype = _batch_norm_affine(rewriter, node), rewriter.rank(node.inputs[0]), rewriter.dtype(node.inputs[0])
    if affine is None or rank is None or rank < 2 or dtype not in _FLOATS:
        return None
    factor, shift = (a.reshape([-1] + [1] * (rank - 2)).astype(dtype.numpy) for a in affine())
    patch = m.patch()
    scaled = patch.op("Mul", [node.inputs[0], patch.constant(factor, "scale")])
    return patch.result(patch.op("Add", [scaled, patch.constant(shift, "shift")]), node.outputs[0])


def _constant_gemm(m: Match) -> Patch | None:
    """Gemm with alpha, beta and transA applied to the constants among its operands."""
    rewriter, node = m.rewriter, m.root
    changes: dict[int, Callable[[np.ndarray], np.ndarray]] = {}
    attributes = dict(node.attributes)
    a, b, c = (rewriter.constant(node.inputs[i]) if i < len(node.inputs) and node.inputs[i] else None for i in range(3))
    alpha, beta = float(attributes.get("alpha", 1.0)), float(attributes.get("beta", 1.0))
    if alpha != 1.0 and b is not None and b.dtype in _FLOATS:
        changes[1] = lambda x: (x * alpha).astype(x.dtype)
        attributes["alpha"] = 1.0
    if beta != 1.0 and c is not None and c.dtype in _FLOATS:
        changes[2] = lambda x: (x * beta).astype(x.dtype)
        attributes["beta"] = 1.0
    if attributes.get("transA", 0) and a is not None:
        changes[0] = lambda x: np.ascontiguousarray(x.T)
        attributes["transA"] = 0
    if not changes:
        return None
    patch, inputs = m.patch(), list(node.inputs)
    for i, change in changes.items():
        old = (a, b, c)[i]
        assert old is not None
        shape = old.shape[::-1] if i == 0 else old.shape
        inputs[i] = patch.lazy_constant(old.dtype, shape, partial(_changed, old, change), "operand")
    out = rewriter.fresh(f"{patch.stem}.gemm", patch.types)
    patch.node(node.copy(inputs=inputs, outputs=[out], attributes=attributes, origin=patch.origin))
    return patch.result(out, node.outputs[0])


def _affine_before_transpose(m: Match) -> Patch | None:
    """A scale or shift for each channel behind a Transpose, as converters from channels-last frameworks leave it, before it."""
    rewriter, perm, constant = m.rewriter, perm_of(m, "turn"), m.rewriter.constant(m["c"])
    weight = rewriter.constant(m.node("linear").inputs[1])
    if perm is None or constant is None or weight is None or len(constant.shape) > len(perm):
        return None
    rank = len(perm)
    padded, channels = (1,) * (rank - len(constant.shape)) + constant.shape, constant.size
    if padded != tuple(channels if axis == 1 else 1 for axis in perm) or channels == 1:
        return None
    patch = m.patch()
    turned = patch.lazy_constant(
        constant.dtype, (channels, *(1,) * (rank - 2)), lambda: constant.numpy().reshape(-1, *(1,) * (rank - 2)), "channels"
    )
    inputs = [m.node("turn").inputs[0], turned]
    made = patch.op(m.root.op_type, inputs if m.root.inputs[1] == m["c"] else inputs[::-1])
    return patch.result(patch.op("Transpose", [made], perm=perm), m.root.outputs[0])


def _gemm_of_rows(m: Match) -> Patch | None:
    """x [..., k] seen as rows, multiplied, and seen as [..., n] again."""
    rewriter, gemm = m.rewriter, m.node("gemm")
    before, after = m.shape("x"), rewriter.shape(m.root.outputs[0])
    if before is None or after is None or len(before) < 2 or before[:-1] != after[:-1]:
        return None
    rows = rewriter.shape(gemm.inputs[0])
    if rows is None or rows[-1] != before[-1] or gemm.attributes.get("transA", 0):
        return None
    if gemm.attributes.get("alpha", 1.0) != 1.0 or gemm.attributes.get("beta", 1.0) != 1.0:
        return None
    weight = rewriter.shape(gemm.inputs[1])
    bias = gemm.inputs[2] if len(gemm.inputs) > 2 else ""
    n = after[-1]
    if weight is None or bias and rewriter.shape(bias) not in ((n,), (1, n), (), (1,)):
        return None
    patch = m.patch()
    b = gemm.inputs[1]
    if gemm.attributes.get("transB", 0):
        if rewriter.constant(b) is None:
            return None
        b = patch.op("Transpose", [b], perm=[1, 0])
    product = patch.op("MatMul", [m["x"], b])
    return patch.result(patch.op("Add", [product, bias]) if bias else product, m.root.outputs[0])


_LINEAR = op("Conv|ConvTranspose", name="linear")

RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    (
        # norm(W x + b) = (s W) x + (s b + t), s = scale / sqrt(var + eps), t = bias - mean s
        Rule(
            "fold_norm_into_linear",
            op("BatchNormalization", op("Conv|ConvTranspose|Gemm", name="linear"), *[Var(n) for n in "abcd"]),
            _into_linear,
        ),
        Rule(
            "fold_norm_into_matmul",
            op("BatchNormalization", op("MatMul", name="linear"), *[Var(n) for n in "abcd"]),
            _norm_into_matmul,
        ),
        # (W x + b) + c = W x + (b + c);  (W x + b) c = (c W) x + c b
        Rule("fold_affine_into_conv", op("Add|Sub|Mul|Div", _LINEAR, Const(name="c", scalar=False)), _into_linear),
        # turn(W x) + c = turn(W x + c'),  turn(W x) c = turn((W x) c'), c' for each channel
        Rule(
            "affine_before_transpose",
            op("Add|Sub|Mul|Div", op("Transpose", _LINEAR, name="turn"), Const(name="c", scalar=False)),
            _affine_before_transpose,
        ),
        # norm(x) = s x + t
        Rule("norm_to_affine", op("BatchNormalization"), _norm_alone),
        # alpha A' B + beta C with constants scaled and turned once
        Rule("constant_gemm", op("Gemm"), _constant_gemm),
    ),
)

EXTENDED_RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    (
        # reshape(gemm(reshape(x, [-1, k]), W, b), [..., n]) = x W + b
        Rule("gemm_of_rows", op("Reshape", op("Gemm", op("Reshape|Flatten", Var("x")), Var("w"), name="gemm")), _gemm_of_rows),
        Rule(
            "gemm_of_rows",
            op("Reshape", op("Gemm", op("Reshape|Flatten", Var("x")), Var("w"), Var("b"), name="gemm")),
            _gemm_of_rows,
        ),
    ),
)


def _changed(constant: Constant, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    return change(constant.numpy())
