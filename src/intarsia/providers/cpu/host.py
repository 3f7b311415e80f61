"""Host operators that have a kernel: called from Python, since sizes of their outputs depend on data."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from intarsia.codegen.target import Target
from intarsia.graph.model import Node

HostKernel = Callable[[Node, Sequence[Any], Target], list[Any]]

_KERNELS: Mapping[tuple[str, str], str] = {
    ("", "NonMaxSuppression"): "intarsia.providers.cpu.suppression:non_max_suppression",
}


def host_kernel(node: Node) -> HostKernel | None:
    """What computes `node` from its inputs (None where omitted) in place of its definition, if anything does."""
    where = _KERNELS.get((node.domain, node.op_type))
    if where is None:
        return None
    module, name = where.split(":")
    found: HostKernel = getattr(importlib.import_module(module), name)
    return found
