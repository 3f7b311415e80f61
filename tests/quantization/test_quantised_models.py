"""Quantised models: what the ONNX checker says, what three runtimes compute, and how near that is to the floats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from quantised_cases import Reader, convolutions, image_feeds, model, numbers, operators, products, saved, stored, token_feeds

import intarsia
from intarsia.errors import InvalidArgument, NoSuchFile, WrongType
from intarsia.quantization import (
    CalibrationMethod,
    QuantFormat,
    QuantType,
    get_qdq_config,
    quant_pre_process,
    quantize,
    quantize_dynamic,
    quantize_static,
)
from intarsia.quantization.calibration.range_estimators import TensorObservers
from intarsia.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    GPTQWeightOnlyQuantConfig,
    HQQWeightOnlyQuantConfig,
    KQuantWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
    RTNWeightOnlyQuantConfig,
)

CASES = {"convolutions": (convolutions, image_feeds), "products": (products, token_feeds)}
SIGNED, UNSIGNED = QuantType.QInt8, QuantType.QUInt8


def results(path: Path, feeds: list[dict[str, np.ndarray]], runtime: str = "intarsia") -> np.ndarray:
    if runtime == "openvino":
        core = pytest.importorskip("openvino", reason="a peer").Core()
        compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        return np.concatenate([compiled(feed)[0] for feed in feeds])
    module: Any = intarsia if runtime == "intarsia" else pytest.importorskip("onnxruntime", reason="a peer")
    session = module.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, feed)[0] for feed in feeds])


def relative(found: np.ndarray, exact: np.ndarray) -> float:
    """The error as a share of the values' deviation."""
    return float(np.sqrt(np.square(found - exact).mean()) / exact.std())


STATIC = {
    "u8s8": {"activation_type": UNSIGNED},
    "s8s8": {},
    "u8u8": {"activation_type": UNSIGNED, "weight_type": UNSIGNED},
    "channels": {"per_channel": True, "activation_type": UNSIGNED},
    "symmetric": {"extra_options": {"ActivationSymmetric": True}},
    "reduced": {"activation_type": UNSIGNED, "reduce_range": True},
    "u16s8": {"activation_type": QuantType.QUInt16},
    "u8s8, channels, equalised": {
        "activation_type": UNSIGNED, "per_channel": True, "extra_options": {"CrossLayerEqualization": True},
    },
    "u8s8, corrected": {"activation_type": UNSIGNED, "extra_options": {"BiasCorrection": True}},
    "u8s8, smooth": {"activation_type": UNSIGNED, "extra_options": {"SmoothQuant": True}},
    "u8s8, least squared error": {"activation_type": UNSIGNED, "extra_options": {"CalibSquaredError": True}},
    "s8s8, percentile": {"calibrate_method": CalibrationMethod.Percentile},
    "s8s8, moving average": {"extra_options": {"CalibMovingAverage": True, "CalibMovingAverageConstant": 0.5}},
    "u8s8, a pair for each reader": {"activation_type": UNSIGNED, "extra_options": {"DedicatedQDQPair": True}},
    "u8s8, pairs of weights": {"activation_type": UNSIGNED, "extra_options": {"AddQDQPairToWeight": True}},
    "u8s8, floats in biases": {"activation_type": UNSIGNED, "extra_options": {"QuantizeBias": False}},
    "operators": {"quant_format": QuantFormat.QOperator, "activation_type": UNSIGNED},
    "operators of channels": {"quant_format": QuantFormat.QOperator, "activation_type": UNSIGNED, "per_channel": True},
}
LIMITS = {"u16s8": 0.03}


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("how", list(STATIC))
def test_static_models_are_near_and_equal_everywhere(tmp_path: Path, case: str, how: str) -> None:
    make, feeds = CASES[case]
    path = saved(make(), tmp_path)
    quantize_static(path, tmp_path / "q.onnx", Reader(feeds()), **STATIC[how])
    onnx.checker.check_model(onnx.load(tmp_path / "q.onnx"), full_check=how.startswith(("u8", "s8", "u16")))
    exact, found = results(path, feeds()), results(tmp_path / "q.onnx", feeds())
    assert relative(found, exact) < LIMITS.get(how, 0.1)
    for runtime in ("onnxruntime", "openvino"):
        if runtime == "openvino" and ("operators" in how or how == "u16s8"):
            continue  # it has not all of onnxruntime's operators, nor 16 bits
        if runtime == "openvino" and (how, case) == ("u8s8, pairs of weights", "products"):
            continue  # its pass on an Add of a constant that has a pair throws (2026.4.1)
        assert np.abs(results(tmp_path / "q.onnx", feeds(), runtime) - found).max() <= 0.1 * exact.std()


