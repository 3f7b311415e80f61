"""Epilogues: what is applied to a sum before it is stored (bias, activation, residual, scale, cast)."""

from __future__ import annotations

from functools import cached_property

from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives.lang import Tensor, walk


@dataclass(frozen=True, eq=False)
class Epilogue:
    """An element-wise expression over the accumulator and further operands.

    Attributes:
        root: element-wise primitives; `input(0)` is the accumulator of element (m, n), `input(i)` operand i - 1.
        kinds: per operand, how it is indexed: "column" by n, "row" by m, "full" like the output, "scalar" not at all.
        dtypes: per operand, its element type in memory.
        tame: nothing but a "full" operand can make NaN of integers: no primitive does, and all numbers and other floating
            operands are known, and none is NaN, infinite or huge.
    """

    root: Tensor
    kinds: tuple[str, ...] = ()
    dtypes: tuple[DType, ...] = ()
    tame: bool = False

    @property
    def dtype(self) -> DType:
        """Element type of the output."""
        return self.root.dtype

    @cached_property
    def key(self) -> str:
        """Text that is equal for equal epilogues."""
        order = {id(t): i for i, t in enumerate(walk([self.root]))}
        lines = [
            f"{t.prim}{t.attrs}:{t.dtype.onnx_name}({','.join(str(order[id(a)]) for a in t.args)})" for t in walk([self.root])
        ]
        operands = ",".join(f"{k}:{d.onnx_name}" for k, d in zip(self.kinds, self.dtypes, strict=True))
        return f"[{operands}{' tame' if self.tame else ''}] " + "; ".join(lines)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Epilogue) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)
