"""What native code relies on of values that are made by other means: operators of Python, bodies, elements of sequences.

Kernels are made for the element type, rank and sizes that inference found. Where a value comes from outside of native code,
that is looked at before a segment reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from intarsia.errors import NodeFailed
from intarsia.graph.dims import Expr, Shape, evaluate, format_shape
from intarsia.graph.dtypes import DType
from intarsia.plan.segment import Segment
from intarsia.plan.size_constraints import ElementsNeedVariant
from intarsia.providers.cpu.executable import Executable


class Wanted(NamedTuple):
    """A value as a segment reads it: the node that makes it, its element type, and sizes in symbols."""

    place: int  # among what the segment reads
    name: str
    node: str
    dtype: np.dtype[Any]
    dims: Shape

    def of(self, value: Any, env: Mapping[str, int]) -> np.ndarray:
        """The array that the segment may read.

        Raises:
            NodeFailed: the value is another one (ElementsNeedVariant: of another shape).
        """
        if not isinstance(value, np.ndarray) or value.dtype != self.dtype or value.ndim != len(self.dims):
            raise self._failed(value, format_shape(self.dims))
        try:
            for given, d in zip(value.shape, self.dims, strict=True):
                if given != (d.evaluate(env) if isinstance(d, Expr) else d):
                    raise self._failed(value, str([evaluate(e, env) for e in self.dims]))
        except (KeyError, ValueError, ZeroDivisionError) as error:
            raise self._failed(value, format_shape(self.dims)) from error
        return value if value.flags.c_contiguous and value.flags.aligned else np.array(value, order="C")

    def _failed(self, value: Any, shape: str) -> NodeFailed:
        given = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
        kind = ElementsNeedVariant if isinstance(value, np.ndarray) and value.dtype == self.dtype else NodeFailed
        return kind(
            f"{self.node}: its output {self.name!r} is {given}; expected {DType.of(self.dtype).onnx_name} of shape {shape}, as "
            "the types of its inputs say and what follows was compiled for: declare these, or their sizes, as they are"
        )


def wanted(executable: Executable, segment: Segment) -> tuple[Wanted, ...]:
    """What a segment reads that Python makes: operators, and loops whose results' types may be only declared."""
    made = executable.made_by_python
    found = ((i, n, made[n], segment.buffers[n]) for i, n in enumerate(segment.inputs) if n in made)
    return tuple([Wanted(i, n, f"node {m.name!r} ({m.qualified_op})", b.dtype.numpy, b.shape) for i, n, m, b in found])
