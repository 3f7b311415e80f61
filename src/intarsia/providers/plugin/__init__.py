"""Vendors' plugin libraries as providers: the host's side of onnxruntime's interface for plugins."""