@pytest.mark.parametrize("opset", [10, 11, 13, 21, 24])
def test_opsets(tmp_path: Path, opset: int) -> None:
    path = saved(convolutions(opset), tmp_path)
    quantize_static(path, tmp_path / "q.onnx", Reader(image_feeds()), activation_type=UNSIGNED)
    made = onnx.load(tmp_path / "q.onnx")
    onnx.checker.check_model(made, full_check=True)
    assert [(e.domain, e.version) for e in made.opset_import] == [("", opset)]  # nothing but ONNX's own
    assert relative(results(tmp_path / "q.onnx", image_feeds()), results(path, image_feeds())) < 0.1


def test_channels_need_opset_13(tmp_path: Path) -> None:
    path = saved(convolutions(11), tmp_path)
    quantize_static(path, tmp_path / "q.onnx", Reader(image_feeds()), activation_type=UNSIGNED, per_channel=True)
    made = onnx.load(tmp_path / "q.onnx")
    onnx.checker.check_model(made, full_check=True)
    assert made.opset_import[0].version == 13
    assert relative(results(tmp_path / "q.onnx", image_feeds(), "onnxruntime"), results(path, image_feeds())) < 0.1


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("opset", [10, 17])
def test_dynamic_models(tmp_path: Path, case: str, opset: int) -> None:
    make, feeds = CASES[case]
    path = saved(make(opset), tmp_path)
    for per_channel in (False, True):
        quantize_dynamic(path, tmp_path / "d.onnx", per_channel=per_channel, weight_type=UNSIGNED)
        made = onnx.load(tmp_path / "d.onnx")
        onnx.checker.check_model(made, full_check=True)
        assert {"MatMulInteger", "ConvInteger"} & set(operators(made))
        exact, found = results(path, feeds()), results(tmp_path / "d.onnx", feeds())
        assert relative(found, exact) < 0.1
        for runtime in ("onnxruntime", "openvino"):
            assert np.abs(results(tmp_path / "d.onnx", feeds(), runtime) - found).max() <= 0.05 * exact.std()


def test_what_is_written_is_what_onnxruntime_writes(tmp_path: Path) -> None:
    """Equal scales, zero points and weights under equal names, for the same ranges."""
    peer = pytest.importorskip("onnxruntime.quantization", reason="a peer's models")
    path = saved(convolutions(), tmp_path)
    for per_channel in (False, True):
        for module, name in ((intarsia.quantization, "ours"), (peer, "theirs")):
            kinds = {"activation_type": module.QuantType.QUInt8, "weight_type": module.QuantType.QInt8}
            module.quantize_static(path, tmp_path / f"{name}.onnx", Reader(image_feeds()), per_channel=per_channel, **kinds)
        ours, theirs = (onnx.load(tmp_path / f"{name}.onnx") for name in ("ours", "theirs"))
        assert sorted(operators(ours)) == sorted(operators(theirs))
        mine, others = stored(ours), stored(theirs)
        assert mine.keys() == others.keys()
        for name, values in others.items():
            assert mine[name].shape == values.shape
            apart = np.abs(mine[name].astype(np.float64) - values.astype(np.float64)).max(initial=0)
            assert apart <= (1e-6 if values.dtype == np.float32 else 1 if values.dtype != np.int32 else 16)


