"""Packages of onnxruntime's own and around ONNX give the same results over Intarsia; `test_programs` has those of others."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import intarsia as ort

HEAD = """
import json, sys, tempfile, warnings
warnings.simplefilter("ignore")
import numpy as np, onnx, onnx.helper as h
if sys.argv[1] == "intarsia":
    import intarsia
    intarsia.install_as("onnxruntime")
import onnxruntime
rng = np.random.default_rng(0)
folder = tempfile.mkdtemp()
x = rng.normal(size=(6, 8)).astype(np.float32)
weights = onnx.numpy_helper.from_array(rng.normal(size=(8, 8)).astype(np.float32), "W")
nodes = [h.make_node("MatMul", ["x", "W"], ["t"], name="mm"), h.make_node("Relu", ["t"], ["y"], name="r")]
values = [h.make_tensor_value_info(name, 1, ["N", 8]) for name in "xy"]
graph = h.make_graph(nodes, "g", values[:1], values[1:], [weights])
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
path = folder + "/m.onnx"
onnx.save(model, path)
def run(file):
    return onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
def show(*arrays):
    print(json.dumps([np.asarray(a, np.float64).round(4).tolist() for a in arrays]))
"""

PROGRAMS = {
    "onnxruntime.quantization": """
from onnxruntime.quantization import CalibrationDataReader, quantize_dynamic, quantize_static
class Reader(CalibrationDataReader):
    def __init__(self):
        self.feeds = iter([{"x": x}] * 3)
    def get_next(self):
        return next(self.feeds, None)
quantize_dynamic(path, folder + "/d.onnx")
quantize_static(path, folder + "/s.onnx", Reader())
show(run(folder + "/s.onnx"))
""",
    "onnxruntime.transformers": """
from onnxruntime.transformers import optimizer
optimized = optimizer.optimize_model(path, model_type="bert", num_heads=0, hidden_size=0, opt_level=1)
optimized.save_model_to_file(folder + "/o.onnx")
show(run(folder + "/o.onnx"))
""",
    "onnxruntime.tools": """
from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference
inferred = SymbolicShapeInference.infer_shapes(model)
onnx.save(inferred, folder + "/i.onnx")
show(run(folder + "/i.onnx"), len(inferred.graph.value_info))
""",
    "onnx.backend": """
import onnxruntime.backend as backend
show(*backend.prepare(path, "CPU").run([x]))
""",
    "onnxslim": """
import onnxslim
onnx.save(onnxslim.slim(model, model_check=True), folder + "/s.onnx")
show(run(folder + "/s.onnx"))
""",
    "onnx_array_api": """
from onnx_array_api.ort.ort_optimizers import ort_optimized_model
from onnx_array_api.ort.ort_tensors import EagerOrtTensor
onnx.save(ort_optimized_model(model), folder + "/o.onnx")
show(EagerOrtTensor(x).numpy(), run(folder + "/o.onnx"))
""",
}


def output(runtime: str, program: str) -> object:
    done = subprocess.run(
        [sys.executable, "-c", HEAD + program, runtime],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={"PYTHONPATH": ":".join([str(Path(ort.__file__).parents[1]), *sys.path]), "HOME": str(Path.home())},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


QUICK = ("onnx.backend",)


@pytest.mark.parametrize("package", PROGRAMS)
def test_the_results_are_the_same(package: str) -> None:
    pytest.importorskip("onnxruntime", reason="the runtime to compare with")
    if package not in QUICK and not os.environ.get("INTARSIA_THIRD_PARTY"):
        pytest.skip("set INTARSIA_THIRD_PARTY=1: these programs take a few minutes together")
    if importlib.util.find_spec(package.split(".")[0]) is None:
        pytest.skip(f"{package} is not installed")
    ours, theirs = output("intarsia", PROGRAMS[package]), output("onnxruntime", PROGRAMS[package])
    assert _near(ours, theirs)


def _near(ours: object, theirs: object) -> bool:
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(_near(a, b) for a, b in zip(ours, theirs, strict=True))
    if isinstance(ours, float) and isinstance(theirs, (int, float)):
        return abs(ours - theirs) <= 2e-4 + 1e-4 * abs(theirs)
    return ours == theirs
