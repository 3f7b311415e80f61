"""Rules that recognise activation functions in the pieces that exporters write."""

from __future__ import annotations

import math

import numpy as np

from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch
from intarsia.passes.rule import Const, Match, Op, Pattern, Rewrite, Rule, RuleSet, Var, op

X = Var("x")


def _times(a: Pattern, b: Pattern) -> Pattern:
    return op("Mul", a, b)


def _product3(a: Pattern, b: Pattern, c: Pattern) -> tuple[Pattern, ...]:
    """a * b * c in every association (Mul is commutative already)."""
    return (op("Mul", op("Mul", a, b), c), op("Mul", op("Mul", a, c), b), op("Mul", a, op("Mul", b, c)))


_ROOT_2 = math.sqrt(2.0)
_HALF = Const(0.5)
_HALVED = _times(X, _HALF) | op("Div", X, Const(2.0))
_BY_ROOT_2 = op("Div", X, Const(_ROOT_2)) | _times(X, Const(1 / _ROOT_2))
_ONE_PLUS_ERF = op("Add", op("Erf", _BY_ROOT_2), Const(1.0))
_CUBE = op("Pow", X, Const(3.0)) | _times(_times(X, X), X) | _times(op("Pow", X, Const(2.0)), X)
_C = 0.044715
_TANH_ARGUMENT = (
    _times(op("Add", X, _times(_CUBE, Const(_C))), Const(math.sqrt(2 / math.pi)))
    # x (1 + c x^2) sqrt(2/pi), with the constants in either place
    | _times(
        _times(X, op("Add", _times(_times(X, X) | op("Pow", X, Const(2.0)), Const(_C)), Const(1.0))),
        Const(math.sqrt(2 / math.pi)),
    )
    | _times(
        _times(X, Const(math.sqrt(2 / math.pi))),
        op("Add", _times(_times(X, X), Const(_C)) | _times(_times(X, Const(_C)), X), Const(1.0)),
    )
)
_ONE_PLUS_TANH = op("Add", op("Tanh", _TANH_ARGUMENT), Const(1.0))


def _gelu_patterns(inner: Pattern) -> tuple[Op, ...]:
    """x * 0.5 * inner in every order."""
    return tuple(
        p
        for p in (
            *_product3(X, _HALF, inner),
            op("Mul", op("Div", X, Const(2.0)), inner),
            op("Div", op("Mul", X, inner), Const(2.0)),
        )
        if isinstance(p, Op)
    )


def _same_type(m: Match) -> bool:
    """Whether the constants of the match only took part by value: x's dtype and shape are the root's."""
    rewriter = m.rewriter
    out, shape, x_shape = m.root.outputs[0], rewriter.shape(m.root.outputs[0]), m.shape("x")
    return rewriter.dtype(out) == rewriter.dtype(m["x"]) and (shape is None or x_shape is None or shape == x_shape)


def _gelu(approximate: str) -> Rewrite:
    return lambda m: m.replace("Gelu", [m["x"]], approximate=approximate)


def _swish(m: Match) -> Patch | None:
    alpha = m.scalar("alpha") if "alpha" in m else 1.0
    if alpha is None:
        return None
    return m.replace("Swish", [m["x"]], alpha=alpha)


def _hard_sigmoid_is_standard(m: Match) -> bool:
    node = m.node("gate")
    return (
        abs(node.attributes.get("alpha", 0.2) - 1 / 6) < 1e-4
        and abs(node.attributes.get("beta", 0.5) - 0.5) < 1e-6
        and _same_type(m)
    )


