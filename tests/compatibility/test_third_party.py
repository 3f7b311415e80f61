"""Packages that import onnxruntime give the same results over Intarsia: each program runs once over each."""

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
    "skl2onnx": """
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skl2onnx import to_onnx
X = rng.normal(size=(60, 4)).astype(np.float32)
forest = make_pipeline(StandardScaler(), RandomForestClassifier(5, random_state=0)).fit(X, (X.sum(1) > 0).astype(int))
session = onnxruntime.InferenceSession(to_onnx(forest, X[:1]).SerializeToString(), providers=["CPUExecutionProvider"])
labels, probabilities = session.run(None, {"X": X})
show(labels, [list(p.values()) for p in probabilities])
""",
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
    "spox": """
import spox.opset.ai.onnx.v17 as op
from spox import Tensor, argument, build
from spox._future import ValuePropBackend, set_value_prop_backend
set_value_prop_backend(ValuePropBackend.ONNXRUNTIME)
a = argument(Tensor(np.float32, ("N", 8)))
constant = op.add(op.const(np.float32(1)), op.const(np.float32(2)))
onnx.save(build({"x": a}, {"y": op.mul(a, constant)}), folder + "/p.onnx")
show(constant._get_value(), run(folder + "/p.onnx"))
""",
    "onnxslim": """
import onnxslim
onnx.save(onnxslim.slim(model, model_check=True), folder + "/s.onnx")
show(run(folder + "/s.onnx"))
""",
    "onnxconverter_common": """
from onnxconverter_common.auto_mixed_precision import auto_convert_mixed_precision
mixed = auto_convert_mixed_precision(model, {"x": x}, rtol=0.05, atol=0.05, keep_io_types=True)
onnx.save(mixed, folder + "/h.onnx")
show(run(folder + "/h.onnx").shape)
""",
    "onnx_array_api": """
from onnx_array_api.ort.ort_optimizers import ort_optimized_model
from onnx_array_api.ort.ort_tensors import EagerOrtTensor
onnx.save(ort_optimized_model(model), folder + "/o.onnx")
show(EagerOrtTensor(x).numpy(), run(folder + "/o.onnx"))
""",
    "magika": """
from magika import Magika
print(json.dumps(Magika().identify_bytes(b"import os\\ndef f(x):\\n    return x + 1\\n").output.label))
""",
    "rapidocr_onnxruntime": """
from PIL import Image, ImageDraw
from rapidocr_onnxruntime import RapidOCR
image = Image.new("RGB", (320, 64), "white")
ImageDraw.Draw(image).text((10, 20), "HELLO WORLD 123", fill="black")
result, _ = RapidOCR()(np.array(image.resize((960, 192))))
print(json.dumps([line[1] for line in result]))
""",
}


def output(runtime: str, program: str) -> object:
    done = subprocess.run(
        [sys.executable, "-c", HEAD + program, runtime],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={"PYTHONPATH": ":".join([str(Path(ort.__file__).parents[1]), *sys.path]), "HOME": str(Path.home())},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


QUICK = ("skl2onnx", "onnx.backend")


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
