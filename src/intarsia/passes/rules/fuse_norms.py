"""Rules that recognise normalisations, and Softmax, in the pieces that exporters write.

A normalisation is first recognised without scale and bias (its scale is a constant of ones), then takes in the
multiplication and the addition that follow.
"""

from __future__ import annotations

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch, Rewriter
from intarsia.passes.rule import Const, Match, Op, Pattern, Rewrite, Rule, RuleSet, Var, op

_HALF_TYPES = (DType.FLOAT16, DType.BFLOAT16)
_FLOATS = (DType.FLOAT, DType.DOUBLE, *_HALF_TYPES)
X = Var("x")


def _reduced_axes(rewriter: Rewriter, node: Node) -> list[int] | None:
    """The axes (not negative, ascending) of a reduction that keeps its dimensions."""
    rank, axes = rewriter.rank(node.inputs[0]), rewriter.axes(node)
    if rank is None or not axes or node.attributes.get("keepdims", 1) != 1:
        return None
    return sorted(a + rank if a < 0 else a for a in axes)


def _normalized_axis(m: Match, names: tuple[str, ...]) -> int | None:
    """The first (negative) of the trailing axes that all captured reductions run over."""
    rewriter = m.rewriter
    found = [_reduced_axes(rewriter, m.node(n)) for n in names]
    rank = rewriter.rank(m["x"])
    axes = found[0]
    if rank is None or axes is None or any(f != axes for f in found) or axes != list(range(axes[0], rank)):
        return None
    return axes[0] - rank


def _norm(op_type: str, reductions: tuple[str, ...]) -> Rewrite:
    def rewrite(m: Match) -> Patch | None:
        axis, epsilon, dtype = _normalized_axis(m, reductions), m.scalar("epsilon"), m.rewriter.dtype(m["x"])
        shape = m.shape("x")
        if axis is None or epsilon is None or epsilon < 0 or dtype not in _FLOATS or shape is None:
            return None
        sizes = [d for d in shape[axis:] if isinstance(d, int)]
        if len(sizes) != -axis:
            return None
        patch = m.patch()
        ones = patch.constant(np.ones(sizes, dtype.numpy), "ones")
        return patch.result(patch.op(op_type, [m["x"], ones], axis=axis, epsilon=epsilon, stash_type=1), m.root.outputs[0])

    return rewrite


def _all(rewriter: Rewriter, name: str, value: float) -> bool:
    array = rewriter.array(name)
    return array is not None and bool((array == value).all())


def _parameter(m: Match, name: str) -> str | None:
    """A captured scale or bias, if it has the shape that is normalised over."""
    rewriter, node = m.rewriter, m.node("norm")
    shape, x = rewriter.shape(m[name]), rewriter.shape(node.inputs[0])
    if shape is None or x is None or rewriter.dtype(m[name]) != rewriter.dtype(node.outputs[0]):
        return None
    axis = int(node.attributes.get("axis", -1))
    return m[name] if shape == x[axis if axis < 0 else axis - len(x) :] else None


def _take_scale(m: Match) -> Patch | None:
    node, scale = m.node("norm"), _parameter(m, "s")
    if scale is None or len(node.inputs) > 2 or not _all(m.rewriter, node.inputs[1], 1.0):
        return None
    return m.replace(node.op_type, [node.inputs[0], scale], **node.attributes)


def _take_bias(m: Match) -> Patch | None:
    node, bias = m.node("norm"), _parameter(m, "b")
    if bias is None or len(node.inputs) > 2:
        return None
    return m.replace(node.op_type, [*node.inputs, bias], **node.attributes)


def _take_casts(m: Match) -> Patch | None:
    """The pieces computed in float32 for a half type: that is what stash_type 1 says."""
    node, rewriter = m.node("norm"), m.rewriter
    dtype = rewriter.dtype(m["x"])
    if (
        dtype not in _HALF_TYPES
        or rewriter.dtype(m.root.outputs[0]) != dtype
        or rewriter.dtype(node.outputs[0]) is not DType.FLOAT
    ):
        return None
    ones = rewriter.constant(node.inputs[1])
    if len(node.inputs) > 2 or ones is None or not _all(rewriter, node.inputs[1], 1.0):
        return None
    patch = m.patch()
    scale = patch.constant(np.ones(ones.shape, dtype.numpy), "ones")
    return patch.result(patch.op(node.op_type, [m["x"], scale], **node.attributes), m.root.outputs[0])


