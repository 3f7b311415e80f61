#!/usr/bin/env bash
# onnxruntime 1.32: quantize_static by channel writes an invalid model where the model's operator set is older than 13.
#
# Expected: scales by channel need DequantizeLinear's axis, of operator set 13: the model is converted (as it is for 16 bits, to
# 21), or the call fails, or quantises by tensor.
# Seen: the node has the axis all the same, no error, no warning; onnx.checker and onnxruntime's own session refuse the model.
# The cost: a model that cannot be loaded, noticed when it is deployed. This fails when that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cd "$folder"
"$folder/env/bin/python" - <<'PROGRAM'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

numbers = np.random.default_rng(0)
weights = numpy_helper.from_array(numbers.standard_normal((4, 3, 3, 3)).astype(np.float32), "w")


class Reader(CalibrationDataReader):
    def __init__(self):
        self.left = iter([{"x": numbers.standard_normal((1, 3, 8, 8)).astype(np.float32)} for _ in range(4)])

    def get_next(self):
        return next(self.left, None)


def loads(opset):
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], "c")], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 6])], [weights],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7), "m.onnx")
    quantize_static("m.onnx", "q.onnx", Reader(), per_channel=True, activation_type=QuantType.QUInt8)
    try:
        onnx.checker.check_model(onnx.load("q.onnx"))
        onnxruntime.InferenceSession("q.onnx")
    except Exception as error:
        return str(error).splitlines()[0]
    return "loads"


found = {opset: loads(opset) for opset in (11, 12, 13)}
for opset, what in found.items():
    print(f"operator set {opset}: {what}")
refusal = "Unrecognized attribute: axis for operator DequantizeLinear"
assert [what.startswith(refusal) for what in found.values()] == [True, True, False] and found[13] == "loads"
PROGRAM
