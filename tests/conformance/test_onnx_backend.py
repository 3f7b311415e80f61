"""ONNX's backend test suite (onnx.backend.test) through InferenceSession, on both providers.

Every case runs; what a case cannot show, and what is left out, is listed below with its reason. A sample of the cases has no
marker; `-m "not conformance"` runs only that.
"""

from __future__ import annotations

import functools
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from intarsia import InferenceSession
from intarsia.graph.dtypes import DType

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
SAMPLE = 12  # every so many-th case belongs to the sample

SKIPPED = {  # case -> why neither provider runs it
    "test_gradient_of_add": "ai.onnx.preview.training::Gradient differentiates the graph around it, at training time",
    "test_gradient_of_add_and_mul": "ai.onnx.preview.training::Gradient differentiates the graph around it, at training time",
}
RANDOM = (  # drawn by another generator than the suite's: type and shape are compared, and that each value is 0 or 1
    "test_bernoulli", "test_bernoulli_double", "test_bernoulli_double_expanded", "test_bernoulli_expanded",
    "test_bernoulli_seed", "test_bernoulli_seed_expanded",
)  # fmt: skip
TOLERANCE = {DType.FLOAT16: 2.0**-9, DType.BFLOAT16: 2.0**-6}  # two units in the last place


@functools.cache
def cases() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero on purpose
        return {case.name: case for kind in KINDS for case in load_model_tests(kind=kind)}


def parameters() -> list[Any]:
    found = []
    for name in cases():
        for provider in PROVIDERS:
            sampled = zlib.crc32(name.encode()) % SAMPLE == 0
            marks = [] if sampled else [pytest.mark.conformance]
            found.append(pytest.param(name, provider, marks=marks, id=f"{name}-{provider.removesuffix('ExecutionProvider')}"))
    return found


def read(path: Path, kind: Any) -> Any:
    """A serialised tensor, sequence or optional value."""
    data = path.read_bytes()
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(v) for v in value]
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def model_and_data(case: Any) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
    if not case.model_dir:
        return case.model, [(plain(list(given)), plain(list(wanted))) for given, wanted in case.data_sets]
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    sets = []
    for part in sorted(folder.glob("test_data_set_*")):
        columns = []
        for what, values in (("input", model.graph.input), ("output", model.graph.output)):
            count = len(list(part.glob(f"{what}_*.pb")))
            columns.append([read(part / f"{what}_{i}.pb", values[i].type) for i in range(count)])
        sets.append((columns[0], columns[1]))
    return model, sets


def check(case: Any, actual: Any, expected: Any) -> None:
    if expected is None or isinstance(expected, list):
        assert type(actual) is type(expected)
        for a, e in zip(actual or [], expected or [], strict=True):
            check(case, a, e)
        return
    expected = np.asarray(expected)
    dtype = DType.of(expected.dtype)
    assert actual.shape == expected.shape
    assert DType.of(actual.dtype) is dtype
    if case.name in RANDOM:
        assert np.isin(actual.astype(np.float32), (0, 1)).all()
    elif dtype is DType.STRING:
        assert actual.astype(str).tolist() == expected.astype(str).tolist()
    elif dtype.is_integer or dtype is DType.BOOL:
        np.testing.assert_array_equal(actual, expected)
    else:
        wide = np.complex128 if dtype.is_complex else np.float64
        rtol = max(case.rtol, TOLERANCE.get(dtype, 0.0))
        np.testing.assert_allclose(actual.astype(wide), expected.astype(wide), rtol=rtol, atol=case.atol)


@pytest.mark.parametrize(("name", "provider"), parameters())
def test_case(name: str, provider: str) -> None:
    if name in SKIPPED:
        pytest.skip(SKIPPED[name])
    case = cases()[name]
    model, sets = model_and_data(case)
    session = InferenceSession(model.SerializeToString(), providers=[provider])
    names = [value.name for value in model.graph.input]
    for given, wanted in sets:
        found = session.run(None, dict(zip(names, given, strict=False)))
        for actual, expected in zip(found, wanted, strict=True):
            check(case, actual, expected)


def test_lists_name_cases() -> None:
    assert not {*SKIPPED, *RANDOM} - cases().keys()
