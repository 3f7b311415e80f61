"""The graph while rules change it: indexed by value, patched in place, never rescanned for one patch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.graph.dims import Dim, Shape
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, TensorType, Value, ValueType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference, infer_node
from intarsia.ops.framework.registry import OpRecord, Registry
from intarsia.passes.opset_versions import emitted_version

if TYPE_CHECKING:
    from intarsia.passes.rule import Rule

    Rules = Mapping[str, Sequence[Rule]]

_REACH = 6  # nodes between a pattern's root and the farthest change that can make it match
_MANY_READERS = 16  # a value read by more nodes is part of no fusion
_FEW_INPUTS = 16  # more than any pattern has
_SMALL_ELEMENTS = 8  # constants of at most this many elements are compared by value


@dataclass
class Patch:
    """What a rule wants: new nodes and constants, and which old values the new ones stand for.

    The nodes take the place of the root node; what nothing reads any more afterwards is removed by the rewriter.
    """

    rewriter: Rewriter
    stem: str
    origin: tuple[str, ...] = ()
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    types: dict[str, ValueType] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)
    opset_imports: dict[str, int] = field(default_factory=dict)

    def op(
        self, op_type: str, inputs: Sequence[str], *, version: int = 0, type: ValueType | None = None, **attributes: Any
    ) -> str:
        """Add a node with one output and return that value's name. `version` 0: the one this package writes (versions.py)."""
        out = self.rewriter.fresh(f"{self.stem}.{op_type.lower()}", self.types)
        names = list(inputs)
        while names and not names[-1]:
            names.pop()
        given = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(Node(op_type, names, [out], given, version=version or emitted_version(op_type), origin=self.origin))
        if type is not None:
            self.types[out] = type
        else:
            self.types[out] = TensorType(DType.UNDEFINED)
        return out

    def node(self, node: Node) -> None:
        """Add a node whose outputs are named already: new names, or results of the nodes that it replaces."""
        self.nodes.append(node)

    def constant(self, array: np.ndarray, hint: str = "constant") -> str:
        name = self.rewriter.fresh(f"{self.stem}.{hint}", self.constants)
        self.constants[name] = Constant.of(name, array)
        return name

    def lazy_constant(self, dtype: DType, shape: Sequence[int], data: Callable[[], np.ndarray], hint: str = "constant") -> str:
        name = self.rewriter.fresh(f"{self.stem}.{hint}", self.constants)
        self.constants[name] = Constant(name, dtype, tuple(shape), data)
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64), "ints")

    def result(self, new: str, old: str) -> Patch:
        """From now on `new` stands for `old`."""
        self.results[old] = new
        return self


def _named(node: Node) -> tuple[str, ...]:
    return node.origin or ((node.name,) if node.name else ())


def _united(origins: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for names in origins for name in names))


