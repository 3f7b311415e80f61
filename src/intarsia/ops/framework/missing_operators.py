"""Operators that a model needs and that do not exist: found all at once, before anything is done with the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from intarsia.errors import UnknownOperator
from intarsia.graph.model import Graph, Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.registry import Registry
from intarsia.ops.framework.registry_scopes import label

_OF_PROVIDERS = frozenset(f"intarsia.{part}" for part in ("channels_last", "experts", "grouped", "integers", "ml"))
"""Domains of nodes that providers write when they compile; nobody checks the operands of such a node in a model."""
_SHOWN_NODES = 3
_WITH_BODIES = ("", "ai.onnx.ml", "ai.onnx.preview")  # domains in which ONNX defines some operators as functions
KNOWN_OPSETS = {"": 28, "ai.onnx.ml": 5, "ai.onnx.preview": 1, "ai.onnx.preview.training": 1}
"""The newest version of each of ONNX's operator sets that the definitions were written against."""
HOW_TO_ADD = (
    "add an operator with @intarsia.op (tensor primitives) or @intarsia.host_op (a NumPy function), or give an OpRun class as "
    "InferenceSession(..., new_ops=[...]): see docs/custom-operators.md"
)


@dataclass(frozen=True)
class MissingOperator:
    """An operator without a definition, and the nodes that need it.

    Attributes:
        version: the opset version that the model imports; 0 where it does not import the domain.
        nodes: their names, those in subgraphs and functions included.
        hint: what may have been meant, or what to do.
    """

    domain: str
    op_type: str
    version: int
    nodes: tuple[str, ...]
    hint: str = ""

    def __str__(self) -> str:
        version = f"version {self.version}" if self.version else f"domain {self.domain or 'ai.onnx'!r} is not imported"
        shown = ", ".join(repr(n) for n in self.nodes[:_SHOWN_NODES])
        more = f" and {len(self.nodes) - _SHOWN_NODES} more" if len(self.nodes) > _SHOWN_NODES else ""
        nodes = f"node{'s' if len(self.nodes) > 1 else ''} {shown}{more}"
        return f"{label(self.domain, self.op_type)} ({version}), {nodes}" + (f"; {self.hint}" if self.hint else "")


def require_operators(graph: Graph, registry: Registry) -> None:
    """Check that every operator of a model is defined, functions of the model and subgraphs included.

    Raises:
        UnknownOperator: some are not (names all of them), or the model is newer than Intarsia.
    """
    newer = unknown_opsets(graph.opset_imports)
    if newer:
        raise UnknownOperator(f"{graph.metadata.path or 'the model'}: {'; '.join(newer)}")
    if all(_complete(nodes, imports, graph, registry, set()) for nodes, imports in _bodies(graph)):
        return
    missing = missing_operators(graph, registry)
    if not missing:
        return
    name = graph.metadata.path or "the model"
    count = f"{len(missing)} operators that do not exist" if len(missing) > 1 else "an operator that does not exist"
    lines = "\n".join(f"  {m}" for m in missing)
    raise UnknownOperator(f"{name} needs {count} here:\n{lines}\n{HOW_TO_ADD}")


def unknown_opsets(imports: Mapping[str, int]) -> list[str]:
    """What is wrong with the versions that a model imports: newer than Intarsia knows, or no version at all."""
    found = []
    for domain, version in imports.items():
        newest = KNOWN_OPSETS.get(domain)
        if version < (newest is not None):  # 0 is a version of a program's own set
            found.append(
                f"version {version} of the operator set {domain or 'ai.onnx'} is no version; "
                f"expected {int(newest is not None)} or more"
            )
        elif newest is not None and version > newest:
            found.append(
                f"version {version} of the operator set {domain or 'ai.onnx'} is not known here, the newest is {newest}: "
                "export the model with an older opset, convert it (onnx.version_converter), or update intarsia"
            )
    return found


