"""Small models by their text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import onnx.parser
import pytest

import intarsia as ort

HEADER = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>'
AFFINE = "g (float[N,3] x) => (float[N,3] y, float[N,3] z) { y = Neg(x)  z = Abs(x) }"


def model_of(text: str, header: str = HEADER) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{header} {text}")


@pytest.fixture
def make_model() -> Callable[..., onnx.ModelProto]:
    return model_of


@pytest.fixture
def make_session() -> Callable[..., ort.InferenceSession]:
    """A session on the CPU from the text of a graph."""

    def make(text: str = AFFINE, options: ort.SessionOptions | None = None, **kwargs: Any) -> ort.InferenceSession:
        kwargs.setdefault("providers", ["CPUExecutionProvider"])
        return ort.InferenceSession(model_of(text).SerializeToString(), options, **kwargs)

    return make
