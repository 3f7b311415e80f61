"""Products of 8 bits that OpenVINO saturates on CPUs without VNNI: which are found, wrong there and right here."""

from __future__ import annotations

import importlib.util

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest

import intarsia as ort
from intarsia.graph.load import load
from intarsia.providers.openvino.saturation import adds_bytes_in_16_bits, saturating

OPENVINO, CPU, REFERENCE = "OpenVINOExecutionProvider", "CPUExecutionProvider", "ReferenceExecutionProvider"
IMAGE, ROWS = (1, 16, 16, 16), (32, 64)

# Behind the quantised x (d) and the quantised weights (v): the product, x's shape, the weights' and the result's.
PRODUCTS = {
    "Conv": ("c = Conv(d, v)", IMAGE, (8, 16, 3, 3), (1, 8, 14, 14)),
    "Conv of what was moved": ("m = MaxPool<kernel_shape=[1,1]>(d)  c = Conv(m, v)", IMAGE, (8, 16, 1, 1), (1, 8, 16, 16)),
    "ConvTranspose": ("c = ConvTranspose<strides=[2,2]>(d, v)", IMAGE, (16, 8, 2, 2), (1, 8, 32, 32)),
    "MatMul": ("c = MatMul(d, v)", ROWS, (64, 48), (32, 48)),
    "Gemm": ("c = Gemm<transB=1>(d, v)", ROWS, (48, 64), (32, 48)),
}  # fmt: skip


def quantised(product: str, x: tuple[int, ...], weights: np.ndarray, y: tuple[int, ...], *, both: bool = False) -> bytes:
    """Q, DQ, the product, Q, DQ; with `both`, weights are a second input that is quantised in the run."""
    sizes = [",".join(map(str, shape)) for shape in (x, y, weights.shape)]
    given, made = (f", float[{sizes[2]}] w", "k = QuantizeLinear(w, sk, zk)") if both else ("", "")
    proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[{sizes[0]}] x{given}) => (float[{sizes[1]}] y) {{
            q = QuantizeLinear(x, sx, z)  d = DequantizeLinear(q, sx, z)  {made}  v = DequantizeLinear(k, sk, zk)
            {product}  cq = QuantizeLinear(c, sy, z)  y = DequantizeLinear(cq, sy, z)
        }}""")
    values = {
        "sx": np.float32(0.030713), "sk": np.float32(0.021317), "sy": np.float32(0.1), "z": np.int8(0),
        "zk": np.zeros((), weights.dtype), **({} if both else {"k": weights}),
    }  # fmt: skip
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in values.items())
    return proto.SerializeToString()


def drawn(shape: tuple[int, ...], largest: int, dtype: type = np.int8) -> np.ndarray:
    return np.random.default_rng(0).integers(-largest, largest + 1, shape).astype(dtype)


@pytest.mark.parametrize("name", PRODUCTS)
def test_weights_of_8_bits_saturate_and_of_7_do_not(name: str) -> None:
    product, x, weights, y = PRODUCTS[name]
    assert saturating(load(quantised(product, x, drawn(weights, 127), y))) == {"c"}
    assert not saturating(load(quantised(product, x, drawn(weights, 63), y)))


def test_two_weights_decide_each_sign_by_itself() -> None:
    weights = np.zeros((64, 48), np.int8)
    for first, second, found in [(100, 28, False), (100, 29, True), (-100, -28, False), (-100, -29, True), (127, -128, False)]:
        weights[3, :2] = first, second
        assert bool(saturating(load(quantised("c = MatMul(d, v)", ROWS, weights, (32, 48))))) is found


def test_unsigned_weights_and_two_tensors_of_a_run_may_saturate() -> None:
    assert saturating(load(quantised("c = MatMul(d, v)", ROWS, np.ones((64, 48), np.uint8), (32, 48)))) == {"c"}
    assert saturating(load(quantised("c = MatMul(d, v)", ROWS, drawn((64, 48), 1), (32, 48), both=True))) == {"c"}


def test_depthwise_convolutions_and_float_products_are_left_alone() -> None:
    assert not saturating(load(quantised("c = Conv<group=16>(d, v)", IMAGE, drawn((16, 1, 3, 3), 127), (1, 16, 14, 14))))
    assert not saturating(load(quantised("s = Sin(d)  c = MatMul(s, v)", ROWS, drawn((64, 48), 127), (32, 48))))


def test_which_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_CPU_FEATURES", "avx2")
    assert adds_bytes_in_16_bits("CPU")
    assert adds_bytes_in_16_bits("AUTO:GPU,CPU")
    assert not adds_bytes_in_16_bits("GPU.1")
    monkeypatch.setenv("INTARSIA_CPU_FEATURES", "avx2,+avxvnni")
    assert not adds_bytes_in_16_bits("CPU")


@pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="needs openvino (extra: openvino)")
@pytest.mark.skipif(not adds_bytes_in_16_bits("CPU"), reason="this CPU has VNNI: OpenVINO's products of bytes are right")
@pytest.mark.parametrize("name", PRODUCTS)
def test_openvino_would_saturate_and_is_not_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from intarsia.providers.openvino import refusals, survey

    product, x, weights, y = PRODUCTS[name]
    source = quantised(product, x, drawn(weights, 127), y)
    feed = {"x": np.random.default_rng(1).standard_normal(x).astype(np.float32) * 2}
    wanted = ort.InferenceSession(source, providers=[REFERENCE]).run(None, feed)[0]
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("partition.keep_islands", "1")

    def steps_off() -> float:
        return float(np.abs(ort.InferenceSession(source, options, [OPENVINO, CPU]).run(None, feed)[0] - wanted).max() / 0.1)

    assert steps_off() < 0.01
    op = name.split()[0]
    reasons = ort.InferenceSession(source, options, [OPENVINO, CPU]).explain().to_json()
    assert f"OpenVINO's {op} of 8 bits adds products in 16 bits on this CPU, which has no VNNI" in reasons
    monkeypatch.setattr(refusals, "adds_bytes_in_16_bits", lambda device: False)
    monkeypatch.setattr(survey, "_answers", {})
    assert steps_off() > 20