def _keras_layer_norm(m: Match) -> Patch | None:
    axis, epsilon, dtype, shape = (
        _normalized_axis(m, ("mean", "var")),
        m.scalar("epsilon"),
        m.rewriter.dtype(m["x"]),
        m.shape("x"),
    )
    if axis is None or epsilon is None or dtype not in _FLOATS or shape is None:
        return None
    if m.shape("s") != shape[axis:] or m.shape("b") != shape[axis:]:
        return None
    return m.replace("LayerNormalization", [m["x"], m["s"], m["b"]], axis=axis, epsilon=epsilon, stash_type=1)


def _group_norm(m: Match) -> Patch | None:
    rewriter, norm = m.rewriter, m.node("norm")
    shape, out, inner = m.shape("x"), rewriter.shape(m.root.outputs[0]), rewriter.shape(norm.inputs[0])
    dtype = rewriter.dtype(m["x"])
    if dtype not in _FLOATS or shape is None or shape != out or inner is None or len(shape) < 3 or len(inner) != 3:
        return None
    channels, groups = shape[1], inner[1]
    if inner[0] != shape[0] or not isinstance(channels, int) or not isinstance(groups, int) or channels % groups:
        return None
    if not _all(rewriter, norm.inputs[1], 1.0) or not _all(rewriter, norm.inputs[2], 0.0):
        return None
    patch = m.patch()
    ones, zeros = (patch.constant(np.full(channels, v, dtype.numpy), name) for v, name in ((1, "ones"), (0, "zeros")))
    epsilon = float(norm.attributes.get("epsilon", 1e-5))
    made = patch.op("GroupNormalization", [m["x"], ones, zeros], num_groups=groups, epsilon=epsilon)
    return patch.result(made, m.root.outputs[0])


def _group_scale(m: Match) -> Patch | None:
    node, scale = m.node("norm"), _by_channel(m, "s")
    if scale is None or not _all(m.rewriter, node.inputs[1], 1.0) or not _all(m.rewriter, node.inputs[2], 0.0):
        return None
    patch = m.patch()
    inputs = [node.inputs[0], patch.constant(scale, "scale"), node.inputs[2]]
    return patch.result(patch.op(node.op_type, inputs, **node.attributes), m.root.outputs[0])


def _group_bias(m: Match) -> Patch | None:
    node, bias = m.node("norm"), _by_channel(m, "b")
    if bias is None or not _all(m.rewriter, node.inputs[2], 0.0):
        return None
    patch = m.patch()
    inputs = [*node.inputs[:2], patch.constant(bias, "bias")]
    return patch.result(patch.op(node.op_type, inputs, **node.attributes), m.root.outputs[0])


def _by_channel(m: Match, name: str) -> np.ndarray | None:
    """Elements of a constant that has one for each channel of the normalised tensor, on the second axis."""
    found, shape = m.rewriter.constant(m[name]), m.rewriter.shape(m.node("norm").inputs[0])
    if found is None or shape is None:
        return None
    wide = (shape[1], *[1] * (len(shape) - 2))
    return found.numpy().reshape(-1) if found.shape in (wide, (1, *wide)) else None


def _softmax(m: Match) -> Patch | None:
    names = ("max", "sum") if "max" in m.captured else ("sum",)
    found = [_reduced_axes(m.rewriter, m.node(n)) for n in names]
    rank = m.rewriter.rank(m["x"])
    if rank is None or found[0] is None or any(f != found[0] for f in found) or len(found[0]) != 1:
        return None
    axis = found[0][0]
    return m.replace("Softmax", [m["x"]], axis=-1 if axis == rank - 1 else axis)


def _global_average(m: Match) -> Patch | None:
    rewriter, node = m.rewriter, m.root
    rank, axes = rewriter.rank(node.inputs[0]), rewriter.axes(node)
    if rank not in (4, 5) or not axes or rewriter.dtype(node.inputs[0]) not in _FLOATS:
        return None
    if sorted(a + rank if a < 0 else a for a in axes) != list(range(2, rank)):
        return None
    patch = m.patch()
    out = patch.op("GlobalAveragePool", [node.inputs[0]])
    if node.attributes.get("keepdims", 1) != 1:
        out = patch.op("Reshape", [out, patch.ints(0, 0)])
    return patch.result(out, node.outputs[0])


