"""Host operators that have a kernel: called from Python, since sizes of their outputs depend on data."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intarsia.graph.model import Node

if TYPE_CHECKING:
    from intarsia.codegen.target import Target

# Answers None where the operands are not what it is made for: the definition then computes them.
HostKernel = Callable[[Node, Sequence[Any], "Target"], list[Any] | None]

NATIVE = " (native kernel)"  # behind an operator's name, in reports

_KERNELS: Mapping[tuple[str, str], str] = {
    ("", "NonZero"): "intarsia.providers.cpu.selection:non_zero",
    ("", "Compress"): "intarsia.providers.cpu.selection:compress",
    ("", "Unique"): "intarsia.providers.cpu.selection:unique",
    ("", "Range"): "intarsia.providers.cpu.selection:range_of",
    ("", "NonMaxSuppression"): "intarsia.providers.cpu.suppression:non_max_suppression",
}


_MACHINE_CODE = frozenset(
    (("", "NonZero"), ("", "Compress"), ("", "NonMaxSuppression"))
)  # the others are NumPy's functions without detours


def native_kernel(node: Node) -> bool:
    """Whether machine code computes `node`, although Python calls it."""
    return (node.domain, node.op_type) in _MACHINE_CODE


def host_kernel(node: Node) -> HostKernel | None:
    """What computes `node` from its inputs (None where omitted) in place of its definition, if anything does."""
    return _named(node.domain, node.op_type)


@functools.cache
def _named(domain: str, op_type: str) -> HostKernel | None:
    where = _KERNELS.get((domain, op_type))
    if where is None:
        return None
    module, name = where.split(":")
    found: HostKernel = getattr(importlib.import_module(module), name)
    return found
