#!/usr/bin/env bash
# ONNX's ReferenceEvaluator (onnx 1.23.2) joins the scan outputs of a Loop end to end where the operator stacks them.
#
# Expected: of a scan output of shape [4, 3] and 2 trips [2, 4, 3], with an axis for the trips in front, as shape inference of the
# same package says and onnxruntime gives. Seen: [8, 3], without an error, and an error that numpy raises where there is no trip.
# So it is no oracle of models whose loops give tensors row by row.
# This fails when that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx.checker
import onnx.parser
import onnxruntime
from onnx.reference import ReferenceEvaluator
from onnx.shape_inference import infer_shapes

model = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["" : 17]>
g (int64 trips, float[4,3] x) => (float[4,3] last, float[trip,4,3] rows) {
  go = Constant<value = bool {1}>()
  last, rows = Loop<body = b (int64 i, bool goes, float[4,3] before) => (bool still, float[4,3] after, float[4,3] row) {
    still = Identity(goes)
    after = Add(before, before)
    row = Identity(after)
  }>(trips, go, x)
}""")
onnx.checker.check_model(model, full_check=True)
feed = {"trips": np.array(2), "x": np.ones((4, 3), np.float32)}
inferred = infer_shapes(model, strict_mode=True).graph.output[1].type.tensor_type.shape
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
reference = ReferenceEvaluator(model)
ranks = len(inferred.dim), session.run(None, feed)[1].ndim
found = reference.run(None, feed)[1].shape
print(f"rank by shape inference and by onnxruntime: {ranks}; ReferenceEvaluator: {found}")
assert ranks == (3, 3) and found == (8, 3), (ranks, found)
try:
    reference.run(None, {**feed, "trips": np.array(0)})
except ValueError as error:
    print("without trips:", error)
else:
    raise SystemExit("without trips it gives a result now")
PYTHON
