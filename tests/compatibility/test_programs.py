"""Programs of others that import onnxruntime, as they are on PyPI: on Intarsia they give what they give on onnxruntime.

Each runs in two processes, one of which calls `install_as("onnxruntime")` first. One that is not installed is skipped.
INTARSIA_TRANSFORMERS_4 names a folder with transformers 4, for a program that does not run with version 5.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from typing import Any

import pytest

pytest.importorskip("onnxruntime", reason="the programs are compared with themselves on onnxruntime")
pytest.importorskip("llvmlite", reason="they run on the CPU provider")

START = """import sys
if sys.argv[1] == "intarsia":
    import intarsia
    intarsia.install_as("onnxruntime")
import json
import numpy as np
"""

OPTIMUM = "optimum-onnx runs a model of transformers 4"
PROGRAMS: dict[str, tuple[tuple[str, ...], str]] = {
    "magika tells file types": (("magika",), """
from magika import Magika
texts = [b"import os\\nprint('hello')\\n" * 20, b"#include <stdio.h>\\nint main() { return 0; }\\n" * 10,
         b"<html><body>hi</body></html>" * 10, b"SELECT * FROM t WHERE a = 1;\\n" * 10]
found = [Magika().identify_bytes(text) for text in texts]
result = [[f.output.label, float(f.score)] for f in found]
"""),
    "silero-vad hears speech": (("silero_vad", "torch"), """
import torch
from silero_vad import load_silero_vad
model, t = load_silero_vad(onnx=True), np.arange(16000) / 16000
sound = np.sin(2 * np.pi * 220 * t) * np.exp(-((t - 0.5) / 0.2) ** 2) + 0.01 * np.random.default_rng(0).standard_normal(16000)
pieces = torch.from_numpy(sound.astype(np.float32))[: 16000 // 512 * 512].reshape(-1, 512)
result = [float(model(piece, 16000)) for piece in pieces]
"""),
    "rapidocr reads text": (("rapidocr_onnxruntime", "cv2"), """
import cv2
from rapidocr_onnxruntime import RapidOCR
picture = np.full((120, 640, 3), 255, np.uint8)
cv2.putText(picture, "Intarsia runs 2026", (20, 80), cv2.FONT_HERSHEY_SIMPLEX, 1.6, (0, 0, 0), 3)
lines, _ = RapidOCR()(picture)
result = [[text, float(score)] for _, text, score in lines]
"""),
    "ddddocr reads captchas": (("ddddocr", "cv2"), """
import cv2, ddddocr
picture = np.full((64, 200, 3), 255, np.uint8)
cv2.putText(picture, "AB12", (20, 48), cv2.FONT_HERSHEY_SIMPLEX, 1.5, (0, 0, 0), 3)
result = ddddocr.DdddOcr(show_ad=False).classification(cv2.imencode(".png", picture)[1].tobytes())
"""),
    "nudenet looks for people": (("nudenet", "cv2"), """
from nudenet import NudeDetector
detector = NudeDetector()
shape = [1, 3, 320, 320]
scores = detector.onnx_session.run(None, {detector.input_name: np.random.default_rng(0).random(shape, np.float32)})[0]
result = [list(scores.shape), float(scores.mean()), float(scores.max())]
"""),
    "spox builds models": (("spox",), """
import onnxruntime, spox, spox.opset.ai.onnx.v17 as op
a, c = spox.argument(spox.Tensor(np.float32, ("N", 3))), op.constant(value_floats=[1.0, 2.0, 3.0])
model = spox.build({"a": a}, {"s": op.add(a, op.mul(c, c))})
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
result = session.run(None, {"a": np.ones((2, 3), np.float32)})[0].tolist()
"""),
    "skl2onnx converts a pipeline": (("skl2onnx", "sklearn"), """
import onnxruntime
from skl2onnx import to_onnx
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
x = np.random.default_rng(0).random((200, 4)).astype(np.float32)
y = np.array(["no", "yes"])[(x[:, 0] * x[:, 1] > 0.3).astype(int)]
fitted = make_pipeline(StandardScaler(), GradientBoostingClassifier(n_estimators=5, random_state=0)).fit(x, y)
session = onnxruntime.InferenceSession(to_onnx(fitted, x[:1]).SerializeToString(), providers=["CPUExecutionProvider"])
labels, scores = session.run(None, {session.get_inputs()[0].name: x[:20]})
result = [labels.tolist(), [{k: float(v) for k, v in row.items()} for row in scores]]
"""),
    "hummingbird converts a forest": (("hummingbird", "torch", "sklearn"), """
import functools, torch.onnx
torch.onnx.export = functools.partial(torch.onnx.export, dynamo=False)  # its models are not for the newer exporter
from hummingbird.ml import convert
from sklearn.ensemble import RandomForestClassifier
x = np.random.default_rng(0).random((50, 4)).astype(np.float32)
fitted = RandomForestClassifier(5, random_state=0, max_depth=3).fit(x, x[:, 0] > 0.5)
result = convert(fitted, "onnx", x[:1]).predict_proba(x).astype(float).tolist()
"""),
    OPTIMUM: (("optimum", "torch", "transformers"), """
import tempfile, torch
from transformers import BertConfig, BertForSequenceClassification
from optimum.onnxruntime import ORTModelForSequenceClassification
torch.manual_seed(0)
folder = tempfile.mkdtemp()
sizes = dict(vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=3)
model = BertForSequenceClassification(BertConfig(**sizes)).eval()
model.save_pretrained(folder)
tokens = torch.arange(12).reshape(2, 6)
given = (tokens, torch.ones_like(tokens))
names = ["input_ids", "attention_mask"]
torch.onnx.export(model, given, folder + "/model.onnx", input_names=names, output_names=["logits"], dynamo=False,
                  dynamic_axes={name: {0: "b", 1: "s"} for name in names})
loaded = ORTModelForSequenceClassification.from_pretrained(folder, provider="CPUExecutionProvider")
result = loaded(input_ids=tokens, attention_mask=given[1]).logits.numpy().astype(float).tolist()
"""),
    "onnxmltools converts trees of LightGBM and XGBoost": (("onnxmltools", "lightgbm", "xgboost", "skl2onnx"), """
import lightgbm, onnxruntime, xgboost
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
x = np.random.default_rng(0).random((200, 4)).astype(np.float32)
y, kinds, result = x[:, 0] * 2 + x[:, 1], [("x", FloatTensorType([None, 4]))], []
trees = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1, n_jobs=1).fit(x, y)
boosted = xgboost.XGBClassifier(n_estimators=5, max_depth=3, n_jobs=1).fit(x, (y > 1.2).astype(int))
for model in (convert_lightgbm(trees, initial_types=kinds), convert_xgboost(boosted, initial_types=kinds)):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    result += [np.asarray(found, float).tolist() for found in session.run(None, {"x": x[:20]})]
"""),
    "onnxslim simplifies a model": (("onnxslim",), """
