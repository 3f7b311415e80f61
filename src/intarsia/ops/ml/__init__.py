"""Operators of the domain ai.onnx.ml: classical models, and the conversions of features around them."""

DOMAIN = "ai.onnx.ml"
