"""Write docs/operators.md from the registry and from what the providers answer.

    python scripts/operator_table.py            # writes the table
    python scripts/operator_table.py --check    # exit code 1 where the table is not up to date

Every operator of the registry is asked about with its example in operator_examples.txt, for each element type that ONNX's
schema allows: the CPU provider lowers the node as it would in a session (all but the translation to machine code) and says
what it made of it. An operator without an example is tried on plain float tensors.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.parser

from intarsia.codegen.clike import Wgsl
from intarsia.codegen.llvm.target import Target
from intarsia.device.gpu import DeviceLimits
from intarsia.ep.provider import CompileContext, NodeReport
from intarsia.errors import IntarsiaError
from intarsia.graph.dtypes import DType
from intarsia.graph.load import load
from intarsia.graph.model import Constant, Graph, MapType, Node, OptionalType, SequenceType, TensorType, Value, ValueType
from intarsia.ops import builtin
from intarsia.ops.framework.missing_operators import KNOWN_OPSETS
from intarsia.ops.framework.registry import OpRecord
from intarsia.providers.cpu.lowering.lower import lower_graph
from intarsia.providers.cpu.program.calls.host_kernels import NATIVE
from intarsia.providers.cpu.program.cpu_program import CpuProgram
from intarsia.providers.gpu.node_support import Survey
from intarsia.providers.reference import ReferenceExecutionProvider

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "operators.md"
EXAMPLES = Path(__file__).with_name("operator_examples.txt")
COMMAND = "python scripts/operator_table.py"

_BY_NAME = {d.onnx_name: d for d in DType}
_FLOATS = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT, DType.DOUBLE)
_BYTES = (DType.UINT8, DType.INT8)
_TITLES = {
    "": "ai.onnx", "ai.onnx.ml": "ai.onnx.ml", "ai.onnx.preview": "ai.onnx.preview",
    "ai.onnx.preview.training": "ai.onnx.preview.training", "com.microsoft": "com.microsoft",
}  # fmt: skip
_GROUPS = (  # types that are listed by one word
    ("all integers", ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")),
    ("all floats", ("float16", "bfloat16", "float", "double")),
    ("int8 to int64", ("int8", "int16", "int32", "int64")),
    ("uint8 to uint64", ("uint8", "uint16", "uint32", "uint64")),
    ("float8", ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")),
    ("4-bit", ("int4", "uint4", "float4e2m1")),
    ("2-bit", ("int2", "uint2")),
)


LEGEND = """
- *versions*: since-versions with a definition of their own; a model's opset selects the last one
  that is not newer. "1 to 9": later versions of the operator set have the operator no longer.
- *CPU*: **compiled** to machine code from its definition or a template; **view**: no work at run
  time; **called**: a native kernel that Python calls between compiled segments, since only its data
  say how large its output is; **host**: a Python function there, with NumPy. Shapes, axes and the
  like are constants in the examples, as in exported models; where a run computes them, some
  operators run on the host (`intarsia explain MODEL` says which, and why).
- *compiled for*: element types of the main input for which the CPU provider compiles; *on the
  host*: the others that ONNX allows, with the reason. A type without a reason is one that the
  compiler does not compute with.
- *Reference*: **yes** where the NumPy interpreter runs it.
- *WebGPU*: **yes** where its kernels are compiled for a device with 64-bit numbers, and the types
  for which they are not; else the reason, as `explain()` gives it.
- An operator that ONNX defines as a function and that is not listed
  (`ai.onnx.preview::FlexAttention`) runs, on every provider, as the nodes of that function.

Operators of your own: [custom-operators.md](custom-operators.md).
"""


# --- examples ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    """A node's inputs and attributes as text."""

    inputs: tuple[str, ...] = ()
    attributes: str = ""
    outputs: int = 1
    captured: int = 0

    @classmethod
    def parse(cls, line: str) -> tuple[str, Example]:
        name, inputs, attributes, last, *_ = [*(part.strip() for part in line.split("|")), "", "", ""]
        captured = int(last.removeprefix("captures ")) if last.startswith("captures ") else 0
        given = tuple(i.strip() for i in inputs.split(";") if i.strip())
        return name, cls(given, attributes, int(last) if last.isdecimal() else 1, captured)


@cache
def examples() -> dict[str, list[Example]]:
    """Examples by operator, as "domain::Operator": the first says how it runs, others add element types."""
    found: dict[str, list[Example]] = {}
    for line in EXAMPLES.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, example = Example.parse(line)
            found.setdefault(name, []).append(example)
    return found


