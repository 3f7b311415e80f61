"""Values that are rounded where they are made: what only products of bfloat16 read is stored as bfloat16.

A product rounds its rows anyway (`bfloat16_rows`). Where the kernel before it does so as it stores them, half as many bytes
move, and no step of its own converts them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.primitives.lang import Tensor, cast, factor, walk
from intarsia.primitives.substitute import substitute
from intarsia.providers.cpu.kernels.common.lowering_options import LoweringOptions
from intarsia.providers.cpu.kernels.common.precision import options_at
from intarsia.providers.cpu.kernels.common.template import Template, Workspace
from intarsia.providers.cpu.lowering.fuse import Group, Grouping, operand_kind

_WHOLE = frozenset(("concat", "scan", "scatter", "dot", "argreduce"))  # what nothing is computed behind, in one nest


def narrow(
    grouping: Grouping, read_elsewhere: Collection[str], sized: Callable[[Group], bool], workspace: Workspace, target: Target
) -> set[str]:
    """Rounds such values: changes their groups, and returns the values.

    Args:
        read_elsewhere: values that are read otherwise, too: the graph's outputs.
        sized: whether a group's sizes are known when a run begins, so that it surely has a kernel.
    """
    readers: dict[str, list[Group]] = {}
    others = {grouping.canonical(name) for name in read_elsewhere}
    for g in grouping.groups:
        taken = _rounded_operands(g, workspace, target) if not g.host and sized(g) else ()
        sums = _summed(g, workspace.options) if taken else ()
        for name in (*taken, *sums):
            readers.setdefault(name, []).append(g)
        others.update(grouping.canonical(n) for node in g.nodes for n in node.used_names() if g.host)
        if g.template is not None:
            others.update(n for n in g.template.reads if n not in taken)
        others.update(t.attrs[0] for t in g.leaves() if t.attrs[0] not in sums)
    made = {name for g in grouping.groups if sized(g) for name in _may_round(g)} & readers.keys() - others
    for g in grouping.groups:
        for name in made.intersection(g.roots):
            g.roots[name] = factor(g.roots[name])
    for name in made:
        for g in readers[name]:
            assert g.template is not None
            g.template = _reading(g.template, name)
            g.roots = dict(zip(g.roots, substitute(list(g.roots.values()), partial(_widened, name)), strict=True))
    return made


def _rounded_operands(g: Group, workspace: Workspace, target: Target) -> tuple[str, ...]:
    if g.template is None or options_at(workspace.options, g.template.node).arithmetic != "bfloat16":
        return ()
    return g.template.rounds(target, workspace)


def _summed(g: Group, options: LoweringOptions) -> tuple[str, ...]:
    """What else a convolution that rounds its input may read rounded: the residual sums in its epilogue.

    They are as large as its result, and mostly what another convolution reads rounded anyway. Unasked only where the model has
    them in bfloat16."""
    if g.template is None or not g.template.sums_rounded:
        return ()
    if options.arithmetic is None and any(node.widened_from is not DType.BFLOAT16 for node in g.nodes):
        return ()
    output = next(iter(g.roots.values())).shape
    return tuple(t.attrs[0] for t in g.leaves() if t.dtype is DType.FLOAT and operand_kind(t, output) == "full")


def _widened(name: str, leaf: Tensor) -> Tensor:
    """`name` is stored in bfloat16."""
    if leaf.attrs[0] != name:
        return leaf
    return cast(Tensor("input", (), leaf.attrs, DType.BFLOAT16, leaf.shape), leaf.dtype)


def _may_round(g: Group) -> list[str]:
    """The value that a group's kernel can round as it stores it."""
    if g.host or len(g.roots) != 1 or (g.template is not None and not g.template.takes_epilogue):
        return []
    ((name, root),) = g.roots.items()
    whole = g.template is None and any(t.prim in _WHOLE for t in walk([root]))
    return [] if whole or root.dtype is not DType.FLOAT else [name]


def _reading(template: Template, name: str) -> Template:
    """The template with `name` as an operand of bfloat16."""
    types = tuple(
        replace(kind, dtype=DType.BFLOAT16) if kind is not None and read == name else kind
        for kind, read in zip(template.types, (*template.reads, *[""] * len(template.types)), strict=False)
    )
    return replace(template, types=types)