import onnx.parser, onnxruntime, onnxslim
text = '''<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x) => (float[N, 4] y)
<float[4] c = {1, 2, 3, 4}, float[4] d = {2, 2, 2, 2}> { e = Mul(c, d)  a = Identity(x)  b = Add(a, e)  y = Relu(b) }'''
model = onnxslim.slim(onnx.parser.parse_model(text), model_check=True)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
result = [len(model.graph.node), session.run(None, {"x": np.float32([[0, -10, 1, 2]])})[0].tolist()]
"""),
    "onnxconverter-common makes a model half": (("onnxconverter_common",), """
import onnx.parser, onnxruntime
from onnxconverter_common.float16 import convert_float_to_float16
text = '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { a = Exp(x)  y = Softmax(a) }'
model = convert_float_to_float16(onnx.parser.parse_model(text), keep_io_types=True)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
result = session.run(None, {"x": np.float32([0, 0.5, 1, -1])})[0].tolist()
"""),
    "onnxruntime-easy calls models with values": (("onnxruntime_easy",), """
import onnx.parser, onnxruntime_easy, tempfile
text = '''<ir_version: 8, opset_import: ["" : 17]> g (float[N, 2] x, float[2] w) => (float[N, 2] y, float[N, 2] z)
{ y = Mul(x, w)  z = Neg(y) }'''
path = tempfile.mkdtemp() + "/m.onnx"
onnx.save(onnx.parser.parse_model(text), path)
model = onnxruntime_easy.load(path)
x, w = (onnxruntime_easy.ort_value(np.arange(n, dtype=np.float32).reshape(s)) for n, s in ((6, (3, 2)), (2, (2,))))
with model.set_outputs("z"):
    result = [value.numpy().tolist() for value in (*model(x, w=w), *model(x, w))]
"""),
    "onnxsim simplifies and checks a model": (("onnxsim",), """