def test_a_relu_goes_into_the_range_of_what_it_reads(tmp_path: Path) -> None:
    path = saved(convolutions(), tmp_path)
    quantize_static(path, tmp_path / "q.onnx", Reader(image_feeds()), activation_type=UNSIGNED)
    assert "Relu" not in operators(onnx.load(tmp_path / "q.onnx"))
    kept = {"QDQKeepRemovableActivations": True}
    quantize_static(path, tmp_path / "q.onnx", Reader(image_feeds()), activation_type=UNSIGNED, extra_options=kept)
    assert "Relu" in operators(onnx.load(tmp_path / "q.onnx"))


def test_a_bias_of_two_nodes_has_a_form_for_each(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "a", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "v", "b"], ["y"], "z", pads=[1, 1, 1, 1]),
    ]
    tensors = {"w": numbers(1, 3, 3, 3, 3), "v": 20 * numbers(2, 3, 3, 3, 3), "b": numbers(3, 3) * 10}
    path = saved(model(nodes, tensors, {"x": [2, 3, 8, 8], "y": [2, 3, 8, 8]}), tmp_path)
    exact = results(path, image_feeds())
    for form in QuantFormat:
        quantize_static(path, tmp_path / "q.onnx", Reader(image_feeds()), quant_format=form, activation_type=UNSIGNED)
        assert relative(results(tmp_path / "q.onnx", image_feeds()), exact) < 0.05


def test_overrides_and_conversions(tmp_path: Path) -> None:
    path = saved(products(21), tmp_path)
    overrides = {
        "m1": [{"quant_type": QuantType.QUInt8, "convert": {"quant_type": QuantType.QUInt16, "recv_nodes": {"bias"}}}],
        "w1": [{"quant_type": QuantType.QInt16}],
        "y": [{"scale": np.float32(0.5), "zero_point": 100}],
    }
    options = {"TensorQuantOverrides": overrides}
    config = get_qdq_config(path, Reader(token_feeds()), tensor_quant_overrides=overrides)
    assert config.extra_options is not None
    assert config.extra_options["TensorQuantOverrides"] == overrides
    quantize(path, tmp_path / "q.onnx", config)
    made = onnx.load(tmp_path / "q.onnx")
    onnx.checker.check_model(made, full_check=True)
    found = {t.name: t for t in made.graph.initializer}
    assert found["m1_zero_point_convert"].data_type == TensorProto.UINT16
    assert found["w1_quantized"].data_type == TensorProto.INT16
    assert stored(made)["y_scale"] == np.float32(0.5)
    assert results(tmp_path / "q.onnx", token_feeds()).shape == (12, 5, 16)
    wrong = {"TensorQuantOverrides": {"nothing": [{}]}}
    with pytest.raises(InvalidArgument, match=r"Tensor 'nothing' in TensorQuantOverrides is not present in the model"):
        quantize_static(path, tmp_path / "q.onnx", Reader(token_feeds()), extra_options=wrong)
    for entry, why in {
        "Must provide both 'scale' and 'zero_point'": {"scale": 1.0},
        r"option\(s\) \[rmax\] are invalid with": {"scale": 1.0, "zero_point": 0, "rmax": 1.0},
        "'reduce_range' is only supported for initializers": {"reduce_range": True},
    }.items():
        options["TensorQuantOverrides"] = {"m1": [why]}
        with pytest.raises(InvalidArgument, match=entry):
            quantize_static(path, tmp_path / "q.onnx", Reader(token_feeds()), extra_options=options)


