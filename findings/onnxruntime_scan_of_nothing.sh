#!/usr/bin/env bash
# onnxruntime 1.32.0 refuses a Scan over a sequence of length 0, and a Loop without trips gives sizes of 0 that it knows otherwise.
#
# Expected: of an empty sequence the final state is the first one, and there are no rows: shape [0, 3]. Of a Loop whose trip count
# is 0 there are no rows of [4, 3], as its carried value has these sizes: shape [0, 4, 3]. ONNX says of both only that the body is
# run as often as there are elements, or trips. Seen: the Scan fails in the run, after the same session has run on two elements; the
# Loop gives [0, 0, 3], a 0 for each size that has a name in the body, so that what reads the rows behind it (a MatMul, a Concat by
# axis 1) meets other sizes than for one trip. Models that take lists of tokens or boxes meet both.
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

onnxruntime.set_default_logger_severity(4)


def opened(body):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {body}')
    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


scan = opened("""g (float[n,3] x, float[3] first) => (float[3] last, float[m,3] rows) {
  last, rows = Scan<num_scan_inputs = 1, body = b (float[3] before, float[3] element) => (float[3] after, float[3] row) {
    after = Add(before, element)
    row = Identity(after)
  }>(first, x)
}""")
zeros = np.zeros(3, np.float32)
assert scan.run(None, {"x": np.ones((2, 3), np.float32), "first": zeros})[1].shape == (2, 3)
try:
    scan.run(None, {"x": np.ones((0, 3), np.float32), "first": zeros})
except Exception as error:
    print("Scan of length 0:", type(error).__name__)
else:
    raise SystemExit("a Scan of length 0 gives a result now")

loop = opened("""g (int64 trips, float[k,3] x) => (float[k,3] last, float[m,k,3] rows) {
  go = Constant<value = bool {1}>()
  last, rows = Loop<body = b (int64 i, bool goes, float[k,3] before) => (bool still, float[k,3] after, float[k,3] row) {
    still = Identity(goes)
    after = Add(before, before)
    row = Identity(after)
  }>(trips, go, x)
}""")
x = np.ones((4, 3), np.float32)
shapes = [loop.run(None, {"trips": np.array(n), "x": x})[1].shape for n in (2, 0)]
print("Loop of 2 and of 0 trips:", shapes)
assert shapes == [(2, 4, 3), (0, 0, 3)], shapes
PYTHON
