"""Models with operators of the domain `my`; what a test registers in the process is forgotten after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import onnx
import onnx.parser
import pytest

import intarsia
from intarsia.ops.framework.registry_scopes import PROCESS

HEADER = '<ir_version: 10, opset_import: ["": 20, "my": 1, "com.microsoft": 1]>'
PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")


@pytest.fixture(autouse=True)
def own_operators() -> Iterator[None]:
    before = dict(PROCESS._records)
    yield
    PROCESS._records.clear()
    PROCESS._records.update(before)
    PROCESS._layered = None


@pytest.fixture
def make_model() -> Callable[..., onnx.ModelProto]:
    def make(text: str, header: str = HEADER) -> onnx.ModelProto:
        return onnx.parser.parse_model(f"{header} {text}")

    return make


@pytest.fixture(params=PROVIDERS)
def session_of(request: pytest.FixtureRequest, make_model: Callable[..., onnx.ModelProto]) -> Callable[..., Any]:
    """A session from the text of a graph, once on each provider that runs everything."""

    def make(text: str, *, header: str = HEADER, **keywords: Any) -> intarsia.InferenceSession:
        return intarsia.InferenceSession(make_model(text, header), providers=[request.param], **keywords)

    return make
