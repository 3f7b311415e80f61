"""ONNX's backend cases on OpenVINO, with the CPU provider for what it refuses: all must be right.

A sample runs always; the marker `conformance` has the rest.
"""

from __future__ import annotations

import pytest
from provider_cases import parameters, right

from intarsia.testing.cases import cases

pytest.importorskip("openvino", reason="needs openvino (extra: openvino)")
SAMPLE = 48  # every so many-th case belongs to the sample
NAME = "OpenVINOExecutionProvider"


@pytest.mark.parametrize("name", parameters(cases(), SAMPLE))
def test_case(name: str) -> None:
    right(cases()[name], NAME)


def test_most_operators_that_it_should_take_are_taken() -> None:
    """So that a rule which refuses too much is noticed."""
    names = (
        "test_conv_with_strides_padding", "test_matmul_3d", "test_layer_normalization_4d_axis1", "test_lstm_defaults",
        "test_gelu_default_1", "test_softmax_axis_1", "test_batchnorm_example", "test_attention_4d", "test_gather_1",
        "test_resize_upsample_scales_linear", "test_where_example", "test_averagepool_2d_pads",
    )  # fmt: skip
    for name in names:
        assert NAME in right(cases()[name], NAME).explain().counts, name