ALGORITHMS = {
    "default": lambda: DefaultWeightOnlyQuantConfig(block_size=16),
    "symmetric": lambda: DefaultWeightOnlyQuantConfig(block_size=16, is_symmetric=True),
    "8 bits": lambda: DefaultWeightOnlyQuantConfig(block_size=16, bits=8),
    "pairs": lambda: DefaultWeightOnlyQuantConfig(block_size=16, quant_format=QuantFormat.QDQ),
    "symmetric pairs": lambda: DefaultWeightOnlyQuantConfig(block_size=16, quant_format=QuantFormat.QDQ, is_symmetric=True),
    "columns": lambda: DefaultWeightOnlyQuantConfig(
        quant_format=QuantFormat.QDQ, is_symmetric=True, channel_wised_quantize=True
    ),
    "8-bit pairs": lambda: DefaultWeightOnlyQuantConfig(block_size=16, quant_format=QuantFormat.QDQ, bits=8),
    "half-quadratic": lambda: HQQWeightOnlyQuantConfig(block_size=16),
    "round to nearest": RTNWeightOnlyQuantConfig,
    "k-quants": KQuantWeightOnlyQuantConfig,
    "gptq": lambda: GPTQWeightOnlyQuantConfig(Reader(token_feeds())),
}


@pytest.mark.parametrize("how", list(ALGORITHMS))
def test_weights_in_blocks(tmp_path: Path, how: str) -> None:
    path = saved(products(21), tmp_path)
    quantizer = MatMulNBitsQuantizer(path, block_size=16, algo_config=ALGORITHMS[how]())
    quantizer.process()
    quantizer.model.save_model_to_file(tmp_path / "w.onnx")
    made = onnx.load(tmp_path / "w.onnx")
    onnx.checker.check_model(made)
    replaced = "DequantizeLinear" if "pairs" in how or how == "columns" else "MatMulNBits"
    assert operators(made).count(replaced) == 2
    exact, found = results(path, token_feeds()), results(tmp_path / "w.onnx", token_feeds())
    assert relative(found, exact) < (0.02 if "8" in how else 0.25)
    near = 0.02 if replaced == "DequantizeLinear" else 2e-3  # onnxruntime multiplies those in 8 bits
    assert np.allclose(results(tmp_path / "w.onnx", token_feeds(), "onnxruntime"), found, atol=near * np.abs(exact).max())


def test_two_bits_and_tables(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gather", ["table", "places"], ["rows"], "lookup"),
        helper.make_node("MatMul", ["x", "rows"], ["y"], "product"),
    ]
    tensors = {"table": numbers(1, 10, 32), "places": np.array([3, 1, 7, 2], np.int64)}
    made = model(nodes, tensors, {"x": [2, 4], "y": [2, 32]}, 21)
    path = saved(made, tmp_path)
    quantizer = MatMulNBitsQuantizer(made, block_size=16, op_types_to_quantize=("Gather",))
    quantizer.process()
    quantizer.model.save_model_to_file(tmp_path / "g.onnx")
    assert "GatherBlockQuantized" in operators(onnx.load(tmp_path / "g.onnx"))
    feed = [{"x": numbers(9, 2, 4)}]
    assert relative(results(tmp_path / "g.onnx", feed), results(path, feed)) < 0.2
    quantizer = MatMulNBitsQuantizer(products(21), bits=2, block_size=16)
    quantizer.process()
    assert operators(quantizer.model.model).count("MatMulNBits") == 2


