"""Kernels for the steps of loops: several results of one shape at once, in place, or as a row of a stack.

Index: the primitive `row` is x[i] for a number `i` that is in range by construction (see `row`).
"""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.codegen.clike.dialects.dialect import Dialect
from intarsia.codegen.clike.schedules import THREADS, Kernel, _coordinates, _extent, _finished, _flat, _grid
from intarsia.codegen.clike.storage_types import Kind
from intarsia.codegen.clike.values import Values
from intarsia.codegen.clike.writer import Block
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives.lang import Tensor


def row(x: Tensor, at: Tensor) -> Tensor:
    """x[at, ...] for an int32 of rank 0, which counts rows and is in range."""
    return Tensor("row", (x, at), (), x.dtype, x.shape[1:])


@dataclass(frozen=True)
class Write:
    """One result of a step: element number i goes to place at * stride + base + i of its buffer.

    Attributes:
        root: what is written; its type takes a place of its own (it is not packed).
        size: elements of the whole buffer.
        at: an int32 of rank 0, or None for 0.
        in_place: name of the leaf that is the buffer's former content, read at the same element; "" where nobody reads it.
        once: the buffer is one number, the root that number in the others' shape.
    """

    root: Tensor
    size: int
    at: Tensor | None = None
    stride: int = 0
    base: int = 0
    in_place: str = ""
    once: bool = False


def step_kernel(dialect: Dialect, writes: Sequence[Write]) -> Kernel:
    """A thread per element; all values are computed before any is written. The roots have one shape."""
    v = Values(dialect)
    shape = writes[0].root.shape
    total = _extent(*shape)
    outputs = [v.output(w.root.dtype, (w.size,)) for w in writes]
    for w, out in zip(writes, outputs, strict=True):
        if w.in_place:
            v.aliases[w.in_place] = out
    block = _flat(v, "i", THREADS, total, v.top)
    at = _coordinates(v, "i", shape, block)
    values = [v.value(w.root, at, block) for w in writes]
    for w, out, value in zip(writes, outputs, values, strict=True):
        place = "i"
        if w.once:
            first_thread = Block(block)
            v.store(out, w.root.dtype, "0", value, first_thread)
            block.nest("if (i == 0) {", first_thread)
            continue
        if w.at is not None:
            first = v.index(("*", ("at", w.at, ()), w.stride), block)
            place = v.elements.let(block, f"({first} + i)", Kind.I32)
        if w.base:
            place = v.elements.let(block, f"({place} + {v.number(w.base)})", Kind.I32)
        v.store(out, w.root.dtype, place, value, block)
    updates = any(w.in_place for w in writes)
    return _finished(v, _grid(dialect, -(-total // THREADS)), THREADS, updates)
