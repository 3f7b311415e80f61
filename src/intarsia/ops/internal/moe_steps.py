"""Parts of MoE and QMoE that providers use inside, never a model: tokens sorted by expert, products of the rows of each expert
with its own matrix, and what comes between and behind them.

A token that picks k experts is k rows of the products; rows of one expert lie together. What is a host operator here has a
kernel in the CPU provider.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from intarsia.graph.dims import product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.expert_mixture import Activation, Layer, Storage, of_expert
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import host_op, op
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import Operands

DOMAIN = "intarsia.experts"
Tensor = k.Tensor
Array = np.ndarray


@op("ExpertWeights", 1, domain=DOMAIN)
def expert_weights(scores: Tensor, chosen: Tensor, *, normalize: int) -> Tensor:
    """Entries of scores [tokens, experts] that belong to `chosen` [tokens, k], scaled to add up to 1 where `normalize`."""
    found = k.index(scores, [k.iota(chosen.shape, 0), chosen])
    return found / k.reduce_sum(found, [1], keepdims=True) if normalize else found


def _order_types(chosen: TensorType, *, experts: int) -> tuple[TensorType, TensorType, TensorType]:
    shape = chosen.shape
    rows = None if shape is None else (product(shape),)
    return TensorType(DType.INT64, (experts + 1,)), TensorType(DType.INT64, rows), TensorType(DType.INT64, shape)


@host_op("ExpertOrder", 1, domain=DOMAIN, infer=_order_types, reason="rows are sorted as data says")
def expert_order(chosen: Array, *, experts: int) -> tuple[Array, Array, Array]:
    """Choices [tokens, k] sorted by expert: where each expert's rows start [experts + 1], the token of each row
    [tokens * k], and the row of each choice [tokens, k]."""
    flat = chosen.reshape(-1)
    slots = np.argsort(flat, kind="stable")
    places = np.empty_like(flat)
    places[slots] = np.arange(len(flat))
    starts = np.searchsorted(flat[slots], np.arange(experts + 1))
    return starts.astype(np.int64), slots // max(chosen.shape[1], 1), places.reshape(chosen.shape)


@op("ExpertRows", 1, domain=DOMAIN)
def expert_rows(x: Tensor, tokens: Tensor) -> Tensor:
    """The rows of x [.., width] that experts read, in their order."""
    return k.take(k.reshape(x, (product(x.shape[:-1]), x.shape[-1])), tokens, 0)


def _products_type(rows: TensorType, starts: TensorType, *others: TensorType | None, columns: int, **_: Any) -> TensorType:
    return TensorType(DType.FLOAT, None if rows.shape is None else (rows.shape[0], columns))


@dataclass(frozen=True)
class ExpertMatrices(ParameterGroup):
    """One layer of all experts: matrices, biases, and the scales and zero points of blocks and of whole matrices."""

    weights: Array
    bias: Array | None = None
    scales: Array | None = None
    zeros: Array | None = None
    whole: Array | None = None


@host_op("ExpertProducts", 1, domain=DOMAIN, infer=_products_type, reason="how many rows an expert has depends on data")
def expert_products(
    rows: Array, starts: Array, matrices: ExpertMatrices, *, columns: int, bits: int = 0, block: int = 0
) -> Array:
    """Rows of each expert (from starts[e] on) times its matrix, [experts, columns, depth], plus its bias [experts, columns].

    With `bits` the matrices are stored as QMoE's integers, with `block` as numbers of float4e2m1 in blocks of so many.
    """
    out = np.zeros((len(rows), columns), np.float32)
    kind, m = {0: "int", 16: "nvfp4", 32: "fp4"}[block], matrices
    for e in range(len(starts) - 1):
        mine = slice(int(starts[e]), int(starts[e + 1]))
        layer = Layer(m.weights, m.bias, Storage(kind, bits) if bits else None, m.scales, m.zeros, m.whole)
        given = Operands()
        (out[mine],) = given.values(layer.picked(partial(of_expert, given, e)).through(given.leaf(rows[mine])))
    return out


@op("ExpertActivation", 1, domain=DOMAIN)
def expert_activation(
    first: Tensor, third: Tensor | None = None, *, kind: str, fusion: int, alpha: float, beta: float, limit: float | None = None
) -> Tensor:
    """What stands between an expert's two products; attributes are those of `moe.Activation`."""
    return Activation(kind, fusion, alpha, beta, limit).apply(first, third)


@op("ExpertSum", 1, domain=DOMAIN)
def expert_sum(rows: Tensor, places: Tensor, weights: Tensor, x: Tensor) -> Tensor:
    """The weighted sum of the rows [tokens * k, width] of each token, in the shape of x."""
    tokens, count = places.shape
    assert isinstance(count, int)
    total = None
    for j in range(count):
        place, weight = (k.strided_slice(t, (0, j), (1, 1), (tokens, 1)) for t in (places, weights))
        part = k.take(rows, k.reshape(place, (tokens,)), 0) * weight
        total = part if total is None else total + part
    assert total is not None
    return k.reshape(total, x.shape)
