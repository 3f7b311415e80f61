"""The terms of zero points between the sums of a product of bytes and its epilogue; see `matmul_int8`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Role
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import SUMS


class Correction:
    """Puts the terms of zero points between the sums and an epilogue: `subtract` as often as needed, then `finish`.

    `sums`: the element type in which the kernel has the sums, if not int32.
    """

    def __init__(self, epilogue: Epilogue | None, operands: Sequence[FusedOperand], sums: DType = SUMS) -> None:
        root = epilogue.root if epilogue else k.input(0, SUMS, ())
        first = next(t for t in k.walk([root]) if t.prim == "input" and t.attrs[0] == 0)
        self.root, self.shape = root, first.shape
        self.value = first if sums is SUMS else k.cast(Tensor("input", (), (0,), sums, first.shape), SUMS)
        self.kinds, self.dtypes = list(epilogue.kinds if epilogue else ()), list(epilogue.dtypes if epilogue else ())
        self.operands = list(operands)
        self.tame = epilogue.tame if epilogue else True

    def operand(self, name: str, kind: str, dtype: DType, role: Role = Role.VALUE) -> Tensor:
        """A further operand, as int32."""
        self.kinds.append(kind)
        self.dtypes.append(dtype)
        self.operands.append(FusedOperand(name, kind, dtype, role))
        return k.cast(k.input(len(self.kinds), dtype, self.shape), SUMS)

    def number(self, value: int) -> Tensor:
        return k.full(self.shape, int(np.array(value, np.int64).astype(np.int32)), SUMS)

    def subtract(self, term: Tensor) -> None:
        self.value = self.value - term

    def finish(self) -> tuple[Epilogue | None, list[FusedOperand]]:
        """The epilogue with what was subtracted, and its operands."""
        made: dict[int, Tensor] = {}
        for t in k.walk([self.root]):
            if t.prim == "input":
                made[id(t)] = self.value if t.attrs[0] == 0 else t
            elif (steps := _dequantized(t)) is not None:
                whole, zero, bounds = steps
                value, moved = made[id(whole)], k.cast(made[id(zero)], DType.FLOAT)
                if bounds:
                    made[id(t)] = k.minimum(k.maximum(value, bounds[0] - moved), bounds[1] - moved)
                else:
                    made[id(t)] = value - moved
            else:
                made[id(t)] = Tensor(t.prim, tuple(made[id(a)] for a in t.args), t.attrs, t.dtype, t.shape)
        root = made[id(self.root)]
        plain = root.prim == "input"
        epilogue = None if plain else Epilogue(root, tuple(self.kinds), tuple(self.dtypes), self.tame)
        return epilogue, self.operands


def _dequantized(t: Tensor) -> tuple[Tensor, Tensor, tuple[float, ...]] | None:
    """Of a byte less its zero point in float, where the byte was made from a float just before: a whole float, the zero point,
    and the bounds of what is a byte.

    The float need not become a byte in between: it is from 0 to 255 (or -128 to 127), and there are no bounds; or it still
    lacks the same zero point, and is to be clamped to bounds that lack it, too.
    """
    if t.prim != "cast" or t.dtype is not DType.FLOAT or t.args[0].prim != "sub":
        return None
    whole, zero = t.args[0].args
    if whole.prim != "cast" or whole.args[0].prim != "cast" or whole.args[0].dtype not in (DType.UINT8, DType.INT8):
        return None
    clamped = whole.args[0].args[0]
    low, high = (0, 255) if whole.args[0].dtype is DType.UINT8 else (-128, 127)
    if clamped.prim != "min" or clamped.dtype is not DType.FLOAT or _number(clamped.args[1]) != high:
        return None
    above = clamped.args[0]
    if above.prim != "max" or _number(above.args[1]) != low:
        return None
    moved = above.args[0]
    rounded = moved.args[0] if moved.prim == "add" and _is_whole(moved.args[1]) else moved
    if rounded.prim != "round" or t.args[0].dtype is not SUMS:
        return None
    if rounded is not moved and _source(moved.args[1]) == _source(zero):
        return rounded, zero, (float(low), float(high))
    return clamped, zero, ()


def _number(t: Tensor) -> float | None:
    """The number that a tensor is everywhere."""
    t = t.args[0] if t.prim == "broadcast" else t
    return float(t.attrs[0]) if t.prim == "scalar" else None


def _source(t: Tensor) -> object:
    """Which byte was cast and broadcast."""
    while t.prim in ("broadcast", "cast"):
        (t,) = t.args
    return t.attrs if t.prim in ("input", "scalar") else id(t)


def _is_whole(t: Tensor) -> bool:
    """Whether a float is a byte that was cast."""
    t = t.args[0] if t.prim == "broadcast" else t
    return t.prim == "cast" and t.args[0].dtype in (DType.UINT8, DType.INT8)
