"""What stands in the way of a model, all at once: found from its graph alone, without reading weights or compiling."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia.errors import ExternalDataError, IntarsiaError, InvalidModelError, NotImplemented
from intarsia.graph.formats.external_data import ExternalFiles
from intarsia.graph.formats.model_source import ModelSource
from intarsia.graph.formats.protobuf_wire import Buffer
from intarsia.graph.load import load
from intarsia.graph.model import Graph, Node, Value, ValueType
from intarsia.graph.verify import verify
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.attributes import SERVING, attribute_type
from intarsia.ops.framework.missing_operators import missing_operators, unknown_opsets
from intarsia.ops.framework.registry import REQUIRED, OpRecord, Registry
from intarsia.ops.framework.registry_scopes import label, redirected, using
from intarsia.ops.framework.schema_check import UNKNOWN, type_word
from intarsia.printable import visible

if TYPE_CHECKING:
    from intarsia.stateful.state_pairs import State

ERROR, WARNING = "error", "warning"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a model.

    Attributes:
        code: "model" (it cannot be read), "graph" (names and order), "external-data", "opset" (a version that is not known),
            "operator" (missing), "attribute" (unknown, missing, of another type), "type" (inputs that do not fit) or "state"
            (one that carries nothing from run to run).
        message: what is wrong and what to do.
        node: the first node concerned; "" where it is none's.
        operator: the node's, as "domain::Operator".
        severity: "error", or "warning" where the model runs, but ONNX does not allow it.
    """

    code: str
    message: str
    node: str = ""
    operator: str = ""
    severity: str = ERROR