class Rewriter:
    """One graph under change, with its indexes.

    Attributes:
        producer: value -> node that computes it.
        readers: value -> the nodes that read it, by identity (nodes whose subgraphs capture it included).
        outputs: names of the graph's outputs.
        retyped: how often a rule fired behind which more types are known.
    """

    def __init__(self, found: Inference, registry: Registry, outer: Rewriter | None = None) -> None:
        self.found, self.graph, self.registry, self.outer = found, found.graph, registry, outer
        self.types, self.values = found.types, found.values
        self.outputs = set(self.graph.output_names())
        self.inputs = set(self.graph.input_names())
        self.fixed = set(self.graph.overridable)
        self.slots: list[list[Node]] = [[n] for n in self.graph.nodes]
        self.slot_of = {id(n): i for i, n in enumerate(self.graph.nodes)}
        self.producer: dict[str, Node] = {}
        self.readers: dict[str, dict[int, Node]] = {}
        self.log: dict[str, list[str]] = {}
        self.budget: int | None = None
        self.seen: dict[Any, Node] = {}
        self.dirty = {id(n) for n in self.graph.nodes}
        self.notes: dict[Any, Any] = {}
        self.touched: set[str] = set()
        self.retyped = 0
        self._scalars: dict[str, float | None] = {}
        self._keys: dict[str, Any] = {}
        self._possible: dict[tuple[int, tuple[str, ...]], Sequence[Rule]] = {}
        self._stood_for: dict[int, list[Node]] = {}
        self._places: dict[int, dict[str, list[int]]] = {}
        for node in self.graph.nodes:
            self._index(node)

    # --- questions ------------------------------------------------------------------------------------------------

    def shape(self, name: str) -> Shape | None:
        kind = self.types.get(name)
        return kind.shape if isinstance(kind, TensorType) else None

    def rank(self, name: str) -> int | None:
        shape = self.shape(name)
        return None if shape is None else len(shape)

    def limits_sizes(self, node: Node) -> bool:
        """Whether a node is an error for some sizes that only a run gives, for which others that have its result are none."""
        return bool(self.found.requirements.get(node.outputs[0]))

    def dtype(self, name: str) -> DType | None:
        kind = self.types.get(name)
        return kind.dtype if isinstance(kind, TensorType) else None

    def constant(self, name: str) -> Constant | None:
        """The constant of this name, where the caller cannot replace it."""
        found = self.graph.constants.get(name)
        if found is not None:
            return None if name in self.fixed else found
        if self.outer is not None and name not in self.producer and name not in self.inputs:
            return self.outer.constant(name)
        return None

    def array(self, name: str, limit: int = 1 << 20) -> np.ndarray | None:
        """The data of a constant of at most `limit` elements."""
        found = self.constant(name)
        return None if found is None or found.size > limit else found.numpy()

    def scalar(self, name: str) -> float | None:
        """The value of a one-element numeric constant (of any rank)."""
        if name not in self._scalars:
            found = self.constant(name)
            value = None
            if found is not None and found.size == 1 and found.dtype is not DType.STRING and not found.dtype.is_complex:
                value = float(found.numpy().reshape(()).item())
            if found is None:
                return None
            self._scalars[name] = value
        return self._scalars[name]

    def ints(self, name: str) -> list[int] | None:
        """The elements of an integer tensor known before the model runs."""
        value = self.values.get(name)
        if value is None:
            found = self.constant(name)
            if found is None or not found.dtype.is_integer or found.size > 256:
                return None
            return [int(v) for v in found.numpy().reshape(-1)]
        flat = list(value.reshape(-1))
        return (
            [int(v) for v in flat] if all(isinstance(v, (int, np.integer)) for v in flat) and name not in self.fixed else None
        )

    def reader_count(self, name: str) -> int:
        """How many nodes read the value; a graph output counts as one more reader."""
        return len(self.readers.get(name, ())) + (name in self.outputs)

    def producer_of(self, name: str, *op_types: str) -> Node | None:
        """The node that computes `name`, if it is one of the standard operators `op_types`."""
        node = self.producer.get(name)
        return node if node is not None and node.op_type in op_types and not node.domain else None

    def heads(self, node: Node) -> tuple[str, ...]:
        """What each input of a node is, of the first ones that a pattern may look at: the type of the operator that computes
        it, "Constant" for a constant, "" for what the graph is given."""
        producer, found = self.producer, []
        for name in node.inputs if len(node.inputs) <= _FEW_INPUTS else node.inputs[:_FEW_INPUTS]:
            made_by = producer.get(name)
            if made_by is not None:
                found.append(made_by.op_type)
            else:
                found.append("Constant" if self.constant(name) is not None else "")
        return tuple(found)

    def record(self, node: Node) -> OpRecord | None:
        return self.registry.find(node.domain, node.op_type, node.version or 10_000)

    def value_key(self, name: str) -> Any:
        """Equal for values that are known to be equal: the name, or the contents of a small constant, or of sizes."""
        key = self._keys.get(name)
        if key is None:
            found = self.constant(name) if name else None
            if found is None:
                return self._sizes_key(name)
            key = name
            if found.size <= _SMALL_ELEMENTS and found.dtype is not DType.STRING:
                key = (found.dtype, found.shape, np.ascontiguousarray(found.numpy()).tobytes())
            self._keys[name] = key
        return key

    def _sizes_key(self, name: str) -> Any:
        values, dtype = self.values.get(name), self.dtype(name)
        if values is None or dtype is None or not dtype.is_integer or values.size > _SMALL_ELEMENTS:
            return name
        return dtype, values.shape, tuple(values.flat)

    def axes(self, node: Node, index: int = 1) -> list[int] | None:
        """A node's axes, from the attribute of old versions or the input of new ones."""
        found = node.attributes.get("axes")
        if found is not None:
            return list(found)
        return self.ints(node.inputs[index]) if len(node.inputs) > index and node.inputs[index] else None

    def axis_of_size(self, size: Dim) -> tuple[str, int] | None:
        """A graph input and its axis that has this size: the shortest way to a size that only a run knows."""
        for value in self.graph.inputs:
            shape = self.shape(value.name) or ()
            for axis, d in enumerate(shape):
                if d == size:
                    return value.name, axis
        return None

    def fresh(self, stem: str, taken: Mapping[str, object]) -> str:
        name, i = stem, 0
        while (
            name in self.types or name in self.producer or name in self.graph.constants or name in taken or name in self.inputs
        ):
            i += 1
            name = f"{stem}_{i}"
        return name

    # --- changes --------------------------------------------------------------------------------------------------

    def patch(self, root: Node, matched: Sequence[Node] = ()) -> Patch:
        """An empty patch that replaces `root`; `origin` unites those of the `matched` nodes."""
        found = list({id(n): n for n in (*matched, root)}.values())
        if len(found) > 1:
            found.sort(key=lambda n: self.slot_of.get(id(n), 0))
        return Patch(self, next(o for o in root.outputs if o), _united(map(self._origin, found)))

    def stands_for(self, first: Node, node: Node) -> None:
        """`first` is made from what `node` was, too: joined when it is requested, since one may stand for thousands."""
        self._stood_for.setdefault(id(first), [first]).append(node)

    def _origin(self, node: Node) -> tuple[str, ...]:
        """The nodes of the model that a node was made from."""
        merged = self._stood_for.pop(id(node), None)
        if merged is not None:
            merged.sort(key=lambda n: self.slot_of.get(id(n), 0))
            node.origin = _united(_named(n) for n in merged)
        return _named(node)

    def apply(self, patch: Patch, root: Node) -> bool:
        """Put the patch instead of `root`. False where it would change nothing."""
        made = {out for node in patch.nodes for out in node.outputs}
        aliases = {old: new for old, new in patch.results.items() if new not in made}
        if any(not self._can_alias(old, new) for old, new in aliases.items()):
            if not patch.nodes and root.op_type == "Identity" and not root.domain:
                return False
            for old, new in list(aliases.items()):
                if not self._can_alias(old, new):
                    patch.node(Node("Identity", [new], [old], {}, version=13, origin=patch.origin))
                    del aliases[old]
        renames: dict[str, str] = {}
        for old, new in patch.results.items():
            if new in made and new not in renames:
                renames[new] = old
            elif new in made:
                patch.node(Node("Identity", [renames[new]], [old], {}, version=13, origin=patch.origin))
        slot = self.slot_of[id(root)]
        at = next(i for i, n in enumerate(self.slots[slot]) if n is root)
        self._unindex(root)
        for name, constant in patch.constants.items():
            self.graph.constants[name] = constant
            self.types[name] = constant.type
            if constant.dtype.is_integer and constant.size <= 256:
                self.values[name] = constant.numpy().astype(object)
        for node in patch.nodes:
            node.inputs = [renames.get(n, n) for n in node.inputs]
            node.outputs = [renames.get(n, n) for n in node.outputs]
            node.name = node.name or f"{node.op_type}/{node.outputs[0]}"
            for name in node.outputs:
                declared = patch.types.get(name)
                if declared is not None and name not in self.types and declared != TensorType(DType.UNDEFINED):
                    self.types[name] = declared
        self.slots[slot][at : at + 1] = patch.nodes
        for node in patch.nodes:
            self.slot_of[id(node)] = slot
            self._index(node)
            if any(n and n not in self.types for n in node.outputs):
                infer_node(self.found, node, self.registry, strict=False)
        for old, new in aliases.items():
            self._alias(old, new)
        before = list(root.used_names())
        self._remove_dead(before + [o for n in patch.nodes for o in n.outputs])
        self.touched.update(before, patch.results, patch.results.values())
        return True

    def remove(self, node: Node) -> None:
        """Take out a node that nothing reads, and what only it read."""
        self._drop(node)
        self._remove_dead(list(node.used_names()))

    def finish(self) -> Graph:
        """The graph as it is now: nodes in order, constants that are still read."""
        graph = self.graph
        graph.nodes = [node for slot in self.slots for node in slot]
        for node in graph.nodes:
            if id(node) in self._stood_for:
                self._origin(node)
        graph.outputs = [v if v.type is not None else Value(v.name, self.types.get(v.name), v.doc) for v in graph.outputs]
        used = set(self.readers) | self.outputs | self.fixed
        graph.constants = {name: constant for name, constant in graph.constants.items() if name in used}
        live = used | self.inputs | {o for node in graph.nodes for o in node.outputs}
        graph.types = {name: kind for name, kind in self.types.items() if name in live}
        return graph

    def _can_alias(self, old: str, new: str) -> bool:
        """Whether readers of `old` can read `new` instead, without an Identity that keeps an output's name."""
        if old not in self.outputs:
            return True
        return new in self.producer and new not in self.outputs

    def _alias(self, old: str, new: str) -> None:
        if old in self.outputs:
            node = self.producer[new]
            del self.producer[new]
            node.outputs = [old if n == new else n for n in node.outputs]
            self.producer[old] = node
            if new in self.types:
                self.types[old] = self.types[new]
            if new in self.values:
                self.values[old] = self.values[new]
            old, new = new, old
        for node in self.readers.pop(old, {}).values():
            if len(node.inputs) <= _FEW_INPUTS:
                node.inputs = [new if n == old else n for n in node.inputs]
            else:
                self._replace_in_many(node, old, new)
            if node.has_subgraphs:
                Graph(nodes=[node]).replace_uses({old: new})
            self.readers.setdefault(new, {})[id(node)] = node

    def _replace_in_many(self, node: Node, old: str, new: str) -> None:
        """Read `new` in the places of `old`, without a look at all inputs of a Concat of thousands for each of them."""
        places = self._places.get(id(node))
        if places is None:
            node.inputs = list(node.inputs)
            places = self._places[id(node)] = {}
            for i, name in enumerate(node.inputs):
                places.setdefault(name, []).append(i)
        for i in places.pop(old, ()):
            node.inputs[i] = new
            places.setdefault(new, []).append(i)

    def _remove_dead(self, names: list[str]) -> None:
        while names:
            node = self.producer.get(names.pop())
            if node is not None and not any(self.reader_count(o) for o in node.outputs if o):
                self._drop(node)
                names.extend(node.used_names())

    def _drop(self, node: Node) -> None:
        self.dirty.discard(id(node))
        slot = self.slots[self.slot_of[id(node)]]
        slot[:] = [n for n in slot if n is not node]
        self._unindex(node)

    def _index(self, node: Node) -> None:
        for name in node.outputs:
            if name:
                self.producer[name] = node
        for name in node.used_names():
            self.readers.setdefault(name, {})[id(node)] = node

    def _unindex(self, node: Node) -> None:
        self._places.pop(id(node), None)
        for name in node.outputs:
            if self.producer.get(name) is node:
                del self.producer[name]
        for name in node.used_names():
            found = self.readers.get(name)
            if found is not None:
                found.pop(id(node), None)
                if not found:
                    del self.readers[name]

    # --- rules ----------------------------------------------------------------------------------------------------

    def alive(self, node: Node) -> bool:
        producer = self.producer
        for name in node.outputs:  # noqa: SIM110 # called for every node, many times: a generator takes three times as long
            if producer.get(name) is node:
                return True
        return False

    def run(self, new: Rules, rules: Rules, always: Sequence[Rule], everywhere: bool) -> bool:
        """One scan in topological order; new nodes are tried at once. True where anything changed.

        All `rules` are tried at nodes near a change since their last visit; where `everywhere`, the `new` ones at all nodes.
        """
        changed = False
        self.seen.clear()
        self.touched.clear()
        dirty = self.dirty
        where = range(len(self.slots)) if everywhere else sorted({self.slot_of[key] for key in dirty})
        for slot in map(self.slots.__getitem__, where):
            for first in tuple(slot):
                if id(first) not in dirty and not (everywhere and new[first.qualified_op]):
                    continue
                if self._scan(first, slot, new, rules, always):
                    changed = True
                if self.budget == 0:
                    return changed
        self._mark_dirty(list(self.touched))
        return changed

    def _scan(self, first: Node, slot: list[Node], new: Rules, rules: Rules, always: Sequence[Rule]) -> bool:
        """Try the rules at a node, and at what they make of it. True where anything changed."""
        changed = False
        stack = [first]
        while stack and self.budget != 0:
            node = stack.pop()
            if not self.alive(node):
                if not any(node.outputs) and any(n is node for n in slot):
                    self._drop(node)
                continue
            near = node is not first or id(node) in self.dirty
            self.dirty.discard(id(node))
            of_op = (rules if near else new)[node.qualified_op]
            made = self._try(node, always) if near else None
            if made is None and of_op:
                made = self._try(node, self._that_may_match(node, of_op))
            if made is not None:
                changed = True
                stack.extend(n for n in reversed(made) if n is not node)
        return changed

    def _that_may_match(self, node: Node, rules: Sequence[Rule]) -> Sequence[Rule]:
        """Those of an operator's rules whose patterns may match by what the node's inputs are: most nodes are like others."""
        heads = self.heads(node)
        key = (id(rules), heads)  # the rules are the phase's, which outlives the rewriter's scans
        found = self._possible.get(key)
        if found is None:
            found = self._possible[key] = [rule for rule in rules if rule.reads(heads, node.op_type)]
        return found

    def _mark_dirty(self, names: Sequence[str]) -> None:
        """Mark the nodes downstream of values that changed, as far as a pattern may reach."""
        found: set[int] = set()
        for _ in range(_REACH):
            following: list[str] = []
            for name in names:
                readers = self.readers.get(name)
                if readers is None or len(readers) > _MANY_READERS:
                    continue
                for key, node in readers.items():
                    if key not in found:
                        found.add(key)
                        following += node.outputs
            names = following
        self.dirty |= found

    def _try(self, node: Node, rules: Sequence[Rule]) -> list[Node] | None:
        for rule in rules:
            patch = rule.apply(self, node)
            if patch is None:
                continue
            where = node.name or node.outputs[0]
            if not self.apply(patch, node):
                continue
            self.log.setdefault(rule.name, []).append(where)
            self.retyped += rule.retypes
            if self.budget is not None:
                self.budget -= 1
            return patch.nodes
        return None
