#!/usr/bin/env bash
# onnxruntime 1.32 (CPU): a NaN in DynamicQuantizeLinear's input makes it forget what stood before it.
# 
# Expected: NaN makes the scale NaN (as NumPy's min and max), or is left out of the range and nothing else is.
# Seen: of eight numbers from -1 to 1 with NaN in the middle the range is -0.714 to 1: the smallest was dropped, and saturates.
# Of sixteen the range is -0.867 to 1. One NaN quantises good numbers wrongly, without a trace. This fails when that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cd "$folder"
"$folder/env/bin/python" - <<'PROGRAM'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper

info = helper.make_tensor_value_info
graph = helper.make_graph(
    [helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])], "g", [info("x", TensorProto.FLOAT, ["n"])],
    [info("y", TensorProto.UINT8, ["n"]), info("scale", TensorProto.FLOAT, []), info("zero", TensorProto.UINT8, [])],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
for count, lowest in ((8, -0.714), (16, -0.867)):
    x = np.linspace(-1, 1, count).astype(np.float32)
    x[count // 2] = np.nan
    y, scale, zero = session.run(None, {"x": x})
    low, high = -float(zero) * float(scale), (255 - float(zero)) * float(scale)
    print(f"{count} numbers from -1 to 1, one of them NaN: the range is {low:.3f} to {high:.3f}; -1 becomes {(float(y[0]) - zero) * scale:.3f}")
    assert abs(low - lowest) < 0.01 and abs(high - 1) < 0.01, (low, high)
PROGRAM