@dataclass(frozen=True)
class ModelCheck:
    """What `check_model` found. Prints itself; `to_dict` and `to_json` give the same as data.

    Attributes:
        path: the model's path, or what it was given as.
        nodes: how many the model has, those of subgraphs and functions included.
        operators: how many nodes of each, as "domain::Operator".
        opsets: versions that the model imports, by domain.
        problems: errors first.
        states: outputs that are the next value of an input, as text (`InferenceSession.stateful` feeds them back).
    """

    path: str
    nodes: int
    operators: Mapping[str, int]
    opsets: Mapping[str, int]
    problems: tuple[Problem, ...]
    states: tuple[str, ...] = ()

    @cached_property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(p for p in self.problems if p.severity == ERROR)

    @cached_property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(p for p in self.problems if p.severity == WARNING)

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    @property
    def summary(self) -> str:
        """One line: how much was looked at, and how much was found."""
        found = f"{_count(len(self.errors), 'error')}, {_count(len(self.warnings), 'warning')}"
        return f"{visible(self.path)}: {_count(self.nodes, 'node')} of {_count(len(self.operators), 'operator')}; {found}"

    def __str__(self) -> str:
        problems = (f"  {p.severity} ({p.code}): {visible(p.message)}" for p in self.problems)
        return "\n".join([self.summary, *problems, *(f"  state: {visible(s)}" for s in self.states)])

    def to_dict(self) -> dict[str, Any]:
        """All of it in dicts, lists, strings and numbers."""
        return {
            "path": self.path, "ok": self.ok, "nodes": self.nodes, "operators": dict(self.operators),
            "opsets": dict(self.opsets), "problems": [asdict(p) for p in self.problems],
            "states": list(self.states),
        }  # fmt: skip

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as JSON text, indented by so many spaces (None: in one line)."""
        return json.dumps(self.to_dict(), indent=indent)


def _count(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"


def check_model(
    source: ModelSource, *, base_dir: str | os.PathLike[str] | None = None, new_ops: Sequence[Any] = ()
) -> ModelCheck:
    """Look for everything that keeps a model from running, without reading its weights.

    Args:
        source: a path, bytes, a binary file object or an `onnx.ModelProto`.
        base_dir: the folder of external data; by default that of the model.
        new_ops: operators to take as known, as for `InferenceSession`.

    Raises:
        NoSuchFile: the path does not exist.
        InvalidArgument: `source` or `new_ops` is of another type.
    """
    return _Checker(source, base_dir, new_ops).check()


class _RecordedFiles(ExternalFiles):
    """External files whose errors are noted; a tensor that cannot be found is one of zeros, no memory until read."""

    def __init__(self, folder: Path | None, model_path: str) -> None:
        super().__init__(folder, model_path)
        self.lost: dict[str, str] = {}

    def view(self, tensor: str, properties: dict[str, str], needed_nbytes: int) -> tuple[Buffer, int]:
        try:
            return super().view(tensor, properties, needed_nbytes)
        except ExternalDataError as error:
            self.lost[tensor] = str(error)
            return (mmap.mmap(-1, needed_nbytes) if needed_nbytes else b""), 0


class _Checker:
    def __init__(self, source: ModelSource, base_dir: str | os.PathLike[str] | None, new_ops: Sequence[Any]) -> None:
        from intarsia.custom_ops.library import session_operators
        from intarsia.ops import builtin
        from intarsia.ops.framework.registry_scopes import PROCESS

        self.source, self.base_dir = source, base_dir
        self.registry: Registry = PROCESS.over(builtin(), session_operators(new_ops))
        self.problems: list[Problem] = []
        self.states: tuple[State, ...] = ()
        self.reported: set[str] = set()  # nodes with an error: what follows from it is not told again

    def check(self) -> ModelCheck:
        files: list[_RecordedFiles] = []

        def external(folder: Path | None, path: str) -> _RecordedFiles:
            files.append(_RecordedFiles(folder, path))
            return files[-1]

        graph = Graph()
        try:
            graph = load(self.source, base_dir=self.base_dir, external=external)
            verify(graph)
        except InvalidModelError as error:
            self._add("graph" if graph.nodes else "model", str(error))
        lost = files[0].lost if files else {}
        for message in lost.values():
            self._add("external-data", message)
        if not self.problems or lost and len(self.problems) == len(lost):
            with using(self.registry):
                self._check_graph(graph, lost)
            self._check_states(graph)
        name = graph.metadata.path or (os.fspath(self.source) if isinstance(self.source, (str, os.PathLike)) else "model")
        operators: dict[str, int] = {}
        for node in _all_nodes(graph):
            operators[_operator(node)] = operators.get(_operator(node), 0) + 1
        ordered = sorted(self.problems, key=lambda p: p.severity != ERROR)
        opsets = {d or "ai.onnx": v for d, v in graph.opset_imports.items()}
        states = tuple(map(str, self.states))
        return ModelCheck(name, sum(operators.values()), operators, opsets, tuple(ordered), states)

    def _add(self, code: str, message: str, node: Node | None = None, severity: str = ERROR) -> None:
        name, operator = ("", "") if node is None else (_name(node), _operator(node))
        self.problems.append(Problem(code, message, name, operator, severity))
        if severity == ERROR and node is not None:
            self.reported.add(name)

    def _check_graph(self, graph: Graph, lost: Mapping[str, str]) -> None:
        for message in unknown_opsets(graph.opset_imports):
            self._add("opset", message)
        redirect = redirected(graph, self.registry)
        for operator in missing_operators(redirect, self.registry):
            name = label(operator.domain, operator.op_type)
            self.problems.append(Problem("operator", str(operator), operator.nodes[0], name))
        for node, imports in _with_imports(redirect):
            self._check_attributes(node, imports, redirect)
        self._check_types(_without(redirect, lost))

    def _check_states(self, graph: Graph) -> None:
        from intarsia.stateful.state_lint import dead_states, states_of

        self.states = states_of(graph)
        for message in dead_states(graph, self.states):
            self._add("state", message, severity=WARNING)

    # --- attributes ---

    def _record(self, node: Node, imports: Mapping[str, int]) -> OpRecord | None:
        return self.registry.find(node.domain, node.op_type, node.version or imports.get(node.domain, 0))

    def _check_attributes(self, node: Node, imports: Mapping[str, int], graph: Graph) -> None:
        record = self._record(node, imports)
        if record is None or (node.domain, node.op_type, node.overload) in graph.functions:
            return
        where = f"node {_name(node)!r} ({_operator(node)})"
        if not record.takes_any_attribute:
            for name in node.attributes:
                if name not in record.attributes and name != "consumed_inputs" and not name.startswith("_"):
                    known = ", ".join(record.attributes) or "none"
                    self._add(
                        "attribute", f"{where}: attribute {name!r} is not known to version {record.since} (has: {known})", node
                    )
        for name, default in record.attributes.items():
            if default is REQUIRED and name not in node.attributes:
                self._add("attribute", f"{where}: required attribute {name!r} is missing", node)
        for name, value in node.attributes.items():
            declared, given = record.attribute_types.get(name) if record.schema is not None else None, attribute_type(value)
            if declared is not None and given and given != declared:
                severity = WARNING if (given, declared) in SERVING else ERROR
                self._add("attribute", f"{where}: attribute {name!r} is {given}; expected {declared}", node, severity)

    # --- types ---

    def _check_types(self, graph: Graph) -> None:
        from intarsia.ops.framework.infer import infer
        from intarsia.passes.graph.inline import inline_functions

        refused: list[tuple[Node, IntarsiaError]] = []

        try:
            inlined = inline_functions(graph, self.registry)
        except IntarsiaError as error:
            self._add("graph", str(error))
            return
        found = infer(inlined, self.registry, strict=False, on_error=lambda node, error: refused.append((node, error)))
        for node, refusal in refused:
            if not isinstance(refusal, NotImplemented) and _name(node) not in self.reported:  # else it is listed already
                self._add("type", str(refusal), node)
        for node in found.graph.nodes:
            self._check_versions(node, graph.opset_imports, found.types)

    def _check_versions(self, node: Node, imports: Mapping[str, int], types: Mapping[str, ValueType]) -> None:
        """Warn of element types that another version of the operator allows, and this one does not."""
        record = self._record(node, imports)
        if record is None or record.schema is None or _name(node) in self.reported:
            return
        for i, name in enumerate(node.inputs):
            parameter, kind = record.schema.input(i), types.get(name) if name else None
            word = type_word(kind)
            if parameter is not None and UNKNOWN not in word and word not in parameter.types:
                allowed = ", ".join(sorted(parameter.types))
                self._add(
                    "type",
                    f"node {_name(node)!r} ({_operator(node)}): input {parameter.name!r} is {word}; version "
                    f"{record.since} of the operator allows {allowed}",
                    node,
                    WARNING,
                )


def _without(graph: Graph, lost: Mapping[str, str]) -> Graph:
    """The graph with constants whose data is lost as inputs: nothing may be concluded from their elements."""
    if not lost:
        return graph
    out = graph.clone()
    for name in lost:
        constant = out.constants.pop(name, None)
        if constant is not None:
            out.inputs.append(Value(name, constant.type))
    out.overridable = [n for n in out.overridable if n not in lost]
    return out


def _name(node: Node) -> str:
    return node.name or next((n for n in node.outputs if n), "")


def _operator(node: Node) -> str:
    return label(node.domain, node.op_type)


def _all_nodes(graph: Graph) -> Iterator[Node]:
    for node, _ in _with_imports(graph):
        yield node


def _with_imports(graph: Graph) -> Iterator[tuple[Node, Mapping[str, int]]]:
    def walk(nodes: Sequence[Node], imports: Mapping[str, int]) -> Iterator[tuple[Node, Mapping[str, int]]]:
        for node in nodes:
            yield node, imports
            for sub in node.subgraphs:
                yield from walk(sub.nodes, imports)

    yield from walk(graph.nodes, graph.opset_imports)
    for function in graph.functions.values():
        yield from walk(function.nodes, {**graph.opset_imports, **function.opset_imports})
