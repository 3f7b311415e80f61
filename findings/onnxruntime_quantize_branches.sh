#!/usr/bin/env bash
# onnxruntime 1.32: quantize_dynamic writes an If before the product that its branches read.
#
# Expected: nodes of a model are in an order in which each reads what nodes before it gave, as ONNX asks for; what branches read of
# the graph around them counts.
# Seen: nodes are sorted by their inputs alone, so that the If comes first: onnx.checker refuses the model, before and after it
# was quantised in its branches too (EnableSubgraph). onnxruntime's session sorts nodes itself, and loads it.
# The cost: a model that its maker runs and other tools refuse. This fails when that changes.
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
from onnxruntime.quantization import quantize_dynamic

numbers = np.random.default_rng(0)
tensors = [numpy_helper.from_array(numbers.standard_normal(s).astype(np.float32), n) for n, s in (("w", (8, 8)), ("v", (8, 4)))]


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def branch(name, sign):
    nodes = [helper.make_node(sign, ["m"], [f"{name}_a"]), helper.make_node("MatMul", [f"{name}_a", "v"], [name], f"product_{name}")]
    return helper.make_graph(nodes, name, [], [value(name, TensorProto.FLOAT, ["n", 4])])


graph = helper.make_graph(
    [
        helper.make_node("MatMul", ["x", "w"], ["m"], "first"),
        helper.make_node("If", ["c"], ["y"], "if", then_branch=branch("t", "Neg"), else_branch=branch("e", "Abs")),
    ],
    "g", [value("x", TensorProto.FLOAT, ["n", 8]), value("c", TensorProto.BOOL, [])], [value("y", TensorProto.FLOAT, ["n", 4])],
    tensors,
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
onnx.checker.check_model(model)
onnx.save(model, "m.onnx")


def refusals(**options):
    quantize_dynamic("m.onnx", "q.onnx", extra_options=options)
    found = []
    for name, check in (("checker", lambda: onnx.checker.check_model(onnx.load("q.onnx"))),
                        ("session", lambda: onnxruntime.InferenceSession("q.onnx"))):
        try:
            check()
        except Exception as error:
            found.append(name)
            print(f"{options}: {name}: {str(error).splitlines()[0]}")
    return found


assert refusals() == ["checker"]
assert refusals(EnableSubgraph=True) == ["checker"]
PROGRAM
