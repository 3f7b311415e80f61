"""Cost of loop kernels.

Steps that are read from the cache name a class of this module: without `lower`, since a session that only meets another
size needs none of what lowers a graph.
"""

from __future__ import annotations

from intarsia.graph.dims import Dim
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Sizes, Work

SERIAL_ELEMENTS = 8192  # below this many elements a kernel is not worth waking other threads for


@dataclass(frozen=True)
class LoopWork(Work):
    """The work of a loop kernel; a primitive is taken for the work of a load and a store, and so is an element of the `inside`
    that reductions take."""

    elements: Dim
    primitives: int
    inside: Dim

    def __call__(self, size: Sizes) -> float:
        return (size(self.elements) * self.primitives + size(self.inside)) / SERIAL_ELEMENTS
