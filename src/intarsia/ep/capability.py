"""What a provider can run: an answer for one node, groups of nodes, and tables of kernels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from typing import Any

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Support:
    """Yes, or no with a reason for people and a stable code for programs. True in a condition when it is a yes.

    Codes that the framework itself gives: "unsupported" (any plain no), "no-kernel" (not in the kernel registry), "version"
    (only kernels for other versions of the operator), "type" (element type), "taken" (a provider of higher priority runs the
    node), "island" (not worth two copies), "shape" (integer shape arithmetic, computed on the host), "group" (the proposed
    group could not be taken whole), "compile" (its compiler failed), "not-claimed" (supported, but not among the groups that
    the provider proposed), "placed" (a rule of the user's).
    `suggestion`: what to do about it, where a provider knows.
    """

    ok: bool
    reason: str = ""
    code: str = ""
    suggestion: str = ""

    @classmethod
    def yes(cls) -> Support:
        """A node that the provider takes."""
        return _YES

    @classmethod
    def no(cls, reason: str, *, code: str = "unsupported", suggestion: str = "") -> Support:
        """A refusal; `reason` completes the sentence "not taken because ..."."""
        if not reason:
            raise ValueError("Support.no() needs a reason: say what is missing, for example 'float64 is not available in WGSL'")
        return cls(False, reason, code, suggestion)

    def __bool__(self) -> bool:
        return self.ok


_YES = Support(True)


@dataclass(frozen=True)
class ComputeCapability:
    """Nodes (indices into `Graph.nodes`) that a provider offers to run.

    A capability of one node may be merged with its neighbours into a larger part, unless it is `whole`. One of several nodes is
    taken as it is and compiled by itself, or not at all.
    """

    nodes: tuple[int, ...]
    name: str = ""
    whole: bool = False


Kernel = Callable[[Node, Sequence[Any]], Sequence[Any]]
"""Runs one node: its inputs (None where omitted) to its outputs, all in the provider's memory."""


@dataclass(frozen=True)
class KernelEntry:
    """A kernel for versions `since` to `until` (inclusive; None: all later ones) and, where given, element types."""

    kernel: Kernel
    since: int = 1
    until: int | None = None
    types: frozenset[DType] | None = None

    def covers(self, version: int) -> bool:
        """Whether the kernel is for this version of the operator (0: not resolved, any)."""
        return not version or (self.since <= version and (self.until is None or version <= self.until))


@dataclass
class KernelRegistry:
    """(domain, op, since-version range, element types) -> kernel."""

    entries: dict[tuple[str, str], list[KernelEntry]] = field(default_factory=dict)

    def register(
        self,
        op_type: str,
        kernel: Kernel,
        *,
        domain: str = "",
        since: int = 1,
        until: int | None = None,
        types: Collection[DType] | None = None,
    ) -> None:
        """Add a kernel. `types` are the element types that every tensor input may have (None: any)."""
        allowed = None if types is None else frozenset(types)
        self.entries.setdefault((domain, op_type), []).append(KernelEntry(kernel, since, until, allowed))

    def find(self, node: Node, graph: Graph) -> KernelEntry | Support:
        """The kernel for `node`, or the reason why there is none."""
        entries = self.entries.get((node.domain, node.op_type))
        if not entries:
            return Support.no(f"no kernel for {node.qualified_op}", code="no-kernel")
        fitting = [e for e in entries if e.covers(node.version)]
        if not fitting:
            spans = ", ".join(f"{e.since}-{e.until if e.until is not None else ''}" for e in entries)
            return Support.no(f"kernels of {node.qualified_op} are for versions {spans}, not {node.version}", code="no-kernel")
        types = [graph.type_of(n) for n in node.inputs if n]
        given = {t.dtype for t in types if isinstance(t, TensorType)}
        for entry in fitting:
            if entry.types is None or given <= entry.types:
                return entry
        allowed = frozenset[DType]().union(*(e.types for e in fitting if e.types is not None))
        wrong = ", ".join(sorted(t.onnx_name for t in given - allowed) or sorted(t.onnx_name for t in given))
        listed = ", ".join(sorted(t.onnx_name for t in allowed))
        return Support.no(f"no kernel of {node.qualified_op} takes {wrong} (has: {listed})", code="type")


@dataclass(frozen=True)
class KernelLookup:
    """What `get_capability` may ask: which nodes are still free, and which kernel the provider registered for a node."""

    graph: Graph
    registry: KernelRegistry | None
    taken: Collection[int] = ()

    def is_free(self, index: int) -> bool:
        """Whether no provider of higher priority has taken the node."""
        return index not in self.taken

    def find(self, node: Node) -> Kernel | None:
        """The registered kernel for the node's domain, op, version and input types."""
        found = self.registry.find(node, self.graph) if self.registry is not None else None
        return found.kernel if isinstance(found, KernelEntry) else None