def guesses() -> Iterator[Example]:
    """What an operator without an example is tried on."""
    for count in (1, 2, 3):
        for shape in ("2,3", "2,3,4", "2,3,4,5", "4"):
            yield Example((f"float[{shape}]",) * count)


def read_type(text: str) -> ValueType:
    """`float[2,3]`, `seq(...)`, `optional(...)` or `map(string,float)`."""
    word, _, inner = text.rstrip(")").partition("(")
    if inner and word == "map":
        key, value = inner.split(",", 1)
        return MapType(_BY_NAME[key], TensorType(_BY_NAME[value], ()))
    if inner:
        return (SequenceType if word == "seq" else OptionalType)(read_type(inner))
    name, _, sizes = text.rstrip("]").partition("[")
    return TensorType(_BY_NAME[name], tuple(int(s) for s in sizes.split(",") if s))


def read_constant(name: str, text: str) -> Constant:
    """`float[2,3]`, `int64{3, 2}` or `float 0.5`."""
    if "[" in text:
        kind = read_type(text)
        assert isinstance(kind, TensorType) and kind.shape is not None
        shape = [int(d) for d in kind.shape]  # type: ignore[arg-type]
        values = np.arange(int(np.prod(shape))) % 5 + 1
        values = values / 8 if kind.dtype.is_floating else values % 2
        return Constant.of(name, values.astype(kind.dtype.numpy).reshape(shape))
    if "{" in text:
        word, _, listed = text.rstrip("}").partition("{")
        values = np.array([float(v) for v in listed.split(",")])
    else:
        word, listed = text.split()
        values = np.array(float(listed == "True") if listed in ("True", "False") else float(listed))
    return Constant(name, _BY_NAME[word], values.shape, values.astype(_BY_NAME[word].numpy))


def read_attributes(text: str) -> dict[str, Any]:
    def array(word: str, values: Any) -> np.ndarray:
        return np.array(values, _BY_NAME[word].numpy)

    def body(source: str) -> Graph:
        graph = onnx.parser.parse_graph(source)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", KNOWN_OPSETS[""])], ir_version=10)
        return load(model)

    found: dict[str, Any] = eval(f"dict({text})", {"array": array, "body": body, "dict": dict})  # noqa: S307 (our own file)
    return found


Change = tuple[frozenset[int], DType]
"""Which inputs of an example have another element type."""


def graph_of(record: OpRecord, example: Example, change: Change | None = None) -> Graph:
    """A graph of the one node."""
    graph = Graph("example", opset_imports={**KNOWN_OPSETS, record.domain: record.since})
    names: list[str] = []
    for i, text in enumerate(example.inputs):
        name = "" if text == "-" else f"x{i}"
        names.append(name)
        dtype = change[1] if change is not None and i in change[0] else None
        if text.startswith("="):
            constant = read_constant(name, text[1:])
            graph.constants[name] = Constant.of(name, constant.numpy().astype(dtype.numpy)) if dtype else constant
        elif name:
            kind = read_type(text)
            graph.inputs.append(Value(name, TensorType(dtype, kind.shape) if dtype and isinstance(kind, TensorType) else kind))
    outputs = [f"y{i}" for i in range(example.outputs)]
    given = names[: len(names) - example.captured]
    node = Node(record.name, given, outputs, read_attributes(example.attributes), record.domain, "example", record.since)
    graph.nodes = [node]
    graph.outputs = [Value(n) for n in outputs]
    return graph


# --- answers ----------------------------------------------------------------------------------------------------------


def ask_cpu(graph: Graph) -> list[NodeReport]:
    """The nodes of the CPU provider's program, without the machine code, which says nothing new."""
    target = Target.host()
    lowered = lower_graph(graph, builtin(), target)
    return CpuProgram(lowered.executable, {}, CompileContext(1), target, lowered).nodes()


def ask_reference(graph: Graph) -> list[NodeReport]:
    provider = ReferenceExecutionProvider()
    refusals = [s.reason for node in graph.nodes if not (s := provider.supports(node, graph))]
    return [NodeReport("", "unsupported", reason=r) for r in refusals] or provider.compile(graph, CompileContext(1)).nodes()


def ask_webgpu(graph: Graph) -> list[NodeReport]:
    """What the WebGPU provider would say on a device with 64-bit numbers; none is needed here."""
    survey = Survey(graph, Wgsl(), DeviceLimits(1 << 31, 1 << 27))
    answers = [survey.answer(node) for node in graph.nodes]
    return [NodeReport("", "compiled" if s else "unsupported", reason=s.reason) for s in answers]


