"""Names that programs import from onnxruntime.capi."""
