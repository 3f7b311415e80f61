"""The table of schemas against onnx and onnxruntime, and how its lines are read."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import onnx
import pytest

from intarsia.ops import registry
from intarsia.ops.framework import schemas
from intarsia.ops.framework.schemas import schema_of

SCRIPT = Path(__file__).parents[3] / "scripts" / "schema_table.py"
TABLE = Path(schemas.__file__).with_name("schemas.txt")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    pytest.importorskip("onnxruntime", reason="the script asks it for the operators of com.microsoft")
    spec = importlib.util.spec_from_file_location("schema_table", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_table_is_what_the_script_writes(script: ModuleType) -> None:
    made = script.text().splitlines()
    table = TABLE.read_text(encoding="utf-8").splitlines()
    if made[0] != table[0]:
        pytest.skip(f"the table is of other versions: {table[0]}")
    assert table == made


def test_every_schema_of_this_onnx_is_read_alike(script: ModuleType) -> None:
    known = re.search(r"onnx ([\d.]+)", TABLE.read_text(encoding="utf-8"))
    assert known is not None
    if known[1] != onnx.__version__:
        pytest.skip(f"the table is of onnx {known[1]}")
    for theirs in onnx.defs.get_all_schemas_with_history():
        ours = schema_of(theirs.domain, theirs.name, theirs.since_version)
        assert ours is not None, theirs.name
        for mine, formals in ((ours.inputs, theirs.inputs), (ours.outputs, theirs.outputs)):
            assert [p.name for p in mine] == [f.name for f in formals]
            assert [p.types for p in mine] == [frozenset(map(script.short, f.types)) for f in formals], theirs.name
            assert [p.optional for p in mine] == [f.option.name == "Optional" for f in formals]
            assert [p.least is not None for p in mine] == [f.option.name == "Variadic" for f in formals]
            assert [p.alike for p in mine] == [f.is_homogeneous for f in formals]
        assert {a: r for a, (_, r) in ours.attributes.items()} == {a: x.required for a, x in theirs.attributes.items()}
        assert ours.most_outputs == (None if theirs.max_output > 1000 else theirs.max_output)


def test_every_operator_of_others_has_a_schema() -> None:
    own = (record for record in registry() if not record.domain.startswith("intarsia."))
    assert not [(r.domain, r.name, r.since) for r in own if schema_of(r.domain, r.name, r.since) is None]


def test_a_line() -> None:
    conv = schema_of("", "Conv", 22)
    assert conv is not None
    assert [(p.name, p.variable, p.optional) for p in conv.inputs] == [("X", "T", False), ("W", "T", False), ("B", "T", True)]
    assert conv.inputs[0].types == {"bfloat16", "double", "float", "float16"}
    assert conv.attributes["pads"] == ("INTS", False)
    assert conv.most_outputs == 1
    loop = schema_of("", "Loop", 25)
    assert loop is not None
    assert (loop.inputs[2].alike, loop.inputs[2].least, loop.most_outputs) == (False, 0, None)
    assert loop.attributes["body"] == ("GRAPH", True)
    assert schema_of("", "Conv", 12) is None
