#!/usr/bin/env bash
# onnxruntime 1.32 (CPU): DynamicQuantizeLSTM gives other numbers with other numbers of threads.
# 
# Expected: the number of threads changes the time of a run, not what it computes (here by far more than sums round).
# Rows of a batch are quantised together by the thread that has them, so that the scale of a row depends on its neighbours.
# Seen: 1 and 2 threads differ by over 1e-4 in a batch of two; the first row alone is another than within the batch.
# Results of a deployed model change with the machine. This fails when that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cd "$folder"
"$folder/env/bin/python" - <<'PROGRAM'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(0)
size = 16
constants = {
    "W": rng.integers(-127, 127, (1, size, 4 * size)).astype(np.int8), "R": rng.integers(-127, 127, (1, size, 4 * size)).astype(np.int8),
    "scale": np.float32([0.002]), "zero": np.int8([0]),
}
node = helper.make_node(
    "DynamicQuantizeLSTM", ["x", "W", "R", "", "", "", "", "", "scale", "zero", "scale", "zero"], ["y"],
    hidden_size=size, domain="com.microsoft",
)
graph = helper.make_graph(
    [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["steps", "batch", size])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    [numpy_helper.from_array(value, name) for name, value in constants.items()],
)
opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
x = rng.standard_normal((5, 2, size)).astype(np.float32)
x[:, 1] *= 10


def run(threads, x):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


one, two = run(1, x), run(2, x)
threads, alone = abs(one - two).max(), abs(run(1, x[:, :1]) - one[:, :, :1]).max()
print(f"1 and 2 threads: largest difference {threads:.1e}; the first row alone: {alone:.1e}")
assert threads > 1e-4 and alone > 1e-3
PROGRAM
