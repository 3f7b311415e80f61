"""ONNX's backend cases on a simulated phone, with the CPU provider for what NNAPI has not: all must be right.

A sample runs always; the marker `conformance` has the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from provider_cases import parameters, right

from intarsia.testing.cases import cases

NAME = "NnapiExecutionProvider"
SAMPLE = 24  # every so many-th case belongs to the sample


@pytest.mark.parametrize("name", parameters(cases(), SAMPLE))
def test_case(name: str, phone: Callable[..., Any]) -> None:
    phone(1000008)
    right(cases()[name], NAME)


TAKEN = """
test_conv_with_strides_padding test_matmul_3d test_gelu_default_1 test_softmax_axis_1 test_gather_1 test_where_example
test_averagepool_2d_pads test_convtranspose_pads test_depthtospace_crd_mode_example test_round
""".split()


@pytest.mark.parametrize("name", TAKEN)
def test_what_it_should_take_is_taken(name: str, phone: Callable[..., Any]) -> None:
    """So that a rule which refuses too much is noticed."""
    phone(1000008)
    assert set(right(cases()[name], NAME).explain().counts) == {NAME}