def _bounds(m: Match) -> tuple[float, float] | None:
    """The bounds of the captured Clip, from attributes (before version 11) or inputs."""
    node, rewriter = m.node("clip"), m.rewriter
    if "min" in node.attributes or "max" in node.attributes:
        return float(node.attributes.get("min", -math.inf)), float(node.attributes.get("max", math.inf))
    low = rewriter.scalar(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else -math.inf
    high = rewriter.scalar(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else math.inf
    return None if low is None or high is None else (low, high)


def _clips_to_six(m: Match) -> bool:
    return _bounds(m) == (0.0, 6.0) and _same_type(m)


def _clip(m: Match) -> Patch | None:
    dtype, low, high = m.rewriter.dtype(m["x"]), m.scalar("low"), m.scalar("high")
    if dtype is None or low is None or high is None or low > high:
        return None
    patch = m.patch()
    bounds = [patch.constant(np.array(v, dtype.numpy), "bound") for v in (low, high)]
    return patch.result(patch.op("Clip", [m["x"], *bounds]), m.root.outputs[0])


def _clip_with_relu(m: Match) -> Patch | None:
    dtype, inner = m.rewriter.dtype(m["x"]), _bounds(m)
    if dtype is None or inner is None:
        return None
    low, high = max(inner[0], 0.0), max(inner[1], 0.0) if m.root.op_type == "Relu" else inner[1]
    patch = m.patch()
    names = ["" if math.isinf(v) else patch.constant(np.array(v, dtype.numpy), "bound") for v in (low, high)]
    return patch.result(patch.op("Clip", [m["x"], *names]), m.root.outputs[0])


_SIX = Const(6.0)
_ZERO = Const(0.0)
_PLUS_3 = op("Add", X, Const(3.0))
_RELU6 = op("Clip", _PLUS_3, name="clip")
_SIGMOID = op("Sigmoid", X)
_SCALED_SIGMOID = op("Sigmoid", op("Mul", X, Const(name="alpha")))
_EXP = op("Exp", X)
_ONE_PLUS_EXP = op("Add", _EXP, Const(1.0))

RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    (
        # gelu(x) = x / 2 (1 + erf(x / sqrt 2))
        Rule("fuse_gelu", _gelu_patterns(_ONE_PLUS_ERF), _gelu("none"), _same_type),
        # gelu(x) = x cdf(x), cdf(x) = (1 + erf(x / sqrt 2)) / 2
        Rule(
            "fuse_gelu_cdf", op("Mul", X, op("Add", op("Mul", op("Erf", _BY_ROOT_2), _HALF), _HALF)), _gelu("none"), _same_type
        ),
        # gelu(x) = x / 2 erfc(-x / sqrt 2) = x / 2 (1 - erf(-x / sqrt 2))
        Rule(
            "fuse_gelu_erfc",
            _gelu_patterns(op("Sub", Const(1.0), op("Erf", op("Neg", _BY_ROOT_2) | op("Mul", X, Const(-1 / _ROOT_2))))),
            _gelu("none"),
            _same_type,
        ),
        # gelu(x) ~ x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
        Rule("fuse_gelu_tanh", _gelu_patterns(_ONE_PLUS_TANH), _gelu("tanh"), _same_type),
        Rule(
            "fuse_gelu_tanh_cdf",
            op("Mul", X, op("Add", op("Mul", op("Tanh", _TANH_ARGUMENT), _HALF), _HALF)),
            _gelu("tanh"),
            _same_type,
        ),
        # swish(x) = x sigmoid(alpha x)
        Rule(
            "fuse_swish",
            (
                op("Mul", X, _SIGMOID),
                op("Mul", X, _SCALED_SIGMOID),
                op("Div", X, op("Add", op("Exp", op("Neg", X)), Const(1.0))),
            ),
            _swish,
            _same_type,
        ),
        # softplus(x) = log(1 + e^x)
        Rule("fuse_softplus", op("Log", _ONE_PLUS_EXP), lambda m: m.replace("Softplus", [m["x"]]), _same_type),
        # mish(x) = x tanh(softplus(x))
        Rule("fuse_mish", op("Mul", X, op("Tanh", op("Softplus", X))), lambda m: m.replace("Mish", [m["x"]]), _same_type),
        # hardswish(x) = x relu6(x + 3) / 6 = x hardsigmoid(x)
        Rule(
            "fuse_hardswish",
            (
                op("Div", op("Mul", X, _RELU6), _SIX),
                op("Mul", X, op("Div", _RELU6, _SIX)),
                op("Mul", op("Div", X, _SIX), _RELU6),
                *(p for p in _product3(X, _RELU6, Const(1 / 6)) if isinstance(p, Op)),
            ),
            lambda m: m.replace("HardSwish", [m["x"]]),
            _clips_to_six,
        ),
        Rule(
            "fuse_hardswish_gate",
            op("Mul", X, op("HardSigmoid", X, name="gate")),
            lambda m: m.replace("HardSwish", [m["x"]]),
            _hard_sigmoid_is_standard,
        ),
        # min(max(x, low), high) = max(min(x, high), low) = clip(x, low, high) for low <= high
        Rule(
            "fuse_clip",
            (
                op("Min", op("Max", X, Const(name="low")), Const(name="high")),
                op("Max", op("Min", X, Const(name="high")), Const(name="low")),
            ),
            _clip,
            _same_type,
        ),
        # relu(clip(x, low, high)) = clip(x, max(low, 0), max(high, 0));  clip(relu(x), low, high) = clip(x, max(low, 0), high)
        Rule("merge_relu_into_clip", op("Relu", op("Clip", X, name="clip")), _clip_with_relu, _same_type),
        Rule("merge_relu_into_clip", op("Clip", op("Relu", X), name="clip"), _clip_with_relu, _same_type),
    ),
)
