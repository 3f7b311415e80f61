"""scikit-learn's models as ONNX."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from intarsia import InferenceSession

pytest.importorskip("sklearn", reason="trains the models")
skl2onnx = pytest.importorskip("skl2onnx", reason="converts scikit-learn's models to ONNX")

from skl2onnx.common import _container  # noqa: E402
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType  # noqa: E402

TYPES: dict[str, Any] = {"float32": FloatTensorType, "float64": DoubleTensorType}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def integers_for_booleans() -> Iterator[None]:
    """skl2onnx 1.20 gives lists of `bool` for histogram-based trees, which onnx 1.23 refuses as integers."""
    plain = _container.make_node

    def make_node(*args: Any, **attributes: Any) -> Any:
        for name, value in attributes.items():
            if isinstance(value, list) and any(isinstance(v, (bool, np.bool_)) for v in value):
                attributes[name] = [int(v) for v in value]
        return plain(*args, **attributes)

    _container.make_node = make_node
    try:
        yield
    finally:
        _container.make_node = plain


def convert(model: Any, inputs: list[tuple[str, Any]], zipmap: bool | None = False, **options: Any) -> bytes:
    """The model's bytes. `zipmap` is the option of classifiers (None: it has none)."""
    chosen = {} if zipmap is None else {id(model): {"zipmap": zipmap, **options}}
    with quiet(), integers_for_booleans():
        return bytes(
            skl2onnx.convert_sklearn(
                model, initial_types=inputs, options=chosen or None, target_opset={"": 18, "ai.onnx.ml": 3}
            ).SerializeToString()
        )


def session(model: bytes, provider: str = "CPUExecutionProvider") -> InferenceSession:
    return InferenceSession(model, providers=[provider])


def on_host(ran: InferenceSession) -> set[str]:
    """Operators that run as host functions."""
    return {node.kernel for node in ran.explain().nodes if node.kind == "host"}
