#!/usr/bin/env bash
# OpenVINO 2026.4.1 (CPU) compares integers as float32: numbers beyond 2^24 that differ are equal.
# 
# Expected: Equal of int32 or int64 operands compares integers; the type in the model is i32.
# Seen: 16777217 = 16777216 and 2147483647 = 2147483646 are true, of int32 and of int64.
# Identifiers, hashes and large positions compared in a model come out equal. This fails when that changes.
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
for kind in (np.int32, np.int64):
    x = op.parameter([3], kind)
    model = core.compile_model(ov.Model([op.equal(x, op.constant(np.array([16777216, 2147483646, 7], kind)))], [x]), "CPU")
    found = list(model(np.array([16777217, 2147483647, 8], kind)).values())[0].tolist()
    print(f"{kind.__name__}: [16777217, 2147483647, 8] == [16777216, 2147483646, 7] is {found}")
    assert found == [True, True, False], found
PROGRAM
