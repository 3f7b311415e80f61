#!/usr/bin/env bash
# onnxruntime 1.32: CalibMaxIntermediateOutputs forgets the data that it bounds the memory of.
#
# Expected: "maximum number of intermediate outputs before an intermediate range is computed": the range of the runs so far is
# computed, their outputs are freed, and ranges are those of all data.
# Seen: the outputs are freed without a range. Five runs with a bound of 2: the range is that of the last run alone; with as many
# runs as a multiple of the bound there is "No data is collected".
# The cost: static quantisation by a part of the data, without a word. This fails when that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cd "$folder"
"$folder/env/bin/python" - <<'PROGRAM'
import numpy as np
import onnx
from onnx import TensorProto, helper
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod
from onnxruntime.quantization.calibrate import create_calibrator

graph = helper.make_graph(
    [helper.make_node("Relu", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "m.onnx")
LARGEST = [100.0, 50.0, 20.0, 10.0, 1.0]


class Reader(CalibrationDataReader):
    def __init__(self, runs):
        self.left = iter([{"x": np.full(4, value, np.float32)} for value in runs])

    def get_next(self):
        return next(self.left, None)


def highest(runs, **options):
    calibrator = create_calibrator("m.onnx", ["Relu"], calibrate_method=CalibrationMethod.MinMax, extra_options=options)
    calibrator.collect_data(Reader(runs))
    return float(np.squeeze(calibrator.compute_data()["y"].range_value[1]))


whole, bounded = highest(LARGEST), highest(LARGEST, max_intermediate_outputs=2)
try:
    highest(LARGEST[:4], max_intermediate_outputs=2)
    even = "a range"
except ValueError as error:
    even = str(error)
print(f"largest values {LARGEST}: range to {whole}; with max_intermediate_outputs=2 to {bounded}; of four runs: {even}")
assert (whole, bounded, even) == (100.0, 1.0, "No data is collected.")
PROGRAM
