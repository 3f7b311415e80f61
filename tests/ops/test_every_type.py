"""Every operator, in every version and every element type that its schema allows, on the CPU and the reference provider.

A node for each variable of a schema and each of its types runs on both providers; the results agree, and agree with those of
the same numbers in a wider type. The schemas are ONNX's and, where it is installed, onnxruntime's. Nothing that they allow is
left out but for REFUSED. Versions that share a definition here are tried once, with all types that any of them has;
`--every-version` tries each of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx.defs
import pytest
from typed_nodes import RANDOM, Typed, difference, formal_type, qualified, run, typed_nodes, wider

from intarsia.errors import IntarsiaError
from intarsia.ops import registry

CONTRIB = "com.microsoft"
CPU, REFERENCE = "CPUExecutionProvider", "ReferenceExecutionProvider"
REFUSED = {  # operators, or types of an operator's variable
    "ai.onnx.preview.training::Gradient": "differentiates the graph around it: see test_gradient.py",
    "com.microsoft::BeamSearch": "needs a decoder: see test_contributed_generation.py",
    "com.microsoft::GreedySearch": "needs a decoder: see test_contributed_generation.py",
    "com.microsoft::Sampling": "needs a decoder: see test_contributed_generation.py",
    "com.microsoft::WhisperBeamSearch": "needs an encoder and a decoder: see test_contributed_encoder_decoder.py",
    "com.microsoft::SparseToDenseMatMul": "A is a sparse tensor: see tests/compatibility/test_as_onnxruntime.py",
    "com.microsoft::QLinearConcat TV": "tensors, scales and zero points in turn: see test_contributed_quantized.py",
    "com.microsoft::GridSample T1": "onnxruntime has kernels for float alone; the variable is the grid's too",
    "com.microsoft::GridSample T2": "the type of the result, which is that of the other variable",
    "com.microsoft::GroupQueryAttention T": "the caches are of this type, which are another variable",
    "com.microsoft::GroupQueryAttention T_CACHE": "of quantised caches: see test_quantised_caches.py",
    "com.microsoft::GroupQueryAttention T_KV_SCALE": "of quantised caches: see test_quantised_caches.py",
    "com.microsoft::MultiHeadAttention QK": "the type of the other operands, though a variable of its own",
    "com.microsoft::DecoderMaskedMultiHeadAttention QK": "the type of the other operands, though a variable of its own",
    "com.microsoft::DecoderMaskedMultiHeadAttention M": "see test_contributed_packed.py",
    "com.microsoft::GatedRelativePositionBias M": "of packed tokens: see test_contributed_packed.py",
    "com.microsoft::QMoE T1=tensor(float8e4m3fn)": "weights of float8 are not implemented",
    "com.microsoft::QMoE T4": "global scales belong to weights of float8",
}
ROUNDED = {"com.microsoft::QuantizeLinear-1"}  # quotients in float16, or in float32: the neighbouring integer at a tie
OTHER_IN_WIDER = {  # operators whose results are not those of wider operands
    "BitCast": "reads the bits",
    "Cast": "its operand has more digits",
    "QuantizeLinear": "saturates to the type",
    "QLinearMatMul": "saturates to the type",
    "QLinearConv": "saturates to the type",
}


def schemas() -> list[Any]:
    found = [s for s in onnx.defs.get_all_schemas_with_history() if not s.deprecated] + contributed()
    return sorted(
        (s for s in found if qualified(s.domain, s.name) not in REFUSED), key=lambda s: (s.domain, s.name, -s.since_version)
    )


def contributed() -> list[Any]:
    """onnxruntime's schemas of its own operators, where it is installed."""
    try:
        from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema
    except ImportError:
        return []
    return [s for s in get_all_operator_schema() if s.domain == CONTRIB and registry().find(CONTRIB, s.name, s.since_version)]


def refused(schema: Any, variable: str, kind: str) -> bool:
    name = qualified(schema.domain, schema.name)
    return f"{name} {variable}" in REFUSED or f"{name} {variable}={kind}" in REFUSED


def declared(schema: Any) -> set[tuple[str, str]]:
    """Variables that an input or output has, and their types."""
    used = {formal_type(f) for f in (*schema.inputs, *schema.outputs)}
    found = ((c.type_param_str, kind) for c in schema.type_constraints for kind in c.allowed_type_strs)
    return {(variable, kind) for variable, kind in found if variable in used and not refused(schema, variable, kind)}


def shared() -> dict[str, frozenset[tuple[str, str]]]:
    """By schema: what newer versions with the same definition have as well."""
    known: dict[Any, set[tuple[str, str]]] = {}
    found = {}
    for schema in schemas():
        record = registry().find(schema.domain, schema.name, schema.since_version)
        key = (schema.domain, schema.name, record and record.function, len(schema.inputs), tuple(sorted(schema.attributes)))
        found[name_of(schema)] = frozenset(known.get(key, ()))
        known.setdefault(key, set()).update(declared(schema))
    return found


def name_of(schema: Any) -> str:
    return f"{qualified(schema.domain, schema.name)}-{schema.since_version}"


SHARED = shared()


def problems(schema: Any, nodes: Sequence[Typed], seen: set[tuple[str, str]]) -> Iterator[str]:
    """What is refused or wrong among nodes of a schema. `seen` gets the types of inputs and outputs that ran."""
    results: dict[str, list[Any]] = {}
    for provider in (CPU, REFERENCE):
        try:
            results[provider], types = run(nodes, provider)
            seen |= types
        except IntarsiaError:
            results[provider] = []
            for node in nodes:
                try:
                    (found,), types = run([node], provider)
                    seen |= types
                except IntarsiaError as error:
                    yield f"{node}: {provider}: {type(error).__name__}: {error}"
                    found = None
                results[provider].append(found)
    for node, compiled, interpreted in zip(nodes, results[CPU], results[REFERENCE], strict=True):
        seen.add((node.variable, node.kind))
        if compiled is not None and interpreted is not None and schema.name not in RANDOM and name_of(schema) not in ROUNDED:
            yield from (f"{node}: {d}" for d in _differences(node, compiled, interpreted))


def _differences(node: Typed, compiled: Sequence[Any], interpreted: Sequence[Any]) -> Iterator[str]:
    if text := difference(compiled, interpreted):
        yield f"not as interpreted: {text}"
    if node.schema.name in OTHER_IN_WIDER or node.schema.domain == CONTRIB:  # whose parameters are float in all types
        return
    with np.errstate(all="ignore"):
        expected = wider(node)
        for found, wide in zip(interpreted, expected or (), strict=False):
            if isinstance(found, np.ndarray) and (text := difference(found, np.asarray(wide).astype(found.dtype))):
                yield f"not as in a wider type: {text}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    every = metafunc.config.getoption("--every-version")
    metafunc.parametrize("schema", [s for s in schemas() if every or declared(s) - SHARED[name_of(s)]], ids=name_of)


def test_types(schema: Any, request: pytest.FixtureRequest) -> None:
    known = frozenset() if request.config.getoption("--every-version") else SHARED[name_of(schema)]
    wanted = declared(schema) - known
    seen: set[tuple[str, str]] = set()
    nodes = [n for n in typed_nodes(schema) if (n.variable, n.kind) in wanted or not n.variable]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not list(problems(schema, nodes, seen))
    assert not wanted - seen, "no example reaches these: add one to older_examples.txt"
