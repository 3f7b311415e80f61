"""Legalize: a part in, an equal part in the operators that a vendor has, and a log of the rules that fired, out.

The rules are those of the optimise stage in kind (`passes.rule`): a pattern, a check, a patch. A vendor lists the sets that it
wants; `legalization_rules` has those that several vendors share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from intarsia.errors import InvalidGraph
from intarsia.graph.model import Graph
from intarsia.lazy_dataclass import dataclass
from intarsia.ops import registry
from intarsia.ops.framework.infer import infer
from intarsia.passes.graph.inline import inline_functions
from intarsia.passes.optimizer import LogEntry
from intarsia.passes.rewriter import Rewriter
from intarsia.passes.rule import Rule, RuleSet

_MOST_SCANS = 12
_FOLDED = ("Range",)  # of known sizes it is a constant; ONNX's function of it is a loop


@dataclass(frozen=True)
class LegalizedPart:
    """The part, types inferred, and which rules fired where."""

    graph: Graph
    log: tuple[LogEntry, ...] = ()

    def __str__(self) -> str:
        return "\n".join(f"{entry.rule}  {entry.times}  {', '.join(entry.where[:3])}" for entry in self.log)


def legalize(graph: Graph, rule_sets: Sequence[RuleSet]) -> LegalizedPart:
    """Apply rules until none fires.

    Raises:
        InvalidGraph: sizes do not fit each other, or rules undo one another.
    """
    operators = registry()
    rewriter = Rewriter(infer(graph, operators, strict=False), operators)
    rewriter.log = {}
    by_op: defaultdict[str, list[Rule]] = defaultdict(list)
    for rules in rule_sets:
        for rule in rules:
            for op_type in rule.roots:
                by_op[op_type].append(rule)
    for scan in range(_MOST_SCANS):
        if not rewriter.run(by_op, by_op, (), everywhere=scan == 0):
            break
    else:
        raise InvalidGraph(f"rules {', '.join(rewriter.log)} undo one another in {graph.name!r}")
    log = tuple(LogEntry(rule, len(where), tuple(where)) for rule, where in rewriter.log.items())
    found = rewriter.finish()
    return LegalizedPart(infer(found, operators, strict=False).graph if log else found, log)


def with_bodies(graph: Graph, known: Collection[str], rule_sets: Sequence[RuleSet]) -> Graph:
    """A graph in which operators that a vendor has not (`known`), and no rule is for, are what ONNX defines them by.

    Such as attention with caches of keys and values, windows or soft caps, losses, and convolutions with a state.

    Raises:
        InvalidGraph: sizes do not fit each other.
    """
    names = {*known, *_FOLDED, *(root for rules in rule_sets for rule in rules for root in rule.roots)}
    if all(node.op_type in names for node in graph.nodes):
        return graph
    written = inline_functions(graph, registry(), lambda node: node.op_type not in names)
    return graph if written is graph else infer(written, registry(), strict=False).graph
