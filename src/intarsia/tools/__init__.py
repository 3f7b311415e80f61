"""Model tools under the names of onnxruntime's: those that scripts import.

`symbolic_shape_infer`, `onnx_model_utils`, `make_dynamic_shape_fixed`, `update_onnx_opset`, `optimize_onnx_model` and
`add_openvino_win_libs`. The other tools of onnxruntime do not depend on the runtime: with its package installed,
`intarsia.install_as("onnxruntime")` lets all of them run over Intarsia.
"""
