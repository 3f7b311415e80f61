"""ONNX's backend cases with OpenVINO's plugin in front and the CPU behind: all must be right.

A sample runs always; the marker `conformance` has the rest.
"""

from __future__ import annotations

import warnings
import zlib

import pytest
from tests.providers.plugin.vendor_plugins import openvino_provider

import intarsia as ort
from intarsia.testing.cases import cases, run_case

SAMPLE = 64  # every so many-th case belongs to the sample
OPENVINO, CPU = "OpenVINOExecutionProvider", "CPUExecutionProvider"


def parameters() -> list[object]:
    sampled = {name: zlib.crc32(name.encode()) % SAMPLE == 2 for name in cases()}
    return [pytest.param(name, marks=[] if here else [pytest.mark.conformance], id=name) for name, here in sampled.items()]


def options() -> ort.SessionOptions:
    found = ort.SessionOptions()
    found.add_session_config_entry("partition.keep_islands", "1")
    found.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC  # so that it meets the operators themselves
    return found


@pytest.mark.parametrize("name", parameters())
def test_case(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ort.ProviderWarning)  # it takes no node of many cases, each with its reason
        session, wrong = run_case(cases()[name], [openvino_provider(), CPU], options())
    assert not wrong
    for node in session.explain().nodes:
        assert node.body or node.provider != CPU or node.refusals[OPENVINO].reason


def test_most_operators_that_it_should_take_are_taken() -> None:
    """So that a rule which refuses too much is noticed."""
    names = (
        "test_conv_with_strides_padding", "test_matmul_3d", "test_layer_normalization_4d_axis1", "test_lstm_defaults",
        "test_softmax_axis_1", "test_batchnorm_example", "test_gather_1", "test_resize_upsample_scales_linear",
        "test_where_example", "test_averagepool_2d_pads",
    )  # fmt: skip
    for name in names:
        session, _ = run_case(cases()[name], [openvino_provider(), CPU], options())
        assert OPENVINO in session.explain().counts, name
