"""Host operators that have a kernel: called from Python, since sizes of their outputs depend on data."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intarsia.errors import Fail, IntarsiaError, OutOfMemory
from intarsia.graph.model import Node
from intarsia.machine.resources import ACCOUNT

if TYPE_CHECKING:
    from intarsia.codegen.llvm.target import Target
    from intarsia.ops.framework.evaluate import Evaluate
    from intarsia.ops.framework.registry import Registry

# Answers None where the operands are not what it is made for: the definition then computes them.
HostKernel = Callable[[Node, Sequence[Any], "Target"], list[Any] | None]

NATIVE = " (native kernel)"  # behind an operator's name, in reports

_KERNELS: Mapping[tuple[str, str], str] = {
    ("", "NonZero"): "intarsia.providers.cpu.kernels.selection.host_selection:non_zero",
    ("", "Compress"): "intarsia.providers.cpu.kernels.selection.host_selection:compress",
    ("", "Unique"): "intarsia.providers.cpu.kernels.selection.host_selection:unique",
    ("", "Range"): "intarsia.providers.cpu.kernels.selection.host_selection:range_of",
    ("", "NonMaxSuppression"): "intarsia.providers.cpu.kernels.selection.nms:non_max_suppression",
    ("", "Cast"): "intarsia.providers.cpu.kernels.text.number_text:cast",
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


def host_call(node: Node, registry: Callable[[], Registry], target: Target, typed: bool = False) -> Evaluate:
    """A node without bodies as a function of its inputs: by its kernel, and by its definition where that answers None.

    `typed`: its inputs are of the types that inference found.

    The function raises what `ops.framework.evaluate.evaluate_node` raises, and OutOfMemory and Fail where a kernel does not get
    on.
    """
    kernel = host_kernel(node)
    if kernel is None:
        return _defined(node, registry(), typed)

    @functools.cache
    def defined() -> Evaluate:
        return _defined(node, registry(), typed)

    def called(inputs: Sequence[Any]) -> list[Any]:
        try:
            made = kernel(node, inputs, target)
            if made is not None and (account := ACCOUNT.get()) is not None:
                account.check_texts(made)
        except IntarsiaError:
            raise
        except Exception as error:
            known = _failed(node, error)
            if known is None:
                raise
            raise known from error
        return defined()(inputs) if made is None else made

    return called


def _defined(node: Node, registry: Registry, typed: bool) -> Evaluate:
    from intarsia.ops.framework.evaluate import evaluate_node, prepared_call

    record = registry.find(node.domain, node.op_type, node.version or 10_000)
    return (lambda inputs: evaluate_node(node, inputs, registry)) if record is None else prepared_call(record, node, typed)


def _failed(node: Node, error: Exception) -> Exception | None:
    """What a kernel's error is to callers; None: a mistake of this package, which stays what it is."""
    from intarsia.ops.framework.evaluate import is_too_big
    from intarsia.ops.framework.infer import MALFORMED

    where = f"node {node.name!r} ({node.qualified_op})"
    if isinstance(error, MemoryError) or is_too_big(error):
        return OutOfMemory(f"{where}: {error}: use a smaller batch or a shorter input, or free memory")
    if isinstance(error, MALFORMED):  # what NumPy says of sizes that are negative, or absurd
        return Fail(f"{where} failed: {error}")
    return None


@functools.cache
def _named(domain: str, op_type: str) -> HostKernel | None:
    where = _KERNELS.get((domain, op_type))
    if where is None:
        return None
    module, name = where.split(":")
    found: HostKernel = getattr(importlib.import_module(module), name)
    return found
