"""Nodes that the user places himself: by patterns of their names, for one provider each.

Two texts say it. Intarsia's entry "partition.place" has rules "PATTERN = PROVIDER" separated by ";", with shell wildcards, for
names of nodes as the model has them: "encoder/*=CPUExecutionProvider; *=OpenVINOExecutionProvider". The provider must take such
a node. onnxruntime's entry "session.name_based_layer_assignment" has kinds of devices with parts of names, or whole names
after "=": "cpu(embed,head); gpu(=layer1)"; where that provider refuses, the others are asked.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence

from intarsia.ep.provider import ExecutionProvider
from intarsia.errors import InvalidArgument, UnknownOption, nearest
from intarsia.graph.model import Graph, Node
from intarsia.lazy_dataclass import dataclass
from intarsia.printable import get_logger

logger = get_logger("intarsia.partition")

PLACE = "partition.place"
BY_NAME = "session.name_based_layer_assignment"
_BY_NAME = re.compile(r"\s*([A-Za-z]+)\s*\(([^()]*)\)\s*")


@dataclass(frozen=True)
class Rule:
    """One placement. `provider`: a name; of the onnxruntime form ("cpu", "gpu", "npu") a kind of device.

    `strict`: the provider must take the node, otherwise it is an error.
    """

    pattern: str
    provider: str
    strict: bool = True

    def matches(self, node: Node) -> bool:
        """Whether the node, or a node of the model it was made from, is meant."""
        names = {node.name or next((n for n in node.outputs if n), ""), *node.origin}
        return any(fnmatch.fnmatchcase(name, self.pattern) for name in names)

    def __str__(self) -> str:
        return f"{PLACE if self.strict else BY_NAME!r} {self.pattern!r} = {self.provider}"


@dataclass(frozen=True)
class Placed:
    """A placed node: the provider's number in the list, and the rule that said so."""

    provider: int
    rule: Rule


def parse_rules(config: Mapping[str, str]) -> tuple[Rule, ...]:
    """The rules in a session's configuration entries.

    Raises:
        InvalidArgument: a text of another form.
    """
    rules = []
    for text in filter(None, (t.strip() for t in config.get(PLACE, "").split(";"))):
        pattern, equals, provider = (part.strip() for part in text.rpartition("="))
        if not (pattern and equals and provider):
            raise InvalidArgument(f"configuration entry {PLACE!r}: expected 'PATTERN=PROVIDER; ...', got {text!r}")
        rules.append(Rule(pattern, provider))
    for text in filter(None, (t.strip() for t in config.get(BY_NAME, "").split(";"))):
        match = _BY_NAME.fullmatch(text)
        if match is None:
            raise InvalidArgument(f"configuration entry {BY_NAME!r}: expected 'cpu(A,=B); gpu(C)', got {text!r}")
        for name in filter(None, (n.strip() for n in match[2].split(","))):
            exact = name.startswith("=")
            escaped = re.sub(r"([*?[])", r"[\1]", name.removeprefix("="))
            rules.append(Rule(escaped if exact else f"*{escaped}*", match[1].lower(), strict=False))
    return tuple(rules)


def placed_nodes(graph: Graph, providers: Sequence[ExecutionProvider], rules: Sequence[Rule]) -> dict[int, Placed]:
    """By node index: where the first rule that matches puts it.

    Raises:
        UnknownOption: a rule names a provider that the session does not have.
        InvalidArgument: a rule matches no node of the graph.
    """
    found: dict[int, Placed] = {}
    for rule in rules:
        number = _number(rule, providers)
        matched = [i for i, node in enumerate(graph.nodes) if rule.matches(node)]
        if not matched and rule.strict and graph.nodes:
            names = {node.name or node.outputs[0] for node in graph.nodes} | {n for node in graph.nodes for n in node.origin}
            raise InvalidArgument(f"{rule}: no node has such a name; {_shortened(nearest(rule.pattern, names))}")
        if number is None or not (matched or rule.strict):
            logger.warning(
                "%s has no effect: %s", rule, "no node has such a name" if number is not None else _absent(rule, providers)
            )
            continue
        for i in matched:
            if rule.strict or providers[number].supports(graph.nodes[i], graph):
                found.setdefault(i, Placed(number, rule))
    return found


def is_placed_elsewhere(
    node: Node, provider: ExecutionProvider, providers: Sequence[ExecutionProvider], rules: Sequence[Rule]
) -> bool:
    """Whether the first rule that matches a node, of those that have a provider here, puts it elsewhere than on `provider`."""
    for rule in rules:
        if not rule.matches(node):
            continue
        if rule.strict:
            return rule.provider != provider.name
        if (number := _number(rule, providers)) is not None:
            return providers[number] is not provider
    return False


def _number(rule: Rule, providers: Sequence[ExecutionProvider]) -> int | None:
    if rule.strict:
        names = [p.name for p in providers]
        if rule.provider not in names:
            raise UnknownOption(f"{rule}: the session has no such provider; {nearest(rule.provider, names)}")
        return names.index(rule.provider)
    for i, provider in enumerate(providers):
        kind = provider.device.kind
        accelerator = kind not in ("cpu", "npu")
        if (
            (rule.provider == "cpu" and provider.device.host)
            or rule.provider == kind
            or (rule.provider == "gpu" and accelerator)
        ):
            return i
    return None


def _absent(rule: Rule, providers: Sequence[ExecutionProvider]) -> str:
    kinds = ", ".join(f"{p.name} ({p.device.kind})" for p in providers)
    return f"no provider of the session is for {rule.provider!r}; it has {kinds}"


def _shortened(text: str) -> str:
    return text if len(text) <= 400 else f"{text[:400]}..."
