"""If whose branches give different sizes, inside a loop: what reads these goes into the branches, until sizes agree.

Native code needs one size for each value of a body. Often only a few nodes see the difference: a sum over the axis, or a slice
of it, has the same sizes whichever branch ran. Such nodes are in both branches then.
"""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.errors import IntarsiaError
from intarsia.graph.model import Graph, Node, Value, ValueType
from intarsia.graph.order import sort_nodes
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference, infer
from intarsia.ops.framework.registry import Registry
from intarsia.primitives import lang as k

_MOST_NODES = 32  # that are in both branches then
_BRANCHES = ("then_branch", "else_branch")


def sink_into_branches(body: Graph, found: Inference, registry: Registry) -> Graph:
    """The body of a loop with its If's widened; the same graph where nothing is done.

    Args:
        found: types and values in the body, and of what it captures.
    """
    changed = body
    for node in body.nodes:
        if node.op_type == "If" and not node.domain and all(isinstance(node.attributes.get(b), Graph) for b in _BRANCHES):
            made = _Sinking(changed, node, found, registry).made()
            changed = changed if made is None else made
    return changed


@dataclass(frozen=True)
class _Sinking:
    graph: Graph
    node: Node
    found: Inference
    registry: Registry

    def made(self) -> Graph | None:
        moved: list[Node] = []
        given = [name for name in self.node.outputs if name]
        while True:
            kinds = [self._types(branch, moved) for branch in _BRANCHES]
            if kinds[0] is None or kinds[1] is None:
                return None
            here = dict(zip(kinds[0], zip(kinds[0].values(), kinds[1].values(), strict=True), strict=True))
            read = self._read_outside(moved)
            differ = {
                name for name in (*given, *(o for n in moved for o in n.outputs)) if name in read and not _agree(here[name])
            }
            if not differ:
                return self._patched(moved, [n for n in here if n in read]) if moved else None
            if differ & set(self.graph.output_names()):
                return None
            wider = self._with_readers(moved, differ, set(here))
            if wider is None or len(wider) > _MOST_NODES:
                return None
            moved = wider

    def _types(self, branch: str, moved: Sequence[Node]) -> dict[str, ValueType | None] | None:
        """Types of the If's outputs and of what the moved nodes give, where `branch` runs."""
        inner = self._branch(branch, moved, [])
        try:
            kinds = infer(inner, self.registry, self.found.types, self.found.values, strict=False).types
        except (IntarsiaError, k.DefinitionError):
            return None
        own = [v.name for v in self.node.attributes[branch].outputs]
        first = {name: kinds.get(inside) for name, inside in zip(self.node.outputs, own, strict=True) if name}
        return {**first, **{o: kinds.get(self._inside(o, branch)) for n in moved for o in n.outputs if o}}

    def _inside(self, name: str, branch: str) -> str:
        return f"{name}%{branch[:4]}"

    def _branch(self, branch: str, moved: Sequence[Node], outputs: Sequence[str]) -> Graph:
        """A branch with the moved nodes behind it."""
        inner: Graph = self.node.attributes[branch].clone()
        inner.opset_imports = inner.opset_imports or dict(self.graph.opset_imports)
        names = {name: v.name for name, v in zip(self.node.outputs, inner.outputs, strict=True) if name}
        names.update((o, self._inside(o, branch)) for n in moved for o in n.outputs if o)
        for node in moved:
            inner.nodes.append(
                node.copy(
                    inputs=[names.get(i, i) for i in node.inputs], outputs=[names.get(o, o) for o in node.outputs], traced=None
                )
            )
        inner.outputs = [Value(names[o], None) for o in outputs]
        return inner

    def _read_outside(self, moved: Sequence[Node]) -> set[str]:
        inside = {id(n) for n in (*moved, self.node)}
        names = (name for n in self.graph.nodes if id(n) not in inside for name in n.used_names())
        return {*names, *self.graph.output_names()}

    def _with_readers(self, moved: Sequence[Node], differ: set[str], behind: set[str]) -> list[Node] | None:
        """The moved nodes and all that read values of different sizes, with what lies between, in order."""
        inside = {id(n) for n in moved}
        after: set[str] = set(behind)  # what follows from the If
        wanted: dict[str, Node] = {}
        taken = set(inside)
        for node in self.graph.nodes:
            if node is self.node or not (node.used_names() & after):
                continue
            after.update(o for o in node.outputs if o)
            wanted.update((o, node) for o in node.outputs if o)
            if node.used_names() & differ:
                taken.add(id(node))
        needed = [n for n in self.graph.nodes if id(n) in taken]
        while needed:  # what a moved node reads must be there before the If
            node = needed.pop()
            for name in node.used_names():
                before = wanted.get(name)
                if before is not None and id(before) not in taken:
                    taken.add(id(before))
                    needed.append(before)
        chosen = [n for n in self.graph.nodes if id(n) in taken]
        return None if any(True for n in chosen for _ in n.subgraphs) else chosen

    def _patched(self, moved: Sequence[Node], outputs: Sequence[str]) -> Graph | None:
        made = self.graph.clone()
        drop = {id(n) for n in (self.node, *moved)}
        attributes = {**self.node.attributes, **{b: self._branch(b, moved, outputs) for b in _BRANCHES}}
        wide = self.node.copy(outputs=list(outputs), attributes=attributes, traced=None)
        made.nodes = [wide if n is self.node else n for n in self.graph.nodes if n is self.node or id(n) not in drop]
        sort_nodes(made)
        return made


def _agree(kinds: tuple[ValueType | None, ValueType | None]) -> bool:
    return kinds[0] is not None and kinds[0] == kinds[1]
