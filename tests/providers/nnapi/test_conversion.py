"""`intarsia convert --to nnapi`: the C source is compiled, and builds the model in the simulated library, which runs it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper
from recorded_cases import Caller
from simulated_nnapi import SimulatedLibrary

from intarsia.conversion.convert import ConversionRequest, convert
from intarsia.errors import InvalidArgument

HEADER = """
#include <stdint.h>
#include <stdbool.h>
#include <stddef.h>
typedef struct ANeuralNetworksModel ANeuralNetworksModel;
typedef struct { int32_t type; uint32_t dimensionCount; const uint32_t *dimensions; float scale; int32_t zeroPoint; }
  ANeuralNetworksOperandType;
typedef struct { uint32_t channelDim, scaleCount; const float *scales; } ANeuralNetworksSymmPerChannelQuantParams;
int ANeuralNetworksModel_addOperand(ANeuralNetworksModel *, const ANeuralNetworksOperandType *);
int ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(ANeuralNetworksModel *, int32_t,
  const ANeuralNetworksSymmPerChannelQuantParams *);
int ANeuralNetworksModel_setOperandValue(ANeuralNetworksModel *, int32_t, const void *, size_t);
int ANeuralNetworksModel_addOperation(ANeuralNetworksModel *, int32_t, uint32_t, const uint32_t *, uint32_t, const uint32_t *);
int ANeuralNetworksModel_identifyInputsAndOutputs(ANeuralNetworksModel *, uint32_t, const uint32_t *, uint32_t,
  const uint32_t *);
int ANeuralNetworksModel_relaxComputationFloat32toFloat16(ANeuralNetworksModel *, bool);
int ANeuralNetworksModel_finish(ANeuralNetworksModel *);
"""
FORWARDED = {
    "addOperand": "const ANeuralNetworksOperandType *a| a",
    "setOperandSymmPerChannelQuantParams": "int32_t i, const ANeuralNetworksSymmPerChannelQuantParams *a| i, a",
    "setOperandValue": "int32_t i, const void *a, size_t n| i, a, n",
    "addOperation": "int32_t c, uint32_t n, const uint32_t *a, uint32_t k, const uint32_t *b| c, n, a, k, b",
    "identifyInputsAndOutputs": "uint32_t n, const uint32_t *a, uint32_t k, const uint32_t *b| n, a, k, b",
    "relaxComputationFloat32toFloat16": "bool a| a",
    "finish": "| ",
}
"""Functions that are passed on to the simulated library: parameters after the model, and their names."""


def shim() -> str:
    lines = ["#include <android/NeuralNetworks.h>"]
    for name, text in FORWARDED.items():
        parameters, names = text.split("|")
        rest, given = (f", {parameters}", f",{names}") if parameters else ("", "")
        kind = f"int (*call_{name})(ANeuralNetworksModel *m{rest})"
        passed = f"int ANeuralNetworksModel_{name}(ANeuralNetworksModel *m{rest}) {{ return call_{name}(m{given}); }}"
        lines += [f"{kind};", passed]
    return "\n".join(lines)


def compiled(source: Path, folder: Path) -> ctypes.CDLL:
    """The source with a library behind it that passes calls on; warnings are errors."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (folder / "android").mkdir()
    (folder / "android" / "NeuralNetworks.h").write_text(HEADER)
    (folder / "shim.c").write_text(shim())
    built = folder / "model.so"
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-std=c99", f"-I{folder}", str(source), str(folder / "shim.c")]
    subprocess.run([*command, "-o", str(built)], check=True, capture_output=True)
    return ctypes.CDLL(str(built))


def executed(code: ctypes.CDLL, name: str, weights: np.ndarray, x: np.ndarray, result: np.ndarray, level: int) -> np.ndarray:
    call = Caller(SimulatedLibrary(level))
    for function in FORWARDED:
        if hasattr(call.library, f"ANeuralNetworksModel_{function}"):
            pointer = ctypes.cast(getattr(call.library, f"ANeuralNetworksModel_{function}"), ctypes.c_void_p)
            ctypes.c_void_p.in_dll(code, f"call_{function}").value = pointer.value
    model = call.made("Model_create")
    build: Any = getattr(code, f"{name}_build")
    build.argtypes, build.restype = (ctypes.c_void_p, ctypes.c_void_p), ctypes.c_int
    assert build(model, weights.ctypes.data) == 0, call.library.log
    compilation = call.made("Compilation_create", model)
    call("Compilation_finish", compilation)
    execution = call.made("Execution_create", compilation)
    call("Execution_setInput", execution, 0, None, x.ctypes.data, x.nbytes)
    call("Execution_setOutput", execution, 0, None, result.ctypes.data, result.nbytes)
    call("Execution_compute", execution)
    return result


