"""Records against ONNX's schemas: every version from opset 7 on, every attribute with its default, the number of inputs."""

from __future__ import annotations

import math
from typing import Any

import onnx
import pytest

from intarsia.ops import registry
from intarsia.ops.registry import REQUIRED, OpRecord

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview.training")
SINGLE = onnx.defs.OpSchema.FormalParameterOption.Single
OTHER_DEFAULT = {  # (operator, attribute) -> why the record's default is not the schema's
    ("Clip", "min"): "None clips nothing, as the schema's lowest float32 does",
    ("Clip", "max"): "None clips nothing, as the schema's highest float32 does",
    ("RNN", "activations"): "None stands for Tanh in every direction",
    ("GRU", "direction"): "opset 1's schema misspells 'forward'",
    ("Constant", "value"): "required in opset 1, optional later",
    ("LpPool", "kernel_shape"): "optional in opset 1's schema though nothing can be computed without it",
    ("RegexFullMatch", "pattern"): "optional in the schema though nothing can be matched without it",
}


def schemas() -> list[Any]:
    known = {(record.domain, record.name) for record in registry()}
    return [s for s in onnx.defs.get_all_schemas_with_history() if s.domain in DOMAINS and (s.domain, s.name) in known]


def record_of(schema: Any) -> OpRecord | None:
    return registry().find(schema.domain, schema.name, schema.since_version)


@pytest.mark.parametrize("schema", schemas(), ids=lambda s: f"{s.name}-{s.since_version}")
def test_record_fits_schema(schema: Any) -> None:
    record = record_of(schema)
    if record is None or record.since != schema.since_version:
        assert schema.since_version < 7, f"opset {schema.since_version} of {schema.name} has no record"
        return
    missing = set(schema.attributes) - set(record.attributes) - {"consumed_inputs"}
    assert not missing
    for name, attribute in schema.attributes.items():
        if name == "consumed_inputs" or (schema.name, name) in OTHER_DEFAULT:
            continue
        ours = record.attributes[name]
        assert (ours is REQUIRED) == attribute.required, name
        if attribute.default_value.name:
            check_default(name, ours, onnx.helper.get_attribute_value(attribute.default_value))
    if not record.variadic:
        assert len(record.input_names) >= len(schema.inputs)
        assert record.required_inputs <= sum(i.option == SINGLE for i in schema.inputs)


def check_default(name: str, ours: Any, theirs: Any) -> None:
    if isinstance(theirs, float):
        assert math.isclose(ours, theirs, rel_tol=1e-6), name
    elif isinstance(theirs, list):
        assert list(ours) == [v.decode() if isinstance(v, bytes) else v for v in theirs], name
    else:
        assert ours == (theirs.decode() if isinstance(theirs, bytes) else theirs), name
