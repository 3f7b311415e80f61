"""Convolution and pooling on channels-last tensors [N, spatial..., C]: forms that providers use inside, never a model.

Each is the standard operator with its data input and output transposed; weights keep ONNX's layout.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from intarsia.kernel import lang as k
from intarsia.ops import nn, pooling
from intarsia.ops.registry import REGISTRY, OpRecord

DOMAIN = "intarsia.channels_last"
OPERATORS = ("Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")


def to_channels_first(x: k.Tensor) -> k.Tensor:
    return k.transpose(x, (0, x.rank - 1, *range(1, x.rank - 1)))


def to_channels_last(x: k.Tensor) -> k.Tensor:
    return k.transpose(x, (0, *range(2, x.rank), 1))


def _transposed(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def definition(x: k.Tensor, *others: Any, **attributes: Any) -> k.Tensor:
        out = function(to_channels_first(x), *others, **attributes)
        return to_channels_last(out[0] if isinstance(out, tuple) else out)

    return definition


def _register(record: OpRecord) -> None:
    REGISTRY.add(replace(record, domain=DOMAIN, function=_transposed(record.function)))


WRAPPED = (nn, pooling)  # imported first: their records are what is wrapped

for _name in OPERATORS:
    for _record in list(REGISTRY.records[("", _name)]):
        _register(_record)
