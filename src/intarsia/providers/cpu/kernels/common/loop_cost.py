"""How much work loop kernels are.

Steps that are read from the cache name functions of this module: apart from `lower`, since a session that only meets another
size needs none of what lowers a graph.
"""

from __future__ import annotations

from intarsia.graph.dims import Dim
from intarsia.plan.step import Sizes

SERIAL_ELEMENTS = 8192  # below this many elements a kernel is not worth waking other threads for


def loop_shares(elements: Dim, primitives: int, inside: Dim, size: Sizes) -> float:
    """The work of a loop kernel, in times what is worth sharing; a primitive is taken for the work of a load and a store, and
    so is an element of the `inside` that reductions take."""
    return (size(elements) * primitives + size(inside)) / SERIAL_ELEMENTS