def saved(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """A model of a convolution by channels in eight bits, and one of floats; the second's weights are returned."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[1, 2, 4, 4] x) => (float[1, 3, 4, 4] y) {
        q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  v = DequantizeLinear<axis = 0>(w, t, u)
        c = Conv<pads = [1, 1, 1, 1]>(d, v)  r = Relu(c)  p = QuantizeLinear(r, s, z)  y = DequantizeLinear(p, s, z)
    }"""
    proto = onnx.parser.parse_model(text)
    rng = np.random.default_rng(3)
    weights, scales = rng.integers(-127, 128, (3, 2, 3, 3)).astype(np.int8), np.float32([0.01, 0.02, 0.03])
    arrays = {"s": np.float32(0.05), "z": np.int8(-3), "w": weights, "t": scales, "u": np.zeros(3, np.int8)}
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items())
    onnx.save(proto, path)
    return weights, scales


def test_the_source_builds_the_model(tmp_path: Path) -> None:
    weights, scales = saved(tmp_path / "my-net.onnx")
    report = convert(tmp_path / "my-net.onnx", ConversionRequest("nnapi", tmp_path / "my-net.c"))
    assert report.complete and report.parts[0].path == tmp_path / "my-net.c"
    text = (tmp_path / "my-net.c").read_text()
    assert "Inputs: x: float[1, 2, 4, 4]." in text and "/* CONV_2D */" in text
    data = np.frombuffer((tmp_path / "my-net.weights").read_bytes(), np.uint8).copy()
    x = np.random.default_rng(4).uniform(-3, 3, (1, 2, 4, 4)).astype(np.float32)
    code = compiled(tmp_path / "my-net.c", tmp_path)
    found = executed(code, "my_net", data, x, np.zeros((1, 3, 4, 4), np.float32), 31)

    def steps(v: np.ndarray) -> np.ndarray:
        return np.clip(np.rint(v / np.float32(0.05)) - 3, -128, 127) + 3

    padded = np.pad(steps(x) * 0.05, ((0, 0), (0, 0), (1, 1), (1, 1)))
    real = weights * scales[:, None, None, None].astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    expected = steps(np.maximum(np.einsum("nchwij,ocij->nohw", windows, real), 0)) * 0.05
    assert np.abs(found - expected).max() < 0.051  # a step


def test_options(tmp_path: Path) -> None:
    saved(tmp_path / "net.onnx")
    given = {"relaxed": "1", "nchw": "1", "feature_level": "30"}
    convert(tmp_path / "net.onnx", ConversionRequest("nnapi", options=given))
    text = (tmp_path / "net.c").read_text()
    assert "relaxComputationFloat32toFloat16" in text and "feature level 30" in text and "TRANSPOSE" not in text
    with pytest.raises(InvalidArgument, match="feature_level: expected 27 to 31"):
        convert(tmp_path / "net.onnx", ConversionRequest("nnapi", options={"feature_level": "5"}))


def test_nodes_that_are_left(tmp_path: Path) -> None:
    head = '<ir_version: 8, opset_import: ["": 17]> g (double[2] x, float[2] f) => (double[2] y, float[2] z)'
    text = head + "{y = Relu(x) z = Relu(f)}"
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    report = convert(tmp_path / "net.onnx", ConversionRequest("nnapi"))
    assert not report.complete and [row.reason for row in report.left] == ["NNAPI has no tensors of float64, as 'x' is"]


def test_weights_in_half(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 64] x) => (float[2, 32] y) { y = MatMul(x, w) }"""
    proto = onnx.parser.parse_model(text)
    w = np.random.default_rng(5).standard_normal((64, 32)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(w, "w"))
    onnx.save(proto, tmp_path / "net.onnx")
    for name, half in (("single", "0"), ("half", "1")):
        convert(tmp_path / "net.onnx", ConversionRequest("nnapi", tmp_path / f"{name}.c", options={"half": half}))
    assert (tmp_path / "half.weights").stat().st_size < 0.6 * (tmp_path / "single.weights").stat().st_size
    x = np.random.default_rng(6).standard_normal((2, 64)).astype(np.float32)
    data = np.frombuffer((tmp_path / "half.weights").read_bytes(), np.uint8).copy()
    found = executed(compiled(tmp_path / "half.c", tmp_path), "half", data, x, np.zeros((2, 32), np.float32), 31)
    np.testing.assert_allclose(found, x @ w, atol=0.05)
    with pytest.raises(InvalidArgument, match="--option half: NNAPI has float16 from feature level 29 on, and this is 28"):
        convert(tmp_path / "net.onnx", ConversionRequest("nnapi", options={"half": "1", "feature_level": "28"}))
