"""Optimiser steps against torch.optim and the specification's equations; Det; Upsample's first version."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ml_models import model_of, ours
from onnx import TensorProto, helper

from intarsia.errors import InvalidGraph

TRAINING = "ai.onnx.preview.training"
PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
both = pytest.mark.parametrize("provider", PROVIDERS)


def steps(op: str, states: int, count: int, provider: str, dtype: type = np.float32, **attributes: Any) -> list[np.ndarray]:
    """The value of one tensor after each of `count` updates with rate 0.1, along the gradients of `slopes`."""
    x, carried = start(dtype), [np.zeros(3, dtype) for _ in range(states)]
    names = [f"s{i}" for i in range(states)]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    feeds = {"R": np.array(0.1, np.float32), "T": np.array(0), "X": x, "G": x, **dict(zip(names, carried, strict=True))}
    outputs = dict.fromkeys(("Xn", *(f"{n}n" for n in names)), kind)
    model = model_of(op, feeds, outputs, domain=TRAINING, version=1, **attributes)
    found = []
    for t, gradient in enumerate(slopes(count, dtype)):
        feeds |= {"T": np.array(t + (op == "Adam")), "X": x, "G": gradient, **dict(zip(names, carried, strict=True))}
        x, *carried = ours(model, feeds, provider)
        found.append(x)
    return found


def start(dtype: type) -> np.ndarray:
    return np.array([1.0, -2.0, 0.5], dtype)


def slopes(count: int, dtype: type) -> list[np.ndarray]:
    return [np.array([np.cos(t), 0.3 * t - 1, 2.0], dtype) for t in range(count)]


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("op", "states", "attributes", "optimiser"), [
    ("Adagrad", 1, {"decay_factor": 0.25, "epsilon": 1e-6, "norm_coefficient": 0.01},
     ("Adagrad", {"lr_decay": 0.25, "eps": 1e-6, "weight_decay": 0.01})),
    ("Momentum", 1, {"alpha": 0.9, "beta": 1.0, "mode": "standard", "norm_coefficient": 0.01},
     ("SGD", {"momentum": 0.9, "weight_decay": 0.01})),
    ("Momentum", 1, {"alpha": 0.9, "beta": 1.0, "mode": "nesterov", "norm_coefficient": 0.0},
     ("SGD", {"momentum": 0.9, "nesterov": True})),
], ids=["adagrad", "momentum", "nesterov"])  # fmt: skip
def test_optimiser(
    op: str, states: int, attributes: dict[str, Any], optimiser: tuple[str, dict[str, Any]], dtype: type, provider: str
) -> None:
    torch = pytest.importorskip("torch", reason="is the reference")
    x = torch.tensor(start(dtype), requires_grad=True)
    theirs = getattr(torch.optim, optimiser[0])([x], lr=0.1, **optimiser[1])
    for found, gradient in zip(steps(op, states, 4, provider, dtype, **attributes), slopes(4, dtype), strict=True):
        x.grad = torch.tensor(gradient)
        theirs.step()
        np.testing.assert_allclose(found, x.detach().numpy(), rtol=1e-5)


@both
def test_adam(provider: str) -> None:
    """Against the equations: torch adds epsilon after correcting the bias, the operator before."""
    x, v, h = start(np.float64), np.zeros(3), np.zeros(3)
    attributes = {"alpha": 0.8, "beta": 0.95, "epsilon": 1e-3, "norm_coefficient": 0.02, "norm_coefficient_post": 0.01}
    alpha, beta = (float(np.float32(a)) for a in (0.8, 0.95))
    for t, (found, gradient) in enumerate(
        zip(steps("Adam", 2, 3, provider, **attributes), slopes(3, np.float64), strict=True), 1
    ):
        g = 0.02 * x + gradient
        v, h = alpha * v + (1 - alpha) * g, beta * h + (1 - beta) * g * g
        x = (1 - 0.01) * (x - 0.1 * np.sqrt(1 - beta**t) / (1 - alpha**t) * v / (np.sqrt(h) + 1e-3))
        np.testing.assert_allclose(found, x, rtol=1e-5)


def test_several_tensors_keep_their_order() -> None:
    x = [np.full(i + 1, i + 1.0, np.float32) for i in range(2)]
    feeds = {
        "R": np.array(1.0, np.float32),
        "T": np.array(0),
        "x0": x[0],
        "x1": x[1],
        "g0": x[0],
        "g1": x[1],
        "v0": 0 * x[0],
        "v1": 0 * x[1],
    }
    outputs = dict.fromkeys(("y0", "y1", "w0", "w1"), TensorProto.FLOAT)
    model = model_of(
        "Momentum", feeds, outputs, domain=TRAINING, version=1, alpha=0.0, beta=0.5, mode="standard", norm_coefficient=0.0
    )
    found = ours(model, feeds)
    assert [f.tolist() for f in found] == [[0.0], [0.0, 0.0], [1.0], [2.0, 2.0]]


@pytest.mark.parametrize(("count", "attributes", "message"), [
    (2, {"mode": "standard"}, "2 tensors are given; expected 3 for each optimised tensor"),
    (3, {"mode": "heavy"}, "mode is 'heavy'; expected standard or nesterov"),
])  # fmt: skip
def test_momentum_errors(count: int, attributes: dict[str, Any], message: str) -> None:
    x = np.zeros(2, np.float32)
    feeds = {"R": np.array(1.0, np.float32), "T": np.array(0), **{f"x{i}": x for i in range(count)}}
    model = model_of("Momentum", feeds, {"Y": TensorProto.FLOAT}, domain=TRAINING, version=1, alpha=0.0, beta=0.5,
                     norm_coefficient=0.0, **attributes)  # fmt: skip
    with pytest.raises(InvalidGraph, match=message):
        ours(model, feeds)


@both
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_det(dtype: type, provider: str) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 4)).astype(dtype)
    model = model_of("Det", {"X": x}, {"Y": helper.np_dtype_to_tensor_dtype(x.dtype)}, domain="", version=22)
    (found,) = ours(model, {"X": x}, provider)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, np.linalg.det(x.astype(np.float64)), rtol=1e-2 if dtype == np.float16 else 1e-4)


@pytest.mark.parametrize(
    ("shape", "message"), [((3,), "X has rank 1; expected square matrices"), ((2, 3), "X holds matrices of 2 x 3")]
)
def test_det_errors(shape: tuple[int, ...], message: str) -> None:
    x = np.zeros(shape, np.float32)
    model = model_of("Det", {"X": x}, {"Y": TensorProto.FLOAT}, domain="", version=22)
    for dim, size in zip(model.graph.input[0].type.tensor_type.shape.dim, shape, strict=True):
        dim.dim_value = size
    with pytest.raises(InvalidGraph, match=message):
        ours(model, {"X": x})


@both
def test_upsample_1(provider: str) -> None:
    x = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    model = model_of("Upsample", {"X": x}, {"Y": TensorProto.FLOAT}, domain="", version=1, height_scale=2.0, width_scale=3.0)
    np.testing.assert_array_equal(ours(model, {"X": x}, provider)[0], x.repeat(2, 2).repeat(3, 3))


def test_upsample_1_error() -> None:
    x = np.zeros((2, 2), np.float32)
    model = model_of("Upsample", {"X": x}, {"Y": TensorProto.FLOAT}, domain="", version=1, height_scale=2.0, width_scale=3.0)
    with pytest.raises(InvalidGraph, match=r"X has rank 2; expected \[N, C, H, W\]"):
        ours(model, {"X": x})