@pytest.mark.parametrize("typed", [True, False])
def test_bodies_of_control_flow(tmp_path: Path, typed: bool) -> None:
    """A product inside an If whose weight is stored around it; exporters leave out the types of what bodies give."""
    value = helper.make_tensor_value_info("o", TensorProto.FLOAT, None) if typed else onnx.ValueInfoProto(name="o")
    bodies = [
        helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["o"], f"product_{i}")], f"body_{i}", [], [value])
        for i in range(2)
    ]
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["which"], to=TensorProto.BOOL),
        helper.make_node("If", ["which"], ["y"], "choice", then_branch=bodies[0], else_branch=bodies[1]),
    ]
    path = saved(model(nodes, {"w": numbers(1, 16, 8)}, {"x": ["n", 5, 16], "y": None}), tmp_path)
    quantize_dynamic(path, tmp_path / "d.onnx", extra_options={"EnableSubgraph": True})
    made = onnx.load(tmp_path / "d.onnx")
    inside = [n.op_type for a in made.graph.node[-1].attribute for n in a.g.node]
    assert inside.count("MatMulInteger") == 2
    assert [t.name for t in made.graph.initializer if t.name == "w_quantized"] == ["w_quantized"]
    assert relative(results(tmp_path / "d.onnx", token_feeds()), results(path, token_feeds())) < 0.05
    quantize_dynamic(path, tmp_path / "d.onnx")
    assert onnx.load(tmp_path / "d.onnx").graph.node[-1].op_type == "If"


def test_smooth_quant_helps_against_outliers(tmp_path: Path) -> None:
    made = products()
    weights = stored(made)["w1"].copy()
    weights[3] /= 60
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w1"))
    path = saved(made, tmp_path)
    feeds = token_feeds()
    for feed in feeds:
        feed["x"][..., 3] *= 60  # a channel of outliers
    exact = results(path, feeds)
    errors = []
    for smooth in (False, True):
        options = {"SmoothQuant": smooth}
        quantize_static(
            path, tmp_path / "q.onnx", Reader(feeds), activation_type=UNSIGNED, per_channel=True, extra_options=options
        )
        errors.append(relative(results(tmp_path / "q.onnx", feeds), exact))
    assert errors[1] < errors[0]


def test_caches_of_ranges(tmp_path: Path) -> None:
    path = saved(products(), tmp_path)
    cache = tmp_path / "ranges.json"
    quantize_static(path, tmp_path / "a.onnx", Reader(token_feeds()), calibration_cache_path=cache)
    quantize_static(path, tmp_path / "b.onnx", None, calibration_cache_path=cache)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    with pytest.raises(InvalidArgument, match=r"Either calibration_data_reader or an existing calibration_cache_path"):
        quantize_static(path, tmp_path / "c.onnx")


def test_models_in_memory_stay_as_they_are(tmp_path: Path) -> None:
    made = convolutions()
    before = made.SerializeToString()
    quantize_static(made, tmp_path / "q.onnx", Reader(image_feeds()))
    quantize_dynamic(made, tmp_path / "d.onnx")
    assert made.SerializeToString() == before


def test_prepared_models_compute_the_same(tmp_path: Path) -> None:
    path = saved(convolutions(), tmp_path)
    quant_pre_process(path, tmp_path / "p.onnx")
    made = onnx.load(tmp_path / "p.onnx")
    onnx.checker.check_model(made)
    assert {"c1", "f"} & {v.name for v in made.graph.value_info}
    assert np.allclose(results(tmp_path / "p.onnx", image_feeds()), results(path, image_feeds()), rtol=1e-4, atol=1e-4)
    with pytest.raises(InvalidArgument, match=r"expected input_model and output_model_path, one is missing"):
        quant_pre_process(path)


def test_weights_of_constant_nodes_are_stored(tmp_path: Path) -> None:
    """As PaddlePaddle's exporter writes them: they have ranges of their own values, and are stored in 8 bits."""
    made = convolutions()
    for tensor in list(made.graph.initializer):
        made.graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=tensor))
        made.graph.initializer.remove(tensor)
    path = saved(made, tmp_path)
    exact = results(path, image_feeds())
    quantize_static(path, tmp_path / "q.onnx", Reader(image_feeds()), activation_type=UNSIGNED)
    assert "w1_quantized" in stored(onnx.load(tmp_path / "q.onnx"))
    assert relative(results(tmp_path / "q.onnx", image_feeds()), exact) < 0.1
    calibrator = intarsia.quantization.create_calibrator(path)
    calibrator.collect_data(Reader(image_feeds()))
    low, high = calibrator.compute_data()["w1"].range_value
    assert low < -1 < 1 < high


