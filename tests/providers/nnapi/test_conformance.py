"""ONNX's backend cases on a simulated phone, with the CPU provider for what NNAPI has not: all must be right.

A sample runs always; the marker `conformance` has the rest.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from typing import Any

import pytest

import intarsia as ort
from intarsia.testing.cases import cases, run_case

NAME = "NnapiExecutionProvider"
SAMPLE = 24  # every so many-th case belongs to the sample


def parameters() -> list[object]:
    sampled = {name: zlib.crc32(name.encode()) % SAMPLE == 1 for name in cases()}
    return [pytest.param(name, marks=[] if here else [pytest.mark.conformance], id=name) for name, here in sampled.items()]


def options() -> ort.SessionOptions:
    found = ort.SessionOptions()
    found.add_session_config_entry("partition.keep_islands", "1")
    found.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC  # so that it meets the operators themselves
    return found


@pytest.mark.parametrize("name", parameters())
def test_case(name: str, phone: Callable[..., Any]) -> None:
    phone(1000008)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ort.ProviderWarning)  # it takes no node of many cases, each with its reason
        session, wrong = run_case(cases()[name], [NAME, "CPUExecutionProvider"], options())
    assert not wrong
    for node in session.explain().nodes:
        assert node.provider == NAME or NAME not in node.refusals or node.refusals[NAME].reason


TAKEN = """
test_conv_with_strides_padding test_matmul_3d test_gelu_default_1 test_softmax_axis_1 test_gather_1 test_where_example
test_averagepool_2d_pads test_convtranspose_pads test_depthtospace_crd_mode_example test_round
""".split()


@pytest.mark.parametrize("name", TAKEN)
def test_what_it_should_take_is_taken(name: str, phone: Callable[..., Any]) -> None:
    """So that a rule which refuses too much is noticed."""
    phone(1000008)
    session, wrong = run_case(cases()[name], [NAME, "CPUExecutionProvider"], options())
    assert not wrong
    assert set(session.explain().counts) == {NAME}
