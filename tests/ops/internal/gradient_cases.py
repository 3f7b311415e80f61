"""Operators with their twins in torch, for `test_gradient`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

F = torch.nn.functional
RNG = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return RNG.uniform(0.2, 0.9, shape).astype(np.float32)


@dataclass
class Case:
    """`op` of the feeds (differentiated by all floating ones) and constants, weighted by random numbers; and its torch twin."""

    op: str
    feeds: list[np.ndarray]
    twin: Callable[..., Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    constants: list[Any] = field(default_factory=list)  # None: an omitted input
    domain: str = ""
    opset: int = 22
    tolerance: float = 2e-4
    id: str = ""


def batch_norm(x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    s, b, m, v = (t[:, None, None] for t in (scale, bias, mean, variance))
    return (x - m) / (v + 1e-5).sqrt() * s + b


def last_update(x: Any, updates: Any) -> Any:
    """Rows 0, 0, 1 and 2 of the columns are overwritten by the second row of the updates."""
    hit = torch.arange(3)[:, None] == torch.tensor([0, 0, 1, 2])
    return torch.where(hit, updates[1], x)


def cases() -> list[Case]:
    x, y, row = normal(3, 4), normal(3, 4), normal(4)
    image, weight = normal(2, 4, 6, 5), normal(6, 2, 3, 3)
    ints = lambda *v: np.array(v, np.int64)  # noqa: E731
    rows = ("between", np.array([[0, 0, 1, 2]] * 2))
    unary: list[tuple[str, Callable[..., Any], np.ndarray]] = [
        ("Abs", torch.abs, x),
        ("Acos", torch.acos, positive(3, 4)),
        ("Acosh", torch.acosh, positive(3, 4) + 1),
        ("Asin", torch.asin, positive(3, 4)),
        ("Asinh", torch.asinh, x),
        ("Atan", torch.atan, x),
        ("Atanh", torch.atanh, positive(3, 4)),
        ("Cos", torch.cos, x),
        ("Cosh", torch.cosh, x),
        ("Elu", F.elu, x),
        ("Erf", torch.erf, x),
        ("Exp", torch.exp, x),
        ("Gelu", F.gelu, x),
        ("HardSigmoid", lambda v: (0.2 * v + 0.5).clamp(0, 1), x),
        ("HardSwish", F.hardswish, x),
        ("LeakyRelu", F.leaky_relu, x),
        ("Log", torch.log, positive(3, 4)),
        ("LogSoftmax", lambda v: F.log_softmax(v, -1), x),
        ("Mish", F.mish, x),
        ("Neg", torch.neg, x),
        ("Reciprocal", torch.reciprocal, positive(3, 4)),
        ("Relu", F.relu, x),
        ("Round", torch.round, x),
        ("Selu", F.selu, x),
        ("Sigmoid", torch.sigmoid, x),
        ("Sigmoid", torch.sigmoid, x * 100),
        ("Sign", torch.sign, x),
        ("Sin", torch.sin, x),
        ("Sinh", torch.sinh, x),
        ("Softmax", lambda v: F.softmax(v, -1), x),
        ("Softplus", F.softplus, np.append(x, np.float32(0))),
        ("Softsign", F.softsign, x),
        ("Sqrt", torch.sqrt, positive(3, 4)),
        ("Tan", torch.tan, positive(3, 4)),
        ("Tanh", torch.tanh, x),
        ("Identity", torch.clone, x),
        ("ReduceSum", torch.sum, x),
        ("ReduceLogSumExp", lambda v: torch.logsumexp(v, (0, 1)), x),
        ("GlobalAveragePool", lambda v: v.mean((2, 3), keepdim=True), image),
        ("GlobalMaxPool", lambda v: v.amax((2, 3), keepdim=True), image),
        ("Flatten", lambda v: v.flatten(1), image),
    ]
    found = [Case(op, [v], twin, {"keepdims": 0} if op.startswith("Reduce") else {}) for op, twin, v in unary]
    found += [
        Case("Add", [x, row], torch.add),
        Case("Sub", [x, row], torch.sub),
        Case("Mul", [x, normal(3, 1)], torch.mul),
        Case("Div", [x, positive(4)], torch.div),
        Case("Pow", [positive(3, 4), row], torch.pow),
        Case("Pow", [np.abs(x)], lambda v: v**3, constants=[np.float32(3)]),
        Case("Max", [x, y], torch.maximum),
        Case("Min", [x, y, row], lambda a, b, c: torch.minimum(torch.minimum(a, b), c)),
        Case("Sum", [x, x, row], lambda a, b, c: a + b + c),
        Case("Mean", [x, y], lambda a, b: (a + b) / 2),
        Case("PRelu", [x, row], lambda a, b: torch.where(a < 0, a * b, a)),
        Case("Mod", [x, positive(4)], torch.fmod, {"fmod": 1}),
        Case("Clip", [x], lambda v: v.clamp(-0.5, 0.5), constants=[np.float32(-0.5), np.float32(0.5)]),
        Case("MatMul", [normal(2, 3, 4), normal(4, 5)], torch.matmul),
        Case("MatMul", [normal(3, 4), normal(2, 4, 5)], torch.matmul),
        Case("MatMul", [normal(4), normal(4, 5)], torch.matmul),
        Case(
            "Gemm",
            [normal(4, 3), normal(5, 4), normal(5)],
            lambda a, b, c: 0.5 * a.T @ b.T + 2 * c,
            {"alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 1},
        ),
        Case("Einsum", [normal(2, 3), normal(3, 4)], lambda a, b: torch.einsum("ij,jk->ki", a, b), {"equation": "ij,jk->ki"}),
        Case(
            "Conv",
            [image, weight, normal(6)],
            lambda v, w, b: F.conv2d(v, w, b, (2, 1), (1, 1), (1, 2), 2),
            {"group": 2, "strides": [2, 1], "pads": [1, 1, 1, 1], "dilations": [1, 2]},
        ),
        Case(
            "Conv",
            [image, normal(4, 1, 3, 3)],
            lambda v, w: F.conv2d(v, w, None, 1, 1, 1, 4),
            {"group": 4, "pads": [1] * 4},
            id="depthwise",
        ),
        Case("Conv", [image, normal(3, 4, 1, 1)], F.conv2d, id="pointwise"),
        Case(
            "ConvTranspose",
            [image, normal(4, 3, 3, 3)],
            lambda v, w: F.conv_transpose2d(v, w, None, 2, 1),
            {"strides": [2, 2], "pads": [1] * 4},
        ),
        Case(
            "MaxPool", [image], lambda v: F.max_pool2d(v, 3, 2, 1), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
        ),
        Case(
            "AveragePool",
            [image],
            lambda v: F.avg_pool2d(v, 2, 2, 1),
            {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1] * 4, "count_include_pad": 1},
        ),
        Case("LRN", [image], lambda v: F.local_response_norm(v, 3, 0.1, 0.75, 1.0), {"size": 3, "alpha": 0.1}),
        Case("LayerNormalization", [x, row, normal(4)], lambda a, s, b: F.layer_norm(a, (4,), s, b)),
        Case("RMSNormalization", [x, row], lambda a, s: F.rms_norm(a, (4,), s, 1e-5), opset=23),
        Case("InstanceNormalization", [image, normal(4), normal(4)], lambda a, s, b: F.instance_norm(a, weight=s, bias=b)),
        Case("GroupNormalization", [image, normal(4), normal(4)], lambda a, s, b: F.group_norm(a, 2, s, b), {"num_groups": 2}),
        Case("BatchNormalization", [image, normal(4), normal(4), normal(4), positive(4)], batch_norm),
        Case("ReduceMean", [x], lambda v: v.mean(1, keepdim=True), constants=[ints(1)]),
        Case("ReduceMax", [x], lambda v: v.amax(0, keepdim=True), constants=[ints(0)]),
        Case("ReduceMin", [x], lambda v: v.amin(1, keepdim=True), constants=[ints(-1)]),
        Case("ReduceProd", [x], lambda v: v.prod(1, keepdim=True), constants=[ints(1)]),
        Case(
            "ReduceProd", [x * (np.arange(4) != 1)], lambda v: v.prod(1, keepdim=True), constants=[ints(1)], id="prod of a zero"
        ),
        Case("ReduceL1", [x], lambda v: v.abs().sum(1, keepdim=True), constants=[ints(1)]),
        Case("ReduceL2", [x], lambda v: v.norm(dim=1, keepdim=True), constants=[ints(1)]),
        Case("CumSum", [x], lambda v: v.cumsum(1), constants=[ints(1)]),
        Case(
            "CumSum",
            [x],
            lambda v: v.flip(1).cumsum(1).flip(1) - v,
            {"exclusive": 1, "reverse": 1},
            [ints(1)],
            id="cumsum exclusive reverse",
        ),
        Case("CumProd", [x], lambda v: v.cumprod(1), constants=[ints(1)], opset=26),
        Case("Reshape", [x], lambda v: v.reshape(2, 6), constants=[ints(2, -1)]),
        Case("Transpose", [image], lambda v: v.permute(2, 0, 3, 1), {"perm": [2, 0, 3, 1]}),
        Case("Unsqueeze", [x], lambda v: v[:, None], constants=[ints(1)]),
        Case("Expand", [normal(3, 1)], lambda v: v.expand(2, 3, 4), constants=[ints(2, 3, 4)]),
        Case("Tile", [x], lambda v: v.repeat(2, 3), constants=[ints(2, 3)]),
        Case("Concat", [x, normal(3, 2)], lambda a, b: torch.cat([a, b], 1), {"axis": 1}),
        Case("Slice", [x], lambda v: v[1:3, ::2], constants=[ints(1, 0), ints(3, 9), ints(0, 1), ints(1, 2)]),
        Case("Slice", [x], lambda v: v.flip(1)[:, :3], constants=[ints(3), ints(0), ints(1), ints(-1)], id="slice backwards"),
        Case("Pad", [x], lambda v: F.pad(v, (0, 2, 1, 0)), constants=[ints(1, 0, 0, 2)]),
        Case(
            "Pad",
            [image],
            lambda v: F.pad(v, (1, 2, 2, 1), mode="reflect"),
            {"mode": "reflect"},
            [ints(0, 0, 2, 1, 0, 0, 1, 2)],
            id="pad reflect",
        ),
        Case("Gather", [x], lambda v: v[:, [3, 0, 3]], {"axis": 1}, [ints(3, 0, -1)]),
        Case(
            "GatherElements",
            [x],
            lambda v: v.gather(0, torch.tensor([[0, 2, 1, 2], [1, 2, 2, 0]])),
            {"axis": 0},
            [np.array([[0, 2, 1, 2], [1, 2, 2, 0]])],
        ),
        Case("GatherND", [x], lambda v: v[[0, 0, 2], [1, 1, 3]], constants=[np.array([[0, 1], [0, 1], [2, 3]])]),
        Case("Where", [x, y], lambda a, b: torch.where(torch.tensor(x > y), a, b), constants=[]),
        Case("TopK", [x], lambda v: v.topk(2, 1)[0], {"axis": 1}, [ints(2)]),
        Case("Trilu", [x], torch.triu),
        Case("DepthToSpace", [image], lambda v: F.pixel_shuffle(v, 2), {"blocksize": 2, "mode": "CRD"}),
        Case(
            "Resize",
            [image],
            lambda v: F.interpolate(v, scale_factor=2, mode="bilinear"),
            {"mode": "linear"},
            [None, np.array([1, 1, 2, 2], np.float32)],
        ),
        Case("GridSample", [image, positive(2, 3, 3, 2)], lambda v, g: F.grid_sample(v, g, align_corners=False)),
        Case(
            "Attention", [normal(2, 2, 3, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 4)], F.scaled_dot_product_attention, opset=23
        ),
        Case("SoftmaxCrossEntropyLoss", [x], lambda v: F.cross_entropy(v, torch.tensor([1, 0, 3])), constants=[ints(1, 0, 3)]),
        Case("Gelu", [x], F.gelu, domain="com.microsoft", id="contributed Gelu"),
        Case("FusedMatMul", [x, y], lambda a, b: a @ b.T, {"transB": 1}, domain="com.microsoft"),
        Case(
            "ScatterElements",
            [x, normal(2, 4)],
            lambda a, b: a.scatter_reduce(0, torch.tensor(rows[1]), b, "sum"),
            {"axis": 0, "reduction": "add"},
            [rows],
            id="scatter add",
        ),
        Case(
            "ScatterElements",
            [x, normal(2, 4)],
            lambda a, b: a.scatter_reduce(0, torch.tensor(rows[1]), b, "prod"),
            {"axis": 0, "reduction": "mul"},
            [rows],
            id="scatter mul",
        ),
        Case(
            "ScatterElements",
            [x, normal(2, 4)],
            lambda a, b: a.scatter_reduce(0, torch.tensor(rows[1]), b, "amax"),
            {"axis": 0, "reduction": "max"},
            [rows],
            id="scatter max",
        ),
        Case("ScatterElements", [x, normal(2, 4)], last_update, {"axis": 0}, [rows], id="scatter, the last update stays"),
    ]
    return found
