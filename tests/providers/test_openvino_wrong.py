"""Why `providers/openvino/refusals.py` refuses what OpenVINO would take: each of these is computed wrongly, or not at all.

The refusals are switched off here. A case that fails because OpenVINO is right now is good news: its rule can go.
"""

from __future__ import annotations

import importlib.metadata
import warnings

import ml_dtypes
import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest

import intarsia as ort
from intarsia.providers.openvino.runtime import core
from intarsia.testing.cases import cases, run_case

pytest.importorskip("openvino", reason="needs openvino (extra: openvino)")
if not importlib.metadata.version("openvino").startswith("2026.4."):
    pytest.skip("the evidence is of openvino 2026.4", allow_module_level=True)

OF_CPU = core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
OPENVINO, REFERENCE = "OpenVINOExecutionProvider", "ReferenceExecutionProvider"
BIG = np.array([2**24 + 1, 3], np.int32)
HUGE = np.array([2**31 - 1, 2**30 + 1], np.int32)
MIXED = np.array([*HUGE, -(2**31), 7, -7, 2**24 + 1, 3], np.int32)

NODES = {
    "int64 is computed in 32 bits": ("g (int64[N] x) => (int64[N] y) { y = Add(x, x) }", [np.array([2**40, 1])]),
    "int64 is moved in 32 bits": ("g (int64[N] x) => (int64[N] y) { y = Identity(x) }", [np.array([2**40, 1])]),
    "float64 is computed in float32": ("g (double[N] x) => (double[N] y) { y = Exp(x) }", [np.array([1.0, 2.0])]),
    "int8 saturates": ("g (int8[N] x) => (int8[N] y) { y = Add(x, x) }", [np.array([100, 1], np.int8)]),
    "Div of int32": ("g (int32[N] x, int32[N] z) => (int32[N] y) { y = Div(x, z) }", [HUGE, BIG]),
    "Mod of int32": ("g (int32[N] x, int32[N] z) => (int32[N] y) { y = Mod(x, z) }", [BIG * 60, BIG - 2]),
    "Mean of int32": ("g (int32[N] x, int32[N] z) => (int32[N] y) { y = Mean(x, z) }", [BIG * 2, BIG * 4]),
    "Relu of int32": ("g (int32[N] x) => (int32[N] y) { y = Relu(x) }", [BIG]),
    "ReduceSum of int32": ("g (int32[N] x) => (int32[1] y) { y = ReduceSum(x) }", [MIXED]),
    "ReduceMax of int32": ("g (int32[N] x) => (int32[1] y) { y = ReduceMax(x) }", [BIG]),
    "MatMul of int32": ("g (int32[1,2] x, int32[2,1] z) => (int32[1,1] y) { y = MatMul(x, z) }", [BIG[None], BIG[:, None]]),
    "Cast of NaN to bool": ("g (float[N] x) => (bool[N] y) { y = Cast<to=9>(x) }", [np.float32([np.nan, 1])]),
    "Cast of the least int32 to bool": ("g (int32[N] x) => (bool[N] y) { y = Cast<to=9>(x) }", [np.int32([-(2**31), 1])]),
    "ReduceMax loses NaN": ("g (float[N] x) => (float[1] y) { y = ReduceMax(x) }", [np.float32([1, np.nan, 3])]),
    "ReduceMin loses NaN": ("g (float[N] x) => (float[1] y) { y = ReduceMin(x) }", [np.float32([1, np.nan, 3])]),
    "ReduceMax of -inf": ("g (float[N] x) => (float[1] y) { y = ReduceMax(x) }", [np.float32([-np.inf, -np.inf])]),
    "QuantizeLinear with an odd zero point": (
        """g (float[N] x) => (uint8[N] y) {
            s = Constant<value_float=1.0>()  i = Constant<value_int=3>()  z = Cast<to=2>(i)  y = QuantizeLinear(x, s, z)
        }""",
        [np.float32([0.5, 1.5, 2.5])],
    ),
}  # fmt: skip

INFINITE = "g (bfloat16[N] x) => (bool[N] y) { y = Equal(x, m) }"

CASES = [
    "test_attention_local_window",
    "test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal",
    "test_dft_opset19",
    "test_dft_rfft_opset19",
    "test_gru_batchwise",
    "test_lstm_batchwise",
    "test_lstm_with_peepholes",
    "test_maxpool_2d_ceil_output_size_reduce_by_one",
    "test_reduce_max_empty_set",
    "test_resize_downsample_scales_cubic_align_corners",
    "test_resize_downsample_scales_linear_antialias",
    "test_resize_upsample_scales_cubic_A_n0p5_exclude_outside",
    "test_resize_upsample_sizes_nearest_not_larger",
    "test_simple_rnn_batchwise",
    "test_spacetodepth_crd_mode_example",
    "test_tile",
]


@pytest.fixture(autouse=True)
def nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from intarsia.providers.openvino import compiling, survey

    monkeypatch.setattr(survey, "refusal", lambda node, analysis: None)
    monkeypatch.setattr(survey, "mismatch", lambda model, graph: "")
    monkeypatch.setattr(compiling, "mismatch", lambda model, graph: "")
    monkeypatch.setattr(survey, "_answers", {})


@pytest.mark.parametrize("name", NODES)
def test_node(name: str) -> None:
    text, inputs = NODES[name]
    source = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {text}').SerializeToString()
    session = ort.InferenceSession(source, providers=[OPENVINO])
    assert OPENVINO in session.explain().counts
    feed = {value.name: array for value, array in zip(session.get_inputs(), inputs, strict=True)}
    expected = ort.InferenceSession(source, providers=[REFERENCE]).run(None, feed)[0]
    found = session.run(None, feed)[0]
    assert not np.array_equal(found, expected, equal_nan=found.dtype.kind == "f")


@pytest.mark.skipif("BF16" in OF_CPU, reason="this CPU computes in bfloat16, as which OpenVINO leaves its infinities")
def test_constant_infinities_of_bfloat16() -> None:
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {INFINITE}')
    lowest = np.array(-np.inf, ml_dtypes.bfloat16)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(lowest, "m"))
    session = ort.InferenceSession(proto.SerializeToString(), providers=[OPENVINO])
    assert OPENVINO in session.explain().counts
    assert not session.run(None, {"x": np.full(3, lowest)})[0].any()


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("partition.keep_islands", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            session, wrong = run_case(cases()[name], [OPENVINO, "CPUExecutionProvider"], options)
        except (ort.EPFail, ValueError):
            return  # it cannot be run, or gives another rank
    assert OPENVINO in session.explain().counts
    assert wrong
