"""ONNX's backend test suite (onnx.backend.test): its cases, their data, and when a result is right.

The bounds are those of onnx's own runner: equal strings, integers and booleans; floats within the rtol and atol of the case
(1e-3 and 1e-7), bfloat16 within two units in the last place. What goes further is in `WIDER`, with the reason and a test.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx

from intarsia.graph.dtypes import DType
from intarsia.testing.cases import model_and_data as read
from intarsia.testing.cases import suite

KINDS = {"node": 1884, "simple": 23, "pytorch-converted": 82, "pytorch-operator": 35}  # cases of onnx 1.23.2
ONNX_VERSION = "1.23.2"

# Random draws of an unspecified generator: shape and type are compared, and the distribution in `test_random_cases`.
RANDOM = (
    "test_bernoulli", "test_bernoulli_double", "test_bernoulli_double_expanded", "test_bernoulli_expanded",
    "test_bernoulli_seed", "test_bernoulli_seed_expanded",
)  # fmt: skip
# ONNX's function body of Bernoulli, Greater(RandomUniformLike(X), X), is 1 with probability 1 - X where the operator's text and
# its own node cases say X. The expanded cases contain that body as their graph, so 1 - X is what they must give.
INVERTED = ("test_bernoulli_double_expanded", "test_bernoulli_expanded", "test_bernoulli_seed_expanded")
BFLOAT16_RTOL = 2.0**-6  # as in onnx.backend.test.runner
# Two units in the last place, because onnx's expected values (float16 step by step) are farther from the float64 result than
# Intarsia's: `test_wider_bounds_are_onnx_rounding` shows it.
WIDER = {"test_attention_4d_causal_fp16_expanded": 2.0**-9}


@functools.cache
def cases() -> dict[str, Any]:
    """All cases by name."""
    return {name: case for kind in KINDS for name, case in suite(kind).items()}


@functools.lru_cache(4)
def model_and_data(name: str) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
    """A case's model and its pairs of inputs and expected outputs. The model is shared: copy it before changing it."""
    return read(cases()[name])


def check(case: Any, actual: Any, expected: Any) -> None:
    """Assert that one output of a case is what it should be."""
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
        rtol = max(case.rtol, BFLOAT16_RTOL if dtype is DType.BFLOAT16 else 0.0, WIDER.get(case.name, 0.0))
        np.testing.assert_allclose(actual.astype(wide), expected.astype(wide), rtol=rtol, atol=case.atol)
