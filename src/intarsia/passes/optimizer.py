"""The optimise stage: a graph and a level in, a graph and a log of what each rule did out."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from intarsia import progress
from intarsia.errors import UnknownOption, nearest
from intarsia.graph.model import Constant, Graph, Node, TensorType, Value, ValueType
from intarsia.graph.verify import verify
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference, infer, resolve_version
from intarsia.ops.framework.registry import Registry
from intarsia.passes.graph import inline
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Rewriter
from intarsia.passes.rule import Rule, RuleSet
from intarsia.passes.rule_index import OPERATORS

_SMALL_NBYTES = 64  # constants from around a body that it may have as its own
_SINK = "sink_into_branches"  # not a rule at a node, but named, counted and disabled like one
_TRAINING = "ai.onnx.preview.training"
_MAX_SCANS = 12  # a scan that changes nothing ends a phase; rules that undo one another would never end it

# Each phase runs its rule sets, and those of all phases before it, until nothing changes. They are named by module and literal:
# one is imported when a node is met at which one of its rules may begin (`rule_index`).
PHASES: tuple[tuple[str, ...], ...] = (
    (
        "rules.standardize_contrib.RULES",
        "rules.fold_constants.RULES",
        "graph.inline.RULES",
        "rules.loop_to_gather.RULES",
        "rules.hoist_loop_invariants.RULES",
        "rules.loop_to_scan_outputs.RULES",
        "rules.eliminate_sequences.RULES",
        "rules.simplify_shapes.RULES",
        "rules.simplify_shapes.EXTENDED_RULES",
        "rules.einsum_to_matmul.RULES",
        "rules.simplify_indexing.RULES",
        "rules.simplify_indexing.EXTENDED_RULES",
        "rules.hoist_through_concat.RULES",
        "rules.fold_affine.RULES",
        "rules.fold_padding.RULES",
    ),
    (
        "rules.fuse_activations.RULES",
        "rules.fuse_norms.RULES",
        "rules.hoist_through_concat.EXTENDED_RULES",
        "rules.fold_affine.EXTENDED_RULES",
        "rules.merge_parallel_convs.RULES",
        "rules.separable_max_pool.RULES",
    ),
    ("rules.fuse_rotary.RULES", "rules.fuse_attention.RULES"),
    ("rules.fuse_attention.HEAD_RULES",),
    ("rules.simplify_shapes.LATE_RULES",),
)
OPTIONAL: tuple[str, ...] = ("rules.fold_constants.OPTIONAL_RULES",)


@functools.cache
def rule_set(name: str) -> RuleSet:
    """One of those that `PHASES` and `OPTIONAL` name, imported."""
    module, _, literal = name.rpartition(".")
    found: RuleSet = getattr(importlib.import_module(f"intarsia.passes.{module}"), literal)
    return found


class LogEntry(NamedTuple):
    """A rule, how often it fired, and at which nodes."""

    rule: str
    times: int
    where: tuple[str, ...]


@dataclass(frozen=True)
class OptimizeResult:
    """The optimised graph, and what was done to get there. Prints as a table of rules."""

    graph: Graph
    log: tuple[LogEntry, ...] = ()
    nodes_before: int = 0

    def __str__(self) -> str:
        lines = [f"{self.nodes_before} nodes -> {len(self.graph.nodes)} nodes"]
        width = max((len(entry.rule) for entry in self.log), default=0)
        for entry in self.log:
            shown = ", ".join(entry.where[:3]) + (", ..." if len(entry.where) > 3 else "")
            lines.append(f"  {entry.rule:<{width}}  {entry.times:>4}  {shown}")
        return "\n".join(lines)


@functools.cache
def rule_names() -> tuple[str, ...]:
    """All rules that can be disabled, and those that must be enabled, in the order in which they are tried."""
    sets = [s for phase in PHASES for s in phase] + list(OPTIONAL)
    return (*dict.fromkeys(rule.name for s in sets for rule in rule_set(s)), _SINK)


def optimize(
    graph: Graph,
    level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL,
    *,
    disabled: frozenset[str] = frozenset(),
    enabled: frozenset[str] = frozenset(),
    limit: int | None = None,
    registry: Registry | None = None,
) -> OptimizeResult:
    """An equivalent graph of fewer and larger nodes; `graph` itself is not changed.

    Args:
        level: ORT_ENABLE_BASIC folds what is known, ORT_ENABLE_EXTENDED also recognises composed operators.
        disabled: names of rules that are not to fire (`rule_names()`).
        enabled: names of optional rules that are to fire (`fold_dequantize`).
        limit: at most this many rewrites, to find by bisection the one that changes a result.
        registry: operator definitions; by default all of Intarsia's.

    Raises:
        UnknownOption: a name in `disabled` or `enabled` is no rule.
        InvalidGraph: a node's inputs do not fit its definition.
    """
    for name in sorted(disabled | enabled):
        if name not in (known := rule_names()):
            raise UnknownOption(f"no optimisation rule is called {name!r}: {nearest(name, known)}")
    before = len(graph.nodes)
    if registry is None:
        from intarsia.ops import registry as all_operators

        registry = all_operators()
    verify(graph)
    if _has_gradient(graph):
        from intarsia.passes.graph import expand_gradients

        graph = expand_gradients.expand_gradients(inline.inline_functions(graph, registry), registry)
    if level is GraphOptimizationLevel.ORT_DISABLE_ALL:
        return OptimizeResult(_versions_in_bodies(inline.inline_functions(graph, registry), registry), nodes_before=before)
    log: dict[str, list[str]] = {}
    session = _Session(level, disabled, enabled, registry, log, limit)
    optimized = session.optimize(graph, None)
    verify(optimized)
    entries = tuple(LogEntry(rule, len(where), tuple(where)) for rule, where in log.items())
    return OptimizeResult(optimized, entries, before)


def _has_gradient(graph: Graph) -> bool:
    """Whether the graph, or a body in it, contains a Gradient."""
    return any(
        node.op_type == "Gradient" and node.domain == _TRAINING or any(map(_has_gradient, node.subgraphs))
        for node in graph.nodes
    )


def _versions_in_bodies(graph: Graph, registry: Registry, imports: Mapping[str, int] | None = None) -> Graph:
    """A graph whose bodies' nodes have their versions: what runs a body knows nothing of the model's operator sets.

    Where bodies are optimised, inference has done so. `imports`: of a body, the model's operator sets.
    """
    if imports is None and not any(node.has_subgraphs for node in graph.nodes):
        return graph
    out = graph.clone()
    out.opset_imports = graph.opset_imports or dict(imports or {})
    body = functools.partial(_versions_in_bodies, registry=registry, imports=out.opset_imports)
    for node in out.nodes:
        if imports is not None:
            record = resolve_version(out, node, registry)
            node.version = record.since if record is not None else node.version
        node.replace_subgraphs(body)
    out.opset_imports = dict(graph.opset_imports)
    return out


@dataclass
class _Session:
    level: GraphOptimizationLevel
    disabled: frozenset[str]
    enabled: frozenset[str]
    registry: Registry
    log: dict[str, list[str]]
    budget: int | None

    def optimize(self, graph: Graph, outer: Rewriter | None) -> Graph:
        if outer is None:
            graph = inline.inline_functions(graph, self.registry)
        rewriter = Rewriter(self._infer(graph, outer), self.registry, outer)
        rewriter.log, rewriter.budget = self.log, self.budget
        phases = _phases(self.level, self.disabled, self.enabled)
        for number, ((by_op, always), (new, _)) in enumerate(phases):
            progress.step("optimize", number if outer is None else 0, len(phases))
            for _ in range(_MAX_SCANS):
                before = rewriter.retyped
                for scan in range(_MAX_SCANS):
                    if rewriter.budget == 0 or not rewriter.run(new, by_op, always, everywhere=scan == 0):
                        break
                if rewriter.retyped == before or rewriter.budget == 0:
                    break
                rewriter = self._again(rewriter, outer)
        self.budget = rewriter.budget
        self._optimize_bodies(rewriter)
        return rewriter.finish()

    def _again(self, rewriter: Rewriter, outer: Rewriter | None) -> Rewriter:
        """The graph so far, inferred anew: sizes of what was in a sequence are known once it is none."""
        graph = rewriter.finish()
        graph.types = {}
        made = Rewriter(self._infer(graph, outer), self.registry, outer)
        made.log, made.budget = self.log, rewriter.budget
        return made

    def _optimize_bodies(self, rewriter: Rewriter) -> None:
        for slot in rewriter.slots:
            for node in slot:
                node.replace_subgraphs(functools.partial(self._body, rewriter=rewriter, node=node))

    def _body(self, body: Graph, rewriter: Rewriter, node: Node) -> Graph:
        """A body optimised on its own. The shapes that its inputs declare are not relied on: a loop may change them."""
        inner = body.clone()
        inner.opset_imports = body.opset_imports or dict(rewriter.graph.opset_imports)
        kinds: list[ValueType | None] = [
            TensorType(v.type.dtype) if isinstance(v.type, TensorType) else v.type for v in body.inputs
        ]
        if node.op_type == "Loop" and not node.domain and len(body.inputs) == len(node.inputs) >= 2:
            from intarsia.passes.analysis.loop_types import taken_types

            kinds = taken_types(node, body, rewriter)
        sunk = self._sunk(inner, kinds, rewriter, node)
        if sunk is not inner and node.op_type == "Loop":
            from intarsia.passes.analysis.loop_types import taken_types

            kinds = taken_types(node, sunk, rewriter)
        inner = sunk
        inner.inputs = [Value(v.name, kind, v.doc) for v, kind in zip(body.inputs, kinds, strict=True)]
        inner.types = {}
        out = self.optimize(inner, rewriter)
        out.inputs, out.opset_imports = body.inputs, body.opset_imports
        _own_constants(out, rewriter)
        return out

    def _sunk(self, body: Graph, kinds: Sequence[ValueType | None], around: Rewriter, node: Node) -> Graph:
        """The body of a loop with what sees branches of different sizes in these branches."""
        if node.op_type not in ("Loop", "Scan") or node.domain or _SINK in self.disabled or self.budget == 0:
            return body
        if not any(inner.op_type == "If" and not inner.domain for inner in body.nodes):
            return body
        from intarsia.passes.analysis.loop_types import body_inference
        from intarsia.passes.graph.sink_into_branches import sink_into_branches

        made = sink_into_branches(body, body_inference(body, kinds, around), self.registry)
        if made is not body:
            self.log.setdefault(_SINK, []).append(node.name)
            self.budget = None if self.budget is None else self.budget - 1
        return made

    def _infer(self, graph: Graph, outer: Rewriter | None) -> Inference:
        """Types of all values; initializers that the caller may replace count as inputs."""
        given = graph
        if graph.overridable:
            given = graph.clone()
            for name in graph.overridable:
                given.inputs.append(Value(name, graph.overridable_type(name)))
                del given.constants[name]
        found = infer(given, self.registry, outer.types if outer else None, outer.values if outer else None, strict=False)
        if graph.overridable:
            found.graph.inputs = list(graph.inputs)
            found.graph.constants = dict(graph.constants)
        return found


def _own_constants(body: Graph, around: Rewriter) -> None:
    """Outputs that are copies of small constants from around the body become constants of its own, so that what looks at the
    body alone knows them: a loop whose condition is such a `true` has as many rows as trips."""
    made_by, outputs = body.producers(), set(body.output_names())
    for name in outputs:
        node = made_by.get(name)
        if node is None or node.domain or node.op_type != "Identity" or node.inputs[0] in made_by:
            continue
        if any(v.name == node.inputs[0] for v in body.inputs) or node.inputs[0] in body.constants:
            continue
        found = around.constant(node.inputs[0])
        if found is not None and found.nbytes <= _SMALL_NBYTES:
            body.nodes.remove(node)
            body.constants[name] = Constant.of(name, found.numpy())


class _ByOperator(dict[str, Sequence[Rule]]):
    """Of some rule sets, the rules that begin at an operator, found when it is first requested.

    Args:
        sets: names of rule sets in order.
        chosen: whether a rule of a set may fire.
    """

    def __init__(self, sets: Sequence[str], chosen: Callable[[str, RuleSet, Rule], bool]) -> None:
        super().__init__()
        self._sets, self._chosen = sets, chosen

    def __missing__(self, operator: str) -> Sequence[Rule]:
        sets = [name for name in self._sets if operator in OPERATORS[name]]
        if not sets:
            return ()
        loaded = [(name, rule_set(name)) for name in sets]
        rules = [r for name, of in loaded for r in of if operator in r.roots and self._chosen(name, of, r)]
        return self.setdefault(operator, rules)  # the first that was made stays: rewriters know it by its identity


Index = tuple[_ByOperator, Sequence[Rule]]
_ANY = "*"


@functools.lru_cache(maxsize=32)
def _phases(level: GraphOptimizationLevel, disabled: frozenset[str], enabled: frozenset[str]) -> list[tuple[Index, Index]]:
    """Per phase, all rules that may fire in it, and those of them that are new in it: by operator, and for every operator."""

    def chosen(name: str, of: RuleSet, rule: Rule) -> bool:
        return level.includes(of.level) and rule.name not in disabled and (name not in OPTIONAL or rule.name in enabled)

    def indexed(sets: Sequence[str]) -> Index:
        by_operator = _ByOperator(sets, chosen)
        return by_operator, by_operator[_ANY]

    found: list[tuple[Index, Index]] = []
    sets: list[str] = []
    for number, phase in enumerate(PHASES):
        new = [*phase, *(OPTIONAL if number == 0 and enabled else ())]
        sets += new
        found.append((indexed(tuple(sets)), indexed(tuple(new))))
    return found
