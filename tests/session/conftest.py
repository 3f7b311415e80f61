"""Models from ONNX's text form, and sessions on the reference provider."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import onnx.parser
import pytest

import intarsia as ort

REFERENCE = "ReferenceExecutionProvider"
HEADER = '<ir_version: 8, opset_import: ["" : 17]>'


def model_of(text: str, header: str = HEADER) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{header} {text}")


@pytest.fixture
def make_model() -> Callable[..., onnx.ModelProto]:
    return model_of


@pytest.fixture
def make_session() -> Callable[..., ort.InferenceSession]:
    """A session from the text of a graph; on the reference provider unless `providers` says otherwise."""

    def make(text: str, options: ort.SessionOptions | None = None, header: str = HEADER, **kwargs: Any) -> ort.InferenceSession:
        kwargs.setdefault("providers", [REFERENCE])
        return ort.InferenceSession(model_of(text, header).SerializeToString(), options, **kwargs)

    return make


@pytest.fixture(params=[REFERENCE, "CPUExecutionProvider"])
def any_session(request: pytest.FixtureRequest, make_session: Callable[..., ort.InferenceSession]) -> Callable[..., Any]:
    """`make_session` once on each provider that runs everything."""

    def make(text: str, **kwargs: Any) -> ort.InferenceSession:
        return make_session(text, providers=[request.param], **kwargs)

    return make
