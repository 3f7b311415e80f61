"""How far the API is onnxruntime's."""