import onnx.parser, onnxruntime, onnxsim
text = '''<ir_version: 8, opset_import: ["" : 17]> g (float[1, 3, 8, 8] x) => (float[1, 2, 8, 8] y)
<float[2, 3, 1, 1] w = {1, 2, 3, 4, 5, 6}, float[2] s = {1, 2}, float[2] b = {0, 1}, float[2] m = {1, 1}, float[2] v = {4, 9}>
{ c = Conv(x, w)  n = BatchNormalization(c, s, b, m, v)  h = Shape(n)  r = Reshape(n, h)  y = Relu(r) }'''
model, checked = onnxsim.simplify(onnx.parser.parse_model(text), check_n=2)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
result = [checked, len(model.graph.node), session.run(None, {"x": np.ones((1, 3, 8, 8), np.float32)})[0].mean((2, 3)).tolist()]
"""),
    "piper speaks": (("piper",), """
import onnx, onnx.parser, tempfile
from piper import PiperVoice
text = '''<ir_version: 8, opset_import: ["" : 17]>
g (int64[1, n] input, int64[1] input_lengths, float[3] scales) => (float[1, 1, 1, m] output)
<int64 one = {1}, int64[1] first = {0}> { e = Gather(table, input)  l = Gather(scales, one)  s = Mul(e, l)
t = Transpose <perm = [0, 2, 1]> (s)  c = ConvTranspose <strides = [4]> (t, filter)  h = Tanh(c)
output = Unsqueeze(h, first) }'''
model, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
for name, shape in (("table", (128, 8)), ("filter", (8, 1, 8))):
    model.graph.initializer.append(onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
path = tempfile.mkdtemp() + "/voice.onnx"
onnx.save(model, path)
settings = dict(audio={"sample_rate": 16000}, espeak={"voice": "en-us"}, phoneme_type="text", num_symbols=128, num_speakers=1)
settings |= dict(inference=dict(noise_scale=0.6, length_scale=1.2, noise_w=0.8))
settings["phoneme_id_map"] = {chr(c): [c] for c in range(32, 127)} | {"_": [0], "^": [1], "$": [2]}
open(path + ".json", "w").write(json.dumps(settings))
result = [chunk.audio_float_array.tolist() for chunk in PiperVoice.load(path).synthesize("Intarsia runs")]
"""),
    "onnx-asr hears features": (("onnx_asr",), """
import onnx_asr, onnxruntime, pathlib
sound, result = np.random.default_rng(0).standard_normal((2, 8000)).astype(np.float32) / 10, []
for path in sorted(pathlib.Path(onnx_asr.__file__).parent.glob("preprocessors/data/[kn]*.onnx")):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    features, lengths = session.run(None, {names[0]: sound, names[1]: np.int64([8000, 4000])})
    result += [path.name, list(features.shape), lengths.tolist(), features.astype(float).mean(1).tolist()]
"""),
}  # fmt: skip


def folders(name: str) -> list[str]:
    """Where a program's packages are, before all others."""
    return [found] if name == OPTIMUM and (found := os.environ.get("INTARSIA_TRANSFORMERS_4")) else []


def run(runtime: str, program: str, first: list[str]) -> subprocess.CompletedProcess[str]:
    code = f"{START}{program}\nprint('RESULT', json.dumps(result))"
    paths = [*first, *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [sys.executable, "-c", code, runtime], capture_output=True, text=True, check=False, timeout=600, env=env
    )


def result_of(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.rpartition("RESULT")[2])


def same(left: Any, right: Any) -> bool:
    """Equal, numbers to a thousandth."""
    if isinstance(left, float) and isinstance(right, float):
        return abs(left - right) <= 1e-3 * max(1, abs(right))
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return bool(left == right)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_gives_the_same_on_both(name: str) -> None:
    packages, program = PROGRAMS[name]
    first = folders(name)
    for package in packages:
        if PathFinder.find_spec(package, first) is None and find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    original = run("onnxruntime", program, first)
    if original.returncode:
        pytest.skip(f"the program does not run on onnxruntime here: {original.stderr.strip().splitlines()[-1]}")
    found, expected = result_of(run("intarsia", program, first)), result_of(original)
    assert same(found, expected), f"{found}\n{expected}"


def test_what_counts_as_the_same() -> None:
    assert same([1.0, {"a": [2.0]}], [1.0004, {"a": [2.0]}])
    assert not same([1.0], [1.1])
    assert not same(["a"], ["b"])
    assert not same([1.0], [1.0, 1.0])