def test_large_models_have_weights_beside_them(tmp_path: Path) -> None:
    made = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": numbers(1, 16, 100)}, {"x": [2, 16], "y": [2, 100]})
    quantize_dynamic(made, tmp_path / "d.onnx", use_external_data_format=True)
    assert (tmp_path / "d.onnx.data").stat().st_size >= 1600
    assert results(tmp_path / "d.onnx", [{"x": numbers(2, 2, 16)}]).shape == (2, 100)


@pytest.mark.parametrize(("kinds", "why"), [
    ((SIGNED, UNSIGNED), r"expected signed weights with signed activations"),
    ((UNSIGNED, QuantType.QFLOAT8E4M3FN), r"Only Distribution calibration method is supported"),
])  # fmt: skip
def test_types_that_do_not_go_together(tmp_path: Path, kinds: tuple[QuantType, QuantType], why: str) -> None:
    path = saved(convolutions(), tmp_path)
    with pytest.raises(InvalidArgument, match=why):
        quantize_static(path, tmp_path / "q.onnx", Reader(image_feeds()), activation_type=kinds[0], weight_type=kinds[1])


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(NoSuchFile, match=r"no file .*nothing.onnx"):
        quantize_dynamic(tmp_path / "nothing.onnx", tmp_path / "d.onnx")
    with pytest.raises(WrongType, match=r"expected a path or an onnx.ModelProto, got int"):
        quantize_dynamic(3, tmp_path / "d.onnx")
    with pytest.raises(WrongType, match=r"expected a StaticQuantConfig, .*, got dict"):
        quantize(convolutions(), tmp_path / "d.onnx", {})
    with pytest.raises(InvalidArgument, match=r"RTN: expected QuantFormat.QOperator, got QDQ"):
        RTNWeightOnlyQuantConfig(quant_format=QuantFormat.QDQ)
    with pytest.raises(InvalidArgument, match=r"GPTQ: expected a calibration_data_reader, got None"):
        MatMulNBitsQuantizer(products(21), algo_config=GPTQWeightOnlyQuantConfig()).process()
    with pytest.raises(TypeError, match="no_such"):
        quantize_static(convolutions(), tmp_path / "q.onnx", no_such=1)


@pytest.mark.parametrize("options", [
    {}, {"ActivationSymmetric": True}, {"QDQKeepRemovableActivations": True},
    {"TensorQuantOverrides": {"r1": [{"quant_type": QuantType.QUInt16, "convert": {"quant_type": UNSIGNED}}]}},
    {"OpTypesToExcludeOutputQuantization": ["Relu", "Conv"]}, {"ForceQuantizeNoInputCheck": True},
])  # fmt: skip
@pytest.mark.parametrize("made", [convolutions, products])
def test_only_ranges_that_are_needed_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[..., onnx.ModelProto], options: dict[str, Any]
) -> None:
    """The model is that of all ranges, as a cache has them."""
    path, feeds = saved(made(21), tmp_path), (image_feeds if made is convolutions else token_feeds)()
    if "TensorQuantOverrides" in options and made is products:
        options = {"TensorQuantOverrides": {"a1": [{"quant_type": QuantType.QUInt16}]}}
    observed: list[int] = []
    keep = TensorObservers.keep

    def counted(self: TensorObservers, names: list[str]) -> None:
        observed.append(len(self.estimators) - len(names))
        keep(self, names)

    monkeypatch.setattr(TensorObservers, "keep", counted)
    for name, cache in (("few", None), ("all", tmp_path / "ranges.json")):
        quantize_static(
            path, tmp_path / name, Reader(feeds), activation_type=UNSIGNED, per_channel=True, extra_options=options,
            calibration_cache_path=cache,
        )  # fmt: skip
    assert (tmp_path / "few").read_bytes() == (tmp_path / "all").read_bytes()
    assert len(observed) == 1
    assert observed[0] > 0 or made is products or options
