"""Boolean operators and comparisons."""

from __future__ import annotations

from collections.abc import Callable

from intarsia.ops.framework.operands import aligned
from intarsia.ops.framework.registry import op
from intarsia.primitives import lang as k

Tensor = k.Tensor
Definition = Callable[[Tensor, Tensor], Tensor]

_BINARY: dict[str, tuple[Definition, tuple[int, ...]]] = {
    "And": (Tensor.__and__, (7,)),
    "Or": (Tensor.__or__, (7,)),
    "Xor": (Tensor.__xor__, (7,)),
    "Equal": (k.equal, (7, 11, 13, 19)),
    "Less": (Tensor.__lt__, (7, 9, 13)),
    "Greater": (Tensor.__gt__, (7, 9, 13)),
    "LessOrEqual": (Tensor.__le__, (12, 16)),
    "GreaterOrEqual": (Tensor.__ge__, (12, 16)),
}
_AT_AXIS = ("And", "Or", "Xor", "Equal", "Less", "Greater")  # those that opset 1 had, with its explicit broadcasting


def _binary(function: Definition) -> Definition:
    def definition(A: Tensor, B: Tensor) -> Tensor:
        return function(A, B)

    return definition


def _binary_at_axis(function: Definition) -> Callable[..., Tensor]:
    def definition(A: Tensor, B: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
        return function(A, aligned(B, A.rank, axis) if broadcast else B)

    return definition


for _name, (_function, _since) in _BINARY.items():
    op(_name, _since)(_binary(_function))
    if _name in _AT_AXIS:
        op(_name, 1)(_binary_at_axis(_function))


@op("Not", 1)
def logical_not(X: Tensor) -> Tensor:
    return ~X
