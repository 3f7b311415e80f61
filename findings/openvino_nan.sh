#!/usr/bin/env bash
# OpenVINO 2026.4.1 (CPU): NaN is greater than every number, and whether Minimum keeps it depends on the order of operands.
# 
# Expected: comparisons with NaN are false, as in IEEE 754, NumPy and ONNX; minimum(x, y) = minimum(y, x).
# Seen: Greater and GreaterEqual of NaN are true, Less and LessEqual false; Minimum(x, 5) of NaN is 5, Minimum(5, x) is NaN.
# A mask such as `scores > threshold` keeps what it should drop. This fails when that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check openvino==2026.4.1 numpy==2.4.6
cd "$folder"
"$folder/env/bin/python" - <<'PROGRAM'
import numpy as np
import openvino as ov
from openvino import opset13 as op

core = ov.Core()


def run(made):
    x = op.parameter([2], np.float32)
    model = core.compile_model(ov.Model([made(x)], [x]), "CPU")
    return list(model(np.array([np.nan, 1], np.float32)).values())[0].tolist()


half, five = np.float32([0.5, 0.5]), np.float32([5, 5])
for name in ("greater", "greater_equal", "less", "less_equal"):
    found = run(lambda x: getattr(op, name)(x, op.constant(half)))
    print(f"{name}([nan, 1], 0.5) = {found}")
    assert found == ([True, True] if name.startswith("greater") else [False, False]), found
first, second = run(lambda x: op.minimum(x, op.constant(five))), run(lambda x: op.minimum(op.constant(five), x))
print("minimum([nan, 1], 5) =", first, " minimum(5, [nan, 1]) =", second)
assert first == [5, 1] and np.isnan(second[0]) and second[1] == 1
PROGRAM
