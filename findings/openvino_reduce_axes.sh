#!/usr/bin/env bash
# OpenVINO 2026.4.1 reads no attribute `axes` of ReduceL1, ReduceLogSum and ReduceLogSumExp in models of operator sets 13 to 17, and
# reduces all axes.
#
# Expected: the sums of each row. `axes` is an attribute of these operators up to operator set 17; of ReduceSum alone it became an
# input in 13, of the others in 18. Seen: one number, the reduction of everything, without an error; at operator set 11, and of
# ReduceL2, ReduceMax, ReduceMean, ReduceMin, ReduceProd and ReduceSumSquare at all of them, the right numbers.
# This fails when that changes.
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
from onnx.reference import ReferenceEvaluator

x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
core = openvino.Core()
ignored = set()
for op_type in (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare",
):
    for opset in (11, 13, 17):
        node = helper.make_node(op_type, ["x"], ["y"], axes=[1], keepdims=0)
        graph = helper.make_graph(
            [node], "rows", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
        compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        found = compiled({"x": x})[0]
        if found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-4):
            ignored.add((op_type, opset))
            print(f"{op_type}-{opset}: expected {expected.tolist()}, got {found.tolist()}")
assert ignored == {(op, opset) for op in ("ReduceL1", "ReduceLogSum", "ReduceLogSumExp") for opset in (13, 17)}, ignored
PYTHON
