"""onnxruntime's objects: glue over model/, reports/ and options/."""

from typing import Any


def __getattr__(name: str) -> Any:
    """`InferenceSession` under the name that it had before version 0.2; goes with version 0.3."""
    if name == "InferenceSession":
        from intarsia.session.ort_methods import OrtMethods

        return OrtMethods._session_class
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