def _pool_of_everything(m: Match) -> Patch | None:
    """One window that covers all pixels, as exporters write where a kernel is larger than the image (ceil_mode)."""
    node, x, y = m.root, m.shape("x"), m.rewriter.shape(m.root.outputs[0])
    kernel = [int(n) for n in node.attributes.get("kernel_shape", ())]
    if x is None or y is None or len(x) not in (4, 5) or m.rewriter.dtype(node.inputs[0]) not in _FLOATS:
        return None
    if len([o for o in node.outputs if o]) != 1 or node.attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    if any(node.attributes.get("pads") or ()) or any(d != 1 for d in node.attributes.get("dilations") or ()):
        return None
    if any(not isinstance(d, int) or d == 0 or d > n for d, n in zip(x[2:], kernel, strict=True)) or any(d != 1 for d in y[2:]):
        return None
    return m.replace("GlobalMaxPool" if node.op_type == "MaxPool" else "GlobalAveragePool", [m["x"]])


_SQUARE = Const(2.0)


def _squared(x: Pattern) -> Pattern:
    return op("Pow", x, _SQUARE) | op("Mul", x, x)


def _normal(x: Pattern, variance: Pattern) -> tuple[Op, ...]:
    """x / sqrt(variance + epsilon) in the forms that exporters write."""
    shifted = op("Add", variance, Const(name="epsilon"))
    deviation = op("Sqrt", shifted)
    inverse = op("Reciprocal", deviation) | op("Div", Const(1.0), deviation) | op("Pow", shifted, Const(-0.5))
    return (op("Div", x, deviation), op("Mul", x, inverse), op("Div", x, op("Pow", shifted, Const(0.5))))


_MEAN = op("ReduceMean", X, name="mean")
_CENTERED = op("Sub", X, _MEAN)
_VARIANCE = op("ReduceMean", _squared(_CENTERED), name="var")
_INVERSE = op("Reciprocal", op("Sqrt", op("Add", _VARIANCE, Const(name="epsilon"))))
_GAIN = op("Mul", _INVERSE, Var("s"))
_NORM = op("LayerNormalization", name="norm")
_GROUP = op("GroupNormalization", name="norm")
_RMS = op("LayerNormalization|RMSNormalization", name="norm")

RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    (
        # layernorm(x) = (x - mean) / sqrt(mean((x - mean)^2) + eps)
        Rule("fuse_layer_norm", _normal(_CENTERED, _VARIANCE), _norm("LayerNormalization", ("mean", "var"))),
        # the same as x g + (b - mean g), g = s / sqrt(var + eps)
        Rule(
            "fuse_layer_norm_affine",
            op("Add", op("Mul", X, _GAIN), op("Sub", Var("b"), op("Mul", _MEAN, _GAIN))),
            _keras_layer_norm,
        ),
        # rmsnorm(x) = x / sqrt(mean(x^2) + eps)
        Rule("fuse_rms_norm", _normal(X, op("ReduceMean", _squared(X), name="square")), _norm("RMSNormalization", ("square",))),
        # cast(norm(cast(x, float)), half) = norm(x) with float32 inside
        Rule(
            "norm_takes_casts",
            op("Cast", op("LayerNormalization|RMSNormalization", op("Cast", X), Var("ones"), name="norm")),
            _take_casts,
        ),
        # norm(x) s, norm(x) s + b
        Rule("norm_takes_scale", op("Mul", _RMS, Var("s")), _take_scale),
        Rule("norm_takes_bias", op("Add", _NORM, Var("b")), _take_bias),
        # groupnorm(x) = reshape(instancenorm(reshape(x, [n, groups, -1])))
        Rule(
            "fuse_group_norm",
            op("Reshape", op("InstanceNormalization", op("Reshape", X), Var("i"), Var("j"), name="norm")),
            _group_norm,
        ),
        # groupnorm(x) s, groupnorm(x) + b
        Rule("group_norm_takes_scale", op("Mul", _GROUP, Var("s")), _group_scale),
        Rule("group_norm_takes_bias", op("Add", _GROUP, Var("b")), _group_bias),
        # softmax(x) = exp(x - max x) / sum exp(x - max x) = exp(x) / sum exp(x)
        Rule(
            "fuse_softmax",
            (
                op(
                    "Div",
                    op("Exp", op("Sub", X, op("ReduceMax", X, name="max"))),
                    op("ReduceSum", op("Exp", op("Sub", X, op("ReduceMax", X, name="max"))), name="sum"),
                ),
                op("Div", op("Exp", X), op("ReduceSum", op("Exp", X), name="sum")),
            ),
            _softmax,
        ),
        # the mean over all spatial axes
        Rule("mean_to_pool", op("ReduceMean"), _global_average),
        Rule("pool_of_everything", op("AveragePool|MaxPool", X), _pool_of_everything),
    ),
)
