#!/usr/bin/env bash
# OpenVINO 2026.4.1 pads with 0 where Pad has constant pads, a `constant_value` that is an input of the model, and an input of known
# sizes; with sizes that the run says it pads with the value.
#
# Expected: the same numbers, 7 at the border, for both models, as they differ in how the first input's sizes are declared alone.
# Seen: 0 at the border of the first, 7 of the second. This fails when that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check openvino==2026.4.1 onnx==1.23.2 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper

core = openvino.Core()
borders = []
for sizes in ([2, 3], ["rows", "columns"]):
    graph = helper.make_graph(
        [helper.make_node("Pad", ["x", "pads", "value"], ["y"])], "border",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes), helper.make_tensor_value_info("value", TensorProto.FLOAT, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"])],
        [helper.make_tensor("pads", TensorProto.INT64, [4], [0, 1, 0, 0])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = compiled({"x": np.ones((2, 3), np.float32), "value": np.array(7, np.float32)})[0]
    print(f"x{sizes}: {found.tolist()}")
    borders.append(found[:, 0].tolist())
assert borders == [[0, 0], [7, 7]], borders
PYTHON