@dataclass(frozen=True)
class Answer:
    """How a provider runs a node: "compiled", "view" (its output is its input's memory), "called" (a native kernel between
    segments), "host" or "unsupported"."""

    kind: str
    reason: str = ""


def answer(
    ask: Callable[[Graph], list[NodeReport]], record: OpRecord, example: Example, change: Change | None = None
) -> Answer:
    try:
        reports = ask(graph_of(record, example, change))
    except IntarsiaError as error:
        return Answer("unsupported", str(error).partition("\n")[0])
    except Exception as error:  # noqa: BLE001 (a fault of the provider, to be seen in the table)
        return Answer("fails", f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
    refused = next((r for r in reports if r.kind == "unsupported"), None)
    if refused is not None:
        return Answer("unsupported", refused.reason)
    host = next((r for r in reports if r.kind == "host"), None)
    if host is not None:
        return Answer("called" if host.kernel.endswith(NATIVE) else "host", host.reason)
    kinds = {r.kind for r in reports}
    return Answer("compiled" if "compiled" in kinds else "view" if "view" in kinds else "compiled")


@dataclass
class Row:
    """One operator."""

    domain: str
    name: str
    versions: tuple[str, ...]
    cpu: Answer
    reference: Answer
    webgpu: Answer
    compiled: list[DType] = field(default_factory=list)
    on_host: dict[str, list[DType]] = field(default_factory=dict)
    not_on_webgpu: list[DType] = field(default_factory=list)
    tried: bool = True


def row_of(domain: str, name: str, records: Sequence[OpRecord], *, types: bool = True) -> Row:
    """What the providers say of an operator's newest version. `types`: ask about all element types."""
    record = records[-1]
    known = examples().get(f"{domain}::{name}" if domain else name)
    if known is None:
        known = [g for g in guesses() if answer(ask_cpu, record, g).kind in ("compiled", "view", "called", "host")][:1]
    versions = tuple(str(r.since) if r.until is None else f"{r.since} to {r.until - 1}" for r in records)
    if not known:
        cpu = Answer("host", record.reason) if record.host else Answer("not asked", f"no example in scripts/{EXAMPLES.name}")
        reference, webgpu = (answer(ask, record, Example()) for ask in (ask_reference, ask_webgpu))
        return Row(domain, name, versions, cpu, reference, webgpu, tried=False)
    row = Row(domain, name, versions, *(answer(ask, record, known[0]) for ask in (ask_cpu, ask_reference, ask_webgpu)))
    for example in known if types else ():
        _ask_types(row, record, example)
    return row


def _ask_types(row: Row, record: OpRecord, example: Example) -> None:
    """Ask about every element type that the example's main input, and those of the same type, may have."""
    inputs, allowed = _main_inputs(record, example)
    for dtype in allowed:
        found = answer(ask_cpu, record, example, (inputs, dtype))
        if found.kind in ("compiled", "view") and dtype not in row.compiled:
            row.compiled.append(dtype)
        elif found.kind in ("called", "host", "fails"):
            row.on_host.setdefault(found.reason, []).append(dtype)
        refused = row.webgpu.kind == "compiled" and answer(ask_webgpu, record, example, (inputs, dtype)).kind != "compiled"
        if refused and dtype not in row.not_on_webgpu:
            row.not_on_webgpu.append(dtype)


def _main_inputs(record: OpRecord, example: Example) -> tuple[frozenset[int], list[DType]]:
    """The inputs that share the type that may be the most types, and these by ONNX's schema.

    Where there is no schema: floats for floats, 8-bit integers for 8-bit integers.
    """
    given = example.inputs[: len(example.inputs) - example.captured]
    typed = {i: d for i, t in enumerate(given) if t != "-" and (d := _element(t)) is not DType.UNDEFINED}
    try:
        schema = onnx.defs.get_schema(record.name, record.since, record.domain)
    except onnx.defs.SchemaError:
        own = next(
            (d for i, d in typed.items() if not example.inputs[i].startswith("=") and d is not DType.BOOL), DType.UNDEFINED
        )
        similar = next((group for group in (_FLOATS, _BYTES) if own in group), (own,))
        return frozenset(i for i, d in typed.items() if d is own), list(similar) if own is not DType.UNDEFINED else []
    declared = {i: schema.inputs[min(i, len(schema.inputs) - 1)] for i in typed} if schema.inputs else {}
    choices = {i: [d for d in DType if f"tensor({d.onnx_name})" in p.types] for i, p in declared.items()}
    main = max(choices, key=lambda i: (typed[i] in choices[i]) * len(choices[i]), default=None)
    if main is None:
        return frozenset(), []
    variable = declared[main].type_str
    return frozenset(i for i, p in declared.items() if p.type_str == variable), choices[main]


def _element(text: str) -> DType:
    """The element type of an example's input, UNDEFINED for sequences and maps."""
    word = re.match(r"=?(\w+)", text)
    assert word is not None
    return _BY_NAME.get(word.group(1), DType.UNDEFINED)


# --- the table --------------------------------------------------------------------------------------------------------


def rows(*, types: bool = True) -> list[Row]:
    """All operators of the registry, but for those that providers use among themselves."""
    found = builtin().records.items()
    return [row_of(*key, records, types=types) for key, records in found if not key[0].startswith("intarsia.")]


def document() -> str:
    """The text of docs/operators.md."""
    return render(rows())


def render(table: Sequence[Row]) -> str:
    """A document of the operators in `table`, by domain."""
    by_kind = {kind: sum(r.cpu.kind == kind for r in table) for kind in ("compiled", "view", "called", "host")}
    native = by_kind["compiled"] + by_kind["view"]
    refused = sum(r.reference.kind == "unsupported" for r in table)
    called, host = by_kind["called"], by_kind["host"]
    on_webgpu = sum(r.webgpu.kind == "compiled" for r in table)
    head = (
        f"**{len(table)} operators. {native} are compiled by the CPU provider** ({by_kind['view']} of them only give their "
        f"input's memory another shape), {called} are native kernels that Python calls, {host} run on the host, "
        f"{len(table) - native - called - host} are unsupported. The reference provider interprets {len(table) - refused}. "
        f"The WebGPU provider runs {on_webgpu}."
    )
    written = f"Written by `{COMMAND}`, which asks the providers about an example of every operator; do not edit."
    lines = ["# Operators", "", *textwrap.wrap(written, 100), "", *textwrap.wrap(head, 100), "", *LEGEND.strip().splitlines()]
    for domain, title in _TITLES.items():
        own = sorted((r for r in table if r.domain == domain), key=lambda r: r.name.lower())
        if own:
            lines += ["", f"## {title}", "", "| operator | versions | CPU | compiled for | on the host | Reference | WebGPU |"]
            lines += ["|---|---|---|---|---|---|---|", *map(_line, own)]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    native = row.cpu.kind in ("compiled", "view")
    reference = "yes" if row.reference.kind != "unsupported" else f"no: {row.reference.reason}"
    why = _others(row.on_host) if native else row.cpu.reason
    webgpu = "yes" if row.webgpu.kind == "compiled" else f"no: {row.webgpu.reason}"
    if row.not_on_webgpu and row.webgpu.kind == "compiled":
        webgpu += f", but {words(row.not_on_webgpu)}"
    cells = (row.name, ", ".join(row.versions), row.cpu.kind, words(row.compiled), why, reference, webgpu)
    return f"| {' | '.join(c.replace('|', '/') for c in cells)} |"


def _others(on_host: dict[str, list[DType]]) -> str:
    """Types that are not compiled: alone where the type itself is the reason, else behind the reason."""
    alone = [d for reason, types in on_host.items() for d in types if reason == f"{d.onnx_name} is not compiled"]
    rest = [f"{reason}: {words(types)}" for reason, types in on_host.items() if not reason.endswith(" is not compiled")]
    return "; ".join([*([words(alone)] if alone else []), *rest])


def words(types: Iterable[DType]) -> str:
    """Element types as few words."""
    left = [d.onnx_name for d in sorted(types)]
    found = []
    for word, members in _GROUPS:
        if set(members) <= set(left):
            found.append(word)
            left = [n for n in left if n not in members]
    return ", ".join([*found, *left])


def main(arguments: Sequence[str]) -> int:
    if set(arguments) - {"--check"}:
        print(__doc__, file=sys.stderr)
        return 2
    table = rows()
    text = render(table)
    for row in table:
        if not row.tried:
            print(f"no example of {row.domain or 'ai.onnx'}::{row.name} in {EXAMPLES.name}: add a line", file=sys.stderr)
    if "--check" in arguments:
        current = TABLE.read_text(encoding="utf-8") if TABLE.exists() else ""
        if current != text:
            print(f"{TABLE.relative_to(ROOT)} is not up to date; write it anew: {COMMAND}", file=sys.stderr)
        return int(current != text)
    TABLE.write_text(text, encoding="utf-8")
    print(text.split("**")[1])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
