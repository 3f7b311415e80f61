"""Records against the schemas of ONNX and onnxruntime: every version, every attribute with its default, the inputs."""

from __future__ import annotations

import math
from typing import Any

import onnx
import pytest

from intarsia.ops import registry
from intarsia.ops.framework.registry import REQUIRED, OpRecord

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")
OTHER_DEFAULT = {  # (operator, attribute) -> why the record's default is not the schema's
    ("Clip", "min"): "None clips nothing, as the schema's lowest float32 does",
    ("Clip", "max"): "None clips nothing, as the schema's highest float32 does",
    ("RNN", "activations"): "None stands for Tanh in every direction",
    ("GRU", "direction"): "opset 1's schema misspells 'forward'",
    ("Constant", "value"): "required in opset 1, optional later",
    ("LpPool", "kernel_shape"): "optional in opset 1's schema though nothing can be computed without it",
    ("RegexFullMatch", "pattern"): "optional in the schema though nothing can be matched without it",
}


WRITTEN_OUT = {("ai.onnx.preview", "FlexAttention")}  # by ONNX's function body, in the graph


def schemas() -> list[Any]:
    return [s for s in onnx.defs.get_all_schemas_with_history() if (s.domain, s.name) not in WRITTEN_OUT]


def test_domains() -> None:
    assert {s.domain for s in onnx.defs.get_all_schemas_with_history()} == set(DOMAINS)


def test_operators_without_a_record_have_a_body() -> None:
    for domain, name in WRITTEN_OUT:
        schema = onnx.defs.get_schema(name, domain=domain)
        assert schema.has_function or schema.has_context_dependent_function
        assert registry().find(domain, name, schema.since_version) is None


@pytest.mark.parametrize("schema", schemas(), ids=lambda s: f"{s.name}-{s.since_version}")
def test_record_fits_schema(schema: Any) -> None:
    record = registry().find(schema.domain, schema.name, schema.since_version)
    assert record is not None
    if record.since != schema.since_version:
        assert schema.deprecated, f"version {schema.since_version} of {schema.name} has no record of its own"
        return
    fits(record, schema)


def fits(record: OpRecord, schema: Any) -> None:
    missing = set(schema.attributes) - set(record.attributes) - {"consumed_inputs"}
    assert not missing
    for name, attribute in schema.attributes.items():
        if name == "consumed_inputs" or (schema.name, name) in OTHER_DEFAULT:
            continue
        ours = record.attributes[name]
        assert (ours is REQUIRED) == attribute.required, name
        default = onnx.AttributeProto.FromString(attribute._default_value)
        if default.name:
            check_default(name, ours, onnx.helper.get_attribute_value(default))
    if not record.variadic:
        assert len(record.input_names) >= len(schema.inputs)
    for i in record.required_inputs:
        formal = schema.inputs[i]
        assert formal.option.name == "Single", f"input {formal.name} is optional"


def check_default(name: str, ours: Any, theirs: Any) -> None:
    if isinstance(theirs, float):
        assert math.isclose(ours, theirs, rel_tol=1e-6), name
    elif isinstance(theirs, list):
        assert list(ours) == [v.decode() if isinstance(v, bytes) else v for v in theirs], name
    else:
        assert ours == (theirs.decode() if isinstance(theirs, bytes) else theirs), name


def contributed() -> list[Any]:
    """onnxruntime's schemas of the operators that are registered here."""
    try:
        from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema
    except ImportError:
        return []
    return [s for s in get_all_operator_schema() if registry().find(s.domain, s.name, 1) and s.domain == "com.microsoft"]


@pytest.mark.parametrize("schema", contributed(), ids=lambda s: s.name)
def test_record_fits_contributed_schema(schema: Any) -> None:
    pytest.importorskip("onnxruntime", reason="its schemas describe the operators of com.microsoft")
    record = registry().find(schema.domain, schema.name, schema.since_version)
    assert record is not None
    fits(record, schema)


# Operator -> inputs that its schema requires and that may be missing here, or whose absence has an error of its own.
ALSO_WITHOUT = {
    "Identity": {"input"}, "OptionalHasElement": {"input"},  # of an empty optional
    "Gemm": {"C"}, "Resize": {"roi", "scales"},  # as in later versions
    "com.microsoft::EmbedLayerNormalization": {"word_embedding", "position_embedding", "gamma", "beta"},
    "com.microsoft::GroupQueryAttention": {"seqlens_k", "total_sequence_length"},
    "com.microsoft::DynamicQuantizeLSTM": {"W_scale", "W_zero_point", "R_scale", "R_zero_point"},
    "com.microsoft::MatMulFpQ4": {"B_shape"},
    "com.microsoft::BeamSearch": {"num_beams", "num_return_sequences"},
    "com.microsoft::WhisperBeamSearch": {"num_beams", "num_return_sequences"},
}  # fmt: skip


def test_inputs_that_schemas_require_are_required() -> None:
    """So that a definition does not meet None where it expects a tensor (`OMITTED`)."""
    seen: dict[str, set[str]] = {}
    for records in registry().records.values():
        for record in records:
            if record.schema is None or record.variadic:
                continue
            required = {i for i, p in enumerate(record.schema.inputs) if not p.optional and p.least is None}
            name = f"{record.domain}::{record.name}" if record.domain else record.name
            assert set(record.required_inputs) <= required, name
            missing = {record.schema.inputs[i].name for i in required.difference(record.required_inputs)}
            seen.setdefault(name, set()).update(missing)
    assert {name: missing for name, missing in seen.items() if missing} == ALSO_WITHOUT
