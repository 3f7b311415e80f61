"""Write src/intarsia/ops/framework/schemas.txt from the schemas of the installed onnx and onnxruntime.

    python scripts/schema_table.py            # writes the table
    python scripts/schema_table.py --check    # exit code 1 where the table is not what these two say

Standard operators are onnx's, those of com.microsoft onnxruntime's, with the operators of older converters that onnxruntime
keeps in the standard domain. `intarsia.ops.framework.schemas` says how a line reads.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx.defs
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

TABLE = Path(__file__).parents[1] / "src" / "intarsia" / "ops" / "framework" / "schemas.txt"
COMMAND = "python scripts/schema_table.py"
_ELSEWHERE = re.compile("Memcpy|.*_TRT$")  # onnxruntime's copies between devices, and another engine's operators
_KINDS = ("FLOAT", "INT", "STRING", "TENSOR", "GRAPH", "SPARSE_TENSOR", "TYPE_PROTO")


def schemas() -> list[Any]:
    """All schemas of the table, by domain, name and version."""
    found = list(onnx.defs.get_all_schemas_with_history())
    known = {(s.domain, s.name, s.since_version) for s in found}
    for schema in get_all_operator_schema():
        key = (schema.domain, schema.name, schema.since_version)
        if schema.domain in {"", "com.microsoft"} and key not in known and not _ELSEWHERE.match(schema.name):
            found.append(schema)
    return sorted(found, key=lambda s: (s.domain, s.name, s.since_version))


def text() -> str:
    """The whole table."""
    numbers: dict[tuple[str, ...], int] = {}
    lines = [line(schema, numbers) for schema in schemas()]
    sets = [f"@{i} {' '.join(words)}" for words, i in numbers.items()]
    made = f"# From onnx {onnx.__version__} and onnxruntime {onnxruntime.__version__} by {COMMAND}; not to be edited by hand."
    return "\n".join([made, *sets, *lines, ""])


def line(schema: Any, numbers: dict[tuple[str, ...], int]) -> str:
    """One schema; sets of types get numbers."""
    variables = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    inputs = " ".join(formals(schema.inputs, schema.min_input, variables))
    outputs = " ".join(formals(schema.outputs, schema.min_output, variables))
    attributes = " ".join(f"{name}:{kind(a.type)}{'!' * a.required}" for name, a in sorted(schema.attributes.items()))
    used = {type_of(f) for f in (*schema.inputs, *schema.outputs)}
    types = []
    for name in sorted(variables.keys() & used):
        words = tuple(sorted(map(short, variables[name])))
        types.append(f"{name}=@{numbers.setdefault(words, len(numbers))}")
    head = f"{schema.domain}::{schema.name}" if schema.domain else schema.name
    return "|".join((f"{head} {schema.since_version}", inputs, outputs, attributes, " ".join(types)))


def formals(given: Any, least: int, variables: dict[str, Any]) -> Iterator[str]:
    """Parameters as NAME:TYPE; ? behind an optional name, * behind a variadic one (** where its types may differ)."""
    for i, formal in enumerate(given):
        mark = {"Single": "", "Optional": "?", "Variadic": "*"}[formal.option.name]
        if mark == "*":
            same = getattr(formal, "is_homogeneous", None)
            mark = f"{'*' if (formal.isHomogeneous if same is None else same) else '**'}{max(0, least - i)}"
        name = type_of(formal)
        yield f"{formal.name}{mark}:{name if name in variables else '=' + short(name)}"


def type_of(formal: Any) -> str:
    return str(getattr(formal, "type_str", None) or formal.typeStr)


def short(word: str) -> str:
    """A type as ONNX writes it, where an element type alone stands for a tensor of it."""
    return re.sub(r"(?<!sparse_)tensor\((\w+)\)", r"\1", word.replace(" ", ""))


def kind(attribute_type: Any) -> str:
    name = str(attribute_type).rpartition(".")[2]
    return name if name.removesuffix("S") in _KINDS else "TYPE_PROTO"


def main() -> int:
    made = text()
    if "--check" in sys.argv[1:]:
        return int(TABLE.read_text(encoding="utf-8") != made)
    TABLE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
