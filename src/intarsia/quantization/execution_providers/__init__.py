"""Quantisation for single vendors' providers, under onnxruntime's names."""