def missing_operators(graph: Graph, registry: Registry) -> list[MissingOperator]:
    """The operators of a model that neither `registry`, nor a function of the model, nor ONNX's function bodies define."""
    found: dict[tuple[str, str, int], list[str]] = {}
    for node, imports in _all_nodes(graph):
        if not _defined(node, imports, graph, registry) and not _has_body(node, imports):
            version = node.version or imports.get(node.domain, 0)
            found.setdefault((node.domain, node.op_type, version), []).append(node.name or next(filter(None, node.outputs), ""))
    return [
        MissingOperator(domain, op_type, version, tuple(nodes), _hint(domain, op_type, version, registry))
        for (domain, op_type, version), nodes in found.items()
    ]


def _defined(node: Node, imports: Mapping[str, int], graph: Graph, registry: Registry) -> bool:
    if (node.domain, node.op_type, node.overload) in graph.functions or node.compiled_part:
        return True
    version = node.version or imports.get(node.domain, 0)
    record = registry.find(node.domain, node.op_type, version) if version > 0 else None
    return record is not None and not (record.own and node.domain in _OF_PROVIDERS)


def _has_body(node: Node, imports: Mapping[str, int]) -> bool:
    """Whether ONNX defines the operator as a function, which is written out where Intarsia has no definition."""
    version = imports.get(node.domain, 0)
    if node.domain not in _WITH_BODIES or version < 1:
        return False
    import onnx.defs

    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _complete(
    nodes: Sequence[Node], imports: Mapping[str, int], graph: Graph, registry: Registry, known: set[tuple[str, str, int]]
) -> bool:
    """Whether all nodes are defined; `known` are operators that are."""
    for node in nodes:
        key = (node.domain, node.op_type, node.version)
        if key not in known:
            if not _defined(node, imports, graph, registry):
                return False
            if not node.overload:
                known.add(key)
        if not all(_complete(inner.nodes, imports, graph, registry, known) for inner in node.subgraphs):
            return False
    return True


def _bodies(graph: Graph) -> Iterator[tuple[Sequence[Node], Mapping[str, int]]]:
    """The nodes of a graph and of each of its functions, with the opset imports that count for them."""
    yield graph.nodes, graph.opset_imports
    for function in graph.functions.values():
        missing = {d: v for d, v in graph.opset_imports.items() if d not in function.opset_imports}
        yield function.nodes, {**function.opset_imports, **missing}


def _all_nodes(graph: Graph) -> Iterator[tuple[Node, Mapping[str, int]]]:
    def walk(nodes: Sequence[Node], imports: Mapping[str, int]) -> Iterator[tuple[Node, Mapping[str, int]]]:
        for node in nodes:
            yield node, imports
            for sub in node.subgraphs:
                yield from walk(sub.nodes, imports)

    for nodes, imports in _bodies(graph):
        yield from walk(nodes, imports)


def _hint(domain: str, op_type: str, version: int, registry: Registry) -> str:
    if not version:
        known = bool(registry.of(domain, op_type))
        adding = f"add onnx.helper.make_opsetid({domain!r}, VERSION) to the model's opset_import"
        return adding if known or not domain else f"{adding}, and define the operator"
    if domain in _OF_PROVIDERS:
        return "providers write such nodes when they compile: a model has the standard operator that they stand for"
    if domain == "com.microsoft.nchwc":
        return "its weights are laid out for one kind of processor: save the model with ORT_ENABLE_EXTENDED, not ORT_ENABLE_ALL"
    records = registry.of(domain, op_type)
    if records and records[-1].until is not None:
        return f"the operator set has it up to version {records[-1].until - 1} only"
    earliest = next(iter(records), None)
    if earliest is not None:
        return f"it is defined from version {earliest.since} on: convert the model to a newer opset (onnx.version_converter)"
    names = [key for key in registry.records if not key[0].startswith("intarsia.")]
    elsewhere = next((key for key in names if key[1] == op_type), None)
    if elsewhere is not None:
        return f"did you mean {label(*elsewhere)}?"
    by_name = {name: (d, name) for d, name in sorted(names, key=lambda key: key[0] == domain)}  # the own domain counts first
    folded = {name.lower(): name for name in by_name}
    import difflib

    close = difflib.get_close_matches(op_type.lower(), list(folded), n=1, cutoff=0.75)
    return f"did you mean {label(*by_name[folded[close[0]]])}?" if close else ""
