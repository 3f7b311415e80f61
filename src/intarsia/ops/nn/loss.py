"""NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss."""

from __future__ import annotations

from intarsia.graph.dtypes import DType
from intarsia.ops.framework.operands import widened
from intarsia.ops.framework.registry import NodeContext, op
from intarsia.ops.nn.softmax import log_softmax_over
from intarsia.primitives import lang as k


@op("NegativeLogLikelihoodLoss", since=(12, 13, 22))
def negative_log_likelihood_loss(
    input: k.Tensor,
    target: k.Tensor,
    weight: k.Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> k.Tensor:
    return k.cast(_loss(widened(input), target, weight, ignore_index, reduction), input.dtype)


@op("SoftmaxCrossEntropyLoss", since=(12, 13))
def softmax_cross_entropy_loss(
    scores: k.Tensor, labels: k.Tensor, weights: k.Tensor | None = None, *, ignore_index: int | None = None,
    node: NodeContext, reduction: str = "mean",
) -> tuple[k.Tensor, k.Tensor | None]:  # fmt: skip
    logs = log_softmax_over(widened(scores), [1])
    loss = _loss(logs, labels, weights, ignore_index, reduction)
    return k.cast(loss, scores.dtype), k.cast(logs, scores.dtype) if node.outputs > 1 else None


def _loss(logs: k.Tensor, target: k.Tensor, weight: k.Tensor | None, ignore_index: int | None, reduction: str) -> k.Tensor:
    """-weight[target] * logs[n, target, ...], reduced; a mean divides by the weights that took part."""
    if reduction not in ("none", "sum", "mean"):
        raise k.DefinitionError(f"reduction is {reduction!r}; expected none, sum or mean")
    labels = k.cast(target, DType.INT64)
    ignored = None if ignore_index is None else k.equal(labels, ignore_index)
    classes = labels if ignored is None else k.select(ignored, 0, labels)
    where = [classes if axis == 1 else k.iota(target.shape, axis - (axis > 1)) for axis in range(logs.rank)]
    picked = k.index(logs, where)
    share = k.full(target.shape, 1, logs.dtype) if weight is None else k.take(k.cast(weight, logs.dtype), classes, 0)
    if ignored is not None:
        share = k.select(ignored, 0.0, share)
        picked = k.select(ignored, 0.0, picked)
    loss = -(picked * share)
    if reduction == "none":
        return loss
    axes = range(target.rank)
    total = k.reduce_sum(loss, axes)
    return total if reduction == "sum" else total / k.reduce_sum(share, axes)
